//! The registration of a worker: its abilities, its models and their limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::engines::{Fleet, MediaModel};
use super::served::Served;
use super::worker::Post;
use crate::upstream::UpstreamModel;
use muster_engine::networks::single_sequence::LIBRARY;
use muster_engine::runtime::{CheckpointSummary, ModelInfo, Purpose};
use muster_protocol::job::{Formats, Kind, Kinds, ModelDetails};
use muster_protocol::link::{
    Ability, Capacity, LARGEST_FRAME, ModelCapacity, ModelLimits, Registration, VERSION, Wanted,
};

/// The abilities of a worker, and of its models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    can: Vec<Ability>,
    /// Text models whose templates support tool calls.
    with_tools: BTreeSet<String>,
    /// Whether a safety checker exists.
    can_judge: bool,
}

/// Coordinators of version 0.1 have tools as a capability of the worker: set if all its models support calls.
pub fn claims(fleet: &Fleet, served: &Served) -> Claims {
    let calls = |info: &&Arc<ModelInfo>| fleet.calls_tools(&info.name);
    let with_tools = served.writing().filter(calls);
    let upstreams = served.upstreams_writing().filter(|model| model.calls_tools);
    let upstreams = upstreams.map(|model| model.name.clone());
    let with_tools = with_tools.map(|info| info.name.clone());
    let with_tools: BTreeSet<String> = with_tools.chain(upstreams).collect();
    let writing = served.writing().count() + served.upstreams_writing().count();
    let has_all = with_tools.len() == writing;
    let tools = has_all.then_some(Ability::Tools);
    let others = [
        Ability::Logprobs,
        Ability::PromptLogprobs,
        Ability::Continue,
        Ability::StopRules,
        Ability::Grammars,
        Ability::Encode,
    ];
    let makes = |kind| served.media.iter().any(|model| model.kind == kind);
    let takes_settings = |model: &Arc<UpstreamModel>| model.takes_image_settings();
    let draws = makes(Kind::Image) || served.upstreams.iter().any(takes_settings);
    let mp3 = (makes(Kind::Music) || makes(Kind::Speech)).then_some(Ability::Mp3);
    let transcripts = [
        Ability::BeamSearch,
        Ability::TranscriptLogprobs,
        Ability::NamedLanguages,
    ];
    let transcripts = transcripts
        .into_iter()
        .filter(|_| makes(Kind::Transcription));
    let word_times = makes(Kind::Speech).then_some(Ability::WordTimes);
    let images = [
        Ability::SourceImages,
        Ability::Inpainting,
        Ability::ClipSkip,
        Ability::Tiling,
        Ability::HiresFix,
    ];
    let folders = fleet.folders();
    let loras = folders.loras.is_some().then_some(Ability::Loras);
    let inversions = folders.embeddings.as_ref();
    let inversions = inversions.map(|_| Ability::TextualInversions);
    let images = images.into_iter().chain(loras).chain(inversions);
    let images = images.filter(|_| draws);
    Claims {
        can: tools
            .into_iter()
            .chain(others)
            .chain(images)
            .chain(mp3)
            .chain(transcripts)
            .chain(word_times)
            .collect(),
        with_tools,
        can_judge: fleet.can_judge(),
    }
}

