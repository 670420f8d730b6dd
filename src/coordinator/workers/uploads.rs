//! Uploads reported by a worker: dispatch hears of them after they are checked, and the session goes on meanwhile.

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::dispatch::{Frame, Input, Said};
use crate::media::Key;
use crate::pictures::{Results, Unfit, UploadCheck};
use muster_protocol::job::{Event, Failure, FailureKind};

/// An upload, and the inputs for dispatch.
#[derive(Debug)]
pub struct Upload {
    pub key: Key,
    pub check: UploadCheck,
    /// Inputs for dispatch if the upload is valid.
    pub said: Vec<Input>,
    /// The failure frame otherwise.
    pub otherwise: Frame,
}

/// Uploads wait for a restarting media store: otherwise the work would be lost.
const PATIENCE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(2);

/// Uploads of one worker that are being checked.
pub struct Uploads {
    results: Option<Results>,
    running: FuturesUnordered<BoxFuture<'static, Vec<Input>>>,
}

impl Uploads {
    pub fn new(results: Option<Results>) -> Self {
        Self {
            results,
            running: FuturesUnordered::new(),
        }
    }

    pub fn add(&mut self, upload: Upload) {
        let results = self.results.clone();
        self.running.push(upload.judged(results).boxed());
    }

    /// Appends inputs for dispatch that are ready.
    pub fn poll(&mut self, context: &mut Context<'_>, inputs: &mut Vec<Input>) {
        while let Poll::Ready(Some(said)) = self.running.poll_next_unpin(context) {
            inputs.extend(said);
        }
    }

    /// Waits for the remaining checks: a worker may leave as soon as it has sent `done`.
    pub async fn finish(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        while let Some(said) = self.running.next().await {
            inputs.extend(said);
        }
        inputs
    }
}

impl Upload {
    async fn judged(self, results: Option<Results>) -> Vec<Input> {
        let Some(results) = results else {
            return self.said;
        };
        let last = Instant::now() + PATIENCE;
        let unfit = loop {
            match results.take_upload(self.key, self.check).await {
                Ok(()) => return self.said,
                Err(Unfit::Store(error)) if Instant::now() < last => {
                    debug!("reading an upload failed, retrying: {error}");
                    sleep(AGAIN).await;
                }
                Err(unfit) => break unfit,
            }
        };
        let kind = match unfit.is_workers_fault() {
            true => FailureKind::WorkerFailed,
            false => FailureKind::StoreUnavailable,
        };
        let failure = Failure::new(kind, unfit.to_string());
        vec![Input::Frame(Frame {
            said: Said::Event(Event::Failed(failure)),
            ..self.otherwise
        })]
    }
}
