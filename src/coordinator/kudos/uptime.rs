//! Uptime rewards: a worker is paid for every ten minutes online, with or without jobs, as in the public network.
//!
//! ```text
//! images           50 + 2 a model + 30 with LoRA
//! interrogation    40
//! text             (25 + 15 · context / 1024) · max(p / 7, 0.25)        half of the bracket for an unknown model
//! ```
//!
//! p is the size of its largest model in billions of parameters, the context counts up to 262,144, and an unvalidated
//! text backend is paid 0.3 of it.

use std::time::Duration;

use muster_protocol::job::Kudos;

use super::price::rounded;

/// The time per reward.
pub const UPTIME: Duration = Duration::from_secs(600);

const LONGEST: u32 = 262_144;

/// Models and limits that count for a worker's uptime reward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Presence {
    Image {
        models: usize,
        lora: bool,
    },
    Text {
        context: u32,
        /// Size of its largest model, if known.
        billions: Option<f64>,
        is_validated: bool,
    },
    Interrogation,
}

impl Presence {
    pub fn worth(self) -> Kudos {
        let kudos = match self {
            Self::Image { models, lora } => {
                50.0 + 2.0 * models as f64 + if lora { 30.0 } else { 0.0 }
            }
            Self::Interrogation => 40.0,
            Self::Text {
                context,
                billions,
                is_validated,
            } => {
                let bracket = 25.0 + 15.0 * f64::from(context.min(LONGEST)) / 1024.0;
                let size = billions.map_or(0.5, |billions| (billions / 7.0).max(0.25));
                bracket * size * if is_validated { 1.0 } else { 0.3 }
            }
        };
        rounded(kudos * 1000.0)
    }

    /// Whether untrusted owners are paid at once, without escrow.
    pub fn is_paid_at_once(self) -> bool {
        self == Self::Interrogation
    }
}

#[cfg(test)]
mod tests {
    use super::Presence;
    use muster_protocol::job::Kudos;

    fn text(context: u32, billions: Option<f64>, is_validated: bool) -> Kudos {
        let presence = Presence::Text {
            context,
            billions,
            is_validated,
        };
        presence.worth()
    }

    #[test]
    fn ten_minutes_are_worth_what_a_worker_offers() {
        let image = |models, lora| Presence::Image { models, lora }.worth();
        assert_eq!(
            (image(1, false), image(3, true)),
            (Kudos(52_000), Kudos(86_000))
        );
        assert_eq!(Presence::Interrogation.worth(), Kudos(40_000));
        assert_eq!(text(2048, Some(7.0), true), Kudos(55_000));
        assert_eq!(text(2048, Some(70.0), true), Kudos(550_000));
        assert_eq!(text(2048, Some(0.1), true), Kudos(13_750));
        assert_eq!(text(2048, None, true), Kudos(27_500));
        assert_eq!(text(2048, Some(7.0), false), Kudos(16_500));
    }

    #[test]
    fn nobody_is_paid_for_a_context_that_nobody_has() {
        assert_eq!(
            text(u32::MAX, Some(7.0), true),
            text(262_144, Some(7.0), true)
        );
    }
}
