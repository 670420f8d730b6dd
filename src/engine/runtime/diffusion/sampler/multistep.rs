//! Samplers that remember earlier evaluations.

use std::collections::VecDeque;

use super::{Network, sum};

/// Slopes that the linear multistep method remembers.
const LMS_ORDER: usize = 4;

pub async fn lms(network: Network, mut x: Vec<f64>, sigmas: Vec<f64>) -> Vec<f64> {
    let mut slopes = VecDeque::new();
    for (at, pair) in sigmas.windows(2).enumerate() {
        slopes.push_front(network.epsilon(&x, pair[0]).await);
        slopes.truncate(LMS_ORDER);
        let known: Vec<f64> = sigmas[at + 1 - slopes.len()..=at]
            .iter()
            .rev()
            .copied()
            .collect();
        for (index, slope) in slopes.iter().enumerate() {
            let weight = lagrange_integral(&known, index, pair[0], pair[1]);
            x = sum(&[(1.0, &x), (weight, slope)]);
        }
    }
    x
}

/// The integral of the polynomial that is 1 at one of the places and 0 at the others. Gauss and Legendre's two points
/// are exact up to the third degree, which is that of four places.
fn lagrange_integral(places: &[f64], index: usize, from: f64, to: f64) -> f64 {
    let value = |at: f64| -> f64 {
        let others = places
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index);
        others
            .map(|(_, place)| (at - place) / (places[index] - place))
            .product()
    };
    let (middle, half) = ((from + to) / 2.0, (to - from) / 2.0);
    let reach = half / 3f64.sqrt();
    half * (value(middle - reach) + value(middle + reach))
}

/// Lu et al.: DPM-Solver++, second order, multistep.
pub async fn dpmpp_2m(network: Network, mut x: Vec<f64>, sigmas: Vec<f64>) -> Vec<f64> {
    let mut before: Option<(f64, Vec<f64>)> = None;
    for pair in sigmas.windows(2) {
        let denoised = network.denoise(&x, pair[0]).await;
        if pair[1] == 0.0 {
            return denoised;
        }
        let step = (pair[0] / pair[1]).ln();
        let towards = -(-step).exp_m1();
        let keep = pair[1] / pair[0];
        x = match &before {
            None => sum(&[(keep, &x), (towards, &denoised)]),
            Some((step_before, denoised_before)) => {
                let share = step / step_before / 2.0;
                sum(&[
                    (keep, &x),
                    (towards * (1.0 + share), &denoised),
                    (-towards * share, denoised_before),
                ])
            }
        };
        before = Some((step, denoised));
    }
    x
}
