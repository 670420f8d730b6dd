//! Pops and submits of polling workers, and status queries of polling clients: a message and its reply, in place of
//! orders and a stream.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use tokio::sync::oneshot;

use super::desk::{Desk, Message};
use super::lent::Lent;
use super::overview::Stale;
use super::sessions::Card;
use super::{Stopped, Switchboard};
use crate::dispatch::{
    Frame, Input, Offer, Outlook, Registration, SessionId, Skipped, Terms, Wants,
};
use muster_protocol::job::{JobId, Kind, Kudos, WorkerId};

/// A pop by a polling worker.
#[derive(Debug)]
pub struct Pop {
    pub session: SessionId,
    /// The registration, if it is new or changed.
    pub news: Option<News>,
    pub wants: Wants,
}

/// A registration of a polling worker.
#[derive(Debug)]
pub enum News {
    Here(Box<Registration>, Card),
    Changed(Box<Registration>, Card),
}

#[derive(Debug)]
pub struct Popped {
    pub offers: Lent,
    /// A decoy for an untrusted worker, whose result is discarded.
    pub decoy: Option<Offer>,
    /// Reasons of an empty pop.
    pub skipped: Skipped,
    /// The worker gets its owner's jobs only.
    pub own_only: bool,
}

/// A submit: the frames that a socket would have sent, the last one ending the job.
#[derive(Debug)]
pub struct Brought {
    pub job: JobId,
    pub attempt: u32,
    pub frames: Vec<Frame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// Stored, with this reward.
    Taken(Kudos),
    /// The job has ended, or another worker has submitted it.
    NotWanted,
}

/// Unanswered pops and submits.
#[derive(Debug, Default)]
pub struct Polling {
    popping: Option<(SessionId, Vec<Offer>)>,
    /// By job and attempt.
    receipts: BTreeMap<(JobId, u32), oneshot::Sender<Receipt>>,
    ended: Vec<JobId>,
}

