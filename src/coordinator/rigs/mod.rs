//! Workers as people know them: what they said, what was decided about them, what they have done. Dispatch knows who
//! can serve a job; here is who somebody is.
//!
//! | file | what it is |
//! | --- | --- |
//! | `records` | what is new of each worker, in memory until it is saved |
//! | `live` | one of them: when it was seen, what it has done, what it dropped |
//! | `pace` | how fast one is |
//! | `books` | what ended jobs say about the workers that made them |
//! | `admission` | whether a name may become a worker |
//! | `keeper` | the task that saves, and sends into maintenance who drops too much |
//!
//! A pop never waits for the disk here, except the first one of a worker: what workers say and do is saved every half
//! minute, many at once. What their owners decide is on disk before it is answered.

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
use super::moderation::{Mark, Reason};
use super::modes::ModeSet;
use super::names::Names;
use super::state::DoorSettings;
use super::storage::{
    Decision, Joined, RigChange, RigRow, Said, StorageError, Store, TeamShare, WorkerRow,
};
use super::switchboard::Switchboard;
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, Targets, WorkerId};
use muster_protocol::legacy::words::{Trade, named};

use admission::House;
use live::{ONLINE, Seen};

/// All of them. Clones are the same.
#[derive(Debug, Clone)]
pub struct Rigs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    records: Records,
    store: Store,
    board: Switchboard,
    /// None: as many as anybody likes, from wherever.
    quotas: Option<Quotas>,
    names: Names,
    sizes: Prices,
    /// Changes whenever something was decided about a worker.
    decided: watch::Sender<()>,
}

impl Inner {
    fn billions(&self, model: &str) -> f64 {
        self.sizes.billions(&self.names.id(model))
    }
}

/// A worker as it is now: its row, and what is not saved yet.
#[derive(Debug, Clone)]
pub struct Rig {
    pub row: RigRow,
    pub trade: Trade,
    pub online: bool,
}

impl Rigs {
    pub fn start(
        records: Records,
        board: Switchboard,
        store: Store,
        settings: &DoorSettings,
        tasks: &Tasks,
    ) -> Self {
        if settings.worker_quotas.is_some() {
            records.judge_by(settings.names.clone(), settings.sizes.clone());
        }
        let rigs = Self(Arc::new(Inner {
            records,
            store,
            board,
            quotas: settings.worker_quotas,
            names: settings.names.clone(),
            sizes: settings.sizes.clone(),
            decided: watch::Sender::default(),
        }));
        keeper::start(&rigs, tasks);
        rigs
    }

    /// The worker of this name for whoever may have it. What is known of it counts from here on.
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

    /// Whether a worker of this name is known already, or why it would not be admitted. Changes nothing.
    pub async fn check(&self, who: &Applicant<'_>) -> Result<bool, NotAdmitted> {
        let house = House {
            quotas: self.0.quotas,
            by_invitation: self.0.records.are_on(ModeSet::INVITE_ONLY),
        };
        admission::check(who, &self.0.store, house).await
    }

    /// What was decided about a worker counts from here on, though it may not have come yet.
    pub async fn recall(&self, worker: WorkerId) -> Result<(), StorageError> {
        match self.0.records.knows(worker) {
            true => Ok(()),
            false => self.relearn(worker).await,
        }
    }

    /// Something was seen of a worker that counts once.
    pub fn suspect_of(&self, worker: WorkerId, reason: Reason) {
        self.0.records.suspect_of(worker, reason);
    }

    /// Who comes with a name that no worker may have.
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

    /// What was decided about the workers of an account has changed on disk, and counts from here on.
    pub async fn relearn_all_of(&self, owner: AccountId) -> Result<(), StorageError> {
        for row in self.0.store.rigs_of(owner).await? {
            if self.0.records.knows(row.id) {
                self.0.records.learn(&row);
                self.tell(row.id).await;
            }
        }
        Ok(())
    }

