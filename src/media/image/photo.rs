//! Large images, as phones take them, made smaller while they are decoded: a photo of 64 megapixels takes less memory
//! than one of 16 that is decoded whole.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, RgbaImage};

use super::area::AreaMean;
use super::decode::{decoder, pixels, still, upright};
use super::header::{self, Essence};
use super::{Bounds, ImageError, Pixels, Size};

/// The largest image that [`decode_photo`] takes.
pub const PHOTO: Bounds = Bounds::Pixels(64 << 20);
/// Memory limit of decoding a photo, besides its file.
pub const PHOTO_BYTES: u64 = 136 << 20;

/// Decoding a WebP whole, or a PNG that may have 16 bits a channel.
const WEBP_BYTES_A_PIXEL: u64 = 7;
const PNG_BYTES_A_PIXEL: u64 = 12;

/// A still image, complete and the right way up. An image of more than `most_pixels` is made smaller, and keeps its shape.
pub fn decode_photo(bytes: &[u8], most_pixels: u64) -> Result<Pixels, ImageError> {
    let essence = header::read(bytes).ok_or(ImageError::Unreadable)?;
    PHOTO.check(essence.size)?;
    let essence = still(essence)?;
    let to = within(essence.size, most_pixels);
    if to == essence.size {
        return pixels(essence);
    }
    let smaller = match essence.format {
        ImageFormat::Jpeg => jpeg(&essence, to)?,
        ImageFormat::Png if !essence.is_progressive => png(&essence, to)?,
        ImageFormat::Png => whole(&essence, to, ("an interlaced PNG", PNG_BYTES_A_PIXEL))?,
        _ => whole(&essence, to, ("a WebP", WEBP_BYTES_A_PIXEL))?,
    };
    let orientation = decoder(&essence)?.orientation();
    turned(smaller, orientation.map_err(|_| ImageError::Unreadable)?)
}

/// The size of this aspect ratio with at most `most_pixels`. A line of pixels becomes shorter.
fn within(size: Size, most_pixels: u64) -> Size {
    if size.pixels() <= most_pixels {
        return size;
    }
    let scale = (most_pixels as f64 / size.pixels() as f64).sqrt();
    let scaled = |side: u32| ((f64::from(side) * scale) as u32).max(1);
    let most = |other: u32| u32::try_from(most_pixels / u64::from(other)).unwrap_or(u32::MAX);
    let height = scaled(size.height);
    let width = scaled(size.width).min(most(height)).max(1);
    Size {
        width,
        height: height.min(most(width)).max(1),
    }
}

fn turned(pixels: Pixels, orientation: Orientation) -> Result<Pixels, ImageError> {
    if orientation == Orientation::NoTransforms {
        return Ok(pixels);
    }
    let Size { width, height } = pixels.size();
    let image = RgbaImage::from_raw(width, height, pixels.into_bytes());
    let mut image = DynamicImage::from(image.ok_or(ImageError::Unreadable)?);
    image.apply_orientation(orientation);
    upright(image)
}

/// By the transform of JPEG itself, of as many eighths as memory allows; the rest by [`AreaMean`].
fn jpeg(essence: &Essence<'_>, to: Size) -> Result<Pixels, ImageError> {
    let [width, height] = eighths(essence, to)?.map(|side| side as u16);
    let mut decoder = jpeg_decoder::Decoder::new(&*essence.bytes);
    decoder.set_max_decoding_buffer_size(PHOTO_BYTES as usize);
    let unreadable = |_| ImageError::Unreadable;
    let (width, height) = decoder.scale(width, height).map_err(unreadable)?;
    let format = decoder.info().ok_or(ImageError::Unreadable)?.pixel_format;
    // Lossless JPEGs of 16 bits a sample.
    if format == jpeg_decoder::PixelFormat::L16 {
        return Err(ImageError::Unreadable);
    }
    let samples = decoder.decode().map_err(unreadable)?;
    // Coefficients and planes are no longer needed.
    drop(decoder);
    let from = Size {
        width: width.into(),
        height: height.into(),
    };
    let to = Size {
        width: to.width.min(from.width),
        height: to.height.min(from.height),
    };
    let mut mean = AreaMean::new(from, to);
    for row in samples.chunks_exact(from.width as usize * format.pixel_bytes()) {
        let pixels = row.chunks_exact(format.pixel_bytes());
        mean.push(pixels.map(|pixel| match *pixel {
            [gray] => [gray, gray, gray, u8::MAX],
            [red, green, blue] => [red, green, blue, u8::MAX],
            [cyan, magenta, yellow, key] => {
                let light = |ink: u8| {
                    (u16::from(u8::MAX - ink) * u16::from(u8::MAX - key) / u16::from(u8::MAX)) as u8
                };
                [light(cyan), light(magenta), light(yellow), u8::MAX]
            }
            _ => [0; 4],
        }));
    }
    mean.finish()
}

