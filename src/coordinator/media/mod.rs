//! The media store for results and source images: a local folder with links served here, or an S3 bucket with presigned
//! ones.
//!
//! | file | contents |
//! | --- | --- |
//! | `key` | names and types of objects |
//! | `link` | signed links for one object, one use and a limited time |
//! | `folder` | objects as files |
//! | `disk` | free space of the folder's disk |
//! | `holding` | objects deleted when no longer needed |
//! | `owned` | the objects of an account |
//! | `quota` | bytes that one owner may have stored at a time |
//! | `bucket` | objects in a bucket of a service that speaks S3 |
//!
//! A link needs no key: possession is permission. An upload link is valid for one object of one type, of a bounded
//! size, once; a repeated upload of the same content gets the lost reply again. A folder enforces all of that during
//! the upload. A bucket cannot, so there an upload does not count until [`Media::take_in`] has checked it, and later
//! uploads by its link change nothing.
//!
//! Objects expire after a while, even if not deleted. No link outlives its object. A folder refuses uploads that would
//! fill its disk.

mod bucket;
#[cfg(test)]
pub mod bucket_tests;
mod disk;
mod folder;
mod holding;
mod key;
mod link;
mod owned;
mod quota;

#[cfg(test)]
mod tests;

pub use bucket::BucketSettings;
pub use holding::Holding;
pub use key::{Area, Key, NoKey};
pub use link::BadLink;
use muster_media::MediaKind;
pub use muster_media::MediaType;
pub use owned::{Owners, StoredObject};
pub use quota::{QuotaExceeded, QuotaShare, StorageQuota};

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{debug, info, warn};
use url::Url;
use uuid::Uuid;

use muster_process::tasks::Tasks;

use super::clock::wall_clock;

use bucket::Bucket;
use folder::Folder;
use holding::Unwanted;
use link::{Signer, Ticket};

/// The media store. Clones share it.
#[derive(Debug, Clone)]
pub struct Media {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    place: Place,
    keep: Duration,
    largest: u64,
    /// Prefix of all links.
    origin: Option<String>,
    unwanted: Unwanted,
}

#[derive(Debug)]
enum Place {
    Folder(Folder, Signer),
    Bucket(Bucket),
}

/// Location and retention of objects.
#[derive(Debug, Clone)]
pub struct MediaSettings {
    pub place: PlaceSettings,
    /// Retention of objects that are not deleted earlier.
    pub keep: Duration,
    /// Maximum bytes of one upload.
    pub largest: u64,
    /// Bytes kept free on the disk of a folder.
    pub spare: u64,
}

#[derive(Debug, Clone)]
pub enum PlaceSettings {
    Folder(PathBuf),
    Bucket(BucketSettings),
}

/// Parameters of signed links.
#[derive(Clone)]
pub struct Links {
    pub secret: [u8; 32],
    /// Public URL of this coordinator: `https://muster.example`.
    pub base: String,
}

