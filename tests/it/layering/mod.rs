//! Who may know whom, and that the tree stays readable. The table in `src/lib.rs` says it for people; the ones here
//! are looked up for every path that a file of `src/` names, in `use` trees, in code and inside macros.

mod paths;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use paths::Named;

/// Which folders of `src/` a folder may name, besides itself. Every folder has a row.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("catalog", &["hub"]),
    ("cli", &["*"]),
    ("config", &[]),
    ("coordinator", &["protocol", "tasks", "memory", "intake"]),
    (
        "daemon",
        &[
            "runtime",
            "hub",
            "catalog",
            "hardware",
            "config",
            "link",
            "protocol",
            "tasks",
            "telemetry",
        ],
    ),
    ("hardware", &[]),
    ("hub", &[]),
    ("intake", &[]),
    ("kernels", &[]),
    ("lib", &[]),
    ("link", &["protocol", "tasks", "intake"]),
    ("main", &["cli"]),
    ("memory", &[]),
    ("networks", &["kernels"]),
    ("protocol", &[]),
    ("runtime", &["networks", "kernels", "memory"]),
    ("tasks", &[]),
    ("telemetry", &[]),
];

/// Crates that stop at a border: the only places that may name them.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("axum", &["coordinator/http"]),
    (
        "candle_core",
        &["kernels", "networks", "runtime", "cli/bench"],
    ),
    ("candle_flash_attn", &["kernels"]),
    ("candle_nn", &["kernels", "networks", "runtime"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("hf_hub", &["hub"]),
    ("indicatif", &["cli"]),
    ("libmimalloc_sys", &["memory.rs"]),
    ("memmap2", &["networks/weights"]),
    ("mimalloc", &["memory.rs"]),
    ("minijinja", &["runtime/text"]),
    ("muster_kernels", &["lib"]),
    ("nvml_wrapper", &["hardware"]),
    ("object_store", &["coordinator/media"]),
    (
        "regex",
        &[
            "coordinator/display_name.rs",
            "coordinator/kudos/sizes.rs",
            "coordinator/secrets.rs",
            "coordinator/moderation",
        ],
    ),
    (
        "reqwest",
        &[
            "coordinator/egress",
            "hub",
            "link/inquiry.rs",
            "link/legacy",
        ],
    ),
    ("ring", &["coordinator/accounts"]),
    ("sqlx", &["coordinator/storage"]),
    ("tokenizers", &["runtime/text"]),
    ("tracing_subscriber", &["telemetry"]),
    ("unicode_normalization", &["coordinator/moderation"]),
    ("unicode_security", &["coordinator/moderation"]),
    ("webp", &["coordinator/pictures"]),
];

/// What nobody names, and the files that stand for it.
const NOWHERE: &[(&str, &[&str])] = &[
    ("thread::sleep", &[]),
    ("tokio::spawn", &["tasks.rs"]),
    ("tokio::task::spawn", &["tasks.rs"]),
    ("unbounded_channel", &[]),
];

/// Where serde's traits are derived. A derive is a promise to somebody outside.
const DERIVES_SERDE: &[&str] = &[
    "catalog",
    "cli",
    "config",
    "hub",
    "networks/text",
    "networks/weights",
    "protocol",
    "runtime/text",
];

/// Lines of a file before its tests. Tables and generated code may ask for more, by name.
const LONGEST_FILE: usize = 600;

#[test]
fn arrows_go_down() {
    let wrong: Vec<String> = sources()
        .iter()
        .flat_map(|source| violations(&source.name, &source.text))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_folder_has_a_row_in_the_table() {
    let found: BTreeSet<String> = sources().iter().map(|source| source.folder()).collect();
    let listed: BTreeSet<String> = MAY_KNOW
        .iter()
        .map(|(folder, _)| folder.to_string())
        .collect();
    let unlisted: Vec<_> = found.difference(&listed).collect();
    assert!(unlisted.is_empty(), "no row in MAY_KNOW for {unlisted:?}");
}

#[test]
fn the_code_map_says_of_every_folder_whom_it_may_know() {
    let map = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let rows: Vec<Vec<&str>> = map
        .lines()
        .filter_map(|line| Some(line.strip_prefix("//! |")?.split('|').collect()))
        .collect();
    let inside = MAY_KNOW
        .iter()
        .filter(|(folder, _)| !["lib", "main"].contains(folder));
    for (folder, may_know) in inside {
        let row = rows.iter().find(|row| quoted(row[0]).contains(folder));
        let told = row.unwrap_or_else(|| panic!("src/lib.rs has no row for {folder}"))[2];
        match may_know {
            ["*"] => assert_eq!(told.trim(), "everything below"),
            _ => assert_eq!(quoted(told), may_know.iter().copied().collect(), "{folder}"),
        }
    }
}

/// The words in backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|source| !source.name.ends_with("tests.rs") && !source.text.starts_with("//!"))
        .map(|source| source.name)
        .collect();
    assert!(silent.is_empty(), "no `//!` opens {silent:?}");
}

#[test]
fn files_stay_readable() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|source| (source.lines_before_tests(), source.name))
        .filter(|(lines, name)| *lines > LONGEST_FILE && !name.ends_with("tests.rs"))
        .collect();
    assert!(
        long.is_empty(),
        "longer than {LONGEST_FILE} lines: {long:?}"
    );
}

