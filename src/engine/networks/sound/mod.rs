//! Networks that hear.

mod features;
mod whisper;

pub use self::{
    features::{Features, SAMPLE_RATE, WINDOW_FRAMES, leveled},
    whisper::{DecoderCache, SpokenText, Whisper, WhisperSpec, WindowKeys},
};

#[cfg(test)]
mod golden;
