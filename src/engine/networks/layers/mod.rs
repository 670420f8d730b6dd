//! The layers that decoders are made of. A layer owns its weights and knows nothing of files.

mod attention;
mod delta_net;
mod embedding;
mod experts;
mod feed_forward;
mod gated_convolution;
mod latent_attention;
mod linear;
mod mixer;
mod norm;
mod routing;
mod state_space;

pub use self::{
    attention::{Attention, Positions, QueryKeyNorms},
    delta_net::GatedDeltaNet,
    embedding::Embedding,
    experts::{Expert, ExpertBiases, Experts, SharedExpert},
    feed_forward::{FeedForward, GateActivation, GatedFeedForward},
    gated_convolution::GatedConvolution,
    latent_attention::{LatentAttention, LatentQuery, LatentSizes},
    linear::Linear,
    mixer::{LayerCache, TokenMixer},
    norm::RmsNorm,
    routing::{ExpertGroups, GroupScore, RouterScore, Routing},
    state_space::StateSpaceLayer,
};
