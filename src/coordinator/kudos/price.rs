//! The price of text, as in the public network:
//!
//! ```text
//! t(n)   = min(max(20, n), longest)
//! c      = 1.2 + 2.2 ^ log2(t(prompt) / 1024)                                  within 0.1 and 30
//! reward = t(output) · (max(p, 13) / 13) ^ 0.2 · p / 125 · c
//! ```
//!
//! n is a number of tokens and p the model's size in billions of parameters, from the catalog or, for a trusted owner's
//! worker, from the name under which it serves the model. The reward is rounded to thousandths, the unit of the ledger.
//! The requester pays the reward and a fee of one kudos.
//!
//! | | polling worker | socket worker |
//! | --- | --- | --- |
//! | n | one for every four characters, or part of them | tokens, counted here |
//! | p of an unknown model | reward = c, or t(output) · c · 0.027 for trusted owners | 1 |
//! | software not validated to return the model's output unchanged | 0.3 of it for a known model | as any |
//! | least reward | none | 0.1 |
//!
//! So polling workers earn as in the public network, and socket workers are paid for the tokens they stream. A socket
//! worker's agent is not verified, and no validated software speaks that protocol.

use muster_protocol::job::Kudos;
use muster_protocol::legacy::agent::BridgeAgent;

use super::sizes::Prices;

/// The requester's fee beyond the rewards of the workers.
pub const FEE: Kudos = Kudos(1000);

/// Limit of one job's price, so that no sum can overflow: a billion kudos.
const MOST: f64 = 1e12;

const FEWEST_TOKENS: u32 = 20;
/// Per token of an unknown model, before the factor of the context.
const UNKNOWN_PER_TOKEN: f64 = 0.027;
/// Minimum reward: a tenth of a kudos, as socket workers expect.
const LEAST: f64 = 100.0;

/// The billed tokens of an output with this limit.
pub fn counted_tokens(tokens: u32, longest: Option<u32>) -> u32 {
    tokens.max(FEWEST_TOKENS).min(longest.unwrap_or(u32::MAX))
}

fn backend_factor(agent: &str) -> f64 {
    match BridgeAgent::parse(agent).is_validated() {
        true => 1.0,
        false => 0.3,
    }
}

/// The price of one output token after a prompt of this length, in thousandths of a kudos.
pub fn per_token(prompt_tokens: u32, billions: f64) -> f64 {
    size_factor(billions) / 125.0 * context_factor(prompt_tokens.max(FEWEST_TOKENS)) * 1000.0
}

/// The price of tokens that are only read, in thousandths of a kudos. A network reads many tokens in the time in which
/// it writes one.
pub fn read(tokens: u32, billions: f64) -> f64 {
    const WRITTEN_FOR_ONE: f64 = 20.0;
    let worth = f64::from(tokens) / WRITTEN_FOR_ONE * per_token(0, billions);
    worth.max(LEAST)
}

/// A text from a polling worker, in estimated tokens.
#[derive(Debug, Clone, Copy)]
pub struct Polled<'a> {
    pub prompt: u32,
    pub output: u32,
    pub longest: Option<u32>,
    pub billions: Option<f64>,
    pub is_trusted: bool,
    pub agent: &'a str,
}

impl Polled<'_> {
    /// In thousandths of a kudos.
    pub fn worth(self) -> f64 {
        let output = f64::from(counted_tokens(self.output, self.longest));
        let context = context_factor(counted_tokens(self.prompt, self.longest)) * 1000.0;
        match (self.billions, self.is_trusted) {
            (Some(billions), _) => {
                output * size_factor(billions) / 125.0 * context * backend_factor(self.agent)
            }
            (None, true) => output * context * UNKNOWN_PER_TOKEN,
            (None, false) => context,
        }
    }
}

fn context_factor(tokens: u32) -> f64 {
    (1.2 + 2.2_f64.powf((f64::from(tokens) / 1024.0).log2())).clamp(0.1, 30.0)
}

/// Estimated price of `n` texts, in whole kudos: each as long as allowed, after a prompt that fills the context, by the
/// largest of the named models.
pub fn estimate_text(length: u32, context: u32, models: &[&str], prices: &Prices, n: u32) -> f64 {
    let sizes = models.iter().map(|model| prices.size_factor(model));
    let size = sizes.reduce(f64::max).unwrap_or(13.0);
    let each = f64::from(length) * size * context_factor(context) / 100.0;
    ((each + FEE.0 as f64 / 1000.0) * f64::from(n) + 1.0).round()
}

pub fn size_factor(billions: f64) -> f64 {
    (billions.max(13.0) / 13.0).powf(0.2) * billions
}

/// The reward for a whole output.
pub fn price_text(
    prompt_tokens: u32,
    output_tokens: u32,
    longest: Option<u32>,
    billions: f64,
) -> Kudos {
    let tokens = f64::from(counted_tokens(output_tokens, longest));
    let worth = tokens * per_token(prompt_tokens, billions);
    rounded(worth * raise(worth))
}

/// The factor that raises a price in thousandths to the minimum.
pub fn raise(worth: f64) -> f64 {
    match worth > 0.0 && worth < LEAST {
        true => LEAST / worth,
        false => 1.0,
    }
}

/// Whole thousandths, at least zero.
pub fn rounded(thousandths: f64) -> Kudos {
    // The clamp keeps it within i64, and NaN becomes 0.
    Kudos(thousandths.round().clamp(0.0, MOST) as i64)
}
