//! Bodies to requests, and images to replies.

use serde_json::{Value, json};

use super::reply::ImagesHead;
use super::{ImageDoor, ImageFormat, ImagesRequest};
use crate::openai::media::{FinishedMedia, MediaEncoding, MediaGrid};

fn read(more: Value) -> Result<ImagesRequest, String> {
    let mut body = json!({"prompt": "a cat", "model": "m"});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    ImagesRequest::read(body, ImageDoor::Generate)
        .map_err(|problem| format!("{}: {problem}", problem.param.as_deref().unwrap_or("")))
}

#[test]
fn a_plain_request_leaves_settings_to_the_model() {
    let request = read(json!({})).unwrap();
    let image = &request.image;
    assert_eq!((image.width, image.height), (0, 0));
    assert_eq!((image.steps, image.seed, image.karras), (None, None, None));
    assert_eq!(request.delivery.encoding, MediaEncoding::UrlAndBase64);
    assert_eq!(request.delivery.format, ImageFormat::Webp);
    assert!(request.only_polled.is_empty() && request.never_polled.is_empty());
}

#[test]
fn sizes_are_multiples_of_16_within_bounds() {
    let size = |text: &str| {
        let image = read(json!({"size": text}))?.image;
        Ok((image.width, image.height))
    };
    assert_eq!(size("auto"), Ok((0, 0)));
    assert_eq!(size("1536x256"), Ok((1536, 256)));
    assert_eq!(size("1008x4096"), Ok((1008, 4096)));
    for wrong in [
        "",
        "1024",
        "1000x1024",
        "64x64",
        "1024x4112",
        "-64x64",
        "1024X1024",
    ] {
        let error: Result<_, String> = size(wrong);
        assert!(
            error.unwrap_err().starts_with("size: size must be auto"),
            "{wrong}"
        );
    }
}

#[test]
fn sizes_that_public_workers_lack_go_to_workers_of_ours() {
    for (size, is_usual) in [
        ("1024x1536", true),
        ("1008x1024", false),
        ("1024x1600", false),
    ] {
        let request = read(json!({"size": size})).unwrap();
        let named: &[&str] = if is_usual { &[] } else { &["size"] };
        assert_eq!(request.only_polled, named, "{size}");
        assert_eq!(request.never_polled, named, "{size}");
    }
}

#[test]
fn fields_without_an_effect_are_named() {
    let request = read(json!({
        "quality": "high", "safety_identifier": "me", "moderation": "low", "user": null, "n": 10,
    }));
    let request = request.unwrap();
    assert_eq!(request.count, 10);
    assert_eq!(
        request.ignored,
        ["quality", "safety_identifier", "moderation"]
    );
    assert!(read(json!({"n": 11})).is_err());
}

#[test]
fn settings_beyond_openai_are_read_by_their_usual_names() {
    let request = read(json!({
        "sampler": "euler", "scheduler": "karras", "seed": 7, "steps": 8, "cfg_scale": 2,
        "loras": [{"name": "12", "clip": 0.5}], "n": 3, "output_format": "jpg",
    }));
    let request = request.unwrap();
    let image = &request.image;
    assert_eq!(image.sampler.as_deref(), Some("k_euler"));
    assert_eq!((image.karras, &image.scheduler), (Some(true), &None));
    assert_eq!((image.loras[0].model, image.loras[0].clip), (1.0, 0.5));
    assert_eq!(request.delivery.format, ImageFormat::Jpeg);
    assert_eq!(request.only_polled, ["scheduler"]);
    assert_eq!((image.seed, request.count), (Some(7), 3));
    let long = read(json!({"seed": 5_000_000_000_u64})).unwrap();
    assert_eq!(long.never_polled, ["seed"]);
    let passes = read(json!({
        "tiling": true, "hires_fix": true, "hires_fix_denoising_strength": 0.5, "clip_skip": 2,
    }));
    let passes = passes.unwrap();
    assert_eq!(passes.only_polled, ["clip_skip", "tiling", "hires_fix"]);
    let image = &passes.image;
    assert!(image.tiling && image.hires_fix);
    assert_eq!(
        (image.hires_strength, image.clip_skip),
        (Some(0.5), Some(2))
    );
    assert!(read(json!({"hires_fix_denoising_strength": 0.5})).is_err());
}

#[test]
fn a_field_that_cannot_be_honoured_is_refused_by_its_name() {
    let refused = |more: Value, part: &str| {
        let error = read(more).unwrap_err();
        assert!(error.contains(part), "{error}");
    };
    refused(
        json!({"n": 11}),
        "n: n must be an integer from 1 to 10, found 11",
    );
    refused(json!({"prompt": " "}), "prompt: prompt is empty");
    refused(json!({"prompt": null}), "prompt: prompt is missing");
    refused(json!({"background": "transparent"}), "background: ");
    refused(json!({"partial_images": 2}), "partial_images: ");
    refused(json!({"sampler": "k_eular"}), "did you mean k_euler?");
    refused(json!({"loras": [{"name": "a/b"}]}), "loras[0].name: ");
    refused(
        json!({"loras": [{"name": "a", "modle": 1}]}),
        "did you mean loras[0].model?",
    );
    refused(json!({"promt": "x"}), "did you mean prompt?");
}

#[test]
fn a_stream_sends_base64_unless_links_are_wanted() {
    let streamed = read(json!({"stream": true, "partial_images": 2})).unwrap();
    assert_eq!(streamed.delivery.encoding, MediaEncoding::Base64);
    assert_eq!(streamed.previews, 2);
    let links = read(json!({"stream": true, "response_format": "url"})).unwrap();
    assert_eq!(links.delivery.encoding, MediaEncoding::Url);
}

#[test]
fn a_reply_has_the_shape_of_openai() {
    let request = json!({
        "response_format": "b64_json", "output_format": "png", "size": "1024x1024",
    });
    let request = read(request).unwrap();
    let head = ImagesHead::new(9, &request.image, request.delivery, request.door);
    let image = FinishedMedia {
        index: 0,
        url: None,
        base64: Some("AAAA".to_owned()),
        seed: Some(7),
        size: Some((1024, 1024)),
    };
    let grid = MediaGrid {
        job: "j".to_owned(),
        model: "m".to_owned(),
        seconds: 1.234,
        ..MediaGrid::default()
    };
    let expected = json!({
        "created": 9, "output_format": "png", "size": "1024x1024",
        "data": [{"b64_json": "AAAA", "revised_prompt": "a cat", "seed": 7}],
        "grid": {"job_id": "j", "worker": null, "model": "m", "gen_time": 1.23},
    });
    assert_eq!(head.render(std::slice::from_ref(&image), &grid), expected);
    let event = head.completed(&image, &grid);
    assert!(
        event.starts_with("event: image_generation.completed\ndata: {"),
        "{event}"
    );
    assert!(
        event.contains(r#""b64_json":"AAAA""#) && event.ends_with("\n\n"),
        "{event}"
    );
    let partial = head.partial(1, 0, ImageFormat::Webp, "AA");
    assert!(partial.contains(r#""partial_image_index":0"#), "{partial}");
}
