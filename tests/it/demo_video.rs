//! The video model that the program carries: the video of the reference implementation, and clips that do as they are told.

use muster::runtime::DeviceChoice;
use muster::runtime::maker::{Advance, Output, Pipeline, Pixels};
use muster::runtime::video::VideoRequest;
use muster::runtime::video::VideoSource;
use serde::Deserialize;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/demo-video");
/// Of mean colors from 0 to 255.
const TOLERANCE: f64 = 2.0;

#[derive(Deserialize)]
struct VideoReference {
    prompt: String,
    negative_prompt: String,
    seed: u64,
    steps: u32,
    cfg_scale: f32,
    width: u32,
    height: u32,
    frames: u32,
    /// Mean colors of fields: frames, rows, columns.
    fields: Vec<Vec<Vec<[f64; 3]>>>,
}

/// Captions whose combinations training never had, with background, first and last color of the object, and change.
const HELD_OUT: [(&str, &str, &str, &str, &str); 14] = [
    (
        "a black circle moves to the right on a green background",
        "green",
        "black",
        "black",
        "right",
    ),
    (
        "a white circle moves to the left on a blue background",
        "blue",
        "white",
        "white",
        "left",
    ),
    (
        "a red circle moves up on a white background",
        "white",
        "red",
        "red",
        "up",
    ),
    (
        "a black circle moves down on a yellow background",
        "yellow",
        "black",
        "black",
        "down",
    ),
    (
        "a green circle grows on a black background",
        "black",
        "green",
        "green",
        "grows",
    ),
    (
        "a green circle shrinks on a yellow background",
        "yellow",
        "green",
        "green",
        "shrinks",
    ),
    (
        "a white circle turns green on a red background",
        "red",
        "white",
        "green",
        "turns",
    ),
    (
        "a yellow square moves to the right on a blue background",
        "blue",
        "yellow",
        "yellow",
        "right",
    ),
    (
        "a red square moves to the left on a green background",
        "green",
        "red",
        "red",
        "left",
    ),
    (
        "a green square moves up on a white background",
        "white",
        "green",
        "green",
        "up",
    ),
    (
        "a yellow square moves down on a white background",
        "white",
        "yellow",
        "yellow",
        "down",
    ),
    (
        "a blue square grows on a black background",
        "black",
        "blue",
        "blue",
        "grows",
    ),
    (
        "a blue square shrinks on a yellow background",
        "yellow",
        "blue",
        "blue",
        "shrinks",
    ),
    (
        "a blue square turns black on a green background",
        "green",
        "blue",
        "black",
        "turns",
    ),
];
const COLORS: [(&str, [i32; 3]); 6] = [
    ("red", [220, 30, 30]),
    ("green", [30, 170, 50]),
    ("blue", [40, 70, 220]),
    ("yellow", [240, 220, 40]),
    ("white", [245, 245, 245]),
    ("black", [15, 15, 15]),
];

#[test]
fn clips_change_as_their_captions_say() {
    let pipeline = VideoSource::new(FOLDER).load(DeviceChoice::Cpu).unwrap();
    let mut wrong = Vec::new();
    for (caption, background, color, last_color, change) in HELD_OUT {
        let frames = made(
            &pipeline,
            VideoRequest {
                prompt: caption.to_owned(),
                width: Some(64),
                height: Some(64),
                frames: Some(17),
                steps: Some(20),
                cfg_scale: Some(4.0),
                seed: Some(1),
                ..VideoRequest::default()
            },
        );
        let (first, last) = (look(&frames[0]), look(frames.last().unwrap()));
        let wanted = (background, color, last_color, change);
        let found = (
            first.background,
            first.color,
            last.color,
            change_of(&first, &last),
        );
        if found != wanted || last.background != background {
            wrong.push(format!("{caption}: {found:?}"));
        }
    }
    assert!(wrong.len() <= 2, "{wrong:#?}");
}

/// The object of a frame: what differs from the color of the border.
struct FrameLook {
    background: &'static str,
    color: &'static str,
    x: f64,
    y: f64,
    area: f64,
}

