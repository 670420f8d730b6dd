//! Consequences of failures, and how far clients see them.

use super::{Desk, OURS, done, failed, failure_kind, is_delivered, make_only, secs, token};
use crate::dispatch::{CloseReason, Effect, Input, Prefill, Said};
use muster_protocol::job::{
    Event, Failure, FailureKind, FinishReason, JobId, Kind, TokenEvent, Usage,
};

fn started() -> Said {
    Said::Event(Event::Started {
        prompt_tokens: 10,
        cached_tokens: 0,
    })
}

fn bad_request() -> Said {
    let failure = Failure::new(FailureKind::InvalidRequest, "tool 0 has no name");
    Said::Event(Event::Failed(failure))
}

fn closes(effects: &[Effect]) -> Vec<CloseReason> {
    let closes = effects.iter().filter_map(|effect| match effect {
        Effect::CloseWorker { reason, .. } => Some(*reason),
        _ => None,
    });
    closes.collect()
}

#[test]
fn a_loss_before_output_is_invisible() {
    let mut desk = Desk::new();
    let first = desk.public(1);
    let job = desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, started());
    desk.take();
    desk.public(2);
    desk.lose(first);
    let again = desk.offer();
    assert_eq!((again.job.id, again.attempt), (job, 2));
    assert!(again.prefill.is_none());
    desk.say(&again, started());
    assert!(
        desk.take().is_empty(),
        "the client has heard that it started"
    );
    desk.say(&again, token(1)).say(&again, done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn a_loss_after_output_continues_from_the_delivered_tokens() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, token(7)).say(&offer, token(8));
    desk.ours(2);
    desk.lose(first);
    assert!(desk.offers().is_empty(), "it may still come back");
    desk.wait(secs(6));
    let again = desk.offer();
    let expected = Prefill {
        tokens: vec![7, 8],
        text: "7 8 ".into(),
        written: Some(2),
    };
    assert_eq!(again.prefill.as_deref(), Some(&expected));
    desk.say(&again, token(9)).say(&again, done());
    let effects = desk.take();
    let facts = effects.iter().find_map(|effect| match effect {
        Effect::Settle(facts) => Some(facts),
        _ => None,
    });
    let tokens: Vec<u64> = facts
        .unwrap()
        .parts
        .iter()
        .map(|part| part.tokens)
        .collect();
    assert_eq!(tokens, [2, 1], "each worker has its part");
}

#[test]
fn a_loss_after_output_without_tokens_ends_with_a_typed_error() {
    let mut desk = Desk::new();
    let first = desk.public(1);
    desk.ours(2);
    let mut job = desk.new_job();
    job.limits.formats = muster_protocol::job::Formats::OPENAI_CHAT;
    desk.submit(job);
    let offer = desk.offer();
    desk.say(&offer, token(7));
    desk.lose(first);
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::WorkerLost));
}

pub fn words(text: &str, ids: Vec<u32>) -> Said {
    Said::Event(Event::Token(TokenEvent {
        text: text.to_owned(),
        ids,
        ..TokenEvent::default()
    }))
}

#[test]
fn words_that_come_after_their_tokens_are_known_to_whoever_goes_on() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, words("we say ", vec![7, 8, 9]))
        .say(&offer, words("<tool", Vec::new()));
    desk.ours(2);
    desk.lose(first).wait(secs(6));
    let expected = Prefill {
        tokens: vec![7, 8, 9],
        text: "we say <tool".into(),
        written: Some(4),
    };
    assert_eq!(desk.offer().prefill.as_deref(), Some(&expected));
}

#[test]
fn an_output_too_long_to_keep_is_not_kept_and_ends_with_its_worker() {
    let mut desk = Desk::new();
    desk.ours(1);
    let mut job = desk.new_job();
    job.limits.output_tokens = None;
    let job = desk.submit(job);
    let offer = desk.offer();
    for _ in 0..9 {
        desk.say(&offer, words(&"x".repeat(500_000), vec![1; 1000]));
    }
    desk.take();
    let kept = &desk.dispatcher.jobs[&job].delivered;
    assert!(kept.text.is_empty() && kept.tokens.is_empty());
    desk.ours(2);
    desk.lose(offer.session).wait(secs(6));
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::WorkerLost));
}

