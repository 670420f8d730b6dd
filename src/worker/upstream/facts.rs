//! Properties of a program's model: kind, context, concurrent jobs, capabilities.

use serde_json::{Value, json};

use super::answer::small;
use super::client::UpstreamClient;
use super::error::shortened;
use super::model::UpstreamKind;
use super::{Api, UpstreamError, UpstreamWish};

/// Default for programs that do not report it.
const CONTEXT: u32 = 4096;
/// Ollama allocates memory for the whole requested context.
const OLLAMA_CONTEXT: u32 = 8192;
const JOBS: u32 = 4;
/// Names that an error shows.
const MOST_NAMES: usize = 8;

/// Programs that know more fields than OpenAI's API has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Software {
    Vllm,
    Sglang,
    LlamaCpp,
    Ollama,
    A1111,
    LmStudio,
    #[default]
    Other,
}

impl Software {
    /// The name sent to coordinators.
    pub fn word(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::LlamaCpp => "llama.cpp",
            Self::Ollama => "ollama",
            Self::A1111 => "a1111",
            Self::LmStudio => "lmstudio",
            Self::Other => "openai",
        }
    }
}

/// Properties of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamFacts {
    pub software: Software,
    /// At the program.
    pub model: String,
    pub kind: UpstreamKind,
    pub context: u32,
    pub jobs: u32,
    pub tools: bool,
    pub images: bool,
}

/// Properties reported by the program.
#[derive(Debug, Default)]
struct ProgramClaims {
    software: Software,
    kind: Option<UpstreamKind>,
    context: Option<u32>,
    jobs: Option<u32>,
    tools: Option<bool>,
    images: Option<bool>,
}

/// Queries the program; the owner's settings take precedence.
pub async fn ask(
    client: &UpstreamClient,
    wish: &UpstreamWish,
) -> Result<UpstreamFacts, UpstreamError> {
    let (model, claims) = match wish.api {
        Api::OpenAi => openai(client, wish).await?,
        Api::Ollama => ollama(client, wish).await?,
        Api::A1111 => a1111(client, wish).await?,
    };
    let kind = wish.kind.or(claims.kind).unwrap_or(UpstreamKind::Text);
    let jobs = match kind {
        UpstreamKind::Image => 1,
        UpstreamKind::Text | UpstreamKind::Embedding | UpstreamKind::Ranking => JOBS,
    };
    Ok(UpstreamFacts {
        software: claims.software,
        model,
        kind,
        context: wish.context.or(claims.context).unwrap_or(CONTEXT),
        jobs: wish.jobs.or(claims.jobs).unwrap_or(jobs).max(1),
        tools: wish.tools.or(claims.tools).unwrap_or(true),
        images: wish.images.or(claims.images).unwrap_or(false),
    })
}

