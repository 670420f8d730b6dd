//! Checks of a request: its address and its prompt.

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;

use crate::accounts::Caller;
use crate::error::ApiError;
use crate::http::Address;
use crate::moderation::{Asker, Blocked, LONGEST, Moderation, Prompt};
use crate::modes::Modes;
use crate::values::modes::ModeSet;
use muster_protocol::legacy::{Code, Refusal};

/// The address of a request, and the moderation rules for it.
#[derive(Debug, Clone)]
pub struct Door {
    pub moderation: Moderation,
    pub address: IpAddr,
    /// Whether the client program is blocked.
    is_blocked: bool,
}

/// `name:version:url`; unknown if missing.
const CLIENT_AGENT: &str = "client-agent";
const UNKNOWN: &str = "unknown:0:unknown";

/// Longer timeouts are reported without their remaining time.
const LONG: Duration = Duration::from_secs(4 * 24 * 60 * 60);

impl Door {
    /// Refuses a blocked address.
    pub fn keep_out_blocked(&self) -> Result<(), Refusal> {
        match self.moderation.kept_out(self.address) {
            None => Ok(()),
            Some(left) if left > LONG => Err(Code::TimeoutIP.into()),
            Some(left) => {
                let minutes = left.as_secs().div_ceil(60);
                let message = format!("your IP address is blocked for another {minutes} minutes");
                Err(Refusal::new(Code::TimeoutIP, message))
            }
        }
    }

    /// Refuses blocked client programs.
    pub fn refuse_blocked_clients(&self) -> Result<(), Refusal> {
        Code::BannedClientAgent.when(self.is_blocked)
    }

    /// Whether the request comes through a VPN or proxy and its account is not trusted.
    pub fn is_hidden(&self, caller: &Caller) -> bool {
        self.moderation.is_hidden(self.address, caller.roles)
    }

    /// In raid mode, refuses clients behind VPNs and proxies.
    pub fn refuse_raiders(&self, caller: &Caller, modes: &Modes) -> Result<(), Refusal> {
        let is_raider = modes.are_on(ModeSet::RAID) && self.is_hidden(caller);
        Code::UntrustedUnsafeIP.when(is_raider)
    }

    /// The moderated prompt, if it changed.
    pub async fn examine(
        &self,
        prompt: Prompt<'_>,
        caller: &Caller,
    ) -> Result<Option<String>, Refusal> {
        let who = Asker {
            account: caller.account,
            roles: caller.roles,
            address: self.address,
        };
        let examined = self.moderation.examine(prompt, &who).await;
        examined.map_err(|blocked| match blocked {
            Blocked::Corrupt => Code::CorruptPrompt.into(),
            Blocked::TooLong(characters) => {
                let message = format!(
                    "a prompt that the content filters rewrite must have at most {LONGEST} characters, found {characters}"
                );
                Refusal::new(Code::BadRequest, message)
            }
            Blocked::Slow => {
                let message = "the content filters took too long to read the prompt: shorten it";
                Refusal::new(Code::BadRequest, message)
            }
            Blocked::Unread { found, most } => {
                let message = format!("the prompt must have at most {most} bytes, found {found}");
                Refusal::new(Code::InvalidPromptSize, message)
            }
        })
    }
}

impl<S: Sync> FromRequestParts<S> for Door
where
    Moderation: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Address(address) = Address::from_request_parts(parts, state).await?;
        let moderation = Moderation::from_ref(state);
        let client = parts.headers.get(CLIENT_AGENT);
        let client = client.and_then(|client| client.to_str().ok());
        Ok(Self {
            is_blocked: moderation.is_blocked_client(client.unwrap_or(UNKNOWN)),
            moderation,
            address,
        })
    }
}
