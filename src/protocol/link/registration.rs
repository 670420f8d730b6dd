//! The first frame of a worker, the only one without a `type`.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::FrameError;
use super::extensions::{Ability, Wanted, WantedJson};
use super::job_types::{job_types, kinds_of, tasks};
use super::loose::{AtMost, Entries, Few, Loose, read};
use super::object::Object;
use crate::job::{Formats, JobId, Kind, Kinds, ModelDetails};

const KIND: &str = "registration";
/// Models one worker may name.
const MOST_MODELS: usize = 1024;
/// Limit of jobs that a reconnecting worker may claim.
pub(super) const MOST_CLAIMS: usize = 4096;
/// Tasks of one model; later versions may know more.
const MOST_TASKS: usize = 32;
/// Voices of one model, and bytes of the name of one.
const MOST_VOICES: usize = 512;
const LONGEST_VOICE: usize = 64;

/// A key, kept out of logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub String);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(..)")
    }
}

/// A worker's registration, with the contract's defaults for missing fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// Empty when there was none.
    pub key: Key,
    /// Empty when there was none.
    pub name: String,
    /// Public names, compared exactly.
    pub models: Vec<String>,
    pub kinds: Kinds,
    pub formats: Formats,
    /// Input kinds of its text models: `text`, `image`, `video`.
    pub modalities: Vec<String>,
    pub max_length: u32,
    pub max_context_length: u32,
    pub bridge_agent: String,
    pub worker_profile: Option<Value>,
    pub worker_identity: Option<Value>,
    pub ext: Option<Wanted>,
    /// With `multi`.
    pub capacity: Option<Capacity>,
    /// With `resume`, after a lost socket.
    pub resume: Option<Resume>,
}

/// How many jobs at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    pub total: u32,
    pub models: Vec<ModelCapacity>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelCapacity {
    pub name: String,
    pub max: u32,
    pub context: Option<u32>,
    /// Width and height of its images where a request names none.
    pub size: Option<(u32, u32)>,
    /// Empty from workers of earlier versions, whose models all serve the worker's kinds.
    pub kinds: Kinds,
    /// Abilities in which models differ; `None`: the worker's.
    pub can: Option<Vec<Ability>>,
    /// Frames a second and frames of its videos where a request names none.
    pub clip: Option<(u32, u32)>,
    /// Names of the voices of a model that speaks.
    pub voices: Vec<String>,
    pub limits: ModelLimits,
    pub details: ModelDetails,
}

/// Limits of a model, if stated: of images and videos, audio, and texts to speak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ModelLimits {
    /// Width times height.
    pub pixels: Option<u32>,
    pub steps: Option<u32>,
    pub frames: Option<u32>,
    pub seconds: Option<u32>,
    pub characters: Option<u32>,
}

/// Jobs of an earlier session that the worker still runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    pub session: String,
    pub jobs: Vec<Claim>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub job: JobId,
    pub attempt: u32,
    /// The number of its newest frame.
    pub last: u64,
}

/// Entries of another kind than text are let pass, and name nothing.
type Names = AtMost<MOST_MODELS, Loose<String>>;

#[derive(Deserialize)]
struct RegistrationJson {
    apikey: Option<String>,
    name: Option<String>,
    models: Option<Names>,
    job_types: Option<Names>,
    worker_type: Option<String>,
    api_formats: Option<Names>,
    modalities: Option<Names>,
    max_length: Option<f64>,
    max_context_length: Option<f64>,
    bridge_agent: Option<String>,
    worker_profile: Option<Few>,
    worker_identity: Option<Few>,
    ext: Option<WantedJson>,
    capacity: Option<CapacityJson>,
    resume: Option<ResumeJson>,
}

#[derive(Deserialize)]
struct CapacityJson {
    total: Option<u32>,
    models: Option<Entries<MOST_MODELS, Loose<ModelCapacityJson>>>,
}

#[derive(Default, Deserialize)]
struct ModelCapacityJson {
    #[serde(default)]
    max: Loose<u32>,
    #[serde(default)]
    ctx: Loose<u32>,
    #[serde(default)]
    size: Loose<(u32, u32)>,
    #[serde(default)]
    kinds: Loose<AtMost<MOST_TASKS, Loose<String>>>,
    #[serde(default)]
    tasks: Loose<AtMost<MOST_TASKS, Loose<String>>>,
    #[serde(default)]
    can: Loose<AtMost<MOST_TASKS, Loose<String>>>,
    #[serde(default)]
    clip: Loose<(u32, u32)>,
    #[serde(default)]
    voices: Loose<AtMost<MOST_VOICES, Loose<String>>>,
    #[serde(default)]
    limits: Loose<ModelLimits>,
    #[serde(default)]
    details: Loose<ModelDetails>,
}

