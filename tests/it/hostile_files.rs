//! Files of models that make a reader recurse, allocate or compute without end: each is refused by name.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use muster::catalog::Catalog;
use muster::daemon::media::MediaSource;
use muster::runtime::{DeviceChoice, EngineLimits, Footprint, ModelSource};
use muster_testing::peak;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Value, json};

/// Bytes of the whole command, whose reader may have a gigabyte.
const MOST_MEMORY: u64 = 400 << 20;
const MOST_TIME: Duration = Duration::from_secs(40);

/// A file of PyTorch: an archive of stored files with one pickle.
fn archive(pickle: &[u8]) -> Vec<u8> {
    let name = b"archive/data.pkl";
    let sizes = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_le_bytes();
    let (length, sum) = (sizes(pickle), checksum(pickle).to_le_bytes());
    let facts = [
        &[0, 0, 0, 0, 0, 0, 0, 0][..],
        &sum,
        &length,
        &length,
        &[16, 0, 0, 0],
    ]
    .concat();
    let local = [b"PK\x03\x04\x14\0", &facts[..], name, pickle].concat();
    let central = [b"PK\x01\x02\x14\0\x14\0", &facts[..], &[0; 14], name].concat();
    let end = [
        &b"PK\x05\x06\0\0\0\0\x01\0\x01\0"[..],
        &sizes(&central),
        &sizes(&local),
        &[0, 0],
    ];
    [local, central, end.concat()].concat()
}

fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}

/// What `worker models convert` says about a file, the memory of its process, and its time.
fn convert(bytes: &[u8]) -> (String, u64, Duration) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.ckpt");
    fs::write(&file, bytes).unwrap();
    let errors = folder.path().join("errors");
    let mut child = Command::new(env!("CARGO_BIN_EXE_worker"))
        .args([Path::new("models"), Path::new("convert"), &file])
        .stdout(Stdio::null())
        .stderr(fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    let (peak, took) = peak::of_child(&mut child, MOST_TIME);
    (fs::read_to_string(&errors).unwrap(), peak, took)
}

/// A pickle whose object doubles with each round, though it stays short.
fn memo_bomb(rounds: u8) -> Vec<u8> {
    let mut pickle = b"\x80\x02)".to_vec();
    for round in 0..rounds {
        pickle.extend([b'q', round, b'h', round, 0x86]);
    }
    pickle.push(b'.');
    pickle
}

#[test]
fn pickles_without_end_are_refused_by_name() {
    let nested = [&b"\x80\x02)"[..], &[0x85; 2 << 20], b"."].concat();
    for (pickle, why) in [
        (memo_bomb(80), "memory limit exceeded"),
        (nested, "stack limit exceeded"),
    ] {
        let (said, peak, took) = convert(&archive(&pickle));
        assert!(said.contains("data.pkl") && said.contains(why), "{said}");
        assert!(peak < MOST_MEMORY, "{peak}");
        assert!(took < MOST_TIME, "{took:?}");
    }
}

/// Operations of pickles that describe tensors, with objects that are remembered and used again.
fn pickle() -> impl Strategy<Value = Vec<u8>> {
    let plain = prop::sample::select(b")(}]t\x85\x86\x87NR02sua".to_vec()).prop_map(|op| vec![op]);
    let operation = prop_oneof![
        4 => plain,
        2 => (0_u8..4).prop_map(|at| vec![b'q', at]),
        3 => (0_u8..4).prop_map(|at| vec![b'h', at]),
        2 => (0_u8..4).prop_map(|at| vec![b'q', at, b'h', at, 0x86]),
        1 => any::<u32>().prop_map(|number| [&b"J"[..], &number.to_le_bytes()].concat()),
        1 => any::<u32>().prop_map(|length| [&b"X"[..], &length.to_le_bytes(), b"name"].concat()),
    ];
    let parts = prop::collection::vec(operation, 1..40);
    (parts, 1_usize..60).prop_map(|(parts, repeats)| {
        let body = parts.concat().repeat(repeats);
        [&b"\x80\x02)"[..], &body, b"."].concat()
    })
}

