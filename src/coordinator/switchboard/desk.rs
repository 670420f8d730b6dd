//! The task that owns the dispatcher. Messages come in batches; the dispatcher's effects go to clients' buffers,
//! workers' outboxes and the books, and never wait for any of them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::books::{Books, Unsettled};
use super::departures::Departure;
use super::lines::Lines;
use super::orders::Orders;
use super::overview::{Overview, Stale, Upkeep};
use super::polling::{Brought, Polling, Pop, Popped, Receipt};
use super::sessions::{Card, Sessions};
use super::stream::JobStream;
use super::{Drained, Shared};
use crate::dispatch::{
    BegunOutput, Dispatcher, Effect, Input, Limits, Mono, Now, Outcome, Outlook, Refusal,
    Registration, Settings, Submission,
};
use crate::leadership::Leadership;
use crate::metering::{Counted, Meter};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, Failure, Job, JobId, Kind, Kudos, UnixMillis};

/// Limit of messages before readers are woken: each may be a hundred frames.
const BATCH: usize = 64;
/// Sleep without any deadline: messages wake the task anyway.
const LONG: Duration = Duration::from_secs(3600);

pub type Answer = oneshot::Sender<Result<Vec<JobStream>, Refusal>>;

#[derive(Debug)]
pub enum Message {
    Submit {
        submission: Submission,
        /// Output of an earlier coordinator, for each job; empty for a new request.
        begun: Vec<BegunOutput>,
        answer: Answer,
    },
    Check {
        job: Arc<Job>,
        answer: oneshot::Sender<Result<(), Refusal>>,
    },
    Connected {
        registration: Box<Registration>,
        card: Card,
        orders: Option<Arc<Orders>>,
    },
    Pop {
        pop: Pop,
        answer: oneshot::Sender<Option<Popped>>,
    },
    WaitingAmong {
        jobs: Vec<JobId>,
        answer: oneshot::Sender<Option<(JobId, Kind)>>,
    },
    Overview {
        answer: oneshot::Sender<Arc<Overview>>,
    },
    Outlook {
        job: JobId,
        answer: oneshot::Sender<Option<Outlook>>,
    },
    Cancel {
        job: JobId,
        account: AccountId,
        answer: oneshot::Sender<Option<Outcome>>,
    },
    EndAccount {
        account: AccountId,
        failure: Failure,
        answer: oneshot::Sender<usize>,
    },
    Brought {
        brought: Brought,
        answer: oneshot::Sender<Receipt>,
    },
    /// From one socket, in order.
    Said(Vec<Input>),
    Settled {
        job: JobId,
        counted: Counted,
        result: Result<Kudos, Unsettled>,
        took: Duration,
    },
    Limits(Limits),
    Drain {
        within: Duration,
        done: oneshot::Sender<Drained>,
    },
    HandOver {
        done: oneshot::Sender<Drained>,
    },
}

/// Received messages that are not handled yet.
#[derive(Debug, Default)]
struct Post {
    /// In reverse order.
    messages: Vec<Message>,
    departures: Vec<Departure>,
}

/// The state of the task. `routes` carries out the dispatcher's effects.
#[derive(Debug)]
pub struct Desk {
    pub dispatcher: Dispatcher,
    pub shared: Arc<Shared>,
    pub books: Books,
    pub meter: Meter,
    pub tasks: Tasks,
    /// For replies of the books.
    pub messages: mpsc::WeakSender<Message>,
    pub lines: Lines,
    pub sessions: Sessions,
    pub upkeep: Upkeep,
    pub wakers: Vec<Waker>,
    /// Inputs caused by effects: a client's buffer was full, a socket was stuck.
    pub follow_ups: VecDeque<Input>,
    /// The request being submitted, until it is accepted or refused.
    pub entering: Option<Entering>,
    pub polling: Polling,
    pub draining: Vec<oneshot::Sender<Drained>>,
    pub is_draining: bool,
    pub settings: Settings,
    leadership: Leadership,
    pub is_paused: bool,
    pub effects: Vec<Effect>,
    started: Instant,
}

#[derive(Debug)]
pub struct Entering {
    pub jobs: Vec<Arc<Job>>,
    pub begun: Vec<BegunOutput>,
    pub answer: Answer,
}

