//! What a decoder will take of a device's memory, worked out before anything is loaded.

use candle_core::{DType, quantized::GgmlDType};

use super::{
    LoadOptions, Synthetic,
    family::{Naming, Role},
};
use crate::networks::{
    vision,
    weights::{Checkpoint, CheckpointError, TensorHeader, TensorSource, TensorType, convert},
};

impl Checkpoint {
    /// The bytes that the weights will take when loaded so, from the headers alone: what
    /// `Decoder::weight_bytes` says later, but for the padding of matrices on the CPU.
    pub fn weight_bytes(
        &self,
        on_cpu: bool,
        options: &LoadOptions,
    ) -> Result<u64, CheckpointError> {
        let tied = self.spec()?.tied_embeddings;
        let named = Named {
            headers: self.tensors(),
            naming: self.naming(),
            tied,
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
        };
        named.bytes(on_cpu, &LoadOptions::default())
    }
}

/// The headers of a decoder's tensors, and how they are called.
struct Named<'a> {
    headers: &'a [TensorHeader],
    naming: Naming,
    tied: bool,
}

impl Named<'_> {
    fn bytes(&self, on_cpu: bool, options: &LoadOptions) -> u64 {
        let tied = self.tied;
        let embedding = self.naming.weight(Role::Embedding);
        let head = self.naming.weight(Role::Head);
        let held = |header, quantize| held_bytes(header, options.dtype, quantize);
        let (tower, decoder): (Vec<_>, Vec<_>) = self
            .headers
            .iter()
            .partition(|header| vision::is_of_tower(&header.name));
        let tower: u64 = tower.into_iter().map(|header| header.bytes).sum();
        let matrices = decoder.into_iter().filter(|header| header.shape.len() == 2);
        let bytes = matrices.map(|header| {
            let is_embedding = header.name == embedding;
            let is_head = header.name == head || (is_embedding && tied);
            let table = if is_embedding && !on_cpu {
                held(header, None)
            } else {
                0
            };
            let target = options
                .quantize
                .and_then(|to| to.target(columns(header), is_head));
            let multiplied = match (is_embedding, header.name == head) {
                (true, _) if !tied => 0,
                // Tied files may carry a copy of their output, which is not loaded.
                (_, true) if tied => 0,
                _ => held(header, target),
            };
            table + multiplied
        });
        tower + bytes.sum::<u64>()
    }
}

fn columns(header: &TensorHeader) -> usize {
    header.shape.last().copied().unwrap_or(1)
}

/// A matrix as it will be held: only dense ones are converted.
fn held_bytes(header: &TensorHeader, dense: Option<DType>, quantized: Option<GgmlDType>) -> u64 {
    let TensorType::Weight(stored) = header.dtype else {
        return 0;
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
    use candle_core::Device;

    use super::{
        super::{Decoder, golden::fixture},
        *,
    };
    use crate::networks::weights::Quantize;

    #[test]
    fn headers_tell_what_the_loaded_weights_take() {
        for name in [
            "tiny-llama",
            "tiny-llama.gguf",
            "golden/qwen2",
            "golden/mistral",
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
