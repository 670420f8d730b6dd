//! Every URL of the server on one page. The router, the OpenAPI document and the test that walks every route with
//! every role come from [`ROUTES`].
//!
//! | file | what it is |
//! | --- | --- |
//! | `route` | a route: who may, what it answers |
//! | `entrance` | what happens to every request: its id, CORS, a panic that stays its own |
//! | `auth`, `limits`, `body`, `room` | who asks, how often, how much, and how much all together |
//! | `open` | what handlers extract their parts from |
//! | `reply` | errors and JSON as responses |
//! | `descriptor`, `health`, `status`, `metrics`, `openapi` | the service about itself |
//! | `models`, `workers` | who is online |
//! | `openai` | chat completions |
//! | `socket` | the upgrade of a worker's connection |
//! | `unbuilt` | what comes later, and says so |
//! | [`serve`] | connections: accepting, TLS, slow peers, draining |

mod auth;
mod body;
mod descriptor;
mod entrance;
mod health;
mod limits;
mod metrics;
mod models;
mod open;
mod openai;
mod openapi;
mod reply;
mod room;
mod route;
pub mod serve;
mod socket;
mod status;
mod unbuilt;
mod workers;

pub use route::{Answers, Route, Who};

use std::sync::LazyLock;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{get, post};

use super::accounts::Scopes;
use super::state::Doors;

use open::Open;
use route::Answers::{Html, Json, Socket, Stream, Text, Unbuilt};

const SUBMIT: Who = Who::Key(Scopes::INFERENCE_SUBMIT);
const READ: Who = Who::Key(Scopes::ACCOUNT_READ);

#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    Route::get("/",                          Who::Anyone, Json,    "What this service is and where its endpoints are.", || get(descriptor::show)),
    Route::get("/health",                    Who::Anyone, Json,    "Whether the service works.",                        || get(health::show)),
    Route::get("/metrics",                   Who::Anyone, Text,    "Figures for Prometheus.",                           || get(metrics::show)),
    Route::get("/openapi.json",              Who::Anyone, Json,    "This list for programs.",                           || get(openapi::show)),
    Route::get("/docs",                      Who::Anyone, Html,    "This list for people.",                             || get(openapi::browse)),

    Route::get("/v1/models",                 Who::Anyone, Json,    "The text models somebody serves; ?type=all for all.", || get(models::list)),
    Route::get("/v1/models/{*id}",           Who::Anyone, Json,    "One of them.",                                      || get(models::show)),
    Route::get("/v1/status",                 Who::Anyone, Json,    "How much is online and how much waits.",            || get(status::show)),
    Route::get("/v1/workers",                Who::Anyone, Json,    "The workers that are connected.",                   || get(workers::list)),
    Route::get("/v1/workers/ws",             Who::Anyone, Socket,  "The line of a worker, which brings its key in its first frame.", || get(socket::upgrade)),

    Route::post("/v1/chat/completions",      SUBMIT,      Stream,  "Chat, streamed or not.",                            || post(openai::chat::complete)),

    Route::post("/v1/responses",             SUBMIT,      Unbuilt, "OpenAI's Responses.",                               || post(unbuilt::answer)),
    Route::post("/v1/messages",              SUBMIT,      Unbuilt, "Anthropic's messages.",                             || post(unbuilt::answer)),
    Route::post("/v1/images/generations",    SUBMIT,      Unbuilt, "Images.",                                           || post(unbuilt::answer)),
    Route::post("/v1/videos/generations",    SUBMIT,      Unbuilt, "Videos.",                                           || post(unbuilt::answer)),
    Route::post("/v1/audio/generations",     SUBMIT,      Unbuilt, "Sound.",                                            || post(unbuilt::answer)),
    Route::post("/v1/generate",              SUBMIT,      Unbuilt, "An image, asked for simply.",                       || post(unbuilt::answer)),
    Route::get("/v1/media/results",          SUBMIT,      Unbuilt, "A media result that was missed.",                   || get(unbuilt::answer)),
    Route::get("/v1/progress/{token}",       Who::Anyone, Unbuilt, "How far a media request is.",                       || get(unbuilt::answer)),
    Route::get("/v1/pricing",                Who::Anyone, Unbuilt, "What things cost.",                                 || get(unbuilt::answer)),
    Route::get("/v1/styles",                 Who::Anyone, Unbuilt, "Named presets.",                                    || get(unbuilt::answer)),
    Route::get("/v1/status/models",          Who::Anyone, Unbuilt, "Figures of each model.",                            || get(unbuilt::answer)),
    Route::get("/v1/status/network",         Who::Anyone, Unbuilt, "Figures of the network.",                           || get(unbuilt::answer)),
    Route::get("/v1/stats/totals",           Who::Anyone, Unbuilt, "Totals.",                                           || get(unbuilt::answer)),
    Route::get("/v1/stats/models",           Who::Anyone, Unbuilt, "Totals of each model.",                             || get(unbuilt::answer)),
    Route::get("/v1/jobs/recent",            Who::Anyone, Unbuilt, "Jobs that ended lately, without their contents.",   || get(unbuilt::answer)),
    Route::get("/v1/account",                READ,        Unbuilt, "Your account.",                                     || get(unbuilt::answer)),
    Route::get("/v1/account/credits",        READ,        Unbuilt, "What you can spend.",                               || get(unbuilt::answer)),
    Route::get("/v1/account/workers",        READ,        Unbuilt, "Your workers.",                                     || get(unbuilt::answer)),
];

/// All of it. Tests call it in memory.
pub fn router(doors: Doors) -> Router {
    LazyLock::force(&status::STARTED);
    let open = Open::new(doors);
    let routes = ROUTES.iter().fold(Router::new(), |router, route| {
        router.route(route.path, route.guarded(&open))
    });
    routes
        .method_not_allowed_fallback(unbuilt::wrong_method)
        .fallback(unbuilt::wrong_path)
        .layer(from_fn(entrance::pass))
        .with_state(open)
}
