//! Images of `worker generate`: from the options to files.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::image_file::{ImageFile, read_image};
use super::making::make_one;
use super::step_meter::StepMeter;
use super::{Args, refuse_first};
use crate::cli::{Exit, Failure, Root, load, output};
use crate::config::Config;
use crate::daemon::infotext;
use crate::daemon::locate::Located;
use crate::runtime;
use crate::runtime::diffusion::{DiffusionSampler, Schedule};
use crate::runtime::image::ImageSource;
use crate::runtime::image::{ImageRequest, Inversion, LoraUse};
use crate::runtime::maker::{MakeRequest, Output, Pixels};

/// Options of image models; the default of each is the model's recommendation.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Images")]
pub struct ImageArgs {
    /// File to write the image to, as its ending says: .png, .jpg or .webp; .mp4 or .webp for a video; several get
    /// numbers. For speech and music .mp3, .wav, .flac or .opus; - writes a WAV to standard output.
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Width and height in pixels.
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = size)]
    pub size: Option<[u32; 2]>,
    /// Steps from noise to image, video or music.
    #[arg(long, value_name = "COUNT")]
    pub steps: Option<u32>,
    /// How a step is made: k_euler, k_euler_a, k_dpmpp_2m, ...
    #[arg(long, value_name = "NAME", value_parser = sampler)]
    sampler: Option<DiffusionSampler>,
    /// How the noise falls over the steps: normal, karras, ...
    #[arg(long, value_name = "NAME", value_parser = schedule)]
    schedule: Option<Schedule>,
    /// How closely the image follows the prompt; 1 computes half as much and ignores --negative.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub cfg: Option<f32>,
    /// Description of things to keep out of the image.
    #[arg(long, value_name = "TEXT")]
    pub negative: Option<String>,
    /// Layer of the text encoder to read, from the last one on.
    #[arg(long, value_name = "LAYER")]
    clip_skip: Option<u32>,
    /// Image to start from; of a video the first frame.
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Where to change the image of --init: white.
    #[arg(long, value_name = "FILE", requires = "init")]
    mask: Option<PathBuf>,
    /// How much of the image of --init to replace, 0 to 1.
    #[arg(long, value_name = "NUMBER", requires = "init")]
    strength: Option<f64>,
    /// LoRA to apply, and how much it counts (default: 1); repeat for several.
    #[arg(long, value_name = "FILE[:STRENGTH]", value_parser = lora)]
    lora: Vec<LoraUse>,
    /// Textual inversion: FILE gives the word `embedding:NAME` of a prompt its meaning; repeat for several.
    #[arg(long, value_name = "NAME=FILE", value_parser = embedding)]
    embedding: Vec<Inversion>,
    /// Draw an image that fits to itself at opposite edges.
    #[arg(long)]
    tile: bool,
    /// Draw at the model's own size first, then replace so much of the enlarged image, 0 to 1 (0.65 without a number).
    #[arg(long, value_name = "NUMBER", num_args = 0..=1, default_missing_value = "0.65")]
    hires: Option<f64>,
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let sides = text.split_once(['x', 'X']);
    let sides = sides.and_then(|(width, height)| Some([width.parse().ok()?, height.parse().ok()?]));
    sides.ok_or_else(|| "must be WIDTHxHEIGHT, such as 512x512".to_owned())
}

fn embedding(text: &str) -> Result<Inversion, String> {
    let parts = text.split_once('=');
    let parts = parts.filter(|(name, file)| !name.is_empty() && !file.is_empty());
    let (name, file) = parts.ok_or("must be NAME=FILE, such as owl=owl.safetensors")?;
    Ok(Inversion {
        name: name.to_owned(),
        file: PathBuf::from(file),
    })
}

fn lora(text: &str) -> Result<LoraUse, String> {
    let split = text.rsplit_once(':');
    let weighed = split.and_then(|(file, strength)| Some((file, strength.parse::<f32>().ok()?)));
    let (file, strength) = weighed.unwrap_or((text, 1.0));
    match file.is_empty() || !strength.is_finite() {
        true => Err("must be FILE or FILE:STRENGTH, such as style.safetensors:0.8".to_owned()),
        false => Ok(LoraUse {
            file: PathBuf::from(file),
            model: strength,
            clip: strength,
        }),
    }
}

fn sampler(name: &str) -> Result<DiffusionSampler, String> {
    let known = || DiffusionSampler::names().collect::<Vec<_>>().join(", ");
    DiffusionSampler::named(name).ok_or_else(|| format!("known samplers: {}", known()))
}

fn schedule(name: &str) -> Result<Schedule, String> {
    let known = || Schedule::names().collect::<Vec<_>>().join(", ");
    Schedule::named(name).ok_or_else(|| format!("known schedules: {}", known()))
}

impl ImageArgs {
    /// Names an option that a text model does not have.
    pub fn refuse_for_text(&self, reason: &str) -> Result<(), Failure> {
        let output = [("--output", self.output.is_some())];
        refuse_first(&output, reason, "image, video, speech and music")?;
        self.refuse_for_speech(reason)
    }