/// The size of the largest scale at which decoding stays within memory: whole, a half, a quarter or an eighth.
fn eighths(essence: &Essence<'_>, to: Size) -> Result<[u32; 2], ImageError> {
    let components = essence.components;
    // Two bytes each, all before the first pixel; a second time where scans are missing.
    let coefficients = match essence.is_progressive {
        true => 4 * components.samples,
        false => 0,
    };
    let mut bytes = 0;
    for eighths in [8, 4, 2, 1] {
        let sides = [essence.size.width, essence.size.height];
        let sides = sides.map(|side| (side * eighths).div_ceil(8));
        let interleaved = components.count * u64::from(sides[0]) * u64::from(sides[1]);
        let planes = components.samples * u64::from(eighths * eighths) / 64;
        bytes = (coefficients + planes + interleaved).max(interleaved + 4 * to.pixels());
        if bytes <= PHOTO_BYTES {
            return Ok(sides);
        }
    }
    Err(ImageError::TooMuchMemory {
        format: match essence.is_progressive {
            true => "a progressive JPEG",
            false => "a JPEG",
        },
        found: essence.size.pixels(),
        bytes,
    })
}

fn png(essence: &Essence<'_>, to: Size) -> Result<Pixels, ImageError> {
    let mut decoder = png::Decoder::new(Cursor::new(&*essence.bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|_| ImageError::Unreadable)?;
    let channels = reader.output_color_type().0.samples();
    let mut mean = AreaMean::new(essence.size, to);
    while let Some(row) = reader.next_row().map_err(|_| ImageError::Unreadable)? {
        let pixels = row.data().chunks_exact(channels);
        mean.push(pixels.map(|pixel| match *pixel {
            [gray] => [gray, gray, gray, u8::MAX],
            [gray, alpha] => [gray, gray, gray, alpha],
            [red, green, blue] => [red, green, blue, u8::MAX],
            [red, green, blue, alpha] => [red, green, blue, alpha],
            _ => [0; 4],
        }));
    }
    mean.finish()
}

/// An image whose decoder needs all of it at once.
fn whole(
    essence: &Essence<'_>,
    to: Size,
    (format, bytes_a_pixel): (&'static str, u64),
) -> Result<Pixels, ImageError> {
    let found = essence.size.pixels();
    let bytes = found * bytes_a_pixel;
    if bytes > PHOTO_BYTES {
        return Err(ImageError::TooMuchMemory {
            format,
            found,
            bytes,
        });
    }
    let image = DynamicImage::from_decoder(decoder(essence)?);
    let image = image.map_err(|_| ImageError::Unreadable)?;
    let mut mean = AreaMean::new(essence.size, to);
    match image {
        DynamicImage::ImageRgb8(image) => {
            for row in image.rows() {
                mean.push(row.map(|pixel| {
                    let [red, green, blue] = pixel.0;
                    [red, green, blue, u8::MAX]
                }));
            }
        }
        image => {
            for row in image.into_rgba8().rows() {
                mean.push(row.map(|pixel| pixel.0));
            }
        }
    }
    mean.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use image::codecs::jpeg::JpegEncoder;
    use image::{GenericImageView, Rgb};
    use muster_testing::peak::growth;

    use super::{ImageError, Pixels, Size, decode_photo, within};

    const MOST: u64 = 3072 * 3072;

    /// Red grows to the right, green to the bottom. No pixel takes memory.
    struct Slopes(Size);

    impl GenericImageView for Slopes {
        type Pixel = Rgb<u8>;

        fn dimensions(&self) -> (u32, u32) {
            (self.0.width, self.0.height)
        }

        fn get_pixel(&self, x: u32, y: u32) -> Rgb<u8> {
            let share = |at: u32, of: u32| (at * 255 / (of - 1)) as u8;
            Rgb([share(x, self.0.width), share(y, self.0.height), 60])
        }
    }

    /// Like from a camera on its side: the first row is the right edge.
    fn camera_jpeg(size: Size) -> Vec<u8> {
        let mut jpeg = Vec::new();
        JpegEncoder::new_with_quality(&mut jpeg, 80)
            .encode_image(&Slopes(size))
            .unwrap();
        let exif = b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        [&jpeg[..2], exif, &jpeg[2..]].concat()
    }

    fn png(size: Size) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, size.width, size.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::Fastest);
        let mut writer = encoder.write_header().unwrap();
        let mut rows = writer.stream_writer().unwrap();
        for y in 0..size.height {
            let row = (0..size.width).flat_map(|x| Slopes(size).get_pixel(x, y).0);
            rows.write_all(&row.collect::<Vec<_>>()).unwrap();
        }
        rows.finish().unwrap();
        drop(writer);
        bytes
    }

    /// A progressive JPEG of one gray, with a scan of the means of blocks and no other.
    fn progressive_jpeg(size: Size) -> Vec<u8> {
        let sides = [size.height, size.width].map(|side| (side as u16).to_be_bytes());
        let blocks = 6 * size.width.div_ceil(16) * size.height.div_ceil(16);
        // The first block is 40 more than nothing, each other as the one before.
        let mut scan = vec![0b1010_1000];
        scan.resize(1 + (blocks as usize - 1).div_ceil(8), 0);
        [
            &b"\xff\xd8\xff\xdb\0\x43\0"[..],
            &[8; 64],
            b"\xff\xc2\0\x11\x08",
            &sides.concat(),
            b"\x03\x01\x22\0\x02\x11\0\x03\x11\0",
            // Code 0 is no difference, code 10 one of six bits.
            b"\xff\xc4\0\x15\0\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x06",
            b"\xff\xda\0\x0c\x03\x01\0\x02\0\x03\0\0\0\0",
            &scan,
            b"\xff\xd9",
        ]
        .concat()
    }

    fn pixel(image: &Pixels, x: u32, y: u32) -> [u8; 4] {
        let start = (y as usize * image.width() as usize + x as usize) * 4;
        image.bytes()[start..start + 4].try_into().unwrap()
    }

    fn check(image: &Pixels, at: (u32, u32), expected: [u8; 4]) {
        let found = pixel(image, at.0, at.1);
        let is_near = found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 4);
        assert!(is_near, "{at:?}: {found:?}, expected {expected:?}");
    }

    const PHONE: Size = Size {
        width: 9248,
        height: 6944,
    };

    fn check_peak(test: &str, work: impl FnOnce()) {
        let grown = growth(&format!("image::photo::tests::{test}"), work);
        if let Some(grown) = grown {
            assert!(grown < 150_000_000, "{grown} bytes");
        }
    }

    #[test]
    fn a_jpeg_of_64_megapixels_takes_less_than_150_megabytes() {
        check_peak(
            "a_jpeg_of_64_megapixels_takes_less_than_150_megabytes",
            || {
                let photo = decode_photo(&camera_jpeg(PHONE), MOST).unwrap();
                let [width, height] = [photo.width(), photo.height()];
                assert_eq!([width, height], [2661, 3545]);
                check(&photo, (0, 0), [0, 255, 60, 255]);
                check(&photo, (width - 1, 0), [0, 0, 60, 255]);
                check(&photo, (0, height - 1), [255, 255, 60, 255]);
                check(&photo, (width / 2, height / 2), [127, 127, 60, 255]);
            },
        );
    }

    #[test]
    fn a_png_of_64_megapixels_takes_less_than_150_megabytes() {
        check_peak(
            "a_png_of_64_megapixels_takes_less_than_150_megabytes",
            || {
                let photo = decode_photo(&png(PHONE), MOST).unwrap();
                assert_eq!([photo.width(), photo.height()], [3545, 2661]);
                check(&photo, (0, 0), [0, 0, 60, 255]);
                check(&photo, (3544, 1330), [255, 127, 60, 255]);
            },
        );
    }

    #[test]
    fn a_progressive_jpeg_takes_less_than_150_megabytes() {
        check_peak("a_progressive_jpeg_takes_less_than_150_megabytes", || {
            let size = Size {
                width: 4928,
                height: 3264,
            };
            let photo = decode_photo(&progressive_jpeg(size), MOST).unwrap();
            check(&photo, (0, 0), [168, 168, 168, 255]);
            let last = (photo.width() - 1, photo.height() - 1);
            check(&photo, last, [168, 168, 168, 255]);
        });
    }

    #[test]
    fn a_photo_whose_decoder_needs_too_much_is_refused_by_name() {
        let refused = |bytes: &[u8], named: &str| {
            let error = decode_photo(bytes, MOST).unwrap_err();
            assert!(matches!(error, ImageError::TooMuchMemory { .. }), "{error}");
            assert!(error.to_string().contains(named), "{error}");
        };
        refused(&progressive_jpeg(PHONE), "a progressive JPEG takes");
        let mut interlaced = png(Size {
            width: 8,
            height: 8,
        });
        let header: Vec<u8> = [PHONE.width, PHONE.height].map(u32::to_be_bytes).concat();
        interlaced[16..24].copy_from_slice(&header);
        interlaced[28] = 1;
        refused(&interlaced, "an interlaced PNG takes");
        let sides = (PHONE.width - 1) | (PHONE.height - 1) << 14;
        let webp = [
            b"RIFF\x12\0\0\0WEBPVP8L\x05\0\0\0\x2f",
            &sides.to_le_bytes()[..],
            b"\0",
        ];
        refused(&webp.concat(), "a WebP takes");
    }

    #[test]
    fn a_reduced_image_keeps_its_shape() {
        let sizes = |width, height| {
            let Size { width, height } = within(Size { width, height }, 10_000);
            [width, height]
        };
        assert_eq!(sizes(100, 100), [100, 100]);
        assert_eq!(sizes(400, 100), [200, 50]);
        assert_eq!(sizes(16_383, 1), [10_000, 1]);
        assert_eq!(sizes(1, 16_383), [1, 10_000]);
    }
}
