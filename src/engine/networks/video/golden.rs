//! Every network against the reference implementation: a seeded pipeline in `tests/fixtures/tiny-video` and results in
//! `tests/fixtures/golden/video`, made by `tests/fixtures/make/wan.py`.

use candle_core::Tensor;
use safetensors::SafeTensors;

use super::original::AutoencoderNames;
use super::{
    FrameStream, FrameTimes, VideoAutoencoder, VideoAutoencoderSpec, WanSpec, WanTransformer,
};
use crate::networks::blocks::{ComponentSource, run};
use crate::networks::golden::{NetworkGolden, fixtures};
use crate::networks::test_device::device;
use crate::networks::text_encoder::{UmT5, UmT5Spec};
use crate::networks::weights::{Checkpoint, Flaw, Quantize};

/// Relative to the largest expected number.
const TOLERANCE: f32 = 2e-5;
const AUTOENCODER_TOLERANCE: f32 = 1e-4;

fn open(name: &str, network: &str) -> NetworkGolden {
    NetworkGolden::open(format!("golden/video/{name}.tensors"), network)
}

#[test]
fn texts_are_encoded_as_the_reference_does() {
    let golden = open("text", "tiny-video/text_encoder");
    let spec = UmT5Spec::read(golden.config()).unwrap();
    let tokens = golden.tensor("tokens").to_vec2::<f32>().unwrap();
    let ids = |row: &[f32]| -> Vec<u32> { row.iter().map(|&id| id as u32).collect() };
    for (quantize, tolerance) in [(None, TOLERANCE), (Some(Quantize::Q8_0), 0.2)] {
        let network = UmT5::load(spec.clone(), golden.source(quantize)).unwrap();
        let encode = |tokens: &[f32]| {
            run(network.forward(&ids(tokens)))
                .unwrap()
                .squeeze(0)
                .unwrap()
        };
        golden.check(&encode(&tokens[0]), "long", tolerance);
        golden.check(&encode(&tokens[1][..5]), "short", tolerance);
    }
}

#[test]
fn the_transformer_agrees_with_the_reference() {
    let golden = open("transformer", "tiny-video/transformer");
    let spec = WanSpec::read(golden.config()).unwrap();
    let (x, context) = (golden.tensor("x"), golden.tensor("context"));
    let time = |all: f32, is_first_clean| FrameTimes {
        all,
        is_first_clean,
    };
    let times: Vec<FrameTimes> = golden
        .numbers("steps")
        .iter()
        .map(|&step| time(step, false))
        .collect();
    for (quantize, tolerance) in [(None, TOLERANCE), (Some(Quantize::Q8_0), 0.05)] {
        let network = WanTransformer::load(spec.clone(), golden.source(quantize)).unwrap();
        let rope = network.rope([3, 6, 10], device()).unwrap();
        let out = run(network.forward(&x, &times, &context, &rope)).unwrap();
        golden.check(&out, "out", tolerance);
        let one = |tensor: &Tensor| tensor.narrow(0, 0, 1).unwrap();
        let marked = run(network.forward(&one(&x), &[time(640.0, true)], &one(&context), &rope));
        golden.check(&marked.unwrap(), "marked", tolerance);
    }
}

/// A network's folder with other names of its tensors.
fn renamed(network: &str, rename: impl Fn(&str) -> String) -> tempfile::TempDir {
    let from = fixtures().join(network);
    let folder = tempfile::tempdir().unwrap();
    let weights = "diffusion_pytorch_model.safetensors";
    let bytes = std::fs::read(from.join(weights)).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = tensors.tensors().into_iter();
    let tensors = tensors.map(|(name, view)| (rename(&name), view));
    let file = folder.path().join("published.safetensors");
    safetensors::serialize_to_file(tensors, None, &file).unwrap();
    std::fs::copy(from.join("config.json"), folder.path().join("config.json")).unwrap();
    folder
}

