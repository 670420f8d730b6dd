//! A loaded model and the sequences that run on it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::adapters::ResidentAdapters;
use super::images::{FailedPass, Images};
use crate::networks::text::Batch;
use crate::runtime::grammar::Guide;
use crate::runtime::kv_cache::{AdapterId, CacheKey};
use crate::runtime::model::{self, Model};
use crate::runtime::outbox::{SLOW_READER_TOKENS, TooSlow};
use crate::runtime::sampling::{BadLogits, Sampler, Scratch};
use crate::runtime::scheduler::pace::Pace;
use crate::runtime::scheduler::{Generating, Limits, Row, Scheduler, SequenceId};
use crate::runtime::sequence::{Job, NoToken, Sequence, SequenceAdvance};
use crate::runtime::speculation::{Speculation, Speculator};
use crate::runtime::text::Language;
use crate::runtime::work::Queue;
use crate::runtime::{Failure, FinishReason, LoadError, ModelInfo, ModelStatus, TokenInfo};
use muster_kernels::{HostFloats, PAGE_TOKENS, Span, cpu};

/// Masks may take this part of a step without prompts, and at least so long.
const MASK_SHARE: u32 = 4;
const LEAST_MASK_TIME: Duration = Duration::from_millis(2);

pub struct Resident {
    pub info: Arc<ModelInfo>,
    model: Box<dyn Model>,
    language: Arc<Language>,
    scheduler: Scheduler,
    pace: Pace,
    speculator: Speculator,
    sequences: BTreeMap<SequenceId, Sequence>,
    adapters: ResidentAdapters,
    images: Images,
    served: Duration,
    // Reused in each step to avoid allocations.
    batch: Batch,
    scored: ScoredRows,
    logits: HostFloats,
    /// A scratch buffer per sampling thread.
    scratches: Vec<Scratch>,
}

/// A sequence that samples in this step, and its result.
struct Draw<'r, 'a> {
    row: &'r Row,
    sequence: &'a mut Sequence,
    /// Rows of the newest token and of the draft tokens after it.
    logits: Vec<&'a mut [f32]>,
    advance: SequenceAdvance,
}

/// Rows of a step whose logits give log probabilities of prompt tokens.
#[derive(Debug, Default)]
struct ScoredRows {
    rows: Vec<u32>,
    targets: Vec<ScoredToken>,
}

/// The token after a row.
#[derive(Debug, Clone, Copy)]
struct ScoredToken {
    sequence: SequenceId,
    id: u32,
    alternatives: usize,
}

/// Finds log probabilities while logits come.
struct Scoring<'a> {
    rows: &'a [ScoredToken],
    vocabulary: usize,
    scratches: &'a mut [Scratch],
    found: Vec<(SequenceId, Result<TokenInfo, BadLogits>)>,
}

impl ScoredRows {
    fn clear(&mut self) {
        self.rows.clear();
        self.targets.clear();
    }

    /// Adds the log probabilities that a sequence requests from a row of the step, whose first token is the batch's
    /// token `first`. `tokens` are all tokens of the sequence.
    fn add(&mut self, first: usize, row: &Row, sequence: &Sequence, tokens: &[u32]) {
        let followed = row.tokens.start + 1..row.tokens.end + 1;
        let Some((wanted, alternatives)) = sequence.unscored(&followed) else {
            return;
        };
        for at in wanted {
            let Some(&id) = tokens.get(at) else {
                return;
            };
            self.rows.push((first + at - followed.start) as u32);
            self.targets.push(ScoredToken {
                sequence: row.id,
                id,
                alternatives,
            });
        }
    }
}

impl Scoring<'_> {
    /// The logits of the next rows, shared by all threads.
    fn take(&mut self, logits: &mut [f32]) {
        let rows = self.rows.iter().skip(self.found.len());
        let mut rows: Vec<_> = rows.zip(logits.chunks_exact(self.vocabulary)).collect();
        let share = rows.len().div_ceil(self.scratches.len()).max(1);
        let mut shares: Vec<_> = rows
            .chunks_mut(share)
            .zip(self.scratches.iter_mut())
            .map(|(rows, scratch)| (rows, scratch, Vec::new()))
            .collect();
        cpu::each(&mut shares, logits.len(), |(rows, scratch, found)| {
            found.extend(rows.iter().map(|(token, logits)| {
                let scored = Sampler::score(token.id, logits, token.alternatives, scratch);
                (token.sequence, scored)
            }));
        });
        let found = shares.into_iter().flat_map(|(.., found)| found);
        self.found.extend(found);
    }
}

