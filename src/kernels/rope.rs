//! Rotary position embedding: a table of cosines and sines, and the rotation of queries and keys.

use std::sync::Arc;
use std::sync::Mutex;

use candle_core::{DType, Device, IndexOp, Result, Tensor, bail};

use super::{cpu, cuda, rms_norm};

/// The pairs of a head's values that are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Value `i` with value `i + half` (GPT-NeoX, and Llama as Hugging Face stores it).
    Halves,
    /// Value `2i` with value `2i + 1` (GPT-J, and Llama as GGUF files store it).
    Pairs,
}

/// Cosines and sines of every position up to the context, grown as positions are met.
#[derive(Debug)]
pub struct RopeTable {
    style: RopeStyle,
    inverse_frequencies: Vec<f64>,
    context: usize,
    /// Factor of cosines and sines (YaRN's attention factor), usually 1.
    magnitude: f64,
    angles: Mutex<Arc<Angles>>,
    on_device: Option<(Tensor, Tensor)>,
}

/// Cosines and sines, one row of `inverse_frequencies.len()` per position so far.
#[derive(Debug, Default)]
pub struct Angles {
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
}

impl RopeTable {
    /// Rotates the first `2 * inverse_frequencies.len()` values of a head and leaves the others unchanged.
    pub fn new(
        inverse_frequencies: Vec<f64>,
        context: usize,
        style: RopeStyle,
        magnitude: f64,
        device: &Device,
    ) -> Result<Self> {
        if inverse_frequencies.is_empty() {
            bail!("a rope table needs at least one frequency");
        }
        let mut table = Self {
            style,
            inverse_frequencies,
            context,
            magnitude,
            angles: Mutex::default(),
            on_device: None,
        };
        if !device.is_cpu() {
            let all = table.angles(context)?;
            let shape = (context, table.half());
            let cos = Tensor::from_slice(&all.cos, shape, device)?;
            let sin = Tensor::from_slice(&all.sin, shape, device)?;
            table.on_device = Some((cos, sin));
        }
        Ok(table)
    }

    /// A table of given angles, one row of `half` per position: for positions on several axes.
    pub fn of_angles(
        angles: &[f64],
        half: usize,
        style: RopeStyle,
        device: &Device,
    ) -> Result<Self> {
        if half == 0 || angles.is_empty() || !angles.len().is_multiple_of(half) {
            bail!("{} angles do not make rows of {half}", angles.len());
        }
        let (sin, cos) = angles
            .iter()
            .map(|angle| angle.sin_cos())
            .unzip::<f64, f64, Vec<_>, Vec<_>>();
        let narrow = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect();
        let angles = Angles {
            cos: narrow(cos),
            sin: narrow(sin),
        };
        let positions = angles.cos.len() / half;
        let on_device = match device.is_cpu() {
            true => None,
            false => Some((
                Tensor::from_slice(&angles.cos, (positions, half), device)?,
                Tensor::from_slice(&angles.sin, (positions, half), device)?,
            )),
        };
        Ok(Self {
            style,
            // The table is complete; no row is computed from frequencies.
            inverse_frequencies: vec![0.0; half],
            context: positions,
            magnitude: 1.0,
            angles: Mutex::new(Arc::new(angles)),
            on_device,
        })
    }

    pub fn style(&self) -> RopeStyle {
        self.style
    }

    /// Half of the rotated values.
    pub fn half(&self) -> usize {
        self.inverse_frequencies.len()
    }

    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "GPUs alone read it")
    )]
    pub(super) fn angles_on_device(&self) -> Option<[&Tensor; 2]> {
        self.on_device.as_ref().map(|(cos, sin)| [cos, sin])
    }

    /// Cosines and sines of at least the positions before `positions`.
    pub(super) fn angles(&self, positions: usize) -> Result<Arc<Angles>> {
        if positions > self.context {
            bail!(
                "position {} is outside the context of {} tokens",
                positions - 1,
                self.context
            );
        }
        let mut angles = match self.angles.lock() {
            Ok(angles) => angles,
            Err(poisoned) => poisoned.into_inner(),
        };
        if angles.cos.len() < positions * self.half() {
            let wanted = positions.next_power_of_two().max(256).min(self.context);
            *angles = Arc::new(self.computed(wanted));
        }
        Ok(Arc::clone(&angles))
    }

    fn computed(&self, positions: usize) -> Angles {
        let mut angles = Angles::default();
        for position in 0..positions {
            for frequency in &self.inverse_frequencies {
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                angles.cos.push((cos * self.magnitude) as f32);
                angles.sin.push((sin * self.magnitude) as f32);
            }
        }
        angles
    }
}

