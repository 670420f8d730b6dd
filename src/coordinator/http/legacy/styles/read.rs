//! Styles listed, and shown by id or by name. Lists hold the public ones; whoever knows an id or a name sees the
//! others, too.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::kinds::Kind;
use super::not_stored;
use crate::coordinator::http::legacy::asked::{Named, Query};
use crate::coordinator::http::legacy::refused::Refused;
use crate::coordinator::http::reply;
use crate::coordinator::storage::{Store, StylePage};
use crate::coordinator::styles::{Style, Styles};
use crate::protocol::legacy::style::Sort;
use crate::protocol::legacy::style::name::StyleName;
use crate::protocol::legacy::{Code, Refusal};

/// `GET /api/v2/styles/image` and `…/text`: 25 of them.
pub async fn list<K: Kind>(State(store): State<Store>, query: Query) -> Result<Response, Refused> {
    let page = StylePage {
        making: K::MAKING,
        sort: query.word("sort", Sort::Popular)?,
        page: query.page()?,
        tag: query.text("tag").map(str::to_owned),
        model: query.text("model").map(str::to_owned),
    };
    let styles = store.styles(&page).await.map_err(not_stored)?;
    let shown = with_keys::<K>(&store, styles).await?;
    Ok(reply::json(StatusCode::OK, &shown))
}

/// `GET /api/v2/styles/image/{id}` and `…/text/{id}`
pub async fn show<K: Kind>(State(store): State<Store>, path: Named) -> Result<Response, Refused> {
    let id = path.id("id").ok_or(K::UNKNOWN)?;
    let style = store.style(id).await.map_err(not_stored)?;
    shown::<K>(&store, style.ok_or(K::UNKNOWN)?).await
}

/// `GET /api/v2/styles/image_by_name/{name}` and `…/text_by_name/{name}`
pub async fn named<K: Kind>(
    State(styles): State<Styles>,
    State(store): State<Store>,
    path: Named,
) -> Result<Response, Refused> {
    let name = StyleName::parse(path.text("name"));
    let style = styles.style(&name, K::MAKING).await.map_err(not_stored)?;
    shown::<K>(&store, style.ok_or(Code::StyleNotFound)?).await
}

async fn shown<K: Kind>(store: &Store, style: Style) -> Result<Response, Refused> {
    let is_other = style.recipe.making() != K::MAKING;
    Code::StyleGetMismatch.when(is_other)?;
    let shown = with_keys::<K>(store, vec![style]).await?.pop();
    Ok(reply::json(StatusCode::OK, &shown.ok_or(K::UNKNOWN)?))
}

/// With the keys that pay for them.
async fn with_keys<K: Kind>(store: &Store, styles: Vec<Style>) -> Result<Vec<K::Shown>, Refusal> {
    let ids: Vec<_> = styles.iter().filter_map(|style| style.shared_key).collect();
    let keys = store.shared_keys_among(&ids).await.map_err(not_stored)?;
    let shown = styles.into_iter().map(|style| {
        let key = keys.iter().find(|key| Some(key.id) == style.shared_key);
        K::shown(style, key.cloned())
    });
    Ok(shown.collect())
}

/// The style that is to be changed or deleted.
pub async fn find<K: Kind>(store: &Store, path: &Named) -> Result<Style, Refusal> {
    let id = path.id("id").ok_or(Code::StyleNotFound)?;
    let style = store.style(id).await.map_err(not_stored)?;
    let style = style.ok_or(Code::StyleNotFound)?;
    Code::StyleMismatch.when(style.recipe.making() != K::MAKING)?;
    Ok(style)
}
