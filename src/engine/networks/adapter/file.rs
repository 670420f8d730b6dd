//! An adapter's file: its tensors gathered by layer, and made into changes of the layers of a network.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use candle_core::{Device, Tensor};

use super::deltas::{Delta, NetworkDeltas};
use super::names::{AdapterPart, Factor, split};
use super::{LayerId, LayerShape, LayerTable};
use crate::networks::weights::{
    Checkpoint, CheckpointError, Flaw, TensorHeader, TensorType, convert,
};
use muster_kernels::Convolution;

const KNOWN: &str = "LoRA, LoCon, LoHa, LoKr, DoRA and plain differences";
/// LyCORIS's magnitudes, which may be those of inputs.
const SCALE: &str = ".dora_scale";

/// An adapter's file, opened: the header was read, the numbers were not.
pub struct AdapterFile {
    checkpoint: Checkpoint,
    targets: BTreeMap<(AdapterPart, String), Factors>,
    /// Per network, for files without an alpha next to each rank.
    alphas: BTreeMap<AdapterPart, f64>,
}

/// The tensors of one layer, by their names in the file.
type Factors = BTreeMap<Factor, String>;

impl AdapterFile {
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let checkpoint = Checkpoint::open_tensors(path)?;
        let mut targets: BTreeMap<_, Factors> = BTreeMap::new();
        for header in checkpoint.tensors() {
            let Some((part, layer, factor)) = split(&header.name) else {
                let what = format!("the tensor {:?}", header.name);
                let found = "a tensor of no known adapter";
                return Err(Flaw::unsupported(what, found, KNOWN).in_file(path));
            };
            let factors = targets.entry((part, layer)).or_default();
            factors.insert(factor, header.name.clone());
        }
        let alphas = alphas(checkpoint.metadata()).map_err(|flaw| flaw.in_file(path))?;
        Ok(Self {
            checkpoint,
            targets,
            alphas,
        })
    }

    pub fn path(&self) -> &Path {
        self.checkpoint.path()
    }

    pub fn parts(&self) -> BTreeSet<AdapterPart> {
        self.targets.keys().map(|(part, _)| *part).collect()
    }

    /// The changes to one network. A layer that the network does not have, or has in another size, is an error: such a
    /// file is made for another base model.
    pub fn deltas(
        &self,
        part: AdapterPart,
        layers: &LayerTable,
        device: &Device,
    ) -> Result<NetworkDeltas, CheckpointError> {
        let mut deltas = NetworkDeltas::default();
        for ((_, name), factors) in self.targets.iter().filter(|(key, _)| key.0 == part) {
            let reader = FactorReader {
                file: self,
                part,
                factors,
                device,
            };
            let delta = match layers.find(name) {
                Some((layer, shape)) => {
                    let delta = reader.delta(shape, (layers, layer));
                    delta.map(|(delta, numbers)| (layer, delta, numbers))
                }
                None => Err(reader.foreign("a layer that this model does not have")),
            };
            let (layer, delta, numbers) = delta.map_err(|flaw| flaw.in_file(self.path()))?;
            deltas.insert(layer, delta, numbers);
        }
        Ok(deltas)
    }
}

/// Metadata keys of training programs that name the base model.
const BASE_KEYS: [&str; 2] = ["ss_base_model_version", "modelspec.architecture"];
const LONGEST_BASE: usize = 60;

/// Metadata key of diffusers with the settings of peft.
const SETTINGS: &str = "lora_adapter_metadata";

