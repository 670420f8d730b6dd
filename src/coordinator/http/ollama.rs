//! Ollama's routes.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::switchboard::{ModelOnline, Overview, Switchboard};
use muster_protocol::job::{Capabilities, Kind, TokensRequest};
use muster_protocol::ollama::{
    Door, EmbedRequest, ListedModel, LoadRequest, ShowRequest, read, running, show, tags, version,
};

use super::body::Whole;
use super::models::{started_at, unknown};
use super::open::KnownModels;
use super::openai::embeddings::{VectorReply, vectors};
use super::openai::encode::{Encoder, Encoding};
use super::openai::tokens;
use super::reply::Reply;
use super::room::Memory;
use super::text::TextEndpoint;

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
        if !load.streams {
            return Ok(Reply(reply).into_response());
        }
        return Ok(([(CONTENT_TYPE, LINES)], format!("{reply}\n")).into_response());
    }
    endpoint
        .serve(incoming, move |body, wanted| read(body, door, wanted))
        .await
}

/// Has a worker load or unload the model. A worker that knows no such job keeps its models as it likes.
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
    let (whole, encoder) = (whole?, encoder?);
    let began = Instant::now();
    let kept = whole
        .room
        .keep(whole.bytes.len().saturating_mul(tokens::COPIES))?;
    let request = tokens::read(whole, EmbedRequest::read).await?;
    let encoder = encoder.keeping(request.keep_alive);
    let mut room = memory.room_to_tell();
    let VectorReply {
        vectors,
        usage,
        job,
    } = vectors(&encoder, &request.embeddings, &mut room).await?;
    drop(kept);
    let text = request.reply(&vectors, usage, began.elapsed());
    drop(vectors);
    tokens::answer(room, job, text).await
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
    }
}

pub async fn list(State(board): State<Switchboard>) -> Reply {
    Reply(tags(&listed(&*board.current().await)))
}

pub async fn list_running(State(board): State<Switchboard>) -> Reply {
    Reply(running(&listed(&*board.current().await)))
}

/// One model, by any of its names.
pub async fn describe(
    (State(board), State(known)): (State<Switchboard>, State<Arc<KnownModels>>),
    body: Result<Whole, ApiError>,
) -> Result<Reply, ApiError> {
    let request = tokens::read(body?, ShowRequest::read).await?;
    let overview = board.current().await;
    Ok(Reply(show(&find(&request.model, &overview, &known)?)))
}

fn find(name: &str, overview: &Overview, known: &KnownModels) -> Result<ListedModel, ApiError> {
    match overview.model(&known.id(name)) {
        Some(model) => Ok(listing(model)),
        None => {
            let online: Vec<&str> = overview.models.iter().map(|model| &*model.name).collect();
            Err(unknown(name, &online))
        }
    }
}

pub async fn show_version() -> Reply {
    Reply(version())
}
