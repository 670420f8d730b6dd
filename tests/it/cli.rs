//! The command line as its user meets it.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use muster::media::sound;
use muster_testing::{Lines, ended};
use serde_json::json;

use crate::support::hub::FakeHub;
use crate::support::worker::{Run, worker};

#[test]
fn help_documents_the_exit_codes_and_shows_examples() {
    let help = worker(&["--help"]).run().ok();
    for part in [
        "Exit codes:",
        "78  invalid configuration",
        "Examples:",
        "worker init",
    ] {
        assert!(help.contains(part), "{part:?} is not in:\n{help}");
    }
}

#[test]
fn without_arguments_it_shows_the_help_and_fails() {
    let run = worker(&[]).run();
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("Usage: worker"));
}

#[test]
fn a_mistyped_command_is_answered_with_the_nearest() {
    worker(&["prob"]).run().fails(2, "'probe'");
}

#[test]
fn a_verbose_nothing_is_refused_with_advice() {
    worker(&["-v"]).run().fails(2, "worker init");
}

#[test]
#[cfg(not(feature = "coordinator"))]
fn commands_without_their_part_say_what_is_missing() {
    worker(&["up"]).run().fails(69, "the coordinator");
    worker(&["serve"]).run().fails(69, "the coordinator");
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(
            worker(&["completions", shell])
                .run()
                .ok()
                .contains("worker"),
            "{shell}"
        );
    }
}

#[test]
fn every_command_gets_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("man1");
    worker(&["man", target.to_str().unwrap()]).run().ok();
    for page in ["worker.1", "worker-probe.1", "worker-generate.1"] {
        assert!(target.join(page).is_file(), "{page} is missing");
    }
}

#[test]
fn manual_pages_that_cannot_be_written_are_a_failure_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let occupied = folder.path().join("file");
    std::fs::write(&occupied, "").unwrap();
    worker(&["man", occupied.to_str().unwrap()])
        .run()
        .fails(73, "cannot write");
}

#[test]
fn a_reader_who_leaves_early_ends_the_command_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = worker(&["completions", "bash"])
        .command()
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// The checkpoint of the tests: two layers that say nonsense.
fn tiny() -> String {
    fixture("tiny-llama")
}

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A copy of it that a test may break.
fn tiny_copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(tiny()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    folder
}

/// The events of a run with `--json`.
fn events(output: &str) -> Vec<serde_json::Value> {
    output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The text of the events, put together.
fn text_of(events: &[serde_json::Value]) -> String {
    events
        .iter()
        .filter_map(|event| event["text"].as_str())
        .collect()
}

#[test]
fn generate_streams_text_and_counts_its_tokens() {
    let run = worker(&[
        "generate",
        &tiny(),
        "Hello",
        "--max-tokens",
        "20",
        "--seed",
        "1",
    ])
    .run();
    assert!(run.stderr.contains("text: 20 tokens"), "{}", run.stderr);
    assert!(run.ok().ends_with('\n'));
}

#[test]
fn transcribe_says_which_models_hear() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.wav");
    let silence = sound::Sound::new(8_000, 1, vec![0.0; 8_000]).unwrap();
    let file = sound::to_wav(&silence, sound::WavFormat::Int16).unwrap();
    std::fs::write(&path, file).unwrap();
    let path = path.to_str().unwrap();
    let run = worker(&["transcribe", path, "--model", &tiny()]).run();
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("whisper-base"), "{}", run.stderr);
    for language in ["klingon", "en,klingon"] {
        let run = worker(&["transcribe", path, "--language", language]).run();
        assert_eq!(run.code, 2, "{}", run.stderr);
    }
    let spoken = ["transcribe", path, "--language", "en,de"];
    let run = worker(&[&spoken[..], &["--model", "demo-hearing"]].concat()).run();
    assert!(run.stderr.contains("\"de\""), "{}", run.stderr);
}

#[test]
fn transcribe_falls_back_to_a_model_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.wav");
    let silence = sound::Sound::new(8_000, 1, vec![0.0; 8_000]).unwrap();
    let file = sound::to_wav(&silence, sound::WavFormat::Int16).unwrap();
    std::fs::write(&path, file).unwrap();
    let run = worker(&["transcribe", path.to_str().unwrap(), "--data-dir", "data"])
        .inside(folder.path())
        .run();
    let words = "whisper-base is not on disk, transcribing with demo-hearing";
    assert!(run.stderr.contains(words), "{run:?}");
    run.ok();
}

#[test]
fn transcribe_skips_silence_and_keeps_times_of_the_whole_sound() {
    let sentence = include_bytes!("../../models/demo-hearing/reference.wav");
    let sentence = sound::listen(sentence, 16_000, 10.0).unwrap();
    let samples = [&vec![0.0; 12 * 16_000], sentence.samples()].concat();
    let sound = sound::Sound::new(16_000, 1, samples).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.wav");
    let file = sound::to_wav(&sound, sound::WavFormat::Int16).unwrap();
    std::fs::write(&path, file).unwrap();
    let path = path.to_str().unwrap();
    let hear = |file: &str, more: &[&str]| -> serde_json::Value {
        let all = ["transcribe", file, "--model", "demo-hearing", "--json"];
        let run = worker(&[&all, more].concat()).run();
        serde_json::from_str(&run.ok()).unwrap()
    };
    let reference = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/models/demo-hearing/reference.wav"
    );
    let (alone, within) = (hear(reference, &[]), hear(path, &["--vad"]));
    assert_eq!(within["text"], alone["text"]);
    let start =
        |transcript: &serde_json::Value| transcript["segments"][0]["start"].as_f64().unwrap();
    assert!(
        (start(&within) - start(&alone) - 12.0).abs() < 0.7,
        "{within}"
    );
    assert!(
        within["usage"]["seconds"].as_u64().unwrap() <= 4,
        "{within}"
    );
}

#[test]
fn generate_names_the_words_that_a_small_model_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let speak = |text: &str| {
        worker(&[
            "generate",
            "demo-speech",
            text,
            "-o",
            "a.wav",
            "--seed",
            "1",
        ])
        .inside(folder.path())
        .run()
    };
    let run = speak("hello banana");
    let remark = "demo-speech does not know these words: banana; words that the model knows: 0, 1,";
    assert!(run.stderr.contains(remark), "{run:?}");
    run.ok();
    let run = speak("Hello, world!");
    assert!(!run.stderr.contains("does not know"), "{run:?}");
    run.ok();
}

