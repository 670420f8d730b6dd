//! Untrusted model files: their tokenizers and templates run in a separate process, and the worker survives and reports
//! any failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use muster::runtime::text::{
    Begins, Isolation, IsolationLimits, Language, PromptTokenizer, TextSource,
};
use muster::runtime::{Chat, Failure, Prompt, Sampling, StopRules};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::worker::worker;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-llama");

/// The fixture's text side in a folder of its own, to be made hostile.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        let from = Path::new(FIXTURE).join(file);
        if from.exists() {
            fs::copy(from, folder.path().join(file)).unwrap();
        }
    }
    folder
}

fn isolation() -> Isolation {
    Isolation {
        program: PathBuf::from(env!("CARGO_BIN_EXE_worker")),
        arguments: vec!["text-process".to_owned()],
        model: "hostile".to_owned(),
        limits: IsolationLimits {
            open_bytes: 512 << 20,
            request_bytes: 64 << 20,
            open_time: Duration::from_secs(20),
            request_time: Duration::from_secs(10),
            ..IsolationLimits::default()
        },
    }
}

/// The language of a folder, in a process of its own.
fn open(folder: &Path, template: Option<&str>) -> Result<Language, String> {
    let isolation = isolation();
    let source = TextSource {
        folder: Some(folder),
        template,
        isolation: Some(&isolation),
        ..TextSource::default()
    };
    Language::open(source).map_err(|error| error.to_string())
}

fn chat(text: &str) -> Prompt {
    Prompt::Chat(Chat {
        messages: vec![json!({"role": "user", "content": text})],
        ..Chat::default()
    })
}

/// The reply to a chat with this template.
fn said(template: &str) -> Failure {
    let language = open(Path::new(FIXTURE), Some(template)).unwrap();
    let failure = language.prompt_tokens(&chat("hi")).unwrap_err();
    // The next job gets a new process.
    let text = language.prompt_tokens(&Prompt::Text("hi".to_owned()));
    assert!(text.is_ok(), "after {template}: {text:?}");
    failure
}

fn check_death(template: &str, reason: &str) {
    let failure = said(template);
    let told = failure.to_string();
    assert!(
        matches!(failure, Failure::BrokenTemplate(_))
            && told.contains("hostile")
            && told.contains(reason),
        "{template}: {told}"
    );
}

#[test]
fn an_isolated_text_side_reads_and_writes_as_one_in_this_process() {
    let here = Language::open(TextSource {
        folder: Some(Path::new(FIXTURE)),
        ..TextSource::default()
    })
    .unwrap();
    let isolated = open(Path::new(FIXTURE), None).unwrap();
    assert_eq!(isolated.ends, here.ends);
    assert_eq!(isolated.defaults, here.defaults);
    assert_eq!(isolated.markup, here.markup);
    assert_eq!(isolated.pieces(), here.pieces());
    assert_eq!(isolated.brings_template(), here.brings_template());
    let deep = (0..110).fold(json!(1), |inner, _| json!([inner]));
    let nested = Prompt::Chat(Chat {
        messages: vec![json!({"role": "user", "content": "hi", "more": deep})],
        ..Chat::default()
    });
    for prompt in [
        Prompt::Text("Once upon a time".to_owned()),
        Prompt::Tokens(vec![1, 2]),
        chat("Grüße, 世界"),
        chat(""),
        nested,
    ] {
        let tokens = here.prompt_tokens(&prompt).unwrap();
        assert_eq!(isolated.prompt_tokens(&prompt).unwrap(), tokens);
        assert_eq!(isolated.opening(&tokens), here.opening(&tokens));
        let mut texts = [String::new(), String::new()];
        for (language, text) in [&here, &isolated].into_iter().zip(&mut texts) {
            let stops = (Vec::new(), &StopRules::default());
            language.replay(&tokens, Begins::Fresh, stops, |more| text.push_str(more));
        }
        assert_eq!(texts[0], texts[1]);
    }
    let refused = open(Path::new(FIXTURE), Some("{{ raise_exception('no') }}")).unwrap();
    let refused = refused.prompt_tokens(&chat("hi")).unwrap_err();
    assert!(matches!(refused, Failure::BadRequest(_)), "{refused}");
}

