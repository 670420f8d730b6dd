//! Speech: the sound of a job is sent as it is made, a second at a time. Dropping [`run`] cancels the job.

use std::path::{Path, PathBuf};

use super::file::failed;
use super::{CatalogSource, MediaDesk, MediaFiles};
use crate::catalog::SpeechFacts;
use crate::daemon::fit::Needs;
use crate::daemon::registration::small;
use crate::daemon::{MediaModel, blame};
use crate::link::Said;
use muster_engine::runtime::maker::{self, MakeEvent, Output, Pcm, Pipeline, SoundRequest};
use muster_engine::runtime::speech::{MOST_SPOKEN, SpeechSource};
use muster_engine::runtime::{ComponentFolders, DeviceChoice, LoadError};
use muster_protocol::job::{
    FinishReason, Kind, ResultPart, Samples, SpeechPart, SpeechRequest, SpokenWord, Usage,
};
use muster_protocol::link::ModelLimits;

/// Memory besides the weights, for the longest sentence.
const SPEECH_BYTES: u64 = 512 << 20;

impl MediaFiles for SpeechSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        Ok(Needs::beside(self.weight_bytes()?, SPEECH_BYTES))
    }

    fn describe(&mut self, name: &str, _: u64) -> Result<MediaModel, LoadError> {
        Ok(MediaModel {
            voices: self.voices()?,
            limits: ModelLimits {
                characters: Some(MOST_SPOKEN),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, Kind::Speech)
        })
    }

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(Self::load(self, device)?))
    }
}

impl CatalogSource for SpeechSource {
    type Facts = SpeechFacts;

    fn of_entry(_: &SpeechFacts, path: PathBuf, _: ComponentFolders) -> Result<Self, String> {
        Ok(Self::new(path))
    }
}

/// Does the job; returns the last word.
pub async fn run(model: &str, speech: SpeechRequest, desk: MediaDesk<'_>) -> Said {
    match speak(model, speech, desk).await {
        Ok(usage) => Said::Done {
            finish: FinishReason::Stop,
            usage,
        },
        Err(said) => said,
    }
}

async fn speak(model: &str, speech: SpeechRequest, desk: MediaDesk<'_>) -> Result<Usage, Said> {
    let Some(maker) = &desk.engines.maker else {
        return Err(failed(format!(
            "the worker has no model {model} that speaks"
        )));
    };
    let characters = small(usize::try_from(speech.tokens()).unwrap_or(usize::MAX));
    let wanted = SoundRequest {
        prompt: speech.text,
        voice: speech.voice,
        speed: speech.speed.map(|speed| speed as f32),
        seed: Some(speech.seed),
        wants_words: speech.words,
        ..SoundRequest::default()
    };
    let admitted = desk.engines.throttle.admit().await;
    let stream = maker.make(model, wanted.into());
    drop(admitted);
    let mut stream = stream.map_err(blame::said)?;
    let mut at = 0;
    let mut words = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            MakeEvent::Step { at, of, .. } => {
                let preview = None;
                desk.reply.say(Said::Progress { at, of, preview }).await;
            }
            MakeEvent::Made(Output::SpokenWords(next)) => words = next,
            MakeEvent::Made(Output::Sound(pcm)) => {
                let mut parts = parts(&pcm, &mut at)?;
                if let Some(first) = parts.first_mut() {
                    let words = std::mem::take(&mut words).into_iter();
                    first.words = words.map(word).collect();
                }
                for part in parts {
                    let result = ResultPart::Speech(Box::new(part));
                    desk.reply.say(Said::Part(Box::new(result))).await;
                }
            }
            MakeEvent::Made(Output::Image(_) | Output::Frames { .. } | Output::Transcript(_)) => {
                return Err(failed(
                    "the model made something else than sound".to_owned(),
                ));
            }
            MakeEvent::Failed(failure) => return Err(blame::said(failure)),
            MakeEvent::Done => break,
        }
    }
    Ok(Usage {
        prompt_tokens: characters,
        ..Usage::default()
    })
}

/// Seconds of the sound, as they are sent; `at` counts samples.
fn parts(pcm: &Pcm, at: &mut u64) -> Result<Vec<SpeechPart>, Said> {
    if pcm.channels != 1 || pcm.rate == 0 {
        return Err(failed(format!(
            "the model spoke in {} channels, and speech has one",
            pcm.channels
        )));
    }
    let seconds = pcm.samples.chunks(pcm.rate as usize);
    let parts = seconds.map(|second| {
        let begin = *at;
        *at += second.len() as u64;
        SpeechPart {
            at: begin,
            rate: pcm.rate,
            samples: Samples(second.iter().flat_map(bytes).collect()),
            words: Vec::new(),
        }
    });
    Ok(parts.collect())
}

fn word(word: maker::SpokenWord) -> SpokenWord {
    SpokenWord {
        word: word.word,
        start: word.from,
        end: word.to,
    }
}

/// NaN becomes silence.
fn bytes(sample: &f32) -> [u8; 2] {
    const FULL_SCALE: f32 = 32_767.0;
    let level = (sample.clamp(-1.0, 1.0) * FULL_SCALE).round() as i16;
    level.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::parts;
    use muster_engine::runtime::maker::Pcm;

    #[test]
    fn a_sound_is_cut_into_seconds() {
        let pcm = Pcm {
            rate: 4,
            channels: 1,
            samples: vec![0.0, 1.0, -1.0, f32::NAN, 9.0],
        };
        let mut at = 10;
        let cut = parts(&pcm, &mut at).unwrap();
        assert_eq!((cut.len(), at), (2, 15));
        assert_eq!((cut[0].at, cut[1].at), (10, 14));
        assert_eq!(cut[0].samples.0, [0, 0, 255, 127, 1, 128, 0, 0]);
        assert_eq!(cut[1].samples.0, [255, 127]);
        assert!(parts(&Pcm { channels: 2, ..pcm }, &mut at).is_err());
    }
}
