//! A job, from pop to submission.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::client::{Client, FinishedOutput, Receipt};
use super::returns::Returns;
use super::{PolledKind, Served};
use crate::link::session::{Backoff, Finishing, Peer, SafetyRule, Slot, Work};
use crate::link::{Feedback, LineId, Offer, Reply, Said, Stop, Transfers, rand_seed};
use muster_process::tasks::Tasks;
use muster_protocol::job::{
    Body, Event, FinishReason, FormRequest, ImageRequest, JobId, Kind, Kudos, LegacySampling,
    ResultPart, TextInput, TextRequest,
};
use muster_protocol::legacy::popped::{PoppedBody, PoppedJob};
use muster_protocol::legacy::text::format;
use muster_protocol::link::{MediaResult, Payload, UploadSlot};

/// Words that may wait to be taken in.
const WAITING_WORDS: usize = 256;
/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_secs(3);
/// Default for coordinators that do not report a time limit.
const USUAL_TIME: Duration = Duration::from_secs(150);
/// Part of a job's time that is reserved for the submission.
const WAY_BACK: Duration = Duration::from_secs(5);
/// Models give poor results with a shorter side.
const LEAST_SIDE: u32 = 256;
/// No longer side is enlarged beyond it.
const MOST_ENLARGED_SIDE: u32 = 2048;
/// The type of images that such coordinators take.
const IMAGE_TYPE: &str = "image/webp";
/// Time for retries of a submission after the job's deadline, because some coordinators accept late results.
const STUBBORN: Duration = Duration::from_secs(300);

/// A job that can be done here.
#[derive(Debug, Clone)]
pub struct Job {
    model: String,
    body: JobBody,
    ends: Instant,
}

#[derive(Debug, Clone)]
enum JobBody {
    Text {
        text: Box<TextRequest>,
        wanted: LegacySampling,
    },
    Image {
        image: Box<ImageRequest>,
        /// Upload links of all images of the job.
        uploads: Vec<Option<String>>,
        finishing: Finishing,
    },
    Form(Box<FormRequest>),
}

/// The state that a job needs from its line.
pub struct Errand {
    pub label: String,
    pub client: Client,
    pub kind: PolledKind,
    pub transfers: Transfers,
    pub offers: mpsc::Sender<Offer>,
    pub ending: CancellationToken,
    pub tasks: Tasks,
    pub records: Records,
    pub feedback: Feedback,
}

/// State shared by all jobs of a line.
#[derive(Debug, Clone, Default)]
pub struct Records {
    returns: Arc<Mutex<Returns>>,
    /// The coordinator does not support progress reports.
    takes_no_progress: Arc<AtomicBool>,
}

impl Records {
    /// The number of recently returned jobs, and the time of the next pop.
    pub fn rest(&self) -> Option<(usize, Instant)> {
        self.returns().rest(Instant::now())
    }

    fn returns(&self) -> MutexGuard<'_, Returns> {
        self.returns.lock()
    }
}

impl Job {
    /// Or why it cannot.
    pub fn of(popped: &PoppedJob, served: &Served) -> Result<Self, String> {
        let model = match (served.models.get(&popped.model), served.models.len()) {
            (Some(model), _) => model.clone(),
            (None, 1) if popped.model.is_empty() => served.models.values().cloned().collect(),
            _ => {
                return Err(format!("the model {} is not served here", popped.model));
            }
        };
        let body = match &popped.body {
            PoppedBody::Text(text) => {
                let mut text = text.clone();
                let wanted = text.sampling.legacy.as_deref().cloned();
                let wanted = wanted.unwrap_or_default();
                if let TextInput::Prompt(prompt) = &mut text.input {
                    *prompt = format::prompt(prompt, &wanted).into_owned();
                }
                JobBody::Text { text, wanted }
            }
            PoppedBody::Image(popped)
                if !served.permissions.loras && !popped.image.loras.is_empty() =>
            {
                return Err(
                    "LoRAs are not applied for this coordinator (coordinator.loras)".to_owned(),
                );
            }
            PoppedBody::Image(popped) => {
                let mut image = Box::new(popped.image.clone());
                let finishing = Finishing {
                    safety: Some(match popped.is_censored || !served.permissions.nsfw {
                        true => SafetyRule::Censor,
                        false => SafetyRule::Label,
                    }),
                    side: enlarge(&mut image),
                };
                JobBody::Image {
                    image,
                    uploads: popped.uploads.clone(),
                    finishing,
                }
            }
            PoppedBody::Form(form) => JobBody::Form(form.clone()),
        };
        let time = popped.ttl.map_or(USUAL_TIME, Duration::from_secs);
        Ok(Self {
            model,
            body,
            ends: Instant::now() + time.saturating_sub(WAY_BACK).max(WAY_BACK),
        })
    }