async fn openai(
    client: &UpstreamClient,
    wish: &UpstreamWish,
) -> Result<(String, ProgramClaims), UpstreamError> {
    let list = client.ask("v1/models").await?;
    let data = list["data"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = data.iter().filter_map(|one| one["id"].as_str()).collect();
    let model = chosen(&names, wish)?;
    let entry = data.iter().find(|one| one["id"] == *model);
    let mut claims = entry.map(of_entry).unwrap_or_default();
    match claims.software {
        Software::LlamaCpp => {
            if let Ok(props) = client.ask("props").await {
                claims = with_props(claims, &props);
            }
        }
        Software::Other => {
            if let Ok(list) = client.ask("api/v0/models").await {
                let data = list["data"].as_array().into_iter().flatten();
                let mut data = data.filter(|one| one["id"] == *model);
                claims = data.next().map_or(claims, of_lm_studio);
            }
        }
        _ => {}
    }
    Ok((model, claims))
}

/// An entry of `/v1/models`.
fn of_entry(entry: &Value) -> ProgramClaims {
    let software = match entry["owned_by"].as_str() {
        Some("vllm") => Software::Vllm,
        Some("sglang") => Software::Sglang,
        Some("llamacpp") => Software::LlamaCpp,
        _ => Software::Other,
    };
    let places = [
        "/max_model_len",
        "/context_length",
        "/max_context_length",
        "/meta/n_ctx",
    ];
    let mut contexts = places
        .iter()
        .filter_map(|place| entry.pointer(place)?.as_u64());
    ProgramClaims {
        software,
        context: contexts.next().and_then(context),
        ..ProgramClaims::default()
    }
}

/// `/props` of llama.cpp's server. The context is that of one slot.
fn with_props(claims: ProgramClaims, props: &Value) -> ProgramClaims {
    let slots = props["total_slots"]
        .as_u64()
        .map(|slots| small(slots as usize));
    ProgramClaims {
        context: props["default_generation_settings"]["n_ctx"]
            .as_u64()
            .and_then(context)
            .or(claims.context),
        jobs: slots,
        tools: props["chat_template_caps"]["supports_tool_calls"].as_bool(),
        images: props["modalities"]["vision"].as_bool(),
        ..claims
    }
}

/// An entry of `/api/v0/models`.
fn of_lm_studio(entry: &Value) -> ProgramClaims {
    let (kind, images) = match entry["type"].as_str() {
        Some("embeddings") => (Some(UpstreamKind::Embedding), None),
        Some("vlm") => (Some(UpstreamKind::Text), Some(true)),
        Some("llm") => (Some(UpstreamKind::Text), Some(false)),
        _ => (None, None),
    };
    let loaded = entry["loaded_context_length"].as_u64();
    ProgramClaims {
        software: Software::LmStudio,
        kind,
        images,
        context: loaded
            .or(entry["max_context_length"].as_u64())
            .and_then(context),
        ..ProgramClaims::default()
    }
}

async fn ollama(
    client: &UpstreamClient,
    wish: &UpstreamWish,
) -> Result<(String, ProgramClaims), UpstreamError> {
    let list = client.ask("api/tags").await?;
    let models = list["models"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = models
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    let model = chosen(&names, wish)?;
    let shown = client
        .ask_with("api/show", &json!({"model": model}))
        .await?;
    Ok((model, of_ollama(&shown)))
}

/// The reply of `/api/show`.
fn of_ollama(shown: &Value) -> ProgramClaims {
    let info = shown["model_info"].as_object().into_iter().flatten();
    let mut trained = info.filter(|(name, _)| name.ends_with(".context_length"));
    let trained = trained
        .next()
        .and_then(|(_, tokens)| context(tokens.as_u64()?));
    let parameters = shown["parameters"].as_str().unwrap_or_default().lines();
    let mut set = parameters.filter_map(|line| line.trim().strip_prefix("num_ctx"));
    let set = set
        .next()
        .and_then(|tokens| context(tokens.trim().parse().ok()?));
    let abilities: Option<Vec<&str>> = shown["capabilities"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect());
    let can = |ability: &str| abilities.as_ref().map(|list| list.contains(&ability));
    let kind = match (can("completion"), can("embedding")) {
        (Some(false), Some(true)) => Some(UpstreamKind::Embedding),
        _ => None,
    };
    ProgramClaims {
        software: Software::Ollama,
        kind,
        context: set.or(trained.map(|tokens| tokens.min(OLLAMA_CONTEXT))),
        tools: can("tools"),
        images: can("vision"),
        jobs: None,
    }
}

async fn a1111(
    client: &UpstreamClient,
    wish: &UpstreamWish,
) -> Result<(String, ProgramClaims), UpstreamError> {
    let list = client.ask("sdapi/v1/sd-models").await?;
    let models = list.as_array().cloned().unwrap_or_default();
    let title = |one: &Value| one["title"].as_str().map(str::to_owned);
    let claims = ProgramClaims {
        software: Software::A1111,
        kind: Some(UpstreamKind::Image),
        ..ProgramClaims::default()
    };
    let wanted = wish.model.as_deref().unwrap_or(&wish.name);
    let named = models.iter().find(|one| {
        let names = ["title", "model_name", "filename"];
        names.iter().any(|name| one[*name].as_str() == Some(wanted))
    });
    if let Some(title) = named.and_then(title) {
        return Ok((title, claims));
    }
    let titles: Vec<String> = models.iter().filter_map(title).collect();
    let names: Vec<&str> = titles.iter().map(String::as_str).collect();
    chosen(&names, wish).map(|model| (model, claims))
}

/// The program's name of the model: as configured, as at coordinators, or the only one.
fn chosen(names: &[&str], wish: &UpstreamWish) -> Result<String, UpstreamError> {
    let wanted = wish.model.as_deref().unwrap_or(&wish.name);
    let latest = format!("{wanted}:latest");
    let known = names
        .iter()
        .find(|name| **name == wanted || **name == latest);
    match (known, &wish.model, names) {
        (Some(name), _, _) => Ok((*name).to_owned()),
        (None, None, [only]) => Ok((*only).to_owned()),
        (None, _, []) => Err(UpstreamError::Failed("it serves no model".to_owned())),
        (None, _, names) => {
            let more = names.len().saturating_sub(MOST_NAMES);
            let shown: Vec<String> = names
                .iter()
                .take(MOST_NAMES)
                .map(|name| shortened(name))
                .collect();
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            Err(UpstreamError::Failed(format!(
                "it serves no model {wanted}, but {}{more}: set model",
                shown.join(", ")
            )))
        }
    }
}

fn context(tokens: u64) -> Option<u32> {
    u32::try_from(tokens).ok().filter(|tokens| *tokens > 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use url::Url;

    use super::{
        Api, ProgramClaims, Software, UpstreamKind, UpstreamWish, chosen, of_entry, of_lm_studio,
        of_ollama, with_props,
    };

    fn wish(name: &str, model: Option<&str>) -> UpstreamWish {
        UpstreamWish {
            name: name.to_owned(),
            url: Url::parse("http://127.0.0.1:1").unwrap(),
            api: Api::OpenAi,
            model: model.map(str::to_owned),
            kind: None,
            key: None,
            context: None,
            jobs: None,
            tools: None,
            images: None,
            silence: Duration::from_secs(1),
            finish_within: None,
        }
    }

    #[test]
    fn a_model_is_found_by_its_name_or_as_the_only_one() {
        let found = |names: &[&str], name, model| chosen(names, &wish(name, model)).ok();
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(found(&["a", "b"], "b", None), some("b"));
        assert_eq!(found(&["a", "b"], "mine", Some("a")), some("a"));
        assert_eq!(
            found(&["/models/x.gguf"], "mine", None),
            some("/models/x.gguf")
        );
        assert_eq!(
            found(&["llama3.2:latest", "b"], "llama3.2", None),
            some("llama3.2:latest")
        );
        assert_eq!(found(&["a"], "mine", Some("b")), None);
        let error = chosen(&["a", "b"], &wish("c", None))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("it serves no model c, but a, b: set model"),
            "{error}"
        );
        assert_eq!(found(&[], "a", None), None);
    }

    #[test]
    fn each_program_says_its_limits_in_its_own_place() {
        let vllm = of_entry(&json!({"id": "m", "owned_by": "vllm", "max_model_len": 32768}));
        assert_eq!(
            (vllm.software, vllm.context),
            (Software::Vllm, Some(32_768))
        );
        let props = json!({"total_slots": 2, "default_generation_settings": {"n_ctx": 2048},
            "modalities": {"vision": true, "audio": false}});
        let llama = with_props(ProgramClaims::default(), &props);
        assert_eq!(
            (llama.context, llama.jobs, llama.images),
            (Some(2048), Some(2), Some(true))
        );
        let studio = of_lm_studio(&json!({"type": "embeddings", "max_context_length": 512}));
        assert_eq!(
            (studio.kind, studio.context),
            (Some(UpstreamKind::Embedding), Some(512))
        );
        let shown = json!({"model_info": {"llama.context_length": 131072},
            "capabilities": ["completion", "tools"]});
        let ollama = of_ollama(&shown);
        assert_eq!(
            (ollama.context, ollama.tools, ollama.images),
            (Some(8192), Some(true), Some(false))
        );
        let shown =
            json!({"parameters": "stop \"x\"\nnum_ctx    32768", "capabilities": ["embedding"]});
        let ollama = of_ollama(&shown);
        assert_eq!(
            (ollama.context, ollama.kind),
            (Some(32_768), Some(UpstreamKind::Embedding))
        );
    }
}
