//! A wrapper for reading a socket: limits a peer's messages before a WebSocket library allocates memory for them.
//!
//! The library reserves the length in a frame's header, keeps a buffer that was once large, and waits for the rest of a
//! message as long as pings arrive. So a large frame is passed on as pieces, each a frame of its own; a message over
//! the limit ends at its header; the bytes of an unfinished message are reported to a [`MessageBudget`]; and the owner
//! of the socket can query the age of an unfinished message.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Larger frames are handed on in pieces of this size. A multiple of four: a mask has four bytes.
const PIECE: usize = 32 << 10;
/// Messages up to this size are not counted or checked before they are read.
pub const SMALL_MESSAGE: usize = 64 << 10;
/// The first part of an unfinished message may take this long.
const PATIENCE: Duration = Duration::from_secs(15);
/// In bytes per second; slow connections still send more.
const SLOWEST: f64 = (16 << 10) as f64;
const LONGEST_HEADER: usize = 14;
const MOST_CONTROL: u64 = 125;
const END_OF_HANDSHAKE: &[u8] = b"\r\n\r\n";

/// Memory for unfinished messages.
pub trait MessageBudget {
    /// A message that is larger than [`SMALL_MESSAGE`] has grown to this many bytes.
    fn grow(&mut self, bytes: usize) -> io::Result<()>;
    /// All of that message has been read.
    fn finish(&mut self);
}

/// For a small number of sockets: the limit of a message is enough.
#[derive(Debug)]
pub struct Uncounted;

/// Why a message is not read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageRefused {
    #[error("the message exceeds {0} bytes")]
    TooLong(usize),
    #[error("a control frame exceeds {MOST_CONTROL} bytes")]
    LongControl,
    #[error("too much data before the registration was accepted")]
    Allowance,
    #[error("out of memory for large messages, try again later")]
    NoMemory,
    #[error("the message was too slow while memory was short")]
    GaveWay,
}

impl MessageRefused {
    /// The refusal inside a read error, if the error is from this module.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<MessageRefused> for io::Error {
    fn from(refused: MessageRefused) -> Self {
        Self::other(refused)
    }
}

#[derive(Debug)]
pub struct Intake<S, B = Uncounted> {
    stream: S,
    budget: B,
    state: State,
    /// Bytes read from the socket and not yet parsed.
    buffer: Vec<u8>,
    start: usize,
    capacity: usize,
    /// A header to hand on.
    header: Header,
    /// The longest message.
    limit: usize,
    /// Bytes that may still come; none: no end.
    allowance: Option<usize>,
    /// The unfinished message: its announced length, the length received, and its start.
    announced: usize,
    come: usize,
    since: Option<Instant>,
    /// The peer has written a fragment that is not the last.
    is_fragmented: bool,
    /// Why nothing more is read.
    failed: Option<io::Error>,
    written: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Up to the end of the handshake's head, with the number of bytes seen.
    Handshake(usize),
    Header,
    Payload(Payload),
}

/// The rest of a frame.
#[derive(Debug, Clone, Copy)]
struct Payload {
    left: usize,
    /// The rest of the current piece.
    piece: usize,
    mask: Option<[u8; 4]>,
    is_final: bool,
    is_control: bool,
}

#[derive(Debug, Default)]
struct Header {
    bytes: [u8; LONGEST_HEADER],
    next: usize,
    length: usize,
}

impl<S, B> Intake<S, B> {
    /// `read_already` comes first. Reads up to `capacity` bytes at once.
    pub fn new(stream: S, budget: B, read_already: Vec<u8>, capacity: usize) -> Self {
        Self {
            stream,
            budget,
            state: State::Header,
            buffer: read_already,
            start: 0,
            capacity,
            header: Header::default(),
            limit: usize::MAX,
            allowance: None,
            announced: 0,
            come: 0,
            since: None,
            is_fragmented: false,
            failed: None,
            written: 0,
        }
    }

    /// The frames begin after an HTTP response.
    #[must_use]
    pub fn after_handshake(mut self) -> Self {
        self.state = State::Handshake(0);
        self
    }

    /// The longest message from now on.
    pub fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Bytes that may come in all; none: no end.
    pub fn set_allowance(&mut self, bytes: Option<usize>) {
        self.allowance = bytes;
    }

    pub fn budget_mut(&mut self) -> &mut B {
        &mut self.budget
    }

    /// Bytes that the peer has taken.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The time at which an unfinished message must have made progress.
    pub fn deadline(&self) -> Option<Instant> {
        let earned = Duration::from_secs_f64(self.come as f64 / SLOWEST);
        self.since.map(|since| since + PATIENCE + earned)
    }

