//! The agreement of a handshake. A peer that asks for no extension gets the public protocol.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::dispatch::{self, Offering};
use crate::names::Names;
use muster_protocol::job::{
    Capabilities, Clip, Formats, Kind, Kinds, MOST_FRAMES, MediaNeeds, Reach,
};
use muster_protocol::link::{
    self, Ability, Exclusion, Extension, Extensions, LARGEST_FRAME, PUBLIC_FRAME, Registration,
    VERSION,
};

/// Limit of models per worker; further ones are ignored.
const MOST_MODELS: usize = 512;
/// Supported earlier versions.
const OLDER_VERSIONS: u32 = 1;

/// The negotiated settings of a connected peer.
#[derive(Debug, Clone)]
pub struct Peer {
    /// `None` for peers of the public network.
    pub used: Option<Extensions>,
    pub formats: Formats,
    pub capabilities: Capabilities,
    pub max_frame: usize,
    pub slots: u32,
    pub context: u32,
    /// Ids of its models, with the worker's own names.
    pub models: Vec<(Arc<str>, Arc<str>)>,
}

/// The peer's protocol version is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownVersion(pub u32);

impl Peer {
    pub fn of(registration: &Registration, names: &Names) -> Result<Self, UnknownVersion> {
        let used = registration.ext.as_ref().map(agree).transpose()?;
        let wanted = registration
            .ext
            .as_ref()
            .and_then(|wanted| wanted.max_frame);
        let max_frame = usize::try_from(wanted.unwrap_or(0)).unwrap_or(LARGEST_FRAME);
        let max_frame = max_frame.clamp(PUBLIC_FRAME, LARGEST_FRAME);
        Ok(Self {
            used,
            formats: formats(registration, used),
            capabilities: capabilities(registration, max_frame),
            max_frame,
            slots: slots(registration, used),
            context: registration.max_context_length,
            models: models(registration, names),
        })
    }

    pub fn uses(&self, extension: Extension) -> bool {
        self.used.is_some_and(|used| used.has(extension))
    }

    pub fn is_public(&self) -> bool {
        !self.uses(Extension::Multi)
    }

    pub fn for_dispatch(&self) -> dispatch::Extensions {
        dispatch::Extensions {
            multi: self.uses(Extension::Multi),
            cancel: self.uses(Extension::Cancel2),
            resume: self.uses(Extension::Resume),
            lease: self.uses(Extension::Lease),
        }
    }

    /// The worker's own name of the model with this id.
    pub fn own_name<'a>(&'a self, id: &'a str) -> &'a str {
        let known = self.models.iter().find(|(known, _)| &**known == id);
        known.map_or(id, |(_, own)| own)
    }

    /// The id of the worker's own model name.
    pub fn id_of(&self, own: &str) -> Arc<str> {
        let known = self.models.iter().find(|(_, known)| &**known == own);
        known.map_or_else(|| own.into(), |(id, _)| id.clone())
    }

    /// The models with their concurrent jobs.
    pub fn served(&self, registration: &Registration) -> Vec<dispatch::ServedModel> {
        let capacity = registration.capacity.as_ref();
        let listed = |name: &str| {
            let mut models = capacity.iter().flat_map(|capacity| &capacity.models);
            models.find(|model| model.name == name)
        };
        let models = self.models.iter();
        models
            .map(|(id, own)| dispatch::ServedModel {
                name: id.clone(),
                slots: listed(own).map_or(self.slots, |model| model.max).max(1),
                offering: self.with_parent(with_tokens(
                    offering(listed(own), registration.kinds, self.context),
                    registration,
                )),
            })
            .collect()
    }

    /// Replaces the parent of an adapter by its id; `None` if the worker does not serve the parent.
    fn with_parent(&self, mut offering: Offering) -> Offering {
        if let Some(said) = &offering.details.parent {
            let mut models = self.models.iter();
            let parent = models.find(|(_, own)| **own == **said);
            let parent = parent.map(|(id, _)| id.to_string());
            Arc::make_mut(&mut offering.details).parent = parent;
        }
        offering
    }
}

