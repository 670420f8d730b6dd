//! Upfront payment of heavy requests: those for fast workers only, and those larger than the online workers can serve
//! besides the queue. The amount is held from the balance until the request has ended.
//!
//! ```text
//! texts   longest = 512 + 5 · threads - 0.9 · waiting            within 256 and 512 tokens
//! images  side    = 1024 + 10 · threads - 0.9 · waiting          within 576 (by family more) and 1024 pixels
//! ```

use muster_protocol::job::Kudos;
use muster_protocol::legacy::image::baseline::Baseline;

use super::image::{Control, Drawing};
use super::price::rounded;
use super::sizes::Prices;

/// Workers' threads and waiting jobs of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crowd {
    pub threads: u32,
    pub waiting: u32,
}

/// Most steps without upfront payment, if the model states none.
const FREE_STEPS: u32 = 40;
const FREE_STEPS_WITH_CONTROL: u32 = 20;
const FREE_STEPS_OF_LCM: u32 = 10;
/// Sides of images are multiples of this.
const GRID: u32 = 64;
const SMALLEST_SIDE: u32 = 512;

impl Crowd {
    /// `most + each · threads - 0.9 · waiting`.
    fn limit(self, most: u32, each: u32, least: u32) -> u32 {
        let waiting = (0.9 * f64::from(self.waiting)).round() as i64;
        let limit = i64::from(most) + i64::from(each) * i64::from(self.threads) - waiting;
        // Between two 32-bit numbers.
        limit.clamp(i64::from(least), i64::from(most)) as u32
    }

    /// The longest text without upfront payment, in tokens.
    pub fn longest_text(self) -> u32 {
        self.limit(512, 5, 256)
    }

    /// The side of the largest square image without upfront payment, for any of these families.
    pub fn longest_side(self, families: &[Baseline]) -> u32 {
        let least = families.iter().map(|family| match family {
            Baseline::Sdxl | Baseline::Cascade | Baseline::Flux => 1024,
            Baseline::Sd2 => 768,
            _ => 576,
        });
        self.limit(1024, 10, least.max().unwrap_or(576))
    }
}

/// Whether a text requires upfront payment.
pub fn text_needs_it(slow_workers: bool, max_length: u32, crowd: Crowd) -> bool {
    !slow_workers || max_length > crowd.longest_text()
}

/// The hold for `n` texts, by the largest of the named models.
pub fn text_hold(max_length: u32, models: &[&str], prices: &Prices, n: u32) -> Kudos {
    let sizes = models.iter().map(|model| prices.size_factor(model));
    let each = match sizes.reduce(f64::max) {
        Some(largest) => f64::from(max_length) * largest / 21.0,
        None => 20.0,
    };
    rounded(each * f64::from(n) * 1000.0)
}

/// The size of an image request.
#[derive(Debug, Clone, Copy)]
pub struct Weighty<'a> {
    pub drawing: &'a Drawing,
    pub slow_workers: bool,
    /// By the sampler, or by a LoRA known for it.
    pub lcm: bool,
    pub families: &'a [Baseline],
    /// The maximum of its models' step requirements.
    pub max_steps: Option<u32>,
}

impl Weighty<'_> {
    /// Whether the image requires upfront payment.
    pub fn needs_it(&self, crowd: Crowd) -> bool {
        !self.slow_workers || self.is_large(crowd) || self.drawing.steps > self.free_steps()
    }

    /// The largest size without upfront payment, in the same proportions as far as the grid allows.
    pub fn free_size(&self, crowd: Crowd) -> (u32, u32) {
        let (width, height) = (self.drawing.width, self.drawing.height);
        if !self.is_large(crowd) {
            return (width, height);
        }
        let side = f64::from(crowd.longest_side(self.families));
        let scale = side / (f64::from(width) * f64::from(height)).sqrt();
        let longest = side * side / f64::from(SMALLEST_SIDE);
        let scaled = |length: u32| {
            let length = (f64::from(length) * scale).min(longest);
            ((length as u32) / GRID * GRID).max(SMALLEST_SIDE)
        };
        (scaled(width), scaled(height))
    }

    /// Maximum steps without upfront payment.
    pub fn free_steps(&self) -> u32 {
        let plain = self.max_steps.unwrap_or(FREE_STEPS);
        let lined = match self.drawing.control {
            Control::Free => plain,
            _ => plain.min(FREE_STEPS_WITH_CONTROL),
        };
        if self.lcm {
            lined.min(FREE_STEPS_OF_LCM)
        } else {
            lined
        }
    }

    fn is_large(&self, crowd: Crowd) -> bool {
        let side = u64::from(crowd.longest_side(self.families));
        u64::from(self.drawing.width) * u64::from(self.drawing.height) > side * side
    }
}

