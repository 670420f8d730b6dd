//! Recurrent layers of seeded checkpoints as a converter would write them to GGUF.

use super::golden::{ConvertedTensor, floats};
use crate::networks::{
    text::{
        family::{Naming, Part, Role},
        recurrent::{DeltaNetSpec, RecurrenceSpec, StateSpaceSpec},
        spec::DecoderSpec,
    },
    weights::Checkpoint,
};

pub fn recurrent_tensors(
    checkpoint: &Checkpoint,
    spec: &DecoderSpec,
    layer: usize,
) -> Vec<ConvertedTensor> {
    match spec.recurrence(layer) {
        None => Vec::new(),
        Some(RecurrenceSpec::DeltaNet(net)) => {
            let hub = HubLayer { checkpoint, layer };
            delta_net(&hub, net, spec.hidden_size)
        }
        Some(RecurrenceSpec::Convolution(convolution)) => {
            let hub = HubLayer { checkpoint, layer };
            let (hidden, channels) = (spec.hidden_size, convolution.channels);
            let written = |part, shape| hub.written(part, shape, hub.weight(part).unwrap());
            vec![
                written(Part::ConvolutionInputs, vec![3 * channels, hidden]),
                written(Part::Convolution, vec![channels, convolution.kernel]),
                written(Part::ConvolutionOutput, vec![hidden, channels]),
            ]
        }
        Some(RecurrenceSpec::StateSpace(space)) => {
            let hub = HubLayer { checkpoint, layer };
            state_space(&hub, space, spec.hidden_size)
        }
    }
}

/// The part that all layers of Granite 4 have, its gate and its ups apart.
pub fn granite_feed_tensors(
    checkpoint: &Checkpoint,
    spec: &DecoderSpec,
    layer: usize,
) -> Vec<ConvertedTensor> {
    let naming = Naming::GraniteHybrid;
    let named = |part| {
        let header = checkpoint.tensor(&naming.weight(Role::Layer(layer, part)));
        floats(checkpoint, header.unwrap())
    };
    let fused = named(Part::GateUp);
    let (gates, ups) = fused.split_at(fused.len() / 2);
    let (hidden, feed) = (spec.hidden_size, gates.len() / spec.hidden_size);
    let [gate, up, down] = match spec.experts {
        Some(_) => [Part::SharedGate, Part::SharedUp, Part::SharedDown],
        None => [Part::Gate, Part::Up, Part::Down],
    };
    let written = |part, shape: [usize; 2], numbers: Vec<f32>| ConvertedTensor {
        name: Naming::Gguf.weight(Role::Layer(layer, part)),
        shape: shape.to_vec(),
        numbers,
        blocks: None,
    };
    vec![
        written(gate, [feed, hidden], gates.to_vec()),
        written(up, [feed, hidden], ups.to_vec()),
        written(down, [hidden, feed], named(Part::Down)),
    ]
}

fn state_space(hub: &HubLayer<'_>, space: &StateSpaceSpec, hidden: usize) -> Vec<ConvertedTensor> {
    let heads = space.heads;
    let (values, count) = (heads.value_size(), heads.value_heads);
    let written = |part, shape| hub.written(part, shape, hub.weight(part).unwrap());
    let rates = hub.weight(Part::SpaceRates).unwrap();
    let rates = rates.into_iter().map(|rate| -rate.exp()).collect();
    let inputs = values + space.convolved() + count;
    let bias = |part| {
        let role = hub.role(part);
        let numbers = hub.named(&Naming::Hub.bias(role))?;
        Some(ConvertedTensor {
            name: Naming::Gguf.bias(role),
            shape: vec![numbers.len()],
            numbers,
            blocks: None,
        })
    };
    let mut tensors = vec![
        written(Part::SpaceInputs, vec![inputs, hidden]),
        written(
            Part::SpaceConvolution,
            vec![space.convolved(), space.kernel],
        ),
        hub.written(Part::SpaceRates, vec![count, 1], rates),
        written(Part::SpaceSkips, vec![count, 1]),
        written(
            Part::SpaceNorm,
            vec![heads.key_heads, values / heads.key_heads],
        ),
        written(Part::SpaceOutput, vec![hidden, values]),
    ];
    let biased = [
        Part::SpaceInputs,
        Part::SpaceConvolution,
        Part::SpaceStepBias,
        Part::SpaceOutput,
    ];
    tensors.extend(biased.into_iter().filter_map(bias));
    tensors
}

struct HubLayer<'a> {
    checkpoint: &'a Checkpoint,
    layer: usize,
}