#[test]
fn generate_draws_into_files_and_a_seed_repeats() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = fixture("tiny-image");
    let draw = |more: &[&str]| {
        let all = ["generate", &model, "a red circle", "--steps", "3"];
        worker(&[&all, more].concat()).run()
    };
    let run = draw(&["-o", &path("a.png"), "--seed", "5", "-n", "2"]);
    assert!(run.stderr.contains("step 3 of 3"), "{}", run.stderr);
    run.ok();
    let (first, second) = (path("a-1.png"), path("a-2.png"));
    let read = |path: &str| std::fs::read(path).unwrap();
    assert_ne!(read(&first), read(&second));
    let again = draw(&["-o", &path("b.png"), "--seed", "5", "--json"]);
    assert_eq!(again.stderr, "");
    let events = events(&again.ok());
    assert_eq!(
        (&events[0]["seed"], &events[0]["width"]),
        (&5.into(), &64.into())
    );
    assert_eq!(read(&first), read(&path("b.png")));
    let from = ["--init", &first, "--strength", "0.5", "--size", "64x48"];
    draw(&[&["-o", &path("c.webp")], &from[..]].concat()).ok();
    draw(&["-o", &path("d.gif")]).fails(2, "unknown kind of image file");
    draw(&[]).fails(2, "no file given for the image");
    draw(&["-o", &path("d.png"), "--size", "63x64"]).fails(2, "multiples of 4; use 60 or 64");
    draw(&["-o", &path("d.png"), "--top-p", "1"]).fails(2, "--top-p is for text models");
    let text = worker(&["generate", &tiny(), "Hello", "--steps", "3"]).run();
    text.fails(2, "--steps is for image models");
}

#[test]
fn generate_films_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = fixture("tiny-video");
    let film = |more: &[&str]| {
        let all = [
            "generate",
            &model,
            "a red circle",
            "--steps",
            "2",
            "--size",
            "48x32",
        ];
        worker(&[&all[..], &["--seed", "5"], more].concat()).run()
    };
    let run = film(&["-o", &path("a.mp4"), "--seconds", "0.5"]);
    assert!(run.stderr.contains("step 2 of 2"), "{}", run.stderr);
    assert!(
        run.stderr.contains("8 frames, 16 per second"),
        "{}",
        run.stderr
    );
    run.ok();
    let again = film(&[
        "-o",
        &path("b.mp4"),
        "--seconds",
        "1",
        "--fps",
        "8",
        "--json",
    ]);
    let events = events(&again.ok());
    assert_eq!(
        (&events[0]["frames"], &events[0]["fps"]),
        (&8.into(), &8.0.into())
    );
    let read = |name: &str| std::fs::read(path(name)).unwrap();
    assert_eq!(&read("a.mp4")[4..8], b"ftyp");
    assert_ne!(read("a.mp4"), read("b.mp4"));
    film(&["-o", &path("c.png")]).fails(2, "unknown kind of video file");
    film(&[]).fails(2, "no file given for the video");
    film(&["-o", &path("d.webp"), "--seconds", "0.5"]).ok();
    assert_eq!(&read("d.webp")[8..16], b"WEBPVP8X");
    film(&["-o", &path("e.gif")]).fails(2, "end the name in .mp4, or in .webp");
    film(&["-o", &path("c.mp4"), "--seconds", "0"]).fails(2, "frames is 0");
    film(&["-o", &path("c.mp4"), "--seconds", "1000"]).fails(2, "frames is 16000");
    film(&["-o", &path("c.mp4"), "--tile"]).fails(2, "--tile is for image models");
    film(&["-o", &path("c.mp4"), "--top-p", "1"]).fails(2, "--top-p is for text models");
    let image = fixture("tiny-image");
    let drawn = worker(&[
        "generate",
        &image,
        "a cat",
        "-o",
        &path("c.png"),
        "--seconds",
        "2",
    ])
    .run();
    drawn.fails(2, "--seconds is for video and music models");
}

/// A transformer of Wan's shape with one small block, for the text encoder and autoencoder of demo-video.
fn write_transformer(path: &std::path::Path) {
    const WIDTH: usize = 128;
    let mut shapes: Vec<(String, Vec<usize>)> = Vec::new();
    let mut layer = |name: &str, shape: [usize; 2]| {
        shapes.push((format!("{name}.weight"), shape.to_vec()));
        shapes.push((format!("{name}.bias"), vec![shape[0]]));
    };
    layer("text_embedding.0", [WIDTH, 64]);
    layer("time_embedding.0", [WIDTH, 32]);
    layer("time_projection.1", [6 * WIDTH, WIDTH]);
    layer("blocks.0.ffn.0", [64, WIDTH]);
    layer("blocks.0.ffn.2", [WIDTH, 64]);
    layer("head.head", [64, WIDTH]);
    for name in ["text_embedding.2", "time_embedding.2"] {
        layer(name, [WIDTH, WIDTH]);
    }
    for part in ["self_attn", "cross_attn"] {
        for name in ["q", "k", "v", "o"] {
            layer(&format!("blocks.0.{part}.{name}"), [WIDTH, WIDTH]);
        }
    }
    for part in ["self_attn", "cross_attn"] {
        for name in ["norm_q", "norm_k"] {
            shapes.push((format!("blocks.0.{part}.{name}.weight"), vec![WIDTH]));
        }
    }
    for name in ["weight", "bias"] {
        shapes.push((format!("blocks.0.norm3.{name}"), vec![WIDTH]));
    }
    shapes.push(("blocks.0.modulation".to_owned(), vec![1, 6, WIDTH]));
    shapes.push(("head.modulation".to_owned(), vec![1, 2, WIDTH]));
    shapes.push((
        "patch_embedding.weight".to_owned(),
        vec![WIDTH, 16, 1, 2, 2],
    ));
    shapes.push(("patch_embedding.bias".to_owned(), vec![WIDTH]));
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in shapes {
        let start = data.len();
        let numbers = 0..shape.iter().product::<usize>();
        let numbers = numbers.map(|at| ((at * 37 + start) % 101) as f32 / 1000.0 - 0.05);
        data.extend(numbers.flat_map(f32::to_le_bytes));
        let place = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name, place);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let length = (header.len() as u64).to_le_bytes();
    std::fs::write(path, [&length[..], &header, &data].concat()).unwrap();
}