    /// An output of the job, by its place among them.
    pub fn numbered(&self, index: usize) -> Self {
        let mut job = self.clone();
        if let JobBody::Image { image, uploads, .. } = &mut job.body {
            image.index = u32::try_from(index).unwrap_or(u32::MAX);
            *uploads = vec![uploads.get(index).cloned().flatten()];
        }
        job
    }

    fn work(&self, id: &str) -> Work {
        let (kind, body, upload) = match &self.body {
            JobBody::Text { text, .. } => (Kind::Text, Body::Text(text.clone()), Vec::new()),
            JobBody::Image { image, uploads, .. } => {
                let body = Body::Image(image.clone());
                let links = uploads.iter().map(|link| UploadSlot {
                    put_url: link.clone().unwrap_or_default(),
                    key: id.to_owned(),
                    content_type: IMAGE_TYPE.to_owned(),
                });
                (Kind::Image, body, links.collect())
            }
            JobBody::Form(form) => (Kind::Form, Body::Form(form.clone()), Vec::new()),
        };
        Work {
            slot: Slot(0),
            job: id.parse().map_or_else(|_| JobId::random(), JobId),
            model: self.model.clone(),
            kind,
            payload: Payload::Neutral(body),
            upload,
            prefill: None,
            cache_salt: None,
            keep_alive: None,
            peer: Peer::Public,
            finishing: match &self.body {
                JobBody::Text { .. } | JobBody::Form(_) => Finishing::default(),
                JobBody::Image { finishing, .. } => *finishing,
            },
        }
    }
}

/// Scales sizes below a model's minimum by a whole factor. Returns the requested longer side.
fn enlarge(image: &mut ImageRequest) -> Option<u32> {
    let (shorter, longer) = (image.width.min(image.height), image.width.max(image.height));
    let times = LEAST_SIDE.div_ceil(shorter.max(1));
    let times = times.min(MOST_ENLARGED_SIDE / longer.max(1));
    if shorter == 0 || times < 2 {
        return None;
    }
    image.width *= times;
    image.height *= times;
    Some(longer)
}

impl Errand {
    /// Executes the job and holds its permit until the submission.
    pub fn start(self, id: String, job: Job, seat: OwnedSemaphorePermit) {
        let tasks = self.tasks.clone();
        tasks.start(async move {
            match self.make(&id, &job).await {
                Some(brought) => self.bring(&id, &job.model, Some(&brought)).await,
                None => {
                    self.note_return();
                    self.bring(&id, &job.model, None).await;
                }
            }
            drop(seat);
        });
    }

    pub fn give_back(self, id: String) {
        // Before the next question.
        self.note_return();
        let tasks = self.tasks.clone();
        tasks.start(async move { self.bring(&id, "", None).await });
    }

    fn note_return(&self) {
        self.records.returns().note(Instant::now());
    }

    /// The output, if there came one.
    async fn make(&self, id: &str, job: &Job) -> Option<FinishedOutput> {
        let (mouth, mut words) = mpsc::channel(WAITING_WORDS);
        let stop = Stop::default();
        let offer = Offer {
            // Without a salt no other job's prompts are found.
            line: LineId::default(),
            work: job.work(id),
            transfers: self.transfers.clone(),
            reply: Reply::new(Slot(0), mouth),
            stop: stop.clone(),
        };
        self.offers.try_send(offer).ok()?;
        let record = self.feedback.begin(&job.model);
        let mut draft = Draft::default();
        let mut ticks = interval(PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let takes_no_progress = &self.records.takes_no_progress;
        // The call knows no forms.
        let tells_progress = self.kind != PolledKind::Form;
        loop {
            tokio::select! {
                biased;
                said = words.recv() => {
                    let (_, said) = said?;
                    record.hear(&said);
                    match draft.hear(said) {
                        None => {}
                        Some(Ended::Whole) => return draft.brought(&job.body),
                        Some(Ended::Given(why)) => {
                            warn!("{}: handing back job {id}: {why}", self.label);
                            return None;
                        }
                    }
                }
                () = self.ending.cancelled(), if !stop.is_wanted() => stop.want(),
                () = sleep_until(job.ends), if !stop.is_wanted() => {
                    warn!("{}: job {id} exceeded its time limit, stopping it", self.label);
                    stop.want();
                }
                _ = ticks.tick(), if tells_progress && !takes_no_progress.load(Relaxed) => {
                    let (done, all) = draft.progress(&job.body);
                    let said = self.client.progress(id, done, all);
                    let soon = Instant::now() + PROGRESS;
                    let is_known = timeout_at(soon, said).await.unwrap_or(true);
                    takes_no_progress.fetch_or(!is_known, Relaxed);
                }
            }
        }
    }

    /// Retries until the result is accepted or no longer needed.
    async fn bring(&self, id: &str, model: &str, mut brought: Option<&FinishedOutput>) {
        let mut backoff = Backoff::new(rand_seed());
        let until = Instant::now() + STUBBORN;
        loop {
            let (after, why) = match self.client.submit(self.kind, id, brought).await {
                Receipt::Taken { reward } if brought.is_some() => {
                    let reward_thousandths = Kudos((reward * 1000.0).round() as i64);
                    self.feedback.earn(model, reward_thousandths);
                    return debug!("{}: job {id} accepted for {reward} kudos", self.label);
                }
                Receipt::Taken { .. } => {
                    return debug!("{}: job {id} handed back", self.label);
                }
                Receipt::Misfit(why) if brought.is_some() => {
                    warn!(
                        "{}: the output of job {id} was rejected, handing back the job: {why}",
                        self.label
                    );
                    brought = None;
                    self.note_return();
                    continue;
                }
                Receipt::NotWanted(why) | Receipt::Misfit(why) => {
                    return warn!(
                        "{}: job {id} is no longer accepted, dropping it: {why}",
                        self.label
                    );
                }
                Receipt::Later(after, why) => (after, why),
            };
            let wait = after.unwrap_or_else(|| backoff.wait()).min(STUBBORN);
            if Instant::now() + wait > until || self.ending.is_cancelled() {
                return warn!(
                    "{}: submitting job {id} failed, dropping it: {why}",
                    self.label
                );
            }
            tokio::select! {
                () = sleep(wait) => {}
                // Once more, and then it is over.
                () = self.ending.cancelled() => {}
            }
        }
    }
}

/// The output so far.
#[derive(Debug, Default)]
struct Draft {
    text: String,
    tokens: usize,
    /// Steps that are done, and all of them.
    steps: (u32, u32),
    uploaded: Option<MediaResult>,
    answer: Option<Map<String, Value>>,
    flagged: Option<SafetyRule>,
}

#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Whole,
    Given(String),
}