impl HubLayer<'_> {
    fn role(&self, part: Part) -> Role {
        Role::Layer(self.layer, part)
    }

    fn weight(&self, part: Part) -> Option<Vec<f32>> {
        self.named(&Naming::Hub.weight(self.role(part)))
    }

    fn named(&self, name: &str) -> Option<Vec<f32>> {
        let header = self.checkpoint.tensor(name)?;
        Some(floats(self.checkpoint, header))
    }

    fn written(&self, part: Part, shape: Vec<usize>, numbers: Vec<f32>) -> ConvertedTensor {
        ConvertedTensor {
            name: Naming::Gguf.weight(self.role(part)),
            shape,
            numbers,
            blocks: None,
        }
    }
}

fn delta_net(hub: &HubLayer<'_>, net: &DeltaNetSpec, hidden: usize) -> Vec<ConvertedTensor> {
    let heads = net.heads;
    let (keys, values, count) = (heads.key_size(), heads.value_size(), heads.value_heads);
    // Numbers of the value heads, `size` per head, in the order of the file.
    let ordered = |numbers: &[f32], size: usize| -> Vec<f32> {
        if !heads.is_tiled {
            return numbers.to_vec();
        }
        let each = count / heads.key_heads;
        let from = |head: usize| head % heads.key_heads * each + head / heads.key_heads;
        let head = |head: usize| numbers[from(head) * size..][..size].to_vec();
        (0..count).flat_map(head).collect()
    };
    // Reorders only the values in rows of queries, keys and values.
    let values_ordered = |numbers: Vec<f32>, width: usize| {
        let (before, after) = numbers.split_at(2 * keys * width);
        [before.to_vec(), ordered(after, heads.value_dim * width)].concat()
    };
    let (qkv, gate) = match hub.weight(Part::DeltaInputs) {
        Some(fused) => {
            let part = |first: usize, rows: usize| -> Vec<f32> {
                let each = fused.chunks(fused.len() / heads.key_heads);
                let rows = each.map(|each| &each[first * hidden..(first + rows) * hidden]);
                rows.flatten().copied().collect()
            };
            let (key, value) = (heads.key_dim, values / heads.key_heads);
            let qkv = [part(0, key), part(key, key), part(2 * key, value)].concat();
            (qkv, part(2 * key + value, value))
        }
        None => {
            let gate = hub.weight(Part::DeltaGate).unwrap();
            let qkv = hub.weight(Part::DeltaQkv).unwrap();
            (
                values_ordered(qkv, hidden),
                ordered(&gate, heads.value_dim * hidden),
            )
        }
    };
    let convolution = hub.weight(Part::DeltaConvolution).unwrap();
    let rates = hub.weight(Part::DeltaRates).unwrap();
    let rates: Vec<f32> = rates.into_iter().map(|rate| -rate.exp()).collect();
    let step_bias = hub.named(&Naming::Hub.bias(hub.role(Part::DeltaStepBias)));
    let output = hub.weight(Part::DeltaOutput).unwrap();
    let output = output.chunks(values);
    let output = output
        .flat_map(|row| ordered(row, heads.value_dim))
        .collect();
    let mut tensors = vec![
        hub.written(Part::DeltaQkv, vec![net.convolved(), hidden], qkv),
        hub.written(Part::DeltaGate, vec![values, hidden], gate),
        hub.written(
            Part::DeltaConvolution,
            vec![net.convolved(), net.kernel],
            values_ordered(convolution, net.kernel),
        ),
        hub.written(Part::DeltaRates, vec![count], ordered(&rates, 1)),
        hub.written(
            Part::DeltaNorm,
            vec![heads.value_dim],
            hub.weight(Part::DeltaNorm).unwrap(),
        ),
        hub.written(Part::DeltaOutput, vec![hidden, values], output),
        ConvertedTensor {
            name: Naming::Gguf.bias(hub.role(Part::DeltaStepBias)),
            shape: vec![count],
            numbers: ordered(&step_bias.unwrap(), 1),
            blocks: None,
        },
    ];
    match hub.weight(Part::DeltaBetasAndSteps) {
        Some(fused) => {
            let shape = vec![2 * count, hidden];
            tensors.push(hub.written(Part::DeltaBetasAndSteps, shape, fused));
        }
        None => tensors.extend([Part::DeltaBetas, Part::DeltaSteps].map(|part| {
            let numbers = ordered(&hub.weight(part).unwrap(), hidden);
            hub.written(part, vec![count, hidden], numbers)
        })),
    }
    tensors
}
