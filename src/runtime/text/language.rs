//! Everything a model's files say about reading and writing with it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{
    Begins, ChatTemplate, Detokenizer, Markup, StopStrings, TextError, Tokenizer, Vocabulary,
    check_regular,
};
use crate::runtime::sampling::Settings;
use crate::runtime::{Chat, Failure, Prompt, Sampling, StopRules};

/// Tokenizer, chat template, the tokens that end a turn, and the model's own sampling defaults.
pub struct Language {
    pub tokenizer: Tokenizer,
    /// Why there is none is told to whoever asks for a chat: without it the model still continues text.
    pub template: Result<ChatTemplate, TextError>,
    pub ends: Vec<u32>,
    /// What a request leaves open.
    pub defaults: Sampling,
    /// What its template makes it write around thoughts and calls.
    pub markup: Markup,
}

/// Where a model's text side comes from. What is set here goes before what the files say.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextSource<'a> {
    /// Where `tokenizer.json` and the configuration files lie.
    pub folder: Option<&'a Path>,
    /// What a GGUF file carries itself.
    pub embedded: Option<&'a EmbeddedText>,
    pub tokenizer: Option<&'a Path>,
    pub template: Option<&'a str>,
    pub defaults: Option<&'a Sampling>,
}

/// The text side in a GGUF file's metadata.
#[derive(Debug, Clone, Default)]
pub struct EmbeddedText {
    pub vocabulary: Option<Vocabulary>,
    /// Chat templates by name.
    pub templates: Vec<(String, String)>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    /// Ends of a turn and of a message, where the file names them.
    pub further_ends: Vec<u32>,
}

/// Control tokens that end a turn under whatever model they appear; files often name only one of theirs.
const KNOWN_ENDS: [&str; 7] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|end_of_text|>",
    "<|endoftext|>",
];

impl Language {
    pub fn open(source: TextSource<'_>) -> Result<Self, TextError> {
        let tokenizer = open_tokenizer(source)?;
        let configs = Configs::read(source.folder)?;
        let embedded = source.embedded.cloned().unwrap_or_default();
        let named = |id: Option<u32>| id.and_then(|id| tokenizer.token(id));
        let bos = configs.special("bos_token").or_else(|| named(embedded.bos));
        let eos = configs.special("eos_token").or_else(|| named(embedded.eos));
        let ends = ends(&tokenizer, &configs, &embedded, eos.as_deref());
        let templates = open_template(source, &configs, &embedded);
        let sources = templates
            .iter()
            .flatten()
            .map(|(_, source)| source.as_str());
        let markup = Markup::of(sources);
        let template = templates.and_then(|templates| {
            ChatTemplate::new(
                &templates,
                bos.as_deref().unwrap_or(""),
                eos.as_deref().unwrap_or(""),
            )
        });
        Ok(Self {
            template,
            ends,
            defaults: configs.sampling(source.defaults)?,
            tokenizer,
            markup,
        })
    }

    /// Whether the model's files have a chat template, be it a broken one.
    pub fn brings_template(&self) -> bool {
        !matches!(self.template, Err(TextError::Missing { .. }))
    }

    /// Whether the prompt itself opens the model's thought.
    pub fn opens_thought(&self, chat: &Chat) -> bool {
        let template = self.template.as_ref().ok().filter(|_| self.markup.thinks);
        let prompt = template.and_then(|template| template.render(chat).ok());
        prompt.is_some_and(|prompt| prompt.trim_end().ends_with("<think>"))
    }

    /// The text of tokens that were generated before, token by token, as it left then.
    pub fn replay(
        &self,
        generated: &[u32],
        begins: Begins,
        (stop, rules): (Vec<String>, &StopRules),
        mut each: impl FnMut(&str),
    ) {
        let mut stops = StopStrings::new(stop).unwrap_or_default();
        let mut detokenizer = Detokenizer::new(self.tokenizer.pieces(), begins);
        let (mut text, mut last) = (String::new(), String::new());
        for (index, &id) in generated.iter().enumerate() {
            if self.ends.contains(&id) || rules.stop_token_ids.contains(&id) {
                return;
            }
            text.clear();
            last.clear();
            detokenizer.push(self.tokenizer.pieces(), id, &mut text);
            if index + 1 < rules.min_tokens {
                each(&text);
                continue;
            }
            let has_stopped = stops.push(&text, &mut last).is_some();
            each(&last);
            if has_stopped {
                return;
            }
        }
    }

