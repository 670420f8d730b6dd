//! The task with clients on one side and rigs on the other, without sockets: a rig reads its orders and sends its
//! test's frames.

mod continuing;
mod lines;
mod panics;
mod polling;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use muster_testing::eventually;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use uuid::Uuid;

use super::{Books, Card, Delivery, JobStream, Order, Orders, Switchboard, WorkerLine};
use crate::dispatch::{
    CancelReason, Extensions, Facts, Frame, Input, Offer, Offering, Outcome, Refusal, Registration,
    Said, ServedModel, SessionId, Settings, Standing, Submission,
};
use crate::metering::{Belief, Counted};
use muster_process::tasks::Tasks;
use muster_protocol::job::{
    AccountId, Body, Capabilities, Event, Failure, FailureKind, FinishReason, Formats, Job, JobId,
    Kind, Kinds, Kudos, Limits, ModelChoice, Privacy, Reach, RequestId, StopRules, TextInput,
    TextRequest, TokenEvent, UnixMillis, Usage, WorkerId,
};

const OURS: Extensions = Extensions {
    multi: true,
    cancel: true,
    resume: true,
    lease: true,
};

/// Settles on a signal, and records the settlements.
struct Ledger {
    books: Books,
    open: Arc<Semaphore>,
    settled: mpsc::Receiver<(Box<Facts>, Counted)>,
}

fn ledger() -> Ledger {
    let open = Arc::new(Semaphore::new(1000));
    let (sender, settled) = mpsc::channel(100);
    let gate = open.clone();
    let books = Books::new(move |facts, counted| {
        let (gate, sender) = (gate.clone(), sender.clone());
        async move {
            gate.acquire().await.unwrap().forget();
            sender.send((facts, counted)).await.unwrap();
            Ok(Kudos(7))
        }
    });
    Ledger {
        books,
        open,
        settled,
    }
}

struct Rig {
    session: SessionId,
    orders: Arc<Orders>,
    line: Option<WorkerLine>,
    waiting: Mutex<VecDeque<Order>>,
}

impl Rig {
    async fn connect(board: &Switchboard, name: &str, extensions: Extensions, slots: u32) -> Self {
        let session = board.next_session();
        let orders = Arc::new(Orders::default());
        let card = Card {
            name: name.into(),
            public_id: Uuid::new_v4(),
            agent: "test".into(),
            modalities: Arc::from(["text".into()]),
            context: 4096,
            belief: Belief::of(false, !extensions.multi),
            gpus: Default::default(),
        };
        let worker = WorkerId(name.bytes().map(i64::from).sum());
        let registration = registration(session, worker, extensions, slots);
        let line = board
            .connect(registration, card, orders.clone())
            .await
            .unwrap();
        let rig = Self {
            session,
            orders,
            line: Some(line),
            waiting: Mutex::default(),
        };
        assert!(matches!(rig.order().await, Order::Ready { .. }));
        rig
    }

    async fn order(&self) -> Order {
        let next = poll_fn(|context| {
            let mut waiting = self.waiting.lock();
            if waiting.is_empty() {
                std::task::ready!(self.orders.poll_take(&mut waiting, context));
            }
            std::task::Poll::Ready(waiting.pop_front().unwrap())
        });
        timeout(Duration::from_secs(10), next).await.unwrap()
    }

    async fn offer(&self) -> Offer {
        match self.order().await {
            Order::Offer(offer) => *offer,
            other => panic!("expected an offer, found {other:?}"),
        }
    }

    async fn say(&self, offer: &Offer, said: impl IntoIterator<Item = Event>) {
        let inputs = said.into_iter().map(|event| {
            Input::Frame(Frame {
                session: self.session,
                job: offer.job.id,
                attempt: Some(offer.attempt),
                seq: None,
                said: Said::Event(event),
            })
        });
        let line = self.line.as_ref().unwrap();
        line.say(inputs.collect()).await.unwrap();
    }

    fn hang_up(&mut self) {
        self.line = None;
    }
}

fn registration(
    session: SessionId,
    worker: WorkerId,
    extensions: Extensions,
    slots: u32,
) -> Registration {
    Registration {
        session,
        worker,
        owner: AccountId(9),
        prefers: Vec::new(),
        own_only: false,
        trusted: false,
        kinds: Kinds::from(Kind::Text),
        formats: Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
        capabilities: Capabilities::default(),
        reach: Reach::ENDLESS.with_context(4096),
        models: vec![ServedModel {
            name: "tiny".into(),
            slots,
            offering: Offering::text(4096),
        }],
        slots,
        extensions,
        polls: false,
        agent: None,
        resume: None,
    }
}

