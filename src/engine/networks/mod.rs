//! Networks only: tensors in, tensors out.

pub mod adapter;
pub mod blocks;
pub mod encoder;
pub mod image;
pub mod image_encoder;
pub mod layers;
pub mod single_sequence;
pub mod sound;
pub mod text;
pub mod text_encoder;
pub mod video;
pub mod vision;
pub mod weights;

#[cfg(test)]
pub mod golden;
#[cfg(test)]
pub mod model_copy;
#[cfg(test)]
pub mod test_device;
