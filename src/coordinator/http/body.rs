//! Request bodies, read completely within limits of size and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRef, FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::error::ApiError;
use crate::sender::Sender;
use crate::state::DoorSettings;
use muster_protocol::job::FailureKind;
use muster_protocol::openai::nearest::shortened;

use super::address::Address;
use super::admitted::Admitted;
use super::digest::DigestSlot;
use super::room::{LetGo, Memory, Room};

/// A complete body, and its memory permit.
#[derive(Debug)]
pub struct Whole {
    pub bytes: Bytes,
    pub room: Room,
}

/// The body of a media request, counted in the account's share of memory.
#[derive(Debug)]
pub struct MediaWhole(pub Whole);

/// Timeouts of a body: for each piece, and for all of it at the slowest allowed pace.
#[derive(Debug)]
pub struct Patience {
    each: Duration,
    /// Total time left; only time spent waiting for the sender counts.
    left: Duration,
}

/// A body that ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("the request body ended early")]
    Off,
    #[error("no data of the request body arrived for {} s", .0.as_secs())]
    Silence(Duration),
    #[error("the request body arrived at less than {} KiB/s", SLOWEST >> 10)]
    Slow,
}

/// In bytes per second; slow connections still send more.
const SLOWEST: u32 = 16 << 10;

/// Bytes of a refused body to read and drop, so that its sender reads the error reply instead of a reset.
const DISCARDED_BYTES: usize = 256 << 20;
const DISCARD_PATIENCE: Duration = Duration::from_secs(5);

impl<S> FromRequest<S> for Whole
where
    S: Send + Sync,
    Arc<DoorSettings>: FromRef<S>,
    Memory: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let room = Memory::from_ref(state).room();
        Self::of(request, &Arc::from_ref(state), room).await
    }
}

impl<S> FromRequest<S> for MediaWhole
where
    S: Send + Sync,
    Arc<DoorSettings>: FromRef<S>,
    Memory: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (settings, memory) = (Arc::from_ref(state), Memory::from_ref(state));
        let whole = Whole::of_account(request, &settings, &memory).await?;
        Ok(Self(whole))
    }
}

impl Whole {
    /// A body counted in its account's share of memory.
    pub async fn of_account(
        request: Request,
        settings: &DoorSettings,
        memory: &Memory,
    ) -> Result<Self, ApiError> {
        let caller = request.extensions().get::<Admitted>();
        let room = match caller {
            Some(Admitted(caller)) => {
                let proxies = &settings.trusted_proxies;
                let address = Address::of(request.extensions(), request.headers(), proxies);
                memory.room_of(Sender::of(caller.account, address.0))
            }
            None => memory.room(),
        };
        Self::of(request, settings, room).await
    }

    async fn of(request: Request, settings: &DoorSettings, room: Room) -> Result<Self, ApiError> {
        if let Some(error) = encoded(request.headers()) {
            discard(request.into_body()).await;
            return Err(error);
        }
        let announced = announced(request.headers());
        let slot = request.extensions().get::<DigestSlot>().cloned();
        let mut body = request.into_body();
        let read = read(&mut body, announced, settings, room).await;
        if let Err(error) = &read
            && matches!(
                error.failure.kind,
                FailureKind::TooLarge | FailureKind::QueueFull | FailureKind::InFlightLimit
            )
        {
            discard(body).await;
        }
        if let (Ok(whole), Some(slot)) = (&read, slot) {
            slot.fill(&whole.bytes).await;
        }
        read
    }

    /// A body that arrived in one piece.
    fn of_one(bytes: Bytes, mut room: Room, most: usize) -> Result<Self, ApiError> {
        if bytes.len() > most {
            return Err(too_large(most));
        }
        room.cover(bytes.len())?;
        Ok(Self { bytes, room })
    }
}