fn job(prompt: &str) -> Job {
    let input = TextInput::Prompt(prompt.to_owned());
    Job {
        id: JobId::random(),
        request: RequestId::random(),
        account: AccountId(1),
        shared_key: None,
        kind: Kind::Text,
        model: ModelChoice(vec!["tiny".into()]),
        body: Body::Text(Box::new(plain(input))),
        limits: Limits {
            formats: Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
            output_tokens: Some(64),
            ..Limits::default()
        },
        privacy: Privacy::Anyone,
        deadline: UnixMillis(i64::MAX),
        durable: false,
        prefixes: Vec::new(),
        original: None,
        price: None,
    }
}

fn plain(input: TextInput) -> TextRequest {
    TextRequest {
        input,
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
    }
}

fn text(text: &str) -> Event {
    Event::Token(TokenEvent {
        text: text.to_owned(),
        ids: vec![1],
        ..TokenEvent::default()
    })
}

fn done(completion_tokens: u32) -> Event {
    Event::Done {
        finish: FinishReason::Stop,
        usage: Usage {
            prompt_tokens: 5,
            completion_tokens,
            ..Usage::default()
        },
    }
}

async fn submit(board: &Switchboard, job: Job) -> Result<JobStream, Refusal> {
    let submission = Submission {
        jobs: vec![Arc::new(job)],
        standing: Standing::default(),
    };
    let streams = board.submit(submission).await?;
    Ok(streams.into_iter().next().unwrap())
}

async fn next(stream: &mut JobStream) -> Delivery {
    let next = timeout(Duration::from_secs(10), stream.next()).await;
    next.unwrap().unwrap()
}

async fn outcome(stream: &mut JobStream) -> Outcome {
    loop {
        if let Delivery::End { outcome, .. } = next(stream).await {
            return outcome;
        }
    }
}

#[tokio::test]
async fn a_job_goes_out_and_its_tokens_come_back() {
    let (tasks, mut ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 4).await;
    let mut stream = submit(&board, job("hello")).await.unwrap();
    let offer = rig.offer().await;
    rig.say(&offer, [text("hi "), text("there"), done(2)]).await;
    assert_eq!(next(&mut stream).await, Delivery::Event(text("hi ")));
    assert_eq!(next(&mut stream).await, Delivery::Event(text("there")));
    let Delivery::End {
        outcome, worker, ..
    } = next(&mut stream).await
    else {
        panic!("expected the end");
    };
    assert!(matches!(outcome, Outcome::Delivered { .. }));
    assert_eq!(worker.as_deref(), Some("rig"));
    assert_eq!(stream.next().await, None);
    let (facts, counted) = ledger.settled.recv().await.unwrap();
    assert_eq!(facts.parts.len(), 1);
    assert_eq!(counted.output_tokens, 2);
    assert!(matches!(
        rig.order().await,
        Order::Ack {
            reward: Kudos(7),
            ..
        }
    ));
}

#[tokio::test]
async fn the_store_has_it_before_the_client_hears_of_the_end() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    ledger.open.forget_permits(1000);
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 4).await;
    let mut stream = submit(&board, job("hello")).await.unwrap();
    let offer = rig.offer().await;
    rig.say(&offer, [text("hi"), done(1)]).await;
    assert_eq!(next(&mut stream).await, Delivery::Event(text("hi")));
    let early = timeout(Duration::from_millis(100), stream.next()).await;
    assert!(early.is_err(), "{early:?}");
    ledger.open.add_permits(1);
    assert!(matches!(
        outcome(&mut stream).await,
        Outcome::Delivered { .. }
    ));
}

#[tokio::test]
async fn a_store_that_fails_is_asked_again_and_the_tokens_are_counted_once() {
    let tasks = Tasks::default();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let books = Books::new(move |_, counted| {
        let mut seen = seen.lock();
        seen.push(counted);
        let failed = seen.len() < 2;
        async move {
            match failed {
                true => Err(super::Unsettled::Unknown),
                false => Ok(Kudos(1)),
            }
        }
    });
    let board = Switchboard::start(Settings::default(), books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 4).await;
    let mut stream = submit(&board, job("hello")).await.unwrap();
    let offer = rig.offer().await;
    rig.say(&offer, [text("hi"), done(1)]).await;
    assert!(matches!(
        outcome(&mut stream).await,
        Outcome::Delivered { .. }
    ));
    let asked = asked.lock();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0], asked[1]);
    assert_eq!(asked[0].output_tokens, 1);
}