    pub fn is_overdue(&self) -> bool {
        self.deadline()
            .is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn unseen(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

impl<S, B: MessageBudget> Intake<S, B> {
    /// Copies as much as `out` can hold. Stops when more input is needed.
    fn hand_on(&mut self, out: &mut ReadBuf<'_>) -> io::Result<()> {
        while out.remaining() > 0 {
            if !self.header.is_empty() {
                self.header.hand_on(out);
                continue;
            }
            match self.state {
                State::Handshake(seen) => {
                    let Some(&byte) = self.unseen().first() else {
                        break;
                    };
                    self.start += 1;
                    out.put_slice(&[byte]);
                    self.state = after_handshake_byte(seen, byte);
                    if matches!(self.state, State::Header) {
                        // The handshake is read separately.
                        break;
                    }
                }
                State::Header => match parse_header(self.unseen()) {
                    None => break,
                    Some((length, frame)) => {
                        self.begin(length, frame)?;
                    }
                },
                State::Payload(payload) if payload.piece == 0 => self.next_piece(payload),
                State::Payload(payload) => {
                    let count = payload.piece.min(self.unseen().len()).min(out.remaining());
                    if count == 0 {
                        break;
                    }
                    out.put_slice(&self.buffer[self.start..self.start + count]);
                    self.start += count;
                    self.take(payload, count)?;
                }
            }
        }
        Ok(())
    }

    /// A header has come.
    fn begin(&mut self, header_bytes: usize, frame: Frame) -> io::Result<()> {
        if frame.is_control() && frame.length > MOST_CONTROL {
            return Err(MessageRefused::LongControl.into());
        }
        let too_long = || io::Error::from(MessageRefused::TooLong(self.limit));
        let length = usize::try_from(frame.length).map_err(|_| too_long())?;
        if !frame.is_control() {
            let announced = self.announced.checked_add(length);
            self.announced = announced
                .filter(|announced| *announced <= self.limit)
                .ok_or_else(too_long)?;
        }
        let payload = Payload {
            left: length,
            piece: length.min(PIECE),
            mask: frame.mask,
            is_final: frame.is_final,
            is_control: frame.is_control(),
        };
        if length <= PIECE {
            // Short frames keep their header.
            let header = &self.buffer[self.start..self.start + header_bytes];
            self.header = Header::copied(header);
        } else {
            self.header = Header::of_piece(frame.first_byte & !FINAL, PIECE, frame.mask);
        }
        self.start += header_bytes;
        self.state = State::Payload(payload);
        if length == 0 {
            self.take(payload, 0)?;
        }
        Ok(())
    }

    fn next_piece(&mut self, payload: Payload) {
        let piece = payload.left.min(PIECE);
        let is_last = piece == payload.left && payload.is_final;
        let first_byte = if is_last { FINAL } else { 0 };
        self.header = Header::of_piece(first_byte, piece, payload.mask);
        self.state = State::Payload(Payload { piece, ..payload });
    }

    /// Counts bytes of a payload that were passed on.
    fn take(&mut self, mut payload: Payload, count: usize) -> io::Result<()> {
        payload.left -= count;
        payload.piece -= count;
        self.state = match payload.left {
            0 => State::Header,
            _ => State::Payload(payload),
        };
        if payload.is_control {
            return Ok(());
        }
        self.come += count;
        if self.come > SMALL_MESSAGE {
            self.budget.grow(self.come)?;
        }
        if payload.left > 0 {
            return Ok(());
        }
        self.is_fragmented = !payload.is_final;
        if payload.is_final {
            if self.come > SMALL_MESSAGE {
                self.budget.finish();
            }
            (self.announced, self.come, self.since) = (0, 0, None);
        }
        Ok(())
    }

    /// Time runs for a message only if it does not come at once.
    fn note_time(&mut self) {
        let in_frame = matches!(self.state, State::Payload(payload) if !payload.is_control);
        let is_unfinished = self.is_fragmented || in_frame;
        if is_unfinished && self.since.is_none() {
            self.since = Some(Instant::now());
        }
    }

    fn charge(&mut self, count: usize) -> io::Result<()> {
        if let Some(left) = &mut self.allowance {
            *left = left.checked_sub(count).ok_or(MessageRefused::Allowance)?;
        }
        Ok(())
    }
}

const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// A parsed frame header.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// Flags and opcode.
    first_byte: u8,
    is_final: bool,
    mask: Option<[u8; 4]>,
    length: u64,
}

impl Frame {
    fn is_control(self) -> bool {
        self.first_byte & 0x08 != 0
    }
}

/// The header's length and content, once it is complete.
fn parse_header(bytes: &[u8]) -> Option<(usize, Frame)> {
    let [first_byte, second, ..] = *bytes else {
        return None;
    };
    let (length, at) = match second & !MASKED {
        126 => {
            let length = bytes.get(2..4)?.try_into().ok()?;
            (u64::from(u16::from_be_bytes(length)), 4)
        }
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?), 10),
        length => (u64::from(length), 2),
    };
    let (mask, at) = match second & MASKED {
        0 => (None, at),
        _ => (Some(bytes.get(at..at + 4)?.try_into().ok()?), at + 4),
    };
    let frame = Frame {
        first_byte,
        is_final: first_byte & FINAL != 0,
        mask,
        length,
    };
    Some((at, frame))
}

