//! Truncation of long inputs as in Ollama: a chat loses its oldest messages, a prompt its beginning, a text to embed
//! its end.

use std::sync::Arc;

use axum::response::Response;
use serde_json::Value;

use crate::error::ApiError;
use crate::http::generation::encode::{Encoder, Encoding, unexpected};
use crate::http::openai::embeddings::{VectorReply, vectors as vectors_of};
use crate::http::room::Room;
use crate::http::text::{Incoming, TextEndpoint, is_too_long};
use muster_protocol::job::{
    Capabilities, DetokenizeInput, FailureKind, ResultPart, TextInput, TokenList, TokenizeInput,
    TokensRequest,
};
use muster_protocol::ollama::{Door, EmbedRequest, drop_oldest, droppable, prompt_of, read};
use muster_protocol::openai::encode::embeddings::EmbeddingsRequest;

/// The fraction of a chat that is dropped at a time.
const DROPPED_PART: usize = 8;
/// The fraction of the context that stays free for the reply to a truncated prompt, unless the reply is limited to
/// less.
const ANSWER_PART: usize = 4;
/// Attempts to truncate a prompt, since the template takes tokens, too.
const MOST_CUTS: usize = 6;
/// Tokens that a truncated text may gain when it is tokenized again.
const MARGIN: usize = 2;

pub async fn chat(
    endpoint: &TextEndpoint,
    incoming: Incoming<Value>,
) -> Result<Response, ApiError> {
    let most = droppable(incoming.body());
    let mut dropped = 0;
    while dropped < most {
        let again = endpoint.again(&incoming)?;
        let answer = serve(endpoint, again, dropped).await;
        if !is_too_long(&answer) {
            return answer;
        }
        dropped = (dropped + most.div_ceil(DROPPED_PART)).min(most);
    }
    serve(endpoint, incoming, most).await
}

async fn serve(
    endpoint: &TextEndpoint,
    incoming: Incoming<Value>,
    dropped: usize,
) -> Result<Response, ApiError> {
    let serving = endpoint.serve(incoming, move |mut body, wanted| {
        drop_oldest(&mut body, dropped);
        read(body, Door::Chat, wanted)
    });
    serving.await
}

pub async fn prompt(
    endpoint: &TextEndpoint,
    incoming: Incoming<Value>,
) -> Result<Response, ApiError> {
    let again = endpoint.again(&incoming)?;
    let answer = serve_prompt(endpoint, again, None).await;
    let Some((model, prompt, answer_tokens)) = prompt_of(incoming.body()) else {
        return answer;
    };
    if !is_too_long(&answer) {
        return answer;
    }
    let (encoder, model) = (endpoint.encoder()?, Arc::from(model));
    let input = TextInput::Prompt(prompt.to_owned());
    let all = match tokens(&encoder, &model, &input, false).await {
        Ok(all) if all.context > 0 => all,
        // The worker has no tokenize jobs.
        _ => return answer,
    };
    let context = all.context as usize;
    let answer_tokens = answer_tokens.and_then(|tokens| usize::try_from(tokens).ok());
    let free = (context / ANSWER_PART).min(answer_tokens.unwrap_or(usize::MAX));
    let mut kept = context.saturating_sub(free).min(all.ids.len());
    for _ in 0..MOST_CUTS {
        let end = all.ids[all.ids.len() - kept..].to_vec();
        let end = text_of(&encoder, &model, end).await?;
        let again = endpoint.again(&incoming)?;
        let answer = serve_prompt(endpoint, again, Some(end)).await;
        if !is_too_long(&answer) {
            return answer;
        }
        kept = kept * 3 / 4;
    }
    answer
}

/// With another prompt.
async fn serve_prompt(
    endpoint: &TextEndpoint,
    incoming: Incoming<Value>,
    prompt: Option<String>,
) -> Result<Response, ApiError> {
    let serving = endpoint.serve(incoming, move |mut body, wanted| {
        if let Some(prompt) = prompt {
            body["prompt"] = prompt.into();
        }
        read(body, Door::Generate, wanted)
    });
    serving.await
}

/// Embeddings of texts, truncated if too long.
pub async fn vectors(
    encoder: &Encoder,
    request: &EmbedRequest,
    room: &mut Room,
) -> Result<VectorReply, ApiError> {
    let found = vectors_of(encoder, &request.embeddings, room).await;
    let error = match found {
        Err(error) if request.truncates && is_of_length(&error) => error,
        found => return found,
    };
    let mut inputs = Vec::with_capacity(request.embeddings.inputs.len());
    let mut is_cut = false;
    for input in &request.embeddings.inputs {
        let cut = beginning(encoder, &request.embeddings.model, input).await?;
        is_cut |= cut.is_some();
        inputs.push(cut.unwrap_or_else(|| input.clone()));
    }
    if !is_cut {
        return Err(error);
    }
    let shorter = EmbeddingsRequest {
        inputs,
        ..request.embeddings.clone()
    };
    vectors_of(encoder, &shorter, room).await
}

fn is_of_length(error: &ApiError) -> bool {
    matches!(
        error.failure.kind,
        FailureKind::ContextLengthExceeded | FailureKind::InvalidRequest
    )
}

/// The text without its end, if it is too long.
async fn beginning(
    encoder: &Encoder,
    model: &Arc<str>,
    input: &TextInput,
) -> Result<Option<TextInput>, ApiError> {
    if !matches!(input, TextInput::Prompt(_)) {
        return Ok(None);
    }
    let all = tokens(encoder, model, input, true).await?;
    let context = all.context as usize;
    if context == 0 || all.ids.len() <= context {
        return Ok(None);
    }
    let mut own = tokens(encoder, model, input, false).await?.ids;
    let around = all.ids.len().saturating_sub(own.len());
    own.truncate(context.saturating_sub(around + MARGIN).max(1));
    let text = text_of(encoder, model, own).await?;
    Ok(Some(TextInput::Prompt(text)))
}

async fn text_of(
    encoder: &Encoder,
    model: &Arc<str>,
    tokens: Vec<u32>,
) -> Result<String, ApiError> {
    let request = TokensRequest::Detokenize(DetokenizeInput { tokens });
    match ask(encoder, model, request).await? {
        ResultPart::Text(text) => Ok(text),
        _ => Err(unexpected()),
    }
}

async fn tokens(
    encoder: &Encoder,
    model: &Arc<str>,
    input: &TextInput,
    add_special_tokens: bool,
) -> Result<TokenList, ApiError> {
    let request = TokensRequest::Tokenize(TokenizeInput {
        input: input.clone(),
        add_special_tokens: Some(add_special_tokens),
        with_strings: false,
    });
    match ask(encoder, model, request).await? {
        ResultPart::Tokens(tokens) => Ok(tokens),
        _ => Err(unexpected()),
    }
}

async fn ask(
    encoder: &Encoder,
    model: &Arc<str>,
    request: TokensRequest,
) -> Result<ResultPart, ApiError> {
    let encoding = Encoding {
        model: model.clone(),
        request: request.into(),
        requires: Capabilities::default(),
        param: "input",
    };
    Ok(encoder.run(encoding).await?.result)
}
