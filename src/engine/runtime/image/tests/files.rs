//! Files of models: folders, components, single files, and faults in them.

use candle_core::quantized::GgmlDType;

use super::*;
use crate::networks::model_copy::{copy_folder, put_in_gguf, write_gguf};
use crate::networks::weights::Checkpoint;

#[test]
fn a_footprint_is_read_from_headers_and_components_can_be_replaced() {
    let source = ImageSource::new(fixtures().join("tiny-image"));
    let footprint = source.footprint().unwrap();
    let files = [
        "text_encoder/model",
        "unet/diffusion_pytorch_model",
        "vae/diffusion_pytorch_model",
    ];
    let files = files.map(|name| source.path.join(format!("{name}.safetensors")));
    let bytes: u64 = files
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(footprint.weight_bytes < bytes && footprint.weight_bytes > bytes * 8 / 10);
    assert_eq!(footprint.size, [64, 64]);
    assert_eq!(footprint.drawing_bytes, 4 * 64 * 64 * (3 * 16 + 2 * 8));
    let other = fixtures().join("golden/image/autoencoder");
    let replaced = ImageSource {
        components: [("vae".to_owned(), other)].into(),
        ..source.clone()
    };
    let draw_with = |source: &ImageSource| {
        let pipeline = source.load(DeviceChoice::of_tests()).unwrap();
        (latent_of(&pipeline, request()), draw(&pipeline, request()))
    };
    let (latent, image) = draw_with(&source);
    let (same_latent, other_image) = draw_with(&replaced);
    assert_eq!(latent, same_latent);
    assert_ne!(image, other_image);
}

#[test]
fn folders_of_other_models_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = || {
        let refused = ImageSource::new(folder.path()).load(DeviceChoice::of_tests());
        refused.err().unwrap().to_string()
    };
    assert!(
        refused().contains("model_index.json: no such file"),
        "{}",
        refused()
    );
    copy_folder(&fixtures().join("tiny-image"), folder.path());
    assert!(
        ImageSource::new(folder.path())
            .load(DeviceChoice::of_tests())
            .is_ok()
    );
    let check = |file: &str, from: &str, to: &str, reason: &str| {
        let path = folder.path().join(file);
        let before = std::fs::read_to_string(&path).unwrap();
        assert!(before.contains(from), "{before}");
        std::fs::write(&path, before.replace(from, to)).unwrap();
        assert!(refused().contains(reason), "{}", refused());
        std::fs::write(&path, before).unwrap();
    };
    let scheduler = "scheduler/scheduler_config.json";
    check(
        scheduler,
        "scaled_linear",
        "squaredcos_cap_v2",
        "beta_schedule: found",
    );
    check(
        scheduler,
        "v_prediction",
        "sample",
        "prediction_type: found sample",
    );
    check(scheduler, "0.012", "1.2", "beta_end: found 1.2");
    let index = "model_index.json";
    check(
        index,
        "AutoencoderKL",
        "AutoencoderTiny",
        "component vae: found AutoencoderTiny",
    );
    check(
        index,
        "\"unet\"",
        "\"transformer\"",
        "the component: found transformer",
    );
    check(
        "unet/config.json",
        "\"in_channels\": 4",
        "\"in_channels\": 8",
        "in_channels: found 8",
    );
    check(
        "text_encoder/config.json",
        "\"hidden_size\": 24",
        "\"hidden_size\": 20",
        "cross_attention_dim: found 24, expected 20",
    );
    let weights = folder
        .path()
        .join("vae/diffusion_pytorch_model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    assert!(refused().contains("vae"), "{}", refused());
}

/// A single file with a change, and why it is refused.
#[track_caller]
fn refused_single(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("altered.safetensors");
    let mut bytes = std::fs::read(single_file("first")).unwrap();
    change(&mut bytes);
    std::fs::write(&file, bytes).unwrap();
    assert!(ImageSource::is_at(&file), "it is no image model any more");
    let opened = SingleFileModel::open_with(&file, &token_folders("first"), Some(facts("first")));
    let error = match opened {
        Ok(single) => single.load(device(), None).err().unwrap().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("altered.safetensors"), "{error}");
    error
}

