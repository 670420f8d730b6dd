//! Several measurements of one thing, and the one figure that stands for them.

use serde::Serialize;

/// The median, and how far the measurements lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
}

impl Figure {
    /// `None` when nothing was measured.
    pub fn of(mut measured: Vec<f64>) -> Option<Self> {
        measured.sort_by(f64::total_cmp);
        let (lowest, highest) = (*measured.first()?, *measured.last()?);
        let middle = measured.len() / 2;
        let median = match measured.len() % 2 {
            1 => measured[middle],
            _ => f64::midpoint(measured[middle - 1], measured[middle]),
        };
        Some(Self {
            median,
            lowest,
            highest,
        })
    }

    /// Half the distance between the extremes, as a share of the median.
    pub fn spread(&self) -> f64 {
        (self.highest - self.lowest) / 2.0 / self.median
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(measured: &[f64]) -> Figure {
        Figure::of(measured.to_vec()).unwrap()
    }

    #[test]
    fn the_median_is_in_the_middle_however_they_came() {
        assert_eq!(figure(&[9.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(figure(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(figure(&[7.0]).median, 7.0);
    }

    #[test]
    fn the_spread_is_told_against_the_median() {
        let figure = figure(&[90.0, 100.0, 110.0]);
        assert_eq!((figure.lowest, figure.highest), (90.0, 110.0));
        assert!((figure.spread() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn nothing_measured_is_no_figure() {
        assert_eq!(Figure::of(Vec::new()), None);
    }
}
