//! What a model will take of a device, from the headers of its files: counted before anything is loaded.

use candle_core::DType;
use candle_core::quantized::GgmlDType;

use super::load::{LoadError, ModelSource};
use super::{DeviceChoice, EngineLimits};
use crate::kernels::AttentionScratch;
use crate::networks::text::{DecoderSpec, LoadOptions};
use crate::networks::weights::{Checkpoint, TensorType};

/// Bytes on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    pub weight_bytes: u64,
    /// Keys and values, and on a GPU what it takes besides for each token of a sequence.
    pub kv_bytes_per_token: u64,
    /// Activations and logits of the largest step, and on a GPU its scores.
    pub workspace_bytes: u64,
    /// The most tokens the model was made for.
    pub context: usize,
}

/// Buffers, code and what an allocator keeps back.
const BASE_BYTES: u64 = 32 << 20;

impl Footprint {
    pub fn measure(
        source: &ModelSource,
        device: DeviceChoice,
        limits: &EngineLimits,
    ) -> Result<Self, LoadError> {
        let checkpoint = Checkpoint::open(&source.path)?;
        let spec = checkpoint.spec()?;
        let on_cpu = device == DeviceChoice::Cpu;
        let options = LoadOptions {
            quantize: source.quantize,
            dtype: source.dtype,
            context: source.context,
        };
        let stored = kv_dtype(&checkpoint, source, on_cpu);
        let attention = match on_cpu {
            true => AttentionScratch::default(),
            false => on_card(&spec, stored, limits),
        };
        Ok(Self {
            weight_bytes: checkpoint.weight_bytes(on_cpu, &options)?,
            kv_bytes_per_token: spec.kv_bytes_per_token(stored) + attention.bytes_per_token,
            workspace_bytes: workspace_bytes(&spec, limits).saturating_add(attention.bytes),
            context: spec.context,
        })
    }
}

/// What a GPU holds besides: scores and gathered keys of the sequence that is attended to, and the rope's table. No
/// sequence is longer than there is room for keys and values, so what they take for each token is part of that.
fn on_card(spec: &DecoderSpec, stored: DType, limits: &EngineLimits) -> AttentionScratch {
    let attention = spec.attention_scratch(stored, limits.prefill_chunk);
    AttentionScratch {
        bytes_per_token: attention.bytes_per_token + spec.rope_bytes_per_token(),
        ..attention
    }
}

/// Keys and values are as exact as the weights on the CPU, and half as wide everywhere else.
fn kv_dtype(checkpoint: &Checkpoint, source: &ModelSource, on_cpu: bool) -> DType {
    let stored_f32 = || {
        let mut matrices = checkpoint
            .tensors()
            .iter()
            .filter(|header| header.shape.len() == 2);
        matrices.all(|header| header.dtype == TensorType::Weight(GgmlDType::F32))
    };
    let is_f32 = source.quantize.is_none()
        && source
            .dtype
            .map_or_else(stored_f32, |dtype| dtype == DType::F32);
    if on_cpu && is_f32 {
        DType::F32
    } else {
        DType::F16
    }
}

fn workspace_bytes(spec: &DecoderSpec, limits: &EngineLimits) -> u64 {
    let rows = (limits.prefill_chunk + limits.max_running) as u64;
    let widths = [
        6 * spec.hidden_size,
        3 * spec.intermediate_size,
        2 * spec.query_size(),
        4 * spec.kv_size(),
    ];
    let activations = rows.saturating_mul(widths.iter().sum::<usize>() as u64);
    let logits = (limits.max_running as u64).saturating_mul(2 * spec.vocab_size as u64);
    BASE_BYTES.saturating_add(activations.saturating_add(logits).saturating_mul(4))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::networks::weights::Quantize;

    fn measure(source: ModelSource) -> Footprint {
        Footprint::measure(&source, DeviceChoice::Cpu, &EngineLimits::default()).unwrap()
    }

    fn tiny() -> ModelSource {
        ModelSource::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny-llama"))
    }

    #[test]
    fn the_weights_are_counted_as_they_will_be_held() {
        let dense = measure(tiny());
        let quantized = measure(ModelSource {
            quantize: Some(Quantize::Q8_0),
            ..tiny()
        });
        let wide = measure(ModelSource {
            dtype: Some(DType::F32),
            ..tiny()
        });
        assert!(quantized.weight_bytes < dense.weight_bytes);
        assert!(wide.weight_bytes >= dense.weight_bytes);
    }

    #[test]
    fn a_card_holds_scores_and_the_table_of_the_rope_besides() {
        let limits = EngineLimits::default();
        let on_cpu = measure(tiny());
        let on_card = Footprint::measure(&tiny(), DeviceChoice::Cuda(0), &limits).unwrap();
        let spec = Checkpoint::open(&tiny().path).unwrap().spec().unwrap();
        let attention = spec.attention_scratch(DType::F16, limits.prefill_chunk);
        assert_eq!(
            on_card.workspace_bytes,
            on_cpu.workspace_bytes + attention.bytes
        );
        let cosines_and_sines = 2 * (spec.rope.dims as u64 / 2) * 4;
        assert_eq!(
            on_card.kv_bytes_per_token,
            spec.kv_bytes_per_token(DType::F16) + attention.bytes_per_token + cosines_and_sines
        );
    }

    #[tokio::test]
    async fn what_was_counted_is_what_a_loaded_model_takes() {
        let runtime =
            super::super::Runtime::start(DeviceChoice::Cpu, EngineLimits::default()).unwrap();
        let info = runtime.load("tiny", tiny(), |_, _| {}).await.unwrap();
        let counted = measure(tiny());
        let ratio = counted.weight_bytes as f64 / info.weight_bytes as f64;
        assert!((0.9..1.3).contains(&ratio), "{counted:?} for {info:?}");
        assert_eq!(
            counted.kv_bytes_per_token * info.cache_tokens as u64,
            info.cache_bytes
        );
        drop(runtime);
    }
}
