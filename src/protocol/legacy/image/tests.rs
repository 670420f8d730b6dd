use serde_json::{Value, json};
use uuid::Uuid;

use super::baseline::Baseline;
use super::check::{Asker, Known};
use super::metadata::{GenerationMetadataImage, MetadataType, MetadataValue, hidden};
use super::params::{
    ExtraText, ModelGenerationInputImage, ModelPayloadLorasImage,
    ModelPayloadTextualInversionsImage, ModelStyleInputParamsImage,
};
use super::payload::{GenerationPayloadImage, ModelPayloadImage, NoValidRequestFoundImage};
use super::request::{ExtraSourceImage, GenerationInputImage};
use super::status::{GenerationImage, RequestStatusImage};
use crate::job::JobId;
use crate::legacy::requests::RequestStatusCheck;
use crate::legacy::schemas::{assert_fits, assert_reads};
use crate::legacy::words::ResultState;
use crate::legacy::{Body, Code, Refusal};

#[test]
fn image_requests_are_read_as_the_contract_says() {
    assert_reads::<GenerationInputImage>("GenerationInputImage");
    assert_reads::<ModelGenerationInputImage>("ModelGenerationInputImage");
    assert_reads::<ModelStyleInputParamsImage>("ModelStyleInputParamsImage");
    assert_reads::<ModelPayloadLorasImage>("ModelPayloadLorasImage");
    assert_reads::<ModelPayloadTextualInversionsImage>("ModelPayloadTextualInversionsImage");
    assert_reads::<ExtraSourceImage>("ExtraSourceImage");
    assert_reads::<ExtraText>("ExtraText");
}

#[test]
fn everything_that_is_wrong_is_said_at_once_under_its_path() {
    let body = json!({
        "prompt": "",
        "nsfw": null,
        "models": ["a", 5],
        "params": {
            "width": 500,
            "steps": 20.5,
            "seed": 5,
            "karras": "true",
            "sampler_name": "k_none",
            "post_processing": ["GFPGAN", "GFPGAN"],
            "loras": [{"model": 1}, {"name": ""}],
        },
    });
    let Err(Refusal::Invalid(errors)) = GenerationInputImage::read(body) else {
        panic!("it was taken");
    };
    insta::assert_debug_snapshot!(errors);
}

#[test]
fn no_text_beside_the_prompt_is_without_end() {
    let long = "x".repeat(10_000);
    for (body, path) in [
        (json!({"models": [long]}), "models.0"),
        (json!({"workers": [long]}), "workers.0"),
        (json!({"proxied_account": long}), "proxied_account"),
        (json!({"params": {"seed": long}}), "params.seed"),
        (
            json!({"params": {"extra_texts": [{"reference": long}]}}),
            "params.extra_texts.0.reference",
        ),
        (
            json!({"params": {"extra_texts": [{"text": long}]}}),
            "params.extra_texts.0.text",
        ),
    ] {
        let mut asked = body;
        asked["prompt"] = json!("p");
        let Err(Refusal::Invalid(errors)) = GenerationInputImage::read(asked) else {
            panic!("{path} was taken");
        };
        let paths: Vec<_> = errors.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, [path]);
    }
}

#[test]
fn a_body_that_is_no_object_is_refused_as_a_whole() {
    for body in [json!([]), json!("x"), Value::Null] {
        let refusal = GenerationInputImage::read(body).unwrap_err();
        assert!(matches!(&refusal, Refusal::Invalid(errors) if errors[0].0.is_empty()));
    }
    let broken = GenerationInputImage::parse(b"{\"prompt\":").unwrap_err();
    assert_eq!((broken.status(), broken.code()), (400, None));
    assert!(broken.body().get("errors").is_none());
}

#[test]
fn a_million_wrong_items_get_a_short_answer() {
    let models = vec![5; 200_000];
    let refusal = GenerationInputImage::read(json!({"prompt": "p", "models": models})).unwrap_err();
    assert!(refusal.body().to_string().len() < 20_000);
}

#[test]
fn a_nul_goes_no_further() {
    let nul = |body| GenerationInputImage::read(body).unwrap_err().code();
    assert_eq!(nul(json!({"prompt": "a\0b"})), Some(Code::NulByteInPayload));
    let deep = json!({"prompt": "p", "params": {"special": {"a": [{"b\0": 1}]}}});
    assert_eq!(nul(deep), Some(Code::NulByteInPayload));
    // NUL is allowed in fields that are never read.
    assert!(GenerationInputImage::read(json!({"prompt": "p", "unknown": "\0"})).is_ok());
}

#[test]
fn prompts_are_not_repeated_in_errors() {
    let refusal = GenerationInputImage::read(
        json!({"prompt": "p", "source_image": ["secret"], "models": "secret"}),
    );
    assert!(!refusal.unwrap_err().body().to_string().contains("secret"));
}

