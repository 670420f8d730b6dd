//! `GET /v1/pricing`: the price book in the shape that clients know.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::billing::{MicroUsd, ModelRates};
use crate::state::DoorSettings;
use muster_protocol::job::Kind;

use super::reply::Reply;

pub const SCHEMA: &str = "muster.pricing.v1";
const KEPT: HeaderValue = HeaderValue::from_static("public, max-age=300");

pub async fn show(State(settings): State<Arc<DoorSettings>>) -> Response {
    let book = &settings.price_book;
    let models = book
        .models()
        .map(|(model, rates)| json!({"model": model, "rates": rates_of(rates)}));
    let aliases = book
        .aliases()
        .map(|(alias, model)| (alias.to_owned(), model.into()));
    let body = json!({
        "schema": SCHEMA,
        "currency": "USD",
        "ledger_unit": "micro_usd",
        "price_book": {
            "version": book.version(),
            "availability": "A price does not mean that the model is online; see /v1/models.",
            "models": models.collect::<Vec<_>>(),
            "aliases": aliases.collect::<Map<String, Value>>(),
        },
        "comparison_evidence": {
            "status": "stale",
            "as_of": null,
            "valid_until": null,
            "items": [],
            "scope": "No comparison with other services is published.",
        },
    });
    let mut response = Reply(body).into_response();
    response.headers_mut().insert(CACHE_CONTROL, KEPT);
    response
}

fn rates_of(rates: &ModelRates) -> Value {
    let usd = |rate: Option<MicroUsd>| rate.map(MicroUsd::usd);
    let mut shown = json!({
        "input_per_mtok_usd": usd(rates.input_per_mtok),
        "output_per_mtok_usd": usd(rates.output_per_mtok),
    });
    for kind in Kind::each() {
        if let Some(rate) = kind.facts().rate {
            shown[rate.name] = usd(rates.of(kind)).into();
        }
    }
    shown
}
