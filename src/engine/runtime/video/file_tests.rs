//! Tests of a single-file transformer among other files of its folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize_to_file};

use super::files::VideoFiles;
use super::tests::{made, pipeline, request};
use super::*;
use crate::networks::golden::fixtures;
use crate::networks::test_device::device;
use crate::networks::text_encoder::{PIECES, UmT5Spec};
use crate::networks::video::{
    AutoencoderNames, FactsOf, TransformerNames, VideoAutoencoderSpec, WanFacts, WanSpec,
    autoencoder_config, text_config, transformer_config,
};
use crate::networks::weights::{Checkpoint, CheckpointError, Flaw, TensorSource};

const TRANSFORMER: &str = "tiny_t2v.safetensors";
const TEXT: &str = "tiny_umt5.safetensors";
const AUTOENCODER: &str = "tiny_vae.safetensors";

/// Facts of the small models of these tests.
fn tiny_facts(latent_channels: usize) -> Result<WanFacts, Flaw> {
    match latent_channels {
        4 => Ok(WanFacts {
            head_size: 20,
            shift: 3.0,
            takes_first_frame: false,
            mean: vec![0.1, -0.3, 0.2, 0.05],
            deviation: vec![1.2, 0.8, 1.5, 0.9],
        }),
        5 => Ok(WanFacts {
            mean: vec![0.0; 5],
            deviation: vec![1.0; 5],
            ..tiny_facts(4)?
        }),
        other => WanFacts::of(other),
    }
}

/// Writes the tensors of a network's folder into one file, renamed; tensors with an empty name are left out.
fn write(network: &str, file: &Path, rename: impl Fn(&str) -> String) {
    let folder = fixtures().join(network);
    let names = ["diffusion_pytorch_model", "model"];
    let stored = names.map(|name| folder.join(format!("{name}.safetensors")));
    let stored = stored.iter().find(|path| path.is_file()).unwrap();
    let bytes = fs::read(stored).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut renamed: BTreeMap<String, TensorView> = tensors
        .tensors()
        .into_iter()
        .map(|(name, view)| (rename(&name), view))
        .filter(|(name, _)| !name.is_empty())
        .collect();
    if network.ends_with("text_encoder") {
        let pieces = TensorView::new(Dtype::U8, vec![3], &[1, 2, 3]).unwrap();
        renamed.insert(PIECES.to_owned(), pieces);
    }
    serialize_to_file(renamed, None, file).unwrap();
}

fn published_autoencoder(name: &str) -> String {
    published(name, false)
}

fn published(name: &str, is_residual: bool) -> String {
    let blocks = 1;
    AutoencoderNames::Original {
        blocks,
        is_residual,
    }
    .name(name)
}

/// Writes all networks of the small model as single files, and its tokenizer.
fn write_all(folder: &Path, [transformer, text, autoencoder]: [&str; 3]) -> PathBuf {
    let place = |name: &str| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    let behind = TransformerNames::Original("model.diffusion_model.");
    write("tiny-video/transformer", &place(transformer), |name| {
        behind.name(name)
    });
    let first_table = |name: &str| match name {
        "encoder.embed_tokens.weight" => String::new(),
        name => name.to_owned(),
    };
    write("tiny-video/text_encoder", &place(text), first_table);
    write("tiny-video/vae", &place(autoencoder), published_autoencoder);
    let tokenizer = fixtures().join("tiny-video/tokenizer/tokenizer.json");
    let beside_text = place(text).with_file_name("tokenizer.json");
    fs::copy(tokenizer, beside_text).unwrap();
    place(transformer)
}

fn open(path: &Path) -> Result<VideoFiles, CheckpointError> {
    VideoFiles::open_file(path, &ComponentFolders::new(), tiny_facts)
}

#[test]
fn a_transformer_finds_its_components_and_films_the_same() {
    let layouts = [
        [TRANSFORMER, TEXT, AUTOENCODER],
        [
            "diffusion_models/a.safetensors",
            "text_encoders/b.safetensors",
            "vae/c.safetensors",
        ],
    ];
    let expected = made(&pipeline(), request()).1;
    for layout in layouts {
        let folder = tempfile::tempdir().unwrap();
        let transformer = write_all(folder.path(), layout);
        // Neither is the text encoder or the autoencoder of this model.
        let other = transformer.with_file_name("0.safetensors");
        write("tiny-image/vae", &other, str::to_owned);
        let damaged = transformer.with_file_name("1.safetensors");
        fs::write(damaged, "no tensors").unwrap();
        assert!(VideoSource::is_at(&transformer) && !VideoSource::is_at(&other));
        let networks = open(&transformer)
            .unwrap()
            .load(device(), None, None)
            .unwrap();
        let pipeline = VideoPipeline {
            networks: Arc::new(networks),
            defaults: VideoDefaults::default(),
            memory_bytes: None,
        };
        let found = made(&pipeline, request()).1;
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.bytes == expected.bytes, "{layout:?}");
        }
    }
}

