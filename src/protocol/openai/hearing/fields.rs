//! Every field of a request for a transcript or a translation.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;

use super::reply::TranscriptForm;
use super::speech::SpeechSettings;
use super::{HearingDoor, HearingRequest, languages};
use crate::openai::field::{Field, FieldRow};
use crate::openai::form::FormBody;
use crate::openai::images::{bounded, number};
use crate::openai::media::{self, MediaTracking};
use crate::openai::shape::{kind, text};
use crate::openai::{Problem, Shape, Strictness, field};

const LONGEST_NAME: usize = 128;
const LONGEST_PROMPT: usize = 4096;
const MOST_KEYWORDS: usize = 100;
const NO_SPEAKERS: &str = "Not supported: models here do not tell speakers apart.";
const NOT_APART: &str = "models here do not tell speakers apart: leave the field out";

/// The request so far.
#[derive(Default)]
pub struct HearingDraft {
    model: Option<String>,
    language: Option<String>,
    /// Each once.
    languages: Vec<String>,
    keywords: Vec<String>,
    prompt: Option<String>,
    temperature: Option<f64>,
    beam_size: Option<u32>,
    speech: Option<SpeechSettings>,
    file: Option<Bytes>,
    form: TranscriptForm,
    has_segments: bool,
    has_words: bool,
    has_logprobs: bool,
    is_streamed: bool,
    tracking: MediaTracking,
}

const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut HearingDraft, Value) -> Result<(), Problem>,
) -> Field<HearingDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

const FORMS: Shape = Shape::Word(&["json", "text", "srt", "verbose_json", "vtt"]);

#[rustfmt::skip]
const MODEL: Field<HearingDraft> = field("model", Shape::Text, "Model name as listed by /v1/models?type=all.", |draft, value| {
    draft.model = Some(bounded("model", value, LONGEST_NAME)?);
    Ok(())
});

#[rustfmt::skip]
const FILE: Field<HearingDraft> = field("file", Shape::Text, "The sound as a file of the form: flac, m4a, mp3, mp4, ogg, opus, wav or webm. In JSON as base64 or a data URL.", |draft, value| {
    draft.file = Some(bytes_of(&text(value))?);
    Ok(())
});

#[rustfmt::skip]
const PROMPT: Field<HearingDraft> = field("prompt", Shape::Text, "Text that came before the sound, or names that occur in it; at most 4096 characters.", |draft, value| {
    let prompt = text(value);
    if prompt.chars().count() > LONGEST_PROMPT {
        let message = format!("prompt must have at most {LONGEST_PROMPT} characters");
        return Err(Problem::invalid("prompt", message));
    }
    draft.prompt = Some(prompt).filter(|prompt| !prompt.trim().is_empty());
    Ok(())
});

#[rustfmt::skip]
const FORM: Field<HearingDraft> = field("response_format", FORMS, "Form of the reply; json if absent. srt and vtt are subtitles.", |draft, value| {
    draft.form = TranscriptForm::named(&text(value)).unwrap_or_default();
    Ok(())
});

#[rustfmt::skip]
const TEMPERATURE: Field<HearingDraft> = field("temperature", Shape::Number(0.0..=1.0), "Randomness; 0, if absent, takes the likeliest text and rises by itself where a text is poor.", |draft, value| {
    draft.temperature = value.as_f64();
    Ok(())
});

#[rustfmt::skip]
const BEAM_SIZE: Field<HearingDraft> = field("beam_size", Shape::Integer(1..=5), "Texts that a beam search keeps, at temperature 0; 1, if absent, takes the likeliest token each time.", |draft, value| {
    draft.beam_size = number(&value);
    Ok(())
});

#[rustfmt::skip]
const VAD_FILTER: Field<HearingDraft> = field("vad_filter", Shape::Flag, "Detect voice activity and skip the parts without speech, as faster-whisper does; times stay those of the whole sound. Not of OpenAI's API.", |draft, value| {
    if value == true {
        draft.speech.get_or_insert_default();
    }
    Ok(())
});

#[rustfmt::skip]
const ASYNC: Field<HearingDraft> = field("async", Shape::Flag, media::ASYNC, |draft, value| draft.tracking.take_async(&value));

#[rustfmt::skip]
const CLIENT_REF: Field<HearingDraft> = field("client_ref", Shape::Text, media::CLIENT_REF, |draft, value| draft.tracking.take_client_ref(value));

#[rustfmt::skip]
const PROGRESS_TOKEN: Field<HearingDraft> = field("progress_token", Shape::Text, media::LATER_PROGRESS, |draft, value| draft.tracking.take_progress_token(value));

