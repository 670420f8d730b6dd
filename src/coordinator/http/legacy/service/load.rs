//! Queue lengths, workers and their speed: for the whole service and for each model.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::{SPECIAL, is_known, public_name, unknown_numbers};
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::{Named, Query};
use crate::http::reply;
use crate::names::Names;
use crate::state::DoorSettings;
use crate::stats::{Picture, Stats};
use crate::switchboard::{Overview, Switchboard};
use muster_protocol::job::Kind;
use muster_protocol::legacy::service::{
    ActiveModel, ModelState, NOBODY_SERVES_IT, ServicePerformance,
};
use muster_protocol::legacy::user::AutoWorkerTypeResponse;
use muster_protocol::legacy::words::Making;

const MILLION: f64 = 1e6;

/// `GET /api/v2/status/performance`
pub async fn performance(
    State(board): State<Switchboard>,
    State(stats): State<Stats>,
) -> Result<Response, Refused> {
    let overview = board.current().await;
    let picture = stats.picture().await.map_err(unknown_numbers)?;
    let kinds = [Kind::Image, Kind::Text, Kind::Form];
    let [image, text, forms] = kinds.map(|kind| overview.demands.of(kind));
    let [images, texts, interrogators] = kinds.map(|kind| Crew::of(&overview, kind));
    let performance = ServicePerformance {
        queued_requests: image.jobs,
        queued_text_requests: text.jobs,
        worker_count: images.workers,
        text_worker_count: texts.workers,
        thread_count: images.threads,
        text_thread_count: texts.threads,
        queued_megapixelsteps: image.size as f64 / MILLION,
        past_minute_megapixelsteps: picture.minute.total(Kind::Image).size as f64 / MILLION,
        queued_tokens: text.size as f64,
        past_minute_tokens: picture.minute.total(Kind::Text).size as f64,
        queued_forms: forms.jobs as f64,
        interrogator_count: interrogators.workers,
        interrogator_thread_count: interrogators.threads,
    };
    Ok(reply::json(StatusCode::OK, &performance))
}

/// `GET /api/v2/status/models`
pub async fn models(
    State(board): State<Switchboard>,
    State(stats): State<Stats>,
    State(settings): State<Arc<DoorSettings>>,
    query: Query,
) -> Result<Response, Refused> {
    let making = query.word("type", Making::Image)?;
    let state = query.word("model_state", ModelState::All)?;
    let fewest = query.whole("min_count")?.unwrap_or(0);
    let most = query.whole("max_count")?.unwrap_or(u64::MAX);
    let picture = stats.picture().await.map_err(unknown_numbers)?;
    let overview = board.current().await;
    let mut active = active(making, &overview, &picture, &settings.names);
    active.retain(|model| {
        let is_known = is_known(kind(making), &model.name, &settings.names);
        let is_wanted = match state {
            ModelState::All => true,
            ModelState::Known => is_known,
            ModelState::Custom => !is_known,
        };
        let is_shown = !model.name.starts_with(SPECIAL);
        is_shown && is_wanted && (fewest..=most).contains(&model.count)
    });
    Ok(reply::json(StatusCode::OK, &active))
}

/// `GET /api/v2/status/models/{name}`: the one of that name, or none.
pub async fn model(
    State(board): State<Switchboard>,
    State(stats): State<Stats>,
    State(settings): State<Arc<DoorSettings>>,
    path: Named,
) -> Result<Response, Refused> {
    let overview = board.current().await;
    let picture = stats.picture().await.map_err(unknown_numbers)?;
    let id = settings.names.id(path.text("name"));
    let mut found = Vec::new();
    for making in [Making::Image, Making::Text] {
        found.extend(active(making, &overview, &picture, &settings.names));
    }
    found.retain(|model| settings.names.id(&model.name) == id);
    // A name with an image and a text model: the one with more workers.
    let found: Vec<ActiveModel> = found
        .into_iter()
        .max_by_key(|it| it.count)
        .into_iter()
        .collect();
    Ok(reply::json(StatusCode::OK, &found))
}

/// `GET /api/v2/auto_worker_type`: the kind with fewer workers.
pub async fn wanted_worker(State(board): State<Switchboard>) -> Response {
    let overview = board.current().await;
    let [images, texts] = [Kind::Image, Kind::Text].map(|kind| Crew::of(&overview, kind).workers);
    let answer = AutoWorkerTypeResponse {
        recommended_worker_type: match images > texts {
            true => Making::Text,
            false => Making::Image,
        },
    };
    reply::json(StatusCode::OK, &answer)
}

/// Workers and threads that serve a kind.
struct Crew {
    workers: u64,
    threads: u64,
}

impl Crew {
    fn of(overview: &Overview, kind: Kind) -> Self {
        let crew = || {
            overview
                .workers
                .iter()
                .filter(|worker| worker.kinds.contains(kind))
        };
        Self {
            workers: crew().count() as u64,
            threads: crew().map(|worker| worker.slots as u64).sum(),
        }
    }
}

/// Served models, and known models with queued jobs but no worker.
fn active(
    making: Making,
    overview: &Overview,
    picture: &Picture,
    names: &Names,
) -> Vec<ActiveModel> {
    let kind = kind(making);
    let served = overview.models.iter().filter(|model| match making {
        // The queue counts embeddings, speech and transcripts as texts; clients of this API do not.
        Making::Text => model.writes_text(),
        Making::Image => model.kinds.contains(kind),
    });
    let served = served.map(|model| &model.name);
    let asked = overview.demands.models(kind).map(|(name, _)| name);
    let asked = asked.filter(|name| is_known(kind, name, names));
    let all: BTreeSet<&Arc<str>> = served.chain(asked).collect();
    let all = all.into_iter();
    all.map(|id| ActiveModel {
        name: public_name(kind, id, names).to_owned(),
        ..active_model(making, id, overview, picture)
    })
    .collect()
}

fn active_model(making: Making, name: &str, overview: &Overview, picture: &Picture) -> ActiveModel {
    let kind = kind(making);
    let demand = overview.demands.of_model(kind, name);
    let count = overview
        .model(name)
        .map_or(0, |model| u64::from(model.slots));
    let speed = picture.hour.speed(kind, name);
    let each = speed.unwrap_or(match making {
        // The default speed of a worker without measurements.
        Making::Image => MILLION,
        Making::Text => 1.0,
    });
    ActiveModel {
        performance: speed.unwrap_or(0.0),
        queued: demand.size as f64,
        jobs: demand.jobs as f64,
        eta: match (demand.jobs, count) {
            (0, _) => 0,
            (_, 0) => NOBODY_SERVES_IT,
            _ => (demand.size as f64 / (each.max(f64::EPSILON) * count as f64)) as u64,
        },
        making,
        name: name.to_owned(),
        count,
    }
}

fn kind(making: Making) -> Kind {
    match making {
        Making::Image => Kind::Image,
        Making::Text => Kind::Text,
    }
}
