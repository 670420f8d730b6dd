//! Maps a convolution's outputs to their inputs along one axis.

use candle_core::{Result, bail};

/// Values that a convolution sees beyond the edges of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Edges {
    #[default]
    Zeros,
    /// The other end: pictures that tile, longitudes.
    Circular,
    /// The outermost value.
    Replicate,
    /// Mirrored at the outermost value, which is not repeated.
    Reflect,
}

/// How a convolution walks along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    pub stride: usize,
    pub dilation: usize,
    /// Padding at both ends of the input. In a transposed convolution, the amount cut off both ends of the result.
    pub padding: [usize; 2],
    pub edges: Edges,
    /// Places that a transposed convolution appends to its result.
    pub output_padding: usize,
}

impl Default for Axis {
    fn default() -> Self {
        Self {
            stride: 1,
            dilation: 1,
            padding: [0; 2],
            edges: Edges::Zeros,
            output_padding: 0,
        }
    }
}

impl Axis {
    /// Which input every tap of every output sees; [`NOTHING`] where it sees none.
    pub fn walk(self, input: usize, taps: usize, is_transposed: bool) -> Result<Walk> {
        if self.stride == 0 || self.dilation == 0 || taps == 0 || input == 0 {
            bail!("a convolution needs an input, a kernel, a stride and a dilation of at least 1");
        }
        let [before, after] = self.padding;
        let reach = self.dilation * (taps - 1);
        if is_transposed {
            let whole = (input - 1) * self.stride + reach + 1 + self.output_padding;
            let Some(outputs) = whole.checked_sub(before + after).filter(|count| *count > 0) else {
                bail!("padding of {before} and {after} leaves nothing of {whole} places");
            };
            let seen = |output: usize, tap: usize| {
                let place = (output + before).checked_sub(tap * self.dilation)?;
                let seen = place / self.stride;
                (place.is_multiple_of(self.stride) && seen < input).then_some(seen)
            };
            return Ok(Walk::new(outputs, taps, self.stride, seen));
        }
        let Some(room) = (input + before + after).checked_sub(reach + 1) else {
            bail!(
                "a kernel that reaches over {} places does not fit {input}",
                reach + 1
            );
        };
        let longest = match self.edges {
            Edges::Circular => input,
            Edges::Reflect => input - 1,
            Edges::Zeros | Edges::Replicate => usize::MAX,
        };
        if before.max(after) > longest {
            bail!(
                "{:?} padding of {before} and {after} needs a longer input than {input}",
                self.edges
            );
        }
        let seen = |output: usize, tap: usize| {
            let place = output * self.stride + tap * self.dilation;
            let (end, place) = (input as isize, place as isize - before as isize);
            let seen = match self.edges {
                Edges::Zeros => place,
                Edges::Circular => place.rem_euclid(end),
                Edges::Replicate => place.clamp(0, end - 1),
                Edges::Reflect if place < 0 => -place,
                Edges::Reflect if place >= end => 2 * (end - 1) - place,
                Edges::Reflect => place,
            };
            usize::try_from(seen).ok().filter(|seen| *seen < input)
        };
        Ok(Walk::new(room / self.stride + 1, taps, 1, seen))
    }
}

/// No input.
pub const NOTHING: u32 = u32::MAX;

/// The inputs of all outputs along one axis.
#[derive(Debug)]
pub struct Walk {
    /// Outputs in the order of work, grouped by equal taps.
    pub order: Vec<usize>,
    seen: Vec<u32>,
    taps: usize,
}

impl Walk {
    fn new(
        outputs: usize,
        taps: usize,
        phases: usize,
        seen: impl Fn(usize, usize) -> Option<usize>,
    ) -> Self {
        let order = (0..phases).flat_map(|phase| (phase..outputs).step_by(phases));
        let pairs = (0..outputs).flat_map(|output| (0..taps).map(move |tap| (output, tap)));
        let seen = pairs.map(|(output, tap)| seen(output, tap).map_or(NOTHING, |at| at as u32));
        Self {
            order: order.collect(),
            seen: seen.collect(),
            taps,
        }
    }

    pub fn outputs(&self) -> usize {
        self.order.len()
    }

    /// The inputs of all taps of one output after the other.
    pub fn all(&self) -> &[u32] {
        &self.seen
    }

    pub fn seen(&self, output: usize, tap: usize) -> u32 {
        self.seen[output * self.taps + tap]
    }
}
