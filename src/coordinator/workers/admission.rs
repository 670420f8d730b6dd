//! Checks of a registration, in the protocol's order, which decides the refusal that a peer sees: retired model,
//! profile, audio without a profile, missing key and name, unknown key, its account, scope, key of another worker,
//! address,
//! name of another account, limit of workers, id. Dispatch checks bars last.

use std::time::Duration;

use serde_json::Value;

use super::agreement::UnknownVersion;
use super::gate::Denial;
use muster_protocol::job::Kind;
use muster_protocol::link::{RefusalCode, RefusalFrame, Registration};

/// Close codes of the public protocol.
pub const CLOSE_KEY: u16 = 4001;
pub const CLOSE_REFUSED: u16 = 4003;
/// Try again later; the peer is not at fault.
const CLOSE_LATER: u16 = 1013;
/// Retry delay for peers while the database is unavailable.
const STORE_PAUSE: Duration = Duration::from_secs(5);

/// Fields of a worker profile: exactly these.
const PROFILE_KEYS: [&str; 10] = [
    "id",
    "version",
    "digest",
    "signing_key_id",
    "capability_tier",
    "canary_completed_at",
    "canary_elapsed_seconds",
    "runtime_adapter",
    "runtime_digest",
    "recipe_root",
];

/// The refusal of a worker's registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub close: u16,
    pub code: RefusalCode,
    pub message: String,
    pub retry: Option<Duration>,
}

/// Checks without the store.
pub fn check(registration: &Registration, retired: &[String]) -> Result<(), Rejection> {
    check_models(registration, retired)?;
    check_profile(registration)?;
    check_names(registration)
}

fn check_models(registration: &Registration, retired: &[String]) -> Result<(), Rejection> {
    let old = registration
        .models
        .iter()
        .find(|model| retired.contains(model));
    old.map_or(Ok(()), |model| {
        let message = format!("the model {model} is retired");
        Err(Rejection::refused(RefusalCode::RetiredModel, message))
    })
}

