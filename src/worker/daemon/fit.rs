//! Memory planning: sizes in, a fit out, or a refusal with its numbers. Pure.
//!
//! Memory has three uses: the weights, the KV cache of running jobs, and the workspace. Weights and workspace are
//! fixed; the KV cache shrinks until the model fits or is too small to be useful.

use std::fmt;

use crate::catalog::{Entry, Facts};
use crate::hardware::{Gpu, Machine};
use muster_config::{DeviceSetting, EngineConfig, OwnerConfig};
use muster_engine::runtime::{DeviceChoice, PAGE_TOKENS, SharedWeights, convolution_scratch};

/// The free memory of a device, and the owner's reserve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    pub device: DeviceChoice,
    /// For messages: `this machine`, `GPU 0 (NVIDIA H200)`.
    pub place: String,
    pub free_bytes: u64,
    /// The owner's reserve.
    pub kept_bytes: u64,
}

/// A model's memory requirements, from its header or from the catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    pub weight_bytes: u64,
    pub kv_bytes_per_token: u64,
    pub workspace_bytes: u64,
    /// Scratch memory per token of the longest sequence, on a GPU.
    pub scratch_bytes_per_token: u64,
    /// The model's context; 0 for an image model.
    pub context: usize,
    /// Whether the KV cache is that of one job.
    pub runs_one_job: bool,
}

/// The owner's settings for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    pub context: Option<usize>,
    pub kv_bytes: Option<u64>,
    pub max_running: usize,
    /// Models that share the memory for keys and values, this one counted in; 0 for no others.
    pub sharers: usize,
}

/// A model that fits, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// The most tokens of one job, prompt and answer.
    pub context: usize,
    /// Room for the keys and values of all jobs together.
    pub kv_tokens: usize,
    pub kv_bytes: u64,
    pub weight_bytes: u64,
    pub total_bytes: u64,
}

/// A model that does not fit, with its requirements and the available memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub needs: Needs,
    pub tokens: usize,
    pub kv_bytes: u64,
    /// Workspace for this many tokens.
    pub workspace_bytes: u64,
    pub room: Box<Room>,
}

/// A configured device that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoDevice {
    #[error(
        "engine.device is {wanted}, but this build has no CUDA; build with `--features cuda`, or set engine.device to cpu"
    )]
    NotBuilt { wanted: DeviceSetting },
    #[error("engine.device is {wanted}, but this machine has {}", cards(.found))]
    Missing {
        wanted: DeviceSetting,
        found: Vec<u32>,
    },
    #[error("engine.device is {wanted}, but GPU {gpu} cannot run models: {obstacle}")]
    Unusable {
        wanted: DeviceSetting,
        gpu: u32,
        obstacle: String,
    },
}

/// Default context of a single job.
const USUAL_CONTEXT: usize = 8192;

/// A shorter context is useless, unless the owner requests it.
const LEAST_CONTEXT: usize = 1024;

/// Default KV cache tokens per running job.
const TOKENS_PER_JOB: usize = 1024;

/// Default limits of concurrent jobs.
const MAX_RUNNING_ON_CPU: usize = 16;
const MAX_RUNNING_ON_GPU: usize = 256;

/// Default limits of prompt tokens per step.
const PREFILL_CHUNK_ON_CPU: usize = 512;
const PREFILL_CHUNK_ON_GPU: usize = 2048;

/// Activations, logits and the program itself, where only the catalog is known.
const USUAL_WORKSPACE_BYTES: u64 = 256 << 20;

impl Wishes {
    pub fn of(engine: &EngineConfig, device: DeviceChoice) -> Self {
        Self {
            context: engine.context,
            kv_bytes: engine.kv_memory.map(|size| size.bytes),
            max_running: max_running(engine, device),
            sharers: 0,
        }
    }

    /// The longest job, if memory suffices.
    fn longest(&self, needs: &Needs) -> usize {
        self.context.unwrap_or(needs.context).min(needs.context)
    }

