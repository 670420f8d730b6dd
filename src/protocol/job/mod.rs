//! The neutral job, to which every dialect's request is converted, and which the queue, the workers and the ledger use.
//!
//! A client's *request* has n *jobs*, one output each, and a job has *attempts*, numbered from 1. Settings that the
//! client left out stay `None` here; code beyond this module does not know a job's API, except the renderer for public
//! peers, by [`Original`].

mod capabilities;
mod details;
pub mod drawn;
mod event;
mod failure;
mod ids;
mod keep_alive;
mod kinds;
mod known_words;
mod legacy;
mod needs;
mod price;
mod product;
pub mod samplers;
pub mod written;

pub use capabilities::Capabilities;
pub use details::ModelDetails;
pub use event::{
    Channel, Event, FinishReason, Progress, PromptLogprobs, PromptToken, TokenEvent, TokenLogprob,
    ToolCallEvent, Usage,
};
pub use failure::{Blame, Failure, FailureKind, FailureRow, PromptLength, Retry};
pub use ids::{
    AccountId, JobId, Kudos, RequestId, SharedKeyId, SharedKeyText, UnixMillis, WorkerId, timely,
};
pub use keep_alive::{KeepAlive, MemoryStay};
#[cfg(feature = "tone")]
pub use kinds::ToneRequest;
pub use kinds::{
    Body, Chat, Clip, ControlMap, DetokenizeInput, EmbeddingRequest, FormRequest, HeardLogprob,
    ImageRequest, JobRequest, Kind, LONGEST_SPEECH, LONGEST_VIDEO, Lora, MOST_FRAMES, MediaFile,
    ModelDefaults, MusicRequest, NEGATIVE, OutputForm, OutputFormat, PriceUnit, PromptSide,
    RankingRequest, Rate, ResultPart, Samples, Sampling, SolverSettings, SoundFormat, SourceImage,
    SourceUse, SpeechGap, SpeechPart, SpeechRequest, SpokenWord, StopRules, TextInput, TextRequest,
    TextualInversion, TokenList, TokenizeInput, TokensRequest, ToolChoice, Transcript,
    TranscriptSegment, TranscriptWord, TranscriptionRequest, USUAL_SIZE, Vector, VideoRequest,
    Voice, WorkflowText, most_spoken, named_inversions,
};
pub(crate) use kinds::{MediaJson, ValuesJson};
pub use known_words::KnownWords;
pub use legacy::LegacySampling;
pub use needs::{Formats, Kinds, MediaNeeds, Needs, Reach, Targets, TextNeeds};
pub use price::{JobPrice, MicroUsd};
pub use product::{Hidden, Media, Note, Product, Remark, Text};

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

/// A job: one output.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub request: RequestId,
    pub account: AccountId,
    /// The account's key that the job was asked with, if it has a budget of its own.
    pub shared_key: Option<SharedKeyId>,
    pub kind: Kind,
    pub model: ModelChoice,
    pub body: Body,
    pub limits: Limits,
    pub privacy: Privacy,
    /// When it has to have ended. Wall clock, because it may be stored.
    pub deadline: UnixMillis,
    /// Accepted means on disk: it outlives its client's connection and this process.
    pub durable: bool,
    /// Rolling hashes of the prompt's prefixes, shortest first, keyed per deployment: a worker that has run one of them
    /// may still have it cached.
    pub prefixes: Vec<u64>,
    pub original: Option<Original>,
    /// `None` if the account does not pay in money.
    pub price: Option<JobPrice>,
}

/// The owner of a prompt cache: a job may reuse entries of the same owner only, since cache hits show in
/// `cached_tokens` and in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheOwner {
    Account(AccountId, Option<SharedKeyId>),
    /// A single request: all anonymous clients share one account, so their requests share no cache.
    Request(RequestId),
}

impl CacheOwner {
    pub fn of(account: AccountId, shared_key: Option<SharedKeyId>, request: RequestId) -> Self {
        match account {
            AccountId::ANONYMOUS => Self::Request(request),
            account => Self::Account(account, shared_key),
        }
    }
}