#[test]
fn fuzz_pickles_of_strangers() {
    fuzz(&pickle(), |pickle| {
        let (said, peak, took) = convert(&archive(&pickle));
        prop_assert!(!said.is_empty(), "a file without tensors was converted");
        prop_assert!(!said.contains("panicked"), "{said}");
        prop_assert!(peak < MOST_MEMORY, "{peak} bytes");
        prop_assert!(took < MOST_TIME, "{took:?}");
        Ok(())
    });
}

/// Fresh cases for as long as the run takes.
fn fuzz<S: Strategy>(cases: &S, check: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let set = std::env::var("MUSTER_FUZZ_SECONDS").ok();
    let seconds = set.and_then(|set| set.parse().ok()).unwrap_or(8);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut runner = TestRunner::new(Config {
        cases: 1,
        failure_persistence: None,
        ..Config::default()
    });
    let mut files = 0;
    while Instant::now() < until || files < 20 {
        files += 1;
        runner.run(cases, &check).unwrap();
    }
}

/// Configurations of the fixtures that a worker reads.
const CONFIGURATIONS: &[(&str, &str)] = &[
    ("tiny-llama", "config.json"),
    ("tiny-llama", "generation_config.json"),
    ("tiny-image", "model_index.json"),
    ("tiny-image", "scheduler/scheduler_config.json"),
    ("tiny-image", "text_encoder/config.json"),
    ("tiny-image", "tokenizer/tokenizer_config.json"),
    ("tiny-image", "tokenizer/vocab.json"),
    ("tiny-image", "unet/config.json"),
    ("tiny-image", "vae/config.json"),
    ("tiny-image-xl", "unet/config.json"),
    ("tiny-music", "condition_encoder/config.json"),
    ("tiny-music", "text_encoder/config.json"),
    ("tiny-music", "transformer/config.json"),
    ("tiny-music", "vae/config.json"),
    ("tiny-video", "scheduler/scheduler_config.json"),
    ("tiny-video", "text_encoder/config.json"),
    ("tiny-video", "transformer/config.json"),
    ("tiny-video", "vae/config.json"),
];
/// By how much the process may grow over all configurations or entries.
const MOST_GROWTH: u64 = 512 << 20;

/// What stands in a field where another value belongs.
fn wrong_value() -> impl Strategy<Value = Value> {
    let numbers = prop::sample::select(vec![
        json!(0),
        json!(-1),
        json!(1),
        json!(7),
        json!(1_000_000_000),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e-308),
        json!(1e308),
        json!(0.5),
    ]);
    let others = prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(""),
        json!("x".repeat(100_000)),
        json!([]),
        json!({}),
        json!(vec![0; 100_000]),
        json!(vec![u64::MAX; 3]),
        (0..100).fold(json!(1), |inner, _| json!([inner])),
    ]);
    prop_oneof![3 => numbers, 2 => any::<i64>().prop_map(Value::from), 2 => others]
}

/// The places of all values in a configuration.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut add = |name: String, inner: &Value| {
        let place = format!("{at}/{name}");
        found.push(place.clone());
        places(inner, &place, found);
    };
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                add(name.replace('~', "~0").replace('/', "~1"), inner);
            }
        }
        Value::Array(values) => {
            for (index, inner) in values.iter().enumerate() {
                add(index.to_string(), inner);
            }
        }
        _ => {}
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for item in fs::read_dir(from).unwrap() {
        let (from, to) = (
            item.as_ref().unwrap().path(),
            to.join(item.unwrap().file_name()),
        );
        match from.is_dir() {
            true => copy_folder(&from, &to),
            false => drop(fs::copy(&from, &to).unwrap()),
        }
    }
}

/// Reads a model as a worker does, whatever comes of it.
fn read_model(folder: &Path) {
    match MediaSource::at(folder) {
        Some(source) => {
            let _ = source.needs();
            let _ = source.load(DeviceChoice::Cpu);
        }
        None => {
            let source = ModelSource::new(folder);
            let _ = Footprint::measure(&source, DeviceChoice::Cpu, &EngineLimits::default());
        }
    }
}

