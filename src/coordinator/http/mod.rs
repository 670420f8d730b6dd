//! Every URL of the server on one page. The router, the OpenAPI document and the test that walks every route with
//! every role come from [`ROUTES`].
//!
//! | file | what it is |
//! | --- | --- |
//! | `route` | a route: who may, what it answers |
//! | `entrance` | what happens to every request: its id, CORS, a panic that stays its own |
//! | `address` | from where a request comes, through proxies too |
//! | `auth`, `limits`, `body` | who asks, how often, and how much |
//! | `rates` | how often an address may ask for one thing, by the poll API |
//! | `open` | what handlers extract their parts from |
//! | `origin` | which pages may reach a coordinator in development mode |
//! | `reply`, `page` | errors and JSON as responses; pages for people |
//! | `descriptor`, `health`, `status`, `metrics`, `openapi` | the service about itself |
//! | `models`, `workers` | who is online |
//! | `openai` | chat completions |
//! | `legacy` | the poll API |
//! | `media` | what links of the media store lead to |
//! | `socket` | the upgrade of a worker's connection |
//! | `unbuilt` | what comes later, and says so |
//! | [`serve`] | connections: accepting, TLS, slow peers, draining |

mod address;
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
mod origin;
mod page;
mod rates;
mod reply;
mod route;
pub mod serve;
mod socket;
mod status;
mod unbuilt;
mod workers;

pub use address::{Address, PeerAddress};
pub use route::{Answers, Route, Who};

use std::sync::LazyLock;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, patch, post, put};

use super::accounts::{Roles, Scopes};
use super::room;
use super::state::Doors;

use legacy::styles::{self, OfImages, OfTexts};
use open::Open;
use rates::Rate;
use route::Answers::{Html, Json, Object, Socket, Stream, Text, Unbuilt};

const SUBMIT: Who = Who::Key(Scopes::INFERENCE_SUBMIT);
/// Any key that is known.
const KNOWN: Who = Who::Key(Scopes::NONE);
const CONNECT: Who = Who::Key(Scopes::WORKER_CONNECT);
const READ: Who = Who::Key(Scopes::ACCOUNT_READ);
/// Routes that change money, users, shared keys, workers, teams, styles, collections or messages.
const MANAGE: Who = Who::Key(Scopes::INFERENCE_SUBMIT.with(Scopes::ACCOUNT_MANAGE));
const MODERATE: Who = Who::Role(
    Scopes::INFERENCE_SUBMIT.with(Scopes::ACCOUNT_MANAGE),
    Roles::MODERATOR,
);
const READ_MESSAGES: Who = Who::Key(Scopes::INFERENCE_SUBMIT.with(Scopes::ACCOUNT_READ));

// What the poll API's clients know; where a line says nothing, 90 a minute for each address.
const ASKING: &[Rate] = &[
    Rate::per_minute(90).each_path().trusted(300),
    Rate::per_second(2).each_path().trusted(10),
    Rate::per_second(2).each_key().trusted(60),
];
const CHECKING: &[Rate] = &[Rate::per_second(10).each_path()];
/// By GET and DELETE together.
const IMAGES: &[Rate] = &[Rate::per_minute(10).each_thing()];
const TEXTS: &[Rate] = &[Rate::per_minute(60).each_thing()];
/// What was asked for, given back.
const GIVEN_BACK: &[Rate] = &[Rate::per_minute(60).each_thing()];
const FORMS: &[Rate] = &[Rate::per_second(10).each_thing()];
/// Whoever makes up ids comes under the second: it takes no key, and a body.
const RATING: &[Rate] = &[Rate::per_minute(5).each_path(), Rate::per_minute(90)];
const WORKING: &[Rate] = &[Rate::per_second(60)];
const STEPPING: &[Rate] = &[Rate::per_second(30)];
const GIVING: &[Rate] = &[
    Rate::per_second(1).each_key(),
    Rate::per_hour(90).each_key().trusted(600),
];
const SHARING: &[Rate] = &[Rate::per_minute(5).each_path()];
const SWITCHING: &[Rate] = &[Rate::per_minute(30)];
const STYLES: &[Rate] = &[
    Rate::per_minute(90).each_path(),
    Rate::per_second(2).each_path(),
];
const RARE_STYLES: &[Rate] = &[
    Rate::per_hour(20).each_path(),
    Rate::per_second(2).each_path(),
];
const WORKERS: &[Rate] = &[Rate::per_minute(30).each_path()];
const TEAMS: &[Rate] = WORKERS;
const USERS: &[Rate] = &[Rate::per_minute(60).each_path()];

