//! Jobs that crash their workers, and the jobs beside them.

use std::collections::VecDeque;

use super::{Desk, done, failed, failure_kind, finished_image, is_delivered, secs, step, token};
use crate::dispatch::{Claim, Effect, Input, Offer, Outcome, Resume, Said, SessionId};
use muster_protocol::job::{FailureKind, JobId};

/// The worker's process restarts, and has lost its jobs.
fn restart(desk: &mut Desk, worker: i64, session: SessionId) -> SessionId {
    desk.lose(session);
    desk.ours(worker)
}

fn offered(effects: &[Effect]) -> Vec<Offer> {
    let offers = effects.iter().filter_map(|effect| match effect {
        Effect::Offer(offer) => Some(offer.clone()),
        _ => None,
    });
    offers.collect()
}

fn ended(effects: &[Effect]) -> Vec<(JobId, Outcome)> {
    let ends = effects.iter().filter_map(|effect| match effect {
        Effect::End { job, outcome } => Some((*job, outcome.clone())),
        _ => None,
    });
    ends.collect()
}

#[test]
fn a_job_that_kills_its_workers_kills_two_of_four() {
    let mut desk = Desk::new();
    for worker in 1..=4 {
        desk.ours(worker);
    }
    let poison = desk.submit_one();
    let mut killed = 0;
    loop {
        let effects = desk.take();
        if let Some((job, outcome)) = ended(&effects).pop() {
            assert_eq!(job, poison);
            assert_eq!(failure_kind(&outcome), Some(FailureKind::BadJob));
            break;
        }
        for offer in offered(&effects) {
            desk.lose(offer.session);
            killed += 1;
        }
        desk.wait(secs(1));
    }
    assert_eq!(killed, 2, "of four workers");
    assert_eq!(desk.dispatcher.census().records, 0, "and nobody is struck");
    desk.assert_nothing_left();
}

#[test]
fn the_one_worker_that_is_started_again_dies_twice() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let session = restart(&mut desk, 1, session);
    assert_eq!(desk.offers().len(), 2);
    restart(&mut desk, 1, session);
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::BadJob));
}

#[test]
fn a_suspect_has_its_worker_for_itself_until_it_writes() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    let suspect = desk.submit_one();
    restart(&mut desk, 1, session);
    let offer = desk.offers().remove(1);
    assert_eq!(offer.job.id, suspect);
    desk.submit_one();
    assert!(desk.offers().is_empty(), "nothing beside a suspect");
    desk.say(&offer, token(1));
    assert_eq!(desk.offers().len(), 1, "it is cleared");
}

/// Runs all offers, one job after another; each poison kills the process of its worker, which is restarted. Returns the
/// outcomes and the number of killed processes.
fn run_all(desk: &mut Desk, poison: &[JobId]) -> (Vec<(JobId, Outcome)>, usize) {
    let (mut ends, mut deaths) = (Vec::new(), 0);
    let mut waiting: VecDeque<Offer> = VecDeque::new();
    loop {
        let effects = desk.take();
        ends.extend(ended(&effects));
        waiting.extend(offered(&effects));
        // A crash comes first: the other jobs are lost with it.
        let kills = waiting.iter().position(|it| poison.contains(&it.job.id));
        let Some(offer) = waiting.remove(kills.unwrap_or(0)) else {
            return (ends, deaths);
        };
        if kills.is_none() {
            desk.say(&offer, token(1)).say(&offer, done());
            continue;
        }
        deaths += 1;
        waiting.retain(|other| other.session != offer.session);
        restart(desk, desk.worker_of(offer.session), offer.session);
    }
}

#[test]
fn jobs_of_the_lost_socket_are_delivered_and_only_the_killer_fails() {
    let mut desk = Desk::new();
    desk.ours(1);
    let jobs: Vec<JobId> = (0..4).map(|_| desk.submit_one()).collect();
    let (ends, deaths) = run_all(&mut desk, &jobs[2..3]);
    assert_eq!(deaths, 2);
    assert_eq!(ends.len(), 4);
    for (job, outcome) in ends {
        let expected = (job == jobs[2]).then_some(FailureKind::BadJob);
        assert_eq!(failure_kind(&outcome), expected);
    }
    desk.assert_nothing_left();
}

#[test]
fn several_killers_kill_two_workers_each_at_most() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.ours(2);
    let jobs: Vec<JobId> = (0..12).map(|_| desk.submit_one()).collect();
    let poison = [jobs[1], jobs[6], jobs[11]];
    let (ends, deaths) = run_all(&mut desk, &poison);
    assert!(deaths <= 2 * poison.len(), "{deaths} workers were lost");
    for (job, outcome) in ends {
        assert_eq!(
            is_delivered(&outcome),
            !poison.contains(&job),
            "{outcome:?}"
        );
    }
    desk.assert_nothing_left();
}

