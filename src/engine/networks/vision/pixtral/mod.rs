//! Pixtral, the tower of Mistral Small 3.1 and of Ministral 3: images of any size, with a break after each row of tokens.

mod processor;
mod spec;
mod tower;

pub use self::{processor::PixtralProcessor, spec::PixtralSpec, tower::PixtralTower};
