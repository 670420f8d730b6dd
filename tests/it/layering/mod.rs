//! Layers that the manifests of the crates cannot express: modules inside a crate, libraries that stop at a border,
//! calls that are banned. Every path that a file of `src/` names is looked up, in `use` trees, in code and in macros.

mod clocks;
mod cycles;
mod paths;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use paths::Named;

/// The sibling modules that a module of a crate may use. Every module of these crates has a row.
const SIBLINGS: &[(&str, &[&str])] = &[
    (
        "coordinator/accounts",
        &["clock", "dispatch", "storage", "values"],
    ),
    ("coordinator/address", &[]),
    ("coordinator/billing", &[]),
    ("coordinator/clock", &[]),
    ("coordinator/condition", &[]),
    ("coordinator/dispatch", &[]),
    ("coordinator/display_name", &[]),
    ("coordinator/documents", &[]),
    ("coordinator/egress", &[]),
    (
        "coordinator/erasure",
        &[
            "accounts",
            "clock",
            "media",
            "requests",
            "responses",
            "storage",
            "switchboard",
            "values",
        ],
    ),
    ("coordinator/error", &["dispatch", "values"]),
    ("coordinator/file_id", &[]),
    (
        "coordinator/front",
        &[
            "accounts",
            "condition",
            "http",
            "leadership",
            "start_error",
            "state",
            "storage",
        ],
    ),
    (
        "coordinator/http",
        &[
            "accounts",
            "address",
            "billing",
            "clock",
            "condition",
            "dispatch",
            "display_name",
            "documents",
            "egress",
            "erasure",
            "error",
            "file_id",
            "kudos",
            "leadership",
            "local_models",
            "media",
            "messages",
            "metering",
            "moderation",
            "modes",
            "names",
            "passkeys",
            "people",
            "pictures",
            "pollers",
            "profanity",
            "progress",
            "requests",
            "responses",
            "rigs",
            "room",
            "secrets",
            "sender",
            "sharing",
            "state",
            "stats",
            "storage",
            "styles",
            "switchboard",
            "teams",
            "values",
            "workers",
        ],
    ),
    ("coordinator/kudos", &["dispatch", "metering", "values"]),
    ("coordinator/leadership", &[]),
    ("coordinator/local_models", &[]),
    ("coordinator/media", &["clock", "file_id"]),
    (
        "coordinator/messages",
        &["accounts", "clock", "rigs", "storage"],
    ),
    ("coordinator/metering", &["secrets"]),
    (
        "coordinator/moderation",
        &["address", "clock", "names", "storage", "values"],
    ),
    ("coordinator/modes", &["requests", "storage", "values"]),
    ("coordinator/names", &[]),
    ("coordinator/passkeys", &["storage", "values"]),
    (
        "coordinator/people",
        &[
            "accounts",
            "clock",
            "kudos",
            "rigs",
            "storage",
            "switchboard",
            "values",
        ],
    ),
    (
        "coordinator/pictures",
        &["egress", "media", "sender", "turns"],
    ),
    (
        "coordinator/pollers",
        &[
            "accounts",
            "dispatch",
            "metering",
            "names",
            "rigs",
            "storage",
            "switchboard",
            "turns",
            "values",
        ],
    ),
    ("coordinator/profanity", &[]),
    ("coordinator/progress", &[]),
    (
        "coordinator/requests",
        &[
            "accounts",
            "clock",
            "dispatch",
            "kudos",
            "media",
            "names",
            "storage",
            "switchboard",
            "values",
        ],
    ),
    ("coordinator/responses", &["clock", "error", "storage"]),
    (
        "coordinator/rigs",
        &[
            "accounts",
            "clock",
            "dispatch",
            "kudos",
            "names",
            "profanity",
            "settlements",
            "storage",
            "switchboard",
            "values",
        ],
    ),
    ("coordinator/room", &["error", "sender"]),
    ("coordinator/secrets", &[]),
    ("coordinator/sender", &["accounts", "address"]),
    (
        "coordinator/settlements",
        &["clock", "dispatch", "kudos", "storage", "switchboard"],
    ),
    (
        "coordinator/sharing",
        &["accounts", "clock", "display_name", "storage", "values"],
    ),
    (
        "coordinator/start",
        &[
            "accounts",
            "condition",
            "dispatch",
            "egress",
            "erasure",
            "front",
            "http",
            "kudos",
            "leadership",
            "local_models",
            "media",
            "messages",
            "moderation",
            "modes",
            "passkeys",
            "people",
            "pictures",
            "pollers",
            "requests",
            "responses",
            "rigs",
            "room",
            "settlements",
            "start_error",
            "state",
            "stats",
            "storage",
            "switchboard",
            "webhooks",
            "workers",
        ],
    ),
    (
        "coordinator/start_error",
        &["accounts", "http", "media", "storage"],
    ),
    (
        "coordinator/state",
        &[
            "accounts",
            "address",
            "billing",
            "condition",
            "documents",
            "erasure",
            "kudos",
            "local_models",
            "media",
            "messages",
            "moderation",
            "modes",
            "names",
            "passkeys",
            "people",
            "pictures",
            "pollers",
            "requests",
            "responses",
            "rigs",
            "stats",
            "storage",
            "switchboard",
            "workers",
        ],
    ),
    ("coordinator/stats", &["clock", "storage"]),
    (
        "coordinator/storage",
        &[
            "billing",
            "clock",
            "display_name",
            "file_id",
            "kudos",
            "leadership",
            "values",
        ],
    ),
    ("coordinator/styles", &["storage", "values"]),
    (
        "coordinator/switchboard",
        &["clock", "dispatch", "leadership", "metering"],
    ),
    (
        "coordinator/teams",
        &[
            "accounts",
            "clock",
            "display_name",
            "profanity",
            "rigs",
            "storage",
            "values",
        ],
    ),
    ("coordinator/turns", &[]),
    ("coordinator/values", &[]),
    (
        "coordinator/webhooks",
        &[
            "accounts", "clock", "egress", "media", "requests", "storage", "turns",
        ],
    ),
    (
        "coordinator/workers",
        &[
            "accounts",
            "dispatch",
            "media",
            "metering",
            "moderation",
            "names",
            "pictures",
            "rigs",
            "room",
            "switchboard",
            "values",
        ],
    ),
    ("engine/networks", &[]),
    ("engine/runtime", &["networks"]),
    ("media/image", &["media_type"]),
    ("media/media_type", &[]),
    ("media/sound", &["media_type"]),
    ("media/video", &["image"]),
    ("process/child", &[]),
    ("process/cpu_time", &[]),
    ("process/intake", &[]),
    ("process/internet", &[]),
    ("process/memory", &[]),
    ("process/tasks", &[]),
    ("process/telemetry", &[]),
    ("worker/catalog", &["hub"]),
    (
        "worker/daemon",
        &["catalog", "hardware", "hub", "link", "upstream"],
    ),
    ("worker/hardware", &[]),
    ("worker/hub", &[]),
    ("worker/link", &[]),
    ("worker/upstream", &[]),
];

