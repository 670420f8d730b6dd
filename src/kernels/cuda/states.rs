//! The states of a recurrent layer on a GPU, `[slots, numbers]`.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::recurrence;
use crate::recurrence::{DeltaRule, RecurrenceShape, StateShape, StateSpace, StateSpan};

/// Limit of the taps of a convolution's kernel.
const MOST_TAPS: usize = 8;

#[derive(Debug)]
pub struct States {
    shape: StateShape,
    device: Device,
    /// Past inputs of convolutions, and the states of recurrences; `None` before the first slot is allocated.
    numbers: Option<[Tensor; 2]>,
    slots: usize,
    /// The uploaded spans of the last step, cached because decoding repeats them.
    spans: Option<(Vec<StateSpan>, Tensor)>,
}

/// A short convolution of each channel.
pub struct DeviceTaps<'a> {
    /// `[kernel, channels]`.
    pub weight: &'a Tensor,
    pub bias: Option<&'a Tensor>,
    pub kernel: usize,
    pub channels: usize,
    pub has_silu: bool,
}

/// A step of a linear recurrence.
pub struct StateStep<'a> {
    /// The kernel's name without the size of keys.
    pub name: &'static str,
    pub shape: RecurrenceShape,
    pub rates: &'a Tensor,
    pub step_bias: &'a Tensor,
    pub skips: Option<&'a Tensor>,
    /// Offsets of queries, keys and values in a row.
    pub offsets: [usize; 3],
    pub step_limits: (f32, f32),
}

impl States {
    pub fn new(shape: StateShape, device: &Device) -> Result<Self> {
        Ok(Self {
            shape,
            device: device.clone(),
            numbers: None,
            slots: 0,
            spans: None,
        })
    }

    /// Past inputs of convolutions, and the states of recurrences.
    pub(super) fn numbers(&self) -> Result<&[Tensor; 2]> {
        match &self.numbers {
            Some(numbers) => Ok(numbers),
            None => bail!("no step was prepared"),
        }
    }

    pub fn bytes(&self) -> usize {
        self.slots * self.shape.bytes()
    }

    /// Makes slots up to this one.
    pub fn make(&mut self, slots: usize) -> Result<()> {
        if slots <= self.slots {
            return Ok(());
        }
        // Grows by half, because growing copies all states.
        let slots = slots.max(self.slots + self.slots / 2);
        let more = |numbers: usize| {
            let shape = (slots - self.slots, numbers.max(1));
            Tensor::zeros(shape, DType::F32, &self.device)
        };
        let [convolution, recurrence] =
            [more(self.shape.convolution)?, more(self.shape.recurrence)?];
        self.numbers = Some(match &self.numbers {
            None => [convolution, recurrence],
            Some([before, states]) => [
                Tensor::cat(&[before, &convolution], 0)?,
                Tensor::cat(&[states, &recurrence], 0)?,
            ],
        });
        self.slots = slots;
        Ok(())
    }

    /// Gives a slot the state of another one.
    pub fn copy(&mut self, from: usize, to: usize) -> Result<()> {
        if from.max(to) >= self.slots {
            bail!("there is no state {from} to copy to {to}");
        }
        for states in self.numbers()? {
            // Copies first, because a tensor cannot be written from itself.
            let state = states.narrow(0, from, 1)?.copy()?;
            states.slice_set(&state, 0, to)?;
        }
        Ok(())
    }

    /// Four numbers of each span: its first row, its rows, its slot, and whether they are the first of their sequence.
    pub(super) fn told(&mut self, spans: &[StateSpan]) -> Result<Tensor> {
        if let Some((known, numbers)) = &self.spans
            && known == spans
        {
            return Ok(numbers.clone());
        }
        let mut numbers = Vec::with_capacity(4 * spans.len());
        let mut first = 0;
        for span in spans {
            if span.slot >= self.slots {
                bail!("there is no state {}", span.slot);
            }
            let row = [
                first,
                span.new_tokens,
                span.slot,
                usize::from(span.is_first),
            ];
            numbers.extend(row.map(|number| number as u32));
            first += span.new_tokens;
        }
        let numbers = Tensor::new(numbers, &self.device)?;
        self.spans = Some((spans.to_vec(), numbers.clone()));
        Ok(numbers)
    }

    pub fn short_convolution(
        &mut self,
        taps: &DeviceTaps<'_>,
        x: &Tensor,
        spans: &[StateSpan],
    ) -> Result<Tensor> {
        if taps.kernel > MOST_TAPS {
            let found = taps.kernel;
            bail!("convolutions of {found} tokens on a GPU are not supported; at most {MOST_TAPS}");
        }
        recurrence::short_convolution(self, taps, x, spans)
    }

    pub fn delta_rule(
        &mut self,
        rule: &DeltaRule,
        [qkv, steps, betas]: [&Tensor; 3],
        spans: &[StateSpan],
    ) -> Result<Tensor> {
        let shape = rule.shape;
        let step = StateStep {
            name: "delta_rule",
            shape,
            rates: rule.rates.on(qkv.device())?,
            step_bias: rule.step_bias.on(qkv.device())?,
            skips: None,
            offsets: [0, shape.key_size(), 2 * shape.key_size()],
            step_limits: (0.0, f32::MAX),
        };
        recurrence::run(&step, self, [qkv, steps, betas], spans)
    }

    pub fn state_space(
        &mut self,
        space: &StateSpace,
        [inputs, steps]: [&Tensor; 2],
        spans: &[StateSpan],
    ) -> Result<Tensor> {
        let shape = space.shape;
        let step = StateStep {
            name: "state_space",
            shape,
            rates: space.rates.on(inputs.device())?,
            step_bias: space.step_bias.on(inputs.device())?,
            skips: Some(space.skips.on(inputs.device())?),
            offsets: [shape.value_size() + shape.key_size(), shape.value_size(), 0],
            step_limits: space.step_limits,
        };
        recurrence::run(&step, self, [inputs, steps, steps], spans)
    }
}
