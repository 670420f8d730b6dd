//! Accounts share the workers of media like those of texts.

use super::{Desk, OURS, Store, done, finished_image, make_only, secs};
use crate::dispatch::{Effect, Input, Limits, Refusal, Said, Settings};
use muster_protocol::job::{
    AccountId, Body, Event, ImageRequest, Job, Kind, MusicRequest, ResultPart,
    TranscriptionRequest, VideoRequest,
};

const ALICE: AccountId = AccountId(1);
const BOB: AccountId = AccountId(2);

/// A request of each kind.
fn bodies() -> [Body; 4] {
    let transcript = TranscriptionRequest {
        sound: "a".to_owned(),
        seconds: 60.0,
        ..TranscriptionRequest::default()
    };
    [
        ImageRequest::default().into(),
        VideoRequest::default().into(),
        MusicRequest::default().into(),
        transcript.into(),
    ]
}

fn job_of(desk: &mut Desk, account: AccountId, body: &Body) -> Job {
    let mut job = desk.new_job();
    job.limits.restartable = true;
    Job {
        account,
        kind: body.kind(),
        body: body.clone(),
        durable: true,
        ..job
    }
}

fn output(kind: Kind) -> Said {
    match kind {
        Kind::Transcription => Said::Event(Event::Part(Box::new(ResultPart::Transcript(
            Box::default(),
        )))),
        _ => finished_image(),
    }
}

#[test]
fn five_hundred_queued_media_of_one_account_starve_no_other() {
    for body in bodies() {
        let mut desk = Desk::new();
        let kind = body.kind();
        let alices: Vec<Job> = (0..500).map(|_| job_of(&mut desk, ALICE, &body)).collect();
        for job in alices {
            desk.submit(job);
        }
        let mut registration = desk.registration(1, OURS);
        registration.models[0].slots = 1;
        make_only(&mut registration, kind);
        desk.connect(registration);
        let mut offer = desk.offer();
        let bobs = job_of(&mut desk, BOB, &body);
        desk.pass(secs(5));
        desk.submit(bobs);
        let mut before = 0;
        while offer.job.account == ALICE {
            before += 1;
            desk.pass(secs(10));
            desk.say(&offer, output(kind)).say(&offer, done());
            offer = desk.offer();
        }
        // The running one, and one that was next when it started.
        assert!(before <= 2, "{before} of {kind:?}");
    }
}

fn refusals(effects: Vec<Effect>) -> Vec<Refusal> {
    let refusals = effects.into_iter().filter_map(|effect| match effect {
        Effect::Refused { refusal, .. } => Some(refusal),
        _ => None,
    });
    refusals.collect()
}

#[test]
fn an_account_has_so_many_open_media_and_another_is_served() {
    let mut desk = Desk::with(Settings {
        media_limit: Some(4),
        ..Settings::default()
    });
    let [image, video, ..] = bodies();
    let four = |desk: &mut Desk, account, body: &Body| {
        let jobs = (0..4).map(|_| job_of(desk, account, body)).collect();
        desk.submit_all(jobs);
    };
    four(&mut desk, ALICE, &image);
    desk.take();
    let more = job_of(&mut desk, ALICE, &video);
    desk.submit(more.clone());
    let refused = refusals(desk.take());
    assert!(
        matches!(
            refused[..],
            [Refusal::InFlight {
                open: 4,
                most: 4,
                ..
            }]
        ),
        "{refused:?}"
    );
    four(&mut desk, BOB, &video);
    desk.submit_one();
    let waits = |refusal: &Refusal| matches!(refusal, Refusal::InFlight { .. });
    assert!(
        !refusals(desk.take()).iter().any(waits),
        "texts are counted elsewhere"
    );
    // A finished job makes room for the next.
    desk.store = Some(Store::Settles);
    let mut registration = desk.registration(1, OURS);
    make_only(&mut registration, Kind::Image);
    desk.connect(registration);
    let offer = desk.offers().remove(0);
    desk.say(&offer, finished_image()).say(&offer, done());
    desk.take();
    desk.submit(more.clone());
    assert_eq!(refusals(desk.take()), []);
    desk.put(Input::Limits(Limits {
        media: None,
        ..desk.dispatcher.settings.limits()
    }));
    let unlimited = job_of(&mut desk, ALICE, &video);
    desk.submit(unlimited);
    assert_eq!(refusals(desk.take()), []);
}
