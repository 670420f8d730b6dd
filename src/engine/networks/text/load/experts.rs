//! The experts of a layer, in each of the ways that files hold them: a tensor for each expert, or one for all.

use candle_core::{Tensor, quantized::GgmlDType};

use super::{
    super::{
        experts::{ExpertsSpec, SharedExpertSpec},
        family::{ExpertPart, Naming, Part, Role},
        rules::ExpertLayout,
        spec::DecoderSpec,
    },
    tensors::{Loader, RowRange},
};
use crate::networks::{
    layers::{Expert, ExpertBiases, Experts, GatedFeedForward, Linear, SharedExpert},
    weights::{Flaw, TensorType, Weight, mxfp4},
};

/// A matrix of all experts of a layer.
#[derive(Clone, Copy)]
struct LayerPart {
    layer: usize,
    part: ExpertPart,
    experts: usize,
    rows: usize,
    cols: usize,
}

/// The rows of a matrix within an expert's part of a tensor with all experts.
#[derive(Clone, Copy)]
struct ExpertRows {
    total: usize,
    first: usize,
    step: usize,
    count: usize,
}

impl ExpertRows {
    fn indices(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |row| self.first + row * self.step)
    }

    /// These rows of an expert, each of `row_bytes`.
    fn of(self, all: &[u8], expert: usize, row_bytes: usize) -> Vec<u8> {
        let first = expert * self.total;
        let rows = self.indices().map(|row| (first + row) * row_bytes);
        rows.flat_map(|at| &all[at..at + row_bytes])
            .copied()
            .collect()
    }

    /// The same where the tensor has columns before rows.
    fn transposed(self, all: &[u8], expert: usize, cols: usize, number_bytes: usize) -> Vec<u8> {
        let size = cols * self.total * number_bytes;
        let all = &all[expert * size..(expert + 1) * size];
        let numbers = self
            .indices()
            .flat_map(|row| (0..cols).map(move |col| (col * self.total + row) * number_bytes));
        numbers
            .flat_map(|at| &all[at..at + number_bytes])
            .copied()
            .collect()
    }
}