/// Each model once, under its first name. Forms are listed with their concurrent jobs.
fn models(registration: &Registration, names: &Names) -> Vec<(Arc<str>, Arc<str>)> {
    let mut seen = BTreeSet::new();
    let capacity = registration.capacity.iter();
    let listed = capacity.flat_map(|capacity| &capacity.models);
    let forms = listed.filter(|model| model.kinds == Kind::Form.into());
    let forms = forms.map(|form| &form.name);
    let named = registration.models.iter().chain(forms);
    let named = named.map(|own| (names.id(own), Arc::from(own.as_str())));
    let fresh = named.filter(|(id, _)| seen.insert(id.clone()));
    fresh.take(MOST_MODELS).collect()
}

fn agree(wanted: &link::Wanted) -> Result<Extensions, UnknownVersion> {
    let oldest = VERSION.saturating_sub(OLDER_VERSIONS).max(1);
    if wanted.version < oldest {
        return Err(UnknownVersion(wanted.version));
    }
    let both = wanted.want.and(Extensions::all());
    // Frames are numbered per attempt, and attempts are named only with `multi`.
    match both.has(Extension::Resume) && !both.has(Extension::Multi) {
        true => Ok(both.without(Extension::Resume)),
        false => Ok(both),
    }
}

/// The neutral format needs extensions.
fn formats(registration: &Registration, used: Option<Extensions>) -> Formats {
    if used.is_some() {
        return registration.formats;
    }
    let public = [
        Formats::OPENAI_CHAT,
        Formats::OPENAI_RESPONSES,
        Formats::ANTHROPIC,
    ];
    let known = public
        .into_iter()
        .filter(|format| registration.formats.meets(*format))
        .fold(Formats::default(), Formats::with);
    match known == Formats::default() {
        true => Formats::OPENAI_CHAT,
        false => known,
    }
}

/// Capabilities of every image worker on a socket: uploads results, and loads requested LoRAs and models.
const DRAWS: Capabilities = Capabilities::UPLOADS
    .with(Capabilities::NSFW)
    .with(Capabilities::SOURCE_IMAGES)
    .with(Capabilities::LORAS)
    .with(Capabilities::LORA_VERSIONS)
    .with(Capabilities::PLAIN_MODELS)
    .with(Capabilities::ITS_MODELS)
    .with(Capabilities::KARRAS)
    .with(Capabilities::HIDDEN_ADDRESSES);

/// Our own workers report the rest as [`Ability`] values.
const DRAWS_NEUTRAL: Capabilities = Capabilities::UPLOADS
    .with(Capabilities::NSFW)
    .with(Capabilities::PLAIN_MODELS)
    .with(Capabilities::ITS_MODELS)
    .with(Capabilities::KARRAS)
    .with(Capabilities::KARRAS_DDIM)
    .with(Capabilities::CONSISTENCY_SAMPLER)
    .with(Capabilities::NEWER_DRAWING)
    .with(Capabilities::HIDDEN_ADDRESSES);

