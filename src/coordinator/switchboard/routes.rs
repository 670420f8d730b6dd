//! Carries out the dispatcher's effects. Decides nothing and never waits.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures_util::FutureExt;
use tracing::warn;

use super::Drained;
use super::books::Unsettled;
use super::desk::{Desk, Entering, Message};
use super::lines::{Count, believed};
use super::orders::Order;
use super::overview::Stale;
use crate::dispatch::{CloseReason, Effect, Facts, Input, Offer, Outcome, Refusal, SessionId};
use crate::metering::{self, Counted};
use muster_protocol::job::{Event, FailureKind, JobId};

impl Desk {
    pub fn send_out(&mut self, effect: Effect) {
        match effect {
            Effect::Accepted { .. } => self.accepted(),
            Effect::Refused { refusal, .. } => self.refused(refusal),
            Effect::Relay { job, event } => self.relay(job, event),
            Effect::End { job, outcome } => self.end(job, outcome),
            Effect::Park { job } => {
                self.polling.ended(job);
                self.wakers.extend(self.lines.park(job));
            }
            Effect::Returned { job } => self.lines.returned(job),
            Effect::Ready { session, resumed } => {
                self.upkeep.note(Stale::Members);
                self.order(session, Order::Ready { resumed });
            }
            Effect::Offer(offer) => self.offer(offer),
            Effect::CancelOnWorker {
                session,
                job,
                attempt,
                why,
            } => self.order(session, Order::Cancel { job, attempt, why }),
            Effect::Got {
                session,
                job,
                attempt,
                seq,
            } => self.order(session, Order::Got { job, attempt, seq }),
            Effect::Ack {
                session,
                job,
                attempt,
                reward,
            } => {
                self.polling.paid(job, attempt, reward);
                let ack = Order::Ack {
                    job,
                    attempt,
                    reward,
                };
                self.order(session, ack);
            }
            Effect::Drop {
                session,
                job,
                attempt,
            } => {
                self.polling.dropped(job, attempt);
                self.order(session, Order::Drop { job, attempt });
            }
            Effect::TellDrain { session, within } => {
                self.upkeep.note(Stale::Members);
                self.order(session, Order::Drain { within });
            }
            Effect::CloseWorker { session, reason } => self.close_worker(session, reason),
            Effect::Settle(facts) => self.settle(facts),
            Effect::Drained => self.drained(),
        }
    }

    fn accepted(&mut self) {
        let Some(entering) = self.entering.take() else {
            return;
        };
        if self
            .shared
            .counters
            .accepted
            .add(entering.jobs.len() as u64)
            == 0
        {
            metering::warm_up();
        }
        let Entering {
            jobs,
            begun,
            answer,
        } = entering;
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        let streams = self.lines.open(jobs, &self.shared.departures);
        for (job, events) in ids.into_iter().zip(begun) {
            self.lines.note(job, &events);
        }
        // If the caller is gone, the streams are dropped, which cancels their jobs.
        let _ = answer.send(Ok(streams));
    }

    fn refused(&mut self, refusal: Refusal) {
        self.shared.counters.refused.add(1);
        if let Some(entering) = self.entering.take() {
            let _ = entering.answer.send(Err(refusal));
        }
    }

    fn relay(&mut self, job: JobId, event: Event) {
        let counters = &self.shared.counters;
        counters.events.add(1);
        if let Event::Token(token) = &event {
            counters.tokens.add(token.ids.len().max(1) as u64);
        }
        match self.lines.relay(job, event) {
            Ok(waker) => self.wakers.extend(waker),
            Err(_) => self.follow_ups.push_back(Input::SlowClient { job }),
        }
    }

    fn drained(&mut self) {
        let cut_off = self.shared.counters.cut_off.read();
        for done in self.draining.drain(..) {
            // The caller may have stopped waiting.
            let _ = done.send(Drained { cut_off });
        }
    }

    pub fn end(&mut self, job: JobId, outcome: Outcome) {
        if let Outcome::Failed(failure) = &outcome
            && failure.kind == FailureKind::StoreUnavailable
        {
            warn!(job.id = %job, "job {job} ends unpaid: its result could not be saved");
        }
        self.polling.ended(job);
        let ended = outcome.clone();
        if let Some((timing, waker)) = self.lines.end(job, outcome) {
            self.shared.counters.ended(&ended, timing);
            self.wakers.extend(waker);
        }
    }

    fn offer(&mut self, offer: Offer) {
        let session = offer.session;
        if let Some(card) = self.sessions.card(session) {
            self.lines.offered(&offer, card);
        }
        let Some(offer) = self.polling.offer(offer) else {
            return;
        };
        self.order(session, Order::Offer(Box::new(offer)));
    }

    /// A socket that does not read its orders is closed.
    fn order(&mut self, session: SessionId, order: Order) {
        let Some(orders) = self.sessions.orders(session) else {
            return;
        };
        match orders.push(order) {
            Ok(waker) => self.wakers.extend(waker),
            Err(_) => {
                self.wakers.extend(orders.close());
                self.sessions.remove(session);
                self.follow_ups.push_back(Input::Lost { session });
            }
        }
    }

    fn close_worker(&mut self, session: SessionId, reason: CloseReason) {
        match reason {
            CloseReason::Evicted { .. } => self.shared.counters.evictions.add(1),
            CloseReason::Silent => self.shared.counters.silences.add(1),
            _ => 0,
        };
        self.order(session, Order::Close(reason));
        if let Some(orders) = self.sessions.remove(session) {
            self.wakers.extend(orders.close());
        }
        self.upkeep.note(Stale::Members);
    }

    /// Counts and settles in a task; the outcome returns as a message.
    fn settle(&mut self, mut facts: Box<Facts>) {
        let Some(messages) = self.messages.upgrade() else {
            return;
        };
        let (books, meter) = (self.books.clone(), self.meter.clone());
        let (count, output) = self.lines.settle(&facts);
        facts.output = output;
        self.tasks.start(async move {
            let job = facts.job.id;
            let counted = match count {
                Count::Known(counted) => counted,
                Count::Open { belief, .. } if facts.parts.is_empty() => Counted {
                    belief,
                    ..Counted::default()
                },
                Count::Open { output, belief } => {
                    meter.count(facts.job.clone(), output, belief).await
                }
            };
            let asked = Instant::now();
            let settling = AssertUnwindSafe(books.settle(amended(facts, counted), counted));
            // After any failure the settlement is unknown, and is requested again.
            let result = settling
                .catch_unwind()
                .await
                .unwrap_or(Err(Unsettled::Unknown));
            let took = asked.elapsed();
            let settled = Message::Settled {
                job,
                counted,
                result,
                took,
            };
            // If the switchboard has stopped, the reply is not needed.
            let _ = messages.send(settled).await;
        });
    }
}

/// Stores the same numbers that the client sees.
fn amended(mut facts: Box<Facts>, counted: Counted) -> Box<Facts> {
    facts.usage = facts.usage.map(|said| counted.usage(Some(said)));
    facts.outcome = believed(facts.outcome, counted);
    facts
}
