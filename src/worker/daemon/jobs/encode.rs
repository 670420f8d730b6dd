//! A job that reads and does not write: tokens of texts, texts of tokens.
//!
//! Prompts go through the same template and tokenizer as those of texts that are written, so a count of tokens is the
//! `prompt_tokens` of the same prompt. No sequence of the engine is taken.

use std::sync::Arc;

use super::blame;
use super::request::{check_template, prompt_of};
use crate::daemon::worker::small;
use crate::link::Said;
use muster_engine::runtime::text::Language;
use muster_engine::runtime::{Failure, Runtime};
use muster_protocol::job::{
    self, EncodeRequest, Encoded, EncodedTokens, FailureKind, FinishReason, TextInput, Usage,
};

/// The result and the tokens that were read for it.
type Read = (Encoded, usize);

/// The result of a job and its last word.
pub async fn run(
    model: String,
    request: EncodeRequest,
    runtime: &Runtime,
) -> Result<(Said, Said), Said> {
    let info = runtime.info(&model).map_err(blame::said)?;
    let language = runtime.language(&model).map_err(blame::said)?;
    let read = match request {
        EncodeRequest::Tokenize {
            input,
            add_special_tokens,
            with_strings,
        } => {
            let context = small(info.context);
            let read = move || {
                let tokens = tokenize(&language, input, add_special_tokens, with_strings)?;
                let count = tokens.ids.len();
                let tokens = EncodedTokens { context, ..tokens };
                Ok((Encoded::Tokens(tokens), count))
            };
            beside(read).await?
        }
        EncodeRequest::Detokenize { tokens } => {
            let vocabulary = info.vocabulary;
            beside(move || detokenize(&language, &tokens, vocabulary)).await?
        }
        EncodeRequest::Embed { .. } => return Err(unable(&model, "embeddings")),
        EncodeRequest::Rerank { .. } => return Err(unable(&model, "reranking")),
    };
    let (encoded, count) = read;
    let usage = Usage {
        prompt_tokens: small(count),
        ..Usage::default()
    };
    let finish = FinishReason::Stop;
    Ok((
        Said::Encoded(Box::new(encoded)),
        Said::Done { finish, usage },
    ))
}

/// Templates and tokenizers may take a while, and come with downloaded models.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Said> + Send + 'static,
) -> Result<T, Said> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| blame::broken())?
}

fn unable(model: &str, what: &str) -> Said {
    let message = format!("the model {model} does not support {what}");
    let failure = job::Failure::new(FailureKind::UnsupportedValue, message);
    Said::Failed(failure)
}

fn tokenize(
    language: &Arc<Language>,
    input: TextInput,
    add_special_tokens: Option<bool>,
    with_strings: bool,
) -> Result<EncodedTokens, Said> {
    check_template(&input, language).map_err(Said::Failed)?;
    let prefix = add_special_tokens.unwrap_or(!matches!(input, TextInput::Chat(_)));
    let ids = language.read(&prompt_of(input), prefix);
    let ids = ids.map_err(blame::said)?;
    let strings = with_strings.then(|| language.names(&ids)).transpose();
    let strings = strings.map_err(blame::said)?;
    Ok(EncodedTokens {
        ids,
        strings,
        context: 0,
    })
}

fn detokenize(language: &Language, tokens: &[u32], vocabulary: usize) -> Result<Read, Said> {
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= vocabulary) {
        let message = format!("tokens has {id}, but the vocabulary has {vocabulary} tokens");
        return Err(blame::said(Failure::BadRequest(message)));
    }
    let text = language.decode(tokens).map_err(blame::said)?;
    Ok((Encoded::Text(text), tokens.len()))
}
