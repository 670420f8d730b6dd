//! Everything a coordinator says.

use std::time::Duration;

use serde::Deserialize;

use super::from_worker::{DrainJson, seconds, type_of, write_drain};
use super::job::{JobHeadJson, JobJson};
use super::loose::{Loose, LooseId, has_more_values_than, read};
use super::mending::{without_lone_surrogates, without_strange_numbers};
use super::object::Object;
use super::output::about;
use super::ready::{ReadyJson, RefusalJson};
use super::{About, FrameError, JobFrame, MOST_JOB_VALUES, Ready, RefusalFrame, SMALL_FRAME};
use crate::job::Kudos;

#[derive(Debug, Clone, PartialEq)]
pub enum ToWorker {
    Ready(Ready),
    /// The close reason; a close follows.
    Error(RefusalFrame),
    Ping,
    Job(Box<JobFrame>),
    Cancel {
        about: About,
        why: Option<CancelWhy>,
    },
    /// After every `done`: the job's reward.
    Ack {
        about: About,
        reward: Kudos,
    },
    /// Frames up to `about.seq` have arrived and need not be kept.
    Got {
        about: About,
    },
    /// The attempt is not wanted any more.
    Drop {
        about: About,
    },
    /// No more jobs will come, and this connection ends within this time.
    Drain {
        within: Duration,
        why: Option<String>,
    },
    /// The worker gets no jobs of others from now on, or gets them again. Only where `notices` is agreed.
    Maintenance {
        /// Note to the owner, perhaps empty; `None` when maintenance is over.
        note: Option<String>,
    },
    /// An unknown type, or a frame without a job: ignored.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelWhy {
    Client,
    Timeout,
    Superseded,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct CancelJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    why: Option<CancelWhy>,
}

#[derive(Deserialize)]
struct AckJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    #[serde(default)]
    den: Loose<f64>,
}

#[derive(Deserialize)]
struct AboutJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
}

#[derive(Deserialize)]
struct MaintenanceJson {
    #[serde(default)]
    on: bool,
    note: Option<String>,
}

impl About {
    /// The job that a frame is about of which nothing else may be readable.
    pub fn of(text: &str) -> Option<Self> {
        let json: AboutJson = read("unreadable", text).ok()?;
        about(json.id, json.att, None)
    }
}

impl ToWorker {
    pub fn parse(text: &str) -> Result<Self, FrameError> {
        if text.len() > SMALL_FRAME && has_more_values_than(MOST_JOB_VALUES, text) {
            let most = MOST_JOB_VALUES;
            return refusable(text, FrameError::TooManyValues { most });
        }
        Self::parse_exactly(text).or_else(|error| {
            let whole = without_lone_surrogates(text);
            let numbered = without_strange_numbers(whole.as_deref().unwrap_or(text));
            match numbered.or(whole) {
                Some(mended) => {
                    Self::parse_exactly(&mended).or_else(|error| refusable(&mended, error))
                }
                None => refusable(text, error),
            }
        })
    }

    fn parse_exactly(text: &str) -> Result<Self, FrameError> {
        let Some(kind) = type_of(text)? else {
            return Ok(Self::Unknown);
        };
        let frame = match kind.as_ref() {
            "ready" => Self::Ready(read::<ReadyJson>("ready", text)?.into()),
            "error" => Self::Error(read::<RefusalJson>("error", text)?.into()),
            "ping" => Self::Ping,
            "job" => read::<JobJson<'_>>("job", text)?.read()?.into(),
            "cancel" => read::<CancelJson>("cancel", text)?.into(),
            "ack" => read::<AckJson>("ack", text)?.into(),
            "got" => read_about("got", text, |about| Self::Got { about })?,
            "drop" => read_about("drop", text, |about| Self::Drop { about })?,
            "drain" => read::<DrainJson>("drain", text)?.into(),
            "maintenance" => read::<MaintenanceJson>("maintenance", text)?.into(),
            _ => Self::Unknown,
        };
        Ok(frame)
    }

    pub fn to_text(&self) -> String {
        let mut out = String::with_capacity(160);
        self.write_into(&mut out);
        out
    }

