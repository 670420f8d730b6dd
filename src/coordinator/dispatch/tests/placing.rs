//! Placement.

use std::sync::Arc;

use super::{Desk, OURS, done, secs, token};
use crate::dispatch::{
    Effect, Input, Missing, ModelReport, Offering, Refusal, Report, ServedModel, SessionId,
};
use muster_protocol::job::{
    AccountId, Capabilities, Formats, ImageRequest, Job, Kind, MediaNeeds, MemoryStay, ModelChoice,
    Needs, Privacy, Reach,
};

fn refusal(desk: &mut Desk, change: impl FnOnce(&mut Job)) -> Option<Missing> {
    let mut job = desk.new_job();
    change(&mut job);
    desk.take();
    desk.submit(job);
    desk.take().into_iter().find_map(|effect| match effect {
        Effect::Refused {
            refusal: Refusal::Unserved { missing, .. },
            ..
        } => Some(missing),
        _ => None,
    })
}

#[test]
fn what_nobody_can_serve_is_refused_at_the_door_with_the_reason() {
    let mut desk = Desk::new();
    desk.ours(1);
    let other: ModelChoice = ModelChoice(vec!["big".into()]);
    let missing = refusal(&mut desk, |job| job.model = other.clone());
    assert_eq!(missing, Some(Missing::Model(other.0)));
    let missing = refusal(&mut desk, |job| job.kind = Kind::Video);
    assert_eq!(missing, Some(Missing::Kind(Kind::Video)));
    let missing = refusal(&mut desk, |job| job.limits.formats = Formats::ANTHROPIC);
    assert_eq!(missing, Some(Missing::Format(Formats::ANTHROPIC)));
    let wanted = Capabilities::TOOLS.with(Capabilities::CONTINUE);
    let missing = refusal(&mut desk, |job| job.limits.requires = wanted);
    assert_eq!(missing, Some(Missing::Capability(Capabilities::TOOLS)));
    let missing = refusal(&mut desk, |job| job.limits.prompt_tokens = 9000);
    let too_long = Missing::Context {
        wanted: 9001,
        longest: 8192,
    };
    assert_eq!(missing, Some(too_long));
    let missing = refusal(&mut desk, |job| job.privacy = Privacy::Trusted);
    assert_eq!(missing, Some(Missing::Trust));
    let missing = refusal(&mut desk, |job| job.privacy = Privacy::OwnWorkers);
    assert_eq!(missing, Some(Missing::Trust));
    let own = |job: &mut Job| {
        job.account = AccountId(101);
        job.privacy = Privacy::OwnWorkers;
    };
    assert_eq!(refusal(&mut desk, own), None);
}

#[test]
fn a_refusal_says_what_is_online() {
    let mut desk = Desk::new();
    desk.ours(1);
    let mut job = desk.new_job();
    job.model = ModelChoice(vec!["big".into()]);
    let refusal = desk.dispatcher.feasible(&job).unwrap_err();
    assert_eq!(refusal.to_string(), "no worker serves big; online: tiny");
}

#[test]
fn the_least_loaded_worker_is_chosen() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.ours(2);
    for _ in 0..8 {
        desk.submit_one();
    }
    let offers = desk.offers();
    let of = |session| {
        offers
            .iter()
            .filter(|offer| offer.session == SessionId(session))
            .count()
    };
    assert_eq!((of(1), of(2)), (4, 4));
}

#[test]
fn a_faster_worker_is_chosen_first() {
    let mut desk = Desk::new();
    let slow = desk.ours(1);
    let fast = desk.ours(2);
    for (session, speed) in [(slow, 5.0), (fast, 200.0)] {
        desk.put(Input::Report(Report {
            session,
            models: vec![ModelReport {
                name: "tiny".into(),
                ready: true,
                slots: None,
                waiting: 0,
                prefill_per_second: None,
                decode_per_second: Some(speed),
                stay: MemoryStay::default(),
                paused_until: None,
            }],
        }));
    }
    desk.submit_one();
    desk.submit_one();
    assert!(desk.offers().iter().all(|offer| offer.session == fast));
}

#[test]
fn a_request_is_refused_while_all_owners_have_their_machines_back() {
    let mut desk = Desk::new();
    let sessions = [desk.ours(1), desk.ours(2)];
    let report = |session, paused_until: Option<i64>| {
        Input::Report(Report {
            session,
            models: vec![ModelReport {
                name: "tiny".into(),
                ready: paused_until.is_none(),
                slots: Some(2),
                waiting: 0,
                prefill_per_second: None,
                decode_per_second: None,
                stay: MemoryStay::default(),
                paused_until,
            }],
        })
    };
    desk.put(report(sessions[0], Some(0)));
    desk.submit_one();
    assert_eq!(desk.offers().len(), 1);
    let soon = desk.now.wall.0 / 1000 + 90;
    desk.put(report(sessions[1], Some(soon)));
    desk.take();
    desk.submit_one();
    let refusal = desk.take().into_iter().find_map(|effect| match effect {
        Effect::Refused { refusal, .. } => Some(refusal),
        _ => None,
    });
    let refusal = refusal.unwrap();
    let text = refusal.to_string();
    assert!(text.contains("paused by their owners"), "{text}");
    assert_eq!(
        refusal.wait().map(|wait| wait.as_secs()),
        Some(90),
        "{text}"
    );
    // Durable jobs wait.
    let durable = Job {
        durable: true,
        ..desk.new_job()
    };
    desk.submit(durable);
    assert!(desk.offers().is_empty());
    desk.put(report(sessions[1], None));
    assert_eq!(desk.offers().len(), 1);
}

