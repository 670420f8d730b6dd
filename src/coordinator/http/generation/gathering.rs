//! The events of a request's jobs, until each job has its output. Dropping it cancels all jobs and deletes finished
//! outputs.

use std::sync::Arc;

use axum::http::HeaderValue;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll, select_all};

use super::delivery::{ResultStore, StoredResult};
use crate::dispatch::{Outcome, Timing};
use crate::error::ApiError;
use crate::media::Holding;
use crate::progress::ProgressBoard;
use crate::switchboard::{Delivery, JobStream};
use muster_protocol::job::drawn::Drawn;
use muster_protocol::job::{Event, FailureKind, Hidden, Job, JobId, Media};
use muster_protocol::openai::media::MediaGrid;

/// An output that its worker has delivered.
pub struct MadeMedia {
    pub index: u32,
    pub seed: Option<u64>,
    /// Width and height of an image.
    pub size: Option<(u32, u32)>,
    pub stored: StoredResult,
    pub worker: Option<Arc<str>>,
    /// From the offer to the end.
    pub seconds: f64,
}

pub enum MediaEvent {
    Preview { index: u32, bytes: Vec<u8> },
    Made(MadeMedia),
}

pub struct Gathering {
    streams: SelectAll<BoxStream<'static, (usize, Delivery)>>,
    jobs: Vec<PendingOutput>,
    model: String,
    store: ResultStore,
    /// The request's source images.
    _sources: Option<Holding>,
    /// For the client's progress token.
    progress: Option<(ProgressBoard, String)>,
}

/// A job without its output.
struct PendingOutput {
    id: JobId,
    drawn: Drawn,
    percent: u8,
    output: Option<(Media, StoredResult)>,
}

impl Gathering {
    pub fn new(
        streams: Vec<JobStream>,
        jobs: &[Arc<Job>],
        store: ResultStore,
        progress: Option<(ProgressBoard, String)>,
    ) -> Self {
        let numbered = streams.into_iter().enumerate();
        let numbered = numbered.map(|(index, stream)| {
            let with_index = move |delivery| (index, delivery);
            stream.map(with_index).boxed()
        });
        let pending = |job: &Arc<Job>| PendingOutput {
            id: job.id,
            drawn: Drawn::of(job),
            percent: 0,
            output: None,
        };
        let model = jobs.first().and_then(|job| job.model.0.first());
        let gathering = Self {
            streams: select_all(numbered),
            model: model.map(|model| model.to_string()).unwrap_or_default(),
            jobs: jobs.iter().map(pending).collect(),
            _sources: None,
            store,
            progress,
        };
        gathering.note_progress();
        gathering
    }

    /// The next event of any job; `None` after the end of all. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<MediaEvent, ApiError>> {
        loop {
            let (index, delivery) = self.streams.next().await?;
            let store = self.store.clone();
            let job = self.jobs.get_mut(index)?;
            match delivery {
                Delivery::Event(Event::Media(media)) => {
                    let stored = store.stored(&media, job.drawn);
                    job.output = stored.map(|stored| (media, stored));
                }
                Delivery::Event(Event::Restarted) => job.output = None,
                Delivery::Event(Event::Progress(progress)) => {
                    job.percent = progress.percent;
                    self.note_progress();
                }
                Delivery::Event(Event::Preview { bytes, .. }) => {
                    let index = number(index);
                    return Some(Ok(MediaEvent::Preview { index, bytes }));
                }
                // A job for media has no text, and its end is a delivery of its own.
                Delivery::Event(
                    Event::Started { .. }
                    | Event::Token(_)
                    | Event::Prompt(_)
                    | Event::ToolCall(_)
                    | Event::Note(_)
                    | Event::Part(_)
                    | Event::Usage(_)
                    | Event::Done { .. }
                    | Event::Failed(_),
                ) => {}
                Delivery::End {
                    outcome,
                    timing,
                    worker,
                    ..
                } => {
                    job.percent = 100;
                    let made = job.made(number(index), &outcome, timing, worker);
                    self.note_progress();
                    return Some(made.map(MediaEvent::Made));
                }
            }
        }
    }

    /// Keeps the source images until all jobs have ended.
    #[must_use]
    pub fn keeping(self, sources: Option<Holding>) -> Self {
        Self {
            _sources: sources,
            ..self
        }
    }

    /// The ids of all jobs, as a header.
    pub fn job_ids(&self) -> Option<HeaderValue> {
        let ids = self.jobs.iter().map(|job| job.id.to_string());
        HeaderValue::try_from(ids.collect::<Vec<_>>().join(", ")).ok()
    }

    /// Number of outputs.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn store(&self) -> &ResultStore {
        &self.store
    }

    pub fn grid(&self, index: u32) -> MediaGrid {
        let job = self.jobs.get(index as usize);
        MediaGrid {
            job: job.map(|job| job.id.to_string()).unwrap_or_default(),
            model: self.model.clone(),
            ..MediaGrid::default()
        }
    }

    /// Progress of all outputs together.
    fn note_progress(&self) {
        if let Some((board, token)) = &self.progress {
            let sum: usize = self.jobs.iter().map(|job| usize::from(job.percent)).sum();
            let percent = sum / self.jobs.len().max(1);
            board.note(token, u8::try_from(percent).unwrap_or(100));
        }
    }
}

impl PendingOutput {
    fn made(
        &mut self,
        index: u32,
        outcome: &Outcome,
        timing: Timing,
        worker: Option<Arc<str>>,
    ) -> Result<MadeMedia, ApiError> {
        if let Some(failure) = outcome.failure() {
            return Err(failure.into());
        }
        if let Outcome::Delivered { finish, .. } = outcome
            && Hidden::of(finish).is_some()
        {
            let message = "the worker's safety filter withheld the output; change the prompt";
            return Err(ApiError::new(FailureKind::ContentRefused, message));
        }
        let Some((media, stored)) = self.output.take() else {
            let message = "the worker delivered no output";
            return Err(ApiError::new(FailureKind::EmptyResult, message));
        };
        let waited = timing.queued.unwrap_or_default();
        Ok(MadeMedia {
            index,
            seed: media.seed,
            size: media.size,
            stored,
            worker,
            seconds: timing.total.saturating_sub(waited).as_secs_f64(),
        })
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
