//! The tensors of recurrent layers, and of gated attention.

use std::ops::Range;

use super::super::{
    family::{Naming, Part, Role},
    recurrent::{ConvolutionSpec, DeltaNetSpec, RecurrenceSpec, StateSpaceSpec},
    spec::DecoderSpec,
};
use super::tensors::{Loader, RowRange};
use crate::networks::{
    layers::{GatedConvolution, GatedDeltaNet, Linear, RmsNorm, StateSpaceLayer, TokenMixer},
    weights::Flaw,
};
use muster_kernels::{DeltaRule, ShortConvolution, StateSpace};

impl Loader<'_> {
    pub fn mixer(&mut self, spec: &DecoderSpec, index: usize) -> Result<TokenMixer, Flaw> {
        let Some(recurrence) = spec.recurrence(index) else {
            if let Some(latent) = &spec.latent {
                let latent = self.latent_attention(spec, latent, index)?;
                return Ok(TokenMixer::Latent(Box::new(latent)));
            }
            let attention = self.attention(spec, index)?;
            return Ok(TokenMixer::Attention(Box::new(attention)));
        };
        match recurrence {
            RecurrenceSpec::DeltaNet(net) => {
                let net = self.delta_net(spec, net, index)?;
                Ok(TokenMixer::DeltaNet(Box::new(net)))
            }
            RecurrenceSpec::Convolution(convolution) => {
                let convolution = self.gated_convolution(spec, convolution, index)?;
                Ok(TokenMixer::Convolution(Box::new(convolution)))
            }
            RecurrenceSpec::StateSpace(space) => {
                let space = self.state_space(spec, space, index)?;
                Ok(TokenMixer::StateSpace(Box::new(space)))
            }
        }
    }

    /// Queries and their gates, which files hold head by head in one matrix.
    pub fn gated_queries(
        &mut self,
        spec: &DecoderSpec,
        index: usize,
    ) -> Result<(Linear, Linear), Flaw> {
        let (role, total) = (Role::Layer(index, Part::Query), 2 * spec.query_size(index));
        let has_bias = spec.biases.query_key_value;
        let half = |second: usize| {
            let starts = (0..spec.heads).map(move |head| (2 * head + second) * spec.head_dim);
            starts.map(|start| start..start + spec.head_dim).collect()
        };
        let mut rows = |rows: Vec<Range<usize>>| {
            let weight = self.gathered(role, total, &rows, spec.hidden_size)?;
            let bias = match has_bias {
                false => None,
                true => {
                    let all = self.numbers(&self.naming.bias(role), &[total])?;
                    let rows = rows.into_iter().flat_map(|rows| all[rows].to_vec());
                    Some(self.vector(rows.collect())?)
                }
            };
            Ok::<_, Flaw>(Linear { bias, ..weight })
        };
        Ok((rows(half(0))?, rows(half(1))?))
    }

    fn delta_net(
        &mut self,
        spec: &DecoderSpec,
        net: &DeltaNetSpec,
        index: usize,
    ) -> Result<GatedDeltaNet, Flaw> {
        let role = |part| Role::Layer(index, part);
        let (hidden, heads) = (spec.hidden_size, net.heads);
        let (values, count) = (heads.value_size(), heads.value_heads);
        let [qkv, gate] = self.delta_inputs(net, index, hidden)?;
        let [beta, step] = self.delta_steps(net, index, hidden)?;
        let convolution = role(Part::DeltaConvolution);
        let convolution = self.taps(convolution, (net.convolved(), net.kernel))?;
        let mut rates = self.numbers(&self.naming.weight(role(Part::DeltaRates)), &[count])?;
        if self.naming != Naming::Gguf {
            rates.iter_mut().for_each(|rate| *rate = -rate.exp());
        }
        let step_bias = self.numbers(&self.naming.bias(role(Part::DeltaStepBias)), &[count])?;
        let norm = self.naming.weight(role(Part::DeltaNorm));
        let norm = self.numbers(&norm, &[heads.value_dim])?;
        let output = RowRange::all(role(Part::DeltaOutput), hidden);
        Ok(GatedDeltaNet {
            qkv,
            gate,
            step,
            beta,
            convolution: ShortConvolution::new(&convolution, None, net.kernel, true)?,
            rule: DeltaRule {
                shape: heads,
                rates: rates.into(),
                step_bias: step_bias.into(),
            },
            norm: RmsNorm {
                weight: self.vector(norm)?,
                eps: spec.norm_eps,
            },
            output: self.linear(output, values, false)?,
        })
    }

    /// The weights `[channels, kernel]` of a short convolution.
    fn taps(&mut self, role: Role, (channels, kernel): (usize, usize)) -> Result<Vec<f32>, Flaw> {
        let name = self.naming.weight(role);
        match self.naming {
            Naming::Gguf => self.numbers(&name, &[channels, kernel]),
            _ => self.numbers(&name, &[channels, 1, kernel]),
        }
    }

    fn gated_convolution(
        &mut self,
        spec: &DecoderSpec,
        convolution: &ConvolutionSpec,
        index: usize,
    ) -> Result<GatedConvolution, Flaw> {
        let &ConvolutionSpec {
            kernel,
            channels,
            has_bias,
        } = convolution;
        let taps = Role::Layer(index, Part::Convolution);
        let weight = self.taps(taps, (channels, kernel))?;
        let bias = match has_bias {
            true => Some(self.numbers(&self.naming.bias(taps), &[channels])?),
            false => None,
        };
        let inputs = Part::ConvolutionInputs;
        let [before, after, input] = self.rows(index, inputs, [(inputs, channels); 3]);
        let output = RowRange::all(
            Role::Layer(index, Part::ConvolutionOutput),
            spec.hidden_size,
        );
        Ok(GatedConvolution {
            inputs: [
                self.linear(before, spec.hidden_size, has_bias)?,
                self.linear(after, spec.hidden_size, has_bias)?,
                self.linear(input, spec.hidden_size, has_bias)?,
            ],
            convolution: ShortConvolution::new(&weight, bias, kernel, false)?,
            output: self.linear(output, channels, has_bias)?,
        })
    }

    fn state_space(
        &mut self,
        spec: &DecoderSpec,
        space: &StateSpaceSpec,
        index: usize,
    ) -> Result<StateSpaceLayer, Flaw> {
        let role = |part| Role::Layer(index, part);
        let (hidden, heads) = (spec.hidden_size, space.heads);
        let (values, count) = (heads.value_size(), heads.value_heads);
        let fused = Part::SpaceInputs;
        let parts = [(fused, values), (fused, space.convolved()), (fused, count)];
        let [gate, inputs, step] = self.rows(index, fused, parts);
        let taps = role(Part::SpaceConvolution);
        let weight = self.taps(taps, (space.convolved(), space.kernel))?;
        let bias = match space.has_convolution_bias {
            true => Some(self.numbers(&self.naming.bias(taps), &[space.convolved()])?),
            false => None,
        };
        let is_gguf = self.naming == Naming::Gguf;
        let column = [count, 1];
        let of_heads = if is_gguf { &column[..] } else { &column[..1] };
        let rates = self.numbers(&self.naming.weight(role(Part::SpaceRates)), of_heads)?;
        let skips = self.numbers(&self.naming.weight(role(Part::SpaceSkips)), of_heads)?;
        let step_bias = self.naming.bias(role(Part::SpaceStepBias));
        let scale = self.naming.weight(role(Part::SpaceNorm));
        let scale = match is_gguf {
            true => {
                let groups = [heads.key_heads, values / heads.key_heads];
                self.numbers(&scale, &groups)?
            }
            false => self.numbers(&scale, &[values])?,
        };
        let output = RowRange::all(role(Part::SpaceOutput), hidden);
        Ok(StateSpaceLayer {
            gate: self.linear(gate, hidden, space.has_bias)?,
            inputs: self.linear(inputs, hidden, space.has_bias)?,
            step: self.linear(step, hidden, space.has_bias)?,
            convolution: ShortConvolution::new(&weight, bias, space.kernel, true)?,
            space: StateSpace {
                shape: heads,
                rates: match is_gguf {
                    true => rates.into(),
                    false => {
                        let rates = rates.into_iter().map(|rate| -rate.exp());
                        rates.collect::<Vec<f32>>().into()
                    }
                },
                step_bias: self.numbers(&step_bias, &[count])?.into(),
                step_limits: space.step_limits,
                skips: skips.into(),
            },
            norm: RmsNorm {
                weight: self.vector(vec![1.0; values / heads.key_heads])?,
                eps: spec.norm_eps,
            },
            scale: self.vector(scale)?,
            output: self.linear(output, values, space.has_bias)?,
        })
    }

    /// Queries, keys and values, and the gate of the values. Qwen3-Next has them key head by key head in one matrix.
    fn delta_inputs(
        &mut self,
        net: &DeltaNetSpec,
        index: usize,
        hidden: usize,
    ) -> Result<[Linear; 2], Flaw> {
        let heads = net.heads;
        let fused = Role::Layer(index, Part::DeltaInputs);
        if !self.has(&self.naming.weight(fused)) {
            let qkv = RowRange::all(Role::Layer(index, Part::DeltaQkv), net.convolved());
            let gate = RowRange::all(Role::Layer(index, Part::DeltaGate), heads.value_size());
            return Ok([
                self.linear(qkv, hidden, false)?,
                self.linear(gate, hidden, false)?,
            ]);
        }
        let (keys, values) = (heads.key_dim, heads.value_size() / heads.key_heads);
        let each = 2 * keys + 2 * values;
        let total = each * heads.key_heads;
        let part = |first: usize, count: usize| {
            let starts = (0..heads.key_heads).map(move |head| head * each + first);
            starts.map(move |start| start..start + count)
        };
        let qkv = part(0, keys).chain(part(keys, keys));
        let qkv: Vec<_> = qkv.chain(part(2 * keys, values)).collect();
        let gate: Vec<_> = part(2 * keys + values, values).collect();
        Ok([
            self.gathered(fused, total, &qkv, hidden)?,
            self.gathered(fused, total, &gate, hidden)?,
        ])
    }

    /// The logits of written shares, and the steps, in the same order.
    fn delta_steps(
        &mut self,
        net: &DeltaNetSpec,
        index: usize,
        hidden: usize,
    ) -> Result<[Linear; 2], Flaw> {
        let heads = net.heads;
        let fused = Role::Layer(index, Part::DeltaBetasAndSteps);
        if !self.has(&self.naming.weight(fused)) {
            let rows = |part| RowRange::all(Role::Layer(index, part), heads.value_heads);
            return Ok([
                self.linear(rows(Part::DeltaBetas), hidden, false)?,
                self.linear(rows(Part::DeltaSteps), hidden, false)?,
            ]);
        }
        let each = heads.value_heads / heads.key_heads;
        let half = |second: usize| {
            let starts = (0..heads.key_heads).map(move |head| (2 * head + second) * each);
            starts.map(|start| start..start + each).collect::<Vec<_>>()
        };
        let total = 2 * heads.value_heads;
        Ok([
            self.gathered(fused, total, &half(0), hidden)?,
            self.gathered(fused, total, &half(1), hidden)?,
        ])
    }
}
