//! The layers that decoders are made of. A layer owns its weights and knows nothing of files.

mod attention;
mod embedding;
mod feed_forward;
mod linear;
mod norm;

pub use self::{
    attention::{Attention, Positions, QueryKeyNorms},
    embedding::Embedding,
    feed_forward::{FeedForward, GateActivation},
    linear::Linear,
    norm::RmsNorm,
};
