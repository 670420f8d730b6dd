//! A video request.

use serde_json::{Map, Value, json};

use muster_protocol::job::{VideoRequest, samplers};

pub fn keys(video: &VideoRequest) -> Map<String, Value> {
    let (seed, frames) = (video.seed.unwrap_or_default(), video.frames());
    let always = [
        ("prompt", json!(video.prompt)),
        ("n", json!(1)),
        ("ext", json!("mp4")),
        ("width", json!(video.width)),
        ("height", json!(video.height)),
        ("fps", json!(video.fps)),
        ("frames", json!(frames)),
        ("length", json!(frames)),
        ("video_length", json!(frames)),
        ("seed", json!(seed)),
        ("seeds", json!([seed])),
        (
            "recipe_inputs",
            json!({"width": video.width, "height": video.height, "fps": video.fps, "frames": frames}),
        ),
    ];
    let sampler = video.sampler.as_deref().map(samplers::public_name);
    let maybe = [
        ("steps", video.steps.map(|it| json!(it))),
        ("cfg_scale", video.cfg_scale.map(|it| json!(it))),
        ("sampler_name", sampler.map(|it| json!(it))),
        (
            "negative_prompt",
            video.negative_prompt.as_ref().map(|it| json!(it)),
        ),
    ];
    let maybe = maybe.into_iter();
    let maybe = maybe.filter_map(|(key, value)| Some((key, value?)));
    let keys = always.into_iter().chain(maybe);
    keys.map(|(key, value)| (key.to_owned(), value)).collect()
}
