//! `worker generate`: text from a model, as it comes, or images, videos, speech and music into files.

mod image;
mod image_file;
mod making;
mod music;
mod prompt;
mod speech;
mod step_meter;
mod story;
mod video;

use clap::ValueEnum;
use serde_json::json;

use super::place::Place;
use super::{Exit, Failure, Root, load, output, threads};
use crate::config::{Config, Flag};
use crate::daemon::locate::{Located, LocatedSource};
use crate::daemon::media::MediaSource;
use crate::networks::weights::Quantize;
use crate::protocol::job::KnownWords;
use crate::runtime::{
    CacheScope, Chat, ModelInfo, Prompt, Runtime, Sampling, StopRules, TextRequest,
};
use image::ImageArgs;
use music::{MusicArgs, MusicTask};
use speech::{Speaking, SpeechArgs};
use story::Story;
use video::VideoArgs;

const EXAMPLES: &str = "\
Examples:
  worker generate qwen3-0.6b \"Why is the sky blue?\"
  worker generate ./tiny.gguf --raw --max-tokens 40 \"Once upon a time\"
  echo \"Summarize: ...\" | worker generate llama-3.2-1b-instruct --system \"Be brief.\"
  worker generate qwen3-0.6b --json --logprobs 3 --seed 7 \"Hello\"
  worker generate ./sdxl-folder \"a lighthouse at dusk\" -o lighthouse.png --steps 20 --seed 7
  worker generate ./model.safetensors \"a fox\" --lora paper-cut.safetensors:0.8 -o fox.png
  worker generate ./wan-folder \"a fox runs through snow\" --seconds 2 -o fox.mp4
  worker generate kokoro-82m \"Good morning.\" -o morning.wav --voice af_heart
  worker generate ace-step \"a calm piano\" --seconds 30 -o song.flac --lyrics-file song.txt";

/// Generate text, images, videos, speech or music with a model on disk.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Catalog NAME or NAME:QUANTIZATION, pulled org/name or org/name:FILE, or path of a .gguf file, of an image model's .safetensors file or of a model folder, of text, images, videos, speech or music.
    model: String,
    /// Text to answer, continue, draw, film, speak or play; `-` or no argument reads standard input.
    prompt: Option<String>,
    /// System prompt.
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// Continue the prompt as is, without the model's chat template.
    #[arg(long)]
    raw: bool,
    /// Print one JSON event per line.
    #[arg(long)]
    json: bool,
    /// Maximum tokens to generate (default: until the model ends or its context is full); number of images, videos
    /// or songs of a model that makes them (default: 1).
    #[arg(long, visible_alias = "count", short = 'n', value_name = "COUNT", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// Stop at this text; repeat for several.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Report the log probability of each token and of this many alternatives (with --json).
    #[arg(long, value_name = "ALTERNATIVES", requires = "json", allow_negative_numbers = true, value_parser = whole::<usize>)]
    logprobs: Option<usize>,
    /// Quantize dense weights while loading them.
    #[arg(long, value_name = "KIND")]
    quantize: Option<QuantizeChoice>,
    /// Device to run on: auto, cpu, cuda or cuda:N.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Maximum length of prompt and answer together, in tokens.
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
    /// CPU threads for computing.
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    image: ImageArgs,
    #[command(flatten)]
    video: VideoArgs,
    #[command(flatten)]
    speech: SpeechArgs,
    #[command(flatten)]
    music: MusicArgs,
    /// Words of the model, from the catalog.
    #[arg(skip)]
    known_words: KnownWords,
}

/// How the next token is chosen; the default of each option is the model's recommendation.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// Randomness; 0 always takes the most likely token.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Sample from this many of the most likely tokens.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = whole::<usize>)]
    top_k: Option<usize>,
    /// Sample from the most likely tokens with this total probability.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Exclude tokens less likely than this fraction of the most likely token.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Penalty factor for tokens that already appeared; 1 has no effect.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    repeat_penalty: Option<f32>,
    /// Penalty subtracted from each token that already appeared.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Penalty subtracted from a token for each appearance.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// Seed of the random numbers; the same seed gives the same text, image, video or sound.
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<u64>)]
    seed: Option<u64>,
}

