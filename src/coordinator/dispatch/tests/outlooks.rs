//! Outlooks of waiting clients.

use super::{Desk, done, secs, token};
use crate::dispatch::Outlook;
use muster_protocol::job::JobId;

impl Desk {
    fn outlook(&self, job: JobId) -> Outlook {
        let outlook = self.dispatcher.outlook(job, self.now.mono);
        outlook.expect("it has not ended")
    }

    fn seconds_left(&self, job: JobId) -> u64 {
        self.outlook(job).wait.as_secs_f64().round() as u64
    }

    fn stored_jobs(&mut self, count: usize) -> Vec<JobId> {
        (0..count)
            .map(|_| {
                let job = self.stored_job();
                self.submit(job)
            })
            .collect()
    }
}

#[test]
fn who_waits_is_told_how_long_jobs_like_it_took() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let jobs = desk.stored_jobs(4);
    let offer = desk.pop(poller, 1).remove(0);
    desk.wait(secs(40));
    desk.say(&offer, token(1)).say(&offer, done());
    assert_eq!(desk.outlook(jobs[1]).ahead, 0);
    assert_eq!(desk.seconds_left(jobs[1]), 40);
    // A typical job, which is a little larger than these, and the job itself.
    assert_eq!(desk.outlook(jobs[2]).ahead, 1);
    assert_eq!(desk.seconds_left(jobs[2]), 54 + 40);
    // Another worker halves the time of the jobs ahead, not that of the job itself.
    desk.poller(2);
    assert_eq!(desk.seconds_left(jobs[2]), 27 + 40);
}

#[test]
fn who_waits_is_told_of_what_runs_before_it() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let jobs = desk.stored_jobs(3);
    let offer = desk.pop(poller, 1).remove(0);
    desk.wait(secs(40));
    desk.say(&offer, token(1)).say(&offer, done());
    desk.pop(poller, 1);
    desk.wait(secs(10));
    assert_eq!(desk.seconds_left(jobs[1]), 30);
    assert_eq!(desk.seconds_left(jobs[2]), 30 + 40);
    desk.wait(secs(60));
    assert_eq!(desk.seconds_left(jobs[1]), 0, "it is late");
    assert_eq!(desk.seconds_left(jobs[2]), 40);
}

#[test]
fn jobs_that_are_made_together_take_as_long_as_all_of_them() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let mut siblings: Vec<_> = (0..8).map(|_| desk.stored_job()).collect();
    let request = siblings[0].request;
    siblings.iter_mut().for_each(|job| job.request = request);
    let last = siblings[7].id;
    desk.submit_all(siblings);
    let offers = desk.pop(poller, 4);
    desk.wait(secs(40));
    for offer in &offers {
        desk.say(offer, token(1)).say(offer, done());
    }
    assert_eq!(desk.seconds_left(last), 3 * 13 + 10 + 1);
    let offers = desk.pop(poller, 4);
    desk.wait(secs(15));
    assert_eq!(desk.seconds_left(offers[0].job.id), 25);
}

#[test]
fn what_nobody_serves_says_so() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let job = desk.stored_jobs(1)[0];
    assert!(desk.outlook(job).is_possible);
    desk.lose(poller);
    assert!(!desk.outlook(job).is_possible);
}
