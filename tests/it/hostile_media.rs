//! Files of strangers that make a decoder allocate or compute without end: each costs its own request and no process of ours.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use muster::media::sound::{Sound, WavFormat, to_flac, to_opus, to_wav};
use muster::reader::{ReadError, Reader, SoundLimits};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const RATE: u32 = 16_000;
const LIMITS: SoundLimits = SoundLimits {
    seconds: 7200.0,
    samples: 700_000_000,
};
/// Bytes of a reader: the file, the program and its decoder.
const MOST_MEMORY: u64 = 320 << 20;
const MOST_TIME: Duration = Duration::from_secs(20);

fn reader() -> Reader {
    Reader::of(env!("CARGO_BIN_EXE_worker").into())
}

fn tone(rate: u32, seconds: f32) -> Sound {
    let count = (rate as f32 * seconds) as usize;
    let samples = (0..count).map(|at| (at as f32 * 0.05).sin() * 0.5);
    Sound::new(rate, 1, samples.collect()).unwrap()
}

/// A Core Audio file of this codec, with numbers of its description.
fn caf(codec: &[u8; 4], rate: f64, numbers: [u32; 5]) -> Vec<u8> {
    let mut description = rate.to_be_bytes().to_vec();
    description.extend(codec);
    description.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    let mut file = b"caff\0\x01\0\0desc".to_vec();
    file.extend((description.len() as u64).to_be_bytes());
    file.extend(description);
    file.extend(b"data");
    file.extend(72_u64.to_be_bytes());
    file.extend([0; 72]);
    file
}

#[tokio::test]
async fn sounds_of_every_own_type_are_read_by_a_process() {
    let sound = tone(48_000, 1.0);
    for file in [
        to_wav(&sound, WavFormat::Int16).unwrap(),
        to_flac(&sound).unwrap(),
        to_opus(&sound, 48_000).unwrap(),
    ] {
        let reader = reader();
        let read = reader.samples(Bytes::from(file.clone()), RATE, LIMITS, None);
        let read = read.await.unwrap();
        assert_eq!((read.samples.len(), read.found.rate), (16_000, 48_000));
        let flac = reader
            .flac(Bytes::from(file), RATE, LIMITS, None)
            .await
            .unwrap();
        let again = muster::media::sound::listen(&flac.bytes, RATE, 2.0).unwrap();
        assert_eq!(again.samples().len(), 16_000);
        let pairs = again.samples().iter().zip(&read.samples);
        let gap = pairs.fold(0.0_f32, |most, (one, other)| most.max((one - other).abs()));
        assert!(gap < 1e-4, "{gap}");
    }
}

#[tokio::test]
async fn a_header_that_asks_for_gigabytes_costs_its_request_alone() {
    for frames in [u32::MAX, 1 << 31, 1 << 28] {
        let file = caf(b"ima4", 44_100.0, [0, 34, frames, 1, 0]);
        let read = reader().flac(file.into(), RATE, LIMITS, None).await;
        assert!(
            matches!(read, Err(ReadError::Ended(_) | ReadError::Refused(_))),
            "{frames}: {read:?}"
        );
    }
}

#[tokio::test]
async fn a_sound_of_many_channels_at_a_high_rate_is_refused_with_its_numbers() {
    let samples = vec![0.25; 96_000 * 2 * 3];
    let wide = Sound::new(96_000, 2, samples).unwrap();
    let file = to_wav(&wide, WavFormat::Int16).unwrap();
    let limits = SoundLimits {
        seconds: 60.0,
        samples: 96_000,
    };
    let refused = reader()
        .flac(file.into(), RATE, limits, None)
        .await
        .unwrap_err();
    let told = refused.to_string();
    assert!(told.contains("2 channels at 96000 Hz"), "{told}");
}

