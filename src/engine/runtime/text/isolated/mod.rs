//! Tokenizer and chat template of an untrusted model, in a separate process.
//!
//! A file can make its tokenizer or template allocate, recurse or compute without end, and the libraries that read them
//! cannot be interrupted. So each such model gets a child process of the same program, with limits on memory, stack and
//! time (`child.rs`), that replies over its standard input and output (`frames.rs`). Detokenization stays in this
//! process: the child exports its table of token bytes once, and the table is checked.
//!
//! | file | content |
//! | --- | --- |
//! | `frames` | requests and replies |
//! | `child` | the child process |

mod child;
mod frames;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::{error, warn};

use super::language::Recommended;
use super::{Markup, Pieces, TextError, TextSource};
use crate::runtime::{Chat, Failure};
use frames::{Opened, Reply, Request, SourceText};
use muster_process::child::{ChildProcess, Death, to_bytes};

pub use child::serve;

/// Texts that are handed to the process: longer ones take more of its memory than it has.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// After this many crashes in a row the model counts as failed, and its process is restarted with growing delays.
const FAILED_AFTER: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How the text side of a model is isolated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// This executable, with the arguments that make it call [`serve`].
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The model, for messages.
    pub model: String,
    pub limits: Limits,
}

/// Limits of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// While the files are read: the largest tokenizers take one and a half gigabytes.
    pub open_bytes: u64,
    /// On top of the memory in use after the files are read.
    pub request_bytes: u64,
    pub stack_bytes: usize,
    pub open_time: Duration,
    pub request_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            open_bytes: 3 << 30,
            request_bytes: 1 << 30,
            stack_bytes: 8 << 20,
            open_time: Duration::from_secs(60),
            request_time: Duration::from_secs(10),
        }
    }
}

/// The text side of one model, in its own process.
pub struct Isolated {
    isolation: Isolation,
    /// The request that opens the model's files, for each time the process is started.
    open: Vec<u8>,
    pieces: Pieces,
    opening: Vec<u32>,
    brings_template: bool,
    state: Mutex<State>,
}

/// Further properties of the files, reported by the process.
pub struct Description {
    pub ends: Vec<u32>,
    pub recommended: Recommended,
    pub markup: Markup,
}

#[derive(Default)]
struct State {
    process: Option<ChildProcess>,
    /// Deaths since the process last answered a request.
    deaths: u32,
    last_death: String,
    start_after: Option<Instant>,
}

impl Isolated {
    /// Starts the process and lets it read the model's files.
    pub fn open(
        source: TextSource<'_>,
        isolation: Isolation,
    ) -> Result<(Self, Description), TextError> {
        let open = to_bytes(&Request::Open {
            source: Box::new(SourceText::from(source)),
            limits: isolation.limits.into(),
        });
        let (process, opened, pieces) = start(&isolation, &open)?;
        let description = Description {
            ends: opened.ends,
            recommended: opened.recommended,
            markup: opened.markup,
        };
        let isolated = Self {
            isolation,
            open,
            pieces,
            opening: opened.opening,
            brings_template: opened.brings_template,
            state: Mutex::new(State {
                process: Some(process),
                ..State::default()
            }),
        };
        Ok((isolated, description))
    }

    pub fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// The tokens that the tokenizer puts before a text.
    pub fn opening(&self) -> &[u32] {
        &self.opening
    }

    pub fn brings_template(&self) -> bool {
        self.brings_template
    }

    pub fn text_tokens(&self, text: &str, prefix: bool) -> Result<Vec<u32>, Failure> {
        check_length(text.len())?;
        self.tokens(&Request::Text {
            text: text.to_owned(),
            prefix,
        })
    }

    pub fn chat_tokens(&self, chat: &Chat, prefix: bool) -> Result<Vec<u32>, Failure> {
        let text = chat_text(chat)?;
        self.tokens(&Request::Chat { text, prefix })
    }

    /// Two texts as one sequence.
    pub fn pair(&self, first: &str, second: &str) -> Result<(Vec<u32>, Vec<u32>), Failure> {
        check_length(first.len().saturating_add(second.len()))?;
        let (first, second) = (first.to_owned(), second.to_owned());
        match self.ask(&Request::Pair { first, second })? {
            Reply::Pair { tokens, types } if tokens.len() == types.len() => Ok((tokens, types)),
            Reply::BadRequest(reason) => Err(Failure::BadRequest(reason)),
            _ => Err(self.broken("unexpected reply")),
        }
    }

    /// The spellings of these tokens.
    pub fn names(&self, ids: &[u32]) -> Result<Vec<String>, Failure> {
        match self.ask(&Request::Names(ids.to_vec()))? {
            Reply::Names(names) if names.len() == ids.len() => Ok(names),
            _ => Err(self.broken("unexpected reply")),
        }
    }

    /// Whether the rendered prompt ends inside a thought; no where the template fails.
    pub fn opens_thought(&self, chat: &Chat) -> bool {
        let asked = chat_text(chat).and_then(|text| self.ask(&Request::OpensThought(text)));
        matches!(asked, Ok(Reply::OpensThought(true)))
    }

    fn tokens(&self, request: &Request) -> Result<Vec<u32>, Failure> {
        match self.ask(request)? {
            Reply::Tokens(tokens) => Ok(tokens),
            Reply::BadRequest(reason) => Err(Failure::BadRequest(reason)),
            Reply::BrokenTemplate(reason) => Err(Failure::BrokenTemplate(reason)),
            _ => Err(self.broken("unexpected reply")),
        }
    }

