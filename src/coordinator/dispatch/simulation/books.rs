//! The dispatcher's tables, checked against each other: jobs and their workers, the queue, the lists of workers, and
//! that no job waits while a free worker could serve it.

use crate::dispatch::Dispatcher;
use crate::dispatch::jobs::{Phase, State};
use crate::dispatch::suspects::Isolation;
use muster_protocol::job::JobId;

pub fn check(dispatcher: &Dispatcher) {
    jobs_agree_with_workers(dispatcher);
    queue_holds_what_is_queued(dispatcher);
    workers_stand_where_they_belong(dispatcher);
    nobody_waits_for_nothing(dispatcher);
    suspects_run_alone(dispatcher);
}

fn suspects_run_alone(dispatcher: &Dispatcher) {
    for (id, entry) in &dispatcher.jobs {
        let (is_suspect, lease) = (entry.history.is_suspect, entry.lease());
        let waits = dispatcher.is_waiting_suspect(&entry.ticket);
        let is_queued = matches!(entry.state, State::Queued);
        assert_eq!(waits, is_suspect && is_queued, "{id}");
        let Some(lease) = lease.filter(|_| is_suspect) else {
            continue;
        };
        let worker = &dispatcher.workers[&lease.worker];
        let beside = worker.running_of(entry.scope());
        assert_eq!(beside, 1, "{id} has company");
    }
    for (id, worker) in &dispatcher.workers {
        let is_open = matches!(worker.isolation, Isolation::Open { .. });
        assert_eq!(dispatcher.isolated.contains(id), !is_open, "{id:?}");
    }
}

fn jobs_agree_with_workers(dispatcher: &Dispatcher) {
    for (id, entry) in &dispatcher.jobs {
        let Some(lease) = entry.lease() else { continue };
        let worker = &dispatcher.workers[&lease.worker];
        assert!(
            worker.running.contains_key(id),
            "{id} runs on a worker that does not list it"
        );
        let connected = worker.session == Some(lease.session);
        let orphaned = matches!(lease.phase, Phase::Orphaned { .. });
        assert!(
            connected != orphaned,
            "{id} is {lease:?} on {:?}",
            worker.session
        );
    }
    for (id, worker) in &dispatcher.workers {
        // A polling worker may take more jobs than it has slots.
        assert!(
            worker.polls() || worker.running.len() <= worker.slots,
            "{id:?} has more jobs than slots"
        );
        let by_model: u32 = worker.models.iter().map(|model| model.running).sum();
        assert_eq!(
            by_model as usize,
            worker.running.len(),
            "{id:?} has wrong model counts"
        );
        for job in worker.running.keys() {
            let lease = dispatcher.jobs.get(job).and_then(|entry| entry.lease());
            assert!(
                lease.is_some_and(|lease| lease.worker == *id),
                "{id:?} lists {job}, which does not run there"
            );
        }
        match worker.session {
            Some(session) => assert_eq!(dispatcher.sessions.get(&session), Some(id)),
            None => assert!(
                !worker.running.is_empty(),
                "{id:?} is kept without a reason"
            ),
        }
    }
    assert!(dispatcher.sessions.len() <= dispatcher.workers.len());
}

fn queue_holds_what_is_queued(dispatcher: &Dispatcher) {
    let queued = dispatcher
        .jobs
        .values()
        .filter(|entry| matches!(entry.state, State::Queued))
        .count();
    assert_eq!(dispatcher.queue.len(), queued);
}

fn workers_stand_where_they_belong(dispatcher: &Dispatcher) {
    for worker in dispatcher.workers.values() {
        for listing in &worker.listings {
            let lane = dispatcher.lanes.lane(listing.lane).unwrap();
            let is_open = worker.has_room() && worker.is_open_to(listing.kind);
            let has_room = is_open && worker.model_with_room(listing).is_some();
            let open = has_room && !worker.polls();
            assert_eq!(
                listing.place.is_some(),
                open,
                "{:?} is listed incorrectly",
                worker.id
            );
            assert!(listing.place.is_none_or(|place| lane.free.contains(&place)));
        }
    }
}

/// A lane never holds a job and a free worker that may have it.
fn nobody_waits_for_nothing(dispatcher: &Dispatcher) {
    for entry in dispatcher
        .jobs
        .values()
        .filter(|entry| matches!(entry.state, State::Queued))
    {
        let lane = dispatcher.lanes.lane(entry.lane).unwrap();
        let free = lane
            .free
            .iter()
            .find(|place| dispatcher.may_run(entry, place.worker));
        assert!(
            free.is_none(),
            "{} waits although {free:?} is free",
            entry.job.id
        );
    }
}

/// P4: a second after its cancellation no slot is taken by the job. Polling workers have no slots.
pub fn check_slot_is_free(dispatcher: &Dispatcher, job: JobId) {
    let mut workers = dispatcher.workers.values();
    let running = workers.find(|worker| !worker.polls() && worker.running.contains_key(&job));
    assert!(
        running.is_none(),
        "{job} still has a slot of {:?}",
        running.map(|worker| worker.id)
    );
}

/// At the end, every table is empty.
pub fn check_empty(dispatcher: &Dispatcher) {
    assert_eq!(dispatcher.census(), Default::default());
}