/// The reader is confined: it can open no file, not even a world-readable one.
#[test]
fn a_reader_is_confined_before_it_reads() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(status.contains("Seccomp:"), "this kernel has no seccomp");
    let task = r#"{"Listen":{"rate":16000,"form":"Samples","limits":{"seconds":7200.0,"samples":700000000}}}"#;
    let mut child = Command::new(env!("CARGO_BIN_EXE_worker"))
        .args(["reader", task])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Ten minutes, whose samples fill the pipe: the reader waits for us, confined.
    let sound = tone(16_000, 600.0);
    let file = to_wav(&sound, WavFormat::Int16).unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &file).unwrap();
    drop(input);
    let state = format!("/proc/{}/status", child.id());
    let confined = || {
        let text = std::fs::read_to_string(&state).ok()?;
        (text.contains("Seccomp:\t2") && text.contains("NoNewPrivs:\t1")).then_some(())
    };
    muster_testing::eventually_blocking("the reader is confined", confined);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn a_reader_ends_with_its_client() {
    let file = to_wav(&tone(48_000, 1800.0), WavFormat::Int16).unwrap();
    let reading = reader();
    let reading = reading.flac(file.into(), RATE, LIMITS, None);
    let gone = tokio::time::timeout(Duration::from_millis(300), reading).await;
    assert!(
        gone.is_err(),
        "the sound was read too quickly for this test"
    );
    muster_testing::eventually("no reader is left", async || {
        children_named("reader").is_empty().then_some(())
    })
    .await;
}

fn children_named(word: &str) -> Vec<u32> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        words.nth(1) == Some(word.as_bytes()) && status.contains(&format!("PPid:\t{own}\n"))
    };
    pids.filter(is_one).collect()
}

/// Numbers that programs misread: none, one, the largest of each size, and the ones beside them.
fn number() -> impl Strategy<Value = u32> {
    let edges = [
        0,
        1,
        2,
        34,
        64,
        0x7f,
        0xff,
        0x7fff,
        0xffff,
        1 << 24,
        1 << 28,
        i32::MAX as u32,
    ];
    prop_oneof![
        3 => prop::sample::select(edges.to_vec()),
        1 => prop::sample::select(edges.to_vec()).prop_map(|edge| !edge),
        1 => any::<u32>(),
    ]
}

fn caf_file() -> impl Strategy<Value = Vec<u8>> {
    let codecs = [
        b"ima4",
        b"lpcm",
        b"alac",
        b"ulaw",
        b".mp3",
        b"aac ",
        b"ms\0\x02",
    ];
    let codec = prop::sample::select(codecs.map(|codec| *codec).to_vec());
    (
        codec,
        prop::sample::select(vec![8000.0, 44_100.0, 0.0, -1.0, f64::MAX]),
        prop::array::uniform5(number()),
    )
        .prop_map(|(codec, rate, numbers)| caf(&codec, rate, numbers))
}

/// A QuickTime file with a sound description of one of the formats that carry their own sizes.
fn quicktime_file() -> impl Strategy<Value = Vec<u8>> {
    let formats = [
        b"lpcm", b"sowt", b"twos", b"ima4", b"in24", b"fl32", b"alac", b"mp4a",
    ];
    let format = prop::sample::select(formats.map(|format| *format).to_vec());
    (
        format,
        0_u16..3,
        prop::array::uniform9(number()),
        prop::array::uniform4(number()),
    )
        .prop_map(|(format, version, fields, tables)| quicktime(&format, version, fields, tables))
}

fn boxed(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 8).unwrap();
    [&length.to_be_bytes()[..], name, content].concat()
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