#[test]
fn a_missing_component_is_named() {
    let refused = |missing: &str, part: &str| {
        let folder = tempfile::tempdir().unwrap();
        let transformer = write_all(folder.path(), [TRANSFORMER, TEXT, AUTOENCODER]);
        fs::remove_file(folder.path().join(missing)).unwrap();
        let error = open(&transformer).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
        let names = VideoFiles::missing(&transformer, &ComponentFolders::new(), tiny_facts);
        let (spec, names) = names.unwrap();
        assert_eq!((spec.inputs, names.len()), (4, 1), "{names:?}");
    };
    refused(TEXT, "without its text encoder (umT5)");
    refused(AUTOENCODER, "without its autoencoder (VAE)");
    refused("tokenizer.json", "without its tokenizer");
}

#[test]
fn a_named_component_goes_before_those_around() {
    let folder = tempfile::tempdir().unwrap();
    let transformer = write_all(folder.path(), [TRANSFORMER, TEXT, AUTOENCODER]);
    let named = fixtures().join("golden/video/autoencoder-residual");
    let components = ComponentFolders::from([("vae".to_owned(), named)]);
    let error = VideoFiles::open_file(&transformer, &components, tiny_facts);
    let error = error.err().unwrap().to_string();
    assert!(error.contains("in_channels"), "{error}");
}

#[test]
fn files_of_other_models_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["Tiny-HighNoise.safetensors", TEXT, AUTOENCODER];
    let half = write_all(folder.path(), files);
    let error = open(&half).err().unwrap().to_string();
    assert!(
        error.contains("two transformers of Wan 2.2 A14B"),
        "{error}"
    );
    let error = VideoFiles::open_file(&half, &ComponentFolders::new(), WanFacts::of);
    let error = error.err().unwrap().to_string();
    assert!(error.contains("latent channels: found 4"), "{error}");

    // T5 has the table of distances in its first layer alone.
    let first = folder.path().join("t5.safetensors");
    write("tiny-video/text_encoder", &first, |name| {
        match name.contains("block.1") && name.contains("relative") {
            true => String::new(),
            false => name.to_owned(),
        }
    });
    let described = Checkpoint::open_undescribed(&first, |tensors| text_config(tensors));
    let error = described.err().unwrap().to_string();
    assert!(
        error.contains("block.1") && error.contains("relative_attention_bias"),
        "{error}"
    );
}

#[test]
fn sizes_are_those_of_the_description() {
    #[track_caller]
    fn check<S: PartialEq + std::fmt::Debug>(
        network: &str,
        describe: impl Fn(&dyn TensorSource) -> Result<serde_json::Value, Flaw>,
        read: impl Fn(&serde_json::Value) -> Result<S, Flaw>,
        rename: impl Fn(&str) -> String,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.safetensors");
        write(network, &file, rename);
        let text = fs::read(fixtures().join(network).join("config.json")).unwrap();
        let expected = read(&serde_json::from_slice(&text).unwrap()).unwrap();
        let checkpoint = Checkpoint::open_tensors(&file).unwrap();
        assert_eq!(read(&describe(&checkpoint).unwrap()).unwrap(), expected);
    }
    const FACTS: FactsOf = tiny_facts;
    check(
        "tiny-video/transformer",
        |tensors| transformer_config(tensors, FACTS),
        |config| {
            WanSpec::read(config).map(|spec| WanSpec {
                positions: 64,
                ..spec
            })
        },
        str::to_owned,
    );
    check(
        "tiny-video/text_encoder",
        text_config,
        UmT5Spec::read,
        |name| name.to_owned(),
    );
    check(
        "tiny-video/vae",
        |tensors| autoencoder_config(tensors, FACTS),
        VideoAutoencoderSpec::read,
        published_autoencoder,
    );
    check(
        "golden/video/autoencoder-residual",
        |tensors| autoencoder_config(tensors, FACTS),
        VideoAutoencoderSpec::read,
        |name| published(name, true),
    );
}