fn alphas(metadata: &BTreeMap<String, String>) -> Result<BTreeMap<AdapterPart, f64>, Flaw> {
    let mut alphas = BTreeMap::new();
    let Some(text) = metadata.get(SETTINGS) else {
        return Ok(alphas);
    };
    let settings: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| Flaw::broken(SETTINGS, error, "a JSON object"))?;
    for (name, part) in [
        ("unet", AdapterPart::Unet),
        ("text_encoder", AdapterPart::TextEncoder(0)),
        ("text_encoder_2", AdapterPart::TextEncoder(1)),
    ] {
        let setting = |key: &str| &settings[format!("{name}.{key}")];
        for key in ["use_rslora", "alpha_pattern"] {
            let found = setting(key);
            let is_unset = found.is_null()
                || *found == false
                || found.as_object().is_some_and(serde_json::Map::is_empty);
            if !is_unset {
                return Err(Flaw::unsupported(format!("{name}.{key}"), found, "unset"));
            }
        }
        if let Some(alpha) = setting("lora_alpha").as_f64() {
            alphas.insert(part, alpha);
        }
    }
    Ok(alphas)
}

/// The tensors of one layer.
struct FactorReader<'a> {
    file: &'a AdapterFile,
    part: AdapterPart,
    factors: &'a Factors,
    device: &'a Device,
}

/// Two narrow products, as convolutions have them.
struct NarrowFactors {
    /// `[rank, inputs, height, width]` or `[rank, inputs]`.
    down: Tensor,
    /// `[outputs, rank]`, by the scale.
    up: Tensor,
    rank: usize,
}

/// The lengths that DoRA gives a layer's weights.
enum Magnitude {
    /// `[outputs]`
    Outputs(Tensor),
    /// `[inputs]`
    Inputs(Tensor),
}

impl LayerShape {
    /// Numbers of the inputs that an output sees.
    fn seen(self) -> usize {
        self.inputs * self.kernel * self.kernel
    }
}

