//! Another coordinator's reply to a pop, as our own worker reads it: tolerant of missing, null and additional fields.

use serde_json::{Map, Value};

use crate::job::{
    FormRequest, ImageRequest, Lora, NEGATIVE, SourceImage, TextRequest, TextualInversion,
};
use crate::legacy::{Body, Refusal};

use super::image::params::ModelGenerationInputImage;
use super::text::job::text_of;
use super::text::params::ModelGenerationInputText;
use super::words::{SourceProcessing, Word, named};

/// The answer to a pop.
#[derive(Debug, Clone, PartialEq)]
pub enum PoppedWork {
    /// There is no work, and perhaps reasons why.
    Nothing {
        skipped: Map<String, Value>,
    },
    Job(Box<PoppedJob>),
    /// There is work that cannot be done: it has to be given back as faulted.
    Unreadable {
        ids: Vec<String>,
        why: Refusal,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct PoppedJob {
    /// Ids for submitting the outputs: one, or as many as requested.
    pub ids: Vec<String>,
    pub model: String,
    /// Seconds before it is taken away.
    pub ttl: Option<u64>,
    pub body: PoppedBody,
}

#[derive(Debug, Clone, PartialEq)]
pub enum PoppedBody {
    Text(Box<TextRequest>),
    Image(Box<PoppedImage>),
    Form(Box<FormRequest>),
}

/// The first image of a job; the others differ in their index alone.
#[derive(Debug, Clone, PartialEq)]
pub struct PoppedImage {
    pub image: ImageRequest,
    /// Upload links in the order of the ids; without a link the image is part of the submit.
    pub uploads: Vec<Option<String>>,
    /// An unsafe image must not be sent.
    pub is_censored: bool,
}

/// A message to workers that came with an answer, fit to be shown on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub id: String,
    pub origin: String,
    pub text: String,
}

/// In characters.
const LONGEST_MESSAGE: usize = 1000;

impl Told {
    pub fn all_in(reply: &Value) -> Vec<Self> {
        let messages = reply["messages"].as_array().into_iter().flatten();
        messages.filter_map(Self::read).collect()
    }

    fn read(message: &Value) -> Option<Self> {
        let text = on_one_line(message["message"].as_str()?);
        let origin = message["origin"].as_str().unwrap_or("the coordinator");
        // A message without an id is identified by its text.
        let id = message["id"].as_str().unwrap_or(&text);
        Some(Self {
            id: id.to_owned(),
            origin: on_one_line(origin),
            text,
        })
    }
}

fn on_one_line(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().take(LONGEST_MESSAGE).map(plain).collect()
}

impl PoppedWork {
    /// The answer to a pop of texts.
    pub fn text(reply: Value) -> Self {
        Self::read(reply, |reply| {
            let payload = taken(reply, "payload");
            text_payload(payload).map(|text| PoppedBody::Text(Box::new(text)))
        })
    }

    /// The answer to a pop of images.
    pub fn image(reply: Value) -> Self {
        Self::read(reply, |reply| {
            let image = popped_image(reply)?;
            Ok(PoppedBody::Image(Box::new(image)))
        })
    }

    /// The reply to a pop for forms, of which one is requested at a time. Further ones are dropped, and time out at the
    /// coordinator.
    pub fn form(mut reply: Value) -> Self {
        let skipped = taken(&mut reply, "skipped");
        let mut form = match reply.get_mut("forms").and_then(|forms| forms.get_mut(0)) {
            Some(form) => form.take(),
            None => Value::Null,
        };
        form["skipped"] = skipped;
        form["model"] = form["form"].clone();
        Self::read(form, |form| {
            let Some(image) = link(form, "source_image") else {
                return Err(Refusal::invalid("source_image", "must be an image"));
            };
            Ok(PoppedBody::Form(Box::new(FormRequest {
                form: form["form"].as_str().unwrap_or_default().to_owned(),
                payload: form["payload"].as_object().cloned(),
                image,
                ..FormRequest::default()
            })))
        })
    }

    fn read(
        mut reply: Value,
        body: impl FnOnce(&mut Value) -> Result<PoppedBody, Refusal>,
    ) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let Some(id) = text(&reply["id"]).or_else(|| text(&reply["ids"][0])) else {
            let skipped = match taken(&mut reply, "skipped") {
                Value::Object(skipped) => skipped,
                _ => Map::new(),
            };
            return Self::Nothing { skipped };
        };
        let ids = all_ids(&reply["ids"], id);
        match body(&mut reply) {
            Ok(body) => Self::Job(Box::new(PoppedJob {
                ids,
                model: text(&reply["model"]).unwrap_or_default(),
                ttl: reply["ttl"].as_u64(),
                body,
            })),
            Err(why) => Self::Unreadable { ids, why },
        }
    }
}