    /// The preferred and the least number of KV cache tokens. On a GPU models get their whole context, if it fits.
    fn tokens(&self, needs: &Needs, device: DeviceChoice) -> (usize, usize) {
        let longest = self.longest(needs);
        let most = if needs.runs_one_job {
            longest
        } else {
            usize::MAX
        };
        if let Some(bytes) = self.kv_bytes {
            let tokens =
                usize::try_from(bytes / needs.kv_bytes_per_token.max(1)).unwrap_or(usize::MAX);
            return (tokens.min(most), tokens.min(most));
        }
        let least = self.context.unwrap_or(LEAST_CONTEXT).min(longest);
        let usual = match device {
            DeviceChoice::Cuda(_) => longest,
            DeviceChoice::Cpu => longest.min(self.context.unwrap_or(USUAL_CONTEXT)),
        };
        let jobs = self.max_running.saturating_mul(TOKENS_PER_JOB);
        (usual.max(jobs).min(most), least)
    }
}

/// Jobs of one model that run at the same time.
pub fn max_running(engine: &EngineConfig, device: DeviceChoice) -> usize {
    engine.max_running.unwrap_or(match device {
        DeviceChoice::Cpu => MAX_RUNNING_ON_CPU,
        DeviceChoice::Cuda(_) => MAX_RUNNING_ON_GPU,
    })
}

/// Prompt tokens of a step.
pub fn prefill_chunk(engine: &EngineConfig, device: DeviceChoice) -> usize {
    engine.prefill_chunk.unwrap_or(match device {
        DeviceChoice::Cpu => PREFILL_CHUNK_ON_CPU,
        DeviceChoice::Cuda(_) => PREFILL_CHUNK_ON_GPU,
    })
}

impl Needs {
    /// The needs of a model for media: nothing grows with a context.
    pub fn beside(weight_bytes: u64, workspace_bytes: u64) -> Self {
        Self {
            weight_bytes,
            workspace_bytes,
            ..Self::default()
        }
    }

    /// The requirements by the catalog. `None` if the size is unknown before the download.
    pub fn of_entry(entry: &Entry, quantization: &str) -> Option<Self> {
        let weight_bytes = entry.held_bytes(quantization)?;
        let facts = match &entry.facts {
            Facts::Text(facts) => facts,
            others => return Some(Self::beside(weight_bytes, others.workspace_bytes())),
        };
        Some(Self {
            weight_bytes,
            kv_bytes_per_token: entry.kv_bytes_per_token()?,
            workspace_bytes: USUAL_WORKSPACE_BYTES,
            scratch_bytes_per_token: 0,
            context: usize::try_from(facts.context).ok()?,
            runs_one_job: entry.family.runs_one_job(),
        })
    }

    fn fixed_bytes(&self) -> u64 {
        self.weight_bytes.saturating_add(self.workspace_bytes)
    }

    /// Lowered rows of convolutions of media models on a GPU.
    pub fn lowered_bytes(&self, device: DeviceChoice) -> u64 {
        match device {
            DeviceChoice::Cuda(_) if self.context == 0 => convolution_scratch(self.workspace_bytes),
            DeviceChoice::Cuda(_) | DeviceChoice::Cpu => 0,
        }
    }

    fn kv_bytes(&self, tokens: usize) -> u64 {
        self.kv_bytes_per_token.saturating_mul(tokens as u64)
    }

    /// Workspace while no sequence is longer than this.
    fn work_bytes(&self, longest: usize) -> u64 {
        let scratch = self.scratch_bytes_per_token.saturating_mul(longest as u64);
        self.workspace_bytes.saturating_add(scratch)
    }

    /// Memory with a KV cache for this many tokens of one job, if the model has any.
    fn bytes_with(&self, tokens: usize, device: DeviceChoice) -> u64 {
        let tokens = match self.context {
            0 => 0,
            _ => tokens,
        };
        let held_bytes = self.weight_bytes.saturating_add(self.kv_bytes(tokens));
        held_bytes
            .saturating_add(self.work_bytes(tokens))
            .saturating_add(self.lowered_bytes(device))
    }

    /// Number of KV cache tokens in these bytes, after the scratch memory of sequences of up to `longest`.
    fn tokens_in(&self, bytes: u64, longest: usize) -> u64 {
        let scratch = self.scratch_bytes_per_token;
        let beside = bytes.checked_sub(scratch.saturating_mul(longest as u64));
        let tokens = beside.map(|bytes| bytes / self.kv_bytes_per_token.max(1));
        match tokens.filter(|tokens| *tokens >= longest as u64) {
            Some(tokens) => tokens,
            // Sequences are then limited by the KV cache.
            None => bytes / self.kv_bytes_per_token.saturating_add(scratch).max(1),
        }
    }
}