/// The only places that may name a crate.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("axum", &["coordinator/http", "worker/daemon/page"]),
    ("candle_core", &["kernels", "engine", "cli/bench"]),
    ("candle_flash_attn", &["kernels"]),
    ("candle_nn", &["kernels", "engine"]),
    ("candle_transformers", &["engine"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("flacenc", &["media/sound"]),
    ("hf_hub", &["worker/hub"]),
    ("hound", &["media/sound"]),
    ("muxide", &["media/video"]),
    ("indicatif", &["cli"]),
    ("libmimalloc_sys", &["process/memory.rs"]),
    ("llguidance", &["engine/runtime/grammar"]),
    ("memmap2", &["engine/networks/weights"]),
    ("mimalloc", &["process/memory.rs"]),
    ("minijinja", &["engine/runtime/text"]),
    ("muster", &["main.rs"]),
    (
        "muster_characters",
        &[
            "coordinator/http/openai",
            "engine/runtime/speech",
            "protocol",
        ],
    ),
    ("muster_config", &["worker/daemon", "lib.rs"]),
    ("muster_engine", &["worker/daemon", "lib.rs"]),
    ("muster_kernels", &["engine", "lib.rs"]),
    ("muster_mcp", &["cli/mcp.rs", "coordinator/http/mcp.rs"]),
    (
        "muster_media",
        &[
            "coordinator/media",
            "coordinator/pictures",
            "reader",
            "worker/daemon",
            "lib.rs",
        ],
    ),
    ("muster_pages", &["coordinator/http", "worker/daemon/page"]),
    (
        "muster_process",
        &[
            "coordinator",
            "engine/runtime",
            "reader",
            "worker/daemon",
            "worker/link",
            "worker/upstream",
            "lib.rs",
        ],
    ),
    ("muster_reader", &["coordinator", "worker/daemon", "lib.rs"]),
    (
        "muster_protocol",
        &[
            "coordinator",
            "worker/catalog",
            "worker/daemon",
            "worker/link",
            "worker/upstream",
            "lib.rs",
        ],
    ),
    (
        "muster_schema",
        &["engine/runtime/grammar", "protocol/openai/chat"],
    ),
    ("nvml_wrapper", &["worker/hardware"]),
    ("object_store", &["coordinator/media"]),
    ("opus_pure", &["media/sound"]),
    ("rusty_h264_common", &["media/video"]),
    ("rusty_h264_encoder", &["media/video"]),
    ("rusty_mp3", &["media/sound"]),
    (
        "regex",
        &[
            "coordinator/display_name.rs",
            "coordinator/kudos/sizes.rs",
            "coordinator/secrets.rs",
            "coordinator/moderation",
            "engine/networks/text/adapter",
        ],
    ),
    (
        "reqwest",
        &[
            "cli/chat",
            "coordinator/egress",
            "worker/hub",
            "worker/link/inquiry",
            "worker/link/legacy",
            "worker/link/transfer.rs",
            "worker/upstream",
        ],
    ),
    ("ratatui", &["cli/top"]),
    ("ring", &["coordinator/accounts", "coordinator/values"]),
    ("sqlx", &["coordinator/storage"]),
    ("subtle", &["worker/daemon/page"]),
    ("tokenizers", &["engine/runtime/text"]),
    ("toml_edit", &["config/edit.rs"]),
    ("toktrie", &["engine/runtime/grammar"]),
    ("tracing_subscriber", &["process/telemetry.rs"]),
    (
        "unicode_normalization",
        &["characters", "coordinator/moderation"],
    ),
    ("unicode_security", &["coordinator/moderation"]),
    ("webp", &["media/image"]),
];

/// Paths that no file may name, except the listed ones.
const NOWHERE: &[(&str, &[&str])] = &[
    ("thread::sleep", &[]),
    ("tokio::spawn", &["process/tasks.rs"]),
    ("tokio::task::spawn", &["process/tasks.rs"]),
    ("unbounded_channel", &[]),
];

/// The core: jobs of every API look the same there. The table of public image models is known by its name only.
const KNOWS_NO_API: &[&str] = &[
    "coordinator/dispatch",
    "coordinator/http/generation",
    "coordinator/http/openai",
    "coordinator/http/text",
    "coordinator/metering",
    "coordinator/switchboard",
    "coordinator/workers",
    "protocol/job",
    "protocol/openai",
];
const API: &str = "legacy";
const TABLE: [&str; 2] = ["image", "reference"];

/// Where serde's traits may be derived: a derive is a promise to a reader outside the program.
const DERIVES_SERDE: &[&str] = &[
    "cli",
    "config",
    "engine/networks/encoder",
    "engine/networks/image",
    "engine/networks/image_encoder",
    "engine/networks/single_sequence",
    "engine/networks/sound",
    "engine/networks/text",
    "engine/networks/text_encoder",
    "engine/networks/video",
    "engine/networks/vision",
    "engine/networks/weights",
    "engine/runtime/grammar/prover",
    "engine/runtime/pickles",
    "engine/runtime/text",
    "protocol",
    "reader",
    "worker/catalog",
    "worker/daemon/page",
    "worker/daemon/report.rs",
    "worker/hub",
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
fn every_module_of_a_walled_crate_has_a_row() {
    let walled: BTreeSet<&str> = SIBLINGS
        .iter()
        .map(|(module, _)| crate_of(module))
        .collect();
    let sources = sources();
    let found: BTreeSet<String> = sources
        .iter()
        .filter(|source| walled.contains(crate_of(&source.name)))
        .filter_map(|source| module_of(&source.name))
        .filter(|module| !module.ends_with("/mod"))
        .collect();
    let listed = SIBLINGS.iter().map(|(module, _)| module.to_string());
    assert_eq!(found, listed.collect());
}

/// The code map's last column equals the manifests.
#[test]
fn the_code_map_names_the_dependencies_of_each_crate() {
    let map = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let rows: Vec<Vec<&str>> = map
        .lines()
        .filter_map(|line| Some(line.strip_prefix("//! | `muster-")?.split('|').collect()))
        .collect();
    assert!(rows.len() > 5, "src/lib.rs lists {} crates", rows.len());
    for row in rows {
        let name = row[0].trim().trim_matches('`');
        let manifest = fs::read_to_string(root().join(format!("src/{name}/Cargo.toml"))).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap();
        let dependencies = dependencies.split("\n[").next().unwrap();
        let uses: BTreeSet<&str> = dependencies
            .lines()
            .filter_map(|line| line.strip_prefix("muster-")?.split('.').next())
            .collect();
        let told = row[3]
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        assert_eq!(told.collect::<BTreeSet<_>>(), uses, "muster-{name}");
    }
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
            "engine/networks/text/llama.rs",
            "use crate::{layers, runtime::{Event, Sampling}};",
            "crate::runtime",
        ),
        (
            "engine/networks/mod.rs",
            "fn f() { let x = crate::runtime::start(); }",
            "crate::runtime",
        ),
        (
            "worker/hub/mod.rs",
            "use super::daemon::fit;",
            "crate::daemon",
        ),
        (
            "worker/link/session/mod.rs",
            "fn f(x: super::super::hub::Hub) {}",
            "crate::hub",
        ),
        (
            "worker/link/mod.rs",
            "impl From<muster_config::LinkConfig> for Limits {}",
            "muster_config",
        ),
        (
            "worker/hub/mod.rs",
            r#"fn f() { info!(machine = ?crate::hardware::probe(), "up"); }"#,
            "crate::hardware",
        ),
        (
            "engine/networks/text.rs",
            "mod inner { use super::super::super::runtime; }",
            "crate::runtime",
        ),
        (
            "main.rs",
            "fn main() { muster::daemon::run() }",
            "muster::daemon",
        ),
        (
            "worker/hardware/mod.rs",
            "use nvml_wrapper as nvml; use axum::Router;",
            "axum::Router",
        ),
        (
            "worker/daemon/mod.rs",
            "use candle_core::Tensor;",
            "candle_core::Tensor",
        ),
        (
            "worker/daemon/mod.rs",
            "async fn f() { tokio::spawn(async {}); }",
            "tokio::spawn",
        ),
        (
            "worker/daemon/mod.rs",
            "use tokio::task; async fn f() { task::spawn(async {}); }",
            "tokio::task::spawn",
        ),
        (
            "worker/daemon/mod.rs",
            "use std::thread; fn f() { thread::sleep(d); }",
            "std::thread::sleep",
        ),
        (
            "engine/runtime/mod.rs",
            "use tokio::sync::mpsc as m; fn f() { m::unbounded_channel::<u8>(); }",
            "unbounded_channel",
        ),
        (
            "coordinator/dispatch/mod.rs",
            "use muster_protocol::legacy::words::Word;",
            "the AI Horde API",
        ),
        (
            "engine/runtime/mod.rs",
            "#[derive(Debug, Serialize)] struct Event;",
            "derives Serialize",
        ),
        (
            "worker/hardware/mod.rs",
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
            "engine/networks/text/llama.rs",
            "use crate::networks::weights; use muster_kernels::PAGE_TOKENS; use super::decoder;",
        ),
        (
            "engine/runtime/text/mod.rs",
            "use tokenizers::Tokenizer; #[derive(Deserialize)] struct TokenizerJson;",
        ),
        (
            "cli/models.rs",
            "use crate::{catalog, config, daemon, hub}; use indicatif::ProgressBar;",
        ),
        ("process/tasks.rs", "fn f() { tokio::spawn(async {}); }"),
        (
            "worker/hardware/mod.rs",
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
pub struct Source {
    pub name: String,
    pub text: String,
}

impl Source {
    fn lines_before_tests(&self) -> usize {
        self.text
            .lines()
            .take_while(|line| *line != "mod tests {")
            .count()
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn sources() -> Vec<Source> {
    files_of("src")
}

/// The Rust files under a folder of the repository.
fn files_of(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    gather(&root().join(folder), "", &mut found);
    assert!(!found.is_empty(), "found no files in {folder}");
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

/// The first folder of a path under `src/`: the crate, or a module of the package `muster`.
fn crate_of(file: &str) -> &str {
    file.split('/').next().unwrap_or(file)
}

/// `worker/hub` for `worker/hub/mod.rs`.
fn module_of(file: &str) -> Option<String> {
    let mut parts = file.trim_end_matches(".rs").split('/');
    Some(format!("{}/{}", parts.next()?, parts.next()?))
}

fn violations(file: &str, text: &str) -> Vec<String> {
    let named = Named::in_file(file, text);
    let siblings = match is_of_tests(file) {
        true => Vec::new(),
        false => Named::outside_tests(file, text).paths,
    };
    let siblings = siblings.iter().filter_map(|path| {
        let to = path.get(1).filter(|_| path[0] == "crate")?;
        let reason = unlawful_sibling(file, to)?;
        Some(format!("src/{file} names {}: {reason}", path.join("::")))
    });
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
    siblings.chain(paths).chain(derives).collect()
}

fn objection(file: &str, path: &[String]) -> Option<String> {
    if let Some((what, _)) = NOWHERE
        .iter()
        .find(|(what, but)| contains(path, what) && !is_in(file, but))
    {
        return Some(format!("{what} is not used in this house"));
    }
    if is_in(file, KNOWS_NO_API) && names_an_api(path) {
        return Some(format!("{API} is the AI Horde API, one door of many"));
    }
    let name = path.first()?;
    if file == "main.rs" && name == "muster" && path.get(1).is_some_and(|part| part != "cli") {
        return Some("main.rs may use cli".to_owned());
    }
    let (_, places) = ONLY_IN.iter().find(|(krate, _)| krate == name)?;
    (!is_in(file, places)).then(|| format!("{name} stops at {places:?}"))
}

fn names_an_api(path: &[String]) -> bool {
    let is_protocol =
        ["crate", "muster_protocol"].contains(&path.first().map_or("", String::as_str));
    is_protocol
        && path.get(1).is_some_and(|part| part == API)
        && !path[2..].starts_with(&TABLE.map(str::to_owned))
}

/// Files of tests alone, which may use what they test with.
fn is_of_tests(file: &str) -> bool {
    file.contains("tests/") || file.ends_with("tests.rs")
}

fn unlawful_sibling(file: &str, to: &str) -> Option<String> {
    let row = |module: &str| SIBLINGS.iter().find(|(listed, _)| *listed == module);
    let from = module_of(file)?;
    let target = format!("{}/{to}", crate_of(file));
    row(&target)?;
    let (_, known) = row(&from)?;
    (from != target && !known.contains(&to)).then(|| format!("{from} may use {known:?}"))
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
