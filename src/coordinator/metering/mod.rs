//! Token counts of jobs, by the coordinator itself: a worker's own count is never trusted alone. Every job is counted
//! once, at its end, with one tokenizer for all models (o200k). Long counts run on a compute thread; tokens on their
//! way to clients never wait for it. A second count is the public network's, a fourth of the characters, by which
//! polling workers are paid.

mod o200k;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use self::o200k::O200k;
use crate::secrets::is_data_url;
use muster_process::tasks::Tasks;
use muster_protocol::job::written::MOST_KEPT;
use muster_protocol::job::{Body, Event, Job, ResultPart, TextInput, Usage};

/// Of longer texts only the beginning is counted and extrapolated. Stored texts are counted in full.
const MOST_COUNTED: usize = MOST_KEPT;
/// Shorter texts are counted at once, in some ten microseconds.
const SHORT: usize = 1 << 10;
/// Longer texts are queued separately, so that they do not delay other jobs.
const LARGE: usize = 64 << 10;
/// Bytes per token in the job's minimum estimate.
const BYTES_PER_TOKEN: usize = 6;
/// Queued counts. Beyond it, callers wait.
const WAITING: usize = 1024;
/// Counts per batch.
const BATCH: usize = 256;

/// Tokens of the prompt and of the relayed output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// A fourth of the counted characters.
    pub prompt_quarter: u32,
    pub output_quarter: u32,
    /// Trust in the counts of the last worker.
    pub belief: Belief,
    /// Milliseconds with a transcript, if the job ended early. Then the transcript so far counts, whatever the worker
    /// reports.
    pub heard_millis: Option<u64>,
}

/// How much of a worker's own counts is trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Belief {
    /// Other software on an untrusted machine may use another tokenizer, or count nothing.
    #[default]
    Nothing,
    /// Our software on an untrusted machine: up to one and a half times the count here.
    Bounded,
    /// A worker of the operator, or of a trusted account.
    Whole,
}

impl Belief {
    /// For a socket worker.
    pub fn of(is_trusted: bool, is_public: bool) -> Self {
        match (is_trusted, is_public) {
            (true, _) => Self::Whole,
            (false, false) => Self::Bounded,
            (false, true) => Self::Nothing,
        }
    }

    fn tokens(self, said: u32, ours: u32) -> u32 {
        match self {
            Self::Nothing => ours,
            Self::Bounded => said.min(ours.saturating_add(ours.div_ceil(2))),
            Self::Whole => said,
        }
    }
}

/// Output so far: content, reasoning, names and arguments of calls.
#[derive(Debug, Default)]
pub struct Output {
    text: Text,
    /// End of a transcript's last segment, in seconds.
    heard_until: f64,
    is_cut_off: bool,
}

/// The beginning of a text, and its whole length.
#[derive(Debug, Default)]
struct Text {
    beginning: String,
    bytes: usize,
    characters: usize,
}

/// Counts tokens, one batch after the other.
#[derive(Debug, Clone)]
pub struct Meter {
    small: mpsc::Sender<Question>,
    large: mpsc::Sender<Question>,
}

#[derive(Debug)]
struct Question {
    job: Arc<Job>,
    output: Output,
    belief: Belief,
    answer: oneshot::Sender<Counted>,
}

impl Output {
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Token(token) => self.text.push(&token.text),
            Event::ToolCall(call) => {
                self.text.push(call.name.as_deref().unwrap_or_default());
                self.text.push(&call.arguments);
            }
            Event::Part(result) => {
                if let ResultPart::Transcript(part) = &**result {
                    let ends = part.segments.iter().map(|segment| segment.end);
                    self.heard_until = ends.fold(self.heard_until, f64::max);
                }
            }
            Event::Restarted => *self = Self::default(),
            _ => {}
        }
    }

    /// The job ended early: of an audio file only the part with a transcript counts.
    pub fn cut_off(&mut self) {
        self.is_cut_off = true;
    }

    fn heard_millis(&self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time is never negative, and far below 2^53 ms"
        )]
        let millis = (self.heard_until.max(0.0) * 1000.0).ceil() as u64;
        millis
    }

    /// The text, or the beginning of a long one.
    pub fn text(&self) -> &str {
        &self.text.beginning
    }
}

impl Text {
    fn push(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len());
        self.characters = self.characters.saturating_add(text.chars().count());
        let mut end = text
            .len()
            .min(MOST_COUNTED.saturating_sub(self.beginning.len()));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.beginning.push_str(&text[..end]);
    }

    fn quarter(&self) -> u32 {
        u32::try_from(self.characters.div_ceil(4)).unwrap_or(u32::MAX)
    }

    fn count(&self) -> u32 {
        let (tokens, counted) = (count(&self.beginning), self.beginning.len());
        if counted == 0 || counted == self.bytes {
            return tokens;
        }
        let scaled = u128::from(tokens) * self.bytes as u128 / counted as u128;
        u32::try_from(scaled).unwrap_or(u32::MAX)
    }
}

