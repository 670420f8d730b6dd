//! Handles frames of the coordinator.

use std::time::Duration;

use super::jobs::{Job, Phase as JobPhase};
use super::leaving::NORMAL;
use super::words::{Agreement, Ending, Finishing, Output, Peer, Slot, Work};
use super::{Open, Phase, Resumable, Session, send};
use muster_protocol::link::{
    About, Extension, FromWorker, JobFrame, Ready, RefusalCode, ToWorker, Verdict,
};

/// Retry delay that a draining worker suggests.
const NOT_HERE: Duration = Duration::from_secs(60);

impl Session {
    pub(super) fn hear(&mut self, frame: ToWorker, out: &mut Vec<Output>) {
        self.heard();
        match frame {
            ToWorker::Ready(ready) => self.welcome(&ready, out),
            ToWorker::Error(refusal) => self.refusal = Some(refusal),
            ToWorker::Ping => {
                send(&FromWorker::Pong, out);
                self.spoke();
            }
            ToWorker::Job(job) => self.offered(*job, out),
            ToWorker::Cancel { about, .. } => self.cancel(about, out),
            ToWorker::Ack { about, .. } => self.acked(about, out),
            ToWorker::Got { about } => self.got(about),
            ToWorker::Drop { about } => {
                if let Some(slot) = self.slot_of(about.job, about.attempt) {
                    self.forget(slot, out);
                    self.close_if_done(out);
                }
            }
            ToWorker::Drain { .. } => self.is_dismissed = true,
            // The shell reports it to the owner.
            ToWorker::Maintenance { .. } | ToWorker::Unknown => {}
        }
    }

    pub(super) fn heard(&mut self) {
        let now = self.now;
        if let Some(open) = self.open_mut() {
            open.heard = now;
            open.pinged = None;
        }
    }

    fn welcome(&mut self, ready: &Ready, out: &mut Vec<Output>) {
        if !matches!(self.phase, Phase::Greeting { .. }) {
            return;
        }
        let agreement = Agreement::new(ready.ext.as_ref());
        let wanted = self.registration.ext.as_ref().map(|ext| ext.want);
        let wants_own = wanted.is_some_and(|want| want.has(Extension::OwnJobs));
        if wants_own && !agreement.has(Extension::OwnJobs) {
            let why = "the coordinator's version does not know jobs = \"own\", and would send jobs of other accounts";
            out.push(Output::Close(Some(NORMAL)));
            return self.over(Ending::Refused(why.to_owned()), out);
        }
        let told = self.form();
        self.is_public = agreement.peer() == Peer::Public;
        self.is_outdated |= self.form() != told;
        self.phase = Phase::Open(Open {
            agreement,
            since: self.now,
            heard: self.now,
            pinged: None,
            said: self.now,
        });
        self.backoff.reset();
        self.is_renewing = false;
        self.accepted = (!self.is_outdated).then(|| self.registration.clone());
        self.report.is_new = true;
        self.report.sent = None;
        self.come_back(&ready.resume, out);
        let ext = ready.ext.as_ref();
        let session = ext.and_then(|ext| ext.session.clone());
        let grace = ext.and_then(|ext| ext.grace_secs).unwrap_or(45);
        self.resumable = session
            .filter(|_| agreement.has(Extension::Resume))
            .map(|session| Resumable {
                session,
                grace: Duration::from_secs(u64::from(grace.min(600))),
                lost: None,
            });
        if self.is_paused && agreement.peer() == Peer::Public {
            return self.stay_away(out);
        }
        self.say_leaving(out);
    }

    /// Resumes the jobs that the coordinator still has, and drops the others.
    fn come_back(&mut self, verdicts: &[Verdict], out: &mut Vec<Output>) {
        let slots: Vec<Slot> = self.jobs.keys().copied().collect();
        for slot in slots {
            let Some(job) = self.jobs.get_mut(&slot) else {
                continue;
            };
            let about = job.about;
            let verdict = verdicts
                .iter()
                .find(|one| one.job == about.job && Some(one.attempt) == about.attempt);
            match verdict.and_then(|verdict| verdict.go_on_after) {
                Some(have) => {
                    job.confirm(have);
                    out.extend(job.kept().map(|text| Output::Send(text.to_owned())));
                }
                None => self.forget(slot, out),
            }
        }
    }

    fn offered(&mut self, frame: JobFrame, out: &mut Vec<Output>) {
        let Some(open) = self.open() else { return };
        let (agreement, about) = (open.agreement, frame.about);
        let peer = agreement.peer();
        if about.attempt.is_some() && self.slot_of(about.job, about.attempt).is_some() {
            return;
        }
        if self.leaving.is_some() || (self.is_paused && peer == Peer::Public) {
            return self.decline(about, peer, out);
        }
        self.slots += 1;
        let slot = Slot(self.slots);
        let mut job = Job::new(about, &frame.model, agreement, self.now);
        let deadline = frame.deadline.filter(|_| agreement.has(Extension::Lease));
        job.deadline = deadline.map(|left| self.now.after(left));
        self.jobs.insert(slot, job);
        out.push(Output::Begin(Box::new(Work {
            slot,
            job: about.job,
            model: frame.model,
            kind: frame.kind,
            payload: frame.payload,
            upload: frame.upload,
            prefill: frame.prefill,
            cache_salt: frame.cache_salt,
            keep_alive: frame.keep_alive.filter(|_| peer == Peer::Ours),
            peer,
            finishing: Finishing::default(),
        })));
    }

    /// Our coordinator gets a `busy`. A public one supports only a lost socket, which costs no strike.
    fn decline(&mut self, about: About, peer: Peer, out: &mut Vec<Output>) {
        match peer {
            Peer::Ours => {
                let seq = self.uses(Extension::Resume).then_some(1);
                let frame = FromWorker::Busy {
                    about: About { seq, ..about },
                    retry_after: NOT_HERE,
                };
                send(&frame, out);
            }
            Peer::Public => self.stay_away(out),
        }
    }

    fn cancel(&mut self, about: About, out: &mut Vec<Output>) {
        let Some(slot) = self.slot_of(about.job, about.attempt) else {
            return;
        };
        if let Some(job) = self.jobs.get_mut(&slot)
            && job.phase == JobPhase::Running
        {
            job.phase = JobPhase::Stopping;
            out.push(Output::Stop(slot));
        }
    }

    /// Matched by id, never by its place among the frames.
    fn acked(&mut self, about: About, out: &mut Vec<Output>) {
        let Some(slot) = self.slot_of(about.job, about.attempt) else {
            return;
        };
        if self.jobs.get(&slot).is_some_and(Job::has_ended) {
            self.jobs.remove(&slot);
            self.close_if_done(out);
        }
    }

    fn got(&mut self, about: About) {
        let (Some(slot), Some(seq)) = (self.slot_of(about.job, about.attempt), about.seq) else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&slot) else {
            return;
        };
        job.confirm(seq);
        if job.is_over() {
            self.jobs.remove(&slot);
        }
    }

    /// Whether the coordinator's refusal is permanent.
    pub(super) fn is_refused_for_good(&self, code: Option<u16>) -> bool {
        let said = self.refusal.as_ref().and_then(|refusal| refusal.code);
        code == Some(4001) || said == Some(RefusalCode::Auth)
    }
}
