//! A step's attention in pieces that threads share: a few rows of a prompt with their whole context, or a single token
//! with one partition of its context.
//!
//! Each partition of a context is computed separately, and the partial sums are added in order, so that the result has
//! the same bits however rows and partitions are shared among threads.

#![expect(unsafe_code, reason = "threads write disjoint rows of one result")]

use std::ops::Range;

use super::QUERIES;
use super::queries::{Query, Softmax, TileAtEveryLevel, attend};
use crate::cpu::level::Level;
use crate::cpu::threads::{Disjoint, share};
use crate::{AttentionOptions, AttentionReach, PAGE_TOKENS, Span};

/// Tokens of a partition. Shorter ones are shared more evenly, and added up more often.
const PARTITION: usize = 16 * PAGE_TOKENS;

/// Spans of no more blocks than this are cut along their context too: their blocks alone would not keep all threads
/// busy.
const FEW_BLOCKS: usize = 4;

/// The heads that attend.
#[derive(Debug, Clone, Copy)]
pub struct StepHeads {
    pub queries: usize,
    pub kv: usize,
    /// Numbers of a query and of a key.
    pub key_dim: usize,
    pub value_dim: usize,
}

/// A step and its queries, `[rows, heads, d]`.
pub struct Step<'a> {
    pub level: Level,
    pub queries: &'a [f32],
    pub spans: &'a [Span],
    /// See [`crate::AttentionPlan::with_blocks`].
    pub block_ends: &'a [usize],
    pub heads: StepHeads,
    pub options: AttentionOptions,
    /// One attention sink per head, if the model has sinks.
    pub sinks: Option<&'a [f32]>,
}

/// Neighbouring rows of one span, which see the same pages.
struct StepBlock<'a> {
    span: &'a Span,
    rows: Range<usize>,
    /// The position of its first row.
    position: usize,
    partitions: Range<usize>,
    /// Index of the first query's partial sums, added up later. `None` for a block with one piece per head.
    partial: Option<usize>,
}

/// A block and key head, with some partitions of its context.
struct Piece<'a> {
    block: &'a StepBlock<'a>,
    head: usize,
    partitions: Range<usize>,
}

