//! The types of media that are stored and served. The bytes decide on the type, never their label.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaType {
    Webp,
    Png,
    Jpeg,
    Wav,
    Flac,
    /// Opus in Ogg.
    Opus,
    Mp3,
    Mp4,
    Webm,
    Json,
    PlainText,
    /// Subtitles as SubRip has them.
    Srt,
    /// Subtitles as browsers have them.
    Vtt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaKind {
    Image,
    Sound,
    Video,
    /// A transcript, created here and never uploaded.
    Document,
}

/// The number of leading bytes that decide on a type.
pub const SIGNATURE_BYTES: usize = 64;

/// Other names of content types, as programs write them.
const ALIASES: [(&str, MediaType); 11] = [
    ("image/jpg", MediaType::Jpeg),
    ("audio/x-wav", MediaType::Wav),
    ("audio/wave", MediaType::Wav),
    ("audio/vnd.wave", MediaType::Wav),
    ("audio/x-flac", MediaType::Flac),
    ("audio/opus", MediaType::Opus),
    ("application/ogg", MediaType::Opus),
    ("audio/mp3", MediaType::Mp3),
    ("audio/x-mp3", MediaType::Mp3),
    ("video/x-m4v", MediaType::Mp4),
    ("audio/webm", MediaType::Webm),
];

/// Brands of MP4 files. Images (AVIF, HEIC) and QuickTime have other brands in the same container.
const MP4_BRANDS: [&[u8]; 8] = [
    b"iso", b"mp4", b"avc1", b"av01", b"hvc1", b"M4V", b"MSNV", b"dash",
];

impl MediaType {
    pub const ALL: [Self; 13] = [
        Self::Webp,
        Self::Png,
        Self::Jpeg,
        Self::Wav,
        Self::Flac,
        Self::Opus,
        Self::Mp3,
        Self::Mp4,
        Self::Webm,
        Self::Json,
        Self::PlainText,
        Self::Srt,
        Self::Vtt,
    ];

    pub const fn kind(self) -> MediaKind {
        match self {
            Self::Webp | Self::Png | Self::Jpeg => MediaKind::Image,
            Self::Wav | Self::Flac | Self::Opus | Self::Mp3 => MediaKind::Sound,
            Self::Mp4 | Self::Webm => MediaKind::Video,
            Self::Json | Self::PlainText | Self::Srt | Self::Vtt => MediaKind::Document,
        }
    }

    pub const fn extension(self) -> &'static str {
        match self {
            Self::Webp => "webp",
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Wav => "wav",
            Self::Flac => "flac",
            Self::Opus => "opus",
            Self::Mp3 => "mp3",
            Self::Mp4 => "mp4",
            Self::Webm => "webm",
            Self::Json => "json",
            Self::PlainText => "txt",
            Self::Srt => "srt",
            Self::Vtt => "vtt",
        }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Webp => "image/webp",
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Wav => "audio/wav",
            Self::Flac => "audio/flac",
            Self::Opus => "audio/ogg",
            Self::Mp3 => "audio/mpeg",
            Self::Mp4 => "video/mp4",
            Self::Webm => "video/webm",
            Self::Json => "application/json",
            Self::PlainText => "text/plain; charset=utf-8",
            Self::Srt => "application/x-subrip; charset=utf-8",
            Self::Vtt => "text/vtt; charset=utf-8",
        }
    }

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Webp => "WebP",
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Wav => "WAV",
            Self::Flac => "FLAC",
            Self::Opus => "Ogg Opus",
            Self::Mp3 => "MP3",
            Self::Mp4 => "MP4",
            Self::Webm => "WebM",
            Self::Json => "JSON",
            Self::PlainText => "plain text",
            Self::Srt => "SubRip",
            Self::Vtt => "WebVTT",
        }
    }

    /// Only the extension that [`MediaType::extension`] gives: object names have one spelling.
    pub fn from_extension(extension: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|media_type| media_type.extension() == extension)
    }

    /// Ignores parameters, such as `; codecs=opus`.
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        let essence = essence_of(content_type);
        let own = Self::ALL.map(|media_type| (essence_of(media_type.content_type()), media_type));
        own.into_iter()
            .chain(ALIASES)
            .find(|(name, _)| name.eq_ignore_ascii_case(essence))
            .map(|(_, media_type)| media_type)
    }

    /// The type of media that begin with these bytes: [`SIGNATURE_BYTES`] of them, or all of a shorter file.
    pub fn sniff(bytes: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|media_type| media_type.begins(bytes))
    }

    fn begins(self, bytes: &[u8]) -> bool {
        match self {
            Self::Webp => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"),
            Self::Png => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
            Self::Jpeg => bytes.starts_with(b"\xff\xd8\xff"),
            Self::Wav => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WAVE"),
            Self::Flac => bytes.starts_with(b"fLaC"),
            Self::Opus => ogg_codec(bytes).is_some_and(|codec| codec.starts_with(b"OpusHead")),
            Self::Mp3 => is_layer_three(bytes),
            Self::Mp4 => mp4_brand(bytes)
                .is_some_and(|brand| MP4_BRANDS.iter().any(|known| brand.starts_with(known))),
            Self::Webm => ebml_document(bytes) == Some(b"webm"),
            // A text has no signature.
            Self::Json | Self::PlainText | Self::Srt | Self::Vtt => false,
        }
    }
}