#[test]
fn a_model_that_is_not_ready_gets_nothing_until_it_is() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    let report = |ready| {
        Input::Report(Report {
            session,
            models: vec![ModelReport {
                name: "tiny".into(),
                ready,
                slots: Some(2),
                waiting: 0,
                prefill_per_second: None,
                decode_per_second: None,
                stay: MemoryStay::default(),
                paused_until: None,
            }],
        })
    };
    desk.put(report(false));
    for _ in 0..3 {
        desk.submit_one();
    }
    assert!(desk.offers().is_empty());
    desk.put(report(true));
    assert_eq!(
        desk.offers().len(),
        2,
        "and never more than it has slots for"
    );
}

#[test]
fn a_prompt_seen_before_goes_where_it_was_seen() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.ours(2);
    let mut warm = None;
    for round in 0..6 {
        let mut job = desk.new_job();
        job.prefixes = vec![11, 12 + round % 2];
        desk.submit(job);
        let offer = desk.offer();
        assert_eq!(*warm.get_or_insert(offer.session), offer.session);
        desk.say(&offer, token(1)).say(&offer, done());
        desk.submit_one();
        let other = desk.offer();
        desk.say(&other, token(1)).say(&other, done());
    }
}

#[test]
fn the_most_wanted_model_the_worker_has_is_named() {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, OURS);
    registration.models.push(ServedModel {
        name: "big".into(),
        slots: 1,
        offering: Offering::text(8192),
    });
    desk.connect(registration);
    for expected in ["big", "tiny"] {
        let mut job = desk.new_job();
        job.model = ModelChoice(vec!["huge".into(), "big".into(), "tiny".into()]);
        desk.submit(job);
        assert_eq!(&*desk.offer().model, expected);
    }
}

#[test]
fn a_text_for_any_model_goes_to_one_that_writes_beside_one_that_hears() {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, OURS);
    let heard = 720_000;
    registration.reach = Reach::ENDLESS.with_context(heard);
    registration.models.push(ServedModel {
        name: "hears".into(),
        slots: 1,
        offering: Offering {
            kinds: Kind::Transcription.into(),
            ..Offering::text(heard)
        },
    });
    desk.connect(registration);
    let mut job = desk.new_job();
    job.model = ModelChoice(Vec::new());
    desk.submit(job);
    assert_eq!(&*desk.offer().model, "tiny");
}

#[test]
fn jobs_move_on_when_the_only_worker_of_their_kind_leaves() {
    let mut desk = Desk::new();
    let mut long = desk.registration(1, OURS);
    (long.models[0].offering, long.slots) = (Offering::text(32_768), 1);
    let long = desk.connect(long);
    let mut job = desk.new_job();
    job.limits.prompt_tokens = 5000;
    desk.submit(job.clone());
    desk.take();
    job.id = muster_protocol::job::JobId(uuid::Uuid::from_u128(77));
    desk.submit(job);
    let middle = desk.ours(2);
    assert!(
        desk.offers().is_empty(),
        "it waits where only the longest context will do"
    );
    desk.lose(long);
    assert_eq!(desk.offer().session, middle);
}

#[test]
fn a_group_is_taken_or_refused_as_one() {
    let mut desk = Desk::new();
    desk.ours(1);
    let first = desk.new_job();
    let jobs = vec![first.clone(), desk.new_job(), first.clone()];
    desk.submit_all(jobs);
    assert_eq!(desk.dispatcher.census().jobs, 0);
    desk.submit_all(vec![first.clone()]);
    desk.submit_all(vec![first.clone()]);
    let refused = |effect: &Effect| {
        matches!(
            effect,
            Effect::Refused {
                refusal: Refusal::Duplicate,
                ..
            }
        )
    };
    assert_eq!(
        desk.take().iter().filter(|effect| refused(effect)).count(),
        2
    );
    assert_eq!(desk.dispatcher.census().jobs, 1);
}

#[test]
fn a_full_queue_says_so() {
    let settings = crate::dispatch::Settings {
        queue_limit: 2,
        ..Default::default()
    };
    let mut desk = Desk::with(settings);
    desk.ours(1);
    for _ in 0..7 {
        desk.submit_one();
    }
    let full = |effect: &Effect| {
        matches!(
            effect,
            Effect::Refused {
                refusal: Refusal::QueueFull { waiting: 2, .. },
                ..
            }
        )
    };
    assert_eq!(desk.take().iter().filter(|effect| full(effect)).count(), 1);
}