/// A norm of each head.
#[derive(Debug, Clone, Copy)]
pub struct HeadNorm<'a> {
    pub weight: &'a Tensor,
    pub eps: f64,
}

/// The changes of queries and keys before attention: first norms, then a rotation.
#[derive(Debug, Clone, Copy, Default)]
pub struct RotaryHeads<'a> {
    /// The norm of queries, and that of keys.
    pub norms: [Option<HeadNorm<'a>>; 2],
    /// A table, and the row of each position.
    pub rope: Option<(&'a RopeTable, &'a Tensor)>,
}

impl RotaryHeads<'_> {
    /// The queries (0) or keys (1) after the changes.
    pub fn applied(&self, to: usize, heads: &Tensor) -> Result<Tensor> {
        let mut heads = heads.clone();
        if let Some(norm) = self.norms[to] {
            heads = rms_norm(&heads, norm.weight, norm.eps)?;
        }
        match self.rope {
            Some((rope, positions)) => rotate(&heads, rope, positions),
            None => Ok(heads),
        }
    }

    /// Whether one kernel can apply them to heads of this type and size.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "GPUs alone ask"))]
    pub(super) fn fit(&self, heads: &Tensor) -> Result<bool> {
        let (rows, _, size) = heads.dims3()?;
        let mut norms = self.norms.iter().flatten();
        let eps = self.epsilon();
        let norms_fit = norms.all(|norm| {
            let weight = norm.weight;
            weight.dtype() == heads.dtype()
                && weight.dims() == [size]
                && norm.eps as f32 == eps
                && weight.is_contiguous()
        });
        let rope_fits = self.rope.is_none_or(|(rope, positions)| {
            2 * rope.half() <= size && positions.elem_count() == rows && rope.on_device.is_some()
        });
        Ok(norms_fit && rope_fits)
    }

    /// That of the norms, which is one.
    pub(super) fn epsilon(&self) -> f32 {
        let norm = self.norms.iter().flatten().next();
        norm.map_or(0.0, |norm| norm.eps as f32)
    }
}

/// Turns the heads of `x` (`[t, heads, d]`) by the angles of their positions (u32 `[t]`).
pub fn rotate(x: &Tensor, rope: &RopeTable, positions: &Tensor) -> Result<Tensor> {
    match &rope.on_device {
        Some((cos, sin)) => match cuda::rotate(x, rope.style, cos, sin, positions)? {
            Some(turned) => Ok(turned),
            None => rotate_on_device(x, rope.style, cos, sin, positions),
        },
        None => cpu::rotate(x, rope, positions),
    }
}

