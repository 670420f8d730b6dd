//! The experts of a layer, in each of the ways that files hold them: a tensor for each expert, or one for all.

use super::{
    super::{
        experts::ExpertsSpec,
        family::{ExpertPart, Naming, Part, Role},
        spec::DecoderSpec,
    },
    tensors::{Loader, RowRange},
};
use crate::networks::{
    layers::{Expert, Experts},
    weights::{Flaw, Weight},
};

/// Where a part of all experts of a layer is.
enum ExpertTensors {
    Apart,
    /// In one tensor `[experts, total rows, columns]`, the part's rows from `first`.
    Stacked {
        name: String,
        total: usize,
        first: usize,
    },
}

impl Loader<'_> {
    pub fn experts(
        &mut self,
        spec: &DecoderSpec,
        experts: &ExpertsSpec,
        layer: usize,
    ) -> Result<Experts, Flaw> {
        let router = self.present(layer, [Part::Router, Part::BlockSparseRouter]);
        let router = RowRange::all(router, experts.count);
        let router = self.linear(router, spec.hidden_size, false)?;
        let (hidden, feed) = (spec.hidden_size, experts.intermediate_size);
        let mut part = |part, shape| self.expert_part((layer, part), experts.count, shape);
        let gates = part(ExpertPart::Gate, (feed, hidden))?;
        let ups = part(ExpertPart::Up, (feed, hidden))?;
        let downs = part(ExpertPart::Down, (hidden, feed))?;
        let matrices = gates.into_iter().zip(ups).zip(downs);
        let matrices = matrices.map(|((gate, up), down)| Expert { gate, up, down });
        Ok(Experts {
            router,
            routing: experts.routing,
            experts: matrices.collect(),
            activation: spec.activation,
        })
    }

    /// The one of two names of a part that the file has, or the first.
    fn present(&self, layer: usize, [usual, other]: [Part; 2]) -> Role {
        let role = Role::Layer(layer, other);
        match self.has(&self.naming.weight(role)) {
            true => role,
            false => Role::Layer(layer, usual),
        }
    }

    fn expert_part(
        &mut self,
        (layer, part): (usize, ExpertPart),
        count: usize,
        (rows, cols): (usize, usize),
    ) -> Result<Vec<Weight>, Flaw> {
        match self.expert_tensors(layer, part, rows) {
            ExpertTensors::Apart => {
                let names = self.naming.experts_apart(layer, part);
                let is_there = |name: &&String| self.has(name);
                let stem = match names.iter().position(|stem| is_there(&&stem.named(0))) {
                    Some(at) => &names[at],
                    None => &names[0],
                };
                let each = (0..count).map(|expert| {
                    let (_, dtype, bytes) = self.find(&stem.named(expert), &[rows, cols])?;
                    bytes.will_read();
                    let weight = self.placed(dtype, &bytes, (rows, cols), false)?;
                    bytes.release();
                    Ok(weight)
                });
                each.collect()
            }
            ExpertTensors::Stacked { name, total, first } => {
                let (_, dtype, all) = self.find(&name, &[count, total, cols])?;
                all.will_read();
                let row_bytes = all.len() / (count * total);
                let each = (0..count).map(|expert| {
                    let start = (expert * total + first) * row_bytes;
                    let bytes = &all[start..start + rows * row_bytes];
                    self.placed(dtype, bytes, (rows, cols), false)
                });
                let weights = each.collect();
                all.release();
                weights
            }
        }
    }

    fn expert_tensors(&self, layer: usize, part: ExpertPart, rows: usize) -> ExpertTensors {
        let named = |part| self.naming.weight(Role::Layer(layer, part));
        let fused = named(Part::GateUpExperts);
        let first = match part {
            ExpertPart::Gate => Some(0),
            ExpertPart::Up => Some(rows),
            ExpertPart::Down => None,
        };
        if let Some(first) = first.filter(|_| self.has(&fused)) {
            return ExpertTensors::Stacked {
                name: fused,
                total: 2 * rows,
                first,
            };
        }
        let stacked = named(part.stacked());
        match self.naming == Naming::Gguf || self.has(&stacked) {
            true => ExpertTensors::Stacked {
                name: stacked,
                total: rows,
                first: 0,
            },
            false => ExpertTensors::Apart,
        }
    }
}
