use safetensors::{Dtype, SafeTensors};

use super::noise::{counted, start};
use super::{
    Betas, DiffusionSampler, NoiseSource, NoiseTable, Prediction, SamplingRun, SamplingStep,
    Schedule, noised,
};

/// Results of the reference implementations; see `tests/fixtures/make/diffusion.py`.
struct DiffusionGolden(Vec<u8>);

impl DiffusionGolden {
    fn open() -> Self {
        let path = "../../tests/fixtures/golden/diffusion.tensors";
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        Self(std::fs::read(root.join(path)).unwrap())
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).unwrap();
        let data = tensor.data();
        match tensor.dtype() {
            Dtype::F64 => {
                let numbers = data.as_chunks().0.iter();
                numbers.map(|bytes| f64::from_le_bytes(*bytes)).collect()
            }
            _ => {
                let numbers = data.as_chunks().0.iter();
                let numbers = numbers.map(|bytes| f32::from_le_bytes(*bytes));
                numbers.map(f64::from).collect()
            }
        }
    }
}

fn gap(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let gaps = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    gaps.fold(0.0, f64::max)
}

/// The best denoiser of normal distributions around `means`.
fn denoise(means: &[f64], x: &[f64], sigma: f64) -> Vec<f64> {
    const WIDTH: f64 = 0.3;
    let variance = WIDTH * WIDTH + sigma * sigma;
    let means: Vec<&[f64]> = means.chunks(x.len()).collect();
    let distance = |mean: &&[f64]| -> f64 {
        let pairs = x.iter().zip(*mean);
        pairs.map(|(x, mean)| (x - mean).powi(2)).sum()
    };
    let shares: Vec<f64> = means
        .iter()
        .map(|mean| (-distance(mean) / (2.0 * variance)).exp())
        .collect();
    let total: f64 = shares.iter().sum();
    let expected = |at: usize| -> f64 {
        let parts = means.iter().zip(&shares).map(|(mean, share)| {
            share * (WIDTH * WIDTH * x[at] + sigma * sigma * mean[at]) / variance
        });
        parts.sum::<f64>() / total
    };
    (0..x.len()).map(expected).collect()
}

fn listed(draws: Vec<f64>, size: usize) -> NoiseSource {
    let mut at = 0;
    Box::new(move || {
        at += size;
        draws[at - size..at].to_vec()
    })
}

#[test]
fn samplers_agree_with_the_reference() {
    let golden = DiffusionGolden::open();
    let (means, start, table) = (
        golden.numbers("means"),
        golden.numbers("start"),
        NoiseTable::stable_diffusion(),
    );
    let mut checked = 0;
    for name in DiffusionSampler::names() {
        let sampler = DiffusionSampler::named(name).unwrap();
        // Names that share a sampler are stored once.
        let stored = match name {
            "DDIM" | "plms" => "k_euler",
            "dpmsolver" => "k_dpmpp_2m",
            name => name,
        };
        for steps in [5, 20] {
            let sigmas = Schedule::Karras.sigmas(&table, steps);
            let noise = listed(golden.numbers("draws"), start.len());
            let mut run = SamplingRun::start(sampler, start.clone(), sigmas, noise);
            let mut answer = None;
            let found = loop {
                match run.advance(answer.take()) {
                    SamplingStep::Evaluate(at) => answer = Some(denoise(&means, &at.x, at.sigma)),
                    SamplingStep::Done(x) => break x,
                }
            };
            let wanted = golden.numbers(&format!("{stored}.{steps}"));
            let gap = gap(&found, &wanted);
            assert!(gap < 1e-9, "{name}, {steps} steps: {gap:e}");
            checked += 1;
        }
    }
    assert_eq!(checked, 2 * DiffusionSampler::names().count());
}

#[test]
fn schedules_agree_with_their_definitions() {
    let golden = DiffusionGolden::open();
    let tables = [
        ("", NoiseTable::stable_diffusion()),
        (
            "zero_terminal.",
            NoiseTable::zero_terminal(Betas::STABLE_DIFFUSION),
        ),
    ];
    for (kind, table) in tables {
        for name in Schedule::names() {
            for steps in [5, 20] {
                let found = Schedule::named(name).unwrap().sigmas(&table, steps);
                let wanted = golden.numbers(&format!("{kind}{name}.{steps}"));
                assert_eq!(found.len(), wanted.len(), "{kind}{name}, {steps} steps");
                let pairs = found.iter().zip(&wanted);
                let gap = pairs.map(|(a, b)| (a - b).abs() / b.max(1.0));
                let gap = gap.fold(0.0, f64::max);
                assert!(gap < 1e-9, "{kind}{name}, {steps} steps: {gap:e}");
            }
        }
    }
}

