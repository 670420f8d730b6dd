//! The layers that decoders are made of. A layer owns its weights and knows nothing of files.

mod alternating_update;
mod attention;
mod delta_net;
mod embedding;
mod experts;
mod feed_forward;
mod gated_convolution;
mod latent_attention;
mod linear;
mod low_rank;
mod mixer;
mod norm;
mod per_layer_input;
mod routing;
mod state_space;

pub use self::{
    alternating_update::{AlternatingUpdate, LowRankResidual, Streams},
    attention::{Attention, KeyValues, Positions, QueryKeyNorms},
    delta_net::GatedDeltaNet,
    embedding::Embedding,
    experts::{Expert, ExpertBiases, Experts, SharedExpert},
    feed_forward::{FeedForward, GateActivation, GatedFeedForward, ParallelFeedForward},
    gated_convolution::GatedConvolution,
    latent_attention::{LatentAttention, LatentQuery, LatentSizes},
    linear::Linear,
    low_rank::{AdapterRows, AdapterTarget, DecoderAdapter, LayerAdaptation, LowRank},
    mixer::{LayerCache, TokenMixer},
    norm::RmsNorm,
    per_layer_input::{PerLayerEmbeddings, PerLayerInput},
    routing::{ExpertGroups, GroupScore, RouterScore, Routing},
    state_space::StateSpaceLayer,
};