#[rustfmt::skip]
pub const TRANSCRIBED: &[Field<HearingDraft>] = &[
    FILE,
    MODEL,
    field("language", Shape::Text, "Language that is spoken, such as en; the model finds out if absent.", |draft, value| {
        draft.language = Some(language("language", &text(value))?);
        Ok(())
    }),
    field("languages", Shape::List, "Languages that may be spoken, such as en and de: the model finds the likeliest of them at the beginning of the sound. A single one counts as language.", |draft, value| {
        for one in value.as_array().into_iter().flatten() {
            let language = language("languages", one.as_str().unwrap_or_default())?;
            if !draft.languages.contains(&language) {
                draft.languages.push(language);
            }
        }
        Ok(())
    }),
    field("keywords", Shape::List, "Words or names that may occur in the sound: they become the beginning of prompt.", |draft, value| {
        draft.keywords = keywords(&value)?;
        Ok(())
    }),
    PROMPT,
    FORM,
    TEMPERATURE,
    BEAM_SIZE,
    VAD_FILTER,
    field("timestamp_granularities", Shape::List, "word, segment or both: times in a reply of verbose_json; segment if absent.", |draft, value| {
        for one in value.as_array().into_iter().flatten() {
            match one.as_str() {
                Some("word") => draft.has_words = true,
                Some("segment") => draft.has_segments = true,
                _ => {
                    let message = format!("timestamp_granularities must be word or segment, found {one}");
                    return Err(Problem::invalid("timestamp_granularities", message));
                }
            }
        }
        Ok(())
    }),
    field("stream", Shape::Flag, "Send events as parts are heard.", |draft, value| {
        draft.is_streamed = value == true;
        Ok(())
    }),
    field("chunking_strategy", Shape::Either(&[Shape::Word(&["auto"]), Shape::Object]), "auto: the model cuts the sound by itself. An object of type server_vad skips the parts without speech; it may have threshold, prefix_padding_ms, also kept after speech, and silence_duration_ms.", |draft, value| {
        if value.is_object() {
            draft.speech = Some(server_vad(&value)?);
        }
        Ok(())
    }),
    field("include", Shape::List, "Only logprobs: the log probability of each token, in a reply of json and in the events of a stream.", |draft, value| {
        let list = value.as_array().map_or(&[][..], Vec::as_slice);
        draft.has_logprobs = !list.is_empty();
        match list.iter().all(|one| one == "logprobs") {
            true => Ok(()),
            false => Err(Problem::unsupported("include", "include must be [\"logprobs\"] or empty")),
        }
    }),
    field("known_speaker_names", Shape::List, NO_SPEAKERS, |_, _| Err(Problem::unsupported("known_speaker_names", NOT_APART))),
    field("known_speaker_references", Shape::List, NO_SPEAKERS, |_, _| Err(Problem::unsupported("known_speaker_references", NOT_APART))),
    ASYNC,
    CLIENT_REF,
    PROGRESS_TOKEN,
];

#[rustfmt::skip]
pub const TRANSLATED: &[Field<HearingDraft>] =
    &[FILE, MODEL, PROMPT, FORM, TEMPERATURE, BEAM_SIZE, VAD_FILTER, ASYNC, CLIENT_REF, PROGRESS_TOKEN];

fn table(door: HearingDoor) -> &'static [Field<HearingDraft>] {
    match door {
        HearingDoor::Transcribe => TRANSCRIBED,
        HearingDoor::Translate => TRANSLATED,
    }
}

/// Every field of a request.
pub fn rows(door: HearingDoor) -> Vec<FieldRow> {
    field::rows(table(door))
}

/// The form as JSON Schema.
pub fn schema(door: HearingDoor) -> Value {
    field::schema(table(door), &["file", "model"])
}

pub fn of_json(door: HearingDoor, body: Value) -> Result<HearingRequest, Problem> {
    let Value::Object(entries) = body else {
        let found = kind(&body);
        let message = format!("the body must be a JSON object or a form, found {found}");
        return Err(Problem::malformed(message));
    };
    let mut draft = HearingDraft::default();
    field::read(table(door), entries, Strictness::Refuse, &mut draft)?;
    draft.finish(door)
}

pub fn of_form(door: HearingDoor, form: FormBody) -> Result<HearingRequest, Problem> {
    let table = table(door);
    let mut draft = HearingDraft::default();
    let texts = form.json(table)?;
    field::read(table, texts, Strictness::Refuse, &mut draft)?;
    for file in form.files {
        if file.field() != "file" || draft.file.is_some() {
            return Err(file.unwanted());
        }
        draft.file = Some(file.bytes);
    }
    draft.finish(door)
}

fn language(param: &'static str, given: &str) -> Result<String, Problem> {
    let code = languages::code(given).map(str::to_owned);
    code.ok_or_else(|| {
        let message = format!("{param} must be a language such as en or de, found {given:?}");
        Problem::invalid(param, message)
    })
}

fn keywords(value: &Value) -> Result<Vec<String>, Problem> {
    let list = value.as_array().into_iter().flatten();
    let words: Option<Vec<String>> = list
        .map(|word| Some(word.as_str()?.trim().to_owned()).filter(|word| !word.is_empty()))
        .collect();
    let words = words.filter(|words| words.len() <= MOST_KEYWORDS);
    words.ok_or_else(|| {
        let message = format!("keywords must be at most {MOST_KEYWORDS} words or names");
        Problem::invalid("keywords", message)
    })
}

