//! A worker's frames about a job. A frame is accepted if it comes over the socket that holds the lease, names the
//! attempt (with `multi`) and is the next in order (where frames are numbered). All others are strays: late, repeated,
//! or about another worker's job.

use std::borrow::Cow;

use muster_protocol::job::written::{most_bytes, most_relayed};
use muster_protocol::job::{
    Body, Event, Failure, FailureKind, FinishReason, Formats, JobId, Kudos, Progress, Usage,
    WorkerId,
};

use super::Dispatcher;
use super::effect::{Effect, Outcome};
use super::input::{Frame, Report, Said};
use super::jobs::{Lease, OutputSource, Phase, State, weight};
use super::workers::{Hold, Sample, Worker};

/// Interval of confirmations, in frames, for workers that keep frames until they are confirmed.
const FRAMES_PER_CONFIRMATION: u64 = 32;

/// The standing of a frame.
enum Standing {
    Counts,
    Cancelling,
    /// A duplicate, answered before.
    Repeated,
    /// Frames before it are missing.
    OutOfOrder,
    Stray,
}

impl Dispatcher {
    pub(super) fn frame(&mut self, mut frame: Frame, out: &mut Vec<Effect>) {
        self.bound_usage(frame.job, &mut frame.said);
        let Some(&worker) = self.sessions.get(&frame.session) else {
            return;
        };
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.heard = self.now.mono;
        }
        match self.standing(&frame, out) {
            Standing::Counts => self.said(frame.job, worker, frame.said, out),
            Standing::Cancelling => self.said_while_cancelling(frame.job, worker, frame.said, out),
            Standing::OutOfOrder => self.break_off(frame.job, "the worker skipped frames", out),
            Standing::Stray => self.stray(&frame, worker, out),
            Standing::Repeated => {}
        }
    }

    /// Compares the frame with the lease, and records its sequence number.
    fn standing(&mut self, frame: &Frame, out: &mut Vec<Effect>) -> Standing {
        let Some(entry) = self.jobs.get_mut(&frame.job) else {
            return Standing::Stray;
        };
        let lease = match &mut entry.state {
            State::Running(lease) => lease,
            State::Settling(settling) => {
                let worker = self.sessions.get(&frame.session);
                let acked_later = settling.ack.is_some_and(|ack| {
                    Some(&ack.worker) == worker && frame.attempt.is_none_or(|it| it == ack.attempt)
                });
                return if acked_later {
                    Standing::Repeated
                } else {
                    Standing::Stray
                };
            }
            State::Queued => return Standing::Stray,
        };
        if !lease.matches(frame) {
            return Standing::Stray;
        }
        if let Some(seq) = frame.seq {
            match seq.cmp(&(lease.seq + 1)) {
                std::cmp::Ordering::Less => return Standing::Repeated,
                std::cmp::Ordering::Greater => return Standing::OutOfOrder,
                std::cmp::Ordering::Equal => lease.seq = seq,
            }
            if seq % FRAMES_PER_CONFIRMATION == 0 || frame.said.is_unanswered_end() {
                let Frame { session, job, .. } = *frame;
                out.push(Effect::Got {
                    session,
                    job,
                    attempt: lease.attempt,
                    seq,
                });
            }
        }
        lease.heard = self.now.mono;
        match lease.phase {
            Phase::Cancelling { .. } => Standing::Cancelling,
            Phase::Live | Phase::Orphaned { .. } => Standing::Counts,
        }
    }

    /// Stops the worker, because its frame cannot be part of a result.
    fn break_off(&mut self, job: JobId, why: impl Into<Cow<'static, str>>, out: &mut Vec<Effect>) {
        if self.is_cancelling(job) {
            return self.cancel_confirmed(job, None, out);
        }
        let lease = self.jobs.get(&job).and_then(|entry| entry.lease());
        let worker = lease.map(|lease| lease.worker);
        self.cancel_on_worker(job, super::CancelReason::Superseded, out);
        let failure = Failure::new(FailureKind::WorkerFailed, why);
        self.attempt_failed(job, failure, out);
        if let Some(worker) = worker {
            // The worker may not stop at once.
            self.mute(worker, job, self.settings.mute_patience);
        }
    }

    fn said(&mut self, job: JobId, worker: WorkerId, said: Said, out: &mut Vec<Effect>) {
        match said {
            Said::Alive => {}
            Said::Busy { retry_after } => self.handed_back(job, worker, retry_after, out),
            Said::Event(Event::Done { finish, usage }) => self.done(job, finish, usage, out),
            Said::Event(Event::Failed(failure)) => self.attempt_failed(job, failure, out),
            Said::Broken(failure) => self.attempt_failed_with_ack(job, failure, out),
            Said::Event(event) => self.relay(job, worker, event, out),
        }
    }

    fn relay(&mut self, job: JobId, worker: WorkerId, event: Event, out: &mut Vec<Effect>) {
        if let Some((bytes, most)) = self.too_long(job, &event) {
            let why = format!("the worker sent {bytes} bytes of output, the job allows {most}");
            return self.break_off(job, why, out);
        }
        let source = self.output_source(job, worker);
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        let now = self.now.mono;
        if event.is_output() {
            entry.history.first_output.get_or_insert(now);
            if let Some(lease) = entry.lease_mut() {
                lease.count(&event, now);
            }
        }
        match &event {
            Event::Usage(usage) => entry.history.usage = Some(*usage),
            Event::Progress(progress) if is_completed_step(*progress) => {
                if let Some(lease) = entry.lease_mut() {
                    lease.has_progressed = true;
                }
            }
            Event::Started { prompt_tokens, .. } => {
                if let Some(lease) = entry.lease_mut() {
                    lease.prompt_tokens = *prompt_tokens;
                }
            }
            _ => {}
        }
        let is_sign_of_life = event.is_output()
            || matches!(&event, Event::Progress(progress) if is_completed_step(*progress));
        if entry.delivered.admit(&event, source) {
            out.push(Effect::Relay { job, event });
        }
        if is_sign_of_life {
            self.clear_suspicion(job);
        }
    }

    fn output_source(&self, job: JobId, worker: WorkerId) -> OutputSource {
        let lease = self.jobs.get(&job).and_then(|entry| entry.lease());
        let (Some(lease), Some(worker)) = (lease, self.workers.get(&worker)) else {
            return OutputSource::Opaque;
        };
        let upstream = &worker.models[lease.model].offering.details.upstream;
        match (worker.extensions.resume, upstream) {
            (false, _) => OutputSource::Opaque,
            (true, Some(_)) => OutputSource::Text,
            (true, None) => OutputSource::Tokens,
        }
    }

    /// The bytes and the limit, if this event exceeds it. For a durable job its text counts.
    fn too_long(&self, job: JobId, event: &Event) -> Option<(usize, usize)> {
        let entry = self.jobs.get(&job)?;
        let (bytes, most) = match event {
            Event::Token(token) if entry.job.durable => {
                let bytes = entry.delivered.bytes.saturating_add(token.text.len());
                (bytes, most_bytes(&entry.job))
            }
            event => {
                let bytes = entry.delivered.weight.saturating_add(weight(event));
                (bytes, most_relayed(&entry.job))
            }
        };
        (bytes > most).then_some((bytes, most))
    }

    /// Caps the reported token usage at the job's limit.
    fn bound_usage(&self, job: JobId, said: &mut Said) {
        let Said::Event(Event::Done { usage, .. } | Event::Usage(usage)) = said else {
            return;
        };
        let job = self.jobs.get(&job).map(|entry| &entry.job);
        let most = job.and_then(|job| match &job.body {
            Body::Text(text) => text.max_tokens.or(job.limits.output_tokens),
            body => body.brings_values().then_some(0),
        });
        let most = most.unwrap_or(u32::MAX);
        usage.completion_tokens = usage.completion_tokens.min(most);
        usage.reasoning_tokens = usage.reasoning_tokens.min(usage.completion_tokens);
        usage.cached_tokens = usage.cached_tokens.min(usage.prompt_tokens);
    }

    fn done(&mut self, job: JobId, finish: FinishReason, usage: Usage, out: &mut Vec<Effect>) {
        if let Some(failure) = self.not_a_result(job, &finish, usage) {
            return self.attempt_failed_with_ack(job, failure, out);
        }
        let now = self.now.mono;
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        entry.history.usage = Some(usage);
        let Some(lease) = self.release(job) else {
            return;
        };
        self.conduct.success(lease.worker, now);
        if let Some(worker) = self.workers.get_mut(&lease.worker) {
            worker.succeeded = Some(now);
        }
        self.measure(&lease, usage);
        self.note_pace(job, &lease);
        let ack = self.awaits_ack(job, &lease);
        self.renew_brought(job);
        self.settle(job, Outcome::Delivered { finish, usage }, Some(ack), out);
    }

    /// The failure of a `done` without output. Our own workers may end with an empty text; an empty result of a public
    /// peer means that its backend failed. An image is never empty.
    fn not_a_result(&self, job: JobId, finish: &FinishReason, usage: Usage) -> Option<Failure> {
        let entry = self.jobs.get(&job)?;
        if *finish == FinishReason::Cancelled {
            return Some(Failure::new(
                FailureKind::WorkerFailed,
                "the worker cancelled the job on its own",
            ));
        }
        let worker = self.workers.get(&entry.lease()?.worker)?;
        let ours = worker.extensions.multi;
        let chat =
            entry.job.kind.is_relayed() && entry.job.limits.formats.meets(Formats::OPENAI_CHAT);
        let silent = chat && !ours && usage.completion_tokens == 0;
        (!entry.has_output() && (silent || !entry.job.kind.is_relayed()))
            .then(|| Failure::new(FailureKind::EmptyResult, "the worker sent an empty result"))
    }

    /// The client gets no partial output.
    fn comes_whole(&self, job: JobId) -> bool {
        let entry = self.jobs.get(&job);
        entry.is_some_and(|entry| !entry.job.kind.is_relayed())
    }

    fn measure(&mut self, lease: &Lease, usage: Usage) {
        let (Some(first), Some(worker)) = (lease.first_output, self.workers.get_mut(&lease.worker))
        else {
            return;
        };
        let fresh = lease.prompt_tokens.saturating_sub(usage.cached_tokens);
        let written = lease.tokens.max(lease.events);
        let (to_first, writing) = (first.since(lease.offered), self.now.mono.since(first));
        worker.speed.measure(Sample {
            prompt: fresh,
            to_first,
            written,
            writing,
            pieces: lease.events,
        });
    }

    /// A frame about a cancelled job: only the worker's last one matters, since it frees the slot.
    fn said_while_cancelling(
        &mut self,
        job: JobId,
        worker: WorkerId,
        said: Said,
        out: &mut Vec<Effect>,
    ) {
        match said {
            Said::Event(Event::Done { finish, usage })
                if self.goes_on(job, worker)
                    && self.not_a_result(job, &finish, usage).is_none() =>
            {
                self.done(job, finish, usage, out);
            }
            Said::Event(Event::Done { usage, .. }) => self.cancel_confirmed(job, Some(usage), out),
            Said::Broken(_) => self.cancel_confirmed(job, Some(Usage::default()), out),
            Said::Event(Event::Failed(_)) => self.cancel_confirmed(job, None, out),
            Said::Busy { retry_after } => {
                self.cancel_confirmed(job, None, out);
                self.back_off(worker, retry_after);
            }
            // A polling worker cannot be told to stop, and a non-streamed result may be complete already: both are
            // paid.
            Said::Event(event) if self.polls(worker) || self.comes_whole(job) => {
                self.relay(job, worker, event, out);
            }
            Said::Event(_) | Said::Alive => {}
        }
    }

    /// Whether a cancelled job's polling worker, which could not be told to stop, may still submit: its result counts
    /// as if the job were not cancelled.
    fn goes_on(&self, job: JobId, worker: WorkerId) -> bool {
        let lease = self.jobs.get(&job).and_then(|entry| entry.lease());
        let is_cancelled = |phase: &Phase| {
            let ending = Outcome::Cancelled;
            matches!(phase, Phase::Cancelling { ending: found, .. } if *found == ending)
        };
        self.polls(worker) && lease.is_some_and(|lease| is_cancelled(&lease.phase))
    }

    /// A late frame, a duplicate, or one about another worker's job: ignored. A `done` is acked without a reward,
    /// because
    /// the peer waits for the ack; other frames of a peer that numbers attempts are answered with a drop.
    fn stray(&mut self, frame: &Frame, id: WorkerId, out: &mut Vec<Effect>) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let Frame {
            session,
            job,
            attempt,
            ref said,
            ..
        } = *frame;
        let is_terminal = match said {
            Said::Event(event) => event.is_terminal(),
            Said::Broken(_) => true,
            Said::Alive | Said::Busy { .. } => return,
        };
        match said {
            Said::Broken(_) | Said::Event(Event::Done { .. }) if !worker.polls() => {
                out.push(Effect::Ack {
                    session,
                    job,
                    attempt,
                    reward: Kudos(0),
                });
            }
            Said::Event(Event::Failed(_)) if !worker.polls() => {}
            _ => {
                if let (true, Some(attempt)) = (worker.extensions.multi, attempt) {
                    out.push(Effect::Drop {
                        session,
                        job,
                        attempt,
                    });
                }
            }
        }
        if is_terminal {
            unmute(worker, job);
            self.touched.workers.push(id);
        }
    }

    pub(super) fn report(&mut self, report: &Report) {
        let Some(&id) = self.sessions.get(&report.session) else {
            return;
        };
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.heard = self.now.mono;
        for model in &report.models {
            worker.apply(model);
        }
        self.touched.suspects |= !self.suspects.is_empty();
        self.touched.workers.push(id);
    }
}

/// Whether the worker has completed a step of an image, audio or video.
fn is_completed_step(progress: Progress) -> bool {
    match progress.steps {
        Some((completed, _)) => completed > 0,
        None => progress.percent > 0,
    }
}

fn unmute(worker: &mut Worker, finished: JobId) {
    if matches!(worker.hold, Some(Hold::Muted { job, .. }) if job == finished) {
        worker.hold = None;
    }
}

impl Lease {
    fn matches(&self, frame: &Frame) -> bool {
        self.session == frame.session && frame.attempt.is_none_or(|attempt| attempt == self.attempt)
    }
}
