//! Music jobs: an audio file each. Settings that the client left out are `None`.

use serde::{Deserialize, Serialize};

use super::{JobRequest, KindFacts, MediaFile, ModelDefaults, OutputForm, PriceUnit, Rate};
use crate::job::needs::{MediaNeeds, Needs};
use crate::job::{Capabilities, Formats, Limits};

pub(super) const FACTS: KindFacts = KindFacts {
    name: "music",
    word: "audio",
    ability: "music generation",
    job_type: "audio",
    task: None,
    is_relayed: false,
    modality: Some("audio"),
    route: Some("/v1/audio/generations"),
    limits: &["seconds"],
    rate: Some(Rate {
        name: "per_audio_second_usd",
        unit: PriceUnit::Second,
    }),
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MusicRequest {
    pub prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lyrics: Option<String>,
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bpm: Option<u32>,
    /// A note and a mode, such as `C# minor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_scale: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_signature: Option<String>,
    /// Two letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocal_language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// For a model that speaks: the prompt is the text, and `seconds` the longest sound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_speech: bool,
    /// The model decides whether the output is speech, since it was unknown at the time of the request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_be_speech: bool,
    /// A voice of a model that speaks, or a mixture such as `a+b`. None: the model's usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
    /// How fast a model speaks; 1 is the usual speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// The file that the worker uploads.
    pub format: SoundFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoundFormat {
    #[default]
    Wav,
    Flac,
    /// In an Ogg file.
    Opus,
    /// Only of workers that know it.
    Mp3,
}

/// The longest music of public workers, and their most steps.
const MOST_PUBLIC_SECONDS: f64 = 300.0;
const MOST_PUBLIC_STEPS: u32 = 20;

/// Speech has about 15 characters a second.
pub fn spoken_millis(characters: u64) -> u64 {
    characters.saturating_mul(67)
}

impl MusicRequest {
    /// A spoken text counts by its length alone.
    pub fn needs(&self) -> Needs {
        let characters = u32::try_from(self.characters()).unwrap_or(u32::MAX);
        let seconds = self.seconds.max(0.0).floor() as u32;
        let (is_music, is_spoken) = match (self.may_be_speech, self.is_speech) {
            // The model decides, and has no limit of the other kind.
            (true, _) => (true, true),
            (false, is_speech) => (!is_speech, is_speech),
        };
        Needs::Media(MediaNeeds {
            seconds: if is_music { seconds } else { 0 },
            characters: if is_spoken { characters } else { 0 },
            ..MediaNeeds::default()
        })
    }

    /// The client's field with a value that public workers do not take. A speech ends with its text.
    pub fn beyond_public(&self) -> Option<&'static str> {
        if !self.is_speech && self.seconds > MOST_PUBLIC_SECONDS {
            return Some("seconds");
        }
        let most = MOST_PUBLIC_STEPS;
        self.steps
            .is_some_and(|steps| steps > most)
            .then_some("inference_steps")
    }

    pub fn millis(&self) -> u64 {
        (self.seconds.max(0.0) * 1000.0).ceil() as u64
    }

    /// How many the prompt has.
    pub fn characters(&self) -> u64 {
        self.prompt.chars().count() as u64
    }
}

impl JobRequest for MusicRequest {
    fn is_unbound(&self) -> bool {
        self.may_be_speech
    }

    fn bind(&mut self, model: &ModelDefaults) {
        if std::mem::take(&mut self.may_be_speech) {
            self.is_speech = model.speaks;
        }
    }

    fn seed(&self) -> Option<u64> {
        self.seed
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = Some(seed);
    }

    fn output(&self) -> OutputForm {
        OutputForm::File(MediaFile::Sound {
            format: self.format,
            // A speech ends with its text.
            shortest: if self.is_speech { 0.0 } else { self.seconds },
            longest: self.seconds,
        })
    }

    /// 30 s of music are a typical job, and so is a minute of speech.
    fn work(&self, _: &Limits) -> u64 {
        self.paid_millis() / if self.is_speech { 60 } else { 30 }
    }

    fn size(&self) -> u64 {
        self.paid_millis().div_ceil(1000)
    }

    fn limits(&self) -> Limits {
        // The protocol of public workers has no type of file but this one, and no word for a voice.
        let is_public = self.format == SoundFormat::Wav
            && self.voice.is_none()
            && self.speed.is_none()
            && self.beyond_public().is_none();
        Limits {
            formats: match is_public {
                true => Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
                false => Formats::NEUTRAL,
            },
            requires: Capabilities::default()
                .with_if(self.format == SoundFormat::Mp3, Capabilities::MP3),
            needs: self.needs(),
            ..Limits::default()
        }
    }

    fn steps(&self) -> Option<u32> {
        self.steps
    }

    fn texts(&self) -> Vec<&str> {
        let lyrics = self.lyrics.as_deref();
        std::iter::once(&*self.prompt).chain(lyrics).collect()
    }

    /// A speech is counted by its text, because `seconds` is only a limit.
    fn paid_millis(&self) -> u64 {
        match self.is_speech {
            true => self.millis().min(spoken_millis(self.characters())),
            false => self.millis(),
        }
    }

    fn spoken_characters(&self) -> Option<u64> {
        self.is_speech.then(|| self.characters())
    }

    fn characters_of_possible_speech(&self) -> Option<u64> {
        self.may_be_speech.then(|| self.characters())
    }
}

#[cfg(test)]
mod tests {
    use super::MusicRequest;
    use crate::job::{Formats, JobRequest, ModelDefaults};

    #[test]
    fn music_that_public_workers_do_not_make_is_named() {
        let of = |seconds, steps, is_speech| MusicRequest {
            seconds,
            steps,
            is_speech,
            ..MusicRequest::default()
        };
        assert_eq!(of(300.0, Some(20), false).beyond_public(), None);
        assert_eq!(of(301.0, None, false).beyond_public(), Some("seconds"));
        assert_eq!(of(1000.0, None, true).beyond_public(), None);
        let many = of(30.0, Some(21), false);
        assert_eq!(many.beyond_public(), Some("inference_steps"));
        assert!(!many.limits().formats.meets(Formats::OPENAI_CHAT));
    }

    #[test]
    fn a_speech_is_paid_by_its_text_and_never_by_its_limit() {
        let music = MusicRequest {
            prompt: "a".repeat(30),
            seconds: 60.0,
            ..MusicRequest::default()
        };
        let speech = MusicRequest {
            is_speech: true,
            ..music.clone()
        };
        let short = MusicRequest {
            seconds: 1.0,
            ..speech.clone()
        };
        let paid = [&music, &speech, &short].map(MusicRequest::paid_millis);
        assert_eq!(paid, [60_000, 2_010, 1_000]);
    }

    #[test]
    fn a_model_with_voices_speaks_what_another_plays() {
        let unknown = MusicRequest {
            prompt: "a".repeat(30),
            seconds: 60.0,
            may_be_speech: true,
            ..MusicRequest::default()
        };
        let bound = |speaks| {
            let mut sound = unknown.clone();
            sound.bind(&ModelDefaults {
                speaks,
                ..ModelDefaults::default()
            });
            assert!(!sound.is_unbound());
            (sound.is_speech, sound.paid_millis())
        };
        assert_eq!(unknown.paid_millis(), 60_000, "the most that it may cost");
        assert_eq!(bound(true), (true, 2010));
        assert_eq!(bound(false), (false, 60_000));
    }
}