#[derive(Deserialize)]
struct ResumeJson {
    session: String,
    jobs: Option<AtMost<MOST_CLAIMS, ClaimJson>>,
}

#[derive(Deserialize)]
struct ClaimJson {
    id: JobId,
    att: u32,
    #[serde(default)]
    last: u64,
}

impl Registration {
    /// A worker that serves these models and says nothing else.
    pub fn new(key: &str, name: &str, models: Vec<String>) -> Self {
        Self {
            key: Key(key.to_owned()),
            name: name.to_owned(),
            models,
            kinds: Kind::Text.into(),
            formats: Formats::OPENAI_CHAT,
            modalities: vec!["text".to_owned()],
            max_length: 512,
            max_context_length: 2048,
            bridge_agent: "grid-ws".to_owned(),
            worker_profile: None,
            worker_identity: None,
            ext: None,
            capacity: None,
            resume: None,
        }
    }

    pub fn parse(text: &str) -> Result<Self, FrameError> {
        let json: RegistrationJson = read(KIND, text)?;
        let models = texts(json.models);
        let plain = Self::new("", "", models);
        Ok(Self {
            key: Key(json.apikey.unwrap_or_default()),
            name: json.name.unwrap_or_default(),
            kinds: kinds(json.job_types, json.worker_type),
            formats: formats(json.api_formats),
            modalities: modalities(json.modalities),
            max_length: json.max_length.map_or(plain.max_length, whole),
            max_context_length: json
                .max_context_length
                .map_or(plain.max_context_length, whole),
            bridge_agent: json.bridge_agent.unwrap_or(plain.bridge_agent),
            worker_profile: json.worker_profile.map(|few| few.0),
            worker_identity: json.worker_identity.map(|few| few.0),
            ext: json.ext.map(Wanted::from),
            capacity: json.capacity.map(Capacity::from),
            resume: json.resume.map(Resume::from),
            models: plain.models,
        })
    }

    pub(super) fn write_into(&self, out: &mut String) {
        let mut object = Object::new(out);
        object.text("apikey", &self.key.0);
        object.text("name", &self.name);
        object.texts("models", &self.models);
        let job_types = job_types(self.kinds);
        if job_types != ["text"] {
            object.texts("job_types", &job_types);
        }
        object.texts("api_formats", &self.formats.names().collect::<Vec<_>>());
        object.texts("modalities", &self.modalities);
        object.number("max_length", self.max_length);
        object.number("max_context_length", self.max_context_length);
        object.text("bridge_agent", &self.bridge_agent);
        object.value_if("worker_profile", self.worker_profile.as_ref());
        object.value_if("worker_identity", self.worker_identity.as_ref());
        if let Some(ext) = &self.ext {
            object.object("ext", |inner| ext.write(inner));
        }
        if let Some(capacity) = &self.capacity {
            object.object("capacity", |inner| capacity.write(inner));
        }
        if let Some(resume) = &self.resume {
            object.object("resume", |inner| resume.write(inner));
        }
        object.end();
    }
}

/// Truncates, since some languages write whole numbers as floats.
fn whole(number: f64) -> u32 {
    number as u32
}

/// The older single value counts only where the list is absent or empty.
fn kinds(list: Option<Names>, single: Option<String>) -> Kinds {
    let mut names = texts(list);
    if names.is_empty() {
        names.extend(single);
    }
    let kinds = kinds_of(&names, &[]);
    match kinds == Kinds::default() {
        true => Kind::Text.into(),
        false => kinds,
    }
}

fn formats(list: Option<Names>) -> Formats {
    let names = texts(list);
    let known = names.iter().filter_map(|name| Formats::named(name));
    let formats = known.fold(Formats::default(), Formats::with);
    match formats == Formats::default() {
        true => Formats::OPENAI_CHAT,
        false => formats,
    }
}

fn modalities(list: Option<Names>) -> Vec<String> {
    let mut found = texts(list);
    found.retain(|name| ["text", "image", "video"].contains(&name.as_str()));
    match found.is_empty() {
        true => vec!["text".to_owned()],
        false => found,
    }
}