impl MediaKind {
    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Sound => "sound",
            Self::Video => "video",
            Self::Document => "document",
        }
    }
}

impl fmt::Display for MediaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn essence_of(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The first packet of an Ogg file: after the page header and its table of segment lengths.
fn ogg_codec(bytes: &[u8]) -> Option<&[u8]> {
    const PAGE_HEADER: usize = 27;
    if !bytes.starts_with(b"OggS") {
        return None;
    }
    let segments = usize::from(*bytes.get(PAGE_HEADER - 1)?);
    bytes.get(PAGE_HEADER + segments..)
}

/// A frame of MPEG audio, Layer III, of a known bit rate and sampling rate.
fn is_layer_three(bytes: &[u8]) -> bool {
    let Some(&[0xff, second, third, _]) = bytes.get(..4) else {
        return false;
    };
    let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
    let (bits, rate) = (third >> 4, third >> 2 & 3);
    second >> 5 == 7 && version != 1 && layer == 1 && (1..15).contains(&bits) && rate != 3
}

fn mp4_brand(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.get(4..8)? == b"ftyp")
        .then(|| bytes.get(8..12))
        .flatten()
}

/// The document type in the EBML header that Matroska and WebM begin with.
fn ebml_document(bytes: &[u8]) -> Option<&[u8]> {
    const DOC_TYPE: &[u8] = &[0x42, 0x82];
    let rest = bytes.strip_prefix(&[0x1a, 0x45, 0xdf, 0xa3])?;
    let (length, mut rest) = ebml_length(rest)?;
    rest = &rest[..length.min(rest.len())];
    while !rest.is_empty() {
        // Ids and lengths carry their own lengths in their first byte.
        let id = rest.get(..ebml_width(*rest.first()?)?)?;
        let (length, data) = ebml_length(&rest[id.len()..])?;
        let data_end = length.min(data.len());
        if id == DOC_TYPE {
            // May be padded with zeros.
            let name = data[..data_end].split(|byte| *byte == 0).next()?;
            return (length == data_end).then_some(name);
        }
        rest = &data[data_end..];
    }
    None
}

/// A length, and the bytes after it.
fn ebml_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let width = ebml_width(*bytes.first()?)?;
    let (coded, rest) = bytes.split_at_checked(width)?;
    let value = coded
        .iter()
        .fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    let value = value & !(1 << (7 * width));
    Some((usize::try_from(value).ok()?, rest))
}

