//! Ollama's routes: `truncated` shortens inputs, `pull` downloads and deletes models, `copy` gives them further names.

mod copy;
mod pull;
mod truncated;

pub use copy::copy;
pub use pull::{delete, pull};

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::clock::{started_at, wall_clock};
use crate::error::ApiError;
use crate::http::generation::bodies;
use crate::switchboard::{ModelOnline, Overview, Switchboard};
use muster_protocol::job::{Capabilities, Kind, TokensRequest};
use muster_protocol::ollama::{
    Door, EmbedRequest, ListedModel, LoadRequest, ShowRequest, read, running, show, tags, version,
};
use muster_protocol::openai::Problem;

use crate::http::body::Whole;
use crate::http::generation::encode::{Encoder, Encoding};
use crate::http::models::unknown;
use crate::http::open::KnownModels;
use crate::http::openai::embeddings::VectorReply;
use crate::http::reply::Reply;
use crate::http::room::Memory;
use crate::http::text::{TextEndpoint, with_ignored};

const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

pub async fn chat(
    endpoint: TextEndpoint,
    (State(board), State(known)): (State<Switchboard>, State<Arc<KnownModels>>),
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    write(&endpoint, (&board, &known), body?, Door::Chat).await
}

pub async fn generate(
    endpoint: TextEndpoint,
    (State(board), State(known)): (State<Switchboard>, State<Arc<KnownModels>>),
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    write(&endpoint, (&board, &known), body?, Door::Generate).await
}

async fn write(
    endpoint: &TextEndpoint,
    (board, known): (&Switchboard, &KnownModels),
    body: Whole,
    door: Door,
) -> Result<Response, ApiError> {
    let incoming = endpoint.incoming(body)?.parse().await?;
    if let Some(load) = LoadRequest::of(incoming.body(), door)? {
        let model = find(&load.model, &*board.current().await, known)?;
        settle(endpoint, &load, &model).await?;
        let reply = load.reply(wall_clock().0.div_euclid(1000));
        let mut response = match load.streams {
            false => Reply(reply).into_response(),
            true => ([(CONTENT_TYPE, LINES)], format!("{reply}\n")).into_response(),
        };
        with_ignored(&mut response, &load.ignored);
        return Ok(response);
    }
    match (door, incoming.body()["truncate"] != false) {
        (Door::Chat, true) => truncated::chat(endpoint, incoming).await,
        (Door::Generate, true) => truncated::prompt(endpoint, incoming).await,
        (_, false) => {
            let reading = move |body, wanted: &_| read(body, door, wanted);
            endpoint.serve(incoming, reading).await
        }
    }
}

/// Has a worker load or unload the model. Workers without such jobs ignore it.
async fn settle(
    endpoint: &TextEndpoint,
    load: &LoadRequest,
    model: &ListedModel,
) -> Result<(), ApiError> {
    if !model.kinds.contains(Kind::Tokens) {
        return Ok(());
    }
    let reading = Encoding {
        model: load.model.as_str().into(),
        request: TokensRequest::Load.into(),
        requires: Capabilities::default(),
        param: "model",
    };
    let encoder = endpoint.encoder()?.keeping(load.keep_alive);
    encoder.run(reading).await.map(drop)
}

pub async fn embed(
    encoder: Result<Encoder, ApiError>,
    State(memory): State<Memory>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    encode(
        encoder?,
        &memory,
        whole?,
        EmbedRequest::read,
        |request, found| request.reply(&found.vectors, found.usage, began.elapsed()),
    )
    .await
}

/// The older route: one text, one vector.
pub async fn embed_one(
    encoder: Result<Encoder, ApiError>,
    State(memory): State<Memory>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    encode(
        encoder?,
        &memory,
        whole?,
        EmbedRequest::read_old,
        |_, found| EmbedRequest::reply_old(&found.vectors),
    )
    .await
}

async fn encode(
    encoder: Encoder,
    memory: &Memory,
    whole: Whole,
    read: fn(Value) -> Result<EmbedRequest, Problem>,
    reply: impl FnOnce(&EmbedRequest, &VectorReply) -> String,
) -> Result<Response, ApiError> {
    let kept = whole
        .room
        .keep(whole.bytes.len().saturating_mul(bodies::COPIES))?;
    let request = bodies::read(whole, read).await?;
    let encoder = encoder.keeping(request.keep_alive);
    let mut room = memory.room_to_tell();
    let answering = async {
        let found = truncated::vectors(&encoder, &request, &mut room).await?;
        drop(kept);
        let text = reply(&request, &found);
        let job = found.job;
        drop(found);
        bodies::answer(room, job, text).await
    };
    let answer = answering.await;
    let mut response = answer.unwrap_or_else(ApiError::into_response);
    with_ignored(&mut response, &request.ignored);
    Ok(response)
}

/// Models that write text or turn it into vectors.
fn listed(overview: &Overview) -> Vec<ListedModel> {
    let is_for_texts = |model: &&ModelOnline| {
        model.kinds.contains(Kind::Text) || model.kinds.contains(Kind::Embedding)
    };
    let models = overview.models.iter().filter(is_for_texts);
    models.map(listing).collect()
}

fn listing(model: &ModelOnline) -> ListedModel {
    ListedModel {
        name: model.name.to_string(),
        since: started_at(),
        context: model.context,
        kinds: model.kinds,
        can: model.capabilities,
        stay: model.stay,
        details: model.details.clone(),
    }
}

/// The same with copies, which clients list as models of their own.
fn listed_with_copies(overview: &Overview, known: &KnownModels) -> Vec<ListedModel> {
    let mut models = listed(overview);
    let copies = models.iter().flat_map(|model| {
        let names = known.names().copies_of(&model.name).into_iter();
        names.map(|name| ListedModel {
            name: name.to_string(),
            ..model.clone()
        })
    });
    let copies: Vec<_> = copies.collect();
    models.extend(copies);
    models
}

pub async fn list(
    (State(board), State(known)): (State<Switchboard>, State<Arc<KnownModels>>),
) -> Reply {
    Reply(tags(&listed_with_copies(&*board.current().await, &known)))
}

pub async fn list_running(State(board): State<Switchboard>) -> Reply {
    Reply(running(&listed(&*board.current().await)))
}

/// A model, by any of its names.
pub async fn describe(
    (State(board), State(known)): (State<Switchboard>, State<Arc<KnownModels>>),
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let request = bodies::read(body?, ShowRequest::read).await?;
    let overview = board.current().await;
    let model = find(&request.model, &overview, &known)?;
    let mut response = Reply(show(&model)).into_response();
    with_ignored(&mut response, &request.ignored);
    Ok(response)
}

fn find(name: &str, overview: &Overview, known: &KnownModels) -> Result<ListedModel, ApiError> {
    match overview.model(&known.id(name)) {
        Some(model) => Ok(listing(model)),
        None => {
            let online: Vec<&str> = overview.models.iter().map(|model| &*model.name).collect();
            Err(unknown(name, &online, known))
        }
    }
}

pub async fn show_version() -> Reply {
    Reply(version())
}