/// Added to a moment to be past it.
const MICROSECOND: Duration = Duration::from_micros(1);

impl Desk {
    pub fn new(
        settings: Settings,
        books: Books,
        shared: Arc<Shared>,
        messages: mpsc::WeakSender<Message>,
        tasks: &Tasks,
    ) -> Self {
        Self {
            dispatcher: Dispatcher::new(settings.clone()),
            settings,
            leadership: Leadership::default(),
            is_paused: false,
            is_draining: false,
            shared,
            books,
            meter: Meter::start(tasks),
            tasks: tasks.clone(),
            messages,
            lines: Lines::default(),
            sessions: Sessions::default(),
            upkeep: Upkeep::new(),
            wakers: Vec::new(),
            follow_ups: VecDeque::new(),
            entering: None,
            polling: Polling::default(),
            draining: Vec::new(),
            effects: Vec::new(),
            started: Instant::now(),
        }
    }

    #[must_use]
    pub fn led_by(self, leadership: Leadership) -> Self {
        Self { leadership, ..self }
    }

    pub async fn run(mut self, mut inbox: mpsc::Receiver<Message>, stopping: CancellationToken) {
        let (shared, mut resumed) = (self.shared.clone(), self.leadership.resumed());
        let mut post = Post::default();
        let mut alarm = Box::pin(sleep_until(self.started + LONG));
        loop {
            self.set(&mut alarm);
            select! {
                biased;
                () = stopping.cancelled() => break,
                count = inbox.recv_many(&mut post.messages, BATCH) => if count == 0 { break },
                () = shared.departures.added() => {}
                () = shared.board.asked() => {}
                // The sender lives as long as this task.
                _ = resumed.changed() => {}
                () = &mut alarm => {}
            }
            post.departures = shared.departures.take();
            if !post.departures.is_empty() {
                take_all(&mut inbox, &mut post.messages);
            }
            post.messages.reverse();
            post.departures.reverse();
            self.work_off_safely(&mut post);
        }
        self.close();
    }

    /// Handles messages. After a panic, which is a bug, every open job gets an end, and workers reconnect.
    fn work_off_safely(&mut self, post: &mut Post) {
        while catch_unwind(AssertUnwindSafe(|| self.work_off(post))).is_err() {
            error!(
                "the dispatch task panicked and is restarting: {} jobs fail or are queued again",
                self.lines.len()
            );
            self.start_over();
        }
    }

    fn set(&self, alarm: &mut Pin<Box<Sleep>>) {
        let wake = self.dispatcher.next_wake();
        // Never early: otherwise the alarm would find nothing due and be set to the same time again.
        let wake = wake.map(|mono| self.started + mono.since(Mono::START) + MICROSECOND);
        let upkeep = self.upkeep.due(&self.shared.board);
        match [wake, upkeep].into_iter().flatten().min() {
            Some(due) if alarm.deadline() != due => alarm.as_mut().reset(due),
            None if alarm.is_elapsed() => alarm.as_mut().reset(Instant::now() + LONG),
            Some(_) | None => {}
        }
    }

    fn work_off(&mut self, post: &mut Post) {
        self.follow_leadership();
        while let Some(message) = post.messages.pop() {
            self.take_in(message);
        }
        while let Some(departure) = post.departures.pop() {
            self.lost_session(&departure.into());
            self.handle(departure.into());
        }
        self.handle(Input::Tick);
        self.upkeep.note(Stale::Load);
        let census = self.dispatcher.census();
        self.shared
            .counters
            .take_census(census, self.sessions.len());
        self.upkeep
            .keep_up(&self.shared.board, &self.dispatcher, &self.sessions);
        while let Some(waker) = self.wakers.pop() {
            waker.wake();
        }
    }

    /// Before anything else: a process that was suspended may have lost its lease.
    fn follow_leadership(&mut self) {
        let is_paused = !self.leadership.is_leading();
        if is_paused != self.is_paused {
            self.is_paused = is_paused;
            self.handle(match is_paused {
                true => Input::Pause,
                false => Input::Resume,
            });
        }
    }

