//! `[engine]`: how models run on this machine.

use super::raw::Raw;
use super::setting::settings;
use super::units::Size;
use super::value::{Place, Value, quote};

settings! {
    /// How models run on this machine.
    pub struct EngineConfig = "engine" {
        /// Where models run: auto takes the GPU with the most free memory, or the CPU where there is none; else cpu, cuda or cuda:N.
        device: DeviceSetting = "auto",
        /// Memory for the keys and values of running jobs, for each model. Set it to leave room for others.
        kv_memory: Option<Size> where (1 << 20..=1 << 50); unset "enough for max_running jobs, or what is free",
        /// The longest prompt and answer together, in tokens. Lower it to save memory.
        context: Option<usize> where (16..=16_777_216); unset "what the model was made for, or what fits",
        /// Jobs that generate at the same time. Raise it for throughput, lower it for the speed of each.
        max_running: usize where (1..=4096) = 16,
        /// Jobs that may wait for a place; more are refused at once.
        max_waiting: usize where (0..=65_536) = 64,
        /// Tokens of prompts read in one step. Lower it when long prompts make running jobs stutter.
        prefill_chunk: usize where (1..=65_536) = 512,
        /// Threads that compute on the CPU. Lower it to keep cores for other work.
        threads: Option<usize> where (1..=1024); unset "as many as the machine allows",
    }
}

/// Where the owner wants models to run.
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
