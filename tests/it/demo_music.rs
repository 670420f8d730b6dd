//! The music model that the program carries: the song of the reference implementation, and melodies that do as they are told.

use std::f64::consts::TAU;

use muster::runtime::DeviceChoice;
use muster::runtime::maker::{Advance, Output, Pcm, Pipeline, SoundRequest};
use muster::runtime::music::MusicSource;
use serde::Deserialize;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/demo-music");
/// Of samples from -1 to 1.
const TOLERANCE: f64 = 0.01;

#[derive(Deserialize)]
struct MusicReference {
    prompt: String,
    seconds: f32,
    seed: u64,
    steps: u32,
    rate: u32,
    /// Samples of the whole song.
    count: usize,
    /// Every so many of them are kept.
    every: usize,
    samples: Vec<f64>,
}

/// Traits measured in a song.
#[derive(Debug, PartialEq)]
struct MelodyTraits {
    start: &'static str,
    /// Places on the scale away from the start, of the first notes.
    steps: [i32; 4],
    /// Frames of a note.
    tempo: usize,
    has_overtones: bool,
    dies_away: bool,
}

/// Captions whose combinations training never had.
const HELD_OUT: [(&str, MelodyTraits); 8] = [
    (
        "a medium guitar melody that stays on A",
        traits("A", [0, 0, 0, 0], 6, true, true),
    ),
    (
        "a medium guitar melody that goes up and down from F",
        traits("F", [0, 1, 2, 1], 6, true, true),
    ),
    (
        "a fast organ melody that falls from B",
        traits("B", [0, -1, -2, -3], 3, true, false),
    ),
    (
        "a fast flute melody that stays on E",
        traits("E", [0, 0, 0, 0], 3, false, false),
    ),
    (
        "a fast bell melody that falls from E",
        traits("E", [0, -1, -2, -3], 3, false, true),
    ),
    (
        "a medium organ melody that goes up and down from A",
        traits("A", [0, 1, 2, 1], 6, true, false),
    ),
    (
        "a slow flute melody that rises from F",
        traits("F", [0, 1, 2, 3], 12, false, false),
    ),
    (
        "a slow bell melody that rises from E",
        traits("E", [0, 1, 2, 3], 12, false, true),
    ),
];

const fn traits(
    start: &'static str,
    steps: [i32; 4],
    tempo: usize,
    has_overtones: bool,
    dies_away: bool,
) -> MelodyTraits {
    MelodyTraits {
        start,
        steps,
        tempo,
        has_overtones,
        dies_away,
    }
}

/// Frames a second are as many as the waves of the notes are multiples of.
const RATE: f64 = 16_000.0;
const FRAME: usize = 1456;
const STEP: usize = FRAME / 4;
const NAMES: [&str; 13] = [
    "C", "D", "E", "F", "G", "A", "B", "C", "D", "E", "F", "G", "A",
];
const WAVES: [f64; 13] = [
    24.0, 27.0, 30.0, 32.0, 36.0, 40.0, 45.0, 48.0, 54.0, 60.0, 64.0, 72.0, 80.0,
];
const TEMPOS: [usize; 3] = [3, 6, 12];

#[test]
fn melodies_are_those_of_their_captions() {
    let pipeline = MusicSource::new(FOLDER).load(DeviceChoice::Cpu).unwrap();
    let mut wrong = Vec::new();
    for (caption, wanted) in HELD_OUT {
        let sound = made(
            &pipeline,
            SoundRequest {
                prompt: caption.to_owned(),
                seconds: Some(4.0),
                seed: Some(1),
                ..SoundRequest::default()
            },
        );
        let heard = listen(&sound);
        if heard.as_ref() != Some(&wanted) {
            wrong.push(format!("{caption}: {heard:?}"));
        }
    }
    assert!(wrong.len() <= 1, "{wrong:#?}");
}

/// None where no melody is heard.
fn listen(sound: &Pcm) -> Option<MelodyTraits> {
    assert_eq!((f64::from(sound.rate), sound.channels), (RATE, 1));
    let samples: Vec<f64> = sound.samples.iter().map(|&sample| sample.into()).collect();
    let begins: Vec<usize> = onsets(&samples)
        .into_iter()
        .map(|at| at * STEP)
        .filter(|at| at + 2 * FRAME <= samples.len())
        .collect();
    if begins.len() < 4 {
        return None;
    }
    let notes: Vec<&[f64]> = begins
        .iter()
        .map(|at| &samples[at + STEP / 2..][..FRAME])
        .collect();
    let heard: Vec<f64> = notes.iter().map(|note| pitch(note)).collect();
    let gap =
        |hertz: f64, place: usize| (hertz / (WAVES[place] * RATE / FRAME as f64)).log2().abs();
    let nearest = |hertz: f64| {
        (0..WAVES.len())
            .min_by(|a, b| gap(hertz, *a).total_cmp(&gap(hertz, *b)))
            .unwrap()
    };
    let first = nearest(heard[0]);
    if heard
        .iter()
        .take(4)
        .any(|&hertz| gap(hertz, nearest(hertz)) > 0.05)
    {
        return None;
    }
    let steps = [0, 1, 2, 3].map(|at| nearest(heard[at]) as i32 - first as i32);
    let between = median(begins.windows(2).map(|pair| (pair[1] - pair[0]) as f64));
    let off = |tempo: usize| (between / (tempo * FRAME) as f64).ln().abs();
    let tempo = TEMPOS
        .into_iter()
        .min_by(|a, b| off(*a).total_cmp(&off(*b)))
        .unwrap();
    let pairs = notes.iter().zip(&heard);
    let overtones = median(pairs.map(|(note, hertz)| {
        let over: f64 = (2..6)
            .map(|many| amplitude(note, hertz * f64::from(many)).powi(2))
            .sum();
        over.sqrt() / amplitude(note, *hertz)
    }));
    let lasting = median(begins.iter().map(|at| {
        let [early, late] =
            [FRAME / 4, 5 * FRAME / 4].map(|from| loudness(&samples[at + from..][..FRAME / 2]));
        late / early
    }));
    Some(MelodyTraits {
        start: NAMES[first],
        steps,
        tempo,
        has_overtones: overtones > 0.25,
        dies_away: lasting < 0.78,
    })
}

