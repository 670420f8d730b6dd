//! LoRAs and textual inversions.

use super::*;

fn lora(name: &str, model: f32, clip: f32) -> LoraUse {
    LoraUse {
        file: fixtures().join(format!("golden/adapters/{name}.safetensors")),
        model,
        clip,
    }
}

/// Latents by `tests/fixtures/make/adapters.py`.
#[track_caller]
fn check_adapted(model: &str, name: &str, loras: Vec<LoraUse>) {
    check_adapted_by("adapters", model, name, loras);
}

#[track_caller]
fn check_adapted_by(golden: &str, model: &str, name: &str, loras: Vec<LoraUse>) {
    let bytes = std::fs::read(fixtures().join(format!("golden/{golden}.tensors"))).unwrap();
    let wanted = DrawingGolden(bytes).numbers(name);
    let pipeline = open(model);
    let found = latent_of(&pipeline, ImageRequest { loras, ..request() });
    check_latent(&found, &wanted, &format!("{model} {name}"));
}

#[test]
fn loras_of_every_program_agree_with_the_reference() {
    for (model, end) in [("tiny-image", ""), ("tiny-image-xl", "-xl")] {
        let named = |name: &str| format!("{name}{end}");
        let (kohya, peft) = (named("kohya"), named("peft"));
        check_adapted(model, &named("none"), Vec::new());
        check_adapted(model, &kohya, vec![lora(&kohya, 0.8, 0.5)]);
        check_adapted(model, &peft, vec![lora(&peft, 1.0, 1.0)]);
        let both = vec![lora(&kohya, 0.7, 1.0), lora(&peft, -0.5, 0.6)];
        check_adapted(model, &named("both"), both);
    }
}

#[test]
fn convolutions_hadamard_and_kronecker_products_agree_with_their_formulas() {
    for name in ["locon", "loha", "lokr"] {
        check_adapted("tiny-image", name, vec![lora(name, 0.6, 1.0)]);
    }
}

/// See `tests/fixtures/make/dora.py`.
#[test]
fn decomposed_loras_agree_with_the_reference_and_their_formulas() {
    let model = "tiny-image";
    check_adapted_by("dora", model, "dora", vec![lora("dora", 1.0, 1.0)]);
    for (name, strength) in [("dora-scale-1.0", 1.0), ("dora-scale-0.6", 0.6)] {
        check_adapted_by("dora", model, name, vec![lora("dora-scale", strength, 1.0)]);
    }
    let error = refused("tiny-image-xl", vec![lora("dora", 1.0, 1.0)]);
    assert!(error.contains("made for another one"), "{error}");
    let mut quantized = ImageSource::new(fixtures().join(model));
    quantized.quantize = Some(Quantize::Q8_0);
    let pipeline = quantized.load(DeviceChoice::of_tests()).unwrap();
    let with = |loras| ImageRequest { loras, ..request() };
    let plain = draw(&pipeline, with(Vec::new()));
    assert_ne!(draw(&pipeline, with(vec![lora("dora", 1.0, 1.0)])), plain);
}

#[test]
fn a_lora_is_read_once_and_changes_only_its_own_drawing() {
    let pipeline = open("tiny-image");
    let plain = draw(&pipeline, request());
    let with = || ImageRequest {
        loras: vec![lora("kohya", 1.0, 1.0)],
        ..request()
    };
    let changed = draw(&pipeline, with());
    assert_ne!(plain, changed);
    assert_eq!(draw(&pipeline, with()), changed);
    assert_eq!(draw(&pipeline, request()), plain);
    let without = ImageRequest {
        loras: vec![lora("kohya", 0.0, 0.0)],
        ..request()
    };
    assert_eq!(draw(&pipeline, without), plain);
    assert_eq!(pipeline.networks.adapters.loras.count(), 1);
}