#[test]
fn nothing_is_called_a_helper() {
    let nameless = [
        "utils", "util", "common", "helpers", "helper", "types", "misc",
    ];
    let found: Vec<_> = sources()
        .into_iter()
        .map(|source| source.name)
        .filter(|name| {
            name.trim_end_matches(".rs")
                .split('/')
                .any(|part| nameless.contains(&part))
        })
        .collect();
    assert!(
        found.is_empty(),
        "a function without a home is missing a noun: {found:?}"
    );
}

#[test]
fn planted_violations_are_caught() {
    let planted = [
        (
            "networks/text/llama.rs",
            "use crate::{kernels, runtime::{Event, Sampling}};",
            "crate::runtime",
        ),
        (
            "networks/mod.rs",
            "fn f() { let x = crate::runtime::start(); }",
            "crate::runtime",
        ),
        (
            "networks/mod.rs",
            "use super::daemon::fit;",
            "crate::daemon",
        ),
        (
            "networks/text/mod.rs",
            "fn f(x: super::super::hub::Hub) {}",
            "crate::hub",
        ),
        (
            "runtime/engine.rs",
            "impl From<crate::config::LinkConfig> for Limits {}",
            "crate::config",
        ),
        (
            "runtime/engine.rs",
            r#"fn f() { info!(machine = ?crate::hardware::probe(), "up"); }"#,
            "crate::hardware",
        ),
        (
            "runtime/engine.rs",
            "mod inner { use super::super::super::cli; }",
            "crate::cli",
        ),
        (
            "main.rs",
            "fn main() { muster::daemon::run() }",
            "muster::daemon",
        ),
        (
            "hardware/mod.rs",
            "use nvml_wrapper as nvml; use axum::Router;",
            "axum::Router",
        ),
        (
            "daemon/mod.rs",
            "use candle_core::Tensor;",
            "candle_core::Tensor",
        ),
        (
            "daemon/mod.rs",
            "async fn f() { tokio::spawn(async {}); }",
            "tokio::spawn",
        ),
        (
            "daemon/mod.rs",
            "use tokio::task; async fn f() { task::spawn(async {}); }",
            "tokio::task::spawn",
        ),
        (
            "daemon/mod.rs",
            "use std::thread; fn f() { thread::sleep(d); }",
            "std::thread::sleep",
        ),
        (
            "runtime/mod.rs",
            "use tokio::sync::mpsc as m; fn f() { m::unbounded_channel::<u8>(); }",
            "unbounded_channel",
        ),
        (
            "runtime/mod.rs",
            "#[derive(Debug, Serialize)] struct Event;",
            "derives Serialize",
        ),
        (
            "hardware/mod.rs",
            "#[derive(serde::Deserialize)] enum Card {}",
            "derives Deserialize",
        ),
    ];
    for (file, text, expected) in planted {
        let found = violations(file, text).join("\n");
        assert!(found.contains(expected), "{file}: {text}\nfound: {found:?}");
    }
}

