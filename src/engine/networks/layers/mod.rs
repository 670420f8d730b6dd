//! The layers that decoders are made of. A layer owns its weights and knows nothing of files.

mod attention;
mod embedding;
mod experts;
mod feed_forward;
mod linear;
mod norm;
mod routing;

pub use self::{
    attention::{Attention, Positions, QueryKeyNorms},
    embedding::Embedding,
    experts::{Expert, ExpertBiases, Experts, SharedExpert},
    feed_forward::{FeedForward, GateActivation, GatedFeedForward},
    linear::Linear,
    norm::RmsNorm,
    routing::{ExpertGroups, RouterScore, Routing},
};