/// A coordinator that gives one job may leave out the list.
fn all_ids(list: &Value, first: String) -> Vec<String> {
    let ids = list.as_array().into_iter().flatten();
    let ids: Vec<String> = ids.filter_map(Value::as_str).map(str::to_owned).collect();
    match ids.contains(&first) {
        true => ids,
        false => vec![first],
    }
}

fn taken(reply: &mut Value, name: &str) -> Value {
    reply.get_mut(name).map(Value::take).unwrap_or_default()
}

/// Settings that change the image and that our worker does not support. The worker does not ask for such jobs, and
/// returns them.
const NOT_DRAWN: [&str; 6] = [
    "control_type",
    "extra_texts",
    "post_processing",
    "return_control_map",
    "transparent",
    "workflow",
];

fn popped_image(reply: &mut Value) -> Result<PoppedImage, Refusal> {
    let Value::Object(mut entries) = taken(reply, "payload") else {
        return Err(Refusal::invalid("payload", "must be an object"));
    };
    let Some(Value::String(prompt)) = entries.remove("prompt") else {
        return Err(Refusal::invalid("payload.prompt", "must be a string"));
    };
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::Bool(is_on) => *is_on,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    let undrawn = NOT_DRAWN
        .iter()
        .find(|name| entries.get(**name).is_some_and(is_set));
    if let Some(name) = undrawn {
        let message = "is not supported by this worker";
        return Err(Refusal::invalid(&format!("payload.{name}"), message));
    }
    let is_censored = entries.get("use_nsfw_censor") == Some(&Value::Bool(true));
    if let Some(steps) = entries.remove("ddim_steps") {
        entries.insert("steps".to_owned(), steps);
    }
    entries.retain(|_, value| !value.is_null());
    let params = ModelGenerationInputImage::read(Value::Object(entries))?;
    let (shown, excluded) = match prompt.split_once(NEGATIVE) {
        Some((shown, excluded)) => (shown.trim().to_owned(), Some(excluded.trim().to_owned())),
        None => (prompt, None),
    };
    let source = source(reply)?;
    let mut uploads = Vec::new();
    match &reply["r2_uploads"] {
        Value::Array(links) => {
            uploads.extend(links.iter().map(|link| link.as_str().map(str::to_owned)));
        }
        _ => uploads.push(reply["r2_upload"].as_str().map(str::to_owned)),
    }
    let seed = params.seed.as_deref().and_then(|seed| seed.parse().ok());
    Ok(PoppedImage {
        image: ImageRequest {
            prompt: shown,
            negative_prompt: excluded.filter(|excluded| !excluded.is_empty()),
            width: params.width,
            height: params.height,
            steps: params.steps,
            cfg_scale: Some(params.cfg_scale),
            sampler: Some(params.sampler_name.word().to_owned()),
            karras: Some(params.karras),
            scheduler: params.scheduler.map(|schedule| schedule.word().to_owned()),
            clip_skip: params.clip_skip,
            strength: params.denoising_strength.filter(|_| source.is_some()),
            tiling: params.tiling,
            hires_fix: params.hires_fix,
            hires_strength: params.hires_fix_denoising_strength,
            seed,
            loras: params.loras().iter().map(Lora::from).collect(),
            inversions: params.tis().iter().map(TextualInversion::from).collect(),
            source,
            ..ImageRequest::default()
        },
        uploads,
        is_censored,
    })
}

/// An image as a link; base64 becomes a data URL.
fn link(reply: &Value, name: &str) -> Option<String> {
    let text = reply[name].as_str().filter(|text| !text.is_empty())?;
    let is_link = text.starts_with("http://") || text.starts_with("https://");
    Some(match is_link {
        true => text.to_owned(),
        false => format!("data:;base64,{text}"),
    })
}

/// Source images as links; base64 becomes data URLs.
fn source(reply: &Value) -> Result<Option<SourceImage>, Refusal> {
    let image = |name: &str| link(reply, name);
    let Some(source) = image("source_image") else {
        return Ok(None);
    };
    let processing = reply["source_processing"].as_str();
    let mask = match processing.and_then(named::<SourceProcessing>) {
        None | Some(SourceProcessing::Img2Img) => None,
        Some(SourceProcessing::Inpainting | SourceProcessing::Outpainting) => image("source_mask"),
        Some(SourceProcessing::Remix) => {
            let message = "remix is not supported by this worker";
            return Err(Refusal::invalid("source_processing", message));
        }
    };
    Ok(Some(SourceImage {
        image: source,
        mask,
        ..SourceImage::default()
    }))
}