impl Job {
    /// For any worker that serves the model, without a deadline, a price or a promise to outlive its client.
    pub fn plain(account: AccountId, model: &str, body: Body) -> Self {
        Self {
            id: JobId::random(),
            request: RequestId::random(),
            account,
            shared_key: None,
            kind: body.kind(),
            model: ModelChoice(vec![model.into()]),
            body,
            limits: Limits::default(),
            privacy: Privacy::default(),
            deadline: UnixMillis(i64::MAX),
            durable: false,
            prefixes: Vec::new(),
            original: None,
            price: None,
        }
    }

    pub fn cache_owner(&self) -> CacheOwner {
        CacheOwner::of(self.account, self.shared_key, self.request)
    }

    /// The client's body in its own API, if public workers may have it.
    pub fn native(&self) -> Option<&NativeBody> {
        self.original.as_ref()?.native.as_ref()
    }

    /// The format in which a worker that knows these gets the job: the neutral one first, then the client's own, then
    /// a translation. Empty if there is none.
    pub fn format_for(&self, known: Formats) -> Formats {
        let native = self.native().map(|native| native.format);
        let formats = [
            Some(Formats::NEUTRAL),
            native,
            Some(Formats::OPENAI_CHAT),
            Some(Formats::LEGACY),
        ];
        let both = |format: &Formats| known.meets(*format) && self.limits.formats.meets(*format);
        formats.into_iter().flatten().find(both).unwrap_or_default()
    }

    /// Whether a part of its output is of no use to its client.
    pub fn is_only_whole(&self) -> bool {
        self.durable && self.body.brings_values()
    }

    /// How much work it is as people count it: tokens that may be written, pixelsteps, or one form.
    pub fn size(&self) -> u64 {
        match (&self.body, self.limits.output_tokens) {
            (Body::Text(_), Some(tokens)) => tokens.into(),
            (body, _) => body.size(),
        }
    }

    /// The amount of work done: written tokens for a text, the full size for other kinds.
    pub fn work(&self, output_tokens: u32) -> u64 {
        match &self.body {
            Body::Text(_) => output_tokens.into(),
            body => body.size(),
        }
    }
}

/// Which models may serve it, the most wanted first. Names are compared exactly.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelChoice(pub Vec<Arc<str>>);

/// Requirements for the worker, and the most work that the job may become.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The worker must speak one of these.
    pub formats: Formats,
    /// The worker must be able to do all of these.
    pub requires: Capabilities,
    /// The prompt's length, as well as the coordinator can tell.
    pub prompt_tokens: u32,
    /// The requested token limit, if any.
    pub output_tokens: Option<u32>,
    /// Limits that a worker or a model must meet. Dispatch computes the context of texts from their prompts.
    pub needs: Needs,
    /// Which workers may serve it.
    pub targets: Targets,
    /// Memory of one job in a pop of several, in hundredths of a pixel; 0 is unlimited.
    pub bulk: u64,
    /// How long a worker that polls may keep it without a word; none: the usual time.
    pub patience: Option<Duration>,
    /// Lifetime of the request, renewed by every job taken or submitted; `None`: only the deadline counts.
    pub life: Option<Duration>,
    /// If no worker has taken it after so long it ends: its client has something else to try. None: it waits.
    pub start_within: Option<Duration>,
    /// The client reads the output only when it is complete, so it may be restarted until then.
    pub restartable: bool,
    /// How long a worker of the same account keeps the model in memory afterwards; `None` leaves it to the worker.
    pub keep_alive: Option<KeepAlive>,
}

/// Whose machines may see it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Privacy {
    #[default]
    Anyone,
    /// Workers the operator vouches for.
    Trusted,
    /// The account's own workers only.
    OwnWorkers,
}

/// The client's body as it came, scrubbed of credentials, for a public peer that speaks the same dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct Original {
    pub format: Formats,
    pub body: Arc<Value>,
    /// The body before it was translated to this format, for public peers that speak the client's own API.
    pub native: Option<NativeBody>,
}

/// A body in one of the APIs that public workers pass on to their inference servers.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeBody {
    pub format: Formats,
    pub body: Arc<Value>,
}
