//! A neutral request for a video, as the maker takes it, and its frames as a file.

use super::image::fetch;
use super::media::picture;
use crate::link::{Said, Transfers};
use muster_engine::runtime::maker::{Pixels, VideoRequest};
use muster_media::video::{Mp4Writer, VideoError};
use muster_protocol::job::{self, Failure, FailureKind};

/// Reads the settings and fetches the first frame.
pub async fn read(request: job::VideoRequest, transfers: &Transfers) -> Result<VideoRequest, Said> {
    let mut video = settings(&request).map_err(Said::Failed)?;
    if let Some(source) = request.source {
        video.source = Some(fetch("first frame", &source.image, transfers).await?);
    }
    Ok(video)
}

fn settings(request: &job::VideoRequest) -> Result<VideoRequest, Failure> {
    if let Some(sampler) = &request.sampler {
        let message = format!(
            "sampler {sampler:?} is not supported by this worker: its video models have one of their own"
        );
        return Err(Failure::new(FailureKind::UnsupportedValue, message));
    }
    Ok(VideoRequest {
        prompt: request.prompt.clone(),
        negative_prompt: request.negative_prompt.clone(),
        width: Some(request.width).filter(|side| *side > 0),
        height: Some(request.height).filter(|side| *side > 0),
        frames: Some(request.frames()).filter(|frames| *frames > 0),
        rate: Some(request.fps as f32).filter(|rate| *rate > 0.0),
        steps: request.steps,
        cfg_scale: request.cfg_scale.map(|scale| scale as f32),
        seed: request.seed,
        ..VideoRequest::default()
    })
}

/// An MP4; `rate` is in frames a second.
pub fn mp4_of(frames: Vec<Pixels>, rate: f32) -> Result<Vec<u8>, String> {
    let mut writer: Option<Mp4Writer> = None;
    let said = |error: VideoError| error.to_string();
    for frame in frames {
        let pixels = picture(frame)?;
        let writer = match &mut writer {
            Some(writer) => writer,
            None => writer.insert(Mp4Writer::new(pixels.size(), rate.into()).map_err(said)?),
        };
        writer.push(&pixels).map_err(said)?;
    }
    let writer = writer.ok_or_else(|| said(VideoError::Empty))?;
    writer.finish().map_err(said)
}

#[cfg(test)]
mod tests {
    use super::{mp4_of, settings};
    use muster_engine::runtime::maker::Pixels;
    use muster_media::MediaType;
    use muster_protocol::job::{Blame, VideoRequest};

    #[test]
    fn settings_are_those_of_the_request() {
        let video = VideoRequest {
            width: 320,
            height: 256,
            seconds: 2.0,
            fps: 16,
            seed: Some(7),
            ..VideoRequest::default()
        };
        let read = settings(&video).unwrap();
        assert_eq!((read.width, read.height), (Some(320), Some(256)));
        assert_eq!((read.frames, read.rate), (Some(32), Some(16.0)));
        let refused = settings(&VideoRequest {
            sampler: Some("k_euler".to_owned()),
            ..video
        });
        assert_eq!(refused.unwrap_err().blame, Blame::Client);
    }

    #[test]
    fn frames_become_a_file() {
        let frames = (0..3).map(|at| Pixels::rgb(32, 16, |x, y| [x as u8, y as u8, at]));
        let encoded = mp4_of(frames.collect(), 8.0).unwrap();
        assert_eq!(MediaType::sniff(&encoded), Some(MediaType::Mp4));
        assert!(mp4_of(Vec::new(), 8.0).is_err());
        assert!(mp4_of(vec![Pixels::rgb(33, 16, |_, _| [0; 3])], 8.0).is_err());
    }
}
