//! The prices of models, by name or alias, case-insensitive.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::{JobPrice, MicroUsd};
use muster_protocol::job::{Kind, PriceUnit};

/// Prices of a model; `None` if there is no price for that kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelRates {
    pub input_per_mtok: Option<MicroUsd>,
    pub output_per_mtok: Option<MicroUsd>,
    /// By the units that kinds name.
    pub of_kinds: [Option<MicroUsd>; Kind::ALL.len()],
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PriceBook {
    version: Option<String>,
    models: BTreeMap<String, ModelRates>,
    /// Alias to the name in `models`.
    aliases: BTreeMap<String, String>,
}

/// The output kind of a price, from its name in quotes.
pub fn modality(name: &str) -> Option<Kind> {
    match name {
        "transcript" => Some(Kind::Transcription),
        "speech" => Some(Kind::Speech),
        name => Kind::listed(name),
    }
}

impl ModelRates {
    #[must_use]
    pub fn with(mut self, kind: Kind, rate: Option<MicroUsd>) -> Self {
        self.of_kinds[kind as usize] = rate;
        self
    }

    /// The price of a unit of a kind.
    pub fn of(&self, kind: Kind) -> Option<MicroUsd> {
        self.of_kinds[kind as usize]
    }

    /// The rates of a text, without a hold; `None` if one of them is missing.
    pub fn text(&self) -> Option<JobPrice> {
        Some(JobPrice {
            input_per_mtok: self.input_per_mtok?,
            output_per_mtok: self.output_per_mtok?,
            ..JobPrice::default()
        })
    }

    /// The rates of embeddings and scores, without an output price.
    pub fn reading(&self) -> Option<JobPrice> {
        Some(JobPrice {
            input_per_mtok: self.input_per_mtok?,
            ..JobPrice::default()
        })
    }

    /// Price of transcribing this much audio, rounded up. Without a price per minute its tokens are billed, 50 per
    /// second.
    pub fn transcription(&self, millis: u64) -> Option<JobPrice> {
        let Some(per_minute) = self.of(Kind::Transcription) else {
            return self.reading();
        };
        Some(JobPrice {
            fixed: share(per_minute, millis, MILLIS_A_MINUTE),
            ..JobPrice::default()
        })
    }

    /// Price of a speech of this many characters, rounded up. A character counts as a token if there is no price for
    /// characters.
    pub fn spoken(&self, characters: u64) -> Option<MicroUsd> {
        let per_million = self.of(Kind::Speech).or(self.input_per_mtok)?;
        Some(share(per_million, characters, MILLION))
    }

    /// Price of one output of a kind other than text, with its length if billed by time, rounded up.
    pub fn output(&self, kind: Kind, millis: u64) -> Option<MicroUsd> {
        let kind = kind.listed_as();
        let rate = self.of(kind)?;
        match kind.facts().rate?.unit {
            PriceUnit::Output => Some(rate),
            PriceUnit::Second => Some(share(rate, millis, MILLIS_A_SECOND)),
            PriceUnit::Minute | PriceUnit::MillionCharacters => None,
        }
    }
}

const MILLIS_A_SECOND: u64 = 1000;
const MILLIS_A_MINUTE: u64 = 60_000;
const MILLION: u64 = 1_000_000;

/// The price of `parts` where `whole` of them cost `price`, rounded up.
fn share(price: MicroUsd, parts: u64, whole: u64) -> MicroUsd {
    let whole = i128::from(whole);
    let micro = (i128::from(price.0) * i128::from(parts) + whole - 1) / whole;
    MicroUsd(i64::try_from(micro).unwrap_or(i64::MAX))
}

impl PriceBook {
    pub fn new(version: Option<String>) -> Self {
        Self {
            version,
            ..Self::default()
        }
    }

