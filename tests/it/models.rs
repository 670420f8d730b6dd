//! `worker models`, as its user meets it, against a server that behaves like the hub.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use muster_testing::{Lines, ended};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    hub::{FakeHub, Fault, noise, sha256},
    worker::{Run, Worker, worker},
};

const MIB: usize = 1024 * 1024;

/// A user with a home of her own and a hub nearby.
struct User {
    home: TempDir,
    hub: FakeHub,
}

impl User {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            hub: FakeHub::start(),
        }
    }

    fn with_model(bytes: Vec<u8>) -> Self {
        let user = Self::new();
        user.hub.large_file("model-q8_0.gguf", bytes);
        user
    }

    fn types(&self, arguments: &[&str]) -> Worker {
        let worker = worker(&[&["models"], arguments].concat());
        let home = self.home.path().to_str().unwrap();
        worker
            .env("HOME", home)
            .env("HF_ENDPOINT", &self.hub.endpoint)
    }

    fn generates(&self, model: &str) -> Run {
        let worker = worker(&["generate", model, "Hello", "--raw", "-n", "1"]);
        worker.env("HOME", self.home.path().to_str().unwrap()).run()
    }

    /// With a model that generates, under the name `org/model:tiny.gguf`.
    fn with_tiny() -> Self {
        let user = Self::new();
        let tiny = format!(
            "{}/tests/fixtures/tiny-llama.gguf",
            env!("CARGO_MANIFEST_DIR")
        );
        user.hub.large_file("tiny.gguf", fs::read(tiny).unwrap());
        user
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--json"]].concat();
        serde_json::from_str(&self.types(&arguments).run().ok()).unwrap()
    }

    fn repository(&self) -> PathBuf {
        self.home
            .path()
            .join(".cache/huggingface/hub/models--org--model")
    }

    /// Bytes in the journal of an interrupted pull.
    fn journaled_bytes(&self) -> u64 {
        let items = fs::read_dir(self.repository().join("blobs")).unwrap();
        let paths = items.map(|item| item.unwrap().path());
        let journal = paths
            .into_iter()
            .find(|path| path.to_str().unwrap().ends_with(".journal"));
        let text = fs::read_to_string(journal.unwrap()).unwrap();
        let ranges = text
            .lines()
            .skip(1)
            .map(|line| line.split_once(' ').unwrap());
        let number = |text: &str| text.parse::<u64>().unwrap();
        ranges.map(|(start, end)| number(end) - number(start)).sum()
    }
}

/// A running command, and its output.
struct UnderWay {
    child: Child,
    stderr: Lines,
}

fn start(worker: Worker) -> UnderWay {
    let mut command = worker.command();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stderr = Lines::of(child.stderr.take().unwrap());
    UnderWay { child, stderr }
}

impl UnderWay {
    #[track_caller]
    fn until_it_says(&mut self, part: &str) {
        self.stderr.forget();
        self.stderr.until(part);
    }

    #[track_caller]
    fn ends_well(mut self) {
        let status = ended(&mut self.child);
        assert!(status.success(), "{}", self.stderr.rest());
    }
}

#[tokio::test]
async fn a_pull_killed_in_the_middle_goes_on_where_it_was() {
    let weights = noise(40 * MIB, 1);
    let user = User::with_model(weights.clone());
    user.hub.hold_after(20 * MIB as u64);
    let mut pull = start(user.types(&["pull", "org/model"]));
    pull.until_it_says("40 %");
    // SIGKILL: nothing is written down after this.
    pull.child.kill().unwrap();
    pull.child.wait().unwrap();
    user.hub.until_alone().await;

    let here = user.journaled_bytes();
    assert!(here >= 16 * MIB as u64, "{here}");
    let before = user.hub.served_bytes();
    user.hub.release();
    let pulled = user.json(&["pull", "org/model"]);

    assert_eq!(
        user.hub.served_bytes() - before,
        weights.len() as u64 - here
    );
    let path = pulled[0]["files"][0].as_str().unwrap();
    assert_eq!(sha256(&fs::read(path).unwrap()), sha256(&weights));
}

