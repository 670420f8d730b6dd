//! `POST /api/v2/generate/text/pop`: the next text job for a worker.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::moderation::Door;
use super::rigs::door;
use super::rigs::messages::popped;
use crate::accounts::Caller;
use crate::dispatch::{Offer, Skip, Skipped, Wants};
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::messages::Messages;
use crate::modes::Modes;
use crate::pollers::{Ask, Given, Pollers};
use crate::secrets;
use crate::state::DoorSettings;
use crate::storage::Said;
use muster_protocol::job::{Body as JobBody, Capabilities, Kind, Reach, TextInput, TextNeeds};
use muster_protocol::legacy::pop::PopInputText;
use muster_protocol::legacy::text::chat;
use muster_protocol::legacy::text::job::Lengths;
use muster_protocol::legacy::text::payload::{
    GenerationPayloadText, ModelPayloadText, NoValidRequestFoundText,
};
use muster_protocol::legacy::worker::kept_name;
use muster_protocol::legacy::{Body, Refusal};

/// Models one worker may offer.
const MOST_MODELS: usize = 200;

pub async fn pop(
    State(pollers): State<Pollers>,
    State(settings): State<Arc<DoorSettings>>,
    State(messages): State<Messages>,
    door: Door,
    Admitted(caller): Admitted,
    State(modes): State<Modes>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = PopInputText::parse(&whole?.bytes)?;
    let prefers = door::preferred(asked.priority_usernames.as_deref())?;
    door::may_pop(&caller)?;
    let name = kept_name(&asked.name);
    let lengths = lengths(&asked);
    door.keep_out_blocked()?;
    let wants = Wants {
        own_only: door::is_kept_back(&door, &caller, &modes).await?,
        paid: asked.require_upfront_kudos,
        ..Wants::most(asked.amount)
    };
    let mut ask = Ask {
        prefers,
        ..ask(asked, &caller, &name, lengths)?
    };
    let worker = ask.name.clone();
    ask.said.address = door.address.to_string();
    let given = pollers.pop(&caller, ask, wants).await;
    let mut given = given.map_err(|not| door::not_served(not, &name))?;
    door.moderation.whereabouts().note(&worker, door.address);
    let payload = GenerationPayloadText {
        messages: popped(&messages.of(given.worker)),
        ..payload(&given, lengths, settings.scrub_secrets)
    };
    given.offers.keep();
    Ok(reply::json(StatusCode::OK, &payload))
}

fn lengths(asked: &PopInputText) -> Lengths {
    let tokens =
        |number: i64| u32::try_from(number).unwrap_or(if number < 0 { 0 } else { u32::MAX });
    Lengths {
        context: tokens(asked.max_context_length),
        output: tokens(asked.max_length),
    }
}

fn ask(asked: PopInputText, caller: &Caller, name: &str, lengths: Lengths) -> Result<Ask, Refusal> {
    let models = door::models(asked.models.unwrap_or_default(), caller, MOST_MODELS)?;
    Ok(Ask {
        name: name.into(),
        said: Said {
            agent: asked.bridge_agent.clone(),
            address: String::new(),
            threads: asked.threads,
            nsfw: asked.nsfw,
            models: models.iter().map(|name| name.to_string()).collect(),
            max_length: asked.max_length,
            max_context: asked.max_context_length,
            ..Said::default()
        },
        prefers: Vec::new(),
        agent: asked.bridge_agent.into(),
        kind: Kind::Text,
        models,
        // `slow_workers` is ignored here, since clients that send the published defaults all set it.
        capabilities: Capabilities::TIMELY,
        reach: Reach {
            text: TextNeeds {
                context: lengths.context,
                window: lengths.context,
                output: lengths.output,
            },
            ..Reach::ENDLESS
        },
        threads: asked.threads,
    })
}

fn payload(given: &Given, lengths: Lengths, scrub: bool) -> GenerationPayloadText {
    let Some(first) = given.offers.first() else {
        return GenerationPayloadText::empty(reasons(&given.skipped), Vec::new());
    };
    GenerationPayloadText {
        payload: model_payload(first, lengths, scrub),
        id: Some(given.badge.id_of(first)),
        ids: given.ids(),
        ttl: first.patience.map(|patience| patience.as_secs()),
        model: given.model.as_deref().map(str::to_owned),
        ..GenerationPayloadText::empty(NoValidRequestFoundText::default(), Vec::new())
    }
}

fn model_payload(offer: &Offer, lengths: Lengths, scrub: bool) -> ModelPayloadText {
    // Text workers get no other jobs.
    let JobBody::Text(request) = &offer.job.body else {
        return GenerationPayloadText::empty(NoValidRequestFoundText::default(), Vec::new())
            .payload;
    };
    let mut lengths = lengths;
    if let TextInput::Chat(_) = &request.input {
        let left = lengths
            .context
            .saturating_sub(offer.job.limits.prompt_tokens);
        lengths.output = lengths.output.min(left).max(1);
    }
    let (prompt, stops) = match &request.input {
        TextInput::Prompt(prompt) => (prompt.clone(), &[][..]),
        TextInput::Chat(chat) => chat::written(chat, &offer.model)
            .map(|written| (written.prompt, written.stops))
            .unwrap_or_default(),
        // Jobs with this input are not offered to polling workers.
        TextInput::Tokens(_) => Default::default(),
    };
    let scrubbed = scrub.then(|| secrets::scrubbed(&prompt)).flatten();
    let mut payload = ModelPayloadText::of(request, scrubbed.unwrap_or(prompt), lengths);
    if !stops.is_empty() {
        let all = payload.stop_sequence.get_or_insert_default();
        all.extend(stops.iter().map(|stop| (*stop).to_owned()));
    }
    payload
}

fn reasons(skipped: &Skipped) -> NoValidRequestFoundText {
    let count = |skip| skipped.get(&skip).map(|count| *count as u64);
    NoValidRequestFoundText {
        max_context_length: count(Skip::Window),
        max_length: count(Skip::Output),
        worker_id: count(Skip::Workers),
        performance: count(Skip::Speed),
        untrusted: count(Skip::Untrusted),
        models: count(Skip::Models),
        bridge_version: count(Skip::Ability),
        kudos: count(Skip::Kudos),
        ..NoValidRequestFoundText::default()
    }
}