    #[must_use]
    pub fn with<'a>(
        mut self,
        model: &str,
        aliases: impl IntoIterator<Item = &'a str>,
        rates: ModelRates,
    ) -> Self {
        let model = model.to_lowercase();
        for alias in aliases {
            self.aliases.insert(alias.to_lowercase(), model.clone());
        }
        self.models.insert(model, rates);
        self
    }

    /// The price of the first of these names that has one.
    pub fn rates<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<&ModelRates> {
        let mut names = names.into_iter().map(str::to_lowercase);
        names.find_map(|name| {
            let model = self.aliases.get(&name).unwrap_or(&name);
            self.models.get(model)
        })
    }

    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelRates)> {
        let models = self.models.iter();
        models.map(|(name, rates)| (name.as_str(), rates))
    }

    pub fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        let aliases = self.aliases.iter();
        aliases.map(|(alias, model)| (alias.as_str(), model.as_str()))
    }

    /// The operator's version, or a digest of the prices.
    pub fn version(&self) -> String {
        if let Some(version) = &self.version {
            return version.clone();
        }
        let text = format!("{:?} {:?}", self.models, self.aliases);
        let digest = Sha256::digest(text.as_bytes());
        HEXLOWER.encode(&digest[..6])
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, MicroUsd, ModelRates, PriceBook};

    fn rates(input: i64, output: i64) -> ModelRates {
        ModelRates {
            input_per_mtok: Some(MicroUsd(input)),
            output_per_mtok: Some(MicroUsd(output)),
            ..ModelRates::default()
        }
    }

    #[test]
    fn text_cost_is_rounded_up_once() {
        let rates = rates(50_000, 150_000);
        let check = |prompt, output, micro| {
            let cost = rates.text().unwrap().of_tokens(prompt, output);
            assert_eq!(cost, MicroUsd(micro), "{prompt} and {output}");
        };
        check(0, 0, 0);
        check(1, 0, 1);
        check(10, 10, 2);
        check(20, 0, 1);
        check(21, 0, 2);
        check(1_000_000, 1_000_000, 200_000);
    }

    #[test]
    fn text_without_both_rates_has_no_price() {
        let free = rates(0, 0);
        assert_eq!(free.text().unwrap().of_tokens(100, 100), MicroUsd(0));
        let half = ModelRates {
            output_per_mtok: None,
            ..free
        };
        assert_eq!(half.text(), None);
        assert_eq!(half.reading().unwrap().of_tokens(9, 0), MicroUsd(0));
        let reads = ModelRates {
            output_per_mtok: None,
            ..rates(1_000_000, 1)
        };
        assert_eq!(reads.reading().unwrap().of_tokens(9, 9), MicroUsd(9));
    }

    #[test]
    fn the_length_of_videos_and_audio_is_paid_and_of_images_their_number() {
        let rates = ModelRates::default()
            .with(Kind::Image, Some(MicroUsd(7)))
            .with(Kind::Music, Some(MicroUsd(10)));
        assert_eq!(rates.output(Kind::Image, 0), Some(MicroUsd(7)));
        assert_eq!(rates.output(Kind::Music, 1501), Some(MicroUsd(16)));
        assert_eq!(rates.output(Kind::Video, 1000), None);
        assert_eq!(rates.output(Kind::Mesh, 1000), None);
    }

    #[test]
    fn minutes_heard_and_characters_spoken_have_prices_of_their_own() {
        let rates = rates(1, 1)
            .with(Kind::Transcription, Some(MicroUsd(6000)))
            .with(Kind::Speech, Some(MicroUsd(15_000_000)));
        let transcribed = |millis| rates.transcription(millis).unwrap().of_tokens(9999, 0);
        assert_eq!(transcribed(60_000), MicroUsd(6000));
        assert_eq!(transcribed(2501), MicroUsd(251));
        assert_eq!(rates.spoken(12), Some(MicroUsd(180)));
        let by_tokens = ModelRates {
            input_per_mtok: Some(MicroUsd(1_000_000)),
            ..ModelRates::default()
        };
        let transcribed = by_tokens.transcription(2501).unwrap();
        assert_eq!(transcribed.of_tokens(126, 0), MicroUsd(126));
        assert_eq!(by_tokens.spoken(12), Some(MicroUsd(12)));
        assert_eq!(ModelRates::default().transcription(1), None);
        assert_eq!(ModelRates::default().spoken(1), None);
    }

    #[test]
    fn price_is_found_by_name_or_alias_in_any_case() {
        let book = PriceBook::new(None).with("Demo-8B", ["demo-fp8"], rates(1, 2));
        for name in ["demo-8b", "DEMO-8B", "Demo-FP8"] {
            assert!(book.rates([name]).is_some(), "{name}");
        }
        assert!(book.rates(["other"]).is_none());
        assert!(book.rates(["other", "demo-8b"]).is_some());
    }

    #[test]
    fn version_changes_with_the_prices() {
        let one = PriceBook::new(None).with("a", [], rates(1, 2));
        let other = PriceBook::new(None).with("a", [], rates(1, 3));
        assert_ne!(one.version(), other.version());
        let named = PriceBook::new(Some("7".to_owned()));
        assert_eq!(named.version(), "7");
    }
}