    /// Names an option that a model that speaks does not have.
    pub fn refuse_for_speech(&self, reason: &str) -> Result<(), Failure> {
        let set = [
            ("--steps", self.steps.is_some()),
            ("--cfg", self.cfg.is_some()),
        ];
        refuse_first(&set, reason, "image")?;
        self.refuse_for_music(reason)
    }

    /// Names an option that a model that makes music does not have.
    pub fn refuse_for_music(&self, reason: &str) -> Result<(), Failure> {
        let set = [
            ("--size", self.size.is_some()),
            ("--sampler", self.sampler.is_some()),
            ("--schedule", self.schedule.is_some()),
            ("--negative", self.negative.is_some()),
            ("--clip-skip", self.clip_skip.is_some()),
            ("--init", self.init.is_some()),
            ("--mask", self.mask.is_some()),
            ("--strength", self.strength.is_some()),
            ("--lora", !self.lora.is_empty()),
            ("--embedding", !self.embedding.is_empty()),
            ("--tile", self.tile),
            ("--hires", self.hires.is_some()),
        ];
        refuse_first(&set, reason, "image")
    }
}

impl ImageArgs {
    /// Names an option that a video model does not have.
    pub fn refuse_for_video(&self, model: &str) -> Result<(), Failure> {
        let set = [
            ("--sampler", self.sampler.is_some()),
            ("--schedule", self.schedule.is_some()),
            ("--clip-skip", self.clip_skip.is_some()),
            ("--mask", self.mask.is_some()),
            ("--strength", self.strength.is_some()),
            ("--lora", !self.lora.is_empty()),
            ("--embedding", !self.embedding.is_empty()),
            ("--tile", self.tile),
            ("--hires", self.hires.is_some()),
        ];
        refuse_first(&set, &format!("{model} makes videos"), "image")
    }
}

/// Images to draw, and the files they go to.
pub struct Drawing {
    request: ImageRequest,
    file: ImageFile,
    count: u32,
    is_json: bool,
}

impl Drawing {
    pub fn new(args: &Args, source: &ImageSource, prompt: String) -> Result<Self, Failure> {
        let image = &args.image;
        let Some(path) = &image.output else {
            let missing = "no file given for the image";
            return Err(
                Failure::new(Exit::Usage, missing).hint("add -o FILE, such as -o image.png")
            );
        };
        let [width, height] = image.size.map_or([None; 2], |size| size.map(Some));
        let read = |path: &Option<PathBuf>| -> Result<Option<Pixels>, Failure> {
            path.as_deref().map(read_image).transpose()
        };
        let request = ImageRequest {
            prompt,
            negative_prompt: image.negative.clone(),
            width,
            height,
            steps: image.steps,
            cfg_scale: image.cfg,
            sampler: image.sampler,
            schedule: image.schedule,
            seed: args.sampling.seed,
            index: 0,
            clip_skip: image.clip_skip,
            strength: image.strength,
            source: read(&image.init)?,
            mask: read(&image.mask)?,
            loras: image.lora.clone(),
            inversions: image.embedding.clone(),
            tiles: image.tile,
            hires: image.hires,
            wants_previews: false,
        };
        Ok(Self {
            // The settings stand in the file.
            request: source.defaults.fill(request),
            file: ImageFile::new(path)?,
            count: args.max_tokens.unwrap_or(1),
            is_json: args.json,
        })
    }

    pub async fn make(self, config: &Config, located: Located, root: &Root) -> Result<(), Failure> {
        let model = located.name.clone();
        let maker = load::load_media(config, located).await?;
        let is_shown = !root.quiet && !self.is_json;
        for index in 0..self.count {
            let request = ImageRequest {
                index,
                ..self.request.clone()
            };
            let image = MakeRequest::from(request.clone());
            let made = make_one((&maker, &model), image, StepMeter::new(is_shown));
            let (Output::Image(pixels), seconds) = made.await? else {
                return Err(runtime::Failure::Stopped.into());
            };
            let path = self.file.numbered(index, self.count);
            let size = [pixels.width, pixels.height];
            self.file
                .write(&path, pixels, &infotext(&model, &request, size))?;
            self.tell(&path, size, &request, seconds, is_shown)?;
        }
        Ok(())
    }

    fn tell(
        &self,
        path: &Path,
        [width, height]: [u32; 2],
        request: &ImageRequest,
        seconds: f64,
        is_shown: bool,
    ) -> Result<(), Failure> {
        if self.is_json {
            return output::json_line(&json!({
                "event": "image",
                "file": path,
                "width": width,
                "height": height,
                "seed": request.seed,
                "index": request.index,
                "seconds": seconds,
            }));
        }
        if is_shown {
            let (path, seed) = (path.display(), request.seed.unwrap_or_default());
            output::aside(format!(
                "{path}: {width}x{height}, seed {seed}, {seconds:.1} s"
            ));
        }
        Ok(())
    }
}
