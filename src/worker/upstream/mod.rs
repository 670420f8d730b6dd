//! Upstream programs that serve models on this machine: vLLM, SGLang, llama.cpp's server, Ollama, LM Studio, Stable
//! Diffusion web UI and others.
//!
//! | file | contents |
//! | --- | --- |
//! | `client`, `lines` | HTTP with limits on time and size; replies line by line |
//! | `facts` | properties of a program's model: context, concurrent jobs, capabilities |
//! | `model` | an available model |
//! | `watch` | the list of available models |
//! | `answer` | the events of a text, and token counts with upper bounds |
//! | `continuation` | the request for the rest of a text that another worker began |
//! | `openai`, `ollama`, `images` | requests and replies of each API |

mod answer;
mod client;
mod continuation;
mod error;
mod facts;
mod images;
mod lines;
mod model;
mod ollama;
mod openai;
mod watch;

pub use answer::{AnswerEvent, UpstreamAnswer};
pub use continuation::TextContinuation;
pub use error::UpstreamError;
pub use images::ImageSettings;
pub use model::{UpstreamKind, UpstreamModel};
pub use watch::{UpstreamState, UpstreamWatch};

use std::time::Duration;

use url::Url;

/// Which API a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    OpenAi,
    Ollama,
    A1111,
}

/// A model of a program, as its owner describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamWish {
    /// At coordinators.
    pub name: String,
    pub url: Url,
    pub api: Api,
    /// At the program; none: as at coordinators, or the only one.
    pub model: Option<String>,
    pub kind: Option<UpstreamKind>,
    pub key: Option<String>,
    pub context: Option<u32>,
    pub jobs: Option<u32>,
    pub tools: Option<bool>,
    pub images: Option<bool>,
    /// How long a job waits for the next byte.
    pub silence: Duration,
    /// Time for a text to finish when the owner pauses. `None`: only for texts that no other worker can continue.
    pub finish_within: Option<Duration>,
}
