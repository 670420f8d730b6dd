//! Several tokens of a stream in one step: tokens are proposed, the network computes all of them at once, and the draw
//! keeps those that it would have drawn one by one.
//!
//! A proposal never changes a text. Each token is drawn from the logits after the tokens before it, with the random
//! number of its place; a proposal only decides whether those logits are there already. Proposals come from the text
//! itself (`lookup`, which also counts in `hits` how often it is right), steps are measured (`costs`), and `shares`
//! decides how many proposals are worth their time. Pure: the caller measures.

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

/// Whether streams draw several tokens in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speculation {
    /// Where it makes texts faster.
    #[default]
    Auto,
    Off,
    /// Wherever tokens can be proposed, whatever it costs: for measurements and tests.
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

    /// Adds proposals to the rows of a step that reads no prompt. `left` says how many tokens a sequence may still draw.
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
            // The last token is drawn and not computed.
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
