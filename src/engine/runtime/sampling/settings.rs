//! The sampling settings of a request, with the model's defaults filled in and all limits checked.

use std::hash::{BuildHasher, RandomState};

use super::shaping::Shaping;
use crate::runtime::Sampling;

/// Limit of requested alternatives per token.
pub const MAX_LOGPROBS: usize = 20;

/// Below this a temperature means "the best token": the division would only lose digits.
pub(super) const LEAST_TEMPERATURE: f32 = 1e-4;

/// How one sequence is sampled: complete and within bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub(super) temperature: f32,
    /// `usize::MAX` where nothing is cut.
    pub(super) top_k: usize,
    pub(super) top_p: f32,
    pub(super) min_p: f32,
    pub(super) repetition_penalty: f32,
    /// Number of last tokens that count for the penalty; `usize::MAX` for all.
    pub(super) repetition_range: usize,
    pub(super) presence_penalty: f32,
    pub(super) frequency_penalty: f32,
    pub(super) logit_bias: Vec<(u32, f32)>,
    pub(super) seed: u64,
    /// `None` if no setting has an effect.
    pub(super) shaping: Option<Shaping>,
}

impl Settings {
    /// Fills settings that a request omits from the model's defaults, then with neutral values (temperature 1, no
    /// filter, no penalty) and a random seed. The error is for the client.
    pub fn resolve(
        request: &Sampling,
        defaults: &Sampling,
        vocabulary: usize,
    ) -> Result<Self, String> {
        let number = |name: &str, value: Setting, neutral, least, most| {
            let value = value(request).or(value(defaults)).unwrap_or(neutral);
            within(name, value, least, most)
        };
        let all_if_none = |count: Option<usize>| count.filter(|&count| count > 0);
        let top_k = all_if_none(request.top_k.or(defaults.top_k));
        let range = all_if_none(request.repetition_range.or(defaults.repetition_range));
        let bias = if request.logit_bias.is_empty() {
            &defaults.logit_bias
        } else {
            &request.logit_bias
        };
        Ok(Self {
            temperature: number("temperature", |s| s.temperature, 1.0, 0.0, 100.0)?,
            top_k: top_k.unwrap_or(usize::MAX),
            top_p: number("top_p", |s| s.top_p, 1.0, 0.0, 1.0)?,
            min_p: number("min_p", |s| s.min_p, 0.0, 0.0, 1.0)?,
            repetition_penalty: number(
                "repetition_penalty",
                |s| s.repetition_penalty,
                1.0,
                0.01,
                100.0,
            )?,
            repetition_range: range.unwrap_or(usize::MAX),
            presence_penalty: number(
                "presence_penalty",
                |s| s.presence_penalty,
                0.0,
                -100.0,
                100.0,
            )?,
            frequency_penalty: number(
                "frequency_penalty",
                |s| s.frequency_penalty,
                0.0,
                -100.0,
                100.0,
            )?,
            logit_bias: checked_bias(bias, vocabulary)?,
            seed: request.seed.or(defaults.seed).unwrap_or_else(made_up_seed),
            shaping: Some(shaping(number)?).filter(Shaping::acts),
        })
    }

    /// Whether a model may recommend this.
    pub fn check(defaults: &Sampling) -> Result<(), String> {
        let vocabulary = usize::MAX;
        Self::resolve(defaults, &Sampling::default(), vocabulary).map(drop)
    }

    pub fn is_greedy(&self) -> bool {
        let moves = self
            .shaping
            .as_ref()
            .is_some_and(Shaping::moves_temperature);
        self.temperature < LEAST_TEMPERATURE && !moves
    }
}

type Setting = fn(&Sampling) -> Option<f32>;

fn shaping(
    number: impl Fn(&str, Setting, f32, f32, f32) -> Result<f32, String>,
) -> Result<Shaping, String> {
    // Clients disable a proportion by either end.
    let share = |name: &str, value: Setting| {
        let share = number(name, value, 1.0, 0.0, 1.0)?;
        Ok::<_, String>(if share == 0.0 { 1.0 } else { share })
    };
    Ok(Shaping {
        smoothing_factor: number("smoothing_factor", |s| s.smoothing_factor, 0.0, 0.0, 100.0)?,
        dynatemp_range: number("dynatemp_range", |s| s.dynatemp_range, 0.0, 0.0, 100.0)?,
        dynatemp_exponent: number(
            "dynatemp_exponent",
            |s| s.dynatemp_exponent,
            1.0,
            0.0,
            100.0,
        )?,
        top_a: number("top_a", |s| s.top_a, 0.0, 0.0, 1.0)?,
        tfs: share("tfs", |s| s.tfs)?,
        typical: share("typical", |s| s.typical)?,
    })
}

