//! Image files: source images, and results with their metadata.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::{Exit, Failure};
use crate::media::MediaType;
use crate::media::image::{
    Bounds, Channels, ImageError, Size, decode, encode_described, {self as codec},
};
use crate::runtime::maker::{PixelFormat, Pixels};

/// Most pixels of a source image that the engine accepts.
const MOST_PIXELS: u64 = 4096 * 4096;

/// Path and format of an image file.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageFile {
    path: PathBuf,
    media_type: MediaType,
}

impl ImageFile {
    /// Checks that the path can be written, before the image is generated.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        let media_type = match ending.to_ascii_lowercase().as_str() {
            "png" => MediaType::Png,
            "jpg" | "jpeg" => MediaType::Jpeg,
            "webp" => MediaType::Webp,
            _ => {
                let what = format!("{}: unknown kind of image file", path.display());
                let hint = "end the name in .png, .jpg or .webp";
                return Err(Failure::new(Exit::Usage, what).hint(hint));
            }
        };
        in_folder(path)?;
        let path = path.to_owned();
        Ok(Self { path, media_type })
    }

    /// `image-2.png` for the second of several.
    pub fn numbered(&self, index: u32, count: u32) -> PathBuf {
        numbered(&self.path, index, count)
    }

    /// `about` goes into the file.
    pub fn write(&self, path: &Path, pixels: Pixels, about: &str) -> Result<(), Failure> {
        let bytes = self.encode(pixels, about);
        let bytes = bytes.map_err(|error| Failure::new(Exit::Failed, error))?;
        fs::write(path, bytes).map_err(|error| Failure::writing(path, &error))
    }

    fn encode(&self, pixels: Pixels, about: &str) -> Result<Vec<u8>, ImageError> {
        let size = Size {
            width: pixels.width,
            height: pixels.height,
        };
        let (channels, bytes) = match pixels.format {
            PixelFormat::Rgb => (Channels::Rgb, pixels.bytes),
            PixelFormat::Rgba => (Channels::Rgba, pixels.bytes),
            PixelFormat::Gray => {
                let grays = pixels.bytes.into_iter();
                (Channels::Rgb, grays.flat_map(|gray| [gray; 3]).collect())
            }
        };
        let pixels = codec::Pixels::new(size, channels, bytes)?;
        encode_described(&pixels, self.media_type, Some(about))
    }
}

/// Refuses a file whose folder does not exist.
pub fn in_folder(path: &Path) -> Result<(), Failure> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        None => Ok(()),
        Some(missing) => {
            let what = format!("the folder {} does not exist", missing.display());
            Err(Failure::new(Exit::NotFound, what).hint("create it, or write elsewhere"))
        }
    }
}

/// `image-2.png` for the second of several.
pub fn numbered(path: &Path, index: u32, count: u32) -> PathBuf {
    if count == 1 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{}.{ending}", index + 1))
}

/// The pixels of a PNG, JPEG or WebP.
pub fn read_image(path: &Path) -> Result<Pixels, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::reading(path, &error))?;
    let pixels = decode(&bytes, Bounds::Pixels(MOST_PIXELS))
        .map_err(|error| Failure::new(Exit::BadData, format!("{}: {error}", path.display())))?;
    Ok(Pixels {
        width: pixels.width(),
        height: pixels.height(),
        format: match pixels.channels() {
            Channels::Rgb => PixelFormat::Rgb,
            Channels::Rgba => PixelFormat::Rgba,
        },
        bytes: pixels.into_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_numbered_where_there_are_several() {
        let file = ImageFile::new(Path::new("a.b.PNG")).unwrap();
        assert_eq!(file.numbered(0, 1), Path::new("a.b.PNG"));
        assert_eq!(file.numbered(1, 2), Path::new("a.b-2.PNG"));
        let refused = ImageFile::new(Path::new("a.gif")).unwrap_err();
        assert_eq!(refused.exit(), Some(Exit::Usage));
        let refused = ImageFile::new(Path::new("/nowhere/a.png")).unwrap_err();
        assert!(refused.to_string().contains("/nowhere does not exist"));
    }

    #[test]
    fn an_image_carries_the_settings_that_made_it_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let pixels = Pixels::rgb(3, 2, |x, y| [x as u8 * 40, y as u8 * 90, 7]);
        for name in ["a.png", "a.jpg", "a.webp"] {
            let path = folder.path().join(name);
            let file = ImageFile::new(&path).unwrap();
            file.write(&path, pixels.clone(), "a fox, Seed: 5").unwrap();
            let found = read_image(&path).unwrap();
            assert_eq!((found.width, found.height), (3, 2));
            let bytes = fs::read(&path).unwrap();
            let is_png = name == "a.png";
            let found_text = codec::description(&bytes);
            assert_eq!(found_text.as_deref(), Some("a fox, Seed: 5"), "{name}");
            let colors = found.bytes.chunks_exact(4).flat_map(|it| it[..3].to_vec());
            assert!(!is_png || colors.eq(pixels.bytes.iter().copied()));
        }
    }
}
