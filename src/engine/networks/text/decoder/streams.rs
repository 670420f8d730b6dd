//! Layers with several streams of hidden states (Gemma 3n).

use candle_core::{Result, Tensor};

use super::Decoder;
use super::step::{State, Step};
use crate::networks::layers::{AlternatingUpdate, LayerAdaptation, LayerCache, RmsNorm};
use muster_kernels as kernels;

impl Decoder {
    /// The same of several streams, of which the layer computes one.
    pub(super) fn through_streams(
        &self,
        index: usize,
        alternating: &AlternatingUpdate,
        state: State,
        step: &Step,
        cache: &mut LayerCache,
        rows: Option<&Tensor>,
    ) -> Result<State> {
        let layer = &self.layers[index];
        let normed = |norm: Option<&RmsNorm>, x: &Tensor| match norm {
            Some(norm) => norm.forward(x),
            None => Ok(x.clone()),
        };
        let mut predicted = alternating.predict(&state.streams)?;
        let active = alternating.active;
        let first = normed(layer.attention_norms.before.as_ref(), &predicted[active])?;
        let mut beside = alternating.residual.forward(&first)?;
        let positions = self.positions(step, index);
        let mut gathered = layer.mixer.gather(&first, &positions, cache)?;
        if let Some(rows) = rows {
            if rows.elem_count() == 0 {
                return Ok(State::plain(state.sum));
            }
            gathered = kernels::select_rows(&gathered, rows)?;
            beside = kernels::select_rows(&beside, rows)?;
            for stream in &mut predicted {
                *stream = kernels::select_rows(stream, rows)?;
            }
        }
        let attended = layer.mixer.output().forward(&gathered)?;
        let attended = normed(layer.attention_norms.after.as_ref(), &attended)?;
        let sum = ((&predicted[active] + attended)? + beside)?;
        let sum = (sum * std::f64::consts::FRAC_1_SQRT_2)?;
        let fed = normed(layer.feed_norms.before.as_ref(), &sum)?;
        let fed = layer
            .feed_forward
            .forward(&fed, &sum, LayerAdaptation::NONE)?;
        let activated = (&sum + normed(layer.feed_norms.after.as_ref(), &fed)?)?;
        let mut streams = alternating.correct(&predicted, &activated)?;
        if let (Some(input), Some(inputs)) = (&layer.input, step.inputs_of(index, rows)?) {
            let scaled = match &alternating.scale {
                Some(scale) => streams[active].broadcast_mul(scale)?,
                None => streams[active].clone(),
            };
            let added = input.forward(&scaled, &inputs)?;
            for stream in &mut streams[1..] {
                *stream = (&*stream + &added)?;
            }
        }
        let sum = streams[active].clone();
        let merged = match &self.streams {
            Some(all) if index + 1 == self.layers.len() => {
                normed(Some(&self.norm), &all.merge(&streams)?)?
            }
            _ => sum.clone(),
        };
        Ok(State {
            sum,
            normed: merged,
            streams,
        })
    }
}