impl Resident {
    pub fn new(
        info: Arc<ModelInfo>,
        model: Box<dyn Model>,
        language: Arc<Language>,
        limits: Limits,
        speculation: Speculation,
        pages: usize,
    ) -> Self {
        let is_single = model.runs_one_sequence();
        let limits = Limits {
            max_running: if is_single { 1 } else { limits.max_running },
            ..limits
        };
        let scheduler = Scheduler::new(limits, pages);
        let (scheduler, speculation) = match model.keeps_states() {
            true => (scheduler.with_states(), Speculation::Off),
            false if is_single => (scheduler, Speculation::Off),
            false => (scheduler, speculation),
        };
        Self {
            info,
            model,
            language,
            scheduler,
            pace: Pace::new(limits.prefill_chunk),
            speculator: Speculator::new(speculation),
            sequences: BTreeMap::new(),
            adapters: ResidentAdapters::default(),
            images: Images::default(),
            served: Duration::ZERO,
            batch: Batch::default(),
            scored: ScoredRows::default(),
            logits: HostFloats::default(),
            scratches: (0..cpu::threads()).map(|_| Scratch::default()).collect(),
        }
    }

    /// Changes the number of pages, but keeps those of the longest sequence that the model takes. Returns their number.
    /// After an error every sequence has failed.
    pub fn resize_cache(&mut self, pages: usize) -> candle_core::Result<usize> {
        let longest = self.info.context.div_ceil(PAGE_TOKENS);
        let pages = match self.model.runs_one_sequence() {
            true => longest,
            false => pages.max(longest),
        };
        let kept = self.scheduler.resize(pages);
        if let Err(error) = self.model.resize_cache(pages, &kept) {
            self.fail_all(&Failure::internal(model::plain(&error)));
            self.scheduler.clear();
            return Err(error);
        }
        Ok(pages)
    }

    /// Whether jobs that name this are for the model, or for it with an adapter.
    pub fn serves(&self, name: &str) -> bool {
        self.info.name == name || self.has_adapter(name)
    }

    pub fn has_adapter(&self, name: &str) -> bool {
        self.adapters.contains(name)
    }

    pub fn adapter_names(&self) -> impl Iterator<Item = &str> {
        self.adapters.names()
    }

    /// Loads an adapter; its bytes.
    pub fn load_adapter(
        &mut self,
        name: &str,
        id: AdapterId,
        path: &Path,
    ) -> Result<u64, LoadError> {
        let weights = self.model.load_adapter(path)?;
        let bytes = weights.bytes();
        self.adapters.insert(name, id, weights);
        Ok(bytes)
    }

    /// Jobs that run with the adapter fail.
    pub fn unload_adapter(&mut self, name: &str, failure: &Failure) {
        for id in self.adapters.remove(name) {
            self.fail(id, failure.clone());
        }
    }

    pub fn queue(&self) -> Queue {
        Queue {
            has_work: !self.scheduler.is_idle(),
            served: self.served,
        }
    }

    pub fn status(&self) -> ModelStatus {
        ModelStatus {
            info: Arc::clone(&self.info),
            running: self.scheduler.running(),
            waiting: self.scheduler.waiting(),
            free_pages: self.scheduler.free_pages(),
            pages: self.scheduler.pages(),
        }
    }

    /// Takes a job in. `level` is where its device time starts to count if it was idle.
    pub fn admit(&mut self, id: SequenceId, job: Job, level: Duration) {
        if self.scheduler.is_idle() {
            self.served = level;
        }
        let key = CacheKey {
            scope: job.scope,
            adapter: self.adapters.begin(id, &job.model),
            images: job.images.spans(),
        };
        let (sequence, tokens, reason) = Sequence::begin(job, &self.language);
        if let Some(reason) = reason {
            self.adapters.end(id);
            return sequence.finish(reason);
        }
        match sequence.scores_prompt() || self.model.runs_one_sequence() {
            true => self.scheduler.submit_uncached(id, key, tokens),
            false => self.scheduler.submit(id, key, tokens),
        }
        self.sequences.insert(id, sequence);
    }

