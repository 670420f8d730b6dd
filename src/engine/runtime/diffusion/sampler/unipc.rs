//! UniPC (Zhao et al., 2023): a predictor and a corrector of one family, third order, on predicted clean images.

use super::{Network, sum};

/// The order of the paper's choice for images.
pub const ORDER: usize = 3;

/// The function that scales the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    Bh1,
    Bh2,
}

/// A clean image that was predicted at a level.
struct KnownImage {
    lambda: f64,
    denoised: Vec<f64>,
}

pub async fn uni_pc(
    network: Network,
    mut x: Vec<f64>,
    sigmas: Vec<f64>,
    (most, variant): (usize, Variant),
) -> Vec<f64> {
    // The newest first.
    let mut known: Vec<KnownImage> = Vec::new();
    let mut before: Option<(Vec<f64>, usize)> = None;
    let steps = sigmas.len() - 1;
    for (at, pair) in sigmas.windows(2).enumerate() {
        let denoised = network.denoise(&x, pair[0]).await;
        let lambda = -pair[0].ln();
        if let Some((x_before, order)) = &before {
            let step = UniPcStep::new(&known[..*order], sigmas[at - 1], pair[0], variant);
            x = step.correct(x_before, &denoised);
        }
        known.insert(0, KnownImage { lambda, denoised });
        known.truncate(most);
        if pair[1] == 0.0 {
            return known.swap_remove(0).denoised;
        }
        // The last steps are of lower order.
        let order = most.min(steps - at).min(known.len());
        let predicted = UniPcStep::new(&known[..order], pair[0], pair[1], variant).predict(&x);
        before = Some((std::mem::replace(&mut x, predicted), order));
    }
    x
}

/// A step between two levels.
struct UniPcStep<'a> {
    newest: &'a [f64],
    /// `(m_i - m_0) / r_i` of earlier predictions.
    differences: Vec<Vec<f64>>,
    /// The places `r_i` of earlier predictions, in widths of the step, and 1 for its end.
    places: Vec<f64>,
    /// Factors of the moments.
    moments: Vec<f64>,
    keep: f64,
    /// `1 - exp(-h)`.
    towards: f64,
    scale: f64,
}

impl<'a> UniPcStep<'a> {
    fn new(known: &'a [KnownImage], from: f64, to: f64, variant: Variant) -> Self {
        let (newest, earlier) = known.split_first().expect("one prediction at least");
        let width = -to.ln() - newest.lambda;
        let mut places: Vec<f64> = earlier
            .iter()
            .map(|one| (one.lambda - newest.lambda) / width)
            .collect();
        let differences = earlier.iter().zip(&places).map(|(one, place)| {
            let terms = [
                (place.recip(), one.denoised.as_slice()),
                (-place.recip(), newest.denoised.as_slice()),
            ];
            sum(&terms)
        });
        let differences = differences.collect();
        places.push(1.0);
        let back = -width;
        let scale = match variant {
            Variant::Bh1 => back,
            Variant::Bh2 => back.exp_m1(),
        };
        let (mut phi, mut factorial) = (back.exp_m1() / back - 1.0, 1.0);
        let moments = (1..=known.len()).map(|order| {
            let moment = phi * factorial / scale;
            factorial *= (order + 1) as f64;
            phi = phi / back - factorial.recip();
            moment
        });
        Self {
            newest: &newest.denoised,
            differences,
            moments: moments.collect(),
            places,
            keep: to / from,
            towards: -back.exp_m1(),
            scale,
        }
    }

    fn predict(&self, x: &[f64]) -> Vec<f64> {
        let count = self.differences.len();
        // The paper's choice for the second order, which differs from the solution of the equations.
        let weights = match count {
            1 => vec![0.5],
            _ => self.weights(count),
        };
        self.moved(x, &weights, None)
    }

    fn correct(&self, x: &[f64], denoised: &[f64]) -> Vec<f64> {
        let count = self.places.len();
        let weights = match count {
            1 => vec![0.5],
            _ => self.weights(count),
        };
        let newest = sum(&[(1.0, denoised), (-1.0, self.newest)]);
        self.moved(x, &weights, Some(&newest))
    }

    fn moved(&self, x: &[f64], weights: &[f64], newest: Option<&Vec<f64>>) -> Vec<f64> {
        let mut terms = vec![(self.keep, x), (self.towards, self.newest)];
        let differences = self.differences.iter().chain(newest);
        let differences = differences.zip(weights);
        terms.extend(
            differences.map(|(difference, weight)| (-self.scale * weight, difference.as_slice())),
        );
        sum(&terms)
    }

    /// Solves `sum of weight_i * place_i^k = moment_k` for the first `count` places.
    fn weights(&self, count: usize) -> Vec<f64> {
        let row = |power: usize| {
            let places = self.places[..count].iter();
            let powers = places.map(|place| place.powi(power as i32));
            powers.chain([self.moments[power]]).collect()
        };
        solve((0..count).map(row).collect())
    }
}

/// Gauss's elimination with the largest pivot. Each row ends with its right side.
fn solve(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let count = rows.len();
    for at in 0..count {
        let pivot = (at..count).max_by(|a, b| rows[*a][at].abs().total_cmp(&rows[*b][at].abs()));
        rows.swap(at, pivot.unwrap_or(at));
        let top = rows[at].clone();
        for row in rows.iter_mut().skip(at + 1) {
            let factor = row[at] / top[at];
            for (value, top) in row.iter_mut().zip(&top) {
                *value -= factor * top;
            }
        }
    }
    let mut solution = vec![0.0; count];
    for at in (0..count).rev() {
        let known: f64 = (at + 1..count)
            .map(|next| rows[at][next] * solution[next])
            .sum();
        solution[at] = (rows[at][count] - known) / rows[at][at];
    }
    solution
}
