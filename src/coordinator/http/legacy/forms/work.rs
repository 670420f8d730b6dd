//! `pop` and `submit` of forms.

use std::slice::from_ref;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::super::body::read;
use super::super::images::{give_back, key_of};
use super::super::moderation::Door;
use super::super::rigs::door::{self, Untold};
use super::super::submit::not_taken;
use super::LINKS;
use super::offered::{ask, leave_out_images};
use crate::dispatch::{Offer, Skip, Skipped, Wants};
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::media::{Key, Media};
use crate::modes::Modes;
use crate::pictures::{Results, Unfit};
use crate::pollers::{Ask, Badge, Given, Made, NotTaken, Pollers};
use crate::requests::results::is_uploaded;
use muster_protocol::job::drawn::{Drawn, most_bytes};
use muster_protocol::job::{Body as JobBody, JobId, Kind, Product};
use muster_protocol::legacy::interrogation::{
    Form, InterrogationPopFormPayload, InterrogationPopPayload, InterrogationSubmitInput,
    NoValidInterrogationsFound,
};
use muster_protocol::legacy::pop::InterrogationPopInput;
use muster_protocol::legacy::submit::GenerationSubmitted;
use muster_protocol::legacy::words::{SubmitState, Word, named};
use muster_protocol::legacy::worker::kept_name;
use muster_protocol::legacy::{Body, Code, Refusal};

/// Forms one worker takes at once.
const MOST: i64 = 100;

/// `POST /api/v2/interrogate/pop`
pub async fn pop(
    State(pollers): State<Pollers>,
    State(media): State<Media>,
    State(modes): State<Modes>,
    door: Door,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = InterrogationPopInput::parse(&whole?.bytes)?;
    let prefers = door::preferred(asked.priority_usernames.as_deref());
    // The public service names no reason here.
    let prefers = prefers.map_err(|wrong| Refusal::new(Code::BadRequest, wrong.to_string()))?;
    door::may_pop(&caller)?;
    door.keep_out_blocked()?;
    let name = kept_name(&asked.name);
    let amount = asked.amount.clamp(1, MOST);
    let wants = Wants {
        // The forms of one pop may belong to different requests.
        scattered: true,
        own_only: door::is_kept_back(&door, &caller, &modes).await?,
        ..Wants::most(u32::try_from(amount).unwrap_or(1))
    };
    let mut ask = Ask {
        prefers,
        ..ask(&asked, &name)
    };
    if !media.has_room() {
        leave_out_images(&mut ask.models);
    }
    ask.said.address = door.address.to_string();
    let worker = ask.name.clone();
    let given = pollers.pop(&caller, ask, wants).await;
    let mut given = given.map_err(|not| door::not_served(not, &name))?;
    door.moderation.whereabouts().note(&worker, door.address);
    let forms = payloads(&mut given, &media, &pollers).await?;
    let answer = match forms.is_empty() {
        true => InterrogationPopPayload {
            forms: None,
            skipped: reasons(&given.skipped),
        },
        false => InterrogationPopPayload {
            forms: Some(forms),
            skipped: NoValidInterrogationsFound::default(),
        },
    };
    given.offers.keep();
    Ok(reply::json(StatusCode::OK, &answer))
}

/// The payloads of the popped forms. A form whose source image gets no link returns to the queue; if no form is left,
/// the pop is refused.
async fn payloads(
    given: &mut Given,
    media: &Media,
    pollers: &Pollers,
) -> Result<Vec<InterrogationPopFormPayload>, Refusal> {
    let offers = &mut given.offers;
    let mut forms = Vec::with_capacity(offers.len());
    let mut unlinked = Vec::new();
    for offer in offers.iter() {
        match payload(offer, &given.badge, media).await {
            Ok(form) => forms.push(form),
            Err(Untold::NoStore) => unlinked.push(offer.job.id),
            Err(why) => door::take_back(pollers, from_ref(offer), why).await?,
        }
    }
    if forms.is_empty() && !unlinked.is_empty() {
        door::take_back(pollers, offers, Untold::NoStore).await?;
    }
    offers.retain(|offer| !unlinked.contains(&offer.job.id));
    Ok(forms)
}

async fn payload(
    offer: &Offer,
    badge: &Badge,
    media: &Media,
) -> Result<InterrogationPopFormPayload, Untold> {
    let JobBody::Form(request) = &offer.job.body else {
        return Err(Untold::Unreadable);
    };
    let form: Form = named(&request.form).ok_or(Untold::Unreadable)?;
    let source_image = match request.image.parse() {
        Ok(key) => media.download_link(key, LINKS).await?,
        // A URL, not a key of the media store: the worker downloads the image from there.
        Err(_) => request.image.clone(),
    };
    let id = badge.id_of(offer);
    let r2_upload = match form.makes_image() {
        true => {
            let link = media.upload_link_up_to(most_bytes(&offer.job), key_of(id), LINKS);
            Some(link.await?)
        }
        false => None,
    };
    Ok(InterrogationPopFormPayload {
        id,
        form,
        source_image,
        payload: request.payload.clone(),
        r2_upload,
    })
}

