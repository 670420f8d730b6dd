//! Workers' records: reports, settings, totals. Dispatch knows the capabilities of workers; this module knows their
//! owners and history.
//!
//! | file | contents |
//! | --- | --- |
//! | `records` | unsaved changes of all workers, in memory |
//! | `live` | a worker: when it was seen, its totals, its dropped jobs |
//! | `pace` | the speed of a worker |
//! | `books` | effects of ended jobs on their workers' records |
//! | `admission` | whether a name may become a worker |
//! | `keeper` | the task that saves, and puts workers that drop too many jobs into maintenance |
//!
//! A pop never waits for the disk here, except the first of a worker: reports and totals are saved every half minute,
//! in batches. Owners' settings are stored before the reply.

mod admission;
mod books;
mod keeper;
mod live;
mod pace;
mod records;

pub use admission::{Applicant, NotAdmitted, Quotas};
pub use books::notes;
pub use records::Records;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;
use tracing::warn;
use uuid::Uuid;

use super::clock::wall_clock;
use super::kudos::Prices;
use super::names::Names;
use super::storage::{
    Decision, Joined, RigChange, RigRow, Said, StorageError, Store, TeamShare, WorkerRow,
};
use super::switchboard::Switchboard;
use crate::values::modes::ModeSet;
use crate::values::suspicion::{Mark, Reason};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, Targets, WorkerId};
use muster_protocol::legacy::words::{Trade, named};

use admission::House;
use live::{ONLINE, Seen};

/// All workers. Clones share the state.
#[derive(Debug, Clone)]
pub struct Rigs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    records: Records,
    store: Store,
    board: Switchboard,
    /// `None`: no limit per owner and address.
    quotas: Option<Quotas>,
    names: Names,
    sizes: Prices,
    /// Notifies of decisions about workers.
    decided: watch::Sender<()>,
}

impl Inner {
    fn billions(&self, model: &str) -> f64 {
        self.sizes.billions(&self.names.id(model))
    }
}

/// A worker's current state: its row with unsaved changes.
#[derive(Debug, Clone)]
pub struct Rig {
    pub row: RigRow,
    pub trade: Trade,
    pub online: bool,
}

/// Settings by which workers are judged.
#[derive(Debug, Clone, Default)]
pub struct RigSettings {
    /// Limits of workers per owner; `None` is unlimited.
    pub quotas: Option<Quotas>,
    pub names: Names,
    pub sizes: Prices,
}

impl Rigs {
    pub fn start(
        records: Records,
        board: Switchboard,
        store: Store,
        settings: RigSettings,
        tasks: &Tasks,
    ) -> Self {
        let RigSettings {
            quotas,
            names,
            sizes,
        } = settings;
        if quotas.is_some() {
            records.judge_by(names.clone(), sizes.clone());
        }
        let rigs = Self(Arc::new(Inner {
            records,
            store,
            board,
            quotas,
            names,
            sizes,
            decided: watch::Sender::default(),
        }));
        keeper::start(&rigs, tasks);
        rigs
    }

    /// Registers or looks up the worker of this name, and loads its settings.
    pub async fn meet(&self, who: &Applicant<'_>) -> Result<WorkerRow, NotAdmitted> {
        let suspicion = admission::suspicion_of(who.name);
        let house = House {
            quotas: self.0.quotas,
            by_invitation: self.0.records.are_on(ModeSet::INVITE_ONLY),
        };
        let Joined { row, is_new } = match admission::admit(who, &self.0.store, house).await {
            Ok(joined) => joined,
            Err(not) => {
                if let Some(reason) = suspicion {
                    self.suspect_applicant(who.owner, reason).await;
                }
                return Err(not);
            }
        };
        if is_new {
            self.0.records.welcome(row.id);
        } else {
            self.recall(row.id).await?;
        }
        if let Some(reason) = suspicion {
            self.suspect_of(row.id, reason);
        }
        Ok(row)
    }

    /// True if the worker is known, or the reason against its admission. Changes nothing.
    pub async fn check(&self, who: &Applicant<'_>) -> Result<bool, NotAdmitted> {
        let house = House {
            quotas: self.0.quotas,
            by_invitation: self.0.records.are_on(ModeSet::INVITE_ONLY),
        };
        admission::check(who, &self.0.store, house).await
    }

