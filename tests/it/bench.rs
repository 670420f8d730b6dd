//! `worker bench`: figures beside the limits of the machine, for people and for programs.

use std::fs;
use std::process::Command;

use muster::runtime::{
    CacheScope, Chat, DeviceChoice, EngineLimits, Event, ModelSource, Prompt, Runtime, Sampling,
    StopRules, TextRequest,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::worker::worker;

const QUICK: &[&str] = &[
    "--prefill",
    "40",
    "--batch",
    "1,3",
    "--context",
    "33",
    "--steps",
    "2",
    "--repeat",
    "2",
];

fn bench(arguments: &[&str]) -> crate::support::worker::Worker {
    worker(&[&["bench", "text"], arguments].concat())
}

fn report(arguments: &[&str]) -> Value {
    let text = bench(&[arguments, QUICK, &["--json"]].concat()).run().ok();
    serde_json::from_str(&text).unwrap()
}

/// A file of the tiny shape, written by the program itself.
fn written(folder: &TempDir) -> String {
    let file = folder.path().join("tiny.gguf").display().to_string();
    bench(&["--synthetic", "tiny", "--quant", "q8_0", "--write", &file])
        .run()
        .ok();
    file
}

#[test]
fn a_drawing_is_measured_beside_the_machines_limits() {
    let arguments = ["bench", "image", "--synthetic", "tiny", "--size", "128x64"];
    let text = worker(&[&arguments[..], &["--repeat", "2", "--json"]].concat())
        .run()
        .ok();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&report["width"], &report["height"]),
        (&json!(128), &json!(64))
    );
    check_parts(&report["report"], 2);
    let table = worker(&arguments).run().ok();
    assert!(
        table.contains("step with guidance") && table.contains("Gop/s"),
        "{table}"
    );
    let wrong = worker(&["bench", "image", "--size", "100x100"]).run();
    assert!(wrong.stderr.contains("multiples of 64"), "{}", wrong.stderr);
}

