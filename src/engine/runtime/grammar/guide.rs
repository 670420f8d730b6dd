//! The grammar state of one sequence.

use std::sync::Arc;
use std::time::Duration;

use llguidance::Matcher;

use crate::runtime::sampling::TokenMask;
use muster_process::cpu_time::thread_time;

/// The most tokens that are forced at once: more would hold up the other sequences of a step.
const MOST_FORCED: usize = 32;

/// A mask that takes longer is late, since other sequences of the step may wait for it.
const LONGEST_MASK: Duration = Duration::from_millis(20);
/// This many late masks end the sequence.
const MOST_LATE: u32 = 3;

/// The grammar of one sequence, after the tokens it has.
pub struct Guide {
    matcher: Matcher,
    mask: TokenMask,
    /// Whether the mask belongs to the current tokens.
    is_ready: bool,
    late_masks: u32,
    /// The error of a missing mask, if it is final.
    dead_end: Option<DeadEnd>,
    /// Moving average of the time per mask, where the latest counts half.
    cost: Duration,
    /// Steps that went on without it since its last mask.
    skipped_steps: u32,
    /// Tokens that end the text, and may do so only where the grammar accepts.
    pub ends: Vec<u32>,
    /// Tokens that may not be the first: their space would be lost with the text's first.
    not_first: Option<Arc<[u32]>>,
    tokens: usize,
}

/// No token can follow, or the grammar takes too much work. Ends this sequence and no other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the grammar cannot be followed after {tokens} tokens: {cause}")]
pub struct DeadEnd {
    pub tokens: usize,
    pub cause: String,
}

impl std::fmt::Debug for Guide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guide")
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

impl Guide {
    /// `ends` are the end-of-text tokens, `not_first` the tokens that must not begin the text.
    pub fn new(matcher: Matcher, ends: Vec<u32>, not_first: Option<Arc<[u32]>>) -> Self {
        Self {
            matcher,
            mask: TokenMask::default(),
            is_ready: false,
            late_masks: 0,
            dead_end: None,
            cost: Duration::ZERO,
            skipped_steps: 0,
            ends,
            not_first,
            tokens: 0,
        }
    }

    /// The allowed next tokens. Computed at most once per token.
    pub fn mask(&mut self) -> Result<&TokenMask, DeadEnd> {
        if let Some(dead_end) = &self.dead_end {
            return Err(dead_end.clone());
        }
        if !self.is_ready {
            let computed = self.compute_mask();
            self.dead_end = computed.clone().err();
            computed?;
            self.is_ready = true;
        }
        Ok(&self.mask)
    }

    /// The order in which masks of a step are computed, the cheapest first; a sequence that was passed over gains on the
    /// others.
    pub fn rank(&self) -> Duration {
        self.cost / (1 + self.skipped_steps)
    }

    /// Counts a step that runs without the sequence.
    pub fn skip_step(&mut self) {
        self.skipped_steps += 1;
    }

    /// Whether its mask is known.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The last step went on without it.
    pub fn is_skipped(&self) -> bool {
        self.skipped_steps > 0
    }

    fn compute_mask(&mut self) -> Result<(), DeadEnd> {
        let began = thread_time();
        let mask = self.matcher.compute_mask();
        let took = thread_time().saturating_sub(began);
        self.cost = (self.cost + took) / 2;
        self.skipped_steps = 0;
        self.late_masks += u32::from(took > LONGEST_MASK);
        if self.late_masks >= MOST_LATE {
            return Err(self.dead_end("it takes too long to follow"));
        }
        let mask = mask.map_err(|error| self.dead_end(&error.to_string()))?;
        self.mask.copy_words(mask.as_slice());
        let is_accepting = self.is_accepting();
        for &id in &self.ends {
            self.mask.set(id, is_accepting);
        }
        if let Some(not_first) = self.not_first.as_ref().filter(|_| self.tokens == 0) {
            for &id in not_first.iter() {
                self.mask.set(id, false);
            }
        }
        Ok(())
    }

    /// Advances by a token that the mask allowed, or that another worker sampled.
    pub fn take(&mut self, id: u32) -> Result<(), DeadEnd> {
        if self.ends.contains(&id) {
            return Ok(());
        }
        if self.is_finished() {
            return Err(self.dead_end("it is complete"));
        }
        self.is_ready = false;
        let taken = self.matcher.consume_token(id);
        taken.map_err(|error| self.dead_end(&error.to_string()))?;
        self.tokens += 1;
        Ok(())
    }

    /// Advances by the tokens that the grammar forces.
    pub fn take_forced(&mut self) -> Result<Vec<u32>, DeadEnd> {
        if self.is_finished() {
            return Ok(Vec::new());
        }
        let mut forced = self.matcher.compute_ff_tokens();
        forced.truncate(MOST_FORCED);
        if let Some(end) = forced.iter().position(|id| self.ends.contains(id)) {
            forced.truncate(end);
        }
        for &id in &forced {
            self.take(id)?;
        }
        Ok(forced)
    }

    /// Whether the text is complete: no token can follow.
    pub fn is_finished(&self) -> bool {
        self.matcher.is_stopped() && self.matcher.stop_reason().is_ok()
    }

    /// The text may end here.
    pub fn is_accepting(&mut self) -> bool {
        self.is_finished() || self.matcher.is_accepting().unwrap_or(false)
    }

    /// The request bans every token that could follow.
    pub fn all_banned(&self) -> DeadEnd {
        self.dead_end("every token that it allows is banned by the request")
    }

    fn dead_end(&self, cause: &str) -> DeadEnd {
        DeadEnd {
            tokens: self.tokens,
            cause: first_line(cause),
        }
    }
}

/// The error message without the following dump of the parser's state.
pub fn first_line(message: &str) -> String {
    let line = match message.lines().next().unwrap_or_default() {
        "NoExtensionBias" | "NoExtension" => "no text satisfies it",
        // The lines between show the pattern.
        line if line.ends_with(':') => message.lines().last().unwrap_or(line),
        line => line,
    };
    line.chars().take(300).collect()
}
