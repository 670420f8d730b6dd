//! Converts a request to a job for the inference thread: all checks that can refuse it happen here, on the caller's
//! thread.

use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::images::{ImageInput, PromptImages};
use super::outbox::Outbox;
use super::sampling::{Bans, MAX_LOGPROBS, Sampler, Settings};
use super::sequence::Job;
use super::shared::Listing;
use super::text::{Begins, Detokenizer, Language, StopStrings};
use super::{Event, Failure, Prompt, TextRequest};

pub fn prepare(
    request: TextRequest,
    listing: &Listing,
    place: OwnedSemaphorePermit,
) -> Result<(Job, mpsc::Receiver<Event>), Failure> {
    let Listing {
        info,
        language,
        defaults,
        grammars,
        images,
    } = listing;
    let (mut prompt, images) = with_images(language, &request.prompt, images.as_deref())?;
    check_ids("the prompt", &prompt, info.vocabulary)?;
    check_ids("generated", &request.generated, info.vocabulary)?;
    let window = request.window.unwrap_or(usize::MAX).min(info.context);
    // Half an image would be another one.
    if request.window.is_some() && images.is_empty() {
        let opening = language.opening(&prompt)?;
        lose_beginning(&mut prompt, opening, room(window, request.max_tokens));
    }
    let max_tokens = match (request.max_tokens, request.prompt_logprobs) {
        (Some(0), Some(_)) => no_tokens(prompt.len(), window)?,
        (asked, _) => max_tokens(asked, prompt.len(), window)?,
    };
    check_logprobs("logprobs", request.logprobs)?;
    check_logprobs("prompt_logprobs", request.prompt_logprobs)?;
    let settings = Settings::resolve(&request.sampling, defaults, info.vocabulary)
        .map_err(Failure::BadRequest)?;
    check_ids(
        "stop_token_ids",
        &request.stop_rules.stop_token_ids,
        info.vocabulary,
    )?;
    let sampler = Sampler::new(
        settings,
        request.choice,
        request.logprobs,
        &prompt,
        &request.generated,
    );
    let sampler = sampler.with_bans(Bans::of(&request.stop_rules, &language.ends));
    let stops = StopStrings::new(request.stop).map_err(Failure::BadRequest)?;
    let (sender, events) = Outbox::channel();
    let outbox = Outbox::new(sender).ok_or(Failure::Stopped)?;
    let begins = match request.prompt {
        Prompt::Chat(_) => Begins::Fresh,
        Prompt::Text(_) | Prompt::Tokens(_) => Begins::AfterPrompt,
    };
    let grammar = request.grammar.as_deref().filter(|_| max_tokens > 0);
    let guide = grammar.map(|grammar| {
        let (rules, generated) = (&request.stop_rules, &request.generated);
        grammars.guide(grammar, request.scope, begins, rules, generated)
    });
    let job = Job {
        model: request.model,
        scope: request.scope,
        prompt,
        images,
        prompt_logprobs: request.prompt_logprobs,
        generated: request.generated,
        sampler,
        max_tokens,
        guide: guide.transpose()?,
        stops,
        stop_rules: request.stop_rules,
        detokenizer: Detokenizer::new(language.pieces(), begins),
        outbox,
        place,
    };
    Ok((job, events))
}

/// The tokens of a prompt, including those of its images.
fn with_images(
    language: &Language,
    prompt: &Prompt,
    input: Option<&ImageInput>,
) -> Result<(Vec<u32>, PromptImages), Failure> {
    let images = match prompt {
        Prompt::Chat(chat) => &chat.images[..],
        Prompt::Text(_) | Prompt::Tokens(_) => &[],
    };
    match (images, input) {
        ([], _) => Ok((language.prompt_tokens(prompt)?, PromptImages::default())),
        (_, Some(input)) => input.read(language, prompt, false),
        (_, None) => {
            let message = "the model does not read images; send text alone";
            Err(Failure::BadRequest(message.to_owned()))
        }
    }
}

