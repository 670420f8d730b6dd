//! Collections of styles.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use uuid::Uuid;

use super::{
    check_name, check_words, done, is_owner, may_have, may_manage, name_taken, not_stored,
};
use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::{Named, Query};
use crate::http::reply;
use crate::storage::{CollectionChange, NewCollection, NotNamed, Store};
use crate::styles::{NoMembers, Styles};
use crate::values::styles::{Collection, Member};
use muster_protocol::legacy::service::SimpleResponse;
use muster_protocol::legacy::style::collection::{
    InputModelCollection, NewModelCollection, ResponseModelCollection,
};
use muster_protocol::legacy::style::name::StyleName;
use muster_protocol::legacy::style::{Listed, ResponseModelStylesShort, Sort, StyleModify};
use muster_protocol::legacy::words::Making;
use muster_protocol::legacy::{Body, Code, Refusal};

/// `GET /api/v2/collections`: 25 of the public ones.
pub async fn collections(State(store): State<Store>, query: Query) -> Result<Response, Refused> {
    let sort = query.word("sort", Sort::Popular)?;
    let making = match query.word("type", Listed::All)? {
        Listed::Image => Some(Making::Image),
        Listed::Text => Some(Making::Text),
        Listed::All => None,
    };
    let found = store.collections(making, sort, query.page()?).await;
    let found = found.map_err(not_stored)?;
    let shown: Vec<_> = found.into_iter().map(shown).collect();
    Ok(reply::json(StatusCode::OK, &shown))
}

/// `GET /api/v2/collections/{id}`
pub async fn collection(State(store): State<Store>, path: Named) -> Result<Response, Refused> {
    let found = find(&store, &path).await?;
    Ok(reply::json(StatusCode::OK, &shown(found)))
}

/// `GET /api/v2/collection_by_name/{name}`
pub async fn collection_by_name(
    State(styles): State<Styles>,
    path: Named,
) -> Result<Response, Refused> {
    let name = StyleName::parse(path.text("name"));
    let found = styles.collection(&name, Making::Image).await;
    let found = found.map_err(not_stored)?.ok_or(Code::CollectionNotFound)?;
    Ok(reply::json(StatusCode::OK, &shown(found)))
}

/// `POST /api/v2/collections`
pub async fn create_collection(
    State(store): State<Store>,
    State(styles): State<Styles>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let new = NewModelCollection::parse(&whole?.bytes)?;
    may_have(&caller)?;
    check_name(&new.name)?;
    check_words(Some(&new.name), new.info.as_deref(), &[])?;
    let members = styles
        .members(&new.styles, None)
        .await
        .map_err(no_members)?;
    let collection = NewCollection {
        id: Uuid::new_v4(),
        owner: caller.account,
        making: members.making,
        name: new.name,
        info: new.info,
        public: new.public,
        members: members.ids,
        created_at: wall_clock(),
    };
    let id = collection.id;
    let created = store.create_collection(collection).await;
    created.map_err(not_stored)?.map_err(|_| name_taken())?;
    Ok(done(&StyleModify::done(id, Vec::new())))
}

/// `PATCH /api/v2/collections/{id}`: missing fields stay unchanged.
pub async fn change_collection(
    State(store): State<Store>,
    State(styles): State<Styles>,
    Admitted(caller): Admitted,
    path: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let change = InputModelCollection::parse(&whole?.bytes)?;
    let found = find(&store, &path).await?;
    is_owner(&caller, found.owner)?;
    if change.changes_nothing() {
        return Ok(done(&StyleModify::unchanged(found.id)));
    }
    change.name.as_deref().map_or(Ok(()), check_name)?;
    check_words(change.name.as_deref(), change.info.as_deref(), &[])?;
    let members = match &change.styles {
        Some(names) => Some(
            styles
                .members(names, Some(found.making))
                .await
                .map_err(no_members)?
                .ids,
        ),
        None => None,
    };
    let change = CollectionChange {
        name: change.name,
        info: change.info,
        public: change.public,
        members,
    };
    let written = store.change_collection(found.id, change).await;
    written.map_err(not_stored)?.map_err(|not| match not {
        NotNamed::Gone => Code::CollectionNotFound.into(),
        NotNamed::Taken | NotNamed::NoKey => name_taken(),
    })?;
    Ok(done(&StyleModify::done(found.id, Vec::new())))
}

/// `DELETE /api/v2/collections/{id}`: its styles stay.
pub async fn delete_collection(
    State(store): State<Store>,
    Admitted(caller): Admitted,
    path: Named,
) -> Result<Response, Refused> {
    let found = find(&store, &path).await?;
    may_manage(&caller, found.owner, &store).await?;
    let deleted = store
        .delete_collection(found.id)
        .await
        .map_err(not_stored)?;
    Code::CollectionNotFound.when(!deleted)?;
    Ok(reply::json(StatusCode::OK, &SimpleResponse::ok()))
}

async fn find(store: &Store, path: &Named) -> Result<Collection, Refusal> {
    let id = path.id("id").ok_or(Code::CollectionNotFound)?;
    let found = store.collection(id).await.map_err(not_stored)?;
    found.ok_or_else(|| Code::CollectionNotFound.into())
}

fn shown(collection: Collection) -> ResponseModelCollection {
    let member = |member: &Member| ResponseModelStylesShort {
        name: member.full_name(),
        id: member.id,
    };
    ResponseModelCollection {
        id: collection.id,
        styles: collection.members.iter().map(member).collect(),
        name: collection.name,
        making: collection.making,
        info: collection.info,
        public: collection.public,
        use_count: collection.use_count.unsigned_abs(),
    }
}

fn no_members(none: NoMembers) -> Refusal {
    match none {
        NoMembers::Storage(error) => not_stored(error),
        NoMembers::OtherMaking { .. } => Refusal::new(Code::StyleMismatch, none.to_string()),
        none => Refusal::new(Code::BadRequest, none.to_string()),
    }
}