/// The same rotation in candle's own operations.
fn rotate_on_device(
    x: &Tensor,
    style: RopeStyle,
    cos: &Tensor,
    sin: &Tensor,
    positions: &Tensor,
) -> Result<Tensor> {
    let (tokens, heads, head_dim) = x.dims3()?;
    let half = cos.dim(1)?;
    if 2 * half > head_dim {
        bail!(
            "a rope of {} values does not fit heads of {head_dim}",
            2 * half
        );
    }
    let cos = cos.index_select(positions, 0)?.unsqueeze(1)?;
    let sin = sin.index_select(positions, 0)?.unsqueeze(1)?;
    let turning = x.narrow(2, 0, 2 * half)?.to_dtype(DType::F32)?;
    let (a, b) = match style {
        RopeStyle::Halves => (turning.narrow(2, 0, half)?, turning.narrow(2, half, half)?),
        RopeStyle::Pairs => {
            let pairs = turning.reshape((tokens, heads, half, 2))?;
            (pairs.i((.., .., .., 0))?, pairs.i((.., .., .., 1))?)
        }
    };
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    let turned = match style {
        RopeStyle::Halves => Tensor::cat(&[first, second], 2)?,
        RopeStyle::Pairs => {
            Tensor::stack(&[first, second], 3)?.reshape((tokens, heads, 2 * half))?
        }
    }
    .to_dtype(x.dtype())?;
    if 2 * half == head_dim {
        return Ok(turned);
    }
    let rest = x.narrow(2, 2 * half, head_dim - 2 * half)?;
    Tensor::cat(&[turned, rest], 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(style: RopeStyle, head_dim: usize) {
        let frequencies = (0..8)
            .map(|i| 1.0 / 10000f64.powf(i as f64 / 8.0))
            .collect();
        let table = RopeTable::new(frequencies, 4096, style, 1.0, &Device::Cpu).unwrap();
        let x = Tensor::randn(0f32, 1.0, (5, 3, head_dim), &Device::Cpu).unwrap();
        let positions = Tensor::new(&[0u32, 7, 300, 4095, 12], &Device::Cpu).unwrap();
        let found = rotate(&x, &table, &positions).unwrap();
        let all = table.angles(4096).unwrap();
        let cos = Tensor::from_slice(&all.cos, (4096, 8), &Device::Cpu).unwrap();
        let sin = Tensor::from_slice(&all.sin, (4096, 8), &Device::Cpu).unwrap();
        let wanted = rotate_on_device(&x, style, &cos, &sin, &positions).unwrap();
        let gap = (found - wanted).unwrap().abs().unwrap().max_all().unwrap();
        assert!(gap.to_scalar::<f32>().unwrap() < 1e-5);
    }

    #[test]
    fn halves_turn_as_on_other_devices() {
        check(RopeStyle::Halves, 16);
        check(RopeStyle::Halves, 24);
    }

    #[test]
    fn pairs_turn_as_on_other_devices() {
        check(RopeStyle::Pairs, 16);
        check(RopeStyle::Pairs, 24);
    }

    #[test]
    fn given_angles_turn_as_computed_ones() {
        let frequencies: Vec<f64> = (0..4).map(|i| 1.0 / 100f64.powi(i)).collect();
        let rows =
            (0..6).flat_map(|position| frequencies.iter().map(move |it| f64::from(position) * it));
        let rows: Vec<f64> = rows.collect();
        let x = Tensor::randn(0f32, 1.0, (3, 2, 8), &Device::Cpu).unwrap();
        let positions = Tensor::new(&[5u32, 0, 3], &Device::Cpu).unwrap();
        let given = RopeTable::of_angles(&rows, 4, RopeStyle::Pairs, &Device::Cpu).unwrap();
        let computed = RopeTable::new(frequencies, 6, RopeStyle::Pairs, 1.0, &Device::Cpu).unwrap();
        let floats = |table| -> Vec<f32> {
            let turned = rotate(&x, table, &positions).unwrap();
            turned.flatten_all().unwrap().to_vec1().unwrap()
        };
        assert_eq!(floats(&given), floats(&computed));
        assert!(RopeTable::of_angles(&rows[1..], 4, RopeStyle::Pairs, &Device::Cpu).is_err());
    }

    #[test]
    fn positions_outside_the_context_are_refused() {
        let table = RopeTable::new(vec![1.0], 4, RopeStyle::Halves, 1.0, &Device::Cpu).unwrap();
        let x = Tensor::zeros((1, 1, 2), DType::F32, &Device::Cpu).unwrap();
        let positions = Tensor::new(&[4u32], &Device::Cpu).unwrap();
        let error = rotate(&x, &table, &positions).unwrap_err().to_string();
        assert!(
            error.contains("position 4 is outside the context of 4 tokens"),
            "{error}"
        );
    }
}
