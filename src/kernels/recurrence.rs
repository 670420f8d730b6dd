//! Recurrent layers: a state of fixed size per sequence instead of keys and values of every token.
//!
//! A state is updated token by token in the same order however a prompt is cut into steps, so that a row's bits depend
//! on the tokens before it alone. Chunked forms of these recurrences need more multiplications on a CPU: with heads of
//! 128 numbers and chunks of 64 tokens a quarter more, and their results depend on the chunks' borders.

use candle_core::{Device, Result, Tensor, bail};

use super::{Constants, cpu, cuda};

/// One sequence's rows of a step, and its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSpan {
    /// Number of new tokens, in order, directly after those of the spans before this one.
    pub new_tokens: usize,
    /// Whether they are the first of their sequence, so that the slot's old state is cleared.
    pub is_first: bool,
    pub slot: usize,
}

/// Sizes of a layer's state of a sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateShape {
    /// Numbers of the past rows of a short convolution.
    pub convolution: usize,
    /// Numbers of the recurrence's state.
    pub recurrence: usize,
}

impl StateShape {
    pub fn bytes(self) -> usize {
        (self.convolution + self.recurrence) * size_of::<f32>()
    }
}

/// The states of one layer. Slots are made when a span first names them.
#[derive(Debug)]
pub struct LayerStates {
    shape: StateShape,
    store: StateStore,
}

#[derive(Debug)]
enum StateStore {
    Cpu(Vec<SequenceState>),
    Device(cuda::States),
}

/// A layer's state of one sequence.
#[derive(Debug, Clone)]
pub struct SequenceState {
    /// The last rows of the convolution's input, `[kernel - 1, channels]`.
    pub(super) convolution: Vec<f32>,
    /// `[heads, blocks, keys, lanes]`.
    pub(super) recurrence: Vec<f32>,
}

impl LayerStates {
    pub fn new(shape: StateShape, device: &Device) -> Result<Self> {
        let store = match device {
            Device::Cpu => StateStore::Cpu(Vec::new()),
            _ => StateStore::Device(cuda::States::new(shape, device)?),
        };
        Ok(Self { shape, store })
    }

    pub fn bytes(&self) -> usize {
        match &self.store {
            StateStore::Cpu(slots) => slots.len() * self.shape.bytes(),
            StateStore::Device(states) => states.bytes(),
        }
    }

    /// Allocates the slots of a step, and clears those of new sequences.
    pub fn prepare(&mut self, spans: &[StateSpan]) -> Result<()> {
        let slots = spans.iter().map(|span| span.slot + 1).max().unwrap_or(0);
        self.make(slots)?;
        // Kernels of devices do not read the states of new sequences.
        let StateStore::Cpu(states) = &mut self.store else {
            return Ok(());
        };
        for span in spans.iter().filter(|span| span.is_first) {
            let state = &mut states[span.slot];
            state.convolution.fill(0.0);
            state.recurrence.fill(0.0);
        }
        Ok(())
    }

    /// Gives a slot the state of another one.
    pub fn copy(&mut self, from: usize, to: usize) -> Result<()> {
        self.make(to + 1)?;
        match &mut self.store {
            StateStore::Cpu(slots) => {
                let Some(state) = slots.get(from).cloned() else {
                    bail!("there is no state {from} to copy");
                };
                slots[to] = state;
                Ok(())
            }
            StateStore::Device(states) => states.copy(from, to),
        }
    }

    fn make(&mut self, slots: usize) -> Result<()> {
        let shape = self.shape;
        match &mut self.store {
            StateStore::Cpu(states) => {
                states.resize_with(slots.max(states.len()), || SequenceState {
                    convolution: vec![0.0; shape.convolution],
                    recurrence: vec![0.0; shape.recurrence],
                });
                Ok(())
            }
            StateStore::Device(states) => states.make(slots),
        }
    }
}

/// The states of the spans of a prepared step.
fn of_spans<'s>(
    slots: &'s mut [SequenceState],
    spans: &[StateSpan],
) -> Result<Vec<&'s mut SequenceState>> {
    let mut slots: Vec<_> = slots.iter_mut().map(Some).collect();
    let states = spans.iter().map(|span| {
        let state = slots.get_mut(span.slot).and_then(Option::take);
        match state {
            Some(state) => Ok(state),
            None => bail!("two spans share the state {}", span.slot),
        }
    });
    states.collect()
}

/// A causal convolution of each channel over its last few tokens.
#[derive(Debug)]
pub struct ShortConvolution {
    /// `[kernel, channels]`.
    weight: Constants,
    bias: Option<Constants>,
    kernel: usize,
    channels: usize,
    has_silu: bool,
}

impl ShortConvolution {
    /// `weight` is `[channels, kernel]`, the newest token last.
    pub fn new(
        weight: &[f32],
        bias: Option<Vec<f32>>,
        kernel: usize,
        has_silu: bool,
    ) -> Result<Self> {
        let channels = weight.len() / kernel.max(1);
        let has_bias = bias.as_ref().is_none_or(|bias| bias.len() == channels);
        if kernel == 0 || weight.len() != channels * kernel || !has_bias {
            bail!(
                "{} weights do not make a convolution of {kernel} tokens",
                weight.len()
            );
        }
        let by_token = (0..kernel).flat_map(|at| weight.iter().skip(at).step_by(kernel).copied());
        Ok(Self {
            weight: by_token.collect::<Vec<f32>>().into(),
            bias: bias.map(Constants::from),
            kernel,
            channels,
            has_silu,
        })
    }

    /// Numbers of its past rows.
    pub fn state_numbers(&self) -> usize {
        (self.kernel - 1) * self.channels
    }

