//! The safety checker of Stable Diffusion: similarities of an image's CLIP embedding to those of unsafe concepts. Files
//! in the layout of diffusers: `config.json` and `model.safetensors`.

use candle_core::{D, Tensor};
use serde_json::Value;

use super::clip::{ClipVision, ClipVisionSpec};
use crate::networks::blocks::{ComponentReader, ComponentSource, Projection};
use crate::networks::weights::Flaw;

/// The architecture's name in published files.
const NAME: &str = "StableDiffusionSafetyChecker";
/// Concepts that flag an image.
const CONCEPTS: usize = 17;
/// Concepts near which the others flag more easily.
const SPECIAL: usize = 3;
/// How much more easily.
const CARE: f64 = 0.01;
/// Default size of the projection.
const PROJECTION: u64 = 512;

/// The sizes of a checker.
#[derive(Debug, Clone, PartialEq)]
pub struct SafetySpec {
    pub vision: ClipVisionSpec,
    pub projection: usize,
}

/// A checker on a device.
pub struct SafetyNetwork {
    vision: ClipVision,
    projection: Projection,
    special: Concepts,
    concepts: Concepts,
}

/// Vectors of unit length `[size, concepts]`, and the similarity from which each counts.
struct Concepts {
    vectors: Tensor,
    thresholds: Vec<f32>,
}

/// Differences of an image to each threshold; negative below it.
#[derive(Debug, Clone, PartialEq)]
pub struct SafetyScores {
    pub special: Vec<f64>,
    pub concepts: Vec<f64>,
}

impl SafetySpec {
    pub fn read(value: &Value) -> Result<Self, Flaw> {
        let names = value["architectures"].as_array();
        let mut names = names.into_iter().flatten();
        if !names.any(|name| name == NAME) {
            return Err(Flaw::unsupported(
                "architectures",
                &value["architectures"],
                NAME,
            ));
        }
        let vision = match &value["vision_config"] {
            Value::Null => return Err(Flaw::broken("vision_config", "none", "an object")),
            vision => ClipVisionSpec::read(vision)?,
        };
        let projection = value["projection_dim"].as_u64().unwrap_or(PROJECTION);
        let projection = usize::try_from(projection).unwrap_or(usize::MAX);
        Ok(Self { vision, projection })
    }
}

impl SafetyNetwork {
    pub fn load(spec: SafetySpec, source: ComponentSource) -> Result<Self, Flaw> {
        const STEM: &str = "vision_model";
        // The published file has the name of the model around it once more.
        let doubled = "vision_model.vision_model.post_layernorm.weight";
        let is_doubled = source.tensors.header(doubled).is_some();
        let rename = move |name: &str| match name.starts_with(STEM) && is_doubled {
            true => format!("{STEM}.{name}"),
            false => name.to_owned(),
        };
        let mut reader = ComponentReader::new(source, rename);
        let (hidden, size) = (spec.vision.hidden_size, spec.projection);
        let network = Self {
            vision: ClipVision::read(spec.vision, STEM, &mut reader)?,
            projection: reader.projection("visual_projection", (size, hidden), false)?,
            special: Concepts::read("special_care_embeds", (SPECIAL, size), &mut reader)?,
            concepts: Concepts::read("concept_embeds", (CONCEPTS, size), &mut reader)?,
        };
        reader.check_nothing_was_ignored(|_| true)?;
        Ok(network)
    }

    pub fn spec(&self) -> &ClipVisionSpec {
        self.vision.spec()
    }

    /// `[1, size]`, of levels as [`prepare`](super::prepare()) gives them.
    pub fn embed(&self, levels: &[f32]) -> candle_core::Result<Tensor> {
        self.projection.apply(&self.vision.forward(levels)?)
    }

    pub fn scores(&self, levels: &[f32]) -> candle_core::Result<SafetyScores> {
        let embedding = unit(&self.embed(levels)?)?;
        Ok(SafetyScores {
            special: self.special.scores(&embedding)?,
            concepts: self.concepts.scores(&embedding)?,
        })
    }
}

impl Concepts {
    fn read(
        name: &str,
        (count, size): (usize, usize),
        reader: &mut ComponentReader<'_>,
    ) -> Result<Self, Flaw> {
        let vectors = unit(&reader.table(name, (count, size))?)?;
        let thresholds = reader.vector(&format!("{name}_weights"), count)?;
        Ok(Self {
            vectors: vectors.t()?.contiguous()?,
            thresholds: thresholds.to_vec1()?,
        })
    }

    fn scores(&self, embedding: &Tensor) -> candle_core::Result<Vec<f64>> {
        let near = embedding
            .matmul(&self.vectors)?
            .squeeze(0)?
            .to_vec1::<f32>()?;
        let pairs = near.iter().zip(&self.thresholds);
        Ok(pairs
            .map(|(near, threshold)| f64::from(*near) - f64::from(*threshold))
            .collect())
    }
}

impl SafetyScores {
    /// By the rule of the published checker, which rounds to thousandths.
    pub fn is_flagged(&self) -> bool {
        let is_beyond = |score: f64| (score * 1000.0).round_ties_even() > 0.0;
        let care = match self.special.iter().any(|score| is_beyond(*score)) {
            true => CARE,
            false => 0.0,
        };
        self.concepts.iter().any(|score| is_beyond(score + care))
    }
}

fn unit(rows: &Tensor) -> candle_core::Result<Tensor> {
    let length = rows.sqr()?.sum_keepdim(D::Minus1)?.sqrt()?;
    rows.broadcast_div(&length.clamp(1e-12, f64::INFINITY)?)
}