    /// Frees sequences whose callers have stopped listening.
    pub fn retire_abandoned(&mut self) {
        let abandoned = self
            .sequences
            .iter()
            .filter(|(_, sequence)| sequence.is_abandoned());
        let abandoned: Vec<SequenceId> = abandoned.map(|(&id, _)| id).collect();
        for id in abandoned {
            self.remove(id);
        }
    }

    /// How long a step without prompts takes while sequences generate here; zero if none does.
    pub fn generating_step(&self) -> Duration {
        match self.scheduler.is_generating() {
            true => self.pace.undisturbed().unwrap_or_default(),
            false => Duration::ZERO,
        }
    }

    /// Runs a step of all sequences of this model. `others` is the sum of the other models' decode steps.
    pub fn step(&mut self, others: Duration) {
        let began = Instant::now();
        let mut rows = self.scheduler.plan();
        let mut masks = self.masks(&mut rows);
        let plain = Generating::of(&rows);
        let limit = self.pace.prompt_limit(plain, others);
        if self.scheduler.reads_prompts() {
            masks += self.advance_images();
            // Such a step is bound by products: a proposed token would cost as much as one of the prompt.
            self.add_prompts(&mut rows, limit);
            masks += self.masks(&mut rows);
        } else {
            let left = |id| self.sequences.get(&id).map_or(0, Sequence::left);
            self.speculator
                .propose(&mut self.scheduler, &mut rows, left);
        }
        if rows.is_empty() {
            // Prompts wait for their images.
            self.served += began.elapsed();
            return;
        }
        if let Err(error) = self.fill_batch(&rows) {
            self.fail_rows(&rows, &error);
            self.served += began.elapsed();
            return;
        }
        let mut scoring = Scoring {
            rows: &self.scored.targets,
            vocabulary: self.model.vocabulary().max(1),
            scratches: &mut self.scratches,
            found: Vec::with_capacity(self.scored.targets.len()),
        };
        let mut copies = self.scheduler.take_state_copies().into_iter();
        let copied = copies.try_for_each(|copy| self.model.copy_state(copy));
        let mut host = std::mem::take(&mut self.logits);
        let logits = copied
            .and_then(|()| {
                self.model
                    .forward(&self.batch, &self.scored.rows, &mut |logits| {
                        scoring.take(host.read(&logits)?);
                        Ok(())
                    })
            })
            .and_then(|logits| host.read(&logits));
        let found = scoring.found;
        match logits {
            Ok(logits) => {
                self.scheduler.advance(&rows);
                self.take_scored(found);
                self.draw(&rows, logits);
            }
            Err(error) => self.fail_rows(&rows, &error),
        }
        self.logits = host;
        if !self.scheduler.reads_prompts() {
            self.images.clear();
        }
        // Masks and images count in the model's share of the thread, and not in the pace of its network.
        self.served += masks;
        self.record(&rows, plain, began.elapsed().saturating_sub(masks));
    }

    /// Computes grammar masks of rows that sample, the cheapest first, within a shared time budget. A row without its
    /// mask skips the step. Returns the elapsed time.
    fn masks(&mut self, rows: &mut Vec<Row>) -> Duration {
        let began = Instant::now();
        let mut sequences: BTreeMap<_, _> = self.sequences.iter_mut().collect();
        let draws = rows.iter().filter(|row| row.draws);
        let guided = draws.filter_map(|row| {
            let guide = sequences.remove(&row.id)?.guide_mut()?;
            Some((guide, row.id))
        });
        let mut guided: Vec<(&mut Guide, SequenceId)> = guided.collect();
        if guided.is_empty() {
            return Duration::ZERO;
        }
        guided.sort_by_key(|(guide, _)| guide.rank());
        let undisturbed = self.pace.undisturbed().unwrap_or_default();
        let until = began + (undisturbed / MASK_SHARE).max(LEAST_MASK_TIME);
        // Sorted by cost across threads, so that expensive masks are computed in parallel.
        let cost = self.model.vocabulary() * guided.len();
        let threads = self.scratches.len().min(guided.len());
        let mut shares: Vec<Vec<&mut Guide>> = (0..threads).map(|_| Vec::new()).collect();
        for (at, (guide, _)) in guided.iter_mut().enumerate() {
            shares[at % threads].push(guide);
        }
        cpu::each(&mut shares, cost, |share| {
            for (at, guide) in share.iter_mut().enumerate() {
                let in_time = at == 0 || Instant::now() < until;
                match in_time || guide.is_ready() {
                    // A dead end is reported when the sequence samples.
                    true => drop(guide.mask().is_ok()),
                    false => guide.skip_step(),
                }
            }
        });
        let skipped = guided.iter().filter(|(guide, _)| guide.is_skipped());
        let skipped: Vec<SequenceId> = skipped.map(|(_, id)| *id).collect();
        rows.retain(|row| !skipped.contains(&row.id));
        began.elapsed()
    }

