//! A refusal of the queue or of the filters as an error for the client: the field at fault, and whether waiting helps.

use crate::dispatch::{Missing, Refusal};
use crate::error::ApiError;
use crate::http::models;
use crate::http::open::KnownModels;
use crate::moderation::{Blocked, LONGEST};
use crate::switchboard::Overview;
use muster_protocol::job::{Capabilities, Failure, FailureKind, Kind, Needs, Reach};
use muster_protocol::openai::Problem;

/// Models named in a message.
const MOST_NAMES: usize = 10;

/// The fields of a request that a refusal may be about.
pub trait RefusedFields {
    const KIND: Kind;

    /// The output with its article, as in `an image`.
    const OUTPUT: &'static str;

    /// The first field that only some workers can honour.
    fn special(&self) -> Option<&'static str> {
        None
    }

    /// The field that asks for one of these abilities.
    fn asking_for(&self, _: Capabilities) -> Option<&'static str> {
        None
    }
}

pub fn explain<F: RefusedFields>(
    refusal: Refusal,
    fields: &F,
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
                models::unknown(model, &online, known)
            }
            Missing::Kind(_) => {
                let what = models::not_of_kind(&known.id(model), F::OUTPUT, overview);
                let message = format!("{what}{}", others(F::KIND, overview));
                Problem::unsupported("model", message).into()
            }
            Missing::Format(_) => match fields.special() {
                Some(name) => unsupported(name, model),
                None => about(refusal, "model"),
            },
            Missing::Capability(missing) => match fields.asking_for(*missing) {
                Some(name) => unsupported(name, model),
                // The client has no field for a worker's speed or software.
                None => ApiError {
                    param: Some("model".into()),
                    ..Failure::new(FailureKind::NoWorker, refusal.to_string()).into()
                },
            },
            Missing::Reach { wanted, most } => {
                let field = limited(F::KIND, *wanted, most);
                about(refusal, field)
            }
            Missing::Absent(_) | Missing::Context { .. } | Missing::Trust => {
                about(refusal, "model")
            }
        },
        _ => refusal.into(),
    }
}

/// `; image models online: one, other`, or an empty text.
fn others(kind: Kind, overview: &Overview) -> String {
    let models = overview.models.iter();
    let able = models.filter(|model| model.kinds.contains(kind));
    let names: Vec<&str> = able.take(MOST_NAMES).map(|model| &*model.name).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; {} models online: {}", kind.word(), names.join(", ")),
    }
}

fn unsupported(param: &'static str, model: &str) -> ApiError {
    let message = format!("{param} is not supported by any worker that serves {model} now");
    Problem::unsupported(param, message).into()
}

/// The field that exceeds a limit.
fn limited(kind: Kind, wanted: Needs, most: &Reach) -> &'static str {
    let Needs::Media(wanted) = wanted else {
        return "max_tokens";
    };
    let limits = wanted.named().into_iter().zip(most.media.named());
    let mut wanted = limits.filter(|((_, wanted), _)| *wanted > 0);
    let beyond = wanted
        .clone()
        .find(|((_, wanted), (_, most))| wanted > most);
    match beyond
        .or_else(|| wanted.next_back())
        .map(|((name, _), _)| name)
    {
        Some("steps") => "steps",
        Some("frames" | "seconds") => "seconds",
        Some("characters") if kind == Kind::Speech => "input",
        Some("characters") => "prompt",
        _ => "size",
    }
}

fn about(refusal: Refusal, param: &'static str) -> ApiError {
    ApiError {
        param: Some(param.into()),
        ..refusal.into()
    }
}

/// The error for a prompt refused by moderation.
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
