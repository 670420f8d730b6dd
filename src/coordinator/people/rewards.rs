//! Rewards besides those of jobs: uptime of workers, monthly kudos, and trust for owners with enough earnings.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::accounts::Accounts;
use crate::clock::wall_clock;
use crate::kudos::{Presence, Prices};
use crate::rigs::Rigs;
use crate::storage::{Attended, Promotion, StorageError, Store};
use crate::switchboard::{Switchboard, WorkerOnline};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, Capabilities, Formats, Kind, Kudos};
use muster_protocol::legacy::agent::BridgeAgent;

use super::attendance::Attendance;

const TICK: Duration = Duration::from_secs(60);
/// Ticks between two checks for due months.
const MONTHS: u32 = 60;
/// Minimum age of an account that becomes trusted by its earnings.
const PROVEN: Duration = Duration::from_secs(7 * 86_400);
/// With this many suspicion marks, a moderator must review the account first.
const SUSPECT: i64 = 5;
/// Pays rewards.
#[derive(Debug, Clone)]
pub struct Rewards {
    pub store: Store,
    pub accounts: Accounts,
    pub switchboard: Switchboard,
    pub rigs: Rigs,
    pub prices: Arc<Prices>,
    /// Earnings after which an owner is trusted; `None` if trust is not required.
    pub trust_after: Option<Kudos>,
    /// Off where other programs' tests set balances themselves.
    pub gives_months: bool,
}

impl Rewards {
    pub fn start(self, tasks: &Tasks) {
        let stopping = tasks.stopping();
        tasks.start(async move {
            stopping.run_until_cancelled(self.give_on()).await;
        });
    }

    async fn give_on(self) {
        let (mut attendance, mut looked) = (Attendance::default(), Instant::now());
        let mut untold = Vec::new();
        for tick in 1_u32.. {
            sleep(TICK).await;
            let now = Instant::now();
            self.pay_those_there(&mut attendance, now - looked).await;
            looked = now;
            if let Err(error) = self.give(tick, &mut untold).await {
                warn!("granting rewards failed, retrying later: {error}");
            }
        }
    }

    async fn give(&self, tick: u32, untold: &mut Vec<AccountId>) -> Result<(), StorageError> {
        match self.trust_after {
            Some(earned) => self.promote(earned, untold).await?,
            None => self.store.release_escrows(wall_clock()).await?,
        }
        if self.gives_months && tick.is_multiple_of(MONTHS) {
            self.store.pay_months(wall_clock()).await?;
        }
        Ok(())
    }

    /// Promotes owners and notifies them; a failed notification is retried with the next call.
    async fn promote(
        &self,
        earned: Kudos,
        untold: &mut Vec<AccountId>,
    ) -> Result<(), StorageError> {
        let now = wall_clock();
        let promotion = Promotion {
            earned,
            born_before: now.before(PROVEN),
            suspicion: SUSPECT,
            now,
        };
        let promoted = self.store.promote(promotion).await?;
        if !promoted.is_empty() {
            info!("{} worker owners are now trusted", promoted.len());
        }
        untold.extend(promoted);
        if untold.is_empty() {
            return Ok(());
        }
        self.accounts.catch_up().await?;
        while let Some(owner) = untold.last() {
            self.rigs.relearn_all_of(*owner).await?;
            untold.pop();
        }
        Ok(())
    }

    async fn pay_those_there(&self, attendance: &mut Attendance, during: Duration) {
        let overview = self.switchboard.overview();
        let there = overview.workers.iter();
        let there = there.map(|worker| (worker.public_id, !worker.own_only));
        let full = attendance.note(there, during);
        let due = overview.workers.iter();
        for worker in due.filter(|worker| full.contains(&worker.public_id)) {
            let Some(presence) = presence(worker, &self.prices) else {
                continue;
            };
            let attended = Attended {
                worker: worker.public_id,
                worth: presence.worth(),
                at_once: self.trust_after.is_none() || presence.is_paid_at_once(),
                now: wall_clock(),
            };
            if let Err(error) = self.store.pay_attendance(attended).await {
                debug!("paying the uptime of a worker failed, retrying later: {error}");
                attendance.give_back(worker.public_id);
            }
        }
    }
}

