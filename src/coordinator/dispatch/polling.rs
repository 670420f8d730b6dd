//! Workers that come for their jobs instead of holding a socket. Such a worker is online while it comes often enough
//! (its shell says when it no longer does), has room only in the moment it asks, and is heard of again when it
//! brings a result. Nothing can be told it in between, so a cancelled job runs on until it comes back.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::protocol::job::{Kind, WorkerId};

use super::Dispatcher;
use super::effect::Effect;
use super::input::{Registration, SessionId};
use super::jobs::State;
use super::lanes::{LaneId, Need};
use super::workers::{Profile, Worker};

/// Why jobs that wait are not for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Skip {
    Models,
    /// They ask for something it cannot do, or speak what it does not understand.
    Ability,
    Window,
    Output,
    Untrusted,
    /// They are for other workers.
    Workers,
}

/// How many jobs wait for others, by the reason. Those it has failed before are not among them.
pub type Skipped = BTreeMap<Skip, usize>;

impl Dispatcher {
    /// The job that is next for this worker, and its siblings: all of one request.
    pub(super) fn pop(&mut self, session: SessionId, most: u32, out: &mut Vec<Effect>) {
        if let Some(&id) = self.sessions.get(&session) {
            self.ask(id, most);
            self.give(id, out);
            self.ask(id, 0);
        }
    }

    /// What it serves has changed; what it has begun goes on.
    pub(super) fn change(&mut self, registration: &Registration) {
        let Some(worker) = self.workers.get_mut(&registration.worker) else {
            return;
        };
        if worker.session != Some(registration.session) {
            return;
        }
        let left = self.lanes.detach(worker);
        self.touched.left.extend(left);
        worker.change(registration);
        worker.heard = self.now.mono;
        self.lanes.attach(worker);
    }

    /// What waits and is not for this worker, counted by the first thing it lacks.
    pub fn skipped(&self, session: SessionId) -> Skipped {
        let mut skipped = Skipped::new();
        let id = self.sessions.get(&session);
        let Some(worker) = id.and_then(|id| self.workers.get(id)) else {
            return skipped;
        };
        for (id, lane) in self.lanes.iter() {
            let Some(reason) = skip(worker, id, &lane.need) else {
                continue;
            };
            let waiting = self.queue.waiting(id);
            if waiting > 0 {
                *skipped.entry(reason).or_default() += waiting;
            }
        }
        skipped
    }

    pub(super) fn polls(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_some_and(Worker::polls)
    }

    fn ask(&mut self, id: WorkerId, most: u32) {
        if let Some(worker) = self.workers.get_mut(&id)
            && worker.polls()
        {
            worker.asked = Some(most);
            worker.heard = self.now.mono;
        }
        self.refresh(id);
    }

    fn give(&mut self, id: WorkerId, out: &mut Vec<Effect>) {
        while let Some(worker) = self.lanes.next_unplaced() {
            self.refresh(worker);
        }
        let Some((job, lane)) = self.best_job(id) else {
            return;
        };
        let siblings = self.jobs.get(&job).map(|entry| entry.siblings.clone());
        let mut has_room = self.offer(job, id, lane, out);
        for &sibling in siblings.iter().flat_map(|siblings| siblings.iter()) {
            let waits_beside = self.jobs.get(&sibling).is_some_and(|entry| {
                entry.lane == lane
                    && matches!(entry.state, State::Queued)
                    && self.may_run(entry, id)
            });
            if has_room && waits_beside {
                has_room = self.offer(sibling, id, lane, out);
            }
        }
    }
}

/// Nothing, if jobs of this need are for this worker, or of another kind than it makes.
fn skip(worker: &Worker, lane: LaneId, need: &Need) -> Option<Skip> {
    let it: &Profile = &worker.profile;
    if worker.listing(lane).is_some() || !it.kinds.contains(need.kind) {
        return None;
    }
    let serves = |name: &Arc<str>| {
        worker
            .models
            .iter()
            .any(|model| model.offered && model.name == *name)
    };
    let reach = need.reach;
    let window = reach.window.max(context_of(need));
    Some(
        if !need.models.is_empty() && !need.models.iter().any(serves) {
            Skip::Models
        } else if !it.formats.meets(need.formats) || !it.capabilities.contains(need.requires) {
            Skip::Ability
        } else if window > it.reach.window.min(it.context) {
            Skip::Window
        } else if reach.output > it.reach.output {
            Skip::Output
        } else if need.trusted && !it.trusted {
            Skip::Untrusted
        } else {
            Skip::Workers
        },
    )
}

/// Media have no context to speak of.
fn context_of(need: &Need) -> u32 {
    match need.kind {
        Kind::Text => need.context,
        _ => 0,
    }
}
