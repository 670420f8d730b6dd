//! A model's tokenizer, chat template and generation settings, from its files.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::isolated::Isolated;
use super::{
    Begins, CHANNEL_MARKS, ChatTemplate, Detokenizer, Isolation, Markup, Pieces, StopStrings,
    TextError, Tokenizer, UnigramVocabulary, Vocabulary, read_bounded,
};
use crate::runtime::sampling::Settings;
use crate::runtime::{Chat, Failure, Prompt, Sampling, StopRules};

/// Tokenizer, chat template, the tokens that end a turn, and the model's own sampling defaults.
pub struct Language {
    pub reader: Reader,
    pub ends: Vec<u32>,
    /// Fallbacks for settings that a request omits.
    pub defaults: Sampling,
    /// The marks of thoughts and tool calls in the model's output.
    pub markup: Markup,
}

/// The tokenizer and the chat template.
pub enum Reader {
    Local {
        tokenizer: Box<Tokenizer>,
        /// The error is returned to requests for a chat: without a template the model still completes text.
        template: Box<Result<ChatTemplate, TextError>>,
    },
    Isolated(Box<Isolated>),
}

/// The source of a model's tokenizer and template. Values set here take precedence over the files.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextSource<'a> {
    /// The folder of `tokenizer.json` and the configuration files.
    pub folder: Option<&'a Path>,
    /// Metadata of a GGUF file.
    pub embedded: Option<&'a EmbeddedText>,
    /// The vocabulary in the file of a text encoder.
    pub unigram: Option<&'a UnigramVocabulary>,
    /// Texts become tokens and tokens no text: files may leave out how.
    pub is_read_only: bool,
    pub tokenizer: Option<&'a Path>,
    pub template: Option<&'a str>,
    pub defaults: Option<&'a Sampling>,
    /// Reads the files in a separate process.
    pub isolation: Option<&'a Isolation>,
}

/// Recommendations of `generation_config.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Recommended {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

/// The text side in a GGUF file's metadata.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EmbeddedText {
    pub vocabulary: Option<Vocabulary>,
    /// Chat templates by name.
    pub templates: Vec<(String, String)>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    /// Ends of a turn and of a message in the file.
    pub further_ends: Vec<u32>,
}