    fn record(&mut self, rows: &[Row], plain: Generating, elapsed: Duration) {
        self.served += elapsed;
        let prompt_tokens = rows.iter().map(|row| row.tokens.len()).sum::<usize>() - plain.tokens;
        if rows.iter().all(|row| row.proposed.is_empty()) {
            self.pace.record(plain, prompt_tokens, elapsed);
        }
        if prompt_tokens == 0 {
            self.speculator.record(Generating::of(rows), elapsed);
        }
    }

    /// Ends every sequence.
    pub fn fail_all(&mut self, failure: &Failure) {
        for (id, sequence) in std::mem::take(&mut self.sequences) {
            self.scheduler.finish(id);
            sequence.fail(failure.clone());
        }
    }

    /// Runs one block of the vision tower for images that prompts wait for. Returns the elapsed time.
    fn advance_images(&mut self) -> Duration {
        let began = Instant::now();
        let advanced = self
            .images
            .advance(&*self.model, &self.sequences, &self.scheduler);
        if let Err(FailedPass { digest, error }) = advanced {
            let failure = Failure::internal(model::plain(&error));
            let has_it = |sequence: &Sequence| {
                let mut images = sequence.images().iter();
                images.any(|image| image.image.digest() == digest)
            };
            let having = self.sequences.iter().filter(|(_, it)| has_it(it));
            let having: Vec<SequenceId> = having.map(|(&id, _)| id).collect();
            for id in having {
                self.fail(id, failure.clone());
            }
        }
        began.elapsed()
    }

    /// Adds prompt tokens to the step, none before the images that they belong to are seen.
    fn add_prompts(&mut self, rows: &mut Vec<Row>, limit: usize) {
        let (sequences, images) = (&self.sequences, &self.images);
        let ready = |id, tokens: Range<usize>| {
            let most = self.model.step_tokens(tokens.start);
            let end = tokens.end.min(tokens.start.saturating_add(most));
            let tokens = tokens.start..end;
            let sequence: Option<&Sequence> = sequences.get(&id);
            sequence.map_or(tokens.end, |it| images.readable(it.images(), tokens))
        };
        self.scheduler.add_ready_prompts(rows, limit, &ready);
    }

    fn fill_batch(&mut self, rows: &[Row]) -> candle_core::Result<()> {
        self.batch.tokens.clear();
        self.batch.spans.clear();
        self.batch.states.clear();
        self.batch.logit_rows.clear();
        self.batch.images.clear();
        self.batch.positions.clear();
        self.batch.adapters.clear();
        self.scored.clear();
        let has_axes = |row: &Row| {
            let sequence = self.sequences.get(&row.id);
            sequence.is_some_and(|sequence| sequence.images().has_axes())
        };
        let some_have_axes = rows.iter().any(has_axes);
        for row in rows {
            let Some((tokens, pages)) = self.scheduler.row_input(row) else {
                continue;
            };
            let first = self.batch.tokens.len();
            self.batch.tokens.extend_from_slice(tokens);
            if let Some(sequence) = self.sequences.get(&row.id) {
                let tokens = self.scheduler.tokens(row.id);
                self.scored.add(first, row, sequence, tokens);
                let images = sequence.images();
                self.images.add_rows(&mut self.batch, first, row, images)?;
                if some_have_axes {
                    let tokens = row.tokens.start..row.tokens.start + row.new_tokens();
                    let positions = tokens.map(|token| images.position(token));
                    self.batch.positions.extend(positions);
                }
            }
            let newest = self.batch.tokens.len() - 1;
            self.batch.tokens.extend_from_slice(&row.proposed);
            self.batch.spans.push(Span {
                new_tokens: row.new_tokens(),
                past_tokens: row.tokens.start,
                pages: pages.to_vec(),
            });
            self.batch.states.extend(self.scheduler.state(row.id));
            self.batch.adapters.push(self.adapters.of(row.id));
            if row.draws {
                let drawn = newest..self.batch.tokens.len();
                self.batch.logit_rows.extend(drawn.map(|row| row as u32));
            }
        }
        Ok(())
    }

