//! A model's memory requirement, estimated from the headers of its files before loading.

use std::path::Path;

use candle_core::DType;
use candle_core::quantized::GgmlDType;

use super::load::{LoadError, ModelSource, check_kv, check_single_sequence};
use super::scheduler::SNAPSHOTS;
use super::speculation::MOST_PROPOSED;
use super::{DeviceChoice, EngineLimits, Speculation, encode};
use crate::networks::single_sequence::SingleSequenceSpec;
use crate::networks::text::{DecoderSpec, LoadOptions, Synthetic, TextAdapterFile};
use crate::networks::weights::{Checkpoint, TensorHeader, TensorSource, TensorType};
use muster_kernels::{AttentionScratch, KvDtype};

/// Bytes on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    pub weight_bytes: u64,
    pub kv_bytes_per_token: u64,
    /// Activations and logits of the largest step, on a GPU its scores, and the states of all running sequences
    /// with their snapshots.
    pub workspace_bytes: u64,
    /// GPU scratch memory per token of the longest sequence: attention scores, gathered keys of the current sequence,
    /// and the RoPE table.
    pub scratch_bytes_per_token: u64,
    /// The most tokens the model was made for.
    pub context: usize,
    /// Whether jobs run one after the other, so that the KV cache is that of one.
    pub runs_one_job: bool,
}

/// Buffers, code and the allocator's reserve.
const BASE_BYTES: u64 = 32 << 20;

/// Memory of an adapter besides its model, from the headers of both; an error if the adapter does not fit the model.
pub fn adapter_bytes(model: &Path, adapter: &Path) -> Result<u64, LoadError> {
    let spec = Checkpoint::open(model)?.spec()?;
    Ok(TextAdapterFile::open(adapter)?.bytes_beside(&spec)?)
}

impl Footprint {
    pub fn measure(
        source: &ModelSource,
        device: DeviceChoice,
        limits: &EngineLimits,
    ) -> Result<Self, LoadError> {
        let checkpoint = Checkpoint::open(&source.path)?;
        let on_cpu = device == DeviceChoice::Cpu;
        let options = LoadOptions {
            quantize: source.quantize,
            dtype: source.dtype,
            context: source.context,
            is_headless: false,
        };
        if let Some(encoding) = encode::open(&checkpoint, &source.path)? {
            let step = limits.prefill_chunk;
            let (weight_bytes, workspace_bytes) =
                encode::encoder_footprint(&encoding, &checkpoint, on_cpu, &options, step)?;
            return Ok(Self {
                weight_bytes,
                workspace_bytes,
                kv_bytes_per_token: 0,
                scratch_bytes_per_token: 0,
                context: encoding.context(),
                runs_one_job: false,
            });
        }
        if let Some(spec) = SingleSequenceSpec::of(&checkpoint)? {
            check_single_sequence(source)?;
            return Ok(Self {
                weight_bytes: spec.weight_bytes(&checkpoint),
                kv_bytes_per_token: spec.kv_bytes_per_token(),
                workspace_bytes: BASE_BYTES.saturating_add(spec.workspace_bytes()),
                scratch_bytes_per_token: spec.scratch_bytes_per_token(),
                context: spec.context,
                runs_one_job: true,
            });
        }
        let spec = checkpoint.spec()?;
        check_kv(source.kv, &spec)?;
        let usual = || kv_dtype(checkpoint.tensors(), &options, on_cpu);
        let stored = source.kv.unwrap_or_else(usual);
        let weight_bytes = checkpoint.weight_bytes(on_cpu, &options)?;
        Ok(Self::of(&spec, weight_bytes, stored, device, limits))
    }

    /// Memory of a synthetic decoder.
    pub fn of_synthetic(
        made: &Synthetic,
        kv: Option<KvDtype>,
        device: DeviceChoice,
        limits: &EngineLimits,
    ) -> Result<Self, LoadError> {
        let on_cpu = device == DeviceChoice::Cpu;
        check_kv(kv, made.spec())?;
        let usual = || kv_dtype(made.headers(), &LoadOptions::default(), on_cpu);
        let stored = kv.unwrap_or_else(usual);
        let weight_bytes = made.weight_bytes(on_cpu);
        Ok(Self::of(made.spec(), weight_bytes, stored, device, limits))
    }