    /// Sends one request at a time, because the process is single-threaded. A crash fails only this request.
    fn ask(&self, request: &Request) -> Result<Reply, Failure> {
        let bytes = to_bytes(request);
        let mut state = lock(&self.state);
        let process = match state.process.as_mut() {
            Some(process) => process,
            None => self.restart(&mut state)?,
        };
        match process.ask(&bytes, self.isolation.limits.request_time) {
            Ok(reply) => {
                state.deaths = 0;
                Ok(reply)
            }
            Err(death) => {
                let reason = death.to_string();
                self.note_death(&mut state, &reason);
                Err(self.broken(&reason))
            }
        }
    }

    fn restart<'a>(&self, state: &'a mut State) -> Result<&'a mut ChildProcess, Failure> {
        let now = Instant::now();
        if let Some(after) = state.start_after.filter(|&after| after > now) {
            let seconds = (after - now).as_secs() + 1;
            return Err(Failure::internal(format!(
                "the model {} is unavailable: its text process ended {} times in a row ({}); retrying in {seconds} s",
                self.isolation.model, state.deaths, state.last_death
            )));
        }
        let started = start(&self.isolation, &self.open).and_then(|(process, _, pieces)| {
            match pieces == self.pieces {
                true => Ok(process),
                false => Err(TextError::Isolated {
                    model: self.isolation.model.clone(),
                    reason: "the model's files changed after loading; load the model again"
                        .to_owned(),
                }),
            }
        });
        match started {
            Ok(process) => Ok(state.process.insert(process)),
            Err(error) => {
                self.note_death(state, &error.to_string());
                Err(Failure::internal(error))
            }
        }
    }

    fn note_death(&self, state: &mut State, reason: &str) {
        state.process = None;
        state.deaths += 1;
        reason.clone_into(&mut state.last_death);
        let pause = pause_after(state.deaths);
        state.start_after = Some(Instant::now() + pause);
        let (model, deaths) = (&self.isolation.model, state.deaths);
        match deaths >= FAILED_AFTER {
            true => error!(
                model.name = %model,
                "{model} has failed: its text process ended {deaths} times in a row ({reason}); refusing its jobs for \
                 {} s", pause.as_secs()
            ),
            false => warn!(
                model.name = %model,
                "the text process of {model} ended: {reason}; restarting it with the next job"
            ),
        }
    }

    fn broken(&self, reason: &str) -> Failure {
        let model = &self.isolation.model;
        Failure::BrokenTemplate(format!(
            "the chat template or tokenizer of {model} failed: {reason}"
        ))
    }
}

/// The first deaths may be a request's fault, so the process is started again at once.
fn pause_after(deaths: u32) -> Duration {
    match deaths.checked_sub(FAILED_AFTER) {
        None => Duration::ZERO,
        Some(more) => FIRST_PAUSE
            .saturating_mul(1 << more.min(16))
            .min(LONGEST_PAUSE),
    }
}

fn start(isolation: &Isolation, open: &[u8]) -> Result<(ChildProcess, Opened, Pieces), TextError> {
    let failed = |reason: String| TextError::Isolated {
        model: isolation.model.clone(),
        reason,
    };
    let started = ChildProcess::start(&isolation.program, &isolation.arguments);
    let mut process = started.map_err(|error| {
        let program = isolation.program.display();
        failed(format!("starting {program} failed: {error}"))
    })?;
    let died = |death: Death| failed(death.to_string());
    let opened = process
        .ask(open, isolation.limits.open_time)
        .map_err(died)?;
    let opened = match opened {
        Reply::Opened(opened) => *opened,
        Reply::Refused(error) => return Err(error),
        _ => return Err(failed("unexpected reply".to_owned())),
    };
    let table = process.table(isolation.limits.open_time).map_err(died)?;
    let pieces = Pieces::from_bytes(&table)
        .filter(|pieces| pieces.len() <= super::tokenizer::MAX_VOCABULARY)
        .ok_or_else(|| failed("invalid token table".to_owned()))?;
    Ok((process, opened, pieces))
}

/// The chat as separate JSON, so that it may be nested as deeply as in the client's request.
fn chat_text(chat: &Chat) -> Result<String, Failure> {
    let text = frames::chat_to_text(chat);
    check_length(text.len())?;
    Ok(text)
}

fn check_length(found: usize) -> Result<(), Failure> {
    match found > MAX_TEXT_BYTES {
        true => Err(Failure::BadRequest(format!(
            "the prompt has {found} bytes, but the model takes at most {MAX_TEXT_BYTES}"
        ))),
        false => Ok(()),
    }
}

/// A panic during a request leaves no process in an undefined state: its frames are complete or it is killed.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LONGEST_PAUSE, pause_after};

    #[test]
    fn a_text_process_that_keeps_dying_is_started_less_and_less_often() {
        assert_eq!(pause_after(1), Duration::ZERO);
        assert_eq!(pause_after(2), Duration::ZERO);
        assert_eq!(pause_after(3), Duration::from_secs(1));
        assert_eq!(pause_after(5), Duration::from_secs(4));
        assert_eq!(pause_after(u32::MAX), LONGEST_PAUSE);
    }
}
