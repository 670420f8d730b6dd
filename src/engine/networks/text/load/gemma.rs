//! Further parts of the layers of Gemma 3n and 4: per-layer inputs, and experts parallel to a dense part.

use super::{
    super::{
        experts::ExpertsSpec,
        family::{Naming, Part, Role},
        spec::DecoderSpec,
    },
    tensors::{Loader, RowRange},
};
use crate::networks::{
    layers::{
        AlternatingUpdate, Linear, LowRankResidual, ParallelFeedForward, PerLayerEmbeddings,
        PerLayerInput, RmsNorm, Streams,
    },
    weights::Flaw,
};

impl Loader<'_> {
    pub fn layer_inputs(&mut self, spec: &DecoderSpec) -> Result<Option<PerLayerEmbeddings>, Flaw> {
        let Some(inputs) = spec.layer_inputs else {
            return Ok(None);
        };
        let width = spec.layers * inputs.size;
        let projection = RowRange::all(Role::LayerInputProjection, width);
        let rows = self.rows_of(Role::LayerInputTable).unwrap_or(0);
        Ok(Some(PerLayerEmbeddings {
            // Converters pad the table.
            table: self.table(Role::LayerInputTable, (rows.max(inputs.vocab_size), width))?,
            projection: self.linear(projection, spec.hidden_size, false)?,
            norm: self.norm(Role::LayerInputNorm, inputs.size, spec)?,
            size: inputs.size,
            vocab_size: inputs.vocab_size,
        }))
    }

    pub fn layer_input(
        &mut self,
        spec: &DecoderSpec,
        index: usize,
    ) -> Result<Option<PerLayerInput>, Flaw> {
        let Some(inputs) = spec.layer_inputs else {
            return Ok(None);
        };
        let (hidden, size) = (spec.hidden_size, inputs.size);
        let role = |part| Role::Layer(index, part);
        Ok(Some(PerLayerInput {
            gate: self.linear(RowRange::all(role(Part::InputGate), size), hidden, false)?,
            projection: self.linear(
                RowRange::all(role(Part::InputProjection), hidden),
                size,
                false,
            )?,
            norm: self.norm(role(Part::InputNorm), hidden, spec)?,
            activation: spec.activation,
        }))
    }

    pub fn streams(&mut self, spec: &DecoderSpec) -> Result<Option<Streams>, Flaw> {
        let Some(updates) = spec.alternating_updates else {
            return Ok(None);
        };
        let count = updates.streams - 1;
        Ok(Some(Streams {
            projections: self.stream_matrices(Role::StreamProjection, count, spec)?,
            unembeddings: self.stream_matrices(Role::StreamUnembedding, count, spec)?,
        }))
    }

    /// A square matrix for each stream but the first, which GGUF files have in one tensor.
    fn stream_matrices(
        &mut self,
        role: fn(usize) -> Role,
        count: usize,
        spec: &DecoderSpec,
    ) -> Result<Vec<Linear>, Flaw> {
        let hidden = spec.hidden_size;
        if self.naming != Naming::Gguf {
            let rows = |stream| RowRange::all(role(stream), hidden);
            let matrices = (0..count).map(|stream| self.linear(rows(stream), hidden, false));
            return matrices.collect();
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        let name = self.naming.weight(role(0));
        let (_, dtype, all) = self.find(&name, &[count, hidden, hidden])?;
        let matrices = all.chunks(all.len() / count).map(|bytes| {
            let weight = self.placed(dtype, bytes, (hidden, hidden), false)?;
            Ok(Linear { weight, bias: None })
        });
        matrices.collect()
    }

    pub fn alternating_update(
        &mut self,
        spec: &DecoderSpec,
        index: usize,
    ) -> Result<Option<AlternatingUpdate>, Flaw> {
        let Some(updates) = spec.alternating_updates else {
            return Ok(None);
        };
        let (hidden, count) = (spec.hidden_size, updates.streams);
        let role = |part| Role::Layer(index, part);
        let rows = |part, rows| RowRange::all(role(part), rows);
        let norm = self.norm(role(Part::StreamRouterNorm), hidden, spec)?;
        let scale = self.naming.weight(role(Part::StreamScale));
        Ok(Some(AlternatingUpdate {
            router: self.linear(rows(Part::StreamRouter, count), hidden, false)?,
            router_norm: RmsNorm {
                weight: (norm.weight / hidden as f64)?,
                ..norm
            },
            prediction: self.linear(rows(Part::Prediction, count * count), count, false)?,
            correction: self.linear(rows(Part::StreamCorrection, count), count, false)?,
            scale: match self.numbers(&scale, &[hidden])? {
                numbers if updates.is_scaled => Some(self.vector(numbers)?),
                // Files have it all the same.
                _ => None,
            },
            residual: LowRankResidual {
                left: self.linear(rows(Part::ResidualLeft, updates.rank), hidden, false)?,
                right: self.linear(rows(Part::ResidualRight, hidden), updates.rank, false)?,
                norm: self.norm(role(Part::ResidualNorm), hidden, spec)?,
            },
            active: updates.active,
        }))
    }

    pub fn layer_scale(&mut self, spec: &DecoderSpec, index: usize) -> Result<Option<f64>, Flaw> {
        if !spec.scales_layers {
            return Ok(None);
        }
        let name = self.naming.weight(Role::Layer(index, Part::LayerScale));
        let scale = self.numbers(&name, &[1])?.into_iter().next();
        Ok(scale.map(f64::from))
    }

    pub fn parallel(
        &mut self,
        spec: &DecoderSpec,
        experts: &ExpertsSpec,
        index: usize,
    ) -> Result<ParallelFeedForward, Flaw> {
        let hidden = spec.hidden_size;
        let role = |part| Role::Layer(index, part);
        let scale = self.naming.weight(role(Part::RouterScale));
        let scale = self.numbers(&scale, &[hidden])?.into_iter();
        let root = (hidden as f32).sqrt();
        let scale = scale.map(|number| number / root).collect();
        let scales = self.naming.weight(role(Part::ExpertScales));
        let mut routed = self.experts(spec, experts, index)?;
        routed.scales = Some(self.numbers(&scales, &[experts.count])?);
        Ok(ParallelFeedForward {
            dense: self.dense(spec, index)?,
            experts: routed,
            router_norm: RmsNorm {
                weight: self.vector(scale)?,
                eps: spec.norm_eps,
            },
            experts_norm: self.norm(role(Part::ExpertsPreNorm), hidden, spec)?,
            after: [
                self.norm(role(Part::DensePostNorm), hidden, spec)?,
                self.norm(role(Part::ExpertsPostNorm), hidden, spec)?,
            ],
        })
    }

    /// A norm without weights.
    pub fn plain_norm(&self, size: usize, spec: &DecoderSpec) -> Result<RmsNorm, Flaw> {
        Ok(RmsNorm {
            weight: self.vector(vec![1.0; size])?,
            eps: spec.norm_eps,
        })
    }
}
