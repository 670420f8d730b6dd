//! The two small built-in speech models: one synthesizes, the other transcribes.

use std::fs;

use muster::media::sound::{Sound, WavFormat, listen, to_wav};
use muster::runtime::DeviceChoice;
use muster::runtime::hearing::TranscriptRequest;
use muster::runtime::hearing::{HearingPipeline, HearingSource, SAMPLE_RATE, TranscriptSegment};
use muster::runtime::maker::{Advance, MakeRequest, Output, Pcm, Pipeline, SoundRequest};
use muster::runtime::speech::{SpeechPipeline, SpeechSource};
use serde::Deserialize;

const HEARING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/demo-hearing");
const SPEECH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/demo-speech");

/// What transformers hears of `reference.wav`.
#[derive(Deserialize)]
struct HearingReference {
    text: String,
    tokens: Vec<u32>,
    from: f64,
    to: f64,
    average_logprob: f32,
}

/// Sentences that neither training had.
const HELD_OUT: [&str; 12] = [
    "sugar mountain garden",
    "apple tree red cold big fish",
    "yellow black mountain cold four",
    "five six three one eight nine",
    "river paper cold",
    "nine seven seven",
    "house music five good",
    "zero seven seven one",
    "house world moon horse",
    "eight six eight five eight",
    "garden garden one house",
    "star eight seven house",
];

fn hearing() -> HearingPipeline {
    HearingSource::new(HEARING).load(DeviceChoice::Cpu).unwrap()
}

fn speech() -> SpeechPipeline {
    SpeechSource::new(SPEECH).load(DeviceChoice::Cpu).unwrap()
}

/// All that a pipeline makes of a request.
fn made(pipeline: &impl Pipeline, request: MakeRequest) -> Vec<Output> {
    let mut job = pipeline.begin(request).unwrap();
    let mut outputs = Vec::new();
    loop {
        match job.advance().unwrap() {
            Advance::Made(output) => outputs.push(output),
            Advance::Busy | Advance::Step { .. } => {}
            Advance::Done => return outputs,
        }
    }
}

/// A sound as the model hears it.
fn speak(pipeline: &SpeechPipeline, text: &str) -> Pcm {
    let request = SoundRequest {
        prompt: text.to_owned(),
        seed: Some(1),
        ..SoundRequest::default()
    };
    let mut samples = Vec::new();
    let mut rate = 0;
    for output in made(pipeline, request.into()) {
        let Output::Sound(pcm) = output else {
            panic!("unexpected {output:?}");
        };
        rate = pcm.rate;
        samples.extend(pcm.samples);
    }
    let spoken = Sound::new(rate, 1, samples).unwrap();
    let file = to_wav(&spoken, WavFormat::Float32).unwrap();
    opened(&file)
}

fn opened(file: &[u8]) -> Pcm {
    let sound = listen(file, SAMPLE_RATE, 60.0).unwrap();
    Pcm {
        rate: sound.rate(),
        channels: sound.channels(),
        samples: sound.into_samples(),
    }
}

fn heard(sound: Pcm, wants_words: bool) -> MakeRequest {
    MakeRequest::from(TranscriptRequest {
        sound,
        languages: Vec::new(),
        is_translated: false,
        prompt: None,
        temperature: None,
        beams: None,
        seed: None,
        wants_words,
        wants_logprobs: true,
    })
}

fn hear(pipeline: &HearingPipeline, sound: Pcm, wants_words: bool) -> Vec<TranscriptSegment> {
    let outputs = made(pipeline, heard(sound, wants_words));
    let parts = outputs.into_iter().map(|output| match output {
        Output::Transcript(part) => part.segments,
        other => panic!("unexpected {other:?}"),
    });
    parts.flatten().collect()
}

fn text_of(segments: &[TranscriptSegment]) -> String {
    let text: String = segments
        .iter()
        .map(|segment| segment.text.as_str())
        .collect();
    text.trim().to_owned()
}

