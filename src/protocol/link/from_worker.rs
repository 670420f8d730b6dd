//! Everything a worker says.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::endings::{DoneJson, ErrorJson};
use super::loose::{Loose, LooseId, has_more_values_than, read};
use super::mending::without_lone_surrogates;
use super::object::Object;
use super::output::{PromptJson, TokenJson, TokensJson, about, write_prompt};
use super::state::StateJson;
use super::usage::{UsageJson, write_usage};
use super::{
    About, Done, ErrorFrame, FrameError, MOST_VALUES, Output, Registration, SMALL_FRAME, State,
    write_tokens,
};
use crate::job::{Event, FinishReason, Progress, PromptLogprobs, ResultPart, TokenEvent, Usage};

/// A larger preview is ignored.
pub const MOST_PREVIEW_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq)]
pub enum FromWorker {
    /// The first frame, and the only one without a `type`.
    Register(Box<Registration>),
    Pong,
    /// The prompt has been read.
    Started {
        about: About,
        prompt_tokens: u32,
        cached_tokens: u32,
    },
    Output(Output),
    /// Log probabilities of tokens of the prompt.
    Prompt {
        about: About,
        prompt: PromptLogprobs,
    },
    /// The whole result of a job that reads and does not write.
    Encoded {
        about: About,
        result: Box<ResultPart>,
    },
    /// The worker's count so far.
    Usage {
        about: About,
        usage: Usage,
    },
    /// An event of a passed-through stream.
    Raw {
        about: About,
        event: Option<String>,
        data: String,
    },
    Progress {
        about: About,
        progress: Progress,
        /// An image file of at most [`MOST_PREVIEW_BYTES`].
        preview: Option<Vec<u8>>,
    },
    Done(Box<Done>),
    Error(ErrorFrame),
    /// The worker is busy; no strike.
    Busy {
        about: About,
        retry_after: Duration,
    },
    /// A sign of life of the job.
    Alive {
        about: About,
        phase: Option<String>,
    },
    State(Box<State>),
    /// Drains the worker: running jobs finish within this time.
    Drain {
        within: Duration,
        why: Option<String>,
    },
    /// An unknown type, or a frame without a job: ignored.
    Unknown,
}

/// The type of a frame, without the rest.
#[derive(Deserialize)]
pub(super) struct TypeJson<'a> {
    #[serde(borrow, default)]
    pub r#type: Option<TypeName<'a>>,
}

#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct TypeName<'a>(#[serde(borrow)] pub Cow<'a, str>);

#[derive(Deserialize)]
struct StartedJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    prompt_tokens: Option<u32>,
    cached_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct EncodedFrameJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    result: ResultPart,
}

#[derive(Deserialize)]
struct CountJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    usage: UsageJson,
}

#[derive(Deserialize)]
struct RawJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    event: Option<String>,
    data: Option<String>,
}

#[derive(Deserialize)]
struct ProgressJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    #[serde(default)]
    pct: Loose<f64>,
    #[serde(default)]
    step: Loose<u32>,
    #[serde(default)]
    steps: Loose<u32>,
    #[serde(default)]
    preview_b64: Loose<String>,
}

#[derive(Deserialize)]
struct BusyJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    retry_ms: Option<u64>,
}

#[derive(Deserialize)]
struct AliveJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    phase: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct DrainJson {
    pub deadline_s: Option<f64>,
    pub why: Option<String>,
}

impl FromWorker {
    /// Parses a frame. The contents of a large frame about an unwanted job are skipped.
    pub fn parse_wanted(
        text: &str,
        is_wanted: impl FnOnce(About) -> bool,
    ) -> Result<Self, FrameError> {
        if text.len() <= SMALL_FRAME {
            return Self::parse(text);
        }
        if has_more_values_than(MOST_VALUES, text) {
            return Err(FrameError::TooManyValues { most: MOST_VALUES });
        }
        match About::of(text) {
            Some(about) if !is_wanted(about) => Self::without_contents(text, about),
            _ => Self::parse(text),
        }
    }

    /// Enough to answer it.
    fn without_contents(text: &str, about: About) -> Result<Self, FrameError> {
        Ok(match type_of(text)?.as_deref() {
            Some("done") => {
                let done = Done::new(about, FinishReason::Stop, Usage::default());
                Self::Done(Box::new(done))
            }
            _ => Self::Output(Output {
                about,
                events: vec![Event::Token(TokenEvent::default())],
                finish: None,
            }),
        })
    }

    pub fn parse(text: &str) -> Result<Self, FrameError> {
        Self::parse_exactly(text).or_else(|error| {
            let mended = without_lone_surrogates(text).ok_or(error)?;
            Self::parse_exactly(&mended)
        })
    }

