//! Handles reports of the executor, and converts them to frames.

use std::time::Duration;

use super::Session;
use super::jobs::{Job, Phase};
use super::words::{Moment, Output, Slot};
use crate::link::offer::Said;
use muster_protocol::job::{Blame, Event, Failure, FinishReason, Progress, Usage};
use muster_protocol::link::{About, Done, ErrorFrame, Extension, FromWorker, MediaResult};

impl Session {
    pub(super) fn say(&mut self, slot: Slot, said: Said, out: &mut Vec<Output>) {
        let is_known = self.jobs.get(&slot).is_some_and(|job| !job.has_ended());
        if !is_known {
            return;
        }
        match said {
            Said::Started {
                prompt_tokens,
                cached_tokens,
            } => self.frame(slot, out, |about| FromWorker::Started {
                about,
                prompt_tokens,
                cached_tokens,
            }),
            Said::Output(events) => self.output(slot, events, out),
            Said::Prompt(prompt) => {
                self.frame(slot, out, |about| FromWorker::Prompt { about, prompt });
            }
            Said::Part(result) => {
                self.frame(slot, out, |about| FromWorker::Encoded { about, result });
            }
            Said::Progress { at, of, preview } => {
                self.progress(slot, Progress::at(at, of), preview, out);
            }
            // Only polling lines request it.
            Said::Flagged(_) => {}
            Said::Uploaded(results) => self.uploaded(slot, results, out),
            Said::Done { finish, usage } => self.done(slot, finish, usage, out),
            Said::Failed(failure) => self.failed(slot, failure, out),
            Said::Busy { retry_after } => self.hand_back(slot, retry_after, out),
        }
    }

    fn output(&mut self, slot: Slot, events: Vec<Event>, out: &mut Vec<Output>) {
        if let Some(job) = self.jobs.get_mut(&slot) {
            job.gather(events);
            if job.due().is_some_and(|due| due <= self.now) {
                self.flush(slot, out);
            }
        }
    }

    /// Sends the batch.
    pub(super) fn flush(&mut self, slot: Slot, out: &mut Vec<Output>) {
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        for text in job.flush(self.now) {
            self.pass(slot, text, out);
        }
    }

    /// A frame about the job. Public peers do not support `started`, `alive` or `busy`.
    fn frame(
        &mut self,
        slot: Slot,
        out: &mut Vec<Output>,
        frame: impl FnOnce(About) -> FromWorker,
    ) {
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        if job.about.attempt.is_none() {
            return;
        }
        job.spoke = self.now;
        let text = frame(job.next_about(1)).to_text();
        self.pass(slot, text, out);
    }

    /// Sends the frame on an open socket, and keeps it if it may be requested again.
    fn pass(&mut self, slot: Slot, text: String, out: &mut Vec<Output>) {
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        let has_room = job.keep(&text);
        if self.open().is_some() {
            out.push(Output::Send(text));
            self.spoke();
        }
        if !has_room {
            // Without its frames the job cannot be resumed, so another worker should get it now.
            self.forget(slot, out);
        }
    }

    /// Has no number: the frame may be lost, and the next one replaces it.
    fn progress(
        &mut self,
        slot: Slot,
        progress: Progress,
        preview: Option<Vec<u8>>,
        out: &mut Vec<Output>,
    ) {
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        job.spoke = self.now;
        let about = job.about;
        // Public peers know percents only.
        let progress = match about.attempt {
            Some(_) => progress,
            None => Progress::percent(progress.percent),
        };
        if self.open().is_some() {
            let frame = FromWorker::Progress {
                about,
                progress,
                preview,
            };
            super::send(&frame, out);
            self.spoke();
        }
    }

    fn uploaded(&mut self, slot: Slot, results: Vec<MediaResult>, out: &mut Vec<Output>) {
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        let is_ours = job.about.attempt.is_some();
        let plain = |result: MediaResult| MediaResult {
            index: result.index,
            seed: result.seed,
            sha256: result.sha256,
            ..MediaResult::default()
        };
        let done = match is_ours {
            true => Done {
                results,
                ..Done::new(job.next_about(1), FinishReason::Stop, Usage::default())
            },
            // Public peers read no more.
            false => Done {
                results: results.into_iter().map(plain).collect(),
                finish: None,
                usage: None,
                ..Done::new(job.next_about(1), FinishReason::Stop, Usage::default())
            },
        };
        let text = FromWorker::Done(Box::new(done)).to_text();
        self.end(slot, text, true, out);
    }

    fn done(&mut self, slot: Slot, finish: FinishReason, usage: Usage, out: &mut Vec<Output>) {
        self.flush(slot, out);
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        let written = job.written.take();
        let mut done = Done::new(job.next_about(1), finish, usage);
        if let Some(written) = written {
            done.full_reasoning = Some(written.reasoning).filter(|text| !text.is_empty());
            done.full_text = Some(written.content);
        }
        let text = FromWorker::Done(Box::new(done)).to_text();
        self.end(slot, text, true, out);
    }

    fn failed(&mut self, slot: Slot, failure: Failure, out: &mut Vec<Output>) {
        self.flush(slot, out);
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        let is_ours = job.about.attempt.is_some();
        let frame = ErrorFrame {
            about: job.next_about(1),
            message: failure.message.into_owned(),
            client_error: failure.blame == Blame::Client,
            code: is_ours.then_some(failure.kind),
        };
        let text = FromWorker::Error(frame).to_text();
        self.end(slot, text, false, out);
    }

    /// Ends the attempt. Delivered output is included, so that another worker can continue.
    pub(super) fn hand_back(&mut self, slot: Slot, retry_after: Duration, out: &mut Vec<Output>) {
        self.flush(slot, out);
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        if job.about.attempt.is_none() {
            // A public coordinator queues the jobs of a lost socket again, without a strike.
            return self.stay_away(out);
        }
        let frame = FromWorker::Busy {
            about: job.next_about(1),
            retry_after,
        };
        self.end(slot, frame.to_text(), false, out);
    }

    fn end(&mut self, slot: Slot, text: String, awaits_ack: bool, out: &mut Vec<Output>) {
        self.pass(slot, text, out);
        let at = self.now;
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        job.phase = Phase::Ended { at, awaits_ack };
        if job.is_over() {
            self.jobs.remove(&slot);
        }
        self.close_if_done(out);
    }

    /// A sign of life for jobs that have been silent.
    pub(super) fn beat(&mut self, slot: Slot, out: &mut Vec<Output>) {
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        job.spoke = self.now;
        let phase = match job.has_output {
            true => "decode",
            false => "prefill",
        };
        let about = job.about;
        if self.uses(Extension::Lease) {
            // Has no number: the frame may be lost.
            let phase = Some(phase.to_owned());
            super::send(&FromWorker::Alive { about, phase }, out);
        } else {
            super::send(&FromWorker::Pong, out);
        }
        self.spoke();
    }

    /// The time of the job's next heartbeat, while a socket exists.
    pub(super) fn beat_due(&self, job: &Job) -> Option<Moment> {
        /// Three missed ones are the end of a lease.
        const LEASED: Duration = Duration::from_secs(5);
        const UNLEASED: Duration = Duration::from_secs(20);
        let open = self.open()?;
        if job.has_ended() {
            return None;
        }
        let pause = match open.agreement.has(Extension::Lease) {
            true => LEASED,
            false => UNLEASED,
        };
        Some(job.spoke.after(pause))
    }
}
