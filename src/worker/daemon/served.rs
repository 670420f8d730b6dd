//! The models of a worker, and those offered to a coordinator.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::warn;

use super::engines::{DeviceModel, Fleet, MediaModel};
use super::jobs::{CAPTION, NSFW};
use super::registration::small;
use super::worker::Post;
use crate::link::Permissions;
use crate::link::legacy::{self, PolledKind};
use crate::upstream::UpstreamModel;
use muster_engine::runtime::{ModelInfo, Purpose};
use muster_protocol::job::Kind;

/// The largest image of a polled coordinator's jobs.
const MOST_PIXELS: u64 = 1024 * 1024;
/// The largest image that an interrogation form may have.
const MOST_LOOKED_AT: u64 = 4096 * 4096;

/// The models and capabilities of a worker.
#[derive(Debug, Clone, Default)]
pub struct Served {
    /// Models of text threads.
    pub models: Vec<Arc<ModelInfo>>,
    /// Models of makers, one job at once each.
    pub media: Vec<MediaModel>,
    /// Jobs of texts at once on each device.
    pub slots: usize,
    /// The devices with a model, by its name, where they are several.
    pub copies: BTreeMap<String, usize>,
    /// Models that other programs serve.
    pub upstreams: Vec<Arc<UpstreamModel>>,
    /// AI Horde names by model name; a model without an entry keeps its name.
    pub other_names: BTreeMap<String, Vec<String>>,
}

/// Restrictions for a polled coordinator.
#[derive(Debug, Clone)]
pub struct PolledTerms {
    /// Jobs at once.
    pub jobs: usize,
    pub offer: OfferTerms,
}

/// The models and permissions for a coordinator.
#[derive(Debug, Clone, Default)]
pub struct OfferTerms {
    /// The models; none: all.
    pub models: Option<Vec<String>>,
    pub permissions: Permissions,
}

impl Served {
    /// Offers all of these models.
    pub fn new(
        all: Vec<DeviceModel>,
        slots: usize,
        copies: BTreeMap<String, usize>,
        other_names: BTreeMap<String, Vec<String>>,
    ) -> Self {
        let (mut models, mut media) = (Vec::new(), Vec::new());
        for model in all {
            match model {
                DeviceModel::Text(info) => models.push(info),
                DeviceModel::Media(model) => media.push(model),
            }
        }
        Self {
            models,
            media,
            slots,
            copies,
            other_names,
            upstreams: Vec::new(),
        }
    }

    /// The models for a coordinator; an adapter comes with its model.
    pub fn offered_to(&self, terms: &OfferTerms) -> Self {
        let mut offered = self.clone();
        if !terms.permissions.loras {
            offered.models.retain(|info| info.parent.is_none());
        }
        let Some(models) = &terms.models else {
            return offered;
        };
        let has = |name: &str| models.iter().any(|model| model.eq_ignore_ascii_case(name));
        offered
            .models
            .retain(|info| has(&info.name) || info.parent.as_deref().is_some_and(has));
        offered.media.retain(|model| has(&model.name));
        offered.upstreams.retain(|model| has(&model.name));
        offered
    }

    /// Warns of models that the owner offers to a coordinator and that are not served, by now.
    pub fn tell_unknown(&self, post: &Post) {
        let texts = self.models.iter().map(|info| info.name.as_str());
        let media = self.media.iter().map(|model| model.name.as_str());
        let upstreams = self.upstreams.iter().map(|model| model.name.as_str());
        let all: Vec<&str> = texts.chain(media).chain(upstreams).collect();
        let is_known = |name: &&String| all.iter().any(|one| one.eq_ignore_ascii_case(name));
        let wanted = post.terms.models.iter().flatten();
        let unknown: Vec<&str> = wanted
            .filter(|name| !is_known(name))
            .map(String::as_str)
            .collect();
        if !unknown.is_empty() {
            let (label, unknown) = (&post.label, unknown.join(", "));
            warn!("{label} is to be offered {unknown}, which this worker does not serve yet");
        }
    }

    /// Jobs of a text model at once.
    pub fn slots_of(&self, model: &str) -> usize {
        let mut models = self.models.iter();
        let runs_one = models.any(|info| info.name == model && info.runs_one_job);
        let slots = if runs_one { 1 } else { self.slots };
        slots * self.copies_of(model)
    }

    /// Jobs of a media model at once.
    pub fn jobs_of(&self, model: &MediaModel) -> u32 {
        model
            .jobs
            .saturating_mul(small(self.copies_of(&model.name)))
    }

    fn copies_of(&self, model: &str) -> usize {
        self.copies.get(model).copied().unwrap_or(1)
    }