#[test]
fn generate_films_with_a_transformer_in_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let path = |name: &str| at(name).to_str().unwrap().to_owned();
    let demo = format!("{}/models/demo-video", env!("CARGO_MANIFEST_DIR"));
    let lend = |component: &str| {
        let from = format!("{demo}/{component}");
        std::os::unix::fs::symlink(from, at(component)).unwrap();
    };
    write_transformer(&at("small.safetensors"));
    let film = |model: &str, output: &str| {
        let arguments = [
            "generate",
            model,
            "a red circle",
            "-o",
            &path(output),
            "--seed",
            "5",
        ];
        let sizes = ["--size", "48x32", "--seconds", "0.3", "--steps", "2"];
        let worker = worker(&[&arguments[..], &sizes].concat());
        worker.env("MUSTER_MODELS_DIR", &path("")).run()
    };
    let model = path("small.safetensors");
    let missing = film(&model, "a.mp4").fails(66, "its text encoder (umT5) is missing");
    assert!(
        missing.contains("`worker models pull wan-2.1-t2v-1.3b`"),
        "{missing}"
    );
    lend("text_encoder");
    lend("tokenizer");
    film(&model, "a.mp4").fails(66, "its autoencoder (VAE) is missing");
    // The entry of the catalog names it.
    let entry = format!(
        "id = \"own\"\nfamily = \"wan\"\nkind = \"video\"\nlicence = \"MIT\"\nparameters = 1\n\
         default_quantization = \"f32\"\nnames = {{ v1 = [\"own\"], legacy = [\"own\"] }}\n\
         defaults = {{ size = [48, 32], frames = 5, rate = 16.0, steps = 2, cfg_scale = 6.0 }}\n\
         [sources.f32]\npath = \"small.safetensors\"\n\
         [components.vae.sources.f32]\npath = \"{demo}/vae\"\n"
    );
    std::fs::write(at("own.toml"), entry).unwrap();
    film("own", "a.mp4").ok();
    lend("vae");
    let told = film(&model, "b.mp4");
    assert!(
        told.stderr.contains("5 frames, 16 per second"),
        "{}",
        told.stderr
    );
    told.ok();
    let read = |name: &str| std::fs::read(at(name)).unwrap();
    assert_eq!(&read("a.mp4")[4..8], b"ftyp");
    assert_eq!(read("a.mp4"), read("b.mp4"));
    std::fs::rename(at("small.safetensors"), at("small_low_noise.safetensors")).unwrap();
    let half = film(&path("small_low_noise.safetensors"), "c.mp4");
    half.fails(65, "one of the two transformers of Wan 2.2 A14B");
}

#[test]
fn generate_speaks_into_files_and_a_seed_repeats() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = fixture("golden/sound/kokoro");
    let text = "[a](/abdefhijklmnopstuv/)! [b](/tuvtuvtuvtuv/).";
    let speak = |more: &[&str]| worker(&[&["generate", &model, text], more].concat()).run();
    let run = speak(&["-o", &path("a.wav"), "--voice", "low(2)+high"]);
    assert!(run.stderr.contains("s of sound"), "{}", run.stderr);
    run.ok();
    let read = |name: &str| std::fs::read(path(name)).unwrap();
    let again = speak(&["-o", &path("b.wav"), "--voice", "low(2)+high", "--json"]);
    assert_eq!(again.stderr, "");
    let events = events(&again.ok());
    let seconds = events[0]["seconds"].as_f64().unwrap();
    assert_eq!(read("a.wav"), read("b.wav"));
    speak(&["-o", &path("c.flac"), "--speed", "3"]).ok();
    let heard = sound::listen(&read("c.flac"), 24_000, 60.0).unwrap();
    assert!(heard.seconds() < seconds, "{seconds}");
    let foreign = ["generate", &model, "[a](/abde/) 世", "-o", &path("e.wav")];
    let run = worker(&foreign).run();
    assert!(run.stderr.contains("English reading: 世"), "{}", run.stderr);
    run.ok();
    speak(&["-o", "-", "--json"]).fails(2, "both go to standard output");
    speak(&["-o", &path("d.aac")]).fails(2, "unknown kind of sound file");
    speak(&[]).fails(2, "no file given for the sound");
    speak(&["-o", &path("d.wav"), "--voice", "nova"]).fails(2, "voices: high, low");
    speak(&["-o", &path("d.wav"), "--steps", "3"]).fails(2, "--steps is for image models");
    speak(&["-o", &path("d.wav"), "--top-p", "1"]).fails(2, "--top-p is for text models");
    let text = worker(&["generate", &tiny(), "Hello", "--voice", "low"]).run();
    text.fails(2, "--voice is for speech models");
}