#[test]
fn broken_single_files_are_refused_by_file_and_tensor_with_a_remedy() {
    let error = refused_single(|bytes| bytes.truncate(bytes.len() - 100));
    assert!(error.contains("the tensor \""), "{error}");
    assert!(error.contains("cut off, download it again"), "{error}");
    // The last number, in f16, of the tensor that ends the file.
    for odd in [0x7e00_u16, 0x7c00] {
        let error = refused_single(|bytes| {
            let at = bytes.len() - 2;
            bytes[at..].copy_from_slice(&odd.to_le_bytes());
        });
        assert!(error.contains("the tensor \""), "{error}");
        assert!(
            error.contains("finite numbers; the file is damaged"),
            "{error}"
        );
    }
    let rename = |from: &'static str, to: &'static str| {
        assert_eq!(from.len(), to.len());
        move |bytes: &mut Vec<u8>| {
            let mut at = 0;
            while let Some(found) = bytes[at..]
                .windows(from.len())
                .position(|it| it == from.as_bytes())
            {
                at += found;
                bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            }
        }
    };
    let flux = refused_single(rename(
        "model.diffusion_model.output_blocks.0.",
        "model.diffusion_model.double_blocks.0.",
    ));
    assert!(flux.contains("a Flux model in one file"), "{flux}");
    assert!(flux.contains("double_blocks"), "{flux}");
    let other = refused_single(rename("cond_stage_model.", "cond_stage_other."));
    assert!(
        other.contains("no text encoder of these families"),
        "{other}"
    );
}

fn single_file(name: &str) -> PathBuf {
    fixtures().join(format!("golden/single/{name}.safetensors"))
}

fn token_folders(name: &str) -> BTreeMap<String, PathBuf> {
    let tokens = |name: &str| fixtures().join("tiny-image-xl").join(name);
    let components = match name {
        "second" => [("tokenizer", tokens("tokenizer_2"))].to_vec(),
        "xl" => [
            ("tokenizer", tokens("tokenizer")),
            ("tokenizer_2", tokens("tokenizer_2")),
        ]
        .to_vec(),
        _ => [("tokenizer", fixtures().join("tiny-image/tokenizer"))].to_vec(),
    };
    let components = components.into_iter();
    components
        .map(|(name, path)| (name.to_owned(), path))
        .collect()
}

fn facts(name: &str) -> FamilyFacts {
    FamilyFacts {
        unet_heads: match name {
            "second" => HeadRule::Size(4),
            _ => HeadRule::Count(2),
        },
        text_heads: HeadRule::Count(4),
        groups: 4,
        size_width: 8,
        latent_scale: 0.18215,
        sample_size: 16,
    }
}

fn open_single(name: &str) -> ImagePipeline {
    open_single_at(&single_file(name), name)
}

fn open_single_at(file: &Path, name: &str) -> ImagePipeline {
    let opened = SingleFileModel::open_with(file, &token_folders(name), Some(facts(name)));
    let single = opened.unwrap();
    ImagePipeline {
        networks: Arc::new(single.load(device(), None).unwrap()),
        defaults: ImageDefaults::default(),
        memory_bytes: None,
    }
}

/// See `tests/fixtures/make/single.py`.
#[test]
fn single_files_of_each_family_agree_with_the_reference() {
    let golden = std::fs::read(fixtures().join("golden/single.tensors")).unwrap();
    let golden = DrawingGolden(golden);
    for name in ["first", "second", "xl"] {
        let found = latent_of(&open_single(name), request());
        check_latent(&found, &golden.numbers(name), name);
    }
}