#[tokio::test]
async fn a_pull_that_is_interrupted_says_that_nothing_is_lost() {
    let user = User::with_model(noise(40 * MIB, 1));
    user.hub.hold_after(20 * MIB as u64);
    let mut pull = start(user.types(&["pull", "org/model"]));
    pull.until_it_says("40 %");
    let interrupt = Command::new("kill")
        .args(["-INT", &pull.child.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    pull.until_it_says("error: stopped; partial files are kept");
    assert_eq!(pull.child.wait().unwrap().code(), Some(130));
    user.hub.until_alone().await;
    let here = user.journaled_bytes();
    assert!(here >= 16 * MIB as u64, "{here}");
    let before = user.hub.served_bytes();
    user.hub.release();
    user.types(&["pull", "org/model"]).run().ok();
    assert_eq!(user.hub.served_bytes() - before, 40 * MIB as u64 - here);
}

#[tokio::test]
async fn an_interrupted_pull_is_shown_and_removed() {
    let user = User::with_model(noise(40 * MIB, 1));
    user.hub.hold_after(20 * MIB as u64);
    let mut pull = start(user.types(&["pull", "org/model"]));
    pull.until_it_says("40 %");
    pull.child.kill().unwrap();
    pull.child.wait().unwrap();
    user.hub.until_alone().await;

    let listed = user.types(&["list"]).run().ok();
    let line = listed.lines().find(|line| line.starts_with("org/model"));
    let line = line.unwrap_or_else(|| panic!("it is not in:\n{listed}"));
    assert!(
        line.contains("partial, ") && line.contains("MiB of 40.0 MiB"),
        "{line}"
    );
    let verified = user.types(&["verify", "org/model"]).run();
    assert!(verified.stdout.contains("partial"), "{verified:?}");
    verified.fails(66, "missing or incomplete");

    let removed = user.types(&["rm", "org/model", "--yes"]).run().ok();
    assert!(removed.contains("removed 1 file"), "{removed}");
    let left = fs::read_dir(user.repository().join("blobs"));
    assert_eq!(left.map_or(0, Iterator::count), 0, "no part stays");
    let listed = user.types(&["list"]).run().ok();
    assert!(!listed.contains("org/model"), "{listed}");
    user.types(&["rm", "org/model", "--yes"])
        .run()
        .fails(66, "no file of org/model");
}

#[tokio::test]
async fn a_full_disk_says_how_much_was_wanted_and_loses_nothing() {
    let weights = noise(24 * MIB, 1);
    let user = User::with_model(weights.clone());
    let said = user
        .types(&["-q", "pull", "org/model"])
        .with_files_up_to(4096)
        .run()
        .fails(73, "failed: file too large");
    assert!(said.contains("bytes left to download, "), "{said}");
    assert!(
        said.contains("hint: free space with `worker models rm`"),
        "{said}"
    );

    user.hub.until_alone().await;
    let here = user.journaled_bytes();
    assert!(here > 0);
    let before = user.hub.served_bytes();
    user.types(&["pull", "org/model"]).run().ok();
    assert_eq!(
        user.hub.served_bytes() - before,
        weights.len() as u64 - here
    );
}

#[test]
fn two_processes_pull_the_same_file_once() {
    let weights = noise(4 * MIB, 1);
    let user = User::with_model(weights.clone());
    user.hub.hold_after(MIB as u64);
    let mut first = start(user.types(&["pull", "org/model"]));
    first.until_it_says("to download");
    let mut second = start(user.types(&["pull", "org/model"]));
    let mut ends = [&mut first, &mut second].map(|pull| pull.child.id());
    ends.sort_unstable();
    second.until_it_says("to download");
    user.hub.release();
    first.ends_well();
    second.ends_well();
    assert_eq!(user.hub.served_bytes(), weights.len() as u64);
}

#[test]
fn a_wrong_hash_ends_with_65() {
    let user = User::with_model(noise(1000, 1));
    user.hub.on_bytes([Fault::Corrupt]);
    let said = user
        .types(&["-q", "pull", "org/model"])
        .run()
        .fails(65, "checksum mismatch: found");
    assert!(
        said.contains(&format!("expected {}", sha256(&noise(1000, 1)))),
        "{said}"
    );
}

#[test]
fn without_network_it_says_what_was_tried() {
    let user = User::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let pull = user
        .types(&["-q", "pull", "qwen3-0.6b"])
        .env("HF_ENDPOINT", &format!("http://{closed}"));
    let said = pull.run().fails(69, "failed: connecting failed: ");
    assert!(said.contains("(attempts: 4)"), "{said}");
}

#[test]
fn offline_it_names_what_is_missing() {
    let user = User::new();
    let pull = || user.types(&["--offline", "pull", "qwen3-0.6b"]);
    pull().run().fails(
        69,
        "offline, but Qwen3-0.6B-Q8_0.gguf of Qwen/Qwen3-0.6B-GGUF is not in",
    );
    assert_eq!(user.hub.seen(), []);
}

#[test]
fn a_mistyped_model_is_answered_with_the_nearest() {
    let user = User::new();
    for command in ["pull", "show", "rm", "verify"] {
        user.types(&[command, "qwen3-0.6"])
            .run()
            .fails(66, "qwen3-0.6b");
    }
    user.types(&["pull", "qwen3-4b:q9"])
        .run()
        .fails(66, "available: bf16, q4_k_m, q8_0");
}

#[test]
fn a_repository_with_several_models_asks_which() {
    let user = User::with_model(noise(100, 1));
    user.hub.large_file("model-q4_k_m.gguf", noise(100, 2));
    user.types(&["pull", "org/model"])
        .run()
        .fails(2, "model-q4_k_m.gguf, model-q8_0.gguf; choose one");
    user.types(&["pull", "org/model:q4_k_m"]).run().ok();
    user.types(&["pull", "org/nowhere"])
        .run()
        .fails(66, "org/nowhere at main was not found");
}

#[test]
fn the_list_says_what_is_here() {
    let user = User::new();
    let list = user.types(&["list"]).run().ok();
    assert!(list.contains("qwen3-0.6b"), "{list}");
    let models = user.json(&["list"]);
    assert!(models.as_array().unwrap().len() >= 15);
    let source = |id: &str| {
        let models = models.as_array().unwrap().iter();
        let mut found = models.filter(|model| model["id"] == id);
        found.next().unwrap()["sources"][0].clone()
    };
    assert_eq!(
        source("demo-text")["on_disk"],
        true,
        "it is part of the program"
    );
    let first = source("qwen3-0.6b");
    assert_eq!(
        (&first["on_disk"], &first["bytes_on_disk"]),
        (&false.into(), &0.into())
    );
    assert!(first["minimum_memory_bytes"].as_u64().unwrap() > 100 * MIB as u64);
}

#[test]
fn the_list_has_sizes_of_all_models_and_filters() {
    let user = User::new();
    let list = user.types(&["list"]).run().ok();
    let row = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap();
    let mut rows = list.lines().filter(|line| line.starts_with("qwen3-0.6b"));
    assert!(rows.any(|row| row.contains("≈ 604.0 MiB")), "{list}");
    assert!(!row("demo-text").contains('≈'), "{list}");
    let models = user.json(&["list"]);
    for model in models.as_array().unwrap() {
        for source in model["sources"].as_array().unwrap() {
            assert!(source["size_bytes"].as_u64().unwrap() > 0, "{model}");
        }
    }
    let listed = |more: &[&str]| {
        let models = user.json(&[&["list"], more].concat());
        let models = models.as_array().unwrap().iter();
        models.cloned().collect::<Vec<Value>>()
    };
    let images = listed(&["image"]);
    assert!(images.iter().all(|model| model["kind"] == "image") && images.len() > 1);
    let here = listed(&["--on-disk"]);
    assert!(
        here.iter()
            .all(|model| model["id"].as_str().unwrap().starts_with("demo-"))
    );
    assert_eq!(here.len(), 7);
    let fitting = listed(&["--fits"]);
    let sources = fitting
        .iter()
        .flat_map(|model| model["sources"].as_array().unwrap());
    assert!(sources.into_iter().all(|source| source["fits"] == true));
    let none = listed(&["image", "--on-disk", "--fits"]);
    assert_eq!(none.len(), 1, "{none:?}");
    let list = user.types(&["list", "music"]).run().ok();
    assert!(
        list.contains("demo-music") && !list.contains("demo-text"),
        "{list}"
    );
    user.types(&["list", "pictures"])
        .run()
        .fails(2, "must be one of text, embedding, ranking, image");
}

#[test]
fn entries_of_the_owners_are_listed_and_broken_ones_named() {
    let user = User::new();
    let folder = tempfile::tempdir().unwrap();
    let entry = include_str!("../../models/smollm2-135m-instruct.toml").replace("smollm2", "mine");
    let entry = entry.replace("SmolLM2", "Mine");
    fs::write(folder.path().join("mine.toml"), &entry).unwrap();
    let list = || {
        user.types(&["list"])
            .env("MUSTER_MODELS_DIR", folder.path().to_str().unwrap())
    };
    assert!(list().run().ok().contains("mine-135m-instruct"));
    fs::write(
        folder.path().join("mine.toml"),
        entry.replace("licence", "license"),
    )
    .unwrap();
    list().run().fails(
        78,
        "unknown key in the entry: license; did you mean licence?",
    );
}

#[test]
fn a_pull_without_a_quantization_takes_the_preferred_one_if_the_model_has_it() {
    let user = User::with_model(noise(1000, 1));
    user.hub.large_file("model-q4_k_m.gguf", noise(500, 2));
    let folder = tempfile::tempdir().unwrap();
    let entry = include_str!("../../models/smollm2-135m-instruct.toml").replace("smollm2", "mine");
    let (entry, _) = entry.split_once("[sources").unwrap();
    let entry =
        ["q8_0", "q4_k_m"]
            .into_iter()
            .fold(entry.replace("SmolLM2", "Mine"), |entry, name| {
                let file = format!("files = [{{ path = \"model-{name}.gguf\" }}]");
                format!("{entry}[sources.{name}]\nrepository = \"org/model\"\n{file}\n")
            });
    fs::write(folder.path().join("mine.toml"), entry).unwrap();
    let types = |words: &[&str], preferred: &str| {
        let typed = user
            .types(words)
            .env("MUSTER_MODELS_DIR", folder.path().to_str().unwrap())
            .env("MUSTER_MODELS_QUANTIZATION", preferred);
        typed.run().ok()
    };
    for (preferred, taken) in [("Q4_K_M", "q4_k_m"), ("bf16", "q8_0")] {
        let said = types(&["pull", "mine-135m-instruct"], preferred);
        let here = format!("mine-135m-instruct:{taken} is on disk");
        assert!(said.starts_with(&here), "{said}");
        let list: Value = serde_json::from_str(&types(&["list", "--json"], preferred)).unwrap();
        let mut models = list.as_array().unwrap().iter();
        let mine = models.find(|model| model["id"] == "mine-135m-instruct");
        for source in mine.unwrap()["sources"].as_array().unwrap() {
            assert_eq!(source["is_chosen"], source["quantization"] == taken);
        }
    }
}

#[test]
fn who_states_another_hash_than_the_hub_is_told_what_to_change() {
    let user = User::with_model(noise(1000, 1));
    let folder = tempfile::tempdir().unwrap();
    let entry = include_str!("../../models/smollm2-135m-instruct.toml").replace("smollm2", "mine");
    let (entry, _) = entry.split_once("[sources").unwrap();
    let hash = "0".repeat(64);
    let source = format!("files = [{{ path = \"model-q8_0.gguf\", sha256 = \"{hash}\" }}]");
    let source = format!("[sources.q8_0]\nrepository = \"org/model\"\n{source}\n");
    let entry = entry.replace("SmolLM2", "Mine") + &source;
    fs::write(folder.path().join("mine.toml"), entry).unwrap();
    let refused = || {
        user.types(&["pull", "mine-135m-instruct:q8_0", "-q"])
            .env("MUSTER_MODELS_DIR", folder.path().to_str().unwrap())
            .run()
            .fails(65, "is another file: ")
    };
    let said = refused();
    assert!(said.contains("correct sha256 or revision"), "{said}");
    user.types(&["pull", "org/model"]).run().ok();
    let said = refused();
    assert!(said.contains("an earlier pull pinned its commit"), "{said}");
}

#[test]
fn show_tells_all_that_is_known_of_a_model() {
    let user = User::new();
    let shown = user.types(&["show", "QWEN/qwen3-4b"]).run().ok();
    for part in [
        "Apache-2.0",
        "40960 tokens",
        "Qwen3-4B-Q4_K_M.gguf",
        "temperature 0.6",
    ] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    let model = user.json(&["show", "qwen3-4b"]);
    assert_eq!(model["id"], "qwen3-4b");
    assert_eq!(model["names"]["v1"][1], "Qwen/Qwen3-4B");
}

#[test]
fn show_tells_how_a_model_would_divide_the_memory() {
    let user = User::new();
    let shown = user.types(&["show", "demo-text"]).run().ok();
    for part in [
        " weights + ",
        " KV cache for ",
        " pages), up to ",
        " keep_free + ",
    ] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    let shares = &user.json(&["show", "demo-text"])["sources"][0]["shares"];
    let bytes = |name: &str| shares[name].as_u64().unwrap();
    let parts = ["weight", "kv", "workspace", "keep_free", "left"];
    let sum: u64 = parts
        .map(|part| bytes(&format!("{part}_bytes")))
        .iter()
        .sum();
    assert_eq!(sum, bytes("free_bytes"));
    assert_eq!(bytes("pages"), bytes("kv_tokens") / 32);
}

#[test]
fn show_marks_models_that_run_one_request_at_a_time() {
    let user = User::new();
    let folder = tempfile::tempdir().unwrap();
    let entry = include_str!("../../models/smollm2-135m-instruct.toml").replace("smollm2", "mine");
    let entry = entry.replace("SmolLM2", "Mine");
    let entry = entry.replace("family = \"llama\"", "family = \"olmo\"");
    fs::write(folder.path().join("mine.toml"), entry).unwrap();
    let folder = folder.path().to_str().unwrap();
    let show = |words: &[&str]| {
        let command = user.types(words).env("MUSTER_MODELS_DIR", folder);
        command.run().ok()
    };
    let mark = "one request at a time (network of candle-transformers)";
    let shown = show(&["show", "mine-135m-instruct"]);
    assert!(shown.contains(mark), "{shown}");
    let report = show(&["show", "mine-135m-instruct", "--json"]);
    assert!(
        report.contains("\"network\": \"candle-transformers\""),
        "{report}"
    );
    let other = show(&["show", "qwen3-4b"]);
    assert!(!other.contains(mark), "{other}");
}

#[test]
fn show_of_a_quantization_shows_that_one_alone() {
    let user = User::new();
    let shown = user.types(&["show", "qwen3-4b:Q4_K_M"]).run().ok();
    assert!(shown.contains("Qwen3-4B-Q4_K_M.gguf"), "{shown}");
    assert!(!shown.contains("Q8_0"), "{shown}");
    let sources = &user.json(&["show", "qwen3-4b:q4_k_m"])["sources"];
    assert_eq!(sources.as_array().unwrap().len(), 1);
    assert_eq!(sources[0]["quantization"], "q4_k_m");
    user.types(&["show", "qwen3-4b:q9"])
        .run()
        .fails(66, "available: bf16, q4_k_m, q8_0");
}

#[test]
fn what_is_part_of_the_program_is_refused_before_anything_is_asked() {
    User::new()
        .types(&["rm", "demo-text"])
        .run()
        .fails(1, "cannot remove demo-text");
}

/// As one would type it.
const TINY: &str = "org/model:tiny.gguf";

#[test]
fn what_was_pulled_by_the_name_of_its_repository_is_generated_with_by_that_name() {
    let user = User::with_tiny();
    let said = user
        .generates(TINY)
        .fails(66, "is neither in the catalog nor downloaded");
    assert!(
        said.contains(&format!("worker models pull {TINY}")),
        "{said}"
    );
    user.types(&["pull", TINY]).run().ok();
    for name in [TINY, "org/model:tiny", "org/model"] {
        user.generates(name).ok();
    }
    let list = user.types(&["list"]).run().ok();
    assert!(list.contains("org/model "), "{list}");
    assert!(list.contains("tiny.gguf"), "{list}");
    let verified = user.types(&["verify"]).run().ok();
    assert_eq!(verified, format!("right    {TINY}  tiny.gguf\n"));
}

/// The files of an image model below a folder, with their paths inside.
fn files_below(folder: &std::path::Path, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = entries.flat_map(|entry| {
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => files_below(&entry.path(), &format!("{name}/")),
            false => vec![(name, fs::read(entry.path()).unwrap())],
        }
    });
    files.collect()
}

#[test]
fn an_image_model_of_several_folders_is_pulled_verified_and_draws() {
    let user = User::new();
    let fixtures = format!("{}/tests/fixtures", env!("CARGO_MANIFEST_DIR"));
    let files = files_below(&PathBuf::from(fixtures).join("tiny-image"), "");
    for (path, bytes) in &files {
        match path.ends_with(".safetensors") {
            true => user.hub.large_file(path, bytes.clone()),
            false => user.hub.small_file(path, bytes.clone()),
        };
    }
    let listed: Vec<String> = files
        .iter()
        .map(|(path, _)| format!("{{ path = {path:?} }}"))
        .collect();
    let entry = format!(
        "id = \"draws\"\nfamily = \"stable-diffusion-1\"\nkind = \"image\"\nlicence = \"MIT\"\n\
         parameters = 300_000\ndefault_quantization = \"f16\"\nnames = {{ v1 = [\"draws\"], legacy = [\"draws\"] }}\n\
         defaults = {{ size = [32, 32], steps = 2 }}\n\
         sources.f16 = {{ repository = \"org/model\", files = [{}] }}\n",
        listed.join(", ")
    );
    let home = user.home.path().to_str().unwrap();
    let models = user.home.path().join("entries");
    fs::create_dir(&models).unwrap();
    fs::write(models.join("draws.toml"), entry).unwrap();
    let models = models.to_str().unwrap();
    let types = |arguments: &[&str]| user.types(arguments).env("MUSTER_MODELS_DIR", models);
    let draw = |model: &str, name: &str| {
        let path = format!("{home}/{name}");
        let draws = worker(&[
            "generate",
            model,
            "a red circle",
            "--steps",
            "2",
            "--seed",
            "1",
            "-o",
            &path,
        ]);
        let run = draws
            .env("HOME", home)
            .env("MUSTER_MODELS_DIR", models)
            .run();
        run.ok();
        fs::read(path).unwrap()
    };
    types(&["pull", "draws"]).run().ok();
    let verified = types(&["verify", "draws"]).run().ok();
    assert_eq!(
        verified.matches("right ").count(),
        files.len(),
        "{verified}"
    );
    let list = types(&["list"]).run().ok();
    assert!(list.contains("draws") && list.contains("image"), "{list}");
    let drawn = draw("draws", "a.png");
    let size = |bytes: &[u8]| u32::from_be_bytes(bytes[16..20].try_into().unwrap());
    assert_eq!(size(&drawn), 32);
    types(&["pull", "org/model"]).run().ok();
    let drawn = draw("org/model", "b.png");
    assert_eq!(size(&drawn), 64);
}

/// The entry of a model that draws, with these files of a repository.
fn drawing_entry(id: &str, repository: &str, files: &[&str], more: &str) -> String {
    let listed: Vec<String> = files
        .iter()
        .map(|path| format!("{{ path = {path:?} }}"))
        .collect();
    format!(
        "id = \"{id}\"\nfamily = \"stable-diffusion-1\"\nkind = \"image\"\nlicence = \"MIT\"\n\
         parameters = 300_000\ndefault_quantization = \"f16\"\n\
         names = {{ v1 = [\"{id}\"], legacy = [\"{id}\"] }}\n\
         defaults = {{ size = [32, 32], steps = 2 }}\n\
         sources.f16 = {{ repository = \"{repository}\", files = [{}] }}\n{more}",
        listed.join(", ")
    )
}

#[test]
fn a_component_of_another_model_is_on_disk_once_and_belongs_to_both() {
    const ENCODER: &str = "text_encoder/model.safetensors";
    let user = User::new();
    let fixtures = format!("{}/tests/fixtures", env!("CARGO_MANIFEST_DIR"));
    let files = files_below(&PathBuf::from(fixtures).join("tiny-image"), "");
    let is_lent = |path: &str| path.starts_with("text_encoder/") || path.starts_with("tokenizer/");
    for (path, bytes) in &files {
        user.hub.large_file(path, bytes.clone());
        if !is_lent(path) {
            user.hub.large_file_of("org/other", path, bytes.clone());
        }
    }
    let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    let own: Vec<&str> = paths
        .iter()
        .copied()
        .filter(|path| !is_lent(path))
        .collect();
    let home = user.home.path().to_str().unwrap();
    let models = user.home.path().join("entries");
    fs::create_dir(&models).unwrap();
    let components =
        "components.text_encoder.model = \"lender\"\ncomponents.tokenizer.model = \"lender\"\n";
    let lender = drawing_entry("lender", "org/model", &paths, "");
    let borrower = drawing_entry("borrower", "org/other", &own, components);
    fs::write(models.join("lender.toml"), lender).unwrap();
    fs::write(models.join("borrower.toml"), borrower).unwrap();
    let models = models.to_str().unwrap();
    let types = |arguments: &[&str]| user.types(arguments).env("MUSTER_MODELS_DIR", models);
    let json = |arguments: &[&str]| -> Value {
        let arguments = [arguments, &["--json"]].concat();
        serde_json::from_str(&types(&arguments).run().ok()).unwrap()
    };
    let fetched = |path: &str| {
        let seen = user.hub.seen().into_iter();
        let bodies = seen.filter(|seen| seen.method == "GET" && seen.second_host);
        bodies
            .filter(|seen| seen.path.trim_start_matches('/') == path)
            .count()
    };
    let draw = || {
        let path = format!("{home}/drawn.png");
        let arguments = [
            "generate",
            "borrower",
            "a red circle",
            "--seed",
            "1",
            "-o",
            &path,
        ];
        let draws = worker(&arguments).env("HOME", home);
        draws.env("MUSTER_MODELS_DIR", models).run().ok();
        fs::read(path).unwrap()
    };

    // The files of its components alone are pulled of the other model, which is not here with them.
    types(&["pull", "borrower"]).run().ok();
    assert_eq!(
        (
            fetched(ENCODER),
            fetched("unet/diffusion_pytorch_model.safetensors")
        ),
        (1, 0)
    );
    types(&["verify"]).run().ok();
    let list = types(&["list"]).run().ok();
    assert!(list.contains("+ text_encoder of lender"), "{list}");
    let shown = types(&["show", "borrower"]).run().ok();
    assert!(
        shown.contains("component text_encoder, shared with lender"),
        "{shown}"
    );
    let source = &json(&["show", "borrower"])["sources"][0];
    assert_eq!(source["on_disk"], true, "{source}");
    assert_eq!(source["components"][0]["model"], "lender");
    assert_eq!(source["components"][0]["repository"], "org/model");
    let drawn = draw();

    // Of the other model only the rest comes.
    types(&["pull", "lender"]).run().ok();
    assert_eq!(
        (
            fetched(ENCODER),
            fetched("unet/diffusion_pytorch_model.safetensors")
        ),
        (1, 1)
    );
    let right = types(&["verify"]).run().ok();
    assert_eq!(right.matches(ENCODER).count(), 1, "read once: {right}");

    // Damaged, both models are named; a pull of either repairs it.
    let file = json(&["show", "lender"])["sources"][0]["files"].clone();
    let file = file.as_array().unwrap().iter();
    let file = file.clone().find(|file| file["path"] == ENCODER).unwrap()["at"].clone();
    let whole = fs::read(file.as_str().unwrap()).unwrap();
    fs::write(file.as_str().unwrap(), vec![0; whole.len()]).unwrap();
    for (named, other) in [("borrower", "lender"), ("lender", "borrower")] {
        let run = types(&["verify", named]).run();
        let line = format!("wrong    {named}:f16  {ENCODER} (also of {other}:f16): checksum");
        assert!(run.stdout.contains(&line), "{}", run.stdout);
        run.fails(65, &format!("first of {named}:f16 and {other}:f16"));
    }
    types(&["pull", "borrower"]).run().ok();
    assert_eq!(fs::read(file.as_str().unwrap()).unwrap(), whole);

    // A complete model keeps the files that it uses.
    let removed = json(&["rm", "lender", "--yes"]);
    let used = removed["in_use"].as_array().unwrap();
    let encoder = used
        .iter()
        .find(|used| used["file"] == format!("org/model/{ENCODER}"));
    assert_eq!(encoder.unwrap()["models"][0], "borrower:f16", "{removed}");
    assert!(user.repository().exists());
    types(&["verify"]).run().ok();
    assert_eq!(draw(), drawn);
    types(&["rm", "borrower", "--yes"]).run().ok();
    assert!(!user.repository().exists(), "nothing is left of it");
}

#[test]
fn what_is_here_without_a_record_is_verified_generated_with_and_removed() {
    let user = User::with_tiny();
    user.types(&["pull", TINY]).run().ok();
    let record = ".local/share/muster/pulls/org--model.json";
    let record = user.home.path().join(record);
    assert!(record.exists());
    fs::write(&record, "{").unwrap();

    let verified = user.types(&["verify", TINY]).run().ok();
    assert_eq!(verified, format!("right    {TINY}  tiny.gguf\n"));
    user.generates(TINY).ok();
    let kept = user.json(&["rm", TINY, "--yes"]);
    assert_eq!(kept["kept"][0], "org/model/tiny.gguf");
    fs::write(&record, "{").unwrap();
    user.types(&["pull", TINY]).run().ok();
    let written = fs::read_to_string(&record).unwrap();
    assert!(written.contains("tiny.gguf"), "{written}");
    let removed = user.json(&["rm", TINY, "--yes", "--shared"]);
    assert_eq!(removed["removed"][0], "org/model/tiny.gguf");
    assert!(!user.repository().exists(), "nothing is left of it");
}

#[test]
fn a_damaged_model_is_named_as_such_until_it_is_pulled_again() {
    let user = User::with_tiny();
    let pulled = user.json(&["pull", "org/model"]);
    let path = pulled[0]["files"][0].as_str().unwrap();
    let whole = fs::read(path).unwrap();
    fs::write(path, vec![0; whole.len()]).unwrap();
    let said = user.generates(TINY).fails(65, "tiny.gguf");
    assert!(
        said.contains(&format!("worker models verify {TINY}")),
        "{said}"
    );

    fs::write(path, &whole[..1000]).unwrap();
    let said = user.generates(TINY).fails(65, "size or checksum mismatch");
    assert!(
        said.contains(&format!("worker models pull {TINY}")),
        "{said}"
    );
    let list = user.types(&["list"]).run().ok();
    assert!(list.contains("damaged"), "{list}");
    let run = user.types(&["verify", TINY]).run();
    let lengths = format!("1000 bytes, expected {}", whole.len());
    assert!(run.stdout.contains(&lengths), "{}", run.stdout);
    run.fails(65, "1 file with a wrong size");
    user.types(&["pull", TINY]).run().ok();
    assert_eq!(fs::read(path).unwrap(), whole);
    user.generates(TINY).ok();
}

#[test]
fn verify_reads_every_byte_and_says_what_to_do() {
    let user = User::with_model(noise(1000, 1));
    let pulled = user.json(&["pull", "org/model"]);
    let said = user.types(&["verify", "org/model"]).run().ok();
    assert!(
        said.starts_with("right    org/model  model-q8_0.gguf"),
        "{said}"
    );

    let path = pulled[0]["files"][0].as_str().unwrap();
    fs::write(path, noise(1000, 2)).unwrap();
    let run = user.types(&["verify", "org/model"]).run();
    let found = sha256(&noise(1000, 2));
    assert!(
        run.stdout.contains(&format!("checksum {found}, expected")),
        "{}",
        run.stdout
    );
    let said = run.fails(65, "1 file with a wrong checksum");
    assert!(said.contains("worker models pull org/model"), "{said}");

    user.types(&["rm", "org/model", "--yes"]).run().ok();
    user.types(&["pull", "org/model"]).run().ok();
    user.types(&["verify", "org/model"]).run().ok();
}

#[test]
fn verify_without_names_is_about_the_models_that_are_here() {
    let user = User::new();
    let said = user.types(&["verify"]).run().ok();
    assert!(said.starts_with("no pulled model is on disk"), "{said}");
    user.types(&["verify", "qwen3-4b"])
        .run()
        .fails(66, "no file of qwen3-4b is on disk");
}

#[test]
fn removing_frees_what_was_pulled_and_nothing_else() {
    let user = User::with_model(noise(5000, 1));
    user.hub.large_file("model-q4_k_m.gguf", noise(3000, 2));
    user.types(&["pull", "org/model:q8_0", "org/model:q4_k_m"])
        .run()
        .ok();
    let asked = user.types(&["rm", "org/model"]).run();
    asked.fails(2, "standard input is not a terminal");
    let removed = user.json(&["rm", "org/model:model-q8_0.gguf", "--yes"]);
    assert_eq!(removed["bytes_freed"], 5000);
    assert_eq!(removed["removed"][0], "org/model/model-q8_0.gguf");
    user.types(&["verify", "org/model"]).run().ok();
    let said = user.types(&["rm", "org/model", "--yes"]).run().ok();
    assert_eq!(said, "removed 1 file, freed 2.9 KiB\n");
    assert!(!user.repository().exists(), "nothing is left of it");
    user.types(&["rm", "org/model", "--yes"])
        .run()
        .fails(66, "no file of org/model is on disk");
}

#[test]
fn a_pull_beyond_the_disk_budget_leaves_configured_models() {
    let user = User::with_model(noise(3 * MIB, 1));
    for (seed, name) in [(2, "q4_k_m"), (3, "q5_k_m")] {
        let file = format!("model-{name}.gguf");
        user.hub.large_file(&file, noise(2 * MIB, seed));
    }
    let pull = |name: &str, serve: &str| {
        let pull = user.types(&["pull", &format!("org/model:{name}")]);
        let pull = pull.env("MUSTER_HUB_DISK", "5MiB");
        pull.env("MUSTER_MODELS_SERVE", serve).run()
    };
    pull("q8_0", "").ok();
    pull("q4_k_m", "").ok();
    pull("q5_k_m", "org/model:model-q8_0.gguf").ok();
    let list = user.types(&["list", "--on-disk"]).run().ok();
    let here =
        ["q8_0", "q4_k_m", "q5_k_m"].map(|name| list.contains(&format!("model-{name}.gguf")));
    assert_eq!(here, [true, false, true], "{list}");
    let row = list.lines().find(|line| line.contains("model-q8_0.gguf"));
    assert!(row.is_some_and(|row| row.contains("today")), "{list}");
    let both = "org/model:model-q8_0.gguf,org/model:model-q5_k_m.gguf";
    pull("q4_k_m", both).fails(73, "hub.disk allows 5242880 bytes of downloads");
}

#[test]
fn what_pull_takes_by_a_part_of_its_name_verify_and_rm_take_too() {
    let user = User::with_model(noise(5000, 1));
    user.hub.large_file("model-q4_k_m.gguf", noise(3000, 2));
    user.types(&["pull", "org/model:q8_0", "org/model:q4_k_m"])
        .run()
        .ok();
    let said = user.types(&["verify", "org/model:Q8_0"]).run().ok();
    assert_eq!(said, "right    org/model:Q8_0  model-q8_0.gguf\n");
    for command in [
        &["verify", "org/model:gguf"][..],
        &["rm", "org/model:gguf", "--yes"],
    ] {
        user.types(command)
            .run()
            .fails(2, "model-q4_k_m.gguf, model-q8_0.gguf; choose one");
        let absent = command.iter().map(|word| word.replace("gguf", "q5"));
        let absent: Vec<String> = absent.collect();
        let absent: Vec<&str> = absent.iter().map(String::as_str).collect();
        user.types(&absent)
            .run()
            .fails(66, "no file of org/model:q5 is on disk");
    }
    let removed = user.json(&["rm", "org/model:q4_k_m", "--yes"]);
    assert_eq!(
        removed["removed"],
        serde_json::json!(["org/model/model-q4_k_m.gguf"])
    );
}

#[test]
fn removing_a_model_leaves_what_another_of_its_repository_needs() {
    let user = User::new();
    for companion in ["config.json", "tokenizer.json"] {
        user.hub.small_file(companion, companion);
    }
    user.hub.large_file("model.safetensors", noise(5000, 1));
    user.hub.large_file("other.safetensors", noise(3000, 2));
    let [model, other] = ["model", "other"].map(|name| format!("org/model:{name}.safetensors"));
    user.types(&["pull", &model, &other]).run().ok();
    let removed = user.json(&["rm", &model, "--yes"]);
    assert_eq!(
        removed["removed"],
        serde_json::json!(["org/model/model.safetensors"])
    );
    user.types(&["verify", &other]).run().ok();
    let removed = user.json(&["rm", &other, "--yes"]);
    assert_eq!(removed["removed"].as_array().unwrap().len(), 3, "{removed}");
    assert!(!user.repository().exists(), "nothing is left of it");
}

#[test]
fn what_another_program_brought_is_kept_unless_told() {
    let user = User::new();
    let commit = "d".repeat(40);
    let root = user.repository();
    for folder in ["blobs", "refs", &format!("snapshots/{commit}")] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("blobs/abc"), "weights").unwrap();
    fs::write(root.join("refs/main"), &commit).unwrap();
    let link = root.join(format!("snapshots/{commit}/model.gguf"));
    std::os::unix::fs::symlink("../../blobs/abc", &link).unwrap();

    let said = user.types(&["rm", "org/model", "--yes"]).run().ok();
    assert!(
        said.contains("kept org/model/model.gguf: downloaded by another program"),
        "{said}"
    );
    assert!(link.exists());
    let removed = user.json(&["rm", "org/model", "--yes", "--shared"]);
    assert_eq!(removed["bytes_freed"], 7);
    assert!(!root.exists());
}
