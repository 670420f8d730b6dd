//! One test for each rule, named after it. [`Desk`] is the shell of these tests: it keeps the time, answers for the
//! store, and collects the dispatcher's effects.

mod binding;
mod bringing;
mod cancelling;
mod claiming;
mod connections;
mod continuing;
mod failures;
mod hoarding;
mod lengths;
mod outlooks;
mod owning;
mod placing;
mod polling;
mod settling;
mod sharing;
mod strays;
mod suspects;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{
    Dispatcher, Effect, Extensions, Frame, Input, Now, Offer, Offering, Outcome, Registration,
    Resume, Said, ServedModel, SessionId, Settings, Standing, Submission,
};
use muster_protocol::job::{
    AccountId, Body, Capabilities, Event, Failure, FailureKind, FinishReason, Formats,
    ImageRequest, Job, JobId, Kind, Kudos, Limits, Media, ModelChoice, Needs, Privacy, Progress,
    Reach, RequestId, StopRules, TextInput, TextNeeds, TextRequest, TokenEvent, UnixMillis, Usage,
    WorkerId,
};

pub const LIFETIME: Duration = Duration::from_secs(600);

pub struct Desk {
    pub dispatcher: Dispatcher,
    pub now: Now,
    /// The behaviour of the store; `None` gives no reply.
    pub store: Option<Store>,
    effects: Vec<Effect>,
    jobs: u128,
    sessions: u64,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Store {
    Settles,
    Fails,
}

/// Extensions of public peers, and of our own.
pub const PUBLIC: Extensions = Extensions {
    multi: false,
    cancel: false,
    resume: false,
    lease: false,
};
pub const OURS: Extensions = Extensions {
    multi: true,
    cancel: true,
    resume: true,
    lease: true,
};

fn texts(window: u32, output: u32) -> Needs {
    Needs::Text(TextNeeds {
        window,
        output,
        ..TextNeeds::default()
    })
}

impl Desk {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        Self {
            dispatcher: Dispatcher::new(settings),
            now: Now {
                wall: UnixMillis(1_800_000_000_000),
                ..Now::default()
            },
            store: Some(Store::Settles),
            effects: Vec::new(),
            jobs: 0,
            sessions: 0,
        }
    }