    fn of(
        spec: &DecoderSpec,
        weight_bytes: u64,
        stored: KvDtype,
        device: DeviceChoice,
        limits: &EngineLimits,
    ) -> Self {
        let (attention, rope_bytes_per_token) = match device {
            DeviceChoice::Cuda(_) => (
                spec.attention_scratch(stored, limits.prefill_chunk),
                spec.rope_bytes_per_token(),
            ),
            DeviceChoice::Cpu => (AttentionScratch::default(), 0),
        };
        let states = limits.max_running.saturating_add(SNAPSHOTS);
        let dequantized = match device {
            DeviceChoice::Cpu => 0,
            DeviceChoice::Cuda(_) => dequantized_bytes(spec),
        };
        Self {
            weight_bytes,
            kv_bytes_per_token: spec.kv_bytes_per_token(stored),
            workspace_bytes: workspace_bytes(spec, limits)
                .saturating_add(attention.bytes)
                .saturating_add(spec.state_bytes().saturating_mul(states as u64))
                .saturating_add(dequantized),
            scratch_bytes_per_token: attention.bytes_per_token + rope_bytes_per_token,
            context: spec.context,
            runs_one_job: false,
        }
    }
}

/// Keys and values are as exact as the weights on the CPU, and half as wide everywhere else.
fn kv_dtype(headers: &[TensorHeader], options: &LoadOptions, on_cpu: bool) -> KvDtype {
    let stored_f32 = || {
        let mut matrices = headers.iter().filter(|header| header.shape.len() == 2);
        matrices.all(|header| header.dtype == TensorType::Weight(GgmlDType::F32))
    };
    let is_f32 = options.quantize.is_none()
        && options
            .dtype
            .map_or_else(stored_f32, |dtype| dtype == DType::F32);
    if on_cpu && is_f32 {
        KvDtype::F32
    } else {
        KvDtype::F16
    }
}

/// The largest matrix of a layer in f16, dequantized on a GPU for prefill.
fn dequantized_bytes(spec: &DecoderSpec) -> u64 {
    (spec.hidden_size as u64).saturating_mul(2 * spec.widest_output() as u64)
}

