//! A polling worker, and its last pop.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use crate::dispatch::{Extensions, Offer, Offering, Registration, ServedModel, SessionId};
use crate::metering::Belief;
use crate::names::Names;
use crate::rigs::NotAdmitted;
use crate::storage::{RigRow, Said, WorkerRow};
use crate::switchboard::{Card, Gpus, News, Switchboard};
use crate::values::Roles;
use muster_protocol::job::{AccountId, Capabilities, Formats, Job, JobId, Kind, Reach, RequestId};
use muster_protocol::legacy::agent::BridgeAgent;
use muster_protocol::legacy::words::Trade;

/// Limit of remembered decoys; a moderator reviews a paused worker sooner.
const MOST_SHOWN: usize = 1000;

/// A pop's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub name: Arc<str>,
    pub agent: Arc<str>,
    pub kind: Kind,
    pub models: Vec<Arc<str>>,
    pub capabilities: Capabilities,
    pub reach: Reach,
    /// Concurrent jobs.
    pub threads: u32,
    /// Accounts with priority, besides the owner's.
    pub prefers: Vec<AccountId>,
    /// The reported data, for display.
    pub said: Said,
}

/// Why a worker gets no jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotServed {
    /// The key is bound to another worker.
    OtherRig,
    NotAdmitted(NotAdmitted),
    /// The worker failed too often and is barred for a while.
    Barred,
    /// The worker is in maintenance and its owner has no job waiting; with the maintenance note.
    Maintenance(String),
    Unavailable,
}

#[derive(Debug)]
pub struct Poller {
    pub row: WorkerRow,
    pub session: SessionId,
    pub seen: Instant,
    said: Option<Ask>,
    /// Whether the owner is trusted, which makes the worker trusted.
    vouched: bool,
    /// Requests whose copies it received as decoys.
    shown: Arc<BTreeSet<RequestId>>,
}

impl Poller {
    pub fn new(row: WorkerRow) -> Self {
        Self {
            row,
            session: SessionId(0),
            seen: Instant::now(),
            said: None,
            vouched: false,
            shown: Arc::default(),
        }
    }

    pub fn shown(&self) -> Arc<BTreeSet<RequestId>> {
        self.shown.clone()
    }

    /// The offer under a random id, so that its result is discarded.
    pub fn decoy(&mut self, mut offer: Offer) -> Offer {
        let shown = Arc::make_mut(&mut self.shown);
        if shown.len() >= MOST_SHOWN {
            shown.clear();
        }
        shown.insert(offer.job.request);
        offer.job = Arc::new(Job {
            id: JobId::random(),
            ..(*offer.job).clone()
        });
        offer
    }

    /// Sets whether its owner is trusted.
    pub fn vouch(&mut self, vouched: bool) {
        if self.vouched != vouched {
            self.retell();
        }
        self.vouched = vouched;
    }

    pub fn rename(&mut self, name: &str) {
        self.row.name = name.to_owned();
        self.retell();
    }

    /// Makes the next pop register as if changed.
    fn retell(&mut self) {
        if self.said.is_some() {
            self.said = Some(Ask::nothing());
        }
    }

    /// The worker's report for its record, if changed.
    pub fn news_for(&self, ask: &Ask) -> Option<(Trade, Said)> {
        let known = self.said.as_ref().map(|known| &known.said);
        let trade = ask.trade()?;
        (known != Some(&ask.said)).then(|| (trade, ask.said.clone()))
    }

    /// The registration for the switchboard, if changed.
    pub fn take_in(&mut self, ask: Ask, names: &Names, switchboard: &Switchboard) -> Option<News> {
        self.seen = Instant::now();
        let before = self.said.replace(ask);
        match before {
            None if !self.is_known() => Some(self.introduce(names, switchboard)),
            Some(before) if Some(&before) == self.said.as_ref() => None,
            // A poller created by a claim has no models yet.
            None | Some(_) => {
                let (registration, card) = self.registration(names);
                Some(News::Changed(registration, card))
            }
        }
    }

    /// Whether its models are known.
    pub fn has_said(&self) -> bool {
        self.said.is_some()
    }