#[test]
fn every_schedule_descends_from_one_step_on() {
    let table = NoiseTable::stable_diffusion();
    for name in Schedule::names() {
        for steps in [1, 2, 3, 7, 50, 1000] {
            let sigmas = Schedule::named(name).unwrap().sigmas(&table, steps);
            assert!(sigmas.len() >= 2, "{name}, {steps} steps");
            assert_eq!(sigmas.last(), Some(&0.0));
            let descends = sigmas.windows(2).all(|pair| pair[0] > pair[1]);
            assert!(descends, "{name}, {steps} steps: {sigmas:?}");
        }
    }
}

#[test]
fn every_sampler_survives_one_step() {
    let table = NoiseTable::stable_diffusion();
    for name in DiffusionSampler::names() {
        for steps in 1..5 {
            let sigmas = Schedule::Normal.sigmas(&table, steps);
            let noise: NoiseSource = Box::new(|| vec![0.5; 2]);
            let sampler = DiffusionSampler::named(name).unwrap();
            let mut run = SamplingRun::start(sampler, vec![3.0, -7.0], sigmas, noise);
            let mut answer = None;
            let found = loop {
                match run.advance(answer.take()) {
                    SamplingStep::Evaluate(at) => answer = Some(vec![0.25; at.x.len()]),
                    SamplingStep::Done(x) => break x,
                }
            };
            assert!(
                found.iter().all(|x| x.is_finite()),
                "{name}, {steps} steps: {found:?}"
            );
        }
    }
}

#[test]
fn a_seed_starts_from_the_noise_of_pytorch() {
    let golden = DiffusionGolden::open();
    for count in [3, 16, 70] {
        let found: Vec<f64> = start((1 << 33) + 7, count)
            .into_iter()
            .map(f64::from)
            .collect();
        let gap = gap(&found, &golden.numbers(&format!("noise.{count}")));
        assert!(gap < 1e-6, "{count} numbers: {gap:e}");
    }
}

#[test]
fn counted_noise_is_normal_and_differs_in_every_part() {
    let numbers = counted(7, 0, 0, 20_000);
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let variance = numbers.iter().map(|x| x * x).sum::<f64>() / numbers.len() as f64;
    assert!(
        mean.abs() < 0.03 && (variance - 1.0).abs() < 0.03,
        "{mean}, {variance}"
    );
    assert_eq!(counted(7, 0, 0, 5), counted(7, 0, 0, 9)[..5]);
    assert_ne!(counted(7, 0, 0, 5), counted(7, 1, 0, 5));
    assert_ne!(counted(7, 0, 0, 5), counted(8, 0, 0, 5));
    assert_ne!(counted(7, 0, 0, 5), counted(7 + (1 << 32), 0, 0, 5));
}

#[test]
fn every_prediction_finds_the_clean_image() {
    let (clean, noise, sigma) = ([0.3, -1.2], [0.7, 0.1], 2.5_f64);
    let x = noised(&clean, &noise, sigma, 14.6);
    let scale = (sigma * sigma + 1.0).sqrt();
    let velocity = |at: usize| (noise[at] - sigma * clean[at]) / scale;
    let velocity = [velocity(0), velocity(1)];
    let check = |prediction: Prediction, output: [f64; 2]| {
        let level = prediction.level(&NoiseTable::stable_diffusion(), sigma);
        let [of_x, of_output] = level.clean;
        let pairs = x.iter().zip(&output);
        let found: Vec<f64> = pairs.map(|(x, it)| of_x * x + of_output * it).collect();
        assert!(gap(&found, &clean) < 1e-12, "{prediction:?}");
    };
    check(Prediction::Epsilon, noise);
    check(Prediction::Velocity, velocity);
    check(Prediction::EdmVelocity, velocity.map(|value| -value));
    assert_eq!(
        noised(&clean, &noise, 14.6, 14.6)[0],
        0.3 + (14.6f64 * 14.6 + 1.0).sqrt() * 0.7
    );
}

#[test]
fn the_nearest_training_step_is_found() {
    let table = NoiseTable::stable_diffusion();
    let all = Schedule::Simple.sigmas(&table, 1000);
    for (from_end, sigma) in all[..1000].iter().enumerate() {
        assert_eq!(table.timestep(*sigma), 999 - from_end);
    }
    assert_eq!(table.timestep(1e-9), 0);
    assert_eq!(table.timestep(1e9), 999);
}