pub fn registration(post: &Post, served: &Served, claims: Claims) -> Registration {
    let texts = served.models.iter().map(|info| info.name.clone());
    // Coordinators of version 0.1 have images as a modality of the worker: set if all its models support vision.
    let writing = served.writing().map(|info| info.reads_images);
    let upstreams = served.upstreams_writing().map(|model| model.reads_images);
    let mut writing = writing.chain(upstreams).peekable();
    let all_see = writing.peek().is_some() && writing.all(|sees| sees);
    let media = served.media.iter().map(|model| model.name.clone());
    let upstreams = served.upstreams.iter().map(|model| model.name.clone());
    let names: Vec<String> = texts.chain(media).chain(upstreams).collect();
    let context = served.context();
    let capacity = |info: &Arc<ModelInfo>| ModelCapacity {
        name: info.name.clone(),
        max: small(served.slots_of(&info.name)),
        context: Some(small(info.context)),
        size: None,
        kinds: kind(&info.purpose).into(),
        can: Some({
            let tools = claims.with_tools.contains(&info.name);
            let tools = tools.then_some(Ability::Tools);
            let images = info.reads_images.then_some(Ability::ImageInput);
            tools.into_iter().chain(images).collect()
        }),
        voices: Vec::new(),
        clip: None,
        limits: ModelLimits::default(),
        details: ModelDetails {
            parent: info.parent.clone(),
            network: info.runs_one_job.then(|| LIBRARY.to_owned()),
            ..details(&info.files)
        },
    };
    let media = |model: &MediaModel| ModelCapacity {
        name: model.name.clone(),
        max: served.jobs_of(model),
        context: model.context(),
        size: model.size,
        kinds: model.kinds(),
        can: None,
        voices: model.voices.clone(),
        clip: model.clip,
        limits: model.limits,
        details: ModelDetails::default(),
    };
    let texts = served.models.iter().map(capacity);
    // Only in the capacity: a coordinator without forms would take a further name for a text model.
    let forms = served.forms(claims.can_judge).into_iter();
    let forms = forms.map(|(form, max)| ModelCapacity {
        name: form.to_owned(),
        max: small(max),
        kinds: Kind::Form.into(),
        ..ModelCapacity::default()
    });
    let media = served.media.iter().map(media);
    let upstreams = served.upstreams.iter().map(|model| upstream(model));
    let models: Vec<_> = texts.chain(media).chain(upstreams).chain(forms).collect();
    let all = models.iter().map(|model| model.kinds);
    let kinds = all.reduce(Kinds::and).unwrap_or(Kind::Text.into());
    let images = all_see.then(|| "image".to_owned());
    let permissions = post.terms.permissions;
    Registration {
        modalities: ["text".to_owned()].into_iter().chain(images).collect(),
        formats: Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
        max_length: context,
        max_context_length: context,
        bridge_agent: concat!("muster/", env!("CARGO_PKG_VERSION")).to_owned(),
        ext: Some(Wanted {
            version: VERSION,
            want: permissions.extensions(),
            can: {
                let mut can = claims.can.clone();
                can.retain(|one| permissions.loras || *one != Ability::Loras);
                can
            },
            excludes: permissions.exclusions(),
            max_frame: Some(LARGEST_FRAME as u64),
        }),
        kinds,
        capacity: Some(Capacity {
            total: served.capacity(),
            models,
        }),
        ..Registration::new(&post.key, &post.name, names)
    }
}

fn upstream(model: &UpstreamModel) -> ModelCapacity {
    let tools = model.calls_tools.then_some(Ability::Tools);
    let images = model.reads_images.then_some(Ability::ImageInput);
    ModelCapacity {
        name: model.name.clone(),
        max: model.jobs,
        context: (model.kind != Kind::Image).then_some(model.context),
        kinds: model.kind.into(),
        can: Some(tools.into_iter().chain(images).collect()),
        details: ModelDetails {
            upstream: Some(model.software().to_owned()),
            ..ModelDetails::default()
        },
        ..ModelCapacity::default()
    }
}

fn details(files: &CheckpointSummary) -> ModelDetails {
    ModelDetails {
        bytes: Some(files.bytes),
        parameters: files.parameters,
        format: Some(files.format.to_owned()),
        family: files.family.clone(),
        quantization: files.quantization.clone(),
        ..ModelDetails::default()
    }
}

fn kind(purpose: &Purpose) -> Kind {
    match purpose {
        Purpose::Generate => Kind::Text,
        Purpose::Embed(_) => Kind::Embedding,
        Purpose::Rerank(_) => Kind::Ranking,
    }
}

