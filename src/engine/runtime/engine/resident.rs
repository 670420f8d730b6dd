//! A loaded model and the sequences that run on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::work::Queue;
use crate::networks::text::Batch;
use crate::runtime::model::{self, Model};
use crate::runtime::outbox::{SLOW_READER_TOKENS, TooSlow};
use crate::runtime::sampling::Scratch;
use crate::runtime::scheduler::{Limits, Row, Scheduler, SequenceId};
use crate::runtime::sequence::{DrawOutcome, Job, NoToken, Sequence};
use crate::runtime::text::Language;
use crate::runtime::{Failure, FinishReason, ModelInfo, ModelStatus, TokenInfo};
use muster_kernels::{Span, cpu};

pub struct Resident {
    pub info: Arc<ModelInfo>,
    model: Box<dyn Model>,
    language: Arc<Language>,
    scheduler: Scheduler,
    sequences: BTreeMap<SequenceId, Sequence>,
    served: Duration,
    // Kept from step to step for their memory.
    batch: Batch,
    /// One for each thread that draws.
    scratches: Vec<Scratch>,
}

/// A sequence that is to draw, and what it drew.
struct Draw<'a> {
    id: SequenceId,
    sequence: &'a mut Sequence,
    logits: &'a mut [f32],
    drawn: Option<Result<DrawOutcome, NoToken>>,
}

impl Resident {
    pub fn new(
        info: Arc<ModelInfo>,
        model: Box<dyn Model>,
        language: Arc<Language>,
        limits: Limits,
        pages: usize,
    ) -> Self {
        Self {
            info,
            model,
            language,
            scheduler: Scheduler::new(limits, pages),
            sequences: BTreeMap::new(),
            served: Duration::ZERO,
            batch: Batch::default(),
            scratches: (0..cpu::threads()).map(|_| Scratch::default()).collect(),
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
        let scope = job.scope;
        let (sequence, tokens, reason) = Sequence::begin(job, &self.language);
        if let Some(reason) = reason {
            return sequence.finish(reason);
        }
        self.scheduler.submit(id, scope, tokens);
        self.sequences.insert(id, sequence);
    }

    /// Frees what belongs to sequences nobody listens to any more.
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

    /// One step of everything that runs here.
    pub fn step(&mut self) {
        let began = Instant::now();
        let rows = self.scheduler.plan();
        self.fill_batch(&rows);
        let logits = self
            .model
            .forward(&self.batch)
            .and_then(|logits| model::to_host(&logits));
        match logits {
            Ok(mut logits) => {
                self.scheduler.advance(&rows);
                self.draw(&rows, &mut logits);
            }
            Err(error) => self.fail_rows(&rows, &error),
        }
        self.served += began.elapsed();
    }

    /// Ends every sequence.
    pub fn fail_all(&mut self, failure: &Failure) {
        for (id, sequence) in std::mem::take(&mut self.sequences) {
            self.scheduler.finish(id);
            sequence.fail(failure.clone());
        }
    }

    fn fill_batch(&mut self, rows: &[Row]) {
        self.batch.tokens.clear();
        self.batch.spans.clear();
        self.batch.logit_rows.clear();
        for row in rows {
            let Some((tokens, pages)) = self.scheduler.row_input(row) else {
                continue;
            };
            self.batch.tokens.extend_from_slice(tokens);
            self.batch.spans.push(Span {
                new_tokens: tokens.len(),
                past_tokens: row.tokens.start,
                pages: pages.to_vec(),
            });
            if row.draws {
                self.batch
                    .logit_rows
                    .push(self.batch.tokens.len() as u32 - 1);
            }
        }
    }

    fn draw(&mut self, rows: &[Row], logits: &mut [f32]) {
        let vocabulary = self.model.vocabulary().max(1);
        let cost = logits.len();
        let mut sequences: BTreeMap<_, _> = self.sequences.iter_mut().collect();
        let drawing = rows.iter().filter(|row| row.draws);
        let draw = |(row, logits): (&Row, _)| {
            Some(Draw {
                id: row.id,
                sequence: sequences.remove(&row.id)?,
                logits,
                drawn: None,
            })
        };
        let rows = drawing.zip(logits.chunks_exact_mut(vocabulary));
        let mut draws: Vec<Draw> = rows.filter_map(draw).collect();
        draw_on_all_threads(&mut draws, &mut self.scratches, cost);
        let drawn = draws.into_iter().map(|draw| (draw.id, draw.drawn));
        for (id, drawn) in drawn.collect::<Vec<_>>() {
            if let Some(drawn) = drawn {
                self.take(id, drawn);
            }
        }
    }

    /// Takes in what a sequence drew.
    fn take(&mut self, id: SequenceId, drawn: Result<DrawOutcome, NoToken>) {
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        sequence.start(self.scheduler.cached_tokens(id));
        let (token, forced) = match drawn {
            Ok(DrawOutcome::Tokens(token, forced)) => (token, forced),
            Ok(DrawOutcome::Nothing) => return self.finish(id, FinishReason::EndOfTurn),
            Err(error) => return self.fail(id, error.into()),
        };
        let forced = forced.into_iter().map(TokenInfo::without_logprob);
        for token in std::iter::once(token).chain(forced) {
            let token_id = token.id;
            match sequence.accept(token, &self.language) {
                Some(reason) => return self.finish(id, reason),
                None => self.scheduler.push(id, token_id),
            }
        }
        if sequence.is_complete() {
            return self.finish(id, FinishReason::EndOfTurn);
        }
        if sequence.flush() == Err(TooSlow) {
            let unread = SLOW_READER_TOKENS;
            self.fail(id, Failure::SlowReader { unread });
        }
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
        self.sequences.remove(&id)
    }
}

/// Sequences draw independently of each other, so that the threads share them evenly.
fn draw_on_all_threads(draws: &mut [Draw], scratches: &mut [Scratch], cost: usize) {
    let share = draws.len().div_ceil(scratches.len()).max(1);
    let mut shares: Vec<_> = draws.chunks_mut(share).zip(scratches).collect();
    cpu::each(&mut shares, cost, |(draws, scratch)| {
        for draw in &mut **draws {
            draw.drawn = Some(draw.sequence.draw(draw.logits, scratch));
        }
    });
}