impl Step<'_> {
    /// The result, a value for each query. `tile` returns the tile of a page and head.
    pub fn attend<T: TileAtEveryLevel>(&self, tile: impl Fn(u32, usize) -> T + Sync) -> Vec<f32> {
        let dim = self.heads.value_dim;
        let (blocks, partial) = self.blocks();
        let pieces = self.pieces(&blocks);
        let mut result = vec![0f32; self.queries.len() / self.heads.key_dim * dim];
        let mut sums = vec![0f32; partial * dim];
        let mut softmaxes = vec![Softmax::NOTHING_SEEN; partial];
        let rows = Disjoint::new(&mut result);
        let (partial_sums, partial_softmaxes) =
            (Disjoint::new(&mut sums), Disjoint::new(&mut softmaxes));
        share(pieces.len(), self.cost(&blocks), |range| {
            let mut found = Sums::default();
            let mut part = Sums::default();
            for piece in &pieces[range] {
                self.attend_piece(piece, &tile, &mut found, &mut part);
                match self.partial_at(piece) {
                    None => self.finish(piece.block, piece.head, &mut found, &rows),
                    Some(at) => {
                        let queries = at..at + found.softmaxes.len();
                        // SAFETY: each piece has its own place.
                        let (sums, softmaxes) = unsafe {
                            (
                                partial_sums.part(queries.start * dim..queries.end * dim),
                                partial_softmaxes.part(queries),
                            )
                        };
                        sums.copy_from_slice(&found.numbers);
                        softmaxes.copy_from_slice(&found.softmaxes);
                    }
                }
            }
        });
        let split: Vec<&StepBlock> = blocks
            .iter()
            .filter(|block| block.partial.is_some())
            .collect();
        share(split.len() * self.heads.kv, sums.len(), |range| {
            let mut found = Sums::default();
            for index in range {
                let (block, head) = (split[index / self.heads.kv], index % self.heads.kv);
                self.add_up(block, head, &sums, &softmaxes, &mut found);
                self.finish(block, head, &mut found, &rows);
            }
        });
        result
    }

    fn group(&self) -> usize {
        self.heads.queries / self.heads.kv
    }

    fn blocks(&self) -> (Vec<StepBlock<'_>>, usize) {
        let count = (QUERIES / self.group()).max(1);
        let (mut blocks, mut partial, mut first) = (Vec::new(), 0, 0);
        for span in self.spans {
            let end = first + span.new_tokens;
            let is_short = span.new_tokens <= FEW_BLOCKS * count;
            for start in (first..end).step_by(count) {
                let rows = start..end.min(start + count);
                let position = span.past_tokens + start - first;
                let last = position + rows.len() - 1;
                let seen = self.seen(span, position, rows.start).start
                    ..self.seen(span, last, rows.end - 1).end;
                let partitions = seen.start / PARTITION..seen.end.div_ceil(PARTITION);
                let is_split = is_short && partitions.len() > 1;
                let queries = partitions.len() * self.heads.kv * rows.len() * self.group();
                blocks.push(StepBlock {
                    span,
                    rows,
                    position,
                    partitions,
                    partial: is_split.then_some(partial),
                });
                partial += if is_split { queries } else { 0 };
            }
            first = end;
        }
        (blocks, partial)
    }

    fn pieces<'a>(&self, blocks: &'a [StepBlock<'a>]) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        for block in blocks {
            let whole = block.partitions.clone();
            let at_once = match block.partial {
                Some(_) => 1,
                None => whole.len().max(1),
            };
            for first in whole.clone().step_by(at_once) {
                pieces.extend((0..self.heads.kv).map(|head| Piece {
                    block,
                    head,
                    partitions: first..whole.end.min(first + at_once),
                }));
            }
        }
        pieces
    }

    /// The tokens that a row at this position of a span sees.
    fn seen(&self, span: &Span, position: usize, row: usize) -> Range<usize> {
        let window = self.options.window.unwrap_or(usize::MAX);
        let end = position + 1;
        let first = end.saturating_sub(window);
        let of_block = self.block_ends.get(row).copied().unwrap_or(0);
        match self.options.reach {
            AttentionReach::Past => first..end.max(of_block),
            AttentionReach::Chunk(tokens) => first.max(position - position % tokens)..end,
            AttentionReach::Sequence => {
                let last = span.past_tokens + span.new_tokens;
                first..last.min(position.saturating_add(window))
            }
        }
    }

    /// Steps of about a nanosecond.
    fn cost(&self, blocks: &[StepBlock]) -> usize {
        let seen = blocks
            .iter()
            .map(|block| block.rows.len() * block.partitions.len() * PARTITION);
        let seen = seen.fold(0, usize::saturating_add);
        let dims = self.heads.key_dim + self.heads.value_dim;
        seen.saturating_mul(self.heads.queries * dims / 16)
    }

    /// Index of a piece's partial sums.
    fn partial_at(&self, piece: &Piece) -> Option<usize> {
        let of_head = piece.block.rows.len() * self.group();
        let index = (piece.partitions.start - piece.block.partitions.start) * self.heads.kv;
        Some(piece.block.partial? + (index + piece.head) * of_head)
    }

    fn attend_piece<T: TileAtEveryLevel>(
        &self,
        piece: &Piece,
        tile: impl Fn(u32, usize) -> T,
        found: &mut Sums,
        part: &mut Sums,
    ) {
        let (block, head) = (piece.block, piece.head);
        let mut partitions = piece.partitions.clone();
        if let Some(first) = partitions.next() {
            let tiles = tiles(block, head, first, &tile);
            self.attend_partition(block, head, first, &tiles, found);
        }
        for next in partitions {
            let tiles = tiles(block, head, next, &tile);
            self.attend_partition(block, head, next, &tiles, part);
            found.add(&part.numbers, &part.softmaxes);
        }
    }

    fn attend_partition<T: TileAtEveryLevel>(
        &self,
        block: &StepBlock,
        head: usize,
        partition: usize,
        tiles: &[T],
        found: &mut Sums,
    ) {
        let (dim, group) = (self.heads.key_dim, self.group());
        found.clear(block.rows.len() * group, self.heads.value_dim);
        let first = partition * PARTITION;
        let place = |token: usize| token.clamp(first, first + PARTITION) - first;
        let places = block
            .rows
            .clone()
            .flat_map(|row| (head * group..(head + 1) * group).map(move |head| (row, head)));
        let outs = found.numbers.chunks_exact_mut(self.heads.value_dim);
        let queries = places.zip(outs).map(|((row, head), out)| {
            let at = (row * self.heads.queries + head) * dim;
            let seen = self.seen(block.span, block.position + row - block.rows.start, row);
            Query {
                values: &self.queries[at..at + dim],
                seen: place(seen.start)..place(seen.end),
                bias: None,
                out,
                softmax: Softmax::NOTHING_SEEN,
            }
        });
        let mut queries: Vec<Query> = queries.collect();
        attend(self.level, tiles, &mut queries, self.options);
        for (softmax, query) in found.softmaxes.iter_mut().zip(queries) {
            *softmax = query.softmax;
        }
    }

    /// Adds up the partial sums of a block and head.
    fn add_up(
        &self,
        block: &StepBlock,
        head: usize,
        sums: &[f32],
        softmaxes: &[Softmax],
        found: &mut Sums,
    ) {
        let queries = block.rows.len() * self.group();
        let dim = self.heads.value_dim;
        found.clear(queries, dim);
        for partition in block.partitions.clone() {
            let piece = Piece {
                block,
                head,
                partitions: partition..partition + 1,
            };
            let Some(at) = self.partial_at(&piece) else {
                return;
            };
            let numbers = &sums[at * dim..(at + queries) * dim];
            found.add(numbers, &softmaxes[at..at + queries]);
        }
    }

    /// Writes the result of a block and head.
    fn finish(&self, block: &StepBlock, head: usize, found: &mut Sums, result: &Disjoint<f32>) {
        let (dim, group) = (self.heads.value_dim, self.group());
        let queries = found.numbers.chunks_exact_mut(dim).zip(&found.softmaxes);
        for (index, (sums, softmax)) in queries.enumerate() {
            let (row, head) = (
                block.rows.start + index / group,
                head * group + index % group,
            );
            let at = (row * self.heads.queries + head) * dim;
            match self.sinks {
                Some(sinks) => softmax.normalize_with_sink(sums, sinks[head]),
                None => softmax.normalize(sums),
            }
            // SAFETY: each row and head is written once.
            unsafe { result.part(at..at + dim) }.copy_from_slice(sums);
        }
    }
}