#[track_caller]
fn refused(model: &str, loras: Vec<LoraUse>) -> String {
    let pipeline = open(model);
    let request = MakeRequest::from(ImageRequest { loras, ..request() });
    if let Err(refusal) = pipeline.check(&request) {
        return refusal.to_string();
    }
    let mut job = pipeline.begin(request).unwrap();
    loop {
        match job.advance() {
            Ok(Advance::Busy | Advance::Step { .. }) => {}
            Ok(other) => panic!("{other:?}"),
            Err(Failure::BadRequest(reason)) => return reason,
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_lora_of_another_base_is_refused_by_name() {
    let error = refused("tiny-image", vec![lora("kohya-xl", 1.0, 1.0)]);
    assert!(error.contains("kohya-xl.safetensors"), "{error}");
    assert!(error.contains("made for another one"), "{error}");
    let error = refused("tiny-image-xl", vec![lora("locon", 1.0, 1.0)]);
    assert!(error.contains("lora_unet_"), "{error}");
    assert!(error.contains("made for another one"), "{error}");
    let error = refused("tiny-image", vec![lora("missing", 1.0, 1.0)]);
    assert!(error.contains("missing.safetensors"), "{error}");
    let error = refused("tiny-image", vec![lora("kohya", 1.0, 1.0); 200]);
    assert!(error.contains("200 LoRAs"), "{error}");
    let error = refused("tiny-image", vec![lora("kohya", f32::NAN, 1.0)]);
    assert!(error.contains("strength of a LoRA is NaN"), "{error}");
}

/// A copy of a file with changed bytes, for example a further tensor.
fn altered(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> (tempfile::TempDir, LoraUse) {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(lora(name, 1.0, 1.0).file).unwrap();
    change(&mut bytes);
    let file = folder.path().join("altered.safetensors");
    std::fs::write(&file, bytes).unwrap();
    let lora = LoraUse {
        file,
        model: 1.0,
        clip: 1.0,
    };
    (folder, lora)
}

#[test]
fn broken_loras_are_refused_by_name() {
    let check = |change: fn(&mut Vec<u8>), wanted: &str| {
        let (_folder, lora) = altered("kohya", change);
        let error = refused("tiny-image", vec![lora]);
        assert!(error.contains(wanted), "{error}");
    };
    check(
        |bytes| bytes.truncate(bytes.len() / 2),
        "altered.safetensors",
    );
    // The last number, in f16.
    check(
        |bytes| {
            let at = bytes.len() - 2;
            bytes[at..].copy_from_slice(&0x7e00_u16.to_le_bytes());
        },
        "found NaN, expected finite numbers",
    );
    check(
        |bytes| {
            let name = b"lora_down.weight";
            let at = bytes.windows(name.len()).position(|it| it == name).unwrap();
            bytes[at..at + 4].copy_from_slice(b"oft_");
        },
        "supported: LoRA, LoCon, LoHa, LoKr",
    );
}

#[test]
fn words_of_inversions_agree_with_the_reference() {
    for (model, name) in [("tiny-image", "word"), ("tiny-image-xl", "word-xl")] {
        let pipeline = open(model);
        let with = |prompt: &str| ImageRequest {
            prompt: prompt.to_owned(),
            inversions: vec![Inversion {
                name: "word".to_owned(),
                file: fixtures().join(format!("golden/ways/{name}.safetensors")),
            }],
            ..request()
        };
        let found = latent_of(&pipeline, with("a embedding:word on red"));
        check_latent(&found, &ways().numbers(name), name);
        let other = match model {
            "tiny-image" => "word-xl",
            _ => "word",
        };
        let mut foreign = with("a embedding:word");
        foreign.inversions[0].file = fixtures().join(format!("golden/ways/{other}.safetensors"));
        let refusal = pipeline.check(&foreign.into());
        let refusal = refusal.unwrap_err().to_string();
        assert!(
            refusal.contains(&format!("{other}.safetensors")),
            "{refusal}"
        );
    }
}