#[test]
fn single_blocks_of_a_drawing_are_measured() {
    let arguments = ["bench", "image", "--synthetic", "tiny", "--blocks"];
    let text = worker(&[&arguments[..], &["--repeat", "1", "--json"]].concat())
        .run()
        .ok();
    let report: Value = serde_json::from_str(&text).unwrap();
    let parts = report["report"]["parts"].as_array().unwrap();
    let names: Vec<&str> = parts
        .iter()
        .map(|part| part["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 6, "{names:?}");
    assert_eq!(names[0], "resnet 32 at 32x32");
    for part in parts {
        assert!(part["operations"].as_u64().unwrap() > 0, "{part}");
        assert!(part["seconds"]["median"].as_f64().unwrap() > 0.0, "{part}");
    }
    let table = worker(&arguments).run().ok();
    assert!(table.contains("transformer 64 at 16x16"), "{table}");
}

#[test]
fn hearing_is_measured_beside_the_machines_limits() {
    let arguments = [
        "bench",
        "audio",
        "--synthetic",
        "whisper-tiny",
        "--tokens",
        "3",
    ];
    let text = worker(&[&arguments[..], &["--repeat", "1", "--json"]].concat())
        .run()
        .ok();
    let report: Value = serde_json::from_str(&text).unwrap();
    check_parts(&report["report"], 2);
}

#[test]
fn music_is_measured_beside_the_machines_limits() {
    let shape = ["bench", "audio", "--synthetic", "music-tiny"];
    let arguments = [&shape[..], &["--seconds", "1"]].concat();
    let text = worker(&[&arguments[..], &["--repeat", "1", "--json"]].concat())
        .run()
        .ok();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["seconds"], 1);
    check_parts(&report["report"], 2);
    let wrong = worker(&[&shape[..], &["--tokens", "3"]].concat()).run();
    assert!(
        wrong.stderr.contains("takes no --tokens"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn filming_is_measured_beside_the_machines_limits() {
    let shape = ["bench", "video", "--synthetic", "tiny"];
    let arguments = [&shape[..], &["--size", "32x16", "--frames", "5"]].concat();
    let text = worker(&[&arguments[..], &["--repeat", "1", "--json"]].concat())
        .run()
        .ok();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["frames"], 5);
    check_parts(&report["report"], 2);
}

#[track_caller]
fn check_parts(report: &Value, count: usize) {
    let parts = report["parts"].as_array().unwrap();
    assert_eq!(parts.len(), count);
    for part in parts {
        let seconds = part["seconds"]["median"].as_f64().unwrap();
        let operations = part["operations"].as_f64().unwrap();
        let speed = part["operations_per_second"].as_f64().unwrap();
        assert!(seconds > 0.0 && operations > 0.0, "{part}");
        assert!((speed * seconds / operations - 1.0).abs() < 1e-6, "{part}");
    }
}

#[test]
fn random_weights_are_measured_beside_the_machines_limits() {
    let report = report(&["--synthetic", "tiny", "--quant", "q4_k_m"]);
    let runs = report["runs"].as_array().unwrap();
    let names: Vec<_> = runs
        .iter()
        .map(|run| run["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["prefill 40", "decode 1", "decode 3"]);
    for run in runs {
        assert!(
            run["tokens_per_second"]["median"].as_f64().unwrap() > 0.0,
            "{run}"
        );
        assert!(
            run["bytes_per_step"].as_u64().unwrap() >= report["weight_bytes"].as_u64().unwrap(),
            "{run}"
        );
        // A model as small as this may be read from the caches, faster than memory.
        let share = &run["reached"]["memory"];
        let is_share = share
            .as_f64()
            .is_some_and(|share| share > 0.0 && share <= 1.0);
        assert!(is_share || share.is_null(), "{run}");
    }
    assert!(report["limits"]["bytes_per_second"].as_f64().unwrap() > 1e8);
    assert!(report["resident_bytes"].as_u64().unwrap() > 1 << 20);
}

#[test]
fn a_file_written_for_a_shape_weighs_what_the_shape_weighs() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(&folder);
    let of_file = report(&[&file]);
    let of_shape = report(&["--synthetic", "tiny", "--quant", "q8_0"]);
    assert_eq!(of_file["weight_bytes"], of_shape["weight_bytes"]);
    assert_eq!(of_file["file_bytes"], fs::metadata(&file).unwrap().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_written_for_a_shape_answers_chats() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::start(DeviceChoice::Cpu, EngineLimits::default()).unwrap();
    let source = ModelSource::new(written(&folder));
    runtime.load("tiny", source, |_, _| {}).await.unwrap();
    let chat = Chat {
        messages: vec![json!({"role": "user", "content": "hi"})],
        ..Chat::default()
    };
    let request = TextRequest {
        model: "tiny".to_owned(),
        prompt: Prompt::Chat(chat),
        generated: Vec::new(),
        sampling: Sampling::default(),
        max_tokens: Some(4),
        window: None,
        stop: Vec::new(),
        stop_rules: StopRules::default(),
        logprobs: None,
        prompt_logprobs: None,
        grammar: None,
        choice: 0,
        scope: CacheScope::default(),
    };
    let mut generation = runtime.generate(request).await.unwrap();
    let mut tokens_of_text = 0;
    while let Some(event) = generation.next().await {
        match event {
            Event::Text { tokens, .. } => tokens_of_text += tokens.len(),
            Event::Failed(failure) => panic!("{failure}"),
            _ => {}
        }
    }
    assert!((1..=4).contains(&tokens_of_text), "{tokens_of_text}");
}

#[test]
fn a_quick_report_measures_one_prompt_and_one_stream() {
    let text = bench(&["--synthetic", "tiny", "--quick", "--json"])
        .run()
        .ok();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["runs"].as_array().unwrap().len(), 2, "{report}");
    let both = bench(&["--synthetic", "tiny", "--quick", "--steps", "4"]).run();
    assert_eq!(both.code, 2);
}

#[test]
fn people_get_a_table() {
    let table = bench(&[&["--synthetic", "tiny"], QUICK].concat())
        .run()
        .ok();
    for part in ["tok/s", "GB/s", "decode 3", "median of 2"] {
        assert!(table.contains(part), "{part:?} is not in:\n{table}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(&folder);
    fs::write(&file, &fs::read(&file).unwrap()[..1000]).unwrap();
    bench(&[&file]).run().fails(65, "tiny.gguf");
    bench(&["nowhere.gguf"]).run().fails(66, "nowhere.gguf");
    bench(&["--synthetic", "llama-9"])
        .run()
        .fails(2, "llama-3.2-1b");
    bench(&["--synthetic", "tiny", "--quant", "q9"])
        .run()
        .fails(2, "q8_0");
    bench(&["--synthetic", "tiny", "--prefill", "5000"])
        .run()
        .fails(2, "takes 4096");
    bench(&["--synthetic", "tiny", "--batch", "0"])
        .run()
        .fails(2, "from 1 to 16777216, found 0");
    let too_many = usize::MAX.to_string();
    for option in ["--prefill", "--batch", "--context", "--steps", "--repeat"] {
        bench(&["--synthetic", "tiny", option, &too_many])
            .run()
            .fails(2, "must be from 1 to 16777216");
    }
    bench(&["--synthetic", "tiny", "--write", "/proc/nowhere"])
        .run()
        .fails(73, "/proc/nowhere");
    bench(&["--synthetic", "tiny", "--device", "cuda:99"])
        .run()
        .fails(69, "GPU 99");
}

#[test]
fn a_file_is_written_whole_or_not_at_all_and_over_none_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiny.gguf");
    let write = || bench(&["--synthetic", "tiny", "--write", file.to_str().unwrap()]);
    write()
        .with_files_up_to(4)
        .run()
        .fails(73, "tiny.gguf: file too large");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    fs::write(&file, "mine").unwrap();
    let said = write().run().fails(73, "tiny.gguf already exists");
    assert!(said.contains("hint: use --force to replace"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    bench(&["--synthetic", "tiny", "--force"])
        .run()
        .fails(2, "--write");
}

#[test]
fn what_does_not_fit_is_refused_with_the_arithmetic() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(&folder);
    for subject in [&["--synthetic", "tiny"][..], &[&file]] {
        let contexts = ["--batch", "16000000", "--context", "4000"];
        let said = bench(&[subject, &contexts].concat())
            .run()
            .fails(69, "does not fit: it needs");
        assert!(said.contains("this machine has"), "{said}");
    }
}

#[test]
fn the_configuration_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker.toml");
    let run = |text: &str| {
        fs::write(&file, text).unwrap();
        let config = ["--config", file.to_str().unwrap(), "--json"];
        bench(&[&["--synthetic", "tiny"], QUICK, &config].concat()).run()
    };
    let report: Value = serde_json::from_str(&run("[engine]\nthreads = 3\n").ok()).unwrap();
    assert_eq!(report["limits"]["threads"], 3);
    run("[engine]\nthread = 3\n").fails(78, "unknown setting engine.thread");
    let said = run("[owner]\nkeep_free = \"1024 TiB\"\n")
        .fails(69, "this machine has 0.0 MiB left for models (");
    assert!(said.contains("1024.0 TiB reserved for the owner"), "{said}");
    assert!(said.contains("lower owner.keep_free"), "{said}");
}

#[test]
fn a_pipe_is_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.gguf");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let pipe = pipe.to_str().unwrap();
    let message = "pipe.gguf: not a regular file";
    bench(&[pipe]).run().fails(65, message);
    worker(&["generate", pipe, "Hello"])
        .run()
        .fails(65, message);
}

#[test]
fn an_unsupported_model_ends_bench_and_generate_alike() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = format!("{}/tests/fixtures/tiny-llama", env!("CARGO_MANIFEST_DIR"));
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(format!("{tiny}/{name}"), folder.path().join(name)).unwrap();
    }
    let config = fs::read_to_string(format!("{tiny}/config.json")).unwrap();
    let config = config.replace("LlamaForCausalLM", "RwkvForCausalLM");
    fs::write(folder.path().join("config.json"), config).unwrap();
    let folder = folder.path().to_str().unwrap();
    bench(&[folder]).run().fails(65, "RwkvForCausalLM");
    worker(&["generate", folder, "Hello"])
        .run()
        .fails(65, "RwkvForCausalLM");
}