/// Public peers pass the request to a whole inference server, which supports tools, schemas and stop rules. Their
/// frames
/// carry no log probabilities.
fn capabilities(registration: &Registration, max_frame: usize) -> Capabilities {
    let mut can = Capabilities::default();
    match &registration.ext {
        None => {
            can = can
                .with(Capabilities::TOOLS)
                .with(Capabilities::GRAMMAR)
                .with(Capabilities::STOP_RULES);
        }
        Some(wanted) => {
            for ability in &wanted.can {
                can = can.with(match ability {
                    Ability::Tools => Capabilities::TOOLS,
                    Ability::Logprobs => Capabilities::LOGPROBS,
                    Ability::PromptLogprobs => Capabilities::PROMPT_LOGPROBS,
                    Ability::Continue => Capabilities::CONTINUE,
                    Ability::StopRules => Capabilities::STOP_RULES,
                    Ability::Grammars => Capabilities::GRAMMAR,
                    // See [`Kind::Tokens`].
                    Ability::Encode => Capabilities::default(),
                    Ability::SourceImages => Capabilities::SOURCE_IMAGES,
                    Ability::Inpainting => {
                        Capabilities::PAINTING.with(Capabilities::PAINTING_MODELS)
                    }
                    Ability::ClipSkip => Capabilities::CLIP_SKIP,
                    Ability::Loras => Capabilities::LORAS,
                    Ability::TextualInversions => Capabilities::INVERSIONS,
                    Ability::Tiling => Capabilities::TILING,
                    Ability::HiresFix => Capabilities::TWO_PASSES,
                    Ability::Mp3 => Capabilities::MP3,
                    Ability::BeamSearch => Capabilities::BEAM_SEARCH,
                    Ability::TranscriptLogprobs => Capabilities::TRANSCRIPT_LOGPROBS,
                    Ability::NamedLanguages => Capabilities::NAMED_LANGUAGES,
                    Ability::WordTimes => Capabilities::WORD_TIMES,
                    Ability::ImageInput => Capabilities::IMAGE_INPUT,
                });
            }
        }
    }
    let draws = registration.kinds.contains(Kind::Image);
    let is_neutral = registration.ext.is_some() && registration.formats.meets(Formats::NEUTRAL);
    let reads = |kind: &str| registration.modalities.iter().any(|name| name == kind);
    let given = [
        (reads("image"), Capabilities::IMAGE_INPUT),
        (reads("video"), Capabilities::VIDEO_INPUT),
        (max_frame == LARGEST_FRAME, Capabilities::LARGE_FRAMES),
        (draws && !is_neutral, DRAWS),
        (draws && is_neutral, DRAWS_NEUTRAL),
    ];
    let given = given.into_iter().filter(|(has, _)| *has);
    let given = given.fold(can, |can, (_, capability)| can.with(capability));
    let excluded = registration.ext.iter().flat_map(|wanted| &wanted.excludes);
    let excluded = excluded.map(|exclusion| match exclusion {
        Exclusion::Nsfw => Capabilities::NSFW,
        Exclusion::HiddenAddresses => Capabilities::HIDDEN_ADDRESSES,
    });
    excluded.fold(given, |given, excluded| given.missing_from(excluded))
}

/// Sides that a client may request: requests without a size are charged by it.
fn is_drawable(side: u32) -> bool {
    (64..=1536).contains(&side)
}

/// Adds tokens to the kinds of models that read texts, if the worker reports the ability.
fn with_tokens(offering: Offering, registration: &Registration) -> Offering {
    let mut wanted = registration.ext.iter();
    let encodes = wanted.any(|wanted| wanted.can.contains(&Ability::Encode));
    let mut reading = [Kind::Text, Kind::Embedding, Kind::Ranking].into_iter();
    let reads = reading.any(|kind| offering.kinds.contains(kind));
    match encodes && reads {
        true => Offering {
            kinds: offering.kinds.with(Kind::Tokens),
            ..offering
        },
        false => offering,
    }
}

