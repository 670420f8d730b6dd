//! Jobs in, events out. One ordinary thread per device owns its text models; callers hold a [`Runtime`], a bounded
//! sender. Media pipelines run on a second thread, the [`maker`].
//!
//! A [`TextRequest`] becomes a [`Generation`]: a stream of [`Event`]s. Dropping the generation cancels the job.

mod component;
mod device_thread;
pub mod diffusion;
mod encode;
mod engine;
mod eyes;
mod footprint;
pub mod grammar;
mod handle;
pub mod hearing;
pub mod image;
mod images;
pub mod kv_cache;
mod load;
pub mod maker;
mod model;
pub mod music;
mod network_pool;
mod outbox;
pub mod pickles;
mod prepare;
pub mod safety;
pub mod sampling;
pub mod scheduler;
mod sequence;
mod shared;
mod single_sequence;
mod speculation;
pub mod speech;
pub mod text;
pub mod video;
mod work;

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::Device;

pub use crate::networks::encoder::EncoderInput;
pub use crate::networks::weights::CheckpointSummary;
pub use component::ComponentFolders;
pub use encode::{PairTemplate, Pairing, Purpose, Shorter, Vectors, normalize};
pub use footprint::{Footprint, adapter_bytes};
pub use grammar::Grammar;
pub use handle::{Generation, Runtime};
pub use images::{ChatImage, ImageDetail, ImageInput, ImageTexts};
pub use kv_cache::CacheScope;
pub use load::{CacheRoom, DEFAULT_CACHE_TOKENS, LoadError, ModelSource};
pub use muster_kernels::{
    GpuTrial, KvDtype, PAGE_TOKENS, convolution_scratch, gpu_faults, gpu_trials, keep_gpu_trials,
};
pub use network_pool::{NetworkFiles, SharedWeights};
pub use outbox::{SLOW_READER_TOKENS, UNREAD_EVENTS};
pub use speculation::Speculation;

/// A request for text. `None` leaves a setting to the model's defaults.
#[derive(Debug, Clone)]
pub struct TextRequest {
    /// The name under which the model was loaded.
    pub model: String,
    pub prompt: Prompt,
    /// Tokens of an interrupted run: generation continues after them with the same result.
    pub generated: Vec<u32>,
    pub sampling: Sampling,
    /// At most this many tokens, `generated` counted in.
    pub max_tokens: Option<usize>,
    /// Limit of prompt and answer together: a prompt that leaves too few tokens for the answer loses its beginning.
    /// `None` uses the model's context and refuses longer prompts.
    pub window: Option<usize>,
    pub stop: Vec<String>,
    pub stop_rules: StopRules,
    /// Report the log probability of each token, and of this many best alternatives.
    pub logprobs: Option<usize>,
    /// The same for each prompt token. With it `max_tokens` may be 0.
    pub prompt_logprobs: Option<usize>,
    /// Constraint on the text.
    pub grammar: Option<Arc<Grammar>>,
    /// Index of the choice in its request; part of every random draw.
    pub choice: u32,
    /// Scope of the prefix cache: only jobs of the same scope share prompts.
    pub scope: CacheScope,
}

/// End-of-text tokens, and the minimum length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopRules {
    /// Neither a token nor a stop string ends the text before this many tokens.
    pub min_tokens: usize,
    /// The model's end-of-text tokens are never sampled.
    pub ignore_eos: bool,
    /// Further tokens that end the text without being part of it.
    pub stop_token_ids: Vec<u32>,
}

#[derive(Debug, Clone)]
pub enum Prompt {
    /// Text as it is, special tokens parsed, the tokenizer's own prefix (BOS) added.
    Text(String),
    /// Token ids, used as they are.
    Tokens(Vec<u32>),
    /// Messages for the model's chat template.
    Chat(Chat),
}

