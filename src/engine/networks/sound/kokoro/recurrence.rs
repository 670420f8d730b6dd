//! A bidirectional LSTM.
//!
//! The products with the inputs are one per direction. The recurrence is a sequence of thousands of small products, so
//! it runs on the host whatever the device; both directions run in parallel.

use candle_core::{DType, Result, Tensor};

use crate::networks::blocks::ComponentReader;
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Convolution, cpu};

pub(super) struct Recurrence {
    /// Forward and backward.
    directions: [RecurrentDirection; 2],
    hidden: usize,
}

struct RecurrentDirection {
    /// Maps inputs to the four gates: input, forget, cell, output.
    inputs: Convolution,
    /// Maps the last state to the gates, column by column.
    states: Vec<f32>,
}

impl Recurrence {
    /// `outputs` is the width of both directions together.
    pub fn load(
        reader: &mut ComponentReader<'_>,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> std::result::Result<Self, Flaw> {
        let hidden = outputs / 2;
        let gates = 4 * hidden;
        let mut direction = |end: &str| {
            let mut vector = |kind: &str| {
                let name = format!("{name}.bias_{kind}_l0{end}");
                reader
                    .tensor(&name, &[gates])?
                    .to_dtype(DType::F32)
                    .map_err(Flaw::from)
            };
            let bias = (vector("ih")? + vector("hh")?)?;
            let weight = reader.tensor(&format!("{name}.weight_ih_l0{end}"), &[gates, inputs])?;
            let states = reader.tensor(&format!("{name}.weight_hh_l0{end}"), &[gates, hidden])?;
            let states = states.to_dtype(DType::F32)?.t()?.flatten_all()?;
            Ok::<_, Flaw>(RecurrentDirection {
                inputs: Convolution::new(
                    &weight.unsqueeze(2)?,
                    Some(&bias),
                    [Axis::default(); 2],
                    1,
                )?,
                states: states.to_vec1()?,
            })
        };
        Ok(Self {
            directions: [direction("")?, direction("_reverse")?],
            hidden,
        })
    }

    /// `[rows, inputs]` to `[rows, outputs]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.dim(0)?;
        let x = x.unsqueeze(0)?;
        let gates = |direction: &RecurrentDirection| -> Result<Vec<f32>> {
            let gates = direction.inputs.apply(&x)?;
            gates.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
        };
        let [forth, back] = &self.directions;
        let mut runs = [
            (forth, gates(forth)?, Vec::new()),
            (back, gates(back)?, Vec::new()),
        ];
        let order = |at: usize, is_back: bool| if is_back { rows - 1 - at } else { at };
        let cost = rows * self.hidden * self.hidden * 4;
        cpu::each(&mut runs, cost, |(direction, gates, states)| {
            let is_back = std::ptr::eq(*direction, back);
            *states = self.run(direction, gates, |at| order(at, is_back));
        });
        let [(.., forth), (.., back)] = runs;
        let pairs = forth
            .chunks_exact(self.hidden)
            .zip(back.chunks_exact(self.hidden));
        let rows_of = pairs.flat_map(|(forth, back)| forth.iter().chain(back).copied());
        let found: Vec<f32> = rows_of.collect();
        Tensor::from_vec(found, (rows, 2 * self.hidden), x.device())
    }

    /// The states, row after row, visited in an order.
    fn run(
        &self,
        direction: &RecurrentDirection,
        gates: &mut [f32],
        order: impl Fn(usize) -> usize,
    ) -> Vec<f32> {
        let size = self.hidden;
        let mut states = vec![0f32; gates.len() / 4];
        let (mut state, mut cell) = (vec![0f32; size], vec![0f32; size]);
        for at in 0..gates.len() / (4 * size) {
            let row = order(at);
            let gates = &mut gates[row * 4 * size..(row + 1) * 4 * size];
            for (value, column) in state.iter().zip(direction.states.chunks_exact(4 * size)) {
                for (gate, weight) in gates.iter_mut().zip(column) {
                    *gate += value * weight;
                }
            }
            let (open, rest) = gates.split_at(size);
            let (forget, rest) = rest.split_at(size);
            let (fresh, output) = rest.split_at(size);
            for at in 0..size {
                cell[at] = sigmoid(forget[at]) * cell[at] + sigmoid(open[at]) * fresh[at].tanh();
                state[at] = sigmoid(output[at]) * cell[at].tanh();
            }
            states[row * size..(row + 1) * size].copy_from_slice(&state);
        }
        states
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