#[test]
fn generate_plays_into_files_and_a_seed_repeats() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = fixture("tiny-music");
    let play = |more: &[&str]| {
        let about = [
            "generate",
            &model,
            "a calm piano",
            "--seconds",
            "2",
            "--seed",
            "7",
        ];
        worker(&[&about, more].concat()).run()
    };
    let run = play(&["-o", &path("a.wav")]);
    assert!(run.stderr.contains("2.0 s of music in"), "{}", run.stderr);
    run.ok();
    let read = |name: &str| std::fs::read(path(name)).unwrap();
    let again = play(&["-o", &path("b.wav"), "--json"]);
    assert_eq!(again.stderr, "");
    let event = events(&again.ok()).remove(0);
    assert_eq!(
        (&event["event"], &event["seconds"]),
        (&json!("sound"), &json!(2.0))
    );
    assert_eq!(read("a.wav"), read("b.wav"));
    std::fs::write(path("words.txt"), "[verse]\nRain falls\n").unwrap();
    let words = path("words.txt");
    let settings = [
        "--bpm",
        "96",
        "--key",
        "D minor",
        "--beats",
        "3",
        "--language",
        "fr",
    ];
    let song = [
        "-o",
        &path("c.flac"),
        "--steps",
        "2",
        "-n",
        "2",
        "--lyrics-file",
        &words,
    ];
    play(&[&song[..], &settings].concat()).ok();
    let heard = sound::listen(&read("c-1.flac"), 8000, 60.0).unwrap();
    assert!((heard.seconds() - 2.0).abs() < 0.01, "{}", heard.seconds());
    assert_ne!(read("c-1.flac"), read("c-2.flac"));
    let written = [
        "-o",
        &path("d.flac"),
        "--steps",
        "2",
        "--lyrics",
        "[verse]\nRain falls",
    ];
    play(&[&written[..], &settings].concat()).ok();
    assert_eq!(read("c-1.flac"), read("d.flac"));
    play(&["-o", "-", "-n", "2"]).fails(2, "standard output takes one song");
    play(&["-o", &path("d.aac")]).fails(2, "unknown kind of sound file");
    play(&[]).fails(2, "no file given for the song");
    play(&["-o", &path("e.wav"), "--fps", "8"]).fails(2, "--fps is for video models");
    play(&["-o", &path("e.wav"), "--cfg", "2"]).fails(2, "cfg_scale is not for turbo models");
    play(&["-o", &path("e.wav"), "--size", "8x8"]).fails(2, "--size is for image models");
    play(&["-o", &path("e.wav"), "--voice", "low"]).fails(2, "--voice is for speech models");
    play(&["-o", &path("e.wav"), "--bpm", "0"]).fails(2, "bpm is 0, but the model takes 1 to 400");
    let long = [
        "generate",
        &model,
        "a piano",
        "-o",
        &path("e.wav"),
        "--seconds",
        "10000",
    ];
    worker(&long).run().fails(2, "seconds is 10000");
    let text = worker(&["generate", &tiny(), "Hello", "--bpm", "96"]).run();
    text.fails(2, "--bpm is for music models");
    let text = worker(&["generate", &tiny(), "Hello", "--seconds", "2"]).run();
    text.fails(2, "--seconds is for video and music models");
}

#[test]
fn generate_applies_loras_embeddings_and_second_passes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = fixture("tiny-image");
    let draw = |more: &[&str]| {
        let all = ["generate", &model, "a embedding:owl", "--steps", "2"];
        worker(&[&all[..], &["--seed", "5"], more].concat()).run()
    };
    let read = |path: &str| std::fs::read(path).unwrap();
    draw(&["-o", &path("plain.png")]).ok();
    let lora = format!("{}:0.5", fixture("golden/adapters/kohya.safetensors"));
    let word = format!("owl={}", fixture("golden/ways/word.safetensors"));
    let ways: [&[&str]; 4] = [
        &["--lora", &lora],
        &["--embedding", &word],
        &["--tile"],
        &["--size", "128x96", "--hires", "0.5"],
    ];
    for way in ways {
        draw(&[way, &["-o", &path("way.png")]].concat()).ok();
        assert_ne!(read(&path("plain.png")), read(&path("way.png")), "{way:?}");
    }
    let foreign = fixture("golden/adapters/kohya-xl.safetensors");
    let refused = draw(&["-o", &path("way.png"), "--lora", &foreign]);
    refused.fails(2, "made for another one");
    let single = fixture("golden/single/first.safetensors");
    let refused = worker(&["generate", &single, "a fox", "-o", &path("way.png")]).run();
    assert!(
        refused.stderr.contains("first.safetensors"),
        "{}",
        refused.stderr
    );
}

#[test]
fn generate_reports_events_for_programs() {
    let run = worker(&[
        "generate",
        &tiny(),
        "Hello",
        "-n",
        "8",
        "--seed",
        "1",
        "--json",
        "--logprobs",
        "2",
    ])
    .run();
    assert_eq!(run.stderr, "");
    let events = events(&run.ok());
    assert_eq!(events[0]["event"], "started");
    assert!(events[0]["prompt_tokens"].as_u64().unwrap() > 0);
    let tokens: Vec<_> = events
        .iter()
        .filter_map(|event| event["tokens"].as_array())
        .flatten()
        .collect();
    assert_eq!(tokens.len(), 8);
    assert!(
        tokens
            .iter()
            .all(|token| token["logprob"].as_f64().unwrap() <= 0.0)
    );
    assert!(
        tokens
            .iter()
            .all(|token| token["top"].as_array().unwrap().len() == 2)
    );
    let done = events.last().unwrap();
    assert_eq!(
        (&done["event"], &done["reason"]),
        (&"done".into(), &"length".into())
    );
    assert_eq!(done["completion_tokens"], 8);
}

#[test]
fn the_same_seed_gives_the_same_text_and_another_another() {
    let text = |seed: &str| {
        let run = worker(&[
            "generate",
            &tiny(),
            "Hello",
            "-n",
            "16",
            "--temperature",
            "1",
            "--seed",
            seed,
        ])
        .run();
        run.ok()
    };
    let first = text("7");
    assert_eq!(first, text("7"));
    assert_ne!(first, text("8"));
}

#[test]
fn a_prompt_may_come_from_standard_input() {
    let generate = |arguments: &[&str], input: Option<&str>| {
        let tiny = tiny();
        let common = ["-n", "6", "--temperature", "0", "--json", "--raw"];
        let all: Vec<&str> = ["generate", &tiny]
            .iter()
            .chain(arguments)
            .chain(&common)
            .copied()
            .collect();
        let run = worker(&all);
        text_of(&events(
            &input
                .map_or(worker(&all), |text| run.input(text))
                .run()
                .ok(),
        ))
    };
    let by_argument = generate(&["Once upon a time"], None);
    assert_eq!(generate(&[], Some("Once upon a time\n")), by_argument);
    assert_eq!(generate(&["-"], Some("Once upon a time\n")), by_argument);
    worker(&["generate", &tiny()])
        .input("\n")
        .run()
        .fails(2, "empty");
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let generate = |stop: &[&str]| {
        let tiny = tiny();
        let common = [
            "generate",
            &tiny,
            "Hello",
            "-n",
            "24",
            "--temperature",
            "0",
            "--json",
        ];
        let all: Vec<&str> = common.iter().chain(stop).copied().collect();
        events(&worker(&all).run().ok())
    };
    let whole = text_of(&generate(&[]));
    let letters: Vec<char> = whole.chars().collect();
    let stop: String = letters[letters.len() / 2..][..2].iter().collect();
    let stopped = generate(&["--stop", &stop]);
    assert_eq!(text_of(&stopped), whole[..whole.find(&stop).unwrap()]);
    assert_eq!(stopped.last().unwrap()["reason"], "stop");
}