/// Peers that negotiate are our own workers, which need no profile for audio.
fn check_profile(registration: &Registration) -> Result<(), Rejection> {
    let refused = |code, message: &str| Err(Rejection::refused(code, message));
    match &registration.worker_profile {
        Some(profile) if !is_profile(profile) => {
            refused(RefusalCode::Profile, "the worker profile is malformed")
        }
        None if registration.kinds.contains(Kind::Music) && registration.ext.is_none() => {
            refused(RefusalCode::Profile, "audio needs a managed profile")
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses worker profiles: they come with signed proofs, which this coordinator cannot verify; managed workers are for
/// networks with wallets. Checked after the key.
pub fn check_proof(registration: &Registration) -> Result<(), Rejection> {
    let message = match (&registration.worker_profile, &registration.worker_identity) {
        (None, _) => return Ok(()),
        (Some(_), None) => "a worker profile requires an identity proof",
        (Some(_), Some(_)) => "this coordinator cannot verify identity proofs",
    };
    Err(Rejection::refused(RefusalCode::Identity, message))
}

fn is_profile(profile: &Value) -> bool {
    let Some(fields) = profile.as_object() else {
        return false;
    };
    fields.len() == PROFILE_KEYS.len() && PROFILE_KEYS.iter().all(|key| fields.contains_key(*key))
}

fn check_names(registration: &Registration) -> Result<(), Rejection> {
    let missing = match (&registration.key.0[..], registration.name.trim()) {
        ("", _) => "apikey",
        (_, "") => "name",
        _ => return Ok(()),
    };
    let message = format!("the registration has no {missing}");
    Err(Rejection {
        close: CLOSE_KEY,
        ..Rejection::refused(RefusalCode::Auth, message)
    })
}

impl Rejection {
    fn refused(code: RefusalCode, message: impl Into<String>) -> Self {
        Self {
            close: CLOSE_REFUSED,
            code,
            message: message.into(),
            retry: None,
        }
    }

    pub fn unreadable(message: impl Into<String>) -> Self {
        Self::refused(RefusalCode::Other, message)
    }

    pub fn cooling_down(retry: Duration) -> Self {
        let secs = retry.as_secs().max(1);
        let message = format!("the worker failed too often, try again in {secs} s");
        Self {
            retry: Some(Duration::from_secs(secs)),
            ..Self::refused(RefusalCode::Cooldown, message)
        }
    }

    pub fn stopping() -> Self {
        Self {
            close: CLOSE_LATER,
            retry: Some(STORE_PAUSE),
            ..Self::refused(RefusalCode::Other, "the coordinator is shutting down")
        }
    }

    /// Code and retry time are for peers that negotiate.
    pub fn frame(&self, negotiates: bool) -> RefusalFrame {
        RefusalFrame {
            message: self.message.clone(),
            code: negotiates.then_some(self.code),
            retry_secs: self
                .retry
                .filter(|_| negotiates)
                .map(|retry| retry.as_secs()),
        }
    }
}

impl From<Denial> for Rejection {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::UnknownKey => Self {
                close: CLOSE_KEY,
                ..Self::refused(RefusalCode::Auth, "the key is unknown, revoked or expired")
            },
            Denial::Deleted => Self::refused(RefusalCode::Auth, "the key's account is deleted"),
            Denial::Suspended => Self::refused(RefusalCode::Auth, "the key's account is suspended"),
            Denial::Flagged => Self::refused(
                RefusalCode::Other,
                "the account of the key is flagged as suspicious, its workers get no jobs",
            ),
            Denial::NoScope => {
                Self::refused(RefusalCode::Scope, "the key lacks the scope worker.connect")
            }
            Denial::OtherRig => Self::refused(
                RefusalCode::Scope,
                "the key is for a worker with another name",
            ),
            Denial::KeptOut => Self::refused(
                RefusalCode::Other,
                "the IP address of the worker is temporarily blocked",
            ),
            Denial::Hidden => Self::refused(
                RefusalCode::Other,
                "the IP address of the worker is in an anonymizing network (VPN or proxy), and the account is not trusted",
            ),
            Denial::NameTaken => Self::refused(
                RefusalCode::NameTaken,
                "the worker name belongs to another account",
            ),
            Denial::BadName => Self::refused(
                RefusalCode::Other,
                "the worker name is too long or has invalid characters",
            ),
            Denial::TooMany => Self::refused(
                RefusalCode::Other,
                "the account has reached its limit of workers: delete one, or reuse its name",
            ),
            Denial::InviteOnly => Self::refused(
                RefusalCode::Other,
                "new workers require an invitation, and the account has none left",
            ),
            Denial::Unavailable => Self {
                close: CLOSE_LATER,
                retry: Some(STORE_PAUSE),
                ..Self::refused(
                    RefusalCode::Other,
                    "the database is unavailable, retry later",
                )
            },
        }
    }
}

impl From<UnknownVersion> for Rejection {
    fn from(UnknownVersion(version): UnknownVersion) -> Self {
        let message = format!("version {version} of the extensions is no longer supported");
        Self::refused(RefusalCode::Version, message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::check;
    use muster_protocol::job::Kinds;
    use muster_protocol::link::Registration;

    fn refusal(change: impl Fn(&mut Registration)) -> (u16, String) {
        let mut registration = Registration::new("key", "rig", vec!["tiny".into()]);
        change(&mut registration);
        let rejection = check(&registration, &["old".into()]).unwrap_err();
        (rejection.close, rejection.message)
    }

    #[test]
    fn the_first_thing_that_is_wrong_is_named() {
        let (close, message) = refusal(|it| {
            it.models.push("old".into());
            it.worker_profile = Some(json!({}));
            it.key.0.clear();
        });
        assert_eq!(
            (close, message.as_str()),
            (4003, "the model old is retired")
        );
        let (close, message) = refusal(|it| {
            it.worker_profile = Some(json!({"id": 1}));
            it.key.0.clear();
        });
        assert_eq!(close, 4003);
        assert_eq!(message, "the worker profile is malformed");
        let audio = Kinds::from(muster_protocol::job::Kind::Music);
        let (close, message) = refusal(|it| {
            it.kinds = audio;
            it.key.0.clear();
        });
        assert_eq!(close, 4003);
        assert_eq!(message, "audio needs a managed profile");
        assert_eq!(refusal(|it| it.key.0.clear()).0, 4001);
        assert_eq!(refusal(|it| it.name = "  ".into()).0, 4001);
    }

    #[test]
    fn a_plain_registration_passes() {
        let registration = Registration::new("key", "rig", vec!["tiny".into()]);
        assert_eq!(check(&registration, &[]), Ok(()));
    }
}
