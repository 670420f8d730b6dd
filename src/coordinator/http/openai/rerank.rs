//! `POST /v1/rerank`

use axum::extract::State;
use axum::response::Response;

use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::generation::bodies::{COPIES, answer, read};
use crate::http::generation::encode::{Encoder, Encoding, unexpected};
use crate::http::room::Memory;
use muster_protocol::job::{Capabilities, RankingRequest, ResultPart, Usage};
use muster_protocol::openai::encode::rerank::{RerankRequest, reply};

/// Documents of one job.
const AT_ONCE: usize = 256;

pub async fn rerank(
    encoder: Result<Encoder, ApiError>,
    State(memory): State<Memory>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let (whole, encoder) = (whole?, encoder?);
    let kept = whole.room.keep(whole.bytes.len().saturating_mul(COPIES))?;
    let request = read(whole, RerankRequest::read).await?;
    let (mut scores, mut usage) = (Vec::<f32>::new(), Usage::default());
    let mut last = None;
    for documents in request.documents.chunks(AT_ONCE) {
        let encoding = Encoding {
            model: request.model.clone(),
            request: RankingRequest {
                query: request.query.clone(),
                documents: documents.to_vec(),
                first: scores.len(),
            }
            .into(),
            requires: Capabilities::default(),
            param: "documents",
        };
        let found = encoder.run(encoding).await?;
        usage.prompt_tokens = usage
            .prompt_tokens
            .saturating_add(found.usage.prompt_tokens);
        last = Some(found.job);
        match found.result {
            ResultPart::Scores(more) if more.len() == documents.len() => scores.extend(more),
            _ => return Err(unexpected()),
        }
    }
    drop(kept);
    let id = last.map(|job| format!("rerank-{job}")).unwrap_or_default();
    let text = reply(&id, &request, &scores, usage).to_string();
    answer(memory.room_to_tell(), last, text).await
}
