//! Silence, beats, reports: everything that falls due.

use std::time::Duration;

use super::jobs::{Job, Phase as JobPhase};
use super::words::{Moment, Output, Slot};
use super::{Phase, Session, send};
use muster_protocol::link::{Extension, FromWorker, State};

/// Time without frames before a ping, and the timeout of its reply.
const DOUBT: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(10);
/// Reports of changes are no closer together.
const REPORT_GAP: Duration = Duration::from_millis(250);
/// How long an ended job is kept for an answer or for sending its end again.
const MEMORY: Duration = Duration::from_secs(60);

impl Session {
    /// The time of the next due [`super::Input::Tick`].
    pub fn next_wake(&self) -> Option<Moment> {
        let phase = match &self.phase {
            Phase::Waiting { until } | Phase::Greeting { until } => Some(*until),
            Phase::Dialling | Phase::Over => None,
            Phase::Open(open) => Some(match open.pinged {
                Some(pinged) => pinged.after(ANSWER),
                None => open.heard.after(DOUBT),
            }),
        };
        let away = self.resumable.as_ref().and_then(|resumable| {
            let lost = resumable.lost?;
            (!self.jobs.is_empty()).then(|| lost.after(resumable.grace))
        });
        let jobs = self.jobs.values().filter_map(|job| self.job_due(job));
        let fixed = [phase, away, self.report_due(), self.leaving_due()];
        fixed.into_iter().flatten().chain(jobs).min()
    }

    fn job_due(&self, job: &Job) -> Option<Moment> {
        let ended = match job.phase {
            JobPhase::Ended { at, .. } => Some(at.after(MEMORY)),
            JobPhase::Running => job.deadline,
            JobPhase::Stopping => None,
        };
        let moments = [ended, job.due(), self.beat_due(job)];
        moments.into_iter().flatten().min()
    }

    fn report_due(&self) -> Option<Moment> {
        let open = self.open()?;
        if !open.agreement.has(Extension::State) {
            return None;
        }
        let Some(sent) = self.report.sent else {
            return Some(Moment::default());
        };
        Some(match self.report.is_new {
            true => sent.after(REPORT_GAP),
            false => sent.after(open.agreement.beat),
        })
    }

    pub(super) fn note(&mut self, state: State) {
        self.report.is_new |= self.report.state != state;
        self.report.state = state;
    }

    pub(super) fn spoke(&mut self) {
        let now = self.now;
        if let Some(open) = self.open_mut() {
            open.said = now;
        }
    }

    /// Executes all due timers.
    pub(super) fn fall_due(&mut self, out: &mut Vec<Output>) {
        self.renew(out);
        self.phase_due(out);
        self.give_up_waiting_jobs(out);
        let is_due = |(slot, job): (&Slot, &Job)| {
            let due = self.job_due(job).is_some_and(|due| due <= self.now);
            due.then_some(*slot)
        };
        let due: Vec<Slot> = self.jobs.iter().filter_map(is_due).collect();
        for slot in due {
            self.tend(slot, out);
        }
        if self.report_due().is_some_and(|due| due <= self.now) {
            self.report.sent = Some(self.now);
            self.report.is_new = false;
            send(&FromWorker::State(Box::new(self.report.state.clone())), out);
            self.spoke();
        }
        self.out_of_time(out);
    }

    fn phase_due(&mut self, out: &mut Vec<Output>) {
        match &mut self.phase {
            Phase::Waiting { until } if *until <= self.now => {
                self.phase = Phase::Dialling;
                out.push(Output::Dial);
            }
            Phase::Greeting { until } if *until <= self.now => {
                out.push(Output::Close(None));
                self.lose(None, out);
            }
            Phase::Open(open) => match open.pinged {
                Some(pinged) if pinged.after(ANSWER) <= self.now => {
                    out.push(Output::Close(None));
                    self.lose(None, out);
                }
                None if open.heard.after(DOUBT) <= self.now => {
                    open.pinged = Some(self.now);
                    out.push(Output::Ping);
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// The coordinator has given the jobs to others by now.
    fn give_up_waiting_jobs(&mut self, out: &mut Vec<Output>) {
        let given_up = self.resumable.as_ref().is_some_and(|resumable| {
            let lost = resumable.lost;
            lost.is_some_and(|lost| lost.after(resumable.grace) <= self.now)
        });
        if given_up {
            self.forget_all(out);
            self.resumable = None;
        }
    }

    fn tend(&mut self, slot: Slot, out: &mut Vec<Output>) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        if let JobPhase::Ended { at, .. } = job.phase {
            if at.after(MEMORY) <= now {
                self.jobs.remove(&slot);
            }
            return;
        }
        let is_late = job.phase == JobPhase::Running && job.deadline.is_some_and(|due| due <= now);
        if is_late {
            job.phase = JobPhase::Stopping;
            out.push(Output::Stop(slot));
        }
        if self.jobs[&slot].due().is_some_and(|due| due <= now) {
            self.flush(slot, out);
        }
        let job = self.jobs.get(&slot);
        if job.is_some_and(|job| self.beat_due(job).is_some_and(|due| due <= now)) {
            self.beat(slot, out);
        }
    }
}
