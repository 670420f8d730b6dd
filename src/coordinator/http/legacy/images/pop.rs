//! `POST /api/v2/generate/pop`: the next image jobs for a worker.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::super::moderation::Door;
use super::super::rigs::door;
use super::super::rigs::messages::popped;
use super::super::service::{SPECIAL, is_known};
use super::payload::Ways;
use crate::accounts::Caller;
use crate::dispatch::{Skip, Skipped, Wants, Words};
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::media::Media;
use crate::messages::Messages;
use crate::modes::Modes;
use crate::pollers::{Ask, Pollers};
use crate::state::DoorSettings;
use crate::storage::Said;
use crate::values::Roles;
use muster_protocol::job::{Capabilities, Kind, MediaNeeds, Reach};
use muster_protocol::legacy::agent::BridgeAgent;
use muster_protocol::legacy::image::payload::{GenerationPayloadImage, NoValidRequestFoundImage};
use muster_protocol::legacy::image::reference;
use muster_protocol::legacy::pop::PopInputImage;
use muster_protocol::legacy::worker::kept_name;
use muster_protocol::legacy::{Body, Refusal, work};

/// Models one worker may offer.
const MOST_MODELS: usize = 300;

pub async fn pop(
    State(pollers): State<Pollers>,
    State(media): State<Media>,
    State(messages): State<Messages>,
    (State(modes), State(settings)): (State<Modes>, State<Arc<DoorSettings>>),
    door: Door,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = PopInputImage::parse(&whole?.bytes)?;
    let prefers = door::preferred(asked.priority_usernames.as_deref())?;
    door::may_pop(&caller)?;
    door.keep_out_blocked()?;
    let wants = Wants {
        own_only: door::is_kept_back(&door, &caller, &modes).await?,
        ..wants(&asked)
    };
    let agent = BridgeAgent::parse(&asked.bridge_agent);
    let name = kept_name(&asked.name);
    let models = models(&asked, &caller, &settings)?;
    let mut ask = Ask {
        prefers,
        ..ask(&asked, &agent, &name, models)
    };
    let ways = Ways {
        media: &media,
        downloads: agent.can("r2_source"),
        uploads: ask.capabilities.contains(Capabilities::UPLOADS),
    };
    ask.said.address = door.address.to_string();
    let worker = ask.name.clone();
    let given = pollers.pop(&caller, ask, wants).await;
    let mut given = given.map_err(|not| door::not_served(not, &name))?;
    door.moderation.whereabouts().note(&worker, door.address);
    let payload = match ways.payload(&given).await {
        Ok(payload) => payload,
        Err(why) => {
            door::take_back(&pollers, &given.offers, why).await?;
            None
        }
    };
    let nothing = || GenerationPayloadImage::empty(reasons(&given.skipped), Vec::new());
    let answer = GenerationPayloadImage {
        messages: popped(&messages.of(given.worker)),
        ..payload.unwrap_or_else(nothing)
    };
    given.offers.keep();
    Ok(reply::json(StatusCode::OK, &answer))
}

/// The offered models that the caller may serve.
fn models(
    asked: &PopInputImage,
    caller: &Caller,
    settings: &DoorSettings,
) -> Result<Vec<Arc<str>>, Refusal> {
    let may_serve_all = !settings.known_image_models_only || caller.has(Roles::CUSTOMIZER);
    let may_serve = |model: &&String| {
        may_serve_all || model.starts_with(SPECIAL) || is_known(Kind::Image, model, &settings.names)
    };
    let models = asked.models.iter().flatten().filter(may_serve);
    door::models(models.cloned().collect(), caller, MOST_MODELS)
}

fn ask(asked: &PopInputImage, agent: &BridgeAgent, name: &str, models: Vec<Arc<str>>) -> Ask {
    let names: Vec<String> = models.iter().map(|name| name.to_string()).collect();
    let fewest = names.iter().map(|name| reference::modest_steps(name)).min();
    Ask {
        name: name.into(),
        agent: asked.bridge_agent.as_str().into(),
        kind: Kind::Image,
        capabilities: asked
            .abilities(agent, &names, reference::family)
            .with_if(!asked.extra_slow_worker, Capabilities::TIMELY)
            .with_if(!asked.limit_max_steps, Capabilities::MANY_STEPS),
        said: said(asked, names),
        prefers: Vec::new(),
        models,
        reach: Reach {
            media: MediaNeeds {
                pixels: u32::try_from(asked.max_pixels.max(0)).unwrap_or(u32::MAX),
                steps: fewest.filter(|_| asked.limit_max_steps).unwrap_or(u32::MAX),
                ..MediaNeeds::ENDLESS
            },
            ..Reach::ENDLESS
        },
        threads: asked.threads,
    }
}

/// The worker's report, for display.
fn said(asked: &PopInputImage, models: Vec<String>) -> Said {
    let takes = [
        ("img2img", asked.allow_img2img),
        ("painting", asked.allow_painting),
        ("post-processing", asked.allow_post_processing),
        ("lora", asked.allow_lora),
        ("controlnet", asked.allow_controlnet),
        ("sdxl_controlnet", asked.allow_sdxl_controlnet),
    ];
    let takes = takes.into_iter().filter(|(_, takes)| *takes);
    Said {
        agent: asked.bridge_agent.clone(),
        threads: asked.threads,
        nsfw: asked.nsfw,
        models,
        takes: takes.map(|(name, _)| name.to_owned()).collect(),
        max_pixels: asked.max_pixels,
        ..Said::default()
    }
}

fn wants(asked: &PopInputImage) -> Wants {
    let words = asked.unwanted_words().filter(|word| !word.is_empty());
    Wants {
        room: Some(work::room(asked.max_pixels, asked.amount)),
        unwanted: Words::new(words),
        paid: asked.require_upfront_kudos,
        ..Wants::most(asked.amount)
    }
}

/// Counts of every reason, zeros included: worker operators read the reply as a table.
fn reasons(skipped: &Skipped) -> NoValidRequestFoundImage {
    let known = |skip| skipped.get(&skip).map(|count| *count as u64);
    let count = |skip| Some(known(skip).unwrap_or(0));
    let denied = |one| count(Skip::Denied(one));
    NoValidRequestFoundImage {
        max_pixels: count(Skip::Pixels),
        img2img: denied(Capabilities::SOURCE_IMAGES),
        painting: denied(Capabilities::PAINTING),
        unsafe_ip: denied(Capabilities::HIDDEN_ADDRESSES),
        post_processing: denied(Capabilities::POST_PROCESSING),
        lora: denied(Capabilities::LORAS),
        controlnet: denied(Capabilities::CONTROL)
            .max(denied(Capabilities::LARGE_CONTROL))
            .max(denied(Capabilities::MORE_CONTROL)),
        nsfw: denied(Capabilities::NSFW),
        worker_id: count(Skip::Workers),
        untrusted: count(Skip::Untrusted),
        models: count(Skip::Models),
        bridge_version: count(Skip::Ability),
        step_count: known(Skip::Steps),
        blacklist: known(Skip::Words),
        kudos: known(Skip::Kudos),
        performance: known(Skip::Speed),
    }
}
