//! Every URL of the server on one page. The router, the OpenAPI document and the test that walks every route with every
//! role come from [`ROUTES`].
//!
//! | file | contents |
//! | --- | --- |
//! | `route` | a route: its permission and the content of its reply |
//! | `entrance` | middleware of every request: its id, CORS, panics |
//! | `address` | the client's address, through proxies too |
//! | `auth`, `admitted`, `limits`, `body` | authentication and the caller, rate limits of keys, request bodies |
//! | `idempotency`, `digest` | repeated requests with the same key; digests of requests |
//! | `rates` | rate limits of the AI Horde API, by address |
//! | `open` | the router state |
//! | `paths`, `headers` | paths and names of headers that several modules use |
//! | `reply`, `pages` | errors and JSON as responses; pages for people |
//! | `descriptor`, `health`, `status`, `metrics`, `openapi` | the service about itself |
//! | `openai`, `anthropic`, `ollama` | routes of OpenAI's, Anthropic's and Ollama's API |
//! | `pricing`, `cashier` | the prices of models; holds for jobs before they are queued |
//! | `account` | an account, its keys, workers and jobs |
//! | `text` | text requests of every dialect, from the body to the reply |
//! | `form` | bodies that are JSON or a form |
//! | `generation` | requests for media, from the body to the reply |
//! | `model_lists`, `models`, `params`, `workers` | models and workers that are online |
//! | `auto` | names that stand for the best model for a request |
//! | `jobs`, `progress` | one job: cancelled, and how far it is |
//! | `statistics` | totals of delivered jobs, and the latest of them |
//! | `public_styles` | public styles, as a list |
//! | `legacy`, `horde_refusal` | the AI Horde API, and errors in its form |
//! | `mcp` | tools of the Model Context Protocol, each a route of this service |
//! | `media` | downloads and uploads by links of the media store |
//! | `socket` | the upgrade of a worker's connection |
//! | `unbuilt` | replies without a handler: 501, 404, 405, 503 |
//! | `nodes` | the nodes of a cluster, for health and metrics |
//! | [`cluster`] | requests that another coordinator of the same database answers |
//! | [`serve`] | connections: accepting, TLS, slow peers, draining |

mod account;
mod address;
mod admission;
mod admitted;
mod anthropic;
mod auth;
mod auto;
mod body;
mod cashier;
pub mod cluster;
mod descriptor;
mod digest;
mod documents;
mod entrance;
mod form;
mod generation;
mod headers;
mod health;
mod horde_refusal;
mod idempotency;
mod jobs;
mod journal;
mod legacy;
mod limits;
mod mcp;
mod media;
mod metrics;
mod model_lists;
mod models;
mod nodes;
mod ollama;
mod open;
mod openai;
mod openapi;
mod pages;
mod params;
mod paths;
mod pricing;
mod progress;
mod public_styles;
mod rates;
mod reply;
mod route;
pub mod serve;
mod socket;
mod statistics;
mod status;
mod text;
mod unbuilt;
mod workers;

pub use address::Address;
pub use route::{Answers, Route, Who};

use std::sync::LazyLock;

use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, patch, post, put};
use axum::{Extension, Router};

use super::condition::Condition;
use super::room;
use super::state::Doors;
use crate::values::{Roles, Scopes};

use legacy::styles::{self, OfImages, OfTexts};
use open::Open;
use openai::responses;
use rates::Rate;
use route::Answers::{Html, Json, Object, Socket, Stream, Text, Unbuilt};

const SUBMIT: Who = Who::Key(Scopes::INFERENCE_SUBMIT);
/// Any valid key.
const KNOWN: Who = Who::Key(Scopes::NONE);
const CONNECT: Who = Who::Key(Scopes::WORKER_CONNECT);
const READ: Who = Who::Key(Scopes::ACCOUNT_READ);
/// Routes that create and revoke keys of an account.
const KEYS: Who = Who::Key(Scopes::ACCOUNT_MANAGE);
/// Routes that change money, users, shared keys, workers, teams, styles, collections or messages.
const MANAGE: Who = Who::Key(Scopes::INFERENCE_SUBMIT.with(Scopes::ACCOUNT_MANAGE));
const MODERATE: Who = Who::Role(
    Scopes::INFERENCE_SUBMIT.with(Scopes::ACCOUNT_MANAGE),
    Roles::MODERATOR,
);
/// Routes by which moderators and administrators manage accounts.
const GOVERN: Who = Who::Role(Scopes::ACCOUNT_MANAGE, Roles::MODERATOR);
const OPERATE: Who = Who::Role(Scopes::ACCOUNT_MANAGE, Roles::ADMIN);
const READ_MESSAGES: Who = Who::Key(Scopes::INFERENCE_SUBMIT.with(Scopes::ACCOUNT_READ));