fn reasons(skipped: &Skipped) -> NoValidInterrogationsFound {
    let count = |skip| skipped.get(&skip).map(|count| *count as u64);
    NoValidInterrogationsFound {
        worker_id: count(Skip::Workers),
        untrusted: count(Skip::Untrusted),
        bridge_version: count(Skip::Ability),
    }
}

/// `POST /api/v2/interrogate/submit`
pub async fn submit(
    State(pollers): State<Pollers>,
    State(results): State<Results>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let (brought, _room) = read::<InterrogationSubmitInput>(whole)?;
    let job = brought.id.parse().map(JobId);
    let job = job.map_err(|_| Refusal::unknown_job(&brought.id))?;
    let attempt = pollers.attempt(caller.account, job, Kind::Form).await;
    let attempt = attempt.map_err(|not| not_heard(not, job))?;
    let made = match brought.state == SubmitState::Faulted.word() {
        true => Made::Fault,
        false => {
            let key = key_of(attempt.id);
            let image = match image_of(&brought.result, &results, key, attempt.drawn).await {
                Ok(image) => image,
                Err(unfit) => {
                    let refusal = give_back(&pollers, caller.account, attempt, unfit).await;
                    return Err(refusal.into());
                }
            };
            let image = image.map(|key| key.to_string()).unwrap_or_default();
            Made::Brought {
                product: Product::answer(&brought.result, &image),
                hidden: None,
            }
        }
    };
    let reward = pollers.bring_alone(caller.account, attempt, made).await;
    let reward = reward.map_err(|not| not_heard(not, job))?;
    let answer = GenerationSubmitted {
        reward: reward.0 as f64 / 1000.0,
    };
    Ok(reply::json(StatusCode::OK, &answer))
}

/// The image of a submit, if the worker says that it uploaded one.
async fn image_of(
    result: &Value,
    results: &Results,
    key: Key,
    drawn: Drawn,
) -> Result<Option<Key>, Unfit> {
    match is_uploaded(result) {
        true => {
            results.take_in(key, drawn).await?;
            Ok(Some(key))
        }
        false => Ok(None),
    }
}

/// Form workers know a single error for every refused submit.
fn not_heard(not: NotTaken, job: JobId) -> Refusal {
    match not {
        NotTaken::TakenAway => not_taken(NotTaken::Already, job),
        not => not_taken(not, job),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Drawn, JobId, image_of};
    use crate::media::bucket_tests::{HOUR, bucket, key, put};
    use crate::pictures::tests::written;
    use crate::pictures::{Pictures, Results, Unfit};
    use muster_process::tasks::Tasks;
    use muster_reader::Reader;

    const DRAWN: Drawn = Drawn {
        pixels: 64 * 64,
        least: (32, 32),
        may_be_turned: true,
    };

    #[tokio::test]
    async fn an_image_that_was_made_anew_is_taken_in_when_its_worker_says_that_it_is_there() {
        let tasks = Tasks::default();
        let (media, key) = (bucket(HOUR, &tasks).await, key());
        let link = media.upload_link(key, HOUR).await.unwrap();
        let webp = written(image::ImageFormat::WebP, 40, 32, 255);
        assert!(put(&link, &webp).await.contains("200"));
        let results = Results::new(Pictures::drawn(), media.clone(), Reader::here());
        let caption = json!({"caption": "a cat"});
        let none = image_of(&caption, &results, key, DRAWN).await;
        assert!(matches!(none, Ok(None)));
        for result in [json!({"GFPGAN": "R2"}), json!("R2")] {
            let image = image_of(&result, &results, key, DRAWN).await;
            assert!(matches!(image, Ok(Some(found)) if found == key));
        }
        assert_eq!(media.get(key).await.unwrap().as_deref(), Some(&*webp));
    }

    #[tokio::test]
    async fn what_is_no_image_is_refused() {
        let tasks = Tasks::default();
        let (media, key) = (bucket(HOUR, &tasks).await, key());
        let link = media.upload_link(key, HOUR).await.unwrap();
        assert!(put(&link, b"<svg/>").await.contains("200"));
        let results = Results::new(Pictures::drawn(), media, Reader::here());
        let image = image_of(&json!("R2"), &results, key, DRAWN).await;
        assert!(matches!(image, Err(Unfit::Refused(_))), "{image:?}");
        let nothing = image_of(
            &json!("R2"),
            &results,
            super::key_of(JobId::random()),
            DRAWN,
        )
        .await;
        assert!(matches!(nothing, Err(Unfit::Missing)), "{nothing:?}");
    }
}
