//! Documents and news of the operator.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::documents::{DatabaseKind, Document, MediaPlace, News, PrivacySettings, ResponsePolicy};
use crate::http::horde_refusal::Refused;
use crate::http::idempotency::REPLIES_KEPT;
use crate::http::legacy::asked::Query;
use crate::http::reply;
use crate::media::Media;
use crate::people::GRACE;
use crate::requests::LONGEST_KEPT;
use crate::responses::StoreResponses;
use crate::state::DoorSettings;
use crate::storage::Store;
use muster_protocol::legacy::service::{DocumentFormat, DocumentResponse, Newspiece};

type Settings = State<Arc<DoorSettings>>;

/// `GET /api/v2/documents/terms`
pub async fn terms(State(settings): Settings, query: Query) -> Result<Response, Refused> {
    written(&settings.documents.terms, &query)
}

/// `GET /api/v2/documents/privacy`
pub async fn privacy(
    State(settings): Settings,
    (State(store), State(media)): (State<Store>, State<Media>),
    query: Query,
) -> Result<Response, Refused> {
    let in_force = PrivacySettings {
        responses: match settings.responses.store {
            StoreResponses::UnlessRefused => ResponsePolicy::UnlessRefused,
            StoreResponses::OnRequest => ResponsePolicy::OnRequest,
            StoreResponses::Never => ResponsePolicy::Never,
        },
        responses_kept: settings.responses.kept,
        requests_kept: LONGEST_KEPT,
        media: match media.is_bucket() {
            true => MediaPlace::Bucket,
            false => MediaPlace::Folder,
        },
        media_kept: media.kept(),
        records_kept: settings.records_kept,
        replies_kept: REPLIES_KEPT,
        grace: GRACE,
        scrubs_secrets: settings.scrub_secrets,
        database: match store.is_sqlite() {
            true => DatabaseKind::Sqlite,
            false => DatabaseKind::Postgres,
        },
    };
    written(&settings.documents.privacy(&in_force), &query)
}

/// `GET /api/v2/documents/sponsors`
pub async fn sponsors(State(settings): Settings, query: Query) -> Result<Response, Refused> {
    written(&settings.documents.sponsors, &query)
}

/// `GET /api/v2/status/news`
pub async fn news(State(settings): Settings) -> Response {
    let news: Vec<Newspiece> = settings.documents.news.iter().map(newspiece).collect();
    reply::json(StatusCode::OK, &news)
}

fn written(document: &Document, query: &Query) -> Result<Response, Refused> {
    let format = query.word("format", DocumentFormat::Html)?;
    let text = match format {
        DocumentFormat::Html => &document.html,
        DocumentFormat::Markdown => &document.markdown,
    };
    let document = DocumentResponse::written(format, text.as_ref().to_owned());
    Ok(reply::json(StatusCode::OK, &document))
}

fn newspiece(news: &News) -> Newspiece {
    let some = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
    Newspiece {
        date_published: news.date.clone(),
        newspiece: news.text.clone(),
        importance: news.importance.clone(),
        tags: some(&news.tags),
        title: news.title.clone(),
        more_info_urls: some(&news.links),
    }
}
