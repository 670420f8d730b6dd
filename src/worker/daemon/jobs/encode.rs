//! Jobs without text generation: tokenization, detokenization, embeddings, scores.
//!
//! Prompts use the same template and tokenizer as text generation, so that a token count equals the `prompt_tokens` of
//! the same prompt. Tokenization needs no sequence of the engine.

use std::sync::Arc;

use super::image_reader;
use super::images::ImageReader;
use super::request::{check_template, prompt_of, take_images};
use crate::daemon::blame;
use crate::daemon::registration::small;
use crate::link::Said;
use muster_engine::runtime::text::Language;
use muster_engine::runtime::{
    EncoderInput, Failure, ModelInfo, PairTemplate, Pairing, Prompt, Purpose, Runtime, normalize,
};
use muster_protocol::job::{
    self, Body, DetokenizeInput, EmbeddingRequest, FailureKind, FinishReason, RankingRequest,
    ResultPart, TextInput, TokenList, TokenizeInput, TokensRequest, Usage, Vector,
};

/// The result of a job and its last word.
pub async fn run(model: String, request: Body, runtime: &Runtime) -> Result<(Said, Said), Said> {
    let info = runtime.info(&model).map_err(blame::said)?;
    let language = runtime.language(&model).map_err(blame::said)?;
    let (result, count) = match request {
        Body::Tokens(request) => match *request {
            TokensRequest::Tokenize(text) => {
                let context = small(info.context);
                let images = image_reader(&model, runtime).map_err(blame::said)?;
                beside(move || {
                    let tokens = tokenize(&language, text, images.as_ref())?;
                    let count = tokens.ids.len();
                    Ok((ResultPart::Tokens(TokenList { context, ..tokens }), count))
                })
                .await?
            }
            TokensRequest::Load => {
                let tokens = TokenList {
                    context: small(info.context),
                    ..TokenList::default()
                };
                (ResultPart::Tokens(tokens), 0)
            }
            TokensRequest::Detokenize(DetokenizeInput { tokens }) => {
                let vocabulary = info.vocabulary;
                beside(move || detokenize(&language, &tokens, vocabulary)).await?
            }
        },
        Body::Embedding(request) => {
            let EmbeddingRequest {
                inputs,
                first,
                dimensions,
            } = *request;
            let dimensions = dimensions_of(&info, dimensions).map_err(Said::Failed)?;
            let limits = info.clone();
            let sequences = beside(move || sequences(&language, inputs, first, &limits)).await?;
            embed(&info, sequences, dimensions, runtime).await?
        }
        Body::Ranking(request) => {
            let RankingRequest {
                query,
                documents,
                first,
            } = *request;
            let Purpose::Rerank(pairing) = info.purpose.clone() else {
                return Err(Said::Failed(unable(&info, "reranking")));
            };
            let limits = info.clone();
            let pairs = beside(move || {
                let pairs = PairReader {
                    language: &language,
                    pairing,
                    query: &query,
                };
                pairs.read((first, &documents), &limits)
            });
            let pairs = pairs.await?;
            rerank(&info, pairs, runtime).await?
        }
        Body::Transcription(_) => return Err(Said::Failed(unable(&info, "transcription"))),
        Body::Speech(_) => return Err(Said::Failed(unable(&info, "speech"))),
        _ => return Err(Said::Failed(unable(&info, "this kind of job"))),
    };
    Ok(ending(result, count))
}

/// A result of this many prompt tokens, and the final report.
pub fn ending(result: ResultPart, count: usize) -> (Said, Said) {
    let usage = Usage {
        prompt_tokens: small(count),
        ..Usage::default()
    };
    let finish = FinishReason::Stop;
    (Said::Part(Box::new(result)), Said::Done { finish, usage })
}

/// Runs on another thread: templates and tokenizers may be slow, and come with downloaded models.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Said> + Send + 'static,
) -> Result<T, Said> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| blame::broken())?
}

