//! Draining, refusals, and coming back.

use std::time::Duration;

use super::jobs::{Job, Phase as JobPhase};
use super::words::{Ending, Moment, Output, Peer, Slot};
use super::{Phase, Session, send};
use muster_protocol::link::{Extension, FromWorker, Registration};

/// The least wait after a refusal that may pass: a cool-down, a name that is taken.
const AFTER_REFUSAL: Duration = Duration::from_secs(30);
/// The least wait after another connection took our name: if it is a second worker, two must not fight for it.
const AFTER_REPLACEMENT: Duration = Duration::from_secs(10);
/// The delay doubles with each replacement in a row, up to this.
const LONGEST_REPLACEMENT: Duration = Duration::from_secs(300);
/// A socket that was open for this long was not replaced in a conflict.
const UNDISPUTED: Duration = Duration::from_secs(900);
/// How long the answer to a `done` is waited for before leaving.
const LAST_ANSWER: Duration = Duration::from_secs(10);
/// Public coordinators: away until the owner is done with the machine.
const UNTIL_RESUMED: Moment = Moment(Duration::MAX);
pub(super) const NORMAL: u16 = 1000;
const REPLACED: u16 = 1012;
const REFUSED: u16 = 4003;

pub(super) fn is_until_resumed(until: Moment) -> bool {
    until == UNTIL_RESUMED
}

