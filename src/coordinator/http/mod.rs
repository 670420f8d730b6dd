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
//! | `legacy` | the poll API: text so far |
//! | `media` | what links of the media store lead to |
//! | `socket` | the upgrade of a worker's connection |
//! | `unbuilt` | what comes later, and says so |
//! | [`serve`] | connections: accepting, TLS, slow peers, draining |

mod auth;
mod body;
mod descriptor;
mod entrance;
mod health;
mod legacy;
mod limits;
mod media;
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
use axum::routing::{delete, get, patch, post, put};

use super::accounts::{Roles, Scopes};
use super::state::Doors;

use legacy::styles::{self, OfImages, OfTexts};
use open::Open;
use route::Answers::{Html, Json, Object, Socket, Stream, Text, Unbuilt};

const SUBMIT: Who = Who::Key(Scopes::INFERENCE_SUBMIT);
const CONNECT: Who = Who::Key(Scopes::WORKER_CONNECT);
const READ: Who = Who::Key(Scopes::ACCOUNT_READ);
const MODERATE: Who = Who::Role(Scopes::INFERENCE_SUBMIT, Roles::MODERATOR);

#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    Route::get("/",                          Who::Anyone, Json,    "What this service is and where its endpoints are.", || get(descriptor::show)),
    Route::get("/health",                    Who::Anyone, Json,    "Whether the service works.",                        || get(health::show)),
    Route::get("/metrics",                   Who::Anyone, Text,    "Figures for Prometheus.",                           || get(metrics::show)),
    Route::get("/openapi.json",              Who::Anyone, Json,    "This list for programs.",                           || get(openapi::show)),
    Route::get("/docs",                      Who::Anyone, Html,    "This list for people.",                             || get(openapi::browse)),

    Route::get("/media/{*id}",               Who::Anyone, Object,  "What was stored, for those with a link to it.",     || get(media::download)),
    Route::put("/media/{*id}",               Who::Anyone, Json,    "Stores what a link was given for, once.",           || put(media::upload)),

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

    Route::post("/api/v2/generate/text/async",          SUBMIT,      Json,    "A text, to be asked for later.",                  || post(legacy::ask)),
    Route::get("/api/v2/generate/text/status/{id}",     Who::Anyone, Json,    "How it is doing, and what is there of it.",       || get(legacy::status)),
    Route::delete("/api/v2/generate/text/status/{id}",  Who::Anyone, Json,    "Makes nothing more of it.",                       || delete(legacy::cancel)),
    Route::post("/api/v2/generate/text/pop",            CONNECT,     Json,    "A worker comes for text jobs.",                   || post(legacy::pop)),
    Route::post("/api/v2/generate/text/submit",         CONNECT,     Json,    "A worker brings a text.",                         || post(legacy::submit)),
    Route::get("/api/v2/status/heartbeat",              Who::Anyone, Json,    "Whether the service works, for those who poll.",  || get(legacy::heartbeat)),

    Route::post("/api/v2/generate/async",               SUBMIT,      Unbuilt, "Images, to be asked for later.",                  || post(unbuilt::answer)),
    Route::get("/api/v2/generate/check/{id}",           Who::Anyone, Unbuilt, "How images are doing.",                           || get(unbuilt::answer)),
    Route::get("/api/v2/generate/status/{id}",          Who::Anyone, Unbuilt, "How images are doing, and what is there.",        || get(unbuilt::answer)),
    Route::delete("/api/v2/generate/status/{id}",       Who::Anyone, Unbuilt, "Makes no more images.",                           || delete(unbuilt::answer)),
    Route::post("/api/v2/generate/rate/{id}",           Who::Anyone, Unbuilt, "Rates images.",                                   || post(unbuilt::answer)),
    Route::post("/api/v2/generate/pop",                 CONNECT,     Unbuilt, "A worker comes for image jobs.",                  || post(unbuilt::answer)),
    Route::post("/api/v2/generate/submit",              CONNECT,     Unbuilt, "A worker brings an image.",                       || post(unbuilt::answer)),
    Route::post("/api/v2/generate/progress",            CONNECT,     Unbuilt, "A worker says how far it is.",                    || post(unbuilt::answer)),
    Route::post("/api/v2/interrogate/async",            SUBMIT,      Unbuilt, "What is in an image, to be asked for later.",     || post(unbuilt::answer)),
    Route::get("/api/v2/interrogate/status/{id}",       Who::Anyone, Unbuilt, "What was found in it.",                           || get(unbuilt::answer)),
    Route::delete("/api/v2/interrogate/status/{id}",    Who::Anyone, Unbuilt, "Looks no further.",                               || delete(unbuilt::answer)),
    Route::post("/api/v2/interrogate/pop",              CONNECT,     Unbuilt, "A worker comes for images to look at.",           || post(unbuilt::answer)),
    Route::post("/api/v2/interrogate/submit",           CONNECT,     Unbuilt, "A worker brings what it found.",                  || post(unbuilt::answer)),
    Route::get("/api/v2/find_user",                     Who::Anyone, Json,    "The account behind a key.",                       || get(legacy::find_user)),
    Route::get("/api/v2/users",                         Who::Anyone, Json,    "All users, 25 a page.",                           || get(legacy::list_users)),
    Route::get("/api/v2/users/{id}",                    Who::Anyone, Json,    "A user; more of it with its key.",                || get(legacy::show_user)),
    Route::put("/api/v2/users/{id}",                    SUBMIT,      Json,    "Changes a user.",                                 || put(legacy::modify_user)),
    Route::delete("/api/v2/users/{id}",                 SUBMIT,      Json,    "Sends a user on its way out.",                    || delete(legacy::leave)),
    Route::get("/api/v2/auto_worker_type",              SUBMIT,      Unbuilt, "Which workers are wanted most.",                  || get(unbuilt::answer)),
    Route::post("/api/v2/kudos/transfer",               SUBMIT,      Unbuilt, "Gives kudos.",                                    || post(unbuilt::answer)),
    Route::post("/api/v2/kudos/award",                  SUBMIT,      Unbuilt, "Awards kudos.",                                   || post(unbuilt::answer)),
    Route::put("/api/v2/sharedkeys",                    SUBMIT,      Unbuilt, "Makes a key to be shared.",                       || put(unbuilt::answer)),
    Route::get("/api/v2/sharedkeys/{id}",               Who::Anyone, Unbuilt, "A shared key.",                                   || get(unbuilt::answer)),
    Route::patch("/api/v2/sharedkeys/{id}",             SUBMIT,      Unbuilt, "Changes a shared key.",                           || patch(unbuilt::answer)),
    Route::delete("/api/v2/sharedkeys/{id}",            SUBMIT,      Unbuilt, "Takes a shared key back.",                        || delete(unbuilt::answer)),
    Route::get("/api/v2/status/modes",                  Who::Anyone, Unbuilt, "The modes of the service.",                       || get(unbuilt::answer)),
    Route::put("/api/v2/status/modes",                  SUBMIT,      Unbuilt, "Changes the modes of the service.",               || put(unbuilt::answer)),
    Route::get("/api/v2/status/performance",            Who::Anyone, Unbuilt, "How much waits and who works.",                   || get(unbuilt::answer)),
    Route::get("/api/v2/status/models",                 Who::Anyone, Unbuilt, "The models that are served.",                     || get(unbuilt::answer)),
    Route::get("/api/v2/status/models/{name}",          Who::Anyone, Unbuilt, "One of them.",                                    || get(unbuilt::answer)),
    Route::get("/api/v2/status/news",                   Who::Anyone, Unbuilt, "News.",                                           || get(unbuilt::answer)),
    Route::get("/api/v2/stats/img/totals",              Who::Anyone, Unbuilt, "How many images were made.",                      || get(unbuilt::answer)),
    Route::get("/api/v2/stats/img/models",              Who::Anyone, Unbuilt, "How many images each model made.",                || get(unbuilt::answer)),
    Route::get("/api/v2/stats/text/totals",             Who::Anyone, Unbuilt, "How many texts were written.",                    || get(unbuilt::answer)),
    Route::get("/api/v2/stats/text/models",             Who::Anyone, Unbuilt, "How many texts each model wrote.",                || get(unbuilt::answer)),
    Route::get("/api/v2/documents/{name}",              Who::Anyone, Unbuilt, "Terms, privacy, sponsors.",                       || get(unbuilt::answer)),
    Route::post("/api/v2/filters",                      MODERATE,      Unbuilt, "Tests a prompt against the filters.",             || post(unbuilt::answer)),
    Route::put("/api/v2/filters",                       MODERATE,      Unbuilt, "Makes a filter.",                                 || put(unbuilt::answer)),
    Route::get("/api/v2/filters",                       MODERATE,      Unbuilt, "The filters.",                                    || get(unbuilt::answer)),
    Route::get("/api/v2/filters/regex",                 MODERATE,      Unbuilt, "The filters as one expression each.",             || get(unbuilt::answer)),
    Route::get("/api/v2/filters/{id}",                  MODERATE,      Unbuilt, "One filter.",                                     || get(unbuilt::answer)),
    Route::patch("/api/v2/filters/{id}",                MODERATE,      Unbuilt, "Changes a filter.",                               || patch(unbuilt::answer)),
    Route::delete("/api/v2/filters/{id}",               MODERATE,      Unbuilt, "Deletes a filter.",                               || delete(unbuilt::answer)),
    Route::put("/api/v2/operations/block_worker_ipaddr/{id}",    MODERATE, Unbuilt, "Blocks a worker's address.",                  || put(unbuilt::answer)),
    Route::delete("/api/v2/operations/block_worker_ipaddr/{id}", MODERATE, Unbuilt, "Lets a worker's address in again.",           || delete(unbuilt::answer)),
    Route::get("/api/v2/operations/ipaddr",             MODERATE,      Unbuilt, "Blocked addresses.",                              || get(unbuilt::answer)),
    Route::post("/api/v2/operations/ipaddr",            MODERATE,      Unbuilt, "Blocks an address.",                              || post(unbuilt::answer)),
    Route::delete("/api/v2/operations/ipaddr",          MODERATE,      Unbuilt, "Lets an address in again.",                       || delete(unbuilt::answer)),
    Route::get("/api/v2/operations/ipaddr/{address}",   MODERATE,      Unbuilt, "Whether an address is blocked.",                  || get(unbuilt::answer)),
    Route::get("/api/v2/collections",                   Who::Anyone, Json,    "Collections of styles.",                          || get(styles::collections)),
    Route::post("/api/v2/collections",                  SUBMIT,      Json,    "Makes a collection.",                             || post(styles::create_collection)),
    Route::get("/api/v2/collections/{id}",              Who::Anyone, Json,    "One collection.",                                 || get(styles::collection)),
    Route::patch("/api/v2/collections/{id}",            SUBMIT,      Json,    "Changes a collection.",                           || patch(styles::change_collection)),
    Route::delete("/api/v2/collections/{id}",           SUBMIT,      Json,    "Deletes a collection.",                           || delete(styles::delete_collection)),
    Route::get("/api/v2/collection_by_name/{name}",     Who::Anyone, Json,    "A collection by its name.",                       || get(styles::collection_by_name)),
    Route::get("/api/v2/styles/image",                  Who::Anyone, Json,    "Image styles.",                                   || get(styles::list::<OfImages>)),
    Route::post("/api/v2/styles/image",                 SUBMIT,      Json,    "Makes an image style.",                           || post(styles::create::<OfImages>)),
    Route::get("/api/v2/styles/image/{id}",             Who::Anyone, Json,    "One image style.",                                || get(styles::show::<OfImages>)),
    Route::patch("/api/v2/styles/image/{id}",           SUBMIT,      Json,    "Changes an image style.",                         || patch(styles::change::<OfImages>)),
    Route::delete("/api/v2/styles/image/{id}",          SUBMIT,      Json,    "Deletes an image style.",                         || delete(styles::delete::<OfImages>)),
    Route::get("/api/v2/styles/image_by_name/{name}",   Who::Anyone, Json,    "An image style by its name.",                     || get(styles::named::<OfImages>)),
    Route::post("/api/v2/styles/image/{id}/example",    SUBMIT,      Json,    "Adds an example of a style.",                     || post(styles::add_example)),
    Route::patch("/api/v2/styles/image/{id}/example/{example}",  SUBMIT, Json, "Changes an example.",                            || patch(styles::change_example)),
    Route::delete("/api/v2/styles/image/{id}/example/{example}", SUBMIT, Json, "Removes an example.",                            || delete(styles::remove_example)),
    Route::get("/api/v2/styles/text",                   Who::Anyone, Json,    "Text styles.",                                    || get(styles::list::<OfTexts>)),
    Route::post("/api/v2/styles/text",                  SUBMIT,      Json,    "Makes a text style.",                             || post(styles::create::<OfTexts>)),
    Route::get("/api/v2/styles/text/{id}",              Who::Anyone, Json,    "One text style.",                                 || get(styles::show::<OfTexts>)),
    Route::patch("/api/v2/styles/text/{id}",            SUBMIT,      Json,    "Changes a text style.",                           || patch(styles::change::<OfTexts>)),
    Route::delete("/api/v2/styles/text/{id}",           SUBMIT,      Json,    "Deletes a text style.",                           || delete(styles::delete::<OfTexts>)),
    Route::get("/api/v2/styles/text_by_name/{name}",    Who::Anyone, Json,    "A text style by its name.",                       || get(styles::named::<OfTexts>)),
];

/// Only in development mode.
#[rustfmt::skip]
pub const DEVELOPMENT: &[Route] = &[
    Route::post("/api/v2/dev/test-user",                Who::Anyone, Json,    "A user for tests of other programs.",             || post(legacy::try_out)),
];

/// All of it. Tests call it in memory.
pub fn router(doors: Doors) -> Router {
    LazyLock::force(&status::STARTED);
    let development: &[Route] = match doors.settings.development {
        Some(_) => DEVELOPMENT,
        None => &[],
    };
    let open = Open::new(doors);
    let routes = ROUTES.iter().chain(development);
    let routes = routes.fold(Router::new(), |router, route| {
        router.route(route.path, route.guarded(&open))
    });
    routes
        .method_not_allowed_fallback(unbuilt::wrong_method)
        .fallback(unbuilt::wrong_path)
        .layer(from_fn(entrance::pass))
        .with_state(open)
}