impl Meter {
    pub fn start(tasks: &Tasks) -> Self {
        let lane = || {
            let (questions, waiting) = mpsc::channel(WAITING);
            tasks.start(answer_all(waiting));
            questions
        };
        Self {
            small: lane(),
            large: lane(),
        }
    }

    /// Zero if the process is shutting down.
    pub async fn count(&self, job: Arc<Job>, output: Output, belief: Belief) -> Counted {
        if is_short(&job, &output) && TABLES.get().is_some() {
            // After a panic it is uncounted and unpaid.
            let count = AssertUnwindSafe(|| Counted::of(&job, &output, belief));
            return catch_unwind(count).unwrap_or_default();
        }
        let (answer, counted) = oneshot::channel();
        let question = Question {
            job,
            output,
            belief,
            answer,
        };
        let lane = match question.is_large() {
            true => &self.large,
            false => &self.small,
        };
        if lane.send(question).await.is_err() {
            return Counted::default();
        }
        counted.await.unwrap_or_default()
    }
}

/// Tokens of a job's prompt, counted as at its end.
pub async fn count_of_prompt(job: Arc<Job>) -> u32 {
    if is_short(&job, &Output::default()) && TABLES.get().is_some() {
        return count_prompt(&job.body, &Output::default()).0;
    }
    let counting = spawn_blocking(move || count_prompt(&job.body, &Output::default()).0);
    // After a panic it is uncounted.
    counting.await.unwrap_or_default()
}

/// Loads the tables on another thread, which takes a while.
pub fn warm_up() {
    spawn_blocking(|| count(""));
}

async fn answer_all(mut waiting: mpsc::Receiver<Question>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let questions = std::mem::take(&mut batch);
        // After a panic these are uncounted and unpaid.
        let _ = spawn_blocking(move || questions.into_iter().for_each(Question::answer)).await;
    }
}

/// Stops as soon as the text is too long.
fn is_short(job: &Job, output: &Output) -> bool {
    let Some(mut left) = SHORT.checked_sub(output.text.bytes) else {
        return false;
    };
    match &job.body {
        Body::Text(request) => match &request.input {
            TextInput::Tokens(_) => true,
            TextInput::Prompt(prompt) => prompt.len() <= left,
            TextInput::Chat(chat) => {
                let mut messages = chat.messages.iter();
                chat.tools.is_empty() && messages.all(|message| fits(message, &mut left))
            }
        },
        body => !(body.brings_values() && body.is_computed()) || body.read_bytes() <= left,
    }
}

/// Whether the message's texts, and one byte per value, fit into `left`.
fn fits(value: &Value, left: &mut usize) -> bool {
    let bytes = match value {
        Value::String(text) => text.len(),
        _ => 0,
    };
    let rest = left.checked_sub(bytes + 1);
    *left = rest.unwrap_or(0);
    rest.is_some()
        && match value {
            Value::Array(values) => values.iter().all(|one| fits(one, left)),
            Value::Object(fields) => fields.values().all(|one| fits(one, left)),
            _ => true,
        }
}

impl Counted {
    fn of(job: &Job, output: &Output, belief: Belief) -> Self {
        let (prompt_tokens, prompt_quarter) = count_prompt(&job.body, output);
        Self {
            prompt_tokens,
            output_tokens: output.text.count(),
            prompt_quarter,
            output_quarter: output.text.quarter(),
            belief,
            heard_millis: (output.is_cut_off && job.body.transcribed_millis().is_some())
                .then(|| output.heard_millis()),
        }
    }

    /// The usage that the client sees and the account pays: the worker's counts as far as trusted, else those counted
    /// here.
    pub fn usage(self, said: Option<Usage>) -> Usage {
        let Some(said) = said else {
            return Usage {
                prompt_tokens: self.prompt_tokens,
                completion_tokens: self.output_tokens,
                ..Usage::default()
            };
        };
        let prompt_tokens = match self.heard_millis {
            Some(_) => self.prompt_tokens,
            None => self.belief.tokens(said.prompt_tokens, self.prompt_tokens),
        };
        let completion_tokens = self
            .belief
            .tokens(said.completion_tokens, self.output_tokens);
        Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens: said.cached_tokens.min(prompt_tokens),
            reasoning_tokens: said.reasoning_tokens.min(completion_tokens),
        }
    }
}

impl Question {
    /// An estimate without looking at the prompt.
    fn is_large(&self) -> bool {
        let prompt = self.job.limits.prompt_tokens as usize;
        prompt.saturating_mul(BYTES_PER_TOKEN) > LARGE || self.output.text.bytes > LARGE
    }

    fn answer(self) {
        let counted = Counted::of(&self.job, &self.output, self.belief);
        // The caller may be gone.
        let _ = self.answer.send(counted);
    }
}