    /// The tokens of a prompt. The failure is the client's, or that of the model's template.
    pub fn prompt_tokens(&self, prompt: &Prompt) -> Result<Vec<u32>, Failure> {
        let encode = |text: &str, prefix| {
            let tokens = self.tokenizer.encode(text, prefix);
            tokens.map_err(|error| Failure::BadRequest(error.to_string()))
        };
        let tokens = match prompt {
            Prompt::Text(text) => encode(text, true)?,
            Prompt::Tokens(tokens) => tokens.clone(),
            Prompt::Chat(chat) => {
                let template = self.template.as_ref().map_err(without)?;
                encode(&template.render(chat)?, false)?
            }
        };
        if tokens.is_empty() {
            return Err(Failure::BadRequest("the prompt is empty".to_owned()));
        }
        Ok(tokens)
    }

    /// How many tokens at its beginning are the tokenizer's own, such as BOS.
    pub fn opening(&self, prompt: &[u32]) -> Result<usize, Failure> {
        let own = self.tokenizer.encode("", true);
        let own = own.map_err(|error| Failure::BadRequest(error.to_string()))?;
        Ok(match prompt.starts_with(&own) {
            true => own.len(),
            false => 0,
        })
    }
}

/// What a chat with a model is answered whose template cannot be used.
fn without(error: &TextError) -> Failure {
    match error {
        TextError::Missing { .. } => Failure::BadRequest(error.to_string()),
        _ => Failure::BrokenTemplate(error.to_string()),
    }
}

fn open_tokenizer(source: TextSource<'_>) -> Result<Tokenizer, TextError> {
    if let Some(path) = source.tokenizer {
        return Tokenizer::open(path);
    }
    if let Some(vocabulary) = source
        .embedded
        .and_then(|embedded| embedded.vocabulary.as_ref())
    {
        return Tokenizer::new(vocabulary.tokenizer()?);
    }
    match source.folder {
        Some(folder) => Tokenizer::open(&folder.join("tokenizer.json")),
        None => Err(TextError::Missing {
            what: "the model's tokenizer".to_owned(),
        }),
    }
}

fn open_template(
    source: TextSource<'_>,
    configs: &Configs,
    embedded: &EmbeddedText,
) -> Result<Vec<(String, String)>, TextError> {
    let only = |text: &str| vec![("default".to_owned(), text.to_owned())];
    if let Some(text) = source.template {
        return Ok(only(text));
    }
    if let Some(text) = &configs.template_file {
        return Ok(only(text));
    }
    let templates = match &configs.tokenizer["chat_template"] {
        Value::String(text) => only(text),
        Value::Array(named) => named.iter().filter_map(named_template).collect(),
        _ => embedded.templates.clone(),
    };
    match templates.is_empty() {
        true => Err(TextError::Missing {
            what: "the model's chat template".to_owned(),
        }),
        false => Ok(templates),
    }
}

fn named_template(entry: &Value) -> Option<(String, String)> {
    Some((
        entry["name"].as_str()?.to_owned(),
        entry["template"].as_str()?.to_owned(),
    ))
}

fn ends(
    tokenizer: &Tokenizer,
    configs: &Configs,
    embedded: &EmbeddedText,
    eos: Option<&str>,
) -> Vec<u32> {
    let known = KNOWN_ENDS
        .iter()
        .filter(|token| tokenizer.is_special(token));
    let named = known
        .copied()
        .chain(eos)
        .filter_map(|token| tokenizer.id(token));
    let mut ends: Vec<u32> = configs.eos_ids().into_iter().collect();
    ends.extend(
        named
            .chain(embedded.eos)
            .chain(embedded.further_ends.iter().copied()),
    );
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// The JSON files beside a checkpoint; null where there is none.
#[derive(Default)]
struct Configs {
    model: Value,
    generation: Value,
    /// What `generation` was read from.
    generation_file: PathBuf,
    tokenizer: Value,
    template_file: Option<String>,
}

impl Configs {
    fn read(folder: Option<&Path>) -> Result<Self, TextError> {
        let Some(folder) = folder else {
            return Ok(Self::default());
        };
        let template = folder.join("chat_template.jinja");
        let generation_file = folder.join("generation_config.json");
        Ok(Self {
            model: read_json(&folder.join("config.json"))?,
            generation: read_json(&generation_file)?,
            generation_file,
            tokenizer: read_json(&folder.join("tokenizer_config.json"))?,
            template_file: read_if_there(&template)?,
        })
    }

    /// A special token is written as text or as an object with `content`.
    fn special(&self, name: &str) -> Option<String> {
        let token = &self.tokenizer[name];
        token
            .as_str()
            .or(token["content"].as_str())
            .map(str::to_owned)
    }

    fn eos_ids(&self) -> Vec<u32> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = |config: &Value| match &config["eos_token_id"] {
            Value::Array(ids) => ids.iter().filter_map(id).collect(),
            value => Vec::from_iter(id(value)),
        };
        [ids(&self.model), ids(&self.generation)].concat()
    }

    /// What the model recommends, where nobody who set it up knows better; no request can be blamed for it, so it is
    /// checked here.
    fn sampling(&self, set: Option<&Sampling>) -> Result<Sampling, TextError> {
        let sampling = match set {
            Some(set) => set.clone().or(&self.recommended()),
            None => self.recommended(),
        };
        match Settings::check(&sampling) {
            Ok(()) => Ok(sampling),
            Err(reason) => Err(TextError::broken(self.generation_file.display(), reason)),
        }
    }

    fn recommended(&self) -> Sampling {
        if self.generation["do_sample"] == false {
            return Sampling::default();
        }
        let number = |name: &str| self.generation[name].as_f64().map(|number| number as f32);
        Sampling {
            temperature: number("temperature"),
            top_k: self.generation["top_k"]
                .as_u64()
                .and_then(|k| usize::try_from(k).ok()),
            top_p: number("top_p"),
            min_p: number("min_p"),
            repetition_penalty: number("repetition_penalty"),
            ..Sampling::default()
        }
    }
}