    /// Concurrent jobs of all models: those of texts share the slots of their devices.
    pub fn capacity(&self) -> u32 {
        let texts = self.models.iter().map(|info| self.slots_of(&info.name));
        let texts = texts.max().unwrap_or(self.slots);
        let media = self.media.iter().map(|model| self.jobs_of(model));
        let upstreams = self.upstreams.iter().map(|model| model.jobs);
        let all = small(texts).saturating_add(media.sum());
        all.saturating_add(upstreams.sum())
    }

    /// Models of other programs that write text.
    pub fn upstreams_writing(&self) -> impl Iterator<Item = &Arc<UpstreamModel>> {
        let upstreams = self.upstreams.iter();
        upstreams.filter(|model| model.kind == Kind::Text)
    }

    /// Models that write text.
    pub fn writing(&self) -> impl Iterator<Item = &Arc<ModelInfo>> {
        let models = self.models.iter();
        models.filter(|info| info.purpose == Purpose::Generate)
    }

    /// The model that writes captions: the first that reads images in chats.
    pub fn captioning(&self) -> Option<String> {
        let mut reading = self
            .writing()
            .filter(|info| info.reads_images && info.can_chat);
        reading.next().map(|info| info.name.clone())
    }

    /// The forms that the worker answers, and how many of each at once.
    pub fn forms(&self, can_judge: bool) -> Vec<(&'static str, usize)> {
        let captions = self
            .captioning()
            .map(|model| (CAPTION, self.slots_of(&model)));
        // The checker computes on the processor.
        let judgements = can_judge.then_some((NSFW, 1));
        captions.into_iter().chain(judgements).collect()
    }

    /// The context that every one of the models that write has; of all, where none does.
    pub fn context(&self) -> u32 {
        let upstreams = self.upstreams_writing().map(|model| model.context);
        let contexts = self.writing().map(|info| small(info.context));
        let all = self.models.iter().map(|info| small(info.context));
        let others = self.upstreams.iter().map(|model| model.context);
        let contexts = contexts.chain(upstreams).min();
        contexts.or(all.chain(others).min()).unwrap_or(0)
    }

    pub fn draws(&self) -> bool {
        self.media.iter().any(|model| model.kind == Kind::Image)
    }

    /// An entry for each kind of pop that has models. Images are included only if a safety checker exists, because any
    /// job may request the check.
    pub fn to_those_polled(&self, terms: &PolledTerms, fleet: &Fleet) -> Vec<legacy::Served> {
        let offered = self.offered_to(&terms.offer);
        offered.to_all_polled(terms.jobs, terms.offer.permissions, fleet)
    }

    /// The same with all models.
    fn to_all_polled(
        &self,
        jobs: usize,
        permissions: Permissions,
        fleet: &Fleet,
    ) -> Vec<legacy::Served> {
        let folders = fleet.folders();
        let names = |here: &String| {
            let others = self.other_names.get(here).cloned();
            let others = others.filter(|others| !others.is_empty());
            let names = others.unwrap_or_else(|| vec![here.clone()]);
            let here = here.clone();
            names.into_iter().map(move |name| (name, here.clone()))
        };
        let texts = legacy::Served {
            kind: PolledKind::Text,
            models: {
                let upstreams = self.upstreams_writing().map(|model| &model.name);
                let all = self.writing().map(|info| &info.name).chain(upstreams);
                all.flat_map(names).collect()
            },
            jobs: {
                let all_run_one = self.upstreams_writing().next().is_none()
                    && self.writing().all(|info| info.runs_one_job);
                let slots = if all_run_one { 1 } else { self.slots };
                jobs.min(slots).max(1)
            },
            context: self.context(),
            ..legacy::Served::default()
        };
        let drawing = self.media.iter().filter(|_| fleet.can_judge());
        let drawing = drawing.filter(|model| model.kind == Kind::Image);
        let images = legacy::Served {
            kind: PolledKind::Image,
            models: drawing.flat_map(|model| names(&model.name)).collect(),
            jobs: 1,
            pixels: MOST_PIXELS,
            has_loras: permissions.loras && folders.loras.is_some(),
            has_inversions: folders.embeddings.is_some(),
            permissions,
            ..legacy::Served::default()
        };
        let forms = self.forms(fleet.can_judge()).into_iter();
        let forms = legacy::Served {
            kind: PolledKind::Form,
            models: forms
                .map(|(form, _)| (form.to_owned(), form.to_owned()))
                .collect(),
            jobs: 1,
            pixels: MOST_LOOKED_AT,
            ..legacy::Served::default()
        };
        let kinds = [texts, images, forms].into_iter();
        let mut kinds: Vec<_> = kinds.filter(|served| !served.models.is_empty()).collect();
        if kinds.is_empty() {
            kinds.push(legacy::Served::default());
        }
        kinds
    }
}