    fn take_in(&mut self, message: Message) {
        match message {
            Message::Submit {
                submission,
                begun,
                answer,
            } => {
                self.entering = Some(Entering {
                    jobs: submission.jobs.clone(),
                    begun: begun.clone(),
                    answer,
                });
                self.handle(match begun.is_empty() {
                    true => Input::Submit(submission),
                    false => Input::Continue(submission, begun),
                });
                self.entering = None;
            }
            Message::Check { job, answer } => {
                // The receiver may be gone.
                let _ = answer.send(self.dispatcher.feasible(&job));
            }
            Message::Connected {
                registration,
                card,
                orders,
            } => {
                self.sessions.add(registration.session, card, orders);
                self.handle(Input::Connected(registration));
            }
            Message::Overview { answer } => {
                let board = &self.shared.board;
                self.upkeep
                    .bring_up_to_date(board, &self.dispatcher, &self.sessions);
                // The receiver may be gone.
                let _ = answer.send(board.read());
            }
            Message::Outlook { job, answer } => {
                // The receiver may be gone.
                let _ = answer.send(self.dispatcher.outlook(job, self.now().mono));
            }
            Message::WaitingAmong { jobs, answer } => {
                let _ = answer.send(self.dispatcher.waiting_among(&jobs));
            }
            Message::Pop { pop, answer } => self.pop(pop, answer),
            Message::Cancel {
                job,
                account,
                answer,
            } => {
                let _ = answer.send(self.cancel(job, account));
            }
            Message::EndAccount {
                account,
                failure,
                answer,
            } => {
                let _ = answer.send(self.end_jobs_of(account, failure));
            }
            Message::Brought { brought, answer } => self.brought(brought, answer),
            Message::Said(inputs) => {
                let now = self.now();
                for input in inputs {
                    self.lost_session(&input);
                    self.handle_at(input, now);
                }
            }
            Message::Settled {
                job,
                counted,
                result,
                took,
            } => {
                self.shared.counters.settlement.add(took);
                self.settled(job, counted, result);
            }
            Message::Limits(limits) => {
                // Also for a restarted dispatcher.
                self.settings.set_limits(limits);
                self.handle(Input::Limits(limits));
            }
            Message::Drain { within, done } => {
                self.draining.push(done);
                self.is_draining = true;
                self.handle(Input::Drain { within });
            }
            Message::HandOver { done } => {
                self.draining.push(done);
                self.is_draining = true;
                self.handle(Input::HandOver);
            }
        }
    }

    /// Removes the session of a closed socket.
    fn lost_session(&mut self, input: &Input) {
        match input {
            Input::Lost { session } => {
                self.sessions.remove(*session);
                self.upkeep.note(Stale::Members);
            }
            // Reports are frequent, and only update the load.
            Input::Leaving { .. } | Input::DrainWorker { .. } => {
                self.upkeep.note(Stale::Members);
            }
            _ => {}
        }
    }

    fn settled(&mut self, job: JobId, counted: Counted, result: Result<Kudos, Unsettled>) {
        self.lines.counted(job, counted);
        match result {
            Ok(reward) => self.handle(Input::Settled { job, reward }),
            Err(why) => {
                self.shared.counters.settlement_failures.add(1);
                self.handle(match why {
                    Unsettled::Unknown => Input::SettleFailed { job },
                    Unsettled::Full => Input::StoreFull { job },
                });
            }
        }
    }

    /// Passes an input to the dispatcher and carries out its effects, and the follow-ups.
    pub fn handle(&mut self, input: Input) {
        self.handle_at(input, self.now());
    }

    fn handle_at(&mut self, input: Input, now: Now) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut next = Some(input);
        while let Some(input) = next {
            self.dispatcher.handle(input, now, &mut effects);
            for effect in effects.drain(..) {
                self.send_out(effect);
            }
            next = self.follow_ups.pop_front();
        }
        self.polling.tidy();
        self.effects = effects;
    }

    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = wall.map_or(0, |since| since.as_millis());
        Now {
            mono: Mono::START + self.started.elapsed(),
            wall: UnixMillis(i64::try_from(millis).unwrap_or(i64::MAX)),
        }
    }
}

/// Takes all messages first, so that those sent before a departure count.
fn take_all(inbox: &mut mpsc::Receiver<Message>, batch: &mut Vec<Message>) {
    while let Ok(message) = inbox.try_recv() {
        batch.push(message);
    }
}