fn workspace_bytes(spec: &DecoderSpec, limits: &EngineLimits) -> u64 {
    // A step that reads prompts has no proposals.
    let rows = limits.prefill_chunk.max(MOST_PROPOSED) + limits.max_running;
    let rows = rows as u64;
    let widths = [
        6 * spec.hidden_size,
        spec.feed_width(),
        spec.attention_width(),
        spec.recurrent
            .as_ref()
            .map_or(0, |recurrent| recurrent.kind.width()),
    ];
    let activations = rows.saturating_mul(widths.iter().sum::<usize>() as u64);
    let proposed = match limits.speculation {
        Speculation::Off => 0,
        Speculation::Auto | Speculation::Always => MOST_PROPOSED,
    };
    let drawn = (limits.max_running + proposed) as u64;
    let logits = drawn.saturating_mul(2 * spec.vocab_size as u64);
    BASE_BYTES.saturating_add(activations.saturating_add(logits).saturating_mul(4))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use super::*;
    use crate::networks::text::SyntheticQuant;
    use crate::networks::weights::Quantize;

    fn measure(source: ModelSource) -> Footprint {
        Footprint::measure(&source, DeviceChoice::Cpu, &EngineLimits::default()).unwrap()
    }

    fn tiny() -> ModelSource {
        ModelSource::new(
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
                .join("tests/fixtures/tiny-llama"),
        )
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
        let attention = spec.attention_scratch(KvDtype::F16, limits.prefill_chunk);
        assert_eq!(
            on_card.workspace_bytes,
            on_cpu.workspace_bytes + attention.bytes + dequantized_bytes(&spec)
        );
        let cosines_and_sines = 2 * (spec.rope.dims as u64 / 2) * 4;
        assert_eq!(
            on_card.scratch_bytes_per_token,
            attention.bytes_per_token + cosines_and_sines
        );
        assert_eq!(
            on_card.kv_bytes_per_token,
            spec.kv_bytes_per_token(KvDtype::F16)
        );
        assert_eq!(on_cpu.scratch_bytes_per_token, 0);
    }

    #[test]
    fn a_made_up_decoder_takes_what_a_file_of_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tiny.gguf");
        let limits = EngineLimits {
            prefill_chunk: 4000,
            ..EngineLimits::default()
        };
        for quant in [SyntheticQuant::Q8_0, SyntheticQuant::F32] {
            let made = Synthetic::new(DecoderSpec::named("tiny").unwrap(), quant);
            made.write_gguf(File::create(&file).unwrap()).unwrap();
            for device in [DeviceChoice::Cpu, DeviceChoice::Cuda(0)] {
                assert_eq!(
                    Footprint::of_synthetic(&made, None, device, &limits).unwrap(),
                    Footprint::measure(&ModelSource::new(&file), device, &limits).unwrap()
                );
            }
        }
    }

    #[test]
    fn eight_bits_of_keys_and_values_are_counted_and_refused_where_they_cannot_be() {
        let limits = EngineLimits::default();
        let made = Synthetic::new(DecoderSpec::named("tiny").unwrap(), SyntheticQuant::Q8_0);
        let on = |kv, device| Footprint::of_synthetic(&made, kv, device, &limits);
        let half = on(Some(KvDtype::F16), DeviceChoice::Cpu).unwrap();
        let eight = on(Some(KvDtype::Q8_0), DeviceChoice::Cpu).unwrap();
        assert_eq!(64 * eight.kv_bytes_per_token, 34 * half.kv_bytes_per_token);
        let there = on(Some(KvDtype::Q8_0), DeviceChoice::Cuda(0)).unwrap();
        assert_eq!(there.kv_bytes_per_token, eight.kv_bytes_per_token);
        let spec = DecoderSpec {
            head_dim: 40,
            ..made.spec().clone()
        };
        let refused = check_kv(Some(KvDtype::Q8_0), &spec).unwrap_err();
        assert!(refused.to_string().contains("which is 40"), "{refused}");
        let fixture = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/golden/deepseek-v3"
        );
        let latents = ModelSource {
            kv: Some(KvDtype::Q8_0),
            ..ModelSource::new(fixture)
        };
        let refused = Footprint::measure(&latents, DeviceChoice::Cpu, &limits).unwrap_err();
        assert!(refused.to_string().contains("not q8_0"), "{refused}");
        // Three layers, a latent of 32 numbers and 8 with rope.
        let half = measure(ModelSource::new(fixture));
        assert_eq!(half.kv_bytes_per_token, 3 * (32 + 8) * 2);
    }

    #[test]
    fn each_running_sequence_has_a_state() {
        let spec = DecoderSpec::named("tiny-recurrent").unwrap();
        let without = DecoderSpec {
            recurrent: None,
            ..spec.clone()
        };
        let width = spec.recurrent.as_ref().unwrap().kind.width();
        let [made, without] =
            [spec, without].map(|spec| Synthetic::new(spec, SyntheticQuant::Q8_0));
        let workspace_of = |made: &Synthetic, max_running| {
            let limits = EngineLimits {
                max_running,
                ..EngineLimits::default()
            };
            let on_cpu = Footprint::of_synthetic(made, None, DeviceChoice::Cpu, &limits);
            on_cpu.unwrap().workspace_bytes
        };
        let workspace = |max_running| workspace_of(&made, max_running);
        // Three layers with two heads of 128 x 128 numbers, and three rows of 512.
        let state = 3 * 4 * (2 * 128 * 128 + 3 * 512);
        assert_eq!(made.spec().state_bytes(), state);
        let row = (workspace(3) - workspace(2)) - state;
        assert!(workspace(9) - workspace(2) == 7 * (state + row) && row < state / 4);
        let beside = workspace(0) - workspace_of(&without, 0);
        let rows = EngineLimits::default().prefill_chunk;
        assert_eq!(beside, SNAPSHOTS as u64 * state + (4 * rows * width) as u64);
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