impl Fit {
    /// Memory of a model with the shortest usable context.
    pub fn least_bytes(needs: &Needs, wishes: &Wishes, device: DeviceChoice) -> u64 {
        let (_, least) = wishes.tokens(needs, DeviceChoice::Cpu);
        needs.bytes_with(least, device)
    }

    /// Memory of a model with one job of the default context.
    pub fn usual_bytes(needs: &Needs, wishes: &Wishes, device: DeviceChoice) -> u64 {
        let (_, least) = wishes.tokens(needs, DeviceChoice::Cpu);
        let usual = wishes.longest(needs).min(USUAL_CONTEXT);
        needs.bytes_with(usual.max(least), device)
    }

    /// The same with a KV cache for this many tokens.
    #[must_use]
    pub fn with_tokens(self, kv_tokens: usize) -> Self {
        let kv_bytes = self.kv_bytes_per_token() * kv_tokens as u64;
        Self {
            kv_tokens,
            kv_bytes,
            total_bytes: self.total_bytes - self.kv_bytes + kv_bytes,
            ..self
        }
    }

    /// 0 for a model without a KV cache.
    pub fn kv_bytes_per_token(&self) -> u64 {
        self.kv_bytes / self.kv_tokens.max(1) as u64
    }

    /// The KV cache of one job of the longest context.
    pub fn least_tokens(&self) -> usize {
        self.context
            .next_multiple_of(PAGE_TOKENS)
            .min(self.kv_tokens)
    }

    /// Workspace bytes.
    pub fn workspace_bytes(&self) -> u64 {
        let held_bytes = self.weight_bytes.saturating_add(self.kv_bytes);
        self.total_bytes.saturating_sub(held_bytes)
    }

    /// Pages of keys and values.
    pub fn pages(&self) -> usize {
        self.kv_tokens / PAGE_TOKENS
    }
}

/// Whether a model fits into a device's free memory, and the KV cache for its jobs.
pub fn fit(needs: Needs, wishes: Wishes, room: &Room) -> Result<Fit, Refusal> {
    if needs.context == 0 {
        return fit_image(needs, room);
    }
    let (wanted, least) = wishes.tokens(&needs, room.device);
    let longest = wishes.longest(&needs);
    let left = room.left_bytes().checked_sub(needs.fixed_bytes());
    let tokens_in = |bytes| needs.tokens_in(bytes, longest);
    let share = left.map_or(0, |bytes| tokens_in(bytes / wishes.sharers.max(1) as u64));
    // The first model has a usable context, even if that leaves too little for the others.
    let possible = match share < least as u64 {
        true => left.map_or(0, tokens_in).min(least as u64),
        false => share,
    };
    let kv_tokens = usize::try_from(possible).unwrap_or(usize::MAX).min(wanted);
    if left.is_none() || kv_tokens < least || kv_tokens == 0 {
        let tokens = least.max(1);
        return Err(Refusal {
            needs,
            tokens,
            kv_bytes: needs.kv_bytes(tokens),
            workspace_bytes: needs.work_bytes(tokens.min(longest)),
            room: Box::new(room.clone()),
        });
    }
    let context = longest.min(kv_tokens);
    let kv_bytes = needs.kv_bytes(kv_tokens);
    let held_bytes = needs.weight_bytes.saturating_add(kv_bytes);
    Ok(Fit {
        context,
        kv_tokens,
        kv_bytes,
        weight_bytes: needs.weight_bytes,
        total_bytes: held_bytes.saturating_add(needs.work_bytes(context)),
    })
}

/// Whether an image model fits into a device's free memory: its weights, and one image of the default size.
fn fit_image(needs: Needs, room: &Room) -> Result<Fit, Refusal> {
    let needs = Needs {
        workspace_bytes: needs
            .workspace_bytes
            .saturating_add(needs.lowered_bytes(room.device)),
        ..needs
    };
    let total_bytes = needs.fixed_bytes();
    match total_bytes <= room.left_bytes() {
        true => Ok(Fit {
            context: 0,
            kv_tokens: 0,
            kv_bytes: 0,
            weight_bytes: needs.weight_bytes,
            total_bytes,
        }),
        false => Err(Refusal {
            needs,
            tokens: 0,
            kv_bytes: 0,
            workspace_bytes: needs.workspace_bytes,
            room: Box::new(room.clone()),
        }),
    }
}

