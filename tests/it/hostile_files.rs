//! Files of models that make a reader recurse, allocate or compute without end: each is refused by name.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

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
    std::fs::write(&file, bytes).unwrap();
    let errors = folder.path().join("errors");
    let mut child = Command::new(env!("CARGO_BIN_EXE_worker"))
        .args([Path::new("models"), Path::new("convert"), &file])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    let (peak, took) = muster_testing::peak::of_child(&mut child, MOST_TIME);
    (std::fs::read_to_string(&errors).unwrap(), peak, took)
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
        let outcome = runner.run(&pickle(), |pickle| {
            let (said, peak, took) = convert(&archive(&pickle));
            prop_assert!(!said.is_empty(), "a file without tensors was converted");
            prop_assert!(!said.contains("panicked"), "{said}");
            prop_assert!(peak < MOST_MEMORY, "{peak} bytes");
            prop_assert!(took < MOST_TIME, "{took:?}");
            Ok(())
        });
        outcome.unwrap();
    }
}
