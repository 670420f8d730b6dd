//! Workers on sockets, good and bad. A rig returns the frames to send as [`Say`]s; the world carries them over its
//! socket, or loses them with it. A rig that negotiated `resume` keeps its frames and goes on while disconnected.

use std::collections::BTreeMap;
use std::time::Duration;

use super::random::Random;
use crate::dispatch::{
    Claim, Effect, Extensions, Offer, Offering, Registration, Resume, Said, ServedModel, SessionId,
    Verdict,
};
use muster_protocol::job::{
    AccountId, Capabilities, Event, Failure, FailureKind, FinishReason, Formats, JobId, Kind,
    Reach, TokenEvent, Usage, WorkerId,
};

pub const MODELS: [&str; 3] = ["tiny", "big", "rare"];

pub struct Rig {
    pub id: WorkerId,
    pub extensions: Extensions,
    pub manners: Manners,
    pub session: Option<SessionId>,
    /// Whether the worker has the verdicts on its claims; until then it sends nothing.
    pub ready: bool,
    last_session: Option<SessionId>,
    /// Counts restarts of the process, to drop events of an earlier one.
    pub life: u32,
    pub latency: Duration,
    slots: u32,
    models: Vec<&'static str>,
    context: u32,
    pub tasks: BTreeMap<(JobId, u32), Task>,
    /// A public peer that said `done` takes the next frame for the ack.
    awaits_ack: bool,
}

/// Probabilities of misbehaviour, in a thousand.
pub struct Manners {
    pub fails: u64,
    pub refuses: u64,
    pub stalls: u64,
    pub repeats: u64,
    pub meddles: u64,
    pub skips: u64,
    pub deaf: bool,
    pub pace: Duration,
}

pub struct Task {
    next: u32,
    length: u32,
    seq: u64,
    /// All sent frames, in order, for a peer that may have to repeat them.
    said: Vec<Kept>,
    finished: bool,
    pub stalled: bool,
}

#[derive(Clone)]
enum Kept {
    Started,
    Token(u32),
    Done(bool, u32),
    Failed(FailureKind),
    Busy,
}

/// A frame to send.
pub struct Say {
    pub job: JobId,
    pub attempt: Option<u32>,
    pub seq: Option<u64>,
    pub said: Said,
}

impl Rig {
    pub fn new(number: i64, random: &mut Random) -> Self {
        let ours = random.permille(650);
        let flag = ours && random.permille(900);
        let manners = match random.below(4) {
            0 => Manners::bad(random),
            _ => Manners::good(random),
        };
        let mut models: Vec<_> = MODELS
            .into_iter()
            .filter(|_| random.permille(500))
            .collect();
        if models.is_empty() || number < 2 {
            models.insert(0, MODELS[0]);
            models.dedup();
        }
        Self {
            id: WorkerId(number),
            extensions: Extensions {
                multi: ours,
                cancel: ours,
                resume: flag,
                lease: flag,
            },
            manners,
            session: None,
            ready: false,
            last_session: None,
            life: 0,
            latency: random.millis(0, 60),
            slots: if ours { 1 + random.below(6) as u32 } else { 1 },
            models,
            context: [2048, 8192, 40_000][random.below(3) as usize],
            tasks: BTreeMap::new(),
            awaits_ack: false,
        }
    }

    pub fn register(&mut self, session: SessionId) -> Registration {
        let resume = self
            .last_session
            .filter(|_| self.extensions.resume)
            .map(|session| Resume {
                session,
                jobs: self
                    .tasks
                    .keys()
                    .map(|&(job, attempt)| Claim { job, attempt })
                    .collect(),
            });
        self.session = Some(session);
        self.last_session = Some(session);
        self.awaits_ack = false;
        self.ready = false;
        let formats = if self.extensions.multi {
            Formats::NEUTRAL
        } else {
            Formats::OPENAI_CHAT
        };
        Registration {
            session,
            worker: self.id,
            owner: AccountId(1000 + self.id.0),
            prefers: Vec::new(),
            own_only: false,
            trusted: false,
            kinds: Kind::Text.into(),
            formats,
            capabilities: Capabilities::default(),
            reach: Reach::ENDLESS.with_context(self.context),
            models: self
                .models
                .iter()
                .map(|&name| ServedModel {
                    name: name.into(),
                    slots: self.slots,
                    offering: Offering::text(self.context),
                })
                .collect(),
            slots: self.slots,
            extensions: self.extensions,
            polls: false,
            agent: None,
            resume,
        }
    }

