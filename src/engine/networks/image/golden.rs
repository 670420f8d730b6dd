//! Every component against the reference implementation: seeded components in `tests/fixtures/golden/image`, made by
//! `tests/fixtures/make/image.py`, with odd sizes and batches of two.

use std::path::PathBuf;

use candle_core::Tensor;

use super::{AddedConditioning, Autoencoder, AutoencoderSpec, Conditioning, Unet, UnetSpec};
use crate::networks::adapter::Pass;
use crate::networks::blocks::run;
use crate::networks::golden::{NetworkGolden, gap};
use crate::networks::text_encoder::{ClipSpec, ClipText, ClipWindow};
use crate::networks::weights::Quantize;
use muster_kernels::Edges;

/// Relative to the largest expected number.
const TOLERANCE: f32 = 2e-5;

fn open(name: &str) -> NetworkGolden {
    let folder = PathBuf::from("golden/image").join(name);
    NetworkGolden::open(folder.join("golden.tensors"), &folder)
}

fn conditioning(golden: &NetworkGolden, is_added: bool) -> Conditioning {
    Conditioning {
        context: golden.tensor("context"),
        added: is_added.then(|| AddedConditioning {
            pooled: golden.tensor("pooled"),
            sizes: golden.numbers("sizes").try_into().unwrap(),
        }),
    }
}

fn check_unet(name: &str) {
    let golden = open(name);
    let spec = UnetSpec::read(golden.config()).unwrap();
    let conditioning = conditioning(&golden, spec.added.is_some());
    let (x, steps) = (golden.tensor("x"), golden.numbers("steps"));
    let unet = Unet::load(spec.clone(), golden.source(None)).unwrap();
    let forward = |unet: &Unet| {
        run(unet.forward(&x, &steps, &conditioning, Pass::plain(Edges::Zeros))).unwrap()
    };
    golden.check(&forward(&unet), "out", TOLERANCE);
    let quantized = Unet::load(spec, golden.source(Some(Quantize::Q8_0))).unwrap();
    let gap = gap(&forward(&quantized), &golden.tensor("out"));
    assert!(gap < 0.05, "{gap}");
}

#[test]
fn the_first_unet_agrees_with_the_reference() {
    check_unet("unet-1");
}

#[test]
fn the_unet_of_sdxl_agrees_with_the_reference() {
    check_unet("unet-xl");
}

#[test]
fn an_image_does_not_depend_on_its_batch() {
    let golden = open("unet-1");
    let spec = UnetSpec::read(golden.config()).unwrap();
    let unet = Unet::load(spec, golden.source(None)).unwrap();
    let (x, steps) = (golden.tensor("x"), golden.numbers("steps"));
    let conditioning = conditioning(&golden, false);
    let pass = Pass::plain(Edges::Circular);
    let both = run(unet.forward(&x, &steps, &conditioning, pass)).unwrap();
    for index in 0..2 {
        let one = |tensor: &Tensor| tensor.narrow(0, index, 1).unwrap().contiguous().unwrap();
        let conditioning = Conditioning {
            context: one(&conditioning.context),
            added: None,
        };
        let steps = &steps[index..=index];
        let alone = run(unet.forward(&one(&x), steps, &conditioning, pass)).unwrap();
        let numbers =
            |tensor: &Tensor| -> Vec<f32> { tensor.flatten_all().unwrap().to_vec1().unwrap() };
        assert_eq!(numbers(&alone), numbers(&one(&both)));
    }
}

#[test]
fn autoencoders_agree_with_the_reference() {
    for name in ["autoencoder", "autoencoder-bare"] {
        let golden = open(name);
        let spec = AutoencoderSpec::read(golden.config()).unwrap();
        assert_eq!(spec.factor(), 4);
        let autoencoder = Autoencoder::load(spec, golden.source(None)).unwrap();
        let image = golden.tensor("image");
        let (mean, logvar) = run(autoencoder.encode(&image, Edges::Zeros)).unwrap();
        golden.check(&mean, "mean", TOLERANCE);
        golden.check(&logvar, "logvar", TOLERANCE);
        let decoded = run(autoencoder.decode(&golden.tensor("latent"), Edges::Zeros)).unwrap();
        golden.check(&decoded, "decoded", TOLERANCE);
    }
}

#[test]
fn text_encoders_agree_with_the_reference() {
    for name in ["clip-large", "clip-projected"] {
        let golden = open(name);
        let spec = ClipSpec::read(golden.config()).unwrap();
        let positions = spec.positions;
        let pass = Pass::plain(Edges::Zeros);
        let clip = ClipText::load(spec, golden.source(None)).unwrap();
        let tokens: Vec<u32> = golden
            .numbers("tokens")
            .iter()
            .map(|&id| id as u32)
            .collect();
        let windows = tokens.chunks(positions).map(|tokens| ClipWindow {
            tokens: tokens.to_vec(),
            ..ClipWindow::default()
        });
        let windows: Vec<ClipWindow> = windows.collect();
        let last = run(clip.forward(&windows, 0, pass)).unwrap();
        golden.check(&last.states, "states", TOLERANCE);
        golden.check(&last.normed, "normed", TOLERANCE);
        golden.check(&last.pooled, "pooled", TOLERANCE);
        let skipped = run(clip.forward(&windows, 1, pass)).unwrap();
        golden.check(&skipped.states, "penultimate", TOLERANCE);
        golden.check(&skipped.pooled, "pooled", TOLERANCE);
        assert!(run(clip.forward(&windows, 3, pass)).is_err());
    }
}

#[test]
fn a_component_of_another_kind_is_refused_by_name() {
    let golden = open("unet-1");
    let refused = |change: fn(&mut serde_json::Value)| {
        let mut config = golden.config().clone();
        change(&mut config);
        format!("{:?}", UnetSpec::read(&config).unwrap_err())
    };
    let error = refused(|config| config["class_embed_type"] = "timestep".into());
    assert!(error.contains("class_embed_type"), "{error}");
    let error = refused(|config| config["mid_block_type"] = "UNetMidBlock2D".into());
    assert!(error.contains("UNetMidBlock2DCrossAttn"), "{error}");
    let error = refused(|config| config["flip_sin_to_cos"] = false.into());
    assert!(error.contains("flip_sin_to_cos"), "{error}");
    let spec = UnetSpec::read(golden.config()).unwrap();
    let wider = UnetSpec { inputs: 9, ..spec };
    let error = format!(
        "{:?}",
        Unet::load(wider, golden.source(None)).err().unwrap()
    );
    assert!(error.contains("conv_in.weight"), "{error}");
}
