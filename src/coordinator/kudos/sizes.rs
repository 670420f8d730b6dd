//! Sizes of models in billions of parameters: known ones, and sizes parsed from names.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::price::size_factor;

/// Larger sizes in a model's name are not trusted.
const LARGEST_NAMED: f64 = 180.0;

/// The sizes of known models, by their served names.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    billions: HashMap<Arc<str>, f64>,
}

impl Prices {
    /// Adds a model's size in billions of parameters. Invalid sizes are ignored.
    #[must_use]
    pub fn with(mut self, model: &str, billions: f64) -> Self {
        if billions.is_finite() && billions > 0.0 {
            self.billions.insert(model.into(), billions);
        }
        self
    }

    /// The effective size of this model on this worker.
    pub fn size(&self, model: &str, is_trusted: bool) -> f64 {
        self.told(model, is_trusted).unwrap_or(1.0)
    }

    /// The known size or, for a trusted owner, the one in the model's name.
    pub fn told(&self, model: &str, is_trusted: bool) -> Option<f64> {
        let said = || size_in(model).filter(|_| is_trusted);
        self.known(model).or_else(said)
    }

    /// Price factor relative to a model of a billion parameters; grows a little faster than the size.
    pub fn size_factor(&self, model: &str) -> f64 {
        size_factor(self.size(model, true))
    }

    /// The effective size of this model.
    pub fn billions(&self, model: &str) -> f64 {
        self.known(model).unwrap_or(1.0)
    }

    /// The known size of a model, under whatever alias or quantization. An adapter `MODEL:NAME` counts as its model.
    pub fn known(&self, model: &str) -> Option<f64> {
        let exact = self.billions.get(model);
        let plainly = || self.billions.get(plain(model));
        let base = || {
            let (base, _) = model.rsplit_once(':')?;
            self.billions
                .get(base)
                .or_else(|| self.billions.get(plain(base)))
        };
        exact.or_else(plainly).or_else(base).copied()
    }
}

/// The name without `::` and its suffix, and without its quantization: `org/tiny` for `org/tiny-Q4_K_M::mine`.
fn plain(name: &str) -> &str {
    let name = name.split_once("::").map_or(name, |(name, _)| name);
    match QUANTIZATION.find(name) {
        Some(found) if found.start() > 0 => &name[..found.start()],
        _ => name,
    }
}

/// A quantization at the end of a name, with its separator.
static QUANTIZATION: LazyLock<Regex> = LazyLock::new(|| {
    let words =
        r"gguf|gptq|awq|exl[23]|b?f(?:p)?(?:8|16|32)|int[48]|[48]-?bit|w\da\d+|i1|\d+(?:\.\d+)?bpw";
    let ggml = r"i?q\d(?:[_-](?:\d|k|nl|xxs|xs|s|m|l|xl))*";
    let pattern = format!(r"(?i)(?:[-._ ](?:{words}|{ggml}))+$");
    Regex::new(&pattern).unwrap_or_else(|_| unreachable!("the constant pattern compiles"))
});

/// The size in a name: 70 for `chronos-70b-v2`, 56 for `mixtral-8x7b`.
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
    use super::{Prices, plain, size_in};

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
    fn aliases_and_quantizations_make_no_other_model() {
        for (name, expected) in [
            ("tiny::mine", "tiny"),
            ("org/tiny-Q4_K_M", "org/tiny"),
            ("org/tiny.i1-IQ3_XXS::a::b", "org/tiny"),
            ("tiny-awq", "tiny"),
            ("tiny-4.0bpw", "tiny"),
            ("tiny-GGUF-q8_0", "tiny"),
            ("tiny-instruct", "tiny-instruct"),
            ("qwen2", "qwen2"),
            ("q4_0", "q4_0"),
        ] {
            assert_eq!(plain(name), expected);
        }
        let prices = Prices::default().with("org/tiny", 7.0);
        assert_eq!(prices.known("org/tiny-Q4_K_M"), Some(7.0));
        assert_eq!(prices.known("org/tin"), None);
        assert_eq!(prices.known("org/tiny:pirate"), Some(7.0));
        assert_eq!(prices.known("org/tiny-Q8_0:pirate"), Some(7.0));
        assert_eq!(prices.known("other:pirate"), None);
    }

    #[test]
    fn only_a_trusted_owners_word_counts_and_never_against_what_is_known() {
        let prices = Prices::default().with("known-70b", 8.0);
        assert_eq!(prices.size("known-70b", true), 8.0);
        assert_eq!(prices.size("unknown-70b", true), 70.0);
        assert_eq!(prices.size("unknown-70b", false), 1.0);
    }
}