/// Input of a chat template.
#[derive(Debug, Clone, Default)]
pub struct Chat {
    /// Objects with `role`, `content`, and further keys of the template.
    pub messages: Vec<serde_json::Value>,
    /// In the order of the messages' parts `{"type":"image"}`.
    pub images: Vec<ChatImage>,
    /// Texts that replace images in the rendered chat.
    pub image_texts: Option<ImageTexts>,
    pub tools: Vec<serde_json::Value>,
    /// Further variables of the template (`enable_thinking` and the like).
    pub variables: serde_json::Map<String, serde_json::Value>,
}

/// Sampling settings. `None` falls back to the model's default, then to the neutral value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sampling {
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    /// How many of the last tokens count for it, of prompt and text together; 0 for all.
    pub repetition_range: Option<usize>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub logit_bias: Vec<(u32, f32)>,
    pub seed: Option<u64>,
    pub smoothing_factor: Option<f32>,
    pub dynatemp_range: Option<f32>,
    pub dynatemp_exponent: Option<f32>,
    pub top_a: Option<f32>,
    pub tfs: Option<f32>,
    pub typical: Option<f32>,
}

impl Sampling {
    /// These settings, with `those` as fallback.
    #[must_use]
    pub fn or(self, those: &Self) -> Self {
        Self {
            temperature: self.temperature.or(those.temperature),
            top_k: self.top_k.or(those.top_k),
            top_p: self.top_p.or(those.top_p),
            min_p: self.min_p.or(those.min_p),
            repetition_penalty: self.repetition_penalty.or(those.repetition_penalty),
            repetition_range: self.repetition_range.or(those.repetition_range),
            presence_penalty: self.presence_penalty.or(those.presence_penalty),
            frequency_penalty: self.frequency_penalty.or(those.frequency_penalty),
            logit_bias: if self.logit_bias.is_empty() {
                those.logit_bias.clone()
            } else {
                self.logit_bias
            },
            seed: self.seed.or(those.seed),
            smoothing_factor: self.smoothing_factor.or(those.smoothing_factor),
            dynatemp_range: self.dynatemp_range.or(those.dynatemp_range),
            dynatemp_exponent: self.dynatemp_exponent.or(those.dynatemp_exponent),
            top_a: self.top_a.or(those.top_a),
            tfs: self.tfs.or(those.tfs),
            typical: self.typical.or(those.typical),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The prefill is complete: the number of prompt tokens, and how many came from the prefix cache.
    Started {
        prompt_tokens: usize,
        cached_tokens: usize,
    },
    /// Log probabilities of the prompt's tokens, the first of which is this one of it. All of them come before any
    /// text, in their order; the very first token has none.
    Prompt {
        start: usize,
        tokens: Vec<TokenInfo>,
    },
    /// Final text (never part of a character or of a stop string), and the tokens sampled since the last event. The
    /// text may lag behind its tokens.
    Text {
        text: String,
        tokens: Vec<TokenInfo>,
    },
    Done {
        reason: FinishReason,
        usage: Usage,
    },
    Failed(Failure),
}

#[derive(Debug, Clone, PartialEq)]
pub struct TokenInfo {
    pub id: u32,
    pub logprob: Option<f32>,
    /// The requested number of alternatives, best first.
    pub top: Vec<(u32, f32)>,
}

impl TokenInfo {
    pub fn without_logprob(id: u32) -> Self {
        Self {
            id,
            logprob: None,
            top: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its turn.
    EndOfTurn,
    /// The stop string that was found.
    Stop(String),
    /// `max_tokens` or the model's context was reached.
    Length,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub completion_tokens: usize,
}

/// The reason of a failed job, for the caller's error reply.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    #[error("the model {model} is not loaded; loaded: {}", if .loaded.is_empty() { "none".to_owned() } else { .loaded.join(", ") })]
    NotLoaded { model: String, loaded: Vec<String> },
    #[error("the engine is full: {running} jobs running, {waiting} waiting")]
    Busy { running: usize, waiting: usize },
    #[error("the prompt has {found} tokens, but the model takes at most {limit}")]
    PromptTooLong { found: usize, limit: usize },
    #[error("{0}")]
    BadRequest(String),
    /// The model's own template or tokenizer cannot be used, or stumbles over these messages.
    #[error("{0}")]
    BrokenTemplate(String),
    #[error("the client read too slowly: {unread} tokens or results unread")]
    SlowReader { unread: usize },
    #[error("the engine is paused")]
    Paused,
    #[error("the engine has stopped")]
    Stopped,
    /// A job panicked. The model and its other jobs continue.
    #[error("a job of the model {model} crashed")]
    Crashed { model: String },
    #[error("the engine failed: {0}")]
    Internal(Arc<str>),
}

impl Failure {
    fn internal(reason: impl Display) -> Self {
        Self::Internal(reason.to_string().into())
    }
}

/// The device that a thread owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    Cpu,
    /// An NVIDIA GPU, by its index.
    Cuda(usize),
}

impl DeviceChoice {
    pub fn open(self) -> Result<Device, LoadError> {
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda(index) => muster_kernels::open_gpu(index)
                .map_err(|error| LoadError::Device(model::plain(&error))),
        }
    }

    /// Free memory of a GPU, excluding the CUDA context if it is open. `None` on the CPU.
    pub fn free_bytes(self) -> Option<u64> {
        match self {
            Self::Cpu => None,
            Self::Cuda(index) => muster_kernels::gpu_free_bytes(index).ok(),
        }
    }

    /// Whether the device works. A GPU whose context failed, or that left the bus, refuses every call.
    pub fn answers(self) -> bool {
        match self {
            Self::Cpu => true,
            Self::Cuda(index) => muster_kernels::gpu_free_bytes(index).is_ok(),
        }
    }

    /// Returns memory of unloaded models to the driver, for other programs.
    pub fn give_back(self) -> Result<(), LoadError> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda(index) => muster_kernels::give_back_gpu_memory(index)
                .map_err(|error| LoadError::Device(model::plain(&error))),
        }
    }

    /// Opens it for models that share networks: on a GPU all of them use one handle, and so one stream.
    pub fn open_shared(self) -> Result<Device, LoadError> {
        static OPENED: Mutex<Vec<(usize, Device)>> = Mutex::new(Vec::new());
        let Self::Cuda(index) = self else {
            return self.open();
        };
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, device)) = opened.iter().find(|(known, _)| *known == index) {
            return Ok(device.clone());
        }
        let device = self.open()?;
        opened.push((index, device.clone()));
        Ok(device)
    }

    /// The device that tests of networks run on.
    #[cfg(test)]
    fn of_tests() -> Self {
        crate::networks::test_device::gpu().map_or(Self::Cpu, Self::Cuda)
    }
}