    /// Appends the frame's text. [`ToWorker::Unknown`] has none.
    pub fn write_into(&self, out: &mut String) {
        match self {
            Self::Ready(ready) => ready.write_into(out),
            Self::Error(refusal) => refusal.write_into(out),
            Self::Ping => Object::frame("ping", out).end(),
            Self::Job(job) => job.write_into(out),
            Self::Cancel { about, why } => write(out, "cancel", *about, |object| {
                object.text_if("why", why.map(CancelWhy::name));
            }),
            Self::Ack { about, reward } => write(out, "ack", *about, |object| {
                object.number("den", Thousandths(*reward));
            }),
            Self::Got { about } => write(out, "got", *about, |_| {}),
            Self::Drop { about } => write(out, "drop", *about, |_| {}),
            Self::Drain { within, why } => write_drain(*within, why.as_deref(), out),
            Self::Maintenance { note } => {
                let mut object = Object::frame("maintenance", out);
                object.flag("on", note.is_some());
                object.text_if("note", note.as_deref().filter(|note| !note.is_empty()));
                object.end();
            }
            Self::Unknown => {}
        }
    }
}

fn write(out: &mut String, kind: &str, about: About, fill: impl FnOnce(&mut Object<'_>)) {
    let mut object = Object::frame(kind, out);
    about.write(&mut object);
    fill(&mut object);
    object.end();
}

fn read_about(
    kind: &'static str,
    text: &str,
    known: impl FnOnce(About) -> ToWorker,
) -> Result<ToWorker, FrameError> {
    let json: AboutJson = read(kind, text)?;
    Ok(about(json.id, json.att, json.seq).map_or(ToWorker::Unknown, known))
}

/// Turns an invalid job with a readable head into one that can be refused. Otherwise its coordinator would wait for a
/// reply in vain, or offer the job again and again if the error cost the socket.
fn refusable(text: &str, error: FrameError) -> Result<ToWorker, FrameError> {
    match type_of(text)?.as_deref() {
        Some("job") => Ok(read::<JobHeadJson>("job", text)?.unreadable(&error).into()),
        _ => Err(error),
    }
}

impl From<Option<JobFrame>> for ToWorker {
    fn from(job: Option<JobFrame>) -> Self {
        job.map_or(Self::Unknown, |job| Self::Job(Box::new(job)))
    }
}

impl CancelWhy {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Timeout => "timeout",
            Self::Superseded => "superseded",
            Self::Other => "other",
        }
    }
}

impl From<CancelJson> for ToWorker {
    fn from(json: CancelJson) -> Self {
        let about = about(json.id, json.att, None);
        about.map_or(Self::Unknown, |about| Self::Cancel {
            about,
            why: json.why,
        })
    }
}

impl From<AckJson> for ToWorker {
    fn from(json: AckJson) -> Self {
        let thousandths = (json.den.0.unwrap_or(0.0) * 1000.0).round();
        let about = about(json.id, json.att, None);
        about.map_or(Self::Unknown, |about| Self::Ack {
            about,
            reward: Kudos(thousandths as i64),
        })
    }
}

impl From<MaintenanceJson> for ToWorker {
    fn from(json: MaintenanceJson) -> Self {
        Self::Maintenance {
            note: json.on.then(|| json.note.unwrap_or_default()),
        }
    }
}

impl From<DrainJson> for ToWorker {
    fn from(json: DrainJson) -> Self {
        Self::Drain {
            within: seconds(json.deadline_s, Duration::from_secs(120)),
            why: json.why,
        }
    }
}

/// A reward as public peers read it: `0.48`, `12`, `0`.
struct Thousandths(Kudos);

impl std::fmt::Display for Thousandths {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sign, amount) = (if self.0.0 < 0 { "-" } else { "" }, self.0.0.unsigned_abs());
        let (whole, rest) = (amount / 1000, amount % 1000);
        match rest {
            0 => write!(formatter, "{sign}{whole}"),
            rest => {
                let digits = format!("{rest:03}");
                write!(formatter, "{sign}{whole}.{}", digits.trim_end_matches('0'))
            }
        }
    }
}
