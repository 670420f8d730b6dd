//! Page tables of the KV cache: `blocks` allocates and shares pages (pure, no tensors).
//!
//! The tensors belong to the network; a page here is only its index.

mod blocks;

pub use blocks::{AdapterId, Blocks, CacheKey, CacheScope, Chain, ImageDigest, ImageSpan, Prefix};
