//! The keys of a GGUF file about recurrent layers.

use super::File;
use crate::networks::{
    text::{
        family::{Family, Naming, Part, Role},
        recurrent::{
            ConvolutionSpec, DeltaNetSpec, RecurrenceSpec, RecurrentLayers, StateSpaceSpec,
        },
    },
    weights::{Flaw, GgufValue},
};
use muster_kernels::RecurrenceShape;

impl File<'_> {
    /// Layers with the output of a recurrence are recurrent.
    pub(super) fn recurrent(&self, layers: usize) -> Result<Option<RecurrentLayers>, Flaw> {
        let (kind, output) = match self.family {
            Family::Qwen3Next | Family::Qwen35 | Family::Qwen35Moe => (
                RecurrenceSpec::DeltaNet(self.delta_net()?),
                Part::DeltaOutput,
            ),
            Family::Lfm2 | Family::Lfm2Moe => {
                let convolution = self.gated_convolution()?;
                (
                    RecurrenceSpec::Convolution(convolution),
                    Part::ConvolutionOutput,
                )
            }
            Family::GraniteHybrid => (
                RecurrenceSpec::StateSpace(self.state_space(layers)?),
                Part::SpaceOutput,
            ),
            _ => return Ok(None),
        };
        let recurrent: Vec<usize> = (0..layers)
            .filter(|layer| self.has_part(*layer, output))
            .collect();
        match recurrent.len() == layers {
            false => Ok(RecurrentLayers::new(kind, recurrent)),
            true => Err(Flaw::unsupported(
                "the layers",
                format!("{layers} recurrent ones"),
                "at least one layer that attends",
            )),
        }
    }

    fn gated_convolution(&self) -> Result<ConvolutionSpec, Flaw> {
        let taps = Naming::Gguf.bias(Role::Layer(0, Part::Convolution));
        Ok(ConvolutionSpec {
            kernel: self.size("shortconv.l_cache")?,
            channels: self.size("embedding_length")?,
            has_bias: self.checkpoint.tensor(&taps).is_some(),
        })
    }

    /// The key-value heads of attention layers; files of hybrid models list those of each layer, zero for recurrent
    /// ones.
    pub(super) fn kv_heads(
        &self,
        heads: usize,
        recurrent: Option<&RecurrentLayers>,
        layers: usize,
    ) -> Result<usize, Flaw> {
        let key = self.key("attention.head_count_kv");
        let Some(GgufValue::List(list)) = self.metadata.value(&key) else {
            return Ok(self
                .optional_size("attention.head_count_kv")?
                .unwrap_or(heads));
        };
        let is_recurrent = |layer: &usize| recurrent.is_some_and(|it| it.layers.contains(layer));
        let counts = list
            .iter()
            .map(|count| count.unsigned().unwrap_or(0) as usize);
        let counts: Vec<usize> = counts.take(layers).collect();
        let attending = (0..layers).find(|layer| !is_recurrent(layer));
        let wanted = attending
            .and_then(|layer| counts.get(layer))
            .copied()
            .unwrap_or(0);
        let fits = (0..layers).all(|layer| {
            let expected = if is_recurrent(&layer) { 0 } else { wanted };
            counts.get(layer) == Some(&expected)
        });
        match fits && list.len() >= layers {
            true => Ok(wanted),
            false => {
                let known = "the same number for all layers that attend, and 0 for recurrent ones";
                Err(Flaw::unsupported(key, format!("{counts:?}"), known))
            }
        }
    }

    fn state_space(&self, layers: usize) -> Result<StateSpaceSpec, Flaw> {
        let heads = self.size("ssm.time_step_rank")?;
        let has_bias = |part| {
            let names = (0..layers).map(|layer| Naming::Gguf.bias(Role::Layer(layer, part)));
            let mut tensors = names.map(|name| self.checkpoint.tensor(&name));
            tensors.any(|tensor| tensor.is_some())
        };
        Ok(StateSpaceSpec {
            kernel: self.size("ssm.conv_kernel")?,
            heads: RecurrenceShape {
                key_heads: self.size("ssm.group_count")?,
                value_heads: heads,
                key_dim: self.size("ssm.state_size")?,
                value_dim: self.value_dim(heads)?,
                is_tiled: false,
            },
            has_convolution_bias: has_bias(Part::SpaceConvolution),
            has_bias: has_bias(Part::SpaceInputs),
            step_limits: (0.0, f32::INFINITY),
        })
    }

    /// Numbers of a head, which all of them share alike.
    fn value_dim(&self, heads: usize) -> Result<usize, Flaw> {
        let values = self.size("ssm.inner_size")?;
        if !values.is_multiple_of(heads.max(1)) {
            let key = self.key("ssm.inner_size");
            let wanted = format!("a multiple of {heads} heads");
            return Err(Flaw::broken(key, values, wanted));
        }
        Ok(values / heads.max(1))
    }

    /// Converters reorder the value heads of Qwen3.5, so that they alternate between key heads.
    fn delta_net(&self) -> Result<DeltaNetSpec, Flaw> {
        let key_heads = self.size("ssm.group_count")?;
        let value_heads = self.size("ssm.time_step_rank")?;
        Ok(DeltaNetSpec {
            kernel: self.size("ssm.conv_kernel")?,
            heads: RecurrenceShape {
                key_heads,
                value_heads,
                key_dim: self.size("ssm.state_size")?,
                value_dim: self.value_dim(value_heads)?,
                is_tiled: self.rules.tiles_value_heads && key_heads != value_heads,
            },
        })
    }
}