/// Does the work on a thread of its own; fails where it panics or takes too long.
fn in_time(work: impl FnOnce() + Send + 'static) -> Result<(), TestCaseError> {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    let ended = ended.recv_timeout(MOST_TIME);
    ended.map_err(|error| TestCaseError::fail(format!("the work did not end well: {error}")))
}

#[test]
fn fuzz_configurations_of_strangers() {
    let test = "hostile_files::fuzz_configurations_of_strangers";
    let growth = peak::growth(test, || {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let copies = tempfile::tempdir().unwrap();
        let changes = prop::collection::vec((any::<prop::sample::Index>(), wrong_value()), 1..4);
        let cases = (prop::sample::select(CONFIGURATIONS), changes);
        fuzz(&cases, |((model, file), changes)| {
            let folder = copies.path().join(model);
            if !folder.exists() {
                copy_folder(&fixtures.join(model), &folder);
            }
            let valid = fs::read(fixtures.join(model).join(file)).unwrap();
            let mut config: Value = serde_json::from_slice(&valid).unwrap();
            for (index, wrong) in changes {
                let mut found = Vec::new();
                places(&config, "", &mut found);
                if !found.is_empty() {
                    *config
                        .pointer_mut(&found[index.index(found.len())])
                        .unwrap() = wrong;
                }
            }
            fs::write(folder.join(file), config.to_string()).unwrap();
            let read = folder.clone();
            in_time(move || read_model(&read))?;
            fs::write(folder.join(file), valid).unwrap();
            Ok(())
        });
    });
    if let Some(growth) = growth {
        assert!(growth < MOST_GROWTH, "{growth} bytes");
    }
}

/// A value of TOML where another one belongs.
fn wrong_toml() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "0",
        "-1",
        "9223372036854775807",
        "1e308",
        "nan",
        "true",
        "\"\"",
        "\"../../../etc\"",
        "\"/dev/zero\"",
        "[]",
        "{}",
        "[0, 0]",
        "[4294967295, 4294967295]",
        "1979-05-27",
        "\"text\"",
    ]);
    let nested = (1_usize..60_000).prop_map(|depth| "[".repeat(depth) + &"]".repeat(depth));
    let tables =
        (1_usize..20_000).prop_map(|depth| "{ a = ".repeat(depth) + "1" + &" }".repeat(depth));
    let names = (1_usize..30_000).prop_map(|count| format!("[{}]", "\"name\", ".repeat(count)));
    let long = (1_usize..300_000).prop_map(|count| format!("\"{}\"", "x".repeat(count)));
    prop_oneof![
        6 => known.prop_map(str::to_owned),
        1 => nested,
        1 => tables,
        1 => names,
        1 => long,
        1 => any::<i64>().prop_map(|number| number.to_string()),
    ]
}

#[test]
fn fuzz_catalog_entries_of_strangers() {
    let test = "hostile_files::fuzz_catalog_entries_of_strangers";
    let growth = peak::growth(test, || {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
        let items = fs::read_dir(models)
            .unwrap()
            .map(|item| item.unwrap().path());
        let files = items.filter(|path| path.extension().is_some_and(|end| end == "toml"));
        let entries: Vec<String> = files
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let changes = prop::collection::vec((any::<prop::sample::Index>(), wrong_toml()), 1..4);
        fuzz(
            &(prop::sample::select(entries), changes),
            |(entry, changes)| {
                let mut lines: Vec<String> = entry.lines().map(str::to_owned).collect();
                // A field that was set wrong is one still.
                let count = lines.iter().filter(|line| line.contains(" = ")).count();
                for (index, wrong) in changes {
                    let fields = lines.iter_mut().filter(|line| line.contains(" = "));
                    let mut fields: Vec<&mut String> = fields.collect();
                    let line = &mut fields[index.index(count)];
                    let name = line.split(" = ").next().unwrap_or_default().to_owned();
                    **line = format!("{name} = {wrong}");
                }
                fs::write(folder.path().join("entry.toml"), lines.join("\n")).unwrap();
                let read = folder.path().to_owned();
                in_time(move || drop(Catalog::open(Some(&read))))
            },
        );
    });
    if let Some(growth) = growth {
        assert!(growth < MOST_GROWTH, "{growth} bytes");
    }
}
