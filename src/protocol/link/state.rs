//! A worker's report on itself, every few seconds and when something changes.

use serde::Deserialize;

use super::loose::{AtMost, Loose};
use super::object::Object;
use crate::job::MemoryStay;

const MOST_MODELS: usize = 1024;
const MOST_GPUS: usize = 64;
const MOST_KERNELS: usize = 32;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub gpus: Vec<GpuState>,
    pub models: Vec<ModelState>,
}

/// Memory in GiB, load from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuState {
    pub name: String,
    pub vram_total: Option<f64>,
    pub vram_free: Option<f64>,
    pub util: Option<f64>,
    /// Operations whose kernels fail their self-test on this GPU; slower kernels replace them.
    pub failed_kernels: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelState {
    pub name: String,
    pub status: ModelStatus,
    /// Jobs it takes at once.
    pub max: Option<u32>,
    pub running: u32,
    pub waiting: u32,
    pub context: Option<u32>,
    /// The share of its cache that is free.
    pub kv_free: Option<f64>,
    pub prefill_per_second: Option<f64>,
    pub decode_per_second: Option<f64>,
    /// Whether the model is in memory; a worker that does not say so has it there.
    pub loaded: Option<bool>,
    /// The time at which it leaves memory without a further job, in seconds since the epoch.
    pub expires_at: Option<i64>,
    /// The owner has the machine back until this second since the epoch, or for an unknown time where it is 0.
    pub paused_until: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModelStatus {
    #[default]
    Ready,
    Loading,
    Unloaded,
    Draining,
    /// Also the value of an unknown status: no work is sent there.
    Error,
}

#[derive(Deserialize)]
pub(super) struct StateJson {
    gpus: Option<AtMost<MOST_GPUS, GpuJson>>,
    models: Option<AtMost<MOST_MODELS, ModelJson>>,
}

#[derive(Deserialize)]
struct GpuJson {
    name: Option<String>,
    vram_total: Option<f64>,
    vram_free: Option<f64>,
    util: Option<f64>,
    #[serde(default)]
    failed_kernels: Loose<AtMost<MOST_KERNELS, Loose<String>>>,
}

#[derive(Deserialize)]
struct ModelJson {
    name: String,
    status: Option<String>,
    max: Option<u32>,
    running: Option<u32>,
    waiting: Option<u32>,
    ctx: Option<u32>,
    kv_free: Option<f64>,
    prefill_tps: Option<f64>,
    decode_tps: Option<f64>,
    loaded: Option<bool>,
    expires_at: Option<i64>,
    paused_until: Option<i64>,
}

impl From<StateJson> for State {
    fn from(json: StateJson) -> Self {
        let gpus = json.gpus.map_or_else(Vec::new, |list| list.0);
        let models = json.models.map_or_else(Vec::new, |list| list.0);
        Self {
            gpus: gpus.into_iter().map(GpuState::from).collect(),
            models: models.into_iter().map(ModelState::from).collect(),
        }
    }
}

impl From<GpuJson> for GpuState {
    fn from(json: GpuJson) -> Self {
        let failed = json.failed_kernels.0.map_or_else(Vec::new, |list| list.0);
        Self {
            name: json.name.unwrap_or_default(),
            vram_total: json.vram_total,
            vram_free: json.vram_free,
            util: json.util,
            failed_kernels: failed.into_iter().flat_map(|name| name.0).collect(),
        }
    }
}

impl From<ModelJson> for ModelState {
    fn from(json: ModelJson) -> Self {
        Self {
            name: json.name,
            status: json.status.as_deref().map_or(ModelStatus::Ready, named),
            max: json.max,
            running: json.running.unwrap_or(0),
            waiting: json.waiting.unwrap_or(0),
            context: json.ctx,
            kv_free: json.kv_free,
            prefill_per_second: json.prefill_tps,
            decode_per_second: json.decode_tps,
            loaded: json.loaded,
            expires_at: json.expires_at,
            paused_until: json.paused_until,
        }
    }
}

fn named(status: &str) -> ModelStatus {
    match status {
        "ready" => ModelStatus::Ready,
        "loading" => ModelStatus::Loading,
        "unloaded" => ModelStatus::Unloaded,
        "draining" => ModelStatus::Draining,
        _ => ModelStatus::Error,
    }
}

impl ModelStatus {
    fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Loading => "loading",
            Self::Unloaded => "unloaded",
            Self::Draining => "draining",
            Self::Error => "error",
        }
    }
}

impl State {
    pub(super) fn write_into(&self, out: &mut String) {
        let mut object = Object::frame("state", out);
        if !self.gpus.is_empty() {
            object.list("gpus", &self.gpus, GpuState::write);
        }
        object.list("models", &self.models, ModelState::write);
        object.end();
    }
}

impl GpuState {
    fn write(&self, out: &mut String) {
        let mut object = Object::new(out);
        object.text("name", &self.name);
        object.number_if("vram_total", self.vram_total.filter(|it| it.is_finite()));
        object.number_if("vram_free", self.vram_free.filter(|it| it.is_finite()));
        object.number_if("util", self.util.filter(|it| it.is_finite()));
        if !self.failed_kernels.is_empty() {
            object.texts("failed_kernels", &self.failed_kernels);
        }
        object.end();
    }
}

impl ModelState {
    pub fn stay(&self) -> MemoryStay {
        match (self.loaded, self.expires_at) {
            (Some(false), _) => MemoryStay::Unloaded,
            (_, Some(at)) => MemoryStay::Until(at),
            (_, None) => MemoryStay::Always,
        }
    }

    fn write(&self, out: &mut String) {
        let finite = |number: Option<f64>| number.filter(|it| it.is_finite());
        let mut object = Object::new(out);
        object.text("name", &self.name);
        object.text("status", self.status.name());
        object.number_if("max", self.max);
        object.number("running", self.running);
        object.number("waiting", self.waiting);
        object.number_if("ctx", self.context);
        object.number_if("kv_free", finite(self.kv_free));
        object.number_if("prefill_tps", finite(self.prefill_per_second));
        object.number_if("decode_tps", finite(self.decode_per_second));
        if let Some(loaded) = self.loaded {
            object.flag("loaded", loaded);
        }
        object.number_if("expires_at", self.expires_at);
        object.number_if("paused_until", self.paused_until);
        object.end();
    }
}