    /// Loads a worker's settings, even if it has not connected.
    pub async fn recall(&self, worker: WorkerId) -> Result<(), StorageError> {
        match self.0.records.knows(worker) {
            true => Ok(()),
            false => self.relearn(worker).await,
        }
    }

    /// Adds a suspicion mark that counts once.
    pub fn suspect_of(&self, worker: WorkerId, reason: Reason) {
        self.0.records.suspect_of(worker, reason);
    }

    /// Marks an account for a forbidden worker name.
    async fn suspect_applicant(&self, account: AccountId, reason: Reason) {
        if self.0.quotas.is_none() {
            return;
        }
        let mark = Mark {
            account,
            worker: None,
            reason,
        };
        if let Err(error) = self.0.store.mark(mark, wall_clock()).await {
            warn!("recording a suspicion mark failed: {error}");
        }
    }

    /// Loads the settings of an account's known workers again after a change.
    pub async fn relearn_all_of(&self, owner: AccountId) -> Result<(), StorageError> {
        for row in self.0.store.rigs_of(owner).await? {
            if self.0.records.knows(row.id) {
                self.0.records.learn(&row);
                self.tell(row.id).await;
            }
        }
        Ok(())
    }

    /// Records a contact of a worker, with its claims if they changed.
    pub async fn check_in(&self, worker: WorkerId, said: Option<(Trade, Said)>) {
        let is_new = said.is_some();
        let is_first = is_new && self.0.records.trade(worker).is_none();
        if let Some((_, said)) = &said {
            self.0.records.suspect(worker, said);
        }
        self.0.records.check_in(worker, Seen::now(said));
        if is_new && let Some(terms) = self.0.records.change(worker, |name| self.0.billions(name)) {
            // A stopped switchboard gives out no jobs, so the error does not matter.
            let _ = self.0.board.set_terms(worker, terms).await;
        }
        // The first pop is saved at once: a crash must not lose the worker of a lease, and limits per address count it.
        if is_first && let Err(error) = self.0.save_one(worker).await {
            warn!("saving a new worker failed, retrying later: {error}");
        }
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Incremented with every change of a key.
    pub fn keys_revision(&self) -> watch::Receiver<i64> {
        self.0.store.keys_revision()
    }

    /// Whether a worker is paused: its results for other accounts are discarded, without its knowledge.
    pub fn is_doubted(&self, worker: WorkerId) -> bool {
        self.0.records.is_doubted(worker)
    }

    /// Notifies of decisions about workers.
    pub fn decisions(&self) -> watch::Receiver<()> {
        self.0.decided.subscribe()
    }

    /// The maintenance note of a worker in maintenance.
    pub fn maintenance(&self, worker: WorkerId) -> Option<String> {
        self.0.records.maintenance(worker)
    }

    /// The workers of these ids, or all others if `denied`. `None` if an id is unknown.
    pub async fn targets(
        &self,
        ids: &[String],
        denied: bool,
    ) -> Result<Option<Targets>, StorageError> {
        let mut workers = Vec::new();
        for id in ids {
            let found = match Uuid::parse_str(id) {
                Ok(id) => self.0.store.rig(id).await?,
                Err(_) => None,
            };
            let Some(found) = found else {
                return Ok(None);
            };
            workers.push(found.id);
        }
        Ok(Some(Targets::of(workers, denied)))
    }

    /// The kind of a worker, once it has popped.
    pub fn trade(&self, worker: WorkerId) -> Option<Trade> {
        self.0.records.trade(worker)
    }

    /// Online workers, by name.
    pub async fn online(&self) -> Result<Vec<Rig>, StorageError> {
        let overview = self.0.board.overview();
        let since = wall_clock().before(2 * ONLINE);
        let mut rows = self.0.store.rigs_seen_since(since).await?;
        for worker in &overview.workers {
            let is_it = |row: &RigRow| row.public_id == worker.public_id;
            if !rows.iter().any(is_it)
                && let Some(row) = self.0.store.rig(worker.public_id).await?
            {
                rows.push(row);
            }
        }
        rows.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let rigs = rows.into_iter().map(|row| self.current(row));
        Ok(rigs.filter(|rig| rig.online).collect())
    }

    pub async fn find(&self, public_id: Uuid) -> Result<Option<Rig>, StorageError> {
        let row = self.0.store.rig(public_id).await?;
        Ok(row.map(|row| self.current(row)))
    }

    /// Names are case-sensitive.
    pub async fn named(&self, name: &str) -> Result<Option<Rig>, StorageError> {
        let row = self.0.store.rig_named(name).await?;
        Ok(row.map(|row| self.current(row)))
    }

    /// Workers of an account, by name.
    pub async fn of(&self, owner: AccountId) -> Result<Vec<Rig>, StorageError> {
        let rows = self.0.store.rigs_of(owner).await?;
        Ok(rows.into_iter().map(|row| self.current(row)).collect())
    }

    /// Workers of a team, by name.
    pub async fn of_team(&self, team: i64) -> Result<Vec<Rig>, StorageError> {
        let rows = self.0.store.rigs_in(team).await?;
        Ok(rows.into_iter().map(|row| self.current(row)).collect())
    }

    /// Workers of any team, by name.
    pub async fn of_teams(&self) -> Result<Vec<Rig>, StorageError> {
        let rows = self.0.store.rigs_in_teams().await?;
        Ok(rows.into_iter().map(|row| self.current(row)).collect())
    }

    /// Unsaved shares of teams.
    pub fn team_shares(&self) -> HashMap<i64, TeamShare> {
        self.0.records.team_shares()
    }

    /// Removes all workers from a deleted team.
    pub fn disband(&self, team: i64) {
        self.0.records.disband(team);
    }

    /// Changes a worker's settings: stored and effective for every later pop.
    pub async fn change(&self, rig: &Rig, change: RigChange) -> Result<Decision, StorageError> {
        if change.team.is_some() {
            // Saves the share for the present team before the change.
            self.0.save_one(rig.row.id).await?;
        }
        let done = self.0.store.decide(rig.row.id, change).await?;
        if done == Decision::Done {
            self.relearn(rig.row.id).await?;
        }
        Ok(done)
    }

    /// Deletes a worker. False while it runs jobs or its results can be read.
    pub async fn delete(&self, rig: &Rig) -> Result<bool, StorageError> {
        let overview = self.0.board.overview();
        let mut workers = overview.workers.iter();
        let works = workers.any(|it| it.public_id == rig.row.public_id && it.running > 0);
        if works || self.0.store.has_results(rig.row.id).await? {
            return Ok(false);
        }
        self.0.store.delete_rig(rig.row.id).await?;
        self.0.records.forget(rig.row.id);
        // A stopped switchboard gives out no jobs, so the error does not matter.
        let _ = self.0.board.dismiss(rig.row.id).await;
        Ok(true)
    }

    async fn relearn(&self, worker: WorkerId) -> Result<(), StorageError> {
        if let Some(rig) = self.0.store.rig_of_row(worker).await? {
            self.0.records.learn(&rig);
            self.tell(rig.id).await;
        }
        Ok(())
    }

    /// Sends a worker's terms to dispatch. A stopped switchboard answers no pops, so the error does not matter.
    async fn tell(&self, worker: WorkerId) {
        let terms = self.0.records.terms(worker, |name| self.0.billions(name));
        let _ = self.0.board.set_terms(worker, terms).await;
        self.0.decided.send_replace(());
    }

    fn current(&self, mut row: RigRow) -> Rig {
        let overview = self.0.board.overview();
        let mut workers = overview.workers.iter();
        let connected = workers.find(|worker| worker.public_id == row.public_id);
        self.0.records.bring_up_to_date(&mut row);
        let online = connected.is_some() || row.seen_at.after(ONLINE) > wall_clock();
        if let Some(worker) = connected.filter(|_| row.trade.is_empty()) {
            row.said = live::said_on_socket(worker);
        }
        let trade = named::<Trade>(&row.trade).unwrap_or_else(|| live::trade(connected));
        Rig { row, trade, online }
    }
}