#[test]
fn a_template_that_allocates_without_end_costs_its_own_process_only() {
    let doubled = "{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(40) %}\
        {% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s | length }}";
    check_death(doubled, "memory limit");
    let joined = "{% set n = namespace(l=['xxxxxxxxxxxxxxxx']) %}{% for i in range(40) %}\
        {% set n.l = [n.l | join('y'), n.l | join('z')] %}{% endfor %}{{ n.l | length }}";
    check_death(joined, "memory limit");
}

#[test]
fn a_template_that_recurses_without_end_costs_its_own_process_only() {
    // A list of a list of a list, which is walked into when it is written or dropped.
    let nested = "{% set n = namespace(l=[]) %}{% for i in range(400) %}\
        {% for j in range(1000) %}{% set n.l = [n.l] %}{% endfor %}{% endfor %}{{ n.l }}";
    check_death(nested, "stack limit");
}

#[test]
fn a_template_that_computes_without_end_is_stopped() {
    let slow = "{% set s = 'x' %}{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}\
        {% for i in range(15) %}{% set n.s = n.s ~ n.s %}{% endfor %}\
        {% for i in range(10000) %}{% for j in range(10000) %}\
        {% set t = n.s | upper | replace('x', 'y') %}{% endfor %}{% endfor %}";
    check_death(slow, "time limit of 10 s");
}

#[test]
fn a_model_whose_text_process_keeps_dying_is_refused_for_a_while() {
    let doubled = "{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(40) %}\
        {% set n.s = n.s ~ n.s %}{% endfor %}";
    let language = open(Path::new(FIXTURE), Some(doubled)).unwrap();
    for _ in 0..3 {
        let failure = language.prompt_tokens(&chat("hi")).unwrap_err();
        assert!(failure.to_string().contains("memory limit"), "{failure}");
    }
    let failure = language.prompt_tokens(&chat("hi")).unwrap_err();
    let told = failure.to_string();
    assert!(matches!(failure, Failure::Internal(_)), "{told}");
    for part in ["hostile", "3 times in a row", "memory limit", "retrying in"] {
        assert!(told.contains(part), "{told}");
    }
}

/// A `tokenizer.json` that was changed.
fn tokenizer(change: impl FnOnce(&mut Value)) -> TempDir {
    let folder = folder();
    let path = folder.path().join("tokenizer.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    fs::write(path, json.to_string()).unwrap();
    folder
}

fn check_refused(folder: &TempDir, part: &str) {
    let refused = open(folder.path(), None).map(drop).unwrap_err();
    assert!(refused.contains(part), "{refused}");
}

#[test]
fn hostile_tokenizers_are_refused_and_named() {
    let giant = tokenizer(|json| {
        let content = "x".repeat(2 << 20);
        let token = json!({"id": 2000, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true});
        json["added_tokens"].as_array_mut().unwrap().push(token);
    });
    check_refused(&giant, "");

    let far = tokenizer(|json| {
        json["model"]["vocab"]["far"] = json!(4_000_000_000_u32);
    });
    check_refused(&far, "token ids");

    let bomb = tokenizer(|json| {
        let pattern = format!("{}a{}", "(".repeat(9), "{500})".repeat(9));
        json["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": pattern},
            "behavior": "Isolated", "invert": false});
    });
    check_refused(&bomb, "");

    let nested = folder();
    fs::write(nested.path().join("tokenizer.json"), "[".repeat(30 << 20)).unwrap();
    check_refused(&nested, "tokenizer.json is invalid");

    let large = folder();
    let file = fs::File::create(large.path().join("tokenizer.json")).unwrap();
    file.set_len(1 << 30).unwrap();
    check_refused(&large, "larger than");

    let large = folder();
    fs::write(
        large.path().join("tokenizer_config.json"),
        format!("[{}0]", "0,".repeat(4 << 20)),
    )
    .unwrap();
    check_refused(&large, "larger than");
}

