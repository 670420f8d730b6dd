//! A decoder's memory requirement, computed before loading.

use std::{collections::HashSet, ops::Range};

use candle_core::{DType, quantized::GgmlDType};

use super::{
    LoadOptions, Synthetic,
    family::{Family, Naming, Part, Role},
};
use crate::networks::{
    layers::LatentSizes,
    vision,
    weights::{Checkpoint, CheckpointError, TensorHeader, TensorSource, TensorType, convert, fp8},
};

impl Checkpoint {
    /// The bytes of the weights after loading, from the headers alone: equals the later `Decoder::weight_bytes`, except
    /// for the padding of matrices on the CPU.
    pub fn weight_bytes(
        &self,
        on_cpu: bool,
        options: &LoadOptions,
    ) -> Result<u64, CheckpointError> {
        let spec = self.spec()?;
        let predicting = spec.layers..spec.layers + spec.prediction_layers;
        let named = Named {
            headers: self.tensors(),
            naming: self.naming(),
            tied: spec.tied_embeddings,
            predicting,
            family: spec.family,
            latent: spec.latent.map(|latent| latent.sizes),
            unread: spec.unread_tensors(self.naming()),
        };
        Ok(named.bytes(on_cpu, options))
    }
}

impl Synthetic {
    /// The same of weights that are made up.
    pub fn weight_bytes(&self, on_cpu: bool) -> u64 {
        let named = Named {
            headers: self.headers(),
            naming: Naming::Gguf,
            tied: self.spec().tied_embeddings,
            predicting: 0..0,
            family: self.spec().family,
            latent: None,
            unread: HashSet::new(),
        };
        named.bytes(on_cpu, &LoadOptions::default())
    }
}

/// The headers of a decoder's tensors, and how they are called.
struct Named<'a> {
    headers: &'a [TensorHeader],
    naming: Naming,
    tied: bool,
    /// Layers that are not loaded.
    predicting: Range<usize>,
    family: Family,
    latent: Option<LatentSizes>,
    /// Tensors that no layer takes.
    unread: HashSet<String>,
}

impl Named<'_> {
    fn bytes(&self, on_cpu: bool, options: &LoadOptions) -> u64 {
        let tied = self.tied;
        let embedding = self.naming.weight(Role::Embedding);
        let input_table = self.naming.weight(Role::LayerInputTable);
        let head = self.naming.weight(Role::Head);
        let held = |header, quantize| held_bytes(header, on_cpu, options.dtype, quantize);
        let (tower, decoder): (Vec<_>, Vec<_>) = self
            .headers
            .iter()
            .filter(|header| !self.family.leaves_in_file(&header.name))
            .filter(|header| !self.unread.contains(&header.name))
            .partition(|header| vision::is_of_tower(&header.name));
        let tower: u64 = tower.into_iter().map(|header| header.bytes).sum();
        // Experts of one tensor have three dimensions.
        let is_matrix = |header: &&TensorHeader| matches!(header.shape.len(), 2..=4);
        let skipped = self.predicting.clone();
        let skipped = skipped.map(|layer| format!("{}.", self.naming.layer(layer)));
        let skipped: Vec<String> = skipped.collect();
        let is_skipped =
            |header: &&TensorHeader| skipped.iter().any(|it| header.name.starts_with(it));
        let matrices = decoder.into_iter().filter(is_matrix);
        let matrices = matrices.filter(|header| !is_skipped(header));
        let halves = matrices.clone().flat_map(|header| self.halves(header));
        let halves: Vec<TensorHeader> = halves.collect();
        let matrices = matrices.filter(|header| self.halves(header).is_empty());
        let bytes = matrices.chain(&halves).map(|header| {
            if header.name == input_table {
                return if on_cpu && header.converted_from.is_none() {
                    0
                } else {
                    held(header, None)
                };
            }
            let is_embedding = header.name == embedding;
            let is_head = header.name == head || (is_embedding && tied);
            // On the CPU its rows stay in the file, unless they are converted.
            let is_held = !on_cpu || header.converted_from.is_some();
            let table = if is_embedding && is_held {
                held(header, None)
            } else {
                0
            };
            let quantize = options.quantize;
            let target = quantize
                .filter(|_| !Naming::stays_dense(&header.name) && !is_bias(header))
                .and_then(|to| to.target(columns(header), is_head));
            let multiplied = match (is_embedding, header.name == head) {
                (true, _) if !tied => 0,
                // With tied embeddings, a copy of the output matrix is not loaded.
                (_, true) if tied => 0,
                _ => held(header, target),
            };
            table + multiplied
        });
        tower + bytes.sum::<u64>()
    }

    /// The matrix that makes keys and values of latents is held as one matrix for each of the two.
    fn halves(&self, header: &TensorHeader) -> Vec<TensorHeader> {
        let stem = Naming::Hub.weight(Role::Layer(0, Part::LatentUp));
        let stem = stem.rsplit_once("layers.0").map_or("", |(_, stem)| stem);
        let Some(sizes) = self.latent.filter(|_| header.name.ends_with(stem)) else {
            return Vec::new();
        };
        let rows = header.shape.first().copied().unwrap_or(0);
        let heads = rows / (sizes.plain_dim + sizes.value_dim);
        let half = |shape: [usize; 2]| {
            let name = header.name.clone();
            TensorHeader::described(name, shape.to_vec(), header.dtype)
        };
        vec![
            half([heads * sizes.rank, sizes.plain_dim]),
            half([heads * sizes.value_dim, sizes.rank]),
        ]
    }
}

fn columns(header: &TensorHeader) -> usize {
    header.shape.last().copied().unwrap_or(1)
}