#[test]
fn dense_weights_can_be_quantized_and_threads_chosen() {
    let run = worker(&[
        "generate",
        &tiny(),
        "Hello",
        "-n",
        "4",
        "--quantize",
        "q8_0",
        "--threads",
        "1",
    ])
    .run();
    run.ok();
}

#[test]
fn a_missing_model_is_not_found_and_near_names_are_told() {
    worker(&["generate", "./nowhere.gguf", "Hello"])
        .run()
        .fails(66, "./nowhere.gguf does not exist");
    let told = worker(&["generate", "qwen3-0.6", "Hello"])
        .run()
        .fails(66, "qwen3-0.6b");
    assert!(told.contains("worker models list"), "{told}");
    let told = worker(&["generate", "qwen3-0.6b", "Hello"])
        .run()
        .fails(66, "but not downloaded");
    assert!(
        told.contains("hint: `worker models pull qwen3-0.6b` downloads"),
        "{told}"
    );
    worker(&["generate", "qwen3-0.6b:q9", "Hello"])
        .run()
        .fails(66, "q9");
}

#[test]
fn a_broken_model_is_bad_data() {
    let folder = tiny_copy();
    let path = folder.path().to_str().unwrap();
    let weights = folder.path().join("model.safetensors");
    let whole = std::fs::read(&weights).unwrap();
    let generate = || worker(&["generate", path, "Hello", "-n", "1"]).run();

    std::fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    generate().fails(65, "model.safetensors");
    std::fs::write(&weights, [u8::MAX; 64]).unwrap();
    generate().fails(65, "model.safetensors");
    std::fs::write(&weights, whole).unwrap();
    let recommended = folder.path().join("generation_config.json");
    std::fs::write(recommended, r#"{"temperature": -3}"#).unwrap();
    let told = generate().fails(65, "generation_config.json is invalid");
    let range = "temperature must be between 0 and 100, found -3";
    assert!(told.contains(range), "{told}");
    std::fs::write(folder.path().join("config.json"), "{").unwrap();
    generate().fails(65, "config.json");

    let broken = folder.path().join("broken.gguf");
    std::fs::write(&broken, "GGUF").unwrap();
    worker(&["generate", broken.to_str().unwrap(), "Hello"])
        .run()
        .fails(65, "broken.gguf");
    std::fs::write(&broken, "").unwrap();
    worker(&["generate", broken.to_str().unwrap(), "Hello"])
        .run()
        .fails(65, "broken.gguf");
}

#[test]
fn a_broken_template_is_told_of_and_only_a_missing_one_left_out() {
    let folder = tiny_copy();
    let path = folder.path().to_str().unwrap();
    let generate = |further: &[&str]| {
        let all = ["generate", path, "Hello", "-n", "1"];
        worker(&[&all[..], further].concat()).run()
    };
    let template = folder.path().join("chat_template.jinja");
    std::fs::write(&template, "{% if %}").unwrap();
    generate(&[]).fails(65, "the chat template is invalid");
    generate(&["--system", "x"]).fails(65, "the chat template is invalid");
    generate(&["--raw"]).ok();
    std::fs::write(&template, "{{ range(100000000) }}").unwrap();
    generate(&[]).fails(65, "the model's chat template failed");

    std::fs::remove_file(template).unwrap();
    let with_one = folder.path().join("tokenizer_config.json");
    let text = std::fs::read_to_string(&with_one).unwrap();
    let mut without: serde_json::Value = serde_json::from_str(&text).unwrap();
    without.as_object_mut().unwrap().remove("chat_template");
    std::fs::write(with_one, without.to_string()).unwrap();
    generate(&[]).ok();
    generate(&["--system", "x"]).fails(2, "the model's chat template was not found");
}

#[test]
fn misuse_of_generate_is_refused_before_anything_is_loaded() {
    let tiny = tiny();
    let generate = |arguments: &[&str]| {
        let all: Vec<&str> = ["generate", &tiny, "Hello"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        worker(&all).run()
    };
    generate(&["--temprature", "1"]).fails(2, "--temperature");
    generate(&["--max-tokens", "0"]).fails(2, "--max-tokens");
    generate(&["--logprobs", "2"]).fails(2, "--json");
    generate(&["--device", "gpu"]).fails(78, "\"cuda:N\", found gpu");
    generate(&["--threads", "0"]).fails(78, "from 1 to 1024, found 0");
    generate(&["--top-p", "7"]).fails(2, "top_p");
    generate(&["--temperature", "-1"]).fails(2, "temperature must be between 0 and 100, found -1");
    let whole = "must be an integer from 0 to 18446744073709551615";
    for option in ["--seed", "--top-k"] {
        generate(&[option, "-1"]).fails(2, whole);
    }
    generate(&["-n", "-1"]).fails(2, "-1 is not in 1..=4294967295");
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_numbers() {
    let long = "word ".repeat(4000);
    worker(&["generate", &tiny(), "-"])
        .input(&long)
        .run()
        .fails(2, "tokens, but the model takes at most");
}

#[test]
fn a_card_that_is_not_here_is_unavailable() {
    if worker(&["probe", "--json"]).run().ok().contains("\"uuid\"") {
        return;
    }
    worker(&["generate", &tiny(), "Hello", "--device", "cuda"])
        .run()
        .fails(69, "engine.device is cuda");
}

#[test]
fn a_reader_who_leaves_ends_the_generation_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let tiny = tiny();
    let mut command = worker(&["generate", &tiny, "Hello", "-n", "4"]).command();
    let output = command
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn statistics_that_nobody_reads_are_dropped() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let tiny = tiny();
    let mut command = worker(&["generate", &tiny, "Hello", "-n", "4"]).command();
    let output = command
        .stderr(writer)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(!output.stdout.is_empty());
}

#[test]
fn ctrl_c_ends_a_generation_with_its_line() {
    let tiny = tiny();
    let command = worker(&[
        "generate",
        &tiny,
        "Hello",
        "--max-tokens",
        "100000",
        "--context",
        "2048",
    ])
    .command();
    let mut running = Running::start(command);
    assert!(running.stdout.read_some());
    running.signal(libc::SIGINT);
    let run = running.end();
    // The generation may have reached the end of its context just before.
    assert!(run.code == 130 || run.code == 0, "{run:?}");
    assert!(run.stdout.ends_with('\n'), "{run:?}");
}

/// A process that a test talks to while it runs.
struct Running {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let piped = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// Reads the log up to a line with these words.
    fn wait_for(&mut self, words: &str) -> String {
        self.stderr.forget();
        self.stderr.until(words)
    }

    fn signal(&self, signal: i32) {
        let kill = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(kill.unwrap().success());
    }

    fn end(mut self) -> Run {
        self.stdout.rest();
        Run {
            stdout: self.stdout.text(),
            stderr: self.stderr.rest(),
            code: ended(&mut self.child).code().unwrap_or(-1),
        }
    }
}

/// The worker itself with this configuration, in a folder of its own.
fn daemon(configuration: &str) -> (tempfile::TempDir, Running) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("worker.toml"), configuration).unwrap();
    let command = worker(&["--config", "worker.toml"])
        .inside(folder.path())
        .command();
    (folder, Running::start(command))
}

