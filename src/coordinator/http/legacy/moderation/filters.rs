//! `/api/v2/filters`: prompt filters, for moderators.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::{Named, Query};
use crate::http::reply;
use crate::moderation::{LISTED, Moderation, NotWritten};
use crate::storage::{
    FilterChange, FilterChanged, FilterMade, FilterRow, MOST_FILTERS, NewFilter, StorageError,
    Store,
};
use crate::values::Alias;
use muster_protocol::legacy::filter::{
    FilterDetails, FilterPromptSuspicion, FilterRegex, PatchExistingFilter, PromptCheckInput,
    PutNewFilter,
};
use muster_protocol::legacy::service::SimpleResponse;
use muster_protocol::legacy::{Body, Code, Refusal};

/// `POST /api/v2/filters`: tests a prompt against the filters, without consequences for the account.
pub async fn try_out(
    State(moderation): State<Moderation>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = PromptCheckInput::parse(&whole?.bytes)?;
    let found = moderation
        .suspicion_of(asked.prompt, asked.filter_type)
        .await;
    let answer = FilterPromptSuspicion::of(found.level, found.matches);
    Ok(reply::json(StatusCode::OK, &answer))
}

/// `PUT /api/v2/filters`: returns an existing filter of the same pattern and type.
pub async fn make(
    State(moderation): State<Moderation>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = PutNewFilter::parse(&whole?.bytes)?;
    let filter = NewFilter {
        regex: asked.regex,
        kind: asked.filter_type,
        description: asked.description,
        replacement: asked.replacement,
        editor: caller.account,
        now: wall_clock(),
    };
    match moderation.make_filter(filter).await.map_err(not_written)? {
        FilterMade::New(row) | FilterMade::Known(row) => written(StatusCode::CREATED, row),
        FilterMade::Full => {
            let message =
                format!("the limit of {MOST_FILTERS} filters is reached; delete one first");
            Err(Refusal::new(Code::BadRequest, message).into())
        }
    }
}

/// `GET /api/v2/filters`
pub async fn list(State(store): State<Store>, query: Query) -> Result<Response, Refused> {
    let kind = filter_type(&query)?;
    let part = query.text("contains").unwrap_or_default();
    let mut rows = store.filters().await.map_err(unavailable)?;
    rows.retain(|row| {
        let described = row.description.as_ref();
        let is_meant =
            row.regex.contains(part) || described.is_some_and(|text| text.contains(part));
        kind.is_none_or(|kind| row.kind == kind) && is_meant
    });
    let listed: Vec<_> = rows.into_iter().map(details).collect();
    Ok(reply::json(StatusCode::OK, &listed))
}

/// `GET /api/v2/filters/regex`: all patterns of a type joined, for clients that check prompts themselves.
pub async fn regexes(State(store): State<Store>, query: Query) -> Result<Response, Refused> {
    let only = filter_type(&query)?;
    let rows = store.filters().await.map_err(unavailable)?;
    let joined = |kind: i64| {
        let patterns = rows.iter().filter(|row| row.kind == kind);
        let patterns: Vec<_> = patterns.map(|row| row.regex.as_str()).collect();
        FilterRegex {
            filter_type: kind,
            regex: (!patterns.is_empty()).then(|| patterns.join("|")),
        }
    };
    let kinds = LISTED
        .into_iter()
        .filter(|kind| only.is_none_or(|only| only == *kind));
    let listed: Vec<_> = kinds.map(joined).collect();
    Ok(reply::json(StatusCode::OK, &listed))
}

/// `GET /api/v2/filters/{id}`: a list of one, as in the specification. Public coordinators reply with the filter
/// itself.
pub async fn read(State(store): State<Store>, named: Named) -> Result<Response, Refused> {
    let row = store.filter(number(&named)?).await.map_err(unavailable)?;
    let row = row.ok_or(Code::FilterNotFound)?;
    Ok(reply::json(StatusCode::OK, &[details(row)]))
}

/// `PATCH /api/v2/filters/{id}`
pub async fn change(
    State(moderation): State<Moderation>,
    Admitted(caller): Admitted,
    named: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = PatchExistingFilter::parse(&whole?.bytes)?.without_empty();
    let id = number(&named)?;
    Code::NoFilterModSelected.when(asked.changes_nothing())?;
    let change = FilterChange {
        id,
        regex: asked.regex,
        kind: asked.filter_type,
        description: asked.description,
        replacement: asked.replacement,
        editor: caller.account,
        now: wall_clock(),
    };
    match moderation
        .change_filter(change)
        .await
        .map_err(not_written)?
    {
        FilterChanged::Done(row) => written(StatusCode::OK, row),
        FilterChanged::Unknown => Err(Code::FilterNotFound.into()),
        FilterChanged::Twin(twin) => {
            let message = format!("filter {twin} already has this regex and filter_type");
            Err(Refusal::new(Code::BadRequest, message).into())
        }
    }
}

/// `DELETE /api/v2/filters/{id}`
pub async fn remove(
    State(moderation): State<Moderation>,
    named: Named,
) -> Result<Response, Refused> {
    let removed = moderation.remove_filter(number(&named)?).await;
    match removed.map_err(unavailable)? {
        true => Ok(reply::json(StatusCode::OK, &SimpleResponse::ok())),
        false => Err(Code::FilterNotFound.into()),
    }
}

/// A number that cannot be parsed is an unknown filter.
fn number(named: &Named) -> Result<i64, Refusal> {
    let id = named.text("id").parse();
    id.map_err(|_| Code::FilterNotFound.into())
}

fn filter_type(query: &Query) -> Result<Option<i64>, Refusal> {
    let number = query.text("filter_type").map(str::parse).transpose();
    number.map_err(|_| Refusal::invalid("filter_type", "must be an integer"))
}

fn written(status: StatusCode, row: FilterRow) -> Result<Response, Refused> {
    let written = details(row).written();
    let written =
        written.map_err(|_| Refusal::plain(500, "internal error: encoding the reply failed"))?;
    Ok(reply::json(status, &written))
}

fn details(row: FilterRow) -> FilterDetails {
    let editor = Alias {
        name: &row.editor_name,
        account: row.editor,
    };
    FilterDetails {
        id: row.id.to_string(),
        regex: row.regex,
        filter_type: row.kind,
        description: row.description,
        replacement: row.replacement,
        user: editor.to_string(),
    }
}

fn not_written(not: NotWritten) -> Refusal {
    match not {
        NotWritten::Storage(error) => unavailable(error),
        not => Refusal::new(Code::BadRequest, not.to_string()),
    }
}

fn unavailable(_: StorageError) -> Refusal {
    Refusal::plain(503, "the database is unavailable; retry later")
}
