//! The bytes of one file, by several ranges at a time, into its part.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use parking_lot::Mutex;
use reqwest::StatusCode;
use tokio_util::sync::CancellationToken;

use super::{
    client::text,
    disk,
    error::HubError,
    part::Part,
    progress::Event,
    remote::{Line, RemoteFile},
    retry::{Backoff, Trouble},
};

/// Limits of buffered bytes and of their age before a write.
const BUFFER_BYTES: usize = 1024 * 1024;
const BUFFER_AGE: Duration = Duration::from_millis(500);

pub struct Download<'a> {
    pub line: Line<'a>,
    pub file: &'a RemoteFile,
    pub part: &'a Part,
    pub connections: usize,
    pub piece_bytes: u64,
}

impl Download<'_> {
    /// Downloads the missing ranges. In any case, received bytes stay in the part.
    pub async fn run(&self) -> Result<(), Trouble> {
        match self.in_pieces().await {
            Err(Trouble::NoRanges) => self.whole().await,
            other => other,
        }
    }

    async fn in_pieces(&self) -> Result<(), Trouble> {
        let pieces: VecDeque<_> = self.part.missing(self.piece_bytes).into();
        let workers = self.connections.clamp(1, pieces.len().max(1));
        let pieces = Mutex::new(pieces);
        // An error stops the other pieces, each of which writes its buffer first.
        let halt = self.line.stop.child_token();
        let results = join_all((0..workers).map(|_| async {
            let result = self.take_pieces(&pieces, &halt).await;
            if result.is_err() {
                halt.cancel();
            }
            result
        }));
        let troubles = results.await.into_iter().filter_map(Result::err);
        match troubles.min_by_key(|trouble| matches!(trouble, Trouble::Fatal(HubError::Stopped))) {
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }

    async fn take_pieces(
        &self,
        pieces: &Mutex<VecDeque<Range<u64>>>,
        halt: &CancellationToken,
    ) -> Result<(), Trouble> {
        let next = || pieces.lock().pop_front();
        while let Some(piece) = next() {
            self.piece(piece, halt).await?;
        }
        Ok(())
    }

    /// Downloads a range, with retries from the last byte.
    async fn piece(&self, piece: Range<u64>, halt: &CancellationToken) -> Result<(), Trouble> {
        let mut backoff = Backoff::new(self.line.patience);
        let mut at = piece.start;
        while at < piece.end {
            let before = at;
            let result = self.stream(&mut at, piece.end, halt).await;
            if at > before {
                backoff.forgive();
            }
            match result {
                Ok(()) => {}
                Err(trouble @ (Trouble::Changed | Trouble::NoRanges)) => return Err(trouble),
                Err(trouble) => {
                    let line = Line {
                        stop: halt,
                        ..self.line
                    };
                    line.wait(&mut backoff, trouble, self.file.path.as_str())
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Reads one reply into the part; `at` is the position reached.
    async fn stream(
        &self,
        at: &mut u64,
        end: u64,
        halt: &CancellationToken,
    ) -> Result<(), Trouble> {
        let is_whole = (*at, end) == (0, self.file.size);
        let range = (!is_whole).then_some(*at..end);
        let what = self.file.path.as_str();
        let answer = tokio::select! {
            biased;
            () = halt.cancelled() => return Err(HubError::Stopped.into()),
            answer = self.line.client.get(self.file.url.clone(), range, what) => answer?,
        };
        if answer.named.etag.is_some_and(|etag| etag != self.file.etag) {
            return Err(Trouble::Changed);
        }
        self.check_range(&answer.response, *at, is_whole)?;
        self.copy(answer.response, at, end, halt).await
    }

    fn check_range(
        &self,
        response: &reqwest::Response,
        at: u64,
        is_whole: bool,
    ) -> Result<(), Trouble> {
        match response.status() {
            StatusCode::OK if is_whole => match response.content_length() {
                Some(length) if length != self.file.size => Err(Trouble::Changed),
                _ => Ok(()),
            },
            StatusCode::OK => Err(Trouble::NoRanges),
            StatusCode::PARTIAL_CONTENT => {
                let found = text(response.headers(), "content-range").unwrap_or_default();
                match content_range(found) {
                    Some((_, Some(size))) if size != self.file.size => Err(Trouble::Changed),
                    Some((start, _)) if start == at => Ok(()),
                    _ => Err(self.line.client.nonsense(format!(
                        "content-range {found:?} for {}, expected a range from byte {at}",
                        self.file.path
                    ))),
                }
            }
            status => Err(self
                .line
                .client
                .nonsense(format!("{status} for {}", self.file.path))),
        }
    }

    async fn copy(
        &self,
        mut response: reqwest::Response,
        at: &mut u64,
        end: u64,
        halt: &CancellationToken,
    ) -> Result<(), Trouble> {
        let mut buffer = Buffer::default();
        let ending = loop {
            let chunk = tokio::select! {
                biased;
                () = halt.cancelled() => break Err(HubError::Stopped.into()),
                chunk = response.chunk() => chunk,
            };
            let wanted = usize::try_from(end - *at).unwrap_or(usize::MAX) - buffer.bytes.len();
            match chunk {
                Ok(Some(chunk)) => {
                    self.line.client.pace.take(chunk.len()).await;
                    // Ignores bytes beyond the requested range.
                    buffer.add(&chunk[..chunk.len().min(wanted)]);
                    if chunk.len() >= wanted {
                        break Ok(());
                    }
                }
                Ok(None) if wanted == 0 => break Ok(()),
                Ok(None) => break Err(Trouble::Passing("the response ended early".to_owned())),
                Err(error) => break Err(Trouble::Passing(super::client::in_words(error))),
            }
            if buffer.is_due() {
                self.write(&mut buffer, at).await?;
            }
        };
        self.write(&mut buffer, at).await?;
        ending
    }

    async fn write(&self, buffer: &mut Buffer, at: &mut u64) -> Result<(), Trouble> {
        let bytes = buffer.take();
        let count = bytes.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let written = self.part.write(*at, bytes).await;
        written.map_err(|cause| self.cannot_write(cause))?;
        *at += count;
        self.line.progress.report(Event::Received {
            file: &self.file.path,
            bytes: count,
        });
        Ok(())
    }

    pub fn cannot_write(&self, cause: io::Error) -> HubError {
        HubError::CannotWrite {
            path: self.part.path().to_owned(),
            cause,
            wanted: self.file.size.saturating_sub(self.part.present_bytes()),
            free: disk::free_bytes(self.part.path()).ok(),
        }
    }

    /// For a server without ranges: downloads the whole file, from the start after every failure.
    async fn whole(&self) -> Result<(), Trouble> {
        let mut backoff = Backoff::new(self.line.patience);
        loop {
            if self.part.present_bytes() > 0 {
                self.line.progress.report(Event::Restarted {
                    file: &self.file.path,
                    why: "the server does not support range requests",
                });
            }
            self.part
                .restart()
                .map_err(|cause| self.cannot_write(cause))?;
            let mut at = 0;
            match self.stream(&mut at, self.file.size, self.line.stop).await {
                Ok(()) => return Ok(()),
                Err(trouble @ Trouble::Changed) => return Err(trouble),
                Err(trouble) => {
                    self.line
                        .wait(&mut backoff, trouble, self.file.path.as_str())
                        .await?;
                }
            }
        }
    }
}

struct Buffer {
    bytes: Vec<u8>,
    since: Instant,
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            since: Instant::now(),
        }
    }
}

impl Buffer {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn is_due(&self) -> bool {
        self.bytes.len() >= BUFFER_BYTES || self.since.elapsed() >= BUFFER_AGE
    }

    fn take(&mut self) -> Vec<u8> {
        self.since = Instant::now();
        std::mem::take(&mut self.bytes)
    }
}

/// Start and whole length in `bytes 5-9/20`; the length may be `*`.
fn content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, size) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    let size = match size {
        "*" => None,
        size => Some(size.parse().ok()?),
    };
    Some((start.parse().ok()?, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_says_where_and_of_how_much() {
        assert_eq!(content_range("bytes 5-9/20"), Some((5, Some(20))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, None)));
        for wrong in ["", "bytes */20", "5-9/20", "bytes x-9/20"] {
            assert_eq!(content_range(wrong), None, "{wrong}");
        }
    }
}
