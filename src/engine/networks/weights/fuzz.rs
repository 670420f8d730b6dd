//! Fuzzing: however a valid file is broken, reading it neither panics nor allocates more memory than the file could
//! fill. `MUSTER_FUZZ_SECONDS` sets the duration.
#![expect(
    unsafe_code,
    reason = "an allocator that remembers the largest request is unsafe to write"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::{Duration, Instant},
};

use candle_core::quantized::GgmlDType;

use super::{GgufValue, GgufWriter, gguf, safetensors, whisper_cpp};

#[test]
fn fuzzed_gguf_files_are_refused_in_words() {
    fuzz(&small_gguf(), 20_000, |file| {
        gguf::parse(file).err().map(drop)
    });
}

#[test]
fn fuzzed_gguf_with_a_vocabulary_is_refused_in_words() {
    let whole = include_bytes!("../../../../tests/fixtures/tiny-llama.gguf");
    fuzz(whole, 1000, |file| gguf::parse(file).err().map(drop));
}

#[test]
fn fuzzed_safetensors_files_are_refused_in_words() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},
        "b":{"dtype":"F32","shape":[5],"data_offsets":[12,32]}}"#;
    let file = safetensors::tests::file(header, 32);
    fuzz(&file, 20_000, |file| {
        safetensors::parse(file).err().map(drop)
    });
}

#[test]
fn fuzzed_files_of_whisper_cpp_are_refused_in_words() {
    fuzz(&whisper_cpp::tests::small(), 20_000, |file| {
        whisper_cpp::parse(file).err().map(drop)
    });
}

fn small_gguf() -> Vec<u8> {
    let list = |value: GgufValue| GgufValue::List(vec![value.clone(), value]);
    let mut writer = GgufWriter::default();
    writer
        .text("general.architecture", "llama")
        .unsigned("general.alignment", 32)
        .float("x", 0.5)
        .value("flag", GgufValue::Bool(true))
        .value("words", list(GgufValue::Text("word".into())))
        .value("nested", list(list(GgufValue::Signed(-1))))
        .tensor("blk.0.attn_q.weight", &[2, 256], GgmlDType::Q4K)
        .tensor("output_norm.weight", &[4], GgmlDType::F32);
    let mut file = Vec::new();
    let sizes = [288, 16];
    writer
        .write(&mut file, |index| Ok(vec![1; sizes[index]]))
        .unwrap();
    file
}

/// Calls `refused` with thousands of broken versions of a valid file.
pub fn fuzz(valid: &[u8], rounds: u64, refused: impl Fn(&[u8]) -> Option<()>) {
    assert_eq!(refused(valid), None, "the file is valid to begin with");
    let seconds = std::env::var("MUSTER_FUZZ_SECONDS").ok();
    let deadline = seconds.map(|text| {
        let seconds = text.parse().expect("MUSTER_FUZZ_SECONDS is a number");
        Instant::now() + Duration::from_secs(seconds)
    });
    for seed in 0.. {
        if deadline.map_or(seed == rounds, |deadline| Instant::now() > deadline) {
            break;
        }
        let mut file = valid.to_vec();
        let mut random = Random(seed);
        for _ in 0..=random.below(3) {
            mutate(&mut file, &mut random);
        }
        LARGEST.set(0);
        let _ = refused(&file);
        let limit = 16 * file.len() + (1 << 19);
        assert!(
            LARGEST.get() <= limit,
            "seed {seed}: {} bytes",
            LARGEST.get()
        );
    }
}

fn mutate(file: &mut Vec<u8>, random: &mut Random) {
    if file.len() < 16 {
        return;
    }
    // Headers come first, and errors there matter most.
    let reach = if random.below(2) == 0 {
        file.len().min(400)
    } else {
        file.len()
    };
    let at = random.below(reach - 8);
    let length = 1 + random.below(40.min(file.len() - at - 1));
    match random.below(6) {
        0 => file[at] ^= 1 << random.below(8),
        1 => file[at] = random.next() as u8,
        2 => file[at..at + 8].copy_from_slice(&random.interesting().to_le_bytes()),
        3 => file.truncate(at),
        4 => drop(file.drain(at..at + length)),
        _ => {
            let copy = file[at..at + length].to_vec();
            let place = random.below(file.len());
            file.splice(place..place, copy);
        }
    }
}

/// SplitMix64: the same broken files on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn interesting(&mut self) -> u64 {
        let near = [
            0,
            1,
            31,
            32,
            255,
            1 << 16,
            1 << 31,
            1 << 32,
            1 << 62,
            1 << 63,
            u64::MAX,
        ];
        near[self.below(near.len())]
            .wrapping_add(self.below(3) as u64)
            .wrapping_sub(1)
    }
}

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Remembering = Remembering;

/// The system's allocator, remembering the largest request of each thread.
struct Remembering;

fn remember(size: usize) {
    // A terminating thread has no thread-local memory left, and its maximum is never read.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Remembering {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        remember(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System` by way of `alloc` or `realloc` here.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        remember(layout.size());
        // SAFETY: the caller keeps `alloc_zeroed`'s contract, which is the same there.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        remember(size);
        // SAFETY: the pointer came from `System`, and the caller keeps `realloc`'s contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
