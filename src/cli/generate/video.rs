//! Videos of `worker generate`: from the options to an MP4 or an animated WebP.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::image_file::{in_folder, numbered, read_image};
use super::making::make;
use super::step_meter::StepMeter;
use super::{Args, refuse_first};
use crate::cli::{Exit, Failure, Root, load, output};
use crate::config::Config;
use crate::daemon::locate::Located;
use crate::daemon::{FilmType, VideoFile};
use crate::runtime;
use crate::runtime::maker::Output;
use crate::runtime::video::VideoRequest;
use crate::runtime::video::VideoSource;

/// Options of video models; the default of each is the model's recommendation.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Videos")]
pub struct VideoArgs {
    /// Length of the video, or of the song.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f32>,
    /// Frames per second.
    #[arg(long, value_name = "COUNT")]
    fps: Option<f32>,
}

impl VideoArgs {
    /// Names an option that other models do not have.
    pub fn refuse_for(&self, reason: &str) -> Result<(), Failure> {
        refuse_first(
            &[("--seconds", self.seconds.is_some())],
            reason,
            "video and music",
        )?;
        self.refuse_for_music(reason)
    }

    /// Names an option that a model that makes music does not have.
    pub fn refuse_for_music(&self, reason: &str) -> Result<(), Failure> {
        refuse_first(&[("--fps", self.fps.is_some())], reason, "video")
    }
}

/// Videos to make, and the files they go to.
pub struct VideoTask {
    request: VideoRequest,
    path: PathBuf,
    kind: FilmType,
    count: u32,
    is_json: bool,
}

impl VideoTask {
    pub fn new(args: &Args, source: &VideoSource, prompt: String) -> Result<Self, Failure> {
        let image = &args.image;
        let Some(path) = &image.output else {
            let missing = "no file given for the video";
            return Err(Failure::new(Exit::Usage, missing).hint("add -o FILE, such as -o clip.mp4"));
        };
        let ending = path.extension().unwrap_or_default();
        let kinds = [("mp4", FilmType::Mp4), ("webp", FilmType::Webp)];
        let mut kinds = kinds.into_iter();
        let Some((_, kind)) = kinds.find(|(name, _)| ending.eq_ignore_ascii_case(name)) else {
            let what = format!("{}: unknown kind of video file", path.display());
            let hint = "end the name in .mp4, or in .webp for an animated image";
            return Err(Failure::new(Exit::Usage, what).hint(hint));
        };
        in_folder(path)?;
        let [width, height] = image.size.map_or([None; 2], |size| size.map(Some));
        let rate = args.video.fps.unwrap_or_else(|| source.defaults.rate());
        // The engine refuses lengths out of its range, and names it.
        let frames = args
            .video
            .seconds
            .map(|seconds| (seconds * rate).round() as u32);
        Ok(Self {
            request: VideoRequest {
                prompt,
                negative_prompt: image.negative.clone(),
                width,
                height,
                frames,
                rate: Some(rate),
                steps: image.steps,
                cfg_scale: image.cfg,
                seed: args.sampling.seed,
                index: 0,
                source: image.init.as_deref().map(read_image).transpose()?,
                wants_previews: false,
            },
            path: path.clone(),
            kind,
            count: args.max_tokens.unwrap_or(1),
            is_json: args.json,
        })
    }

    pub async fn make(self, config: &Config, located: Located, root: &Root) -> Result<(), Failure> {
        let model = located.name.clone();
        let maker = load::load_media(config, located).await?;
        let is_shown = !root.quiet && !self.is_json;
        for index in 0..self.count {
            let request = VideoRequest {
                index,
                ..self.request.clone()
            };
            let request = request.into();
            let (mut file, meter) = (VideoFile::of(self.kind), StepMeter::new(is_shown));
            let seconds = make((&maker, &model), request, meter, async |output| {
                if let Output::Frames { frames, rate } = output {
                    let pushed = std::mem::take(&mut file).push_aside(frames, rate).await;
                    file = pushed.map_err(|error| Failure::new(Exit::Failed, error))?;
                }
                Ok(())
            });
            let seconds = seconds.await?;
            if file.frames == 0 {
                return Err(runtime::Failure::Stopped.into());
            }
            let path = numbered(&self.path, index, self.count);
            let (size, rate, count) = (file.size, file.rate, file.frames);
            let file = file
                .finish()
                .map_err(|error| Failure::new(Exit::Failed, error))?;
            fs::write(&path, file).map_err(|error| Failure::writing(&path, &error))?;
            self.tell(&path, size, (count, rate), seconds, is_shown)?;
        }
        Ok(())
    }

    fn tell(
        &self,
        path: &Path,
        [width, height]: [u32; 2],
        (frames, rate): (u32, f32),
        seconds: f64,
        is_shown: bool,
    ) -> Result<(), Failure> {
        if self.is_json {
            return output::json_line(&json!({
                "event": "video",
                "file": path,
                "width": width,
                "height": height,
                "frames": frames,
                "fps": rate,
                "seconds": seconds,
            }));
        }
        if is_shown {
            let path = path.display();
            output::aside(format!(
                "{path}: {width}x{height}, {frames} frames, {rate} per second, {seconds:.1} s"
            ));
        }
        Ok(())
    }
}
