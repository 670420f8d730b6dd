//! An adapter's files: which tensors change which matrix, checked before a number is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device};

use super::modules::{AdapterModule, AdapterModules};
use super::settings::AdapterSettings;
use crate::networks::layers::{DecoderAdapter, LowRank};
use crate::networks::text::family::Family;
use crate::networks::text::spec::DecoderSpec;
use crate::networks::weights::{
    Checkpoint, CheckpointError, Flaw, TensorHeader, TensorType, Weight, convert,
};
use muster_kernels::RopeStyle;

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
const PICKLE: &str = "adapter_model.bin";
const KNOWN: &str = "the matrices of attention and of dense feed-forward parts";
const TRAIN: &str = "the matrices of attention and of dense feed-forward parts; train the adapter for these alone, or merge \
                     it into its model with peft's merge_and_unload, and serve that";
const LONGEST_BASE: usize = 60;
/// Rows per packed panel.
const PANEL_ROWS: usize = 16;

/// The files of an adapter, opened: headers were read, numbers were not.
pub struct TextAdapterFile {
    checkpoint: Checkpoint,
    settings: AdapterSettings,
    /// By module name.
    changes: BTreeMap<String, ChangeTensors>,
}

/// The names of the tensors of a change.
#[derive(Debug, Default)]
struct ChangeTensors {
    down: Option<String>,
    up: Option<String>,
}

/// A change that fits its module.
struct FittingChange<'a> {
    module: AdapterModule,
    down: &'a TensorHeader,
    up: &'a TensorHeader,
    rank: usize,
    scale: f64,
}

#[derive(Debug, Clone, Copy)]
enum FactorSide {
    Down,
    Up,
}

