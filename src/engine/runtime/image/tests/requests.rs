//! Fields of requests: defaults and limits.

use super::*;

#[test]
fn what_a_request_leaves_open_is_the_models() {
    let mut pipeline = open("tiny-image");
    let image = |request: ImageRequest| {
        let plan = DrawingPlan::new(&pipeline.networks, &pipeline.defaults, request);
        let plan = plan.unwrap();
        ([plan.width, plan.height], plan.steps(), plan.cfg_scale)
    };
    assert_eq!(image(ImageRequest::default()), ([64, 64], 25, 7.0));
    let source = Some(Pixels::rgb(70, 41, |_, _| [0; 3]));
    let request = ImageRequest {
        source,
        ..ImageRequest::default()
    };
    assert_eq!(image(request).0, [68, 40]);
    pipeline.defaults = ImageDefaults {
        size: Some([40, 48]),
        steps: Some(2),
        cfg_scale: Some(1.0),
        ..ImageDefaults::default()
    };
    let plan = DrawingPlan::new(
        &pipeline.networks,
        &pipeline.defaults,
        ImageRequest::default(),
    );
    let plan = plan.unwrap();
    assert_eq!(([plan.width, plan.height], plan.steps()), ([40, 48], 2));
    assert_eq!(plan.negative, None);
}

#[test]
fn requests_beyond_the_limits_are_refused_by_name() {
    let mut pipeline = open("tiny-image");
    let refused = |request: ImageRequest, reason: &str| {
        let refused = pipeline.check(&request.into());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    };
    let sized = |width, height| ImageRequest {
        width: Some(width),
        height: Some(height),
        ..request()
    };
    refused(sized(0, 64), "width is 0, but the model takes 32 to 4096");
    refused(sized(64, 1_000_000_000), "height is 1000000000");
    refused(sized(66, 64), "multiples of 4; use 64 or 68");
    refused(
        sized(4096, 4096),
        "16777216, but the model takes at most 4194304",
    );
    refused(
        ImageRequest {
            steps: Some(0),
            ..request()
        },
        "steps is 0",
    );
    refused(
        ImageRequest {
            cfg_scale: Some(f32::NAN),
            ..request()
        },
        "cfg_scale is NaN",
    );
    refused(
        ImageRequest {
            clip_skip: Some(4),
            ..request()
        },
        "clip_skip is 4",
    );
    refused(
        ImageRequest {
            index: 1000,
            ..request()
        },
        "index is 1000",
    );
    refused(
        ImageRequest {
            prompt: "a".repeat(1 << 20),
            ..request()
        },
        "1048576 bytes",
    );
    let image = || Some(Pixels::rgb(8, 8, |_, _| [9; 3]));
    refused(
        ImageRequest {
            mask: image(),
            ..request()
        },
        "a mask needs an image",
    );
    let half = ImageRequest {
        source: image(),
        strength: Some(1.5),
        ..request()
    };
    refused(half, "strength is 1.5");
    let little = ImageRequest {
        source: image(),
        strength: Some(1e-4),
        ..request()
    };
    refused(little, "at least 0.0005");
    let mut broken = Pixels::rgb(8, 8, |_, _| [9; 3]);
    broken.height = 9;
    refused(
        ImageRequest {
            source: Some(broken),
            ..request()
        },
        "the source has fewer",
    );
    pipeline.memory_bytes = Some(1 << 10);
    let refused = pipeline.check(&MakeRequest::from(request()));
    assert!(refused.unwrap_err().to_string().contains("MiB are free"));
}
