//! Audio networks: transcription, speech synthesis and music generation.

mod ace_step;
mod features;
mod folded;
mod kokoro;
mod oobleck;
mod synthetic;
mod synthetic_music;
mod whisper;

pub use self::{
    ace_step::{AceStep, AceStepSpec, SongConditionSpec, SongConditions, SongContext},
    features::{Features, LONGEST_WINDOW, SAMPLE_RATE, leveled},
    kokoro::{Kokoro, KokoroSpec, SPEECH_RATE, SpeechText, SpokenSound},
    oobleck::{Oobleck, OobleckSpec, TILE_FRAMES},
    synthetic::{HearingBench, SyntheticHearing},
    synthetic_music::{MusicBench, SyntheticMusic},
    whisper::{DecoderCache, SpokenText, Whisper, WhisperSpec, WindowKeys},
};

#[cfg(test)]
mod golden;
