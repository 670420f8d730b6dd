//! Events of a job, in the order of its client's stream.

use serde::{Deserialize, Serialize};

use super::{Failure, Media, Note, ResultPart};

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A worker has processed the prompt, with this many tokens from its cache.
    Started {
        prompt_tokens: u32,
        cached_tokens: u32,
    },
    Token(TokenEvent),
    /// Log probabilities of tokens of the prompt. An attempt that takes the place of another sends them again.
    Prompt(PromptLogprobs),
    /// The output restarts, and earlier output is void: only for jobs whose client has seen none of it.
    Restarted,
    ToolCall(ToolCallEvent),
    /// How far a job without text is.
    Progress(Progress),
    Preview {
        mime: String,
        bytes: Vec<u8>,
    },
    /// A finished output in the media store.
    Media(Media),
    /// About the text that comes.
    Note(Note),
    /// Values: all of them, or the next part.
    Part(Box<ResultPart>),
    /// The worker's count so far.
    Usage(Usage),
    Done {
        finish: FinishReason,
        usage: Usage,
    },
    Failed(Failure),
}

/// Final text, and the tokens sampled since the last event. The text may lag behind its tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenEvent {
    pub channel: Channel,
    pub text: String,
    /// The model's own ids; empty from peers that do not tell, whose streams cannot be continued elsewhere.
    pub ids: Vec<u32>,
    pub logprobs: Vec<TokenLogprob>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Channel {
    #[default]
    Content,
    Reasoning,
    Refusal,
}

/// A piece of a tool call, as OpenAI streams them: joined by `index`, arguments appended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCallEvent {
    pub index: u32,
    pub id: Option<String>,
    pub name: Option<String>,
    pub arguments: String,
    /// The tokens this piece was read from, as in [`TokenEvent::ids`].
    pub ids: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// Bytes of the token, which may be part of a character.
    pub bytes: Vec<u8>,
    pub logprob: f32,
    /// The best alternatives, best first, if requested.
    pub top: Vec<(Vec<u8>, f32)>,
}

/// Tokens of a prompt that follow each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptLogprobs {
    /// Tokens of the prompt before these.
    pub start: u32,
    pub tokens: Vec<PromptToken>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptToken {
    /// Bytes of the token, which may be part of a character; empty for a special token.
    pub bytes: Vec<u8>,
    /// None for the first token of a prompt.
    pub logprob: Option<f32>,
    pub top: Vec<(Vec<u8>, f32)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub percent: u8,
    /// The step it is at and how many there are, where the worker counts them.
    pub steps: Option<(u32, u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended its turn, or a stop string appeared.
    Stop,
    /// This stop string appeared, from workers that tell.
    StopString(Box<str>),
    /// `max_tokens` or the model's context was reached.
    Length,
    ToolCalls,
    ContentFilter,
    /// The worker reports the output as child sexual abuse material; never shown.
    Unlawful,
    /// Stopped because it was asked to.
    Cancelled,
}

/// Tokens by the model's own tokenizer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub prompt_tokens: u32,
    #[serde(default)]
    pub cached_tokens: u32,
    /// All tokens of the output, with those of earlier attempts.
    pub completion_tokens: u32,
    /// Tokens that were spent on reasoning.
    #[serde(default)]
    pub reasoning_tokens: u32,
}

impl PromptLogprobs {
    pub fn len(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens that follow the first `known` tokens of the prompt; none if others are missing between.
    pub fn after(&self, known: u32) -> &[PromptToken] {
        let skipped = known.checked_sub(self.start);
        let rest = skipped.and_then(|skipped| self.tokens.get(skipped as usize..));
        rest.unwrap_or_default()
    }
}

impl Progress {
    pub fn percent(percent: u8) -> Self {
        Self {
            percent,
            steps: None,
        }
    }

    /// At this step of `steps`.
    pub fn at(step: u32, steps: u32) -> Self {
        let percent = u64::from(step) * 100 / u64::from(steps.max(1));
        Self {
            percent: u8::try_from(percent.min(100)).unwrap_or(100),
            steps: Some((step, steps)),
        }
    }
}

impl Event {
    /// Whether a client that has seen this has seen part of the result: from here on the job cannot be
    /// started over without the client noticing.
    pub fn is_output(&self) -> bool {
        matches!(
            self,
            Self::Token(_) | Self::ToolCall(_) | Self::Media(_) | Self::Part(_)
        )
    }

    /// Whether it is the last of its attempt.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed(_))
    }
}
