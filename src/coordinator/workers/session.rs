//! One worker's protocol state, without its socket: frames in, inputs for dispatch out; orders in, frames out.
//!
//! The session tracks the worker's jobs, because public frames carry less than dispatch needs: whether anything was
//! streamed before a `done`, and whether a `done` still waits for its ack.

use std::collections::HashMap;
use std::time::Duration;

use super::agreement::Peer;
use super::native::{NativeOutcome, NativeReply};
use super::output_files::{self, OutputSettings, Untold};
use super::payload;
use super::salts::CacheSalts;
use super::uploads::Upload;
use super::wording;
use crate::dispatch::{
    CancelReason, CloseReason, Frame, Input, ModelReport, Offer, Report, Said, SessionId, Verdict,
};
use crate::media::{Key, Media};
use crate::pictures::UploadCheck;
use crate::switchboard::{Gpus, Order};
use muster_protocol::job::{
    AccountId, Channel, Event, Failure, FailureKind, FinishReason, Job, JobId, TokenEvent,
};
use muster_protocol::link::{
    self, About, Agreed, CancelWhy, Done, Extension, FrameError, FromWorker, JobFrame, ModelStatus,
    Output, Payload, Ready, State, ToWorker, UploadSlot, VERSION,
};

/// Interval of heartbeats and reports.
const BEAT_SECS: u32 = 5;

#[derive(Debug)]
pub struct Session {
    id: SessionId,
    peer: Peer,
    welcome: Welcome,
    gpus: Gpus,
    media: Option<Media>,
    salts: CacheSalts,
    jobs: HashMap<JobId, Running>,
    /// A peer without `multi` takes its next frame for the ack of this job.
    unacked: Option<JobId>,
    /// Images to be checked before dispatch gets their frames.
    uploads: Vec<Upload>,
}

/// Fields of `ready` besides the agreement.
#[derive(Debug)]
pub struct Welcome {
    pub worker_id: String,
    pub owner: AccountId,
    /// Session name for resuming.
    pub session_name: String,
    pub grace: Duration,
}

#[derive(Debug, Default)]
struct Running {
    streamed: bool,
    called: bool,
    finish: Option<FinishReason>,
    /// Reply to a raw job.
    native: Option<NativeReply>,
    /// Key and check of its output.
    media: Option<(Key, UploadCheck)>,
    settings: OutputSettings,
}

/// The result of an order.
#[derive(Debug, PartialEq)]
pub enum Told {
    /// Written to the buffer.
    Written,
    /// Not for this peer, or not now.
    Nothing,
    /// The order cannot be sent: this input replaces it.
    Instead(Box<Instead>),
    Close(CloseReason),
}

/// A job that this peer cannot get.
#[derive(Debug, PartialEq)]
pub struct Instead {
    pub job: JobId,
    pub attempt: Option<u32>,
    pub why: Untold,
}

/// A frame that is no JSON object: the socket is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(pub FrameError);

impl Session {
    pub fn new(
        id: SessionId,
        peer: Peer,
        welcome: Welcome,
        gpus: Gpus,
        media: Option<Media>,
        salts: CacheSalts,
    ) -> Self {
        Self {
            id,
            peer,
            welcome,
            gpus,
            media,
            salts,
            jobs: HashMap::new(),
            unacked: None,
            uploads: Vec::new(),
        }
    }

    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whether a ping frame may be sent.
    pub fn may_ping(&self) -> bool {
        !self.peer.is_public() || (self.jobs.is_empty() && self.unacked.is_none())
    }

