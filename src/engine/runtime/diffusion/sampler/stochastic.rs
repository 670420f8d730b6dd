//! DPM-Solver++ with noise taken back in each step.

use super::single::euler_step;
use super::{Network, NoiseSource, ancestral, sum};

pub async fn dpmpp_2s_ancestral(
    network: Network,
    mut x: Vec<f64>,
    sigmas: Vec<f64>,
    mut noise: NoiseSource,
) -> Vec<f64> {
    for pair in sigmas.windows(2) {
        let (down, up) = ancestral(pair[0], pair[1]);
        if down == 0.0 {
            x = euler_step(&network, &x, pair[0], down).await;
        } else {
            let denoised = network.denoise(&x, pair[0]).await;
            let middle = (pair[0] * down).sqrt();
            let halfway = solve(&x, &denoised, pair[0], middle);
            let denoised = network.denoise(&halfway, middle).await;
            x = solve(&x, &denoised, pair[0], down);
        }
        if pair[1] > 0.0 {
            x = sum(&[(1.0, &x), (up, &noise())]);
        }
    }
    x
}

/// The noise of a whole step and that of its first half belong to one Brownian motion: the first half's increment is
/// part of the whole one.
pub async fn dpmpp_sde(
    network: Network,
    mut x: Vec<f64>,
    sigmas: Vec<f64>,
    mut noise: NoiseSource,
) -> Vec<f64> {
    for pair in sigmas.windows(2) {
        let [from, to] = [pair[0], pair[1]];
        if to == 0.0 {
            x = euler_step(&network, &x, from, to).await;
            continue;
        }
        let denoised = network.denoise(&x, from).await;
        let middle = (from * to).sqrt();
        let (first, second) = (noise(), noise());
        let (down, up) = ancestral(from, middle);
        let halfway = solve(&x, &denoised, from, down);
        let halfway = sum(&[(1.0, &halfway), (up, &first)]);
        let denoised = network.denoise(&halfway, middle).await;
        let share = ((from - middle) / (from - to)).sqrt();
        let rest = ((middle - to) / (from - to)).sqrt();
        let whole = sum(&[(share, &first), (rest, &second)]);
        let (down, up) = ancestral(from, to);
        x = solve(&x, &denoised, from, down);
        x = sum(&[(1.0, &x), (up, &whole)]);
    }
    x
}

/// The exact way from one level to another while the clean image stays the same.
fn solve(x: &[f64], denoised: &[f64], from: f64, to: f64) -> Vec<f64> {
    sum(&[(to / from, x), (1.0 - to / from, denoised)])
}
