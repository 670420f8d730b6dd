//! Music, and speech as a file.

use std::path::{Path, PathBuf};

use super::{CatalogSource, MediaFiles};
use crate::catalog::{ComposingDefaults, MusicFacts};
use crate::daemon::MediaModel;
use crate::daemon::fit::Needs;
use muster_engine::networks::weights::Quantize;
use muster_engine::runtime::maker::{Pipeline, SoundRequest};
use muster_engine::runtime::music::{self, MusicDefaults, MusicFootprint, MusicSource};
use muster_engine::runtime::text::Isolation;
use muster_engine::runtime::{ComponentFolders, DeviceChoice, LoadError};
use muster_protocol::job::{Kind, MusicRequest};
use muster_protocol::link::ModelLimits;

impl MediaFiles for MusicSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        let MusicFootprint {
            weight_bytes,
            song_bytes,
            ..
        } = self.footprint()?;
        Ok(Needs::beside(weight_bytes, song_bytes))
    }

    fn describe(&mut self, name: &str, room_bytes: u64) -> Result<MediaModel, LoadError> {
        self.memory_bytes = Some(room_bytes);
        Ok(MediaModel {
            limits: ModelLimits {
                seconds: Some(music::MOST_SECONDS),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, Kind::Music)
        })
    }

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(Self::load(self, device)?))
    }

    fn isolate(&mut self, isolation: Isolation) {
        self.isolation = Some(Box::new(isolation));
    }

    fn quantize(&mut self, quantize: Option<Quantize>) {
        self.quantize = quantize;
    }
}

impl CatalogSource for MusicSource {
    type Facts = MusicFacts;

    fn of_entry(
        facts: &MusicFacts,
        path: PathBuf,
        components: ComponentFolders,
    ) -> Result<Self, String> {
        Ok(Self {
            defaults: defaults(facts.defaults),
            components,
            ..Self::new(path)
        })
    }
}

fn defaults(defaults: ComposingDefaults) -> MusicDefaults {
    MusicDefaults {
        seconds: defaults.seconds,
        steps: defaults.steps,
        cfg_scale: defaults.cfg_scale,
    }
}

/// The settings of a request. The pipeline of a model refuses settings that it does not have.
pub fn read(music: &MusicRequest) -> SoundRequest {
    SoundRequest {
        prompt: music.prompt.clone(),
        lyrics: music.lyrics.clone(),
        bpm: music.bpm,
        key_scale: music.key_scale.clone(),
        time_signature: music.time_signature.clone(),
        vocal_language: music.vocal_language.clone(),
        // A speech ends with its text.
        seconds: (!music.is_speech).then_some(music.seconds as f32),
        steps: music.steps,
        seed: music.seed,
        voice: music.voice.clone(),
        speed: music.speed.map(|speed| speed as f32),
        ..SoundRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use muster_protocol::job::MusicRequest;

    #[test]
    fn settings_are_those_of_the_request() {
        let music = MusicRequest {
            prompt: "a piano".to_owned(),
            seconds: 12.0,
            seed: Some(7),
            bpm: Some(120),
            key_scale: Some("C# minor".to_owned()),
            time_signature: Some("3".to_owned()),
            vocal_language: Some("fr".to_owned()),
            ..MusicRequest::default()
        };
        let sound = read(&music);
        assert_eq!((sound.seconds, sound.seed), (Some(12.0), Some(7)));
        assert_eq!(
            (sound.bpm, sound.key_scale),
            (Some(120), music.key_scale.clone())
        );
        let names = (sound.time_signature, sound.vocal_language);
        assert_eq!(names, (Some("3".to_owned()), Some("fr".to_owned())));
        let speech = MusicRequest {
            is_speech: true,
            voice: Some("af_heart".to_owned()),
            speed: Some(1.5),
            ..music
        };
        let speech = read(&speech);
        assert_eq!((speech.seconds, speech.speed), (None, Some(1.5)));
        assert_eq!(speech.voice.as_deref(), Some("af_heart"));
    }
}