fn tokenize(
    language: &Arc<Language>,
    text: TokenizeInput,
    reader: Option<&ImageReader>,
) -> Result<TokenList, Said> {
    let TokenizeInput {
        mut input,
        add_special_tokens,
        with_strings,
    } = text;
    let images = take_images(&mut input, reader).map_err(Said::Failed)?;
    check_template(&input, language).map_err(Said::Failed)?;
    let prefix = add_special_tokens.unwrap_or(!matches!(input, TextInput::Chat(_)));
    let reader = reader.filter(|_| !images.is_empty());
    let prompt = prompt_of(input, images);
    let ids = match reader {
        Some(reader) => reader
            .input
            .read(language, &prompt, prefix)
            .map(|(ids, _)| ids),
        None => language.read(&prompt, prefix),
    };
    let ids = ids.map_err(blame::said)?;
    let strings = with_strings.then(|| language.names(&ids)).transpose();
    let strings = strings.map_err(blame::said)?;
    Ok(TokenList {
        ids,
        strings,
        context: 0,
    })
}

fn detokenize(
    language: &Language,
    tokens: &[u32],
    vocabulary: usize,
) -> Result<(ResultPart, usize), Said> {
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= vocabulary) {
        let message = format!("tokens has {id}, but the vocabulary has {vocabulary} tokens");
        return Err(blame::said(Failure::BadRequest(message)));
    }
    let text = language.decode(tokens).map_err(blame::said)?;
    Ok((ResultPart::Text(text), tokens.len()))
}

/// The length of truncated vectors, if the client requests fewer numbers than the model computes.
fn dimensions_of(info: &ModelInfo, wanted: Option<u32>) -> Result<Option<usize>, job::Failure> {
    let Purpose::Embed(vectors) = &info.purpose else {
        return Err(unable(info, "embeddings"));
    };
    let wanted = wanted.map(|wanted| wanted as usize);
    match wanted.filter(|wanted| !vectors.can_have(*wanted)) {
        None => Ok(wanted),
        Some(wanted) => {
            let (model, whole) = (&info.name, vectors.dimensions);
            let message = format!(
                "vectors of {model} have {whole} dimensions and cannot be shortened to {wanted}"
            );
            Err(job::Failure::new(FailureKind::UnsupportedValue, message))
        }
    }
}

fn unable(info: &ModelInfo, what: &str) -> job::Failure {
    let message = format!("the model {} does not support {what}", info.name);
    job::Failure::new(FailureKind::UnsupportedValue, message)
}

fn sequences(
    language: &Language,
    inputs: Vec<TextInput>,
    first: usize,
    info: &ModelInfo,
) -> Result<Vec<EncoderInput>, Said> {
    let read = (first..).zip(inputs).map(|(index, input)| {
        let tokens = language.read(&prompt_of(input, Vec::new()), true);
        let tokens = tokens.map_err(blame::said)?;
        check_length(&format!("input[{index}]"), tokens.len(), info)?;
        Ok(EncoderInput::from(tokens))
    });
    read.collect()
}

/// Makes a sequence of the query and each document.
struct PairReader<'a> {
    language: &'a Language,
    pairing: Pairing,
    query: &'a str,
}

impl PairReader<'_> {
    fn read(
        &self,
        (first, documents): (usize, &[String]),
        info: &ModelInfo,
    ) -> Result<Vec<EncoderInput>, Said> {
        if let (Pairing::Template(template), Some(document)) = (&self.pairing, documents.first()) {
            self.check(template, document).map_err(blame::said)?;
        }
        let read = (first..).zip(documents).map(|(index, document)| {
            let input = self.pair(document).map_err(blame::said)?;
            let place = format!("query with documents[{index}]");
            check_length(&place, input.tokens.len(), info)?;
            Ok(input)
        });
        read.collect()
    }

    fn pair(&self, document: &str) -> Result<EncoderInput, Failure> {
        match &self.pairing {
            Pairing::Tokenizer => {
                let (tokens, types) = self.language.pair(self.query, document)?;
                Ok(EncoderInput { tokens, types })
            }
            Pairing::Template(template) => Ok(EncoderInput::from(
                self.rendered(template, self.query, document)?,
            )),
        }
    }

    /// A template for chats leaves out messages of roles that it does not know.
    fn check(&self, template: &PairTemplate, document: &str) -> Result<(), Failure> {
        let tokens = self.rendered(template, self.query, document)?;
        let is_query_unread =
            !self.query.is_empty() && self.rendered(template, "", document)? == tokens;
        let is_document_unread =
            !document.is_empty() && self.rendered(template, self.query, "")? == tokens;
        match is_query_unread || is_document_unread {
            true => {
                let reason = "the model's chat template leaves out the query or the document";
                Err(Failure::BrokenTemplate(reason.to_owned()))
            }
            false => Ok(()),
        }
    }

    fn rendered(
        &self,
        template: &PairTemplate,
        query: &str,
        document: &str,
    ) -> Result<Vec<u32>, Failure> {
        let chat = Prompt::Chat(template.chat(query, document));
        self.language.read(&chat, false)
    }
}