impl Draft {
    fn hear(&mut self, said: Said) -> Option<Ended> {
        match said {
            Said::Started { .. } | Said::Prompt(_) => None,
            Said::Part(part) => {
                if let ResultPart::Form(answer) = *part {
                    self.answer = Some(answer);
                }
                None
            }
            Said::Progress { at, of, .. } => {
                self.steps = (at, of);
                None
            }
            Said::Output(events) => {
                events.iter().for_each(|event| self.take(event));
                None
            }
            Said::Flagged(rule) => {
                self.flagged = Some(rule);
                None
            }
            Said::Done {
                finish: FinishReason::Cancelled,
                ..
            } => Some(Ended::Given("the job was stopped".to_owned())),
            Said::Done { .. } => Some(Ended::Whole),
            Said::Uploaded(results) => {
                self.uploaded = results.into_iter().next();
                Some(Ended::Whole)
            }
            Said::Failed(failure) => Some(Ended::Given(failure.message.to_string())),
            Said::Busy { .. } => Some(Ended::Given("the engine is full".to_owned())),
        }
    }

    fn brought(self, body: &JobBody) -> Option<FinishedOutput> {
        match body {
            JobBody::Text { wanted, .. } => Some(FinishedOutput::Text(self.text(wanted))),
            JobBody::Image { image, .. } => {
                let result = self.uploaded?;
                Some(FinishedOutput::Image {
                    seed: result.seed.or(image.seed).unwrap_or_default(),
                    inline: result.inline.map(|bytes| STANDARD.encode(bytes)),
                    flagged: self.flagged,
                })
            }
            JobBody::Form(_) => self.answer.map(FinishedOutput::Form),
        }
    }

    fn progress(&self, body: &JobBody) -> (usize, usize) {
        match body {
            JobBody::Text { text, .. } => {
                (self.tokens, text.max_tokens.unwrap_or_default() as usize)
            }
            JobBody::Image { .. } | JobBody::Form(_) => {
                (self.steps.0 as usize, self.steps.1 as usize)
            }
        }
    }

    /// Formatted for the client. NUL characters are removed, because no coordinator of this kind stores them.
    fn text(&self, wanted: &LegacySampling) -> String {
        format::output(&self.text.replace('\0', ""), wanted)
    }

    fn take(&mut self, event: &Event) {
        if let Event::Token(token) = event {
            self.text.push_str(&token.text);
            self.tokens += token.ids.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ImageRequest, enlarge};

    #[test]
    fn sides_below_what_models_draw_become_a_whole_number_of_times_larger() {
        let check = |asked: (u32, u32), drawn: (u32, u32), side: Option<u32>| {
            let mut image = ImageRequest {
                width: asked.0,
                height: asked.1,
                ..ImageRequest::default()
            };
            assert_eq!(enlarge(&mut image), side, "{asked:?}");
            assert_eq!((image.width, image.height), drawn);
        };
        check((64, 64), (256, 256), Some(64));
        check((128, 192), (256, 384), Some(192));
        check((192, 64), (768, 256), Some(192));
        check((256, 256), (256, 256), None);
        check((64, 1024), (128, 2048), Some(1024));
        check((64, 3072), (64, 3072), None);
        check((0, 0), (0, 0), None);
    }
}
