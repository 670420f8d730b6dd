//! Totals of generated images and texts, in time windows that end now.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::{SPECIAL, is_known, public_name, unknown_numbers};
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Query;
use crate::http::reply;
use crate::names::Names;
use crate::state::DoorSettings;
use crate::stats::{Made, Stats, Window};
use muster_protocol::job::Kind;
use muster_protocol::legacy::Refusal;
use muster_protocol::legacy::service::ModelState;
use muster_protocol::legacy::stats::{
    ByModel, ImgModelStats, SinglePeriodImgStat, SinglePeriodTxtStat, StatsImgTotals,
    StatsTxtTotals, TxtModelStats,
};

/// `GET /api/v2/stats/img/totals`
pub async fn images(State(stats): State<Stats>) -> Result<Response, Refused> {
    let [minute, hour, day, month, total] = totals(&stats, Kind::Image).await?;
    let period = |made: Made| SinglePeriodImgStat {
        images: made.outputs,
        ps: made.size,
    };
    let totals = StatsImgTotals {
        minute: period(minute),
        hour: period(hour),
        day: period(day),
        month: period(month),
        total: period(total),
    };
    Ok(reply::json(StatusCode::OK, &totals))
}

/// `GET /api/v2/stats/text/totals`
pub async fn texts(State(stats): State<Stats>) -> Result<Response, Refused> {
    let [minute, hour, day, month, total] = totals(&stats, Kind::Text).await?;
    let period = |made: Made| SinglePeriodTxtStat {
        requests: made.outputs,
        tokens: made.size,
    };
    let totals = StatsTxtTotals {
        minute: period(minute),
        hour: period(hour),
        day: period(day),
        month: period(month),
        total: period(total),
    };
    Ok(reply::json(StatusCode::OK, &totals))
}

/// Totals of the last minute, hour, day and month, and lifetime.
async fn totals(stats: &Stats, kind: Kind) -> Result<[Made; 5], Refusal> {
    let picture = stats.picture().await.map_err(unknown_numbers)?;
    let windows = [
        &picture.minute,
        &picture.hour,
        &picture.day,
        &picture.month,
        &picture.ever,
    ];
    Ok(windows.map(|window| window.total(kind)))
}

/// `GET /api/v2/stats/img/models`
pub async fn image_models(
    State(stats): State<Stats>,
    State(settings): State<Arc<DoorSettings>>,
    query: Query,
) -> Result<Response, Refused> {
    let state = query.word("model_state", ModelState::Known)?;
    let picture = stats.picture().await.map_err(unknown_numbers)?;
    let by_model = |window| by_model(window, Kind::Image, state, &settings.names);
    let models = ImgModelStats {
        day: by_model(&picture.day),
        month: by_model(&picture.month),
        total: by_model(&picture.ever),
    };
    Ok(reply::json(StatusCode::OK, &models))
}

/// `GET /api/v2/stats/text/models`
pub async fn text_models(
    State(stats): State<Stats>,
    State(settings): State<Arc<DoorSettings>>,
) -> Result<Response, Refused> {
    let picture = stats.picture().await.map_err(unknown_numbers)?;
    let by_model = |window| by_model(window, Kind::Text, ModelState::All, &settings.names);
    let models = TxtModelStats {
        day: by_model(&picture.day),
        month: by_model(&picture.month),
        total: by_model(&picture.ever),
    };
    Ok(reply::json(StatusCode::OK, &models))
}

fn by_model(window: &Window, kind: Kind, state: ModelState, names: &Names) -> ByModel {
    let models = window.of(kind).filter(|by| {
        let is_known = is_known(kind, &by.model, names);
        let is_shown =
            by.made.outputs > 0 && !by.model.is_empty() && !by.model.starts_with(SPECIAL);
        is_shown
            && match state {
                ModelState::All => true,
                ModelState::Known => is_known,
                ModelState::Custom => !is_known,
            }
    });
    models
        .map(|by| {
            let name = public_name(kind, &by.model, names);
            (name.into(), by.made.outputs)
        })
        .collect()
}
