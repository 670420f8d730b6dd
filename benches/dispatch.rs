//! How many inputs a second dispatch takes in, and that a request costs the same however many workers are online.
//!
//! One request is twenty inputs: submitted, started, sixteen tokens, done, settled. The number to look at is
//! requests per second at 10, 1,000 and 10,000 workers; inputs per second are twenty times that.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use muster_coordinator::dispatch::{
    Dispatcher, Effect, Extensions, Frame, Input, Mono, Now, Offering, Registration, Said,
    ServedModel, SessionId, Settings, Standing, Submission,
};
use muster_protocol::job::{
    AccountId, Body, Capabilities, Event, FinishReason, Formats, Job, JobId, Kind, Kudos, Limits,
    ModelChoice, Privacy, Reach, RequestId, Sampling, StopRules, TextInput, TextRequest,
    TokenEvent, UnixMillis, Usage, WorkerId,
};
use uuid::Uuid;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: muster_process::memory::Allocator = muster_process::memory::ALLOCATOR;

const TOKENS: u64 = 16;
const INPUTS: u64 = TOKENS + 4;
/// Requests that are under way at the same time.
const OPEN: usize = 256;

struct Network {
    dispatcher: Dispatcher,
    now: Now,
    effects: Vec<Effect>,
    models: Vec<Arc<str>>,
    issued: u128,
}

impl Network {
    fn new(workers: i64) -> Self {
        let names = ["alpha", "beta", "gamma", "delta"];
        let mut network = Self {
            dispatcher: Dispatcher::new(Settings::default()),
            now: Now {
                mono: Mono(0),
                wall: UnixMillis(1_800_000_000_000),
            },
            effects: Vec::new(),
            models: names.map(Arc::from).to_vec(),
            issued: 0,
        };
        for worker in 1..=workers {
            network.connect(worker);
        }
        network.effects.clear();
        network
    }

    fn put(&mut self, input: Input) {
        self.now.mono = self.now.mono + Duration::from_micros(3);
        self.dispatcher.handle(input, self.now, &mut self.effects);
    }

    fn connect(&mut self, worker: i64) {
        let context = 8192 + (worker as u32 % 4) * 8192;
        let models = self.models.iter().map(|name| ServedModel {
            name: name.clone(),
            slots: 64,
            offering: Offering::text(context),
        });
        let registration = Registration {
            session: SessionId(worker as u64),
            worker: WorkerId(worker),
            owner: AccountId(worker),
            prefers: Vec::new(),
            own_only: false,
            trusted: false,
            kinds: Kind::Text.into(),
            formats: Formats::NEUTRAL,
            capabilities: Capabilities::default(),
            reach: Reach::ENDLESS.with_context(context),
            models: models.collect(),
            slots: 64,
            extensions: Extensions {
                multi: true,
                cancel: true,
                resume: true,
                lease: true,
            },
            polls: false,
            agent: None,
            resume: None,
        };
        self.put(Input::Connected(Box::new(registration)));
    }

    fn submit(&mut self) {
        self.issued += 1;
        let job = Job {
            id: JobId(Uuid::from_u128(
                self.issued
                    .wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835),
            )),
            request: RequestId(Uuid::from_u128(self.issued)),
            account: AccountId((self.issued % 50) as i64),
            shared_key: None,
            kind: Kind::Text,
            model: ModelChoice(vec![self.models[(self.issued % 4) as usize].clone()]),
            body: Body::Text(Box::new(TextRequest {
                input: TextInput::Prompt(String::new()),
                sampling: Sampling::default(),
                max_tokens: None,
                stop: Vec::new(),
                logprobs: None,
                prompt_logprobs: None,
                tool_choice: None,
                stop_rules: StopRules::default(),
                parallel_tool_calls: None,
                format: None,
                choice: 0,
            })),
            limits: Limits {
                formats: Formats::NEUTRAL,
                requires: Capabilities::default(),
                prompt_tokens: 500,
                output_tokens: Some(64),
                ..Limits::default()
            },
            privacy: Privacy::Anyone,
            deadline: UnixMillis(self.now.wall.0 + 600_000),
            durable: false,
            prefixes: vec![self.issued as u64 % 1000],
            original: None,
            price: None,
        };
        self.put(Input::Submit(Submission {
            jobs: vec![Arc::new(job)],
            standing: Standing::default(),
        }));
    }

    /// Everything that was asked for, done at once. Returns how many requests have ended.
    fn answer(&mut self, work: &mut Vec<Effect>) -> usize {
        let mut ended = 0;
        std::mem::swap(work, &mut self.effects);
        for effect in work.drain(..) {
            match effect {
                Effect::Offer(offer) => {
                    let frame = |said| {
                        Input::Frame(Frame {
                            session: offer.session,
                            job: offer.job.id,
                            attempt: Some(offer.attempt),
                            seq: None,
                            said,
                        })
                    };
                    self.put(frame(Said::Event(Event::Started {
                        prompt_tokens: 500,
                        cached_tokens: 0,
                    })));
                    for token in 0..TOKENS as u32 {
                        self.put(frame(token_event(token)));
                    }
                    let usage = Usage::default();
                    self.put(frame(Said::Event(Event::Done {
                        finish: FinishReason::Stop,
                        usage,
                    })));
                }
                Effect::Settle(facts) => {
                    let job = facts.job.id;
                    self.put(Input::Settled {
                        job,
                        reward: Kudos(1),
                    });
                }
                Effect::End { .. } => ended += 1,
                other => {
                    black_box(other);
                }
            }
        }
        ended
    }

    /// So many requests from the first to the last step, a few hundred at a time.
    fn run(&mut self, requests: u64) {
        let (mut submitted, mut ended, mut work) = (0, 0, Vec::new());
        while ended < requests {
            while submitted < requests && submitted - ended < OPEN as u64 {
                self.submit();
                submitted += 1;
            }
            ended += self.answer(&mut work) as u64;
        }
    }
}

fn token_event(id: u32) -> Said {
    Said::Event(Event::Token(TokenEvent {
        text: String::from("word "),
        ids: vec![id],
        ..TokenEvent::default()
    }))
}

fn requests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dispatch");
    group.sample_size(20);
    group.throughput(Throughput::Elements(1));
    for workers in [10, 1_000, 10_000] {
        let mut network = Network::new(workers);
        let id = BenchmarkId::new(
            format!("request of {INPUTS} inputs"),
            format!("{workers} workers"),
        );
        group.bench_function(id, |bencher| {
            bencher.iter_custom(|requests| {
                let started = std::time::Instant::now();
                network.run(requests);
                started.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, requests);
criterion_main!(benches);