/// Control tokens that end a turn in any model; files often list only one of them.
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
    /// A tokenizer alone, made of a vocabulary that was checked.
    pub fn of_tokenizer(tokenizer: Tokenizer) -> Self {
        let template = Err(TextError::Missing {
            what: "the model's chat template".to_owned(),
        });
        Self {
            reader: Reader::local(tokenizer, template),
            ends: Vec::new(),
            defaults: Sampling::default(),
            markup: Markup::default(),
        }
    }

    pub fn open(source: TextSource<'_>) -> Result<Self, TextError> {
        let mut language = match source.isolation {
            Some(isolation) => {
                let (isolated, described) = Isolated::open(source, isolation.clone())?;
                Self {
                    reader: Reader::Isolated(Box::new(isolated)),
                    ends: described.ends,
                    defaults: described.recommended.into(),
                    markup: described.markup,
                }
            }
            None => Self::open_here(source)?,
        };
        language.defaults = check_sampling(source, language.defaults)?;
        Ok(language)
    }

    /// Reads the files in this process. The defaults are the files' recommendations, unchecked.
    pub fn open_here(source: TextSource<'_>) -> Result<Self, TextError> {
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
            reader: Reader::local(tokenizer, template),
            ends,
            defaults: configs.recommended(),
            markup,
        })
    }

    /// The bytes of every token.
    pub fn pieces(&self) -> &Pieces {
        match &self.reader {
            Reader::Local { tokenizer, .. } => tokenizer.pieces(),
            Reader::Isolated(isolated) => isolated.pieces(),
        }
    }

    /// Whether the model's files have a chat template, be it a broken one.
    pub fn brings_template(&self) -> bool {
        match &self.reader {
            Reader::Local { template, .. } => !matches!(**template, Err(TextError::Missing { .. })),
            Reader::Isolated(isolated) => isolated.brings_template(),
        }
    }

    /// Whether the prompt itself opens the model's thought.
    pub fn opens_thought(&self, chat: &Chat) -> bool {
        if !self.markup.thinks {
            return false;
        }
        match &self.reader {
            Reader::Local { template, .. } => {
                let prompt = template.as_ref().as_ref().ok();
                let prompt = prompt.and_then(|template| template.render(chat).ok());
                prompt.is_some_and(|prompt| prompt.trim_end().ends_with("<think>"))
            }
            Reader::Isolated(isolated) => isolated.opens_thought(chat),
        }
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
        let mut detokenizer = Detokenizer::new(self.pieces(), begins);
        let (mut text, mut last) = (String::new(), String::new());
        for (index, &id) in generated.iter().enumerate() {
            if self.ends.contains(&id) || rules.stop_token_ids.contains(&id) {
                return;
            }
            text.clear();
            last.clear();
            detokenizer.push(self.pieces(), id, &mut text);
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
        // Templates write BOS themselves.
        self.read(prompt, !matches!(prompt, Prompt::Chat(_)))
    }

    /// The same, with or without the tokenizer's own tokens around a text.
    pub fn read(&self, prompt: &Prompt, prefix: bool) -> Result<Vec<u32>, Failure> {
        let tokens = match (prompt, &self.reader) {
            (Prompt::Tokens(tokens), _) => tokens.clone(),
            (Prompt::Text(text), _) => self.encode(text, prefix)?,
            (Prompt::Chat(chat), Reader::Isolated(isolated)) => {
                isolated.chat_tokens(chat, prefix)?
            }
            (Prompt::Chat(chat), Reader::Local { template, .. }) => {
                let template = template.as_ref().as_ref().map_err(without)?;
                self.encode(&template.render(chat)?, prefix)?
            }
        };
        if tokens.is_empty() {
            return Err(Failure::BadRequest("the prompt is empty".to_owned()));
        }
        Ok(tokens)
    }

    /// How many tokens at its beginning are the tokenizer's own, such as BOS.
    pub fn opening(&self, prompt: &[u32]) -> Result<usize, Failure> {
        let encoded;
        let own: &[u32] = match &self.reader {
            Reader::Isolated(isolated) => isolated.opening(),
            Reader::Local { .. } => {
                encoded = self.encode("", true)?;
                &encoded
            }
        };
        Ok(match prompt.starts_with(own) {
            true => own.len(),
            false => 0,
        })
    }

    /// Two texts as one sequence: tokens, and which of the two each is of.
    pub fn pair(&self, first: &str, second: &str) -> Result<(Vec<u32>, Vec<u32>), Failure> {
        match &self.reader {
            Reader::Local { tokenizer, .. } => tokenizer
                .encode_pair(first, second)
                .map_err(|error| Failure::BadRequest(error.to_string())),
            Reader::Isolated(isolated) => isolated.pair(first, second),
        }
    }

    /// The spellings of these tokens; empty for ids past the vocabulary.
    pub fn names(&self, ids: &[u32]) -> Result<Vec<String>, Failure> {
        match &self.reader {
            Reader::Local { tokenizer, .. } => {
                let names = ids.iter().map(|&id| tokenizer.token(id));
                Ok(names.map(Option::unwrap_or_default).collect())
            }
            Reader::Isolated(isolated) => isolated.names(ids),
        }
    }

    /// The text of tokens without context, with the names of control tokens.
    pub fn decode(&self, ids: &[u32]) -> Result<String, Failure> {
        let pieces = self.pieces();
        let is_control = |id: &u32| pieces.bytes(*id).is_empty();
        let control: Vec<u32> = ids.iter().copied().filter(is_control).collect();
        let mut names = match control.is_empty() {
            true => Vec::new(),
            false => self.names(&control)?,
        }
        .into_iter();
        let mut detokenizer = Detokenizer::new(pieces, Begins::Fresh);
        let mut text = String::new();
        for id in ids {
            if is_control(id) {
                detokenizer.finish(&mut text);
                text.push_str(&names.next().unwrap_or_default());
            } else {
                detokenizer.push(pieces, *id, &mut text);
            }
        }
        detokenizer.finish(&mut text);
        Ok(text)
    }

    /// The tokens of a text, preceded by the tokenizer's prefix if `prefix` is set.
    pub fn encode(&self, text: &str, prefix: bool) -> Result<Vec<u32>, Failure> {
        match &self.reader {
            Reader::Local { tokenizer, .. } => tokenizer
                .encode(text, prefix)
                .map_err(|error| Failure::BadRequest(error.to_string())),
            Reader::Isolated(isolated) => isolated.text_tokens(text, prefix),
        }
    }
}