#[test]
fn the_worker_loads_its_models_says_that_nobody_sends_work_and_stops_when_told() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let (_folder, mut running) = daemon(&format!("[models]\nserve = [{:?}]\n", tiny()));
        let log = running.wait_for("ready");
        assert!(log.contains("loaded tiny-llama:"), "{log}");
        assert!(log.contains("no coordinator is configured"), "{log}");
        running.signal(signal);
        let run = running.end();
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.stderr.contains("stopped"), "{run:?}");
    }
}

#[test]
fn a_coordinator_that_cannot_be_reached_is_tried_again_and_the_key_is_not_logged() {
    let (_folder, mut running) =
        daemon("[[coordinator]]\nurl = \"ws://127.0.0.1:9\"\nkey = \"secret-key\"\n");
    let log = running.wait_for("connecting to");
    assert!(
        log.contains("connecting to 127.0.0.1:9 failed, reconnecting in"),
        "{log}"
    );
    assert!(log.contains(" s: connection refused"), "{log}");
    assert!(!log.contains("secret-key"), "{log}");
    running.signal(libc::SIGTERM);
    assert_eq!(running.end().code, 0);
}

#[test]
fn a_worker_does_not_send_its_key_in_the_clear_unless_told_to() {
    let plain = "[[coordinator]]\nurl = \"ws://muster.example\"\nkey = \"secret-key\"\n";
    let (_folder, running) = daemon(plain);
    let run = running.end();
    assert_eq!(run.code, 78, "{run:?}");
    assert!(run.stderr.contains("insecure = true"), "{run:?}");
}

#[test]
fn the_log_can_be_json() {
    let (_folder, mut running) = daemon("[worker]\nlog_format = \"json\"\nname = \"attic\"\n");
    let log = running.wait_for("ready");
    let first: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(first["worker.name"], "attic");
    running.signal(libc::SIGTERM);
    let run = running.end();
    assert_eq!(run.code, 0);
    assert_eq!(
        json_lines(&run.stderr).last().unwrap()["message"],
        "stopped"
    );
}

/// Every line of a log, each of which has to be JSON.
fn json_lines(log: &str) -> Vec<serde_json::Value> {
    let line = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    log.lines().map(line).collect()
}

#[test]
fn a_failure_is_the_last_line_of_a_json_log() {
    let (_folder, running) =
        daemon("[worker]\nlog_format = \"json\"\n[models]\nserve = [\"./nowhere.gguf\"]\n");
    let run = running.end();
    assert_eq!(run.code, 66);
    let last = json_lines(&run.stderr).pop().unwrap();
    assert_eq!(
        (&last["level"], &last["exit_code"]),
        (&"ERROR".into(), &66.into())
    );
    assert!(last["message"].as_str().unwrap().contains("nowhere.gguf"));
    // Before there is a log, the flag and the environment decide.
    for run in [
        worker(&["--config", "none.toml", "--log-format", "json"]).run(),
        worker(&["--config", "none.toml"])
            .env("MUSTER_WORKER_LOG_FORMAT", "json")
            .run(),
    ] {
        let lines = json_lines(&run.stderr);
        assert_eq!((run.code, lines.len()), (66, 1), "{run:?}");
        assert_eq!(lines[0]["exit_code"], 66);
    }
}

#[test]
fn rust_log_decides_where_no_flag_does() {
    let log = |flags: &[&str], level: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("worker.toml"),
            "[models]\nserve = [\"./no.gguf\"]\n",
        )
        .unwrap();
        let all = [&["--config", "worker.toml"], flags].concat();
        worker(&all)
            .inside(folder.path())
            .env("RUST_LOG", level)
            .run()
            .stderr
    };
    assert!(!log(&[], "error").contains("INFO"));
    assert!(log(&["-v"], "error").contains("INFO"));
    assert!(log(&[], "loud=er").contains("ignoring RUST_LOG=loud=er"));
}

#[test]
fn a_worker_that_cannot_hold_a_model_refuses_with_the_arithmetic() {
    let (_folder, running) = daemon(&format!(
        "[models]\nserve = [{:?}]\n[engine]\nkv_memory = \"900 TiB\"\n",
        tiny()
    ));
    let run = running.end();
    assert_eq!(run.code, 69, "{run:?}");
    for words in [
        "tiny-llama does not fit: needs",
        "weights +",
        "workspace; this machine has",
    ] {
        assert!(run.stderr.contains(words), "{run:?}");
    }
}