/// Reads and drops the body, for a while.
pub async fn discard(mut body: Body) {
    let reading = async {
        let mut left = DISCARDED_BYTES;
        while !body.is_end_stream()
            && let Some(Ok(frame)) = body.frame().await
        {
            let length = frame.data_ref().map_or(0, Bytes::len);
            left = match left.checked_sub(length) {
                Some(left) => left,
                None => return,
            };
        }
    };
    let _ = timeout(DISCARD_PATIENCE, reading).await;
}

async fn read(
    body: &mut Body,
    announced: Option<usize>,
    settings: &DoorSettings,
    mut room: Room,
) -> Result<Whole, ApiError> {
    let most = settings.largest_request;
    if announced.is_some_and(|length| length > most) {
        return Err(too_large(most));
    }
    room.cover(0)?;
    let mut patience = Patience::new(settings.body_patience);
    // Most bodies arrive with their headers and are read without waiting.
    let at_once = patience.next(body).now_or_never().transpose()?;
    match at_once {
        Some(all) if all.is_none() || body.is_end_stream() => {
            Whole::of_one(all.unwrap_or_default(), room, most)
        }
        begun => in_pieces(body, begun.flatten(), patience, room, most).await,
    }
}

async fn in_pieces(
    body: &mut Body,
    mut begun: Option<Bytes>,
    mut patience: Patience,
    room: Room,
    most: usize,
) -> Result<Whole, ApiError> {
    let coming = room.carry(Vec::new());
    let mut length = 0;
    loop {
        let frame = match begun.take() {
            Some(frame) => Some(frame),
            None => tokio::select! {
                frame = patience.next(body) => frame?,
                () = coming.let_go() => return Err(LetGo.into()),
            },
        };
        let Some(frame) = frame else {
            let (bytes, room) = coming.unload()?;
            let bytes = bytes.into();
            return Ok(Whole { bytes, room });
        };
        if length == 0 && body.is_end_stream() {
            let (_, room) = coming.unload()?;
            return Whole::of_one(frame, room, most);
        }
        if frame.len() > most - length {
            return Err(too_large(most));
        }
        coming.take_in(&frame)?;
        length += frame.len();
    }
}

impl Patience {
    pub fn new(each: Duration) -> Self {
        Self { each, left: each }
    }

    /// The next piece, `None` at the end.
    pub async fn next(&mut self, body: &mut Body) -> Result<Option<Bytes>, Broken> {
        let began = Instant::now();
        let frame = timeout(self.each.min(self.left), body.frame()).await;
        let frame = frame.map_err(|_| match self.left < self.each {
            true => Broken::Slow,
            false => Broken::Silence(self.each),
        })?;
        let Some(frame) = frame.transpose().map_err(|_| Broken::Off)? else {
            return Ok(None);
        };
        let piece = frame.into_data().unwrap_or_default();
        let earned = piece.len() as f64 / f64::from(SLOWEST);
        let left = self.left.saturating_sub(began.elapsed());
        self.left = left + Duration::from_secs_f64(earned);
        Ok(Some(piece))
    }
}