#[test]
fn what_had_written_something_goes_on_beside_others() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, token(1));
    restart(&mut desk, 1, session);
    desk.submit_one();
    assert_eq!(desk.offers().len(), 2, "it was read, and nobody died of it");
}

#[test]
fn what_has_lost_two_workers_runs_alone_to_its_end() {
    let mut desk = Desk::new();
    let mut session = desk.ours(1);
    desk.submit_one();
    for _ in 0..2 {
        let offer = desk.offer();
        desk.say(&offer, token(1)).take();
        session = restart(&mut desk, 1, session);
    }
    let offer = desk.offer();
    desk.say(&offer, token(2));
    desk.submit_one();
    assert!(desk.offers().is_empty());
    desk.say(&offer, done());
    assert_eq!(desk.offers().len(), 1);
}

#[test]
fn what_kills_while_it_is_written_kills_three_workers() {
    let mut desk = Desk::new();
    let mut session = desk.ours(1);
    desk.submit_one();
    for _ in 0..3 {
        let offer = desk.offer();
        desk.say(&offer, token(1)).take();
        session = desk
            .dispatcher
            .sessions
            .keys()
            .copied()
            .next()
            .unwrap_or(session);
        session = restart(&mut desk, 1, session);
    }
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::BadJob));
}

#[test]
fn a_worker_that_leaves_leaves_no_suspects() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    desk.submit_one();
    desk.put(Input::Leaving {
        session,
        within: secs(1),
    });
    desk.take();
    restart(&mut desk, 1, session);
    assert_eq!(desk.offers().len(), 2, "at once");
}

#[test]
fn a_suspect_is_waited_for_as_long_as_its_worker_may_be_gone() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let session = restart(&mut desk, 1, session);
    let offer = desk.offers().remove(1);
    desk.ours(2);
    desk.lose(session).wait(secs(30));
    let jobs = vec![Claim {
        job: offer.job.id,
        attempt: offer.attempt,
    }];
    desk.take();
    let back = desk.back(1, Resume { session, jobs });
    desk.submit_one();
    assert_ne!(desk.offer().session, back, "it is still alone there");
    desk.say_on(back, &offer, None, token(1))
        .say_on(back, &offer, None, done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn a_suspect_whose_attempt_fails_is_no_killer() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    restart(&mut desk, 1, session);
    let offer = desk.offers().remove(1);
    desk.say(&offer, failed());
    let offer = desk.offer();
    desk.say(&offer, token(1)).say(&offer, done());
    assert!(is_delivered(&desk.end()));
}

/// A worker of four slots, busy with jobs of four seconds that never end at the same time.
struct BusyWorker {
    running: VecDeque<(u64, Offer)>,
    second: u64,
}

impl BusyWorker {
    /// One second: a job of four seconds ends, and more always wait.
    fn pass(&mut self, desk: &mut Desk) -> Vec<(JobId, Outcome)> {
        self.second += 1;
        desk.pass(secs(1));
        desk.put(Input::Tick);
        while self
            .running
            .front()
            .is_some_and(|(at, _)| at + 4 <= self.second)
        {
            let (_, offer) = self.running.pop_front().unwrap();
            desk.say(&offer, done());
        }
        while desk.dispatcher.census().queued < 4 {
            desk.submit_one();
        }
        let beats: Vec<Offer> = self
            .running
            .iter()
            .map(|(_, offer)| offer.clone())
            .collect();
        for offer in beats {
            desk.say(&offer, Said::Alive);
        }
        let effects = desk.take();
        for offer in offered(&effects) {
            desk.say(&offer, token(1));
            self.running.push_back((self.second, offer));
        }
        ended(&effects)
    }
}

#[test]
fn suspects_and_other_jobs_take_turns_on_the_only_worker() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    let suspects: Vec<JobId> = (0..4).map(|_| desk.submit_one()).collect();
    restart(&mut desk, 1, session);
    let effects = desk.take();
    let first = offered(&effects).pop().unwrap();
    desk.say(&first, token(1));
    let mut busy = BusyWorker {
        running: VecDeque::from([(0, first)]),
        second: 0,
    };
    let (mut others, mut longest, mut last) = (0, 0, 0);
    let mut waiting = suspects.clone();
    while !waiting.is_empty() {
        assert!(busy.second < 120, "{} suspects still wait", waiting.len());
        for (job, outcome) in busy.pass(&mut desk) {
            assert!(is_delivered(&outcome));
            waiting.retain(|suspect| *suspect != job);
            if !suspects.contains(&job) {
                others += 1;
                longest = longest.max(busy.second - last);
                last = busy.second;
            }
        }
    }
    assert!(
        others >= suspects.len(),
        "only {others} other jobs were done meanwhile"
    );
    assert!(longest <= 20, "no other job was done for {longest} s");
}

