//! Networks that hear and speak.

mod features;
mod kokoro;
mod synthetic;
mod whisper;

pub use self::{
    features::{Features, SAMPLE_RATE, WINDOW_FRAMES, leveled},
    kokoro::{Kokoro, KokoroSpec, SPEECH_RATE, SpeechText},
    synthetic::{HearingBench, SyntheticHearing},
    whisper::{DecoderCache, SpokenText, Whisper, WhisperSpec, WindowKeys},
};

#[cfg(test)]
mod golden;