/// A public worker states the kinds of all its models together.
fn offering(model: Option<&link::ModelCapacity>, of_worker: Kinds, context: u32) -> Offering {
    let Some(model) = model else {
        return Offering::of(of_worker, Reach::ENDLESS.with_context(context));
    };
    let reach = reach(&model.limits).with_context(model.context.unwrap_or(context));
    let kinds = Some(model.kinds).filter(|kinds| *kinds != Kinds::default());
    let said = Offering::of(kinds.unwrap_or(of_worker), reach);
    let more = model.can.iter().flatten().map(|ability| match ability {
        Ability::Tools => Capabilities::TOOLS,
        Ability::ImageInput => Capabilities::IMAGE_INPUT,
        _ => Capabilities::default(),
    });
    let size = model
        .size
        .filter(|(width, height)| is_drawable(*width) && is_drawable(*height));
    Offering {
        can: more.fold(Capabilities::default(), Capabilities::with),
        says_more: model.can.is_some(),
        voices: model.voices.iter().map(|name| Arc::from(&**name)).collect(),
        size,
        clip: model.clip.map(|(fps, frames)| Clip {
            fps: fps.clamp(1, 60),
            frames: frames.clamp(1, MOST_FRAMES),
        }),
        details: Arc::new(model.details.clone()),
        ..said
    }
}

/// A missing limit is unlimited.
fn reach(limits: &link::ModelLimits) -> Reach {
    let most = |said: Option<u32>| said.unwrap_or(u32::MAX);
    Reach {
        media: MediaNeeds {
            pixels: most(limits.pixels),
            steps: most(limits.steps),
            frames: most(limits.frames),
            seconds: most(limits.seconds),
            characters: most(limits.characters),
        },
        ..Reach::ENDLESS
    }
}