// Rate limits that the AI Horde API's clients know; routes without one allow 90 a minute for each address.
const ASKING: &[Rate] = &[
    Rate::per_minute(90).each_path().trusted(300),
    Rate::per_second(2).each_path().trusted(10),
    Rate::per_second(2).each_key().trusted(60),
];
const CHECKING: &[Rate] = &[Rate::per_second(10).each_path()];
/// For GET and DELETE together.
const IMAGES: &[Rate] = &[Rate::per_minute(10).each_thing()];
const TEXTS: &[Rate] = &[Rate::per_minute(60).each_thing()];
/// For cancelling a request.
const GIVEN_BACK: &[Rate] = &[Rate::per_minute(60).each_thing()];
const FORMS: &[Rate] = &[Rate::per_second(10).each_thing()];
/// The second limit catches guesses of ids, since this route needs no key.
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
    Route::get("/",                          Who::Anyone, Json,    "Describe the service and list its endpoints.", || get(descriptor::show)),
    Route::get("/.well-known/serviceinfo",   Who::Anyone, Json,    "Describe the service for discovery.", || get(descriptor::well_known)),
    Route::get("/health",                    Who::Anyone, Json,    "Get the health report; always 200.", || get(health::show)),
    Route::get("/health/live",               Who::Anyone, Json,    "Check liveness: 200 while the process runs.", || get(health::live)),
    Route::get("/health/ready",              Who::Anyone, Json,    "Check readiness: 200 if requests should be sent here, else 503.", || get(health::ready)),
    Route::get("/metrics",                   Who::Anyone, Text,    "Get metrics in Prometheus text format.", || get(metrics::show)),
    Route::get("/openapi.json",              Who::Anyone, Json,    "Get the OpenAPI 3.1 document of this API.", || get(openapi::show)),
    Route::get("/console",                   Who::Anyone, Html,    "Show models, workers, and the account of a key.", || get(pages::console)),
    Route::get("/moderation",                Who::Anyone, Html,    "Show modes, filters, blocked addresses, workers and users to moderators.", || get(pages::moderation)),
    Route::get("/docs",                      Who::Anyone, Html,    "Show the API reference.", || get(openapi::browse)),
    Route::get("/api/swagger.json",          Who::Anyone, Json,    "Get the Swagger 2.0 document of the AI Horde API.", || get(legacy::swagger::show)),
    Route::get("/api",                       Who::Anyone, Html,    "Show the AI Horde API reference.", || get(legacy::swagger::browse)),
    Route::get("/api/",                      Who::Anyone, Html,    "Show the AI Horde API reference.", || get(legacy::swagger::browse)),

    Route::get("/media/{*id}",               Who::Anyone, Object,  "Download an object by its signed link.", || get(media::download)),
    Route::put("/media/{*id}",               Who::Anyone, Json,    "Upload an object by its signed link, once.", || put(media::upload)),

    Route::get("/v1/models",                 Who::Anyone, Json,    "List text models that are online; ?type=all lists all models.", || get(model_lists::list)),
    Route::get("/v1/models/{*id}",           Who::Anyone, Json,    "Get one model; with /params after its name, what a request can set.", || get(model_lists::show)),
    Route::get("/v1/status",                 Who::Anyone, Json,    "Get the status of the service: workers, models and queue.", || get(status::show)),
    Route::get("/v1/status/models",          Who::Anyone, Json,    "List models that are online, with their speed in the last 24 hours.", || get(status::show_models)),
    Route::get("/v1/status/network",         Who::Anyone, Json,    "Get capacity, incidents and advisories.", || get(status::show_network)),
    Route::get("/v1/status/routing",         Who::Anyone, Json,    "Get the order in which auto chooses models.", || get(status::show_routing)),
    Route::get("/v1/stats/totals",           Who::Anyone, Json,    "Get totals of delivered jobs by type.", || get(statistics::totals)),
    Route::get("/v1/stats/models",           Who::Anyone, Json,    "Get totals of delivered jobs by model.", || get(statistics::models)),
    Route::get("/v1/jobs/recent",            Who::Anyone, Json,    "List the latest delivered jobs, without their contents.", || get(statistics::recent)),
    Route::post("/v1/jobs/{id}/cancel",      SUBMIT,      Json,    "Cancel a job of your account.", || post(jobs::cancel)),
    Route::get("/v1/progress/{token}",       Who::Anyone, Json,    "Get the progress of a running request by its progress token.", || get(progress::show)),
    Route::get("/v1/styles",                 Who::Anyone, Json,    "List public styles, the most used first.", || get(public_styles::list)),
    Route::get("/v1/workers",                Who::Anyone, Json,    "List connected workers.", || get(workers::list)),
    Route::get("/v1/workers/check",          KNOWN,       Json,    "Check whether a worker with this key and name would be accepted.", || get(workers::check)),
    Route::get("/v1/workers/self",           CONNECT,     Json,    "Get the worker that this key is for.", || get(workers::show_self)),
    Route::get("/v1/workers/ws",             Who::Anyone, Socket,  "Open the WebSocket of a worker; the key is sent in the first frame.", || get(socket::upgrade)),

    Route::post("/v1/chat/completions",      SUBMIT,      Stream,  "Create a chat completion, streamed or not.", || post(openai::chat::complete)),
    Route::post("/tokenize",                 SUBMIT,      Json,    "Tokenize a text or a chat, as the model would read it.", || post(openai::tokens::tokenize)),
    Route::post("/v1/tokenize",              SUBMIT,      Json,    "Tokenize a text or a chat, as the model would read it.", || post(openai::tokens::tokenize)),
    Route::post("/detokenize",               SUBMIT,      Json,    "Turn tokens into text.", || post(openai::tokens::detokenize)),
    Route::post("/v1/detokenize",            SUBMIT,      Json,    "Turn tokens into text.", || post(openai::tokens::detokenize)),
    Route::post("/v1/completions",           SUBMIT,      Stream,  "Complete a prompt, streamed or not.", || post(openai::completions::complete)),
    Route::post("/v1/messages",              SUBMIT,      Stream,  "Create a message (Anthropic Messages API), streamed or not.", || post(anthropic::messages::create)),
    Route::post("/v1/messages/count_tokens", SUBMIT,      Json,    "Count the input tokens of a message.", || post(anthropic::messages::count_tokens)),
    Route::post("/v1/responses",             SUBMIT,      Stream,  "Create a response (OpenAI Responses API), streamed or not, also in the background.", || post(responses::create::create)),
    Route::post("/v1/responses/input_tokens", SUBMIT,     Json,    "Count the input tokens of a response.", || post(responses::create::count_tokens)),
    Route::get("/v1/responses/{id}",         SUBMIT,      Stream,  "Get a stored response, or stream the events of a background one.", || get(responses::stored::show)),
    Route::delete("/v1/responses/{id}",      SUBMIT,      Json,    "Delete a stored response.", || delete(responses::stored::delete)),
    Route::get("/v1/responses/{id}/input_items", SUBMIT,  Json,    "List the input items of a stored response.", || get(responses::stored::input_items)),
    Route::post("/v1/responses/{id}/cancel", SUBMIT,      Json,    "Cancel a background response.", || post(responses::stored::cancel)),
    Route::post("/v1/embeddings",            SUBMIT,      Json,    "Turn texts into vectors.", || post(openai::embeddings::embed)),
    Route::post("/rerank",                   SUBMIT,      Json,    "Order documents by how well they answer a query.", || post(openai::rerank::rerank)),
    Route::post("/v1/rerank",                SUBMIT,      Json,    "Order documents by how well they answer a query.", || post(openai::rerank::rerank)),

    Route::post("/api/chat",                 SUBMIT,      Stream,  "Create a chat answer (Ollama API), as lines of JSON or one object.", || post(ollama::chat)),
    Route::post("/api/generate",             SUBMIT,      Stream,  "Answer a prompt (Ollama API), as lines of JSON or one object.", || post(ollama::generate)),
    Route::post("/api/embed",                SUBMIT,      Json,    "Turn texts into vectors (Ollama API).", || post(ollama::embed)),
    Route::post("/api/embeddings",           SUBMIT,      Json,    "Turn one text into a vector (older form of Ollama's API).", || post(ollama::embed_one)),
    Route::post("/api/pull",                 OPERATE,     Json,    "Download a model for the worker of this machine (Ollama API).", || post(ollama::pull)),
    Route::delete("/api/delete",             OPERATE,     Json,    "Delete a model of the worker of this machine (Ollama API).", || delete(ollama::delete)),
    Route::post("/api/copy",                 OPERATE,     Json,    "Give a model another name (Ollama API).", || post(ollama::copy)),
    Route::get("/api/tags",                  Who::Anyone, Json,    "List models that are online (Ollama API).", || get(ollama::list)),
    Route::post("/api/show",                 Who::Anyone, Json,    "Get one model (Ollama API).", || post(ollama::describe)),
    Route::get("/api/ps",                    Who::Anyone, Json,    "List models that are in memory (Ollama API).", || get(ollama::list_running)),
    Route::get("/api/version",               Who::Anyone, Json,    "Get the version of Ollama whose API this is.", || get(ollama::show_version)),

    Route::post("/v1/images/generations",    SUBMIT,      Stream,  "Generate images, streamed or not.", || post(openai::images::generate)),
    Route::post("/v1/images/edits",          SUBMIT,      Stream,  "Edit images, streamed or not.", || post(openai::images::edit)),
    Route::post("/v1/images/variations",     SUBMIT,      Json,    "Vary an image.", || post(openai::images::vary)),
    Route::post("/v1/videos/generations",    SUBMIT,      Json,    "Generate a video.", || post(openai::videos::generate)),
    Route::post("/v1/videos",                SUBMIT,      Json,    "Create a video that is made in the background.", || post(openai::videos::create)),
    Route::get("/v1/videos",                 SUBMIT,      Json,    "List your videos.", || get(openai::videos::list)),
    Route::get("/v1/videos/{id}",            SUBMIT,      Json,    "Get a video.", || get(openai::videos::show)),
    Route::delete("/v1/videos/{id}",         SUBMIT,      Json,    "Delete a video, or cancel it.", || delete(openai::videos::delete)),
    Route::get("/v1/videos/{id}/content",    SUBMIT,      Object,  "Download a video.", || get(openai::videos::content)),
    Route::post("/v1/videos/{id}/remix",     SUBMIT,      Unbuilt, "Change a video by a prompt.", || post(unbuilt::answer)),
    Route::post("/v1/audio/generations",     SUBMIT,      Json,    "Generate music.", || post(openai::audio::generate)),
    #[cfg(feature = "tone")]
    Route::post(openai::tones::PATH,         SUBMIT,      Json,    "Generate a tone.", || post(openai::tones::generate)),
    Route::post("/v1/audio/transcriptions",  SUBMIT,      Stream,  "Write down what a sound says, streamed or not.", || post(openai::hearing::transcribe)),
    Route::post("/v1/audio/translations",    SUBMIT,      Json,    "Write down in English what a sound says.", || post(openai::hearing::translate)),
    Route::post("/v1/audio/speech",          SUBMIT,      Stream,  "Speak a text.", || post(openai::speech::speak)),
    Route::get("/v1/audio/voices",           Who::Anyone, Json,    "List the voices of models that speak.", || get(openai::speech::list_voices)),
    Route::post(paths::DESCRIBE,            SUBMIT,      Json,    "Describe an image, or answer a question about it.", || post(openai::describe::describe)),
    Route::post("/v1/generate",              SUBMIT,      Json,    "Generate images with few settings.", || post(openai::images::generate_plain)),
    Route::get("/v1/media/results",          SUBMIT,      Json,    "Get the results of an asynchronous media request.", || get(generation::results::show)),
    Route::post(paths::MCP,                    SUBMIT,      Stream,  "Call a tool by the Model Context Protocol (streamable HTTP, stateless).", || post(mcp::serve)),
    Route::get("/v1/pricing",                Who::Anyone, Json,    "List the prices of models in USD.", || get(pricing::show)),
    Route::get("/v1/account",                READ,        Json,    "Get your account.", || get(account::show)),
    Route::get("/v1/account/keys",           READ,        Json,    "List the keys of your account.", || get(account::keys::list)),
    Route::post("/v1/account/keys",          KEYS,        Json,    "Create a key of your account.", || post(account::keys::create)),
    Route::delete("/v1/account/keys/{id}",   KEYS,        Json,    "Revoke a key of your account.", || delete(account::keys::revoke)),
    Route::get("/v1/account/workers",        READ,        Json,    "List your workers.", || get(account::workers::list)),
    Route::get("/v1/account/jobs",           READ,        Json,    "List the latest ended jobs of your account.", || get(account::jobs::list)),
    Route::get("/v1/account/credits",        READ,        Json,    "Get your spendable credits.", || get(account::credits::show)),
    Route::post("/v1/account/credits/quote", READ,        Json,    "Estimate what a request costs.", || post(account::credits::quote)),
    Route::get("/v1/account/export",         KEYS,        Json,    "Export all that is stored about your account.", || get(account::lifecycle::export_own)),
    Route::put("/v1/account/suspension",     KEYS,        Json,    "Suspend your account; an operator or moderator lifts the suspension.", || put(account::lifecycle::suspend_own)),
    Route::delete("/v1/account",             KEYS,        Json,    "Delete your account and all that it has stored, for good.", || delete(account::lifecycle::delete_own)),
    Route::get("/v1/accounts/{id}/export",   OPERATE,     Json,    "Export all that is stored about an account, as an administrator.", || get(account::lifecycle::export_other)),
    Route::put("/v1/accounts/{id}/suspension", GOVERN,    Json,    "Suspend an account: its keys are refused and its jobs end.", || put(account::lifecycle::suspend_other)),
    Route::delete("/v1/accounts/{id}/suspension", GOVERN, Json,    "Lift the suspension of an account.", || delete(account::lifecycle::lift_suspension)),
    Route::delete("/v1/accounts/{id}",       GOVERN,      Json,    "Delete an account and all that it has stored, for good.", || delete(account::lifecycle::delete_other)),

    Route::post("/api/v2/generate/text/async",          SUBMIT,      Json,    "Submit a text request.", || post(legacy::ask)).at_most(ASKING),
    Route::get("/api/v2/generate/text/status/{id}",     Who::Anyone, Json,    "Get the status and results of a text request.", || get(legacy::status)).at_most(TEXTS),
    Route::delete("/api/v2/generate/text/status/{id}",  Who::Anyone, Json,    "Cancel a text request.", || delete(legacy::cancel)).at_most(TEXTS),
    Route::get("/api/v2/generate/text/request/{id}",    SUBMIT,      Json,    "Get the text request as it was submitted.", || get(legacy::sent)).at_most(GIVEN_BACK),
    Route::post("/api/v2/generate/text/pop",            CONNECT,     Json,    "Pop a text job as a worker.", || post(legacy::pop)).at_most(WORKING),
    Route::post("/api/v2/generate/text/submit",         CONNECT,     Json,    "Submit the result of a text job.", || post(legacy::submit)).at_most(WORKING),
    Route::get("/api/v2/status/heartbeat",              Who::Anyone, Json,    "Check that the AI Horde API responds.", || get(legacy::service::heartbeat)).at_most(rates::UNLIMITED),
    Route::get("/api/v2/workers",                       Who::Anyone, Json,    "List workers that are online.", || get(legacy::rigs::list)),
    Route::get("/api/v2/workers/{id}",                  Who::Anyone, Json,    "Get a worker, online or offline.", || get(legacy::rigs::show)).at_most(WORKERS),
    Route::get("/api/v2/workers/name/{name}",           Who::Anyone, Json,    "Get a worker by name.", || get(legacy::rigs::by_name)),
    Route::put("/api/v2/workers/{id}",                  MANAGE,      Json,    "Change a worker, or its maintenance mode.", || put(legacy::rigs::change)).at_most(WORKERS),
    Route::delete("/api/v2/workers/{id}",               MANAGE,      Json,    "Delete a worker.", || delete(legacy::rigs::delete)).at_most(WORKERS),

    Route::post("/api/v2/generate/async",               SUBMIT,      Json,    "Submit an image request.", || post(legacy::images::ask)).at_most(ASKING),
    Route::get("/api/v2/generate/check/{id}",           Who::Anyone, Json,    "Get the status of an image request, without images.", || get(legacy::images::check)).at_most(CHECKING),
    Route::get("/api/v2/generate/status/{id}",          Who::Anyone, Json,    "Get the status and images of an image request.", || get(legacy::images::status)).at_most(IMAGES),
    Route::delete("/api/v2/generate/status/{id}",       Who::Anyone, Json,    "Cancel an image request.", || delete(legacy::images::cancel)).at_most(IMAGES),
    Route::get("/api/v2/generate/request/{id}",         SUBMIT,      Json,    "Get the image request as it was submitted.", || get(legacy::images::sent)).at_most(GIVEN_BACK),
    Route::post("/api/v2/generate/rate/{id}",           Who::Anyone, Json,    "Rate the images of a request.", || post(legacy::images::rate)).at_most(RATING),
    Route::post("/api/v2/generate/pop",                 CONNECT,     Json,    "Pop an image job as a worker.", || post(legacy::images::pop)).at_most(WORKING),
    Route::post("/api/v2/generate/submit",              CONNECT,     Json,    "Submit the result of an image job.", || post(legacy::images::submit)).at_most(WORKING),
    Route::post("/api/v2/generate/progress",            CONNECT,     Json,    "Report the progress of an image job.", || post(legacy::images::progress)).at_most(STEPPING),
    Route::post("/api/v2/interrogate/async",            SUBMIT,      Json,    "Submit an interrogation request.", || post(legacy::forms::ask)),
    Route::get("/api/v2/interrogate/status/{id}",       Who::Anyone, Json,    "Get the status and results of an interrogation request.", || get(legacy::forms::status)).at_most(FORMS),
    Route::delete("/api/v2/interrogate/status/{id}",    Who::Anyone, Json,    "Cancel an interrogation request.", || delete(legacy::forms::cancel)).at_most(FORMS),
    Route::post("/api/v2/interrogate/pop",              CONNECT,     Json,    "Pop interrogation jobs as a worker.", || post(legacy::forms::pop)).at_most(WORKING),
    Route::post("/api/v2/interrogate/submit",           CONNECT,     Json,    "Submit the result of an interrogation job.", || post(legacy::forms::submit)).at_most(WORKING),
    Route::get("/api/v2/find_user",                     Who::Anyone, Json,    "Get the account of a key.", || get(legacy::find_user)),
    Route::get("/api/v2/users",                         Who::Anyone, Json,    "List users, 25 per page.", || get(legacy::list_users)),
    Route::get("/api/v2/users/{id}",                    Who::Anyone, Json,    "Get a user; the user's own key shows more fields.", || get(legacy::show_user)).at_most(USERS),
    Route::put("/api/v2/users/{id}",                    MANAGE,      Json,    "Change a user.", || put(legacy::modify_user)).at_most(USERS),
    Route::delete("/api/v2/users/{id}",                 MANAGE,      Json,    "Schedule a user for deletion.", || delete(legacy::leave)).at_most(USERS),
    Route::get("/api/v2/auto_worker_type",              SUBMIT,      Json,    "Get the worker type with the highest demand.", || get(legacy::service::wanted_worker)),
    Route::post("/api/v2/kudos/transfer",               MANAGE,      Json,    "Transfer kudos to a user.", || post(legacy::kudos::transfer)).at_most(GIVING),
    Route::post("/api/v2/kudos/award",                  MANAGE,      Json,    "Award kudos to a user.", || post(legacy::kudos::award)),
    Route::put("/api/v2/sharedkeys",                    MANAGE,      Json,    "Create a shared key.", || put(legacy::sharedkeys::create)).at_most(SHARING),
    Route::get("/api/v2/sharedkeys/{id}",               Who::Anyone, Json,    "Get a shared key.", || get(legacy::sharedkeys::show)),
    Route::patch("/api/v2/sharedkeys/{id}",             MANAGE,      Json,    "Change a shared key.", || patch(legacy::sharedkeys::change)),
    Route::delete("/api/v2/sharedkeys/{id}",            MANAGE,      Json,    "Delete a shared key.", || delete(legacy::sharedkeys::delete)),
    Route::get("/api/v2/status/modes",                  Who::Anyone, Json,    "Get the modes of the service.", || get(legacy::service::show_modes)).at_most(SWITCHING),
    Route::put("/api/v2/status/modes",                  MODERATE,      Json,    "Change the modes of the service.", || put(legacy::service::switch_modes)).at_most(SWITCHING),
    Route::get("/api/v2/status/performance",            Who::Anyone, Json,    "Get queue and worker totals.", || get(legacy::service::performance)),
    Route::get("/api/v2/status/models",                 Who::Anyone, Json,    "List models that are online.", || get(legacy::service::models)),
    Route::get("/api/v2/status/models/{name}",          Who::Anyone, Json,    "Get one model that is online.", || get(legacy::service::model)),
    Route::get("/api/v2/status/news",                   Who::Anyone, Json,    "List news.", || get(legacy::service::news)),
    Route::get("/api/v2/stats/img/totals",              Who::Anyone, Json,    "Get totals of generated images.", || get(legacy::service::images)),
    Route::get("/api/v2/stats/img/models",              Who::Anyone, Json,    "Get totals of generated images by model.", || get(legacy::service::image_models)),
    Route::get("/api/v2/stats/text/totals",             Who::Anyone, Json,    "Get totals of generated texts.", || get(legacy::service::texts)),
    Route::get("/api/v2/stats/text/models",             Who::Anyone, Json,    "Get totals of generated texts by model.", || get(legacy::service::text_models)),
    Route::get("/api/v2/documents/terms",               Who::Anyone, Json,    "Get the terms of use.", || get(legacy::service::terms)),
    Route::get("/api/v2/documents/privacy",             Who::Anyone, Json,    "Get the privacy policy.", || get(legacy::service::privacy)),
    Route::get("/api/v2/documents/sponsors",            Who::Anyone, Json,    "Get the list of sponsors.", || get(legacy::service::sponsors)),
    Route::post("/api/v2/filters",                      MODERATE,    Json,    "Test a prompt against the filters.", || post(legacy::moderation::try_out)),
    Route::put("/api/v2/filters",                       MODERATE,    Json,    "Create a filter.", || put(legacy::moderation::make)),
    Route::get("/api/v2/filters",                       MODERATE,    Json,    "List filters.", || get(legacy::moderation::list)),
    Route::get("/api/v2/filters/regex",                 MODERATE,    Json,    "List filters as one regular expression per type.", || get(legacy::moderation::regexes)),
    Route::get("/api/v2/filters/{id}",                  MODERATE,    Json,    "Get a filter.", || get(legacy::moderation::read)),
    Route::patch("/api/v2/filters/{id}",                MODERATE,    Json,    "Change a filter.", || patch(legacy::moderation::change)),
    Route::delete("/api/v2/filters/{id}",               MODERATE,    Json,    "Delete a filter.", || delete(legacy::moderation::remove)),
    Route::put("/api/v2/operations/block_worker_ipaddr/{id}",    MODERATE, Json,    "Block the address of a worker.", || put(legacy::moderation::block_worker)),
    Route::delete("/api/v2/operations/block_worker_ipaddr/{id}", MODERATE, Json,    "Unblock the address of a worker.", || delete(legacy::moderation::unblock_worker)),
    Route::get("/api/v2/operations/ipaddr",             MODERATE,    Json,    "List blocked addresses.", || get(legacy::moderation::blocked)),
    Route::post("/api/v2/operations/ipaddr",            MODERATE,    Json,    "Block an address.", || post(legacy::moderation::block)),
    Route::delete("/api/v2/operations/ipaddr",          MODERATE,    Json,    "Unblock an address.", || delete(legacy::moderation::unblock)),
    Route::get("/api/v2/operations/ipaddr/{address}",   MODERATE,    Json,    "List the blocks of an address.", || get(legacy::moderation::around)),
    Route::get("/api/v2/collections",                   Who::Anyone, Json,    "List collections of styles.", || get(styles::collections)).at_most(STYLES),
    Route::post("/api/v2/collections",                  MANAGE,      Json,    "Create a collection.", || post(styles::create_collection)).at_most(STYLES),
    Route::get("/api/v2/collections/{id}",              Who::Anyone, Json,    "Get a collection.", || get(styles::collection)).at_most(STYLES),
    Route::patch("/api/v2/collections/{id}",            MANAGE,      Json,    "Change a collection.", || patch(styles::change_collection)).at_most(STYLES),
    Route::delete("/api/v2/collections/{id}",           MANAGE,      Json,    "Delete a collection.", || delete(styles::delete_collection)).at_most(STYLES),
    Route::get("/api/v2/collection_by_name/{name}",     Who::Anyone, Json,    "Get a collection by name.", || get(styles::collection_by_name)),
    Route::get("/api/v2/styles/image",                  Who::Anyone, Json,    "List image styles.", || get(styles::list::<OfImages>)).at_most(STYLES),
    Route::post("/api/v2/styles/image",                 MANAGE,      Json,    "Create an image style.", || post(styles::create::<OfImages>)).at_most(STYLES),
    Route::get("/api/v2/styles/image/{id}",             Who::Anyone, Json,    "Get an image style.", || get(styles::show::<OfImages>)).at_most(RARE_STYLES),
    Route::patch("/api/v2/styles/image/{id}",           MANAGE,      Json,    "Change an image style.", || patch(styles::change::<OfImages>)).at_most(RARE_STYLES),
    Route::delete("/api/v2/styles/image/{id}",          MANAGE,      Json,    "Delete an image style.", || delete(styles::delete::<OfImages>)).at_most(RARE_STYLES),
    Route::get("/api/v2/styles/image_by_name/{name}",   Who::Anyone, Json,    "Get an image style by name.", || get(styles::named::<OfImages>)),
    Route::post("/api/v2/styles/image/{id}/example",    MANAGE,      Json,    "Add an example to an image style.", || post(styles::add_example)).at_most(STYLES),
    Route::patch("/api/v2/styles/image/{id}/example/{example}",  MANAGE, Json, "Change an example of an image style.", || patch(styles::change_example)),
    Route::delete("/api/v2/styles/image/{id}/example/{example}", MANAGE, Json, "Delete an example of an image style.", || delete(styles::remove_example)),
    Route::get("/api/v2/styles/text",                   Who::Anyone, Json,    "List text styles.", || get(styles::list::<OfTexts>)).at_most(RARE_STYLES),
    Route::post("/api/v2/styles/text",                  MANAGE,      Json,    "Create a text style.", || post(styles::create::<OfTexts>)).at_most(RARE_STYLES),
    Route::get("/api/v2/styles/text/{id}",              Who::Anyone, Json,    "Get a text style.", || get(styles::show::<OfTexts>)).at_most(STYLES),
    Route::patch("/api/v2/styles/text/{id}",            MANAGE,      Json,    "Change a text style.", || patch(styles::change::<OfTexts>)).at_most(STYLES),
    Route::delete("/api/v2/styles/text/{id}",           MANAGE,      Json,    "Delete a text style.", || delete(styles::delete::<OfTexts>)).at_most(STYLES),
    Route::get("/api/v2/styles/text_by_name/{name}",    Who::Anyone, Json,    "Get a text style by name.", || get(styles::named::<OfTexts>)),

    Route::get("/api/v2/teams",                         Who::Anyone, Json,    "List teams of workers.", || get(legacy::teams::list)).at_most(TEAMS),
    Route::post("/api/v2/teams",                        MANAGE,      Json,    "Create a team.", || post(legacy::teams::create)).at_most(TEAMS),
    Route::get("/api/v2/teams/{id}",                    Who::Anyone, Json,    "Get a team.", || get(legacy::teams::show)).at_most(TEAMS),
    Route::patch("/api/v2/teams/{id}",                  MANAGE,      Json,    "Change a team.", || patch(legacy::teams::change)).at_most(TEAMS),
    Route::delete("/api/v2/teams/{id}",                 MANAGE,      Json,    "Delete a team.", || delete(legacy::teams::delete)).at_most(TEAMS),
    Route::get("/api/v2/workers/messages",              READ_MESSAGES, Json,    "List messages to workers.", || get(legacy::rigs::messages::list)),
    Route::post("/api/v2/workers/messages",             MANAGE,      Json,    "Send a message to workers.", || post(legacy::rigs::messages::create)),
    Route::get("/api/v2/workers/messages/{id}",         Who::Anyone, Json,    "Get a message.", || get(legacy::rigs::messages::show)),
    Route::delete("/api/v2/workers/messages/{id}",      MANAGE,      Json,    "Delete a message.", || delete(legacy::rigs::messages::delete)),
];

