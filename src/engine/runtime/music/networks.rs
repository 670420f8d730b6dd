//! The networks of one model, and conversions between them: texts to conditions, latents to samples.

use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Device, Result, Tensor};

use super::plan::timbre_frames;
use crate::networks::blocks::block_end;
use crate::networks::sound::{AceStep, Oobleck, SongConditions, SongContext};
use crate::networks::text::Decoder;
use crate::runtime::text::PromptTokenizer;

pub struct MusicNetworks {
    pub tokenizer: PromptTokenizer,
    pub text: Decoder,
    pub conditions: SongConditions,
    pub transformer: AceStep,
    pub autoencoder: Oobleck,
    pub device: Device,
    /// The timbre of songs without a reference, cached after the first one.
    pub timbre: Mutex<Option<Tensor>>,
}

impl MusicNetworks {
    /// Tokens that the text encoder knows.
    pub fn vocabulary(&self) -> usize {
        self.text.spec().vocab_size
    }

    /// The conditions of a song, as all its steps see them.
    pub async fn context(&self, description: &[u32], lyrics: &[u32]) -> Result<SongContext> {
        let description = self.states(description)?;
        block_end().await;
        let lyrics = self.embeddings(lyrics)?;
        let timbre = self.timbre().await?;
        let states = self.conditions.join(&lyrics, &timbre, &description).await?;
        self.transformer.context(&states).await
    }

    /// The last states of the text encoder.
    pub fn states(&self, tokens: &[u32]) -> Result<Tensor> {
        self.hidden(tokens, self.text.spec().layers)
    }

    /// Tokens as the text encoder sees them, before its layers.
    pub fn embeddings(&self, tokens: &[u32]) -> Result<Tensor> {
        self.hidden(tokens, 0)
    }

    fn hidden(&self, tokens: &[u32], layer: usize) -> Result<Tensor> {
        let states = self.text.hidden_states(tokens, &[layer])?;
        match states.first() {
            Some(states) => states.to_dtype(DType::F32),
            None => candle_core::bail!("the text encoder has no layer {layer}"),
        }
    }

    async fn timbre(&self) -> Result<Tensor> {
        let slot = || self.timbre.lock().unwrap_or_else(PoisonError::into_inner);
        let known = slot().clone();
        if let Some(timbre) = known {
            return Ok(timbre);
        }
        let frames = timbre_frames(self.autoencoder.spec());
        let timbre = self.conditions.silent_timbre(frames).await?.copy()?;
        *slot() = Some(timbre.clone());
        Ok(timbre)
    }

    /// Silence in place of a sound to keep, and a mask that replaces all of it.
    pub fn source(&self, frames: usize) -> Result<Tensor> {
        let silence = self.conditions.silence(frames)?;
        let mask = silence.ones_like()?;
        Tensor::cat(&[&silence, &mask], 2)
    }
}