fn quicktime(format: &[u8; 4], version: u16, fields: [u32; 9], tables: [u32; 4]) -> Vec<u8> {
    let mut entry = [0, 0, 0, 0, 0, 0, 0, 1].to_vec();
    entry.extend(version.to_be_bytes());
    entry.extend([0; 6]);
    entry.extend((fields[0] as u16).to_be_bytes());
    entry.extend((fields[1] as u16).to_be_bytes());
    entry.extend([0; 4]);
    entry.extend(fields[2].to_be_bytes());
    match version {
        1 => entry.extend(words(&fields[3..7])),
        2 => {
            entry.extend(72_u32.to_be_bytes());
            entry.extend(44_100.0_f64.to_be_bytes());
            entry.extend(words(&fields[3..8]));
        }
        _ => {}
    }
    let description = [words(&[0, 1]), boxed(format, &entry)].concat();
    let table = [
        boxed(b"stsd", &description),
        boxed(b"stts", &words(&[0, 1, tables[0], 1])),
        boxed(b"stsc", &words(&[0, 1, 1, tables[1], 1])),
        boxed(b"stsz", &words(&[0, tables[2], tables[3]])),
        boxed(b"stco", &words(&[0, 1, 48])),
    ];
    let media = [
        boxed(b"mdhd", &words(&[0, 0, 0, 44_100, fields[8], 0])),
        boxed(b"hdlr", &[&[0; 8][..], b"soun", &[0; 13]].concat()),
        boxed(
            b"minf",
            &[boxed(b"smhd", &[0; 8]), boxed(b"stbl", &table.concat())].concat(),
        ),
    ];
    let track = [
        boxed(b"tkhd", &[&[0, 0, 0, 7][..], &[0; 80]].concat()),
        boxed(b"mdia", &media.concat()),
    ];
    let movie = [
        boxed(
            b"mvhd",
            &[&[0; 12][..], &words(&[44_100, 1]), &[0; 80]].concat(),
        ),
        boxed(b"trak", &track.concat()),
    ];
    [
        boxed(b"ftyp", b"qt  \0\0\0\0qt  "),
        boxed(b"mdat", &[0; 4096]),
        boxed(b"moov", &movie.concat()),
    ]
    .concat()
}

/// Sounds of ours with words replaced.
fn changed_file() -> impl Strategy<Value = Vec<u8>> {
    let sound = tone(16_000, 0.2);
    let files = vec![
        to_wav(&sound, WavFormat::Int16).unwrap(),
        to_wav(&sound, WavFormat::Float32).unwrap(),
        to_flac(&sound).unwrap(),
        to_opus(&sound, 24_000).unwrap(),
    ];
    let change = (0_usize..256, number(), any::<bool>());
    (
        prop::sample::select(files),
        prop::collection::vec(change, 1..6),
    )
        .prop_map(|(mut file, changes)| {
            for (at, word, is_big) in changes {
                let word = if is_big {
                    word.to_be_bytes()
                } else {
                    word.to_le_bytes()
                };
                if let Some(bytes) = file.get_mut(at..at + 4) {
                    bytes.copy_from_slice(&word);
                }
            }
            file
        })
}

/// So many seconds are spent on fresh files in each run.
fn seconds() -> u64 {
    let set = std::env::var("MUSTER_FUZZ_SECONDS");
    set.ok().and_then(|set| set.parse().ok()).unwrap_or(8)
}

#[test]
fn fuzz_sounds_of_strangers() {
    let until = Instant::now() + Duration::from_secs(seconds());
    let mut runner = TestRunner::new(Config {
        cases: 1,
        failure_persistence: None,
        ..Config::default()
    });
    let file = prop_oneof![caf_file(), quicktime_file(), changed_file()];
    let mut files = 0;
    while Instant::now() < until || files < 20 {
        files += 1;
        let outcome = runner.run(&file, |file| {
            let (peak, took) = read_by_a_process(&file);
            prop_assert!(peak < MOST_MEMORY, "{peak} bytes for {} bytes", file.len());
            prop_assert!(took < MOST_TIME, "{took:?} for {} bytes", file.len());
            Ok(())
        });
        outcome.unwrap();
    }
}

/// Peak memory and time of a reader.
fn read_by_a_process(file: &[u8]) -> (u64, Duration) {
    let task = r#"{"Listen":{"rate":16000,"form":"Flac","limits":{"seconds":7200.0,"samples":700000000}}}"#;
    let input = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(input.path(), file).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_worker"))
        .args(["reader", task])
        .stdin(std::fs::File::open(input.path()).unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    muster_testing::peak::of_child(&mut child, MOST_TIME)
}
