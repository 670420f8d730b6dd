//! A client's stream of one job's events, read by its handler.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;

use super::departures::{Departure, Departures};
use super::pipe::Pipe;
use super::stage::{JobWatch, Whereabouts};
use crate::dispatch::{Outcome, Timing};
use muster_protocol::job::{Event, Formats, JobId};

/// An item of a client's stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// Never the last: `Done` and `Failed` are delivered as an end.
    Event(Event),
    /// The job is settled; the last item.
    End {
        outcome: Outcome,
        timing: Timing,
        /// The name of the worker that ended the job.
        worker: Option<Arc<str>>,
        /// That worker's upstream program.
        upstream: Option<Arc<str>>,
        /// The format on that worker; none before the first one.
        format: Formats,
    },
}

/// The reading end. Cancels the job if dropped before its end.
#[derive(Debug)]
pub struct JobStream {
    job: JobId,
    pipe: Arc<Pipe>,
    taken: VecDeque<Delivery>,
    ended: bool,
    departures: Arc<Departures>,
    /// For durable jobs.
    whereabouts: Option<Arc<Whereabouts>>,
}

impl JobStream {
    pub(super) fn new(job: JobId, pipe: Arc<Pipe>, departures: Arc<Departures>) -> Self {
        Self {
            job,
            pipe,
            taken: VecDeque::new(),
            ended: false,
            departures,
            whereabouts: None,
        }
    }

    pub(super) fn told_of(mut self, whereabouts: Option<Arc<Whereabouts>>) -> Self {
        self.whereabouts = whereabouts;
        self
    }

    pub fn job(&self) -> JobId {
        self.job
    }

    /// Cancels the job, and goes on listening: a submit may still arrive.
    pub fn cancel(&self) {
        if !self.ended {
            self.departures.note(Departure::Client(self.job));
        }
    }

    /// Stops reading without a cancel, for durable jobs at shutdown.
    pub fn leave(mut self) {
        self.ended = true;
    }

    /// `None` for a job that ends with its connection.
    pub fn watch(&self) -> Option<JobWatch> {
        self.whereabouts.clone().map(JobWatch)
    }

    /// Whether the job was left to another coordinator, unsettled.
    pub fn is_parked(&self) -> bool {
        self.pipe.lock().is_parked
    }

    /// The next delivery, `None` after the end. Available ones come without waiting.
    pub async fn next(&mut self) -> Option<Delivery> {
        poll_fn(|context| self.poll_delivery(context)).await
    }

    pub fn poll_delivery(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        if self.taken.is_empty() && !self.ended {
            let mut waiting = self.pipe.lock();
            if !waiting.ask(context.waker()) {
                return Poll::Pending;
            }
            std::mem::swap(&mut self.taken, &mut waiting.deliveries);
        }
        Poll::Ready(self.take())
    }

    fn take(&mut self) -> Option<Delivery> {
        let delivery = self.taken.pop_front();
        match &delivery {
            Some(Delivery::Event(event)) => self.pipe.read(event),
            Some(Delivery::End { .. }) | None => self.ended = true,
        }
        delivery
    }
}

impl Stream for JobStream {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_delivery(context)
    }
}

impl Drop for JobStream {
    fn drop(&mut self) {
        if !self.ended {
            self.departures.note(Departure::Client(self.job));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::{FutureExt, StreamExt};
    use tokio::time::advance;

    use super::{Delivery, JobStream};
    use crate::dispatch::{Outcome, Timing};
    use crate::switchboard::departures::{Departure, Departures};
    use crate::switchboard::pipe::{CLIENT_BUFFER, Overflow, Pipe};
    use muster_protocol::job::{Event, Formats, JobId, TokenEvent};

    fn text(length: usize) -> Event {
        Event::Token(TokenEvent {
            text: "x".repeat(length),
            ..TokenEvent::default()
        })
    }

    fn end() -> Delivery {
        Delivery::End {
            outcome: Outcome::Cancelled,
            timing: Timing::default(),
            worker: None,
            upstream: None,
            format: Formats::default(),
        }
    }

    fn both() -> (Arc<Pipe>, JobStream, Arc<Departures>) {
        let (pipe, departures) = (Arc::new(Pipe::default()), Arc::new(Departures::default()));
        let stream = JobStream::new(JobId::random(), pipe.clone(), departures.clone());
        (pipe, stream, departures)
    }

    #[test]
    fn a_client_that_does_not_read_overflows_after_a_megabyte_and_still_gets_its_end() {
        let (pipe, mut stream, _) = both();
        let mut pushed = 0;
        while pipe.push(text(10_000)).is_ok() {
            pushed += 1;
        }
        assert_eq!(pushed, CLIENT_BUFFER / 10_096);
        pipe.end(end());
        for _ in 0..pushed {
            assert!(matches!(
                stream.next().now_or_never(),
                Some(Some(Delivery::Event(_)))
            ));
        }
        assert_eq!(stream.next().now_or_never(), Some(Some(end())));
        assert_eq!(stream.next().now_or_never(), Some(None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_taken_but_not_read_still_counts() {
        let (pipe, mut stream, _) = both();
        for _ in 0..5 {
            pipe.push(text(100_000)).unwrap();
        }
        stream.next().now_or_never().unwrap();
        for _ in 0..6 {
            assert!(pipe.push(text(100_000)).is_ok());
            advance(Duration::from_millis(250)).await;
        }
        assert_eq!(pipe.push(text(100_000)).err(), Some(Overflow));
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken_once_for_many() {
        let (pipe, mut stream, _) = both();
        assert_eq!(stream.next().now_or_never(), None);
        assert!(pipe.push(text(1)).unwrap().is_some());
        assert!(pipe.push(text(1)).unwrap().is_none());
        assert!(pipe.end(end()).is_none());
        assert_eq!(stream.count().await, 3);
    }

    #[test]
    fn only_a_stream_that_has_not_ended_is_abandoned() {
        let (pipe, mut stream, departures) = both();
        pipe.end(end());
        stream.next().now_or_never();
        drop(stream);
        assert_eq!(departures.take(), []);
        let (_pipe, stream, departures) = both();
        let job = stream.job();
        drop(stream);
        assert_eq!(departures.take(), [Departure::Client(job)]);
    }
}