fn read_json(path: &Path) -> Result<Value, TextError> {
    match read_if_there(path)? {
        Some(text) => {
            serde_json::from_str(&text).map_err(|error| TextError::broken(path.display(), error))
        }
        None => Ok(Value::Null),
    }
}

fn read_if_there(path: &Path) -> Result<Option<String>, TextError> {
    match check_regular(path).and_then(|()| std::fs::read_to_string(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TextError::unreadable(path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::{Configs, Language, TextError, TextSource};
    use crate::runtime::{Chat, Failure, Prompt, Sampling};

    fn source() -> TextSource<'static> {
        let folder = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/tiny-llama"
        ));
        TextSource {
            folder: Some(folder),
            ..TextSource::default()
        }
    }

    fn tiny() -> Language {
        Language::open(source()).unwrap()
    }

    #[test]
    fn a_models_files_say_how_to_talk_with_it() {
        let language = tiny();
        assert_eq!(language.ends, [507, 510]);
        assert_eq!(language.defaults.temperature, Some(0.7));
        let text = language
            .prompt_tokens(&Prompt::Text("hi".to_owned()))
            .unwrap();
        assert_eq!(text[0], 506, "a text begins with BOS");
        let chat = Chat {
            messages: vec![json!({"role": "user", "content": "hi"})],
            ..Chat::default()
        };
        let chat = language.prompt_tokens(&Prompt::Chat(chat)).unwrap();
        assert_eq!(
            chat.iter().filter(|&&id| id == 506).count(),
            1,
            "the template writes BOS itself"
        );
    }

    #[test]
    fn a_model_without_template_says_so_when_asked_to_chat() {
        let mut language = tiny();
        language.template = Err(TextError::Missing {
            what: "the model's chat template".to_owned(),
        });
        let refusal = language.prompt_tokens(&Prompt::Chat(Chat::default()));
        assert_eq!(
            refusal,
            Err(Failure::BadRequest(
                "the model's chat template was not found".to_owned()
            ))
        );
    }

    #[test]
    fn a_template_that_is_broken_or_fails_is_the_models_fault() {
        let chat = || Prompt::Chat(Chat::default());
        let said = |template: &str| {
            let language = Language::open(TextSource {
                template: Some(template),
                ..source()
            })
            .unwrap();
            assert!(language.brings_template());
            language.prompt_tokens(&chat()).unwrap_err()
        };
        for template in [
            "{% if %}",
            "{{ messages[0].content }}",
            "{{ range(100000000) }}",
        ] {
            let failure = said(template);
            assert!(
                matches!(failure, Failure::BrokenTemplate(_)),
                "{template}: {failure:?}"
            );
        }
        let refused = said("{{ raise_exception('alternate, please') }}");
        assert!(matches!(refused, Failure::BadRequest(_)), "{refused:?}");
    }

    #[test]
    fn what_a_model_recommends_counts_where_nothing_else_is_set() {
        let configs = Configs {
            generation: json!({"temperature": -1.0, "top_k": 40}),
            ..Configs::default()
        };
        let set = Sampling {
            temperature: Some(0.5),
            ..Sampling::default()
        };
        let refused = configs.sampling(None);
        assert!(
            matches!(refused, Err(TextError::Broken { .. })),
            "{refused:?}"
        );
        let sampling = configs.sampling(Some(&set)).unwrap();
        assert_eq!(
            (sampling.temperature, sampling.top_k),
            (Some(0.5), Some(40))
        );
    }

    #[test]
    fn an_empty_prompt_is_refused() {
        let refusal = tiny().prompt_tokens(&Prompt::Tokens(Vec::new()));
        assert_eq!(
            refusal,
            Err(Failure::BadRequest("the prompt is empty".to_owned()))
        );
    }
}