fn text_payload(payload: Value) -> Result<TextRequest, Refusal> {
    let Value::Object(mut entries) = payload else {
        return Err(Refusal::invalid("payload", "must be an object"));
    };
    let Some(Value::String(prompt)) = entries.remove("prompt") else {
        return Err(Refusal::invalid("payload.prompt", "must be a string"));
    };
    entries.retain(|_, value| !value.is_null());
    let params = ModelGenerationInputText::read(Value::Object(entries))?;
    Ok(text_of(prompt, &params, 0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{PoppedBody, PoppedImage, PoppedJob, PoppedWork, Told};
    use crate::job::{JobId, PromptSide, TextInput, TextRequest};
    use crate::legacy::Body;
    use crate::legacy::image::payload::{
        GenerationPayloadImage, ModelPayloadImage, NoValidRequestFoundImage,
    };
    use crate::legacy::image::request::GenerationInputImage;
    use crate::legacy::text::job::Lengths;
    use crate::legacy::text::payload::{
        GenerationPayloadText, ModelPayloadText, NoValidRequestFoundText,
    };
    use crate::legacy::text::request::GenerationInputText;
    use crate::legacy::words::SourceProcessing;

    fn job(reply: Value) -> (PoppedJob, TextRequest) {
        match PoppedWork::text(reply) {
            PoppedWork::Job(job) => match &job.body {
                PoppedBody::Text(text) => (*job.clone(), (**text).clone()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn image(reply: Value) -> Result<PoppedImage, String> {
        match PoppedWork::image(reply) {
            PoppedWork::Job(job) => match job.body {
                PoppedBody::Image(image) => Ok(*image),
                other => panic!("{other:?}"),
            },
            PoppedWork::Unreadable { why, .. } => Err(why.body().to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn our_worker_reads_images_that_our_coordinator_writes() {
        let body = json!({
            "prompt": "a cat ### a dog", "params": {"steps": 12, "width": 576, "sampler_name": "k_dpmpp_2m"},
        });
        let request = GenerationInputImage::read(body).unwrap();
        let id = JobId::random();
        let reply = GenerationPayloadImage {
            payload: ModelPayloadImage::of(&request, 2, 77),
            id: Some(id),
            ids: vec![id],
            model: Some("m".to_owned()),
            source_image: Some("AAAA".to_owned()),
            source_mask: Some("https://example.net/mask".to_owned()),
            source_processing: SourceProcessing::Inpainting,
            r2_uploads: Some(vec!["https://example.net/up".to_owned()]),
            ..GenerationPayloadImage::empty(NoValidRequestFoundImage::default(), Vec::new())
        };
        let read = image(serde_json::to_value(reply).unwrap()).unwrap();
        let found = read.image;
        assert_eq!(
            (&*found.prompt, found.negative_prompt.as_deref()),
            ("a cat", Some("a dog"))
        );
        assert_eq!(
            (found.width, found.steps, found.seed),
            (576, Some(12), Some(77))
        );
        assert_eq!(found.sampler.as_deref(), Some("k_dpmpp_2m"));
        let source = found.source.unwrap();
        assert_eq!(source.image, "data:;base64,AAAA");
        assert_eq!(source.mask.as_deref(), Some("https://example.net/mask"));
        assert_eq!(read.uploads, [Some("https://example.net/up".to_owned())]);
    }

    #[test]
    fn an_image_that_cannot_be_drawn_here_is_refused_by_name() {
        for (name, value) in [
            ("post_processing", json!(["GFPGAN"])),
            ("control_type", json!("canny")),
        ] {
            let reply = json!({"id": "x", "payload": {"prompt": "p", name: value}});
            assert!(image(reply).unwrap_err().contains(name), "{name}");
        }
        let remix = json!({
            "id": "x", "payload": {"prompt": "p"}, "source_image": "AA", "source_processing": "remix",
        });
        assert!(image(remix).unwrap_err().contains("remix"));
        let files = json!({"id": "x", "payload": {
            "prompt": "p", "loras": [{"name": "paper", "model": 0.5}],
            "tis": [{"name": "owl", "inject_ti": "negprompt", "strength": -0.5}, {"name": "fox"}],
        }});
        let read = image(files).unwrap().image;
        assert_eq!((&*read.loras[0].name, read.loras[0].model), ("paper", 0.5));
        let found: Vec<_> = read.inversions.iter().map(|it| it.prompt).collect();
        assert_eq!(found, [Some(PromptSide::Excluded), None]);
        assert_eq!(read.inversions[0].strength, -0.5);
        let plain = json!({"id": "x", "payload": {"prompt": "p", "loras": [], "new": 1}});
        let plain = image(plain).unwrap();
        assert_eq!((plain.uploads, plain.is_censored), (vec![None], false));
        let censored = json!({"id": "x", "payload": {"prompt": "p", "use_nsfw_censor": true}});
        assert!(image(censored).unwrap().is_censored);
    }

    #[test]
    fn our_worker_reads_what_our_coordinator_writes() {
        let body = json!({
            "prompt": "once", "params": {"temperature": 0.7, "tfs": 0.9, "stop_sequence": ["."], "singleline": true},
        });
        let text = GenerationInputText::read(body).unwrap().text(0);
        let lengths = Lengths {
            context: 4096,
            output: 80,
        };
        let id = JobId::random();
        let reply = GenerationPayloadText {
            payload: ModelPayloadText::of(&text, "once".to_owned(), lengths),
            id: Some(id),
            ids: vec![id],
            ttl: Some(150),
            model: Some("m".to_owned()),
            ..GenerationPayloadText::empty(NoValidRequestFoundText::default(), Vec::new())
        };
        let (job, read) = job(serde_json::to_value(reply).unwrap());
        assert_eq!(
            (job.ids, job.model.as_str(), job.ttl),
            (vec![id.to_string()], "m", Some(150))
        );
        assert_eq!(read.stop, text.stop);
        assert_eq!(read.max_tokens, text.max_tokens);
        let (read, sent) = (read.sampling, text.sampling);
        assert_eq!(read.temperature, sent.temperature);
        let (read, sent) = (read.legacy.unwrap(), sent.legacy.unwrap());
        assert_eq!((read.tfs, read.singleline), (sent.tfs, sent.singleline));
    }

    #[test]
    fn nulls_and_missing_keys_of_others_are_no_reason_to_stop() {
        let (job, read) = job(json!({
            "ids": ["x"], "payload": {"prompt": "once", "top_k": null, "quiet": true, "n": 1},
        }));
        assert_eq!((job.ids, job.ttl), (vec!["x".to_owned()], None));
        assert_eq!(read.input, TextInput::Prompt("once".to_owned()));
        assert_eq!(read.max_tokens, Some(80));
    }

    #[test]
    fn several_outputs_of_one_request_have_an_id_each() {
        let ids = |reply: Value| {
            let mut reply = reply;
            reply["payload"] = json!({"prompt": "once"});
            job(reply).0.ids
        };
        assert_eq!(ids(json!({"id": "a", "ids": ["a", "b"]})), ["a", "b"]);
        assert_eq!(ids(json!({"id": "a", "ids": []})), ["a"]);
        assert_eq!(ids(json!({"id": "a"})), ["a"]);
    }

    #[test]
    fn no_job_comes_with_reasons_or_without() {
        let nothing = |reply| match PoppedWork::text(reply) {
            PoppedWork::Nothing { skipped } => skipped.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            nothing(json!({"id": null, "ids": [], "skipped": {"models": 3}})),
            1
        );
        assert_eq!(nothing(json!({"id": null})), 0);
        assert_eq!(nothing(json!([])), 0);
        assert_eq!(nothing(json!("x")), 0);
    }

    #[test]
    fn what_workers_are_told_is_read_as_one_line_whatever_is_missing() {
        let told = Told::all_in(&json!({"messages": [
            {"id": "1", "message": "update,\nplease", "origin": "m", "expiry": "soon"},
            {"message": "x".repeat(5000)},
            {"id": "2"},
            7,
        ]}));
        assert_eq!(told.len(), 2);
        assert_eq!(
            (&*told[0].id, &*told[0].text, &*told[0].origin),
            ("1", "update, please", "m")
        );
        assert_eq!(told[1].text.len(), 1000);
        assert_eq!(told[1].id, told[1].text);
        assert!(Told::all_in(&json!([])).is_empty());
    }

    #[test]
    fn a_job_nobody_understands_is_known_by_its_ids() {
        for payload in [
            json!(null),
            json!({}),
            json!({"prompt": "p", "max_length": "many"}),
        ] {
            let reply = json!({"id": "x", "ids": ["x", "y"], "payload": payload});
            let read = PoppedWork::text(reply);
            assert!(matches!(read, PoppedWork::Unreadable { ids, .. } if ids == ["x", "y"]));
        }
    }
}