#[test]
fn who_has_no_key_leaves_half_of_the_queue_to_those_who_have_one() {
    let settings = crate::dispatch::Settings {
        queue_limit: 4,
        keyless: Some(AccountId(0)),
        ..Default::default()
    };
    let mut desk = Desk::with(settings);
    let poller = desk.poller(1);
    let ask = |desk: &mut Desk, account| {
        let mut job = desk.stored_job();
        job.account = AccountId(account);
        desk.submit(job);
        let refused = desk.take().into_iter().find_map(|effect| match effect {
            Effect::Refused { refusal, .. } => Some(refusal),
            _ => None,
        });
        match refused {
            None => None,
            Some(Refusal::QueueFull { waiting, .. }) => Some(waiting),
            Some(refusal) => panic!("expected a full queue, found {refusal}"),
        }
    };
    assert_eq!(
        [0, 0, 0].map(|it| ask(&mut desk, it)),
        [None, None, Some(2)]
    );
    assert_eq!(
        [7, 7, 7].map(|it| ask(&mut desk, it)),
        [None, None, Some(4)]
    );
    // Leased jobs are not in the queue.
    assert_eq!(desk.pop(poller, 1)[0].job.account, AccountId(0));
    assert_eq!([0, 0].map(|it| ask(&mut desk, it)), [None, Some(2)]);
}

#[test]
fn unused_lanes_are_forgotten() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, token(1)).say(&offer, done());
    assert_eq!(desk.dispatcher.census().lanes, 1);
    desk.wait(secs(601));
    assert_eq!(desk.dispatcher.census().lanes, 0);
    desk.lose(session);
    assert_eq!(desk.dispatcher.census(), Default::default());
}

/// A worker with two image models of different limits.
fn drawing(desk: &mut Desk) -> SessionId {
    let mut registration = desk.registration(1, OURS);
    registration.kinds = Kind::Image.into();
    let model = |name: &str, pixels, steps| ServedModel {
        name: name.into(),
        slots: 1,
        offering: Offering::of(
            Kind::Image.into(),
            Reach {
                media: MediaNeeds {
                    pixels,
                    steps,
                    ..MediaNeeds::ENDLESS
                },
                ..Reach::ENDLESS
            },
        ),
    };
    registration.models = vec![
        model("small", 512 * 512, 50),
        model("large", 1024 * 1024, 20),
    ];
    desk.connect(registration)
}

fn image(desk: &mut Desk, models: &[&str], pixels: u32, steps: u32) -> Job {
    let mut job = desk.new_job();
    job.kind = Kind::Image;
    job.body = ImageRequest::default().into();
    job.model = ModelChoice(models.iter().map(|name| Arc::from(*name)).collect());
    job.limits.needs = Needs::Media(MediaNeeds {
        pixels,
        steps,
        ..MediaNeeds::default()
    });
    job
}

#[test]
fn an_image_goes_to_a_model_that_takes_its_size() {
    let mut desk = Desk::new();
    drawing(&mut desk);
    let job = image(&mut desk, &["small", "large"], 768 * 768, 10);
    desk.submit(job);
    assert_eq!(&*desk.offer().model, "large");
    let job = image(&mut desk, &["small"], 512 * 512, 50);
    desk.submit(job);
    assert_eq!(&*desk.offer().model, "small");
}

#[test]
fn more_than_any_worker_takes_of_a_model_is_refused_with_the_limit() {
    let mut desk = Desk::new();
    drawing(&mut desk);
    let refusal = |desk: &mut Desk, model, pixels, steps| {
        let job = image(desk, &[model], pixels, steps);
        desk.submit(job);
        let refused = desk.take().into_iter().find_map(|effect| match effect {
            Effect::Refused { refusal, .. } => Some(refusal.to_string()),
            _ => None,
        });
        refused.unwrap()
    };
    let text = refusal(&mut desk, "small", 512 * 513, 50);
    assert!(text.contains("262656 pixels (at most 262144)"), "{text}");
    assert!(!text.contains("steps"), "{text}");
    let text = refusal(&mut desk, "large", 512 * 512, 21);
    assert!(text.contains("21 steps (at most 20)"), "{text}");
}

#[test]
fn in_a_pause_no_worker_is_given_a_job_and_afterwards_all_that_wait() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let running = desk.offer();
    desk.put(Input::Pause);
    let waiting = [desk.submit_one(), desk.submit_one()];
    desk.ours(2);
    desk.put(Input::Tick);
    assert!(desk.offers().is_empty());
    // A running job goes on to its end.
    desk.say(&running, token(1));
    desk.say(&running, done());
    assert!(desk.offers().is_empty());
    desk.put(Input::Resume);
    let offered: Vec<_> = desk.offers().iter().map(|offer| offer.job.id).collect();
    assert!(waiting.iter().all(|job| offered.contains(job)));
    assert_eq!(desk.worker_of(session), 1);
}
