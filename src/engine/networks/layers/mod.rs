//! The layers that decoders are made of. A layer owns its weights and knows nothing of files.

mod attention;
mod embedding;
mod experts;
mod feed_forward;
mod latent_attention;
mod linear;
mod mixer;
mod norm;
mod routing;

pub use self::{
    attention::{Attention, Positions, QueryKeyNorms},
    embedding::Embedding,
    experts::{Expert, ExpertBiases, Experts, SharedExpert},
    feed_forward::{FeedForward, GateActivation, GatedFeedForward},
    latent_attention::{LatentAttention, LatentQuery, LatentSizes},
    linear::Linear,
    mixer::TokenMixer,
    norm::RmsNorm,
    routing::{ExpertGroups, GroupScore, RouterScore, Routing},
};