    fn parse_exactly(text: &str) -> Result<Self, FrameError> {
        // Token frames of every sender that writes the type first begin like this.
        if text.starts_with(r#"{"type":"token","#) {
            return Ok(read::<TokenJson>("token", text)?.read().into());
        }
        let frame = match type_of(text)?.as_deref() {
            None => Self::Register(Box::new(Registration::parse(text)?)),
            Some("pong") => Self::Pong,
            Some("token") => read::<TokenJson>("token", text)?.read().into(),
            Some("tokens") => read::<TokensJson>("tokens", text)?.read().into(),
            Some("done") => or_unknown(read::<DoneJson>("done", text)?.read(), |done| {
                Self::Done(Box::new(done))
            }),
            Some("error") => or_unknown(read::<ErrorJson>("error", text)?.read(), Self::Error),
            Some("started") => read::<StartedJson>("started", text)?.into(),
            Some("prompt") => read::<PromptJson>("prompt", text)?.into(),
            Some("encoded") => read::<EncodedFrameJson>("encoded", text)?.into(),
            Some("usage") => read::<CountJson>("usage", text)?.into(),
            Some("raw") => read::<RawJson>("raw", text)?.into(),
            Some("progress") => read::<ProgressJson>("progress", text)?.into(),
            Some("busy") => read::<BusyJson>("busy", text)?.into(),
            Some("alive") => read::<AliveJson>("alive", text)?.into(),
            Some("state") => Self::State(Box::new(read::<StateJson>("state", text)?.into())),
            Some("drain") => read::<DrainJson>("drain", text)?.into(),
            Some(_) => Self::Unknown,
        };
        Ok(frame)
    }

    /// The job it is about.
    pub fn about(&self) -> Option<About> {
        match self {
            Self::Output(output) => Some(output.about),
            Self::Done(done) => Some(done.about),
            Self::Error(error) => Some(error.about),
            Self::Started { about, .. }
            | Self::Prompt { about, .. }
            | Self::Encoded { about, .. }
            | Self::Usage { about, .. }
            | Self::Raw { about, .. }
            | Self::Progress { about, .. }
            | Self::Busy { about, .. }
            | Self::Alive { about, .. } => Some(*about),
            Self::Register(_)
            | Self::Pong
            | Self::State(_)
            | Self::Drain { .. }
            | Self::Unknown => None,
        }
    }

    pub fn to_text(&self) -> String {
        let mut out = String::with_capacity(160);
        self.write_into(&mut out);
        out
    }

    /// Appends the frame's text. [`FromWorker::Unknown`] has none.
    pub fn write_into(&self, out: &mut String) {
        match self {
            Self::Register(registration) => registration.write_into(out),
            Self::Output(output) => write_tokens(output.about, &output.events, out),
            Self::Done(done) => done.write_into(out),
            Self::Error(error) => error.write_into(out),
            Self::State(state) => state.write_into(out),
            Self::Unknown => {}
            Self::Pong => Object::frame("pong", out).end(),
            Self::Drain { within, why } => write_drain(*within, why.as_deref(), out),
            small => small.write_small(out),
        }
    }

    fn write_small(&self, out: &mut String) {
        let (Some(about), Some(name)) = (self.about(), self.small_name()) else {
            return;
        };
        let mut object = Object::frame(name, out);
        about.write(&mut object);
        match self {
            Self::Started {
                prompt_tokens,
                cached_tokens,
                ..
            } => {
                object.number("prompt_tokens", prompt_tokens);
                object.number("cached_tokens", cached_tokens);
            }
            Self::Prompt { prompt, .. } => write_prompt(prompt, &mut object),
            Self::Encoded { result, .. } => object.value("result", result),
            Self::Usage { usage, .. } => object.object("usage", |inner| write_usage(usage, inner)),
            Self::Raw { event, data, .. } => {
                match event {
                    Some(event) => object.text("event", event),
                    None => object.null("event"),
                }
                object.text("data", data);
            }
            Self::Progress {
                progress, preview, ..
            } => {
                object.number("pct", progress.percent);
                if let Some((step, steps)) = progress.steps {
                    object.number("step", step);
                    object.number("steps", steps);
                }
                let preview = preview.as_ref().map(|bytes| STANDARD.encode(bytes));
                object.text_if("preview_b64", preview.as_deref());
            }
            Self::Busy { retry_after, .. } => object.number("retry_ms", retry_after.as_millis()),
            Self::Alive { phase, .. } => object.text_if("phase", phase.as_deref()),
            _ => {}
        }
        object.end();
    }

