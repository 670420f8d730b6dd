//! The matrices of a decoder that adapters may change, by the names that files have for them.

use std::collections::HashMap;

use super::super::{
    family::{Family, Naming, Nesting, Part, Role},
    spec::DecoderSpec,
};
use crate::networks::layers::AdapterTarget;
use muster_kernels::RopeStyle;

/// A matrix of a layer, as the files of its family have it.
#[derive(Debug, Clone)]
pub struct AdapterModule {
    pub layer: usize,
    pub outputs: usize,
    pub inputs: usize,
    pub pieces: Vec<ModulePiece>,
}

/// The rows of a module that are one product of the decoder.
#[derive(Debug, Clone)]
pub struct ModulePiece {
    pub target: AdapterTarget,
    rows: ModuleRows,
    /// The head size, for rows with rope.
    turns: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
enum ModuleRows {
    Neighbours {
        first: usize,
        count: usize,
    },
    /// A part of each head's rows.
    OfHeads {
        heads: usize,
        size: usize,
        second: bool,
    },
}

/// All modules of a decoder.
pub struct AdapterModules {
    by_name: HashMap<String, AdapterModule>,
}

impl AdapterModules {
    pub fn new(spec: &DecoderSpec, is_gguf: bool) -> Self {
        let namings: &[Naming] = match (is_gguf, spec.family) {
            (true, _) => &[Naming::Gguf],
            (false, Family::Lfm2 | Family::Lfm2Moe) => &[Naming::Lfm2],
            (false, Family::GraniteHybrid) => &[Naming::GraniteHybrid],
            (false, _) => &[
                Naming::Hub,
                Naming::BesideTower(Nesting::LanguageModel),
                Naming::BesideTower(Nesting::Llava),
                Naming::BesideTower(Nesting::TextModel),
            ],
        };
        let mut by_name = HashMap::new();
        for layer in 0..spec.layers {
            for (part, module) in modules_of(spec, layer) {
                for naming in namings {
                    let name = naming.weight(Role::Layer(layer, part));
                    let name = name.strip_suffix(".weight").unwrap_or(&name).to_owned();
                    by_name.insert(name, module.clone());
                }
            }
        }
        Self { by_name }
    }

    pub fn named(&self, name: &str) -> Option<&AdapterModule> {
        self.by_name.get(name)
    }
}

impl ModulePiece {
    fn neighbours(target: AdapterTarget, first: usize, count: usize) -> Self {
        Self {
            target,
            rows: ModuleRows::Neighbours { first, count },
            turns: None,
        }
    }

    /// The module's rows in the decoder's order, converted between rope styles.
    pub fn rows(&self, decoder: RopeStyle, file: RopeStyle) -> Vec<usize> {
        let rows: Vec<usize> = match self.rows {
            ModuleRows::Neighbours { first, count } => (first..first + count).collect(),
            ModuleRows::OfHeads {
                heads,
                size,
                second,
            } => {
                let of = |head: usize| {
                    let first = (2 * head + usize::from(second)) * size;
                    first..first + size
                };
                (0..heads).flat_map(of).collect()
            }
        };
        let Some(size) = self.turns.filter(|_| decoder != file) else {
            return rows;
        };
        let half = size / 2;
        let from = |row: usize| {
            let (head, at) = (row / size, row % size);
            let at = match decoder {
                RopeStyle::Pairs => at % 2 * half + at / 2,
                RopeStyle::Halves => at % half * 2 + at / half,
            };
            head * size + at
        };
        (0..rows.len()).map(|row| rows[from(row)]).collect()
    }
}

fn modules_of(spec: &DecoderSpec, layer: usize) -> Vec<(Part, AdapterModule)> {
    let mut modules = match spec.is_recurrent_layer(layer) {
        true => Vec::new(),
        false => attention(spec, layer),
    };
    if spec.layer_experts(layer).is_none() {
        modules.extend(feed_forward(spec, layer));
    }
    modules
}

fn attention(spec: &DecoderSpec, layer: usize) -> Vec<(Part, AdapterModule)> {
    use AdapterTarget as T;
    let (hidden, query, kv) = (
        spec.hidden_size,
        spec.query_size(layer),
        spec.kv_size(layer),
    );
    let module = |outputs, inputs, pieces| AdapterModule {
        layer,
        outputs,
        inputs,
        pieces,
    };
    let whole = |target, outputs, inputs| {
        let piece = ModulePiece::neighbours(target, 0, outputs);
        module(outputs, inputs, vec![piece])
    };
    let gathered = spec.gathered_size(layer);
    let output = (
        Part::AttentionOutput,
        whole(T::AttentionOutput, hidden, gathered),
    );
    if spec.latent.is_some() {
        return vec![output];
    }
    let turning = |piece| ModulePiece {
        turns: Some(spec.head_dim),
        ..piece
    };
    let queries = |first| turning(ModulePiece::neighbours(T::Query, first, query));
    let keys = |first| turning(ModulePiece::neighbours(T::Key, first, kv));
    let values = |first| ModulePiece::neighbours(T::Value, first, kv);
    let half = |target, second| ModulePiece {
        target,
        rows: ModuleRows::OfHeads {
            heads: spec.heads,
            size: spec.head_dim,
            second,
        },
        turns: None,
    };
    let query_module = match spec.attention_gate {
        true => {
            let gate = half(T::AttentionGate, true);
            let pieces = vec![turning(half(T::Query, false)), gate];
            module(2 * query, hidden, pieces)
        }
        false => module(query, hidden, vec![queries(0)]),
    };
    if spec.family == Family::Phi3 {
        let pieces = vec![queries(0), keys(query), values(query + kv)];
        let fused = module(query + 2 * kv, hidden, pieces);
        return vec![(Part::QueryKeyValue, fused), output];
    }
    vec![
        (Part::Query, query_module),
        (Part::Key, module(kv, hidden, vec![keys(0)])),
        (Part::Value, module(kv, hidden, vec![values(0)])),
        output,
    ]
}

fn feed_forward(spec: &DecoderSpec, layer: usize) -> Vec<(Part, AdapterModule)> {
    use AdapterTarget as T;
    let (hidden, feed) = (spec.hidden_size, spec.intermediate_size);
    let module = |outputs, inputs, pieces| AdapterModule {
        layer,
        outputs,
        inputs,
        pieces,
    };
    let piece = ModulePiece::neighbours;
    let down = vec![piece(T::Down, 0, hidden)];
    let down = (Part::Down, module(hidden, feed, down));
    if matches!(spec.family, Family::Phi3 | Family::GraniteHybrid) {
        let fused = vec![piece(T::Gate, 0, feed), piece(T::Up, feed, feed)];
        return vec![(Part::GateUp, module(2 * feed, hidden, fused)), down];
    }
    let gate = vec![piece(T::Gate, 0, feed)];
    let up = vec![piece(T::Up, 0, feed)];
    vec![
        (Part::Gate, module(feed, hidden, gate)),
        (Part::Up, module(feed, hidden, up)),
        down,
    ]
}
