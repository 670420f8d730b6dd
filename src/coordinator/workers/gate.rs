//! Permission to connect under a name: decided by accounts and the database, or by a test's stand-in.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::accounts::{Accounts, Caller, Denied, NoOwner};
use crate::moderation::Moderation;
use crate::rigs::{Applicant as Owner, NotAdmitted, Rigs};
use crate::values::suspicion::Reason;
use crate::values::{Roles, Scopes};
use muster_protocol::job::{AccountId, WorkerId};
use muster_protocol::link::Key;

/// Interval of checks, since a key expires without a change notification.
const EXPIRY_CHECK: Duration = Duration::from_secs(60);

/// A worker that wants to connect under this name.
#[derive(Debug, Clone)]
pub struct Applicant {
    pub key: Key,
    pub name: Arc<str>,
    pub agent: Arc<str>,
    /// The worker's address; `None` inside this process.
    pub address: Option<IpAddr>,
}

/// The worker's row, always the same for one name.
#[derive(Debug)]
pub struct Admitted {
    pub worker: WorkerId,
    pub public_id: Uuid,
    pub owner: AccountId,
    /// The operator trusts it.
    pub trusted: bool,
    pub revoked: Revoked,
    pub notices: Notices,
}

/// Settings that the worker's owner may know: maintenance, with its note.
#[derive(Clone, Default)]
pub struct Notices(Option<(Rigs, WorkerId)>);

/// Resolves with the reason when the worker would not be admitted any more, so that a connection does not outlive its
/// key.
pub struct Revoked(pub Pin<Box<dyn Future<Output = Denial> + Send>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    UnknownKey,
    /// The key's account is being deleted.
    Deleted,
    Suspended,
    /// The key's account is suspicious.
    Flagged,
    /// The key lacks the scope.
    NoScope,
    /// The key is bound to another worker.
    OtherRig,
    /// The address is blocked for a while.
    KeptOut,
    /// The address is of a VPN or proxy, and the owner is not trusted.
    Hidden,
    /// The name belongs to another account.
    NameTaken,
    BadName,
    /// The account is at its limit of workers.
    TooMany,
    /// New workers need an invitation.
    InviteOnly,
    /// The database is unavailable.
    Unavailable,
}

/// The scopes that allow a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectScopes {
    ConnectOnly,
    /// In public networks, keys for requests can connect workers.
    SubmitToo,
}

impl ConnectScopes {
    fn allow(self, caller: &Caller) -> bool {
        let submits = self == Self::SubmitToo && caller.may(Scopes::INFERENCE_SUBMIT);
        submits || caller.may(Scopes::WORKER_CONNECT)
    }
}

type Asking = Pin<Box<dyn Future<Output = Result<Admitted, Denial>> + Send>>;

#[derive(Clone)]
pub struct Gate(Arc<dyn Fn(Applicant) -> Asking + Send + Sync>);

