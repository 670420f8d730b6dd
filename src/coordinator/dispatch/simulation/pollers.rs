//! Polling workers. Each pops, and submits in time, late, twice, as a fault or never; some polls come from a restarted
//! worker, or submit jobs of which the dispatcher has no lease.

use std::time::Duration;

use super::random::Random;
use super::rigs::MODELS;
use crate::dispatch::{
    Extensions, Frame, Offer, Offering, Registration, Said, ServedModel, SessionId, Wants,
};
use muster_protocol::job::{
    AccountId, Capabilities, Event, Failure, FailureKind, FinishReason, Formats, JobId, Kind,
    Media, Reach, TokenEvent, Usage, WorkerId,
};

/// The image model of polling workers.
pub const DRAWN: &str = "drawn";
/// Workers with numbers from here on are polling workers.
const FIRST: i64 = 500;

pub struct Poller {
    pub id: WorkerId,
    pub session: Option<SessionId>,
    pub kind: Kind,
    models: Vec<&'static str>,
    threads: u32,
    manners: Manners,
}

/// Probabilities of misbehaviour, in a thousand.
struct Manners {
    silent: u64,
    late: u64,
    faults: u64,
    twice: u64,
}

/// A planned submit.
#[derive(Debug, Clone, Copy)]
pub struct Brought {
    pub session: SessionId,
    pub job: JobId,
    pub attempt: u32,
    pub kind: Kind,
    /// Length of the whole output, in tokens.
    pub length: u32,
    pub is_fault: bool,
}

impl Poller {
    pub fn new(number: i64, random: &mut Random) -> Self {
        let kind = match random.permille(400) {
            true => Kind::Image,
            false => Kind::Text,
        };
        Self {
            id: WorkerId(FIRST + number),
            session: None,
            kind,
            models: match kind {
                Kind::Image => vec![DRAWN],
                _ => MODELS[..1 + random.below(3) as usize].to_vec(),
            },
            threads: 1 + random.below(3) as u32,
            manners: match random.below(3) {
                0 => Manners::bad(random),
                _ => Manners::good(),
            },
        }
    }

    pub fn register(&mut self, session: SessionId) -> Registration {
        self.session = Some(session);
        let model = |name: &&str| ServedModel {
            name: (*name).into(),
            slots: u32::MAX,
            offering: Offering::of(self.kind.into(), Reach::ENDLESS),
        };
        Registration {
            session,
            worker: self.id,
            owner: AccountId(1000 + self.id.0),
            prefers: Vec::new(),
            own_only: false,
            trusted: false,
            kinds: self.kind.into(),
            formats: Formats::LEGACY,
            capabilities: Capabilities::default(),
            reach: Reach::ENDLESS,
            models: self.models.iter().map(model).collect(),
            slots: self.threads,
            extensions: Extensions {
                multi: true,
                ..Extensions::default()
            },
            polls: true,
            agent: None,
            resume: None,
        }
    }

    pub fn wants(&self, random: &mut Random) -> Wants {
        Wants {
            scattered: random.permille(100),
            ..Wants::most(1 + random.below(4) as u32)
        }
    }

    /// When the worker submits an offered job, for each time that it does.
    pub fn plan(
        &self,
        offer: &Offer,
        length: u32,
        random: &mut Random,
    ) -> Vec<(Duration, Brought)> {
        assert!(
            offer.prefill.is_none(),
            "a polling worker cannot continue outputs"
        );
        assert_eq!(
            Some(offer.session),
            self.session,
            "the offer of another session"
        );
        if random.permille(self.manners.silent) {
            return Vec::new();
        }
        let brought = Brought {
            session: offer.session,
            job: offer.job.id,
            attempt: offer.attempt,
            kind: offer.job.kind,
            length,
            is_fault: random.permille(self.manners.faults),
        };
        let wait = match random.permille(self.manners.late) {
            true => random.millis(40_000, 150_000),
            false => random.millis(50, 15_000),
        };
        let mut plan = vec![(wait, brought)];
        if random.permille(self.manners.twice) {
            plan.push((wait + random.millis(0, 20_000), brought));
        }
        plan
    }
}

impl Brought {
    /// The frames of a submit, as `pollers` sends them.
    pub fn frames(&self) -> Vec<Frame> {
        let events = match (self.is_fault, self.kind) {
            (true, _) => vec![Event::Failed(Failure::new(
                FailureKind::WorkerFailed,
                "simulated failure",
            ))],
            (false, Kind::Image) => vec![Event::Media(Media::default()), done()],
            (false, _) => {
                let text = (0..self.length).map(|token| format!("{token} ")).collect();
                let whole = TokenEvent {
                    text,
                    ..TokenEvent::default()
                };
                vec![Event::Token(whole), done()]
            }
        };
        let frame = |event| Frame {
            session: self.session,
            job: self.job,
            attempt: Some(self.attempt),
            seq: None,
            said: Said::Event(event),
        };
        events.into_iter().map(frame).collect()
    }
}

fn done() -> Event {
    Event::Done {
        finish: FinishReason::Stop,
        usage: Usage::default(),
    }
}

impl Manners {
    fn good() -> Self {
        Self {
            silent: 10,
            late: 10,
            faults: 10,
            twice: 50,
        }
    }

    fn bad(random: &mut Random) -> Self {
        Self {
            silent: random.below(400),
            late: random.below(400),
            faults: random.below(400),
            twice: random.below(500),
        }
    }
}
