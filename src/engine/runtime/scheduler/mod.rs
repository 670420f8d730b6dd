//! The scheduler: chooses the sequences of the next step, and their numbers of tokens. Pure: no tensor, no clock.
//!
//! A step has one token of every decoding sequence (more after forced tokens, and with draft tokens), and prompt tokens
//! up to `prefill_chunk` or the lower limit that [`pace::Pace`] sets while others decode. The oldest prompt gets at
//! least half of them; prompts less than half as long get the other half, so that a short question does not wait behind
//! a document. A sequence is admitted when its known tokens fit into free pages. When pages run out, the youngest
//! sequence is preempted: it waits at the front and later repeats the prefill of its prompt and generated tokens. So
//! the oldest always advances, and every sequence becomes the oldest.

pub mod pace;
mod states;

use std::collections::VecDeque;
use std::ops::Range;

use super::kv_cache::{Blocks, CacheKey, Chain};
use muster_kernels::PAGE_TOKENS;
use states::States;
pub use states::{SNAPSHOTS, StateCopy};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sequences in one step.
    pub max_running: usize,
    /// Prompt tokens in one step.
    pub prefill_chunk: usize,
}

/// Names a sequence for as long as the engine runs. Smaller is older.
pub type SequenceId = u64;

#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    blocks: Blocks,
    /// Oldest first.
    waiting: VecDeque<Entry>,
    /// Oldest first, so in the order of their ids.
    running: Vec<Entry>,
    states: States,
    /// Whether sequences have recurrent states besides their pages: a prefix is then shared only where a snapshot of
    /// its state exists.
    has_states: bool,
}

/// The decode part of a step: its size without prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Generating {
    /// Tokens to compute, proposed ones counted in.
    pub tokens: usize,
    /// Tokens in the pages that they attend to.
    pub context: usize,
}

/// A sequence's part of the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub id: SequenceId,
    /// Which of its tokens are computed.
    pub tokens: Range<usize>,
    /// Draft tokens after them, computed in the same step. Only a row that samples has any.
    pub proposed: Vec<u32>,
    /// Whether the next token is sampled from the last row's logits, because no known token follows.
    pub draws: bool,
}

impl Generating {
    /// The decode part of these rows.
    pub fn of(rows: &[Row]) -> Self {
        Self {
            tokens: rows.iter().map(Row::new_tokens).sum(),
            context: rows.iter().map(|row| row.tokens.start).sum(),
        }
    }
}

impl Row {
    /// How many tokens it computes.
    pub fn new_tokens(&self) -> usize {
        self.tokens.len() + self.proposed.len()
    }
}

#[derive(Debug)]
struct Entry {
    id: SequenceId,
    key: CacheKey,
    /// Prompt and generated tokens.
    tokens: Vec<u32>,
    /// How many of them are in the pages.
    computed: usize,
    /// Number of prompt tokens found in the cache. Not counted again after a preemption.
    cached: usize,
    was_preempted: bool,
    /// Bypasses the prefix cache.
    computes_all: bool,
    /// The prefill is complete; missing tokens were sampled or forced since.
    is_generating: bool,
    chain: Chain,
    /// Which of the states of running sequences it has.
    state: Option<u32>,
    /// Numbers of tokens after which its state is kept, ascending.
    marks: Vec<usize>,
}

impl Entry {
    fn missing(&self) -> usize {
        self.tokens.len() - self.computed
    }

    fn reads_prompt(&self) -> bool {
        self.missing() > 1 && !self.is_generating
    }

    /// Skips cached tokens, including those that other sequences computed since the last step: choices of one prompt
    /// start together.
    fn share(&mut self, blocks: &mut Blocks) {
        if !self.computes_all {
            let known = blocks.share(&mut self.chain, &self.tokens);
            self.skip(known);
        }
    }

    /// The same with recurrent states: the longest prefix with a snapshot. Longer prefixes computed by others get a
    /// snapshot.
    fn share_state(&mut self, blocks: &mut Blocks, states: &mut States) {
        if self.computes_all {
            return;
        }
        let prefixes = blocks.prefixes(self.key.clone(), &self.tokens);
        let known = prefixes.iter().rposition(|it| states.has_snapshot(*it));
        if let Some(at) = known {
            let tokens = blocks.share_pages(&mut self.chain, &self.tokens, at + 1);
            states.restore(prefixes[at], self.state);
            self.skip(tokens);
        }
        let common = prefixes.len() * PAGE_TOKENS;
        self.marks = states::marks(self.tokens.len(), self.computed, common);
    }