#[test]
fn half_of_the_workers_go_on_with_other_jobs() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    let suspects: Vec<JobId> = (0..4).map(|_| desk.submit_one()).collect();
    desk.take();
    for worker in 2..=5 {
        desk.ours(worker);
        for _ in 0..4 {
            desk.submit_one();
        }
    }
    let busy = desk.offers();
    assert_eq!(busy.len(), 16);
    desk.lose(first).ours(1);
    let alone = desk.offer();
    assert!(suspects.contains(&alone.job.id));
    for _ in 0..16 {
        desk.submit_one();
    }
    assert_eq!(desk.dispatcher.census().isolated, 2, "of five workers");
    for offer in &busy {
        desk.say(offer, token(1)).say(offer, done());
    }
    let mut sessions: Vec<SessionId> = desk.offers().iter().map(|it| it.session).collect();
    sessions.dedup();
    assert!(sessions.len() >= 3);
}

fn restart_both(desk: &mut Desk, worker: i64, session: SessionId) -> SessionId {
    desk.lose(session);
    desk.writing_and_drawing(worker)
}

#[test]
fn a_suspect_image_stops_no_text() {
    let mut desk = Desk::new();
    let session = desk.writing_and_drawing(1);
    let image = desk.submit_image();
    desk.take();
    restart_both(&mut desk, 1, session);
    assert_eq!(desk.offer().job.id, image, "it runs again");
    for _ in 0..3 {
        desk.submit_one();
        let offer = desk.offer();
        desk.say(&offer, token(1)).say(&offer, done());
        assert!(is_delivered(&desk.end()));
    }
    desk.submit_image();
    assert!(desk.offers().is_empty(), "no image beside a suspect one");
}

#[test]
fn the_first_completed_step_clears_an_image() {
    let mut desk = Desk::new();
    let session = desk.writing_and_drawing(1);
    desk.submit_image();
    restart_both(&mut desk, 1, session);
    let offer = desk.offers().remove(1);
    desk.submit_image();
    assert!(desk.offers().is_empty());
    desk.say(&offer, step());
    assert_eq!(desk.offers().len(), 1, "another image beside it");
}

#[test]
fn an_image_with_a_completed_step_is_no_suspect() {
    let mut desk = Desk::new();
    let session = desk.writing_and_drawing(1);
    desk.submit_image();
    let offer = desk.offer();
    desk.say(&offer, step());
    restart_both(&mut desk, 1, session);
    desk.submit_image();
    assert_eq!(desk.offers().len(), 2, "both at once");
}

#[test]
fn an_image_that_kills_beside_texts_is_found_by_its_third_worker() {
    let mut desk = Desk::new();
    let mut session = desk.writing_and_drawing(1);
    let image = desk.submit_image();
    desk.take();
    for death in 1..=3 {
        let text = desk.submit_one();
        let offers = desk.offers();
        // The last time, the image is alone on its worker.
        assert_eq!(offers.iter().any(|offer| offer.job.id == text), death < 3);
        session = restart_both(&mut desk, 1, session);
    }
    let ends = desk.ends();
    let of_image = ends.iter().find(|(job, _)| *job == image).unwrap();
    assert_eq!(failure_kind(&of_image.1), Some(FailureKind::BadJob));
    let others = ends.iter().filter(|(job, _)| *job != image);
    assert!(others.map(|(_, end)| end).all(is_delivered), "{ends:?}");
}

#[test]
fn an_image_beside_a_text_that_kills_is_made() {
    let mut desk = Desk::new();
    let session = desk.writing_and_drawing(1);
    let image = desk.submit_image();
    let text = desk.submit_one();
    desk.take();
    let session = restart_both(&mut desk, 1, session);
    let offer = desk.offer();
    assert_eq!(offer.job.id, image, "one suspect after the other");
    desk.say(&offer, step());
    assert_eq!(desk.offer().job.id, text);
    // Either of the two may have killed the worker.
    let session = restart_both(&mut desk, 1, session);
    let offer = desk.offer();
    assert_eq!(offer.job.id, image);
    desk.say(&offer, step());
    assert!(desk.offers().is_empty(), "now the text runs alone");
    desk.say(&offer, finished_image()).say(&offer, done());
    let effects = desk.take();
    let ends = ended(&effects);
    assert!(matches!(&ends[..], [(job, end)] if *job == image && is_delivered(end)));
    assert_eq!(offered(&effects)[0].job.id, text);
    restart_both(&mut desk, 1, session);
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::BadJob));
}
