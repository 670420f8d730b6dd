//! Shutdown of the task, and its restart after a panic. In both cases every waiting client and worker gets an end.

use std::task::Waker;
use std::time::Duration;

use super::desk::Desk;
use super::overview::Stale;
use super::polling::Polling;
use super::sessions::Sessions;
use crate::dispatch::{Dispatcher, Effect, Input, Outcome};
use muster_protocol::job::{Failure, FailureKind};

impl Desk {
    /// Drops all state after a panic. Settlements under way complete in their own tasks.
    pub fn start_over(&mut self) {
        let failure = || Failure::new(FailureKind::Internal, "internal error");
        for (job, is_stored) in self.lines.jobs() {
            match is_stored {
                // The follower queues it again.
                true => self.send_out(Effect::Park { job }),
                false => self.end(job, Outcome::Failed(failure())),
            }
        }
        self.polling = Polling::default();
        let sockets = self.sessions.all().filter_map(|orders| orders.close());
        self.wakers.extend(sockets);
        self.sessions = Sessions::default();
        self.dispatcher = Dispatcher::new(self.settings.clone());
        self.is_paused = false;
        self.follow_ups.clear();
        self.effects.clear();
        self.entering = None;
        self.upkeep.note(Stale::Members);
        if self.is_draining {
            self.handle(Input::Drain {
                within: Duration::ZERO,
            });
        }
    }

    /// Shutdown: ends all streams and sockets.
    pub fn close(&mut self) {
        let streams = self.lines.pipes().filter_map(|pipe| pipe.close());
        let sockets = self.sessions.all().filter_map(|orders| orders.close());
        streams.chain(sockets).for_each(Waker::wake);
    }
}
