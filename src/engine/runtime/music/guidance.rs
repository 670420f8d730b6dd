//! Adaptive projected guidance (Sadat et al., 2024): a direction under the conditions of a song, led away from that
//! without conditions, but not along itself, which would only make the song louder.

/// Weight of earlier steps' differences.
const MOMENTUM: f64 = -0.75;
/// The longest difference of one number along all frames.
const MOST_LENGTH: f64 = 2.5;
const LEAST_LENGTH: f64 = 1e-12;

/// The guidance of one song.
pub struct ProjectedGuidance {
    scale: f64,
    /// Numbers of a frame.
    numbers: usize,
    differences: Vec<f64>,
}

impl ProjectedGuidance {
    pub fn new(scale: f64, numbers: usize) -> Self {
        Self {
            scale,
            numbers,
            differences: Vec::new(),
        }
    }

    /// Leads the direction `with` conditions away from that `without`, frame after frame.
    pub fn lead(&mut self, with: &mut [f32], without: &[f32]) {
        self.differences.resize(with.len(), 0.0);
        let pairs = with.iter().zip(without);
        for (difference, (with, without)) in self.differences.iter_mut().zip(pairs) {
            *difference = f64::from(with - without) + MOMENTUM * *difference;
        }
        for number in 0..self.numbers {
            let along = |values: &[f64]| -> Vec<f64> {
                let values = values.iter().skip(number).step_by(self.numbers);
                values.copied().collect()
            };
            let own = with.iter().skip(number).step_by(self.numbers);
            let own: Vec<f64> = own.map(|value| f64::from(*value)).collect();
            let difference = along(&self.differences);
            let factor = (MOST_LENGTH / length(&difference).max(LEAST_LENGTH)).min(1.0);
            let share = factor * dot(&difference, &own) / length(&own).max(LEAST_LENGTH).powi(2);
            let changed = with.iter_mut().skip(number).step_by(self.numbers);
            for (value, (difference, own)) in changed.zip(difference.iter().zip(&own)) {
                let across = factor * difference - share * own;
                *value = (own + (self.scale - 1.0) * across) as f32;
            }
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn length(values: &[f64]) -> f64 {
    dot(values, values).sqrt()
}

#[cfg(test)]
mod tests {
    use super::ProjectedGuidance;

    #[test]
    fn a_difference_along_the_direction_changes_nothing() {
        let mut guidance = ProjectedGuidance::new(5.0, 2);
        let mut with = [1.0, 0.0, 2.0, 3.0];
        guidance.lead(&mut with, &[0.5, 0.0, 1.0, 2.0]);
        assert!((with[0] - 1.0).abs() < 1e-6 && (with[2] - 2.0).abs() < 1e-6);
        assert!((with[3] - 3.0).abs() < 1e-6);
    }

    #[test]
    fn long_differences_are_cut() {
        let mut guidance = ProjectedGuidance::new(3.0, 1);
        let mut with = [1.0, 0.0];
        guidance.lead(&mut with, &[1.0, -100.0]);
        assert_eq!(with, [1.0, 5.0]);
    }
}
