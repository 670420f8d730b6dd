//! How many tokens a job had, by the coordinator's own count: a worker's word alone is never enough. Every job is
//! counted once, at its end, with one tokenizer for all models (o200k), on a thread made for computing; tokens on
//! their way to clients never wait for it.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use crate::protocol::job::{Body, Event, Job, TextInput};
use crate::tasks::Tasks;

/// Of longer texts the beginning is counted, and the rest taken to be like it.
const MOST_COUNTED: usize = 1 << 20;
/// Counts that may wait. Whoever asks waits for room.
const WAITING: usize = 1024;
/// Counts made in one go.
const BATCH: usize = 256;

/// Tokens of the prompt and of what was relayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// The worker's own numbers are not to be believed.
    pub public: bool,
}

/// What was written so far: content, reasoning, names and arguments of calls.
#[derive(Debug, Default)]
pub struct Output {
    text: String,
    bytes: usize,
}

/// Counts, one batch after the other.
#[derive(Debug, Clone)]
pub struct Meter {
    questions: mpsc::Sender<Question>,
}

#[derive(Debug)]
struct Question {
    job: Arc<Job>,
    output: Output,
    public: bool,
    answer: oneshot::Sender<Counted>,
}

impl Output {
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Token(token) => self.push(&token.text),
            Event::ToolCall(call) => {
                self.push(call.name.as_deref().unwrap_or_default());
                self.push(&call.arguments);
            }
            _ => {}
        }
    }

    fn push(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.text.len() < MOST_COUNTED {
            self.text.push_str(text);
        }
    }

    fn count(&self) -> u32 {
        scaled(count(&self.text), self.text.len(), self.bytes)
    }
}

impl Meter {
    pub fn start(tasks: &Tasks) -> Self {
        let (questions, waiting) = mpsc::channel(WAITING);
        tasks.start(answer_all(waiting));
        Self { questions }
    }

    /// Nothing was counted if the process is about to end.
    pub async fn count(&self, job: Arc<Job>, output: Output, public: bool) -> Counted {
        let (answer, counted) = oneshot::channel();
        let question = Question {
            job,
            output,
            public,
            answer,
        };
        if self.questions.send(question).await.is_err() {
            return Counted::default();
        }
        counted.await.unwrap_or_default()
    }
}

/// Loads the tables, which takes a while, on a thread of its own.
pub fn warm_up() {
    spawn_blocking(|| count(""));
}

async fn answer_all(mut waiting: mpsc::Receiver<Question>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let questions = std::mem::take(&mut batch);
        // A panic there leaves these uncounted, and unpaid.
        let _ = spawn_blocking(move || questions.into_iter().for_each(Question::answer)).await;
    }
}

impl Question {
    fn answer(self) {
        let counted = Counted {
            prompt_tokens: count_prompt(&self.job),
            output_tokens: self.output.count(),
            public: self.public,
        };
        // Whoever asked may have gone.
        let _ = self.answer.send(counted);
    }
}

fn count_prompt(job: &Job) -> u32 {
    let Body::Text(request) = &job.body;
    match &request.input {
        TextInput::Tokens(tokens) => u32::try_from(tokens.len()).unwrap_or(u32::MAX),
        TextInput::Prompt(text) => count_long(text),
        TextInput::Chat(chat) => {
            let mut text = String::new();
            for message in &chat.messages {
                gather(message, &mut text);
            }
            for tool in &chat.tools {
                // Writing into a string does not fail.
                let _ = write!(text, "{tool}");
            }
            count_long(&text)
        }
    }
}

/// The words of a message: its strings, without those that are whole files.
fn gather(value: &Value, into: &mut String) {
    match value {
        Value::String(text) if text.starts_with("data:") => {}
        Value::String(text) => {
            into.push_str(text);
            into.push('\n');
        }
        Value::Array(values) => values.iter().for_each(|one| gather(one, into)),
        Value::Object(fields) => fields.values().for_each(|one| gather(one, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn count_long(text: &str) -> u32 {
    let mut end = text.len().min(MOST_COUNTED);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    scaled(count(&text[..end]), end, text.len())
}

fn scaled(tokens: u32, counted: usize, whole: usize) -> u32 {
    if counted == 0 || counted == whole {
        return tokens;
    }
    let scaled = u128::from(tokens) * whole as u128 / counted as u128;
    u32::try_from(scaled).unwrap_or(u32::MAX)
}

fn count(text: &str) -> u32 {
    u32::try_from(bpe_openai::o200k_base().count(text)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{MOST_COUNTED, Output, count, count_long};
    use crate::protocol::job::{Channel, Event, TokenEvent, ToolCallEvent};

    fn token(channel: Channel, text: &str) -> Event {
        Event::Token(TokenEvent {
            channel,
            text: text.to_owned(),
            ..TokenEvent::default()
        })
    }

    #[test]
    fn content_reasoning_and_calls_are_counted_and_progress_is_not() {
        let mut output = Output::default();
        output.note(&token(Channel::Reasoning, "let me see. "));
        output.note(&token(Channel::Content, "hello world"));
        output.note(&Event::Progress { percent: 3 });
        output.note(&Event::ToolCall(ToolCallEvent {
            name: Some(String::from("look_up")),
            arguments: String::from("{\"a\":1}"),
            ..ToolCallEvent::default()
        }));
        let expected = count("let me see. hello worldlook_up{\"a\":1}");
        assert_eq!(output.count(), expected);
        assert!((10..20).contains(&expected), "{expected}");
    }

    #[test]
    fn a_text_of_many_megabytes_is_taken_to_be_like_its_beginning() {
        let text = "many words ".repeat(MOST_COUNTED / 11 * 3);
        let tokens = count_long(&text);
        let expected = text.len() as u32 / 11 * 2;
        assert!(
            tokens.abs_diff(expected) < 10,
            "{tokens} against {expected}"
        );
    }
}
