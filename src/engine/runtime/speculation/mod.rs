//! Speculative decoding: tokens are drafted, the network computes all of them in one step, and sampling accepts those
//! that it would have sampled one by one.
//!
//! A draft never changes a text. Each token is sampled from the logits after the tokens before it, with the random
//! number of its index; a draft only decides whether those logits are available already. Drafts come from the text
//! itself (`lookup`, with hit rates in `hits`), steps are measured (`costs`), and `shares` decides how many draft
//! tokens are worth their time. Pure: the caller measures.

mod costs;
mod hits;
mod lookup;
mod shares;

use std::collections::BTreeMap;
use std::time::Duration;

use super::scheduler::{Generating, Row, Scheduler, SequenceId};
use costs::StepCosts;
use lookup::Lookup;
pub use shares::MOST_PROPOSED;
use shares::{MOST_OF_STREAM, shares};

/// When texts use speculative decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speculation {
    /// If it makes texts faster.
    #[default]
    Auto,
    Off,
    /// Whenever tokens can be drafted, whatever the cost: for measurements and tests.
    Always,
}

/// Proposes the tokens of one model's sequences.
#[derive(Debug)]
pub struct Speculator {
    setting: Speculation,
    lookups: BTreeMap<SequenceId, Lookup>,
    costs: StepCosts,
}

impl Speculator {
    pub fn new(setting: Speculation) -> Self {
        Self {
            setting,
            lookups: BTreeMap::new(),
            costs: StepCosts::default(),
        }
    }

    /// Adds draft tokens to the rows of a step without prompts. `left` returns the number of tokens that a sequence may
    /// still sample.
    pub fn propose(
        &mut self,
        scheduler: &mut Scheduler,
        rows: &mut [Row],
        left: impl Fn(SequenceId) -> usize,
    ) {
        if self.setting == Speculation::Off {
            return;
        }
        let (mut proposals, mut chances) = (Vec::new(), Vec::new());
        for row in &*rows {
            let tokens = scheduler.tokens(row.id);
            let lookup = self.lookups.entry(row.id).or_default();
            lookup.follow(tokens);
            // The last token is sampled but never computed.
            let most = left(row.id).saturating_sub(1).min(MOST_OF_STREAM);
            let (proposed, chance) = lookup.propose(tokens, most);
            proposals.push(proposed);
            chances.push(chance);
        }
        let shares = self.shares(rows, &chances);
        for ((row, mut proposed), share) in rows.iter_mut().zip(proposals).zip(shares) {
            proposed.truncate(share);
            scheduler.propose(row, proposed);
        }
    }

    /// Learns from a step without prompts.
    pub fn record(&mut self, generating: Generating, elapsed: Duration) {
        if self.setting == Speculation::Auto && generating.tokens > 0 {
            self.costs.record(generating.tokens, elapsed.as_secs_f64());
        }
    }

    pub fn forget(&mut self, id: SequenceId) {
        self.lookups.remove(&id);
    }

    fn shares(&self, rows: &[Row], chances: &[Vec<f64>]) -> Vec<usize> {
        let each = |share| vec![share; rows.len()];
        if self.setting == Speculation::Always {
            return each((MOST_PROPOSED / rows.len().max(1)).min(MOST_OF_STREAM));
        }
        let tokens = rows.iter().map(|row| row.tokens.len()).sum();
        match self.costs.curve(tokens) {
            Some(curve) => shares(rows.len(), tokens, chances, &curve),
            None => each(0),
        }
    }
}

#[cfg(test)]
mod simulation;