    /// Passes an input, and lets the store answer the effects.
    pub fn put(&mut self, input: Input) -> &mut Self {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let from = self.effects.len();
            self.dispatcher.handle(input, self.now, &mut self.effects);
            for effect in &self.effects[from..] {
                if let Effect::Settle(facts) = effect {
                    let job = facts.job.id;
                    inputs.extend(self.store.map(|store| match store {
                        Store::Settles => Input::Settled {
                            job,
                            reward: Kudos(100),
                        },
                        Store::Fails => Input::SettleFailed { job },
                    }));
                }
            }
        }
        self
    }

    /// Advances the clock, with all wake-ups of the dispatcher.
    pub fn wait(&mut self, time: Duration) -> &mut Self {
        let end = self.now.mono + time;
        while let Some(wake) = self.dispatcher.next_wake().filter(|wake| *wake <= end) {
            self.pass(wake.since(self.now.mono));
            self.put(Input::Tick);
        }
        self.pass(end.since(self.now.mono));
        self
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.mono = self.now.mono + time;
        self.now.wall = self.now.wall.after(time);
    }

    /// A text job of account 1 for `tiny`.
    pub fn new_job(&mut self) -> Job {
        self.jobs += 1;
        Job {
            id: JobId(Uuid::from_u128(self.jobs)),
            request: RequestId(Uuid::from_u128(1000 + self.jobs)),
            account: AccountId(1),
            shared_key: None,
            kind: Kind::Text,
            model: ModelChoice(vec!["tiny".into()]),
            body: text(),
            limits: Limits {
                formats: Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
                requires: Capabilities::default(),
                prompt_tokens: 100,
                output_tokens: Some(256),
                ..Limits::default()
            },
            privacy: Privacy::Anyone,
            deadline: self.now.wall.after(LIFETIME),
            durable: false,
            prefixes: Vec::new(),
            original: None,
            price: None,
        }
    }

    pub fn submit(&mut self, job: Job) -> JobId {
        let id = job.id;
        self.submit_all(vec![job]);
        id
    }

    pub fn submit_all(&mut self, jobs: Vec<Job>) {
        self.put(Input::Submit(Submission {
            jobs: jobs.into_iter().map(Arc::new).collect(),
            standing: Standing::default(),
        }));
    }

    pub fn submit_one(&mut self) -> JobId {
        let job = self.new_job();
        self.submit(job)
    }

    /// An image job for `tiny`.
    pub fn submit_image(&mut self) -> JobId {
        let job = self.new_job();
        self.submit(Job {
            kind: Kind::Image,
            body: ImageRequest::default().into(),
            ..job
        })
    }

    /// The registration of a worker: `tiny`, and four slots if it negotiates at all.
    pub fn registration(&mut self, worker: i64, extensions: Extensions) -> Registration {
        self.sessions += 1;
        let (slots, formats) = match extensions.multi {
            true => (4, Formats::NEUTRAL),
            false => (1, Formats::OPENAI_CHAT),
        };
        Registration {
            session: SessionId(self.sessions),
            worker: WorkerId(worker),
            owner: AccountId(100 + worker),
            prefers: Vec::new(),
            own_only: false,
            trusted: false,
            kinds: Kind::Text.into(),
            formats,
            capabilities: Capabilities::default(),
            reach: Reach::ENDLESS.with_context(8192),
            models: vec![ServedModel {
                name: "tiny".into(),
                slots,
                offering: Offering::text(8192),
            }],
            slots,
            extensions,
            polls: false,
            agent: None,
            resume: None,
        }
    }

    pub fn connect(&mut self, registration: Registration) -> SessionId {
        let session = registration.session;
        self.put(Input::Connected(Box::new(registration)));
        session
    }

    pub fn ours(&mut self, worker: i64) -> SessionId {
        let registration = self.registration(worker, OURS);
        self.connect(registration)
    }

    /// A worker of ours whose model makes images, too.
    pub fn writing_and_drawing(&mut self, worker: i64) -> SessionId {
        let mut registration = self.registration(worker, OURS);
        registration.kinds = registration.kinds.with(Kind::Image);
        for model in &mut registration.models {
            model.offering.kinds = model.offering.kinds.with(Kind::Image);
        }
        self.connect(registration)
    }

    pub fn public(&mut self, worker: i64) -> SessionId {
        let registration = self.registration(worker, PUBLIC);
        self.connect(registration)
    }

    pub fn back(&mut self, worker: i64, resume: Resume) -> SessionId {
        let mut registration = self.registration(worker, OURS);
        registration.resume = Some(resume);
        self.connect(registration)
    }

    pub fn worker_of(&self, session: SessionId) -> i64 {
        self.dispatcher.sessions[&session].0
    }

    pub fn lose(&mut self, session: SessionId) -> &mut Self {
        self.put(Input::Lost { session })
    }

    /// Sends a frame of this offer's worker, without a number.
    pub fn say(&mut self, offer: &Offer, said: Said) -> &mut Self {
        self.say_on(offer.session, offer, None, said)
    }

    pub fn say_on(
        &mut self,
        session: SessionId,
        offer: &Offer,
        seq: Option<u64>,
        said: Said,
    ) -> &mut Self {
        self.put(Input::Frame(Frame {
            session,
            job: offer.job.id,
            attempt: Some(offer.attempt),
            seq,
            said,
        }))
    }

    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The offers since the last call; other effects are dropped.
    pub fn offers(&mut self) -> Vec<Offer> {
        let offers = self.take().into_iter().filter_map(|effect| match effect {
            Effect::Offer(offer) => Some(offer),
            _ => None,
        });
        offers.collect()
    }

    pub fn offer(&mut self) -> Offer {
        let mut offers = self.offers();
        assert_eq!(offers.len(), 1, "expected one offer, found {offers:?}");
        offers.remove(0)
    }

    /// The ended jobs since the last call; other effects are dropped.
    pub fn ends(&mut self) -> Vec<(JobId, Outcome)> {
        let ends = self.take().into_iter().filter_map(|effect| match effect {
            Effect::End { job, outcome } => Some((job, outcome)),
            _ => None,
        });
        ends.collect()
    }

    pub fn end(&mut self) -> Outcome {
        let mut ends = self.ends();
        assert_eq!(ends.len(), 1, "expected one end, found {ends:?}");
        ends.remove(0).1
    }

    pub fn assert_nothing_left(&mut self) {
        assert_eq!(self.dispatcher.census().jobs, 0);
        assert_eq!(self.dispatcher.census().queued, 0);
        assert_eq!(self.dispatcher.census().accounts, 0);
    }
}

/// Limits the worker to this kind. Jobs of these tests have a text as body, whatever their kind.
pub fn make_only(registration: &mut Registration, kind: Kind) {
    registration.kinds = kind.into();
    for model in &mut registration.models {
        model.offering.kinds = kind.into();
    }
}

pub fn text() -> Body {
    Body::Text(Box::new(TextRequest {
        input: TextInput::Prompt("hello".into()),
        sampling: Default::default(),
        max_tokens: None,
        stop: Vec::new(),
        logprobs: None,
        prompt_logprobs: None,
        tool_choice: None,
        stop_rules: StopRules::default(),
        parallel_tool_calls: None,
        format: None,
        choice: 0,
    }))
}

pub fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub fn token(id: u32) -> Said {
    Said::Event(Event::Token(TokenEvent {
        text: format!("{id} "),
        ids: vec![id],
        ..TokenEvent::default()
    }))
}

/// A completed step of an image.
pub fn step() -> Said {
    Said::Event(Event::Progress(Progress {
        percent: 0,
        steps: Some((1, 200)),
    }))
}

/// A finished image.
pub fn finished_image() -> Said {
    Said::Event(Event::Media(Media::default()))
}

pub fn done() -> Said {
    done_with(FinishReason::Stop)
}

pub fn done_with(finish: FinishReason) -> Said {
    Said::Event(Event::Done {
        finish,
        usage: Usage {
            prompt_tokens: 10,
            completion_tokens: 3,
            ..Usage::default()
        },
    })
}

pub fn failed() -> Said {
    let failure = Failure::new(FailureKind::WorkerFailed, "out of memory");
    Said::Event(Event::Failed(failure))
}

pub fn failure_kind(outcome: &Outcome) -> Option<FailureKind> {
    outcome.failure().map(|failure| failure.kind)
}

pub fn is_delivered(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Delivered { .. })
}
