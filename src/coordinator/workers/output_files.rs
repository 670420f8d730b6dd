//! Files of jobs on socket workers: links to sources, an upload slot, and the check of an upload.

use std::borrow::Cow;
use std::time::Duration;

use futures_util::FutureExt;

use crate::dispatch::Offer;
use crate::media::{Area, Key, Media, MediaType};
use crate::pictures::{UploadCheck, VideoCheck, sound_bytes, video_bytes};
use muster_protocol::job::drawn::{Drawn, most_bytes};
use muster_protocol::job::{self, Body, Failure, FailureKind, Job, MediaFile, SoundFormat};
use muster_protocol::link::{MediaResult, UploadSlot};

/// Lifetime of such links in the public protocol.
const UPLOADS: Duration = Duration::from_secs(900);
const SOURCES: Duration = Duration::from_secs(3600);
/// Retry interval while the media store is full. The worker gets no other job until then.
const AGAIN: Duration = Duration::from_secs(5);
/// Hexadecimal digits of a digest.
const DIGEST: usize = 64;

const NOT_NOW: Untold = Untold::NotNow { retry_after: AGAIN };

/// Why a job cannot be sent to its worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Untold {
    /// No worker can get the job.
    Failed(Failure),
    /// The disk is full or the media store is down: not the fault of a worker or a client.
    NotNow { retry_after: Duration },
}

impl From<Failure> for Untold {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The request with links to its sources; the media store creates them without waiting.
pub fn linked<'a>(body: &'a Body, media: Option<&Media>) -> Result<Cow<'a, Body>, Untold> {
    let mut linked = Cow::Borrowed(body);
    if !body.sources().is_empty() {
        let media = media.ok_or_else(|| internal("no media store is configured for the source"))?;
        for source in linked.to_mut().sources_mut() {
            *source = link_to(source, media)?;
        }
    }
    Ok(linked)
}

/// The upload slot for the offer's output.
pub fn slot(
    offer: &Offer,
    file: MediaFile,
    media: Option<&Media>,
) -> Result<(UploadSlot, Key), Untold> {
    let media = media.ok_or_else(|| internal("no media store is configured for the output"))?;
    let most = match file {
        MediaFile::Image => most_bytes(&offer.job),
        MediaFile::Sound { longest, .. } => sound_bytes(longest),
        MediaFile::Video { seconds, .. } => video_bytes(seconds),
    };
    let key = key_of(&offer.job, offer.attempt);
    let link = media.upload_link_up_to(most, key, UPLOADS).now_or_never();
    let slot = UploadSlot {
        put_url: link.and_then(Result::ok).ok_or(NOT_NOW)?,
        key: key.to_string(),
        content_type: key.kind().content_type().to_owned(),
    };
    Ok((slot, key))
}

/// The check of an upload for this job; `None` for jobs without uploads.
pub fn check_of(job: &Job) -> Option<UploadCheck> {
    Some(match job.body.file()? {
        MediaFile::Image => UploadCheck::Image(Drawn::of(job)),
        MediaFile::Sound {
            shortest, longest, ..
        } => UploadCheck::Sound {
            least: shortest,
            seconds: longest,
        },
        MediaFile::Video {
            seconds,
            size: (width, height),
            frames,
        } => UploadCheck::Video(VideoCheck {
            seconds,
            width,
            height,
            frames,
        }),
    })
}

/// The key of an attempt's output.
pub fn key_of(job: &Job, attempt: u32) -> Key {
    let kind = match job.body.file().unwrap_or(MediaFile::Image) {
        MediaFile::Image => MediaType::Webp,
        MediaFile::Sound { format, .. } => match format {
            SoundFormat::Wav => MediaType::Wav,
            SoundFormat::Flac => MediaType::Flac,
            SoundFormat::Opus => MediaType::Opus,
            SoundFormat::Mp3 => MediaType::Mp3,
        },
        MediaFile::Video { .. } => MediaType::Mp4,
    };
    Key::new(Area::Results, job.id.0, attempt, kind)
}

/// Size and length that an output must have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputSettings {
    pub size: Option<(u32, u32)>,
    pub millis: Option<u64>,
}

impl OutputSettings {
    pub fn of(job: &Job) -> Self {
        let millis = match job.body.file() {
            Some(MediaFile::Video { .. }) => Some(job.body.paid_millis()),
            _ => None,
        };
        Self {
            size: job.body.picture_size(),
            millis,
        }
    }
}

/// The upload, if the worker reports exactly this one with a digest.
pub fn brought(key: Key, settings: OutputSettings, results: &[MediaResult]) -> Option<job::Media> {
    let [only] = results else {
        return None;
    };
    let is_digest = only.sha256.len() == DIGEST
        && only
            .sha256
            .bytes()
            .all(|one| matches!(one, b'0'..=b'9' | b'a'..=b'f'));
    let content_type = key.kind().content_type();
    let names = |named: &Option<String>, ours: &str| named.as_deref().is_none_or(|it| it == ours);
    let is_of_slot = names(&only.key, &key.to_string()) && names(&only.content_type, content_type);
    (only.index == 0 && is_digest && is_of_slot).then(|| job::Media {
        seed: only.seed,
        key: key.to_string(),
        content_type: content_type.to_owned(),
        sha256: Some(only.sha256.clone()),
        size: settings.size,
        millis: settings.millis,
        ..job::Media::default()
    })
}

fn link_to(key: &str, media: &Media) -> Result<String, Untold> {
    let key = key.parse();
    let key = key.map_err(|_| internal("the source has an invalid object name"))?;
    let link = media.download_link(key, SOURCES).now_or_never();
    link.and_then(Result::ok).ok_or(NOT_NOW)
}

fn internal(message: &'static str) -> Failure {
    Failure::new(FailureKind::Internal, message)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{OutputSettings, brought};
    use crate::media::{Area, Key, MediaType};
    use muster_protocol::link::MediaResult;

    #[test]
    fn a_result_is_one_with_a_digest() {
        let key = Key::new(Area::Results, Uuid::nil(), 1, MediaType::Webp);
        let result = |index, sha256: String| MediaResult {
            index,
            seed: Some(5),
            sha256,
            ..MediaResult::default()
        };
        let check = |results: &[MediaResult], taken: bool| {
            let brought = brought(key, OutputSettings::default(), results);
            assert_eq!(brought.is_some(), taken, "{results:?}");
        };
        check(&[result(0, "ab".repeat(32))], true);
        let of_slot = |name: String, content_type: &str| MediaResult {
            key: Some(name),
            content_type: Some(content_type.to_owned()),
            ..result(0, "ab".repeat(32))
        };
        check(&[of_slot(key.to_string(), "image/webp")], true);
        check(&[of_slot("another".to_owned(), "image/webp")], false);
        check(&[of_slot(key.to_string(), "image/png")], false);
        check(&[result(1, "ab".repeat(32))], false);
        check(&[result(0, "AB".repeat(32))], false);
        check(&[result(0, "ab".repeat(31))], false);
        check(&[], false);
        check(
            &[result(0, "ab".repeat(32)), result(0, "ab".repeat(32))],
            false,
        );
    }
}