#[cfg(test)]
mod tests {
    use super::{Crowd, Weighty, text_hold, text_needs_it};
    use crate::kudos::Prices;
    use crate::kudos::image::{Control, Drawing};
    use muster_protocol::job::Kudos;
    use muster_protocol::legacy::image::baseline::Baseline;

    const NOBODY: Crowd = Crowd {
        threads: 0,
        waiting: 0,
    };
    const CROWDED: Crowd = Crowd {
        threads: 2,
        waiting: 10_000,
    };

    fn drawing(width: u32, height: u32, steps: u32) -> Drawing {
        Drawing {
            width,
            height,
            steps,
            ..Drawing::default()
        }
    }

    fn patient(drawing: &Drawing) -> Weighty<'_> {
        Weighty {
            drawing,
            slow_workers: true,
            lcm: false,
            families: &[],
            max_steps: None,
        }
    }

    #[test]
    fn the_more_waits_the_less_is_free() {
        assert_eq!((NOBODY.longest_text(), CROWDED.longest_text()), (512, 256));
        let busy = Crowd {
            threads: 10,
            waiting: 100,
        };
        assert_eq!(busy.longest_text(), 512 + 50 - 90);
        assert_eq!(busy.longest_side(&[]), 1024);
        assert_eq!(CROWDED.longest_side(&[]), 576);
        assert_eq!(CROWDED.longest_side(&[Baseline::Sd15, Baseline::Sd2]), 768);
        assert_eq!(CROWDED.longest_side(&[Baseline::Sdxl]), 1024);
    }

    #[test]
    fn hasty_and_long_texts_are_paid_for_before() {
        assert!(!text_needs_it(true, 512, NOBODY));
        assert!(text_needs_it(true, 257, CROWDED));
        assert!(text_needs_it(false, 16, NOBODY));
    }

    #[test]
    fn a_text_is_held_for_by_its_largest_model() {
        let prices = Prices::default().with("small", 1.0).with("large", 13.0);
        assert_eq!(text_hold(210, &["small"], &prices, 1), Kudos(10_000));
        assert_eq!(
            text_hold(210, &["small", "large"], &prices, 2),
            Kudos(260_000)
        );
        assert_eq!(text_hold(210, &[], &prices, 3), Kudos(60_000));
    }

    #[test]
    fn heavy_images_are_paid_for_before() {
        let check = |weighty: Weighty<'_>, crowd, expected| {
            assert_eq!(weighty.needs_it(crowd), expected, "{weighty:?}");
        };
        let plain = drawing(512, 512, 40);
        check(patient(&plain), CROWDED, false);
        check(
            Weighty {
                slow_workers: false,
                ..patient(&plain)
            },
            NOBODY,
            true,
        );
        check(
            Weighty {
                lcm: true,
                ..patient(&plain)
            },
            NOBODY,
            true,
        );
        check(
            Weighty {
                max_steps: Some(30),
                ..patient(&plain)
            },
            NOBODY,
            true,
        );
        let large = drawing(1024, 1024, 30);
        check(patient(&large), NOBODY, false);
        check(patient(&large), CROWDED, true);
        check(
            Weighty {
                families: &[Baseline::Flux],
                ..patient(&large)
            },
            CROWDED,
            false,
        );
        let lined = Drawing {
            control: Control::Given,
            ..drawing(512, 512, 21)
        };
        check(patient(&lined), NOBODY, true);
    }

    #[test]
    fn a_smaller_image_fits_what_is_free() {
        let size = |width, height, crowd| patient(&drawing(width, height, 1)).free_size(crowd);
        assert_eq!(size(1024, 1024, NOBODY), (1024, 1024));
        assert_eq!(size(2048, 2048, NOBODY), (1024, 1024));
        assert_eq!(size(3072, 3072, CROWDED), (576, 576));
        assert_eq!(size(3072, 64, CROWDED), (3072, 64), "it is small");
        for (width, height) in [
            (3072, 128),
            (3072, 576),
            (1088, 1024),
            (64, 3072),
            (2048, 512),
        ] {
            let (smaller, lower) = size(width, height, CROWDED);
            assert!(
                smaller * lower <= 576 * 576,
                "{width}x{height}: {smaller}x{lower}"
            );
        }
    }
}