/// The number of bytes of an id or a length that begins with this byte.
fn ebml_width(first: u8) -> Option<usize> {
    (first != 0).then(|| first.leading_zeros() as usize + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MediaKind, MediaType};

    /// An Ogg page with one packet.
    fn ogg(packet: &[u8]) -> Vec<u8> {
        let length = u8::try_from(packet.len()).unwrap();
        let header = b"OggS\0\x02\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\xaa\xbb\xcc\xdd\x01";
        [&header[..], &[length], packet].concat()
    }

    /// In FFmpeg's format.
    fn ebml(document: &[u8]) -> Vec<u8> {
        let before = b"\x42\x86\x81\x01\x42\xf7\x81\x01\x42\xf2\x81\x04\x42\xf3\x81\x08";
        let length = u8::try_from(document.len()).unwrap();
        let behind = b"\x42\x87\x81\x04\x42\x85\x81\x02";
        let header = [&before[..], b"\x42\x82", &[0x80 | length], document, behind].concat();
        let length = u8::try_from(header.len()).unwrap();
        let long_form = [0x01, 0, 0, 0, 0, 0, 0, length];
        [b"\x1a\x45\xdf\xa3", &long_form[..], &header].concat()
    }

    #[test]
    fn the_first_bytes_decide_on_the_type() {
        let mp4 = |brand: &[u8]| [b"\0\0\0\x20ftyp", brand, b"\0\0\x02\0"].concat();
        let cases: [(&[u8], Option<MediaType>); 28] = [
            (b"RIFF\x10\0\0\0WEBPVP8 ", Some(MediaType::Webp)),
            (b"RIFF\x10\0\0\0WAVEfmt ", Some(MediaType::Wav)),
            (b"RIFF\x10\0\0\0AVI LIST", None),
            (b"RIFF", None),
            (b"\x89PNG\r\n\x1a\n", Some(MediaType::Png)),
            (b"\x89PNG\n\x1a\n", None),
            (b"\xff\xd8\xff\xe0", Some(MediaType::Jpeg)),
            (b"\xff\xfb\x90\x44", Some(MediaType::Mp3)),
            (b"\xff\xf1\x50\x80", None),
            (b"\xff\xfe\x41\0", None),
            (b"ID3\x04", None),
            (b"fLaC\0\0\0\x22", Some(MediaType::Flac)),
            (&ogg(b"OpusHead\x01\x02"), Some(MediaType::Opus)),
            (&ogg(b"\x01vorbis"), None),
            (&ogg(b"\x7fFLAC"), None),
            (&ogg(b"OpusHead")[..34], None),
            (b"OggS", None),
            (&mp4(b"isom"), Some(MediaType::Mp4)),
            (&mp4(b"mp42"), Some(MediaType::Mp4)),
            (&mp4(b"avif"), None),
            (&mp4(b"heic"), None),
            (&mp4(b"qt  "), None),
            (&ebml(b"webm"), Some(MediaType::Webm)),
            (&ebml(b"webm\0\0"), Some(MediaType::Webm)),
            (&ebml(b"matroska"), None),
            (b"\x1a\x45\xdf\xa3", None),
            (b"GIF89a", None),
            (b"", None),
        ];
        for (bytes, expected) in cases {
            let what = String::from_utf8_lossy(bytes);
            assert_eq!(MediaType::sniff(bytes), expected, "{what}");
        }
    }

    #[test]
    fn names_lead_back_to_their_type() {
        for media_type in MediaType::ALL {
            let by_extension = MediaType::from_extension(media_type.extension());
            assert_eq!(by_extension, Some(media_type));
            let content_type = media_type.content_type();
            assert_eq!(
                MediaType::from_content_type(content_type),
                Some(media_type),
                "{content_type}"
            );
            let kind = match content_type.split('/').next() {
                Some("image") => MediaKind::Image,
                Some("audio") => MediaKind::Sound,
                Some("video") => MediaKind::Video,
                _ => MediaKind::Document,
            };
            assert_eq!(media_type.kind(), kind);
        }
        for (name, expected) in [
            ("Audio/OGG; codecs=opus", Some(MediaType::Opus)),
            ("audio/x-wav", Some(MediaType::Wav)),
            ("audio/mpeg", Some(MediaType::Mp3)),
            ("image/svg+xml", None),
            ("text/html", None),
            ("", None),
        ] {
            assert_eq!(MediaType::from_content_type(name), expected, "{name}");
        }
        assert_eq!(MediaType::from_extension("svg"), None);
    }

    proptest! {
        #[test]
        fn fuzz_any_bytes_are_sniffed(
            start in prop::sample::select(vec![&b"OggS"[..], b"\x1a\x45\xdf\xa3", b"\0\0\0\x20ftyp", b""]),
            rest in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = MediaType::sniff(&[start, &rest].concat());
        }
    }
}