#[test]
fn the_small_models_understand_each_other() {
    let (speech, hearing) = (speech(), hearing());
    let mut wrong = Vec::new();
    for sentence in HELD_OUT {
        let heard = text_of(&hear(&hearing, speak(&speech, sentence), false));
        if heard != sentence {
            wrong.push(format!("{sentence}: {heard}"));
        }
    }
    assert!(wrong.len() <= 2, "{wrong:#?}");
}

#[test]
fn a_sound_of_several_windows_is_heard_to_its_end() {
    let sentences = [
        "good morning",
        "three happy sheep",
        "zero one two three four",
        "hello big green river",
        "five six seven eight nine",
    ];
    let sentences = sentences.join(". ");
    let sound = speak(&speech(), &sentences);
    let seconds = sound.samples.len() as f64 / f64::from(SAMPLE_RATE);
    assert!(seconds > 7.0, "{seconds} s fit into one window of 6");
    let segments = hear(&hearing(), sound, true);
    let text = text_of(&segments);
    let count = text.split(' ').count();
    // A word at the edge of a window may be lost or heard twice.
    assert!((18..=20).contains(&count), "{text}");
    assert!(text.contains("hello big green river"), "{text}");
    assert!(text.ends_with("nine"), "{text}");
    let words: Vec<_> = segments.iter().flat_map(|segment| &segment.words).collect();
    assert_eq!(words.len(), count);
    assert!(words.is_sorted_by(|a, b| a.from <= b.from), "{words:?}");
    assert!(words.last().unwrap().to > seconds - 1.0, "{words:?}");
}

#[test]
fn the_demo_hearing_is_that_of_the_reference() {
    let text = fs::read_to_string(format!("{HEARING}/reference.json")).unwrap();
    let reference: HearingReference = serde_json::from_str(&text).unwrap();
    let sound = opened(&fs::read(format!("{HEARING}/reference.wav")).unwrap());
    let segments = hear(&hearing(), sound, false);
    let [segment] = segments.as_slice() else {
        panic!("not one segment: {segments:?}");
    };
    assert_eq!(segment.text.trim(), reference.text);
    assert_eq!(segment.tokens, reference.tokens);
    assert!((segment.from - reference.from).abs() < 1e-6);
    assert!((segment.to - reference.to).abs() < 1e-6);
    let gap = (segment.average_logprob - reference.average_logprob).abs();
    assert!(gap < 5e-3, "{}", segment.average_logprob);
}

#[test]
fn a_sound_without_words_is_silent() {
    let sound = Pcm {
        rate: SAMPLE_RATE,
        channels: 1,
        samples: vec![0.0; 3 * SAMPLE_RATE as usize],
    };
    let segments = hear(&hearing(), sound, false);
    assert_eq!(text_of(&segments), "");
}

#[test]
fn phonemes_that_the_small_model_never_heard_refuse_no_text() {
    let sound = speak(&speech(), "a pleasure");
    assert!(sound.samples.iter().any(|sample| sample.abs() > 0.01));
}

#[test]
fn sounds_that_are_heard_in_turns_have_the_texts_of_each_alone() {
    let (speech, hearing) = (speech(), hearing());
    let sounds: Vec<Pcm> = HELD_OUT[..3]
        .iter()
        .map(|text| speak(&speech, text))
        .collect();
    let alone: Vec<String> = sounds
        .iter()
        .map(|sound| text_of(&hear(&hearing, sound.clone(), false)))
        .collect();
    let mut jobs: Vec<_> = sounds
        .iter()
        .map(|sound| hearing.begin(heard(sound.clone(), false)).unwrap())
        .collect();
    let mut texts = vec![String::new(); jobs.len()];
    let mut is_done = vec![false; jobs.len()];
    while is_done.contains(&false) {
        for ((job, text), is_done) in jobs.iter_mut().zip(&mut texts).zip(&mut is_done) {
            match job.advance().unwrap() {
                Advance::Made(Output::Transcript(part)) => text.push_str(&text_of(&part.segments)),
                Advance::Done => *is_done = true,
                _ => {}
            }
        }
    }
    assert_eq!(texts, alone);
}
