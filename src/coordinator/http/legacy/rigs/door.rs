//! Checks common to all pops: the caller's permission, whose jobs have priority, the accepted models, and the reply if
//! no job fits.

use std::sync::Arc;

use crate::accounts::{ANONYMOUS, Caller, NoOwner};
use crate::dispatch::Offer;
use crate::http::legacy::moderation::Door;
use crate::media::{MediaError, NoKey};
use crate::modes::Modes;
use crate::pollers::{NotServed, Pollers};
use crate::rigs::NotAdmitted;
use crate::values::modes::ModeSet;
use crate::values::suspicion::Reason;
use muster_protocol::job::{AccountId, Failure, FailureKind};
use muster_protocol::legacy::pop::user_in_alias;
use muster_protocol::legacy::{Code, Refusal};

/// The accounts with priority at a worker.
pub fn preferred(names: Option<&[String]>) -> Result<Vec<AccountId>, Refusal> {
    let names = names.unwrap_or_default().iter();
    let accounts = names.map(|name| user_in_alias(name).map(AccountId));
    let accounts: Option<Vec<_>> = accounts.collect();
    accounts.ok_or_else(|| Code::InvalidPriorityUsername.into())
}

/// Whether this account may have workers.
pub fn may_pop(caller: &Caller) -> Result<(), Refusal> {
    caller.may_own().map_err(|not| match not {
        NoOwner::Deleted => Code::DeletedUser,
        NoOwner::Suspended => Code::Forbidden,
        NoOwner::Flagged => Code::WorkerFlaggedMaintenance,
    })?;
    Code::AnonForbiddenWorker.when(caller.account == ANONYMOUS)
}

/// Whether the worker gets its owner's jobs only, because its address is of a VPN or proxy. In raid mode this is hidden
/// from it; at other times it is refused.
pub async fn is_kept_back(door: &Door, caller: &Caller, modes: &Modes) -> Result<bool, Refusal> {
    let is_hidden = door.is_hidden(caller);
    if is_hidden && !modes.are_on(ModeSet::RAID) {
        let suspected = door
            .moderation
            .suspect(caller.account, Reason::UnsafeAddress);
        suspected.await;
        return Err(Code::UnsafeIp.into());
    }
    Ok(is_hidden)
}

/// At most `most` of the offered models, without aliases reserved for other accounts.
pub fn models(models: Vec<String>, caller: &Caller, most: usize) -> Result<Vec<Arc<str>>, Refusal> {
    let may_serve = |model: &String| match model.rsplit_once("::") {
        Some((_, alias)) => user_in_alias(alias).is_none_or(|id| AccountId(id) == caller.account),
        None => true,
    };
    let models = models.into_iter().take(most).filter(may_serve);
    let models: Vec<Arc<str>> = models.map(Arc::from).collect();
    match models.is_empty() {
        true => Err(Refusal::models_not_accepted()),
        false => Ok(models),
    }
}

/// Why an offered job is not delivered to its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untold {
    /// The stored request cannot be parsed, by this worker or any other.
    Unreadable,
    /// The media store is unavailable.
    NoStore,
}

impl From<NoKey> for Untold {
    fn from(_: NoKey) -> Self {
        Self::Unreadable
    }
}

impl From<MediaError> for Untold {
    fn from(_: MediaError) -> Self {
        Self::NoStore
    }
}

/// Fails jobs whose stored request cannot be parsed, as they would come first in every pop. Jobs that lack a link
/// return to the queue.
pub async fn take_back(pollers: &Pollers, offers: &[Offer], why: Untold) -> Result<(), Refusal> {
    match why {
        Untold::Unreadable => {
            let failure = Failure::new(
                FailureKind::BadJob,
                "the stored request cannot be read; send it again",
            );
            pollers.end(offers, failure).await;
            Ok(())
        }
        Untold::NoStore => {
            let message = "creating media links failed; retry later";
            Err(Refusal::plain(503, message))
        }
    }
}

pub fn not_served(not: NotServed, name: &str) -> Refusal {
    match not {
        NotServed::OtherRig => Refusal::new(
            Code::WrongCredentials,
            "wrong credentials: this key is for another worker",
        ),
        NotServed::NotAdmitted(not) => not_admitted(not, name),
        NotServed::Maintenance(note) => Refusal::worker_in_maintenance(Some(&note)),
        NotServed::Barred => {
            Refusal::worker_in_maintenance(Some("too many failed jobs recently; retry later"))
        }
        NotServed::Unavailable => Refusal::plain(503, "worker lookup failed; retry later"),
    }
}

fn not_admitted(not: NotAdmitted, name: &str) -> Refusal {
    match not {
        NotAdmitted::NameTaken => Refusal::worker_of_another(name),
        NotAdmitted::OtherTrade => Code::PolymorphicNameConflict.into(),
        NotAdmitted::Unfit(refusal) => refusal,
        NotAdmitted::InviteOnly => Code::WorkerInviteOnly.into(),
        NotAdmitted::TooMany => Code::TooManyWorkers.into(),
        NotAdmitted::TooManyTrusted => Code::TooManyWorkersTrusted.into(),
        NotAdmitted::TooManyHere => Code::TooManySameIps.into(),
        NotAdmitted::BadName => Refusal::new(
            Code::BadRequest,
            "a worker name must have 1 to 200 bytes and no control characters",
        ),
        NotAdmitted::Unavailable => Refusal::plain(503, "worker lookup failed; retry later"),
    }
}