/// `set`: options, and whether each was given. `kind` of model has them.
fn refuse_first(set: &[(&str, bool)], reason: &str, kind: &str) -> Result<(), Failure> {
    match set.iter().find(|(_, is_set)| *is_set) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::new(
            Exit::Usage,
            format!("{reason}; {name} is for {kind} models"),
        )),
    }
}

/// A whole number, refused with its range.
fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = text.parse().ok();
    let number = number.and_then(|number: u64| T::try_from(number).ok());
    number.ok_or_else(|| format!("must be an integer from 0 to {}", u64::MAX))
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum QuantizeChoice {
    #[value(name = "q8_0")]
    Q8,
    #[value(name = "q4_k")]
    Q4K,
}

pub fn run(mut args: Args, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load_with(args.flags())?.config;
    threads::settle(&config)?;
    let place = Place::open(&config)?;
    let mut located = place.locate(&args.model)?;
    let entry = place.catalog.find_with_quantization(&located.name);
    let known_words = entry.map(|(entry, _)| entry.known_words.clone());
    args.known_words = known_words.unwrap_or_default();
    let quantize = args.quantize.map(Quantize::from);
    match &mut located.source {
        LocatedSource::Text(source) => source.quantize = quantize,
        LocatedSource::Media(MediaSource::Image(source)) => source.quantize = quantize,
        LocatedSource::Media(MediaSource::Video(source)) => source.quantize = quantize,
        LocatedSource::Media(MediaSource::Speech(_)) => return args.speak(&config, located, root),
        LocatedSource::Media(MediaSource::Music(source)) => {
            source.quantize = quantize;
            return args.play(&config, located, root);
        }
        LocatedSource::Media(_) | LocatedSource::Adapter(_) => {
            return Err(load::no_text(&located.name));
        }
    }
    if let LocatedSource::Media(MediaSource::Video(source)) = &located.source {
        let (source, name) = (source.clone(), located.name.clone());
        args.refuse_settings_of_text(&format!("{name} makes videos"))?;
        args.image.refuse_for_video(&name)?;
        args.speech
            .refuse_for_others(&format!("{name} makes videos"))?;
        args.music
            .refuse_for_others(&format!("{name} makes videos"))?;
        let prompt = args.prompt_of_words(&name, root)?;
        let task = video::VideoTask::new(&args, &source, prompt)?;
        return load::block_on(task.make(&config, located, root));
    }
    if let LocatedSource::Media(MediaSource::Image(source)) = &located.source {
        let source = source.clone();
        let reason = format!("{} makes images", located.name);
        args.refuse_settings_of_text(&reason)?;
        args.video.refuse_for(&reason)?;
        args.speech.refuse_for_others(&reason)?;
        args.music.refuse_for_others(&reason)?;
        let prompt = args.prompt_of_words(&located.name, root)?;
        let drawing = image::Drawing::new(&args, &source, prompt)?;
        return load::block_on(drawing.make(&config, located, root));
    }
    let reason = format!("{} writes text", located.name);
    args.image.refuse_for_text(&reason)?;
    args.video.refuse_for(&reason)?;
    args.speech.refuse_for_others(&reason)?;
    args.music.refuse_for_others(&reason)?;
    let prompt = prompt::read(args.prompt.as_deref())?;
    load::block_on(async {
        let (runtime, info) = load::load(&config, located, !root.quiet && !args.json).await?;
        let request = args.request(prompt, &info);
        generate(&runtime, request, &args, root).await
    })
}

async fn generate(
    runtime: &Runtime,
    request: TextRequest,
    args: &Args,
    root: &Root,
) -> Result<(), Failure> {
    let mut story = Story::new(args.json);
    let mut generation = runtime.generate(request).await?;
    let interrupted = tokio::signal::ctrl_c();
    tokio::select! {
        told = story.tell(&mut generation) => {
            let usage = told?;
            if !root.quiet && !args.json {
                output::aside(story.statistics(usage));
            }
            Ok(())
        }
        _ = interrupted => Err(story.interrupted()),
    }
}

