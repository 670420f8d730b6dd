//! A tone.

use std::f32::consts::TAU;

use super::SampleRequest;
use crate::runtime::maker::{Output, Pcm, Refusal, SoundRequest};

const MOST_SECONDS: f32 = 600.0;
const SAMPLE_RATE: u32 = 24_000;

impl SampleRequest for SoundRequest {
    fn check(&self) -> Result<(), Refusal> {
        let setting = self.setting_of_music().filter(|name| *name != "lyrics");
        if let Some(name) = setting {
            let what = format!("{name} is not supported by the model; remove it");
            return Err(Refusal::Unsupported(what));
        }
        let seconds = self.seconds.unwrap_or(1.0);
        if !(0.0..=MOST_SECONDS).contains(&seconds) {
            let limit = format!("the model plays up to {MOST_SECONDS} s, not {seconds} s");
            return Err(Refusal::Unsupported(limit));
        }
        Ok(())
    }

    fn steps(&self) -> Option<u32> {
        self.steps
    }

    fn output(&self) -> Output {
        Output::Sound(tone(self))
    }
}

/// Concert pitch, or a half tone higher for each seed up to an octave.
fn tone(sound: &SoundRequest) -> Pcm {
    let half_tones = (sound.seed.unwrap_or(0) % 12) as f32;
    let pitch = 440.0 * (half_tones / 12.0).exp2();
    let count = (sound.seconds.unwrap_or(1.0) * SAMPLE_RATE as f32) as u32;
    let wave = |at: u32| (at as f32 / SAMPLE_RATE as f32 * pitch * TAU).sin() * 0.5;
    Pcm {
        rate: SAMPLE_RATE,
        channels: 1,
        samples: (0..count).map(wave).collect(),
    }
}
