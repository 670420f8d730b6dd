//! Kudos transfers: between users, and awards by administrators from the house.

use std::time::Duration;

use crate::accounts::{ANONYMOUS, Accounts, Caller};
use crate::clock::wall_clock;
use crate::storage::{PersonRow, StorageError, Store};
use crate::values::alias::number;
use crate::values::{Roles, SharedKey};
use muster_protocol::job::{AccountId, Kudos, SharedKeyText, UnixMillis};
use muster_protocol::legacy::{Code, Refusal};

use crate::kudos::{Cause, MOST, MOST_CREATED, Posted, Posting};

/// After receiving kudos from a user, an account may not send them any for this long.
const PAUSE: Duration = Duration::from_secs(60);

/// Accounts with this many suspicion marks can neither give nor receive kudos.
const SUSPICIOUS: i64 = 5;

/// Transfers of kudos. Clones share their state.
#[derive(Debug, Clone)]
pub struct Giving {
    store: Store,
    accounts: Accounts,
}

/// A requested transfer.
#[derive(Debug, Clone, Copy)]
pub struct Gift<'a> {
    /// `name#id`, of which only the number counts, or a shared key.
    pub to: &'a str,
    /// Whole kudos.
    pub amount: i64,
    /// Idempotency key: of several gifts with the same one, only one is booked.
    pub once: Option<&'a str>,
}

#[derive(Debug, thiserror::Error)]
pub enum NotGiven {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The receiver: an account, or an account by its shared key.
#[derive(Debug)]
struct Receiver {
    account: AccountId,
    roles: Roles,
    is_suspicious: bool,
    key: Option<SharedKey>,
}

impl Giving {
    pub fn new(store: Store, accounts: Accounts) -> Self {
        Self { store, accounts }
    }

    /// A transfer between users; checks are in the order that clients know.
    pub async fn transfer(&self, giver: &Caller, gift: Gift<'_>) -> Result<Kudos, NotGiven> {
        let now = wall_clock();
        Code::KudosTransferFromAnon.when(giver.account == ANONYMOUS)?;
        let receiver = self.receiver(gift.to).await?;
        let receiver = receiver.ok_or(Refusal::from(Code::InvalidTargetUsername))?;
        let amount = Kudos(gift.amount.saturating_mul(1000));
        let posting = posting(giver, &receiver, &gift, now);
        if self.has_happened(&posting).await? {
            return Ok(amount);
        }
        refuse_key(receiver.key.as_ref(), now)?;
        Code::KudosTransferToAnon.when(receiver.account == ANONYMOUS)?;
        Code::KudosTransferToSelf.when(receiver.account == giver.account)?;
        self.refuse_return(giver.account, receiver.account, now)
            .await?;
        let sender = self.person(Some(giver.account)).await?;
        Code::FaultWhenKudosSending.when(sender.as_ref().is_some_and(is_suspicious))?;
        refuse_people(giver, &receiver)?;
        refuse_amount(gift.amount, MOST)?;
        let posted = match &receiver.key {
            Some(key) => self.store.post_to_key(posting, key.id, amount).await?,
            None => self.store.post(posting).await?,
        };
        self.accounts
            .refresh(&[giver.account, receiver.account])
            .await;
        match posted {
            Posted::Done | Posted::Already => Ok(amount),
            Posted::Conflict => Err(Refusal::from(Code::IdempotencyKeyConflict).into()),
            Posted::NotEnough => Err(Refusal::from(Code::KudosTransferNotEnough).into()),
        }
    }

    /// An administrator's award, paid by the house.
    pub async fn award(&self, giver: &Caller, gift: Gift<'_>) -> Result<Kudos, NotGiven> {
        Code::DeletedUser.when(giver.roles.contains(Roles::DELETED))?;
        Code::NotAllowedAwards.when(!giver.roles.contains(Roles::ADMIN))?;
        let account = account_in(gift.to);
        Code::KudosAwardToAnon.when(account == Some(ANONYMOUS))?;
        let known = self.person(account).await?;
        let receiver = known.ok_or(Refusal::from(Code::InvalidAwardUsername))?;
        refuse_amount(gift.amount, MOST_CREATED)?;
        let amount = Kudos(gift.amount.saturating_mul(1000));
        let posting = Posting::from_house(Cause::Award, receiver.account, amount, wall_clock())
            .about(format!("by {}", giver.account.0));
        self.store.post(posting).await?;
        self.accounts.refresh(&[receiver.account]).await;
        Ok(amount)
    }

    /// Whether this gift was booked before: a repeated call gets the first reply, whatever has changed since.
    async fn has_happened(&self, posting: &Posting) -> Result<bool, StorageError> {
        Ok(self.store.posted_before(posting).await? == Some(Posted::Already))
    }