#[test]
fn defaults_are_those_really_applied() {
    let request = GenerationInputImage::read(json!({"prompt": "p"})).unwrap();
    let params = &request.params;
    assert_eq!(
        (params.steps(), params.cfg_scale, params.karras),
        (30, 5.0, true)
    );
    assert_eq!(request.models, ["stable_diffusion"]);
    assert!(request.nsfw && request.censor_nsfw && request.r2 && !request.validated_backends);
    let controlled = |params: Value| ModelGenerationInputImage::read(params).unwrap().steps();
    assert_eq!(controlled(json!({"control_type": "canny"})), 20);
    assert_eq!(
        controlled(json!({"control_type": "canny", "steps": 90})),
        40
    );
}

#[test]
fn a_payload_is_the_request_as_workers_know_it() {
    let request = GenerationInputImage::read(json!({
        "prompt": "a cat ### a dog", "nsfw": false,
        "params": {
            "seed_variation": 2, "n": 4, "loras": [{"name": "x"}], "post_processing": ["GFPGAN"],
            "clip_skip": 2, "special": {"a": null}, "denoising_strength": 0.5,
        },
    }));
    let payload = ModelPayloadImage::of(&request.unwrap(), 2, 77);
    assert_fits("ModelPayloadImage", &payload);
    insta::assert_json_snapshot!(payload);
}

#[test]
fn an_empty_pop_holds_defaults_and_reasons() {
    let skipped = NoValidRequestFoundImage {
        post_processing: Some(0),
        models: Some(2),
        ..Default::default()
    };
    let mut pop = GenerationPayloadImage::empty(skipped, Vec::new());
    assert_fits("GenerationPayloadImage", &pop);
    let empty = serde_json::to_value(&pop).unwrap();
    assert_eq!(empty["skipped"], json!({"post-processing": 0, "models": 2}));
    pop.id = Some(JobId::random());
    pop.ids = pop.id.into_iter().collect();
    pop.extra_source_images = Some(vec![ExtraSourceImage::default()]);
    pop.r2_uploads = Some(vec!["https://example.org/up".to_owned()]);
    assert_fits("GenerationPayloadImage", &pop);
}

#[test]
fn a_status_is_what_the_contract_says() {
    let remark = GenerationMetadataImage {
        r#type: MetadataType::Lora,
        value: MetadataValue::DownloadFailed,
        r#ref: Some("12".to_owned()),
    };
    assert!(hidden(std::slice::from_ref(&remark)).is_none());
    let image = GenerationImage {
        img: "https://example.org/cat.webp".to_owned(),
        seed: "77".to_owned(),
        id: JobId::random(),
        censored: false,
        gen_metadata: vec![remark],
        worker_id: Uuid::nil(),
        worker_name: "w".to_owned(),
        model: "m".to_owned(),
        state: ResultState::Ok,
    };
    let status = RequestStatusImage {
        generations: vec![image],
        shared: false,
        progress: RequestStatusCheck::default(),
    };
    assert_fits("RequestStatusImage", &status);
}

const NOBODY: Asker<'static> = Asker {
    alias: "alice#1",
    special: false,
    trusted: false,
};

fn refused(asker: Asker, body: Value) -> Option<Code> {
    let baseline = |model: &str| match model {
        "sd2" => Baseline::Sd2,
        "sdxl" => Baseline::Sdxl,
        "flux" => Baseline::Flux,
        "cascade" => Baseline::Cascade,
        other => Baseline::of_unknown(other),
    };
    let known = Known {
        baseline: &baseline,
        asker,
    };
    let request = GenerationInputImage::read(body).unwrap();
    request
        .check(known)
        .err()
        .and_then(|refusal| refusal.code())
}