    /// The socket closed. Jobs that cannot be resumed are dropped.
    pub fn unplug(&mut self) {
        self.session = None;
        if !self.extensions.resume {
            self.tasks.clear();
            self.life += 1;
        }
    }

    /// The process ends.
    pub fn die(&mut self) {
        self.session = None;
        self.last_session = None;
        self.tasks.clear();
        self.life += 1;
    }

    /// Handles an effect. Returns the immediate replies, and the task that begins.
    pub fn hear(
        &mut self,
        effect: &Effect,
        length: u32,
        random: &mut Random,
    ) -> (Vec<Say>, Option<(JobId, u32)>) {
        let took_ack = std::mem::take(&mut self.awaits_ack);
        match effect {
            Effect::Offer(offer) => {
                assert!(
                    !took_ack || self.extensions.multi,
                    "{:?} confuses the job with its ack",
                    self.id
                );
                self.take(offer, length, random)
            }
            Effect::CancelOnWorker { job, attempt, .. } if !self.manners.deaf => {
                (self.stop(*job, *attempt), None)
            }
            Effect::Ready { resumed, .. } => {
                self.ready = true;
                let missed = resumed.iter().flat_map(|verdict| self.obey(verdict));
                (missed.collect(), None)
            }
            Effect::Drop { job, attempt, .. } => {
                self.tasks.remove(&(*job, *attempt));
                (Vec::new(), None)
            }
            Effect::Ack { job, attempt, .. } => {
                if let Some(attempt) = attempt {
                    self.tasks.remove(&(*job, *attempt));
                }
                (Vec::new(), None)
            }
            _ => (Vec::new(), None),
        }
    }

    fn take(
        &mut self,
        offer: &Offer,
        length: u32,
        random: &mut Random,
    ) -> (Vec<Say>, Option<(JobId, u32)>) {
        let busy = self.tasks.values().filter(|task| !task.finished).count();
        if !self.extensions.multi {
            assert_eq!(busy, 0, "{:?} would lose the job", self.id);
        }
        let prefill = offer.prefill.as_ref();
        let tokens = prefill.map_or(&[][..], |prefill| &prefill.tokens);
        assert!(
            tokens.iter().copied().eq(0..tokens.len() as u32),
            "differs from the delivered output: {tokens:?}"
        );
        let key = (offer.job.id, offer.attempt);
        self.tasks.insert(
            key,
            Task {
                next: tokens.len() as u32,
                length,
                seq: 0,
                said: Vec::new(),
                finished: false,
                stalled: random.permille(self.manners.stalls),
            },
        );
        if self.extensions.multi && random.permille(self.manners.refuses) {
            return (self.speak(key, Kept::Busy), None);
        }
        (self.speak(key, Kept::Started), Some(key))
    }

    /// Runs one step of a task. Returns its frames, and whether more follow.
    pub fn step(&mut self, key: (JobId, u32), random: &mut Random) -> (Vec<Say>, bool) {
        let Some(task) = self.tasks.get_mut(&key).filter(|task| !task.finished) else {
            return (Vec::new(), false);
        };
        if task.stalled {
            return (Vec::new(), false);
        }
        if random.permille(self.manners.fails) {
            let kind = if random.permille(50) {
                FailureKind::InvalidRequest
            } else {
                FailureKind::WorkerFailed
            };
            return (self.speak(key, Kept::Failed(kind)), false);
        }
        if task.next < task.length {
            let token = task.next;
            task.next += 1;
            let mut says = self.speak(key, Kept::Token(token));
            if self.extensions.resume && random.permille(self.manners.skips) {
                says.clear();
            }
            return (says, true);
        }
        let length = task.length;
        let mut says = self.speak(key, Kept::Done(false, length));
        if random.permille(self.manners.repeats) {
            says.extend(self.again(key));
        }
        (says, false)
    }

    pub fn beat(&self, key: (JobId, u32)) -> Option<Say> {
        let task = self
            .tasks
            .get(&key)
            .filter(|task| !task.finished && !task.stalled)?;
        let _ = task;
        self.extensions
            .lease
            .then(|| self.frame(key, None, Said::Alive))
    }

