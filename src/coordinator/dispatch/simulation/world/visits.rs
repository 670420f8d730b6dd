//! Polls: pops and submits of polling workers.

use std::collections::BTreeSet;

use super::super::pollers::Brought;
use super::{Happening, World};
use crate::dispatch::{Input, SessionId, Wants};
use muster_protocol::job::RequestId;

impl World {
    /// A poll: registers if needed, and pops.
    pub(super) fn visit(&mut self, index: usize) {
        if self.is_over() {
            return;
        }
        let wait = self.random.millis(200, 5000);
        self.after(wait, Happening::Visit(index));
        if self.random.permille(20)
            && let Some(session) = self.pollers[index].session.take()
        {
            // The worker has not polled for too long, or has restarted.
            self.give(Input::Lost { session });
        }
        let session = match self.pollers[index].session {
            Some(session) => session,
            None => self.introduce(index),
        };
        match self.random.permille(30) {
            true => self.claim(index, session),
            false => self.pop(index, session),
        }
    }

    fn introduce(&mut self, index: usize) -> SessionId {
        self.issued += 1;
        let session = SessionId(self.issued);
        let registration = self.pollers[index].register(session);
        self.polling.insert(session, index);
        self.give(Input::Connected(Box::new(registration)));
        session
    }

    fn pop(&mut self, index: usize, session: SessionId) {
        let wants = self.pollers[index].wants(&mut self.random);
        let (most, scattered) = (wants.most as usize, wants.scattered);
        self.give(Input::Pop { session, wants });
        let offers = std::mem::take(&mut self.popped);
        assert!(offers.len() <= most, "more jobs than requested");
        let requests: BTreeSet<RequestId> = offers.iter().map(|it| it.job.request).collect();
        assert!(scattered || requests.len() <= 1, "jobs of several requests");
        self.note(match offers.len() {
            0 => return,
            1 => "popped",
            _ => "several jobs in one pop",
        });
        for offer in offers {
            let length = self.clients.jobs[&offer.job.id].length;
            let plan = self.pollers[index].plan(&offer, length, &mut self.random);
            for (wait, brought) in plan {
                self.after(wait, Happening::Bring(index, brought));
            }
        }
    }

    /// Submits a job leased by an earlier process: accepted if the job is queued, refused if it was leased again since.
    fn claim(&mut self, index: usize, session: SessionId) {
        let Some(&job) = self.random.pick(&self.clients.open) else {
            return;
        };
        let Some(entry) = self.dispatcher.jobs.get(&job) else {
            return;
        };
        if entry.job.kind != self.pollers[index].kind {
            return;
        }
        let may_be_out = entry.may_be_out_already();
        let wants = Wants::only(vec![job]);
        self.give(Input::Pop { session, wants });
        for offer in std::mem::take(&mut self.popped) {
            assert_eq!(offer.job.id, job, "the job differs from the popped one");
            assert!(
                may_be_out,
                "the job was not leased, or was already submitted"
            );
            self.note("claimed");
            let brought = Brought {
                session,
                job,
                attempt: offer.attempt,
                kind: offer.job.kind,
                length: self.clients.jobs[&job].length,
                is_fault: false,
            };
            self.bring(index, brought);
        }
    }

    pub(super) fn bring(&mut self, index: usize, brought: Brought) {
        let key = (brought.job, brought.attempt);
        let entry = self.dispatcher.jobs.get(&brought.job);
        let lease = entry.and_then(|entry| entry.lease());
        let is_its_own = lease.is_some_and(|lease| {
            lease.attempt == brought.attempt && lease.session == brought.session
        });
        if is_its_own {
            assert_eq!(self.offered[&key], self.pollers[index].id);
            assert!(
                !self.brought.contains(&key),
                "the output was already submitted"
            );
            if self.clients.jobs[&brought.job].left {
                self.note("submission after cancel");
            }
            self.note("brought");
        } else {
            self.note(match self.brought.contains(&key) {
                true => "repeated submission",
                false => "unwanted submission",
            });
        }
        self.brought.insert(key);
        self.bringing = is_its_own;
        for frame in brought.frames() {
            self.give(Input::Frame(frame));
        }
        self.bringing = false;
    }
}