impl Gate {
    pub fn new<F>(ask: impl Fn(Applicant) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Admitted, Denial>> + Send + 'static,
    {
        Self(Arc::new(move |applicant| Box::pin(ask(applicant))))
    }

    /// The gate with all checks.
    pub fn of(
        accounts: Accounts,
        rigs: Rigs,
        moderation: Moderation,
        scopes: ConnectScopes,
    ) -> Self {
        Self::new(move |applicant: Applicant| {
            let way = Way {
                moderation: moderation.clone(),
                address: applicant.address,
            };
            ask(accounts.clone(), rigs.clone(), (way, scopes), applicant)
        })
    }

    pub async fn ask(&self, applicant: Applicant) -> Result<Admitted, Denial> {
        (self.0)(applicant).await
    }
}

/// The worker's address, and the moderation rules for it.
#[derive(Debug)]
struct Way {
    moderation: Moderation,
    address: Option<IpAddr>,
}

impl Way {
    fn check(&self, caller: &Caller) -> Result<(), Denial> {
        match self.address {
            Some(address) if self.moderation.kept_out(address).is_some() => Err(Denial::KeptOut),
            Some(address) if self.moderation.is_hidden(address, caller.roles) => {
                Err(Denial::Hidden)
            }
            _ => Ok(()),
        }
    }
}

/// The result of a registration at this moment: whether the name is known, or the refusal. Registers nothing and adds
/// no suspicion mark.
pub async fn check(
    accounts: &Accounts,
    rigs: &Rigs,
    moderation: &Moderation,
    scopes: ConnectScopes,
    who: &Applicant,
) -> Result<bool, Denial> {
    let caller = vet(accounts, scopes, who).await?;
    let way = Way {
        moderation: moderation.clone(),
        address: who.address,
    };
    way.check(&caller)?;
    Ok(rigs.check(&Owner::on_socket(&who.name, &caller)).await?)
}

/// Checks the key, its account and their permissions.
async fn vet(
    accounts: &Accounts,
    scopes: ConnectScopes,
    who: &Applicant,
) -> Result<Arc<Caller>, Denial> {
    let caller = accounts.authenticate(&who.key.0).await?;
    caller.may_own()?;
    if !scopes.allow(&caller) {
        return Err(Denial::NoScope);
    }
    match caller.is_for_worker(&who.name) {
        true => Ok(caller),
        false => Err(Denial::OtherRig),
    }
}

async fn ask(
    accounts: Accounts,
    rigs: Rigs,
    (way, scopes): (Way, ConnectScopes),
    who: Applicant,
) -> Result<Admitted, Denial> {
    let caller = vet(&accounts, scopes, &who).await?;
    let caller = join(&accounts, scopes, &who, caller).await?;
    // Subscribed before the checks, so that no change is missed.
    let changes = (rigs.keys_revision(), way.moderation.timeouts_changed());
    let checked = way.check(&caller);
    if checked == Err(Denial::Hidden) {
        let account = caller.account;
        way.moderation.suspect(account, Reason::UnsafeAddress).await;
    }
    checked?;
    let row = rigs.meet(&Owner::on_socket(&who.name, &caller)).await?;
    let notices = Notices(Some((rigs, row.id)));
    let is_trusted = caller.roles.contains(Roles::TRUSTED);
    let revoked = Revoked(Box::pin(revoked(accounts, caller, way, changes)));
    Ok(Admitted {
        worker: row.id,
        public_id: row.public_id,
        owner: row.owner,
        trusted: row.trusted || is_trusted,
        revoked,
        notices,
    })
}

/// Binds the key of a join token to the first worker that connects with it.
async fn join(
    accounts: &Accounts,
    scopes: ConnectScopes,
    who: &Applicant,
    caller: Arc<Caller>,
) -> Result<Arc<Caller>, Denial> {
    if !caller.joins {
        return Ok(caller);
    }
    let bound = accounts.bind_key(caller.key, &who.name).await;
    bound.map_err(|_| Denial::from(Denied::Unavailable))?;
    // Another worker may have been first.
    vet(accounts, scopes, who).await
}

/// Checks the key again after every change of keys and accounts, and periodically because of expiry; after changes of
/// blocks only the address.
async fn revoked(
    accounts: Accounts,
    caller: Arc<Caller>,
    way: Way,
    (mut keys, mut timeouts): (watch::Receiver<i64>, watch::Receiver<()>),
) -> Denial {
    let mut expiry = Instant::now() + EXPIRY_CHECK;
    loop {
        let (changed, is_key) = select! {
            changed = keys.changed() => (changed, true),
            changed = timeouts.changed() => (changed, false),
            () = sleep_until(expiry) => (Ok(()), true),
        };
        if changed.is_err() {
            // The store is closing, and the process with it.
            return std::future::pending().await;
        }
        let checked = match is_key {
            true => {
                expiry = Instant::now() + EXPIRY_CHECK;
                recheck(&accounts, &caller, &way).await
            }
            // The key is unchanged.
            false => way.check(&caller),
        };
        match checked {
            // A connected worker stays while the database is unavailable.
            Ok(()) | Err(Denial::Unavailable) => {}
            Err(denial) => return denial,
        }
    }
}

async fn recheck(accounts: &Accounts, caller: &Caller, way: &Way) -> Result<(), Denial> {
    let caller = accounts.recheck(caller).await?;
    caller.may_own()?;
    way.check(&caller)
}

impl From<Denied> for Denial {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::UnknownKey => Self::UnknownKey,
            Denied::Unavailable => Self::Unavailable,
        }
    }
}

impl From<NoOwner> for Denial {
    fn from(not: NoOwner) -> Self {
        match not {
            NoOwner::Deleted => Self::Deleted,
            NoOwner::Suspended => Self::Suspended,
            NoOwner::Flagged => Self::Flagged,
        }
    }
}

impl From<NotAdmitted> for Denial {
    fn from(not: NotAdmitted) -> Self {
        match not {
            NotAdmitted::NameTaken => Self::NameTaken,
            NotAdmitted::Unavailable => Self::Unavailable,
            NotAdmitted::InviteOnly => Self::InviteOnly,
            NotAdmitted::TooMany | NotAdmitted::TooManyTrusted | NotAdmitted::TooManyHere => {
                Self::TooMany
            }
            // These apply only to polling workers.
            NotAdmitted::BadName | NotAdmitted::OtherTrade | NotAdmitted::Unfit(_) => Self::BadName,
        }
    }
}

impl Revoked {
    /// For keys that are never revoked.
    pub fn never() -> Self {
        Self(Box::pin(std::future::pending()))
    }
}

impl Notices {
    /// Sends the maintenance of the worker, now and after every change. Ends with the store.
    pub async fn follow(self, tell: impl Fn(Option<String>)) {
        let Some((rigs, worker)) = self.0 else {
            return std::future::pending().await;
        };
        let mut decisions = rigs.decisions();
        let mut told = None;
        loop {
            decisions.mark_unchanged();
            let now = rigs.maintenance(worker);
            if now != told {
                tell(now.clone());
                told = now;
            }
            if decisions.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Notices")
    }
}

impl fmt::Debug for Revoked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Revoked")
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Gate")
    }
}
