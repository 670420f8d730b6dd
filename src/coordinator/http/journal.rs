//! The journal of a streamed text, by which another coordinator continues the reply when the leader is lost. The node
//! that has the client asks for it. Each frame of the reply's body then comes with the events of its jobs, in the form
//! of the worker link, and the node keeps them until the reply ends.

use std::sync::Arc;

use axum::http::HeaderName;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::dispatch::BegunOutput;
use muster_protocol::job::{Event, JobId, RequestId, UnixMillis};
use muster_protocol::link::{About, Done, FromWorker, write_tokens};
use muster_protocol::openai::chat::Ending;

/// In a request of a node: its id; the reply may have a journal. In the reply: it has one.
pub const JOURNAL: HeaderName = HeaderName::from_static("muster-journal");
/// In a request of a node: so many bytes of the body are the journal of a reply to continue; the client's body follows.
pub const CONTINUES: HeaderName = HeaderName::from_static("muster-continues");
/// In a request of a node: an earlier leader was lost with it, and the client has nothing of a reply.
pub const REPEATS: HeaderName = HeaderName::from_static("muster-repeats");

/// Limit of a journal that is kept: the longest output that dispatch keeps, with its frames.
pub const MOST_JOURNAL: usize = 16 << 20;
/// The lengths before the parts of a frame.
const LENGTHS: usize = 8;
/// Limit of the parts of a frame.
const MOST_PART: usize = MOST_JOURNAL;

/// A request that its node may send to another coordinator, if this one is lost.
#[derive(Debug, Clone, Default)]
pub struct JournaledRequest {
    /// The same at every coordinator; `None` from nodes of earlier versions.
    pub id: Option<RequestId>,
    /// An earlier coordinator was lost with the request, which is not run again if that has settled it.
    pub is_repeated: bool,
    /// The reply so far, if an earlier coordinator began it.
    pub continues: Option<Arc<Journal>>,
}

impl JournaledRequest {
    /// The request of a client, before any coordinator gets it.
    pub fn first() -> Self {
        Self {
            id: Some(RequestId::random()),
            ..Self::default()
        }
    }

    pub fn continuing(journal: Journal) -> Self {
        Self {
            id: Some(journal.head.request),
            is_repeated: false,
            continues: Some(Arc::new(journal)),
        }
    }
}

/// Facts of the reply that do not follow from its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalHead {
    pub request: RequestId,
    pub created: UnixMillis,
    pub model: Arc<str>,
    pub seed: u64,
    /// A job for each choice.
    pub jobs: Vec<JobId>,
}

/// The reply that the client has received.
#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    pub head: JournalHead,
    /// The choice, and what happened to it, in order.
    pub entries: Vec<(u32, JournalEntry)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum JournalEntry {
    Event(Event),
    End(Ending),
}

/// Writes the journal of a reply.
#[derive(Debug)]
pub struct JournalWriter {
    jobs: Vec<JobId>,
    /// Entries since the last frame.
    text: String,
}

/// Reads the frames of a body with a journal.
#[derive(Debug, Default)]
pub struct FrameReader(BytesMut);

/// A frame: the entries behind it, and bytes for the client.
#[derive(Debug, PartialEq, Eq)]
pub struct JournaledFrame {
    pub journal: Bytes,
    pub data: Bytes,
}

/// The body is not a row of frames.
#[derive(Debug, PartialEq, Eq)]
pub struct NoFrame;

/// A line without entries: an event that no journal can hold.
const OPAQUE: &str = "opaque";

impl JournalWriter {
    /// `is_begun`: the head is in the part of the journal that the node has.
    pub fn new(head: &JournalHead, is_begun: bool) -> Self {
        let mut text = String::new();
        if !is_begun {
            text = json!({
                "request": head.request,
                "created": head.created.0,
                "model": head.model,
                "seed": head.seed,
                "jobs": head.jobs,
            })
            .to_string();
            text.push('\n');
        }
        Self {
            jobs: head.jobs.clone(),
            text,
        }
    }

    pub fn note(&mut self, choice: u32, event: &Event) {
        let Some(about) = self.about(choice) else {
            return;
        };
        match event {
            Event::Started {
                prompt_tokens,
                cached_tokens,
            } => FromWorker::Started {
                about,
                prompt_tokens: *prompt_tokens,
                cached_tokens: *cached_tokens,
            }
            .write_into(&mut self.text),
            Event::Token(_) | Event::ToolCall(_) => {
                write_tokens(about, std::slice::from_ref(event), &mut self.text);
            }
            Event::Prompt(prompt) => FromWorker::Prompt {
                about,
                prompt: prompt.clone(),
            }
            .write_into(&mut self.text),
            Event::Usage(usage) => FromWorker::Usage {
                about,
                usage: *usage,
            }
            .write_into(&mut self.text),
            // Progress of texts, which no reply shows.
            Event::Progress(_) => return,
            Event::Restarted
            | Event::Preview { .. }
            | Event::Media(_)
            | Event::Note(_)
            | Event::Part(_)
            | Event::Done { .. }
            | Event::Failed(_) => self.text.push_str(OPAQUE),
        }
        self.text.push('\n');
    }

