//! Source images of requests: from text or URL, decoded within limits, kept in the media store.

use bytes::Bytes;

use crate::egress::{Egress, EgressError, Fetched, Limits};
use crate::media::{Holding, Key, Media, MediaError, QuotaExceeded, StorageQuota};
use crate::sender::Sender;
use crate::turns::Turns;
use muster_media::image::{Bounds, ImageError, PHOTO};
use muster_protocol::legacy::error::{Code, Refusal};
use muster_reader::Reader;

use super::budget::SampleBudget;
use super::{
    AT_ONCE, INTERROGATED, PictureError, Pictures, Preparation, Prepared, SOURCE, from_base64,
    to_base64,
};

/// Stores clients' source files. Clones share the HTTP client and the store.
#[derive(Debug, Clone)]
pub struct Sources {
    pub(super) egress: Egress,
    pub(super) pictures: Pictures,
    media: Media,
    /// A few images per sender at a time, so that a sender with many does not delay others.
    pub(super) turns: Turns<Sender>,
    pub(super) reader: Reader,
    /// One audio file per sender is decoded at a time.
    pub(super) sound_turns: Turns<Sender>,
    /// One document per sender is read at a time.
    pub(super) document_turns: Turns<Sender>,
    pub(super) sample_budget: SampleBudget,
    pub(super) quota: StorageQuota<Sender>,
}

/// The use of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A source image or a mask.
    Source,
    /// For inpainting without a separate mask.
    UnmaskedInpainting,
    /// For interrogation.
    Interrogated,
    /// A source image in OpenAI's API.
    Edited,
    /// A mask: transparent or white where the image is painted.
    Mask,
    /// A mask of the AI Horde API.
    PolledMask,
    /// For a model that reads images, in a chat.
    Shown,
}

/// A stored source image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub key: Key,
    pub width: u32,
    pub height: u32,
}

/// Why a source image is refused: one or two variants for each code of the AI Horde API.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    NotFetched(EgressError),
    #[error(transparent)]
    NotBase64(PictureError),
    #[error(transparent)]
    Resolution(PictureError),
    #[error("the source image is larger than {0} bytes")]
    Size(usize),
    #[error(transparent)]
    Url(EgressError),
    #[error("the source image URL returned no PNG, JPEG, WebP or GIF")]
    UrlHasNone,
    #[error(transparent)]
    Unreadable(PictureError),
    #[error("inpainting requires a mask, or a source image with transparent areas")]
    NoMask,
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    /// The media store is unavailable; not the client's fault.
    #[error(transparent)]
    Store(#[from] MediaError),
}

/// Most bytes of an image sent as text; its pixels have the stricter limit.
const SENT_BYTES: usize = 32 << 20;

impl Sources {
    /// `most_stored` limits the stored bytes per sender.
    pub fn new(egress: Egress, media: Media, reader: Reader, most_stored: u64) -> Self {
        Self {
            egress,
            pictures: Pictures::sent(),
            media,
            turns: Turns::for_each(at_once),
            reader,
            sound_turns: Turns::for_each(|_| 1),
            document_turns: Turns::for_each(|_| 1),
            sample_budget: SampleBudget::default(),
            quota: StorageQuota::new(most_stored),
        }
    }

    /// An empty holding for source images, which deletes them when dropped.
    pub fn holding(&self) -> Holding {
        self.media.hold(Vec::new())
    }

    /// Reads an image from base64 or an http(s) address. Stores it under this key for as long as the holding.
    pub async fn take_in(
        &self,
        sender: Sender,
        text: &str,
        role: Role,
        (key, holding): (Key, &mut Holding),
    ) -> Result<Source, SourceError> {
        self.quota.check(sender)?;
        let prepared = self.read(sender, text, role).await?;
        self.keep(sender, prepared, (key, holding)).await
    }

    /// The same for an uploaded file.
    pub async fn take_in_bytes(
        &self,
        sender: Sender,
        bytes: Bytes,
        role: Role,
        (key, holding): (Key, &mut Holding),
    ) -> Result<Source, SourceError> {
        self.quota.check(sender)?;
        let prepared = {
            let _turn = self.turns.turn(sender).await;
            let prepared = self
                .pictures
                .prepare(bytes, role.bounds(), role.preparation());
            prepared.await?
        };
        self.keep(sender, prepared, (key, holding)).await
    }

    /// Stores a file of a sender, counted in the quota for as long as the holding.
    pub(super) async fn keep_bytes<E: From<QuotaExceeded> + From<MediaError>>(
        &self,
        sender: Sender,
        bytes: Bytes,
        (key, holding): (Key, &mut Holding),
    ) -> Result<(), E> {
        holding.count(self.quota.take(sender, bytes.len() as u64)?);
        holding.add(key);
        Ok(self.media.put(key, bytes).await?)
    }

    async fn keep(
        &self,
        sender: Sender,
        prepared: Prepared,
        (key, holding): (Key, &mut Holding),
    ) -> Result<Source, SourceError> {
        let kept = self.keep_bytes::<SourceError>(sender, prepared.webp, (key, holding));
        kept.await?;
        Ok(Source {
            key,
            width: prepared.width,
            height: prepared.height,
        })
    }

    /// Checks the header of an image for a model that reads images. Fetches an image from an address, and returns it as
    /// a
    /// data URL.
    pub async fn check_shown(
        &self,
        sender: Sender,
        text: &str,
    ) -> Result<Option<String>, SourceError> {
        let (text, role) = (text.trim(), Role::Shown);
        if !is_address(text) {
            let _turn = self.turns.turn(sender).await;
            let bytes = from_base64(text, SENT_BYTES)?;
            self.pictures.measure(&bytes, role.bounds())?;
            return Ok(None);
        }
        let fetched = self.fetch(text, role).await?;
        let header = self.pictures.measure(&fetched.bytes, role.bounds());
        header.map_err(at_its_address)?;
        let kind = fetched.content_type.as_deref().unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let kind = match kind.starts_with("image/") {
            true => kind,
            false => "application/octet-stream",
        };
        let data = to_base64(&fetched.bytes);
        Ok(Some(format!("data:{kind};base64,{data}")))
    }