    /// Whether frames about jobs may arrive.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Parses a frame and appends its inputs.
    pub fn hear(&mut self, text: &str, inputs: &mut Vec<Input>) -> Result<(), Unreadable> {
        let is_known = |about: About| self.jobs.contains_key(&about.job);
        let frame = match FromWorker::parse_wanted(text, is_known) {
            Ok(frame) => frame,
            Err(error @ (FrameError::NotAnObject | FrameError::NotJson { .. })) => {
                return Err(Unreadable(error));
            }
            Err(error) => {
                self.misspoken(text, &error, inputs);
                return Ok(());
            }
        };
        match frame {
            FromWorker::Output(output) => self.output(output, inputs),
            FromWorker::Done(done) => self.done(*done, inputs),
            FromWorker::Error(error) => {
                self.jobs.remove(&error.about.job);
                let failure = wording::failure(&error);
                inputs.push(self.frame(error.about, Said::Event(Event::Failed(failure))));
            }
            FromWorker::Busy { about, retry_after } if self.peer.uses(Extension::Multi) => {
                self.jobs.remove(&about.job);
                inputs.push(self.frame(about, Said::Busy { retry_after }));
            }
            FromWorker::Started {
                about,
                prompt_tokens,
                cached_tokens,
                ..
            } => {
                let event = Event::Started {
                    prompt_tokens,
                    cached_tokens,
                };
                inputs.push(self.frame(about, Said::Event(event)));
            }
            FromWorker::Prompt { about, prompt } => {
                inputs.push(self.frame(about, Said::Event(Event::Prompt(prompt))));
            }
            FromWorker::Encoded { about, result } => {
                inputs.push(self.frame(about, Said::Event(Event::Part(result))));
            }
            FromWorker::Usage { about, usage } => {
                inputs.push(self.frame(about, Said::Event(Event::Usage(usage))));
            }
            FromWorker::Progress {
                about,
                progress,
                preview,
            } => {
                inputs.push(self.frame(about, Said::Event(Event::Progress(progress))));
                let preview = preview.and_then(wording::preview);
                inputs.extend(preview.map(|event| self.frame(about, Said::Event(event))));
            }
            FromWorker::Raw { about, data, .. } => self.raw(about, &data, inputs),
            FromWorker::Alive { about, .. } => inputs.push(self.frame(about, Said::Alive)),
            FromWorker::State(state) if self.peer.uses(Extension::State) => {
                inputs.push(self.report(&state));
            }
            FromWorker::Drain { within, .. } if self.peer.uses(Extension::Drain) => {
                inputs.push(Input::Leaving {
                    session: self.id,
                    within,
                });
            }
            // Frames of extensions that were not agreed only count as a sign of life.
            FromWorker::Busy { .. }
            | FromWorker::State(_)
            | FromWorker::Drain { .. }
            | FromWorker::Pong
            | FromWorker::Unknown
            | FromWorker::Register(_) => inputs.push(self.alive()),
        }
        Ok(())
    }

    /// Writes the frame of an order to `out`.
    pub fn tell(&mut self, order: Order, out: &mut String) -> Told {
        let frame = match order {
            Order::Offer(offer) => return self.offer(&offer, out),
            Order::Close(reason) => return Told::Close(reason),
            Order::Ready { resumed } => self.ready(&resumed),
            Order::Cancel { job, attempt, why } => {
                // The worker has ended this job and takes the next frame for its ack.
                if self.peer.is_public() && !self.jobs.contains_key(&job) {
                    return Told::Nothing;
                }
                ToWorker::Cancel {
                    about: self.about(job, Some(attempt)),
                    why: self.peer.uses(Extension::Cancel2).then_some(spelled(why)),
                }
            }
            Order::Ack {
                job,
                attempt,
                reward,
            } => {
                self.unacked = None;
                let about = self.about(job, attempt);
                ToWorker::Ack { about, reward }
            }
            Order::Got { job, attempt, seq } => ToWorker::Got {
                about: About {
                    seq: Some(seq),
                    ..self.about(job, Some(attempt))
                },
            },
            Order::Drop { job, attempt } => ToWorker::Drop {
                about: self.about(job, Some(attempt)),
            },
            Order::Drain { .. } if !self.peer.uses(Extension::Drain) => return Told::Nothing,
            Order::Drain { within } => ToWorker::Drain { within, why: None },
            Order::Maintenance { note } => ToWorker::Maintenance { note },
        };
        frame.write_into(out);
        Told::Written
    }

    fn output(&mut self, output: Output, inputs: &mut Vec<Input>) {
        let Output {
            about,
            events,
            finish,
        } = output;
        if let Some(running) = self.jobs.get_mut(&about.job) {
            running.streamed |= !events.is_empty();
            running.called |= events.iter().any(|it| matches!(it, Event::ToolCall(_)));
            running.finish = finish.or(running.finish.take());
        }
        if events.is_empty() {
            inputs.push(self.frame(about, Said::Alive));
        }
        // Several events of one frame have consecutive numbers.
        for (step, event) in (0..).zip(events) {
            let seq = about.seq.map(|seq| seq.saturating_add(step));
            inputs.push(self.frame(About { seq, ..about }, Said::Event(event)));
        }
    }

