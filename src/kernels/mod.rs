//! The operations candle lacks, or does more slowly than the machine allows.
//!
//! One signature per operation; `cpu/` is the reference and the fast path of the CPU, `cuda/` its twin.
//! Callers hand over tensors and never ask which device they are on.
//!
//! Every operation here is *batch-invariant*: the result for a row does not depend on how many other rows
//! came with it, so that greedy text is the same at batch 1 and 32 by construction.

pub mod cpu;

/// Tokens in one page of keys and values. Paged flash attention wants a multiple of 32.
pub const PAGE_TOKENS: usize = 32;

/// One sequence's part of a step: which rows of the flat batch are its new tokens, and where its context lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// How many new tokens, in order, directly after those of the spans before it.
    pub new_tokens: usize,
    /// How many tokens are already in the pages; the position of the first new token.
    pub past_tokens: usize,
    /// The pages that hold the sequence, in order; room for `past_tokens + new_tokens`.
    pub pages: Vec<u32>,
}