#[test]
fn files_with_the_published_names_are_the_same_networks() {
    let text = include_str!("../../../../tests/fixtures/golden/video/original-names.json");
    let pairs: serde_json::Value = serde_json::from_str(text).unwrap();
    let golden = open("transformer", "tiny-video/transformer");
    for prefix in ["", "model.diffusion_model."] {
        let folder = renamed("tiny-video/transformer", |name| {
            let published = pairs["transformer"][name].as_str().unwrap();
            format!("{prefix}{published}")
        });
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let source = ComponentSource {
            tensors: &checkpoint,
            ..golden.source(None)
        };
        let spec = WanSpec::read(golden.config()).unwrap();
        let network = WanTransformer::load(spec, source).unwrap();
        let rope = network.rope([3, 6, 10], device()).unwrap();
        let times: Vec<FrameTimes> = golden
            .numbers("steps")
            .iter()
            .map(|&all| FrameTimes {
                all,
                is_first_clean: false,
            })
            .collect();
        let (x, context) = (golden.tensor("x"), golden.tensor("context"));
        let out = run(network.forward(&x, &times, &context, &rope)).unwrap();
        golden.check(&out, "out", TOLERANCE);
    }
    let folder = renamed(
        "tiny-video/transformer",
        |name| match pairs["transformer"][name].as_str().unwrap() {
            "blocks.1.ffn.0.bias" => "blocks.1.img_ffn.0.bias".to_owned(),
            published => published.to_owned(),
        },
    );
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let source = ComponentSource {
        tensors: &checkpoint,
        ..golden.source(None)
    };
    let spec = WanSpec::read(golden.config()).unwrap();
    let error = format!("{:?}", WanTransformer::load(spec, source).err().unwrap());
    assert!(error.contains("blocks.1.ffn.0.bias"), "{error}");
    for (name, network) in [
        ("autoencoder", "tiny-video/vae"),
        ("autoencoder-residual", "golden/video/autoencoder-residual"),
    ] {
        let golden = open(name, network);
        let spec = VideoAutoencoderSpec::read(golden.config()).unwrap();
        let names = AutoencoderNames::Original {
            blocks: spec.blocks,
            is_residual: spec.is_residual,
        };
        let folder = renamed(network, |name| names.name(name));
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        assert!(checkpoint.tensor("decoder.head.0.gamma").is_some());
        let source = ComponentSource {
            tensors: &checkpoint,
            ..golden.source(None)
        };
        let autoencoder = VideoAutoencoder::load(spec, source).unwrap();
        let decoded = through(autoencoder.decoding(), &golden.tensor("latent"));
        golden.check(&decoded, "decoded", AUTOENCODER_TOLERANCE);
    }
}

#[test]
fn sizes_that_are_not_made_of_patches_are_refused() {
    let golden = open("transformer", "tiny-video/transformer");
    let spec = WanSpec::read(golden.config()).unwrap();
    let network = WanTransformer::load(spec, golden.source(None)).unwrap();
    for sizes in [[3, 5, 10], [0, 6, 10], [3, 6, 2 * 65]] {
        assert!(network.rope(sizes, device()).is_err());
    }
}

/// All frames of a stream, joined.
fn through(mut stream: FrameStream, video: &Tensor) -> Tensor {
    let frames = run(async {
        let mut frames = Vec::new();
        for at in 0..video.dim(1)? {
            stream.push(video.narrow(1, at, 1)?.squeeze(1)?.contiguous()?);
            while let Some(frame) = stream.next().await? {
                frames.push(frame);
            }
        }
        Tensor::stack(&frames, 1)
    });
    frames.unwrap()
}

#[test]
fn autoencoders_agree_with_the_reference() {
    let both = [
        ("autoencoder", "tiny-video/vae", [8, 4]),
        (
            "autoencoder-residual",
            "golden/video/autoencoder-residual",
            [16, 4],
        ),
    ];
    for (name, network, factors) in both {
        let golden = open(name, network);
        let spec = VideoAutoencoderSpec::read(golden.config()).unwrap();
        assert_eq!([spec.factor(), spec.time_factor()], factors);
        let channels = spec.latent_channels;
        let autoencoder = VideoAutoencoder::load(spec, golden.source(None)).unwrap();
        let moments = through(autoencoder.encoding(), &golden.tensor("video"));
        let half = |from| moments.narrow(4, from, channels).unwrap();
        golden.check(&half(0), "mean", AUTOENCODER_TOLERANCE);
        golden.check(&half(channels), "logvar", AUTOENCODER_TOLERANCE);
        let first = golden.tensor("video").narrow(1, 0, 1).unwrap();
        let first = through(autoencoder.encoding(), &first);
        golden.check(
            &first.narrow(4, 0, channels).unwrap(),
            "first",
            AUTOENCODER_TOLERANCE,
        );
        let decoded = through(autoencoder.decoding(), &golden.tensor("latent"));
        golden.check(&decoded, "decoded", AUTOENCODER_TOLERANCE);
    }
}

#[test]
fn networks_of_other_kinds_are_refused_by_name() {
    fn refused<S>(
        network: &str,
        read: fn(&serde_json::Value) -> Result<S, Flaw>,
        changes: &[(&str, serde_json::Value)],
    ) {
        let golden = open("text", network);
        for (name, value) in changes {
            let mut config = golden.config().clone();
            config[*name] = value.clone();
            let error = format!("{:?}", read(&config).err().unwrap());
            assert!(error.contains(name), "{error}");
        }
    }
    refused(
        "tiny-video/transformer",
        WanSpec::read,
        &[
            ("image_dim", 1280.into()),
            ("qk_norm", "rms_norm".into()),
            ("attention_head_dim", 7.into()),
            ("num_layers", u64::MAX.into()),
            ("out_channels", 8.into()),
        ],
    );
    refused(
        "tiny-video/vae",
        VideoAutoencoderSpec::read,
        &[
            ("attn_scales", vec![1.0].into()),
            ("temperal_downsample", vec![true].into()),
            ("latents_std", vec![1.0, 0.0, 1.0, 1.0].into()),
            ("scale_factor_temporal", 8.into()),
            ("base_dim", 0.into()),
        ],
    );
    refused(
        "tiny-video/text_encoder",
        UmT5Spec::read,
        &[
            ("model_type", "t5".into()),
            ("feed_forward_proj", "relu".into()),
            ("relative_attention_num_buckets", 3.into()),
        ],
    );
}