/// The part of a window for the prompt; the answer gets at most half.
fn room(window: usize, answer: Option<usize>) -> usize {
    let half = window / 2;
    window - answer.map_or(half, |answer| answer.min(half))
}

/// Deletes tokens after the opening, so that the prompt has at most `most` tokens.
fn lose_beginning(prompt: &mut Vec<u32>, opening: usize, most: usize) {
    let too_many = prompt.len().saturating_sub(most.max(opening + 1));
    prompt.drain(opening..opening + too_many);
}

/// The requested number, limited by the rest of the context.
fn max_tokens(asked: Option<usize>, prompt: usize, context: usize) -> Result<usize, Failure> {
    let Some(room) = context.checked_sub(prompt).filter(|&room| room > 0) else {
        let limit = context.saturating_sub(1);
        return Err(Failure::PromptTooLong {
            found: prompt,
            limit,
        });
    };
    match asked {
        Some(0) => Err(Failure::BadRequest(
            "max_tokens must be at least 1, found 0".to_owned(),
        )),
        Some(asked) => Ok(asked.min(room)),
        None => Ok(room),
    }
}

/// A prompt with only its log probabilities requested may fill the context.
fn no_tokens(prompt: usize, context: usize) -> Result<usize, Failure> {
    match prompt <= context {
        true => Ok(0),
        false => Err(Failure::PromptTooLong {
            found: prompt,
            limit: context,
        }),
    }
}

fn check_logprobs(field: &str, count: Option<usize>) -> Result<(), Failure> {
    match count.filter(|&found| found > MAX_LOGPROBS) {
        Some(found) => Err(Failure::BadRequest(format!(
            "{field} must be at most {MAX_LOGPROBS}, found {found}"
        ))),
        None => Ok(()),
    }
}

pub fn check_ids(what: &str, ids: &[u32], vocabulary: usize) -> Result<(), Failure> {
    match ids.iter().find(|&&id| id as usize >= vocabulary) {
        Some(id) => Err(Failure::BadRequest(format!(
            "{what} has token {id}, but the vocabulary has {vocabulary} tokens"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{check_ids, lose_beginning, max_tokens, room};
    use crate::runtime::Failure;

    #[test]
    fn an_answer_gets_what_the_prompt_leaves() {
        assert_eq!(max_tokens(None, 10, 100), Ok(90));
        assert_eq!(max_tokens(Some(500), 10, 100), Ok(90));
        assert_eq!(max_tokens(Some(5), 10, 100), Ok(5));
        let refusal = max_tokens(None, 100, 100);
        assert_eq!(
            refusal,
            Err(Failure::PromptTooLong {
                found: 100,
                limit: 99
            })
        );
    }

    #[test]
    fn a_prompt_leaves_its_answer_room_up_to_half_of_the_window() {
        assert_eq!(room(1024, Some(80)), 944);
        assert_eq!(room(1024, Some(2000)), 512);
        assert_eq!(room(1024, None), 512);
    }

    #[test]
    fn what_is_too_long_loses_its_beginning_but_not_its_opening() {
        let cut = |opening, most| {
            let mut prompt = vec![1, 10, 11, 12, 13];
            lose_beginning(&mut prompt, opening, most);
            prompt
        };
        assert_eq!(cut(1, 5), [1, 10, 11, 12, 13]);
        assert_eq!(cut(1, 3), [1, 12, 13]);
        assert_eq!(cut(0, 3), [11, 12, 13]);
        assert_eq!(cut(1, 0), [1, 13]);
    }

    #[test]
    fn tokens_the_model_does_not_have_are_refused() {
        assert_eq!(check_ids("the prompt", &[1, 2], 3), Ok(()));
        let refusal = check_ids("the prompt", &[1, 3], 3).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "the prompt has token 3, but the vocabulary has 3 tokens"
        );
    }
}