fn texts(list: Option<Names>) -> Vec<String> {
    list.map_or_else(Vec::new, all_texts)
}

fn all_texts<const MOST: usize>(list: AtMost<MOST, Loose<String>>) -> Vec<String> {
    list.0.into_iter().filter_map(|entry| entry.0).collect()
}

/// Names that are none are left out.
fn voices(mut names: Vec<String>) -> Vec<String> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "_-.".contains(one);
    names.retain(|name| (1..=LONGEST_VOICE).contains(&name.len()) && name.chars().all(is_plain));
    names
}

impl From<CapacityJson> for Capacity {
    fn from(json: CapacityJson) -> Self {
        let models = json.models.unwrap_or_default().0.into_iter();
        let model = |(name, said): (String, Loose<ModelCapacityJson>)| {
            let said = said.0.unwrap_or_default();
            ModelCapacity {
                name,
                max: said.max.0.unwrap_or(1),
                context: said.ctx.0,
                size: said.size.0,
                clip: said.clip.0,
                kinds: kinds_of(
                    &said.kinds.0.map_or_else(Vec::new, all_texts),
                    &said.tasks.0.map_or_else(Vec::new, all_texts),
                ),
                can: said.can.0.map(|list| Ability::named(&all_texts(list))),
                voices: voices(said.voices.0.map_or_else(Vec::new, all_texts)),
                limits: said.limits.0.unwrap_or_default(),
                details: said.details.0.unwrap_or_default().checked(),
            }
        };
        Self {
            total: json.total.unwrap_or(1),
            models: models.map(model).collect(),
        }
    }
}

impl ModelLimits {
    fn write(self, object: &mut Object<'_>) {
        object.number_if("pixels", self.pixels);
        object.number_if("steps", self.steps);
        object.number_if("frames", self.frames);
        object.number_if("seconds", self.seconds);
        object.number_if("characters", self.characters);
    }
}

impl From<ResumeJson> for Resume {
    fn from(json: ResumeJson) -> Self {
        let jobs = json.jobs.unwrap_or_default().0;
        let claim = |claim: ClaimJson| Claim {
            job: claim.id,
            attempt: claim.att,
            last: claim.last,
        };
        Self {
            session: json.session,
            jobs: jobs.into_iter().map(claim).collect(),
        }
    }
}

impl Capacity {
    fn write(&self, object: &mut Object<'_>) {
        object.number("total", self.total);
        object.object("models", |models| {
            for model in &self.models {
                models.object_named(&model.name, |one| {
                    one.number("max", model.max);
                    one.number_if("ctx", model.context);
                    if let Some((width, height)) = model.size {
                        one.numbers("size", &[width, height]);
                    }
                    if let Some((fps, frames)) = model.clip {
                        one.numbers("clip", &[fps, frames]);
                    }
                    let kinds = job_types(model.kinds);
                    if !kinds.is_empty() {
                        one.texts("kinds", &kinds);
                    }
                    let tasks = tasks(model.kinds);
                    if !tasks.is_empty() {
                        one.texts("tasks", &tasks);
                    }
                    if let Some(can) = &model.can {
                        let names: Vec<_> = can.iter().map(|ability| ability.name()).collect();
                        one.texts("can", &names);
                    }
                    if !model.voices.is_empty() {
                        one.texts("voices", &model.voices);
                    }
                    if model.limits != ModelLimits::default() {
                        one.object("limits", |limits| model.limits.write(limits));
                    }
                    if model.details != ModelDetails::default() {
                        one.object("details", |details| write_details(&model.details, details));
                    }
                });
            }
        });
    }
}

fn write_details(details: &ModelDetails, object: &mut Object<'_>) {
    object.number_if("bytes", details.bytes);
    object.number_if("parameters", details.parameters);
    object.text_if("format", details.format.as_deref());
    object.text_if("family", details.family.as_deref());
    object.text_if("quantization", details.quantization.as_deref());
    object.text_if("upstream", details.upstream.as_deref());
    object.text_if("parent", details.parent.as_deref());
    object.text_if("network", details.network.as_deref());
}

impl Resume {
    fn write(&self, object: &mut Object<'_>) {
        object.text("session", &self.session);
        object.list("jobs", &self.jobs, |claim, out| {
            let mut object = Object::new(out);
            object.display_text("id", claim.job);
            object.number("att", claim.attempt);
            object.number("last", claim.last);
            object.end();
        });
    }
}
