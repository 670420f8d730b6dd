//! The conditions of a song: lyrics, the timbre of a reference sound and a text, as one sequence of states.

use candle_core::{Result, Tensor, bail};

use super::SongConditionSpec;
use super::layers::SongEncoder;
use crate::networks::blocks::{ComponentReader, ComponentSource, Projection};
use crate::networks::weights::Flaw;

/// The encoders of conditions on a device.
pub struct SongConditions {
    spec: SongConditionSpec,
    text: Projection,
    lyrics: SongEncoder,
    timbre: SongEncoder,
    /// Latents of silence, `[1, frames, numbers]`.
    silence: Tensor,
    /// The unconditional state, `[1, 1, width]`.
    nothing: Tensor,
}

const SILENCE: &str = "silence_latent";
/// No pass reads this tensor.
const UNUSED: &str = "timbre_encoder.special_token";
/// No file keeps more frames of silence.
const MOST_SILENCE: usize = 1 << 20;

impl SongConditions {
    pub fn load(
        spec: SongConditionSpec,
        source: ComponentSource,
    ) -> std::result::Result<Self, Flaw> {
        let header = source.tensors.header(SILENCE);
        let frames = header.and_then(|header| header.shape.get(1).copied());
        let frames = frames.unwrap_or(0);
        if !(1..=MOST_SILENCE).contains(&frames) {
            let what = format!("the tensor {SILENCE:?}");
            let wanted = format!("1 to {MOST_SILENCE} frames of silence");
            return Err(Flaw::broken(what, format!("{frames} frames"), wanted));
        }
        let reader = &mut ComponentReader::new(source, str::to_owned);
        let (layer, width) = (&spec.layer, spec.layer.width);
        let conditions = Self {
            text: reader.projection("text_projector", (width, spec.text), false)?,
            lyrics: SongEncoder::load(reader, "lyric_encoder", layer, (spec.text, &spec.lyrics))?,
            timbre: SongEncoder::load(
                reader,
                "timbre_encoder",
                layer,
                (spec.latent, &spec.timbre),
            )?,
            silence: reader.numbers(SILENCE, &[&[1, frames, spec.latent]])?,
            nothing: reader.numbers("null_condition_emb", &[&[1, 1, width]])?,
            spec,
        };
        reader.check_nothing_was_ignored(|name| name != UNUSED)?;
        Ok(conditions)
    }

    pub fn spec(&self) -> &SongConditionSpec {
        &self.spec
    }

    /// This many frames of silence, `[1, frames, numbers]`; shorter recordings are repeated.
    pub fn silence(&self, frames: usize) -> Result<Tensor> {
        let known = self.silence.dim(1)?;
        let times = frames.div_ceil(known).max(1);
        let long = Tensor::cat(&vec![&self.silence; times], 1)?;
        long.narrow(1, 0, frames)?.contiguous()
    }

    /// The timbre without a reference, `[1, 1, width]`: that of silence, limited to this many frames.
    pub async fn silent_timbre(&self, frames: usize) -> Result<Tensor> {
        let frames = frames.min(self.silence.dim(1)?);
        let seen = self.silence.narrow(1, 0, frames)?.contiguous()?;
        self.timbre.forward(&seen).await?.narrow(1, 0, 1)
    }

    /// The unconditional state, for guidance. A single state is enough: attention to several copies gives the same
    /// result.
    pub fn nothing(&self) -> &Tensor {
        &self.nothing
    }

    /// All conditions of a song, `[1, states, width]`: of the embedded tokens of its lyrics, its timbre, and the text
    /// encoder's states of its description.
    pub async fn join(&self, lyrics: &Tensor, timbre: &Tensor, text: &Tensor) -> Result<Tensor> {
        let wanted = self.spec.text;
        for (name, states) in [("lyrics", lyrics), ("text", text)] {
            let (count, width) = states.dims2()?;
            if count == 0 || width != wanted {
                bail!("the {name} has {count} states of {width}, but the network takes {wanted}");
            }
        }
        let lyrics = self.lyrics.forward(&lyrics.unsqueeze(0)?).await?;
        let text = self.text.apply(&text.unsqueeze(0)?)?;
        Tensor::cat(&[&lyrics, timbre, &text], 1)
    }
}
