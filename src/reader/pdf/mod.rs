//! PDF files for models: pages as images, and their text.
//!
//! | file | contents |
//! | --- | --- |
//! | `page_text` | the text of a page, in drawing order |

mod page_text;

#[cfg(test)]
mod tests;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hayro::hayro_interpret::InterpreterSettings;
use hayro::hayro_syntax::page::Page;
use hayro::hayro_syntax::{LoadPdfError, Pdf};
use hayro::vello_cpu::color::palette::css::WHITE;
use hayro::{PixmapSettings, RenderCache, RenderSettings, render};
use muster_media::image::{Channels, ImageError, Pixels, Size, to_jpeg, to_png};

use crate::task::{PageForm, PageLengths, PdfLimits, Reply};

/// Points of a PDF are 1/72 of an inch: small pages are rendered at 200 dots an inch and no more.
const MOST_SCALE: f32 = 200.0 / 72.0;
/// Models refuse images that are a line.
const LEAST_SIDE: f32 = 32.0;
/// A larger PNG is a photo: it becomes a JPEG.
const LARGE_PNG: usize = 768 << 10;
const JPEG_QUALITY: u8 = 90;
const NO_PDF: &str = "the PDF is damaged and cannot be read";

/// Hands on each page's text, then its image.
pub fn read(
    file: Vec<u8>,
    form: PageForm,
    limits: PdfLimits,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Reply> {
    // The library is young, and the bytes are of strangers.
    let read = catch_unwind(AssertUnwindSafe(|| pages(file, form, limits, each)));
    match read {
        Ok(Ok(pages)) => Ok(Reply::Pages(pages)),
        Ok(Err(PdfError::Refused(why))) => Ok(Reply::Refused(why)),
        Ok(Err(PdfError::Pipe(error))) => Err(error),
        Err(_) => Ok(Reply::Refused(NO_PDF.to_owned())),
    }
}

/// Why pages were not handed on.
enum PdfError {
    Refused(String),
    Pipe(io::Error),
}

impl From<ImageError> for PdfError {
    fn from(error: ImageError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<io::Error> for PdfError {
    fn from(error: io::Error) -> Self {
        Self::Pipe(error)
    }
}

fn pages(
    file: Vec<u8>,
    form: PageForm,
    limits: PdfLimits,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<Vec<PageLengths>, PdfError> {
    let refused = |why: &str| Err(PdfError::Refused(why.to_owned()));
    let pdf = match Pdf::new(file) {
        Ok(pdf) => pdf,
        Err(LoadPdfError::Decryption(_)) => {
            return refused("the PDF is encrypted: send it without a password");
        }
        Err(LoadPdfError::Invalid) => return refused(NO_PDF),
    };
    let pages = pdf.pages();
    let most = limits.pages;
    match pages.len() {
        0 => return refused("the PDF has no pages"),
        found if found > most as usize => {
            let why = format!("the PDF has {found} pages, where at most {most} are read");
            return Err(PdfError::Refused(why));
        }
        _ => {}
    }
    let cache = RenderCache::new();
    let mut text_left = limits.text_bytes as usize;
    let mut lengths = Vec::with_capacity(pages.len());
    for page in pages.iter() {
        let text = page_text::of(page, text_left);
        text_left = match text_left.checked_sub(text.len()) {
            Some(left) if left > 0 => left,
            _ => {
                let most = limits.text_bytes;
                let why = format!("the text of the PDF is larger than {most} bytes");
                return Err(PdfError::Refused(why));
            }
        };
        each(text.as_bytes())?;
        let image = match form {
            PageForm::Text => Vec::new(),
            PageForm::Image => image(page, &cache, limits.side)?,
        };
        each(&image)?;
        lengths.push(PageLengths {
            text: text.len(),
            image: image.len(),
        });
    }
    Ok(lengths)
}

/// A page as a PNG or JPEG whose longer side has at most `side` pixels.
fn image<'a>(page: &'a Page<'a>, cache: &RenderCache<'a>, side: u16) -> Result<Vec<u8>, PdfError> {
    let (width, height) = page.render_dimensions();
    let longer = width.max(height);
    if !longer.is_finite() || longer <= 0.0 {
        return Err(PdfError::Refused(
            "a page of the PDF has no size".to_owned(),
        ));
    }
    let scale = (f32::from(side) / longer).min(MOST_SCALE);
    let least = LEAST_SIDE.min(f32::from(side));
    // The renderer rounds down.
    let fit =
        |points: f32| ((points * scale).round().clamp(least, f32::from(side)) + 0.01) / points;
    let (x_scale, y_scale) = (fit(width), fit(height));
    let canvas = PixmapSettings {
        x_scale,
        y_scale,
        bg_color: WHITE,
    };
    let (settings, look) = (InterpreterSettings::default(), RenderSettings::default());
    let pixmap = render(page, cache, &settings, &look, &canvas);
    let size = Size {
        width: pixmap.width().into(),
        height: pixmap.height().into(),
    };
    let rgba = pixmap.data_as_u8_slice().chunks_exact(4);
    // The canvas is initially white, so that no pixel is transparent.
    let rgb: Vec<u8> = rgba
        .flat_map(|pixel| [pixel[0], pixel[1], pixel[2]])
        .collect();
    let pixels = Pixels::new(size, Channels::Rgb, rgb)?;
    let png = to_png(&pixels, &[])?;
    Ok(match png.len() > LARGE_PNG {
        true => to_jpeg(&pixels, JPEG_QUALITY)?,
        false => png,
    })
}