impl From<Broken> for ApiError {
    fn from(broken: Broken) -> Self {
        let error = Self::new(FailureKind::InvalidRequest, broken.to_string());
        match broken {
            Broken::Off => error,
            Broken::Silence(_) | Broken::Slow => error.with_status(408),
        }
    }
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Refuses compressed bodies: their decompressed size has no bound.
fn encoded(headers: &HeaderMap) -> Option<ApiError> {
    let codings = headers.get_all(CONTENT_ENCODING).iter();
    let codings = codings.flat_map(|value| value.to_str().unwrap_or("?").split(','));
    let mut codings = codings.map(str::trim).filter(|coding| !coding.is_empty());
    let coding = codings.find(|coding| !coding.eq_ignore_ascii_case("identity"))?;
    let coding = shortened(coding);
    let message =
        format!("the content encoding {coding} is not supported: send the body without one");
    Some(ApiError::new(FailureKind::InvalidRequest, message).with_status(415))
}

fn too_large(most: usize) -> ApiError {
    let message = format!("the body is larger than {most} bytes");
    ApiError::new(FailureKind::TooLarge, message)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use axum::body::Body;
    use bytes::Bytes;
    use futures_util::stream;
    use tokio::time::{Instant, sleep, timeout};

    use super::{Whole, read};
    use crate::error::ApiError;
    use crate::http::room::Memory;
    use crate::state::DoorSettings;

    const KIB: usize = 1 << 10;

    fn settings() -> DoorSettings {
        DoorSettings {
            largest_request: 1 << 20,
            ..DoorSettings::default()
        }
    }

    /// A body of one first piece, then `pieces` pieces of a size, each after a delay.
    fn dripping(first: usize, pieces: usize, size: usize, each: Duration) -> Body {
        let sent = stream::unfold(0, move |sent| async move {
            if sent > pieces {
                return None;
            }
            let size = match sent {
                0 => first,
                _ => {
                    sleep(each).await;
                    size
                }
            };
            let piece = Bytes::from(vec![b'x'; size]);
            Some((Ok::<_, io::Error>(piece), sent + 1))
        });
        Body::from_stream(sent)
    }

    async fn read_with(memory: &Memory, mut body: Body) -> Result<Whole, ApiError> {
        read(&mut body, None, &settings(), memory.room()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_is_given_up_however_often_a_byte_comes() {
        let memory = Memory::new(1 << 20, Duration::from_secs(5));
        let began = Instant::now();
        let trickle = dripping(160 * KIB, 1000, 1, Duration::from_secs(22));
        let error = read_with(&memory, trickle).await.unwrap_err();
        assert_eq!(error.status(), 408);
        assert!(error.to_string().contains("16 KiB/s"), "{error}");
        // Half a minute, and ten seconds for what did come.
        assert_eq!(began.elapsed().as_secs(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_slowly_from_a_bad_line_is_read() {
        let memory = Memory::new(1 << 20, Duration::from_secs(5));
        let slow = dripping(0, 40, 20 * KIB, Duration::from_secs(1));
        let whole = read_with(&memory, slow).await.unwrap();
        assert_eq!(whole.bytes.len(), 800 * KIB);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_here_at_once_is_never_under_way() {
        let memory = Memory::new(1 << 20, Duration::from_secs(5));
        for all in ["{}", ""] {
            let whole = read_with(&memory, Body::from(all)).await.unwrap();
            assert_eq!(whole.bytes, all);
        }
        assert_eq!(memory.ever_under_way(), 0);
        let too_large = read_with(&memory, Body::from(vec![b'x'; 1025 * KIB])).await;
        assert_eq!(too_large.unwrap_err().status(), 413);
        let late = dripping(1, 1, 1, Duration::from_secs(1));
        assert_eq!(read_with(&memory, late).await.unwrap().bytes, "xx");
        assert_eq!(memory.ever_under_way(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dozen_bodies_that_stand_still_do_not_stop_another() {
        let memory = Memory::new(1 << 20, Duration::from_secs(5));
        let almost = || dripping(1024 * KIB - 1, 1, 1, Duration::from_secs(29));
        let twelve = futures_util::future::join_all((0..12).map(|_| read_with(&memory, almost())));
        let another = async {
            sleep(Duration::from_secs(20)).await;
            let large = read_with(&memory, dripping(512 * KIB, 1, KIB, Duration::ZERO));
            // The paused clock shows that this body did not wait.
            timeout(Duration::from_secs(1), large).await.unwrap()
        };
        let (twelve, another) = tokio::join!(twelve, another);
        assert_eq!(another.unwrap().bytes.len(), 513 * KIB);
        let given_up: Vec<ApiError> = twelve.into_iter().filter_map(Result::err).collect();
        assert_eq!(given_up.len(), 1);
        assert_eq!(given_up[0].status(), 408);
    }
}
