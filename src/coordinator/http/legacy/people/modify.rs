//! `PUT /api/v2/users/{id}`: changes of a user, and their permissions.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::super::asked::Named;
use super::view::in_kudos;
use super::{person, unreadable};
use crate::accounts::{ANONYMOUS, Caller};
use crate::display_name::{FORBIDDEN, is_readable};
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::kudos::MOST;
use crate::moderation::Moderation;
use crate::people::People;
use crate::profanity::is_profane;
use crate::rigs::Rigs;
use crate::state::DoorSettings;
use crate::storage::{Changed, PersonChange, PersonRow};
use crate::values::suspicion::Reason;
use crate::values::{KeyText, Roles};
use muster_protocol::job::Kudos;
use muster_protocol::legacy::user::{ModifyUser, ModifyUserInput};
use muster_protocol::legacy::{Body, Code, Refusal};

const LONGEST_NAME: usize = 30;
/// Concurrency of education accounts.
const CLASS: i64 = 200;

pub async fn modify(
    State(people): State<People>,
    (State(moderation), State(rigs)): (State<Moderation>, State<Rigs>),
    State(settings): State<Arc<DoorSettings>>,
    Admitted(caller): Admitted,
    path: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = ModifyUserInput::parse(&whole?.bytes)?;
    let found = person(&people, path.text("id")).await?;
    allow(&caller, &found, &asked)?;
    if let Some(reason) = asked.username.as_deref().and_then(suspicion_of_name)
        && !caller.roles.moderates()
    {
        moderation.suspect(caller.account, reason).await;
    }
    check(&found, &asked)?;
    let change = change(&asked)?;
    Code::NoUserModSelected.when(change == PersonChange::default())?;
    let gains_trust = change.gains.contains(Roles::TRUSTED);
    let shown = ModifyUser {
        concurrency: change
            .concurrency
            .map(|own| own.unwrap_or(settings.usual_concurrency())),
        ..shown(&asked, change.proxy_passkey.clone())
    };
    let changed = people.change(found.account, change).await;
    let changed = changed.map_err(unreadable)?.ok_or(Code::UserNotFound)?;
    if gains_trust {
        rigs.relearn_all_of(found.account).await?;
    }
    Ok(reply::json(
        StatusCode::OK,
        &with_sums(shown, &asked, changed),
    ))
}

/// Each field is for administrators, for moderators, or for the user as well.
fn allow(caller: &Caller, user: &PersonRow, asked: &ModifyUserInput) -> Result<(), Refusal> {
    let is_anonymous = caller.account == ANONYMOUS || user.account == ANONYMOUS;
    Code::AnonForbiddenUserMod.when(is_anonymous)?;
    let moderates = caller.roles.moderates();
    let is_own = caller.account == user.account;
    Code::NotAdmin.when(is_for_admins(asked) && !caller.roles.contains(Roles::ADMIN))?;
    Code::NotModerator.when(is_for_moderators(asked) && !moderates)?;
    Code::NotModerator.when(is_for_owners(asked) && !moderates && !is_own)?;
    Code::NotAdmin.when(!is_own && !caller.outranks(user.roles))?;
    let wants_passkey = asked.generate_proxy_passkey == Some(true);
    Code::NonServiceForbidden.when(wants_passkey && !caller.roles.contains(Roles::SERVICE))
}

fn is_for_admins(asked: &ModifyUserInput) -> bool {
    asked.kudos.is_some()
        || asked.usage_multiplier.is_some()
        || asked.moderator.is_some()
        || asked.monthly_kudos.is_some()
}

fn is_for_moderators(asked: &ModifyUserInput) -> bool {
    let roles = roles(asked).iter().any(|(_, wanted)| wanted.is_some());
    roles
        || asked.concurrency.is_some()
        || asked.worker_invited.is_some()
        || asked.reset_suspicion.is_some()
        || asked.admin_comment.is_some()
}

fn is_for_owners(asked: &ModifyUserInput) -> bool {
    asked.public_workers.is_some()
        || asked.username.is_some()
        || asked.undelete.is_some()
        || asked.contact.is_some()
        || asked.generate_proxy_passkey.is_some()
}

/// The roles that moderators grant and revoke.
fn roles(asked: &ModifyUserInput) -> [(Roles, Option<bool>); 8] {
    [
        (Roles::TRUSTED, asked.trusted),
        (Roles::FLAGGED, asked.flagged),
        (Roles::CUSTOMIZER, asked.customizer),
        (Roles::VPN, asked.vpn),
        (Roles::SPECIAL, asked.special),
        (Roles::SERVICE, asked.service),
        (Roles::EDUCATION, asked.education),
        (Roles::FILTERED, asked.filtered),
    ]
}

/// Such a name is refused, and adds a suspicion mark.
fn suspicion_of_name(name: &str) -> Option<Reason> {
    match name.chars().count() > LONGEST_NAME {
        true => Some(Reason::UserNameLong),
        false => is_profane(name).then_some(Reason::UserNameProfane),
    }
}

