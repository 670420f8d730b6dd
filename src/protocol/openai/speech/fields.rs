//! Every field of a request for speech.

use std::sync::Arc;

use muster_characters::MOST_SPOKEN;
use serde_json::Value;

use super::{SpeechDelivery, SpeechForm, VoicedText};
use crate::job::most_spoken;
use crate::openai::field::Field;
use crate::openai::images::{LARGEST_SEED, bounded};
use crate::openai::media::{self, MediaTracking};
use crate::openai::shape::{text, whole};
use crate::openai::{Problem, Shape};

const LONGEST_NAME: usize = 128;

/// The request so far.
#[derive(Default)]
pub struct SpeechDraft {
    model: Option<String>,
    input: Option<String>,
    voice: Option<String>,
    speed: Option<f64>,
    seed: Option<u64>,
    ignored: Vec<String>,
    form: SpeechForm,
    delivery: SpeechDelivery,
    wants_words: bool,
    tracking: MediaTracking,
}

const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut SpeechDraft, Value) -> Result<(), Problem>,
) -> Field<SpeechDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

const VOICE: Shape = Shape::Either(&[Shape::Text, Shape::Object]);

#[rustfmt::skip]
pub const FIELDS: &[Field<SpeechDraft>] = &[
    field("model", Shape::Text, "Model name as listed by /v1/models?type=all.", |draft, value| {
        draft.model = Some(bounded("model", value, LONGEST_NAME)?);
        Ok(())
    }),
    field("input", Shape::TextOf(MOST_SPOKEN), "Text to speak; at most 16384 characters, or those of limits.characters in /v1/models, and at a low speed at most 20865 times the speed.", |draft, value| {
        draft.input = Some(bounded("input", value, MOST_SPOKEN as usize)?);
        Ok(())
    }),
    field("voice", VOICE, "A voice of GET /v1/audio/voices, one of OpenAI's, which stands for a voice of the model, or a mixture such as a+b; the model's usual voice if absent. The header x-voice names the voice.", |draft, value| {
        let name = match value {
            Value::Object(mut custom) => custom.remove("id").filter(Value::is_string).unwrap_or_default(),
            name => name,
        };
        draft.voice = Some(bounded("voice", name, LONGEST_NAME)?);
        Ok(())
    }),
    field("speed", Shape::Number(0.25..=4.0), "Speed; 1 if absent.", |draft, value| {
        draft.speed = value.as_f64();
        Ok(())
    }),
    field("response_format", Shape::Text, "Type of the sound file: mp3, wav, flac, opus (in an Ogg file) or pcm (16 bits, one channel, no header); mp3 if absent. aac is not supported.", |draft, value| {
        let name = text(value);
        draft.form = SpeechForm::named(&name).ok_or_else(|| {
            let message = "response_format must be mp3, wav, flac, opus or pcm; aac is not supported";
            Problem::unsupported("response_format", message)
        })?;
        Ok(())
    }),
    field("stream_format", Shape::Word(&["audio", "sse"]), "audio sends mp3, wav, opus and pcm while the text is spoken, sse sends any type in events. If absent, pcm is sent while the text is spoken, and other types when they are complete.", |draft, value| {
        draft.delivery = match value.as_str() {
            Some("sse") => SpeechDelivery::Events,
            _ => SpeechDelivery::Audio,
        };
        Ok(())
    }),
    field("return_timestamps", Shape::Flag, "Say when each word sounds, as Kokoro-FastAPI does: in the events of stream_format sse, or in a reply of JSON with audio, audio_format and timestamps. Words are those that are spoken, such as five for 5. Not of OpenAI's API.", |draft, value| {
        draft.wants_words = value == true;
        Ok(())
    }),
    field("seed", Shape::Integer(0..=LARGEST_SEED), "Seed of the noise in the voice; random if absent.", |draft, value| {
        draft.seed = whole(&value).and_then(|seed| u64::try_from(seed).ok());
        Ok(())
    }),
    field("instructions", Shape::Text, "Instructions about the voice; no effect, since no model here follows them, and named in x-ignored-fields.", |draft, value| {
        if !text(value).trim().is_empty() {
            draft.ignored.push("instructions".to_owned());
        }
        Ok(())
    }),
    field("async", Shape::Flag, media::ASYNC, |draft, value| draft.tracking.take_async(&value)),
    field("client_ref", Shape::Text, media::CLIENT_REF, |draft, value| draft.tracking.take_client_ref(value)),
    field("progress_token", Shape::Text, media::LATER_PROGRESS, |draft, value| draft.tracking.take_progress_token(value)),
];

impl SpeechDraft {
    pub fn finish(self) -> Result<VoicedText, Problem> {
        let missing = |name: &'static str, what: &str| {
            Problem::invalid(name, format!("{name} is missing: send {what}"))
        };
        let model = self
            .model
            .ok_or_else(|| missing("model", "the name of a model that speaks"))?;
        let text = self
            .input
            .ok_or_else(|| missing("input", "the text to speak"))?;
        let speed = self.speed.unwrap_or(1.0);
        let (found, most) = (text.chars().count(), most_spoken(speed));
        if found > most as usize {
            let message = format!(
                "input must have at most {most} characters at speed {speed}, found {found}: send a shorter text or a higher speed"
            );
            return Err(Problem::invalid("input", message));
        }
        if self.form == SpeechForm::Flac && self.delivery == SpeechDelivery::Audio {
            let message = "stream_format audio sends mp3, wav, opus or pcm: choose one of them as response_format, or leave stream_format out";
            return Err(Problem::unsupported("stream_format", message));
        }
        let is_whole = self.delivery == SpeechDelivery::Usual;
        self.tracking.check_for_later(is_whole, "stream_format")?;
        if self.tracking.is_async && self.form == SpeechForm::Pcm {
            let message = "pcm cannot be combined with async, because the file has no header: choose mp3 or wav as response_format";
            return Err(Problem::unsupported("response_format", message));
        }
        if self.wants_words && self.delivery == SpeechDelivery::Audio {
            let message = "return_timestamps cannot be combined with stream_format audio, which has no place for them: choose sse, or leave stream_format out";
            return Err(Problem::unsupported("return_timestamps", message));
        }
        if self.wants_words && self.tracking.is_async {
            let message = "return_timestamps cannot be combined with async: the result is a file";
            return Err(Problem::unsupported("return_timestamps", message));
        }
        Ok(VoicedText {
            model: Arc::from(model),
            text,
            voice: self.voice,
            speed: self.speed,
            seed: self.seed,
            form: self.form,
            delivery: self.delivery,
            wants_words: self.wants_words,
            tracking: self.tracking,
            ignored: self.ignored,
        })
    }
}
