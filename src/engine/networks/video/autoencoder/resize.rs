//! Steps between the levels of a video autoencoder: in space, and for some in time as well.

use candle_core::{D, Result, Tensor, bail};

use super::stage::{CausalResnet, FrameMemory, FrameSlot, SlotCounter};
use crate::networks::adapter::Pass;
use crate::networks::blocks::{ComponentReader, ConvolutionLayer, block_end};
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Convolution, Edges, Resampling, resample};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Down,
    Up,
}

/// A step to a level of half or double the size. The first frame is separate in every level; pairs of the others are
/// one frame in the level below.
pub struct FrameResize {
    direction: Direction,
    space: ConvolutionLayer,
    time: Option<TimeConvolution>,
}

/// A convolution over three frames at each place.
struct TimeConvolution {
    convolution: Convolution,
    slot: FrameSlot,
}

impl FrameResize {
    pub fn load(
        reader: &mut ComponentReader,
        name: &str,
        [outputs, inputs]: [usize; 2],
        (direction, in_time): (Direction, bool),
        slots: &mut SlotCounter,
    ) -> std::result::Result<Self, Flaw> {
        let axis = match direction {
            // The padding is at the right and at the bottom alone.
            Direction::Down => Axis {
                stride: 2,
                padding: [0, 1],
                ..Axis::default()
            },
            Direction::Up => Axis {
                padding: [1, 1],
                ..Axis::default()
            },
        };
        let frames = match direction {
            Direction::Down => 1,
            Direction::Up => 2,
        };
        let mut time = None;
        if in_time {
            let name = format!("{name}.time_conv");
            let sizes = [frames * inputs, inputs];
            let axes = [Axis::default(); 2];
            time = Some(TimeConvolution {
                convolution: reader.convolution_of_maps(&name, sizes, [3, 1, 1], axes)?,
                slot: slots.next(),
            });
        }
        let name = format!("{name}.resample.1");
        Ok(Self {
            direction,
            space: reader.convolution(&name, [outputs, inputs, 3], axis)?,
            time,
        })
    }

    pub fn forward(&self, x: &Tensor, memory: &mut FrameMemory) -> Result<Vec<Tensor>> {
        match self.direction {
            Direction::Down => {
                let smaller = self.space(x)?;
                let frame = match &self.time {
                    Some(time) => time.halve(smaller, memory)?,
                    None => Some(smaller),
                };
                Ok(frame.into_iter().collect())
            }
            Direction::Up => {
                let frames = match &self.time {
                    Some(time) => time.double(x, memory)?,
                    None => vec![x.clone()],
                };
                let larger = frames.iter().map(|frame| {
                    let size = [2 * frame.dim(1)?, 2 * frame.dim(2)?];
                    self.space(&resample(frame, size, Resampling::Nearest)?)
                });
                larger.collect()
            }
        }
    }

    fn space(&self, x: &Tensor) -> Result<Tensor> {
        self.space.forward(x, Pass::plain(Edges::Zeros))
    }
}

impl TimeConvolution {
    /// The first frame as it is; then one for each two, from these and the one before.
    fn halve(&self, x: Tensor, memory: &mut FrameMemory) -> Result<Option<Tensor>> {
        let past = memory.of(self.slot);
        match std::mem::take(&mut past.frames) {
            [None, None] => {
                past.frames = [Some(x.clone()), None];
                Ok(Some(x))
            }
            [Some(last), Some(middle)] => {
                let joined = Tensor::cat(&[&last, &middle, &x], 3)?;
                past.frames = [Some(x), None];
                Ok(Some(self.convolution.apply(&joined)?))
            }
            [last, _] => {
                past.frames = [last, Some(x)];
                Ok(None)
            }
        }
    }

    /// The first frame as it is, and later ones do not see it; then two for each.
    fn double(&self, x: &Tensor, memory: &mut FrameMemory) -> Result<Vec<Tensor>> {
        let past = memory.of(self.slot);
        if !std::mem::replace(&mut past.has_begun, true) {
            return Ok(vec![x.clone()]);
        }
        let both = self.convolution.apply(&past.joined(x)?)?;
        let channels = both.dim(3)? / 2;
        let half = |index: usize| both.narrow(3, index * channels, channels)?.contiguous();
        Ok(vec![half(0)?, half(1)?])
    }
}

