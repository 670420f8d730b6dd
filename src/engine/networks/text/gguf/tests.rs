//! Which metadata means which decoder.

use candle_core::quantized::GgmlDType;

use super::{rope::ROPE_FACTORS, *};
use crate::networks::{text::rope::RopeScaling, weights::GgufWriter};

/// The scaling of a file with these additional keys.
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
    let error = typed("dynamic").unwrap_err();
    assert!(
        error.contains("llama.rope.scaling.type: found dynamic; supported: none, linear and yarn"),
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
