//! How large models are, in billions of parameters: what is known, and what a name tells.

use std::collections::HashMap;
use std::sync::Arc;

use super::price::size_factor;

/// A name is only a word: larger ones are not believed.
const LARGEST_NAMED: f64 = 180.0;

/// The sizes of known models, by the names they are served under.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    billions: HashMap<Arc<str>, f64>,
}

impl Prices {
    /// A model of so many billions of parameters. Sizes that are none are left out.
    #[must_use]
    pub fn with(mut self, model: &str, billions: f64) -> Self {
        if billions.is_finite() && billions > 0.0 {
            self.billions.insert(model.into(), billions);
        }
        self
    }

    /// The size that counts for this model where this worker serves it.
    pub fn size(&self, model: &str, is_trusted: bool) -> f64 {
        let known = self.billions.get(model).copied();
        let said = || size_in(model).filter(|_| is_trusted);
        known.or_else(said).unwrap_or(1.0)
    }

    /// By how much this model is dearer than one of a billion parameters: larger ones a little more than they are
    /// larger.
    pub fn size_factor(&self, model: &str) -> f64 {
        size_factor(self.size(model, true))
    }

    /// The size that counts for this model.
    pub fn billions(&self, model: &str) -> f64 {
        self.known(model).unwrap_or(1.0)
    }

    /// Its size, if it is known.
    pub fn known(&self, model: &str) -> Option<f64> {
        self.billions.get(model).copied()
    }
}

/// The size that a name tells: 70 of `chronos-70b-v2`, 56 of `mixtral-8x7b`.
fn size_in(name: &str) -> Option<f64> {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.');
    let mut sizes = words.filter_map(|word| {
        let number = word.strip_suffix(['b', 'B'])?;
        let factors = number.split(['x', 'X']).map(|factor| factor.parse::<f64>());
        factors.product::<Result<f64, _>>().ok()
    });
    let sane = |size: &f64| (0.05..=LARGEST_NAMED).contains(size);
    sizes.rfind(sane)
}

#[cfg(test)]
mod tests {
    use super::{Prices, size_in};

    #[test]
    fn a_name_tells_the_size() {
        for (name, size) in [
            ("elinas/chronos-70b-v2", Some(70.0)),
            ("koboldcpp/Qwen2.5-0.5B-Instruct", Some(0.5)),
            ("aphrodite/mixtral-8x7B", Some(56.0)),
            ("Llama-3.2-1B", Some(1.0)),
            ("a 100000b model", None),
            ("tiny", None),
            ("crumb", None),
            ("b", None),
            ("nan-b", None),
            ("infb", None),
        ] {
            assert_eq!(size_in(name), size, "{name}");
        }
    }

    #[test]
    fn only_a_trusted_owners_word_counts_and_never_against_what_is_known() {
        let prices = Prices::default().with("known-70b", 8.0);
        assert_eq!(prices.size("known-70b", true), 8.0);
        assert_eq!(prices.size("unknown-70b", true), 70.0);
        assert_eq!(prices.size("unknown-70b", false), 1.0);
    }
}