impl Args {
    fn speak(&self, config: &Config, located: Located, root: &Root) -> Result<(), Failure> {
        let reason = format!("{} speaks", located.name);
        self.refuse_settings_of_text(&reason)?;
        let set = [
            ("--max-tokens", self.max_tokens.is_some()),
            ("--quantize", self.quantize.is_some()),
        ];
        refuse_first(&set, &reason, "text and image")?;
        self.image.refuse_for_speech(&reason)?;
        self.video.refuse_for(&reason)?;
        self.music.refuse_for_others(&reason)?;
        let prompt = self.prompt_of_words(&located.name, root)?;
        let speaking = Speaking::new(self, self.image.output.as_deref(), prompt)?;
        load::block_on(speaking.make(config, located, root))
    }

    fn play(&self, config: &Config, located: Located, root: &Root) -> Result<(), Failure> {
        let reason = format!("{} makes music", located.name);
        self.refuse_settings_of_text(&reason)?;
        self.image.refuse_for_music(&reason)?;
        self.video.refuse_for_music(&reason)?;
        self.speech.refuse_for_others(&reason)?;
        let prompt = self.prompt_of_words(&located.name, root)?;
        let task = MusicTask::new(self, prompt)?;
        load::block_on(task.make(config, located, root))
    }

    /// The prompt. Words that a small model does not know are named on standard error.
    fn prompt_of_words(&self, model: &str, root: &Root) -> Result<String, Failure> {
        let prompt = prompt::read(self.prompt.as_deref())?;
        if !root.quiet
            && let Some(remark) = self.known_words.remark(model, &prompt)
        {
            output::aside(remark);
        }
        Ok(prompt)
    }

    /// Names a setting that models of images, videos, speech and music do not have.
    fn refuse_settings_of_text(&self, reason: &str) -> Result<(), Failure> {
        let sampling = &self.sampling;
        let set = [
            ("--system", self.system.is_some()),
            ("--raw", self.raw),
            ("--stop", !self.stop.is_empty()),
            ("--logprobs", self.logprobs.is_some()),
            ("--context", self.context.is_some()),
            ("--temperature", sampling.temperature.is_some()),
            ("--top-k", sampling.top_k.is_some()),
            ("--top-p", sampling.top_p.is_some()),
            ("--min-p", sampling.min_p.is_some()),
            ("--repeat-penalty", sampling.repeat_penalty.is_some()),
            ("--presence-penalty", sampling.presence_penalty.is_some()),
            ("--frequency-penalty", sampling.frequency_penalty.is_some()),
        ];
        refuse_first(&set, reason, "text")
    }

    /// The options that override settings.
    fn flags(&self) -> Vec<Flag> {
        let flag = |name, setting, value| Flag {
            name,
            setting,
            value,
        };
        let device = self
            .device
            .clone()
            .map(|value| flag("--device", "engine.device", value));
        let context = self
            .context
            .map(|value| flag("--context", "engine.context", value.to_string()));
        let threads = self
            .threads
            .map(|value| flag("--threads", "engine.threads", value.to_string()));
        device.into_iter().chain(context).chain(threads).collect()
    }

    fn request(&self, prompt: String, info: &ModelInfo) -> TextRequest {
        TextRequest {
            model: info.name.clone(),
            prompt: self.prompt(prompt, info),
            generated: Vec::new(),
            sampling: self.sampling.to_sampling(),
            max_tokens: self.max_tokens.map(|tokens| tokens as usize),
            window: None,
            stop: self.stop.clone(),
            stop_rules: StopRules::default(),
            logprobs: self.logprobs,
            prompt_logprobs: None,
            grammar: None,
            choice: 0,
            scope: CacheScope::default(),
        }
    }

    fn prompt(&self, prompt: String, info: &ModelInfo) -> Prompt {
        if self.raw || (!info.can_chat && self.system.is_none()) {
            return Prompt::Text(prompt);
        }
        let system = self
            .system
            .iter()
            .map(|text| json!({ "role": "system", "content": text }));
        let user = json!({ "role": "user", "content": prompt });
        Prompt::Chat(Chat {
            messages: system.chain([user]).collect(),
            ..Chat::default()
        })
    }
}

impl SamplingArgs {
    fn to_sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed,
            ..Sampling::default()
        }
    }
}

impl From<QuantizeChoice> for Quantize {
    fn from(choice: QuantizeChoice) -> Self {
        match choice {
            QuantizeChoice::Q8 => Self::Q8_0,
            QuantizeChoice::Q4K => Self::Q4K,
        }
    }
}