#[test]
fn only_workers_that_can_continue_are_asked_to() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, token(7));
    desk.public(2);
    desk.lose(first).wait(secs(46));
    assert!(desk.offers().is_empty());
    let third = desk.ours(3);
    assert_eq!(desk.offer().session, third);
}

#[test]
fn a_stream_nobody_can_continue_ends_after_a_while() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, token(7));
    desk.lose(first).wait(secs(80));
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::WorkerLost));
    desk.assert_nothing_left();
}

#[test]
fn a_failed_attempt_goes_to_another_worker() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.submit_one();
    let first = desk.offer();
    desk.ours(2);
    desk.say(&first, failed());
    assert_ne!(desk.offer().session, first.session);
}

#[test]
fn with_one_worker_there_is_one_retry() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.submit_one();
    for _ in 0..2 {
        let offer = desk.offer();
        desk.say(&offer, failed());
    }
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::WorkerFailed));
}

#[test]
fn three_different_workers_make_a_bad_job_and_nobody_is_struck() {
    let mut desk = Desk::new();
    for worker in 1..=3 {
        desk.ours(worker);
    }
    for _ in 0..20 {
        desk.submit_one();
        for _ in 0..3 {
            let offer = desk.offer();
            desk.say(&offer, failed());
        }
        assert_eq!(failure_kind(&desk.end()), Some(FailureKind::BadJob));
    }
    assert_eq!(desk.dispatcher.census().sessions, 3);
}

#[test]
fn six_strikes_close_the_socket_and_bar_the_name() {
    let mut desk = Desk::new();
    let mut strike_out = |bar: u64| {
        desk.ours(1);
        for _ in 0..6 {
            desk.submit_one();
            let first = desk.offer();
            desk.say(&first, failed());
            let second = desk.offer();
            desk.say(&second, failed());
        }
        let retry_after = secs(bar);
        assert_eq!(closes(&desk.take()), [CloseReason::Evicted { retry_after }]);
        desk.ours(1);
        assert_eq!(closes(&desk.take()), [CloseReason::Barred { retry_after }]);
        desk.wait(secs(bar));
    };
    for bar in [30, 120, 600] {
        strike_out(bar);
    }
}

#[test]
fn a_success_clears_failures_of_jobs_that_have_not_ended_yet() {
    let mut desk = Desk::new();
    desk.ours(1);
    let mut offers = Vec::new();
    for _ in 0..3 {
        desk.submit_one();
        offers.push(desk.offer());
    }
    desk.ours(2);
    for offer in &offers[..2] {
        desk.say(offer, failed());
    }
    let elsewhere = desk.offers();
    desk.wait(secs(1));
    desk.say(&offers[2], token(1)).say(&offers[2], done());
    desk.wait(secs(1));
    for offer in &elsewhere {
        desk.say(offer, token(1)).say(offer, done());
    }
    assert_eq!(desk.ends().len(), 3);
    assert_eq!(desk.dispatcher.census().records, 0);
}

#[test]
fn a_worker_that_is_barred_gives_its_other_jobs_to_others() {
    let mut desk = Desk::new();
    desk.ours(1);
    let kept = desk.submit_one();
    desk.take();
    for _ in 0..6 {
        desk.submit_one();
        for _ in 0..2 {
            let offer = desk.offer();
            desk.say(&offer, failed());
        }
    }
    desk.take();
    desk.ours(2);
    assert_eq!(desk.offer().job.id, kept);
}

#[test]
fn the_requests_own_fault_is_final_and_strikes_nobody() {
    let mut desk = Desk::new();
    desk.ours(1);
    for _ in 0..20 {
        desk.submit_one();
        let offer = desk.offer();
        desk.say(&offer, bad_request());
        assert_eq!(failure_kind(&desk.end()), Some(FailureKind::InvalidRequest));
    }
    assert_eq!(desk.dispatcher.census().sessions, 1);
}

#[test]
fn a_bad_request_ends_its_siblings() {
    let mut desk = Desk::new();
    desk.ours(1);
    let mut jobs: Vec<_> = (0..3).map(|_| desk.new_job()).collect();
    let request = jobs[0].request;
    for job in &mut jobs {
        job.request = request;
    }
    desk.submit_all(jobs);
    let offers = desk.offers();
    assert_eq!(offers.len(), 3);
    desk.say(&offers[1], bad_request()).wait(secs(1));
    let ends = desk.ends();
    assert_eq!(ends.len(), 3);
    let same =
        |(_, outcome): &(JobId, _)| failure_kind(outcome) == Some(FailureKind::InvalidRequest);
    assert!(ends.iter().all(same));
}