pub fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        Ability, CheckpointSummary, Claims, LIBRARY, MediaModel, ModelInfo, Post, Purpose, Served,
        registration,
    };
    use crate::daemon::served::OfferTerms;
    use crate::daemon::worker::Way;
    use crate::link::Dial;
    use muster_protocol::job::{Kind, Kinds};

    /// Models with vision are registered individually, and the worker if all its models have it.
    #[test]
    fn a_model_that_sees_is_registered_so() {
        let dial = Dial::Local(([127, 0, 0, 1], 9).into());
        let post = Post {
            media_hosts: Vec::new(),
            terms: OfferTerms::default(),
            label: "test".to_owned(),
            way: Way::Socket { dial, sockets: 1 },
            key: "key".to_owned(),
            name: "rig".to_owned(),
        };
        let model = |name: &str, reads_images| {
            Arc::new(ModelInfo {
                name: name.to_owned(),
                parent: None,
                purpose: Purpose::Generate,
                vocabulary: 100,
                context: 16,
                weight_bytes: 0,
                cache_bytes: 0,
                cache_tokens: 0,
                can_chat: true,
                reads_images,
                runs_one_job: name == "single",
                files: CheckpointSummary::default(),
            })
        };
        let told = |models: Vec<Arc<ModelInfo>>| {
            let served = Served {
                models,
                slots: 4,
                ..Served::default()
            };
            let registration = registration(&post, &served, Claims::default());
            let models = registration.capacity.unwrap().models;
            // A form has no capabilities.
            let can = models.into_iter().filter_map(|model| model.can);
            (registration.modalities, can.collect::<Vec<_>>())
        };
        let sees = vec![Ability::ImageInput];
        let (modalities, can) = told(vec![model("sees", true), model("reads", false)]);
        assert_eq!((modalities.len(), can), (1, vec![sees.clone(), Vec::new()]));
        let (modalities, can) = told(vec![model("sees", true)]);
        assert_eq!(modalities, ["text", "image"]);
        assert_eq!(can, [sees]);
        let served = Served {
            models: vec![model("single", false), model("reads", false)],
            slots: 4,
            ..Served::default()
        };
        let capacity = registration(&post, &served, Claims::default()).capacity;
        let models = capacity.unwrap().models.into_iter();
        let facts: Vec<_> = models.map(|it| (it.max, it.details.network)).collect();
        assert_eq!(facts, [(1, Some(LIBRARY.to_owned())), (4, None)]);
    }

    #[test]
    fn a_model_that_makes_media_is_registered_with_its_kind() {
        let dial = Dial::Local(([127, 0, 0, 1], 9).into());
        let post = Post {
            media_hosts: Vec::new(),
            terms: OfferTerms::default(),
            label: "test".to_owned(),
            way: Way::Socket { dial, sockets: 1 },
            key: "key".to_owned(),
            name: "rig".to_owned(),
        };
        let media = |name: &str, kind| MediaModel::new(name, kind);
        let hears = MediaModel {
            jobs: 3,
            ..media("hears", Kind::Transcription)
        };
        let served = Served {
            media: vec![
                media("draws", Kind::Image),
                media("plays", Kind::Music),
                hears,
            ],
            slots: 4,
            ..Served::default()
        };
        let registration = registration(&post, &served, Claims::default());
        assert_eq!(registration.models, ["draws", "plays", "hears"]);
        let all = Kinds::from(Kind::Image)
            .with(Kind::Music)
            .with(Kind::Transcription);
        assert_eq!(registration.kinds, all);
        let capacity = registration.capacity.unwrap();
        let models = capacity.models.iter();
        let told: Vec<_> = models.map(|model| (model.kinds, model.max)).collect();
        let [image, music, transcripts] =
            [Kind::Image, Kind::Music, Kind::Transcription].map(Kinds::from);
        assert_eq!(told, [(image, 1), (music, 1), (transcripts, 3)]);
        assert_eq!(capacity.total, 4 + 5);
    }
}
