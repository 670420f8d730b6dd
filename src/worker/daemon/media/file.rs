//! A media job: sends its request to the maker, reports steps and previews, and encodes and uploads its outputs.
//!
//! Encoders run on other threads than the engine's. Dropping [`run`] cancels the job.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use super::finish::finish;
use super::image::{Infotext, images};
use super::video::VideoFile;
use super::{no_text, read};
use crate::daemon::blame;
use crate::daemon::engines::Engines;
use crate::daemon::registration::small as small_number;
use crate::link::session::{SafetyRule, Work};
use crate::link::{Reply, Said, Transfers};
use muster_engine::runtime::maker::{MakeEvent, Output, Pcm, PixelFormat, Pixels};
use muster_media::image::{Channels, Size};
use muster_media::sound::{self, Sound, WavFormat};
use muster_media::{MediaType, image as codec};
use muster_protocol::job::{Body, Failure, FailureKind, Kind, MediaFile};
use muster_protocol::link::{MediaResult, Payload, UploadSlot};

/// A finished output as a file.
struct EncodedOutput {
    bytes: Vec<u8>,
    /// Without its place.
    result: MediaResult,
}

/// All that a model made for one output.
enum FinishedMedia {
    Output(Output),
    /// Encoded while its frames arrived.
    Film(Box<VideoFile>),
}

/// Schedules previews: the requested number, evenly over the steps.
struct PreviewPlan {
    wanted: u32,
    sent: u32,
}

/// An output of a job.
struct Piece<'a> {
    index: usize,
    /// Outputs of the whole job.
    of: usize,
    slot: &'a UploadSlot,
}

/// The parts of the worker that a job needs.
pub struct MediaDesk<'a> {
    pub engines: &'a Engines,
    pub transfers: &'a Transfers,
    pub reply: &'a mut Reply,
}

/// Does the job; returns the last word.
pub async fn run(work: Work, payload: Payload, desk: MediaDesk<'_>) -> Said {
    match make(&work, payload, desk).await {
        Ok(results) => Said::Uploaded(results),
        Err(said) => said,
    }
}

async fn make(
    work: &Work,
    payload: Payload,
    mut desk: MediaDesk<'_>,
) -> Result<Vec<MediaResult>, Said> {
    let bodies = bodies(work.kind, payload).map_err(Said::Failed)?;
    if bodies.len() != work.upload.len() {
        let (wanted, links) = (bodies.len(), work.upload.len());
        let message = format!("the job has {wanted} outputs and {links} upload links");
        return Err(failed(message));
    }
    let mut results = Vec::new();
    for (index, body) in bodies.into_iter().enumerate() {
        let piece = Piece {
            index,
            of: work.upload.len(),
            slot: &work.upload[index],
        };
        results.push(one(work, body, piece, &mut desk).await?);
    }
    Ok(results)
}

/// A request for each output.
pub fn bodies(kind: Kind, payload: Payload) -> Result<Vec<Body>, Failure> {
    match payload {
        Payload::Neutral(body) if body.file().is_some() => Ok(vec![body]),
        Payload::Public(keys) if kind == Kind::Image => {
            Ok(images(keys)?.into_iter().map(Body::from).collect())
        }
        Payload::Public(_) => {
            let message = "the worker makes only images for this coordinator";
            Err(Failure::new(FailureKind::UnsupportedValue, message))
        }
        Payload::Neutral(_) => Err(no_text()),
        Payload::Unreadable => {
            let message =
                "parsing the request failed: the worker may be older than its coordinator";
            Err(Failure::new(FailureKind::WorkerFailed, message))
        }
        Payload::Excessive => {
            let message = "the request is nested too deeply, or a number is out of range";
            Err(Failure::new(FailureKind::InvalidRequest, message))
        }
    }
}

