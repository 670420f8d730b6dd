//! `GET /v1/progress/{token}`: null if no recent request used the token.

use axum::extract::{Path, State};
use serde_json::json;

use super::reply::Reply;
use crate::progress::ProgressBoard;
use crate::requests::Requests;

pub async fn show(
    State(board): State<ProgressBoard>,
    State(requests): State<Requests>,
    Path(token): Path<String>,
) -> Reply {
    let percent = board.percent(&token);
    let percent = percent.or_else(|| requests.progress_of(&token));
    Reply(json!({"progress": percent}))
}