/// The quantization of an entry to take: the one named; else the usual one, or the largest smaller one that fits.
pub fn quantization<'a>(
    entry: &'a Entry,
    wishes: Wishes,
    room: &Room,
) -> Result<(&'a str, Fit), Option<Refusal>> {
    let usual = entry.default_quantization.as_str();
    let needs = |name: &str| Needs::of_entry(entry, name);
    let most = needs(usual).map_or(u64::MAX, |needs| needs.weight_bytes);
    let mut choices: Vec<(&str, Needs)> = entry
        .sources
        .keys()
        .filter_map(|name| Some((name.as_str(), needs(name)?)))
        .collect();
    choices.retain(|(name, needs)| *name == usual || needs.weight_bytes < most);
    choices.sort_by_key(|(name, needs)| (*name != usual, std::cmp::Reverse(needs.weight_bytes)));
    let mut refusal = None;
    for (name, needs) in choices {
        match fit(needs, wishes, room) {
            Ok(fit) => return Ok((name, fit)),
            // The last one refused is the smallest: the nearest to fitting.
            Err(refused) => refusal = Some(refused),
        }
    }
    Err(refusal)
}

/// The default device for models, with its free memory.
pub fn room(
    machine: &Machine,
    wanted: DeviceSetting,
    owner: &OwnerConfig,
    has_cuda: bool,
) -> Result<Room, NoDevice> {
    let mut rooms = rooms(machine, wanted, owner, has_cuda)?;
    Ok(rooms.swap_remove(0))
}

/// The devices for models with their free memory, the best first; never empty.
pub fn rooms(
    machine: &Machine,
    wanted: DeviceSetting,
    owner: &OwnerConfig,
    has_cuda: bool,
) -> Result<Vec<Room>, NoDevice> {
    let keep = owner.keep_free.bytes;
    let gpus: Vec<&Gpu> = match wanted {
        DeviceSetting::Cpu => Vec::new(),
        DeviceSetting::Auto if !has_cuda => Vec::new(),
        DeviceSetting::Cuda(_) if !has_cuda => return Err(NoDevice::NotBuilt { wanted }),
        DeviceSetting::Auto | DeviceSetting::Cuda(None) => {
            let mut gpus: Vec<&Gpu> = machine.gpus.iter().collect();
            gpus.sort_by_key(|gpu| std::cmp::Reverse(gpu.memory_free_bytes));
            gpus
        }
        DeviceSetting::Cuda(Some(index)) => {
            let gpus = machine.gpus.iter();
            gpus.filter(|gpu| gpu.index as usize == index).collect()
        }
    };
    let usable = gpus.iter().filter(|gpu| gpu.obstacle.is_none());
    let mut rooms: Vec<Room> = usable.map(|gpu| Room::on(gpu, keep)).collect();
    if !matches!(wanted, DeviceSetting::Cuda(_)) {
        rooms.push(main_memory(machine, keep));
    }
    if !rooms.is_empty() {
        return Ok(rooms);
    }
    let unusable = gpus.iter().find_map(|gpu| {
        Some(NoDevice::Unusable {
            wanted,
            gpu: gpu.index,
            obstacle: gpu.obstacle.clone()?,
        })
    });
    Err(unusable.unwrap_or_else(|| NoDevice::Missing {
        wanted,
        found: machine.gpus.iter().map(|gpu| gpu.index).collect(),
    }))
}

fn main_memory(machine: &Machine, keep: u64) -> Room {
    Room {
        device: DeviceChoice::Cpu,
        place: "this machine".to_owned(),
        free_bytes: machine.memory.available_bytes,
        kept_bytes: keep,
    }
}

impl Room {
    fn on(gpu: &Gpu, kept_bytes: u64) -> Self {
        Self {
            device: DeviceChoice::Cuda(gpu.index as usize),
            place: format!("GPU {} ({})", gpu.index, gpu.name),
            free_bytes: gpu.memory_free_bytes,
            kept_bytes,
        }
    }

    /// Memory available for models.
    pub fn left_bytes(&self) -> u64 {
        self.free_bytes.saturating_sub(self.kept_bytes)
    }