impl FactorReader<'_> {
    /// The change of a layer, and its numbers.
    fn delta(
        &self,
        shape: LayerShape,
        (layers, layer): (&LayerTable, LayerId),
    ) -> Result<(Delta, usize), Flaw> {
        use Factor as F;
        let has = |factor| self.factors.contains_key(&factor);
        if let Some(name) = self.factors.get(&F::DiffBias) {
            let what = format!("the tensor {name:?}");
            return Err(Flaw::unsupported(what, "a changed bias", KNOWN));
        }
        let magnitude = self.magnitude(shape)?;
        if has(F::Down) {
            let narrow = self.narrow(shape)?;
            return match magnitude {
                None => narrow.delta(shape),
                Some(magnitude) => {
                    let weight = self.weight(shape, layers.weight(layer)?)?;
                    self.decomposed(narrow, magnitude, &weight, (shape, layers.bias(layer)))
                }
            };
        }
        let is_kronecker = has(F::LokrW1) || has(F::LokrW1A);
        let change = match (has(F::HadaW1A), is_kronecker) {
            (true, _) => self.hadamard()?,
            (_, true) => self.kronecker()?,
            _ if has(F::Diff) => self.tensor(F::Diff)?,
            _ => return Err(self.broken("an incomplete change", KNOWN)),
        };
        if change.elem_count() != shape.outputs * shape.seen() {
            return Err(self.misfit(&format!("{:?}", change.dims()), shape));
        }
        let change = change.reshape((shape.outputs, shape.seen()))?;
        match magnitude {
            None => full(&change, shape),
            Some(magnitude) => {
                let weight = self.weight(shape, layers.weight(layer)?)?;
                full(&self.stretched(&weight, &change, &magnitude, shape)?, shape)
            }
        }
    }

    fn narrow(&self, shape: LayerShape) -> Result<NarrowFactors, Flaw> {
        let (down, up) = (self.tensor(Factor::Down)?, self.tensor(Factor::Up)?);
        let rank = down.dim(0)?;
        let scale = self.scale(rank)?;
        let down = match self.optional(Factor::Mid)? {
            Some(mid) => {
                // A kernel between two products is a kernel with its first product inside.
                let (outer, inner, height, width) = mid.dims4()?;
                let flat = mid.permute((0, 2, 3, 1))?.reshape(((), inner))?;
                let joined = flat.matmul(&down.reshape((inner, ()))?)?;
                let joined = joined.reshape((outer, height, width, ()))?;
                joined.permute((0, 3, 1, 2))?.contiguous()?
            }
            None => down,
        };
        let rank = down.dim(0)?;
        let is_fitting =
            down.elem_count() == rank * shape.seen() && up.elem_count() == shape.outputs * rank;
        if !is_fitting {
            let found = format!("{:?} and {:?}", up.dims(), down.dims());
            return Err(self.misfit(&found, shape));
        }
        let up = (up.reshape((shape.outputs, rank))? * scale)?;
        Ok(NarrowFactors { down, up, rank })
    }

    fn magnitude(&self, shape: LayerShape) -> Result<Option<Magnitude>, Flaw> {
        let Some(numbers) = self.optional(Factor::Magnitude)? else {
            return Ok(None);
        };
        let name = self.factors.get(&Factor::Magnitude);
        let is_scale = name.is_some_and(|name| name.ends_with(SCALE));
        let flat = numbers.flatten_all()?;
        let is_of_inputs = is_scale && numbers.dim(0)? != shape.outputs;
        match (flat.dim(0)?, is_of_inputs) {
            (count, true) if count == shape.inputs => Ok(Some(Magnitude::Inputs(flat))),
            (count, false) if count == shape.outputs => Ok(Some(Magnitude::Outputs(flat))),
            _ => Err(self.misfit(&format!("magnitudes {:?}", numbers.dims()), shape)),
        }
    }

    /// The weights of the layer that DoRA changes, `[outputs, numbers seen]`.
    fn weight(&self, shape: LayerShape, numbers: Option<Vec<f32>>) -> Result<Tensor, Flaw> {
        let numbers = numbers.ok_or_else(|| {
            let name = self.factors.values().next().map_or("", String::as_str);
            let what = format!("the tensor {name:?}");
            let known = "DoRA for models whose weights are f32, f16 or bf16 in their file";
            Flaw::unsupported(what, "DoRA for a layer of quantized weights", known)
        })?;
        Ok(Tensor::from_vec(
            numbers,
            (shape.outputs, shape.seen()),
            self.device,
        )?)
    }

    /// The change at full strength: the sum of weights and low-rank product gets the magnitudes of the file.
    fn decomposed(
        &self,
        narrow: NarrowFactors,
        magnitude: Magnitude,
        weight: &Tensor,
        (shape, bias): (LayerShape, Option<&Tensor>),
    ) -> Result<(Delta, usize), Flaw> {
        let NarrowFactors { down, up, rank } = &narrow;
        let change = up.matmul(&down.reshape((*rank, shape.seen()))?)?;
        let Magnitude::Outputs(lengths) = &magnitude else {
            return full(&self.stretched(weight, &change, &magnitude, shape)?, shape);
        };
        let stretch = stretch(lengths, &(weight + change)?)?;
        let up = up.broadcast_mul(&stretch.unsqueeze(1)?)?;
        let numbers = down.elem_count() + up.elem_count() + 2 * shape.outputs;
        let delta = Delta::Decomposed {
            down: layer_of(down, *rank, shape)?,
            up: Convolution::product(&up, None)?,
            gain: (stretch - 1.0)?,
            bias: bias.cloned(),
        };
        Ok((delta, numbers))
    }

    /// The whole change that DoRA makes to a layer.
    fn stretched(
        &self,
        weight: &Tensor,
        change: &Tensor,
        magnitude: &Magnitude,
        shape: LayerShape,
    ) -> Result<Tensor, Flaw> {
        let changed = (weight + change)?;
        let changed = match magnitude {
            Magnitude::Outputs(lengths) => {
                let stretch = stretch(lengths, &changed)?;
                changed.broadcast_mul(&stretch.unsqueeze(1)?)?
            }
            Magnitude::Inputs(lengths) => {
                let places = shape.kernel * shape.kernel;
                let by_input = changed.reshape((shape.outputs, shape.inputs, places))?;
                let rows = by_input.transpose(0, 1)?.contiguous()?;
                let rows = rows.reshape((shape.inputs, ()))?;
                let stretch = stretch(lengths, &rows)?;
                let stretched = by_input.broadcast_mul(&stretch.reshape((1, (), 1))?)?;
                stretched.reshape((shape.outputs, shape.seen()))?
            }
        };
        Ok((changed - weight)?)
    }

    fn hadamard(&self) -> Result<Tensor, Flaw> {
        use Factor as F;
        let half = |a: F, b: F, t: F| -> Result<(Tensor, usize), Flaw> {
            let (a, b) = (self.tensor(a)?, self.tensor(b)?);
            let rank = b.dim(0)?;
            Ok(match self.optional(t)? {
                Some(t) => (tucker(&t, &a, &b)?, rank),
                None => (a.matmul(&b.reshape((rank, ()))?)?, rank),
            })
        };
        let (first, rank) = half(F::HadaW1A, F::HadaW1B, F::HadaT1)?;
        let (second, _) = half(F::HadaW2A, F::HadaW2B, F::HadaT2)?;
        Ok(((first * second)? * self.scale(rank)?)?)
    }

    fn kronecker(&self) -> Result<Tensor, Flaw> {
        use Factor as F;
        let mut rank = None;
        let first = match self.optional(F::LokrW1)? {
            Some(whole) => whole,
            None => {
                let b = self.tensor(F::LokrW1B)?;
                rank = Some(b.dim(0)?);
                self.tensor(F::LokrW1A)?.matmul(&b)?
            }
        };
        let second = match self.optional(F::LokrW2)? {
            Some(whole) => whole,
            None => {
                let (a, b) = (self.tensor(F::LokrW2A)?, self.tensor(F::LokrW2B)?);
                rank = Some(b.dim(0)?);
                match self.optional(F::LokrT2)? {
                    Some(t) => tucker(&t, &a, &b)?,
                    None => a.matmul(&b.reshape((b.dim(0)?, ()))?)?,
                }
            }
        };
        let scale = rank.map_or(Ok(1.0), |rank| self.scale(rank))?;
        let (outer, inner) = first.dims2()?;
        let (rows, columns) = (second.dim(0)?, second.elem_count() / second.dim(0)?.max(1));
        // [outer, 1, inner, 1] by [1, rows, 1, columns]; a kernel's dimensions follow its inputs.
        let first = first.reshape((outer, 1, inner, 1))?;
        let second = second.reshape((1, rows, 1, columns))?;
        let product = first.broadcast_mul(&second)?;
        Ok((product.reshape((outer * rows, inner * columns))? * scale)?)
    }

    /// Alpha over the rank.
    fn scale(&self, rank: usize) -> Result<f64, Flaw> {
        let alpha = match self.optional(Factor::Alpha)? {
            Some(alpha) => Some(f64::from(alpha.flatten_all()?.get(0)?.to_scalar::<f32>()?)),
            None => self.file.alphas.get(&self.part).copied(),
        };
        Ok(alpha.map_or(1.0, |alpha| alpha / rank.max(1) as f64))
    }

    fn optional(&self, factor: Factor) -> Result<Option<Tensor>, Flaw> {
        let name = self.factors.get(&factor);
        let header = name.and_then(|name| self.file.checkpoint.tensor(name));
        header.map(|header| self.read(header)).transpose()
    }

    fn tensor(&self, factor: Factor) -> Result<Tensor, Flaw> {
        let missing = || self.broken(&format!("no {factor:?}"), "a complete change");
        self.optional(factor)?.ok_or_else(missing)
    }

    /// Converts to f32. A NaN or infinity would spoil every image, so it is an error here.
    fn read(&self, header: &TensorHeader) -> Result<Tensor, Flaw> {
        let what = || format!("the tensor {:?}", header.name);
        let TensorType::Weight(dtype) = header.dtype else {
            return Err(Flaw::unsupported(what(), header.dtype, "f32, f16 and bf16"));
        };
        let bytes = self.file.checkpoint.bytes(header);
        let numbers = convert::floats(dtype, &bytes)?;
        if let Some(odd) = numbers.iter().find(|number| !number.is_finite()) {
            return Err(Flaw::broken(what(), odd, "finite numbers"));
        }
        Ok(Tensor::from_vec(
            numbers,
            header.shape.as_slice(),
            self.device,
        )?)
    }

    fn misfit(&self, found: &str, shape: LayerShape) -> Flaw {
        let LayerShape {
            outputs,
            inputs,
            kernel,
            ..
        } = shape;
        self.foreign(&format!(
            "{found} for a layer of {outputs} outputs, {inputs} inputs and kernel {kernel}"
        ))
    }

    fn foreign(&self, found: &str) -> Flaw {
        let metadata = self.file.checkpoint.metadata();
        let base = BASE_KEYS.iter().find_map(|key| metadata.get(*key));
        let base = base.map_or(String::new(), |base| {
            let base: String = base.chars().take(LONGEST_BASE).collect();
            format!(" ({base:?})")
        });
        let wanted = format!(
            "a file for this base model; the file is made for another one{base}, use it with that"
        );
        self.broken(found, &wanted)
    }

    fn broken(&self, found: &str, wanted: &str) -> Flaw {
        let name = self.factors.values().next().map_or("", String::as_str);
        Flaw::broken(format!("the tensor {name:?}"), found, wanted)
    }
}