#[test]
fn a_worker_whose_model_is_not_here_does_not_start() {
    let (_folder, running) = daemon("[models]\nserve = [\"./nowhere.gguf\"]\n");
    let run = running.end();
    assert_eq!(run.code, 66, "{run:?}");
    assert!(run.stderr.contains("nowhere.gguf"), "{run:?}");
}

/// What `init` says where no coordinator is named.
const ALONE: &str = "no coordinator chosen, so no jobs will arrive. next: worker join TOKEN, with a token from the operator (`worker key join`), or add a [[coordinator]] with url and key to worker.toml";

#[test]
fn init_writes_a_configuration_that_passes_its_check() {
    let folder = tempfile::tempdir().unwrap();
    let init = |arguments: &[&str]| {
        let all: Vec<&str> = ["init"].iter().chain(arguments).copied().collect();
        worker(&all)
            .inside(folder.path())
            .env("HOME", folder.path().to_str().unwrap())
            // The model that is part of the program fits everywhere.
            .env("HF_HUB_OFFLINE", "1")
    };
    let told = init(&["--yes"]).run().ok();
    assert_eq!(
        told,
        format!("wrote worker.toml\n{ALONE}\nnext: worker --config worker.toml\n")
    );
    let checked = worker(&["config", "check", "worker.toml"])
        .inside(folder.path())
        .run()
        .ok();
    assert!(checked.contains("worker.toml:"), "{checked}");

    let before = std::fs::read_to_string(folder.path().join("worker.toml")).unwrap();
    let refused = init(&["--yes"])
        .run()
        .fails(73, "worker.toml already exists");
    assert!(refused.contains("--force"), "{refused}");
    init(&["--yes", "--force"]).run().ok();
    assert_eq!(
        std::fs::read_to_string(folder.path().join("worker.toml")).unwrap(),
        before
    );
    init(&["other.toml"]).input("x\n").run().fails(2, "--yes");
    init(&["--yes", "no/such/folder/worker.toml"])
        .run()
        .fails(73, "cannot write");
}

#[test]
fn init_proposes_a_model_that_is_to_be_pulled_first() {
    let folder = tempfile::tempdir().unwrap();
    let told = worker(&["init", "--yes"])
        .inside(folder.path())
        .env("HOME", folder.path().to_str().unwrap())
        .run()
        .ok();
    let text = std::fs::read_to_string(folder.path().join("worker.toml")).unwrap();
    let served = text.split_once("serve = [\"").unwrap().1;
    let served = served.split_once('"').unwrap().0;
    assert_ne!(served, "demo-text");
    assert_eq!(
        told,
        format!(
            "wrote worker.toml\nnext: worker models pull {served}\n{ALONE}\nnext: worker --config worker.toml\n"
        )
    );
}

#[test]
fn init_asks_and_takes_the_answers() {
    let folder = tempfile::tempdir().unwrap();
    // A terminal of its own, which `script` provides.
    let binary = env!("CARGO_BIN_EXE_worker");
    let mut command = Command::new("script");
    command
        .args(["-qec", &format!("{binary} init"), "/dev/null"])
        .current_dir(folder.path());
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped
        .spawn()
        .expect("`script` is here: ./test installs it (bsdutils)");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(
            b"attic \"one\"\nqwen3-0.6\nqwen3-0.6b\nmuster\nwss://muster.example\n\nenv:HOME\n",
        )
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("did you mean qwen3-0.6b?"), "{shown}");
    let text = std::fs::read_to_string(folder.path().join("worker.toml")).unwrap();
    assert!(text.contains("serve = [\"qwen3-0.6b\"]"), "{text}");
    assert!(text.contains("attic \"one\""), "{text}");
    assert!(shown.contains("or none"), "{shown}");
    assert!(shown.contains("a key is required"), "{shown}");
    assert!(
        text.contains("url = \"wss://muster.example\"\nkey = \"env:HOME\"\n"),
        "{text}"
    );
}

#[test]
fn doctor_finds_a_sound_machine_well() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().to_str().unwrap();
    let tiny = tiny();
    let report = worker(&["doctor", "--model", &tiny])
        .env("HOME", home)
        .run()
        .ok();
    assert!(
        report
            .lines()
            .any(|line| line.starts_with("ok    generation") && line.contains("8 tokens")),
        "{report}"
    );
    let json = worker(&["doctor", "--json", "--model", &tiny])
        .env("HOME", home)
        .run()
        .ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let names: Vec<&str> = json["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|check| check["name"].as_str())
        .collect();
    for name in [
        "configuration",
        "GPUs",
        "memory",
        "disk for models",
        "clock",
        "models",
        "generation",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
}

#[test]
fn doctor_draws_an_image_with_the_configured_model_or_the_built_in_one() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().to_str().unwrap();
    let toml = folder.path().join("worker.toml");
    let drew = |arguments: &[&str], model: &str, is_alone: bool| {
        let run = worker(&[&["doctor"], arguments].concat())
            .env("HOME", home)
            .inside(folder.path())
            .run();
        let report = run.ok();
        let line = report
            .lines()
            .find(|line| line.starts_with("ok    drawing"));
        let line = line.unwrap_or_else(|| panic!("{report}"));
        let expected = format!("{model} drew 256x256 pixels in 2 steps, ");
        assert!(line.contains(&expected) && line.ends_with(" s"), "{line}");
        assert_eq!(report.contains("8 tokens"), !is_alone, "{report}");
        report
    };
    drew(&[], "demo-image", false);
    let tiny = fixture("tiny-image");
    drew(&["--model", &tiny], "tiny-image", true);
    std::fs::write(
        &toml,
        format!("[models]\nserve = [\"demo-text\", {tiny:?}]\n"),
    )
    .unwrap();
    let report = drew(&["--config", "worker.toml"], "tiny-image", false);
    let shares = report
        .lines()
        .find(|line| line.contains("memory of models"));
    let shares = shares.unwrap_or_else(|| panic!("{report}"));
    for part in [
        "free = ",
        " weights + ",
        " pages) + ",
        " workspace + ",
        " left",
    ] {
        assert!(shares.contains(part), "{part:?} is not in: {shares}");
    }
}

