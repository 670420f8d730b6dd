//! Images in chats: from links to the model's input.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::daemon::blame;
use crate::link::Said;
use muster_engine::runtime::{self, ChatImage, ImageDetail, ImageInput};
use muster_media::image::{self, Bounds, Channels, ImageError, PHOTO, Pixels};
use muster_protocol::job::{Failure, FailureKind};

/// Limit of an image.
const MOST_BYTES: usize = 32 << 20;
/// Larger ones are made smaller before the model's own resize. No processor goes beyond it.
const MOST_PIXELS: u64 = 4096 * 4096;
/// A client's value is quoted up to this length.
const SHOWN_CHARS: usize = 40;

/// Reads the images of chats for a model.
#[derive(Clone)]
pub struct ImageReader {
    pub input: Arc<ImageInput>,
    /// Tokens that the model takes.
    pub context: usize,
}

/// An image of a chat, as it came.
struct EncodedImage {
    place: String,
    bytes: Vec<u8>,
    detail: ImageDetail,
}

/// Reads the images of a chat in order, and replaces each by a part without a link. No image is decoded before the
/// headers of all of them show that they fit into the model's context.
pub fn take(
    messages: &mut [Value],
    reader: Option<&ImageReader>,
) -> Result<Vec<ChatImage>, Failure> {
    let mut images = Vec::new();
    let mut tokens = 0;
    for (message, one) in messages.iter_mut().enumerate() {
        let parts = one.get_mut("content").and_then(Value::as_array_mut);
        let parts = parts.map_or(&mut [][..], Vec::as_mut_slice);
        for (index, part) in parts.iter_mut().enumerate() {
            if part["type"] == "text" || part.is_string() {
                continue;
            }
            let place = format!("messages[{message}].content[{index}]");
            let reader = reader_of(&place, part, reader)?;
            let image = EncodedImage::find(place, &part["image_url"])?;
            tokens += image.tokens(reader)?;
            if tokens >= reader.context {
                let limit = reader.context.saturating_sub(1);
                let found = tokens;
                return Err(failed(runtime::Failure::PromptTooLong { found, limit }));
            }
            *part = json!({"type": "image"});
            images.push((image, reader));
        }
    }
    let images = images.into_iter();
    images.map(|(image, reader)| image.read(reader)).collect()
}

/// Refuses unsupported parts.
fn reader_of<'a>(
    place: &str,
    part: &Value,
    reader: Option<&'a ImageReader>,
) -> Result<&'a ImageReader, Failure> {
    let kind = part["type"].as_str().unwrap_or("unknown");
    match (kind, reader) {
        ("image_url", Some(reader)) => Ok(reader),
        (kind, reader) => {
            let known = match reader {
                Some(_) => "text and images",
                None => "text",
            };
            let kind: String = kind.chars().take(SHOWN_CHARS).collect();
            let message =
                format!("{place}: unsupported content type {kind}; the model accepts {known} only");
            Err(Failure::new(FailureKind::UnsupportedValue, message))
        }
    }
}

impl EncodedImage {
    fn find(place: String, link: &Value) -> Result<Self, Failure> {
        let bytes = inline(&place, link["url"].as_str().unwrap_or_default())?;
        let detail = match link["detail"].as_str() {
            Some("low") => ImageDetail::Low,
            _ => ImageDetail::Full,
        };
        Ok(Self {
            place,
            bytes,
            detail,
        })
    }

    /// From the header only.
    fn tokens(&self, reader: &ImageReader) -> Result<usize, Failure> {
        let size = image::inspect(&self.bytes, PHOTO).map_err(|error| self.unusable(&error))?;
        let size = [size.width as usize, size.height as usize];
        let tokens = reader.input.tokens(size, self.detail);
        tokens.map_err(|failure| self.named(failure))
    }

    fn read(self, reader: &ImageReader) -> Result<ChatImage, Failure> {
        // Decodes one image at a time: pixels take many times the memory of their file.
        static DECODING: Mutex<()> = Mutex::new(());
        let _alone = DECODING.lock();
        let pixels = decoded(&self.bytes).map_err(|error| self.unusable(&error))?;
        let size = [pixels.width() as usize, pixels.height() as usize];
        let image = reader.input.process(&rgb(pixels), size, self.detail);
        image.map_err(|failure| self.named(failure))
    }

    fn unusable(&self, error: &ImageError) -> Failure {
        let message = format!("{}: the image is unusable: {error}", self.place);
        Failure::new(FailureKind::InvalidRequest, message)
    }

    fn named(&self, failure: runtime::Failure) -> Failure {
        match failure {
            runtime::Failure::BadRequest(reason) => {
                let message = format!("{}: {reason}", self.place);
                Failure::new(FailureKind::InvalidRequest, message)
            }
            failure => failed(failure),
        }
    }
}

/// Formatted like the daemon's engine refusals.
fn failed(failure: runtime::Failure) -> Failure {
    match blame::said(failure) {
        Said::Failed(failure) => failure,
        _ => Failure::new(FailureKind::WorkerFailed, "reading an image failed"),
    }
}

