//! A network with the cache of one sequence as a [`Model`]: one job at a time, from its first token on.

use std::collections::BTreeSet;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::model::Model;
use crate::networks::single_sequence::SingleSequenceNetwork;
use crate::networks::text::Batch;

/// Prompt rows whose logits are in memory at once.
const SCORED_ROWS: usize = 32;

/// Prompt tokens of a step where each has a pass of its own: between two steps jobs are cancelled.
const SINGLE_PASSES: usize = 16;

pub struct SingleSequenceModel {
    network: Box<dyn SingleSequenceNetwork>,
    vocabulary: usize,
    context: usize,
    device: Device,
    /// Tokens in the cache; `None` after an error, until the next sequence begins.
    computed: Option<usize>,
}

impl SingleSequenceModel {
    /// For sequences of up to `context` tokens.
    pub fn new(
        network: Box<dyn SingleSequenceNetwork>,
        vocabulary: usize,
        context: usize,
        device: Device,
    ) -> Self {
        Self {
            network,
            vocabulary,
            context,
            device,
            computed: None,
        }
    }

    /// The next pass: its logits, `[1, vocabulary]` of the last token.
    fn pass(&mut self, tokens: &[u32], past: usize) -> Result<Tensor> {
        let tokens = Tensor::new(tokens, &self.device)?.unsqueeze(0)?;
        let logits = self.network.forward(&tokens, past)?;
        logits.reshape((1, self.vocabulary))?.to_dtype(DType::F32)
    }

    fn check(&self, batch: &Batch) -> Result<usize> {
        let [span] = batch.spans.as_slice() else {
            let spans = batch.spans.len();
            bail!("the network computes one sequence at a time, but the step has {spans}");
        };
        let (new, past) = (span.new_tokens, span.past_tokens);
        if new == 0 || new != batch.tokens.len() {
            let tokens = batch.tokens.len();
            bail!("the span holds {new} tokens, but the step has {tokens}");
        }
        match self.computed {
            _ if past + new > self.context => bail!(
                "a sequence of {} tokens does not fit the context of {}",
                past + new,
                self.context
            ),
            Some(computed) if past == computed => Ok(past),
            _ if past == 0 => Ok(past),
            Some(computed) => {
                bail!("the sequence has {past} tokens, but the network has computed {computed}")
            }
            None => bail!("the sequence has {past} tokens, but the network has lost them"),
        }
    }
}

impl Model for SingleSequenceModel {
    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn runs_one_sequence(&self) -> bool {
        true
    }

    fn step_tokens(&self, past: usize) -> usize {
        self.network.pass_tokens(past).max(SINGLE_PASSES)
    }

    /// The cache grows with its sequence.
    fn resize_cache(&mut self, _pages: usize, _kept: &[u32]) -> Result<()> {
        Ok(())
    }

    fn forward(
        &mut self,
        batch: &Batch,
        scored: &[u32],
        take: &mut dyn FnMut(Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        let past = self.check(batch)?;
        self.computed = None;
        if past == 0 {
            self.network.clear()?;
        }
        let count = batch.tokens.len();
        let drawn: BTreeSet<usize> = batch.logit_rows.iter().map(|&row| row as usize).collect();
        let scored: BTreeSet<usize> = scored.iter().map(|&row| row as usize).collect();
        let (mut logits, mut scores) = (Vec::new(), Vec::new());
        let mut first = 0;
        while first < count {
            let pass = self.network.pass_tokens(past + first).max(1);
            // A pass has the logits of its last token alone.
            let asked = drawn.range(first..).chain(scored.range(first..)).min();
            let asked = asked.map_or(count, |row| row + 1);
            let end = count.min(asked).min(first + pass);
            let last = self.pass(&batch.tokens[first..end], past + first)?;
            if scored.contains(&(end - 1)) {
                scores.push(last.clone());
            }
            if drawn.contains(&(end - 1)) {
                logits.push(last);
            }
            if scores.len() == SCORED_ROWS || (end == count && !scores.is_empty()) {
                take(Tensor::cat(&scores, 0)?)?;
                scores.clear();
            }
            first = end;
        }
        self.computed = Some(past + count);
        match logits.is_empty() {
            true => Tensor::zeros((0, self.vocabulary), DType::F32, &Device::Cpu),
            false => Tensor::cat(&logits, 0),
        }
    }
}