async fn one(
    work: &Work,
    body: Body,
    piece: Piece<'_>,
    desk: &mut MediaDesk<'_>,
) -> Result<MediaResult, Said> {
    let model = &*work.model;
    let (seed, longest) = (body.seed(), longest_speech(&body));
    // No previews of images that the safety checker has to check first.
    let is_judged = work.finishing.safety.is_some() && desk.engines.safety.is_some();
    let mut plan = PreviewPlan {
        wanted: match is_judged {
            true => 0,
            false => body.previews(),
        },
        sent: 0,
    };
    let request = read(model, body, desk).await?;
    // The settings are written into the file.
    let about = request.of().ok().map(|image| Infotext::of(model, image));
    let Some(maker) = &desk.engines.maker else {
        return Err(failed(format!("the worker has no media model {model}")));
    };
    let admitted = desk.engines.throttle.admit().await;
    let mut stream = maker.make(model, request).map_err(blame::said)?;
    drop(admitted);
    let mut made = None;
    let mut film = VideoFile::default();
    while let Some(event) = stream.next().await {
        match event {
            MakeEvent::Step { at, of, preview } => {
                let preview = match preview.filter(|_| plan.is_due(at, of)) {
                    Some(preview) => small(preview).await?,
                    None => None,
                };
                let (at, of) = piece.progress(at, of);
                desk.reply.say(Said::Progress { at, of, preview }).await;
            }
            MakeEvent::Made(Output::Frames { frames, rate }) => {
                film = film.push_aside(frames, rate).await.map_err(failed)?;
            }
            MakeEvent::Made(output) => {
                let whole = match made {
                    None => output,
                    Some(before) => joined(before, output)?,
                };
                check_length(&whole, longest)?;
                made = Some(whole);
            }
            MakeEvent::Failed(failure) => return Err(blame::said(failure)),
            MakeEvent::Done => break,
        }
    }
    let made = match made {
        Some(Output::Image(pixels)) => {
            let result = deliver(pixels, about, (work, piece.slot), desk).await?;
            return Ok(MediaResult {
                index: small_number(piece.index),
                seed,
                ..result
            });
        }
        Some(output) => FinishedMedia::Output(output),
        None if film.frames > 0 => FinishedMedia::Film(Box::new(film)),
        None => return Err(failed("the model made no output".to_owned())),
    };
    let result = upload((made, about), piece.slot, desk.transfers).await?;
    Ok(MediaResult {
        index: small_number(piece.index),
        seed,
        ..result
    })
}

/// Runs the safety checker on an image if the job requests it, and uploads the image.
pub async fn deliver(
    pixels: Pixels,
    mut about: Option<Infotext>,
    (work, slot): (&Work, &UploadSlot),
    desk: &mut MediaDesk<'_>,
) -> Result<MediaResult, Said> {
    let finished = finish(pixels, work.finishing, desk.engines).await?;
    if finished.flagged == Some(SafetyRule::Refuse) {
        let message =
            "the worker's safety checker flagged the image, and its owner sends no such images";
        let failure = Failure::new(FailureKind::ContentRefused, message);
        return Err(Said::Failed(failure));
    }
    if let Some(rule) = finished.flagged {
        about = about.filter(|_| rule != SafetyRule::Censor);
        desk.reply.say(Said::Flagged(rule)).await;
    }
    let image = FinishedMedia::Output(Output::Image(finished.pixels));
    upload((image, about), slot, desk.transfers).await
}

/// In seconds. Speech is as long as its text, and may exceed the client's limit.
fn longest_speech(body: &Body) -> Option<f64> {
    match (body.file(), body.spoken_characters()) {
        (Some(MediaFile::Sound { longest, .. }), Some(_)) => Some(longest),
        _ => None,
    }
}

fn check_length(output: &Output, longest: Option<f64>) -> Result<(), Said> {
    let (Output::Sound(pcm), Some(longest)) = (output, longest) else {
        return Ok(());
    };
    let frames = pcm.samples.len() as f64 / f64::from(pcm.channels.max(1));
    if frames <= longest * f64::from(pcm.rate) {
        return Ok(());
    }
    let message =
        format!("the text takes longer than {longest} s to speak: send more seconds or less text");
    Err(Said::Failed(Failure::new(
        FailureKind::InvalidRequest,
        message,
    )))
}

/// A speech comes in several sounds, which are one output.
fn joined(before: Output, next: Output) -> Result<Output, Said> {
    match (before, next) {
        (Output::Sound(mut before), Output::Sound(next))
            if (before.rate, before.channels) == (next.rate, next.channels) =>
        {
            before.samples.extend(next.samples);
            Ok(Output::Sound(before))
        }
        _ => Err(failed("the model made more than one output".to_owned())),
    }
}

