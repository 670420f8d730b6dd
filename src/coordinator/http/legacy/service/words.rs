//! What the operator tells people: documents and news.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::documents::{Document, News};
use crate::http::legacy::Refused;
use crate::http::legacy::asked::Query;
use crate::http::reply;
use crate::state::DoorSettings;
use muster_protocol::legacy::service::{DocumentFormat, DocumentResponse, Newspiece};

type Settings = State<Arc<DoorSettings>>;

/// `GET /api/v2/documents/terms`
pub async fn terms(State(settings): Settings, query: Query) -> Result<Response, Refused> {
    written(&settings.documents.terms, &query)
}

/// `GET /api/v2/documents/privacy`
pub async fn privacy(State(settings): Settings, query: Query) -> Result<Response, Refused> {
    written(&settings.documents.privacy, &query)
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
