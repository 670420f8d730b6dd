//! Every field of a request for a transcript or a translation.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;

use super::reply::TranscriptForm;
use super::{HearingDoor, HearingRequest, languages};
use crate::openai::field::{Field, FieldRow};
use crate::openai::form::FormBody;
use crate::openai::images::{bounded, number, text};
use crate::openai::media::{self, MediaTracking};
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, Strictness, field};

const LONGEST_NAME: usize = 128;
const LONGEST_PROMPT: usize = 4096;

/// The request so far.
#[derive(Default)]
pub struct HearingDraft {
    model: Option<String>,
    language: Option<String>,
    prompt: Option<String>,
    temperature: Option<f64>,
    beam_size: Option<u32>,
    file: Option<Bytes>,
    form: TranscriptForm,
    has_segments: bool,
    has_words: bool,
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
        let given = text(value);
        let code = languages::code(&given).ok_or_else(|| {
            let message = format!("language must be a language such as en or de, found {given:?}");
            Problem::invalid("language", message)
        })?;
        draft.language = Some(code.to_owned());
        Ok(())
    }),
    PROMPT,
    FORM,
    TEMPERATURE,
    BEAM_SIZE,
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
    field("chunking_strategy", Shape::Either(&[Shape::Word(&["auto"]), Shape::Object]), "Only auto: models cut a sound by themselves.", |_, value| {
        match value.is_object() {
            false => Ok(()),
            true => Err(Problem::unsupported("chunking_strategy", "chunking_strategy must be \"auto\": other ways are not supported")),
        }
    }),
    field("include", Shape::List, "Only an empty list: log probabilities of tokens are not returned.", |_, value| {
        match value.as_array().is_none_or(Vec::is_empty) {
            true => Ok(()),
            false => Err(Problem::unsupported("include", "include must be empty: log probabilities of tokens are not supported here")),
        }
    }),
    ASYNC,
    CLIENT_REF,
    PROGRESS_TOKEN,
];

#[rustfmt::skip]
pub const TRANSLATED: &[Field<HearingDraft>] =
    &[FILE, MODEL, PROMPT, FORM, TEMPERATURE, BEAM_SIZE, ASYNC, CLIENT_REF, PROGRESS_TOKEN];

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
        Ok(HearingRequest {
            model: Arc::from(model),
            file,
            language: self.language,
            is_translated: door == HearingDoor::Translate,
            prompt: self.prompt,
            temperature: self.temperature,
            beam_size: self.beam_size,
            form: self.form,
            has_segments: self.has_segments || !self.has_words,
            has_words: self.has_words,
            is_streamed: self.is_streamed,
            tracking: self.tracking,
        })
    }
}
