//! Runs the examples of the documents: shell and Python blocks against `worker up`, TOML blocks through
//! `worker config check`, and every inline `worker …` command against the help of that command.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::documents::{documents, quoted, read};
use crate::support::worker::worker;
use crate::up::{Up, tool, up};

/// Blocks that the tests themselves are, or that compile.
const SET_UP: &str = "cargo ";

struct Block {
    document: String,
    language: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut found = Vec::new();
    for document in documents() {
        let text = read(&document);
        for block in text.split("```").skip(1).step_by(2) {
            let (language, text) = block.split_once('\n').unwrap();
            found.push(Block {
                document: document.clone(),
                language: language.to_owned(),
                text: text.to_owned(),
            });
        }
    }
    found
}

#[test]
fn every_block_is_of_a_known_kind() {
    let mut ran = 0;
    for block in blocks() {
        let Block {
            document,
            language,
            text,
        } = &block;
        let known =
            ["sh", "python", "toml", "text", "mermaid", "diff"].contains(&language.as_str());
        assert!(
            known,
            "{document} has a block of the kind {language:?}: {text}"
        );
        ran += usize::from(!["text", "mermaid", "diff"].contains(&language.as_str()));
    }
    assert!(ran >= 5, "only {ran} examples");
}

#[test]
fn shell_examples_work_against_up() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    let blocks = blocks();
    // Commands for the root of a machine with the package are tried by `packaging/check`.
    let is_tried = |text: &str| !text.contains(SET_UP) && !text.contains("sudo ");
    let shell = blocks
        .iter()
        .filter(|block| block.language == "sh" && is_tried(&block.text));
    for block in shell {
        let script = format!("set -e\n{}", addressed(&block.text, &up));
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env("KEY", &up.key);
        // Where the files that it writes are no one else's.
        let out = command.current_dir(folder.path()).output().unwrap();
        let reply = String::from_utf8_lossy(&out.stdout);
        let context = format!("{}:\n{script}\n{reply}", block.document);
        assert!(out.status.success(), "{context}");
        for line in reply.lines().filter(|line| line.starts_with('{')) {
            let reply: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{context}"));
            assert!(
                reply.get("error").is_none() && reply.get("rc").is_none(),
                "{context}"
            );
        }
        assert!(reply.contains('{'), "no reply: {context}");
    }
}

#[test]
fn python_examples_work_against_up() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    for block in blocks().iter().filter(|block| block.language == "python") {
        let program = addressed(&block.text, &up).replace("YOUR KEY", &up.key);
        let mut command = Command::new(tool("MUSTER_TEST_PYTHON"));
        command.args(["-c", &program]);
        let out = command.current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.success(),
            "{}:\n{program}\n{said}",
            block.document
        );
        assert!(
            !out.stdout.is_empty(),
            "{}: printed nothing",
            block.document
        );
    }
}

fn addressed(text: &str, up: &Up) -> String {
    text.replace("http://127.0.0.1:7010", &up.url)
}

#[test]
fn settings_in_documents_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "0123456789012345678901").unwrap();
    let file = folder.path().join("worker.toml");
    for block in blocks().iter().filter(|block| block.language == "toml") {
        let text = block.text.replace("/etc/muster/key", key.to_str().unwrap());
        fs::write(&file, text.replace("HOST", "host.example")).unwrap();
        let path = file.to_str().unwrap();
        let run = worker(&["config", "check", "--config", path]).run();
        assert_eq!(
            run.code, 0,
            "{}:\n{}\n{}",
            block.document, block.text, run.stderr
        );
    }
}

#[test]
fn commands_in_documents_exist_with_their_options() {
    let mut checked = 0;
    for document in documents() {
        let text = read(&document).replace("```", "\n");
        for command in quoted(&text).filter_map(|code| code.strip_prefix("worker ")) {
            let words: Vec<&str> = command.split_whitespace().collect();
            let help =
                help_of(&words).unwrap_or_else(|| panic!("{document}: no `worker {command}`"));
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let name = option.split('=').next().unwrap();
                let known = help.split([' ', ',', '\n', '=']).any(|word| word == name);
                assert!(known, "{document}: `worker {command}` has no {name}");
            }
            checked += 1;
        }
    }
    assert!(checked > 30, "found only {checked} commands");
}

/// Help of the deepest command that these words name. Lower-case words are names of commands until one is no command
/// and may be a value.
fn help_of(words: &[&str]) -> Option<String> {
    let is_name = |word: &&&str| {
        word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
    };
    let names: Vec<&str> = words.iter().take_while(is_name).copied().collect();
    let help = |names: &[&str]| {
        let run = worker(&[names, &["--help"]].concat()).run();
        (run.code == 0).then_some(run.stdout)
    };
    match names.as_slice() {
        [] => help(&[]),
        _ => (1..=names.len())
            .rev()
            .find_map(|count| help(&names[..count])),
    }
}

#[test]
fn an_unknown_command_has_no_help() {
    assert!(help_of(&["nothing"]).is_none());
    assert!(help_of(&["key", "create"]).is_some_and(|help| help.contains("--account")));
}