/// The pages of a partition.
fn tiles<T>(
    block: &StepBlock,
    head: usize,
    partition: usize,
    tile: impl Fn(u32, usize) -> T,
) -> Vec<T> {
    let pages = block
        .span
        .pages
        .iter()
        .skip(partition * (PARTITION / PAGE_TOKENS));
    let pages = pages.take(PARTITION / PAGE_TOKENS);
    pages.map(|page| tile(*page, head)).collect()
}

/// Partial sums of some queries.
#[derive(Default)]
struct Sums {
    numbers: Vec<f32>,
    softmaxes: Vec<Softmax>,
}

impl Sums {
    fn clear(&mut self, queries: usize, dim: usize) {
        self.numbers.clear();
        self.numbers.resize(queries * dim, 0.0);
        self.softmaxes.clear();
        self.softmaxes.resize(queries, Softmax::NOTHING_SEEN);
    }

    fn add(&mut self, numbers: &[f32], softmaxes: &[Softmax]) {
        let dim = self.numbers.len() / self.softmaxes.len().max(1);
        let mine = self
            .softmaxes
            .iter_mut()
            .zip(self.numbers.chunks_exact_mut(dim));
        let next = softmaxes.iter().zip(numbers.chunks_exact(dim));
        for ((softmax, sums), (next, next_sums)) in mine.zip(next) {
            softmax.add(sums, *next, next_sums);
        }
    }
}
