//! Image rows of a step: hidden states from a vision tower, and positions on three axes.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::{decoder::Batch, rope::RopeAxes, spec::DecoderSpec};
use crate::networks::vision::{ImageFeatures, VisionFamily};
use muster_kernels::{RopeStyle, RopeTable};

/// Rows of a batch that are given instead of embedded.
#[derive(Debug, Clone)]
pub struct ImageRows {
    /// The place of the first among the batch's tokens.
    pub first: usize,
    pub features: ImageFeatures,
}

/// Positions on the axes of time, rows and columns. Text has the same position on all three.
pub type AxisPositions = [u32; 3];

/// Rope frequencies, with the axis of each.
#[derive(Debug)]
pub(super) struct AxisFrequencies(Vec<(f64, usize)>);

/// The images of a step, for its layers.
#[derive(Default)]
pub(super) struct StepImages {
    /// Angles of each row, and the rows in order.
    pub turned: Option<(RopeTable, Tensor)>,
    rows: Vec<ImageRows>,
    total: usize,
}

impl ImageRows {
    fn len(&self) -> Result<usize> {
        self.features.embeddings.dim(0)
    }
}

impl ImageFeatures {
    /// Some of the image's tokens.
    pub fn part(&self, first: usize, count: usize) -> Result<Self> {
        let part = |rows: &Tensor| rows.narrow(0, first, count)?.contiguous();
        Ok(Self {
            embeddings: part(&self.embeddings)?,
            added: self.added.iter().map(part).collect::<Result<_>>()?,
        })
    }
}

impl AxisFrequencies {
    pub fn new(spec: &DecoderSpec) -> Option<Self> {
        let axes = spec.rope_axes?;
        let frequencies = spec.rope.inverse_frequencies(spec.context);
        let with_axis = |(at, frequency)| (frequency, axes.axis(at));
        Some(Self(
            frequencies.into_iter().enumerate().map(with_axis).collect(),
        ))
    }

    fn table(
        &self,
        rows: &[AxisPositions],
        style: RopeStyle,
        device: &Device,
    ) -> Result<RopeTable> {
        let angles = rows.iter().flat_map(|row| {
            let angle = |(frequency, axis): &(f64, usize)| f64::from(row[*axis]) * frequency;
            self.0.iter().map(angle)
        });
        let angles: Vec<f64> = angles.collect();
        RopeTable::of_angles(&angles, self.0.len(), style, device)
    }
}

impl RopeAxes {
    /// The axis of a frequency. With interleaved axes, time has the remaining frequencies.
    pub fn axis(&self, frequency: usize) -> usize {
        if !self.is_interleaved {
            let [time, rows, _] = self.sections;
            return usize::from(frequency >= time) + usize::from(frequency >= time + rows);
        }
        let axis = frequency % 3;
        match frequency / 3 < self.sections[axis] {
            true => axis,
            false => 0,
        }
    }
}

impl StepImages {
    /// Checks the images of a batch. `frequencies` is set for decoders whose positions have axes.
    pub fn new(
        batch: &Batch,
        frequencies: Option<&AxisFrequencies>,
        spec: &DecoderSpec,
        device: &Device,
    ) -> Result<Self> {
        let total = batch.tokens.len();
        let mut next = 0;
        for rows in &batch.images {
            let (count, hidden) = rows.features.embeddings.dims2()?;
            if rows.first < next || rows.first + count > total || hidden != spec.hidden_size {
                bail!("{count} image rows of {hidden} do not fit a step of {total} tokens");
            }
            let added = rows.features.added.iter().map(Tensor::dims);
            if rows.features.added.len() >= spec.layers
                || added.clone().any(|dims| dims != [count, hidden])
            {
                bail!("features added to image rows do not fit the decoder's layers");
            }
            next = rows.first + count;
        }
        let turned = match (batch.positions.len(), frequencies) {
            (0, _) => None,
            (found, Some(frequencies)) if found == total => {
                let table = frequencies.table(&batch.positions, spec.rope.style, device)?;
                Some((table, Tensor::arange(0, total as u32, device)?))
            }
            (found, Some(_)) => bail!("got {found} positions for {total} tokens"),
            (_, None) => bail!("positions of this decoder have no axes"),
        };
        Ok(Self {
            turned,
            rows: batch.images.clone(),
            total,
        })
    }

    /// Blocks of rows that attend to each other, in decoders with bidirectional attention within an image.
    pub fn blocks(&self, spec: &DecoderSpec) -> Result<Vec<Range<usize>>> {
        if !spec.vision.is_some_and(VisionFamily::has_blocks) {
            return Ok(Vec::new());
        }
        let blocks = self
            .rows
            .iter()
            .map(|rows| Ok(rows.first..rows.first + rows.len()?));
        blocks.collect()
    }

    /// Replaces the embeddings of image tokens by image features.
    pub fn embedded(&self, embeddings: Tensor) -> Result<Tensor> {
        if self.rows.is_empty() {
            return Ok(embeddings);
        }
        let text = |first, count| embeddings.narrow(0, first, count);
        let image = |rows: &ImageRows| Ok(rows.features.embeddings.clone());
        self.joined(text, image, embeddings.dtype())
    }

    /// Adds the images' features for this layer to its output.
    pub fn after_layer(&self, layer: usize, sum: Tensor) -> Result<Tensor> {
        let has_some = |rows: &ImageRows| layer < rows.features.added.len();
        if !self.rows.iter().any(has_some) {
            return Ok(sum);
        }
        let (hidden, dtype) = (sum.dim(1)?, sum.dtype());
        let nothing = |count| Tensor::zeros((count, hidden), dtype, sum.device());
        let image = |rows: &ImageRows| match rows.features.added.get(layer) {
            Some(added) => Ok(added.clone()),
            None => nothing(rows.len()?),
        };
        let added = self.joined(|_, count| nothing(count), image, dtype)?;
        sum + added
    }

    /// All rows of the step: images, and text between them.
    fn joined(
        &self,
        text: impl Fn(usize, usize) -> Result<Tensor>,
        image: impl Fn(&ImageRows) -> Result<Tensor>,
        dtype: DType,
    ) -> Result<Tensor> {
        let mut parts = Vec::new();
        let mut next = 0;
        for rows in &self.rows {
            if rows.first > next {
                parts.push(text(next, rows.first - next)?);
            }
            parts.push(image(rows)?.to_dtype(dtype)?);
            next = rows.first + rows.len()?;
        }
        if self.total > next {
            parts.push(text(next, self.total - next)?);
        }
        Tensor::cat(&parts, 0)
    }
}
