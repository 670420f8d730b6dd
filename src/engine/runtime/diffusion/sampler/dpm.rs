//! DPM-Solver (Lu et al., 2022), with orders up to three, over `t = -ln(sigma)`: in even steps, and in steps that an
//! estimate of the error chooses.

use super::{Network, sum};

/// Evaluations in even steps: as many as the run has steps. Ends at the lowest level above 0.
pub async fn fast(network: Network, mut x: Vec<f64>, sigmas: Vec<f64>) -> Vec<f64> {
    let Some((start, end)) = ends(&sigmas) else {
        return x;
    };
    let evaluations = sigmas.len() - 1;
    let steps = evaluations / 3 + 1;
    let mut orders = vec![3; steps - 1];
    match evaluations % 3 {
        0 => {
            orders.pop();
            orders.extend([2, 1]);
        }
        rest => orders.push(rest),
    }
    let width = (end - start) / steps as f64;
    for (index, order) in orders.into_iter().enumerate() {
        let step = DpmStep {
            from: start + width * index as f64,
            width,
        };
        let epsilon = network.epsilon(&x, step.sigma(0.0)).await;
        x = match order {
            1 => step.first_order(&x, &epsilon, 1.0),
            2 => {
                let middle = step.first_order(&x, &epsilon, 0.5);
                let there = network.epsilon(&middle, step.sigma(0.5)).await;
                step.second_order(&x, &epsilon, &there, 0.5)
            }
            _ => {
                let third = step.first_order(&x, &epsilon, 1.0 / 3.0);
                let there = network.epsilon(&third, step.sigma(1.0 / 3.0)).await;
                step.third_order(&network, &x, &epsilon, &there).await
            }
        };
    }
    x
}

/// Tolerances of the error, absolute and relative.
const TOLERANCES: [f64; 2] = [0.0078, 0.05];
const FIRST_WIDTH: f64 = 0.05;
/// A step is repeated with a smaller width if its error shrinks the width below this factor.
const LEAST_GROWTH: f64 = 0.81;

/// Steps of second and third order in parallel; their difference is the error. Ends at the lowest level above 0.
pub async fn adaptive(network: Network, mut x: Vec<f64>, sigmas: Vec<f64>) -> Vec<f64> {
    let Some((start, end)) = ends(&sigmas) else {
        return x;
    };
    let (mut at, mut width) = (start, FIRST_WIDTH);
    let mut before = x.clone();
    while at < end - 1e-5 {
        let next = end.min(at + width);
        let step = DpmStep {
            from: at,
            width: next - at,
        };
        let epsilon = network.epsilon(&x, step.sigma(0.0)).await;
        let third = step.first_order(&x, &epsilon, 1.0 / 3.0);
        let there = network.epsilon(&third, step.sigma(1.0 / 3.0)).await;
        let low = step.second_order(&x, &epsilon, &there, 1.0 / 3.0);
        let high = step.third_order(&network, &x, &epsilon, &there).await;
        let error = error(&low, &high, &before);
        let growth = 1.0 + ((error + 1e-8).recip().cbrt() - 1.0).atan();
        if growth >= LEAST_GROWTH {
            (x, before, at) = (high, low, next);
        }
        width *= growth;
    }
    x
}

/// The root of the mean square of the difference, relative to the tolerances.
fn error(low: &[f64], high: &[f64], before: &[f64]) -> f64 {
    let [absolute, relative] = TOLERANCES;
    let all = low.iter().zip(high).zip(before);
    let squares = all.map(|((low, high), before)| {
        let tolerance = absolute.max(relative * low.abs().max(before.abs()));
        ((low - high) / tolerance).powi(2)
    });
    (squares.sum::<f64>() / low.len() as f64).sqrt()
}

/// The first and last `t` of a run.
fn ends(sigmas: &[f64]) -> Option<(f64, f64)> {
    let last = sigmas.iter().rev().find(|sigma| **sigma > 0.0)?;
    Some((-sigmas[0].ln(), -last.ln()))
}

#[derive(Clone, Copy)]
struct DpmStep {
    from: f64,
    width: f64,
}

impl DpmStep {
    /// The noise level after a share of the step.
    fn sigma(self, share: f64) -> f64 {
        (-(self.from + self.width * share)).exp()
    }

    /// `x` after a share of the step, if the noise stays the same.
    fn first_order(self, x: &[f64], epsilon: &[f64], share: f64) -> Vec<f64> {
        let factor = self.sigma(share) * (self.width * share).exp_m1();
        sum(&[(1.0, x), (-factor, epsilon)])
    }

    /// `x` after the step, from the noise at its start and after a share of it.
    fn second_order(self, x: &[f64], epsilon: &[f64], there: &[f64], share: f64) -> Vec<f64> {
        let factor = self.sigma(1.0) * self.width.exp_m1();
        let bend = factor / (2.0 * share);
        sum(&[(1.0, x), (bend - factor, epsilon), (-bend, there)])
    }

    /// `x` after the step, from the noise at its start, after a third, and after two thirds of it.
    async fn third_order(
        self,
        network: &Network,
        x: &[f64],
        epsilon: &[f64],
        there: &[f64],
    ) -> Vec<f64> {
        const THIRD: f64 = 1.0 / 3.0;
        let (two, width) = (self.width * 2.0 * THIRD, self.width);
        let middle = self.sigma(2.0 * THIRD);
        let bend = middle * 2.0 * (two.exp_m1() / two - 1.0);
        let far = sum(&[
            (1.0, x),
            (bend - middle * two.exp_m1(), epsilon),
            (-bend, there),
        ]);
        let far = network.epsilon(&far, middle).await;
        let last = self.sigma(1.0);
        let bend = last * 1.5 * (width.exp_m1() / width - 1.0);
        sum(&[
            (1.0, x),
            (bend - last * width.exp_m1(), epsilon),
            (-bend, &far),
        ])
    }
}