    pub(super) async fn read(
        &self,
        sender: Sender,
        text: &str,
        role: Role,
    ) -> Result<Prepared, SourceError> {
        let text = text.trim();
        let prepared = match is_address(text) {
            true => self.fetched(sender, text, role).await?,
            false => self.sent(sender, text, role).await?,
        };
        match role {
            Role::UnmaskedInpainting if !prepared.is_transparent => Err(SourceError::NoMask),
            _ => Ok(prepared),
        }
    }

    async fn fetched(
        &self,
        sender: Sender,
        url: &str,
        role: Role,
    ) -> Result<Prepared, SourceError> {
        let fetched = self.fetch(url, role).await?;
        let _turn = self.turns.turn(sender).await;
        let (bounds, use_as) = (role.bounds(), role.preparation());
        let prepared = self.pictures.prepare(fetched.bytes, bounds, use_as).await;
        prepared.map_err(at_its_address)
    }

    async fn fetch(&self, url: &str, role: Role) -> Result<Fetched, EgressError> {
        self.egress.fetch(url, role.limits()).await
    }

    async fn sent(&self, sender: Sender, text: &str, role: Role) -> Result<Prepared, SourceError> {
        let _turn = self.turns.turn(sender).await;
        let (text, bounds) = (text.to_owned(), role.bounds());
        let prepared = self
            .pictures
            .prepare_text(text, SENT_BYTES, bounds, role.preparation());
        Ok(prepared.await?)
    }
}

/// Concurrent images of a sender. An account may have many users, so it gets half of the slots.
pub(super) const fn at_once(sender: &Sender) -> usize {
    match sender {
        Sender::Account(_) => AT_ONCE / 2,
        Sender::Household(_) => 1,
    }
}

impl Role {
    const fn bounds(self) -> Bounds {
        match self {
            Self::Source | Self::UnmaskedInpainting | Self::PolledMask => SOURCE,
            Self::Edited | Self::Mask | Self::Shown => PHOTO,
            Self::Interrogated => INTERROGATED,
        }
    }

    const fn limits(self) -> Limits {
        match self {
            Self::Source | Self::UnmaskedInpainting | Self::PolledMask | Self::Interrogated => {
                Limits::SOURCE_IMAGE
            }
            Self::Edited | Self::Mask | Self::Shown => Limits::PHOTO,
        }
    }

    const fn preparation(self) -> Preparation {
        match self {
            Self::Source | Self::UnmaskedInpainting | Self::Interrogated => Preparation::FirstFrame,
            Self::Edited | Self::Shown => Preparation::Still,
            Self::Mask => Preparation::Mask,
            Self::PolledMask => Preparation::PolledMask,
        }
    }
}

impl SourceError {
    /// The AI Horde API's code; `None` if the client is not at fault.
    pub const fn code(&self) -> Option<Code> {
        Some(match self {
            Self::NotFetched(_) | Self::NotBase64(_) => Code::ImageValidationFailed,
            Self::Resolution(_) => Code::SourceImageResolutionExceeded,
            Self::Size(_) => Code::SourceImageSizeExceeded,
            Self::Url(_) | Self::UrlHasNone => Code::SourceImageUrlInvalid,
            Self::Unreadable(_) => Code::SourceImageUnreadable,
            Self::NoMask => Code::InpaintingMissingMask,
            Self::Quota(_) | Self::Store(_) => return None,
        })
    }

    /// The refusal in the AI Horde API.
    pub fn refusal(&self) -> Refusal {
        match (self, self.code()) {
            (_, Some(code)) => Refusal::new(code, self.to_string()),
            (Self::Quota(_), None) => Refusal::plain(429, self.to_string()),
            (_, None) => Refusal::plain(503, "storing the source image failed, retry later"),
        }
    }
}

impl From<EgressError> for SourceError {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::TooLarge(most) => Self::Size(most),
            EgressError::Unreachable | EgressError::TooSlow(_) => Self::NotFetched(error),
            error => Self::Url(error),
        }
    }
}

/// Reports a body that is no image as an error of its URL.
fn at_its_address(error: PictureError) -> SourceError {
    match error {
        PictureError::Image(error) if !is_too_large(error) => SourceError::UrlHasNone,
        error => error.into(),
    }
}

impl From<PictureError> for SourceError {
    fn from(error: PictureError) -> Self {
        match error {
            PictureError::NotBase64 => Self::NotBase64(error),
            PictureError::TooLarge { most } => Self::Size(most),
            PictureError::ColouredMask | PictureError::EmptyMask => Self::Unreadable(error),
            PictureError::Image(image) if is_too_large(image) => Self::Resolution(error),
            PictureError::Image(_) => Self::Unreadable(error),
        }
    }
}

const fn is_too_large(error: ImageError) -> bool {
    matches!(
        error,
        ImageError::TooManyPixels { .. }
            | ImageError::TooManyTiles { .. }
            | ImageError::TooLong { .. }
            | ImageError::TooMuchMemory { .. }
    )
}

/// Whether the image is at an address. Other texts are base64, `data:` URLs included.
pub fn is_address(text: &str) -> bool {
    let begins = |with: &str| {
        let head = text.get(..with.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(with))
    };
    begins("http://") || begins("https://")
}