/// A level of Wan 2.2 with a path around it that has no weights: groups of numbers are averaged on the way down and
/// repeated on the way up.
pub struct ResidualLevel {
    resnets: Vec<CausalResnet>,
    resize: Option<FrameResize>,
    direction: Direction,
    outputs: usize,
    /// Frames, and pixels of a side, that are one in the smaller level.
    time: usize,
    space: usize,
    slot: FrameSlot,
}

impl ResidualLevel {
    pub fn new(
        (resnets, resize): (Vec<CausalResnet>, Option<FrameResize>),
        direction: Direction,
        [inputs, outputs]: [usize; 2],
        slots: &mut SlotCounter,
    ) -> std::result::Result<Self, Flaw> {
        let in_time = resize.as_ref().is_some_and(|resize| resize.time.is_some());
        let (time, space) = (1 + usize::from(in_time), 1 + usize::from(resize.is_some()));
        let factor = time * space * space;
        let is_even = match direction {
            Direction::Down => (inputs * factor).is_multiple_of(outputs),
            Direction::Up => resize.is_none() || (outputs * factor).is_multiple_of(inputs),
        };
        if !is_even {
            let found = format!("a level from {inputs} to {outputs} channels");
            return Err(Flaw::unsupported(
                "dim_mult",
                found,
                "levels of even groups",
            ));
        }
        Ok(Self {
            resnets,
            resize,
            direction,
            outputs,
            time,
            space,
            slot: slots.next(),
        })
    }

    pub async fn forward(&self, x: Tensor, memory: &mut FrameMemory) -> Result<Vec<Tensor>> {
        let mut inner = x.clone();
        for resnet in &self.resnets {
            inner = resnet.forward(&inner, memory)?;
            block_end().await;
        }
        let frames = match &self.resize {
            Some(resize) => resize.forward(&inner, memory)?,
            None => vec![inner],
        };
        let around = match self.direction {
            Direction::Down => self.averaged(x, memory)?,
            Direction::Up if self.resize.is_some() => self.repeated(&x, memory)?,
            // The last level of a decoder has no path around it.
            Direction::Up => return Ok(frames),
        };
        if frames.len() != around.len() {
            bail!("{} frames beside {}", frames.len(), around.len());
        }
        let pairs = frames.iter().zip(&around);
        pairs.map(|(frame, around)| frame + around).collect()
    }

    fn averaged(&self, x: Tensor, memory: &mut FrameMemory) -> Result<Vec<Tensor>> {
        let frames = match self.time {
            1 => vec![x],
            _ => {
                let past = memory.of(self.slot);
                let is_first = !std::mem::replace(&mut past.has_begun, true);
                match past.frames[1].take() {
                    Some(before) => vec![before, x],
                    // The first frame is separate.
                    None if is_first => vec![x.zeros_like()?, x],
                    None => {
                        past.frames[1] = Some(x);
                        return Ok(Vec::new());
                    }
                }
            }
        };
        let all = Tensor::cat(&frames, 0)?;
        let (time, height, width, channels) = all.dims4()?;
        let space = self.space;
        let (rows, columns) = (height / space, width / space);
        let parts = all.reshape(vec![time, rows, space, columns, space, channels])?;
        let parts = parts.permute(vec![1, 3, 5, 0, 2, 4])?.contiguous()?;
        let groups = parts.reshape((1, rows, columns, self.outputs, ()))?;
        Ok(vec![groups.mean(D::Minus1)?])
    }

    fn repeated(&self, x: &Tensor, memory: &mut FrameMemory) -> Result<Vec<Tensor>> {
        let (_, height, width, channels) = x.dims4()?;
        let (time, space) = (self.time, self.space);
        let repeats = self.outputs * time * space * space / channels;
        let wide = x
            .unsqueeze(4)?
            .expand((1, height, width, channels, repeats))?;
        let parts = wide.contiguous()?;
        let parts = parts.reshape(vec![height, width, self.outputs, time, space, space])?;
        let frames = parts.permute(vec![3, 0, 4, 1, 5, 2])?.contiguous()?;
        let frames = frames.reshape((time, height * space, width * space, self.outputs))?;
        // The first frame stays one.
        let is_first = !std::mem::replace(&mut memory.of(self.slot).has_begun, true);
        let from = if is_first { time - 1 } else { 0 };
        (from..time).map(|at| frames.narrow(0, at, 1)).collect()
    }
}