    fn small_name(&self) -> Option<&'static str> {
        match self {
            Self::Started { .. } => Some("started"),
            Self::Prompt { .. } => Some("prompt"),
            Self::Encoded { .. } => Some("encoded"),
            Self::Usage { .. } => Some("usage"),
            Self::Raw { .. } => Some("raw"),
            Self::Progress { .. } => Some("progress"),
            Self::Busy { .. } => Some("busy"),
            Self::Alive { .. } => Some("alive"),
            _ => None,
        }
    }
}

/// The value of `type`, which must be a text where there is one.
pub(super) fn type_of(text: &str) -> Result<Option<Cow<'_, str>>, FrameError> {
    if !text.trim_ascii_start().starts_with('{') {
        return Err(FrameError::NotAnObject);
    }
    let head: TypeJson<'_> =
        serde_json::from_str(text).map_err(|error| FrameError::from_json("first", &error))?;
    Ok(head.r#type.map(|name| name.0))
}

pub(super) fn write_drain(within: Duration, why: Option<&str>, out: &mut String) {
    let mut object = Object::frame("drain", out);
    object.number("deadline_s", within.as_secs());
    object.text_if("why", why);
    object.end();
}

/// Seconds from the wire as a duration, within sane bounds.
pub(super) fn seconds(number: Option<f64>, otherwise: Duration) -> Duration {
    const LONGEST: f64 = 86_400.0;
    match number {
        Some(secs) if secs.is_finite() => Duration::from_secs_f64(secs.clamp(0.0, LONGEST)),
        _ => otherwise,
    }
}

fn or_unknown<T>(frame: Option<T>, known: impl FnOnce(T) -> FromWorker) -> FromWorker {
    frame.map_or(FromWorker::Unknown, known)
}

/// The bytes of a preview that is not too large.
fn preview(text: &str) -> Option<Vec<u8>> {
    let is_small = text.len() <= MOST_PREVIEW_BYTES.div_ceil(3) * 4;
    let bytes = is_small.then(|| STANDARD.decode(text).ok()).flatten();
    bytes.filter(|bytes| bytes.len() <= MOST_PREVIEW_BYTES)
}

impl From<Option<Output>> for FromWorker {
    fn from(output: Option<Output>) -> Self {
        or_unknown(output, Self::Output)
    }
}

impl From<StartedJson> for FromWorker {
    fn from(json: StartedJson) -> Self {
        or_unknown(about(json.id, json.att, json.seq), |about| Self::Started {
            about,
            prompt_tokens: json.prompt_tokens.unwrap_or(0),
            cached_tokens: json.cached_tokens.unwrap_or(0),
        })
    }
}

impl From<EncodedFrameJson> for FromWorker {
    fn from(json: EncodedFrameJson) -> Self {
        let result = Box::new(json.result);
        or_unknown(about(json.id, json.att, json.seq), |about| Self::Encoded {
            about,
            result,
        })
    }
}

impl From<PromptJson> for FromWorker {
    fn from(json: PromptJson) -> Self {
        or_unknown(json.read(), |(about, prompt)| Self::Prompt {
            about,
            prompt,
        })
    }
}

impl From<CountJson> for FromWorker {
    fn from(json: CountJson) -> Self {
        or_unknown(about(json.id, json.att, json.seq), |about| Self::Usage {
            about,
            usage: json.usage.into(),
        })
    }
}

impl From<RawJson> for FromWorker {
    fn from(json: RawJson) -> Self {
        or_unknown(about(json.id, json.att, json.seq), |about| Self::Raw {
            about,
            event: json.event,
            data: json.data.unwrap_or_default(),
        })
    }
}

impl From<ProgressJson> for FromWorker {
    fn from(json: ProgressJson) -> Self {
        let percent = json.pct.0.unwrap_or(0.0).clamp(0.0, 100.0);
        let steps = json.step.0.zip(json.steps.0);
        let steps = steps.filter(|(step, steps)| *step <= *steps);
        let preview = json.preview_b64.0.as_deref().and_then(preview);
        or_unknown(about(json.id, json.att, json.seq), |about| Self::Progress {
            about,
            progress: Progress {
                percent: percent as u8,
                steps,
            },
            preview,
        })
    }
}

impl From<BusyJson> for FromWorker {
    fn from(json: BusyJson) -> Self {
        or_unknown(about(json.id, json.att, json.seq), |about| Self::Busy {
            about,
            retry_after: Duration::from_millis(json.retry_ms.unwrap_or(1000)),
        })
    }
}

impl From<AliveJson> for FromWorker {
    fn from(json: AliveJson) -> Self {
        or_unknown(about(json.id, json.att, json.seq), |about| Self::Alive {
            about,
            phase: json.phase,
        })
    }
}

impl From<DrainJson> for FromWorker {
    fn from(json: DrainJson) -> Self {
        Self::Drain {
            within: seconds(json.deadline_s, Duration::from_secs(120)),
            why: json.why,
        }
    }
}
