//! A reply that comes line by line: server-sent events, or one JSON document on each line.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;
use tokio::time::timeout;

use super::UpstreamError;
use super::client::failed;

/// Bytes of a line.
const LONGEST_LINE: usize = 8 << 20;
/// Limit of a reply: a text of a million tokens, each in a separate event.
const LARGEST_REPLY: usize = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineForm {
    Events,
    Json,
    /// A complete document, from programs that do not stream.
    Whole,
}

pub struct ReplyLines {
    reply: Response,
    form: LineForm,
    silence: Duration,
    buffer: LineBuffer,
}

/// Bytes that were received and not parsed yet.
#[derive(Debug, Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes that were searched for the end of a line.
    searched: usize,
    /// Bytes of the reply so far.
    total: usize,
    is_over: bool,
}

/// A line with content.
#[derive(Debug, PartialEq)]
pub enum ReplyLine {
    Document(Value),
    /// `[DONE]`.
    End,
}

impl ReplyLines {
    pub fn new(reply: Response, form: LineForm, silence: Duration) -> Self {
        Self {
            reply,
            form,
            silence,
            buffer: LineBuffer::default(),
        }
    }

    /// The next line with content; `None` at the end of the reply.
    pub async fn next(&mut self) -> Result<Option<ReplyLine>, UpstreamError> {
        loop {
            while let Some(line) = self.buffer.line(self.form) {
                if let Some(line) = read(&line, self.form)? {
                    return Ok(Some(line));
                }
            }
            if self.buffer.is_over {
                return Ok(None);
            }
            let chunk = timeout(self.silence, self.reply.chunk()).await;
            let chunk = chunk.map_err(|_| UpstreamError::Silent(self.silence))?;
            self.buffer
                .add(chunk.map_err(|error| failed(&error))?.as_deref())?;
        }
    }
}

impl LineBuffer {
    /// `None` is the end of the reply.
    fn add(&mut self, chunk: Option<&[u8]>) -> Result<(), UpstreamError> {
        let Some(chunk) = chunk else {
            self.is_over = true;
            return Ok(());
        };
        self.total += chunk.len();
        if self.bytes.len() + chunk.len() > LONGEST_LINE || self.total > LARGEST_REPLY {
            return Err(UpstreamError::Failed("its reply is too large".to_owned()));
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// The next whole line, or the rest at the end of the reply.
    fn line(&mut self, form: LineForm) -> Option<Vec<u8>> {
        let fresh = &self.bytes[self.searched..];
        let end = match form {
            LineForm::Whole => None,
            LineForm::Events | LineForm::Json => fresh.iter().position(|byte| *byte == b'\n'),
        };
        match end {
            Some(end) => {
                let line = self.bytes.drain(..=self.searched + end).collect();
                self.searched = 0;
                Some(line)
            }
            None => {
                self.searched = self.bytes.len();
                let rest = self.is_over && !self.bytes.is_empty();
                rest.then(|| {
                    self.searched = 0;
                    std::mem::take(&mut self.bytes)
                })
            }
        }
    }
}

/// `None` for a line without content: an empty one, a comment, the name of an event.
fn read(line: &[u8], form: LineForm) -> Result<Option<ReplyLine>, UpstreamError> {
    let line = line.trim_ascii();
    let data = match form {
        LineForm::Events => match line.strip_prefix(b"data:") {
            Some(data) => data.trim_ascii(),
            None => return Ok(None),
        },
        LineForm::Json | LineForm::Whole => line,
    };
    match data {
        b"" => Ok(None),
        b"[DONE]" => Ok(Some(ReplyLine::End)),
        data => match serde_json::from_slice(data) {
            Ok(document) => Ok(Some(ReplyLine::Document(document))),
            Err(_) => Err(UpstreamError::Failed(
                "its reply has a line that is not JSON".to_owned(),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{LONGEST_LINE, LineBuffer, LineForm, ReplyLine, read};

    fn all(parts: &[&str], form: LineForm) -> Vec<ReplyLine> {
        let mut buffer = LineBuffer::default();
        let mut found = Vec::new();
        let parts = parts.iter().map(|part| Some(part.as_bytes()));
        for part in parts.chain([None]) {
            buffer.add(part).unwrap();
            while let Some(line) = buffer.line(form) {
                found.extend(read(&line, form).unwrap());
            }
        }
        found
    }

    #[test]
    fn lines_are_those_of_the_reply_however_it_is_cut() {
        let text =
            ": ping\r\n\r\nevent: x\ndata: {\"a\":1}\r\n\r\ndata:{\"a\":2}\n\ndata: [DONE]\n\n";
        let wanted = || {
            vec![
                ReplyLine::Document(json!({"a": 1})),
                ReplyLine::Document(json!({"a": 2})),
                ReplyLine::End,
            ]
        };
        for at in 0..text.len() {
            let (one, two) = text.split_at(at);
            assert_eq!(all(&[one, two], LineForm::Events), wanted(), "{at}");
        }
        let lines = ["{\"a\":1}\n{\"a\"", ":2}"];
        assert_eq!(all(&lines, LineForm::Json), wanted()[..2]);
        assert_eq!(
            all(&["{\n\"a\":", "1\n}\n"], LineForm::Whole),
            wanted()[..1]
        );
    }

    #[test]
    fn what_is_no_json_or_too_long_is_refused() {
        assert!(read(b"data: <html>", LineForm::Events).is_err());
        let mut buffer = LineBuffer::default();
        let chunk = vec![b'x'; LONGEST_LINE];
        assert!(buffer.add(Some(&chunk)).is_ok());
        assert!(buffer.add(Some(b"x")).is_err());
    }
}