    /// Hands log probabilities of prompts to their sequences.
    fn take_scored(&mut self, found: Vec<(SequenceId, Result<TokenInfo, BadLogits>)>) {
        let mut heard: Vec<SequenceId> = Vec::new();
        for (id, token) in found {
            let Some(sequence) = self.sequences.get_mut(&id) else {
                continue;
            };
            match token {
                Ok(token) => sequence.take_scored(token),
                Err(error) => self.fail(id, NoToken::from(error).into()),
            }
            if heard.last() != Some(&id) {
                heard.push(id);
            }
        }
        for id in heard {
            let Some(sequence) = self.sequences.get_mut(&id) else {
                continue;
            };
            sequence.start(self.scheduler.cached_tokens(id));
            self.flush(id);
        }
    }

    fn flush(&mut self, id: SequenceId) {
        let flushed = self.sequences.get_mut(&id).map(Sequence::flush);
        if flushed == Some(Err(TooSlow)) {
            let unread = SLOW_READER_TOKENS;
            self.fail(id, Failure::SlowReader { unread });
        }
    }

    fn draw(&mut self, rows: &[Row], logits: &mut [f32]) {
        let vocabulary = self.model.vocabulary().max(1);
        let cost = logits.len();
        let mut sequences: BTreeMap<_, _> = self.sequences.iter_mut().collect();
        let mut logits = logits.chunks_exact_mut(vocabulary);
        let mut draws = Vec::new();
        for row in rows.iter().filter(|row| row.draws) {
            let logits = logits.by_ref().take(1 + row.proposed.len()).collect();
            if let Some(sequence) = sequences.remove(&row.id) {
                draws.push(Draw {
                    row,
                    sequence,
                    logits,
                    advance: SequenceAdvance::default(),
                });
            }
        }
        draw_on_all_threads(&mut draws, &mut self.scratches, &self.language, cost);
        let drawn = draws.into_iter().map(|draw| (draw.row, draw.advance));
        for (row, advance) in drawn.collect::<Vec<_>>() {
            self.take(row, advance);
        }
    }

    /// Applies a sequence's sampled tokens.
    fn take(&mut self, row: &Row, advance: SequenceAdvance) {
        let Some(sequence) = self.sequences.get_mut(&row.id) else {
            return;
        };
        sequence.start(self.scheduler.cached_tokens(row.id));
        match advance.end {
            Some(Ok(reason)) => return self.finish(row.id, reason),
            Some(Err(error)) => return self.fail(row.id, error.into()),
            None => self.scheduler.accept(row, &advance.tokens),
        }
        self.flush(row.id);
    }

    fn fail_rows(&mut self, rows: &[Row], error: &candle_core::Error) {
        let failure = Failure::internal(model::plain(error));
        for row in rows {
            self.fail(row.id, failure.clone());
        }
    }

    fn finish(&mut self, id: SequenceId, reason: FinishReason) {
        if let Some(sequence) = self.remove(id) {
            sequence.finish(reason);
        }
    }

    fn fail(&mut self, id: SequenceId, failure: Failure) {
        if let Some(sequence) = self.remove(id) {
            sequence.fail(failure);
        }
    }

    fn remove(&mut self, id: SequenceId) -> Option<Sequence> {
        self.scheduler.finish(id);
        self.speculator.forget(id);
        self.adapters.end(id);
        self.sequences.remove(&id)
    }
}

/// Sequences sample independently, so the threads share them evenly.
fn draw_on_all_threads(
    draws: &mut [Draw],
    scratches: &mut [Scratch],
    language: &Language,
    cost: usize,
) {
    let share = draws.len().div_ceil(scratches.len()).max(1);
    let mut shares: Vec<_> = draws.chunks_mut(share).zip(scratches).collect();
    cpu::each(&mut shares, cost, |(draws, scratch)| {
        for draw in &mut **draws {
            let Draw {
                row,
                sequence,
                logits,
                advance,
            } = draw;
            *advance = sequence.advance(logits, &row.proposed, language, scratch);
        }
    });
}