fn check(user: &PersonRow, asked: &ModifyUserInput) -> Result<(), Refusal> {
    if let Some(name) = &asked.username {
        Code::TooLongUserName.when(name.chars().count() > LONGEST_NAME)?;
        if !is_readable(name) {
            let message = format!("a user name must not contain {FORBIDDEN}");
            return Err(Refusal::new(Code::BadRequest, message));
        }
    }
    let holds_one = |text: &Option<String>| text.as_deref().is_some_and(is_profane);
    Code::ProfaneUserName.when(holds_one(&asked.username))?;
    Code::ProfaneUserContact.when(holds_one(&asked.contact))?;
    Code::ProfaneAdminComment.when(holds_one(&asked.admin_comment))?;
    let undeletes = asked.undelete == Some(true);
    Code::UserNotDeleted.when(undeletes && user.deleted_at.is_none())
}

fn change(asked: &ModifyUserInput) -> Result<PersonChange, Refusal> {
    let set = |wanted: bool| {
        let roles = roles(asked).into_iter();
        let roles = roles.filter(move |(_, asked)| *asked == Some(wanted));
        roles.map(|(role, _)| role).collect::<Roles>()
    };
    let (mut gains, mut loses) = (set(true), set(false));
    match asked.moderator {
        Some(true) => gains = gains.with(Roles::MODERATOR.with(Roles::TRUSTED)),
        Some(false) => loses = loses.with(Roles::MODERATOR),
        None => {}
    }
    let returns = asked.undelete == Some(true);
    if returns {
        loses = loses.with(Roles::DELETED);
    }
    let passkey = asked.generate_proxy_passkey == Some(true);
    Ok(PersonChange {
        name: asked.username.clone(),
        contact: asked.contact.clone(),
        admin_comment: asked.admin_comment.clone(),
        concurrency: concurrency(asked),
        usage_multiplier: asked
            .usage_multiplier
            .map(|by| (by * 1000.0).round() as i64),
        worker_invited: asked.worker_invited,
        public_workers: asked.public_workers,
        proxy_passkey: passkey.then(|| KeyText::random().expose().to_owned()),
        resets_suspicion: asked.reset_suspicion == Some(true),
        returns,
        gains,
        loses,
        // A fraction is dropped.
        kudos: asked
            .kudos
            .map(f64::trunc)
            .map(in_thousandths)
            .transpose()?,
        monthly_kudos: monthly(asked)?,
    })
}

/// Education accounts get a higher concurrency, reset when the role is revoked.
fn concurrency(asked: &ModifyUserInput) -> Option<Option<i64>> {
    let as_class = asked.education.map(|is_class| is_class.then_some(CLASS));
    asked.concurrency.map(Some).or(as_class)
}

fn monthly(asked: &ModifyUserInput) -> Result<Option<Kudos>, Refusal> {
    let kudos = asked
        .monthly_kudos
        .map(|kudos| in_thousandths(kudos as f64));
    kudos.transpose()
}

fn in_thousandths(kudos: f64) -> Result<Kudos, Refusal> {
    let most = MOST.0 as f64 / 2.0;
    let thousandths = (kudos * 1000.0).round();
    match thousandths.abs() <= most {
        true => Ok(Kudos(thousandths as i64)),
        false => {
            let most = most / 1000.0;
            let message = format!("kudos must be from -{most} to {most}, found {kudos}");
            Err(Refusal::new(Code::BadRequest, message))
        }
    }
}

/// The reply: every changed field with its new value.
fn shown(asked: &ModifyUserInput, passkey: Option<String>) -> ModifyUser {
    ModifyUser {
        usage_multiplier: asked.usage_multiplier,
        worker_invited: asked.worker_invited,
        moderator: asked.moderator,
        public_workers: asked.public_workers,
        username: asked.username.clone(),
        trusted: asked
            .trusted
            .or((asked.moderator == Some(true)).then_some(true)),
        flagged: asked.flagged,
        customizer: asked.customizer,
        vpn: asked.vpn,
        service: asked.service,
        education: asked.education,
        special: asked.special,
        undeleted: (asked.undelete == Some(true)).then_some(true),
        new_suspicion: (asked.reset_suspicion == Some(true)).then_some(0),
        contact: asked.contact.clone(),
        admin_comment: asked.admin_comment.clone(),
        proxy_passkey: passkey,
        ..ModifyUser::default()
    }
}

fn with_sums(shown: ModifyUser, asked: &ModifyUserInput, changed: Changed) -> ModifyUser {
    ModifyUser {
        new_kudos: asked.kudos.map(|_| in_kudos(changed.kudos)),
        monthly_kudos: asked.monthly_kudos.map(|_| changed.monthly_kudos.0 / 1000),
        ..shown
    }
}
