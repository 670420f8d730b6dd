//! What a decoder is, from the metadata of a GGUF file.

use candle_core::quantized::GgmlDType;

use super::{
    family::{Family, Naming, Part, Role},
    limits,
    spec::{Biases, DecoderSpec, Rope, RopeScaling},
};
use crate::networks::weights::{Checkpoint, Flaw, GgufMetadata, GgufWriter, TensorType};
use muster_kernels::RopeStyle;

/// What Llama 3's rope scaling comes to, one number for each frequency.
pub const ROPE_FACTORS: &str = "rope_freqs.weight";

pub fn spec(checkpoint: &Checkpoint, metadata: &GgufMetadata) -> Result<DecoderSpec, Flaw> {
    let family = family(metadata)?;
    let file = File {
        checkpoint,
        metadata,
        prefix: family.gguf_name(),
    };
    file.refuse_what_we_do_not_compute()?;
    let heads = file.size("attention.head_count")?;
    let hidden_size = file.size("embedding_length")?;
    let share = hidden_size.checked_div(heads).unwrap_or(0);
    let head_dim = file.optional_size("attention.key_length")?.unwrap_or(share);
    let has = |part| {
        checkpoint
            .tensor(&Naming::Gguf.weight(Role::Layer(0, part)))
            .is_some()
    };
    let has_bias = |part| {
        checkpoint
            .tensor(&Naming::Gguf.bias(Role::Layer(0, part)))
            .is_some()
    };
    let spec = DecoderSpec {
        family,
        vocab_size: file.vocab_size()?,
        hidden_size,
        intermediate_size: file.size("feed_forward_length")?,
        layers: file.size("block_count")?,
        heads,
        kv_heads: file
            .optional_size("attention.head_count_kv")?
            .unwrap_or(heads),
        head_dim,
        context: file.size("context_length")?,
        norm_eps: file
            .float("attention.layer_norm_rms_epsilon")?
            .unwrap_or(1e-5),
        rope: file.rope(family, head_dim)?,
        query_key_norm: has(Part::QueryNorm),
        biases: Biases {
            query_key_value: has_bias(Part::Query),
            attention_output: has_bias(Part::AttentionOutput),
            feed_forward: has_bias(Part::Gate),
        },
        tied_embeddings: checkpoint
            .tensor(&Naming::Gguf.weight(Role::Head))
            .is_none(),
        windows: Vec::new(),
    };
    limits::check(&spec)?;
    Ok(spec)
}

fn family(metadata: &GgufMetadata) -> Result<Family, Flaw> {
    let name = metadata.text("general.architecture");
    name.and_then(Family::of_gguf).ok_or_else(|| {
        let found = name.unwrap_or("none");
        Flaw::unsupported("general.architecture", found, Family::known_gguf_names())
    })
}

struct File<'a> {
    checkpoint: &'a Checkpoint,
    metadata: &'a GgufMetadata,
    prefix: &'static str,
}

