//! Samplers that use only the current step.

use super::{Network, NoiseSource, ancestral, slope, sum};

pub async fn euler(network: Network, mut x: Vec<f64>, sigmas: Vec<f64>) -> Vec<f64> {
    for pair in sigmas.windows(2) {
        let d = network.epsilon(&x, pair[0]).await;
        x = sum(&[(1.0, &x), (pair[1] - pair[0], &d)]);
    }
    x
}

pub async fn euler_ancestral(
    network: Network,
    mut x: Vec<f64>,
    sigmas: Vec<f64>,
    mut noise: NoiseSource,
) -> Vec<f64> {
    for pair in sigmas.windows(2) {
        let (down, up) = ancestral(pair[0], pair[1]);
        let d = network.epsilon(&x, pair[0]).await;
        x = sum(&[(1.0, &x), (down - pair[0], &d)]);
        if up > 0.0 {
            x = sum(&[(1.0, &x), (up, &noise())]);
        }
    }
    x
}

pub async fn heun(network: Network, mut x: Vec<f64>, sigmas: Vec<f64>) -> Vec<f64> {
    for pair in sigmas.windows(2) {
        let step = pair[1] - pair[0];
        let d = network.epsilon(&x, pair[0]).await;
        let ahead = sum(&[(1.0, &x), (step, &d)]);
        x = match pair[1] > 0.0 {
            true => {
                let there = network.epsilon(&ahead, pair[1]).await;
                sum(&[(1.0, &x), (step / 2.0, &d), (step / 2.0, &there)])
            }
            false => ahead,
        };
    }
    x
}

pub async fn dpm_2(network: Network, mut x: Vec<f64>, sigmas: Vec<f64>) -> Vec<f64> {
    for pair in sigmas.windows(2) {
        x = to_middle_and_on(&network, &x, pair[0], pair[1]).await;
    }
    x
}

pub async fn dpm_2_ancestral(
    network: Network,
    mut x: Vec<f64>,
    sigmas: Vec<f64>,
    mut noise: NoiseSource,
) -> Vec<f64> {
    for pair in sigmas.windows(2) {
        let (down, up) = ancestral(pair[0], pair[1]);
        x = to_middle_and_on(&network, &x, pair[0], down).await;
        if up > 0.0 {
            x = sum(&[(1.0, &x), (up, &noise())]);
        }
    }
    x
}

/// A step with the slope found in its middle, in the logarithm; Euler's where it ends at 0.
async fn to_middle_and_on(network: &Network, x: &[f64], from: f64, to: f64) -> Vec<f64> {
    let d = network.epsilon(x, from).await;
    if to == 0.0 {
        return sum(&[(1.0, x), (-from, &d)]);
    }
    let middle = (from * to).sqrt();
    let halfway = sum(&[(1.0, x), (middle - from, &d)]);
    let d = network.epsilon(&halfway, middle).await;
    sum(&[(1.0, x), (to - from, &d)])
}

/// For latent consistency models, which predict the clean image in one step.
pub async fn lcm(
    network: Network,
    mut x: Vec<f64>,
    sigmas: Vec<f64>,
    mut noise: NoiseSource,
) -> Vec<f64> {
    for pair in sigmas.windows(2) {
        x = network.denoise(&x, pair[0]).await;
        if pair[1] > 0.0 {
            x = sum(&[(1.0, &x), (pair[1], &noise())]);
        }
    }
    x
}

/// Euler's step, for samplers whose formula has no last step.
pub async fn euler_step(network: &Network, x: &[f64], from: f64, to: f64) -> Vec<f64> {
    let denoised = network.denoise(x, from).await;
    sum(&[(1.0, x), (to - from, &slope(x, &denoised, from))])
}
