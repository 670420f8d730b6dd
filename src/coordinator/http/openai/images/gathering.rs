//! The events of all jobs of a request, until each job has its image. Dropped before, all jobs are cancelled and the
//! images that are there already are deleted.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll, select_all};

use super::delivery::{ImageStore, StoredImage};
use crate::dispatch::{Outcome, Timing};
use crate::error::ApiError;
use crate::progress::ProgressBoard;
use crate::switchboard::{Delivery, JobStream};
use muster_protocol::job::{Event, FailureKind, Hidden, Job, JobId, Media};
use muster_protocol::legacy::image::drawn::Drawn;
use muster_protocol::openai::images::reply::ImagesGrid;

/// An image that its worker has delivered.
pub struct MadeImage {
    pub index: u32,
    pub seed: Option<u64>,
    pub stored: StoredImage,
    pub worker: Option<Arc<str>>,
    /// From the offer to the end.
    pub seconds: f64,
}

pub enum ImageEvent {
    Preview { index: u32, bytes: Vec<u8> },
    Made(MadeImage),
}

pub struct Gathering {
    streams: SelectAll<BoxStream<'static, (usize, Delivery)>>,
    jobs: Vec<PendingImage>,
    store: ImageStore,
    /// For the client's progress token.
    progress: Option<(ProgressBoard, String)>,
}

/// A job whose image is not there yet.
struct PendingImage {
    id: JobId,
    drawn: Drawn,
    percent: u8,
    image: Option<(Media, StoredImage)>,
}

impl Gathering {
    pub fn new(
        streams: Vec<JobStream>,
        jobs: &[Arc<Job>],
        store: ImageStore,
        progress: Option<(ProgressBoard, String)>,
    ) -> Self {
        let numbered = streams.into_iter().enumerate();
        let numbered = numbered.map(|(index, stream)| {
            let with_index = move |delivery| (index, delivery);
            stream.map(with_index).boxed()
        });
        let pending = |job: &Arc<Job>| PendingImage {
            id: job.id,
            drawn: Drawn::of(job),
            percent: 0,
            image: None,
        };
        let gathering = Self {
            streams: select_all(numbered),
            jobs: jobs.iter().map(pending).collect(),
            store,
            progress,
        };
        gathering.note_progress();
        gathering
    }

    /// The next event of any job; none after the end of all. Nothing is lost if the caller stops waiting.
    pub async fn next(&mut self) -> Option<Result<ImageEvent, ApiError>> {
        loop {
            let (index, delivery) = self.streams.next().await?;
            let store = self.store.clone();
            let job = self.jobs.get_mut(index)?;
            match delivery {
                Delivery::Event(Event::Media(media)) => {
                    let stored = store.stored(&media, job.drawn);
                    job.image = stored.map(|stored| (media, stored));
                }
                Delivery::Event(Event::Restarted) => job.image = None,
                Delivery::Event(Event::Progress(progress)) => {
                    job.percent = progress.percent;
                    self.note_progress();
                }
                Delivery::Event(Event::Preview { bytes, .. }) => {
                    let index = number(index);
                    return Some(Ok(ImageEvent::Preview { index, bytes }));
                }
                // A job for an image has no text, and its end is a delivery of its own.
                Delivery::Event(
                    Event::Started { .. }
                    | Event::Token(_)
                    | Event::ToolCall(_)
                    | Event::Note(_)
                    | Event::Encoded(_)
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
                    return Some(made.map(ImageEvent::Made));
                }
            }
        }
    }

    /// How many images the request has.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn store(&self) -> &ImageStore {
        &self.store
    }

    pub fn grid(&self, index: u32, model: &str) -> ImagesGrid {
        let job = self.jobs.get(index as usize);
        ImagesGrid {
            job: job.map(|job| job.id.to_string()).unwrap_or_default(),
            model: model.to_owned(),
            ..ImagesGrid::default()
        }
    }

    /// All images together.
    fn note_progress(&self) {
        if let Some((board, token)) = &self.progress {
            let sum: usize = self.jobs.iter().map(|job| usize::from(job.percent)).sum();
            let percent = sum / self.jobs.len().max(1);
            board.note(token, u8::try_from(percent).unwrap_or(100));
        }
    }
}

impl PendingImage {
    fn made(
        &mut self,
        index: u32,
        outcome: &Outcome,
        timing: Timing,
        worker: Option<Arc<str>>,
    ) -> Result<MadeImage, ApiError> {
        if let Some(failure) = outcome.failure() {
            return Err(failure.into());
        }
        if let Outcome::Delivered { finish, .. } = outcome
            && Hidden::of(finish).is_some()
        {
            let message = "the worker's safety filter withheld the image; change the prompt";
            return Err(ApiError::new(FailureKind::ContentRefused, message));
        }
        let Some((media, stored)) = self.image.take() else {
            let message = "the worker delivered no image";
            return Err(ApiError::new(FailureKind::EmptyResult, message));
        };
        let waited = timing.queued.unwrap_or_default();
        Ok(MadeImage {
            index,
            seed: media.seed,
            stored,
            worker,
            seconds: timing.total.saturating_sub(waited).as_secs_f64(),
        })
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