#[test]
fn lawful_code_is_let_through() {
    let lawful = [
        (
            "networks/text/llama.rs",
            "use crate::{kernels::PAGE_TOKENS, networks::weights}; use super::decoder;",
        ),
        (
            "runtime/text/mod.rs",
            "use tokenizers::Tokenizer; #[derive(Deserialize)] struct TokenizerJson;",
        ),
        (
            "cli/models.rs",
            "use crate::{catalog, config, daemon, hub}; use indicatif::ProgressBar;",
        ),
        ("tasks.rs", "fn f() { tokio::spawn(async {}); }"),
        (
            "hardware/mod.rs",
            r#"fn f() { println!("crate::runtime and thread::sleep are words here"); }"#,
        ),
    ];
    for (file, text) in lawful {
        assert_eq!(
            violations(file, text),
            Vec::<String>::new(),
            "{file}: {text}"
        );
    }
}

/// One file of `src/`; its name is relative to it.
struct Source {
    name: String,
    text: String,
}

impl Source {
    fn folder(&self) -> String {
        folder_of(&self.name).to_owned()
    }

    fn lines_before_tests(&self) -> usize {
        self.text
            .lines()
            .take_while(|line| *line != "mod tests {")
            .count()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    gather(&root().join("src"), "", &mut found);
    for source in &mut found {
        for parts in ["engine/", "process/", "worker/"] {
            if let Some(name) = source.name.strip_prefix(parts) {
                source.name = name.to_owned();
            }
        }
    }
    assert!(found.len() > 10, "found only {} files in src", found.len());
    found
}

fn gather(folder: &Path, prefix: &str, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            gather(&path, &format!("{name}/"), found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push(Source { name, text });
        }
    }
}

/// The first folder of a path under `src/`; a file in `src/` itself is its own.
fn folder_of(file: &str) -> &str {
    file.split('/')
        .next()
        .unwrap_or(file)
        .trim_end_matches(".rs")
}

fn violations(file: &str, text: &str) -> Vec<String> {
    let named = Named::in_file(file, text);
    let paths = named.paths.iter().filter_map(|path| {
        let reason = objection(file, path)?;
        Some(format!("src/{file} names {}: {reason}", path.join("::")))
    });
    let derives = named
        .derives
        .iter()
        .filter(|name| is_serde(name) && !is_in(file, DERIVES_SERDE));
    let derives = derives.map(|name| {
        format!("src/{file} derives {name}, which only the rim does: {DERIVES_SERDE:?}")
    });
    paths.chain(derives).collect()
}

fn objection(file: &str, path: &[String]) -> Option<String> {
    if let Some((what, _)) = NOWHERE
        .iter()
        .find(|(what, but)| contains(path, what) && !is_in(file, but))
    {
        return Some(format!("{what} is not used in this house"));
    }
    match path.first().map(String::as_str) {
        Some("crate" | "muster") => unlawful_arrow(folder_of(file), path.get(1)?),
        Some(name) => {
            let (_, places) = ONLY_IN.iter().find(|(krate, _)| *krate == name)?;
            (!is_in(file, places)).then(|| format!("{name} stops at {places:?}"))
        }
        None => None,
    }
}

fn unlawful_arrow(from: &str, to: &str) -> Option<String> {
    let is_folder = MAY_KNOW.iter().any(|(folder, _)| *folder == to);
    let (_, known) = MAY_KNOW.iter().find(|(folder, _)| *folder == from)?;
    let lawful = !is_folder || from == to || known.contains(&to) || known.contains(&"*");
    (!lawful).then(|| format!("{from} may know {known:?}"))
}

fn is_serde(name: &str) -> bool {
    matches!(name, "Serialize" | "Deserialize")
}

fn is_in(file: &str, places: &[&str]) -> bool {
    places.iter().any(|place| {
        file.strip_prefix(place)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
    })
}

fn contains(path: &[String], what: &str) -> bool {
    let wanted: Vec<&str> = what.split("::").collect();
    path.windows(wanted.len()).any(|part| part == wanted)
}
