//! Every field of a request for music.

use std::sync::Arc;

use serde_json::Value;

use super::AudioRequest;
use crate::job::{MusicRequest, SoundFormat};
use crate::openai::field::Field;
use crate::openai::images::{LARGEST_SEED, bounded, number};
use crate::openai::media::{self, MediaEncoding, MediaTracking};
use crate::openai::shape::{text, whole};
use crate::openai::{Problem, Shape};

const USUAL_SECONDS: f64 = 30.0;
const LONGEST_PROMPT: usize = 2000;
const LONGEST_LYRICS: usize = 20_000;
const LONGEST_NAME: usize = 128;

/// The request so far.
#[derive(Default)]
pub struct MusicDraft {
    model: Option<String>,
    prompt: Option<String>,
    seconds: Option<f64>,
    music: MusicRequest,
    tracking: MediaTracking,
    encoding: MediaEncoding,
}

/// One field of a request.
const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut MusicDraft, Value) -> Result<(), Problem>,
) -> Field<MusicDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

#[rustfmt::skip]
pub const FIELDS: &[Field<MusicDraft>] = &[
    field("prompt", Shape::Text, "Text that describes the music; at most 2000 characters.", |draft, value| {
        draft.prompt = Some(bounded("prompt", value, LONGEST_PROMPT)?);
        Ok(())
    }),
    field("lyrics", Shape::Text, "Text to be sung; at most 20000 characters.", |draft, value| {
        let lyrics = text(value);
        if lyrics.chars().count() > LONGEST_LYRICS {
            let message = format!("lyrics must have at most {LONGEST_LYRICS} characters");
            return Err(Problem::invalid("lyrics", message));
        }
        draft.music.lyrics = Some(lyrics).filter(|lyrics| !lyrics.is_empty());
        Ok(())
    }),
    field("model", Shape::Text, "Model name as listed by /v1/models?type=all; if absent, the online audio model with the most workers.", |draft, value| {
        draft.model = Some(bounded("model", value, LONGEST_NAME)?);
        Ok(())
    }),
    field("seconds", Shape::Number(1.0..=600.0), "Length of the music, up to 300 for public workers; 30 if absent.", |draft, value| {
        draft.seconds = value.as_f64();
        Ok(())
    }),
    field("inference_steps", Shape::Integer(1..=100), "Denoising steps, up to 20 for public workers; if absent, as many as suit the model.", |draft, value| {
        draft.music.steps = number(&value);
        Ok(())
    }),
    field("bpm", Shape::Integer(30..=300), "Beats per minute; only models that take it.", |draft, value| {
        draft.music.bpm = number(&value);
        Ok(())
    }),
    field("key_scale", Shape::Text, "Key, such as C# minor; only models that take it.", |draft, value| {
        draft.music.key_scale = Some(key_scale(text(value))?);
        Ok(())
    }),
    field("time_signature", Shape::Word(&["2/4", "3/4", "4/4", "6/8"]), "Time signature; only models that take it.", |draft, value| {
        draft.music.time_signature = Some(text(value));
        Ok(())
    }),
    field("vocal_language", Shape::Text, "Language of the lyrics in two lower-case letters; only models that take it.", |draft, value| {
        let language = text(value);
        let is_code = language.len() == 2 && language.bytes().all(|one| one.is_ascii_lowercase());
        if !is_code {
            let message = "vocal_language must be two lower-case letters, such as en";
            return Err(Problem::invalid("vocal_language", message));
        }
        draft.music.vocal_language = Some(language);
        Ok(())
    }),
    field("seed", Shape::Integer(0..=LARGEST_SEED), "Seed of the music; random if absent.", |draft, value| {
        draft.music.seed = whole(&value).and_then(|seed| u64::try_from(seed).ok());
        Ok(())
    }),
    field("response_format", Shape::Word(&["wav", "flac", "opus", "mp3", "url", "b64_json"]), "Type of the sound file, behind a signed link that expires after an hour; opus is in an Ogg file, mp3 needs a worker that makes it. b64_json: a wav file as base64. If absent or url, a link to a wav file.", |draft, value| {
        (draft.music.format, draft.encoding) = match value.as_str() {
            Some("flac") => (SoundFormat::Flac, MediaEncoding::Url),
            Some("opus") => (SoundFormat::Opus, MediaEncoding::Url),
            Some("mp3") => (SoundFormat::Mp3, MediaEncoding::Url),
            Some("b64_json") => (SoundFormat::Wav, MediaEncoding::Base64),
            _ => (SoundFormat::Wav, MediaEncoding::Url),
        };
        Ok(())
    }),
    field("worker", Shape::Text, "Not supported: any worker that serves the model may answer.", |_, _| {
        Err(Problem::unsupported("worker", "worker is not supported here"))
    }),
    field("progress_token", Shape::Text, media::PROGRESS_TOKEN, |draft, value| draft.tracking.take_progress_token(value)),
    field("async", Shape::Flag, media::ASYNC, |draft, value| draft.tracking.take_async(&value)),
    field("client_ref", Shape::Text, media::CLIENT_REF, |draft, value| draft.tracking.take_client_ref(value)),
];

impl MusicDraft {
    pub fn finish(self) -> Result<AudioRequest, Problem> {
        let prompt = self.prompt.ok_or_else(|| {
            Problem::invalid("prompt", "prompt is missing: send a text for the music")
        })?;
        self.tracking
            .check(!self.encoding.has_base64(), "response_format")?;
        Ok(AudioRequest {
            model: self.model.map(Arc::from),
            music: MusicRequest {
                prompt,
                seconds: self.seconds.unwrap_or(USUAL_SECONDS),
                ..self.music
            },
            tracking: self.tracking,
            encoding: self.encoding,
        })
    }
}

/// A note from A to G with `#` or `b`, and a mode.
fn key_scale(text: String) -> Result<String, Problem> {
    let is_known = text.split_once(' ').is_some_and(|(note, mode)| {
        let (tone, sharp) = note.split_at(note.len().min(1));
        ["A", "B", "C", "D", "E", "F", "G"].contains(&tone)
            && ["", "#", "b"].contains(&sharp)
            && ["Major", "minor"].contains(&mode)
    });
    match is_known {
        true => Ok(text),
        false => {
            let message = "key_scale must be a note and Major or minor, such as C# minor";
            Err(Problem::invalid("key_scale", message))
        }
    }
}