#[test]
fn what_does_not_go_together_is_refused_by_its_code() {
    let check = |models: Value, params: Value, more: Value, expected: Option<Code>| {
        let mut body = json!({"prompt": "p", "models": models, "params": params});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        assert_eq!(refused(NOBODY, body.clone()), expected, "{body}");
    };
    let none = || json!({});
    let image = || json!({"source_image": "x"});
    let lora = |name: &str| json!({"name": name, "is_version": true});
    check(json!([]), none(), none(), None);
    check(
        json!(["flux"]),
        json!({"hires_fix": true}),
        none(),
        Some(Code::HiResMismatch),
    );
    check(
        json!([]),
        json!({"loras": vec![json!({"name": "x"}); 6]}),
        none(),
        Some(Code::TooManyLoras),
    );
    check(
        json!([]),
        json!({"loras": [lora("12a")]}),
        none(),
        Some(Code::BadLoraVersion),
    );
    check(json!([]), json!({"loras": [lora("12")]}), none(), None);
    check(
        json!([]),
        json!({"tis": vec![json!({"name": "x"}); 21]}),
        none(),
        Some(Code::TooManyTIs),
    );
    check(
        json!(["sd2"]),
        json!({"transparent": true}),
        none(),
        Some(Code::InvalidTransparencyModel),
    );
    check(
        json!(["cascade"]),
        json!({"workflow": "qr_code"}),
        none(),
        Some(Code::QrCodeMismatch),
    );
    check(
        json!([]),
        none(),
        json!({"prompt": "a ".repeat(7501)}),
        Some(Code::InvalidPromptSize),
    );
    check(
        json!([]),
        none(),
        json!({"prompt": "a ".repeat(7500)}),
        None,
    );
    check(
        json!([]),
        none(),
        json!({"prompt": "a".repeat(70_000)}),
        Some(Code::InvalidPromptSize),
    );
    check(
        json!(["GFPGAN"]),
        none(),
        none(),
        Some(Code::UnexpectedModelName),
    );
    let two = json!({"post_processing": ["RealESRGAN_x4plus", "GFPGAN", "4x_AnimeSharp"]});
    check(json!([]), two, none(), Some(Code::TooManyUpscalers));
    check(
        json!([]),
        json!({"cfg_scale": 7.555}),
        none(),
        Some(Code::BadCFGDecimals),
    );
    check(json!([]), json!({"cfg_scale": 7.55}), none(), None);
    check(
        json!([]),
        json!({"special": {}}),
        none(),
        Some(Code::SpecialFieldNeedsSpecialUser),
    );
    check(
        json!([]),
        none(),
        json!({"source_mask": "x"}),
        Some(Code::SourceMaskUnnecessary),
    );
    let control = |kind: &str| json!({"control_type": kind});
    check(
        json!(["sd2"]),
        control("hough"),
        image(),
        Some(Code::UnsupportedControlNet),
    );
    check(
        json!(["pix2pix"]),
        control("canny"),
        image(),
        Some(Code::UnsupportedControlNet),
    );
    check(
        json!([]),
        control("canny"),
        none(),
        Some(Code::ControlNetSourceMissing),
    );
    let painting = json!({"source_image": "x", "source_processing": "inpainting"});
    check(
        json!([]),
        control("canny"),
        painting,
        Some(Code::ControlNetInpaintingMismatch),
    );
    check(
        json!(["sdxl"]),
        control("canny"),
        image(),
        Some(Code::ControlNetMismatch),
    );
    check(json!(["sd2"]), control("canny"), image(), None);
    let layered = json!({"transparent": true, "control_type": "canny"});
    check(
        json!([]),
        layered,
        image(),
        Some(Code::InvalidTransparencyCN),
    );
    let extra = json!({"extra_source_images": [{"image": "x"}]});
    check(
        json!([]),
        json!({"transparent": true}),
        extra.clone(),
        Some(Code::InvalidTransparencyImg2Img),
    );
    check(
        json!([]),
        none(),
        extra,
        Some(Code::InvalidExtraSourceImages),
    );
    check(
        json!(["sdxl"]),
        none(),
        json!({"source_processing": "remix"}),
        Some(Code::InvalidRemix),
    );
    check(
        json!(["cascade"]),
        none(),
        json!({"source_processing": "remix"}),
        None,
    );
    let texts = |reference: &str| json!([{"text": "t", "reference": reference}]);
    check(
        json!([]),
        json!({"extra_texts": texts("qr_code")}),
        none(),
        Some(Code::InvalidExtraTexts),
    );
    let qr_code = |reference: &str| json!({"workflow": "qr_code", "extra_texts": texts(reference)});
    check(
        json!(["sdxl"]),
        qr_code("other"),
        none(),
        Some(Code::MissingExtraTexts),
    );
    check(json!(["sdxl"]), qr_code("qr_code"), none(), None);
    check(
        json!(["pix2pix"]),
        none(),
        none(),
        Some(Code::SourceImageRequiredForModel),
    );
    let six = json!({"extra_source_images": vec![json!({"image": "x"}); 6]});
    check(json!([]), none(), six, Some(Code::TooManyExtraSourceImages));
    let two = json!({"extra_source_images": vec![json!({"image": "x"}); 2]});
    check(
        json!([]),
        none(),
        two,
        Some(Code::MoreThanMinExtraSourceImage),
    );
    let alone = json!({"disable_batching": true});
    check(json!([]), json!({"n": 2}), alone, Some(Code::RequiresTrust));
}

#[test]
fn special_models_are_for_their_user() {
    let special = Asker {
        special: true,
        ..NOBODY
    };
    let check = |asker, model: &str, params: Value, expected| {
        let body = json!({"prompt": "p", "models": [model], "params": params});
        assert_eq!(refused(asker, body), expected, "{model}");
    };
    let params = || json!({"special": {"a": 1}});
    check(
        NOBODY,
        "horde_special::alice#1",
        params(),
        Some(Code::SpecialModelNeedsSpecialUser),
    );
    check(
        special,
        "horde_special",
        params(),
        Some(Code::SpecialMissingUsername),
    );
    check(
        special,
        "horde_special::bob#2",
        params(),
        Some(Code::SpecialForbidden),
    );
    check(
        special,
        "horde_special::alice#1",
        json!({}),
        Some(Code::SpecialMissingPayload),
    );
    check(special, "horde_special::alice#1", params(), None);
}
