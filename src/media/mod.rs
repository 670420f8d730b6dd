//! Media as bytes: their types, their headers, their codecs. Plain functions without IO; both halves of the program use
//! them.
//!
//! | module | contents |
//! | --- | --- |
//! | `media_type` | the types that are stored and served, recognized by content type, extension or first bytes |
//! | [`image`] | WebP, PNG and JPEG: size from the header, bounded decoding, encoding, previews |
//! | [`sound`] | WAV, FLAC, Ogg Opus and MP3: length from the header, bounded decoding, encoding |
//! | [`video`] | MP4 with H.264: encoding |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

pub mod image;
mod media_type;
pub mod sound;
pub mod video;

pub use media_type::{MediaKind, MediaType, SIGNATURE_BYTES};
