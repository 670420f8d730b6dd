//! The end of a socket: the peer's close frame, and the reason for the log.

use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::dispatch::CloseReason;
use muster_process::intake::MessageRefused;
use muster_protocol::link::RefusalFrame;

use super::admission::{CLOSE_REFUSED, Rejection};

/// The coordinator is shutting down, or another connection uses this worker's name.
const CLOSE_RESTART: u16 = 1012;

/// The peer is not at fault.
const CLOSE_LATER: u16 = 1013;

/// The close frame or error for the peer.
#[derive(Debug)]
pub enum Farewell {
    /// The peer closed first, or would not understand a reason.
    Silently,
    Close {
        code: u16,
        /// Short: a close frame has room for 123 bytes.
        why: &'static str,
    },
    /// An error frame, then the close.
    Refused { frame: RefusalFrame, close: u16 },
}

/// The end of a connection.
#[derive(Debug)]
pub struct Ended {
    pub farewell: Farewell,
    /// For logs.
    pub why: String,
}

impl Farewell {
    /// Too many sockets wait for registration.
    pub const FULL: Self = Self::Close {
        code: CLOSE_LATER,
        why: "too many connections wait for registration, retry later",
    };

    const SLOW: &'static str = "frame too slow while memory was short";

    /// The close frame for an unreadable message, where WebSocket defines a code.
    pub fn of(error: &Error) -> Self {
        let (code, why) = match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                (1009, "the frame is too long")
            }
            Error::Utf8(_) => (1007, "the frame is not valid UTF-8"),
            Error::Protocol(_) => (1002, "the frame violates the WebSocket protocol"),
            Error::Io(error) => match MessageRefused::of(error) {
                Some(MessageRefused::TooLong(_) | MessageRefused::Allowance) => {
                    (1009, "the frame is too long")
                }
                Some(MessageRefused::LongControl) => {
                    (1002, "the frame violates the WebSocket protocol")
                }
                Some(MessageRefused::NoMemory) => (
                    CLOSE_LATER,
                    "not enough memory for a frame of this size, retry later",
                ),
                Some(MessageRefused::GaveWay) => (CLOSE_LATER, Self::SLOW),
                None => return Self::Silently,
            },
            _ => return Self::Silently,
        };
        Self::Close { code, why }
    }
}

impl Ended {
    pub fn silently(why: impl Into<String>) -> Self {
        Self {
            farewell: Farewell::Silently,
            why: why.into(),
        }
    }

    /// An incomplete message.
    pub fn slow_message() -> Self {
        Self::closing(1008, "the frame was not completed in time")
    }

    /// The memory of its message was needed by others.
    pub fn gave_way() -> Self {
        Self::closing(CLOSE_LATER, Farewell::SLOW)
    }

    /// The same reason for the close frame and the log.
    fn closing(code: u16, why: &'static str) -> Self {
        Self {
            farewell: Farewell::Close { code, why },
            why: why.to_owned(),
        }
    }

    pub fn broken(error: &Error) -> Self {
        Self {
            farewell: Farewell::of(error),
            why: format!("the connection failed: {error}"),
        }
    }

    pub fn unwritable(error: &Error) -> Self {
        Self::silently(format!("writing to the connection failed: {error}"))
    }

    /// The peer has closed, with an optional reason.
    pub fn by_peer(frame: Option<&CloseFrame>) -> Self {
        Self::silently(match frame {
            None => "closed by the worker".to_owned(),
            Some(frame) if frame.reason.is_empty() => {
                format!("closed by the worker with code {}", frame.code)
            }
            Some(frame) => format!(
                "closed by the worker with code {}: {:?}",
                frame.code,
                frame.reason.as_str()
            ),
        })
    }

    pub fn by_dispatch(reason: CloseReason, negotiates: bool) -> Self {
        let why = reason.words();
        match (reason, reason.code()) {
            (CloseReason::Barred { retry_after }, _) => Self {
                farewell: Farewell::Refused {
                    frame: Rejection::cooling_down(retry_after).frame(negotiates),
                    close: CLOSE_REFUSED,
                },
                why: why.to_owned(),
            },
            (_, Some(code)) => Self::closing(code, why),
            (_, None) => Self::silently(why),
        }
    }

    pub fn stopping() -> Self {
        Self::closing(CLOSE_RESTART, "the coordinator is shutting down")
    }

    /// A permission was lost while connected.
    pub fn refused(rejection: &Rejection, negotiates: bool) -> Self {
        Self {
            farewell: Farewell::Refused {
                frame: rejection.frame(negotiates),
                close: rejection.close,
            },
            why: rejection.message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

    use super::*;

    #[test]
    fn a_replaced_peer_and_the_log_hear_the_reason() {
        let ended = Ended::by_dispatch(CloseReason::Replaced, false);
        assert_eq!(
            ended.why,
            "replaced by a newer connection with the same name"
        );
        let Farewell::Close { code, why } = ended.farewell else {
            panic!("{:?}", ended.farewell);
        };
        assert_eq!((code, why), (1012, ended.why.as_str()));
    }

    #[test]
    fn every_reason_of_dispatch_fits_into_a_close_and_public_peers_see_its_code_alone_or_nothing() {
        let retry_after = Duration::from_secs(9);
        for reason in [
            CloseReason::Replaced,
            CloseReason::Silent,
            CloseReason::Evicted { retry_after },
            CloseReason::Barred { retry_after },
            CloseReason::Drained,
        ] {
            let ended = Ended::by_dispatch(reason, false);
            assert!((1..=123).contains(&ended.why.len()), "{reason:?}");
            let code = match ended.farewell {
                Farewell::Silently => None,
                Farewell::Close { code, .. } | Farewell::Refused { close: code, .. } => Some(code),
            };
            assert_eq!(code, reason.code());
        }
    }

    #[test]
    fn what_a_peer_closes_with_is_quoted() {
        let frame = |reason: &'static str| CloseFrame {
            code: CloseCode::from(1000),
            reason: reason.into(),
        };
        let why = |frame: Option<&CloseFrame>| Ended::by_peer(frame).why;
        assert_eq!(why(None), "closed by the worker");
        assert_eq!(why(Some(&frame(""))), "closed by the worker with code 1000");
        assert_eq!(
            why(Some(&frame("bye\nnow"))),
            "closed by the worker with code 1000: \"bye\\nnow\""
        );
    }
}