impl Loader<'_> {
    pub fn experts(
        &mut self,
        spec: &DecoderSpec,
        experts: &ExpertsSpec,
        layer: usize,
    ) -> Result<Experts, Flaw> {
        let (hidden, feed) = (spec.hidden_size, experts.intermediate_size);
        let layout = match self.naming {
            Naming::Gguf => ExpertLayout::Rows,
            _ => spec.family.rules().expert_layout,
        };
        let part = |part, rows, cols| LayerPart {
            layer,
            part,
            experts: experts.count,
            rows,
            cols,
        };
        let parts = [
            part(ExpertPart::Gate, feed, hidden),
            part(ExpertPart::Up, feed, hidden),
            part(ExpertPart::Down, hidden, feed),
        ];
        let router = RowRange::all(self.router(layer), experts.count);
        let router = self.linear(router, hidden, experts.has_biases)?;
        let [gates, ups, downs] = parts.map(|part| self.expert_part(part, layout));
        let matrices = gates?.into_iter().zip(ups?).zip(downs?);
        let matrices = matrices.map(|((gate, up), down)| Expert { gate, up, down });
        let matrices = matrices.collect();
        let biases = match experts.has_biases {
            true => {
                let [gate, up, down] = parts.map(|part| self.expert_biases(part, layout));
                let (gate, up, down) = (gate?, up?, down?);
                Some(ExpertBiases { gate, up, down })
            }
            false => None,
        };
        Ok(Experts {
            router,
            routing: experts.routing,
            correction: match experts.has_correction {
                true => Some(self.correction(layer, experts.count)?),
                false => None,
            },
            scales: None,
            scales_inputs: experts.scales_inputs,
            experts: matrices,
            biases,
            shared: match experts.shared {
                Some(shared) => Some(self.shared_expert(spec, shared, layer)?),
                None => None,
            },
            activation: spec.activation,
        })
    }

    fn correction(&mut self, layer: usize, experts: usize) -> Result<Vec<f32>, Flaw> {
        let role = Role::Layer(layer, Part::Correction);
        let name = match self.naming {
            Naming::Gguf => self.naming.bias(role),
            _ => self.naming.weight(role),
        };
        self.numbers(&name, &[experts])
    }

    fn shared_expert(
        &mut self,
        spec: &DecoderSpec,
        shared: SharedExpertSpec,
        layer: usize,
    ) -> Result<SharedExpert, Flaw> {
        let (hidden, feed) = (spec.hidden_size, shared.intermediate_size);
        let [gate, up, down] = match shared.is_gated {
            true => [
                Part::GatedSharedGate,
                Part::GatedSharedUp,
                Part::GatedSharedDown,
            ],
            false => [Part::SharedGate, Part::SharedUp, Part::SharedDown],
        };
        let [gates, ups] = self.rows(layer, Part::SharedGateUp, [(gate, feed), (up, feed)]);
        let downs = RowRange::all(Role::Layer(layer, down), hidden);
        Ok(SharedExpert {
            part: GatedFeedForward {
                gate: self.linear(gates, hidden, false)?,
                up: self.linear(ups, hidden, false)?,
                down: self.linear(downs, feed, false)?,
                activation: spec.activation,
                cutoff: None,
            },
            gate: match shared.is_gated {
                true => Some(self.shared_gate(layer, hidden)?),
                false => None,
            },
        })
    }

    /// A matrix of one row, which GGUF files hold as a vector.
    fn shared_gate(&mut self, layer: usize, hidden: usize) -> Result<Linear, Flaw> {
        let role = Role::Layer(layer, Part::SharedRouter);
        let name = self.naming.weight(role);
        let row = [hidden];
        let shape: &[usize] = match self.naming {
            Naming::Gguf => &row,
            _ => {
                return self.linear(RowRange::all(role, 1), hidden, false);
            }
        };
        let (_, dtype, bytes) = self.find(&name, shape)?;
        let weight = self.placed_as(dtype, &bytes, (1, hidden), None)?;
        Ok(Linear { weight, bias: None })
    }

    /// The router under the name that the file has, or else the usual one.
    fn router(&self, layer: usize) -> Role {
        let others = [Part::BlockSparseRouter, Part::OssRouter, Part::GemmaRouter];
        let mut others = others.map(|part| Role::Layer(layer, part)).into_iter();
        let known = others.find(|&role| self.has(&self.naming.weight(role)));
        known.unwrap_or(Role::Layer(layer, Part::Router))
    }

    fn expert_part(&mut self, part: LayerPart, layout: ExpertLayout) -> Result<Vec<Weight>, Flaw> {
        let (stacked, rows) = self.stacked(part, layout);
        let name = self.naming.weight(Role::Layer(part.layer, stacked));
        let shape = [part.experts, rows.total, part.cols];
        if layout == ExpertLayout::ColumnsByTurns && self.has(&blocks(&name)) {
            return self.experts_packed(&name, part, rows);
        }
        if layout != ExpertLayout::Rows {
            let shape = [part.experts, part.cols, rows.total];
            return self.experts_of(&name, &shape, part, |all, expert, dtype| {
                rows.transposed(all, expert, part.cols, dtype.type_size())
            });
        }
        let row_bytes = |all: &[u8]| all.len() / (part.experts * rows.total);
        match self.type_of(&name) {
            None if self.naming != Naming::Gguf => self.experts_apart(part),
            Some(TensorType::MxFp4) => {
                let all = self.find_bytes(&name, TensorType::MxFp4, &shape)?;
                all.will_read();
                let each = (0..part.experts).map(|expert| {
                    let bytes = rows.of(&all, expert, row_bytes(&all));
                    self.placed_mxfp4(&bytes, (part.rows, part.cols))
                });
                let weights = each.collect();
                all.release();
                weights
            }
            _ => self.experts_of(&name, &shape, part, |all, expert, _| {
                rows.of(all, expert, row_bytes(all))
            }),
        }
    }

    /// Which tensor would hold a matrix of all experts, and where.
    fn stacked(&self, part: LayerPart, layout: ExpertLayout) -> (Part, ExpertRows) {
        let fused = self
            .naming
            .weight(Role::Layer(part.layer, Part::GateUpExperts));
        let takes_turns = layout == ExpertLayout::ColumnsByTurns;
        let is_fused = takes_turns || self.has(&fused);
        let (total, count) = (2 * part.rows, part.rows);
        let second = if takes_turns { 1 } else { part.rows };
        let step = if takes_turns { 2 } else { 1 };
        let fused = |first| ExpertRows {
            total,
            first,
            step,
            count,
        };
        let own = ExpertRows {
            total: count,
            first: 0,
            step: 1,
            count,
        };
        match part.part {
            ExpertPart::Gate if is_fused => (Part::GateUpExperts, fused(0)),
            ExpertPart::Up if is_fused => (Part::GateUpExperts, fused(second)),
            _ => (part.part.stacked(), own),
        }
    }

    fn experts_apart(&mut self, part: LayerPart) -> Result<Vec<Weight>, Flaw> {
        let shape = (part.rows, part.cols);
        let [usual, mixtral] = self.naming.experts_apart(part.layer, part.part);
        let name = match self.has(&mixtral.named(0)) {
            true => mixtral,
            false => usual,
        };
        let each = (0..part.experts).map(|expert| {
            let (_, dtype, bytes) = self.find(&name.named(expert), &[shape.0, shape.1])?;
            bytes.will_read();
            let weight = self.placed(dtype, &bytes, shape, false)?;
            bytes.release();
            Ok(weight)
        });
        each.collect()
    }

    /// Each expert's matrix as `pick` takes it out of a tensor of all.
    fn experts_of(
        &mut self,
        name: &str,
        shape: &[usize],
        part: LayerPart,
        pick: impl Fn(&[u8], usize, GgmlDType) -> Vec<u8>,
    ) -> Result<Vec<Weight>, Flaw> {
        let (_, dtype, all) = self.find(name, shape)?;
        all.will_read();
        let each = (0..part.experts).map(|expert| {
            let bytes = pick(&all, expert, dtype);
            self.placed(dtype, &bytes, (part.rows, part.cols), false)
        });
        let weights = each.collect();
        all.release();
        weights
    }

    /// Matrices of MXFP4 as the hub has them.
    fn experts_packed(
        &mut self,
        name: &str,
        part: LayerPart,
        rows: ExpertRows,
    ) -> Result<Vec<Weight>, Flaw> {
        let in_row = part.cols / 32;
        let shape = [part.experts, rows.total, in_row, 16];
        let codes = self.find_bytes(&blocks(name), BYTES, &shape)?;
        let exponents = self.find_bytes(&format!("{name}_scales"), BYTES, &shape[..3])?;
        codes.will_read();
        let each = (0..part.experts).map(|expert| {
            let codes = rows.of(&codes, expert, 16 * in_row);
            let exponents = rows.of(&exponents, expert, in_row);
            let bytes = mxfp4::from_hub(&codes, &exponents);
            self.placed_mxfp4(&bytes, (part.rows, part.cols))
        });
        let weights = each.collect();
        codes.release();
        weights
    }

    fn expert_biases(&mut self, part: LayerPart, layout: ExpertLayout) -> Result<Tensor, Flaw> {
        let (stacked, rows) = self.stacked(part, layout);
        let name = self.naming.bias(Role::Layer(part.layer, stacked));
        let all = self.numbers(&name, &[part.experts, rows.total])?;
        let picked = all
            .chunks(rows.total)
            .flat_map(|all| rows.indices().map(|row| all[row]));
        let biases = self.vector(picked.collect())?;
        Ok(biases.reshape((part.experts, part.rows))?)
    }
}

const BYTES: TensorType = TensorType::Other {
    name: "U8",
    size_bytes: 1,
};

fn blocks(name: &str) -> String {
    format!("{name}_blocks")
}
