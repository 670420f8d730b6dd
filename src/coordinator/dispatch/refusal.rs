//! Refusals at admission: the reason, the missing requirement, and the models online.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use muster_protocol::job::{
    Capabilities, Failure, FailureKind, Formats, Kind, Needs, PromptLength, Reach, TextNeeds,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    ShuttingDown,
    QueueFull {
        waiting: usize,
        /// Estimate until a slot of the queue is free, by measured speed.
        wait: Duration,
    },
    /// The account is at its limit of jobs.
    InFlight {
        open: usize,
        most: usize,
        /// Estimate until enough of these have ended, by measured speed.
        wait: Duration,
    },
    /// The request alone exceeds its account's limit of jobs.
    TooManyJobs {
        wanted: usize,
        most: usize,
    },
    /// A job with this id is already here.
    Duplicate,
    /// The owners of all workers that could serve it have paused them.
    Paused {
        models: Vec<Arc<str>>,
        /// Until the first worker is expected back.
        wait: Option<Duration>,
    },
    /// No connected worker can serve it.
    Unserved {
        missing: Missing,
        online: Vec<Arc<str>>,
    },
}

/// The first requirement that no connected worker meets besides all earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// No worker serves the model. Only the catalog knows whether it is unknown or merely offline.
    Model(Vec<Arc<str>>),
    /// The model's workers poll, and none has polled for a while.
    Absent(Vec<Arc<str>>),
    Kind(Kind),
    Format(Formats),
    Capability(Capabilities),
    /// The longest context of any worker.
    Context {
        wanted: u32,
        longest: u32,
    },
    /// More than the limits of all workers.
    Reach {
        wanted: Needs,
        most: Reach,
    },
    Trust,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let kind = match &refusal {
            Refusal::ShuttingDown => FailureKind::ShuttingDown,
            Refusal::QueueFull { .. } => FailureKind::QueueFull,
            Refusal::InFlight { .. } => FailureKind::InFlightLimit,
            Refusal::Paused { .. } => FailureKind::ModelOffline,
            Refusal::Duplicate | Refusal::TooManyJobs { .. } => FailureKind::InvalidRequest,
            Refusal::Unserved {
                missing: Missing::Context { wanted, longest },
                ..
            } => return Self::context_overflow(*longest, PromptLength::AtLeast(*wanted)),
            Refusal::Unserved { missing, .. } => missing.failure_kind(),
        };
        Self::new(kind, refusal.to_string())
    }
}

impl Refusal {
    /// Time until a retry, where it was measured.
    pub fn wait(&self) -> Option<Duration> {
        match self {
            Self::QueueFull { wait, .. } | Self::InFlight { wait, .. } => Some(*wait),
            Self::Paused { wait, .. } => Some(wait.unwrap_or(USUAL_PAUSE)),
            _ => None,
        }
    }
}

/// Time until a retry when an owner gave no end of a pause.
const USUAL_PAUSE: Duration = Duration::from_secs(60);

/// At least one, for `Retry-After`.
fn whole_seconds(wait: Duration) -> u128 {
    wait.as_millis().div_ceil(1000).max(1)
}

impl Missing {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Model(_) | Self::Absent(_) => FailureKind::ModelOffline,
            Self::Capability(missing) if missing.contains(Capabilities::LARGE_FRAMES) => {
                FailureKind::TooLarge
            }
            Self::Capability(_) => FailureKind::UnsupportedValue,
            Self::Context { .. } => FailureKind::ContextLengthExceeded,
            Self::Reach {
                wanted: Needs::Text(_),
                ..
            }
            | Self::Kind(_)
            | Self::Format(_)
            | Self::Trust => FailureKind::NoWorker,
            Self::Reach { .. } => FailureKind::UnsupportedValue,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShuttingDown => write!(formatter, "the coordinator is shutting down"),
            Self::QueueFull { waiting, wait } => write!(
                formatter,
                "all workers are busy and the queue is full: {waiting} jobs are waiting; retry in about {} s",
                whole_seconds(*wait)
            ),
            Self::InFlight { open, most, wait } => write!(
                formatter,
                "the account has {open} jobs in flight, its limit is {most}; wait for one to end, in about {} s, or \
                 cancel one",
                whole_seconds(*wait)
            ),
            Self::TooManyJobs { wanted, most } => write!(
                formatter,
                "the request has {wanted} jobs, the account may have {most} at a time"
            ),
            Self::Paused { models, wait } => {
                let models = models.join(" or ");
                write!(
                    formatter,
                    "the workers of {models} are paused by their owners"
                )?;
                match wait {
                    Some(wait) => write!(formatter, " for another {} s", whole_seconds(*wait)),
                    None => write!(formatter, "; it is not known for how long"),
                }
            }
            Self::Duplicate => write!(formatter, "a job with this id has already been accepted"),
            Self::Unserved { missing, online } if online.is_empty() => {
                write!(formatter, "{missing}; no model is online")
            }
            Self::Unserved { missing, online } => {
                write!(formatter, "{missing}; online: {}", online.join(", "))
            }
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(names) => write!(formatter, "no worker serves {}", names.join(" or ")),
            Self::Absent(names) => write!(
                formatter,
                "no worker of {} polled recently",
                names.join(" or ")
            ),
            Self::Kind(kind) => write!(
                formatter,
                "no worker of this model supports {}",
                kind.ability()
            ),
            Self::Format(formats) => {
                let names: Vec<_> = formats.names().collect();
                write!(
                    formatter,
                    "no worker of this model supports {}",
                    names.join(" or ")
                )
            }
            Self::Capability(missing) => {
                let names: Vec<_> = missing.names().collect();
                write!(
                    formatter,
                    "no worker of this model supports {}",
                    names.join(" and ")
                )
            }
            Self::Context { wanted, longest } => write!(
                formatter,
                "the request needs {wanted} tokens of context, the workers of this model support at most {longest}"
            ),
            Self::Reach {
                wanted: Needs::Text(TextNeeds { window, output, .. }),
                ..
            } => write!(
                formatter,
                "no worker of this model accepts {window} tokens of context with {output} tokens of output"
            ),
            Self::Reach { wanted, most } => {
                let beyond: Vec<String> = beyond(*wanted, most).collect();
                write!(
                    formatter,
                    "the request needs more than the workers of this model support: {}",
                    beyond.join(", ")
                )
            }
            Self::Trust => write!(
                formatter,
                "no worker of this model is allowed to run this job"
            ),
        }
    }
}

/// `1048576 pixels (at most 262144)` for each exceeded limit; all needs if no single limit is exceeded.
fn beyond(wanted: Needs, most: &Reach) -> impl Iterator<Item = String> {
    let sides: Vec<(u32, u32, &str)> = match wanted {
        Needs::Text(it) => vec![(it.output, most.text.output, "tokens of output")],
        Needs::Media(it) => {
            let sides = it.named().into_iter().zip(most.media.named());
            let sides = sides.map(|((name, wanted), (_, most))| (wanted, most, name));
            sides.filter(|(wanted, ..)| *wanted > 0).collect()
        }
    };
    let is_any = sides.iter().any(|(wanted, most, _)| wanted > most);
    let sides = sides.into_iter();
    let sides = sides.filter(move |(wanted, most, _)| !is_any || wanted > most);
    sides.map(|(wanted, most, what)| match most {
        u32::MAX => format!("{wanted} {what}"),
        most => format!("{wanted} {what} (at most {most})"),
    })
}