fn slots(registration: &Registration, used: Option<Extensions>) -> u32 {
    let several = used.is_some_and(|used| used.has(Extension::Multi));
    match &registration.capacity {
        Some(capacity) if several => capacity.total.max(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::Peer;
    use crate::names::Names;
    use muster_protocol::job::{Capabilities, Formats, Kind};
    use muster_protocol::link::{
        Ability, Capacity, Extension, FromWorker, ModelCapacity, ModelLimits, Registration,
    };

    fn peer(text: &str) -> Peer {
        let FromWorker::Register(registration) = FromWorker::parse(text).unwrap() else {
            panic!("expected a registration");
        };
        let names = Names::of([("tiny", ["Org/Tiny"])]);
        Peer::of(&registration, &names).unwrap()
    }

    #[test]
    fn a_peer_that_asks_for_nothing_is_public() {
        let peer = peer(r#"{"models":["m"],"api_formats":["neutral"],"capacity":{"total":9}}"#);
        assert!(peer.is_public() && peer.used.is_none());
        assert_eq!((peer.slots, peer.formats), (1, Formats::OPENAI_CHAT));
        assert!(peer.capabilities.contains(Capabilities::GRAMMAR));
        assert!(!peer.capabilities.contains(Capabilities::LOGPROBS));
        assert_eq!(peer.max_frame, super::PUBLIC_FRAME);
    }

    #[test]
    fn a_model_is_served_once_by_its_id_and_spoken_of_as_its_worker_calls_it() {
        let peer = peer(r#"{"models":["Org/Tiny","tiny","own"]}"#);
        let served = peer.served(&Registration::new("", "", Vec::new()));
        let ids: Vec<_> = served.iter().map(|model| &*model.name).collect();
        assert_eq!(ids, ["tiny", "own"]);
        assert_eq!(peer.own_name("tiny"), "Org/Tiny");
        assert_eq!(&*peer.id_of("Org/Tiny"), "tiny");
        assert_eq!((peer.own_name("own"), &*peer.id_of("own")), ("own", "own"));
    }

    #[test]
    fn a_model_says_by_itself_that_it_reads_images() {
        let capacity = |name: &str, can| ModelCapacity {
            name: name.to_owned(),
            max: 1,
            kinds: Kind::Text.into(),
            can: Some(can),
            ..ModelCapacity::default()
        };
        let registration = Registration {
            capacity: Some(Capacity {
                total: 1,
                models: vec![
                    capacity("sees", vec![Ability::ImageInput]),
                    capacity("reads", Vec::new()),
                ],
            }),
            ..Registration::new("", "", vec!["sees".to_owned(), "reads".to_owned()])
        };
        let said = FromWorker::Register(Box::new(registration));
        let mut text = String::new();
        said.write_into(&mut text);
        let FromWorker::Register(registration) = FromWorker::parse(&text).unwrap() else {
            panic!("expected a registration");
        };
        let peer = Peer::of(&registration, &Names::of([("other", ["Other"])])).unwrap();
        let served = peer.served(&registration);
        let sees = |at: usize| {
            let can = served[at].offering.can;
            can.contains(Capabilities::IMAGE_INPUT)
        };
        assert!(sees(0) && !sees(1));
        assert!(!peer.capabilities.contains(Capabilities::IMAGE_INPUT));
    }

    #[test]
    fn jobs_that_the_owner_excludes_are_not_among_the_capabilities() {
        let draws = |excludes: &str| {
            peer(&format!(
                r#"{{"models":["m"],"job_types":["image"],"api_formats":["neutral"],
                "ext":{{"v":1,"want":["multi"],"excludes":{excludes}}}}}"#
            ))
        };
        let both = Capabilities::NSFW.with(Capabilities::HIDDEN_ADDRESSES);
        let check = |excludes: &str, missing: Capabilities| {
            let can = draws(excludes).capabilities;
            assert_eq!(both.missing_from(can), missing, "{excludes}");
            assert!(can.contains(Capabilities::UPLOADS), "{excludes}");
        };
        check("[]", Capabilities::default());
        check(r#"["nsfw","of later"]"#, Capabilities::NSFW);
        check(r#"["nsfw","hidden_addresses"]"#, both);
    }

    #[test]
    fn a_model_is_offered_what_it_says_it_takes() {
        let limited = ModelCapacity {
            name: "draws".to_owned(),
            max: 1,
            kinds: Kind::Image.into(),
            limits: ModelLimits {
                pixels: Some(65_536),
                seconds: Some(9),
                ..ModelLimits::default()
            },
            ..ModelCapacity::default()
        };
        let registration = Registration {
            max_context_length: 512,
            capacity: Some(Capacity {
                total: 1,
                models: vec![limited],
            }),
            ..Registration::new("", "", vec!["draws".to_owned(), "plain".to_owned()])
        };
        let said = FromWorker::Register(Box::new(registration));
        let mut text = String::new();
        said.write_into(&mut text);
        let FromWorker::Register(registration) = FromWorker::parse(&text).unwrap() else {
            panic!("expected a registration");
        };
        let peer = Peer::of(&registration, &Names::of([("other", ["Other"])])).unwrap();
        let served = peer.served(&registration);
        let media = |model: usize| served[model].offering.reach.media;
        assert_eq!((media(0).pixels, media(0).steps), (65_536, u32::MAX));
        assert_eq!(media(1).pixels, u32::MAX, "nothing is said of it");
        assert_eq!(served[0].offering.reach.media.seconds, 9);
        assert_eq!(served[1].offering.reach.text.context, 512);
    }

    #[test]
    fn what_is_wanted_and_known_is_used() {
        let peer = peer(
            r#"{"models":["m","n"],"api_formats":["neutral"],"modalities":["image"],
            "capacity":{"total":9,"models":{"m":{"max":4}}},
            "ext":{"v":7,"want":["multi","resume","magic"],"can":["logprobs"],"max_frame":33554432}}"#,
        );
        assert!(peer.uses(Extension::Multi) && peer.uses(Extension::Resume));
        assert!(!peer.uses(Extension::Drain));
        let can = Capabilities::LOGPROBS
            .with(Capabilities::LARGE_FRAMES)
            .with(Capabilities::IMAGE_INPUT);
        assert_eq!(peer.capabilities, can);
        let registration = Registration::new("", "", Vec::new());
        let slots: Vec<_> = peer
            .served(&registration)
            .iter()
            .map(|it| it.slots)
            .collect();
        assert_eq!((peer.slots, slots), (9, vec![9, 9]));
    }
}