impl Session {
    /// The socket is lost: waits, and keeps the jobs if they can be resumed.
    pub(super) fn lose(&mut self, code: Option<u16>, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Over) {
            return;
        }
        if self.is_refused_for_good(code) {
            let said = self.refusal.take().map(|refusal| refusal.message);
            let said = said.unwrap_or_else(|| "the key or the name was refused".to_owned());
            return self.over(Ending::Refused(said), out);
        }
        self.is_renewing = false;
        let least = self.least_wait(code);
        let wait = self.backoff.wait().max(least);
        self.phase = Phase::Waiting {
            until: self.now.after(wait),
        };
        let now = self.now;
        match &mut self.resumable {
            Some(resumable) => {
                resumable.lost.get_or_insert(now);
            }
            None => self.forget_all(out),
        }
        self.over_if_left(out);
    }

    fn least_wait(&mut self, code: Option<u16>) -> Duration {
        let asked = self.refusal.as_ref().and_then(|refusal| refusal.retry_secs);
        let asked = Duration::from_secs(asked.unwrap_or(0).min(3600));
        match code {
            Some(REFUSED) => AFTER_REFUSAL.max(asked),
            Some(REPLACED) if !self.is_dismissed => self.after_replacement(),
            _ => asked,
        }
    }

    /// Whether a close with this code means that another connection has taken the name.
    pub fn is_replaced(&self, code: Option<u16>) -> bool {
        code == Some(REPLACED) && !self.is_dismissed && self.leaving.is_none()
    }

    /// Two that share a name would replace each other for ever: each leaves it to the other for longer and longer.
    fn after_replacement(&mut self) -> Duration {
        let now = self.now;
        let stood = self.open().map(|open| now.since(open.since));
        if stood.is_some_and(|stood| stood >= UNDISPUTED) {
            self.replaced = 0;
        }
        let wait = AFTER_REPLACEMENT.saturating_mul(1 << self.replaced.min(8));
        self.replaced += 1;
        wait.min(LONGEST_REPLACEMENT)
    }

    pub(super) fn pause(&mut self, is_paused: bool, out: &mut Vec<Output>) {
        self.is_paused = is_paused;
        let is_public = self.peer() == Some(Peer::Public);
        match &mut self.phase {
            Phase::Open(_) if is_paused && is_public => self.stay_away(out),
            Phase::Waiting { until } if !is_paused && *until == UNTIL_RESUMED => {
                *until = self.now;
            }
            _ => {}
        }
    }

    /// Leaves a public coordinator by closing the socket, as its protocol expects: it queues the job again, without a
    /// strike.
    pub(super) fn stay_away(&mut self, out: &mut Vec<Output>) {
        out.push(Output::Close(Some(NORMAL)));
        self.forget_all(out);
        self.resumable = None;
        let until = match self.is_paused {
            true => UNTIL_RESUMED,
            false => self.now.after(self.backoff.wait()),
        };
        self.phase = Phase::Waiting { until };
        self.over_if_left(out);
    }

    pub(super) fn change(&mut self, registration: Registration) {
        self.registration = registration;
        self.is_outdated = matches!(self.phase, Phase::Greeting { .. } | Phase::Open(_));
    }

    /// Comes back with the registration as it is now, as soon as no job is lost by that: a public coordinator gives no
    /// job back.
    pub(super) fn renew(&mut self, out: &mut Vec<Output>) {
        if !self.is_outdated || self.leaving.is_some() {
            return;
        }
        let is_possible = match self.phase {
            Phase::Open(_) => self.resumable.is_some() || !self.has_unfinished(),
            _ => false,
        };
        if !is_possible {
            return;
        }
        out.push(Output::Close(Some(NORMAL)));
        let now = self.now;
        match &mut self.resumable {
            Some(resumable) => resumable.lost = Some(now),
            None => self.forget_all(out),
        }
        self.is_renewing = true;
        self.phase = Phase::Waiting { until: now };
    }

    pub(super) fn leave(&mut self, within: Duration, out: &mut Vec<Output>) {
        if self.leaving.is_none() {
            self.leaving = Some(self.now.after(within));
            self.say_leaving(out);
            self.over_if_left(out);
        }
    }

    /// Tells a coordinator of ours, which then sends nothing more, and closes where nothing is left to do.
    pub(super) fn say_leaving(&mut self, out: &mut Vec<Output>) {
        let Some(until) = self.leaving else { return };
        if self.uses(Extension::Drain) {
            let within = until.since(self.now);
            send(&FromWorker::Drain { within, why: None }, out);
        }
        self.close_if_done(out);
    }

    pub(super) fn close_if_done(&mut self, out: &mut Vec<Output>) {
        if self.leaving.is_some() && self.open().is_some() && !self.has_unfinished() {
            out.push(Output::Close(Some(NORMAL)));
            self.over(Ending::Left, out);
        }
    }

    /// Without a socket, waiting only makes sense for jobs that can still be delivered.
    fn over_if_left(&mut self, out: &mut Vec<Output>) {
        let is_away = matches!(self.phase, Phase::Waiting { .. } | Phase::Dialling);
        if self.leaving.is_some() && is_away && !self.has_unfinished() {
            self.over(Ending::Left, out);
        }
    }

    fn has_unfinished(&self) -> bool {
        self.jobs.values().any(|job| self.is_unfinished(job))
    }

    fn is_unfinished(&self, job: &Job) -> bool {
        match job.phase {
            JobPhase::Running | JobPhase::Stopping => true,
            JobPhase::Ended { at, awaits_ack } => awaits_ack && self.now < at.after(LAST_ANSWER),
        }
    }

    pub(super) fn leaving_due(&self) -> Option<Moment> {
        let until = self.leaving?;
        if matches!(self.phase, Phase::Over) {
            return None;
        }
        let answers = self.jobs.values().filter_map(|job| match job.phase {
            JobPhase::Ended {
                at,
                awaits_ack: true,
            } => Some(at.after(LAST_ANSWER)).filter(|due| *due > self.now),
            _ => None,
        });
        answers.chain([until]).min()
    }

    /// After the grace period, running jobs are handed back.
    pub(super) fn out_of_time(&mut self, out: &mut Vec<Output>) {
        let Some(until) = self.leaving else { return };
        if matches!(self.phase, Phase::Over) {
            return;
        }
        if until > self.now {
            self.close_if_done(out);
            return self.over_if_left(out);
        }
        let running: Vec<Slot> = self
            .jobs
            .iter()
            .filter(|(_, job)| !job.has_ended())
            .map(|(slot, _)| *slot)
            .collect();
        for slot in running {
            out.push(Output::Stop(slot));
            if self.peer() == Some(Peer::Ours) {
                self.hand_back(slot, AFTER_REFUSAL, out);
            }
        }
        if self.open().is_some() {
            out.push(Output::Close(Some(NORMAL)));
        }
        if !matches!(self.phase, Phase::Over) {
            self.over(Ending::Left, out);
        }
    }

    pub(super) fn over(&mut self, ending: Ending, out: &mut Vec<Output>) {
        self.forget_all(out);
        self.phase = Phase::Over;
        out.push(Output::Over(ending));
    }
}