/// The bytes of a data URL.
fn inline(place: &str, url: &str) -> Result<Vec<u8>, Failure> {
    let Some(data) = url.strip_prefix("data:") else {
        let scheme: String = url
            .split(':')
            .next()
            .unwrap_or_default()
            .chars()
            .take(SHOWN_CHARS)
            .collect();
        let message = format!(
            "{place}.image_url.url: links of type {scheme} are not supported by this worker; send the image as a data URL"
        );
        return Err(Failure::new(FailureKind::UnsupportedValue, message));
    };
    let invalid = |reason: String| {
        let message = format!("{place}.image_url.url: {reason}");
        Failure::new(FailureKind::InvalidRequest, message)
    };
    let text = data.split_once(',');
    let text = text.filter(|(kind, _)| kind.to_ascii_lowercase().ends_with(";base64"));
    let Some((_, text)) = text else {
        let reason = "a data URL must contain \";base64,\" and the image in base64";
        return Err(invalid(reason.to_owned()));
    };
    if text.len() / 4 * 3 > MOST_BYTES {
        let found = text.len() / 4 * 3;
        let reason = format!("the image has {found} bytes, at most {MOST_BYTES} are allowed");
        return Err(invalid(reason));
    }
    let bytes = STANDARD.decode(text);
    bytes.map_err(|error| invalid(format!("the image is no base64: {error}")))
}

/// Width, height and RGB bytes of an image.
pub fn rgb_of(bytes: &[u8]) -> Result<([u32; 2], Vec<u8>), ImageError> {
    image::inspect(bytes, PHOTO)?;
    let pixels = decoded(bytes)?;
    Ok(([pixels.width(), pixels.height()], rgb(pixels)))
}

/// The first frame of a GIF or another animation.
fn decoded(bytes: &[u8]) -> Result<Pixels, ImageError> {
    match image::decode_photo(bytes, MOST_PIXELS) {
        Err(ImageError::Gif | ImageError::Animated) => {
            image::decode_first_frame(bytes, Bounds::Pixels(MOST_PIXELS))
        }
        decoded => decoded,
    }
}

/// Without opacity, as transformers drops it.
fn rgb(pixels: Pixels) -> Vec<u8> {
    match pixels.channels() {
        Channels::Rgb => pixels.into_bytes(),
        Channels::Rgba => {
            let pixels = pixels.bytes().as_chunks::<4>().0.iter();
            pixels.flat_map(|[r, g, b, _]| [*r, *g, *b]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> ImageReader {
        ImageReader {
            input: Arc::new(ImageInput::published(9)),
            context: 1000,
        }
    }

    fn chat(url: &str) -> Vec<Value> {
        let image = json!({"type": "image_url", "image_url": {"url": url}});
        let text = json!({"type": "text", "text": "what is this?"});
        vec![
            json!({"role": "system", "content": "be short"}),
            json!({"role": "user", "content": [text, image]}),
        ]
    }

    fn link(width: u32, height: u32) -> String {
        let size = image::Size { width, height };
        let bytes = vec![120; (size.pixels() * 3) as usize];
        let pixels = Pixels::new(size, Channels::Rgb, bytes).unwrap();
        let png = image::to_png(&pixels, &[]).unwrap();
        format!("data:image/png;base64,{}", STANDARD.encode(png))
    }

    #[test]
    fn an_image_is_read_and_leaves_its_place() {
        let mut messages = chat(&link(300, 200));
        let images = take(&mut messages, Some(&reader())).unwrap();
        assert_eq!(images.len(), 1);
        // 320 by 192 are fewer than 256 by 256 pixels.
        assert_eq!(images[0].rows(), 7 * 10);
        let parts = &messages[1]["content"];
        assert_eq!(parts[1], json!({"type": "image"}));
        assert_eq!(parts[0]["text"], "what is this?");
    }

    #[test]
    fn low_detail_takes_fewer_tokens() {
        let mut full = chat(&link(900, 900));
        let mut low = full.clone();
        low[1]["content"][1]["image_url"]["detail"] = json!("low");
        let tokens = |messages: &mut Vec<Value>| {
            let images = take(messages, Some(&reader())).unwrap();
            images[0].rows()
        };
        assert_eq!((tokens(&mut full), tokens(&mut low)), (784, 256));
    }

    /// The first image ends after its header, which nothing finds out.
    #[test]
    fn images_that_do_not_fit_together_are_not_decoded() {
        let cut = |link: String| {
            let data = link.find(',').unwrap() + 1;
            link[..data + (link.len() - data) / 8 * 4].to_owned()
        };
        let mut messages = chat(&cut(link(900, 900)));
        let refused = take(&mut messages.clone(), Some(&reader())).unwrap_err();
        assert!(refused.message.contains("truncated"), "{refused}");
        let second = json!({"type": "image_url", "image_url": {"url": link(900, 900)}});
        let parts = messages[1]["content"].as_array_mut().unwrap();
        parts.push(second);
        let refused = take(&mut messages, Some(&reader())).unwrap_err();
        assert_eq!(
            refused.kind,
            FailureKind::ContextLengthExceeded,
            "{refused}"
        );
    }

    #[test]
    fn a_refused_image_is_named() {
        let reader = reader();
        for (url, kind, named) in [
            (
                "https://a.b/c.png",
                FailureKind::UnsupportedValue,
                "links of type https",
            ),
            ("data:image/png,AA", FailureKind::InvalidRequest, ";base64,"),
            (
                "data:image/png;base64,*",
                FailureKind::InvalidRequest,
                "no base64",
            ),
            (
                "data:image/png;base64,AAAA",
                FailureKind::InvalidRequest,
                "cannot be decoded",
            ),
            (
                &link(401, 2),
                FailureKind::InvalidRequest,
                "more than 200 times",
            ),
            (
                &link(2000, 2000),
                FailureKind::ContextLengthExceeded,
                "1000 tokens",
            ),
        ] {
            let refused = take(&mut chat(url), Some(&reader)).unwrap_err();
            assert_eq!(refused.kind, kind, "{refused}");
            assert!(refused.message.contains(named), "{refused}");
        }
        let refused = take(&mut chat(&link(4, 4)), None).unwrap_err();
        assert_eq!(refused.kind, FailureKind::UnsupportedValue);
        let named = "messages[1].content[1]: unsupported content type image_url; the model accepts text only";
        assert_eq!(refused.message, named);
    }
}