    /// A raw event of the worker's inference server, ignored for jobs of other formats.
    fn raw(&mut self, about: About, data: &str, inputs: &mut Vec<Input>) {
        let running = self.jobs.get_mut(&about.job);
        let native = running.and_then(|running| running.native.as_mut());
        let events = native.map_or_else(Vec::new, |native| native.read(data));
        let output = Output {
            about,
            events,
            finish: None,
        };
        self.output(output, inputs);
    }

    fn done(&mut self, mut done: Done, inputs: &mut Vec<Input>) {
        let about = done.about;
        let known = self.jobs.remove(&about.job);
        if self.peer.is_public() {
            self.unacked = Some(about.job);
        }
        let mut running = known.unwrap_or_default();
        if let Some(native) = running.native.take()
            && let Some(failure) = self.native_end(native, &mut running, &mut done, inputs)
        {
            inputs.push(self.frame(about, Said::Broken(failure)));
            return;
        }
        let expected = running.media;
        let media = expected
            .and_then(|(key, _)| output_files::brought(key, running.settings, &done.results));
        if expected.is_none() && !running.streamed && about.seq.is_none() {
            self.whole_output(&done, inputs);
        }
        let finish = match done.cancelled {
            true => FinishReason::Cancelled,
            false => done.finish.unwrap_or_else(|| running.finish()),
        };
        let usage = done.usage.unwrap_or_default();
        let done = self.frame(about, Said::Event(Event::Done { finish, usage }));
        let (Some((key, check)), Some(media)) = (expected, media) else {
            inputs.push(done);
            return;
        };
        // The frame's number goes to its last event.
        let unnumbered = About { seq: None, ..about };
        let media = self.frame(unnumbered, Said::Event(Event::Media(media)));
        self.uploads.push(Upload {
            key,
            check,
            said: vec![media, done],
            otherwise: self.bare_frame(about, Said::Alive),
        });
    }

    /// Adds the reply's fields to `done`. Returns a failure if the reply is no result.
    fn native_end(
        &self,
        mut native: NativeReply,
        running: &mut Running,
        done: &mut Done,
        inputs: &mut Vec<Input>,
    ) -> Option<Failure> {
        if !running.streamed {
            let events = native.read_whole(done);
            running.streamed = !events.is_empty();
            let events = events.into_iter().map(Said::Event);
            inputs.extend(events.map(|said| self.frame(done.about, said)));
        }
        let NativeOutcome {
            finish,
            usage,
            failure,
        } = native.end(done.about);
        done.finish = finish.or(done.finish.take());
        done.usage = usage.or(done.usage);
        failure.filter(|_| !done.cancelled)
    }

    /// Uploads since the last call.
    pub fn take_uploads(&mut self) -> Vec<Upload> {
        std::mem::take(&mut self.uploads)
    }

    /// For workers without streaming.
    fn whole_output(&self, done: &Done, inputs: &mut Vec<Input>) {
        let texts = [
            (Channel::Reasoning, &done.full_reasoning),
            (Channel::Content, &done.full_text),
        ];
        for (channel, text) in texts {
            let Some(text) = text.clone().filter(|text| !text.is_empty()) else {
                continue;
            };
            let event = Event::Token(TokenEvent {
                channel,
                text,
                ..TokenEvent::default()
            });
            inputs.push(self.frame(done.about, Said::Event(event)));
        }
    }

    /// Valid JSON, but an invalid frame: fails the job it names; a peer with one job need not name it.
    fn misspoken(&mut self, text: &str, error: &FrameError, inputs: &mut Vec<Input>) {
        let about = match self.peer.is_public() {
            true => self.jobs.keys().next().copied().map(About::job),
            false => About::of(text),
        };
        let Some(about) = about else {
            inputs.push(self.alive());
            return;
        };
        self.jobs.remove(&about.job);
        let message = format!("the worker sent an invalid frame: {error}");
        let failure = Failure::new(FailureKind::WorkerFailed, message);
        inputs.push(self.frame(about, Said::Event(Event::Failed(failure))));
    }

