//! Every component against the reference implementation: seeded components in `tests/fixtures/golden/image`, made by
//! `tests/fixtures/make/image.py`, with odd sizes and batches of two.

use std::path::PathBuf;

use candle_core::{DType, Tensor};
use safetensors::{Dtype, SafeTensors};

use super::{
    AddedConditioning, Autoencoder, AutoencoderSpec, ClipSpec, ClipText, ClipWindow,
    ComponentSource, Conditioning, Layout, Unet, UnetSpec, run,
};
use crate::networks::adapter::Pass;
use crate::networks::test_device::device;
use crate::networks::weights::{Checkpoint, Description, Quantize};
use muster_kernels::Edges;

/// In parts of the largest number wanted.
const TOLERANCE: f32 = 2e-5;

struct ComponentGolden {
    bytes: Vec<u8>,
    checkpoint: Checkpoint,
}

impl ComponentGolden {
    fn open(name: &str) -> Self {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let folder = root.join("tests/fixtures/golden/image").join(name);
        Self {
            checkpoint: Checkpoint::open(&folder).unwrap(),
            bytes: std::fs::read(folder.join("golden.tensors")).unwrap(),
        }
    }

    fn config(&self) -> &serde_json::Value {
        match self.checkpoint.description() {
            Description::Config(config) => config,
            Description::Gguf(_) => panic!("a component has a config.json"),
        }
    }

    fn source(&self, quantize: Option<Quantize>) -> ComponentSource<'_> {
        ComponentSource {
            tensors: &self.checkpoint,
            layout: Layout::Folder,
            device: device(),
            quantize,
        }
    }

    fn tensor(&self, name: &str) -> Tensor {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = file.tensor(name).unwrap();
        assert_eq!(view.dtype(), Dtype::F32);
        Tensor::from_raw_buffer(view.data(), DType::F32, view.shape(), device()).unwrap()
    }

    fn numbers(&self, name: &str) -> Vec<f32> {
        self.tensor(name).flatten_all().unwrap().to_vec1().unwrap()
    }

    #[track_caller]
    fn check(&self, found: &Tensor, name: &str) {
        let gap = self.gap(found, name);
        assert!(gap < TOLERANCE, "{name}: {gap:e}");
    }

    fn gap(&self, found: &Tensor, name: &str) -> f32 {
        let wanted = self.tensor(name);
        let largest = |tensor: &Tensor| -> f32 {
            let largest = tensor.abs().unwrap().max_all().unwrap();
            largest.to_scalar().unwrap()
        };
        largest(&(found - &wanted).unwrap()) / largest(&wanted)
    }

    fn conditioning(&self, is_added: bool) -> Conditioning {
        Conditioning {
            context: self.tensor("context"),
            added: is_added.then(|| AddedConditioning {
                pooled: self.tensor("pooled"),
                sizes: self.numbers("sizes").try_into().unwrap(),
            }),
        }
    }
}

fn check_unet(name: &str) {
    let golden = ComponentGolden::open(name);
    let spec = UnetSpec::read(golden.config()).unwrap();
    let conditioning = golden.conditioning(spec.added.is_some());
    let (x, steps) = (golden.tensor("x"), golden.numbers("steps"));
    let unet = Unet::load(spec.clone(), golden.source(None)).unwrap();
    let forward = |unet: &Unet| {
        run(unet.forward(&x, &steps, &conditioning, Pass::plain(Edges::Zeros))).unwrap()
    };
    golden.check(&forward(&unet), "out");
    let quantized = Unet::load(spec, golden.source(Some(Quantize::Q8_0))).unwrap();
    let gap = golden.gap(&forward(&quantized), "out");
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
    let golden = ComponentGolden::open("unet-1");
    let spec = UnetSpec::read(golden.config()).unwrap();
    let unet = Unet::load(spec, golden.source(None)).unwrap();
    let (x, steps) = (golden.tensor("x"), golden.numbers("steps"));
    let conditioning = golden.conditioning(false);
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
        let golden = ComponentGolden::open(name);
        let spec = AutoencoderSpec::read(golden.config()).unwrap();
        assert_eq!(spec.factor(), 4);
        let autoencoder = Autoencoder::load(spec, golden.source(None)).unwrap();
        let image = golden.tensor("image");
        let (mean, logvar) = run(autoencoder.encode(&image, Edges::Zeros)).unwrap();
        golden.check(&mean, "mean");
        golden.check(&logvar, "logvar");
        let decoded = run(autoencoder.decode(&golden.tensor("latent"), Edges::Zeros)).unwrap();
        golden.check(&decoded, "decoded");
    }
}

#[test]
fn text_encoders_agree_with_the_reference() {
    for name in ["clip-large", "clip-projected"] {
        let golden = ComponentGolden::open(name);
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
        golden.check(&last.states, "states");
        golden.check(&last.normed, "normed");
        golden.check(&last.pooled, "pooled");
        let skipped = run(clip.forward(&windows, 1, pass)).unwrap();
        golden.check(&skipped.states, "penultimate");
        golden.check(&skipped.pooled, "pooled");
        assert!(run(clip.forward(&windows, 3, pass)).is_err());
    }
}

#[test]
fn a_component_of_another_kind_is_refused_by_name() {
    let golden = ComponentGolden::open("unet-1");
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
