//! A model that a program serves now.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use serde_json::json;
use tokio::sync::Notify;

use super::answer::UpstreamAnswer;
use super::client::UpstreamClient;
use super::continuation;
use super::facts::{self, Software, UpstreamFacts};
use super::images::{self, ImageSettings};
use super::{Api, UpstreamError, UpstreamWish, ollama, openai};
use muster_protocol::job::{EmbeddingRequest, Kind, RankingRequest, TextRequest, Vector};

/// Time after a pause for a text that no other worker can continue.
const LAST_WORDS: Duration = Duration::from_secs(60);

/// The output of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamKind {
    Text,
    Embedding,
    Ranking,
    Image,
}

/// A program and its owner's wishes. Clones share their connections.
#[derive(Debug, Clone)]
pub struct UpstreamSource {
    wish: UpstreamWish,
    client: UpstreamClient,
    /// Requests another check of the program.
    alarm: Arc<Notify>,
}

/// A model of an upstream program. Equal if all its properties are.
#[derive(Debug, Clone)]
pub struct UpstreamModel {
    /// At coordinators.
    pub name: String,
    pub kind: Kind,
    /// Tokens of prompt and answer together.
    pub context: u32,
    /// Jobs at once.
    pub jobs: u32,
    pub calls_tools: bool,
    pub reads_images: bool,
    facts: UpstreamFacts,
    source: UpstreamSource,
}

impl PartialEq for UpstreamModel {
    fn eq(&self, other: &Self) -> bool {
        self.facts == other.facts && self.source.wish == other.source.wish
    }
}

impl UpstreamSource {
    pub fn new(
        wish: UpstreamWish,
        tls: Arc<ClientConfig>,
        alarm: Arc<Notify>,
    ) -> Result<Self, String> {
        let client = UpstreamClient::new(wish.url.clone(), wish.key.clone(), wish.silence, tls)?;
        Ok(Self {
            wish,
            client,
            alarm,
        })
    }

    /// The model, where the program serves it.
    pub async fn look(&self) -> Result<UpstreamModel, UpstreamError> {
        let facts = facts::ask(&self.client, &self.wish).await?;
        let kind = match facts.kind {
            UpstreamKind::Text => Kind::Text,
            UpstreamKind::Embedding => Kind::Embedding,
            UpstreamKind::Ranking => Kind::Ranking,
            UpstreamKind::Image => Kind::Image,
        };
        let writes = kind == Kind::Text;
        Ok(UpstreamModel {
            name: self.wish.name.clone(),
            kind,
            context: facts.context,
            jobs: facts.jobs,
            calls_tools: facts.tools && writes,
            reads_images: facts.images && writes,
            facts,
            source: self.clone(),
        })
    }
}

impl UpstreamModel {
    /// The program's name, as sent to coordinators.
    pub fn software(&self) -> &'static str {
        self.facts.software.word()
    }

    /// The program's address, for the owner of the worker.
    pub fn url(&self) -> &str {
        self.source.wish.url.as_str().trim_end_matches('/')
    }

    /// Time for a text to finish after the owner's pause.
    pub fn finish_within(&self, can_go_on_elsewhere: bool) -> Duration {
        let unset = match can_go_on_elsewhere {
            true => Duration::ZERO,
            false => LAST_WORDS,
        };
        self.source.wish.finish_within.unwrap_or(unset)
    }

    /// Whether the program can continue a text that another worker began.
    pub fn continues(&self, request: &TextRequest) -> bool {
        let ends_a_message = match self.source.wish.api {
            Api::OpenAi => matches!(
                self.facts.software,
                Software::Vllm | Software::Sglang | Software::LlamaCpp
            ),
            Api::Ollama => true,
            Api::A1111 => return false,
        };
        continuation::is_plain(request, ends_a_message)
    }

    /// Whether its program takes more settings of an image than a prompt and a size.
    pub fn takes_image_settings(&self) -> bool {
        self.source.wish.api == Api::A1111
    }

    /// Requests a check of the program after a failed job.
    pub fn look_again(&self) {
        self.source.alarm.notify_one();
    }

    /// Starts a text, or continues the last message. Dropping it ends the work of the program.
    pub async fn write(
        &self,
        request: &TextRequest,
        goes_on: bool,
    ) -> Result<UpstreamAnswer, UpstreamError> {
        let (api, model) = (self.source.wish.api, &self.facts.model);
        let (path, body) = match api {
            Api::OpenAi => openai::text_body(model, request, self.facts.software, goes_on)?,
            Api::Ollama => ollama::text_body(model, request, self.context)?,
            Api::A1111 => return Err(UpstreamError::Unsupported("text")),
        };
        let lines = self.source.client.open(path, &body).await?;
        Ok(UpstreamAnswer::new(lines, api, request))
    }

    /// Vectors in the order of the inputs, and the tokens read.
    pub async fn embed(
        &self,
        request: &EmbeddingRequest,
    ) -> Result<(Vec<Vector>, usize), UpstreamError> {
        let (client, model, inputs) =
            (&self.source.client, &self.facts.model, request.inputs.len());
        match self.source.wish.api {
            Api::OpenAi => {
                let body = openai::embedding_body(model, request);
                openai::vectors(&client.post("v1/embeddings", &body).await?, inputs)
            }
            Api::Ollama => {
                let body = ollama::embedding_body(model, request)?;
                ollama::vectors(&client.post("api/embed", &body).await?, inputs)
            }
            Api::A1111 => Err(UpstreamError::Unsupported("embeddings")),
        }
    }

    /// The scores of documents in their order, and the tokens read.
    pub async fn rank(&self, request: &RankingRequest) -> Result<(Vec<f32>, usize), UpstreamError> {
        match self.source.wish.api {
            Api::OpenAi => {
                let body = openai::ranking_body(&self.facts.model, request);
                let reply = self.source.client.post("v1/rerank", &body).await?;
                openai::scores(&reply, request.documents.len())
            }
            Api::Ollama | Api::A1111 => Err(UpstreamError::Unsupported("ranking")),
        }
    }

    /// The file of an image. The source image and its mask are files, too.
    pub async fn draw(&self, settings: &ImageSettings<'_>) -> Result<Vec<u8>, UpstreamError> {
        let (client, model) = (&self.source.client, &self.facts.model);
        match self.source.wish.api {
            Api::A1111 => {
                let (path, body) = images::body(model, settings)?;
                images::image(&client.post(path, &body).await?)
            }
            Api::OpenAi => {
                let body = images::openai_body(model, settings)?;
                images::openai_image(&client.post("v1/images/generations", &body).await?)
            }
            Api::Ollama => Err(UpstreamError::Unsupported("image generation")),
        }
    }

    /// Completed and total steps, if the program reports them.
    pub async fn progress(&self) -> Option<(u32, u32)> {
        match self.source.wish.api {
            Api::A1111 => {
                let path = "sdapi/v1/progress";
                images::progress(&self.source.client.ask(path).await.ok()?)
            }
            _ => None,
        }
    }

    /// Cancels the program's image generation, which a closed connection does not.
    pub async fn interrupt(&self) {
        if self.source.wish.api == Api::A1111 {
            let path = "sdapi/v1/interrupt";
            let _ = self.source.client.ask_with(path, &json!({})).await;
        }
    }
}
