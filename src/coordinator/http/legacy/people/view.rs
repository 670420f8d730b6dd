//! A user as strangers, the user and moderators see them: each view adds fields to the one before.

use crate::accounts::ANONYMOUS;
use crate::clock::wall_clock;
use crate::people::{People, Sources};
use crate::requests::Requests;
use crate::storage::{Amounts, PersonRow, Records, StorageError};
use crate::values::styles::Style;
use crate::values::{Alias, Roles};
use muster_protocol::job::{AccountId, Kind, Kudos, RequestId};
use muster_protocol::legacy::date::Date;
use muster_protocol::legacy::user::{
    ContributionsDetails, MonthlyKudos, ResponseModelStylesUser, UsageDetails,
    UserActiveGenerations, UserAmountRecords, UserDetails, UserKudosDetails, UserRecords,
    UserThingRecords,
};
use muster_protocol::legacy::words::Making;

/// The relation of the caller to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    Stranger,
    Own,
    Moderator,
}

impl View {
    /// The anonymous key is public, so it never gets the owner's view.
    fn of(self, account: AccountId) -> Self {
        match (self, account) {
            (Self::Own, ANONYMOUS) => Self::Stranger,
            (view, _) => view,
        }
    }
}

/// The services that fill in a view.
pub struct Viewer<'a> {
    pub people: &'a People,
    pub requests: &'a Requests,
    /// Concurrency of accounts without a limit of their own.
    pub usual_concurrency: i64,
}

impl Viewer<'_> {
    pub async fn look(&self, person: PersonRow, view: View) -> Result<UserDetails, StorageError> {
        let view = view.of(person.account);
        let sources = self.people.sources(&person).await?;
        let workers = self.people.workers(person.account).await?;
        let mut details = self.public(&person, &sources, workers.len());
        let styles = self.people.styles(person.account).await?;
        details.records.style = uses(&styles);
        let is_shown = |style: &&Style| style.recipe.public || view >= View::Own;
        details.styles = styles.iter().filter(is_shown).map(shown_style).collect();
        if view >= View::Own || person.public_workers {
            details.worker_ids = Some(workers);
        }
        if view >= View::Own {
            self.add_own(&person, &mut details);
            details.sharedkey_ids = Some(self.people.shared_keys(person.account).await?);
        }
        if view >= View::Moderator {
            add_confidential(person, &mut details);
        }
        Ok(details)
    }

    fn public(&self, person: &PersonRow, sources: &Sources, workers: usize) -> UserDetails {
        let is = |role| person.roles.contains(role);
        let age = wall_clock().0.saturating_sub(person.created_at.0);
        let alias = Alias {
            name: &person.name,
            account: person.account,
        };
        UserDetails {
            username: alias.to_string(),
            id: person.account.0,
            kudos: in_kudos(person.kudos),
            concurrency: person.concurrency.unwrap_or(self.usual_concurrency),
            worker_invited: person.worker_invited,
            moderator: person.roles.moderates(),
            kudos_details: kudos_details(sources),
            worker_count: workers as u64,
            styles: Vec::new(),
            trusted: is(Roles::TRUSTED),
            flagged: is(Roles::FLAGGED),
            service: is(Roles::SERVICE),
            education: is(Roles::EDUCATION),
            customizer: is(Roles::CUSTOMIZER),
            deleted: is(Roles::DELETED),
            pseudonymous: person.login.is_none(),
            account_age: u64::try_from(age / 1000).unwrap_or(0),
            usage: UsageDetails::default(),
            contributions: ContributionsDetails::default(),
            records: records(&person.records),
            evaluating_kudos: None,
            worker_ids: None,
            sharedkey_ids: None,
            active_generations: None,
            monthly_kudos: None,
            vpn: None,
            special: None,
            suspicious: None,
            contact: None,
            admin_comment: None,
            proxy_passkey: None,
        }
    }

    fn add_own(&self, person: &PersonRow, details: &mut UserDetails) {
        // The ids of anonymous requests stay hidden: an id gives access to its results.
        let is_shared = person.account == ANONYMOUS;
        details.active_generations = (!is_shared).then(|| active(self.requests, person.account));
        details.vpn = Some(person.roles.contains(Roles::VPN));
        details.special = Some(person.roles.contains(Roles::SPECIAL));
        details.contact = person.contact.clone();
    }
}

fn add_confidential(person: PersonRow, details: &mut UserDetails) {
    details.evaluating_kudos = Some(in_kudos(person.escrow));
    details.monthly_kudos = Some(MonthlyKudos {
        amount: Some(person.monthly_kudos.0 / 1000),
        last_received: person.monthly_paid_at.map(Date),
    });
    details.suspicious = Some(person.suspicion);
    details.admin_comment = person.admin_comment;
    details.proxy_passkey = person.proxy_passkey;
}

fn shown_style(style: &Style) -> ResponseModelStylesUser {
    ResponseModelStylesUser {
        making: style.recipe.making(),
        name: style.full_name(),
        id: style.id,
    }
}

/// Uses of a user's styles, images and texts.
fn uses(styles: &[Style]) -> UserAmountRecords {
    let of = |making: Making| {
        let its = styles
            .iter()
            .filter(|style| style.recipe.making() == making);
        its.map(|style| style.use_count).sum()
    };
    UserAmountRecords {
        image: of(Making::Image),
        text: of(Making::Text),
        interrogation: 0,
    }
}

/// Unfinished requests.
fn active(requests: &Requests, account: AccountId) -> UserActiveGenerations {
    let unfinished = requests.unfinished(account);
    let of = |kind: Kind| -> Vec<RequestId> {
        let its = unfinished.iter().filter(|request| request.kind == kind);
        its.map(|request| request.id).collect()
    };
    UserActiveGenerations {
        text: Some(of(Kind::Text)),
        image: Some(of(Kind::Image)),
        alchemy: Some(of(Kind::Form)),
    }
}

fn kudos_details(sources: &Sources) -> UserKudosDetails {
    UserKudosDetails {
        accumulated: in_kudos(sources.accumulated),
        gifted: in_kudos(sources.gifted),
        donated: in_kudos(sources.donated),
        admin: in_kudos(sources.admin),
        received: in_kudos(sources.received),
        recurring: in_kudos(sources.recurring),
        awarded: in_kudos(sources.awarded),
        styled: in_kudos(sources.styled),
    }
}

fn records(records: &Records) -> UserRecords {
    UserRecords {
        usage: UserThingRecords {
            megapixelsteps: records.used_pixelsteps as f64 / 1000.0,
            tokens: records.used_tokens,
        },
        contribution: UserThingRecords {
            megapixelsteps: records.made_pixelsteps as f64 / 1000.0,
            tokens: records.made_tokens,
        },
        fulfillment: amounts(records.made),
        request: amounts(records.asked),
        style: UserAmountRecords::default(),
    }
}

fn amounts(amounts: Amounts) -> UserAmountRecords {
    UserAmountRecords {
        image: amounts.images,
        text: amounts.texts,
        interrogation: amounts.interrogations,
    }
}

pub fn in_kudos(thousandths: Kudos) -> f64 {
    thousandths.0 as f64 / 1000.0
}