/// The prompt's tokens, and a fourth of its characters.
fn count_prompt(body: &Body, output: &Output) -> (u32, u32) {
    let (mut text, mut tokens) = (Text::default(), 0_usize);
    match body {
        Body::Text(request) => gather_input(&request.input, &mut text, &mut tokens),
        Body::Embedding(request) => request
            .inputs
            .iter()
            .for_each(|input| gather_input(input, &mut text, &mut tokens)),
        Body::Ranking(request) => request.documents.iter().for_each(|document| {
            text.push(&request.query);
            text.push(document);
        }),
        Body::Transcription(transcript) => {
            transcript
                .prompt
                .iter()
                .for_each(|prompt| text.push(prompt));
            let positions = match output.is_cut_off {
                true => transcript.tokens_until(output.heard_until),
                false => transcript.tokens(),
            };
            tokens += usize::try_from(positions).unwrap_or(usize::MAX);
        }
        // Characters, not tokens of a text model.
        Body::Speech(speech) => {
            tokens += usize::try_from(speech.tokens()).unwrap_or(usize::MAX);
        }
        // Tokenized texts are free, and files are not priced by tokens.
        _ => {}
    }
    let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
    (
        text.count().saturating_add(tokens),
        text.quarter().saturating_add(tokens),
    )
}

fn gather_input(input: &TextInput, text: &mut Text, tokens: &mut usize) {
    match input {
        TextInput::Tokens(ids) => *tokens += ids.len(),
        TextInput::Prompt(prompt) => text.push(prompt),
        TextInput::Chat(chat) => {
            chat.messages
                .iter()
                .for_each(|message| gather(message, text));
            chat.tools
                .iter()
                .for_each(|tool| text.push(&tool.to_string()));
        }
    }
}

/// Gathers the texts of a message: its strings, without inline files.
fn gather(value: &Value, into: &mut Text) {
    match value {
        Value::String(text) if is_data_url(text) => {}
        Value::String(text) => {
            into.push(text);
            into.push("\n");
        }
        Value::Array(values) => values.iter().for_each(|one| gather(one, into)),
        Value::Object(fields) => fields.values().for_each(|one| gather(one, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Set once loaded.
static TABLES: OnceLock<O200k> = OnceLock::new();

fn count(text: &str) -> u32 {
    let tables = TABLES.get_or_init(O200k::load);
    u32::try_from(tables.count(text)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MOST_COUNTED, Output, SHORT, Text, count, count_prompt, fits};
    use muster_protocol::job::{
        Body, Channel, Event, Progress, ResultPart, TokenEvent, ToolCallEvent, Transcript,
        TranscriptSegment, TranscriptionRequest,
    };

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
        output.note(&Event::Progress(Progress::percent(3)));
        output.note(&Event::ToolCall(ToolCallEvent {
            name: Some(String::from("look_up")),
            arguments: String::from("{\"a\":1}"),
            ..ToolCallEvent::default()
        }));
        let expected = count("let me see. hello worldlook_up{\"a\":1}");
        assert_eq!(output.text.count(), expected);
        assert!((10..20).contains(&expected), "{expected}");
    }

    #[test]
    fn a_transcript_that_is_cut_off_counts_up_to_its_last_segment() {
        let request = TranscriptionRequest {
            seconds: 60.0,
            ..TranscriptionRequest::default()
        };
        let body = Body::from(request);
        let mut output = Output::default();
        for (start, end) in [(0.0, 4.5), (4.5, 12.25)] {
            let segment = TranscriptSegment {
                start,
                end,
                ..TranscriptSegment::default()
            };
            let part = Transcript {
                segments: vec![segment],
                ..Transcript::default()
            };
            output.note(&Event::Part(Box::new(ResultPart::Transcript(Box::new(
                part,
            )))));
        }
        assert_eq!(count_prompt(&body, &output).0, 3000);
        output.cut_off();
        assert_eq!(count_prompt(&body, &output).0, 613);
        output.note(&Event::Restarted);
        output.cut_off();
        assert_eq!(count_prompt(&body, &output).0, 0);
    }

    #[test]
    fn whatever_of_a_message_is_counted_is_looked_at_before_it_is_called_short() {
        let fits = |message| {
            let mut left = SHORT;
            fits(&message, &mut left)
        };
        assert!(fits(json!({"role": "user", "content": "hello"})));
        let long = "x".repeat(SHORT);
        assert!(!fits(json!({"role": "user", "content": long})));
        assert!(!fits(
            json!({"role": "assistant", "tool_calls": [{"id": long}]})
        ));
        assert!(!fits(json!({"content": vec![""; SHORT]})));
    }

    #[test]
    fn a_text_of_many_megabytes_is_taken_to_be_like_its_beginning() {
        let (mut text, words) = (Text::default(), "many words ".repeat(1000));
        (0..MOST_COUNTED / 11_000 * 3).for_each(|_| text.push(&words));
        assert_eq!(text.beginning.len(), MOST_COUNTED);
        let tokens = text.count();
        let expected = text.bytes as u32 / 11 * 2;
        assert!(
            tokens.abs_diff(expected) < expected / 1000,
            "{tokens} against {expected}"
        );
    }
}
