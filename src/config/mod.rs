//! `worker.toml`: raw text in, checked values out.
//!
//! Every setting is declared once, in its section's file, by [`settings!`](setting::settings): name, type, range,
//! default and one line on why to change it. Reading the file, the environment and the flags, naming the nearest
//! known key, `worker config check` and `worker.example.toml` all come from that declaration.
//!
//! A value comes from the flag, else `MUSTER_<SECTION>_<KEY>`, else the file, else a variable other programs
//! share with us (`HF_TOKEN`), else the default. Sections that may be repeated come from the file alone. All problems
//! are found in one pass.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

mod alias;
mod choice;
mod cluster;
mod coordinator;
mod document;
mod edit;
mod engine;
mod example;
mod exposure;
mod fingerprint;
mod hours;
mod hub;
mod media;
mod models;
mod nearest;
mod network;
mod owner;
mod page;
mod price;
mod problem;
mod raw;
mod reader;
mod secret;
mod serve;
mod setting;
mod sources;
mod units;
mod unknown;
mod upstream;
mod value;
mod worker;

pub use alias::AliasConfig;
pub use cluster::ClusterConfig;
pub use coordinator::{CoordinatorConfig, CoordinatorJobs, CoordinatorKind};
pub use edit::{ChangeError, SettingChange, change};
pub use engine::{DeviceSetting, EngineConfig, KvCacheSetting, SpeculationSetting};
pub use example::example;
pub use exposure::Exposure;
pub use fingerprint::Fingerprint;
pub use hours::Hours;
pub use hub::HubConfig;
pub use media::MediaConfig;
pub use models::{ModelsConfig, Quantization, Served, is_path};
pub use nearest::nearest;
pub use network::Networks;
pub use owner::{EnergyPrice, OwnerConfig};
pub use page::{KudosWorth, PageAddress};
pub use price::{PriceConfig, Usd};
pub use problem::{ConfigError, Problem};
pub use secret::Secret;
pub use serve::{Charging, ServeConfig, StoreResponses};
pub use setting::{Found, Origin, Setting};
pub use sources::{Environment, Flag, Sources};
pub use units::{Size, parse_duration, show_duration};
pub use upstream::{UpstreamApi, UpstreamConfig, UpstreamKind, UpstreamSettings};
pub use worker::{LogFormat, LogLevel, WorkerConfig};

use std::path::Path;

use document::Document;
use reader::Reader;

/// The whole configuration: complete, typed, checked. Parts are handed their own section.
#[derive(Debug, Clone)]
pub struct Config {
    pub worker: WorkerConfig,
    pub models: ModelsConfig,
    pub engine: EngineConfig,
    pub hub: HubConfig,
    pub owner: OwnerConfig,
    pub serve: ServeConfig,
    pub media: MediaConfig,
    pub cluster: ClusterConfig,
    pub prices: Vec<PriceConfig>,
    pub aliases: Vec<AliasConfig>,
    pub upstreams: Vec<UpstreamConfig>,
    pub coordinators: Vec<CoordinatorConfig>,
}

/// A configuration, and where each of its values came from.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    pub found: Vec<Found>,
    /// Remarks that are no errors.
    pub warnings: Vec<String>,
    /// Secrets that every user of this machine can read.
    pub exposures: Vec<Exposure>,
}

impl Loaded {
    /// Warnings to log at startup.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        let exposed = self.exposures.iter();
        let exposed = exposed.map(|one| format!("{one}: {}", one.remedy()));
        self.warnings.iter().cloned().chain(exposed)
    }

    /// Whether any source sets `section.key`.
    pub fn is_set(&self, setting: &str) -> bool {
        let mut found = self.found.iter();
        found.any(|found| found.name == setting && found.origin != Origin::Default)
    }
}

/// The sections that occur once in a file.
pub fn sections() -> [&'static [Setting]; 8] {
    [
        WorkerConfig::SETTINGS,
        ModelsConfig::SETTINGS,
        EngineConfig::SETTINGS,
        HubConfig::SETTINGS,
        OwnerConfig::SETTINGS,
        ServeConfig::SETTINGS,
        MediaConfig::SETTINGS,
        ClusterConfig::SETTINGS,
    ]
}

/// The sections that may be repeated.
fn repeated_sections() -> [&'static [Setting]; 4] {
    [
        PriceConfig::SETTINGS,
        AliasConfig::SETTINGS,
        UpstreamSettings::SETTINGS,
        CoordinatorConfig::SETTINGS,
    ]
}

impl Config {
    /// Reads the configuration from everywhere it may come from.
    pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
        let document = match &sources.file {
            Some(path) => Document::open(path)?,
            None => Document::default(),
        };
        Self::of(sources, &document)
    }

    /// Like [`Config::load`], with this text instead of the file's.
    pub fn load_text(sources: &Sources, text: &str) -> Result<Loaded, ConfigError> {
        let file = sources.file.as_deref().unwrap_or(Path::new("worker.toml"));
        let document = Document::parse(file, text);
        let document = document.map_err(|problem| ConfigError::Wrong(vec![problem]))?;
        Self::of(sources, &document)
    }

    fn of(sources: &Sources, document: &Document) -> Result<Loaded, ConfigError> {
        let mut reader = Reader::new(sources, document);
        reader.refuse_unknown();
        let config = Self::read(&mut reader);
        reader.finish(config)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let worker = WorkerConfig::read(reader);
        let models = ModelsConfig::read(reader);
        let engine = EngineConfig::read(reader);
        let hub = HubConfig::read(reader);
        let owner = OwnerConfig::read(reader);
        let serve = ServeConfig::read_whole(reader);
        let media = MediaConfig::read_whole(reader);
        let cluster = ClusterConfig::read(reader);
        if let (Some(cluster), Some(serve), Some(media)) = (&cluster, &serve, &media)
            && let Some(problem) = cluster.problem(serve, media)
        {
            reader.problem_about("cluster.address", problem);
        }
        let prices = reader.each(PriceConfig::SECTION, PriceConfig::read_one);
        if let Some(name) = prices.as_deref().and_then(price::priced_twice) {
            reader.problem_about(
                "serve.price",
                format!("{name} has two prices in [[serve.price]]: keep one"),
            );
        }
        let aliases = reader.each(AliasConfig::SECTION, AliasConfig::read_one);
        if let Some(name) = aliases.as_deref().and_then(alias::named_twice) {
            reader.problem_about(
                "serve.alias",
                format!("{name} stands for two models in [[serve.alias]]: keep one"),
            );
        }
        let is_charging = |serve: &ServeConfig| serve.charging != Charging::Off;
        if serve.as_ref().is_some_and(is_charging) && prices.as_ref().is_some_and(Vec::is_empty) {
            let what = "serve.charging needs prices: without [[serve.price]] every request that is charged is refused";
            reader.problem_about("serve.charging", what.to_owned());
        }
        let upstreams = reader.each(UpstreamSettings::SECTION, UpstreamConfig::read_one);
        let coordinators = reader.each(CoordinatorConfig::SECTION, CoordinatorConfig::read_one);
        Some(Self {
            worker: worker?,
            models: models?,
            engine: engine?,
            hub: hub?,
            owner: owner?,
            serve: serve?,
            media: media?,
            cluster: cluster?,
            prices: prices?,
            aliases: aliases?,
            upstreams: upstreams?,
            coordinators: coordinators?,
        })
    }
}
