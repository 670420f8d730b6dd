//! Every network against the reference implementation: a seeded model in `tests/fixtures/tiny-music` and results in
//! `tests/fixtures/golden/music`, made by `tests/fixtures/make/ace_step.py`.

use candle_core::Tensor;
use serde_json::{Value, json};

use super::{AceStep, AceStepSpec, SongConditionSpec, SongConditions};
use crate::networks::blocks::run;
use crate::networks::golden::{NetworkGolden, gap};
use crate::networks::sound::{Oobleck, OobleckSpec};
use crate::networks::test_device::device;
use crate::networks::weights::{Flaw, Quantize};

/// Relative to the largest expected number.
const TOLERANCE: f32 = 2e-5;
/// The same for blocks of eight bits.
const QUANTIZED_TOLERANCE: f32 = 0.05;

fn open(name: &str, network: &str) -> NetworkGolden {
    let tensors = format!("golden/music/{name}.tensors");
    NetworkGolden::open(tensors, format!("tiny-music/{network}"))
}

#[test]
fn the_transformer_agrees_with_the_reference() {
    let golden = open("transformer", "transformer");
    let spec = AceStepSpec::read(golden.config()).unwrap();
    assert_eq!(spec.layers, [true, false, true]);
    let times: Vec<f32> = golden.tensor("times").to_vec1().unwrap();
    let tolerances = [
        (None, TOLERANCE),
        (Some(Quantize::Q8_0), QUANTIZED_TOLERANCE),
    ];
    for (quantize, tolerance) in tolerances {
        let network = AceStep::load(spec.clone(), golden.source(quantize)).unwrap();
        let context = run(network.context(&golden.tensor("states"))).unwrap();
        let (x, source) = (golden.tensor("x"), golden.tensor("source"));
        let out = run(network.forward(&x, &source, &times, &context)).unwrap();
        golden.check(&out, "out", tolerance);
    }
}

#[test]
fn conditions_agree_with_the_reference() {
    let golden = open("conditions", "condition_encoder");
    let spec = SongConditionSpec::read(golden.config()).unwrap();
    let tolerances = [
        (None, TOLERANCE),
        (Some(Quantize::Q8_0), QUANTIZED_TOLERANCE),
    ];
    for (quantize, tolerance) in tolerances {
        let network = SongConditions::load(spec.clone(), golden.source(quantize)).unwrap();
        let timbre = run(network.silent_timbre(750)).unwrap();
        let (lyrics, text) = (golden.tensor("lyrics"), golden.tensor("text"));
        let states = run(network.join(&lyrics, &timbre, &text)).unwrap();
        golden.check(&states, "states", tolerance);
    }
}

#[test]
fn silence_is_repeated_where_it_is_too_short() {
    let golden = open("conditions", "condition_encoder");
    let spec = SongConditionSpec::read(golden.config()).unwrap();
    let network = SongConditions::load(spec, golden.source(None)).unwrap();
    let silence = |frames| network.silence(frames).unwrap().to_vec3::<f32>().unwrap();
    let (short, long) = (silence(7), silence(67));
    assert_eq!((short[0].len(), long[0].len()), (7, 67));
    assert_eq!(short[0], long[0][30..37]);
    assert_eq!(short[0], long[0][60..]);
}

#[test]
fn sound_agrees_with_the_reference() {
    let golden = open("autoencoder", "vae");
    let spec = OobleckSpec::read(golden.config()).unwrap();
    assert_eq!((spec.hop(), spec.rate), (320, 8000));
    let network = Oobleck::load(spec, golden.source(None)).unwrap();
    let latent = golden.tensor("latent");
    let tiles = network.tiles(9, 9);
    let decoded = run(network.decode(&latent, tiles[0])).unwrap();
    golden.check(&decoded, "decoded", TOLERANCE);
}

#[test]
fn sound_in_tiles_is_that_of_the_whole() {
    let golden = open("autoencoder", "vae");
    let spec = OobleckSpec::read(golden.config()).unwrap();
    let network = Oobleck::load(spec, golden.source(None)).unwrap();
    let latent = Tensor::randn(0f32, 1.0, (1, 47, 4), device()).unwrap();
    let decoded = |most| {
        let tiles = network.tiles(47, most).into_iter();
        let tiles = tiles.map(|tile| run(network.decode(&latent, tile)).unwrap());
        Tensor::cat(&tiles.collect::<Vec<_>>(), 1).unwrap()
    };
    let whole = decoded(47);
    assert_eq!(whole.dims(), [1, 47 * 320, 2]);
    for most in [1, 6, 20] {
        let gap = gap(&decoded(most), &whole);
        assert!(gap < 1e-6, "{most}: {gap:e}");
    }
}

/// The sizes of the published model give the known context of its tiles.
#[test]
fn a_frame_reaches_as_far_as_its_strides_say() {
    let config = json!({
        "downsampling_ratios": [2, 4, 4, 6, 10], "channel_multiples": [1, 2, 4, 8, 16], "decoder_channels": 128,
        "decoder_input_channels": 64, "audio_channels": 2, "sampling_rate": 48_000,
    });
    let spec = OobleckSpec::read(&config).unwrap();
    assert_eq!(
        (spec.hop(), spec.first_width(), spec.reach()),
        (1920, 2048, 9)
    );
}

#[test]
fn what_a_network_would_ignore_is_refused_by_name() {
    fn refused<S>(network: &str, read: fn(&Value) -> Result<S, Flaw>, changes: &[(&str, Value)]) {
        let golden = open("conditions", network);
        for (name, value) in changes {
            let mut config = golden.config().clone();
            config[*name] = value.clone();
            let error = format!("{:?}", read(&config).err().unwrap());
            assert!(error.contains(name), "{error}");
        }
    }
    refused(
        "transformer",
        AceStepSpec::read,
        &[
            ("in_channels", 16.into()),
            ("attention_bias", true.into()),
            ("num_key_value_heads", 3.into()),
            ("head_dim", 7.into()),
            ("patch_size", 0.into()),
            ("num_hidden_layers", u64::MAX.into()),
            ("layer_types", json!(["full_attention"])),
            (
                "layer_types",
                json!(["full_attention", "full_attention", "linear_attention"]),
            ),
            ("rope_theta", 0.0.into()),
        ],
    );
    refused(
        "condition_encoder",
        SongConditionSpec::read,
        &[
            ("sliding_window", 0.into()),
            ("text_hidden_dim", u64::MAX.into()),
            ("num_timbre_encoder_hidden_layers", 0.into()),
        ],
    );
    refused(
        "vae",
        OobleckSpec::read,
        &[
            ("downsampling_ratios", json!([4, 8, 5])),
            ("downsampling_ratios", json!([])),
            ("channel_multiples", json!([1, 2])),
            ("channel_multiples", json!([1, 2, 1 << 20])),
            ("audio_channels", 0.into()),
            ("sampling_rate", 0.into()),
        ],
    );
}