impl Reader {
    pub fn local(tokenizer: Tokenizer, template: Result<ChatTemplate, TextError>) -> Self {
        Self::Local {
            tokenizer: Box::new(tokenizer),
            template: Box::new(template),
        }
    }
}

impl From<&Sampling> for Recommended {
    fn from(sampling: &Sampling) -> Self {
        Self {
            temperature: sampling.temperature,
            top_k: sampling.top_k,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            repetition_penalty: sampling.repetition_penalty,
        }
    }
}

impl From<Recommended> for Sampling {
    fn from(recommended: Recommended) -> Self {
        Self {
            temperature: recommended.temperature,
            top_k: recommended.top_k,
            top_p: recommended.top_p,
            min_p: recommended.min_p,
            repetition_penalty: recommended.repetition_penalty,
            ..Self::default()
        }
    }
}

/// Merges the model's recommendations with the operator's defaults and checks them, because no request is at fault for
/// them.
fn check_sampling(source: TextSource<'_>, recommended: Sampling) -> Result<Sampling, TextError> {
    let sampling = match source.defaults {
        Some(set) => set.clone().or(&recommended),
        None => recommended,
    };
    match Settings::check(&sampling) {
        Ok(()) => Ok(sampling),
        Err(reason) => {
            let folder = source.folder.unwrap_or(Path::new(""));
            let file = folder.join(GENERATION);
            Err(TextError::broken(file.display(), reason))
        }
    }
}

/// The error of a chat with a model whose template is unusable.
fn without(error: &TextError) -> Failure {
    match error {
        TextError::Missing { .. } => Failure::BadRequest(error.to_string()),
        _ => Failure::BrokenTemplate(error.to_string()),
    }
}

fn open_tokenizer(source: TextSource<'_>) -> Result<Tokenizer, TextError> {
    if let Some(path) = source.tokenizer {
        return match source.is_read_only {
            true => Tokenizer::open_read_only(path),
            false => Tokenizer::open(path),
        };
    }
    if let Some(vocabulary) = source.unigram {
        return Tokenizer::read_only(vocabulary.tokenizer()?);
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
    if CHANNEL_MARKS
        .iter()
        .all(|mark| tokenizer.id(mark).is_some())
    {
        // There a message of reasoning ends with a mark that ends texts elsewhere.
        ends.retain(|&end| tokenizer.id("<|end|>") != Some(end));
        let marks = ["<|call|>", "<|return|>"].into_iter();
        ends.extend(marks.filter_map(|mark| tokenizer.id(mark)));
    }
    ends.sort_unstable();
    ends.dedup();
    ends
}

const GENERATION: &str = "generation_config.json";
/// Four times the largest `tokenizer_config.json`. Parsed, it takes up to forty times its bytes.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// The JSON files of a checkpoint; null for missing ones.
#[derive(Default)]
struct Configs {
    model: Value,
    generation: Value,
    tokenizer: Value,
    template_file: Option<String>,
}

impl Configs {
    fn read(folder: Option<&Path>) -> Result<Self, TextError> {
        let Some(folder) = folder else {
            return Ok(Self::default());
        };
        // For models with vision, the processor's template; the tokenizer's may not support images.
        let template = match read_if_there(&folder.join("chat_template.jinja"))? {
            Some(template) => Some(template),
            None => {
                let file = read_json(&folder.join("chat_template.json"))?;
                file["chat_template"].as_str().map(str::to_owned)
            }
        };
        Ok(Self {
            model: read_json(&folder.join("config.json"))?,
            generation: read_json(&folder.join(GENERATION))?,
            tokenizer: read_json(&folder.join("tokenizer_config.json"))?,
            template_file: template,
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
    let text = read_bounded(path, MAX_CONFIG_BYTES)
        .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TextError::unreadable(path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::{Configs, Language, Reader, TextError, TextSource, check_sampling};
    use crate::runtime::{Chat, Failure, Prompt, Sampling};

    fn source() -> TextSource<'static> {
        let folder = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/tiny-llama"
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
        if let Reader::Local { template, .. } = &mut language.reader {
            **template = Err(TextError::Missing {
                what: "the model's chat template".to_owned(),
            });
        }
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
        let check = |defaults| {
            let source = TextSource {
                defaults,
                ..TextSource::default()
            };
            check_sampling(source, configs.recommended())
        };
        let refused = check(None);
        assert!(
            matches!(refused, Err(TextError::Broken { .. })),
            "{refused:?}"
        );
        let sampling = check(Some(&set)).unwrap();
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