impl Piece<'_> {
    /// Steps of the whole job.
    fn progress(&self, at: u32, of: u32) -> (u32, u32) {
        let before = small_number(self.index).saturating_mul(of);
        let all = small_number(self.of).saturating_mul(of);
        (before.saturating_add(at), all)
    }
}

impl PreviewPlan {
    /// Called once for each step that has a preview. Steps may be skipped.
    fn is_due(&mut self, at: u32, of: u32) -> bool {
        let next = u64::from(self.sent + 1) * u64::from(of);
        let is_due = self.sent < self.wanted
            && at < of
            && u64::from(at) * u64::from(self.wanted + 1) >= next;
        self.sent += u32::from(is_due);
        is_due
    }
}

/// A preview that cannot be encoded is left out.
async fn small(preview: Pixels) -> Result<Option<Vec<u8>>, Said> {
    let encoded = spawn_blocking(move || {
        let pixels = picture(preview).ok()?;
        codec::preview(&pixels).ok()
    });
    encoded.await.map_err(|_| blame::broken())
}

async fn upload(
    output: (FinishedMedia, Option<Infotext>),
    slot: &UploadSlot,
    transfers: &Transfers,
) -> Result<MediaResult, Said> {
    let content_type = slot.content_type.clone();
    let encoded = spawn_blocking(move || encode(output.0, output.1, &content_type));
    let encoded = encoded.await.map_err(|_| blame::broken())?;
    let EncodedOutput { bytes, result } = encoded.map_err(failed)?;
    let result = MediaResult {
        key: Some(slot.key.clone()),
        content_type: Some(slot.content_type.clone()),
        bytes: Some(bytes.len() as u64),
        sha256: HEXLOWER.encode(&Sha256::digest(&bytes)),
        ..result
    };
    if slot.put_url.is_empty() {
        return Ok(MediaResult {
            inline: Some(bytes),
            ..result
        });
    }
    let sent = transfers.put(slot, Bytes::from(bytes)).await;
    sent.map_err(|error| failed(format!("uploading the output failed: {error}")))?;
    Ok(result)
}

fn encode(
    output: FinishedMedia,
    about: Option<Infotext>,
    content_type: &str,
) -> Result<EncodedOutput, String> {
    let kind = MediaType::from_content_type(content_type)
        .ok_or_else(|| format!("the upload link is for the unknown type {content_type}"))?;
    let output = match output {
        FinishedMedia::Output(output) => output,
        FinishedMedia::Film(film) => return finished_film(*film, kind),
    };
    match output {
        Output::Image(pixels) => {
            let (width, height) = (pixels.width, pixels.height);
            let pixels = picture(pixels)?;
            let about = about.map(|about| about.text([width, height]));
            let bytes = codec::encode_described(&pixels, kind, about.as_deref());
            let bytes = bytes.map_err(|error| error.to_string())?;
            let result = MediaResult {
                width: Some(width),
                height: Some(height),
                ..MediaResult::default()
            };
            Ok(EncodedOutput { bytes, result })
        }
        Output::Sound(pcm) => {
            let sound = sound_of(pcm)?;
            let result = MediaResult {
                seconds: Some(sound.seconds()),
                ..MediaResult::default()
            };
            let bytes = match kind {
                MediaType::Wav => sound::to_wav(&sound, WavFormat::Int16),
                MediaType::Flac => sound::to_flac(&sound),
                MediaType::Opus => sound::to_opus(&sound, OPUS_BITS_PER_SECOND),
                MediaType::Mp3 => sound::to_mp3(&sound, MP3_BITS_PER_SECOND),
                other => return Err(format!("sound cannot be encoded as {other}")),
            };
            let bytes = bytes.map_err(|error| error.to_string())?;
            Ok(EncodedOutput { bytes, result })
        }
        Output::Frames { .. } => Err("the frames of a video came late".to_owned()),
        Output::Transcript(_) | Output::SpokenWords(_) => {
            Err("the model made a transcript instead of media".to_owned())
        }
    }
}

fn finished_film(film: VideoFile, kind: MediaType) -> Result<EncodedOutput, String> {
    if kind != MediaType::Mp4 {
        return Err(format!("a video cannot be encoded as {kind}"));
    }
    let [width, height] = film.size;
    let result = MediaResult {
        width: Some(width),
        height: Some(height),
        seconds: Some(film.seconds()),
        ..MediaResult::default()
    };
    let bytes = film.finish()?;
    Ok(EncodedOutput { bytes, result })
}

