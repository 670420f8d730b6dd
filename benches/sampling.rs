//! One token out of a vocabulary of Llama 3's size: what each sequence pays in each step, on one thread.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use muster_engine::runtime::Sampling;
use muster_engine::runtime::sampling::{Sampler, Scratch, Settings, uniform};
use muster_kernels::cpu::each;

const VOCABULARY: usize = 128_256;

/// Logits that spread like a language model's: most far behind, a few close together.
fn logits(spread: f64) -> Vec<f32> {
    let logit = |id| -uniform(1, 0, id).ln().abs().sqrt() * -spread;
    (0..VOCABULARY as u64).map(|id| logit(id) as f32).collect()
}

fn sampling(criterion: &mut Criterion) {
    let plain = Sampling {
        seed: Some(1),
        ..Sampling::default()
    };
    let usual = Sampling {
        temperature: Some(0.7),
        top_p: Some(0.95),
        ..plain.clone()
    };
    let cases = [
        (
            "greedy",
            Sampling {
                temperature: Some(0.0),
                ..plain.clone()
            },
            None,
            4.0,
        ),
        ("temperature", plain.clone(), None, 4.0),
        (
            "min_p",
            Sampling {
                min_p: Some(0.05),
                ..plain.clone()
            },
            None,
            4.0,
        ),
        (
            "top_k 40",
            Sampling {
                top_k: Some(40),
                ..plain.clone()
            },
            None,
            4.0,
        ),
        ("top_p 0.95", usual.clone(), None, 4.0),
        ("top_p 0.95, all alike", usual.clone(), None, 0.01),
        (
            "penalties and top_p",
            Sampling {
                frequency_penalty: Some(0.5),
                repetition_penalty: Some(1.1),
                ..usual.clone()
            },
            None,
            4.0,
        ),
        ("top_p and 20 logprobs", usual, Some(20), 4.0),
    ];
    let mut group = criterion.benchmark_group("sampling");
    for (name, request, logprobs, spread) in cases {
        let settings = Settings::resolve(&request, &Sampling::default(), VOCABULARY)
            .expect("the settings are sound");
        let prompt: Vec<u32> = (0..1000).map(|i| i * 97 % VOCABULARY as u32).collect();
        let mut sampler = Sampler::new(settings, 0, logprobs, &prompt, &prompt);
        let fresh = logits(spread);
        let mut row = fresh.clone();
        let mut scratch = Scratch::default();
        let mut index = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                // Penalties change the row; the copy corresponds to the engine's transfer of logits to the host.
                row.copy_from_slice(&fresh);
                index += 1;
                black_box(sampler.sample(&mut row, None, index, &mut scratch))
            });
        });
    }
    group.finish();
}

/// The cost of a step of eight sequences, with the engine's threads.
fn eight_sequences(criterion: &mut Criterion) {
    let request = Sampling {
        temperature: Some(0.7),
        top_p: Some(0.95),
        seed: Some(1),
        ..Sampling::default()
    };
    let settings = Settings::resolve(&request, &Sampling::default(), VOCABULARY)
        .expect("the settings are sound");
    let sampler = || Sampler::new(settings.clone(), 0, None, &[], &[]);
    let row = || (sampler(), logits(4.0), Scratch::default());
    let mut rows: Vec<_> = (0..8).map(|_| row()).collect();
    for (name, cost) in [("one thread", 0), ("all threads", 8 * VOCABULARY)] {
        criterion.bench_function(&format!("sampling 8 rows, top_p 0.95/{name}"), |bencher| {
            bencher.iter(|| {
                each(&mut rows, cost, |(sampler, logits, scratch)| {
                    black_box(sampler.sample(logits, None, 0, scratch)).ok();
                });
            });
        });
    }
}

criterion_group!(benches, sampling, eight_sequences);
criterion_main!(benches);
