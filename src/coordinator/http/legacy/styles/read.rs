//! Styles listed, and looked up by id or name. Lists hold public styles only; a lookup finds private ones, too. Only
//! its owner sees a style's shared key, since knowing a key is enough to spend it.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::kinds::Kind;
use super::not_stored;
use crate::error::ApiError;
use crate::http::auth::Visitor;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::{Named, Query};
use crate::http::legacy::sharedkeys::details;
use crate::http::reply;
use crate::sharing::Sharing;
use crate::storage::{Store, StylePage};
use crate::styles::Styles;
use crate::values::styles::Style;
use muster_protocol::legacy::style::Sort;
use muster_protocol::legacy::style::name::StyleName;
use muster_protocol::legacy::{Code, Refusal};

/// The caller, if any.
type Viewer = Result<Visitor, ApiError>;

/// `GET /api/v2/styles/image` and `…/text`: 25 of them.
pub async fn list<K: Kind>(
    (State(store), State(sharing)): (State<Store>, State<Sharing>),
    viewer: Viewer,
    query: Query,
) -> Result<Response, Refused> {
    let page = StylePage {
        making: K::MAKING,
        sort: query.word("sort", Sort::Popular)?,
        page: query.page()?,
        tag: query.text("tag").map(str::to_owned),
        model: query.text("model").map(str::to_owned),
    };
    let styles = store.styles(&page).await.map_err(not_stored)?;
    let shown = with_keys::<K>(&store, &sharing, styles, viewer).await?;
    Ok(reply::json(StatusCode::OK, &shown))
}

/// `GET /api/v2/styles/image/{id}` and `…/text/{id}`
pub async fn show<K: Kind>(
    (State(store), State(sharing)): (State<Store>, State<Sharing>),
    viewer: Viewer,
    path: Named,
) -> Result<Response, Refused> {
    let id = path.id("id").ok_or(K::UNKNOWN)?;
    let style = store.style(id).await.map_err(not_stored)?;
    shown::<K>(&store, &sharing, style.ok_or(K::UNKNOWN)?, viewer).await
}

/// `GET /api/v2/styles/image_by_name/{name}` and `…/text_by_name/{name}`
pub async fn named<K: Kind>(
    State(styles): State<Styles>,
    (State(store), State(sharing)): (State<Store>, State<Sharing>),
    viewer: Viewer,
    path: Named,
) -> Result<Response, Refused> {
    let name = StyleName::parse(path.text("name"));
    let style = styles.style(&name, K::MAKING).await.map_err(not_stored)?;
    shown::<K>(&store, &sharing, style.ok_or(Code::StyleNotFound)?, viewer).await
}

async fn shown<K: Kind>(
    store: &Store,
    sharing: &Sharing,
    style: Style,
    viewer: Viewer,
) -> Result<Response, Refused> {
    let is_other = style.recipe.making() != K::MAKING;
    Code::StyleGetMismatch.when(is_other)?;
    let shown = with_keys::<K>(store, sharing, vec![style], viewer)
        .await?
        .pop();
    Ok(reply::json(StatusCode::OK, &shown.ok_or(K::UNKNOWN)?))
}

/// Adds the shared keys of the caller's own styles.
async fn with_keys<K: Kind>(
    store: &Store,
    sharing: &Sharing,
    styles: Vec<Style>,
    viewer: Viewer,
) -> Result<Vec<K::Shown>, Refusal> {
    // An unknown key gets the public view, not 401.
    let viewer = viewer.ok().and_then(|Visitor(caller)| caller);
    let viewer = viewer.filter(|caller| caller.sees_own());
    let is_own = |style: &&Style| viewer.as_ref().is_some_and(|it| it.account == style.owner);
    let own = styles.iter().filter(is_own);
    let ids: Vec<_> = own.filter_map(|style| style.shared_key).collect();
    let keys = store.shared_keys_among(&ids).await.map_err(not_stored)?;
    let shown = styles.into_iter().map(|style| {
        let key = keys.iter().find(|key| Some(key.id) == style.shared_key);
        let key = key.map(|key| details(key.clone(), sharing)).transpose();
        Ok(K::shown(style, key.map_err(not_stored)?))
    });
    shown.collect()
}

/// The style that is to be changed or deleted.
pub async fn find<K: Kind>(store: &Store, path: &Named) -> Result<Style, Refusal> {
    let id = path.id("id").ok_or(Code::StyleNotFound)?;
    let style = store.style(id).await.map_err(not_stored)?;
    let style = style.ok_or(Code::StyleNotFound)?;
    Code::StyleMismatch.when(style.recipe.making() != K::MAKING)?;
    Ok(style)
}
