//! `[[serve.price]]`: prices of models in USD. May be repeated.

use super::raw::Raw;
use super::reader::Reader;
use super::setting::settings;
use super::value::{Place, Value};

settings! {
    /// Price of a model in USD; repeat the section for several.
    pub struct PriceConfig = "serve.price" {
        /// Name of the model, as in /v1/models.
        model: String,
        /// Other names with the same price.
        aliases: Vec<String> = [],
        /// USD per million prompt tokens. Without prices of their own, a second heard counts as 50 and a character spoken as 1.
        input_per_mtok_usd: Option<Usd>; unset "no price for texts",
        /// USD per million generated tokens.
        output_per_mtok_usd: Option<Usd>; unset "no price for texts; embeddings need none",
        /// USD per image.
        per_image_usd: Option<Usd>; unset "no price for images",
        /// USD per second of video.
        per_video_second_usd: Option<Usd>; unset "no price for videos",
        /// USD per second of music.
        per_audio_second_usd: Option<Usd>; unset "no price for music",
        /// USD per minute of a sound that is written down.
        per_minute_heard_usd: Option<Usd>; unset "the price of prompt tokens",
        /// USD per million characters of a text that is spoken.
        per_mchar_spoken_usd: Option<Usd>; unset "the price of prompt tokens",
    }
}

/// An amount of money with at most six decimal places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usd {
    /// Millionths of a dollar.
    pub micro: u64,
}

const MICRO: f64 = 1e6;
const MAX_USD: f64 = 1e6;

impl Usd {
    /// An amount as people write it: `0.05`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_number(text.trim().parse().ok()?)
    }

    fn from_number(usd: f64) -> Option<Self> {
        let micro = (usd * MICRO).round();
        let is_exact = (usd * MICRO - micro).abs() < 1e-3;
        let is_amount = (0.0..=MAX_USD).contains(&usd) && is_exact;
        is_amount.then_some(Self {
            micro: micro as u64,
        })
    }
}

impl Value for Usd {
    fn wanted() -> String {
        "an amount in USD from 0 to 1000000 with at most six decimal places, such as 0.05"
            .to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        let amount = match raw {
            Raw::Whole(usd) => Self::from_number(*usd as f64),
            Raw::Fraction(usd) => Self::from_number(*usd),
            Raw::Untyped(text) => Self::parse(text),
            _ => None,
        };
        amount.ok_or_else(String::new)
    }

    fn show(&self) -> Option<String> {
        Some((self.micro as f64 / MICRO).to_string())
    }
}

impl PriceConfig {
    /// A price by the name of its setting, of those that are no prices of tokens.
    pub fn rate(&self, name: &str) -> Option<Usd> {
        match name {
            "per_image_usd" => self.per_image_usd,
            "per_video_second_usd" => self.per_video_second_usd,
            "per_audio_second_usd" => self.per_audio_second_usd,
            "per_minute_heard_usd" => self.per_minute_heard_usd,
            "per_mchar_spoken_usd" => self.per_mchar_spoken_usd,
            _ => None,
        }
    }

    /// Reads one section. Texts need both rates: prompt and reply are charged together. Embeddings need only the input
    /// rate.
    pub(super) fn read_one(reader: &mut Reader<'_>) -> Option<Self> {
        let price = Self::read(reader)?;
        if price.input_per_mtok_usd.is_some() || price.output_per_mtok_usd.is_none() {
            return Some(price);
        }
        let model = &price.model;
        reader.problem_here(format!(
            "output_per_mtok_usd is set for {model} without input_per_mtok_usd: set both, or input_per_mtok_usd alone \
             for a model of embeddings"
        ));
        None
    }
}

/// A name that two prices claim: a model's own or an alias, in any case.
pub fn priced_twice(prices: &[PriceConfig]) -> Option<&str> {
    let mut seen = std::collections::HashSet::new();
    let names = prices
        .iter()
        .flat_map(|price| std::iter::once(&price.model).chain(&price.aliases));
    let mut names = names.map(String::as_str);
    names.find(|name| !seen.insert(name.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::Usd;

    #[test]
    fn an_amount_is_exact_to_a_millionth_of_a_dollar() {
        let check = |text, micro: Option<u64>| {
            assert_eq!(Usd::parse(text).map(|usd| usd.micro), micro, "{text}");
        };
        check("0", Some(0));
        check("0.05", Some(50_000));
        check("0.000001", Some(1));
        check("12.5", Some(12_500_000));
        for wrong in ["-1", "0.0000001", "1000001", "NaN", "inf", "one", ""] {
            check(wrong, None);
        }
    }
}