#[test]
fn lost_sockets_are_not_failures_and_have_their_own_cap() {
    let mut desk = Desk::new();
    let mut session = desk.public(1);
    desk.submit_one();
    for loss in 1..=5 {
        desk.lose(session);
        assert!(desk.ends().is_empty(), "loss {loss} is survived");
        session = desk.public(1);
    }
    desk.lose(session);
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::WorkerLost));
    assert_eq!(desk.dispatcher.census().records, 0, "and nobody is struck");
}

#[test]
fn an_empty_result_of_a_public_peer_is_a_failure_and_is_acked() {
    let mut desk = Desk::new();
    desk.public(1);
    desk.submit_one();
    let offer = desk.offer();
    let empty = Said::Event(Event::Done {
        finish: FinishReason::Stop,
        usage: Usage::default(),
    });
    desk.say(&offer, empty);
    let effects = desk.take();
    assert!(matches!(effects[0], Effect::Ack { reward, .. } if reward.0 == 0));
    assert!(matches!(effects[1], Effect::Offer(_)));
}

#[test]
fn an_image_that_is_not_there_is_a_failure_whatever_was_counted() {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, OURS);
    make_only(&mut registration, Kind::Image);
    desk.connect(registration);
    let mut job = desk.new_job();
    job.kind = Kind::Image;
    desk.submit(job);
    let offer = desk.offer();
    desk.say(&offer, done());
    let effects = desk.take();
    assert!(matches!(effects[0], Effect::Ack { reward, .. } if reward.0 == 0));
    let settled =
        |effect: &Effect| matches!(effect, Effect::Settle(facts) if is_delivered(&facts.outcome));
    assert!(!effects.iter().any(settled), "{effects:?}");
}

#[test]
fn a_refusal_goes_elsewhere_at_once_and_strikes_nobody() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.submit_one();
    let first = desk.offer();
    desk.ours(2);
    let busy = || Said::Busy {
        retry_after: secs(1),
    };
    desk.say(&first, busy());
    let second = desk.offer();
    assert_ne!(second.session, first.session);
    desk.say(&second, busy());
    assert!(desk.take().is_empty(), "both are backing off");
    desk.wait(secs(1));
    assert_eq!(desk.offers().len(), 1);
    assert_eq!(desk.dispatcher.census().records, 0);
}

#[test]
fn an_owner_who_takes_the_machine_back_hands_over_in_mid_stream() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.submit_one();
    let first = desk.offer();
    desk.say(&first, token(1));
    desk.ours(2);
    desk.say(
        &first,
        Said::Busy {
            retry_after: secs(30),
        },
    );
    let second = desk.offer();
    assert_eq!(second.prefill.unwrap().tokens, [1]);
}

#[test]
fn an_owner_who_comes_back_goes_on_where_nobody_else_can() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.submit_one();
    let first = desk.offer();
    desk.say(&first, token(1));
    desk.take();
    let retry_after = secs(30);
    desk.say(&first, Said::Busy { retry_after });
    assert!(desk.take().is_empty(), "its client waits");
    desk.wait(secs(31));
    let again = desk.offer();
    assert_eq!(again.prefill.unwrap().tokens, [1]);
}

#[test]
fn who_refuses_to_continue_is_asked_again_only_while_nobody_else_can_and_not_for_ever() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, token(1));
    desk.ours(2);
    desk.ours(3);
    desk.put(Input::Leaving {
        session: first,
        within: secs(1),
    })
    .lose(first);
    let mut asked = Vec::new();
    for _ in 0..6 {
        let offer = desk.offer();
        asked.push(offer.session.0);
        let retry_after = secs(1);
        desk.say(&offer, Said::Busy { retry_after });
        if asked.len() < 6 {
            desk.wait(secs(2));
        }
    }
    assert_ne!(asked[0], asked[1], "first the one that was not asked");
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::WorkerLost));
    desk.assert_nothing_left();
}