/// Biases of the products of all experts.
fn is_bias(header: &TensorHeader) -> bool {
    header.name.ends_with("bias")
}

/// Codes of MXFP4 as the hub has them.
fn is_codes(header: &TensorHeader) -> bool {
    header.name.ends_with("_blocks")
}

fn is_exponents(header: &TensorHeader) -> bool {
    header.name.ends_with("_scales")
}

/// A matrix as it will be held: only dense ones are converted.
fn held_bytes(
    header: &TensorHeader,
    on_cpu: bool,
    dense: Option<DType>,
    quantized: Option<GgmlDType>,
) -> u64 {
    if fp8::SCALES
        .iter()
        .any(|scales| header.name.ends_with(&format!("weight{scales}")))
    {
        return 0;
    }
    let stored = match header.dtype {
        fp8::E4M3 => GgmlDType::BF16,
        TensorType::Weight(_) if is_bias(header) => return 4 * header.elements(),
        TensorType::Weight(stored) => stored,
        // The CPU holds a scale in two bytes, other devices hold the numbers in Q5_0.
        TensorType::MxFp4 if on_cpu => return header.bytes / 17 * 18,
        TensorType::MxFp4 => return header.bytes / 17 * 22,
        TensorType::Other { .. } if is_exponents(header) => return 2 * header.bytes,
        TensorType::Other { .. } if is_codes(header) => return header.bytes,
        TensorType::Other { .. } => return 0,
    };
    let wanted = quantized.or(dense.and_then(convert::ggml_dtype));
    let held = wanted
        .filter(|_| convert::is_dense(stored))
        .unwrap_or(stored);
    let bytes = TensorType::Weight(held).bytes_of(&header.shape);
    bytes.unwrap_or(header.bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use candle_core::Device;

    use super::{
        super::{Decoder, DecoderSpec, SyntheticQuant, golden::fixture},
        *,
    };
    use crate::networks::weights::Quantize;

    #[test]
    fn headers_tell_what_the_loaded_weights_take() {
        let folder = tempfile::tempdir().unwrap();
        let experts = folder.path().join("experts.gguf");
        let spec = DecoderSpec::named("tiny-experts").unwrap();
        Synthetic::new(spec, SyntheticQuant::F16)
            .write_gguf(File::create(&experts).unwrap())
            .unwrap();
        for name in [
            "tiny-llama",
            "tiny-llama.gguf",
            "golden/qwen2",
            "golden/mistral",
            "golden/deepseek-v3",
            "golden/qwen3-fp8",
            "golden/qwen3-fp8-rows",
            "golden/qwen3-awq",
            "golden/qwen3-gptq-ordered",
            experts.to_str().unwrap(),
        ] {
            let checkpoint = Checkpoint::open(&fixture(name)).unwrap();
            for quantize in [None, Some(Quantize::Q8_0), Some(Quantize::Q4K)] {
                for dtype in [None, Some(DType::F32)] {
                    let options = LoadOptions {
                        quantize,
                        dtype,
                        context: None,
                        is_headless: false,
                    };
                    let told = checkpoint.weight_bytes(true, &options).unwrap();
                    let progress = &mut |_, _| {};
                    let decoder =
                        Decoder::load(&checkpoint, &Device::Cpu, &options, progress).unwrap();
                    let found = decoder.weight_bytes();
                    assert!(
                        told.abs_diff(found) * 10 <= found,
                        "{name} {options:?}: {told}, {found}"
                    );
                }
            }
        }
    }

    #[test]
    fn headers_tell_what_inputs_of_layers_take() {
        // Small matrices are padded where they are quantized.
        let checkpoint = Checkpoint::open(&fixture("golden/gemma4-shared")).unwrap();
        let options = LoadOptions {
            dtype: Some(DType::F32),
            ..LoadOptions::default()
        };
        let told = checkpoint.weight_bytes(true, &options).unwrap();
        let progress = &mut |_, _| {};
        let decoder = Decoder::load(&checkpoint, &Device::Cpu, &options, progress).unwrap();
        let found = decoder.weight_bytes();
        assert!(told.abs_diff(found) * 10 <= found, "{told}, {found}");
    }

    #[test]
    fn headers_tell_what_experts_of_mxfp4_take_but_for_their_padding() {
        let checkpoint = Checkpoint::open(&fixture("golden/gpt-oss-mxfp4")).unwrap();
        let options = LoadOptions {
            quantize: Some(Quantize::Q8_0),
            ..LoadOptions::default()
        };
        let told = checkpoint.weight_bytes(true, &options).unwrap();
        let progress = &mut |_, _| {};
        let decoder = Decoder::load(&checkpoint, &Device::Cpu, &options, progress).unwrap();
        // Two layers of five ways down with 32 columns in blocks of 64, and routers of five rows in panels of sixteen.
        let padding = 2 * (5 * 64 * 18 + 11 * 64 * 2);
        assert_eq!(told + padding, decoder.weight_bytes());
    }

    #[test]
    fn another_device_holds_the_embeddings_too() {
        let bytes = |name: &str, on_cpu| {
            let checkpoint = Checkpoint::open(&fixture(name)).unwrap();
            checkpoint
                .weight_bytes(on_cpu, &LoadOptions::default())
                .unwrap()
        };
        let table = 512 * 64 * 4;
        assert_eq!(
            bytes("tiny-llama", false),
            bytes("tiny-llama", true) + table
        );
        let table = 128 * 64 * 2;
        assert_eq!(
            bytes("golden/qwen2", false),
            bytes("golden/qwen2", true) + table
        );
    }
}
