//! Other models, while jobs run.

use super::{JOB, Line, done, ready, secs, seqs};
use crate::link::session::jobs::GATHER;
use crate::link::session::{Input, Output};
use muster_protocol::job::Kudos;
use muster_protocol::link::{About, FromWorker, Ready, Registration, ToWorker, Verdict};

fn with_two_models() -> Input {
    let models = vec!["demo".to_owned(), "new".to_owned()];
    Input::Registration(Box::new(Registration::new("key", "rig", models)))
}

/// The models of the registration that is sent once the socket is open.
fn registered(line: &mut Line) -> (Vec<String>, bool) {
    line.put(Input::Opened);
    let greeting = line.sent();
    let [FromWorker::Register(registration)] = &greeting[..] else {
        panic!("{greeting:?}");
    };
    (registration.models.clone(), registration.resume.is_some())
}

#[test]
fn jobs_of_our_coordinator_go_on_while_it_hears_of_other_models() {
    let mut line = Line::ours();
    let slot = line.job(Some(3));
    line.write(slot, "a");
    assert_eq!(seqs(&line.sent()), [1]);
    line.put(with_two_models());
    assert_eq!(line.outputs(), [Output::Close(Some(1000)), Output::Dial]);
    assert!(line.session.is_renewing());
    line.write(slot, "b");
    let (models, resumes) = registered(&mut line);
    assert_eq!((models.len(), resumes), (2, true));
    line.session.take_accepted();
    line.hear(ready(&[Verdict {
        job: JOB,
        attempt: 3,
        go_on_after: Some(1),
    }]));
    line.wait(GATHER);
    assert_eq!(seqs(&line.sent()), [2]);
    assert!(!line.session.is_renewing());
    let accepted = line.session.take_accepted();
    assert_eq!(accepted.map(|it| it.models), Some(models));
    line.say(slot, done());
    assert!(matches!(line.sent()[..], [FromWorker::Done(_)]));
}

#[test]
fn a_public_coordinator_hears_of_other_models_after_the_running_job() {
    let mut line = Line::public();
    line.put(with_two_models());
    assert_eq!(line.outputs(), [Output::Close(Some(1000)), Output::Dial]);
    assert_eq!(registered(&mut line).0.len(), 2);
    line.hear(ToWorker::Ready(Ready::default()));

    let slot = line.job(None);
    line.put(with_two_models());
    assert_eq!(line.outputs(), []);
    line.say(slot, done());
    line.hear(ToWorker::Ack {
        about: About::job(JOB),
        reward: Kudos(1),
    });
    let outputs = line.outputs();
    let renewed = [Output::Close(Some(1000)), Output::Dial];
    assert!(outputs.ends_with(&renewed), "{outputs:?}");
}

#[test]
fn models_that_change_before_the_answer_are_registered_after_it() {
    let mut line = Line::new();
    line.put(Input::Opened);
    line.outputs();
    line.put(with_two_models());
    assert_eq!(line.outputs(), []);
    line.hear(ready(&[]));
    assert_eq!(line.session.take_accepted(), None);
    let outputs = line.outputs();
    let renewed = [Output::Close(Some(1000)), Output::Dial];
    assert!(outputs.ends_with(&renewed), "{outputs:?}");
    assert_eq!(registered(&mut line).0.len(), 2);
}

#[test]
fn a_coordinator_that_is_gone_by_then_counts_as_lost() {
    let mut line = Line::ours();
    line.put(with_two_models());
    line.outputs();
    line.put(Input::Lost { code: None });
    assert!(!line.session.is_renewing());
    line.wait(secs(2));
    assert_eq!(line.outputs(), [Output::Dial]);
    assert_eq!(registered(&mut line).0.len(), 2);
}