#[test]
fn doctor_fails_with_advice_where_something_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().to_str().unwrap();
    let toml = folder.path().join("worker.toml");
    let doctor = |text: &str| {
        std::fs::write(&toml, text).unwrap();
        worker(&["doctor", "--config", "worker.toml"])
            .env("HOME", home)
            .inside(folder.path())
            .run()
    };
    let failing = |run: &Run| {
        let lines = run.stdout.lines().filter(|line| line.starts_with("fail"));
        lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let run = doctor("[engine]\nthread = 1\n");
    assert!(
        failing(&run).contains("unknown setting engine.thread"),
        "{run:?}"
    );
    run.fails(1, "1 check failed");

    let run = doctor("[models]\nserve = [\"demo-text\", \"muster/demo-text\"]\n");
    let twice = "muster/demo-text: demo-text is already loaded";
    assert!(failing(&run).contains(twice), "{run:?}");
    run.fails(1, "1 check failed");

    let run = doctor("[[coordinator]]\nurl = \"ws://example.org\"\nkey = \"x\"\n");
    assert!(failing(&run).contains("insecure = true"), "{run:?}");
    run.fails(1, "1 check failed");

    let run = doctor("[models]\nserve = [\"./nowhere.gguf\"]\n");
    assert!(failing(&run).contains("nowhere.gguf"), "{run:?}");
    run.fails(1, "2 checks failed");

    std::fs::write(folder.path().join("file"), "").unwrap();
    let run = doctor("[hub]\ncache_dir = \"file/cache\"\n");
    assert!(failing(&run).contains("is not writable"), "{run:?}");
    run.fails(1, "failed");
}

#[test]
fn a_worker_downloads_a_configured_model_that_is_not_here() {
    let hub = FakeHub::start();
    let weights = format!(
        "{}/tests/fixtures/tiny-llama.gguf",
        env!("CARGO_MANIFEST_DIR")
    );
    hub.large_file("tiny-llama.gguf", std::fs::read(weights).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let entry = "id = \"tiny\"\ndescription = \"Nonsense.\"\nfamily = \"llama\"\nkind = \"text\"\nlicence = \"MIT\"\n\
        context = 2048\ndefault_quantization = \"f32\"\n[names]\nv1 = [\"tiny\"]\nlegacy = []\n\
        [shape]\nparameters = 189_000\nlayers = 2\nkv_heads = 2\nhead_dim = 16\n\
        [sources.f32]\nrepository = \"org/model\"\nfiles = [{ path = \"tiny-llama.gguf\" }]\n";
    std::fs::create_dir(folder.path().join("models")).unwrap();
    std::fs::write(folder.path().join("models/tiny.toml"), entry).unwrap();
    let toml = "[worker]\ndata_dir = \"data\"\n[models]\ndir = \"models\"\nserve = [\"tiny\"]\n[hub]\ncache_dir = \"cache\"\n";
    std::fs::write(folder.path().join("worker.toml"), toml).unwrap();
    let start = |more: &[&str]| {
        let all: Vec<&str> = ["--config", "worker.toml"]
            .iter()
            .chain(more)
            .copied()
            .collect();
        let worker = worker(&all)
            .inside(folder.path())
            .env("MUSTER_HUB_ENDPOINT", &hub.endpoint);
        Running::start(worker.command())
    };

    let offline = start(&["--offline"]).end();
    assert_eq!(offline.code, 66, "{offline:?}");
    // The worker goes on, and gets the model once the hub has it.
    let mut running = start(&[]);
    let log = running.wait_for("ready again with tiny");
    assert!(log.contains("not serving tiny yet, downloading"), "{log}");
    assert!(
        log.contains("tiny:f32 is not on disk, downloading"),
        "{log}"
    );
    assert!(log.contains("loaded tiny"), "{log}");
    running.signal(libc::SIGTERM);
    assert_eq!(running.end().code, 0);
}

#[test]
fn a_model_that_cannot_be_downloaded_does_not_stop_the_others() {
    let hub = FakeHub::start();
    let serve = format!("serve = [\"qwen3-0.6b\", {:?}]", tiny());
    let check = |serve: &str, words: &str| {
        let folder = tempfile::tempdir().unwrap();
        let toml = format!(
            "[worker]\ndata_dir = \"data\"\n[models]\n{serve}\n[hub]\ncache_dir = \"cache\"\n"
        );
        std::fs::write(folder.path().join("worker.toml"), toml).unwrap();
        let worker = worker(&["--config", "worker.toml"])
            .inside(folder.path())
            .env("MUSTER_HUB_ENDPOINT", &hub.endpoint);
        let mut running = Running::start(worker.command());
        let mut log = running.wait_for("ready; SIGTERM");
        assert!(log.contains(words), "{log}");
        if !log.contains("retrying in 10s") {
            log = running.wait_for("fetching qwen3-0.6b failed, retrying in 10");
        }
        drop(log);
        let status = |more: &[&str]| {
            let all: Vec<&str> = ["ps", "-c", "worker.toml"]
                .iter()
                .chain(more)
                .copied()
                .collect();
            super::support::worker::worker(&all)
                .inside(folder.path())
                .run()
        };
        let told = status(&[]).ok();
        assert!(told.contains("models run on the CPU"), "{told}");
        let failed = told.lines().find(|line| line.starts_with("qwen3-0.6b"));
        assert!(
            failed.unwrap().contains("download failed, trying again: "),
            "{told}"
        );
        let report: serde_json::Value = serde_json::from_str(&status(&["--json"]).ok()).unwrap();
        let models = report["worker"]["models"].as_array().unwrap();
        let states: Vec<&str> = models
            .iter()
            .map(|model| model["state"].as_str().unwrap())
            .collect();
        running.signal(libc::SIGTERM);
        assert_eq!(running.end().code, 0);
        let ended = status(&[]).fails(69, "neither a coordinator nor a worker runs");
        assert!(ended.contains("--data-dir"), "{ended}");
        states.join(", ")
    };
    assert_eq!(check(&serve, "loaded tiny-llama:"), "loaded, downloading");
    let alone = check("serve = [\"qwen3-0.6b\"]", "not serving qwen3-0.6b yet");
    assert_eq!(alone, "downloading");
}