#[tokio::test]
async fn both_numbers_of_a_public_worker_are_ours() {
    let (tasks, mut ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", Extensions::default(), 1).await;
    let mut stream = submit(&board, job("hello world")).await.unwrap();
    let offer = rig.offer().await;
    rig.say(&offer, [text("three little words"), done(5000)])
        .await;
    let Outcome::Delivered { usage, .. } = outcome(&mut stream).await else {
        panic!("it was delivered");
    };
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (2, 3));
    let (facts, counted) = ledger.settled.recv().await.unwrap();
    assert_eq!(counted.belief, Belief::Nothing);
    assert_eq!(facts.usage.unwrap().completion_tokens, 3);
}

#[tokio::test]
async fn dropping_the_stream_cancels_the_job() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 1).await;
    let stream = submit(&board, job("hello")).await.unwrap();
    let offer = rig.offer().await;
    drop(stream);
    let Order::Cancel { job, why, .. } = rig.order().await else {
        panic!("expected a cancel");
    };
    assert_eq!((job, why), (offer.job.id, CancelReason::Client));
}

#[tokio::test]
async fn one_client_that_does_not_read_loses_its_job_and_the_other_63_notice_nothing() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 64).await;
    let mut streams = Vec::new();
    let mut offers = Vec::new();
    for _ in 0..64 {
        let mut job = job("hello");
        // Enough output to fill a client's buffer before the job's own limit.
        job.limits.output_tokens = None;
        streams.push(submit(&board, job).await.unwrap());
        offers.push(rig.offer().await);
    }
    let mut stalled = streams.remove(0);
    let stalled_offer = offers.remove(0);
    let piece = "x".repeat(60_000);
    for _ in 0..20 {
        rig.say(&stalled_offer, [text(&piece)]).await;
        for (stream, offer) in streams.iter_mut().zip(&offers) {
            rig.say(offer, [text("a")]).await;
            assert_eq!(next(stream).await, Delivery::Event(text("a")));
        }
    }
    let Order::Cancel { job, .. } = rig.order().await else {
        panic!("expected a cancel");
    };
    assert_eq!(job, stalled_offer.job.id);
    for (stream, offer) in streams.iter_mut().zip(&offers) {
        rig.say(offer, [done(20)]).await;
        assert!(matches!(outcome(stream).await, Outcome::Delivered { .. }));
    }
    rig.say(&stalled_offer, [done(20)]).await;
    let Outcome::Failed(Failure { kind, .. }) = outcome(&mut stalled).await else {
        panic!("it failed");
    };
    assert_eq!(kind, FailureKind::SlowClient);
    assert_eq!(board.figures().slow_clients, 1);
}

#[tokio::test]
async fn what_a_worker_said_before_it_hung_up_counts() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let mut rig = Rig::connect(&board, "rig", OURS, 1).await;
    let mut stream = submit(&board, job("hello")).await.unwrap();
    let offer = rig.offer().await;
    rig.say(&offer, [text("hi"), done(1)]).await;
    rig.hang_up();
    assert!(matches!(
        outcome(&mut stream).await,
        Outcome::Delivered { .. }
    ));
}

#[tokio::test]
async fn an_account_with_too_much_in_flight_is_told() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let settings = Settings {
        in_flight_limit: Some(2),
        ..Settings::default()
    };
    let board = Switchboard::start(settings, ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 4).await;
    let mut first = submit(&board, job("one")).await.unwrap();
    let _second = submit(&board, job("two")).await.unwrap();
    let refusal = submit(&board, job("three")).await.unwrap_err();
    // Of two concurrent jobs, the first is expected to end after a third of a typical duration.
    let wait = Duration::from_secs(10) / 3;
    let wanted = Refusal::InFlight {
        open: 2,
        most: 2,
        wait,
    };
    assert_eq!(refusal, wanted);
    assert_eq!(Failure::from(refusal).status(), 429);
    let mut many = vec![job("a"), job("b"), job("c")];
    many.iter_mut().for_each(|job| job.account = AccountId(3));
    let submission = Submission {
        jobs: many.into_iter().map(Arc::new).collect(),
        standing: Standing::default(),
    };
    let refusal = board.submit(submission).await.unwrap_err();
    let wanted = Refusal::TooManyJobs { wanted: 3, most: 2 };
    assert_eq!(refusal, wanted);
    assert_eq!(Failure::from(refusal).status(), 400);
    let mut other = job("four");
    other.account = AccountId(2);
    let _other = submit(&board, other).await.unwrap();
    let offer = rig.offer().await;
    rig.say(&offer, [done(0)]).await;
    outcome(&mut first).await;
    submit(&board, job("five")).await.unwrap();
}

