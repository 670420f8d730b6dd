//! `[engine]`: how models run on this machine.

use std::path::PathBuf;
use std::time::Duration;

use super::choice::choice;
use super::raw::Raw;
use super::setting::settings;
use super::units::Size;
use super::value::{Place, Value, quote};

settings! {
    /// How models run on this machine.
    pub struct EngineConfig = "engine" {
        /// Devices that run the models: auto (all GPUs, else the CPU), cpu, cuda (all GPUs) or cuda:N (one). Each model goes to the GPU with the most free memory.
        device: DeviceSetting = "auto",
        /// KV cache memory per model. Set it to leave memory for other programs.
        kv_memory: Option<Size> where (1 << 20..=1 << 50); unset "enough for max_running jobs and on a GPU for one of the longest, or all free memory",
        /// Number format of the KV cache: auto (f16, or f32 for f32 weights on the CPU), f16, or q8_0, which takes half the memory of f16. Set q8_0 for longer contexts or more jobs.
        kv_cache: KvCacheSetting = "auto",
        /// Maximum length of prompt and answer together, in tokens. Lower it to save memory.
        context: Option<usize> where (16..=16_777_216); unset "the model's maximum, or as much as fits",
        /// Maximum jobs generating at the same time. Raise it for throughput, lower it for speed per job.
        max_running: Option<usize> where (1..=4096); unset "16 on the CPU, 256 on a GPU",
        /// Maximum jobs waiting to run; more are refused at once. Lower it to refuse early.
        max_waiting: usize where (0..=65_536) = 64,
        /// Maximum prompt tokens per step; fewer are read while jobs generate, so that they keep flowing. Lower it to save memory.
        prefill_chunk: Option<usize> where (1..=65_536); unset "512 on the CPU, 2048 on a GPU",
        /// Speculation, which draws several tokens of a text in one step and changes no text: auto (where it makes texts faster) or off. Set it to off to give every text one token per step.
        speculation: SpeculationSetting = "auto",
        /// Time without jobs after which a model is unloaded; its next job loads it again. Set it to give memory to other programs meanwhile.
        keep_alive: Option<Duration> where (0..=31_536_000); unset "models stay in memory",
        /// CPU threads for computing. Lower it to keep cores for other programs.
        threads: Option<usize> where (1..=1024); unset "one per available core",
        /// Folder with LoRAs as .safetensors files, which image requests name without the ending. Set it to serve them.
        loras: Option<PathBuf>; unset "no LoRAs",
        /// Folder with LoRA adapters of text models: MODEL/NAME, a folder of peft or a GGUF file, is served as MODEL:NAME. Set it to serve them.
        adapters: Option<PathBuf>; unset "no adapters",
        /// Folder with textual inversions as .safetensors files, which prompts name as embedding:NAME without the ending. Set it to serve them.
        embeddings: Option<PathBuf>; unset "no textual inversions",
        /// Folder of a safety checker, with config.json and model.safetensors as Stable Diffusion 1.5 has them in its folder safety_checker, which judges images for AI Horde servers on the CPU; demo-safety is a small one of this program for trials. Set it to serve images there.
        safety_checker: Option<PathBuf>; unset "no images for AI Horde servers",
    }
}

choice! {
    /// When texts use speculative decoding.
    pub enum SpeculationSetting { Auto = "auto", Off = "off" }
}

choice! {
    /// How keys and values are stored.
    pub enum KvCacheSetting {
        Auto = "auto",
        F16 = "f16",
        Q8_0 = "q8_0",
    }
}

/// The device on which models run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceSetting {
    #[default]
    Auto,
    Cpu,
    Cuda(Option<usize>),
}

impl DeviceSetting {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(None)),
            _ => text
                .strip_prefix("cuda:")?
                .parse()
                .ok()
                .map(|index| Self::Cuda(Some(index))),
        }
    }
}

impl std::fmt::Display for DeviceSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(index)) => write!(f, "cuda:{index}"),
        }
    }
}

impl Value for DeviceSetting {
    fn wanted() -> String {
        "\"auto\", \"cpu\", \"cuda\" or \"cuda:N\"".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        raw.text().and_then(Self::parse).ok_or_else(String::new)
    }

    fn show(&self) -> Option<String> {
        Some(quote(&self.to_string()))
    }
}
