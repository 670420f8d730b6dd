//! The types of media that are stored and served. The bytes decide on the type, never their label.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaType {
    Webp,
    Png,
    Jpeg,
}

/// The number of leading bytes that decide on a type.
pub const SIGNATURE_BYTES: usize = 12;

impl MediaType {
    pub const ALL: [Self; 3] = [Self::Webp, Self::Png, Self::Jpeg];

    pub const fn extension(self) -> &'static str {
        match self {
            Self::Webp => "webp",
            Self::Png => "png",
            Self::Jpeg => "jpg",
        }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Webp => "image/webp",
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
        }
    }

    pub fn from_extension(extension: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|media_type| media_type.extension() == extension)
    }

    pub fn from_content_type(content_type: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|media_type| media_type.content_type().eq_ignore_ascii_case(content_type))
    }

    /// The type of media that begin with these bytes.
    pub fn sniff(bytes: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|media_type| media_type.begins(bytes))
    }

    fn begins(self, bytes: &[u8]) -> bool {
        match self {
            Self::Webp => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"),
            Self::Png => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
            Self::Jpeg => bytes.starts_with(b"\xff\xd8\xff"),
        }
    }
}
