//! Every family against the reference implementation: seeded checkpoints in `tests/fixtures/golden`, made by
//! `tests/fixtures/make/encoders.py`, which computes its two sequences in one padded batch.

use std::path::PathBuf;

use candle_core::{DType, Tensor};
use safetensors::SafeTensors;

use super::{Encoder, EncoderInput, Pooling};
use crate::networks::test_device::device;
use crate::networks::weights::Checkpoint;

/// Relative to the largest expected number.
const TOLERANCE: f32 = 1e-4;

struct EncoderGolden {
    bytes: Vec<u8>,
    encoder: Encoder,
}

impl EncoderGolden {
    fn open(name: &str) -> Self {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let folder = root.join("tests/fixtures/golden").join(name);
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let spec = checkpoint.encoder_spec().unwrap().unwrap();
        let encoder = Encoder::load(&checkpoint, spec, device(), &mut |_, _| {}).unwrap();
        let bytes = std::fs::read(folder.join("golden.tensors")).unwrap();
        Self { bytes, encoder }
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let eights = file.tensor(name).unwrap().data().as_chunks().0;
        let ids = eights.iter().map(|eight| i64::from_le_bytes(*eight));
        ids.map(|id| id as u32).collect()
    }

    fn tensor(&self, name: &str) -> Tensor {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = file.tensor(name).unwrap();
        Tensor::from_raw_buffer(view.data(), DType::F32, view.shape(), device()).unwrap()
    }

    fn sequences(&self) -> Vec<EncoderInput> {
        let sequence = |index| EncoderInput {
            tokens: self.ids(&format!("ids.{index}")),
            types: self.ids(&format!("types.{index}")),
        };
        (0..2).map(sequence).collect()
    }

    #[track_caller]
    fn check(&self, found: &Tensor, name: &str) {
        let wanted = self.tensor(name);
        let largest = |tensor: &Tensor| {
            let largest = tensor.abs().unwrap().max_all().unwrap();
            largest.to_scalar::<f32>().unwrap()
        };
        let gap = largest(&(found - &wanted).unwrap()) / largest(&wanted);
        assert!(gap < TOLERANCE, "{name}: {gap}");
    }
}

#[test]
fn hidden_states_are_those_of_the_reference() {
    for name in ["bert", "roberta"] {
        let golden = EncoderGolden::open(name);
        let sequences = golden.sequences();
        let states = golden.encoder.forward(&sequences).unwrap();
        let first = sequences[0].tokens.len();
        let second = sequences[1].tokens.len();
        golden.check(&states.narrow(0, 0, first).unwrap(), "hidden.0");
        golden.check(&states.narrow(0, first, second).unwrap(), "hidden.1");
    }
}

#[test]
fn vectors_are_those_of_the_reference() {
    for (name, pooling) in [("bert", Pooling::Mean), ("roberta", Pooling::First)] {
        let golden = EncoderGolden::open(name);
        let pooled = golden.encoder.pooled(&golden.sequences(), pooling).unwrap();
        let length = pooled
            .sqr()
            .unwrap()
            .sum_keepdim(1)
            .unwrap()
            .sqrt()
            .unwrap();
        golden.check(&pooled.broadcast_div(&length).unwrap(), "vectors");
    }
}

#[test]
fn scores_are_those_of_the_reference() {
    for name in ["bert-score", "roberta-score"] {
        let golden = EncoderGolden::open(name);
        let logits = golden.encoder.scores(&golden.sequences()).unwrap();
        golden.check(&logits, "logits");
    }
}

#[test]
fn a_sequence_is_alone_whatever_is_beside_it() {
    let golden = EncoderGolden::open("bert");
    let sequences = golden.sequences();
    let together = golden.encoder.pooled(&sequences, Pooling::Last).unwrap();
    let alone = golden
        .encoder
        .pooled(&sequences[1..], Pooling::Last)
        .unwrap();
    let gap = (together.narrow(0, 1, 1).unwrap() - alone).unwrap();
    let gap = gap.abs().unwrap().max_all().unwrap();
    assert!(gap.to_scalar::<f32>().unwrap() < 1e-5);
}

#[test]
fn a_sequence_that_is_too_long_or_empty_is_refused() {
    let golden = EncoderGolden::open("roberta");
    let refused = |length| {
        let sequences = [EncoderInput::from(vec![5; length])];
        golden.encoder.forward(&sequences).unwrap_err().to_string()
    };
    assert!(refused(0).contains("0 tokens"));
    assert!(refused(65).contains("reads 1 to 64"), "{}", refused(65));
    assert!(golden.encoder.forward(&[]).is_err());
}
