//! Where keys and values lie while sequences run: `blocks` counts and shares pages (pure, no tensor).
//!
//! The tensors themselves belong to the network that fills them; a page here is only its number.

mod blocks;

pub use blocks::{AdapterId, Blocks, CacheKey, CacheScope, Chain, ImageDigest, ImageSpan, Prefix};
