//! Whether somebody may have a worker of this name. What is looked at, and in which order, is the public contract's:
//! workers read the first thing that is wrong.

use crate::coordinator::accounts::{Caller, Roles};
use crate::coordinator::clock::wall_clock;
use crate::coordinator::profanity::is_profane;
use crate::coordinator::storage::{RigRow, StorageError, Store, WorkerError, WorkerRow};
use crate::protocol::job::AccountId;
use crate::protocol::legacy::words::{Trade, named};
use crate::protocol::legacy::worker::check_new_name;
use crate::protocol::legacy::{Code, Refusal};

/// Somebody comes with a worker.
#[derive(Debug, Clone, Copy)]
pub struct Applicant<'a> {
    pub name: &'a str,
    pub owner: AccountId,
    pub roles: Roles,
    /// None for a worker on a socket, which may do several things.
    pub trade: Option<Trade>,
    /// Where it comes from; empty if nobody knows.
    pub address: &'a str,
    /// New workers come by invitation only.
    pub by_invitation: bool,
}

/// How many workers one owner may run, and from one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    pub untrusted: usize,
    pub trusted: usize,
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAdmitted {
    /// A worker that does something else has the name.
    OtherTrade,
    BadName,
    /// The name says that the machine is borrowed, or holds what no name may.
    Unfit(Refusal),
    InviteOnly,
    TooMany,
    TooManyTrusted,
    TooManyHere,
    NameTaken,
    Unavailable,
}

impl<'a> Applicant<'a> {
    /// A worker that holds a socket.
    pub fn on_socket(name: &'a str, caller: &Caller) -> Self {
        Self {
            name,
            owner: caller.account,
            roles: caller.roles,
            trade: None,
            address: "",
            by_invitation: false,
        }
    }
}

impl Default for Quotas {
    /// Above these another one is one too many.
    fn default() -> Self {
        Self {
            untrusted: 3,
            trusted: 20,
        }
    }
}

pub async fn admit(
    who: &Applicant<'_>,
    store: &Store,
    quotas: Option<Quotas>,
) -> Result<WorkerRow, NotAdmitted> {
    match (store.rig_named(who.name).await?, who.trade) {
        (Some(known), Some(trade)) => check_known(who, trade, &known)?,
        (None, Some(_)) => {
            let others = store.rigs_of(who.owner).await?;
            let invited = store.workers_invited(who.owner).await?;
            check_new(who, &others, invited, quotas)?;
        }
        (_, None) => {}
    }
    Ok(store.worker(who.name, who.owner, wall_clock()).await?)
}

fn check_known(who: &Applicant<'_>, trade: Trade, known: &RigRow) -> Result<(), NotAdmitted> {
    match named::<Trade>(&known.trade) {
        Some(other) if other != trade => Err(NotAdmitted::OtherTrade),
        _ if known.owner.account != who.owner => Err(NotAdmitted::NameTaken),
        _ => Ok(()),
    }
}

fn check_new(
    who: &Applicant<'_>,
    others: &[RigRow],
    invited: usize,
    quotas: Option<Quotas>,
) -> Result<(), NotAdmitted> {
    let fit = Code::ProfaneWorkerName.when(is_profane(who.name));
    fit.and_then(|()| check_new_name(who.name))
        .map_err(NotAdmitted::Unfit)?;
    if who.by_invitation && invited <= others.len() {
        return Err(NotAdmitted::InviteOnly);
    }
    let Some(quotas) = quotas else {
        return Ok(());
    };
    let is_trusted = who.roles.contains(Roles::TRUSTED);
    let here = |rig: &&RigRow| !who.address.is_empty() && rig.said.address == who.address;
    let here = others.iter().filter(here).count();
    match is_trusted {
        false if others.len() > quotas.untrusted => Err(NotAdmitted::TooMany),
        true if others.len() > quotas.trusted.max(invited) => Err(NotAdmitted::TooManyTrusted),
        false if here > quotas.untrusted => Err(NotAdmitted::TooManyHere),
        true if here > quotas.trusted => Err(NotAdmitted::TooManyHere),
        _ => Ok(()),
    }
}

impl From<WorkerError> for NotAdmitted {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::NameTaken => Self::NameTaken,
            WorkerError::BadName => Self::BadName,
            WorkerError::Storage(_) => Self::Unavailable,
        }
    }
}

impl From<StorageError> for NotAdmitted {
    fn from(_: StorageError) -> Self {
        Self::Unavailable
    }
}
