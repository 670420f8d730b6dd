//! Whether an owner may register a worker of this name. The checks and their order are the public contract's: workers
//! read the first error.

use crate::accounts::Caller;
use crate::clock::wall_clock;
use crate::profanity::is_profane;
use crate::storage::{Crew, Joined, RigRow, StorageError, Store, WorkerError};
use crate::values::Roles;
use crate::values::suspicion::Reason;
use muster_protocol::job::AccountId;
use muster_protocol::legacy::words::{Trade, named};
use muster_protocol::legacy::worker::check_new_name;
use muster_protocol::legacy::{Code, Refusal};

/// A worker that wants to register.
#[derive(Debug, Clone, Copy)]
pub struct Applicant<'a> {
    pub name: &'a str,
    pub owner: AccountId,
    pub roles: Roles,
    /// `None` for a socket worker, which may have several kinds.
    pub trade: Option<Trade>,
    /// The worker's user agent; empty if unknown.
    pub agent: &'a str,
    /// The worker's address; empty if unknown.
    pub address: &'a str,
}

/// Rules for new workers.
#[derive(Debug, Clone, Copy)]
pub struct House {
    /// `None`: no limit per owner and address.
    pub quotas: Option<Quotas>,
    /// Whether new workers need an invitation.
    pub by_invitation: bool,
}

/// Limits of workers per owner, and per address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    pub untrusted: usize,
    pub trusted: usize,
}

/// Why a worker is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The name belongs to a worker of another kind.
    OtherTrade,
    BadName,
    /// The name claims a borrowed machine, or contains forbidden characters or words.
    Unfit(Refusal),
    InviteOnly,
    TooMany,
    TooManyTrusted,
    TooManyHere,
    NameTaken,
    Unavailable,
}

impl<'a> Applicant<'a> {
    /// A socket worker.
    pub fn on_socket(name: &'a str, caller: &Caller) -> Self {
        Self {
            name,
            owner: caller.account,
            roles: caller.roles,
            trade: None,
            agent: "",
            address: "",
        }
    }
}

impl Default for Quotas {
    /// The numbers are inclusive limits.
    fn default() -> Self {
        Self {
            untrusted: 3,
            trusted: 20,
        }
    }
}

/// Longer names, in characters, are suspicious; the hard limit, in bytes, is the database's.
const LONG_NAME: usize = 100;
const LONGEST_NAME: usize = 200;

/// The suspicion that a name raises, whether or not it is accepted.
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
    house: House,
) -> Result<Joined, NotAdmitted> {
    if let Some(known) = store.rig_named(who.name).await? {
        check_known(who, &known)?;
        return Ok(Joined {
            row: known.worker(),
            is_new: false,
        });
    }
    // Socket workers may have any name.
    if who.trade.is_some() {
        check_name(who)?;
    }
    let most = room(who, store, house).await?;
    let new = store.worker_among(most, who.name, who.owner, wall_clock());
    Ok(new.await?)
}

/// True if the worker is known, or the reason against its admission. Changes nothing.
pub async fn check(who: &Applicant<'_>, store: &Store, house: House) -> Result<bool, NotAdmitted> {
    if let Some(known) = store.rig_named(who.name).await? {
        return check_known(who, &known).map(|()| true);
    }
    if who.name.is_empty() || who.name.len() > LONGEST_NAME || who.name.contains(char::is_control) {
        return Err(NotAdmitted::BadName);
    }
    let most = room(who, store, house).await?;
    match most < usize::MAX && store.crew(who.owner, who.address).await?.all >= most {
        true => Err(NotAdmitted::TooMany),
        false => Ok(false),
    }
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

/// The owner's limit of workers; refused if the limit is reached already. Workers are counted only if there is a limit.
async fn room(who: &Applicant<'_>, store: &Store, house: House) -> Result<usize, NotAdmitted> {
    if !house.by_invitation && house.quotas.is_none() {
        return Ok(usize::MAX);
    }
    let crew = store.crew(who.owner, who.address).await?;
    let invited = store.workers_invited(who.owner).await?;
    if house.by_invitation && invited <= crew.all {
        return Err(NotAdmitted::InviteOnly);
    }
    let invitations = match house.by_invitation {
        true => invited,
        false => usize::MAX,
    };
    let Some(quotas) = house.quotas else {
        return Ok(invitations);
    };
    Ok(quotas.room(who, crew, invited)?.min(invitations))
}

impl Quotas {
    fn room(self, who: &Applicant<'_>, crew: Crew, invited: usize) -> Result<usize, NotAdmitted> {
        let (all, here, too_many) = match who.roles.contains(Roles::TRUSTED) {
            false => (self.untrusted, self.untrusted, NotAdmitted::TooMany),
            true => (
                self.trusted.max(invited),
                self.trusted,
                NotAdmitted::TooManyTrusted,
            ),
        };
        match crew {
            Crew { all: has, .. } if has > all => Err(too_many),
            Crew { here: has, .. } if has > here && !who.address.is_empty() => {
                Err(NotAdmitted::TooManyHere)
            }
            _ => Ok(all.saturating_add(1)),
        }
    }
}

impl From<WorkerError> for NotAdmitted {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::NameTaken => Self::NameTaken,
            WorkerError::BadName => Self::BadName,
            WorkerError::TooMany => Self::TooMany,
            WorkerError::Storage(_) => Self::Unavailable,
        }
    }
}

impl From<StorageError> for NotAdmitted {
    fn from(_: StorageError) -> Self {
        Self::Unavailable
    }
}