impl TextAdapterFile {
    /// Opens a folder as peft writes it, or a GGUF file.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let checkpoint = match path.is_dir() {
            true => Checkpoint::open_tensors(&tensors_of(path)),
            false => Checkpoint::open_file(path),
        }?;
        let settings = match checkpoint.gguf_metadata() {
            Some(metadata) => {
                AdapterSettings::of_gguf(metadata).map_err(|flaw| flaw.in_file(path))?
            }
            None => {
                let folder = checkpoint.path().parent().unwrap_or(Path::new("."));
                AdapterSettings::read(&folder.join(CONFIG))?
            }
        };
        let mut changes: BTreeMap<String, ChangeTensors> = BTreeMap::new();
        for header in checkpoint.tensors() {
            let split = match checkpoint.gguf_metadata().is_some() {
                true => split_gguf(&header.name),
                false => split_peft(&header.name),
            };
            let (module, half) = split.map_err(|flaw| flaw.in_file(checkpoint.path()))?;
            let factors = changes.entry(module).or_default();
            let place = match half {
                FactorSide::Down => &mut factors.down,
                FactorSide::Up => &mut factors.up,
            };
            if let Some(first) = place.replace(header.name.clone()) {
                let what = format!("the tensor {first:?}");
                return Err(Flaw::broken(what, "twice", "once").in_file(checkpoint.path()));
            }
        }
        Ok(Self {
            checkpoint,
            settings,
            changes,
        })
    }

    pub fn path(&self) -> &Path {
        self.checkpoint.path()
    }

    /// Memory of the adapter besides its decoder; an error if the adapter does not fit.
    pub fn bytes_beside(&self, spec: &DecoderSpec) -> Result<u64, CheckpointError> {
        let fitting = self
            .fitting(spec)
            .map_err(|flaw| flaw.in_file(self.path()))?;
        let bytes = fitting.iter().map(|change| {
            let panels = |rows: usize| rows.next_multiple_of(PANEL_ROWS) as u64;
            let pieces = change.module.pieces.len() as u64;
            let down = panels(change.rank) * change.module.inputs as u64 * pieces;
            let up = panels(change.module.outputs) * change.rank as u64;
            (down + up) * size_of::<f32>() as u64
        });
        Ok(bytes.sum())
    }

    /// Brings the adapter to the device of a decoder. `dense` is the type of its activations, where it is not the CPU.
    pub fn load(
        &self,
        spec: &DecoderSpec,
        device: &Device,
        dense: Option<DType>,
    ) -> Result<DecoderAdapter, CheckpointError> {
        self.on_device(spec, device, dense)
            .map_err(|flaw| flaw.in_file(self.path()))
    }

    fn on_device(
        &self,
        spec: &DecoderSpec,
        device: &Device,
        dense: Option<DType>,
    ) -> Result<DecoderAdapter, Flaw> {
        let mut adapter = DecoderAdapter::new(spec.layers);
        for change in self.fitting(spec)? {
            let (down_type, down) = self.numbers(change.down)?;
            let (up_type, up) = self.numbers(change.up)?;
            let row_bytes = up.len() / change.module.outputs;
            for piece in &change.module.pieces {
                let rows = piece.rows(spec.rope.style, self.rope_style(spec));
                let bytes = rows.iter().map(|row| &up[row * row_bytes..][..row_bytes]);
                let bytes: Vec<u8> = bytes.flatten().copied().collect();
                let down_shape = (change.rank, change.module.inputs);
                let up_shape = (rows.len(), change.rank);
                let low_rank = LowRank {
                    down: Weight::place(down_type, &down, down_shape, device, dense)?,
                    up: Weight::place(up_type, &bytes, up_shape, device, dense)?,
                    scale: change.scale,
                };
                let layer = change.module.layer;
                if adapter.insert(layer, piece.target, low_rank).is_some() {
                    let what = format!("{:?} of layer {layer}", piece.target);
                    let found = "two changes, under two names";
                    return Err(Flaw::broken(what, found, "one"));
                }
            }
        }
        Ok(adapter)
    }

    /// The rope style of the rows in this file.
    fn rope_style(&self, spec: &DecoderSpec) -> RopeStyle {
        match self.checkpoint.gguf_metadata() {
            Some(_) => spec.family.rules().gguf_rope_style,
            None => RopeStyle::Halves,
        }
    }

    fn fitting(&self, spec: &DecoderSpec) -> Result<Vec<FittingChange<'_>>, Flaw> {
        if matches!(
            spec.family,
            Family::Gemma3n | Family::Gemma4 | Family::Llama4
        ) {
            let found = format!("a {} decoder", spec.family);
            return Err(Flaw::unsupported("the model of the adapter", found, TRAIN));
        }
        if let Some(metadata) = self.checkpoint.gguf_metadata() {
            let found = metadata.text("general.architecture").unwrap_or("nothing");
            let wanted = spec.family.gguf_name();
            if found != wanted {
                return Err(self.foreign("general.architecture", found, wanted));
            }
        }
        if self.changes.is_empty() {
            return Err(Flaw::broken(
                "the adapter",
                "no tensors",
                "changes of matrices",
            ));
        }
        let modules = AdapterModules::new(spec, self.checkpoint.gguf_metadata().is_some());
        let changes = self.changes.iter();
        let fitting = changes.map(|(name, factors)| self.fit(name, factors, &modules, spec));
        fitting.collect()
    }

    fn fit(
        &self,
        name: &str,
        factors: &ChangeTensors,
        modules: &AdapterModules,
        spec: &DecoderSpec,
    ) -> Result<FittingChange<'_>, Flaw> {
        let (Some(down), Some(up)) = (&factors.down, &factors.up) else {
            let what = format!("the change of {name}");
            return Err(Flaw::broken(what, "one of its two matrices", "both"));
        };
        let header = |name: &str| self.checkpoint.tensor(name);
        let (Some(down), Some(up)) = (header(down), header(up)) else {
            return Err(Flaw::broken(name, "no tensors", "two matrices"));
        };
        let Some(module) = modules.named(name) else {
            return Err(self.no_module(name, spec));
        };
        let shapes = (down.shape.as_slice(), up.shape.as_slice());
        let ([rank, inputs], [outputs, up_rank]) = shapes else {
            let what = format!("the change of {name}");
            return Err(Flaw::broken(what, format!("{shapes:?}"), "two matrices"));
        };
        if (module.inputs, module.outputs, *rank) != (*inputs, *outputs, *up_rank) {
            let found = format!("{:?} and {:?}", down.shape, up.shape);
            let wanted = format!("one for {} x {}", module.outputs, module.inputs);
            return Err(self.foreign(&format!("the change of {name}"), &found, &wanted));
        }
        Ok(FittingChange {
            module: module.clone(),
            down,
            up,
            rank: *rank,
            scale: self.settings.scale(name, *rank)?,
        })
    }

    /// The error for a module of this name.
    fn no_module(&self, name: &str, spec: &DecoderSpec) -> Flaw {
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let what = format!("a change of {name}");
        let family = spec.family;
        if has(&["lm_head", "embed_tokens", "token_embd"]) || name == "output" {
            return Flaw::unsupported(what, "embeddings or the output matrix", TRAIN);
        }
        let is_of_experts = has(&[
            "experts",
            "exps",
            "shexp",
            "mlp.gate",
            "ffn_gate_inp",
            "block_sparse_moe",
        ]);
        if spec.experts.is_some() && is_of_experts {
            return Flaw::unsupported(what, format!("experts of a {family} decoder"), TRAIN);
        }
        if spec.is_recurrent() && has(&["linear_attn", "mamba", "ssm_", "conv.", "shortconv"]) {
            return Flaw::unsupported(what, "a layer without attention", TRAIN);
        }
        if spec.latent.is_some() && has(&["self_attn", "attn_"]) {
            return Flaw::unsupported(what, "latent attention, before its output", TRAIN);
        }
        if has(&["visual", "vision"]) {
            return Flaw::unsupported(what, "a vision tower", TRAIN);
        }
        let found = format!("no such matrix in this {family} decoder");
        self.foreign(&what, &found, KNOWN)
    }

    fn foreign(&self, what: &str, found: &str, wanted: &str) -> Flaw {
        let base = self.settings.base.as_deref().map_or(String::new(), |base| {
            let base: String = base.chars().take(LONGEST_BASE).collect();
            format!(" ({base:?})")
        });
        let wanted =
            format!("{wanted}; the adapter is made for another model{base}, use it with that");
        Flaw::broken(what, found, wanted)
    }

    /// The numbers of a tensor, as they are stored.
    fn numbers(
        &self,
        header: &TensorHeader,
    ) -> Result<(candle_core::quantized::GgmlDType, Vec<u8>), Flaw> {
        let what = || format!("the tensor {:?}", header.name);
        let TensorType::Weight(dtype) = header.dtype else {
            return Err(Flaw::unsupported(
                what(),
                header.dtype,
                "f32, f16, bf16 and q8_0",
            ));
        };
        let bytes = self.checkpoint.bytes(header);
        if let Some(odd) = convert::first_odd(dtype, &bytes)? {
            return Err(Flaw::broken(what(), odd, "finite numbers"));
        }
        Ok((dtype, bytes.to_vec()))
    }
}

