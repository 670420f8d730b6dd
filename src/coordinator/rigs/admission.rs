//! Whether somebody may have a worker of this name. What is looked at, and in which order, is the public contract's:
//! workers read the first thing that is wrong.

use crate::coordinator::accounts::{Caller, Roles};
use crate::coordinator::clock::wall_clock;
use crate::coordinator::moderation::Reason;
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
    /// What it calls its software; empty if it says nothing.
    pub agent: &'a str,
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
            agent: "",
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

/// Characters of a name that are enough for anybody, and bytes that the store takes.
const LONG_NAME: usize = 100;
const LONGEST_NAME: usize = 200;

/// What is suspicious about a name, whether or not it may be had.
pub fn suspicion_of(name: &str) -> Option<Reason> {
    match name {
        _ if name.len() > LONGEST_NAME => Some(Reason::WorkerNameExtreme),
        _ if is_profane(name) => Some(Reason::WorkerNameProfane),
        _ => (name.chars().count() > LONG_NAME).then_some(Reason::WorkerNameLong),
    }
}

pub async fn admit(
    who: &Applicant<'_>,
    store: &Store,
    quotas: Option<Quotas>,
) -> Result<WorkerRow, NotAdmitted> {
    if let Some(known) = store.rig_named(who.name).await? {
        check_known(who, &known)?;
        return Ok(known.worker());
    }
    if who.trade.is_some() {
        check_name(who)?;
        check_number(who, store, quotas).await?;
    }
    Ok(store.worker(who.name, who.owner, wall_clock()).await?)
}

fn check_known(who: &Applicant<'_>, known: &RigRow) -> Result<(), NotAdmitted> {
    match (named::<Trade>(&known.trade), who.trade) {
        (Some(other), Some(trade)) if other != trade => Err(NotAdmitted::OtherTrade),
        _ if known.owner.account != who.owner => Err(NotAdmitted::NameTaken),
        _ => Ok(()),
    }
}

fn check_name(who: &Applicant<'_>) -> Result<(), NotAdmitted> {
    let fit = Code::ProfaneWorkerName.when(is_profane(who.name));
    fit.and_then(|()| Code::ProfaneBridgeAgent.when(is_profane(who.agent)))
        .and_then(|()| check_new_name(who.name))
        .map_err(NotAdmitted::Unfit)
}

/// Counted only where the number matters: whoever has thousands of workers waits for none of them.
async fn check_number(
    who: &Applicant<'_>,
    store: &Store,
    quotas: Option<Quotas>,
) -> Result<(), NotAdmitted> {
    if !who.by_invitation && quotas.is_none() {
        return Ok(());
    }
    let crew = store.crew(who.owner, who.address).await?;
    let invited = store.workers_invited(who.owner).await?;
    if who.by_invitation && invited <= crew.all {
        return Err(NotAdmitted::InviteOnly);
    }
    let Some(quotas) = quotas else {
        return Ok(());
    };
    let here = match who.address.is_empty() {
        true => 0,
        false => crew.here,
    };
    match who.roles.contains(Roles::TRUSTED) {
        false if crew.all > quotas.untrusted => Err(NotAdmitted::TooMany),
        true if crew.all > quotas.trusted.max(invited) => Err(NotAdmitted::TooManyTrusted),
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