fn within(name: &str, value: f32, least: f32, most: f32) -> Result<f32, String> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(format!(
            "{name} must be between {least} and {most}, found {value}"
        ))
    }
}

fn checked_bias(bias: &[(u32, f32)], vocabulary: usize) -> Result<Vec<(u32, f32)>, String> {
    for &(id, value) in bias {
        if id as usize >= vocabulary {
            return Err(format!(
                "logit_bias has token {id}, but the vocabulary has {vocabulary} tokens"
            ));
        }
        within("logit_bias", value, -1000.0, 1000.0)?;
    }
    Ok(bias.to_vec())
}

/// The standard library seeds its hash maps from the system; that is random enough for an unseeded request.
fn made_up_seed() -> u64 {
    RandomState::new().hash_one("seed")
}

#[cfg(test)]
mod tests {
    use super::Settings;
    use crate::runtime::Sampling;

    #[test]
    fn the_request_goes_before_the_models_defaults() {
        let defaults = Sampling {
            temperature: Some(0.6),
            top_p: Some(0.9),
            ..Sampling::default()
        };
        let request = Sampling {
            temperature: Some(0.0),
            seed: Some(1),
            ..Sampling::default()
        };
        let settings = Settings::resolve(&request, &defaults, 10).unwrap();
        assert!(settings.is_greedy());
        assert_eq!(
            (settings.top_p, settings.min_p, settings.seed),
            (0.9, 0.0, 1)
        );
    }

    #[test]
    fn settings_that_are_off_are_as_good_as_none() {
        let seeded = |asked: Sampling| {
            let seed = Sampling {
                seed: Some(1),
                ..Sampling::default()
            };
            Settings::resolve(&asked, &seed, 10).unwrap()
        };
        for share in [0.0, -0.0, 1.0] {
            let off = Sampling {
                repetition_range: Some(0),
                smoothing_factor: Some(0.0),
                dynatemp_range: Some(0.0),
                dynatemp_exponent: Some(2.0),
                top_a: Some(0.0),
                tfs: Some(share),
                typical: Some(share),
                ..Sampling::default()
            };
            assert_eq!(seeded(off), seeded(Sampling::default()), "{share}");
        }
    }

    #[test]
    fn a_temperature_that_moves_up_from_nothing_is_not_greedy() {
        for (dynatemp_range, is_greedy) in [(0.0, true), (0.5, false)] {
            let asked = Sampling {
                temperature: Some(0.0),
                dynatemp_range: Some(dynatemp_range),
                smoothing_factor: Some(1.0),
                ..Sampling::default()
            };
            let settings = Settings::resolve(&asked, &Sampling::default(), 10).unwrap();
            assert_eq!(settings.is_greedy(), is_greedy, "{dynatemp_range}");
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_by_name() {
        let check = |request: Sampling, wanted: &str| {
            let refusal = Settings::resolve(&request, &Sampling::default(), 10).unwrap_err();
            assert_eq!(refusal, wanted);
        };
        check(
            Sampling {
                top_p: Some(1.5),
                ..Sampling::default()
            },
            "top_p must be between 0 and 1, found 1.5",
        );
        check(
            Sampling {
                temperature: Some(f32::NAN),
                ..Sampling::default()
            },
            "temperature must be between 0 and 100, found NaN",
        );
        check(
            Sampling {
                tfs: Some(-0.5),
                ..Sampling::default()
            },
            "tfs must be between 0 and 1, found -0.5",
        );
        check(
            Sampling {
                smoothing_factor: Some(f32::NAN),
                ..Sampling::default()
            },
            "smoothing_factor must be between 0 and 100, found NaN",
        );
        check(
            Sampling {
                dynatemp_exponent: Some(f32::INFINITY),
                ..Sampling::default()
            },
            "dynatemp_exponent must be between 0 and 100, found inf",
        );
        check(
            Sampling {
                logit_bias: vec![(10, 1.0)],
                ..Sampling::default()
            },
            "logit_bias has token 10, but the vocabulary has 10 tokens",
        );
    }
}