fn after_handshake_byte(seen: usize, byte: u8) -> State {
    let seen = match byte == END_OF_HANDSHAKE[seen] {
        true => seen + 1,
        false => usize::from(byte == END_OF_HANDSHAKE[0]),
    };
    match seen == END_OF_HANDSHAKE.len() {
        true => State::Header,
        false => State::Handshake(seen),
    }
}

impl Header {
    fn copied(bytes: &[u8]) -> Self {
        let mut header = Self::default();
        header.push(bytes);
        header
    }

    fn of_piece(first_byte: u8, length: usize, mask: Option<[u8; 4]>) -> Self {
        let mut header = Self::default();
        let masked = if mask.is_some() { MASKED } else { 0 };
        match u16::try_from(length) {
            Ok(length @ 0..126) => header.push(&[first_byte, masked | length as u8]),
            // A piece is no longer than this.
            length => {
                let [high, low] = length.unwrap_or(u16::MAX).to_be_bytes();
                header.push(&[first_byte, masked | 126, high, low]);
            }
        }
        header.push(mask.as_ref().map_or(&[], |mask| &mask[..]));
        header
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn is_empty(&self) -> bool {
        self.next == self.length
    }

    fn hand_on(&mut self, out: &mut ReadBuf<'_>) {
        let left = &self.bytes[self.next..self.length];
        let count = left.len().min(out.remaining());
        out.put_slice(&left[..count]);
        self.next += count;
    }
}

impl MessageBudget for Uncounted {
    fn grow(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) {}
}

impl<S: AsyncRead + Unpin, B: MessageBudget + Unpin> AsyncRead for Intake<S, B> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let intake = self.get_mut();
        let before = out.filled().len();
        loop {
            if let Some(error) = intake.failed.take() {
                return Poll::Ready(Err(error));
            }
            // Bytes before the error are still delivered.
            intake.failed = intake.hand_on(out).err();
            intake.note_time();
            if out.filled().len() > before || out.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if intake.failed.is_some() {
                continue;
            }
            let count = ready!(intake.poll_fill(context))?;
            if count == 0 {
                return Poll::Ready(Ok(()));
            }
            intake.charge(count)?;
        }
    }
}

impl<S: AsyncRead + Unpin, B> Intake<S, B> {
    /// Reads more bytes after the rest of the buffer, which is shorter than a header.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let length = self.buffer.len();
        self.buffer.resize(length + self.capacity, 0);
        let mut read = ReadBuf::new(&mut self.buffer[length..]);
        let polled = Pin::new(&mut self.stream).poll_read(context, &mut read);
        let count = read.filled().len();
        self.buffer.truncate(length + count);
        if count == 0 && length == 0 {
            // An idle socket holds no buffer.
            self.buffer = Vec::new();
        }
        polled.map_ok(|()| count)
    }
}