#[test]
fn a_single_file_draws_with_the_autoencoder_of_another_model() {
    let replaced = |folder: PathBuf| {
        let mut folders = token_folders("first");
        folders.insert("vae".to_owned(), folder);
        SingleFileModel::open_with(&single_file("first"), &folders, Some(facts("first")))
    };
    let own = open_single("first");
    let pipeline_of = |single: SingleFileModel| ImagePipeline {
        networks: Arc::new(single.load(device(), None).unwrap()),
        defaults: ImageDefaults::default(),
        memory_bytes: None,
    };
    let other = replaced(fixtures().join("golden/image/autoencoder")).unwrap();
    let (shared, defaults) = (other.shared(), ImageDefaults::default());
    let own_bytes = SingleFileModel::open_with(
        &single_file("first"),
        &token_folders("first"),
        Some(facts("first")),
    );
    let own_bytes = own_bytes.unwrap().footprint(&defaults).weight_bytes;
    assert_eq!(shared.len(), 1);
    // The file's own autoencoder, of the same size, is not counted.
    assert_eq!(other.footprint(&defaults).weight_bytes, own_bytes);
    let other = pipeline_of(other);
    assert_eq!(latent_of(&own, request()), latent_of(&other, request()));
    assert_ne!(draw(&own, request()), draw(&other, request()));
    // The folder's autoencoder has the same weights.
    let same = pipeline_of(replaced(fixtures().join("tiny-image/vae")).unwrap());
    assert_eq!(draw(&own, request()), draw(&same, request()));
    assert!(replaced(fixtures().join("missing")).is_err());
}

#[test]
fn models_with_the_same_files_hold_their_networks_together() {
    let lender = ImageSource::new(fixtures().join("tiny-image"));
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&fixtures().join("tiny-image"), folder.path());
    std::fs::remove_dir_all(folder.path().join("text_encoder")).unwrap();
    let mut borrower = ImageSource::new(folder.path());
    let encoder = lender.path.join("text_encoder");
    borrower
        .components
        .insert("text_encoder".to_owned(), encoder);
    let (lent, shared) = (lender.shared().unwrap(), borrower.shared().unwrap());
    assert!(lent.contains(&shared[0]) && !lent.contains(&shared[1]));
    let load = |source: &ImageSource| source.load(DeviceChoice::of_tests()).unwrap();
    let (one, other) = (load(&lender), load(&borrower));
    let encoder = |of: &ImagePipeline| Arc::clone(&of.networks.encoders[0].clip);
    assert!(Arc::ptr_eq(&encoder(&one), &encoder(&other)));
    let autoencoders = [&one, &other].map(|of| Arc::clone(&of.networks.autoencoder));
    assert!(!Arc::ptr_eq(&autoencoders[0], &autoencoders[1]));
    let image = draw(&one, request());
    drop(one);
    assert_eq!(image, draw(&other, request()));
}

#[test]
fn a_single_file_draws_the_image_of_its_folder() {
    for (file, folder) in [("first", "tiny-image"), ("xl", "tiny-image-xl")] {
        let single = draw(&open_single(file), request());
        assert_eq!(single, draw(&open(folder), request()), "{file}");
    }
}

#[test]
fn networks_in_gguf_files_draw_the_same() {
    let expected = draw(&open("tiny-image"), request()).bytes;
    let check = |pipeline: &ImagePipeline, is_close: bool| {
        let found = draw(pipeline, request()).bytes;
        let gaps = found
            .iter()
            .zip(&expected)
            .map(|(a, b)| f64::from(a.abs_diff(*b)));
        let mean = gaps.sum::<f64>() / expected.len() as f64;
        let wanted = if is_close { 1e-6..8.0 } else { 0.0..1e-9 };
        assert!(wanted.contains(&mean), "mean difference {mean}");
    };
    for dtype in [None, Some(GgmlDType::Q8_0)] {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(&fixtures().join("tiny-image"), folder.path());
        let mut in_blocks = 0;
        for name in ["text_encoder", "unet", "vae"] {
            let component = folder.path().join(name);
            in_blocks += put_in_gguf(&component, dtype, |name| Some(name.to_owned()));
        }
        assert_eq!(in_blocks > 0, dtype.is_some());
        let source = ImageSource::new(folder.path());
        check(
            &source.load(DeviceChoice::of_tests()).unwrap(),
            dtype.is_some(),
        );

        let file = folder.path().join("first.gguf");
        let stored = Checkpoint::open_tensors(&single_file("first")).unwrap();
        let in_blocks = write_gguf(&stored, &file, dtype, |name| Some(name.to_owned()));
        assert_eq!(in_blocks > 0, dtype.is_some());
        assert!(ImageSource::is_at(&file));
        check(&open_single_at(&file, "first"), dtype.is_some());
    }
}
