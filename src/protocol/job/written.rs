//! Bounds of a job's text output: workers are untrusted, and the text is stored for the client.

use super::{Body, Job};

/// Only the beginning of a longer text is stored.
pub const MOST_KEPT: usize = 1 << 20;
/// Without a token limit: a million tokens are a fourth of it.
const MOST_RELAYED: usize = 16 << 20;
/// For log probabilities of a prompt, with their repetition by another worker.
const MOST_SCORED: usize = 64 << 20;
/// For tokens or vectors of a job: as much as a frame holds.
const MOST_VALUES: usize = 32 << 20;
/// No vocabulary has longer tokens.
const BYTES_A_TOKEN: usize = 256;
/// Always allowed, whatever the request: some workers overrun the limit, and interrogation results have no stated
/// length.
const LEAST_BYTES: usize = 64 << 10;

pub fn most_bytes(job: &Job) -> usize {
    let tokens = match &job.body {
        Body::Text(text) => text.max_tokens.or(job.limits.output_tokens),
        _ => Some(0),
    };
    let bytes = tokens.map_or(MOST_KEPT, |tokens| {
        (tokens as usize).saturating_mul(BYTES_A_TOKEN)
    });
    bytes.clamp(LEAST_BYTES, MOST_KEPT)
}

/// The most output of a job that is passed on as it comes: its text, calls and log probabilities.
pub fn most_relayed(job: &Job) -> usize {
    let text = match &job.body {
        // A prompt has as many tokens as its model takes.
        Body::Text(text) if text.prompt_logprobs.is_some() => return MOST_SCORED,
        Body::Text(text) => text,
        body if body.brings_values() => return MOST_VALUES,
        Body::Form(_) => return LEAST_BYTES,
        _ => return usize::MAX,
    };
    let tokens = text.max_tokens.or(job.limits.output_tokens);
    // Each alternative has a text of its own.
    let texts = text.logprobs.map_or(1, |top| top as usize + 2);
    let bytes = tokens.map_or(MOST_RELAYED, |tokens| {
        (tokens as usize)
            .saturating_mul(BYTES_A_TOKEN)
            .saturating_mul(texts)
    });
    bytes.clamp(LEAST_BYTES, MOST_RELAYED)
}

#[cfg(test)]
mod tests {
    use super::{BYTES_A_TOKEN, LEAST_BYTES, MOST_KEPT, most_bytes};
    use crate::job::{AccountId, Body, FormRequest, Job, Limits, TextRequest};

    fn job(body: Body, output_tokens: Option<u32>) -> Job {
        Job {
            limits: Limits {
                output_tokens,
                ..Limits::default()
            },
            ..Job::plain(AccountId(1), "tiny", body)
        }
    }

    fn text(max_tokens: Option<u32>, limit: Option<u32>) -> Job {
        let asked = serde_json::json!({"input": {"prompt": "p"}, "max_tokens": max_tokens});
        let text: TextRequest = serde_json::from_value(asked).unwrap();
        job(Body::from(text), limit)
    }

    #[test]
    fn a_text_is_as_long_as_its_tokens_may_be_and_as_what_is_kept_of_it() {
        let check = |job: Job, bytes: usize| assert_eq!(most_bytes(&job), bytes);
        check(text(Some(16), None), LEAST_BYTES);
        check(text(Some(1024), None), 1024 * BYTES_A_TOKEN);
        check(text(None, Some(1024)), 1024 * BYTES_A_TOKEN);
        check(text(Some(u32::MAX), None), MOST_KEPT);
        check(text(None, None), MOST_KEPT);
        let form = FormRequest {
            form: "caption".to_owned(),
            payload: None,
            image: String::new(),
            width: 1,
            height: 1,
            slow_workers: true,
        };
        let form = job(Body::from(form), None);
        check(form, LEAST_BYTES);
    }
}
