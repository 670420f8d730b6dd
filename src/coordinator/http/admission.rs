//! The admission of a request for jobs: the caller, the address, privacy, money, moderation and memory, and where jobs go.
//! Routes for texts, media and values begin with the same.

use std::hash::BuildHasher;
use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;

use super::address::LetIn;
use super::admitted::Admitted;
use super::cashier::Cashier;
use super::entrance::Arrival;
use super::open::{KnownModels, Open};
use super::room::Memory;
use crate::accounts::Caller;
use crate::error::ApiError;
use crate::moderation::{Asker, Moderation};
use crate::modes::Modes;
use crate::state::DoorSettings;
use crate::switchboard::Switchboard;
use crate::values::modes::ModeSet;
use muster_protocol::job::{FailureKind, Privacy, RequestId};

#[derive(Debug, Clone)]
pub struct Admission {
    pub caller: Arc<Caller>,
    pub request: RequestId,
    address: Result<LetIn, ApiError>,
    pub board: Switchboard,
    pub models: Arc<KnownModels>,
    pub settings: Arc<DoorSettings>,
    pub memory: Memory,
    pub moderation: Moderation,
    pub cashier: Cashier,
    modes: Modes,
}

/// The asker of an admitted request, and whether the address hides its place.
#[derive(Debug, Clone, Copy)]
pub struct AdmittedAsker {
    pub asker: Asker,
    pub is_hidden: bool,
}

impl FromRequestParts<Open> for Admission {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, open: &Open) -> Result<Self, ApiError> {
        let Admitted(caller) = Admitted::from_request_parts(parts, open).await?;
        let address = LetIn::from_request_parts(parts, open).await;
        let Arrival { id } = Arrival::from_request_parts(parts, open).await?;
        let cashier = Cashier::from_request_parts(parts, open).await?;
        Ok(Self::new(open, caller, id, (address, cashier)))
    }
}

impl Admission {
    fn new(
        open: &Open,
        caller: Arc<Caller>,
        request: RequestId,
        (address, cashier): (Result<LetIn, ApiError>, Cashier),
    ) -> Self {
        Self {
            caller,
            request,
            address,
            cashier,
            board: FromRef::from_ref(open),
            models: FromRef::from_ref(open),
            settings: FromRef::from_ref(open),
            memory: FromRef::from_ref(open),
            moderation: FromRef::from_ref(open),
            modes: FromRef::from_ref(open),
        }
    }

    /// For a request accepted by an earlier process, with the same id.
    pub fn resumed(open: &Open, caller: Caller, request: RequestId) -> Self {
        let caller = Arc::new(caller);
        let address = Ok(LetIn(Ipv4Addr::LOCALHOST.into()));
        let cashier = Cashier::resumed(open, caller.clone());
        Self::new(open, caller, request, (address, cashier))
    }

    /// A seed derived from the request's id, so that another attempt of the same request generates the same image.
    pub fn seed(&self) -> u64 {
        self.settings.prefixes.hash_one(self.request) & u64::from(u32::MAX)
    }

    /// Refuses a blocked address.
    pub fn asker(&self) -> Result<AdmittedAsker, ApiError> {
        let LetIn(address) = self.address.clone()?;
        let (account, roles) = (self.caller.account, self.caller.roles);
        Ok(AdmittedAsker {
            asker: Asker {
                account,
                roles,
                address,
            },
            is_hidden: self.moderation.is_hidden(address, roles),
        })
    }

    /// The same for a new request: clients behind VPNs and proxies are refused in raid mode.
    pub fn admit(&self) -> Result<AdmittedAsker, ApiError> {
        let admitted = self.asker()?;
        if admitted.is_hidden && self.modes.are_on(ModeSet::RAID) {
            let message =
                "requests from VPN or proxy addresses are temporarily refused for untrusted users";
            return Err(ApiError::new(FailureKind::AccessDenied, message));
        }
        Ok(admitted)
    }
}

impl AdmittedAsker {
    /// Requests through VPNs and proxies go to workers that the operator trusts.
    pub fn privacy(self) -> Privacy {
        match self.is_hidden {
            true => Privacy::Trusted,
            false => Privacy::Anyone,
        }
    }
}