/// Where the sound is half as loud again as within three steps before.
fn onsets(samples: &[f64]) -> Vec<usize> {
    let loud: Vec<f64> = samples.chunks_exact(STEP).map(loudness).collect();
    let least = loud.iter().copied().fold(0.0, f64::max) / 4.0;
    let mut found: Vec<usize> = Vec::new();
    for (at, &here) in loud.iter().enumerate() {
        let before = loud[at.saturating_sub(3)..at].iter().copied();
        let before = before.reduce(f64::min).unwrap_or(0.0);
        let is_apart = found.last().is_none_or(|last| at - last >= 6);
        if here > least && here > 1.5 * before && is_apart {
            found.push(at);
        }
    }
    found
}

/// In Hz: the shortest lag of nearly the highest correlation of a sound with itself.
fn pitch(note: &[f64]) -> f64 {
    let mean = note.iter().sum::<f64>() / note.len() as f64;
    let note: Vec<f64> = note.iter().map(|sample| sample - mean).collect();
    let (shortest, longest) = ((RATE / 1000.0) as usize, (RATE / 240.0) as usize);
    let size = note.len() - longest;
    let energy = |from: usize| dot(&note[from..][..size], &note[from..][..size]);
    let likeness: Vec<f64> = (shortest..=longest)
        .map(|lag| {
            dot(&note[..size], &note[lag..][..size]) / (energy(0) * energy(lag) + 1e-12).sqrt()
        })
        .collect();
    let is_peak =
        |at: &usize| likeness[*at] >= likeness[at - 1] && likeness[*at] >= likeness[at + 1];
    let peaks: Vec<usize> = (1..likeness.len() - 1).filter(is_peak).collect();
    let most = peaks.iter().map(|&at| likeness[at]).fold(0.0, f64::max);
    let Some(&at) = peaks.iter().find(|at| likeness[**at] > 0.93 * most) else {
        return 1.0;
    };
    let [left, here, right] = [at - 1, at, at + 1].map(|at| likeness[at]);
    let off = 0.5 * (left - right) / (left - 2.0 * here + right - 1e-12);
    RATE / ((shortest + at) as f64 + off)
}

fn amplitude(note: &[f64], frequency: f64) -> f64 {
    let (mut real, mut imaginary, mut weights) = (0.0, 0.0, 0.0);
    for (at, sample) in note.iter().enumerate() {
        let weight = 0.5 - 0.5 * (TAU * at as f64 / (note.len() - 1) as f64).cos();
        let angle = TAU * frequency * at as f64 / RATE;
        real += weight * sample * angle.cos();
        imaginary += weight * sample * angle.sin();
        weights += weight;
    }
    real.hypot(imaginary) / weights
}

fn loudness(part: &[f64]) -> f64 {
    (dot(part, part) / part.len() as f64).sqrt()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn made(pipeline: &impl Pipeline, request: SoundRequest) -> Pcm {
    let mut job = pipeline.begin(request.into()).unwrap();
    loop {
        match job.advance().unwrap() {
            Advance::Made(Output::Sound(sound)) => return sound,
            Advance::Busy | Advance::Step { .. } => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

#[test]
fn the_demo_music_is_that_of_the_reference() {
    let text = std::fs::read_to_string(format!("{FOLDER}/reference.json")).unwrap();
    let reference: MusicReference = serde_json::from_str(&text).unwrap();
    let pipeline = MusicSource::new(FOLDER).load(DeviceChoice::Cpu).unwrap();
    let request = SoundRequest {
        prompt: reference.prompt,
        seconds: Some(reference.seconds),
        steps: Some(reference.steps),
        seed: Some(reference.seed),
        ..SoundRequest::default()
    };
    let sound = made(&pipeline, request);
    assert_eq!(sound.rate, reference.rate);
    assert_eq!(sound.samples.len(), reference.count);
    let found = sound.samples.iter().step_by(reference.every);
    for (at, (&found, wanted)) in found.zip(&reference.samples).enumerate() {
        let gap = (f64::from(found) - wanted).abs();
        assert!(
            gap < TOLERANCE,
            "sample {}: {found}, not {wanted}",
            at * reference.every
        );
    }
}
