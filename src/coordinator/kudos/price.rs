//! What text is worth, as the legacy network prices it:
//!
//! ```text
//! t(n)   = min(max(20, n), longest)                        tokens, in place of its characters by four
//! c      = 1.2 + 2.2 ^ log2(t(prompt) / 1024)              within 0.1 and 30
//! reward = t(output) · (max(p, 13) / 13) ^ 0.2 · p / 125 · c                        at least 0.1
//! ```
//!
//! p is the model's size in billions of parameters. Where nobody knows it, the word of a trusted owner counts, in the
//! name under which the model is served, and else it is 1. (Elsewhere an unknown model is worth c to whoever is not
//! trusted, however much it writes, and 0.027 · c a token to others, as if it had 3.4 billions. Here whoever writes more
//! earns more, and what a worker earns does not depend on whether it polls.) The reward is rounded to
//! thousandths, the unit of the ledger. Who asked pays the reward and one kudos more.
//!
//! A worker that polls is paid 0.3 of that unless its software is known to return what a model said, which its agent
//! tells. Workers on a socket are paid without it: their agent is whatever they write there, none of the validated ones
//! speaks this protocol, and what they deliver is counted here.

use crate::protocol::job::Kudos;
use crate::protocol::legacy::agent::BridgeAgent;

use super::sizes::Prices;

/// What the requester pays beyond the rewards of the workers.
pub const FEE: Kudos = Kudos(1000);

/// The most that one job can be worth, so that no sum can overflow: a billion kudos.
const MOST: f64 = 1e12;

const FEWEST_TOKENS: u32 = 20;
/// The least that work is worth: a tenth of a kudos, as workers on a socket are used to.
const LEAST: f64 = 100.0;

/// The tokens that count, of an output that could have had so many.
pub fn counted_tokens(tokens: u32, longest: Option<u32>) -> u32 {
    tokens.max(FEWEST_TOKENS).min(longest.unwrap_or(u32::MAX))
}

/// What is left of a text reward for this software, if the worker polls with it.
pub fn backend_factor(agent: Option<&str>) -> f64 {
    let is_validated = agent.is_none_or(|agent| BridgeAgent::parse(agent).is_validated());
    if is_validated { 1.0 } else { 0.3 }
}

/// What one token of output is worth after a prompt of this length, in thousandths of a kudos.
pub fn per_token(prompt_tokens: u32, billions: f64) -> f64 {
    size_factor(billions) / 125.0 * context_factor(prompt_tokens) * 1000.0
}

fn context_factor(tokens: u32) -> f64 {
    let tokens = f64::from(tokens.max(FEWEST_TOKENS));
    (1.2 + 2.2_f64.powf((tokens / 1024.0).log2())).clamp(0.1, 30.0)
}

/// What `n` texts are said to cost before anything is written, in whole kudos: each as long as it may become, after a
/// prompt that fills the context, by the largest of the models that were named.
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

/// By how much something worth so many thousandths is raised, so that work is worth its least.
pub fn raise(worth: f64) -> f64 {
    match worth > 0.0 && worth < LEAST {
        true => LEAST / worth,
        false => 1.0,
    }
}

/// To whole thousandths; never below nothing.
pub fn rounded(thousandths: f64) -> Kudos {
    // Within the range of i64 by the clamp, and NaN becomes nothing.
    Kudos(thousandths.round().clamp(0.0, MOST) as i64)
}