    /// Restores the last report from the database until the next pop, so that a claimed job is paid the same.
    pub fn recollect(&mut self, rig: &RigRow, kind: Kind) {
        self.vouched = rig.owner.roles.contains(Roles::TRUSTED);
        let models = match kind {
            Kind::Form => &rig.said.takes,
            _ => &rig.said.models,
        };
        self.said = Some(Ask {
            name: rig.name.as_str().into(),
            agent: rig.said.agent.as_str().into(),
            kind,
            models: models.iter().map(|name| name.as_str().into()).collect(),
            ..Ask::nothing()
        });
    }

    /// Whether it was registered before.
    pub fn is_known(&self) -> bool {
        self.session != SessionId(0)
    }

    /// Starts a new session.
    pub fn introduce(&mut self, names: &Names, switchboard: &Switchboard) -> News {
        self.session = switchboard.next_session();
        let (registration, card) = self.registration(names);
        News::Here(registration, card)
    }

    /// The worker's own name of the model with this id.
    pub fn own_name(&self, id: &Arc<str>, names: &Names) -> Arc<str> {
        let said = self.said.iter().flat_map(|said| &said.models);
        let own = said.clone().find(|name| names.id(name) == *id);
        own.unwrap_or(id).clone()
    }

    fn registration(&self, names: &Names) -> (Box<Registration>, Card) {
        let said = self.said.clone().unwrap_or_else(Ask::nothing);
        let card = Card {
            name: self.row.name.as_str().into(),
            public_id: self.row.public_id,
            agent: said.agent,
            modalities: Arc::from([]),
            context: match said.kind {
                Kind::Text => said.reach.text.window,
                _ => 0,
            },
            belief: Belief::Nothing,
            gpus: Gpus::default(),
        };
        let model = |name: Arc<str>| ServedModel {
            name: names.id(&name),
            slots: u32::MAX,
            offering: Offering::of(said.kind.into(), said.reach),
        };
        let validated = match BridgeAgent::parse(&card.agent).is_validated() {
            true => Capabilities::VALIDATED,
            false => Capabilities::default(),
        };
        let registration = Registration {
            session: self.session,
            worker: self.row.id,
            owner: self.row.owner,
            prefers: said.prefers,
            own_only: false,
            trusted: self.row.trusted || self.vouched,
            kinds: said.kind.into(),
            formats: Formats::LEGACY,
            capabilities: said.capabilities.with(validated),
            reach: said.reach,
            models: said.models.into_iter().map(model).collect(),
            slots: said.threads,
            extensions: Extensions {
                multi: true,
                ..Extensions::default()
            },
            polls: true,
            agent: Some(card.agent.clone()),
            resume: None,
        };
        (Box::new(registration), card)
    }
}

impl Ask {
    /// The kind of worker in the AI Horde API.
    pub fn trade(&self) -> Option<Trade> {
        Trade::of(self.kind)
    }

    fn nothing() -> Self {
        Self {
            name: Arc::default(),
            agent: Arc::default(),
            kind: Kind::Text,
            models: Vec::new(),
            capabilities: Capabilities::default(),
            reach: Reach::default(),
            threads: 1,
            prefers: Vec::new(),
            said: Said::default(),
        }
    }
}

impl From<NotAdmitted> for NotServed {
    fn from(not: NotAdmitted) -> Self {
        match not {
            NotAdmitted::Unavailable => Self::Unavailable,
            not => Self::NotAdmitted(not),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Ask, News, Poller};
    use crate::dispatch::Settings;
    use crate::metering::Counted;
    use crate::names::Names;
    use crate::storage::WorkerRow;
    use crate::switchboard::{Books, Switchboard, Unsettled};
    use muster_process::tasks::Tasks;
    use muster_protocol::job::{AccountId, WorkerId};

    #[tokio::test]
    async fn the_first_pop_after_a_claim_leaves_the_session_that_holds_it() {
        let books = Books::new(|_, _: Counted| async { Err(Unsettled::Unknown) });
        let board = Switchboard::start(Settings::default(), books, &Tasks::default());
        let names = Names::default();
        let mut poller = Poller::new(WorkerRow {
            id: WorkerId(1),
            public_id: Uuid::new_v4(),
            name: "rig".to_owned(),
            owner: AccountId(1),
            trusted: false,
        });
        poller.introduce(&names, &board);
        let session = poller.session;
        let news = poller.take_in(Ask::nothing(), &names, &board);
        assert!(matches!(news, Some(News::Changed(..))));
        assert_eq!(poller.session, session);
        assert!(poller.take_in(Ask::nothing(), &names, &board).is_none());
    }
}