impl File<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn size(&self, name: &str) -> Result<usize, Flaw> {
        let size = self.optional_size(name)?;
        size.ok_or_else(|| Flaw::broken(self.key(name), "nothing", "a number"))
    }

    fn optional_size(&self, name: &str) -> Result<Option<usize>, Flaw> {
        let key = self.key(name);
        let Some(value) = self.metadata.value(&key) else {
            return Ok(None);
        };
        let size = value.unsigned().and_then(|size| usize::try_from(size).ok());
        match size {
            Some(size) => Ok(Some(size)),
            None => Err(Flaw::unsupported(
                key,
                format!("{value:?}"),
                "a single integer",
            )),
        }
    }

    fn float(&self, name: &str) -> Result<Option<f64>, Flaw> {
        let key = self.key(name);
        match (self.metadata.float(&key), self.metadata.value(&key)) {
            (None, Some(value)) => Err(Flaw::broken(key, format!("{value:?}"), "a number")),
            (float, _) => Ok(float),
        }
    }

    fn vocab_size(&self) -> Result<usize, Flaw> {
        let name = Naming::Gguf.weight(Role::Embedding);
        let header = self.checkpoint.tensor(&name);
        let rows = header.and_then(|header| header.shape.first().copied());
        rows.ok_or_else(|| Flaw::broken(format!("the tensor {name:?}"), "nothing", "the embedding"))
    }

    fn rope(&self, family: Family, head_dim: usize) -> Result<Rope, Flaw> {
        // Converters reorder the rows of Llama's queries and keys so that neighbours turn together.
        let style = match family {
            Family::Llama | Family::Mistral => RopeStyle::Pairs,
            Family::Qwen2 | Family::Qwen3 => RopeStyle::Halves,
        };
        let dims = self
            .optional_size("rope.dimension_count")?
            .unwrap_or(head_dim);
        let theta = self.float("rope.freq_base")?.unwrap_or(10_000.0);
        Ok(Rope {
            scaling: self.rope_scaling(dims)?,
            ..Rope::plain(theta, style, dims)
        })
    }

    fn rope_scaling(&self, dims: usize) -> Result<RopeScaling, Flaw> {
        let key = self.key("rope.scaling.type");
        // A file that names a factor and no type means this one.
        let factor = match self.metadata.text(&key).unwrap_or("linear") {
            "none" => None,
            "linear" => self.linear_factor()?,
            other => return Err(Flaw::unsupported(key, other, "none and linear")),
        };
        match (factor, self.rope_factors(dims)?) {
            (None, None) => Ok(RopeScaling::None),
            (None, Some(factors)) => Ok(RopeScaling::Factors(factors)),
            (Some(factor), None) => Ok(RopeScaling::Linear { factor }),
            (Some(factor), Some(_)) => {
                let found = format!("a factor of {factor} and the tensor {ROPE_FACTORS}");
                let key = self.key("rope.scaling.factor");
                Err(Flaw::unsupported(key, found, "only one of the two"))
            }
        }
    }

    /// What positions are divided by, under its name of today or its first; zero stands for nothing.
    fn linear_factor(&self) -> Result<Option<f64>, Flaw> {
        let factor = match self.float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.float("rope.scale_linear")?,
        };
        Ok(factor.filter(|factor| ![0.0, 1.0].contains(factor)))
    }

    fn rope_factors(&self, dims: usize) -> Result<Option<Vec<f32>>, Flaw> {
        let Some(header) = self.checkpoint.tensor(ROPE_FACTORS) else {
            return Ok(None);
        };
        if header.dtype != TensorType::Weight(GgmlDType::F32) || header.shape != [dims / 2] {
            return Err(Flaw::broken(
                format!("the tensor {ROPE_FACTORS:?}"),
                format!("{} of shape {:?}", header.dtype, header.shape),
                format!("F32 of shape [{}]", dims / 2),
            ));
        }
        let bytes = self.checkpoint.bytes(header);
        let numbers = bytes.as_chunks().0.iter();
        Ok(Some(
            numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        ))
    }

    fn refuse_what_we_do_not_compute(&self) -> Result<(), Flaw> {
        if let Some(experts @ 1..) = self.optional_size("expert_count")? {
            let found = format!("{experts} experts per layer");
            return Err(Flaw::unsupported(
                self.key("expert_count"),
                found,
                "dense layers",
            ));
        }
        let key_length = self.optional_size("attention.key_length")?;
        let value_length = self.optional_size("attention.value_length")?;
        if key_length != value_length {
            let found = format!("{value_length:?} with a key length of {key_length:?}");
            let key = self.key("attention.value_length");
            return Err(Flaw::unsupported(
                key,
                found,
                "the same length for keys and values",
            ));
        }
        match self.optional_size("attention.sliding_window")? {
            Some(window) if window > 0 && window < self.size("context_length")? => {
                let key = self.key("attention.sliding_window");
                let found = format!("a window of {window} tokens");
                Err(Flaw::unsupported(key, found, "GGUF files without a window"))
            }
            _ => Ok(()),
        }
    }
}