/// How much a thread takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLimits {
    /// Sequences of one model that advance together.
    pub max_running: usize,
    /// Limit of waiting jobs. Further jobs get [`Failure::Busy`].
    pub max_waiting: usize,
    /// Prompt tokens in one step: more read prompts faster, fewer keep running texts flowing.
    pub prefill_chunk: usize,
    /// When texts use speculative decoding.
    pub speculation: Speculation,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self {
            max_running: 32,
            max_waiting: 64,
            prefill_chunk: 512,
            speculation: Speculation::default(),
        }
    }
}

/// Properties and memory of a loaded model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    pub name: String,
    /// The model that an adapter changes.
    pub parent: Option<String>,
    pub purpose: Purpose,
    pub vocabulary: usize,
    /// The most tokens of one sequence here, prompt and answer together.
    pub context: usize,
    pub weight_bytes: u64,
    pub cache_bytes: u64,
    /// Tokens of all sequences together.
    pub cache_tokens: usize,
    /// Whether the model has a chat template. Requests for a chat report a broken one.
    pub can_chat: bool,
    /// Whether its chats may have images.
    pub reads_images: bool,
    /// Whether its network has the cache of one sequence, so that jobs run one after the other.
    pub runs_one_job: bool,
    pub files: CheckpointSummary,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelStatus {
    pub info: Arc<ModelInfo>,
    pub running: usize,
    pub waiting: usize,
    pub pages: usize,
    pub free_pages: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub models: Vec<ModelStatus>,
    pub running: usize,
    pub waiting: usize,
    pub is_paused: bool,
}
