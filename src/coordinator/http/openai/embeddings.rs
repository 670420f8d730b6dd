//! `POST /v1/embeddings`

use axum::extract::State;
use axum::response::Response;

use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::generation::bodies::{COPIES, answer, read};
use crate::http::generation::encode::{Encoder, Encoding, unexpected};
use crate::http::room::{Memory, Room};
use muster_protocol::job::{
    Capabilities, EmbeddingRequest, FailureKind, JobId, ResultPart, Usage, Vector,
};
use muster_protocol::openai::encode::embeddings::{EmbeddingsRequest, reply};

/// Inputs of one job: a worker keeps 8 MiB of a job until they have arrived.
const AT_ONCE: usize = 64;
/// Bytes of a number in a reply, at most, and in memory.
const NUMBER: usize = 16;

pub async fn embed(
    encoder: Result<Encoder, ApiError>,
    State(memory): State<Memory>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let (whole, encoder) = (whole?, encoder?);
    let kept = whole.room.keep(whole.bytes.len().saturating_mul(COPIES))?;
    let request = read(whole, EmbeddingsRequest::read).await?;
    let mut room = memory.room_to_tell();
    let VectorReply {
        vectors,
        usage,
        job,
    } = vectors(&encoder, &request, &mut room).await?;
    drop(kept);
    let text = reply(&request.model, &vectors, request.format, usage);
    drop(vectors);
    answer(room, job, text).await
}

/// The vectors of a request, from several jobs.
pub struct VectorReply {
    pub vectors: Vec<Vector>,
    pub usage: Usage,
    pub job: Option<JobId>,
}

/// `room` takes the memory of the reply.
pub async fn vectors(
    encoder: &Encoder,
    request: &EmbeddingsRequest,
    room: &mut Room,
) -> Result<VectorReply, ApiError> {
    let (mut vectors, mut usage) = (Vec::<Vector>::new(), Usage::default());
    let mut last = None;
    for inputs in request.inputs.chunks(AT_ONCE) {
        let encoding = Encoding {
            model: request.model.clone(),
            request: EmbeddingRequest {
                inputs: inputs.to_vec(),
                first: vectors.len(),
                dimensions: request.dimensions,
            }
            .into(),
            requires: Capabilities::default(),
            param: "input",
        };
        let found = encoder.run(encoding).await?;
        usage.prompt_tokens = usage
            .prompt_tokens
            .saturating_add(found.usage.prompt_tokens);
        last = Some(found.job);
        match found.result {
            ResultPart::Vectors(more) if more.len() == inputs.len() => vectors.extend(more),
            _ => return Err(unexpected()),
        }
        let numbers: usize = vectors.iter().map(|vector| vector.0.len()).sum();
        room.cover_in_time(numbers.saturating_mul(NUMBER)).await?;
    }
    let mut numbers = vectors.iter().flat_map(|vector| &vector.0);
    if !numbers.all(|number| number.is_finite()) {
        let message = "the worker sent a vector with a number that is not finite";
        return Err(ApiError::new(FailureKind::WorkerFailed, message));
    }
    Ok(VectorReply {
        vectors,
        usage,
        job: last,
    })
}