/// No text is cut in silence: its vector would be that of another text.
fn check_length(place: &str, found: usize, info: &ModelInfo) -> Result<(), Said> {
    let (model, most) = (&info.name, info.context);
    if found <= most {
        return Ok(());
    }
    let message = format!(
        "{place} has {found} tokens, but {model} reads at most {most}: shorten it by {}",
        found - most
    );
    let failure = job::Failure::new(FailureKind::ContextLengthExceeded, message);
    Err(Said::Failed(failure))
}

async fn embed(
    info: &ModelInfo,
    sequences: Vec<EncoderInput>,
    dimensions: Option<usize>,
    runtime: &Runtime,
) -> Result<(ResultPart, usize), Said> {
    let count = sequences.iter().map(|one| one.tokens.len()).sum();
    let vectors = runtime.encode(&info.name, sequences).await;
    let vectors = vectors.map_err(blame::said)?.into_iter().map(|mut vector| {
        if let Some(dimensions) = dimensions.filter(|&kept| kept < vector.len()) {
            vector.truncate(dimensions);
            normalize(&mut vector);
        }
        Vector(vector)
    });
    Ok((ResultPart::Vectors(vectors.collect()), count))
}

async fn rerank(
    info: &ModelInfo,
    pairs: Vec<EncoderInput>,
    runtime: &Runtime,
) -> Result<(ResultPart, usize), Said> {
    let count = pairs.iter().map(|one| one.tokens.len()).sum();
    let logits = runtime.encode(&info.name, pairs).await;
    let logits = logits.map_err(blame::said)?;
    let scores = logits.into_iter().map(|row| {
        let logit = row.first().copied().unwrap_or(f32::NEG_INFINITY);
        // The sigmoid of the rerankers' references, so that scores of different models are comparable.
        1.0 / (1.0 + (-logit).exp())
    });
    Ok((ResultPart::Scores(scores.collect()), count))
}

#[cfg(test)]
mod tests {
    use super::{check_length, dimensions_of};
    use crate::link::Said;
    use muster_engine::runtime::{CheckpointSummary, ModelInfo, Purpose, Shorter, Vectors};

    fn info(shorter: Shorter) -> ModelInfo {
        ModelInfo {
            name: "m".to_owned(),
            parent: None,
            purpose: Purpose::Embed(Vectors {
                dimensions: 8,
                shorter,
            }),
            vocabulary: 100,
            context: 16,
            weight_bytes: 0,
            cache_bytes: 0,
            cache_tokens: 0,
            can_chat: false,
            reads_images: false,
            runs_one_job: false,
            files: CheckpointSummary::default(),
        }
    }

    #[test]
    fn vectors_are_shortened_only_where_the_model_allows_it() {
        let fixed = info(Shorter::Never);
        assert_eq!(dimensions_of(&fixed, None), Ok(None));
        assert_eq!(dimensions_of(&fixed, Some(8)), Ok(Some(8)));
        let refused = dimensions_of(&fixed, Some(4)).unwrap_err();
        assert!(refused.message.contains("have 8 dimensions"), "{refused}");
        assert_eq!(dimensions_of(&info(Shorter::ToAny), Some(4)), Ok(Some(4)));
        let writes = ModelInfo {
            purpose: Purpose::Generate,
            ..fixed
        };
        assert!(dimensions_of(&writes, None).is_err());
    }

    #[test]
    fn a_text_that_is_too_long_is_refused_with_the_arithmetic() {
        let info = info(Shorter::Never);
        assert_eq!(check_length("input[0]", 16, &info), Ok(()));
        let Err(Said::Failed(failure)) = check_length("input[3]", 20, &info) else {
            panic!("expected a failure");
        };
        let wanted = "input[3] has 20 tokens, but m reads at most 16: shorten it by 4";
        assert_eq!(failure.message, wanted);
    }
}