impl NarrowFactors {
    fn delta(self, shape: LayerShape) -> Result<(Delta, usize), Flaw> {
        let numbers = self.down.elem_count() + self.up.elem_count();
        let delta = Delta::LowRank {
            down: layer_of(&self.down, self.rank, shape)?,
            up: Convolution::product(&self.up, None)?,
        };
        Ok((delta, numbers))
    }
}

/// A change of the layer's own size, `[outputs, numbers seen]`.
fn full(change: &Tensor, shape: LayerShape) -> Result<(Delta, usize), Flaw> {
    let delta = layer_of(change, shape.outputs, shape)?;
    Ok((Delta::Full(delta), change.elem_count()))
}

/// The factors that give rows these lengths.
fn stretch(lengths: &Tensor, rows: &Tensor) -> Result<Tensor, Flaw> {
    let found = rows.sqr()?.sum(1)?.sqrt()?;
    // A row of zeros keeps its direction.
    Ok((lengths / found.maximum(f32::EPSILON)?)?)
}

/// `Σ t[r, s, ..] a[r, out] b[s, in]` as `[out, in, height, width]`.
fn tucker(t: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor, Flaw> {
    let (first, second, height, width) = t.dims4()?;
    let (outputs, inputs) = (a.dim(1)?, b.dim(1)?);
    let inner = t
        .permute((0, 2, 3, 1))?
        .reshape((first * height * width, second))?
        .matmul(b)?;
    let inner = inner.reshape((first, height * width * inputs))?;
    let outer = a.t()?.contiguous()?.matmul(&inner)?;
    let outer = outer.reshape((outputs, height, width, inputs))?;
    Ok(outer.permute((0, 3, 1, 2))?.contiguous()?)
}

/// A product or a convolution that moves as the layer does.
fn layer_of(weight: &Tensor, outputs: usize, shape: LayerShape) -> Result<Convolution, Flaw> {
    let LayerShape { inputs, kernel, .. } = shape;
    Ok(match shape.axis {
        Some(axis) => {
            let weight = weight.reshape((outputs, inputs, kernel, kernel))?;
            Convolution::new(&weight, None, [axis; 2], 1)?
        }
        None => Convolution::product(&weight.reshape((outputs, inputs))?, None)?,
    })
}