#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    Route::get("/",                          Who::Anyone, Json,    "What this service is and where its endpoints are.", || get(descriptor::show)),
    Route::get("/.well-known/serviceinfo",   Who::Anyone, Json,    "What this service is, for those who look it up.",   || get(descriptor::well_known)),
    Route::get("/health",                    Who::Anyone, Json,    "Whether the service works.",                        || get(health::show)),
    Route::get("/health/live",               Who::Anyone, Json,    "200 while the process runs, for supervisors.",      || get(health::live)),
    Route::get("/health/ready",              Who::Anyone, Json,    "200 if requests should be sent here, else 503, for balancers.", || get(health::ready)),
    Route::get("/metrics",                   Who::Anyone, Text,    "Figures for Prometheus.",                           || get(metrics::show)),
    Route::get("/openapi.json",              Who::Anyone, Json,    "This list for programs.",                           || get(openapi::show)),
    Route::get("/docs",                      Who::Anyone, Html,    "This list for people.",                             || get(openapi::browse)),
    Route::get("/api/swagger.json",          Who::Anyone, Json,    "The AI Horde API for programs, as Swagger 2.0.",    || get(legacy::swagger::show)),
    Route::get("/api",                       Who::Anyone, Html,    "The AI Horde API for people.",                      || get(legacy::swagger::browse)),
    Route::get("/api/",                      Who::Anyone, Html,    "The AI Horde API for people.",                      || get(legacy::swagger::browse)),

    Route::get("/media/{*id}",               Who::Anyone, Object,  "What was stored, for those with a link to it.",     || get(media::download)),
    Route::put("/media/{*id}",               Who::Anyone, Json,    "Stores what a link was given for, once.",           || put(media::upload)),

    Route::get("/v1/models",                 Who::Anyone, Json,    "The text models somebody serves; ?type=all for all.", || get(models::list)),
    Route::get("/v1/models/{*id}",           Who::Anyone, Json,    "One of them.",                                      || get(models::show)),
    Route::get("/v1/status",                 Who::Anyone, Json,    "How much is online and how much waits.",            || get(status::show)),
    Route::get("/v1/workers",                Who::Anyone, Json,    "The workers that are connected.",                   || get(workers::list)),
    Route::get("/v1/workers/check",          KNOWN,       Json,    "Whether a worker with this key and ?name= would be accepted.", || get(workers::check)),
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

    Route::post("/api/v2/generate/text/async",          SUBMIT,      Json,    "A text, to be asked for later.",                  || post(legacy::ask)).at_most(ASKING),
    Route::get("/api/v2/generate/text/status/{id}",     Who::Anyone, Json,    "How it is doing, and what is there of it.",       || get(legacy::status)).at_most(TEXTS),
    Route::delete("/api/v2/generate/text/status/{id}",  Who::Anyone, Json,    "Makes nothing more of it.",                       || delete(legacy::cancel)).at_most(TEXTS),
    Route::get("/api/v2/generate/text/request/{id}",    SUBMIT,      Json,    "The text as its client has asked for it.",        || get(legacy::sent)).at_most(GIVEN_BACK),
    Route::post("/api/v2/generate/text/pop",            CONNECT,     Json,    "A worker comes for text jobs.",                   || post(legacy::pop)).at_most(WORKING),
    Route::post("/api/v2/generate/text/submit",         CONNECT,     Json,    "A worker brings a text.",                         || post(legacy::submit)).at_most(WORKING),
    Route::get("/api/v2/status/heartbeat",              Who::Anyone, Json,    "Whether the service works, for those who poll.",  || get(legacy::service::heartbeat)).at_most(rates::UNLIMITED),
    Route::get("/api/v2/workers",                       Who::Anyone, Json,    "The workers that are online.",                    || get(legacy::rigs::list)),
    Route::get("/api/v2/workers/{id}",                  Who::Anyone, Json,    "One worker, online or not.",                      || get(legacy::rigs::show)).at_most(WORKERS),
    Route::get("/api/v2/workers/name/{name}",           Who::Anyone, Json,    "One worker, by its name.",                        || get(legacy::rigs::by_name)),
    Route::put("/api/v2/workers/{id}",                  MANAGE,      Json,    "Changes a worker, or sends it into maintenance.", || put(legacy::rigs::change)).at_most(WORKERS),
    Route::delete("/api/v2/workers/{id}",               MANAGE,      Json,    "Forgets a worker.",                               || delete(legacy::rigs::delete)).at_most(WORKERS),

    Route::post("/api/v2/generate/async",               SUBMIT,      Json,    "Images, to be asked for later.",                  || post(legacy::images::ask)).at_most(ASKING),
    Route::get("/api/v2/generate/check/{id}",           Who::Anyone, Json,    "How images are doing.",                           || get(legacy::images::check)).at_most(CHECKING),
    Route::get("/api/v2/generate/status/{id}",          Who::Anyone, Json,    "How images are doing, and what is there.",        || get(legacy::images::status)).at_most(IMAGES),
    Route::delete("/api/v2/generate/status/{id}",       Who::Anyone, Json,    "Makes no more images.",                           || delete(legacy::images::cancel)).at_most(IMAGES),
    Route::get("/api/v2/generate/request/{id}",         SUBMIT,      Json,    "Images as their client has asked for them.",      || get(legacy::images::sent)).at_most(GIVEN_BACK),
    Route::post("/api/v2/generate/rate/{id}",           Who::Anyone, Json,    "Rates images.",                                   || post(legacy::images::rate)).at_most(RATING),
    Route::post("/api/v2/generate/pop",                 CONNECT,     Json,    "A worker comes for image jobs.",                  || post(legacy::images::pop)).at_most(WORKING),
    Route::post("/api/v2/generate/submit",              CONNECT,     Json,    "A worker brings an image.",                       || post(legacy::images::submit)).at_most(WORKING),
    Route::post("/api/v2/generate/progress",            CONNECT,     Json,    "A worker says how far it is.",                    || post(legacy::images::progress)).at_most(STEPPING),
    Route::post("/api/v2/interrogate/async",            SUBMIT,      Json,    "What is in an image, to be asked for later.",     || post(legacy::forms::ask)),
    Route::get("/api/v2/interrogate/status/{id}",       Who::Anyone, Json,    "What was found in it.",                           || get(legacy::forms::status)).at_most(FORMS),
    Route::delete("/api/v2/interrogate/status/{id}",    Who::Anyone, Json,    "Looks no further.",                               || delete(legacy::forms::cancel)).at_most(FORMS),
    Route::post("/api/v2/interrogate/pop",              CONNECT,     Json,    "A worker comes for images to look at.",           || post(legacy::forms::pop)).at_most(WORKING),
    Route::post("/api/v2/interrogate/submit",           CONNECT,     Json,    "A worker brings what it found.",                  || post(legacy::forms::submit)).at_most(WORKING),
    Route::get("/api/v2/find_user",                     Who::Anyone, Json,    "The account behind a key.",                       || get(legacy::find_user)),
    Route::get("/api/v2/users",                         Who::Anyone, Json,    "All users, 25 a page.",                           || get(legacy::list_users)),
    Route::get("/api/v2/users/{id}",                    Who::Anyone, Json,    "A user; more of it with its key.",                || get(legacy::show_user)).at_most(USERS),
    Route::put("/api/v2/users/{id}",                    MANAGE,      Json,    "Changes a user.",                                 || put(legacy::modify_user)).at_most(USERS),
    Route::delete("/api/v2/users/{id}",                 MANAGE,      Json,    "Sends a user on its way out.",                    || delete(legacy::leave)).at_most(USERS),
    Route::get("/api/v2/auto_worker_type",              SUBMIT,      Json,    "Which workers are wanted most.",                  || get(legacy::service::wanted_worker)),
    Route::post("/api/v2/kudos/transfer",               MANAGE,      Json,    "Gives kudos.",                                    || post(legacy::kudos::transfer)).at_most(GIVING),
    Route::post("/api/v2/kudos/award",                  MANAGE,      Json,    "Awards kudos.",                                   || post(legacy::kudos::award)),
    Route::put("/api/v2/sharedkeys",                    MANAGE,      Json,    "Makes a key to be shared.",                       || put(legacy::sharedkeys::create)).at_most(SHARING),
    Route::get("/api/v2/sharedkeys/{id}",               Who::Anyone, Json,    "A shared key.",                                   || get(legacy::sharedkeys::show)),
    Route::patch("/api/v2/sharedkeys/{id}",             MANAGE,      Json,    "Changes a shared key.",                           || patch(legacy::sharedkeys::change)),
    Route::delete("/api/v2/sharedkeys/{id}",            MANAGE,      Json,    "Takes a shared key back.",                        || delete(legacy::sharedkeys::delete)),
    Route::get("/api/v2/status/modes",                  Who::Anyone, Json,    "The modes of the service.",                       || get(legacy::service::show_modes)).at_most(SWITCHING),
    Route::put("/api/v2/status/modes",                  MODERATE,      Json,    "Changes the modes of the service.",               || put(legacy::service::switch_modes)).at_most(SWITCHING),
    Route::get("/api/v2/status/performance",            Who::Anyone, Json,    "How much waits and who works.",                   || get(legacy::service::performance)),
    Route::get("/api/v2/status/models",                 Who::Anyone, Json,    "The models that are served.",                     || get(legacy::service::models)),
    Route::get("/api/v2/status/models/{name}",          Who::Anyone, Json,    "One of them.",                                    || get(legacy::service::model)),
    Route::get("/api/v2/status/news",                   Who::Anyone, Json,    "News.",                                           || get(legacy::service::news)),
    Route::get("/api/v2/stats/img/totals",              Who::Anyone, Json,    "How many images were made.",                      || get(legacy::service::images)),
    Route::get("/api/v2/stats/img/models",              Who::Anyone, Json,    "How many images each model made.",                || get(legacy::service::image_models)),
    Route::get("/api/v2/stats/text/totals",             Who::Anyone, Json,    "How many texts were written.",                    || get(legacy::service::texts)),
    Route::get("/api/v2/stats/text/models",             Who::Anyone, Json,    "How many texts each model wrote.",                || get(legacy::service::text_models)),
    Route::get("/api/v2/documents/terms",               Who::Anyone, Json,    "The terms of use.",                               || get(legacy::service::terms)),
    Route::get("/api/v2/documents/privacy",             Who::Anyone, Json,    "What is kept of people.",                         || get(legacy::service::privacy)),
    Route::get("/api/v2/documents/sponsors",            Who::Anyone, Json,    "Who helps.",                                      || get(legacy::service::sponsors)),
    Route::post("/api/v2/filters",                      MODERATE,    Json,    "Tests a prompt against the filters.",             || post(legacy::moderation::try_out)),
    Route::put("/api/v2/filters",                       MODERATE,    Json,    "Makes a filter.",                                 || put(legacy::moderation::make)),
    Route::get("/api/v2/filters",                       MODERATE,    Json,    "The filters.",                                    || get(legacy::moderation::list)),
    Route::get("/api/v2/filters/regex",                 MODERATE,    Json,    "The filters as one expression each.",             || get(legacy::moderation::regexes)),
    Route::get("/api/v2/filters/{id}",                  MODERATE,    Json,    "One filter.",                                     || get(legacy::moderation::read)),
    Route::patch("/api/v2/filters/{id}",                MODERATE,    Json,    "Changes a filter.",                               || patch(legacy::moderation::change)),
    Route::delete("/api/v2/filters/{id}",               MODERATE,    Json,    "Deletes a filter.",                               || delete(legacy::moderation::remove)),
    Route::put("/api/v2/operations/block_worker_ipaddr/{id}",    MODERATE, Json,    "Blocks a worker's address.",                  || put(legacy::moderation::block_worker)),
    Route::delete("/api/v2/operations/block_worker_ipaddr/{id}", MODERATE, Json,    "Lets a worker's address in again.",           || delete(legacy::moderation::unblock_worker)),
    Route::get("/api/v2/operations/ipaddr",             MODERATE,    Json,    "Blocked addresses.",                              || get(legacy::moderation::blocked)),
    Route::post("/api/v2/operations/ipaddr",            MODERATE,    Json,    "Blocks an address.",                              || post(legacy::moderation::block)),
    Route::delete("/api/v2/operations/ipaddr",          MODERATE,    Json,    "Lets an address in again.",                       || delete(legacy::moderation::unblock)),
    Route::get("/api/v2/operations/ipaddr/{address}",   MODERATE,    Json,    "Whether an address is blocked.",                  || get(legacy::moderation::around)),
    Route::get("/api/v2/collections",                   Who::Anyone, Json,    "Collections of styles.",                          || get(styles::collections)).at_most(STYLES),
    Route::post("/api/v2/collections",                  MANAGE,      Json,    "Makes a collection.",                             || post(styles::create_collection)).at_most(STYLES),
    Route::get("/api/v2/collections/{id}",              Who::Anyone, Json,    "One collection.",                                 || get(styles::collection)).at_most(STYLES),
    Route::patch("/api/v2/collections/{id}",            MANAGE,      Json,    "Changes a collection.",                           || patch(styles::change_collection)).at_most(STYLES),
    Route::delete("/api/v2/collections/{id}",           MANAGE,      Json,    "Deletes a collection.",                           || delete(styles::delete_collection)).at_most(STYLES),
    Route::get("/api/v2/collection_by_name/{name}",     Who::Anyone, Json,    "A collection by its name.",                       || get(styles::collection_by_name)),
    Route::get("/api/v2/styles/image",                  Who::Anyone, Json,    "Image styles.",                                   || get(styles::list::<OfImages>)).at_most(STYLES),
    Route::post("/api/v2/styles/image",                 MANAGE,      Json,    "Makes an image style.",                           || post(styles::create::<OfImages>)).at_most(STYLES),
    Route::get("/api/v2/styles/image/{id}",             Who::Anyone, Json,    "One image style.",                                || get(styles::show::<OfImages>)).at_most(RARE_STYLES),
    Route::patch("/api/v2/styles/image/{id}",           MANAGE,      Json,    "Changes an image style.",                         || patch(styles::change::<OfImages>)).at_most(RARE_STYLES),
    Route::delete("/api/v2/styles/image/{id}",          MANAGE,      Json,    "Deletes an image style.",                         || delete(styles::delete::<OfImages>)).at_most(RARE_STYLES),
    Route::get("/api/v2/styles/image_by_name/{name}",   Who::Anyone, Json,    "An image style by its name.",                     || get(styles::named::<OfImages>)),
    Route::post("/api/v2/styles/image/{id}/example",    MANAGE,      Json,    "Adds an example of a style.",                     || post(styles::add_example)).at_most(STYLES),
    Route::patch("/api/v2/styles/image/{id}/example/{example}",  MANAGE, Json, "Changes an example.",                            || patch(styles::change_example)),
    Route::delete("/api/v2/styles/image/{id}/example/{example}", MANAGE, Json, "Removes an example.",                            || delete(styles::remove_example)),
    Route::get("/api/v2/styles/text",                   Who::Anyone, Json,    "Text styles.",                                    || get(styles::list::<OfTexts>)).at_most(RARE_STYLES),
    Route::post("/api/v2/styles/text",                  MANAGE,      Json,    "Makes a text style.",                             || post(styles::create::<OfTexts>)).at_most(RARE_STYLES),
    Route::get("/api/v2/styles/text/{id}",              Who::Anyone, Json,    "One text style.",                                 || get(styles::show::<OfTexts>)).at_most(STYLES),
    Route::patch("/api/v2/styles/text/{id}",            MANAGE,      Json,    "Changes a text style.",                           || patch(styles::change::<OfTexts>)).at_most(STYLES),
    Route::delete("/api/v2/styles/text/{id}",           MANAGE,      Json,    "Deletes a text style.",                           || delete(styles::delete::<OfTexts>)).at_most(STYLES),
    Route::get("/api/v2/styles/text_by_name/{name}",    Who::Anyone, Json,    "A text style by its name.",                       || get(styles::named::<OfTexts>)),

    Route::get("/api/v2/teams",                         Who::Anyone, Json,    "Teams of workers.",                               || get(legacy::teams::list)).at_most(TEAMS),
    Route::post("/api/v2/teams",                        MANAGE,      Json,    "Makes a team.",                                   || post(legacy::teams::create)).at_most(TEAMS),
    Route::get("/api/v2/teams/{id}",                    Who::Anyone, Json,    "One team.",                                       || get(legacy::teams::show)).at_most(TEAMS),
    Route::patch("/api/v2/teams/{id}",                  MANAGE,      Json,    "Changes a team.",                                 || patch(legacy::teams::change)).at_most(TEAMS),
    Route::delete("/api/v2/teams/{id}",                 MANAGE,      Json,    "Deletes a team.",                                 || delete(legacy::teams::delete)).at_most(TEAMS),
    Route::get("/api/v2/workers/messages",              READ_MESSAGES, Json,    "What workers are told.",                          || get(legacy::rigs::messages::list)),
    Route::post("/api/v2/workers/messages",             MANAGE,      Json,    "Tells workers something.",                        || post(legacy::rigs::messages::create)),
    Route::get("/api/v2/workers/messages/{id}",         Who::Anyone, Json,    "One message.",                                    || get(legacy::rigs::messages::show)),
    Route::delete("/api/v2/workers/messages/{id}",      MANAGE,      Json,    "Takes a message back.",                           || delete(legacy::rigs::messages::delete)),
];

/// Only in development mode.
#[rustfmt::skip]
pub const DEVELOPMENT: &[Route] = &[

    Route::post("/api/v2/dev/test-user",                Who::Anyone, Json,    "A user for tests of other programs.",             || post(legacy::try_out)),
];

/// What is answered while the coordinator starts, which may wait for a database.
pub fn starting() -> Router {
    Router::new()
        .route("/health", get(health::show_starting))
        .route("/health/ready", get(health::starting))
        .route("/health/live", get(health::live))
        .fallback(unbuilt::starting)
}

/// All of it. Tests call it in memory.
pub fn router(doors: Doors) -> Router {
    LazyLock::force(&status::STARTED);
    let development: &[Route] = match doors.settings.current().development {
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
        .layer(from_fn_with_state(open.clone(), entrance::pass))
        .with_state(open)
}