#[test]
fn a_silent_public_peer_is_closed_after_its_timer_and_any_frame_resets_it() {
    let mut desk = Desk::new();
    let session = desk.public(1);
    desk.submit_one();
    desk.take();
    desk.wait(secs(290))
        .put(Input::Heard { session })
        .wait(secs(290));
    assert!(desk.take().is_empty());
    desk.wait(secs(11));
    assert_eq!(closes(&desk.take()), [CloseReason::Silent]);
    assert_eq!(desk.dispatcher.census().queued, 1);
}

#[test]
fn a_leased_job_falls_silent_in_three_beats() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let silent = desk.offer();
    desk.ours(2);
    for _ in 0..3 {
        desk.wait(secs(5)).put(Input::Heard { session });
    }
    let again = desk.offer();
    assert_ne!(
        again.session, silent.session,
        "the worker talks, but not about this job"
    );
    desk.wait(secs(16));
    assert_eq!(
        closes(&desk.take()),
        [CloseReason::Silent],
        "the other says nothing at all"
    );
}

#[test]
fn a_coordinator_that_slept_blames_nobody() {
    for pause in [15, 16, 17, 19, 20, 21, 29, 120] {
        let mut desk = Desk::new();
        desk.ours(1);
        desk.submit_one();
        let offer = desk.offer();
        desk.say(&offer, token(1)).take();
        desk.wait(secs(1));
        // A pause, and another one before any frame is read.
        for _ in 0..2 {
            desk.pass(secs(pause));
            desk.put(Input::Tick);
        }
        assert!(desk.take().is_empty(), "after {pause} s");
        desk.say(&offer, token(2)).say(&offer, done());
        assert!(is_delivered(&desk.end()), "after {pause} s");
    }
}

#[test]
fn media_failures_are_retried_but_do_not_strike() {
    let mut desk = Desk::new();
    for _ in 0..10 {
        let mut registration = desk.registration(1, OURS);
        make_only(&mut registration, Kind::Image);
        desk.connect(registration);
        let mut job = desk.new_job();
        job.kind = Kind::Image;
        desk.submit(job);
        for _ in 0..2 {
            let offer = desk.offer();
            desk.say(&offer, failed());
        }
    }
    assert_eq!(desk.dispatcher.census().records, 0);
}

#[test]
fn an_output_that_no_client_has_seen_is_made_anew_elsewhere() {
    let mut desk = Desk::new();
    let first = desk.public(1);
    let mut job = desk.new_job();
    job.limits.restartable = true;
    desk.submit(job);
    let offer = desk.offer();
    desk.say(&offer, token(7));
    desk.public(2);
    desk.take();
    desk.lose(first);
    let effects = desk.take();
    let restarts = effects.iter().filter(|effect| {
        let event = Event::Restarted;
        matches!(effect, Effect::Relay { event: found, .. } if *found == event)
    });
    assert_eq!(restarts.count(), 1);
    let again = effects.iter().find_map(|effect| match effect {
        Effect::Offer(offer) => Some(offer.clone()),
        _ => None,
    });
    let again = again.unwrap();
    assert!(again.prefill.is_none());
    desk.say(&again, token(1)).say(&again, done());
    let effects = desk.take();
    let facts = effects.iter().find_map(|effect| match effect {
        Effect::Settle(facts) => Some(facts),
        _ => None,
    });
    let workers: Vec<i64> = facts
        .unwrap()
        .parts
        .iter()
        .map(|part| part.worker.0)
        .collect();
    assert_eq!(workers, [2], "what was thrown away earns nothing");
}

#[test]
fn an_output_is_not_made_anew_for_ever() {
    let mut desk = Desk::new();
    let mut job = desk.new_job();
    job.limits.restartable = true;
    let mut session = desk.public(1);
    desk.submit(job);
    let mut attempts = 0;
    loop {
        let effects = desk.take();
        let offer = effects.iter().find_map(|effect| match effect {
            Effect::Offer(offer) => Some(offer.clone()),
            _ => None,
        });
        let Some(offer) = offer else {
            let ended = effects.into_iter().find_map(|effect| match effect {
                Effect::End { outcome, .. } => Some(outcome),
                _ => None,
            });
            assert_eq!(failure_kind(&ended.unwrap()), Some(FailureKind::WorkerLost));
            break;
        };
        attempts += 1;
        desk.say(&offer, token(7));
        let next = desk.registration(1 + attempts, super::PUBLIC);
        let before = std::mem::replace(&mut session, next.session);
        desk.connect(next);
        desk.lose(before);
    }
    assert_eq!(attempts, 6);
}