impl<S: AsyncWrite + Unpin, B: Unpin> AsyncWrite for Intake<S, B> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = wrote {
            self.written += count as u64;
        }
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use futures_util::{SinkExt, StreamExt};
    use proptest::prelude::{ProptestConfig, any, proptest};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::advance;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::{Intake, MessageBudget, MessageRefused, PIECE, SMALL_MESSAGE, Uncounted};

    #[derive(Debug, Default)]
    struct Log {
        most: usize,
        finished: usize,
    }

    impl MessageBudget for Log {
        fn grow(&mut self, bytes: usize) -> io::Result<()> {
            self.most = self.most.max(bytes);
            Ok(())
        }

        fn finish(&mut self) {
            self.finished += 1;
        }
    }

    /// Sends texts through an intake, and returns the messages received.
    async fn passed(lengths: Vec<usize>, chunk: usize) -> Log {
        let (near, far) = duplex(chunk);
        let texts: Vec<String> = lengths
            .iter()
            .enumerate()
            .map(|(index, length)| {
                let letters = (0..*length).map(|at| char::from(b'a' + ((at + index) % 26) as u8));
                letters.collect()
            })
            .collect();
        let intake = Intake::new(near, Log::default(), Vec::new(), 512);
        let mut reader = WebSocketStream::from_raw_socket(intake, Role::Server, None).await;
        let mut writer = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let writing = async {
            for text in &texts {
                writer.send(Message::text(text.clone())).await.unwrap();
                writer.send(Message::Ping("p".into())).await.unwrap();
            }
        };
        let reading = async {
            let mut heard = Vec::new();
            while heard.len() < texts.len() {
                match reader.next().await.unwrap().unwrap() {
                    Message::Text(text) => heard.push(text.as_str().to_owned()),
                    other => assert!(matches!(other, Message::Ping(_)), "{other:?}"),
                }
            }
            assert!(heard == texts);
        };
        tokio::join!(writing, reading);
        std::mem::take(reader.get_mut().budget_mut())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_message_arrives_whole(
            lengths in proptest::collection::vec(0_usize..3 * SMALL_MESSAGE, 1..5),
            chunk in 1_usize..20_000,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let log = runtime.block_on(passed(lengths.clone(), chunk + 256));
            let large: Vec<usize> = lengths.into_iter().filter(|it| *it > SMALL_MESSAGE).collect();
            assert_eq!(log.finished, large.len());
            assert_eq!(log.most, large.into_iter().max().unwrap_or(0));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut intake = Intake::new(&bytes[..], Uncounted, Vec::new(), 7);
                let _ = intake.read_to_end(&mut Vec::new()).await;
            });
        }
    }

    #[tokio::test]
    async fn lengths_around_a_piece_arrive_whole() {
        let lengths = [
            0,
            125,
            126,
            PIECE - 1,
            PIECE,
            PIECE + 1,
            PIECE + 126,
            2 * PIECE,
        ];
        passed(lengths.to_vec(), 1 << 16).await;
    }

    #[tokio::test]
    async fn a_message_over_the_limit_ends_at_its_header() {
        let check = async |bytes: &[u8], expected| {
            let mut intake = Intake::new(bytes, Uncounted, Vec::new(), 64);
            intake.set_limit(1000);
            let mut read = Vec::new();
            let error = intake.read_to_end(&mut read).await.unwrap_err();
            assert_eq!(MessageRefused::of(&error), Some(expected));
            read.len()
        };
        let claimed = [0x81, 0xff, 0, 0, 0, 0, 2, 0, 0, 0, 1, 2, 3, 4];
        assert_eq!(check(&claimed, MessageRefused::TooLong(1000)).await, 0);
        // Fragments count together.
        let mut fragments = vec![0x01, 126, 3, 0];
        fragments.extend([b'a'; 768]);
        fragments.extend([0x80, 126, 1, 0]);
        check(&fragments, MessageRefused::TooLong(1000)).await;
        check(&[0x89, 126, 0x80, 0], MessageRefused::LongControl).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_unfinished_message_falls_due_whatever_pings_come() {
        let (near, mut far) = duplex(1 << 16);
        let mut intake = Intake::new(near, Uncounted, Vec::new(), 4096);
        let mut buffer = [0; 4096];
        far.write_all(&[0x01, 2, b'a', b'b']).await.unwrap();
        assert_eq!(intake.read(&mut buffer).await.unwrap(), 4);
        assert!(!intake.is_overdue());
        advance(Duration::from_secs(10)).await;
        far.write_all(&[0x89, 0]).await.unwrap();
        assert_eq!(intake.read(&mut buffer).await.unwrap(), 2);
        advance(Duration::from_secs(6)).await;
        assert!(intake.is_overdue());
        far.write_all(&[0x80, 1, b'c']).await.unwrap();
        assert_eq!(intake.read(&mut buffer).await.unwrap(), 3);
        assert!(!intake.is_overdue());
    }

    #[tokio::test]
    async fn frames_may_come_together_with_the_end_of_the_handshake() {
        let bytes = b"HTTP/1.1 101 ok\r\n\r\r\n\r\n\x81\x02ab";
        let mut intake = Intake::new(&bytes[..], Uncounted, Vec::new(), 64).after_handshake();
        let mut buffer = [0; 64];
        let head = intake.read(&mut buffer).await.unwrap();
        assert!(buffer[..head].ends_with(b"\r\n\r\n"));
        assert_eq!(intake.read(&mut buffer).await.unwrap(), 4);
        assert_eq!(buffer[..4], *b"\x81\x02ab");
    }

    #[tokio::test]
    async fn more_than_the_allowance_is_not_read() {
        let bytes = [0x8a, 0].repeat(600);
        let mut intake = Intake::new(&bytes[..], Uncounted, Vec::new(), 64);
        intake.set_allowance(Some(1024));
        let error = intake.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(MessageRefused::of(&error), Some(MessageRefused::Allowance));
    }
}
