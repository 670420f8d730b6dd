//! Settings that a client leaves out come from the model of the worker that gets its job.

use std::sync::Arc;

use super::{Desk, OURS, make_only, secs};
use crate::dispatch::{Effect, Facts, Input, Offer, Said, SessionId};
use muster_protocol::job::{
    Body, Clip, Event, FinishReason, Formats, ImageRequest, Job, JobPrice, Kind, MicroUsd, Usage,
    VideoRequest,
};

const SMALL: ((u32, u32), Clip) = ((64, 64), Clip { fps: 8, frames: 16 });

fn stored(desk: &mut Desk, kind: Kind, body: Body) -> Job {
    let mut job = desk.new_job();
    job.limits = body.limits();
    job.limits.formats = Formats::NEUTRAL;
    Job {
        kind,
        body,
        durable: true,
        ..job
    }
}

fn films(desk: &mut Desk, worker: i64, (size, clip): ((u32, u32), Clip)) -> SessionId {
    let mut registration = desk.registration(worker, OURS);
    make_only(&mut registration, Kind::Video);
    registration.models[0].offering.size = Some(size);
    registration.models[0].offering.clip = Some(clip);
    desk.connect(registration)
}

fn video(offer: &Offer) -> (u32, u32, f64, u32) {
    match &offer.job.body {
        Body::Video(video) => (video.width, video.height, video.seconds, video.fps),
        other => panic!("{other:?}"),
    }
}

fn settled(effects: Vec<Effect>) -> Box<Facts> {
    let facts = effects.into_iter().find_map(|effect| match effect {
        Effect::Settle(facts) => Some(facts),
        _ => None,
    });
    facts.unwrap()
}

#[test]
fn a_video_asked_for_while_its_worker_is_away_has_the_size_of_the_model() {
    let mut desk = Desk::new();
    let mut job = stored(&mut desk, Kind::Video, VideoRequest::default().into());
    job.price = Some(JobPrice {
        fixed: MicroUsd(100),
        held: MicroUsd(100),
        ..JobPrice::default()
    });
    let id = desk.submit(job);
    films(&mut desk, 1, SMALL);
    let offer = desk.offer();
    assert_eq!(video(&offer), (64, 64, 2.0, 8));
    let media = Event::Media(Default::default());
    desk.say(&offer, Said::Event(media));
    let done = Event::Done {
        finish: FinishReason::Stop,
        usage: Usage::default(),
    };
    desk.say(&offer, Said::Event(done));
    let facts = settled(desk.take());
    assert_eq!(facts.job.id, id);
    assert_eq!(facts.job.size(), 64 * 64 * 16);
    let price = facts.job.price.unwrap();
    assert_eq!((price.fixed, price.held), (MicroUsd(20), MicroUsd(100)));
    desk.assert_nothing_left();
    assert!(!desk.dispatcher.demands.models(Kind::Video).any(|_| true));
}

#[test]
fn the_next_worker_decides_anew() {
    let mut desk = Desk::new();
    let session = films(&mut desk, 1, SMALL);
    let job = stored(&mut desk, Kind::Video, VideoRequest::default().into());
    desk.submit(job);
    assert_eq!(video(&desk.offer()), (64, 64, 2.0, 8));
    desk.put(Input::Leaving {
        session,
        within: secs(1),
    });
    desk.lose(session);
    let clip = Clip {
        fps: 10,
        frames: 30,
    };
    films(&mut desk, 2, ((128, 64), clip));
    assert_eq!(video(&desk.offer()), (128, 64, 3.0, 10));
}

#[test]
fn what_the_client_has_set_is_the_same_job_for_every_worker() {
    let mut desk = Desk::new();
    films(&mut desk, 1, SMALL);
    let set = VideoRequest {
        width: 256,
        height: 256,
        seconds: 1.0,
        fps: 16,
        ..VideoRequest::default()
    };
    let job = Arc::new(stored(&mut desk, Kind::Video, set.into()));
    desk.submit(Job::clone(&job));
    assert_eq!(desk.offer().job, job);
}

#[test]
fn an_image_without_a_size_has_that_of_the_model_and_fits_every_worker() {
    for (size, most, expected) in [
        (Some((320, 192)), u32::MAX, (320, 192)),
        (None, u32::MAX, (1024, 1024)),
        (None, 512 * 512, (512, 512)),
    ] {
        let mut desk = Desk::new();
        let mut job = stored(&mut desk, Kind::Image, ImageRequest::default().into());
        job.limits.needs = muster_protocol::job::Needs::Media(Default::default());
        desk.submit(job);
        let mut registration = desk.registration(1, OURS);
        make_only(&mut registration, Kind::Image);
        registration.models[0].offering.size = size;
        registration.models[0].offering.reach.media.pixels = most;
        desk.connect(registration);
        let offer = desk.offer();
        let image = offer.job.body.image().unwrap();
        assert_eq!((image.width, image.height), expected);
    }
}