const OPUS_BITS_PER_SECOND: u32 = 128_000;
const MP3_BITS_PER_SECOND: u32 = 192_000;

fn sound_of(pcm: Pcm) -> Result<Sound, String> {
    Sound::new(pcm.rate, pcm.channels, pcm.samples).map_err(|error| error.to_string())
}

/// Converts to the codecs' type.
pub fn picture(pixels: Pixels) -> Result<codec::Pixels, String> {
    let size = Size {
        width: pixels.width,
        height: pixels.height,
    };
    let (channels, bytes) = match pixels.format {
        PixelFormat::Gray => {
            let bytes = pixels.bytes.iter().flat_map(|level| [*level; 3]);
            (Channels::Rgb, bytes.collect())
        }
        PixelFormat::Rgb => (Channels::Rgb, pixels.bytes),
        PixelFormat::Rgba => (Channels::Rgba, pixels.bytes),
    };
    codec::Pixels::new(size, channels, bytes).map_err(|error| error.to_string())
}

pub fn failed(message: String) -> Said {
    Said::Failed(Failure::new(FailureKind::WorkerFailed, message))
}

#[cfg(test)]
mod tests {
    use super::{FinishedMedia, Infotext, MediaType, PreviewPlan, codec, encode};
    use muster_engine::runtime::image::ImageRequest;
    use muster_engine::runtime::maker::{Output, Pcm, PixelFormat, Pixels};

    #[test]
    fn previews_are_spread_over_the_steps() {
        let check = |wanted, steps: &[u32], of, due: &[u32]| {
            let mut plan = PreviewPlan { wanted, sent: 0 };
            let steps = steps.iter().copied();
            let found: Vec<_> = steps.filter(|at| plan.is_due(*at, of)).collect();
            assert_eq!(found, due);
        };
        check(0, &[1, 2, 3, 4], 4, &[]);
        check(1, &[1, 2, 3, 4], 4, &[2]);
        check(3, &[1, 2, 3, 4], 4, &[1, 2, 3]);
        check(2, &[1, 2, 3, 4, 5, 6], 6, &[2, 4]);
        // Steps between were left out, and the last one needs no preview.
        check(2, &[5, 6], 6, &[5]);
        check(3, &[1], 1, &[]);
    }

    #[test]
    fn outputs_are_encoded_as_the_type_of_their_slot() {
        let image = |format, bytes: Vec<u8>| {
            let (width, height) = (2, 1);
            Output::Image(Pixels {
                width,
                height,
                format,
                bytes,
            })
        };
        let check = |output: Output, content_type: &str| {
            let output = FinishedMedia::Output(output);
            let encoded = encode(output, None, content_type).unwrap();
            let kind = MediaType::sniff(&encoded.bytes).unwrap();
            assert_eq!(kind.content_type(), content_type);
            encoded.result
        };
        let result = check(image(PixelFormat::Rgb, vec![9; 6]), "image/webp");
        assert_eq!((result.width, result.height), (Some(2), Some(1)));
        check(image(PixelFormat::Gray, vec![9; 2]), "image/png");
        check(image(PixelFormat::Rgba, vec![9; 8]), "image/jpeg");
        let sound = || {
            Output::Sound(Pcm {
                rate: 24_000,
                channels: 1,
                samples: vec![0.0; 12_000],
            })
        };
        assert_eq!(check(sound(), "audio/wav").seconds, Some(0.5));
        check(sound(), "audio/flac");
        check(sound(), "audio/ogg");
        for output in [sound(), image(PixelFormat::Rgb, vec![9; 5])] {
            let output = FinishedMedia::Output(output);
            assert!(encode(output, None, "image/webp").is_err());
        }
        let request = ImageRequest {
            prompt: "a fox".to_owned(),
            seed: Some(5),
            ..ImageRequest::default()
        };
        for content_type in ["image/webp", "image/png", "image/jpeg"] {
            let about = Some(Infotext::of("tiny", &request));
            let output = FinishedMedia::Output(image(PixelFormat::Rgb, vec![9; 6]));
            let encoded = encode(output, about, content_type).unwrap();
            let found = codec::description(&encoded.bytes).unwrap();
            let expected = "a fox\nSeed: 5, Size: 2x1, Model: tiny, Version: muster ";
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
