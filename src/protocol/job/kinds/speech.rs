//! A job that speaks a text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_characters::MOST_SPOKEN;
use serde::{Deserialize, Serialize};

use super::music::spoken_millis;
use super::{JobRequest, KindFacts, OutputForm, PriceUnit, Rate};
use crate::job::needs::{MediaNeeds, Needs};
use crate::job::{Capabilities, Formats, Limits};

pub(super) const FACTS: KindFacts = KindFacts {
    name: "speech",
    word: "audio",
    ability: "speech",
    job_type: "text",
    task: Some("speak"),
    is_relayed: true,
    modality: Some("audio"),
    route: Some("/v1/audio/speech"),
    limits: &["characters"],
    rate: Some(Rate {
        name: "per_mchar_spoken_usd",
        unit: PriceUnit::MillionCharacters,
    }),
};

/// The longest speech of a route, in seconds: 64 MiB of samples at 24 kHz.
pub const LONGEST_SPEECH: u32 = 1398;

/// The longest text at a speed, in characters: [`MOST_SPOKEN`], or fewer where slow speech would exceed
/// [`LONGEST_SPEECH`].
pub fn most_spoken(speed: f64) -> u32 {
    let millis = f64::from(LONGEST_SPEECH) * 1000.0 * speed;
    let characters = millis / spoken_millis(1) as f64;
    MOST_SPOKEN.min(characters as u32)
}

/// A text to speak.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpeechRequest {
    pub text: String,
    /// A voice of the model, or a mixture such as `a+b`. None: the model's usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
    /// 1 is the usual speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// The same seed gives the same sound, so that another worker can go on.
    pub seed: u64,
    /// With the time of each word.
    #[serde(skip_serializing_if = "is_false")]
    pub words: bool,
}

/// The next part of a speech, with one channel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpeechPart {
    /// Samples that come before this part.
    pub at: u64,
    /// Samples a second.
    pub rate: u32,
    pub samples: Samples,
    /// Words that begin after those of earlier parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<SpokenWord>,
}

/// A word as it is spoken. Times are seconds from the beginning of the speech.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SpokenWord {
    pub word: String,
    pub start: f64,
    pub end: f64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Samples of 16 bits, lower byte first, whose serde form is base64.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples(pub Vec<u8>);

impl SpeechRequest {
    /// A character counts as a token.
    pub fn tokens(&self) -> u64 {
        (self.text.chars().count() as u64).max(1)
    }

    /// Workers of earlier versions say no times.
    pub fn requires(&self) -> Capabilities {
        Capabilities::default().with_if(self.words, Capabilities::WORD_TIMES)
    }
}

impl JobRequest for SpeechRequest {
    fn output(&self) -> OutputForm {
        OutputForm::Values
    }

    fn size(&self) -> u64 {
        self.tokens()
    }

    fn spoken_characters(&self) -> Option<u64> {
        Some(self.tokens())
    }

    fn read_bytes(&self) -> usize {
        self.text.len()
    }

    fn limits(&self) -> Limits {
        Limits {
            formats: Formats::NEUTRAL,
            requires: self.requires(),
            needs: Needs::Media(MediaNeeds {
                characters: u32::try_from(self.tokens()).unwrap_or(u32::MAX),
                ..MediaNeeds::default()
            }),
            ..Limits::default()
        }
    }

    fn sound_seconds(&self) -> Option<u64> {
        Some(spoken_millis(self.tokens()).div_ceil(1000))
    }
}

impl SpeechPart {
    /// Samples at the end of the part.
    pub fn end(&self) -> u64 {
        self.at + (self.samples.0.len() / 2) as u64
    }

    /// Appends the next part. A part that the samples here overlap is cut, and one that leaves a gap is refused.
    pub fn absorb(&mut self, next: Self) -> Result<(), SpeechGap> {
        if self.rate == 0 {
            self.rate = next.rate;
            self.at = next.at;
        }
        if next.at > self.end() || next.rate != self.rate {
            return Err(SpeechGap);
        }
        let known = usize::try_from(self.end() - next.at).unwrap_or(usize::MAX);
        let fresh = next.samples.0.get(known.saturating_mul(2)..);
        self.samples.0.extend_from_slice(fresh.unwrap_or_default());
        self.absorb_words(next.words);
        Ok(())
    }

    /// Words of a part that comes again are known already.
    fn absorb_words(&mut self, words: Vec<SpokenWord>) {
        let known = self.words.last().map(|word| word.start);
        let is_new = |word: &SpokenWord| known.is_none_or(|known| word.start > known);
        self.words.extend(words.into_iter().filter(is_new));
    }
}

/// A part of a speech is missing, or of another rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a part of the speech is missing")]
pub struct SpeechGap;

impl Serialize for Samples {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Samples {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        match bytes.len().is_multiple_of(2) {
            true => Ok(Self(bytes)),
            false => Err(D::Error::custom("a sample has two bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{LONGEST_SPEECH, Samples, SpeechGap, SpeechPart, SpokenWord, most_spoken};
    use crate::job::kinds::music::spoken_millis;

    fn part(at: u64, samples: &[u8]) -> SpeechPart {
        SpeechPart {
            at,
            rate: 24_000,
            samples: Samples(samples.to_vec()),
            words: Vec::new(),
        }
    }

    #[test]
    fn slow_speech_takes_shorter_texts() {
        assert_eq!([0.8, 1.0, 4.0].map(most_spoken), [16_384; 3]);
        for speed in [0.25, 0.5, 0.75] {
            let seconds = |characters| spoken_millis(characters) as f64 / 1000.0 / speed;
            let most = u64::from(most_spoken(speed));
            let longest = f64::from(LONGEST_SPEECH);
            assert!(seconds(most) <= longest && longest < seconds(most + 1));
        }
    }

    #[test]
    fn words_that_come_again_are_taken_once() {
        let word = |word: &str, start| SpokenWord {
            word: word.to_owned(),
            start,
            end: start + 0.5,
        };
        let said = |at, words: &[SpokenWord]| SpeechPart {
            words: words.to_vec(),
            ..part(at, &[1, 0])
        };
        let mut whole = SpeechPart::default();
        let words = [word("one", 0.0), word("two", 0.5), word("three", 1.0)];
        whole.absorb(said(0, &words[..2])).unwrap();
        whole.absorb(said(0, &words[..2])).unwrap();
        whole.absorb(said(1, &words[2..])).unwrap();
        assert_eq!(whole.words, words);
    }

    #[test]
    fn samples_cross_the_wire_as_base64() {
        let written = serde_json::to_value(part(3, &[1, 2, 255, 0])).unwrap();
        assert_eq!(written["samples"], json!("AQL/AA=="));
        let read: SpeechPart = serde_json::from_value(written).unwrap();
        assert_eq!(read, part(3, &[1, 2, 255, 0]));
        for broken in ["AQL", "AQIDBA", "AQID", "÷"] {
            let read = serde_json::from_value::<Samples>(json!(broken));
            assert!(read.is_err(), "{broken}");
        }
    }

    #[test]
    fn parts_that_come_again_are_cut() {
        let mut whole = SpeechPart::default();
        whole.absorb(part(0, &[1, 0, 2, 0])).unwrap();
        whole.absorb(part(0, &[9, 9])).unwrap();
        whole.absorb(part(1, &[9, 9, 3, 0])).unwrap();
        assert_eq!(whole, part(0, &[1, 0, 2, 0, 3, 0]));
        assert_eq!(whole.absorb(part(4, &[1, 0])), Err(SpeechGap));
    }
}