    /// A worker came, and said this of itself, if it is anything new.
    pub async fn check_in(&self, worker: WorkerId, said: Option<(Trade, Said)>) {
        let is_new = said.is_some();
        let is_first = is_new && self.0.records.trade(worker).is_none();
        if let Some((_, said)) = &said {
            self.0.records.suspect(worker, said);
        }
        self.0.records.check_in(worker, Seen::now(said));
        if is_new && let Some(terms) = self.0.records.change(worker, |name| self.0.billions(name)) {
            // If it has stopped, nobody is given anything more.
            let _ = self.0.board.set_terms(worker, terms).await;
        }
        // Whatever becomes of this process, it is known who has what it was given; and where workers of one address are
        // counted, it counts from its first pop on.
        if is_first && let Err(error) = self.0.save_one(worker).await {
            warn!("saving a new worker failed, retrying later: {error}");
        }
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Rises when a key was changed.
    pub fn keys_revision(&self) -> watch::Receiver<i64> {
        self.0.store.keys_revision()
    }

    /// Whether a worker is paused: what it makes for others is thrown away, and it is not told.
    pub fn is_doubted(&self, worker: WorkerId) -> bool {
        self.0.records.is_doubted(worker)
    }

    /// Wakes whenever something was decided about a worker.
    pub fn decisions(&self) -> watch::Receiver<()> {
        self.0.decided.subscribe()
    }

    /// What a worker in maintenance is told.
    pub fn maintenance(&self, worker: WorkerId) -> Option<String> {
        self.0.records.maintenance(worker)
    }

    /// The workers of these ids, or all but those. Nothing if one of them is not known.
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

    /// What a worker does that has popped before.
    pub fn trade(&self, worker: WorkerId) -> Option<Trade> {
        self.0.records.trade(worker)
    }

    /// Those that are online, by name.
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

    /// Names are compared exactly.
    pub async fn named(&self, name: &str) -> Result<Option<Rig>, StorageError> {
        let row = self.0.store.rig_named(name).await?;
        Ok(row.map(|row| self.current(row)))
    }

    /// Those of an account, by name.
    pub async fn of(&self, owner: AccountId) -> Result<Vec<Rig>, StorageError> {
        let rows = self.0.store.rigs_of(owner).await?;
        Ok(rows.into_iter().map(|row| self.current(row)).collect())
    }

    /// Those of a team, by name.
    pub async fn of_team(&self, team: i64) -> Result<Vec<Rig>, StorageError> {
        let rows = self.0.store.rigs_in(team).await?;
        Ok(rows.into_iter().map(|row| self.current(row)).collect())
    }

    /// Those of any team, by name.
    pub async fn of_teams(&self) -> Result<Vec<Rig>, StorageError> {
        let rows = self.0.store.rigs_in_teams().await?;
        Ok(rows.into_iter().map(|row| self.current(row)).collect())
    }

    /// What workers did for their teams that is not saved yet.
    pub fn team_shares(&self) -> HashMap<i64, TeamShare> {
        self.0.records.team_shares()
    }

    /// A team is no more: nobody is in it.
    pub fn disband(&self, team: i64) {
        self.0.records.disband(team);
    }

    /// Changes what was decided, on disk and for every pop that comes after the answer.
    pub async fn change(&self, rig: &Rig, change: RigChange) -> Result<Decision, StorageError> {
        if change.team.is_some() {
            // What it did until now was for the team it was in.
            self.0.save_one(rig.row.id).await?;
        }
        let done = self.0.store.decide(rig.row.id, change).await?;
        if done == Decision::Done {
            self.relearn(rig.row.id).await?;
        }
        Ok(done)
    }

    /// Whether it was forgotten: not while somebody may read what it has made, or waits for it.
    pub async fn delete(&self, rig: &Rig) -> Result<bool, StorageError> {
        let overview = self.0.board.overview();
        let mut workers = overview.workers.iter();
        let works = workers.any(|it| it.public_id == rig.row.public_id && it.running > 0);
        if works || self.0.store.has_results(rig.row.id).await? {
            return Ok(false);
        }
        self.0.store.delete_rig(rig.row.id).await?;
        self.0.records.forget(rig.row.id);
        // If it has stopped, nobody is given anything more.
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

    /// Dispatch hears what it has to know of a worker. If it has stopped, nobody pops any more.
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
