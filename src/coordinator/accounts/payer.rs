//! The payer of a request: the caller, the owner of the shared key sent in place of a key, or the author of a style
//! whose shared key pays for its uses.

use std::sync::Arc;

use crate::accounts::{ANONYMOUS, Caller};
use crate::dispatch::{Priority, Standing};
use crate::values::{Roles, SharedKey};
use muster_protocol::job::{AccountId, Kudos, SharedKeyId, UnixMillis};
use muster_protocol::legacy::shared_key::JobLimits;
use muster_protocol::legacy::{Code, Refusal};

#[derive(Debug, Clone)]
pub struct Payer {
    pub account: AccountId,
    /// The payer's standing in the queue.
    pub standing: Standing,
    /// Balance above the floor, less holds.
    spare: Kudos,
    key: Option<Arc<SharedKey>>,
    /// The shared key is that of a style.
    by_style: bool,
    is_trusted: bool,
    /// The key has less budget than the request may cost.
    falls_short: bool,
    /// A key without enough budget is accepted, with low priority.
    allow_downgrade: bool,
}

impl Payer {
    /// `patron` is the owner of a style's key.
    pub fn of(
        caller: &Caller,
        patron: Option<&Caller>,
        allow_downgrade: bool,
        now: UnixMillis,
    ) -> Result<Self, Refusal> {
        if let Some(patron) = patron {
            let expired = caller
                .shared
                .as_ref()
                .is_some_and(|own| own.is_expired(now));
            Code::SharedKeyExpired.when(expired)?;
            return Ok(Self {
                by_style: true,
                ..Self::holding(patron, allow_downgrade)
            });
        }
        let payer = Self::holding(caller, allow_downgrade);
        let Some(key) = &caller.shared else {
            return Ok(payer);
        };
        Code::SharedKeyEmpty.when(key.is_empty() && !allow_downgrade)?;
        Code::SharedKeyExpired.when(key.is_expired(now))?;
        Code::SharedKeyAssignedStyles.when(key.has_styles)?;
        Ok(match key.is_empty() {
            true => payer.turned_anonymous(),
            false => payer,
        })
    }

    fn holding(caller: &Caller, allow_downgrade: bool) -> Self {
        Self {
            account: caller.account,
            standing: caller.standing(),
            spare: caller.spare(),
            key: caller.shared.clone(),
            by_style: false,
            is_trusted: caller.roles.contains(Roles::TRUSTED),
            falls_short: false,
            allow_downgrade,
        }
    }

    /// Refuses the anonymous account where anonymous requests are off.
    pub fn admitted(self, anonymous: bool) -> Result<Self, Refusal> {
        Code::SharedKeyEmpty.when(self.account == ANONYMOUS && !anonymous)?;
        Ok(self)
    }

    pub fn shared_key(&self) -> Option<SharedKeyId> {
        self.key.as_ref().map(|key| key.id)
    }

    /// Limits of one job by the shared key.
    pub fn limits(&self) -> Option<&JobLimits> {
        let key = self.key.as_ref().filter(|_| !self.by_style);
        key.map(|key| &key.limits)
    }

    /// Marks a payer that may lack the price: the request is accepted, but some workers take paid requests only.
    pub fn note_price(&mut self, price: Kudos) {
        self.standing.short = !self.is_trusted && self.spare < price;
    }

    /// The shared key whose budget must cover the request.
    pub fn limited_key(&self) -> Option<SharedKeyId> {
        let key = self.key.as_ref().filter(|key| key.budget.is_some());
        key.map(|key| key.id)
    }

    /// The shared key's budget is below the price: the key pays no more than the rest, and the request gets low
    /// priority.
    pub fn fall_short(&mut self) -> Result<(), Refusal> {
        Code::SharedKeyInsufficientKudos.when(!self.allow_downgrade)?;
        self.falls_short = true;
        self.standing.priority = Priority::Low;
        self.standing.short = true;
        Ok(())
    }

    pub fn falls_short(&self) -> bool {
        self.falls_short
    }

    fn turned_anonymous(self) -> Self {
        Self {
            account: ANONYMOUS,
            standing: Standing {
                kudos: Kudos(0),
                priority: Priority::Low,
                ..Standing::default()
            },
            spare: Kudos(0),
            key: None,
            is_trusted: false,
            ..self
        }
    }
}