#[tokio::test]
async fn the_overview_shows_who_comes_and_goes() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    assert!(board.overview().models.is_empty());
    let mut rig = Rig::connect(&board, "rig", OURS, 4).await;
    let overview = board.overview();
    let model = overview.model("tiny").unwrap();
    assert_eq!((model.workers, model.slots, model.context), (1, 4, 4096));
    assert_eq!(overview.workers[0].name.as_ref(), "rig");
    rig.hang_up();
    eventually("no worker", async || board.overview().workers.is_empty()).await;
    assert!(board.overview().model("tiny").is_none());
}

#[tokio::test]
async fn draining_ends_what_is_here_and_takes_nothing_more() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 4).await;
    let mut stream = submit(&board, job("hello")).await.unwrap();
    let offer = rig.offer().await;
    let drain = board.drain(Duration::from_secs(30));
    let work = async {
        let refusal = loop {
            if let Err(refusal) = submit(&board, job("late")).await {
                break refusal;
            }
        };
        assert_eq!(refusal, Refusal::ShuttingDown);
        rig.say(&offer, [done(0)]).await;
        outcome(&mut stream).await
    };
    let (drained, outcome) = tokio::join!(drain, work);
    assert_eq!(drained.cut_off, 0);
    assert!(matches!(outcome, Outcome::Delivered { .. }));
    assert!(tasks.stop(Duration::from_secs(5)).await);
    let refusal = submit(&board, job("later")).await.unwrap_err();
    assert_eq!(refusal, Refusal::ShuttingDown);
}

#[tokio::test]
async fn streams_of_jobs_that_are_handed_over_close_unsettled_behind_their_output() {
    let (tasks, mut ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 2).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(submit(&board, job("hello")).await.unwrap());
    }
    let (ended, running) = (rig.offer().await, rig.offer().await);
    rig.say(&ended, [text("hi"), done(1)]).await;
    rig.say(&running, [text("so far")]).await;
    assert!(ledger.settled.recv().await.is_some());
    board.hand_over(Duration::from_secs(5)).await;
    assert!(matches!(
        outcome(&mut streams[0]).await,
        Outcome::Delivered { .. }
    ));
    assert!(!streams[0].is_parked());
    assert_eq!(next(&mut streams[1]).await, Delivery::Event(text("so far")));
    assert!(streams[1].next().await.is_none() && streams[1].is_parked());
    assert!(ledger.settled.try_recv().is_err());
    assert!(tasks.stop(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_drain_says_how_many_jobs_it_cut_off() {
    let (tasks, mut ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 2).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(submit(&board, job("hello")).await.unwrap());
    }
    let done_in_time = rig.offer().await;
    let _cut_off = rig.offer().await;
    rig.say(&done_in_time, [text("hi"), done(1)]).await;
    let _started_late = rig.offer().await;
    assert!(ledger.settled.recv().await.is_some());
    assert_eq!(board.drain(Duration::ZERO).await.cut_off, 2);
    assert!(matches!(
        outcome(&mut streams[0]).await,
        Outcome::Delivered { .. }
    ));
    for stream in &mut streams[1..] {
        let failure = outcome(stream).await.failure().unwrap();
        assert_eq!(failure.kind, FailureKind::ShuttingDown);
    }
}

#[tokio::test]
async fn jobs_the_store_never_answered_for_count_as_cut_off() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    ledger.open.forget_permits(1000);
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 2).await;
    let mut stream = submit(&board, job("hello")).await.unwrap();
    let offer = rig.offer().await;
    rig.say(&offer, [text("hi"), done(1)]).await;
    assert_eq!(next(&mut stream).await, Delivery::Event(text("hi")));
    assert_eq!(board.drain(Duration::ZERO).await.cut_off, 1);
}