/// Development mode only.
#[rustfmt::skip]
pub const DEVELOPMENT: &[Route] = &[

    Route::post("/api/v2/dev/test-user",                Who::Anyone, Json,    "Create or renew a test user (development mode only).", || post(legacy::try_out)),
];

/// Routes while the coordinator starts, which may wait for a database.
pub fn starting(condition: Condition) -> Router {
    Router::new()
        .route("/health", get(health::show_starting))
        .route("/health/ready", get(health::starting))
        .route("/health/live", get(health::live))
        .fallback(unbuilt::starting)
        .with_state(condition)
}

/// The router of all APIs. Tests call it in memory.
pub fn router(doors: Doors) -> Router {
    LazyLock::force(&status::STARTED);
    crate::clock::started_at();
    let development: &[Route] = match doors.settings.current().development {
        Some(_) => DEVELOPMENT,
        None => &[],
    };
    let tasks = doors.tasks.clone();
    let open = Open::new(doors);
    let stopping = tasks.stopping();
    let resuming = responses::background::resume(open.clone());
    tasks.start(async move { stopping.run_until_cancelled(resuming).await });
    let routes = ROUTES.iter().chain(development);
    let (tools, routes): (Vec<&Route>, Vec<&Route>) =
        routes.partition(|route| route.path == paths::MCP);
    let router = |routes: Vec<&Route>| {
        let routes = routes.into_iter();
        routes.fold(Router::new(), |router, route| {
            router.route(route.path, route.guarded(&open))
        })
    };
    let entered = |router: Router<Open>| {
        router
            .method_not_allowed_fallback(unbuilt::wrong_method)
            .fallback(unbuilt::wrong_path)
            .layer(from_fn_with_state(open.clone(), entrance::pass))
            .with_state(open.clone())
    };
    let others = router(routes);
    let called = mcp::McpTools::new(entered(others.clone()));
    entered(others.merge(router(tools).layer(Extension(called))))
}