/// The store is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    #[error("accessing the media folder failed: {0}")]
    Folder(#[from] io::Error),
    #[error("accessing the media bucket failed: {0}")]
    Bucket(#[from] object_store::Error),
}

/// Why an upload is refused.
#[derive(Debug, thiserror::Error)]
pub enum Unaccepted {
    #[error("this upload link was already used for another file: each link accepts one")]
    Used,
    #[error("the upload is {}, its link takes {wanted}", .found.map_or("of no known type", MediaType::name))]
    OtherType {
        found: Option<MediaType>,
        wanted: &'static str,
    },
    #[error("the upload is larger than the {most} bytes that this link allows")]
    TooLarge { most: u64 },
    #[error(transparent)]
    Link(#[from] BadLink),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    #[error(transparent)]
    Store(#[from] MediaError),
}

/// An incomplete body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Interrupted {
    #[error("the body ended early")]
    BrokeOff,
    #[error("the body stalled")]
    Silence,
    #[error("the body arrived too slowly")]
    Slow,
}

/// An object to be downloaded.
#[derive(Debug)]
pub struct Download {
    pub file: File,
    pub bytes: u64,
    pub kind: MediaType,
}

/// Interval of the checks of the folder or the bucket.
const LOOKS: Duration = Duration::from_secs(2);
/// Lifetime of a link of which only the origin is used.
const ORIGIN_LINK: Duration = Duration::from_secs(1);
const SWEEPS: Duration = Duration::from_secs(600);

impl MediaSettings {
    pub fn in_folder(root: PathBuf) -> Self {
        Self {
            place: PlaceSettings::Folder(root),
            keep: Duration::from_secs(86_400),
            largest: 32 << 20,
            spare: 0,
        }
    }
}

impl Place {
    /// Scheme, host and port of its links: workers upload only there.
    async fn origin(&self, links: &Links) -> Option<String> {
        let link = match self {
            Self::Folder(..) => links.base.clone(),
            Self::Bucket(bucket) => {
                let example = Key::new(Area::Results, Uuid::nil(), 1, MediaType::Webp);
                let link = bucket.download_link(example, ORIGIN_LINK).await;
                link.ok()?
            }
        };
        Some(Url::parse(&link).ok()?.origin().ascii_serialization())
    }
}

impl Media {
    /// Opens the store and starts its cleanup.
    pub async fn open(
        settings: &MediaSettings,
        links: &Links,
        tasks: &Tasks,
    ) -> Result<Self, MediaError> {
        let place = match &settings.place {
            PlaceSettings::Folder(root) => {
                let signer = Signer::new(&links.secret, &links.base);
                Place::Folder(Folder::open(root, settings.spare)?, signer)
            }
            PlaceSettings::Bucket(bucket) => {
                let bucket = Bucket::open(bucket)?;
                bucket.look().await?;
                Place::Bucket(bucket)
            }
        };
        let inner = Inner {
            origin: place.origin(links).await,
            place,
            keep: settings.keep,
            largest: settings.largest,
            unwanted: Unwanted::default(),
        };
        let media = Self {
            inner: Arc::new(inner),
        };
        let (sweeping, stopping) = (media.clone(), tasks.stopping());
        tasks.start(async move { stopping.run_until_cancelled(sweeping.sweep_on()).await });
        let (looking, stopping) = (media.clone(), tasks.stopping());
        tasks.start(async move { stopping.run_until_cancelled(looking.look_on()).await });
        let (deleting, stopping) = (media.clone(), tasks.stopping());
        tasks.start(async move { stopping.run_until_cancelled(deleting.delete_on()).await });
        Ok(media)
    }

    /// Scheme, host and port of all links, for example `https://store.example`.
    pub fn link_origin(&self) -> Option<String> {
        self.inner.origin.clone()
    }

    /// Stores an object, or replaces it.
    pub async fn put(&self, key: Key, bytes: Bytes) -> Result<(), MediaError> {
        match &self.inner.place {
            Place::Folder(folder, _) => folder.put(key, bytes).await?,
            Place::Bucket(bucket) => bucket.put(key, bytes).await?,
        }
        Ok(())
    }

    /// `None` if the object is gone.
    pub async fn get(&self, key: Key) -> Result<Option<Bytes>, MediaError> {
        Ok(match &self.inner.place {
            Place::Folder(folder, _) => folder.get(key).await?,
            Place::Bucket(bucket) => bucket.get(key).await?,
        })
    }

    /// Removes an object, and invalidates its upload link.
    pub async fn delete(&self, key: Key) -> Result<(), MediaError> {
        match &self.inner.place {
            Place::Folder(folder, _) => folder.delete(key).await?,
            Place::Bucket(bucket) => bucket.delete(key).await?,
        }
        Ok(())
    }

    /// A link for downloading an object without a key for a while.
    pub async fn download_link(&self, key: Key, valid_for: Duration) -> Result<String, MediaError> {
        let valid_for = valid_for.min(self.inner.keep);
        Ok(match &self.inner.place {
            Place::Folder(_, signer) => signer.download(key, wall_clock().after(valid_for)),
            Place::Bucket(bucket) => bucket.download_link(key, valid_for).await?,
        })
    }

    /// A temporary link for an upload with `PUT`. [`Media::take_in`] tells whether it was used. An error if the disk is
    /// full.
    pub async fn upload_link(&self, key: Key, valid_for: Duration) -> Result<String, MediaError> {
        self.upload_link_up_to(u64::MAX, key, valid_for).await
    }

    /// The same for an object of at most this many bytes. A bucket cannot enforce that: there [`Media::take_in_up_to`]
    /// refuses more.
    pub async fn upload_link_up_to(
        &self,
        most: u64,
        key: Key,
        valid_for: Duration,
    ) -> Result<String, MediaError> {
        let valid_for = valid_for.min(self.inner.keep);
        let ticket = Ticket {
            key,
            most: self.inner.largest.min(most),
        };
        Ok(match &self.inner.place {
            Place::Folder(folder, signer) => {
                folder.check_room(ticket)?;
                signer.upload(ticket, wall_clock().after(valid_for))
            }
            Place::Bucket(bucket) => bucket.upload_link(key, valid_for).await?,
        })
    }

    /// Whether an upload of the largest size would probably be accepted now.
    pub fn has_room(&self) -> bool {
        match &self.inner.place {
            Place::Folder(folder, _) => folder.has_room(self.inner.largest),
            Place::Bucket(bucket) => bucket.problem().is_none(),
        }
    }

    /// The longest lifetime of an object.
    pub fn kept(&self) -> Duration {
        self.inner.keep
    }

    pub fn is_bucket(&self) -> bool {
        matches!(self.inner.place, Place::Bucket(_))
    }

    /// The problem of the media store and its remedy, if any.
    pub fn problem(&self) -> Option<&'static str> {
        match &self.inner.place {
            Place::Folder(folder, _) => folder.problem(),
            Place::Bucket(bucket) => bucket.problem(),
        }
    }

    async fn look_on(self) {
        loop {
            sleep(LOOKS).await;
            match &self.inner.place {
                Place::Folder(folder, _) => {
                    if let Err(error) = folder.look().await {
                        debug!("checking the media folder failed: {error}");
                    }
                }
                Place::Bucket(bucket) => bucket.watch().await,
            }
        }
    }

    /// Accepts an upload: returns its length, or `None` if it is missing. May be repeated.
    pub async fn take_in(&self, key: Key) -> Result<Option<u64>, Unaccepted> {
        self.take_in_up_to(u64::MAX, key).await
    }

    /// The same for an object of at most this many bytes, as in its upload link.
    pub async fn take_in_up_to(&self, most: u64, key: Key) -> Result<Option<u64>, Unaccepted> {
        let most = self.inner.largest.min(most);
        match &self.inner.place {
            Place::Folder(folder, _) => Ok(folder.size(key).await?),
            Place::Bucket(bucket) => bucket.take_in(key, most).await,
        }
    }

    /// The object of a download link; `None` if it was deleted.
    pub async fn download(&self, key: &str, query: &str) -> Result<Option<Download>, Unaccepted> {
        let (folder, signer) = self.own_links()?;
        let key = signer.read_download(key, query, wall_clock())?;
        let opened = folder.open_file(key).await?;
        Ok(opened.map(|(file, bytes)| Download {
            file,
            bytes,
            kind: key.kind(),
        }))
    }

    /// Opens an object, if it exists. A bucket's object is copied to an unlinked file.
    pub async fn open_object(&self, key: Key) -> Result<Option<Download>, MediaError> {
        let opened = match &self.inner.place {
            Place::Folder(folder, _) => folder.open_file(key).await?,
            Place::Bucket(bucket) => match bucket.get(key).await? {
                Some(bytes) => Some(in_file(bytes).await?),
                None => None,
            },
        };
        Ok(opened.map(|(file, bytes)| Download {
            file,
            bytes,
            kind: key.kind(),
        }))
    }

    /// Receives an upload by a link. Returns its bytes.
    pub async fn upload(
        &self,
        key: &str,
        query: &str,
        content_type: Option<&str>,
        body: impl Stream<Item = Result<Bytes, Interrupted>> + Unpin,
    ) -> Result<u64, Unaccepted> {
        let (folder, signer) = self.own_links()?;
        let ticket = signer.read_upload(key, query, wall_clock())?;
        // An unspecific content type is decided by the bytes.
        if let Some(named) = content_type.filter(|named| !says_nothing(named)) {
            check_type(ticket.key, MediaType::from_content_type(named))?;
        }
        folder.receive(ticket, body).await
    }

    /// With a bucket, links of this server are never valid.
    fn own_links(&self) -> Result<(&Folder, &Signer), BadLink> {
        match &self.inner.place {
            Place::Folder(folder, signer) => Ok((folder, signer)),
            Place::Bucket(_) => Err(BadLink::NotOurs),
        }
    }

    /// Removes expired objects. Returns their number.
    pub async fn sweep(&self) -> Result<u64, MediaError> {
        let keep = self.inner.keep;
        Ok(match &self.inner.place {
            Place::Folder(folder, _) => folder.sweep(keep).await?,
            Place::Bucket(bucket) => bucket.sweep(keep).await?,
        })
    }

    async fn sweep_on(self) {
        loop {
            match self.sweep().await {
                Ok(0) => debug!("media cleanup: nothing to remove"),
                Ok(removed) => info!("media cleanup: removed {removed} old objects"),
                Err(error) => warn!("media cleanup failed, retrying later: {error}"),
            }
            sleep(SWEEPS).await;
        }
    }
}

async fn in_file(bytes: Bytes) -> io::Result<(File, u64)> {
    let length = bytes.len() as u64;
    let write = move || {
        let mut file = tempfile::tempfile()?;
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(file)
    };
    let written: io::Result<File> = spawn_blocking(write).await.map_err(io::Error::other)?;
    Ok((written?, length))
}

/// Images of all types are accepted, since they are converted where needed; audio and video must have the type of the
/// key. Documents are created here only.
fn check_type(key: Key, found: Option<MediaType>) -> Result<(), Unaccepted> {
    let wanted = key.kind();
    let fits = |found: MediaType| match wanted.kind() {
        MediaKind::Image => found.kind() == MediaKind::Image,
        MediaKind::Sound | MediaKind::Video => found == wanted,
        MediaKind::Document => false,
    };
    if found.is_some_and(fits) {
        return Ok(());
    }
    let wanted = match wanted.kind() {
        MediaKind::Image => "a WebP, PNG or JPEG image",
        MediaKind::Sound | MediaKind::Video | MediaKind::Document => wanted.name(),
    };
    Err(Unaccepted::OtherType { found, wanted })
}

/// Default types of HTTP libraries; the content is checked in any case.
fn says_nothing(content_type: &str) -> bool {
    const UNTOLD: [&str; 3] = [
        "application/octet-stream",
        "binary/octet-stream",
        "application/x-www-form-urlencoded",
    ];
    UNTOLD
        .iter()
        .any(|one| content_type.eq_ignore_ascii_case(one))
}

impl From<io::Error> for Unaccepted {
    fn from(error: io::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<object_store::Error> for Unaccepted {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error.into())
    }
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}