/// The weights of a folder.
fn tensors_of(folder: &Path) -> PathBuf {
    let (tensors, pickle) = (folder.join(TENSORS), folder.join(PICKLE));
    match !tensors.exists() && pickle.exists() {
        true => pickle,
        false => tensors,
    }
}

/// `base_model.model.` and the name of a module, then `.lora_A.weight`.
fn split_peft(name: &str) -> Result<(String, FactorSide), Flaw> {
    let what = || format!("the tensor {name:?}");
    let wrong = |found: &str| Flaw::unsupported(what(), found, TRAIN);
    for (mark, found) in [
        ("lora_magnitude_vector", "DoRA"),
        ("lora_embedding_", "a change of embeddings"),
        ("modules_to_save", "a whole module"),
        ("trainable_tokens", "embeddings of tokens"),
    ] {
        if name.contains(mark) {
            return Err(wrong(found));
        }
    }
    let module = name.strip_prefix("base_model.model.").unwrap_or(name);
    let halves = [
        (".lora_A.weight", FactorSide::Down),
        (".lora_B.weight", FactorSide::Up),
        (".lora_A.default.weight", FactorSide::Down),
        (".lora_B.default.weight", FactorSide::Up),
    ];
    for (end, half) in halves {
        if let Some(module) = module.strip_suffix(end) {
            return Ok((module.to_owned(), half));
        }
    }
    Err(wrong("a tensor beside the changes"))
}

/// The name of a tensor of the model, then `.lora_a`.
fn split_gguf(name: &str) -> Result<(String, FactorSide), Flaw> {
    let halves = [(".lora_a", FactorSide::Down), (".lora_b", FactorSide::Up)];
    for (end, half) in halves {
        if let Some(tensor) = name.strip_suffix(end) {
            let module = tensor.strip_suffix(".weight").unwrap_or(tensor);
            return Ok((module.to_owned(), half));
        }
    }
    let what = format!("the tensor {name:?}");
    Err(Flaw::unsupported(
        what,
        "a tensor beside the changes",
        TRAIN,
    ))
}
