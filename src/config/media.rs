//! `[serve.media]`: where the coordinator keeps images.

use std::path::PathBuf;
use std::time::Duration;

use super::reader::Reader;
use super::secret::Secret;
use super::setting::settings;
use super::units::Size;
use super::value::WebAddress;

settings! {
    /// Where the coordinator stores images: results of workers and source images of clients.
    pub struct MediaConfig = "serve.media" {
        /// Folder for images, which the coordinator serves itself. Change it to use another disk.
        folder: Option<PathBuf>; unset "media in worker.data_dir",
        /// S3 bucket for images, instead of the folder; links point to the bucket. Set it for many images.
        bucket: Option<String>; unset "the folder",
        /// Region of the bucket.
        region: String = "us-east-1",
        /// URL of an S3 service other than Amazon's. Workers and clients must reach it, too.
        endpoint: Option<WebAddress>; unset "Amazon S3",
        /// Access key ID for the bucket: the ID itself, "file:PATH" or "env:NAME".
        access_key_id: Option<Secret>; unset "the machine's own credentials"; shared &[("AWS_ACCESS_KEY_ID", "")],
        /// Secret access key for the bucket: the key itself, "file:PATH" or "env:NAME".
        secret_access_key: Option<Secret>; unset "the machine's own credentials"; shared &[("AWS_SECRET_ACCESS_KEY", "")],
        /// How long images are kept, and the maximum lifetime of a link to an image. Lower it to save disk space.
        keep: Duration where (3600..=604_800) = "24h",
        /// Maximum size of an image from a worker.
        largest_upload: Size where (1 << 10..=1 << 30) = "32 MiB",
        /// Space to keep free on the disk of the folder; with less, no images are accepted and no image jobs are handed out. Raise it where other programs write to the same disk.
        keep_free: Size where (0..=1 << 50) = "256 MiB",
    }
}

impl MediaConfig {
    /// Reads the section, and checks settings that depend on each other.
    pub(super) fn read_whole(reader: &mut Reader<'_>) -> Option<Self> {
        let media = Self::read(reader)?;
        let wrong = match (&media.folder, &media.bucket) {
            (Some(_), Some(_)) => {
                "serve.media.folder and serve.media.bucket are both set: choose one"
            }
            (_, Some(_)) if media.access_key_id.is_some() != media.secret_access_key.is_some() => {
                "only one of serve.media.access_key_id and serve.media.secret_access_key is set: set both or neither"
            }
            _ => return Some(media),
        };
        reader.problem_here(wrong.to_owned());
        None
    }

    pub fn bucket(&self) -> Option<&str> {
        self.bucket.as_deref()
    }

    /// The id of the key to the bucket, and its secret.
    pub fn key(&self) -> Option<(String, String)> {
        let (id, secret) = self
            .access_key_id
            .as_ref()
            .zip(self.secret_access_key.as_ref())?;
        Some((id.expose().to_owned(), secret.expose().to_owned()))
    }
}
