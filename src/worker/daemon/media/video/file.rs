//! Frames as a file.

use tokio::task::spawn_blocking;

use crate::daemon::media::file::picture;
use muster_engine::runtime::maker::Pixels;
use muster_media::image::{self as codec, Size};
use muster_media::video::{Mp4Writer, VideoError, WebpWriter};

/// The type of a file with moving pictures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FilmType {
    #[default]
    Mp4,
    /// Animated.
    Webp,
}

enum FilmWriter {
    Mp4(Box<Mp4Writer>),
    Webp(WebpWriter),
}

/// A file of frames that come a few at a time.
#[derive(Default)]
pub struct VideoFile {
    kind: FilmType,
    writer: Option<FilmWriter>,
    pub frames: u32,
    /// Frames a second.
    pub rate: f32,
    /// Width and height.
    pub size: [u32; 2],
}

impl FilmWriter {
    fn new(kind: FilmType, size: Size, rate: f64) -> Result<Self, VideoError> {
        Ok(match kind {
            FilmType::Mp4 => Self::Mp4(Box::new(Mp4Writer::new(size, rate)?)),
            FilmType::Webp => Self::Webp(WebpWriter::new(size, rate)?),
        })
    }

    fn push(&mut self, frame: &codec::Pixels) -> Result<(), VideoError> {
        match self {
            Self::Mp4(writer) => writer.push(frame),
            Self::Webp(writer) => writer.push(frame),
        }
    }

    fn finish(self) -> Result<Vec<u8>, VideoError> {
        match self {
            Self::Mp4(writer) => writer.finish(),
            Self::Webp(writer) => writer.finish(),
        }
    }
}

impl VideoFile {
    pub fn of(kind: FilmType) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    pub fn push(&mut self, frames: Vec<Pixels>, rate: f32) -> Result<(), String> {
        let said = |error: VideoError| error.to_string();
        for frame in frames {
            let pixels = picture(frame)?;
            let writer = match &mut self.writer {
                Some(writer) => writer,
                None => {
                    (self.rate, self.size) = (rate, [pixels.width(), pixels.height()]);
                    let writer = FilmWriter::new(self.kind, pixels.size(), rate.into());
                    let writer = writer.map_err(said)?;
                    self.writer.insert(writer)
                }
            };
            writer.push(&pixels).map_err(said)?;
            self.frames += 1;
        }
        Ok(())
    }

    /// The same on another thread than those that serve.
    pub async fn push_aside(mut self, frames: Vec<Pixels>, rate: f32) -> Result<Self, String> {
        let pushed = spawn_blocking(move || self.push(frames, rate).map(|()| self));
        pushed
            .await
            .unwrap_or_else(|_| Err("encoding the video crashed".to_owned()))
    }

    pub fn seconds(&self) -> f64 {
        f64::from(self.frames) / f64::from(self.rate.max(f32::MIN_POSITIVE))
    }

    pub fn finish(self) -> Result<Vec<u8>, String> {
        let said = |error: VideoError| error.to_string();
        let writer = self.writer.ok_or_else(|| said(VideoError::Empty))?;
        writer.finish().map_err(said)
    }
}

#[cfg(test)]
mod tests {
    use super::{FilmType, VideoFile};
    use muster_engine::runtime::maker::Pixels;
    use muster_media::MediaType;

    #[test]
    fn frames_become_a_file() {
        let mut file = VideoFile::default();
        for at in 0..3 {
            let frame = Pixels::rgb(32, 16, |x, y| [x as u8, y as u8, at]);
            file.push(vec![frame], 8.0).unwrap();
        }
        assert_eq!(
            (file.frames, file.size, file.seconds()),
            (3, [32, 16], 0.375)
        );
        let encoded = file.finish().unwrap();
        assert_eq!(MediaType::sniff(&encoded), Some(MediaType::Mp4));
        assert!(VideoFile::default().finish().is_err());
        let odd = vec![Pixels::rgb(33, 16, |_, _| [0; 3])];
        assert!(VideoFile::default().push(odd.clone(), 8.0).is_err());
        let mut animated = VideoFile::of(FilmType::Webp);
        animated.push(odd, 8.0).unwrap();
        let animated = animated.finish().unwrap();
        assert_eq!(MediaType::sniff(&animated), Some(MediaType::Webp));
    }
}
