//! `[models.NAME.upstream]`: a model that another program serves. May be repeated, once for each name.

use std::time::Duration;

use url::Url;

use super::choice::choice;
use super::coordinator::is_here;
use super::reader::Reader;
use super::secret::Secret;
use super::setting::settings;

settings! {
    /// A model that another program on this machine serves, such as vLLM, llama.cpp's server, Ollama or LM Studio; NAME is its name at coordinators. Repeat the section for several. The worker offers the model while the program answers.
    pub struct UpstreamSettings = "models.NAME.upstream" {
        /// URL of the program, such as http://127.0.0.1:8000, with or without /v1.
        url: Url,
        /// API of the program: openai (vLLM, SGLang, llama.cpp's server, LM Studio), ollama, or a1111 (Stable Diffusion web UI and its like).
        api: UpstreamApi = "openai",
        /// Name of the model at the program. Set it where it has several.
        model: Option<String>; unset "NAME, or the only model of the program",
        /// Kind of the model: text, embedding, ranking or image.
        kind: Option<UpstreamKind>; unset "as the program says, else text; image with api = \"a1111\"",
        /// API key that the program expects: the key itself, "file:PATH" or "env:NAME".
        key: Option<Secret>; unset "none",
        /// Tokens that prompt and answer may have together. Set it where the program does not say it.
        context: Option<usize> where (256..=16777216); unset "as the program says, else 4096",
        /// Jobs at once. Set it to what the program computes side by side.
        jobs: Option<usize> where (1..=1024); unset "as the program says, else 4; 1 for images",
        /// Whether the model calls tools.
        tools: Option<bool>; unset "as the program says, else true",
        /// Whether the model reads images in chats.
        images: Option<bool>; unset "as the program says, else false",
        /// How long the program may send nothing during a job before the job goes to another worker.
        silence: Duration where (1..=3600) = "2m",
        /// How long a text whose client has a part of it goes on when the owner pauses; the worker cannot free the program's memory. Set it to 0 to hand such texts back at once, also those that no other worker can go on with, or to more to end them here.
        finish_within: Option<Duration> where (0..=3600); unset "0 for texts that another worker can go on with, else 1m",
        /// Send jobs to another machine. Set it only where you may pass on what strangers write.
        remote: bool = false,
    }
}

choice! {
    pub enum UpstreamApi { OpenAi = "openai", Ollama = "ollama", A1111 = "a1111" }
}

choice! {
    pub enum UpstreamKind { Text = "text", Embedding = "embedding", Ranking = "ranking", Image = "image" }
}

/// The settings of a model that another program serves.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// The model's name at coordinators.
    pub name: String,
    pub settings: UpstreamSettings,
}

impl UpstreamConfig {
    /// Reads one section.
    pub(super) fn read_one(reader: &mut Reader<'_>) -> Option<Self> {
        let settings = UpstreamSettings::read(reader)?;
        let name = reader.name_of_table()?.to_owned();
        let wrong = wrong(&name, &settings);
        match wrong {
            Some(wrong) => {
                reader.problem_here(wrong);
                None
            }
            None => Some(Self { name, settings }),
        }
    }
}

fn wrong(name: &str, settings: &UpstreamSettings) -> Option<String> {
    let UpstreamSettings { url, api, kind, .. } = settings;
    if name.trim().is_empty() || name.chars().any(char::is_control) {
        return Some("the name of a model must not be empty".to_owned());
    }
    if !matches!(url.scheme(), "http" | "https") {
        let found = url.scheme();
        return Some(format!(
            "the url of {name} must begin with http:// or https://, found {found}://"
        ));
    }
    if !is_here(url) && !settings.remote {
        let host = url.host_str().unwrap_or_default();
        return Some(format!(
            "the url of {name} leads to {host}, another machine: jobs would be sent there; set remote = true if you mean it"
        ));
    }
    let makes_images = *api == UpstreamApi::A1111;
    match kind {
        Some(kind) if makes_images && *kind != UpstreamKind::Image => Some(format!(
            "{name} has api = \"a1111\", which makes images: kind = \"{}\" needs another api",
            kind.word()
        )),
        Some(UpstreamKind::Image) if *api == UpstreamApi::Ollama => Some(format!(
            "{name} has api = \"ollama\", which makes no images: use api = \"openai\" or \"a1111\""
        )),
        Some(UpstreamKind::Ranking) if *api == UpstreamApi::Ollama => Some(format!(
            "{name} has api = \"ollama\", which ranks no documents: use api = \"openai\""
        )),
        _ => None,
    }
}