/// Writes down a spec as `spec` above reads it.
pub fn describe(spec: &DecoderSpec, writer: &mut GgufWriter) {
    let arch = spec.family.gguf_name();
    let key = |name: &str| format!("{arch}.{name}");
    writer.text("general.architecture", arch);
    for (name, size) in [
        ("vocab_size", spec.vocab_size),
        ("context_length", spec.context),
        ("embedding_length", spec.hidden_size),
        ("feed_forward_length", spec.intermediate_size),
        ("block_count", spec.layers),
        ("attention.head_count", spec.heads),
        ("attention.head_count_kv", spec.kv_heads),
        ("attention.key_length", spec.head_dim),
        ("attention.value_length", spec.head_dim),
        ("rope.dimension_count", spec.rope.dims),
    ] {
        writer.unsigned(key(name), size as u64);
    }
    writer.float(key("rope.freq_base"), spec.rope.theta);
    writer.float(key("attention.layer_norm_rms_epsilon"), spec.norm_eps);
    if let RopeScaling::Linear { factor } = spec.rope.scaling {
        writer.text(key("rope.scaling.type"), "linear");
        writer.float(key("rope.scaling.factor"), factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scaling of a file that says this besides.
    fn scaling(says: impl FnOnce(&mut GgufWriter)) -> Result<RopeScaling, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let spec = DecoderSpec::named("tiny").unwrap();
        let mut writer = GgufWriter::default();
        describe(&spec, &mut writer);
        let name = Naming::Gguf.weight(Role::Embedding);
        let shape = [spec.vocab_size, spec.hidden_size];
        writer.tensor(name, &shape, GgmlDType::F32);
        says(&mut writer);
        let sizes = [spec.vocab_size * spec.hidden_size, spec.rope.dims / 2];
        let file = std::fs::File::create(&path).unwrap();
        let numbers = |count: usize| vec![1f32; count].into_iter();
        let bytes = |index: usize| Ok(numbers(sizes[index]).flat_map(f32::to_le_bytes).collect());
        writer.write(file, bytes).unwrap();
        let spec = Checkpoint::open(&path).unwrap().spec();
        spec.map(|spec| spec.rope.scaling)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_factor_scales_under_each_of_its_names() {
        let four = Ok(RopeScaling::Linear { factor: 4.0 });
        let factor = |writer: &mut GgufWriter, key: &str, factor| {
            writer.float(format!("llama.rope.{key}"), factor);
        };
        assert_eq!(
            scaling(|writer| factor(writer, "scaling.factor", 4.0)),
            four
        );
        assert_eq!(scaling(|writer| factor(writer, "scale_linear", 4.0)), four);
        let none = Ok(RopeScaling::None);
        assert_eq!(
            scaling(|writer| factor(writer, "scaling.factor", 1.0)),
            none
        );
        assert_eq!(scaling(|writer| factor(writer, "scale_linear", 0.0)), none);
        let typed = |kind: &'static str| {
            scaling(move |writer| {
                writer.text("llama.rope.scaling.type", kind);
                factor(writer, "scaling.factor", 4.0);
            })
        };
        assert_eq!(typed("linear"), four);
        assert_eq!(typed("none"), none);
        let error = typed("yarn").unwrap_err();
        assert!(
            error.contains("llama.rope.scaling.type: found yarn; supported: none and linear"),
            "{error}"
        );
    }

    #[test]
    fn a_factor_beside_a_tensor_of_them_is_refused() {
        let dims = DecoderSpec::named("tiny").unwrap().rope.dims;
        let both = |factor| {
            scaling(move |writer| {
                writer.float("llama.rope.scaling.factor", factor);
                writer.tensor(ROPE_FACTORS, &[dims / 2], GgmlDType::F32);
            })
        };
        assert_eq!(both(1.0), Ok(RopeScaling::Factors(vec![1.0; dims / 2])));
        let error = both(4.0).unwrap_err();
        assert!(
            error.contains("found a factor of 4 and the tensor rope_freqs.weight"),
            "{error}"
        );
    }
}
