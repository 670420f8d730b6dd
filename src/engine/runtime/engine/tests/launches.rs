//! Counts the driver calls of a served step, scheduler and sampling included: on the GPU of `cuda/emulator`, which
//! counts them. `./test kernels` runs it.

#![expect(unsafe_code, reason = "the emulator's function is found by its name")]
#![expect(clippy::print_stdout, reason = "figures are results of this test")]

use std::ffi::{CStr, c_char, c_ulong, c_void};
use std::path::Path;

use super::{listen, text};
use crate::runtime::{
    DeviceChoice, EngineLimits, ModelSource, Prompt, Runtime, StopRules, TextRequest,
};

/// Field order as in `driver.cpp: Counts`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct DriverCounts {
    launches: c_ulong,
    allocations: c_ulong,
    frees: c_ulong,
    uploads: c_ulong,
    downloads: c_ulong,
    copies: c_ulong,
    fills: c_ulong,
    synchronizations: c_ulong,
    modules: c_ulong,
    lookups: c_ulong,
    /// Uploads and downloads of pageable host memory.
    unpinned: c_ulong,
}

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: i32) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const LIBRARY: &CStr = c"libcuda.so.1";
const NOW: i32 = 2;

/// Counts since the last call. `None` with the library of a driver.
fn counts() -> Option<DriverCounts> {
    // SAFETY: the library is open already, and the function of that name fills the struct.
    unsafe {
        let library = dlopen(LIBRARY.as_ptr(), NOW);
        let found = dlsym(library, c"emulator_counts".as_ptr());
        if library.is_null() || found.is_null() {
            return None;
        }
        let count: extern "C" fn(*mut DriverCounts) = std::mem::transmute(found);
        let mut counts = DriverCounts::default();
        count(&raw mut counts);
        Some(counts)
    }
}

fn request(model: &str, tokens: usize) -> TextRequest {
    TextRequest {
        model: model.to_owned(),
        // All texts begin in one step, whose few rows have kernels of our own.
        prompt: Prompt::Text("A".to_owned()),
        stop_rules: StopRules {
            ignore_eos: true,
            ..StopRules::default()
        },
        ..super::limited("", tokens)
    }
}

const FEW: usize = 8;
const MANY: usize = 24;

#[tokio::test]
async fn a_step_asks_little_of_the_driver() {
    if counts().is_none() {
        return;
    }
    let limits = EngineLimits {
        speculation: crate::runtime::Speculation::Off,
        ..EngineLimits::default()
    };
    let runtime = Runtime::start(DeviceChoice::Cuda(0), limits).unwrap();
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for model in ["tiny-llama", "tiny-llama.gguf"] {
        let source = ModelSource::new(folder.join("tests/fixtures").join(model));
        runtime.load(model, source, |_, _| ()).await.unwrap();
        // The first run finds its functions.
        text(&runtime, request(model, FEW)).await;
    }
    let run = async |model: &str, texts: usize, tokens: usize| {
        counts();
        let mut generations = Vec::new();
        for _ in 0..texts {
            generations.push(runtime.generate(request(model, tokens)).await.unwrap());
        }
        for generation in generations {
            listen(generation).await.2.unwrap();
        }
        counts().unwrap()
    };
    for (model, texts, most) in STEPS {
        let mut found = [0; 6];
        // Texts that begin in several steps take further ones: that is seen, and measured again.
        for _ in 0..8 {
            let few = run(model, texts, FEW).await;
            let many = run(model, texts, MANY).await;
            let steps = (MANY - FEW) as c_ulong;
            let of_step = |count: fn(&DriverCounts) -> c_ulong| {
                count(&many).saturating_sub(count(&few)) / steps
            };
            found = [
                of_step(|counts| counts.launches),
                of_step(|counts| counts.allocations),
                of_step(|counts| counts.uploads),
                of_step(|counts| counts.downloads),
                of_step(|counts| counts.lookups),
                of_step(|counts| counts.unpinned),
            ];
            println!("{model}, {texts} texts: {NAMES:?} = {found:?}");
            if found.iter().zip(most).all(|(found, most)| *found <= most) {
                break;
            }
        }
        for ((name, found), most) in NAMES.iter().zip(found).zip(most) {
            assert!(
                found <= most,
                "{model}, {texts} texts: {found} {name} in a step, {most} at most"
            );
        }
    }
}

const NAMES: [&str; 6] = [
    "launches",
    "allocations",
    "uploads",
    "downloads",
    "lookups",
    "copies of unpinned memory",
];

/// The most calls of each kind in a step of this many texts of a model, with the fixtures' two layers. Lower them after an
/// improvement.
const STEPS: [(&str, usize, [c_ulong; 6]); 4] = [
    ("tiny-llama", 1, [29, 38, 1, 1, 1, 0]),
    ("tiny-llama", 4, [29, 38, 1, 1, 1, 0]),
    ("tiny-llama.gguf", 1, [23, 32, 1, 1, 4, 0]),
    ("tiny-llama.gguf", 4, [32, 50, 1, 1, 3, 0]),
];
