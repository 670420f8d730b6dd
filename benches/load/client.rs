//! Clients that cost little: one kept connection each, requests written as bytes, replies read to their end.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::MODEL;
use crate::service::Service;

pub struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
    streaming: bool,
}

/// What one reply was.
pub struct Reply {
    pub first: Duration,
    /// Events that carried text.
    pub events: usize,
}

impl Client {
    pub async fn connect(service: &Service, streaming: bool) -> Self {
        let stream = TcpStream::connect(service.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let body = json!({
            "model": MODEL, "stream": streaming,
            "messages": [{ "role": "user", "content": "Say something about the weather, please." }],
        })
        .to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            service.key,
            body.len()
        );
        Self {
            stream,
            request: request.into_bytes(),
            buffer: vec![0; 1 << 16],
            streaming,
        }
    }

    /// Asks once and reads the reply whole.
    pub async fn ask(&mut self) -> Reply {
        let began = Instant::now();
        self.stream.write_all(&self.request).await.unwrap();
        match self.streaming {
            true => self.read_stream(began).await,
            false => self.read_whole(began).await,
        }
    }

    async fn read_whole(&mut self, began: Instant) -> Reply {
        let mut filled = 0;
        loop {
            filled += self.read(filled).await;
            let seen = &self.buffer[..filled];
            if let Some(end) = whole(seen) {
                assert!(
                    seen.starts_with(b"HTTP/1.1 200"),
                    "{}",
                    String::from_utf8_lossy(&seen[..end.min(filled)])
                );
                if filled >= end {
                    return Reply {
                        first: began.elapsed(),
                        events: 1,
                    };
                }
            }
        }
    }

    /// Counts events as they pass; keeps only the last bytes, in which the end may be cut.
    async fn read_stream(&mut self, began: Instant) -> Reply {
        const KEPT: usize = 16;
        let mut first = None;
        let (mut kept, mut events, mut is_first_read) = (0, 0, true);
        loop {
            let read = self.read(kept).await;
            let seen = &self.buffer[..kept + read];
            if is_first_read {
                assert!(
                    seen.starts_with(b"HTTP/1.1 200"),
                    "{}",
                    String::from_utf8_lossy(seen)
                );
                is_first_read = false;
            }
            // An event cut in two is found in the second half only.
            events += count(seen, b" word\"") - count(&seen[..kept], b" word\"");
            if events > 0 {
                first.get_or_insert_with(|| began.elapsed());
            }
            if seen.ends_with(b"0\r\n\r\n") {
                return Reply {
                    first: first.unwrap_or_else(|| began.elapsed()),
                    events,
                };
            }
            let from = seen.len().saturating_sub(KEPT);
            let length = seen.len() - from;
            self.buffer.copy_within(from..from + length, 0);
            kept = length;
        }
    }

    async fn read(&mut self, at: usize) -> usize {
        let read = self.stream.read(&mut self.buffer[at..]).await.unwrap();
        assert!(read > 0, "the service hung up");
        read
    }
}

/// Where a reply with a length ends.
pub fn whole(seen: &[u8]) -> Option<usize> {
    let head = find(seen, b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&seen[..head])
        .unwrap()
        .to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))?;
    Some(head + length.trim().parse::<usize>().unwrap())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

fn count(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes
        .windows(wanted.len())
        .filter(|window| *window == wanted)
        .count()
}