impl Switchboard {
    /// `None` if the session is unknown: the worker must register again.
    pub async fn pop(&self, pop: Pop) -> Result<Option<Popped>, Stopped> {
        let (answer, answered) = oneshot::channel();
        let message = Message::Pop { pop, answer };
        self.messages.send(message).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// The first of these jobs that is queued and can be claimed, and its kind.
    pub async fn waiting_among(&self, jobs: Vec<JobId>) -> Result<Option<(JobId, Kind)>, Stopped> {
        let (answer, answered) = oneshot::channel();
        let message = Message::WaitingAmong { jobs, answer };
        self.messages.send(message).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// Estimate for a waiting job; `None` if it has ended.
    pub async fn outlook(&self, job: JobId) -> Result<Option<Outlook>, Stopped> {
        let (answer, answered) = oneshot::channel();
        let message = Message::Outlook { job, answer };
        self.messages.send(message).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// A polling worker has not polled for too long.
    pub async fn lost(&self, session: SessionId) -> Result<(), Stopped> {
        let message = Message::Said(vec![Input::Lost { session }]);
        self.messages.send(message).await.map_err(|_| Stopped)
    }

    /// A frame of a polling worker without a reply.
    pub async fn said(&self, frame: Frame) -> Result<(), Stopped> {
        let message = Message::Said(vec![Input::Frame(frame)]);
        self.messages.send(message).await.map_err(|_| Stopped)
    }

    /// Sets a worker's terms, effective for every pop after this returns.
    pub async fn set_terms(&self, worker: WorkerId, terms: Terms) -> Result<(), Stopped> {
        let message = Message::Said(vec![Input::Terms { worker, terms }]);
        self.messages.send(message).await.map_err(|_| Stopped)
    }

    /// Removes a worker, which gets no more jobs.
    pub async fn dismiss(&self, worker: WorkerId) -> Result<(), Stopped> {
        let within = std::time::Duration::ZERO;
        let message = Message::Said(vec![Input::DrainWorker { worker, within }]);
        self.messages.send(message).await.map_err(|_| Stopped)
    }

    /// Returns when the result is on disk, or refused.
    pub async fn bring(&self, brought: Brought) -> Result<Receipt, Stopped> {
        let (answer, answered) = oneshot::channel();
        let message = Message::Brought { brought, answer };
        self.messages.send(message).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }
}

impl Desk {
    pub(super) fn pop(&mut self, pop: Pop, answer: oneshot::Sender<Option<Popped>>) {
        let Pop {
            session,
            news,
            wants,
        } = pop;
        if let Some(news) = news.filter(|news| self.may_come(news, &wants)) {
            self.learn(session, news);
        }
        if self.sessions.card(session).is_none() {
            let _ = answer.send(None);
            return;
        }
        self.polling.popping = Some((session, Vec::new()));
        let asked = wants.clone();
        self.handle(Input::Pop { session, wants });
        let offers = self.polling.popping.take();
        let offers = offers.map(|(_, offers)| offers).unwrap_or_default();
        let shown = asked.decoys.as_ref().filter(|_| offers.is_empty());
        let decoy = shown.and_then(|shown| self.dispatcher.decoy(session, shown));
        let skipped = match offers.is_empty() && decoy.is_none() {
            true => self.dispatcher.skipped(session, &asked),
            false => Skipped::new(),
        };
        // If the worker hung up, dropping the offers returns the jobs.
        let _ = answer.send(Some(Popped {
            offers: Lent::new(offers, self.shared.departures.clone()),
            decoy,
            skipped,
            own_only: self.dispatcher.terms(session).own_only,
        }));
    }

    fn may_come(&self, news: &News, wants: &Wants) -> bool {
        match news {
            // A submit must not replace a connected socket of the worker.
            News::Here(who, _) => wants.only.is_empty() || !self.dispatcher.is_here(who.worker),
            // If its session has ended, the worker must register again.
            News::Changed(who, _) => self.sessions.card(who.session).is_some(),
        }
    }

    fn learn(&mut self, session: SessionId, news: News) {
        self.upkeep.note(Stale::Members);
        let (registration, card, input): (_, _, fn(Box<Registration>) -> Input) = match news {
            News::Here(registration, card) => (registration, card, Input::Connected),
            News::Changed(registration, card) => (registration, card, Input::Changed),
        };
        self.sessions.add(session, card, None);
        self.handle(input(registration));
    }

    pub(super) fn brought(&mut self, brought: Brought, answer: oneshot::Sender<Receipt>) {
        let Brought {
            job,
            attempt,
            frames,
        } = brought;
        let before = self.polling.receipts.get(&(job, attempt));
        if before.is_some_and(|before| !before.is_closed()) {
            // The same submit, twice concurrently.
            let _ = answer.send(Receipt::NotWanted);
            return;
        }
        self.polling.receipts.insert((job, attempt), answer);
        let is_heard = |frame: &Frame| self.sessions.card(frame.session).is_some();
        let fails = frames
            .last()
            .is_some_and(|frame| frame.is_failure() && is_heard(frame));
        for frame in frames {
            self.handle(Input::Frame(frame));
        }
        if fails {
            // A failure gets no ack: it was accepted unless it was dropped.
            self.polling.paid(job, Some(attempt), Kudos(0));
        }
        // Frames of an ended session get no receipt.
        if !self.dispatcher.owes_ack(job, attempt) {
            self.polling.dropped(job, attempt);
        }
    }
}

impl Polling {
    /// Collects an offer for the current pop; returns offers for sockets.
    pub fn offer(&mut self, offer: Offer) -> Option<Offer> {
        match &mut self.popping {
            Some((session, offers)) if *session == offer.session => {
                offers.push(offer);
                None
            }
            _ => Some(offer),
        }
    }

    pub fn paid(&mut self, job: JobId, attempt: Option<u32>, reward: Kudos) {
        if let Some(attempt) = attempt {
            self.answer(job, attempt, Receipt::Taken(reward));
        }
    }

    pub fn dropped(&mut self, job: JobId, attempt: u32) {
        self.answer(job, attempt, Receipt::NotWanted);
    }

    /// The job has ended: its receipts are due now.
    pub fn ended(&mut self, job: JobId) {
        if self.receipts.range(attempts(job)).next().is_some() {
            self.ended.push(job);
        }
    }

    /// Answers submits of ended jobs that get no receipt.
    pub fn tidy(&mut self) {
        for job in self.ended.drain(..) {
            let left: Vec<_> = self.receipts.range(attempts(job)).map(|it| *it.0).collect();
            for attempt in left {
                self.receipts.remove(&attempt);
            }
        }
    }

    fn answer(&mut self, job: JobId, attempt: u32, receipt: Receipt) {
        if let Some(answer) = self.receipts.remove(&(job, attempt)) {
            // The caller may have hung up.
            let _ = answer.send(receipt);
        }
    }
}

/// All possible attempts of a job.
fn attempts(job: JobId) -> RangeInclusive<(JobId, u32)> {
    (job, 0)..=(job, u32::MAX)
}