    /// A frame about another worker's job.
    pub fn meddle(&self, theirs: (JobId, u32), random: &mut Random) -> Say {
        let kept = match random.below(3) {
            0 => Kept::Done(false, 1),
            1 => Kept::Token(0),
            _ => Kept::Failed(FailureKind::WorkerFailed),
        };
        self.frame(theirs, None, kept.said())
    }

    fn stop(&mut self, job: JobId, attempt: u32) -> Vec<Say> {
        let key = (job, attempt);
        let running = self.tasks.get(&key).is_some_and(|task| !task.finished);
        let told = self.tasks.get(&key).map_or(0, |task| task.next);
        if running {
            self.speak(key, Kept::Done(true, told))
        } else {
            Vec::new()
        }
    }

    /// Resumes after the last received frame, or drops the job.
    fn obey(&mut self, verdict: &Verdict) -> Vec<Say> {
        let key = (verdict.job, verdict.attempt);
        let Some(after) = verdict.go_on_after else {
            self.tasks.remove(&key);
            return Vec::new();
        };
        let task = &self.tasks[&key];
        assert!(
            after <= task.seq,
            "{key:?}: the coordinator received an output that was never sent"
        );
        // Repeats the last acknowledged frame, too, since a worker cannot know that it arrived.
        let from = (after as usize).saturating_sub(1);
        let missed = task.said.iter().enumerate().skip(from);
        missed
            .map(|(index, kept)| self.frame(key, Some(index as u64 + 1), kept.said()))
            .collect()
    }

    fn speak(&mut self, key: (JobId, u32), kept: Kept) -> Vec<Say> {
        let Some(task) = self.tasks.get_mut(&key) else {
            return Vec::new();
        };
        task.seq += 1;
        let seq = task.seq;
        task.finished = kept.is_last();
        task.said.push(kept.clone());
        let forget = task.finished && !self.extensions.resume;
        if matches!(kept, Kept::Done(..)) && !self.extensions.multi {
            self.awaits_ack = true;
        }
        if forget {
            self.tasks.remove(&key);
        }
        vec![self.frame(key, Some(seq), kept.said())]
    }

    fn again(&self, key: (JobId, u32)) -> Option<Say> {
        self.extensions
            .multi
            .then(|| self.frame(key, None, Kept::Done(false, 1).said()))
    }

    fn frame(&self, (job, attempt): (JobId, u32), seq: Option<u64>, said: Said) -> Say {
        let said = match said {
            Said::Event(Event::Token(mut token)) if !self.extensions.resume => {
                token.ids.clear();
                Said::Event(Event::Token(token))
            }
            said => said,
        };
        Say {
            job,
            attempt: self.extensions.multi.then_some(attempt),
            seq: seq.filter(|_| self.extensions.resume),
            said,
        }
    }
}

impl Manners {
    fn good(random: &mut Random) -> Self {
        Self {
            fails: 1,
            refuses: 20,
            stalls: 2,
            repeats: 5,
            meddles: 0,
            skips: 0,
            deaf: false,
            pace: random.millis(5, 200),
        }
    }

    fn bad(random: &mut Random) -> Self {
        Self {
            fails: random.below(300),
            refuses: random.below(300),
            stalls: random.below(100),
            repeats: random.below(500),
            meddles: random.below(200),
            skips: random.below(30),
            deaf: random.permille(300),
            pace: random.millis(5, 3000),
        }
    }
}

impl Kept {
    fn is_last(&self) -> bool {
        !matches!(self, Self::Started | Self::Token(_))
    }

    fn said(&self) -> Said {
        Said::Event(match *self {
            Self::Started => Event::Started {
                prompt_tokens: 20,
                cached_tokens: 0,
            },
            Self::Token(number) => Event::Token(TokenEvent {
                text: format!("{number} "),
                ids: vec![number],
                ..TokenEvent::default()
            }),
            Self::Done(cancelled, tokens) => Event::Done {
                finish: if cancelled {
                    FinishReason::Cancelled
                } else {
                    FinishReason::Stop
                },
                usage: Usage {
                    prompt_tokens: 20,
                    completion_tokens: tokens,
                    ..Usage::default()
                },
            },
            Self::Failed(kind) => Event::Failed(Failure::new(kind, "simulated failure")),
            Self::Busy => {
                return Said::Busy {
                    retry_after: Duration::from_millis(200),
                };
            }
        })
    }
}