    fn skip(&mut self, known: usize) {
        let skipped = known.saturating_sub(self.computed);
        self.computed += skipped;
        if !self.was_preempted {
            self.cached += skipped;
        }
    }
}

impl Scheduler {
    pub fn new(limits: Limits, pages: usize) -> Self {
        Self {
            limits,
            blocks: Blocks::new(pages),
            waiting: VecDeque::new(),
            running: Vec::new(),
            states: States::new(limits.max_running, SNAPSHOTS),
            has_states: false,
        }
    }

    /// For a model with recurrent states besides pages.
    pub fn with_states(self) -> Self {
        Self {
            has_states: true,
            ..self
        }
    }

    /// The most tokens of a sequence, which is the capacity of all pages.
    pub fn capacity(&self) -> usize {
        self.blocks.total() * PAGE_TOKENS
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn pages(&self) -> usize {
        self.blocks.total()
    }

    pub fn free_pages(&self) -> usize {
        self.blocks.free()
    }

    /// Changes the number of pages between two steps. Where sequences hold more, the youngest are preempted. Returns the
    /// earlier numbers of the pages that stay, in their new order.
    pub fn resize(&mut self, pages: usize) -> Vec<u32> {
        while self.blocks.held() > pages && !self.running.is_empty() {
            self.preempt_youngest();
        }
        let kept = self.blocks.resize(pages);
        for entry in &mut self.running {
            entry.chain.renumber(&kept);
        }
        kept
    }

    /// Forgets the contents of all pages, after all sequences have finished.
    pub fn clear(&mut self) {
        debug_assert!(self.is_idle(), "a sequence has lost its pages");
        let pages = self.pages();
        for pages in [0, pages] {
            self.blocks.resize(pages);
        }
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Queues a sequence of at least one and at most [`capacity`](Self::capacity) tokens. Ids must ascend.
    pub fn submit(&mut self, id: SequenceId, key: impl Into<CacheKey>, tokens: Vec<u32>) {
        self.queue(id, key.into(), tokens, false);
    }

    /// The same without the prefix cache, because all rows of the prompt are needed.
    pub fn submit_uncached(&mut self, id: SequenceId, key: impl Into<CacheKey>, tokens: Vec<u32>) {
        self.queue(id, key.into(), tokens, true);
    }

    fn queue(&mut self, id: SequenceId, key: CacheKey, tokens: Vec<u32>, computes_all: bool) {
        debug_assert!(!tokens.is_empty() && tokens.len() <= self.capacity());
        self.waiting.push_back(Entry {
            id,
            chain: Chain::new(key.clone()),
            key,
            tokens,
            computed: 0,
            cached: 0,
            was_preempted: false,
            computes_all,
            is_generating: false,
            state: None,
            marks: Vec::new(),
        });
    }

    /// Removes a sequence, wherever it is, and frees its pages.
    pub fn finish(&mut self, id: SequenceId) {
        if let Some(at) = self.find(id) {
            let entry = self.running.remove(at);
            self.states.give_back(entry.state);
            self.blocks.release(entry.chain);
        } else if let Some(at) = self.waiting.iter().position(|entry| entry.id == id) {
            self.waiting.remove(at);
        }
    }

    /// Begins the next step: a row of every sequence that generates. The rows stay true until
    /// [`advance`](Self::advance), unless one of their sequences is finished before.
    pub fn plan(&mut self) -> Vec<Row> {
        self.secure_generating();
        self.admit();
        self.running.iter().filter_map(generating_row).collect()
    }

    /// Whether sequences have prompts to read in this step.
    pub fn reads_prompts(&self) -> bool {
        self.running.iter().any(Entry::reads_prompt)
    }

    /// Adds draft tokens to a row of this step, as many as fit without the page that each running sequence may need
    /// next.
    pub fn propose(&mut self, row: &mut Row, mut tokens: Vec<u32>) {
        let Some(at) = self.find(row.id).filter(|_| row.draws) else {
            return;
        };
        let spare = self.blocks.free().saturating_sub(self.running.len());
        let entry = &mut self.running[at];
        let most = entry.chain.room() + spare * PAGE_TOKENS;
        let wanted = entry.tokens.len() + tokens.len();
        let has_room = self.blocks.grow(&mut entry.chain, wanted.min(most));
        debug_assert!(has_room, "the pages to spare were just counted");
        tokens.truncate(entry.chain.room() - entry.tokens.len());
        row.proposed = tokens;
    }

    /// Adds at most `limit` prompt tokens to the rows of this step.
    pub fn add_prompts(&mut self, rows: &mut Vec<Row>, limit: usize) {
        self.add_ready_prompts(rows, limit, &|_, tokens| tokens.end);
    }

    /// The same, for prompts whose prefill `ready` limits or extends, given a sequence and its next tokens: to wait for
    /// images, or to keep tokens together.
    pub fn add_ready_prompts(
        &mut self,
        rows: &mut Vec<Row>,
        limit: usize,
        ready: &dyn Fn(SequenceId, Range<usize>) -> usize,
    ) {
        let limit = limit.min(self.limits.prefill_chunk.max(1));
        let prompts = (0..self.running.len()).filter(|&at| self.running[at].reads_prompt());
        let mut prompts: Vec<usize> = prompts.collect();
        let Some(&oldest) = prompts.first() else {
            return;
        };
        let short = self.running[oldest].missing() / 2;
        let mut ahead: Vec<usize> = prompts
            .extract_if(.., |at| self.running[*at].missing() < short)
            .collect();
        ahead.sort_by_key(|&at| self.running[at].missing());
        let mut left = limit;
        let mut ahead_left = limit / 2;
        for at in ahead {
            let before = ahead_left;
            rows.extend(self.prompt_row(at, &mut ahead_left, ready));
            left -= before - ahead_left;
        }
        for at in prompts {
            rows.extend(self.prompt_row(at, &mut left, ready));
        }
    }

    fn prompt_row(
        &mut self,
        at: usize,
        budget: &mut usize,
        ready: &dyn Fn(SequenceId, Range<usize>) -> usize,
    ) -> Option<Row> {
        if *budget == 0 {
            return None;
        }
        let entry = &mut self.running[at];
        if !self.has_states {
            entry.share(&mut self.blocks);
        }
        let mark = entry.marks.first().copied().unwrap_or(usize::MAX);
        let end = entry.tokens.len().min(entry.computed + *budget).min(mark);
        let end = ready(entry.id, entry.computed..end).min(entry.tokens.len());
        if end <= entry.computed {
            return None;
        }
        *budget = budget.saturating_sub(end - entry.computed);
        Some(Row {
            id: entry.id,
            tokens: entry.computed..end,
            proposed: Vec::new(),
            draws: end == entry.tokens.len(),
        })
    }

    /// Whether sequences of this model are generating, so that their readers notice a long step.
    pub fn is_generating(&self) -> bool {
        self.running.iter().any(|entry| entry.is_generating)
    }

    /// Tells that the rows were computed: their tokens are in the pages now. Their proposals are as well, and count when
    /// they are [`accepted`](Self::accept).
    pub fn advance(&mut self, rows: &[Row]) {
        for row in rows {
            if let Some(at) = self.find(row.id) {
                let entry = &mut self.running[at];
                entry.computed = row.tokens.end;
                self.blocks
                    .seal(&mut entry.chain, &entry.tokens, entry.computed);
                if entry.marks.first() == Some(&entry.computed) {
                    self.states.keep(entry.chain.prefix(), entry.state);
                }
                entry.marks.retain(|&mark| mark > entry.computed);
            }
        }
    }

    /// Appends the tokens sampled or forced after a row. Accepted draft tokens are already in the pages; the next step
    /// overwrites rejected ones.
    pub fn accept(&mut self, row: &Row, tokens: &[u32]) {
        let Some(at) = self.find(row.id) else {
            return;
        };
        let entry = &mut self.running[at];
        entry.tokens.extend_from_slice(tokens);
        entry.is_generating = true;
        let computed = entry.computed + verified(&row.proposed, tokens);
        // The newest token is computed by the next step, because its logits are needed.
        entry.computed = computed.min(entry.tokens.len() - 1);
        self.blocks
            .seal(&mut entry.chain, &entry.tokens, entry.computed);
    }

    /// All known tokens of a running sequence.
    pub fn tokens(&self, id: SequenceId) -> &[u32] {
        self.find(id).map_or(&[], |at| &self.running[at].tokens)
    }

    /// The known tokens of a row and the pages of its sequence.
    pub fn row_input(&self, row: &Row) -> Option<(&[u32], &[u32])> {
        let entry = &self.running[self.find(row.id)?];
        Some((entry.tokens.get(row.tokens.clone())?, entry.chain.pages()))
    }

    /// The state slot of a running sequence, until it is preempted. The slot's old content is irrelevant: a sequence
    /// starts with its first token, or with a copy.
    pub fn state(&self, id: SequenceId) -> Option<u32> {
        self.find(id).and_then(|at| self.running[at].state)
    }

    /// Copies of states to be made before the next step computes, in this order.
    pub fn take_state_copies(&mut self) -> Vec<StateCopy> {
        self.states.take_copies()
    }

    /// How many tokens of a running sequence are in its pages.
    pub fn computed(&self, id: SequenceId) -> Option<usize> {
        self.find(id).map(|at| self.running[at].computed)
    }

    /// How many tokens of a running sequence were found computed by others.
    pub fn cached_tokens(&self, id: SequenceId) -> usize {
        self.find(id).map_or(0, |at| self.running[at].cached)
    }

    fn find(&self, id: SequenceId) -> Option<usize> {
        self.running
            .binary_search_by_key(&id, |entry| entry.id)
            .ok()
    }

    /// Allocates a page for the next token of every decoding sequence, oldest first, and preempts the youngest while
    /// none is free.
    fn secure_generating(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            let entry = &mut self.running[at];
            let wanted = entry.tokens.len();
            if entry.chain.room() >= wanted || self.blocks.grow(&mut entry.chain, wanted) {
                at += 1;
            } else {
                self.preempt_youngest();
            }
        }
    }

    fn preempt_youngest(&mut self) {
        if let Some(mut entry) = self.running.pop() {
            let fresh = Chain::new(entry.key.clone());
            self.blocks
                .release(std::mem::replace(&mut entry.chain, fresh));
            self.states.give_back(entry.state.take());
            entry.computed = 0;
            entry.marks.clear();
            entry.was_preempted = true;
            entry.is_generating = false;
            self.waiting.push_front(entry);
        }
    }

    fn admit(&mut self) {
        while self.running.len() < self.limits.max_running {
            let Some(mut entry) = self.waiting.pop_front() else {
                return;
            };
            if !self.fits(&entry) {
                return self.waiting.push_front(entry);
            }
            entry.state = self.states.take();
            match self.has_states {
                true => entry.share_state(&mut self.blocks, &mut self.states),
                false => entry.share(&mut self.blocks),
            }
            let has_room = self.blocks.grow(&mut entry.chain, entry.tokens.len());
            debug_assert!(has_room, "an admitted sequence fits");
            self.running.push(entry);
        }
    }

    /// Whether all known tokens fit, with one page to spare for each running sequence, so that admitting one
    /// does not soon send another back. Alone it may have everything.
    fn fits(&self, entry: &Entry) -> bool {
        let (shared, unheld) = match entry.computes_all || self.has_states {
            true => (0, 0),
            false => self.blocks.shareable(entry.key.clone(), &entry.tokens),
        };
        let needed = entry.tokens.len().div_ceil(PAGE_TOKENS) - shared + unheld;
        let spare = self.running.len();
        needed + spare <= self.blocks.free()
    }
}

fn generating_row(entry: &Entry) -> Option<Row> {
    (!entry.reads_prompt()).then_some(Row {
        id: entry.id,
        tokens: entry.computed..entry.tokens.len(),
        proposed: Vec::new(),
        draws: true,
    })
}

/// Number of accepted draft tokens.
fn verified(proposed: &[u32], drawn: &[u32]) -> usize {
    let pairs = proposed.iter().zip(drawn);
    pairs
        .take_while(|(proposed, drawn)| proposed == drawn)
        .count()
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
