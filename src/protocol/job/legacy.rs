//! What a client of the poll API may say about a text that nothing else here has a word for. It travels with the job
//! so that a worker of that API gets back what its client sent; our own workers do not read it.
//!
//! Numbers are kept as they were written: they are passed on, never computed with.

use serde::{Deserialize, Serialize};

use super::Sampling;

/// Each as the client sent it, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LegacySampling {
    /// Tokens of prompt and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_context_length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub typical: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tfs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_a: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rep_pen_range: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rep_pen_slope: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampler_order: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_default_badwordsids: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smoothing_factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynatemp_range: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynatemp_exponent: Option<f64>,
    /// The prompt begins with a space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frmtadsnsp: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frmtrmblln: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frmtrmspch: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frmttriminc: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub singleline: Option<bool>,
}

impl Sampling {
    /// What changes which words are drawn and only a worker of the poll API can honour. Many clients send every
    /// setting there is, with the value that does nothing.
    pub fn only_for_legacy_workers(&self) -> Vec<&'static str> {
        /// The order that neutral settings are applied in, as far as there are such.
        const USUAL_ORDER: [i64; 7] = [6, 0, 1, 2, 3, 4, 5];
        let Some(legacy) = &self.legacy else {
            return Vec::new();
        };
        let other_than = |found: Option<f64>, idle: f64| found.is_some_and(|found| found != idle);
        let share = |found| other_than(found, 1.0) && other_than(found, 0.0);
        let order = legacy.sampler_order.as_ref();
        // How a penalty is spread says nothing where there is none.
        let penalized = self
            .repetition_penalty
            .is_some_and(|penalty| penalty != 1.0);
        let range = legacy.rep_pen_range.is_some_and(|range| range != 0);
        let settings = [
            ("typical", share(legacy.typical)),
            ("tfs", share(legacy.tfs)),
            ("top_a", other_than(legacy.top_a, 0.0)),
            ("rep_pen_range", penalized && range),
            (
                "rep_pen_slope",
                penalized && other_than(legacy.rep_pen_slope, 0.0),
            ),
            (
                "sampler_order",
                order.is_some_and(|order| *order != USUAL_ORDER),
            ),
            (
                "use_default_badwordsids",
                legacy.use_default_badwordsids == Some(true),
            ),
            ("smoothing_factor", other_than(legacy.smoothing_factor, 0.0)),
            ("dynatemp_range", other_than(legacy.dynatemp_range, 0.0)),
        ];
        let acting = settings.into_iter().filter(|(_, acts)| *acts);
        acting.map(|(name, _)| name).collect()
    }
}

/// How a penalty for repetition is spread. Our own engine punishes all repetition alike: a request that names only
/// these is served by it, and its client is told.
const SHAPES_OF_PENALTY: [&str; 4] = [
    "rep_pen_range",
    "rep_pen_slope",
    "sampler_order",
    "use_default_badwordsids",
];

impl Sampling {
    /// Of those, what our own engine does not have at all.
    pub fn unknown_to_our_engine(&self) -> Vec<&'static str> {
        let mut acting = self.only_for_legacy_workers();
        acting.retain(|name| !SHAPES_OF_PENALTY.contains(name));
        acting
    }
}

#[cfg(test)]
mod tests {
    use super::{LegacySampling, Sampling};

    fn idle() -> LegacySampling {
        LegacySampling {
            max_context_length: Some(2048),
            typical: Some(1.0),
            tfs: Some(1.0),
            top_a: Some(0.0),
            rep_pen_range: Some(320),
            rep_pen_slope: Some(0.7),
            sampler_order: Some(vec![6, 0, 1, 2, 3, 4, 5]),
            use_default_badwordsids: Some(false),
            dynatemp_range: Some(0.0),
            dynatemp_exponent: Some(1.0),
            singleline: Some(true),
            ..LegacySampling::default()
        }
    }

    fn check(repetition_penalty: Option<f32>, legacy: Option<LegacySampling>, expected: &[&str]) {
        let sampling = Sampling {
            repetition_penalty,
            legacy: legacy.map(Box::new),
            ..Sampling::default()
        };
        assert_eq!(sampling.only_for_legacy_workers(), expected);
    }

    #[test]
    fn settings_that_do_nothing_keep_no_worker_away() {
        check(None, None, &[]);
        check(None, Some(idle()), &[]);
        check(Some(1.0), Some(idle()), &[]);
    }

    #[test]
    fn settings_that_act_are_named() {
        let acting = LegacySampling {
            tfs: Some(0.9),
            sampler_order: Some(vec![0, 6, 1, 2, 3, 4, 5]),
            ..idle()
        };
        check(None, Some(acting), &["tfs", "sampler_order"]);
        check(Some(1.1), Some(idle()), &["rep_pen_range", "rep_pen_slope"]);
    }

    #[test]
    fn what_was_not_sent_takes_no_room_on_the_wire() {
        let nothing = LegacySampling::default();
        assert_eq!(serde_json::to_string(&nothing).unwrap(), "{}");
        assert_eq!(
            serde_json::from_str::<LegacySampling>("{}").unwrap(),
            nothing
        );
    }
}
