//! Processes a finished image before its upload: runs the safety checker, and reduces an image that was generated
//! larger than requested.

use tokio::task::spawn_blocking;

use super::file::{failed, picture};
use crate::daemon::blame;
use crate::daemon::engines::Engines;
use crate::link::Said;
use crate::link::session::{Finishing, SafetyRule};
use muster_engine::runtime::maker::{PixelFormat, Pixels};
use muster_engine::runtime::safety::SafetyChecker;
use muster_media::image as codec;

/// The grey level of the image that replaces a censored one.
const EMPTY: u8 = 128;

#[derive(Debug)]
pub struct FinishedImage {
    pub pixels: Pixels,
    /// The rule for an image that was flagged.
    pub flagged: Option<SafetyRule>,
}

/// An image that cannot be judged is not sent.
pub async fn finish(
    pixels: Pixels,
    finishing: Finishing,
    engines: &Engines,
) -> Result<FinishedImage, Said> {
    if finishing == Finishing::default() {
        return Ok(FinishedImage {
            pixels,
            flagged: None,
        });
    }
    let checker = engines.safety.clone();
    // The checker computes for a second or more.
    let finished = spawn_blocking(move || finished(pixels, finishing, checker.as_ref()));
    finished.await.map_err(|_| blame::broken())?.map_err(failed)
}

fn finished(
    pixels: Pixels,
    finishing: Finishing,
    checker: Option<&SafetyChecker>,
) -> Result<FinishedImage, String> {
    let flagged = match (finishing.safety, checker) {
        (None, _) | (Some(SafetyRule::Refuse), None) => None,
        (Some(_), None) => {
            return Err("the job asks for a safety checker: set engine.safety_checker".to_owned());
        }
        (Some(rule), Some(checker)) => {
            let is_flagged = checker.flags(&pixels).map_err(|error| error.to_string())?;
            is_flagged.then_some(rule)
        }
    };
    let mut pixels = match finishing.side {
        Some(side) => reduced(pixels, side)?,
        None => pixels,
    };
    if flagged == Some(SafetyRule::Censor) {
        pixels.bytes.fill(EMPTY);
    }
    Ok(FinishedImage { pixels, flagged })
}

fn reduced(pixels: Pixels, side: u32) -> Result<Pixels, String> {
    let whole = picture(pixels).map_err(|error| error.to_string())?;
    let small = codec::reduced(&whole, side).map_err(|error| error.to_string())?;
    let small = small.unwrap_or(whole);
    Ok(Pixels {
        width: small.width(),
        height: small.height(),
        format: match small.channels() {
            codec::Channels::Rgb => PixelFormat::Rgb,
            codec::Channels::Rgba => PixelFormat::Rgba,
        },
        bytes: small.into_bytes(),
    })
}
