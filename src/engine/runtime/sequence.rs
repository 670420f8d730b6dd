//! A running job: its text so far, its sampler, and its event channel.

use std::ops::Range;

use tokio::sync::OwnedSemaphorePermit;

use super::grammar::{DeadEnd, Guide};
use super::images::PromptImages;
use super::kv_cache::CacheScope;
use super::outbox::{Outbox, TooSlow};
use super::sampling::{BadLogits, Sampler, Scratch};
use super::text::{Detokenizer, Language, StopStrings};
use super::{Event, Failure, FinishReason, StopRules, TokenInfo, Usage};

/// A request made ready: everything but its place among the others.
pub struct Job {
    pub model: String,
    pub scope: CacheScope,
    pub prompt: Vec<u32>,
    pub images: PromptImages,
    /// Returns log probabilities of prompt tokens, and of this many alternatives.
    pub prompt_logprobs: Option<usize>,
    /// Tokens of an interrupted run.
    pub generated: Vec<u32>,
    pub sampler: Sampler,
    /// Counts from the first generated token, including those of an interrupted run, and is limited by the context.
    pub max_tokens: usize,
    /// The grammar's state after `generated`.
    pub guide: Option<Guide>,
    pub stops: StopStrings,
    pub stop_rules: StopRules,
    pub detokenizer: Detokenizer,
    pub outbox: Outbox,
    /// A permit of the engine, released when the job ends.
    pub place: OwnedSemaphorePermit,
}

/// The tokens that a sequence took from the logits of one step.
#[derive(Debug, Default)]
pub struct SequenceAdvance {
    pub tokens: Vec<u32>,
    /// Why they are its last.
    pub end: Option<Result<FinishReason, NoToken>>,
}

/// Result of sampling.
enum DrawOutcome {
    /// A sampled token, and forced tokens after it.
    Tokens(TokenInfo, Vec<u32>),
    /// The text is complete.
    Nothing,
}

