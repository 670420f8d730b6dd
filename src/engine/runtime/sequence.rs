//! One running job: what it has said, how it chooses, and who listens.

use tokio::sync::OwnedSemaphorePermit;

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
    /// Tokens of an interrupted run.
    pub generated: Vec<u32>,
    pub sampler: Sampler,
    /// Counted from the first token of all, and never more than the context has room for.
    pub max_tokens: usize,
    pub stops: StopStrings,
    pub stop_rules: StopRules,
    pub detokenizer: Detokenizer,
    pub outbox: Outbox,
    /// One of the engine's places, free again when the job ends.
    pub place: OwnedSemaphorePermit,
}

/// A job among the others, without its tokens: those are the scheduler's.
pub struct Sequence {
    usage: Usage,
    max_tokens: usize,
    sampler: Sampler,
    stops: StopStrings,
    stop_rules: StopRules,
    detokenizer: Detokenizer,
    outbox: Outbox,
    has_started: bool,
    /// The text of the newest token, kept for its memory.
    text: String,
    _place: OwnedSemaphorePermit,
}

impl Sequence {
    /// The sequence, its known tokens, and why it is over already if the tokens it continues say so.
    pub fn begin(job: Job, language: &Language) -> (Self, Vec<u32>, Option<FinishReason>) {
        let mut sequence = Self {
            usage: Usage {
                prompt_tokens: job.prompt.len(),
                ..Usage::default()
            },
            max_tokens: job.max_tokens,
            sampler: job.sampler,
            stops: job.stops,
            stop_rules: job.stop_rules,
            detokenizer: job.detokenizer,
            outbox: job.outbox,
            has_started: false,
            text: String::new(),
            _place: job.place,
        };
        let reason = sequence.replay(&job.generated, language);
        let mut tokens = job.prompt;
        tokens.extend(job.generated);
        (sequence, tokens, reason)
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

    /// Chooses the next token.
    pub fn draw(
        &mut self,
        logits: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<TokenInfo, BadLogits> {
        self.sampler
            .sample(logits, None, self.usage.completion_tokens, scratch)
    }

    /// Takes the token in, and says why it was the last if it was.
    pub fn accept(&mut self, token: TokenInfo, language: &Language) -> Option<FinishReason> {
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

    /// Brings the text side to where the interrupted run left it. Its text was delivered then.
    fn replay(&mut self, generated: &[u32], language: &Language) -> Option<FinishReason> {
        for &id in generated {
            let reason = self.read(id, language);
            self.outbox.text.clear();
            if reason.is_some() {
                // The last text left with the last token; only the end is told again.
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
            // No stop string is looked for yet.
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