    fn report(&self, state: &State) -> Input {
        self.gpus.show(wording::gpus(&state.gpus));
        let models = state.models.iter().map(|model| ModelReport {
            name: self.peer.id_of(&model.name),
            ready: model.status == ModelStatus::Ready,
            slots: model.max,
            waiting: model.waiting,
            prefill_per_second: model.prefill_per_second,
            decode_per_second: model.decode_per_second,
            stay: model.stay(),
            paused_until: model.paused_until,
        });
        Input::Report(Report {
            session: self.id,
            models: models.collect(),
        })
    }

    fn ready(&mut self, resumed: &[Verdict]) -> ToWorker {
        let verdict = |one: &Verdict| link::Verdict {
            job: one.job,
            attempt: one.attempt,
            go_on_after: one.go_on_after,
        };
        for one in resumed.iter().filter(|one| one.go_on_after.is_some()) {
            let media = one.resumed.as_deref().and_then(|job| {
                let check = output_files::check_of(job)?;
                Some((output_files::key_of(job, one.attempt), check))
            });
            let settings = one.resumed.as_deref().map(OutputSettings::of);
            let running = Running {
                media,
                settings: settings.unwrap_or_default(),
                ..Running::default()
            };
            self.jobs.insert(one.job, running);
        }
        ToWorker::Ready(Ready {
            worker_id: self.welcome.worker_id.clone(),
            ext: self.peer.used.map(|used| Agreed {
                version: VERSION,
                r#use: used,
                max_frame: Some(link::LARGEST_FRAME as u64),
                session: Some(self.welcome.session_name.clone()),
                beat_secs: Some(BEAT_SECS),
                grace_secs: u32::try_from(self.welcome.grace.as_secs()).ok(),
                hosts: Some(self.media.iter().filter_map(Media::link_origin).collect()),
            }),
            resume: resumed.iter().map(verdict).collect(),
        })
    }

    /// With links to its sources and an upload slot.
    fn payload(
        &self,
        offer: &Offer,
        running: &mut Running,
        upload: &mut Vec<UploadSlot>,
    ) -> Result<Payload, Untold> {
        let media = self.media.as_ref();
        let body = output_files::linked(&offer.job.body, media)?;
        if let Some(file) = body.file() {
            let (slot, key) = output_files::slot(offer, file, media)?;
            let check = output_files::check_of(&offer.job);
            running.media = check.map(|check| (key, check));
            running.settings = OutputSettings::of(&offer.job);
            upload.push(slot);
        }
        Ok(payload::of(offer, body, &self.peer)?)
    }

    fn offer(&mut self, offer: &Offer, out: &mut String) -> Told {
        let job = offer.job.id;
        let about = self.about(job, Some(offer.attempt));
        let instead = |why| {
            Told::Instead(Box::new(Instead {
                job,
                attempt: about.attempt,
                why,
            }))
        };
        let mut running = Running {
            native: NativeReply::of(offer.format),
            ..Running::default()
        };
        let mut upload = Vec::new();
        let payload = match self.payload(offer, &mut running, &mut upload) {
            Ok(payload) => payload,
            Err(why) => return instead(why),
        };
        let frame = JobFrame {
            kind: offer.job.kind,
            upload,
            prefill: offer.prefill.as_deref().map(wording::prefill),
            cache_salt: (!self.peer.is_public())
                .then(|| self.salts.salt(&self.welcome.worker_id, &offer.job)),
            deadline: self.peer.uses(Extension::Lease).then_some(offer.remaining),
            keep_alive: offer
                .job
                .limits
                .keep_alive
                .filter(|_| self.is_owners(&offer.job)),
            ..JobFrame::text(about, self.peer.own_name(&offer.model), payload)
        };
        let start = out.len();
        ToWorker::Job(Box::new(frame)).write_into(out);
        let length = out.len() - start;
        if length > self.peer.max_frame {
            out.truncate(start);
            let too_large = wording::too_large(length, self.peer.max_frame);
            return instead(too_large.into());
        }
        self.jobs.insert(job, running);
        self.unacked = None;
        Told::Written
    }

    /// Only its owner may control a worker's memory.
    fn is_owners(&self, job: &Job) -> bool {
        let (owner, account) = (self.welcome.owner, job.account);
        !self.peer.is_public() && owner == account && account != AccountId::ANONYMOUS
    }

    /// Names the attempt for peers that know attempts.
    fn about(&self, job: JobId, attempt: Option<u32>) -> About {
        About {
            job,
            attempt: attempt.filter(|_| !self.peer.is_public()),
            seq: None,
        }
    }