/// The reason why a sequence cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum NoToken {
    #[error(transparent)]
    BadLogits(#[from] BadLogits),
    #[error(transparent)]
    DeadEnd(#[from] DeadEnd),
}

impl From<NoToken> for Failure {
    fn from(error: NoToken) -> Self {
        match error {
            NoToken::BadLogits(error) => Self::internal(error),
            NoToken::DeadEnd(error) => Self::BadRequest(error.to_string()),
        }
    }
}

/// A job during generation, without its tokens, which the scheduler owns.
pub struct Sequence {
    usage: Usage,
    images: PromptImages,
    scoring: Option<PromptScoring>,
    max_tokens: usize,
    sampler: Sampler,
    guide: Option<Guide>,
    stops: StopStrings,
    stop_rules: StopRules,
    detokenizer: Detokenizer,
    outbox: Outbox,
    has_started: bool,
    /// The text of the newest token, kept for its memory.
    text: String,
    _place: OwnedSemaphorePermit,
}

/// Log probabilities of a prompt's tokens.
#[derive(Debug, Clone, Copy)]
pub struct PromptScoring {
    pub alternatives: usize,
    /// How many tokens have theirs, the first among them, which needs none.
    pub scored: usize,
}

impl Sequence {
    /// The sequence, its known tokens, and the finish reason if the tokens that it continues already end the text.
    pub fn begin(job: Job, language: &Language) -> (Self, Vec<u32>, Option<FinishReason>) {
        let scoring = job.prompt_logprobs.map(|alternatives| PromptScoring {
            alternatives,
            scored: 1,
        });
        let mut sequence = Self {
            usage: Usage {
                prompt_tokens: job.prompt.len(),
                ..Usage::default()
            },
            images: job.images,
            scoring,
            max_tokens: job.max_tokens,
            sampler: job.sampler,
            guide: job.guide,
            stops: job.stops,
            stop_rules: job.stop_rules,
            detokenizer: job.detokenizer,
            outbox: job.outbox,
            has_started: false,
            text: String::new(),
            _place: job.place,
        };
        if let (Some(_), Some(&first)) = (sequence.scoring, job.prompt.first()) {
            let first = TokenInfo::without_logprob(first);
            sequence.outbox.prompt.push(first);
        }
        let reason = sequence.replay(&job.generated, language);
        let reason = reason.or_else(|| sequence.is_complete().then_some(FinishReason::EndOfTurn));
        let mut tokens = job.prompt;
        tokens.extend(job.generated);
        (sequence, tokens, reason)
    }

    pub fn images(&self) -> &PromptImages {
        &self.images
    }

    pub fn is_abandoned(&self) -> bool {
        self.outbox.is_abandoned()
    }

    /// Says once how much of the prompt was found computed.
    pub fn start(&mut self, cached_tokens: usize) {
        if !self.has_started {
            self.has_started = true;
            self.usage.cached_tokens = cached_tokens.min(self.usage.prompt_tokens);
            self.outbox
                .start(self.usage.prompt_tokens, self.usage.cached_tokens);
        }
    }

    /// Whether every row of its prompt has to be computed.
    pub fn scores_prompt(&self) -> bool {
        self.scoring.is_some()
    }

    /// The prompt tokens among these without a log probability, and the number of alternatives.
    pub fn unscored(&self, tokens: &Range<usize>) -> Option<(Range<usize>, usize)> {
        let scoring = self.scoring?;
        let start = tokens.start.max(scoring.scored);
        let end = tokens.end.min(self.usage.prompt_tokens);
        (start < end).then_some((start..end, scoring.alternatives))
    }

    /// Takes the next token of the prompt with its log probability.
    pub fn take_scored(&mut self, token: TokenInfo) {
        if let Some(scoring) = &mut self.scoring {
            scoring.scored += 1;
            self.outbox.prompt.push(token);
        }
    }

    /// Samples tokens from `logits`: the first row belongs to the newest token, the others to draft tokens, which count
    /// as long as the samples agree with them.
    pub fn advance(
        &mut self,
        logits: &mut [&mut [f32]],
        proposed: &[u32],
        language: &Language,
        scratch: &mut Scratch,
    ) -> SequenceAdvance {
        let mut advance = SequenceAdvance::default();
        if self.max_tokens == 0 {
            advance.end = Some(Ok(FinishReason::Length));
        }
        while advance.end.is_none() && proposed.starts_with(&advance.tokens) {
            let Some(row) = logits.get_mut(advance.tokens.len()) else {
                break;
            };
            let drawn = self.draw(row, scratch);
            advance.end = match drawn {
                Ok(DrawOutcome::Tokens(token, forced)) => {
                    let end = self.take(token, forced, language, &mut advance.tokens);
                    end.map(Ok)
                }
                Ok(DrawOutcome::Nothing) => Some(Ok(FinishReason::EndOfTurn)),
                Err(error) => Some(Err(error)),
            };
        }
        advance
    }

    /// Adds a sampled token and those forced after it, and returns the finish reason if the last of them ended the
    /// text.
    fn take(
        &mut self,
        token: TokenInfo,
        forced: Vec<u32>,
        language: &Language,
        taken: &mut Vec<u32>,
    ) -> Option<FinishReason> {
        let forced = forced.into_iter().map(TokenInfo::without_logprob);
        for token in std::iter::once(token).chain(forced) {
            taken.push(token.id);
            let reason = self.accept(token, language);
            if reason.is_some() {
                return reason;
            }
        }
        self.is_complete().then_some(FinishReason::EndOfTurn)
    }

    pub fn guide_mut(&mut self) -> Option<&mut Guide> {
        self.guide.as_mut()
    }

    /// Number of tokens it may still sample.
    pub fn left(&self) -> usize {
        self.max_tokens - self.usage.completion_tokens
    }

    /// Samples the next token, and appends tokens that the grammar forces.
    fn draw(&mut self, logits: &mut [f32], scratch: &mut Scratch) -> Result<DrawOutcome, NoToken> {
        let index = self.usage.completion_tokens;
        let Some(guide) = &mut self.guide else {
            let token = self.sampler.sample(logits, None, index, scratch)?;
            return Ok(DrawOutcome::Tokens(token, Vec::new()));
        };
        let mask = guide.mask()?;
        let token = match self.sampler.sample(logits, Some(mask), index, scratch) {
            // The grammar allows only an end token, which the request bans.
            Err(BadLogits::NothingAllowed) if guide.is_accepting() => {
                return Ok(DrawOutcome::Nothing);
            }
            Err(BadLogits::NothingAllowed) => return Err(guide.all_banned().into()),
            token => token?,
        };
        guide.take(token.id)?;
        // A forced token has no logits that its log probability could be read from.
        if self.sampler.wants_logprobs() || guide.ends.contains(&token.id) {
            return Ok(DrawOutcome::Tokens(token, Vec::new()));
        }
        let forced = guide.take_forced()?;
        for &id in &forced {
            self.sampler.count(id);
        }
        Ok(DrawOutcome::Tokens(token, forced))
    }

    /// The grammar leaves nothing to add.
    fn is_complete(&self) -> bool {
        self.guide.as_ref().is_some_and(Guide::is_finished)
    }

    /// Adds the token, and returns the finish reason if it was the last one.
    fn accept(&mut self, token: TokenInfo, language: &Language) -> Option<FinishReason> {
        let reason = self.read(token.id, language);
        self.outbox.tokens.push(token);
        reason
    }

    pub fn flush(&mut self) -> Result<(), TooSlow> {
        self.outbox.flush()
    }

    pub fn finish(mut self, reason: FinishReason) {
        self.start(0);
        if !matches!(reason, FinishReason::Stop(_)) {
            self.stops.finish(&mut self.outbox.text);
        }
        let usage = self.usage;
        self.outbox.finish(Event::Done { reason, usage });
    }

    pub fn fail(self, failure: Failure) {
        self.outbox.finish(Event::Failed(failure));
    }

    /// Restores the text state of an interrupted run, whose text was already delivered.
    fn replay(&mut self, generated: &[u32], language: &Language) -> Option<FinishReason> {
        for &id in generated {
            let reason = self.read(id, language);
            self.outbox.text.clear();
            if reason.is_some() {
                // The interrupted run has delivered all text; only the end is sent again.
                self.stops = StopStrings::default();
                return reason;
            }
        }
        None
    }

    fn read(&mut self, id: u32, language: &Language) -> Option<FinishReason> {
        self.usage.completion_tokens += 1;
        if language.ends.contains(&id) || self.stop_rules.stop_token_ids.contains(&id) {
            return Some(FinishReason::EndOfTurn);
        }
        self.text.clear();
        self.detokenizer.push(language.pieces(), id, &mut self.text);
        if self.usage.completion_tokens < self.stop_rules.min_tokens {
            // Stop strings do not apply yet.
            self.outbox.text.push_str(&self.text);
            return self.is_full();
        }
        if let Some(stop) = self.stops.push(&self.text, &mut self.outbox.text) {
            return Some(FinishReason::Stop(stop.to_owned()));
        }
        self.is_full()
    }

    fn is_full(&self) -> Option<FinishReason> {
        (self.usage.completion_tokens >= self.max_tokens).then_some(FinishReason::Length)
    }
}
