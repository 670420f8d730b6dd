//! `POST /tokenize` and `POST /detokenize`

use axum::extract::State;
use axum::response::Response;

use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::generation::bodies::{COPIES, answer, read};
use crate::http::generation::encode::{EncodeReply, Encoder, Encoding, unexpected};
use crate::http::room::Memory;
use muster_protocol::job::{Capabilities, DetokenizeInput, ResultPart, TokensRequest};
use muster_protocol::openai::encode::{
    DetokenizeRequest, TokenizeRequest, text_reply, tokens_reply,
};

pub async fn tokenize(
    encoder: Result<Encoder, ApiError>,
    State(memory): State<Memory>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let (whole, encoder) = (whole?, encoder?);
    let kept = whole.room.keep(whole.bytes.len().saturating_mul(COPIES))?;
    let request = read(whole, TokenizeRequest::read).await?;
    let (tokens, job) = encoder.tokenize(request).await?;
    drop(kept);
    let text = tokens_reply(tokens).to_string();
    answer(memory.room_to_tell(), Some(job), text).await
}

pub async fn detokenize(
    encoder: Result<Encoder, ApiError>,
    State(memory): State<Memory>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let (whole, encoder) = (whole?, encoder?);
    let kept = whole.room.keep(whole.bytes.len().saturating_mul(COPIES))?;
    let DetokenizeRequest { model, tokens } = read(whole, DetokenizeRequest::read).await?;
    let finished = encoder
        .run(Encoding {
            model,
            request: TokensRequest::Detokenize(DetokenizeInput { tokens }).into(),
            requires: Capabilities::default(),
            param: "tokens",
        })
        .await?;
    drop(kept);
    let EncodeReply { result, job, .. } = finished;
    match result {
        ResultPart::Text(text) => {
            let text = text_reply(text).to_string();
            answer(memory.room_to_tell(), Some(job), text).await
        }
        _ => Err(unexpected()),
    }
}
