//! Text encoders, whose states condition image and video networks.

mod clip;
mod umt5;
mod umt5_names;

pub use self::{
    clip::{ClipOutput, ClipSpec, ClipText, ClipWindow},
    umt5::{PIECES, UmT5, UmT5Spec},
    umt5_names::TextNames,
};
