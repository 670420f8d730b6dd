//! Creation, changes and deletion of styles.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use uuid::Uuid;

use super::kinds::Kind;
use super::read::find;
use super::{
    check_name, check_words, done, is_owner, may_have, may_manage, name_taken, not_stored,
};
use crate::accounts::{ANONYMOUS, Caller};
use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::reply;
use crate::sharing::Sharing;
use crate::storage::{NewStyle, NotNamed, Store};
use crate::values::Roles;
use crate::values::styles::Recipe;
use muster_protocol::job::SharedKeyId;
use muster_protocol::legacy::service::SimpleResponse;
use muster_protocol::legacy::style::StyleModify;
use muster_protocol::legacy::{Code, Refusal};

/// `POST /api/v2/styles/image` and `…/text`
pub async fn create<K: Kind>(
    State(store): State<Store>,
    State(sharing): State<Sharing>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let new = K::made(&whole?.bytes)?;
    may_create(&caller)?;
    new.checked?;
    let shared_key = key(&sharing, &caller, new.shared_key.as_deref()).await?;
    let Recipe {
        name, info, tags, ..
    } = &new.recipe;
    check_name(name)?;
    check_words(Some(name), info.as_deref(), tags)?;
    new.recipe.check(caller.roles.contains(Roles::SPECIAL))?;
    let warnings = new.recipe.warnings();
    let style = NewStyle {
        id: Uuid::new_v4(),
        owner: caller.account,
        recipe: new.recipe,
        shared_key,
        created_at: wall_clock(),
    };
    let id = style.id;
    let created = store.create_style(style).await.map_err(not_stored)?;
    created.map_err(not_written)?;
    Ok(done(&StyleModify::done(id, warnings)))
}

/// `PATCH /api/v2/styles/image/{id}` and `…/text/{id}`: missing fields stay unchanged.
pub async fn change<K: Kind>(
    State(store): State<Store>,
    State(sharing): State<Sharing>,
    Admitted(caller): Admitted,
    path: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let changed = K::changed(&whole?.bytes)?;
    let style = find::<K>(&store, &path).await?;
    is_owner(&caller, style.owner)?;
    changed.checked?;
    let shared_key = key(&sharing, &caller, changed.shared_key.as_deref()).await?;
    let change = changed.change;
    if change.changes_nothing() && shared_key.is_none() {
        return Ok(done(&StyleModify::unchanged(style.id)));
    }
    change.name.as_deref().map_or(Ok(()), check_name)?;
    let tags = change.tags.as_deref().unwrap_or_default();
    check_words(change.name.as_deref(), change.info.as_deref(), tags)?;
    let recipe = style.recipe.changed(change.clone());
    recipe.check(caller.roles.contains(Roles::SPECIAL))?;
    let written = store.change_style(style.id, change, shared_key).await;
    written.map_err(not_stored)?.map_err(not_written)?;
    Ok(done(&StyleModify::done(style.id, recipe.warnings())))
}

/// `DELETE /api/v2/styles/image/{id}` and `…/text/{id}`
pub async fn delete<K: Kind>(
    State(store): State<Store>,
    Admitted(caller): Admitted,
    path: Named,
) -> Result<Response, Refused> {
    Code::StylesAnonForbidden.when(caller.account == ANONYMOUS)?;
    let style = find::<K>(&store, &path).await?;
    may_manage(&caller, style.owner, &store).await?;
    let deleted = store.delete_style(style.id).await.map_err(not_stored)?;
    Code::StyleNotFound.when(!deleted)?;
    Ok(reply::json(StatusCode::OK, &SimpleResponse::ok()))
}

fn may_create(caller: &Caller) -> Result<(), Refusal> {
    may_have(caller)?;
    let roles = [Roles::TRUSTED, Roles::CUSTOMIZER, Roles::MODERATOR];
    let is_trusted = roles.into_iter().any(|role| caller.has(role));
    Code::StylesRequiresCustomizer.when(!is_trusted)
}

/// The shared key to pay for its uses.
async fn key(
    sharing: &Sharing,
    caller: &Caller,
    key: Option<&str>,
) -> Result<Option<SharedKeyId>, Refused> {
    match key {
        None => Ok(None),
        Some(key) => Ok(Some(sharing.for_style(caller, key).await?)),
    }
}

fn not_written(not: NotNamed) -> Refusal {
    match not {
        NotNamed::Taken => name_taken(),
        NotNamed::Gone => Code::StyleNotFound.into(),
        NotNamed::NoKey => Code::SharedKeyInvalid.into(),
    }
}