    /// Convolves rows `[tokens, channels]` into the same shape.
    pub fn forward(
        &self,
        x: &Tensor,
        states: &mut LayerStates,
        spans: &[StateSpan],
    ) -> Result<Tensor> {
        check_rows(x, self.channels, spans)?;
        match &mut states.store {
            StateStore::Cpu(slots) => {
                let convolution = cpu::ChannelTaps {
                    weight: &self.weight,
                    bias: self.bias.as_deref(),
                    kernel: self.kernel,
                    channels: self.channels,
                    has_silu: self.has_silu,
                };
                cpu::short_convolution(&convolution, x, &mut of_spans(slots, spans)?, spans)
            }
            StateStore::Device(states) => {
                let bias = self.bias.as_ref().map(|bias| bias.on(x.device()));
                let taps = cuda::DeviceTaps {
                    weight: self.weight.on(x.device())?,
                    bias: bias.transpose()?,
                    kernel: self.kernel,
                    channels: self.channels,
                    has_silu: self.has_silu,
                };
                states.short_convolution(&taps, x, spans)
            }
        }
    }
}

/// The heads of a linear recurrence: each value head has a state `[key_dim, value_dim]` that keys write and queries read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecurrenceShape {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// Value heads alternate between key heads; otherwise each key head serves neighbours.
    pub is_tiled: bool,
}

impl RecurrenceShape {
    /// Width of all keys together; queries have the same.
    pub fn key_size(&self) -> usize {
        self.key_heads * self.key_dim
    }

    pub fn value_size(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// The key head of a value head.
    pub fn key_head(&self, value_head: usize) -> usize {
        match self.is_tiled {
            true => value_head % self.key_heads,
            false => value_head / (self.value_heads / self.key_heads),
        }
    }

    /// Numbers of the state of a sequence.
    pub fn state_numbers(&self) -> usize {
        let padded = self.value_dim.next_multiple_of(cpu::STATE_LANES);
        self.value_heads * self.key_dim * padded
    }
}

/// The gated delta rule: a token lets a head's state decay, replaces the share `beta` of the value that its key reads there,
/// and reads with its query. Keys and queries have unit length.
#[derive(Debug)]
pub struct DeltaRule {
    pub shape: RecurrenceShape,
    /// Negative, per value head: the decay is `exp(rate * step)`.
    pub rates: Constants,
    /// Added to the steps before their softplus.
    pub step_bias: Constants,
}

impl DeltaRule {
    /// Maps `[tokens, queries | keys | values]`, the step and the logit of `beta` of each value head to values
    /// `[tokens, value_heads * value_dim]`.
    pub fn forward(
        &self,
        qkv: &Tensor,
        steps: &Tensor,
        betas: &Tensor,
        states: &mut LayerStates,
        spans: &[StateSpan],
    ) -> Result<Tensor> {
        let shape = self.shape;
        check_rows(qkv, 2 * shape.key_size() + shape.value_size(), spans)?;
        check_rows(steps, shape.value_heads, spans)?;
        check_rows(betas, shape.value_heads, spans)?;
        if [&self.rates, &self.step_bias].map(|numbers| numbers.len()) != [shape.value_heads; 2] {
            bail!("the rates do not fit {} value heads", shape.value_heads);
        }
        let slots = match &mut states.store {
            StateStore::Cpu(slots) => slots,
            StateStore::Device(states) => {
                return states.delta_rule(self, [qkv, steps, betas], spans);
            }
        };
        cpu::delta_rule(
            self,
            [qkv, steps, betas],
            &mut of_spans(slots, spans)?,
            spans,
        )
    }
}

/// Mamba-2's recurrence: a token lets a head's state decay, adds the product of its key and value in the size of its step, and
/// reads with its query.
#[derive(Debug)]
pub struct StateSpace {
    pub shape: RecurrenceShape,
    /// Negative, per value head: the decay is `exp(rate * step)`.
    pub rates: Constants,
    /// Added to the steps before their softplus.
    pub step_bias: Constants,
    /// Steps are no smaller and no larger.
    pub step_limits: (f32, f32),
    /// Per head, the factor of the value that is added to the query's result.
    pub skips: Constants,
}

impl StateSpace {
    /// Maps `[tokens, values | keys | queries]` and the step of each value head to values
    /// `[tokens, value_heads * value_dim]`.
    pub fn forward(
        &self,
        inputs: &Tensor,
        steps: &Tensor,
        states: &mut LayerStates,
        spans: &[StateSpan],
    ) -> Result<Tensor> {
        let shape = self.shape;
        check_rows(inputs, 2 * shape.key_size() + shape.value_size(), spans)?;
        check_rows(steps, shape.value_heads, spans)?;
        let of_heads = [&self.rates, &self.step_bias, &self.skips];
        if of_heads.map(|numbers| numbers.len()) != [shape.value_heads; 3] {
            bail!("the rates do not fit {} value heads", shape.value_heads);
        }
        match &mut states.store {
            StateStore::Cpu(slots) => {
                let mut states = of_spans(slots, spans)?;
                cpu::state_space(self, [inputs, steps], &mut states, spans)
            }
            StateStore::Device(states) => states.state_space(self, [inputs, steps], spans),
        }
    }
}

fn check_rows(x: &Tensor, width: usize, spans: &[StateSpan]) -> Result<()> {
    let rows: usize = spans.iter().map(|span| span.new_tokens).sum();
    match x.dims() == [rows, width] {
        true => Ok(()),
        false => bail!("got {:?}, expected {rows} rows of {width}", x.dims()),
    }
}