/// OpenAI's settings of voice activity detection; those that are absent have the usual values.
fn server_vad(value: &Value) -> Result<SpeechSettings, Problem> {
    const PLACE: &str = "chunking_strategy";
    const LONGEST_MILLIS: i64 = 60_000;
    let entries = value.as_object().into_iter().flatten();
    let mut settings = SpeechSettings::default();
    if value["type"] != "server_vad" {
        let param = format!("{PLACE}.type");
        let message = format!("{param} must be \"server_vad\"");
        return Err(Problem::invalid(param, message));
    }
    for (name, value) in entries {
        let place = format!("{PLACE}.{name}");
        let shape = match name.as_str() {
            "type" => continue,
            "threshold" => Shape::Number(0.0..=1.0),
            "prefix_padding_ms" | "silence_duration_ms" => Shape::Integer(0..=LONGEST_MILLIS),
            _ => {
                let known = [
                    "type",
                    "threshold",
                    "prefix_padding_ms",
                    "silence_duration_ms",
                ];
                return Err(field::unknown(&format!("{PLACE}."), name, known));
            }
        };
        if value.is_null() {
            continue;
        }
        shape.check(&place, value)?;
        let millis = number(value).unwrap_or_default();
        match name.as_str() {
            "threshold" => settings.threshold = value.as_f64().unwrap_or_default(),
            "prefix_padding_ms" => settings.padding_millis = millis,
            _ => settings.silence_millis = millis,
        }
    }
    Ok(settings)
}

/// base64, or a data URL of it.
fn bytes_of(text: &str) -> Result<Bytes, Problem> {
    let encoded = match text.strip_prefix("data:") {
        Some(rest) => rest
            .split_once(";base64,")
            .map_or("", |(_, encoded)| encoded),
        None => text,
    };
    match STANDARD.decode(encoded.trim()) {
        Ok(bytes) if !bytes.is_empty() => Ok(bytes.into()),
        _ => {
            let message = "file must be a sound file: a part of a form, base64, or a data URL";
            Err(Problem::invalid("file", message))
        }
    }
}

impl HearingDraft {
    fn finish(self, door: HearingDoor) -> Result<HearingRequest, Problem> {
        let missing = |name: &'static str, what: &str| {
            Problem::invalid(name, format!("{name} is missing: send {what}"))
        };
        let file = self
            .file
            .ok_or_else(|| missing("file", "a sound file as a part of the form"))?;
        let model = self
            .model
            .ok_or_else(|| missing("model", "the name of a model that transcribes"))?;
        let has_times = self.has_words || self.has_segments;
        if has_times && self.form != TranscriptForm::VerboseJson {
            let message = "timestamp_granularities requires response_format verbose_json";
            return Err(Problem::invalid("timestamp_granularities", message));
        }
        if self.has_logprobs && self.form != TranscriptForm::Json {
            let message = "include logprobs requires response_format json";
            return Err(Problem::invalid("include", message));
        }
        if self.is_streamed && !matches!(self.form, TranscriptForm::Json | TranscriptForm::Text) {
            let message = "response_format must be json or text where stream is true";
            return Err(Problem::invalid("response_format", message));
        }
        let is_drawn = self
            .temperature
            .is_some_and(|temperature| temperature > 0.0);
        if is_drawn && self.beam_size.is_some_and(|size| size > 1) {
            let message = "beam_size above 1 requires temperature 0";
            return Err(Problem::invalid("beam_size", message));
        }
        self.tracking.check_for_later(!self.is_streamed, "stream")?;
        let (language, languages) = match (self.language, self.languages) {
            (Some(language), several) if !several.is_empty() && !several.contains(&language) => {
                let message =
                    format!("languages must have that of language, {language}, where both are set");
                return Err(Problem::invalid("languages", message));
            }
            (Some(language), _) => (Some(language), Vec::new()),
            (None, one) if one.len() == 1 => (one.into_iter().next(), Vec::new()),
            (None, several) => (None, several),
        };
        let keywords =
            (!self.keywords.is_empty()).then(|| format!("{}.", self.keywords.join(", ")));
        let prompt: Vec<String> = keywords.into_iter().chain(self.prompt).collect();
        let prompt = Some(prompt.join(" ")).filter(|prompt| !prompt.is_empty());
        if prompt
            .as_ref()
            .is_some_and(|prompt| prompt.chars().count() > LONGEST_PROMPT)
        {
            let message = format!(
                "keywords and prompt together must have at most {LONGEST_PROMPT} characters"
            );
            return Err(Problem::invalid("keywords", message));
        }
        Ok(HearingRequest {
            model: Arc::from(model),
            file,
            language,
            languages,
            is_translated: door == HearingDoor::Translate,
            prompt,
            temperature: self.temperature,
            beam_size: self.beam_size,
            speech: self.speech,
            form: self.form,
            has_segments: self.has_segments || !self.has_words,
            has_words: self.has_words,
            has_logprobs: self.has_logprobs,
            is_streamed: self.is_streamed,
            tracking: self.tracking,
        })
    }
}