    async fn receiver(&self, name: &str) -> Result<Option<Receiver>, StorageError> {
        let key = match SharedKeyText::parse(name) {
            Some(key) => match self
                .store
                .shared_key(self.accounts.seal().number_of(key))
                .await?
            {
                Some(key) => Some(key),
                None => return Ok(None),
            },
            None => None,
        };
        let account = key
            .as_ref()
            .map(|key| key.owner)
            .or_else(|| account_in(name));
        let person = self.person(account).await?;
        Ok(person.map(|person| Receiver {
            account: person.account,
            roles: person.roles,
            is_suspicious: is_suspicious(&person),
            key,
        }))
    }

    async fn person(&self, account: Option<AccountId>) -> Result<Option<PersonRow>, StorageError> {
        match account {
            Some(account) => self.store.person(account).await,
            None => Ok(None),
        }
    }

    async fn refuse_return(
        &self,
        giver: AccountId,
        receiver: AccountId,
        now: UnixMillis,
    ) -> Result<(), NotGiven> {
        let since = now.before(PAUSE);
        let gave = self.store.has_given(receiver, giver, since).await?;
        Ok(Code::TooFastKudosTransfers.when(gave)?)
    }
}

/// Trusted users are never suspicious.
fn is_suspicious(person: &PersonRow) -> bool {
    person.suspicion >= SUSPICIOUS && !person.roles.contains(Roles::TRUSTED)
}

fn posting(giver: &Caller, receiver: &Receiver, gift: &Gift<'_>, now: UnixMillis) -> Posting {
    let cause = match receiver.roles.contains(Roles::EDUCATION) {
        true => Cause::Donation,
        false => Cause::Transfer,
    };
    let (from, to) = (giver.account, receiver.account);
    let by = receiver.key.as_ref().map(|key| format!(" by {}", key.id));
    let about = format!("{} to {}{}", from.0, to.0, by.unwrap_or_default());
    let amount = Kudos(gift.amount.saturating_mul(1000));
    let posting = Posting::between(cause, (from, to), amount, now)
        .about(about)
        .above_floor(from);
    match gift.once {
        Some(key) => posting.once(format!("transfer {} {key}", from.0)),
        None => posting,
    }
}

/// With status 400 here, unlike the usual 403.
fn refuse_key(key: Option<&SharedKey>, now: UnixMillis) -> Result<(), Refusal> {
    let expired = Code::SharedKeyExpired.when(key.is_some_and(|key| key.is_expired(now)));
    expired.map_err(|refusal| refusal.at(400))
}

fn refuse_people(giver: &Caller, receiver: &Receiver) -> Result<(), Refusal> {
    Code::SourceAccountFlagged.when(giver.roles.contains(Roles::FLAGGED))?;
    Code::EducationCannotSendKudos.when(giver.roles.contains(Roles::EDUCATION))?;
    Code::FaultWhenKudosReceiving.when(receiver.is_suspicious)?;
    Code::TargetAccountFlagged.when(receiver.roles.contains(Roles::FLAGGED))?;
    let deleted = giver.roles.contains(Roles::DELETED) || receiver.roles.contains(Roles::DELETED);
    Code::DeletedUser
        .when(deleted)
        .map_err(|refusal| refusal.at(400))
}

fn refuse_amount(kudos: i64, most: Kudos) -> Result<(), Refusal> {
    Code::NegativeKudosTransfer.when(kudos < 0)?;
    Code::InvalidKudosTransferAmount.when(kudos == 0)?;
    let most = most.0 / 1000;
    match kudos <= most {
        true => Ok(()),
        false => Err(Refusal::new(
            Code::BadRequest,
            format!("amount {kudos} exceeds the maximum of {most}"),
        )),
    }
}

/// The number after the last `#`, or the whole text.
fn account_in(name: &str) -> Option<AccountId> {
    name.rsplit('#').next().and_then(number).map(AccountId)
}

#[cfg(test)]
mod tests {
    use super::{MOST, account_in, refuse_amount};
    use muster_protocol::job::AccountId;
    use muster_protocol::legacy::Code;

    #[test]
    fn the_number_behind_the_last_hash_says_who_receives() {
        let check = |name, expected: Option<i64>| {
            assert_eq!(account_in(name), expected.map(AccountId), "{name}")
        };
        check("alice#7", Some(7));
        check("a#1#7", Some(7));
        check("7", Some(7));
        check("Anonymous#0", Some(0));
        for nobody in [
            "alice",
            "alice#",
            "house#-1",
            "a#+7",
            "a#7 ",
            "",
            "a#99999999999999999999",
        ] {
            check(nobody, None);
        }
    }

    #[test]
    fn an_amount_is_more_than_nothing_and_not_absurd() {
        let code = |amount| {
            refuse_amount(amount, MOST)
                .err()
                .and_then(|refusal| refusal.code())
        };
        assert_eq!(code(1), None);
        assert_eq!(code(5_000_000_000), None);
        assert_eq!(code(0), Some(Code::InvalidKudosTransferAmount));
        assert_eq!(code(i64::MIN), Some(Code::NegativeKudosTransfer));
        assert_eq!(code(i64::MAX), Some(Code::BadRequest));
    }
}
