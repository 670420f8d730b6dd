//! Conversions between frames and neutral types.

use crate::dispatch;
use crate::media::MediaType;
use muster_protocol::job::{Blame, Event, Failure, FailureKind};
use muster_protocol::link::{ErrorFrame, GpuState, Prefill};

/// Longest part of a worker's message that is passed on.
const LONGEST_MESSAGE: usize = 500;
/// Most GPUs of a worker in lists.
const MOST_GPUS: usize = 16;
const LONGEST_NAME: usize = 100;

/// A worker's `error`. The claimed fault is trusted as far as a worker can know.
pub fn failure(error: &ErrorFrame) -> Failure {
    let kind = match error.code {
        Some(code) if can_say(code) => code,
        _ if error.client_error && is_overflow(&error.message) => {
            FailureKind::ContextLengthExceeded
        }
        _ if error.client_error => FailureKind::InvalidRequest,
        _ => FailureKind::WorkerFailed,
    };
    let message = match error.message.trim() {
        "" => "the worker failed without an error message",
        said => shortened(said, LONGEST_MESSAGE),
    };
    Failure::new(kind, message.to_owned())
}

/// In the wording of common inference servers: vLLM and OpenAI's, llama.cpp, SGLang.
fn is_overflow(message: &str) -> bool {
    const WORDS: [&str; 4] = [
        "maximum context length",
        "context_length_exceeded",
        "exceeds the available context size",
        "longer than the model's context length",
    ];
    let message = message.to_lowercase();
    WORDS.iter().any(|words| message.contains(words))
}

fn can_say(code: FailureKind) -> bool {
    let told_by_workers = [
        FailureKind::InvalidRequest,
        FailureKind::UnsupportedValue,
        FailureKind::ContextLengthExceeded,
        FailureKind::TooLarge,
        FailureKind::ContentRefused,
    ];
    code.row().blame == Blame::Worker || told_by_workers.contains(&code)
}

fn shortened(message: &str, most: usize) -> &str {
    let mut end = message.len().min(most);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

pub fn too_large(found: usize, most: usize) -> Failure {
    let message = format!("the request needs a frame of {found} bytes, the worker accepts {most}");
    Failure::new(FailureKind::TooLarge, message)
}

/// A preview, if its bytes are an image.
pub fn preview(bytes: Vec<u8>) -> Option<Event> {
    let kind = MediaType::sniff(&bytes)?;
    let is_image = matches!(kind, MediaType::Webp | MediaType::Png | MediaType::Jpeg);
    is_image.then(|| Event::Preview {
        mime: kind.content_type().to_owned(),
        bytes,
    })
}

/// A worker's GPUs, limited to useful data.
pub fn gpus(said: &[GpuState]) -> Vec<GpuState> {
    let short = |name: &String| shortened(name, LONGEST_NAME).to_owned();
    let one = |gpu: &GpuState| GpuState {
        name: short(&gpu.name),
        failed_kernels: gpu.failed_kernels.iter().map(short).collect(),
        ..*gpu
    };
    said.iter().take(MOST_GPUS).map(one).collect()
}

pub fn prefill(prefill: &dispatch::Prefill) -> Prefill {
    Prefill {
        text: prefill.text.clone(),
        tokens: prefill.tokens.clone(),
        written: prefill.written,
    }
}

#[cfg(test)]
mod tests {
    use super::is_overflow;

    #[test]
    fn context_overflow_is_recognized_in_the_words_of_inference_servers() {
        let told =
            "This model's maximum context length is 4096 tokens. However, you requested 5000";
        assert!(is_overflow(told));
        assert!(is_overflow(
            "the request exceeds the available context size"
        ));
        assert!(!is_overflow("tool 0 has no name"));
    }
}
