//! Sampling settings of the AI Horde API without a neutral equivalent. These settings travel with the job, so that a
//! polling worker gets its client's own settings, and our own engine samples by them.
//!
//! Numbers stay as they were written, since they are passed on and never used for arithmetic here.

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
    /// Settings that change the output and that only polling workers honour: our own engine applies one repetition
    /// penalty over a range, in an order of its own. Other workers are not excluded by them, because many clients send
    /// every setting with its neutral value.
    pub fn only_for_legacy_workers(&self) -> Vec<&'static str> {
        /// The order that neutral settings are applied in, as far as there are such.
        const USUAL_ORDER: [i64; 7] = [6, 0, 1, 2, 3, 4, 5];
        let Some(legacy) = &self.legacy else {
            return Vec::new();
        };
        let order = legacy.sampler_order.as_ref();
        // How a penalty is spread says nothing where there is none.
        let penalized = self
            .repetition_penalty
            .is_some_and(|penalty| penalty != 1.0);
        let slope = legacy.rep_pen_slope.is_some_and(|slope| slope != 0.0);
        let settings = [
            ("rep_pen_slope", penalized && slope),
            (
                "sampler_order",
                order.is_some_and(|order| *order != USUAL_ORDER),
            ),
            (
                "use_default_badwordsids",
                legacy.use_default_badwordsids == Some(true),
            ),
        ];
        let acting = settings.into_iter().filter(|(_, acts)| *acts);
        acting.map(|(name, _)| name).collect()
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
            use_default_badwordsids: Some(true),
            ..idle()
        };
        let named = ["sampler_order", "use_default_badwordsids"];
        check(None, Some(acting), &named);
        check(Some(1.1), Some(idle()), &["rep_pen_slope"]);
    }

    #[test]
    fn what_the_engine_honours_is_not_named() {
        let honoured = LegacySampling {
            typical: Some(0.9),
            tfs: Some(0.9),
            top_a: Some(0.1),
            rep_pen_slope: None,
            smoothing_factor: Some(0.3),
            dynatemp_range: Some(0.5),
            ..idle()
        };
        check(Some(1.1), Some(honoured), &[]);
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
