//! `POST /v1/audio/tones`: a tone of one frequency. A kind for tests of the list of kinds.

use axum::response::Response;
use serde_json::{Value, json};

use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::body::MediaWhole;
use crate::http::generation::{
    MediaDelivery, MediaEndpoint, MediaOrder, RefusedFields, read_body, with_job_ids,
};
use crate::requests::orders::MediaWork;
use muster_protocol::job::{Kind, ToneRequest};
use muster_protocol::openai::field::{self, Field};
use muster_protocol::openai::media::MediaTracking;
use muster_protocol::openai::{Problem, Shape, Strictness, media};

pub const PATH: &str = "/v1/audio/tones";

#[derive(Default)]
struct TonesRequest {
    model: Option<String>,
    hertz: f64,
}

const FIELDS: &[Field<TonesRequest>] = &[
    Field {
        name: "model",
        about: "Model name; if absent, the online model for tones with the most workers.",
        shape: Shape::Text,
        take: |request, value| {
            request.model = value.as_str().map(str::to_owned);
            Ok(())
        },
    },
    Field {
        name: "hertz",
        about: "Frequency of the tone.",
        shape: Shape::Number(20.0..=20_000.0),
        take: |request, value| {
            request.hertz = value.as_f64().unwrap_or_default();
            Ok(())
        },
    },
];

impl RefusedFields for TonesRequest {
    const KIND: Kind = Kind::Tone;
    const OUTPUT: &'static str = "a tone";
}

impl TonesRequest {
    fn read(body: Value) -> Result<Self, Problem> {
        let Value::Object(entries) = body else {
            return Err(Problem::malformed("the body must be a JSON object"));
        };
        let mut request = Self::default();
        field::read(FIELDS, entries, Strictness::Refuse, &mut request)?;
        match request.hertz {
            0.0 => Err(Problem::invalid("hertz", "hertz is required")),
            _ => Ok(request),
        }
    }
}

pub async fn generate(
    endpoint: Result<MediaEndpoint, ApiError>,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (MediaWhole(whole), endpoint) = (whole?, endpoint?);
    let (request, room) = read_body(whole, TonesRequest::read).await?;
    let model = endpoint
        .model_of(request.model.as_deref(), Kind::Tone)
        .await?;
    let tone = ToneRequest {
        hertz: request.hertz,
    };
    let order = MediaOrder {
        work: MediaWork::new(tone, &model, 1),
        tracking: MediaTracking::default(),
        sources: None,
    };
    let gathering = endpoint.queue(order, &request).await?;
    let ids = gathering.job_ids();
    let (delivery, created) = (MediaDelivery::default(), wall_clock().0 / 1000);
    let render = |sounds: &[_], grid: &_| media::reply(created, sounds, grid);
    let answer = endpoint.reply(gathering, delivery, render).await;
    drop(room);
    Ok(with_job_ids(answer, ids))
}