fn look(frame: &Pixels) -> FrameLook {
    let (width, height) = (frame.width as usize, frame.height as usize);
    let nearest = |at: usize| {
        let gap = |color: &[i32; 3]| -> i32 {
            let levels = frame.bytes[3 * at..3 * at + 3].iter().zip(color);
            levels
                .map(|(level, wanted)| (i32::from(*level) - wanted).pow(2))
                .sum()
        };
        (0..COLORS.len())
            .min_by_key(|color| gap(&COLORS[*color].1))
            .unwrap()
    };
    let is_border = |at: usize| {
        let (x, y) = (at % width, at / width);
        x == 0 || y == 0 || x == width - 1 || y == height - 1
    };
    let mut border = [0; COLORS.len()];
    let mut inside = [0; COLORS.len()];
    let seen: Vec<usize> = (0..width * height).map(nearest).collect();
    for (at, color) in seen.iter().enumerate() {
        let counts = if is_border(at) {
            &mut border
        } else {
            &mut inside
        };
        counts[*color] += 1;
    }
    let most = |counts: &[usize]| (0..counts.len()).max_by_key(|at| counts[*at]).unwrap();
    let background = most(&border);
    inside[background] = 0;
    let color = most(&inside);
    let object = seen
        .iter()
        .enumerate()
        .filter(|(_, found)| **found == color);
    let (mut x, mut y, mut area) = (0.0, 0.0, 0.0);
    for (at, _) in object {
        x += (at % width) as f64;
        y += (at / width) as f64;
        area += 1.0;
    }
    FrameLook {
        background: COLORS[background].0,
        color: COLORS[color].0,
        x: x / area / width as f64,
        y: y / area / height as f64,
        area,
    }
}

fn change_of(first: &FrameLook, last: &FrameLook) -> &'static str {
    let (x, y, ratio) = (last.x - first.x, last.y - first.y, last.area / first.area);
    match () {
        () if x.abs().max(y.abs()) > 0.2 && x.abs() > y.abs() => {
            if x > 0.0 {
                "right"
            } else {
                "left"
            }
        }
        () if y.abs() > 0.2 => {
            if y > 0.0 {
                "down"
            } else {
                "up"
            }
        }
        () if first.color != last.color => "turns",
        () if ratio > 1.8 => "grows",
        () if ratio < 0.55 => "shrinks",
        () => "stays",
    }
}

fn made(pipeline: &impl Pipeline, request: VideoRequest) -> Vec<Pixels> {
    let mut job = pipeline.begin(request.into()).unwrap();
    let mut all = Vec::new();
    loop {
        match job.advance().unwrap() {
            Advance::Made(Output::Frames { frames, .. }) => all.extend(frames),
            Advance::Done => return all,
            Advance::Busy | Advance::Step { .. } => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

#[test]
fn the_demo_video_is_that_of_the_reference() {
    let text = std::fs::read_to_string(format!("{FOLDER}/reference.json")).unwrap();
    let reference: VideoReference = serde_json::from_str(&text).unwrap();
    let pipeline = VideoSource::new(FOLDER).load(DeviceChoice::Cpu).unwrap();
    let request = VideoRequest {
        prompt: reference.prompt,
        negative_prompt: Some(reference.negative_prompt),
        width: Some(reference.width),
        height: Some(reference.height),
        frames: Some(reference.frames),
        steps: Some(reference.steps),
        cfg_scale: Some(reference.cfg_scale),
        seed: Some(reference.seed),
        ..VideoRequest::default()
    };
    let frames = made(&pipeline, request);
    assert_eq!(frames.len(), reference.fields.len());
    for (at, (frame, rows)) in frames.iter().zip(&reference.fields).enumerate() {
        for (y, row) in rows.iter().enumerate() {
            for (x, wanted) in row.iter().enumerate() {
                let found = mean(frame, [x, y], [row.len(), rows.len()]);
                let gaps = found.iter().zip(wanted).map(|(a, b)| (a - b).abs());
                let gap = gaps.fold(0.0, f64::max);
                assert!(
                    gap < TOLERANCE,
                    "frame {at}, field {x} {y}: {found:?}, not {wanted:?}"
                );
            }
        }
    }
}

/// The mean color of one of so many fields.
fn mean(frame: &Pixels, [x, y]: [usize; 2], [columns, rows]: [usize; 2]) -> [f64; 3] {
    let (width, height) = (frame.width as usize, frame.height as usize);
    let (wide, high) = (width / columns, height / rows);
    let mut sums = [0.0; 3];
    for row in y * high..(y + 1) * high {
        for column in x * wide..(x + 1) * wide {
            let pixel = &frame.bytes[3 * (row * width + column)..][..3];
            for (sum, &level) in sums.iter_mut().zip(pixel) {
                *sum += f64::from(level);
            }
        }
    }
    sums.map(|sum| sum / (wide * high) as f64)
}