/// The worker's uptime category; `None` for kinds without a reward.
fn presence(worker: &WorkerOnline, prices: &Prices) -> Option<Presence> {
    let agent = BridgeAgent::parse(&worker.agent);
    if worker.kinds.contains(Kind::Image) {
        return Some(Presence::Image {
            models: worker.models.len(),
            lora: worker.capabilities.contains(Capabilities::LORAS),
        });
    }
    if !worker.kinds.each().any(Kind::is_relayed) {
        let answers_forms = worker.kinds.contains(Kind::Form);
        return answers_forms.then_some(Presence::Interrogation);
    }
    let sizes = worker.models.iter().filter_map(|model| prices.known(model));
    Some(Presence::Text {
        context: worker.context,
        billions: sizes.reduce(f64::max),
        // Output of socket workers is counted here; polling workers are known by their agents.
        is_validated: worker.formats != Formats::LEGACY || agent.is_validated(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use uuid::Uuid;

    use super::{Rewards, presence};
    use crate::accounts::{Accounts, SecretSource};
    use crate::clock::wall_clock;
    use crate::dispatch::Settings;
    use crate::kudos::allowance;
    use crate::kudos::{Presence, Prices};
    use crate::metering::Counted;
    use crate::rigs::{Records, RigSettings, Rigs};
    use crate::storage::{Attended, Location, NewLogin, RigChange, Store};
    use crate::switchboard::{Books, Switchboard, Unsettled, WorkerOnline};
    use crate::values::Roles;
    use muster_process::tasks::Tasks;
    use muster_protocol::job::{Capabilities, Formats, Kind, Kinds, Kudos, UnixMillis, WorkerId};

    fn there(kind: Kind) -> WorkerOnline {
        WorkerOnline {
            id: WorkerId(1),
            name: "rig".into(),
            public_id: Uuid::nil(),
            agent: "somebody:1:url".into(),
            models: vec!["one".into(), "other".into()],
            kinds: kind.into(),
            formats: Formats::LEGACY,
            capabilities: Capabilities::default(),
            modalities: Arc::default(),
            context: 2048,
            trusted: false,
            own_only: false,
            slots: 1,
            running: 0,
            answer_time: Duration::ZERO,
            gpus: Arc::default(),
        }
    }

    #[test]
    fn workers_of_every_trade_are_paid_for_being_there() {
        let paid = |kind| presence(&there(kind), &Prices::default());
        let image = Presence::Image {
            models: 2,
            lora: false,
        };
        assert_eq!(paid(Kind::Image), Some(image));
        assert_eq!(paid(Kind::Form), Some(Presence::Interrogation));
        let text = Presence::Text {
            context: 2048,
            billions: None,
            is_validated: false,
        };
        assert_eq!(paid(Kind::Text), Some(text));
        assert_eq!(paid(Kind::Video), None);
        // A text worker is paid as such, whatever forms it serves.
        let both = WorkerOnline {
            kinds: Kinds::from(Kind::Text).with(Kind::Form),
            ..there(Kind::Text)
        };
        assert_eq!(presence(&both, &Prices::default()), Some(text));
    }

    async fn rewards(store: &Store, tasks: &Tasks) -> Rewards {
        let books = Books::new(|_, _: Counted| async { Err(Unsettled::Unknown) });
        let board = Switchboard::start(Settings::default(), books, tasks);
        let records = Records::new(store.modes());
        Rewards {
            accounts: Accounts::open(
                store.clone(),
                &SecretSource::Given("a secret of 32 characters and more".to_owned()),
                tasks,
            )
            .await
            .unwrap(),
            rigs: Rigs::start(
                records,
                board.clone(),
                store.clone(),
                RigSettings::default(),
                tasks,
            ),
            store: store.clone(),
            switchboard: board,
            prices: Arc::default(),
            trust_after: None,
            gives_months: true,
        }
    }

    #[tokio::test]
    async fn whoever_earns_trust_has_no_paused_workers_any_more() {
        let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
        let place = Location::in_folder(folder.path());
        let store = Store::open(&place, &tasks).await.unwrap();
        let rewards = rewards(&store, &tasks).await;
        let login = NewLogin {
            name: "alice".to_owned(),
            login: "alice".to_owned(),
            kudos: None,
            now: UnixMillis(0),
        };
        let owner = store.log_in(login).await.unwrap().account;
        let worker = store.worker("w", owner, wall_clock()).await.unwrap();
        let attended = Attended {
            worker: worker.public_id,
            worth: Kudos(30_000),
            at_once: false,
            now: wall_clock(),
        };
        store.pay_attendance(attended).await.unwrap();
        let paused = RigChange {
            paused: Some(true),
            ..RigChange::default()
        };
        store.decide(worker.id, paused).await.unwrap();
        let is_paused = async || {
            let rig = rewards.rigs.find(worker.public_id).await.unwrap();
            rig.unwrap().row.decided.paused
        };
        rewards.rigs.recall(worker.id).await.unwrap();
        let mut untold = Vec::new();
        let mut promote = async |earned| rewards.promote(earned, &mut untold).await.unwrap();
        promote(Kudos(30_001)).await;
        assert!(is_paused().await && rewards.rigs.is_doubted(worker.id));
        promote(Kudos(30_000)).await;
        assert!(!is_paused().await && !rewards.rigs.is_doubted(worker.id));
        assert!(untold.is_empty());
    }

    #[test]
    fn moderators_have_an_office_and_administrators_do_not_need_one() {
        let of = |roles| allowance(Kudos(5_000), roles);
        assert_eq!(of(Roles::USER), Kudos(5_000));
        assert_eq!(of(Roles::USER.with(Roles::MODERATOR)), Kudos(300_005_000));
        assert_eq!(of(Roles::ADMINISTRATOR), Kudos(5_000));
    }
}
