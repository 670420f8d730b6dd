//! `[serve.media]`: where the coordinator keeps images.

use std::path::PathBuf;
use std::time::Duration;

use super::reader::Reader;
use super::secret::Secret;
use super::setting::settings;
use super::units::Size;
use super::value::WebAddress;

settings! {
    /// Where the coordinator keeps images: what workers make, and what clients send along.
    pub struct MediaConfig = "serve.media" {
        /// The folder they are in, served by links of the coordinator's own. Change it to use another disk.
        folder: Option<PathBuf>; unset "media in worker.data_dir",
        /// The bucket they are in instead, of a service that speaks S3; links lead there. Set it for many images.
        bucket: Option<String>; unset "the folder",
        /// The region of the bucket.
        region: String = "us-east-1",
        /// The address of the service, when it is not Amazon's. Workers and clients must reach it, too.
        endpoint: Option<WebAddress>; unset "Amazon's",
        /// The id of the key to the bucket: its text, "file:PATH" or "env:NAME".
        access_key_id: Option<Secret>; unset "the machine's own credentials"; shared &[("AWS_ACCESS_KEY_ID", "")],
        /// The secret of that key: its text, "file:PATH" or "env:NAME".
        secret_access_key: Option<Secret>; unset "the machine's own credentials"; shared &[("AWS_SECRET_ACCESS_KEY", "")],
        /// How long images stay, and the longest a link to one is good.
        keep: Duration where (3600..=604_800) = "24h",
        /// The largest image a worker may send.
        largest_upload: Size where (1 << 10..=1 << 30) = "32 MiB",
        /// What stays free on the disk of the folder: no more images are taken or given out to be drawn until then. Raise it where others write there, too.
        keep_free: Size where (0..=1 << 50) = "256 MiB",
    }
}

impl MediaConfig {
    /// The section, what belongs together held against each other.
    pub(super) fn read_whole(reader: &mut Reader<'_>) -> Option<Self> {
        let media = Self::read(reader)?;
        let wrong = match (&media.folder, &media.bucket) {
            (Some(_), Some(_)) => {
                "serve.media.folder and serve.media.bucket are both set: images are in one of them"
            }
            (_, Some(_)) if media.access_key_id.is_some() != media.secret_access_key.is_some() => {
                "one of serve.media.access_key_id and serve.media.secret_access_key is set: a key has both"
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