    /// The memory besides these models for a newcomer. Shared weights count once, so that the newcomer's weights that
    /// are already in memory take no more.
    #[must_use]
    pub fn beside<'a>(
        &self,
        models: impl Iterator<Item = (Fit, &'a [SharedWeights])>,
        newcomer: &[SharedWeights],
    ) -> Self {
        let mut seen: Vec<&SharedWeights> = Vec::new();
        let mut taken_bytes = 0_u64;
        for (fit, shared) in models {
            let (again, new): (Vec<_>, Vec<_>) = shared.iter().partition(|it| seen.contains(it));
            let again: u64 = again.iter().map(|it| it.bytes).sum();
            taken_bytes = taken_bytes.saturating_add(fit.total_bytes.saturating_sub(again));
            seen.extend(new);
        }
        let in_memory = newcomer.iter().filter(|it| seen.contains(it));
        let in_memory: u64 = in_memory.map(|it| it.bytes).sum();
        let free_bytes = self.free_bytes.saturating_sub(taken_bytes);
        Self {
            free_bytes: free_bytes.saturating_add(in_memory),
            ..self.clone()
        }
    }
}

impl Refusal {
    /// Whether the model would fit without the owner's reserve.
    pub fn fits_without_keep(&self) -> bool {
        self.room.kept_bytes > 0 && self.total_bytes() <= self.room.free_bytes
    }

    fn total_bytes(&self) -> u64 {
        let held_bytes = self.needs.weight_bytes.saturating_add(self.kv_bytes);
        held_bytes.saturating_add(self.workspace_bytes)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            needs,
            tokens,
            kv_bytes,
            workspace_bytes,
            room,
        } = self;
        let (total, weights) = (size(self.total_bytes()), size(needs.weight_bytes));
        write!(f, "needs {total} = {weights} weights + ")?;
        let workspace = size(*workspace_bytes);
        match tokens {
            0 => write!(f, "{workspace} for one drawing")?,
            _ => write!(
                f,
                "{} KV for {tokens} tokens + {workspace} workspace",
                size(*kv_bytes)
            )?,
        }
        write!(
            f,
            "; {} has {} left for models",
            room.place,
            size(room.left_bytes()),
        )?;
        match room.kept_bytes {
            0 => Ok(()),
            kept => write!(
                f,
                " ({} free, {} reserved for the owner)",
                size(room.free_bytes),
                size(kept),
            ),
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [total, weights, kv, workspace] = [
            self.total_bytes,
            self.weight_bytes,
            self.kv_bytes,
            self.workspace_bytes(),
        ]
        .map(size);
        let Self {
            context, kv_tokens, ..
        } = self;
        if *kv_tokens == 0 {
            return write!(
                f,
                "{total} = {weights} weights + {workspace} for one drawing"
            );
        }
        write!(
            f,
            "{total} = {weights} weights + {kv} KV cache for {kv_tokens} tokens ({} pages), up to {context} per job, + {workspace} workspace",
            self.pages()
        )
    }
}

/// `4.9 GiB`, `261.8 MiB`
pub fn size(bytes: u64) -> String {
    const MIB: (&str, u64) = ("MiB", 1 << 20);
    let units = [("TiB", 1 << 40), ("GiB", 1 << 30)];
    let found = units.into_iter().find(|(_, unit)| bytes >= *unit);
    let (name, unit) = found.unwrap_or(MIB);
    format!("{:.1} {name}", bytes as f64 / unit as f64)
}

fn cards(found: &[u32]) -> String {
    match found {
        [] => "no usable NVIDIA GPU".to_owned(),
        [only] => format!("only GPU {only}"),
        several => {
            let numbers: Vec<String> = several.iter().map(u32::to_string).collect();
            format!("the GPUs {}", numbers.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_one_job_has_the_cache_of_its_context() {
        let needs = |runs_one_job| Needs {
            weight_bytes: 1 << 20,
            kv_bytes_per_token: 64,
            context: 2048,
            runs_one_job,
            ..Needs::default()
        };
        let wishes = |kv_bytes| Wishes {
            max_running: 16,
            kv_bytes,
            ..Wishes::default()
        };
        let room = Room {
            device: DeviceChoice::Cpu,
            place: "here".to_owned(),
            free_bytes: 1 << 30,
            kept_bytes: 0,
        };
        let tokens = |runs_one_job, kv_bytes| {
            let fitted = fit(needs(runs_one_job), wishes(kv_bytes), &room).unwrap();
            (fitted.context, fitted.kv_tokens)
        };
        assert_eq!(tokens(false, None), (2048, 16 * 1024));
        assert_eq!(tokens(true, None), (2048, 2048));
        assert_eq!(tokens(true, Some(64 * 4096)), (2048, 2048));
        assert_eq!(tokens(true, Some(64 * 1024)), (1024, 1024));
    }
}
