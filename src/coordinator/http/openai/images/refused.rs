//! A refusal of the queue or of the filters as an error for the client: the field at fault, and whether waiting helps.

use crate::dispatch::{Missing, Refusal};
use crate::error::ApiError;
use crate::http::models;
use crate::http::open::KnownModels;
use crate::moderation::{Blocked, LONGEST};
use crate::switchboard::Overview;
use muster_protocol::job::{Capabilities, Failure, FailureKind, Kind};
use muster_protocol::openai::Problem;
use muster_protocol::openai::images::ImagesRequest;

/// Models named in a message.
const MOST_NAMES: usize = 10;

/// The fields that ask for an ability of the worker.
const ABILITIES: [(Capabilities, &str); 6] = [
    (Capabilities::SOURCE_IMAGES, "image"),
    (Capabilities::LORAS, "loras"),
    (Capabilities::LORA_VERSIONS, "loras"),
    (Capabilities::CONSISTENCY_SAMPLER, "sampler"),
    (Capabilities::NEWER_DRAWING, "sampler"),
    (Capabilities::KARRAS, "scheduler"),
];

pub fn explain(
    refusal: Refusal,
    request: &ImagesRequest,
    model: &str,
    known: &KnownModels,
    overview: &Overview,
) -> ApiError {
    match &refusal {
        Refusal::TooManyJobs { wanted, most } => {
            let message =
                format!("n must be at most {most}, the job limit of this account, found {wanted}");
            Problem::invalid("n", message).into()
        }
        Refusal::Unserved { missing, online } => match missing {
            Missing::Model(_) if known.contains(model) => about(refusal, "model"),
            Missing::Model(_) if online.is_empty() => {
                Failure::new(FailureKind::NoWorker, refusal.to_string()).into()
            }
            Missing::Model(_) => {
                let online: Vec<&str> = online.iter().map(|name| &**name).collect();
                models::unknown(model, &online)
            }
            Missing::Kind(_) => {
                let what = models::not_of_kind(&known.id(model), "an image", overview);
                let message = format!("{what}{}", others(overview));
                Problem::unsupported("model", message).into()
            }
            Missing::Format(_) => match special(request) {
                Some(name) => unsupported(name, model),
                None => about(refusal, "model"),
            },
            Missing::Capability(missing) => match param_of(request, *missing) {
                Some(name) => unsupported(name, model),
                // The client has no field for a worker's speed or software.
                None => ApiError {
                    param: Some("model".into()),
                    ..Failure::new(FailureKind::NoWorker, refusal.to_string()).into()
                },
            },
            Missing::Reach(_) => about(refusal, "size"),
            Missing::Absent(_) | Missing::Context { .. } | Missing::Trust => {
                about(refusal, "model")
            }
        },
        _ => refusal.into(),
    }
}

/// The first field that only some workers can honour.
fn special(request: &ImagesRequest) -> Option<&'static str> {
    let mut names = request.only_polled.iter().chain(&request.never_polled);
    names.next().copied()
}

fn param_of(request: &ImagesRequest, missing: Capabilities) -> Option<&'static str> {
    let image = &request.image;
    let is_set = |name: &str| match name {
        "image" => image.source.is_some(),
        "loras" => !image.loras.is_empty(),
        "sampler" => image.sampler.is_some(),
        _ => image.karras.is_some(),
    };
    let mut fields = ABILITIES.iter();
    let field = fields.find(|(ability, name)| missing.contains(*ability) && is_set(name));
    field.map(|(_, name)| *name)
}

/// `; image models online: one, other`, or nothing if there are none.
fn others(overview: &Overview) -> String {
    let models = overview.models.iter();
    let images = models.filter(|model| model.kinds.contains(Kind::Image));
    let names: Vec<&str> = images.take(MOST_NAMES).map(|model| &*model.name).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; image models online: {}", names.join(", ")),
    }
}

fn unsupported(param: &'static str, model: &str) -> ApiError {
    let message = format!("{param} is not supported by any worker that serves {model} now");
    Problem::unsupported(param, message).into()
}

fn about(refusal: Refusal, param: &'static str) -> ApiError {
    ApiError {
        param: Some(param.into()),
        ..refusal.into()
    }
}

/// The filters do not let the prompt pass.
pub fn blocked(blocked: Blocked) -> ApiError {
    let kind = match blocked {
        Blocked::Unread { .. } => FailureKind::TooLarge,
        _ => FailureKind::ContentRefused,
    };
    let message = match blocked {
        Blocked::Unread { found, most } => {
            format!("the prompt must have at most {most} bytes, found {found}")
        }
        Blocked::Corrupt => {
            "the prompt was rejected by the content filters of this service".to_owned()
        }
        Blocked::Slow => {
            "the content filters of this service took too long to read the prompt: shorten it"
                .to_owned()
        }
        Blocked::TooLong(characters) => format!(
            "a prompt that the content filters rewrite must have at most {LONGEST} characters, found {characters}"
        ),
    };
    ApiError {
        param: Some("prompt".into()),
        ..ApiError::new(kind, message)
    }
}
