//! `GET /v1/progress/{token}`: null where no running request carried the token lately.

use axum::extract::{Path, State};
use serde_json::json;

use super::reply::Reply;
use crate::progress::ProgressBoard;

pub async fn show(State(board): State<ProgressBoard>, Path(token): Path<String>) -> Reply {
    Reply(json!({"progress": board.percent(&token)}))
}
