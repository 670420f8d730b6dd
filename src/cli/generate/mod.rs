//! `worker generate`: text from a model, as it comes.

mod prompt;
mod story;

use clap::ValueEnum;
use serde_json::json;

use super::place::Place;
use super::{Failure, Root, load, output, threads};
use crate::config::Flag;
use crate::networks::weights::Quantize;
use crate::runtime::{
    CacheScope, Chat, ModelInfo, Prompt, Runtime, Sampling, StopRules, TextRequest,
};
use story::Story;

const EXAMPLES: &str = "\
Examples:
  worker generate qwen3-0.6b \"Why is the sky blue?\"
  worker generate ./tiny.gguf --raw --max-tokens 40 \"Once upon a time\"
  echo \"Summarize: ...\" | worker generate llama-3.2-1b-instruct --system \"Be brief.\"
  worker generate qwen3-0.6b --json --logprobs 3 --seed 7 \"Hello\"";

/// Generate text with a model on disk.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Catalog NAME or NAME:QUANTIZATION, pulled org/name or org/name:FILE, or path of a .gguf file or model folder.
    model: String,
    /// Text to answer or continue; `-` or no argument reads standard input.
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
    /// Maximum tokens to generate (default: until the model ends or its context is full).
    #[arg(long, short = 'n', value_name = "TOKENS", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
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
    /// Seed of the random numbers; the same seed gives the same text.
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<u64>)]
    seed: Option<u64>,
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

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load_with(args.flags())?.config;
    threads::settle(&config)?;
    let prompt = prompt::read(args.prompt.as_deref())?;
    let place = Place::open(&config)?;
    let mut located = place.locate(&args.model)?;
    located.source.quantize = args.quantize.map(Quantize::from);
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
    /// Those of our options that stand for settings.
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