/// Patterns that go back and forth are stopped where a request meets them.
#[test]
fn a_tokenizer_whose_pattern_backtracks_without_end_is_stopped_within_seconds() {
    let folder = tokenizer(|json| {
        json["pre_tokenizer"] = json!({"type": "Split", "behavior": "Isolated", "invert": false,
            "pattern": {"Regex": "(?:(a+)+)+(?=b)\\1|(?:x|xx|xxx)+(?!x)y"}});
    });
    let Ok(language) = open(folder.path(), None) else {
        return;
    };
    let began = Instant::now();
    let _ = language.prompt_tokens(&Prompt::Text("a".repeat(200_000)));
    assert!(began.elapsed() < Duration::from_secs(20));
    let after = language.prompt_tokens(&Prompt::Text("hi".to_owned()));
    assert!(after.is_ok(), "{after:?}");
}

#[test]
fn a_prompt_larger_than_a_text_process_takes_is_refused_before_it() {
    let language = open(Path::new(FIXTURE), None).unwrap();
    let refused = language.prompt_tokens(&Prompt::Text("a".repeat(5 << 20)));
    assert!(
        matches!(&refused, Err(Failure::BadRequest(reason)) if reason.contains("at most 4194304")),
        "{refused:?}"
    );
}

#[test]
fn what_an_isolated_model_recommends_is_checked_where_it_is_used() {
    let folder = folder();
    fs::write(
        folder.path().join("generation_config.json"),
        r#"{"temperature": -1.0}"#,
    )
    .unwrap();
    check_refused(&folder, "generation_config.json is invalid");
    let isolation = isolation();
    let set = Sampling {
        temperature: Some(0.5),
        ..Sampling::default()
    };
    let language = Language::open(TextSource {
        folder: Some(folder.path()),
        defaults: Some(&set),
        isolation: Some(&isolation),
        ..TextSource::default()
    });
    assert_eq!(language.unwrap().defaults.temperature, Some(0.5));
}

/// From the command line on: the process of `generate` survives what its model's template does.
#[test]
fn generate_survives_a_hostile_template_and_names_it() {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(FIXTURE).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    fs::write(
        folder.path().join("chat_template.jinja"),
        "{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}\
         {% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    )
    .unwrap();
    let path = folder.path().to_str().unwrap();
    let run = worker(&["generate", path, "hello", "--device", "cpu"]).run();
    // On a busy machine the time ends before the memory does.
    let limits = ["failed: memory limit exceeded", "failed: time limit of"];
    assert!(
        run.code == 65 && limits.iter().any(|limit| run.stderr.contains(limit)),
        "{run:?}"
    );
    let run = worker(&[
        "generate", path, "hello", "--raw", "-n", "2", "--device", "cpu",
    ])
    .run();
    assert_eq!(run.code, 0, "{run:?}");
}

#[test]
fn a_tokenizer_of_prompts_reads_in_a_process_as_in_this_one() {
    let tokenizer = Path::new(FIXTURE).with_file_name("tiny-video/tokenizer");
    let open = |isolation: Option<&Isolation>| PromptTokenizer::open(&tokenizer, 6, isolation);
    let (here, isolated) = (open(None).unwrap(), open(Some(&isolation())).unwrap());
    let long = "a red circle ".repeat(20);
    for prompt in ["", "a red circle", " a \n red", &long] {
        assert_eq!(
            isolated.encode(prompt).unwrap(),
            here.encode(prompt).unwrap()
        );
    }
}

#[test]
fn a_tokenizer_of_prompts_that_takes_too_much_memory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let added: Vec<Value> = (0..400_000)
        .map(|id| json!({
                "id": id, "content": format!("token {id}"), "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false,
            }))
        .collect();
    let file = json!({"added_tokens": added, "model": {"type": "BPE", "vocab": {}, "merges": []}});
    fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    let limits = IsolationLimits {
        open_bytes: 64 << 20,
        ..isolation().limits
    };
    let isolation = Isolation {
        limits,
        ..isolation()
    };
    let refused = PromptTokenizer::open(folder.path(), 6, Some(&isolation));
    let refused = refused.err().unwrap().to_string();
    // The memory ends while the file is read, or anywhere later in the process: this one goes on.
    let is_told = refused.ends_with("tokenizer.json failed: out of memory")
        || refused.starts_with("the text process of hostile failed: ");
    assert!(is_told, "{refused}");
}
