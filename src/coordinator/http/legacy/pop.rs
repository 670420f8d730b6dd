//! `POST /api/v2/generate/text/pop`: a text worker comes for work.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::refused::Refused;
use crate::coordinator::accounts::ANONYMOUS;
use crate::coordinator::dispatch::{Offer, Skip, Skipped, Wants};
use crate::coordinator::error::ApiError;
use crate::coordinator::http::auth::Admitted;
use crate::coordinator::http::body::Whole;
use crate::coordinator::http::reply;
use crate::coordinator::pollers::{Ask, Given, NotServed, Pollers};
use crate::coordinator::secrets;
use crate::coordinator::state::DoorSettings;
use crate::protocol::job::{Body as JobBody, Capabilities, Kind, Reach, TextInput};
use crate::protocol::legacy::pop::PopInputText;
use crate::protocol::legacy::text::chat;
use crate::protocol::legacy::text::job::Lengths;
use crate::protocol::legacy::text::payload::{
    GenerationPayloadText, ModelPayloadText, NoValidRequestFoundText,
};
use crate::protocol::legacy::{Body, Code, Refusal};

/// Models one worker may offer.
const MOST_MODELS: usize = 200;

pub async fn pop(
    State(pollers): State<Pollers>,
    State(settings): State<Arc<DoorSettings>>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    if caller.account == ANONYMOUS {
        return Err(Code::AnonForbiddenWorker.into());
    }
    let asked = PopInputText::parse(&whole?.bytes)?;
    let name = asked.name.trim().to_owned();
    let reach = reach(&asked);
    let wants = Wants::most(asked.amount);
    let ask = ask(asked, &name, reach)?;
    let given = pollers.pop(&caller, ask, wants).await;
    let given = given.map_err(|not| not_served(not, &name))?;
    Ok(reply::json(
        StatusCode::OK,
        &payload(&given, reach, settings.scrub_secrets),
    ))
}

fn reach(asked: &PopInputText) -> Reach {
    let tokens =
        |number: i64| u32::try_from(number).unwrap_or(if number < 0 { 0 } else { u32::MAX });
    Reach {
        window: tokens(asked.max_context_length),
        output: tokens(asked.max_length),
        ..Reach::default()
    }
}

fn ask(asked: PopInputText, name: &str, reach: Reach) -> Result<Ask, Refusal> {
    let models = asked.models.unwrap_or_default();
    if models.is_empty() {
        return Err(Refusal::models_not_accepted());
    }
    let models = models.into_iter().take(MOST_MODELS);
    Ok(Ask {
        name: name.into(),
        agent: asked.bridge_agent.into(),
        kind: Kind::Text,
        models: models.map(Arc::from).collect(),
        capabilities: Capabilities::default(),
        reach,
        threads: asked.threads,
    })
}

fn payload(given: &Given, reach: Reach, scrub: bool) -> GenerationPayloadText {
    let Some(first) = given.offers.first() else {
        return GenerationPayloadText::empty(reasons(&given.skipped), Vec::new());
    };
    let lengths = Lengths {
        context: reach.window,
        output: reach.output,
    };
    GenerationPayloadText {
        payload: model_payload(first, lengths, scrub),
        id: Some(first.job.id),
        ids: given.offers.iter().map(|offer| offer.job.id).collect(),
        ttl: first.job.limits.patience.map(|patience| patience.as_secs()),
        model: given.model.as_deref().map(str::to_owned),
        ..GenerationPayloadText::empty(NoValidRequestFoundText::default(), Vec::new())
    }
}

fn model_payload(offer: &Offer, lengths: Lengths, scrub: bool) -> ModelPayloadText {
    // No other job is given to a worker of texts.
    let JobBody::Text(request) = &offer.job.body else {
        return GenerationPayloadText::empty(NoValidRequestFoundText::default(), Vec::new())
            .payload;
    };
    let (prompt, stops) = match &request.input {
        TextInput::Prompt(prompt) => (prompt.clone(), &[][..]),
        TextInput::Chat(chat) => chat::written(chat, &offer.model)
            .map(|written| (written.prompt, written.stops))
            .unwrap_or_default(),
        // Jobs of this input are not offered to such workers.
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
        untrusted: count(Skip::Untrusted),
        models: count(Skip::Models),
        bridge_version: count(Skip::Ability),
        ..NoValidRequestFoundText::default()
    }
}

fn not_served(not: NotServed, name: &str) -> Refusal {
    match not {
        NotServed::OtherRig => Refusal::new(
            Code::WrongCredentials,
            "wrong credentials: this key is for another worker",
        ),
        NotServed::NameTaken => Refusal::worker_of_another(name),
        NotServed::BadName => Refusal::new(
            Code::BadRequest,
            "a worker's name has 1 to 200 bytes and no control characters",
        ),
        NotServed::Barred => {
            Refusal::worker_in_maintenance(Some("it failed too many jobs lately, and has to wait"))
        }
        NotServed::Unavailable => Refusal::plain(503, "workers cannot be looked up right now"),
    }
}
