//! The accept loop.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use muster_process::tasks::Tasks;
use muster_protocol::job::{Failure, FailureKind};
use muster_protocol::openai::error;

use super::connection::Connection;
use super::peer::Peer;
use super::place::{Full, HouseholdLimit, Place, Places};
use super::{Connections, Tls};

/// Shared by all connections.
#[derive(Debug)]
pub struct Door {
    router: Router,
    tls: Option<Tls>,
    connections: Connections,
    places: Places,
    turned_away: LogThrottle,
    failures: LogThrottle,
    tasks: Tasks,
}

/// Counts events of one kind, so that the log reports them once a minute.
#[derive(Debug, Default)]
struct LogThrottle {
    untold: u64,
    told: Option<Instant>,
}

/// Pause after a failed accept: without free file descriptors an immediate retry fails, too.
const BREATHER: Duration = Duration::from_millis(50);
const BETWEEN_LINES: Duration = Duration::from_secs(60);

impl Door {
    pub fn new(router: Router, tls: Option<Tls>, connections: Connections, tasks: Tasks) -> Self {
        Self {
            router,
            tls,
            places: Places::new(&connections),
            turned_away: LogThrottle::default(),
            failures: LogThrottle::default(),
            connections,
            tasks,
        }
    }

    pub fn household_limit(&self) -> HouseholdLimit {
        self.places.household_limit()
    }

    pub async fn accept_from(mut self, listener: TcpListener) {
        let stopping = self.tasks.stopping();
        while let Some(accepted) = stopping.run_until_cancelled(accept(&listener)).await {
            match accepted {
                Ok(stream) => self.let_in(stream),
                Err(error) if is_of_one_connection(&error) => {
                    debug!("accepting a connection failed: {error}");
                }
                Err(error) => {
                    if let Some(times) = self.failures.one_more(Instant::now()) {
                        warn!("accepting connections failed ({times} times), retrying: {error}");
                    }
                    sleep(BREATHER).await;
                }
            }
        }
        if !self.connections.is_succeeded {
            self.let_in_waiting(listener);
        }
    }

    /// Clients have connected while this task did not run: their first requests are served.
    fn let_in_waiting(&mut self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else {
            return;
        };
        while let Ok((stream, _)) = listener.accept() {
            let stream = stream
                .set_nodelay(true)
                .and_then(|()| stream.set_nonblocking(true))
                .and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = stream {
                self.let_in(stream);
            }
        }
    }

    fn let_in(&mut self, stream: TcpStream) {
        let address = stream.peer_addr().ok();
        match self.places.take(address.map(|address| address.ip())) {
            Ok(place) => self.start(stream, address, place),
            Err(full) => {
                if let Some(count) = self.turned_away.one_more(Instant::now()) {
                    warn!("{count} connections refused: {}", reason(full));
                }
                turn_away(&stream, full, self.tls.is_some());
            }
        }
    }

    fn start(&self, stream: TcpStream, address: Option<SocketAddr>, place: Place) {
        let connection = Connection {
            router: self.router.clone(),
            patience: self.connections.header_patience,
            idle: self.connections.idle,
            address,
            stopping: self.tasks.stopping(),
        };
        let tls = self.tls.clone();
        let peer = Peer::new(stream);
        self.tasks.start(async move {
            let stream = peer.clone();
            match tls {
                None => connection.serve(stream, peer, place).await,
                Some(tls) => match timeout(connection.patience, tls.shake_hands(stream)).await {
                    Ok(Ok(stream)) => connection.serve(stream, peer, place).await,
                    Ok(Err(error)) => debug!("TLS handshake failed: {error}"),
                    Err(_) => debug!("TLS handshake timed out"),
                },
            }
        });
    }
}

impl LogThrottle {
    /// Counts an event. Returns the events since the last line when another line is due.
    fn one_more(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now < told + BETWEEN_LINES) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

/// For the log, without the client's address.
fn reason(full: Full) -> &'static str {
    match full {
        Full::All => "the connection limit is reached",
        Full::Household => "one address reached serve.connections_per_address",
    }
}

/// Accepts with TCP_NODELAY: with Nagle's algorithm a reply waits 40 ms for an ack.
pub async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::InvalidInput
    )
}

/// Sends the refusal if that needs no waiting; not over TLS, whose client would not understand it.
fn turn_away(stream: &TcpStream, full: Full, speaks_tls: bool) {
    if speaks_tls {
        return;
    }
    let full = Failure::new(FailureKind::QueueFull, full.to_string());
    let body = error::body(&full, None).to_string();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.try_write(answer.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::LogThrottle;

    #[test]
    fn events_are_logged_once_a_minute_with_their_count() {
        let mut turned_away = LogThrottle::default();
        let began = Instant::now();
        let told = [0, 1, 59, 60, 61, 200]
            .map(|seconds| turned_away.one_more(began + Duration::from_secs(seconds)));
        assert_eq!(told, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