    fn frame(&self, about: About, said: Said) -> Input {
        Input::Frame(self.bare_frame(about, said))
    }

    fn bare_frame(&self, about: About, said: Said) -> Frame {
        Frame {
            session: self.id,
            job: about.job,
            attempt: about.attempt.filter(|_| !self.peer.is_public()),
            seq: about.seq.filter(|_| self.peer.uses(Extension::Resume)),
            said,
        }
    }

    /// A sign of life without data.
    pub fn alive(&self) -> Input {
        Input::Heard { session: self.id }
    }

    /// The input in place of the worker's own frame.
    pub fn heard_instead(&self, instead: Instead) -> Input {
        let about = About {
            attempt: instead.attempt,
            ..About::job(instead.job)
        };
        let said = match instead.why {
            Untold::Failed(failure) => Said::Event(Event::Failed(failure)),
            Untold::NotNow { retry_after } => Said::Busy { retry_after },
        };
        self.frame(about, said)
    }
}

impl Running {
    /// The streamed finish reason, or the default.
    fn finish(self) -> FinishReason {
        self.finish.unwrap_or(match self.called {
            true => FinishReason::ToolCalls,
            false => FinishReason::Stop,
        })
    }
}

fn spelled(why: CancelReason) -> CancelWhy {
    match why {
        CancelReason::Client => CancelWhy::Client,
        CancelReason::Timeout => CancelWhy::Timeout,
        CancelReason::Superseded => CancelWhy::Superseded,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{CacheSalts, Session, Told, Welcome};
    use crate::dispatch::{Frame, Input, Offer, Said, SessionId};
    use crate::media::{Links, Media, MediaSettings};
    use crate::names::Names;
    use crate::switchboard::{Gpus, Order};
    use crate::workers::agreement::Peer;
    use muster_process::tasks::Tasks;
    use muster_protocol::job::{AccountId, Event, Formats, ImageRequest, Job};
    use muster_protocol::link::Registration;

    const SESSION: SessionId = SessionId(1);

    fn image() -> Job {
        let image = ImageRequest {
            width: 64,
            height: 64,
            ..ImageRequest::default()
        };
        Job::plain(AccountId(1), "tiny", image.into())
    }

    /// Dispatch's input in place of an offered image job; `None` if the offer was sent.
    fn heard(media: Option<Media>) -> Option<Said> {
        let peer = Peer::of(&Registration::new("", "", Vec::new()), &Names::default());
        let welcome = Welcome {
            worker_id: String::new(),
            owner: AccountId::ANONYMOUS,
            session_name: String::new(),
            grace: Duration::ZERO,
        };
        let mut session = Session::new(
            SESSION,
            peer.unwrap(),
            welcome,
            Gpus::default(),
            media,
            CacheSalts::default(),
        );
        let offer = Offer {
            session: SESSION,
            job: Arc::new(image()),
            attempt: 1,
            model: "tiny".into(),
            upstream: None,
            format: Formats::OPENAI_CHAT,
            prefill: None,
            patience: None,
            remaining: Duration::from_secs(600),
        };
        let mut frame = String::new();
        let Told::Instead(instead) = session.tell(Order::Offer(Box::new(offer)), &mut frame) else {
            return None;
        };
        assert!(frame.is_empty() && session.jobs.is_empty());
        let Input::Frame(Frame { said, .. }) = session.heard_instead(*instead) else {
            panic!("expected a frame");
        };
        Some(said)
    }

    #[tokio::test]
    async fn an_image_that_there_is_no_room_for_is_handed_back_and_has_not_failed() {
        let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
        let links = Links {
            secret: [1; 32],
            base: "http://muster.test".to_owned(),
        };
        let keeping_free = async |spare| {
            let settings = MediaSettings {
                spare,
                ..MediaSettings::in_folder(folder.path().join("media"))
            };
            Media::open(&settings, &links, &tasks).await.ok()
        };
        assert!(heard(keeping_free(0).await).is_none());
        let full = heard(keeping_free(u64::MAX).await).unwrap();
        assert!(
            matches!(full, Said::Busy { retry_after } if !retry_after.is_zero()),
            "{full:?}"
        );
        let without_store = heard(None).unwrap();
        assert!(
            matches!(without_store, Said::Event(Event::Failed(_))),
            "{without_store:?}"
        );
    }
}