    pub fn end(&mut self, choice: u32, ending: &Ending) {
        let Some(about) = self.about(choice) else {
            return;
        };
        let done = Done {
            about,
            full_text: None,
            full_reasoning: None,
            finish: Some(ending.finish.clone()),
            usage: Some(ending.usage),
            cancelled: false,
            full_json: None,
            results: Vec::new(),
        };
        FromWorker::Done(Box::new(done)).write_into(&mut self.text);
        self.text.push('\n');
    }

    /// A frame of the body with the entries so far.
    pub fn frame(&mut self, data: &[u8]) -> Bytes {
        let journal = std::mem::take(&mut self.text);
        let mut frame = BytesMut::with_capacity(LENGTHS + journal.len() + data.len());
        for part in [journal.as_bytes(), data] {
            // Both are far below 4 GiB.
            frame.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
        }
        frame.put_slice(journal.as_bytes());
        frame.put_slice(data);
        frame.freeze()
    }

    fn about(&self, choice: u32) -> Option<About> {
        let job = *self.jobs.get(choice as usize)?;
        Some(About::attempt(job, 1))
    }
}

impl FrameReader {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` until its bytes are there.
    pub fn frame(&mut self) -> Result<Option<JournaledFrame>, NoFrame> {
        let Some(mut lengths) = self.0.get(..LENGTHS) else {
            return Ok(None);
        };
        let (journal, data) = (lengths.get_u32() as usize, lengths.get_u32() as usize);
        if journal > MOST_PART || data > MOST_PART {
            return Err(NoFrame);
        }
        if self.0.len() < LENGTHS + journal + data {
            return Ok(None);
        }
        self.0.advance(LENGTHS);
        Ok(Some(JournaledFrame {
            journal: self.0.split_to(journal).freeze(),
            data: self.0.split_to(data).freeze(),
        }))
    }
}

impl Journal {
    /// `None` unless every line can be read, so that nothing is missing in the continued reply.
    pub fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let head = JournalHead::read(lines.next()?)?;
        let mut entries = Vec::new();
        for line in lines {
            let frame = FromWorker::parse(line).ok()?;
            let job = frame.about()?.job;
            let choice = head.jobs.iter().position(|of_choice| *of_choice == job)?;
            let choice = u32::try_from(choice).ok()?;
            let mut add = |event| entries.push((choice, JournalEntry::Event(event)));
            match frame {
                FromWorker::Started {
                    prompt_tokens,
                    cached_tokens,
                    ..
                } => add(Event::Started {
                    prompt_tokens,
                    cached_tokens,
                }),
                FromWorker::Output(output) => output.events.into_iter().for_each(add),
                FromWorker::Prompt { prompt, .. } => add(Event::Prompt(prompt)),
                FromWorker::Usage { usage, .. } => add(Event::Usage(usage)),
                FromWorker::Done(done) => {
                    let (finish, usage) = (done.finish?, done.usage?);
                    entries.push((choice, JournalEntry::End(Ending { finish, usage })));
                }
                _ => return None,
            }
        }
        Some(Self { head, entries })
    }

    /// Whether the choice has ended.
    pub fn has_ended(&self, choice: u32) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|(of, entry)| *of == choice && matches!(entry, JournalEntry::End(_)))
    }

    /// The output of a choice.
    pub fn output(&self, choice: u32) -> BegunOutput {
        let of_choice = self.entries.iter().filter(|(of, _)| *of == choice);
        of_choice
            .filter_map(|(_, entry)| match entry {
                JournalEntry::Event(event) => Some(event.clone()),
                JournalEntry::End(_) => None,
            })
            .collect()
    }
}

impl JournalHead {
    fn read(line: &str) -> Option<Self> {
        let mut head: Value = serde_json::from_str(line).ok()?;
        Some(Self {
            request: taken(&mut head, "request")?,
            created: UnixMillis(taken(&mut head, "created")?),
            model: taken::<String>(&mut head, "model")?.into(),
            seed: taken(&mut head, "seed")?,
            jobs: taken(&mut head, "jobs")?,
        })
    }
}

fn taken<T: DeserializeOwned>(object: &mut Value, name: &str) -> Option<T> {
    serde_json::from_value(object.get_mut(name)?.take()).ok()
}

#[cfg(test)]
mod tests {
    use muster_protocol::job::{
        Channel, Event, FinishReason, JobId, PromptLogprobs, PromptToken, RequestId, TokenEvent,
        TokenLogprob, ToolCallEvent, UnixMillis, Usage,
    };
    use muster_protocol::openai::chat::Ending;

    use super::{
        FrameReader, Journal, JournalEntry, JournalHead, JournalWriter, MOST_PART, NoFrame,
    };

    fn head() -> JournalHead {
        JournalHead {
            request: RequestId::random(),
            created: UnixMillis(1_790_000_000_123),
            model: "a \"model\"\n".into(),
            seed: (1 << 53) - 1,
            jobs: vec![JobId::random(), JobId::random()],
        }
    }

    fn usage() -> Usage {
        Usage {
            prompt_tokens: 7,
            cached_tokens: 1,
            completion_tokens: 3,
            reasoning_tokens: 2,
        }
    }

    fn entries() -> Vec<(u32, JournalEntry)> {
        let logprob = TokenLogprob {
            bytes: vec![0xe4, 0xb8],
            logprob: -0.25,
            top: vec![(b"a".to_vec(), -1.5)],
        };
        let started = Event::Started {
            prompt_tokens: 7,
            cached_tokens: 1,
        };
        let prompt = Event::Prompt(PromptLogprobs {
            start: 2,
            tokens: vec![PromptToken {
                bytes: b"x".to_vec(),
                logprob: Some(-0.5),
                top: Vec::new(),
            }],
        });
        let thought = Event::Token(TokenEvent {
            channel: Channel::Reasoning,
            text: "a line\nand \"another\" 世".to_owned(),
            ids: vec![5, 6],
            logprobs: vec![logprob],
        });
        let call = Event::ToolCall(ToolCallEvent {
            index: 1,
            id: Some("call_1".to_owned()),
            name: Some("look".to_owned()),
            arguments: "{\"at\":".to_owned(),
            ids: vec![9],
        });
        let silent = Event::Token(TokenEvent {
            ids: vec![3],
            ..TokenEvent::default()
        });
        let end = JournalEntry::End(Ending {
            finish: FinishReason::StopString("\n\n".into()),
            usage: usage(),
        });
        let event = JournalEntry::Event;
        vec![
            (0, event(started)),
            (0, event(prompt)),
            (1, event(thought)),
            (0, event(call)),
            (0, event(silent)),
            (1, end),
            (0, event(Event::Usage(usage()))),
        ]
    }

    fn write(writer: &mut JournalWriter, entry: &(u32, JournalEntry)) {
        match entry {
            (choice, JournalEntry::Event(event)) => writer.note(*choice, event),
            (choice, JournalEntry::End(ending)) => writer.end(*choice, ending),
        }
    }

    #[test]
    fn a_journal_is_read_as_it_was_written_however_its_frames_are_cut() {
        let (head, entries) = (head(), entries());
        let mut writer = JournalWriter::new(&head, false);
        let mut body = Vec::new();
        for (number, entry) in entries.iter().enumerate() {
            write(&mut writer, entry);
            body.extend(writer.frame(format!("data {number}").as_bytes()));
        }
        for size in [1, 3, 7, 64, 4096] {
            let (mut reader, mut journal, mut data) =
                (FrameReader::default(), Vec::new(), Vec::new());
            for piece in body.chunks(size) {
                reader.push(piece);
                while let Some(frame) = reader.frame().unwrap() {
                    journal.extend(frame.journal);
                    data.extend(frame.data);
                }
            }
            assert_eq!(data, b"data 0data 1data 2data 3data 4data 5data 6");
            let read = Journal::read(std::str::from_utf8(&journal).unwrap()).unwrap();
            assert_eq!((&read.head, &read.entries), (&head, &entries));
            assert!(read.has_ended(1) && !read.has_ended(0));
            assert_eq!((read.output(0).len(), read.output(1).len()), (5, 1));
        }
    }

    #[test]
    fn a_journal_with_a_gap_is_none() {
        let head = head();
        let mut writer = JournalWriter::new(&head, false);
        writer.note(0, &Event::Restarted);
        let frame = writer.frame(b"");
        let text = String::from_utf8_lossy(&frame[8..]).into_owned();
        assert_eq!(Journal::read(&text), None);
        let whole = text.lines().next().unwrap();
        assert!(Journal::read(whole).is_some());
        for broken in ["", "{}", &whole[..whole.len() - 1], &format!("{whole}\n{{")] {
            assert_eq!(Journal::read(broken), None, "{broken}");
        }
    }

    #[test]
    fn frames_of_absurd_sizes_are_refused() {
        let mut reader = FrameReader::default();
        let most = u32::try_from(MOST_PART).unwrap() + 1;
        reader.push(&most.to_be_bytes());
        assert_eq!(reader.frame(), Ok(None));
        reader.push(&0_u32.to_be_bytes());
        assert_eq!(reader.frame(), Err(NoFrame));
    }
}
