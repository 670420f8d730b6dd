//! Statuses and stable codes that each route can send. A code has the status of its own table; [`ELSEWHERE`] lists the
//! routes that send it with another one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::http::paths::{DESCRIBE, MCP};
use crate::http::route::{Answers, Route};
use crate::values::Roles;
use muster_protocol::job::FailureKind;
use muster_protocol::legacy::Code;
use muster_protocol::ollama;

use Code::*;

/// Codes by status. A status without codes has a message alone.
pub type Failures = BTreeMap<u16, BTreeSet<&'static str>>;

/// Errors of chat completions besides those of every route with a key and a body.
#[rustfmt::skip]
const CHAT: &[FailureKind] = {
    use FailureKind as Kind;
    &[
        Kind::InsufficientCredits, Kind::RateLimited, Kind::UnsupportedValue, Kind::ContextLengthExceeded, Kind::ContentRefused, Kind::ModelNotFound,
        Kind::InFlightLimit, Kind::Cancelled, Kind::SlowClient, Kind::WorkerFailed, Kind::WorkerLost, Kind::EmptyResult,
        Kind::Stalled, Kind::BadJob, Kind::ModelOffline, Kind::NoWorker, Kind::QueueFull, Kind::Expired,
    ]
};

#[rustfmt::skip]
const SUBMITTING: &[Code] = &[
    MissingPrompt, MaintenanceMode, OnlyServiceAccountProxy, WorkerNotFound, TooManyPrompts, TimeoutIP,
    BannedClientAgent, UntrustedUnsafeIP, CorruptPrompt, InvalidPromptSize, BadRequest, KudosUpfront,
    SharedKeyEmpty, SharedKeyExpired, SharedKeyInsufficientKudos, SharedKeyAssignedStyles,
    StyleNotFound, StyleMismatch, SpecialFieldNeedsSpecialUser, RequiresTrust,
];
#[rustfmt::skip]
const SUBMITTING_TEXT: &[Code] = &[
    ExcessiveStopSequence, InvalidExtraSourceImages, MissingFullSamplerOrder, TokenOverflow, TooManyStopSequences,
];
#[rustfmt::skip]
const SOURCE_IMAGE: &[Code] = &[
    ImageValidationFailed, SourceImageResolutionExceeded, SourceImageSizeExceeded, SourceImageUnreadable,
    SourceImageUrlInvalid,
];
#[rustfmt::skip]
const SUBMITTING_IMAGES: &[Code] = &[
    BadCFGDecimals, BadLoraVersion, ControlNetInpaintingMismatch, ControlNetMismatch, ControlNetSourceMissing,
    FlowShiftInapplicable, HiResMismatch, InpaintingMissingMask, InvalidExtraSourceImages, InvalidExtraTexts,
    InvalidRemix, InvalidTransparencyCN, InvalidTransparencyImg2Img, InvalidTransparencyModel, MissingExtraTexts,
    MoreThanMinExtraSourceImage, QrCodeMismatch, SourceImageRequiredForModel, SourceMaskUnnecessary, SpecialForbidden,
    SpecialMissingPayload, SpecialMissingUsername, SpecialModelNeedsSpecialUser, TooManyExtraSourceImages,
    TooManyLoras, TooManyTIs, TooManyUpscalers, UnexpectedModelName, UnsupportedControlNet,
];
const SUBMITTING_FORMS: &[Code] = &[
    MaintenanceMode,
    OnlyServiceAccountProxy,
    WorkerNotFound,
    TooManyPrompts,
    TimeoutIP,
    BannedClientAgent,
    UntrustedUnsafeIP,
    BadRequest,
    InvalidControlType,
];
#[rustfmt::skip]
const POPPING: &[Code] = &[
    AnonForbiddenWorker, BadRequest, InvalidPriorityUsername, PolymorphicNameConflict, ProfaneBridgeAgent,
    ProfaneWorkerName, TooLongWorkerName, TooManyNewIps, TooManySameIps, TooManyWorkers, TooManyWorkersTrusted, UnsafeIp,
    WorkerFlaggedMaintenance, WorkerInviteOnly, WorkerMaintenance, WrongCredentials, TimeoutIP,
];
const SUBMITTING_RESULT: &[Code] = &[
    AbortedGen,
    BadRequest,
    DuplicateGen,
    InvalidJobId,
    WrongCredentials,
];
const STORED_REQUEST: &[Code] = &[AnonForbidden, NotRequestOwner, RequestNotFound];
#[rustfmt::skip]
const RATING: &[Code] = &[
    AestheticsAlreadyExist, AestheticsConfused, AestheticsDuplicate, AestheticsMissing, AestheticsNotCompleted,
    AestheticsNotPublic, AestheticsSolo, InvalidAestheticAttempt, ProcGenNotFound, RequestNotFound,
];
#[rustfmt::skip]
const CHANGING_USER: &[Code] = &[
    AnonForbiddenUserMod, BadRequest, NoUserModSelected, NonServiceForbidden, NotAdmin, NotModerator, NotUserOrMod,
    ProfaneAdminComment, ProfaneUserContact, ProfaneUserName, TooLongUserName, UserNotDeleted, UserNotFound,
];
const DELETING_USER: &[Code] = &[
    AnonForbiddenUser,
    CannotDeleteMod,
    CannotWipeActiveUser,
    NotUserOrMod,
    UserNotFound,
];
#[rustfmt::skip]
const GIVING: &[Code] = &[
    BadRequest, FaultWhenKudosReceiving, FaultWhenKudosSending, IdempotencyKeyConflict, InvalidKudosTransferAmount,
    InvalidTargetUsername, KudosTransferFromAnon, KudosTransferNotEnough, KudosTransferToAnon, KudosTransferToSelf,
    EducationCannotSendKudos, NegativeKudosTransfer, SharedKeyExpired, SharedKeyInvalid, SourceAccountFlagged,
    TargetAccountFlagged, TooFastKudosTransfers, DeletedUser,
];
const AWARDING: &[Code] = &[
    BadRequest,
    DeletedUser,
    FaultWhenKudosReceiving,
    InvalidAwardUsername,
    KudosAwardToAnon,
    NotAllowedAwards,
    InvalidKudosTransferAmount,
    NegativeKudosTransfer,
];
const SHARED_KEY: &[Code] = &[AnonForbidden, BadRequest, Forbidden, InvalidApiKey];
#[rustfmt::skip]
const CHANGING_WORKER: &[Code] = &[
    AnonForbiddenWorker, BadRequest, Locked, NoWorkerModSelected, NotModerator, NotOwner, ProfaneWorkerInfo,
    ProfaneWorkerName, TeamNotFound, TooLongWorkerName, WorkerNameAlreadyExists, WorkerNotFound,
];
const DELETING_WORKER: &[Code] = &[
    AnonForbiddenWorker,
    Locked,
    NotModerator,
    NotOwner,
    WorkerNotFound,
];
const MESSAGE: &[Code] = &[
    AnonForbidden,
    Forbidden,
    MessagesOnlyOwnWorkers,
    WorkerMessageNotFound,
    WorkerNotFound,
    BadRequest,
];
#[rustfmt::skip]
const TEAM: &[Code] = &[
    AnonForbidden, NoTeamModSelected, NotModerator, NotOwner, ProfaneTeamInfo, ProfaneTeamName, TeamNameAlreadyExists,
    TeamNotFound, UntrustedTeamCreation,
];
const MODES: &[Code] = &[BadRequest, NoHordeModSelected, NotAdmin, NotModerator];
const FILTER: &[Code] = &[BadRequest, FilterNotFound, NoFilterModSelected];
const BLOCKING: &[Code] = &[BadRequest, NotAdmin, WorkerNotFound];
const STYLE_KEYS: &[Code] = &[SharedKeyEmpty, SharedKeyExpired, SharedKeyInvalid];
const READING_STYLE: &[Code] = &[
    BadRequest,
    ImageStyleNotFound,
    StyleGetMismatch,
    StyleMismatch,
    StyleNotFound,
    TextStyleNotFound,
];
#[rustfmt::skip]
const WRITING_STYLE: &[Code] = &[
    BadRequest, CorruptPrompt, Forbidden, ImageStyleNotFound, InvalidPromptSize, MissingFullSamplerOrder, NotModerator,
    NotOwner, StyleMismatch, StyleNotFound, StylePromptMissingVars, StylesAnonForbidden, StylesRequiresCustomizer,
    TextStyleNotFound, ExcessiveStopSequence, TokenOverflow, TooManyStopSequences,
    // Image parameters, which are checked as in a request.
    BadCFGDecimals, BadLoraVersion, FlowShiftInapplicable, HiResMismatch, InvalidTransparencyModel, QrCodeMismatch,
    SpecialFieldNeedsSpecialUser, TooManyLoras, TooManyTIs, TooManyUpscalers, UnexpectedModelName,
];
const STYLE_EXAMPLE: &[Code] = &[
    ExampleUrlAlreadyInUse,
    StyleExampleNotFound,
    TooManyStyleExamples,
];
const COLLECTION: &[Code] = &[CollectionNotFound];

/// The first method and prefix that fit decide.
#[rustfmt::skip]
const CODES: &[(&str, &str, &[&[Code]])] = &[
    ("POST",   "/api/v2/generate/text/async",      &[SUBMITTING, SUBMITTING_TEXT]),
    ("POST",   "/api/v2/generate/async",           &[SUBMITTING, SUBMITTING_IMAGES, SOURCE_IMAGE]),
    ("POST",   "/api/v2/interrogate/async",        &[SUBMITTING_FORMS, SOURCE_IMAGE]),
    ("POST",   "/api/v2/generate/text/pop",        &[POPPING]),
    ("POST",   "/api/v2/generate/pop",             &[POPPING]),
    ("POST",   "/api/v2/interrogate/pop",          &[POPPING]),
    ("POST",   "/api/v2/generate/text/submit",     &[SUBMITTING_RESULT]),
    ("POST",   "/api/v2/generate/submit",          &[SUBMITTING_RESULT, &[ImageValidationFailed]]),
    ("POST",   "/api/v2/interrogate/submit",       &[SUBMITTING_RESULT]),
    ("POST",   "/api/v2/generate/progress",        &[SUBMITTING_RESULT]),
    ("POST",   "/api/v2/generate/rate/",           &[RATING]),
    ("GET",    "/api/v2/generate/check/",          &[&[Forbidden, RequestNotFound]]),
    ("GET",    "/api/v2/generate/request/",        &[STORED_REQUEST]),
    ("GET",    "/api/v2/generate/text/request/",   &[STORED_REQUEST]),
    ("",       "/api/v2/generate/",                &[&[RequestNotFound]]),
    ("",       "/api/v2/interrogate/",             &[&[RequestNotFound]]),
    ("GET",    "/api/v2/find_user",                &[&[InvalidApiKey, UserNotFound]]),
    ("GET",    "/api/v2/users/{id}",               &[&[InvalidApiKey, UserNotFound]]),
    ("GET",    "/api/v2/users",                    &[&[BadRequest]]),
    ("PUT",    "/api/v2/users/{id}",               &[CHANGING_USER]),
    ("DELETE", "/api/v2/users/{id}",               &[DELETING_USER]),
    ("POST",   "/api/v2/kudos/transfer",           &[GIVING]),
    ("POST",   "/api/v2/kudos/award",              &[AWARDING]),
    ("GET",    "/api/v2/sharedkeys/",              &[&[InvalidApiKey]]),
    ("PATCH",  "/api/v2/sharedkeys/",              &[SHARED_KEY, &[NoSharedKeyModSelected]]),
    ("",       "/api/v2/sharedkeys",               &[SHARED_KEY]),
    ("",       "/api/v2/workers/messages",         &[MESSAGE]),
    ("PUT",    "/api/v2/workers/",                 &[CHANGING_WORKER]),
    ("DELETE", "/api/v2/workers/",                 &[DELETING_WORKER]),
    ("GET",    "/api/v2/workers/",                 &[&[WorkerNotFound]]),
    ("GET",    "/api/v2/workers",                  &[&[BadRequest]]),
    ("GET",    "/api/v2/teams",                    &[&[InvalidApiKey, NotModerator, TeamNotFound]]),
    ("",       "/api/v2/teams",                    &[TEAM]),
    ("GET",    "/api/v2/status/modes",             &[&[InvalidApiKey, NotModerator]]),
    ("PUT",    "/api/v2/status/modes",             &[MODES]),
    ("",       "/api/v2/dev/",                     &[&[BadRequest]]),
    ("GET",    "/api/v2/filters",                  &[&[BadRequest, FilterNotFound]]),
    ("",       "/api/v2/filters",                  &[FILTER]),
    ("",       "/api/v2/operations/",              &[BLOCKING]),
    ("GET",    "/api/v2/collection",               &[&[BadRequest, CollectionNotFound]]),
    ("",       "/api/v2/collections",              &[WRITING_STYLE, COLLECTION]),
    ("",       "/api/v2/styles/image/{id}/example", &[WRITING_STYLE, STYLE_EXAMPLE]),
    ("GET",    "/api/v2/styles/",                  &[READING_STYLE]),
    ("",       "/api/v2/styles/",                  &[WRITING_STYLE, STYLE_KEYS]),
    ("GET",    "/api/v2/documents/",               &[&[BadRequest]]),
    ("GET",    "/api/v2/status/models",            &[&[BadRequest]]),
    ("GET",    "/api/v2/stats/",                   &[&[BadRequest]]),
];

/// Routes without a key that read the database.
const READ_STORE: [&str; 6] = [
    "/v1/status/models",
    "/v1/status/routing",
    "/v1/stats/totals",
    "/v1/stats/models",
    "/v1/jobs/recent",
    "/v1/styles",
];

/// Codes that a route sends with another status than that of the table.
const ELSEWHERE: &[(&str, Code, u16)] = &[
    ("/api/v2/sharedkeys/", InvalidApiKey, 404),
    ("/api/v2/kudos/", SharedKeyEmpty, 400),
    ("/api/v2/kudos/", SharedKeyExpired, 400),
    ("/api/v2/kudos/", DeletedUser, 400),
    ("/api/v2/styles/", SharedKeyEmpty, 400),
    ("/api/v2/styles/", SharedKeyExpired, 400),
];

pub fn of(route: &Route) -> Failures {
    let mut failures = Failures::new();
    match route.is_legacy() {
        true => of_horde(route, &mut failures),
        false => of_other(route, &mut failures),
    }
    failures
}

fn of_other(route: &Route, failures: &mut Failures) {
    use FailureKind as Kind;
    let mut add = |status: u16, kind: Kind| {
        failures.entry(status).or_default().insert(kind.row().code);
    };
    // Two different keys; a page of another origin in development mode; a panic; startup.
    let anywhere = [Kind::InvalidRequest, Kind::AccessDenied, Kind::Internal];
    let starting = !route.path.starts_with("/health");
    let keyed = [
        Kind::InvalidKey,
        Kind::AccountSuspended,
        Kind::StoreUnavailable,
    ];
    let always = anywhere.into_iter();
    let always = always.chain(starting.then_some(Kind::ShuttingDown));
    let always = always.chain(keyed.into_iter().filter(|_| route.who.key().is_some()));
    let deleted = route.makes() && route.who.key().is_some();
    let always = always.chain(deleted.then_some(Kind::AccountDeleted));
    let always = always.chain(route.is_limited().then_some(Kind::RateLimited));
    always.for_each(|kind| add(kind.row().status, kind));
    let is_of_response = |path: &str| path.starts_with("/v1/responses/{id}");
    if route.takes_idempotency_key() {
        add(409, Kind::InvalidRequest);
        add(422, Kind::InvalidRequest);
    }
    match (route.answers, route.method, route.path) {
        (_, _, path) if is_of_response(path) => {
            add(404, Kind::InvalidRequest);
            add(503, Kind::StoreUnavailable);
        }
        (_, _, ollama::PULL | ollama::DELETE) => {
            let kinds = [Kind::ModelNotFound, Kind::NotBuilt];
            kinds.iter().for_each(|kind| add(kind.row().status, *kind));
            unread_body(&mut add);
        }
        (_, _, ollama::COPY) => {
            let kinds = [Kind::ModelNotFound, Kind::StoreUnavailable];
            kinds.iter().for_each(|kind| add(kind.row().status, *kind));
            unread_body(&mut add);
        }
        (_, _, MCP) => unread_body(&mut add),
        (Answers::Stream, _, path) => {
            if path == "/v1/responses" {
                let kind = Kind::StorageQuota;
                add(kind.row().status, kind);
            }
            CHAT.iter().for_each(|kind| add(kind.row().status, *kind));
            unread_body(&mut add);
        }
        (_, _, path) if path.starts_with("/v1/videos/{id}") => {
            add(404, Kind::InvalidRequest);
            add(503, Kind::StoreUnavailable);
            if route.answers == Answers::Object {
                add(409, Kind::InvalidRequest);
                add(416, Kind::InvalidRequest);
            }
        }
        (Answers::Socket, ..) => add(426, Kind::InvalidRequest),
        (Answers::Object, ..) => {
            add(404, Kind::InvalidRequest);
            add(416, Kind::InvalidRequest);
            add(503, Kind::StoreUnavailable);
        }
        (_, "PUT", "/media/{*id}") => {
            unread_body(&mut add);
            add(409, Kind::InvalidRequest);
            add(503, Kind::StoreUnavailable);
        }
        (_, "POST", "/v1/account/keys") => {
            unread_body(&mut add);
            add(409, Kind::InvalidRequest);
        }
        (_, "POST", "/v1/account/credits/quote") => unread_body(&mut add),
        (_, _, "/v1/account/keys/{id}") => add(404, Kind::InvalidRequest),
        (_, "PUT", "/v1/account/suspension") | (_, "DELETE", "/v1/account") => {
            add(404, Kind::InvalidRequest);
            add(409, Kind::InvalidRequest);
        }
        (_, _, path) if path.starts_with("/v1/accounts/{id}") => {
            add(404, Kind::InvalidRequest);
            add(409, Kind::InvalidRequest);
        }
        (_, "POST", path) if is_encoding(path) || is_whole_media(path) || path == DESCRIBE => {
            CHAT.iter().for_each(|kind| add(kind.row().status, *kind));
            unread_body(&mut add);
        }
        (_, _, "/v1/models/{*id}" | "/v1/audio/voices") => add(404, Kind::ModelNotFound),
        (_, _, ollama::SHOW) => {
            add(404, Kind::ModelNotFound);
            unread_body(&mut add);
        }
        (_, _, "/v1/workers/self" | "/v1/jobs/{id}/cancel") => {
            add(404, Kind::InvalidRequest);
            add(503, Kind::StoreUnavailable);
        }
        (_, _, "/v1/media/results") => {
            add(404, Kind::InvalidRequest);
            add(409, Kind::InvalidRequest);
            add(502, Kind::WorkerFailed);
            add(503, Kind::StoreUnavailable);
        }
        (_, "GET", path) if READ_STORE.contains(&path) => add(503, Kind::StoreUnavailable),
        _ => {}
    }
}

/// Whether its jobs generate no text.
fn is_encoding(path: &str) -> bool {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    matches!(
        path,
        "/tokenize"
            | "/detokenize"
            | "/embeddings"
            | "/rerank"
            | "/messages/count_tokens"
            | "/responses/input_tokens"
            | ollama::EMBED
            | ollama::EMBEDDINGS
    )
}

fn is_whole_media(path: &str) -> bool {
    super::generation::described("POST", path).is_some_and(|route| route.is_whole)
}

/// Too slow, too large, or compressed.
fn unread_body(add: &mut impl FnMut(u16, FailureKind)) {
    add(408, FailureKind::InvalidRequest);
    add(413, FailureKind::TooLarge);
    add(415, FailureKind::InvalidRequest);
}

fn of_horde(route: &Route, failures: &mut Failures) {
    let mut plain = vec![400, 403, 500, 503];
    if !route.rates().is_empty() {
        plain.push(429);
    }
    if super::horde::takes_body(route) {
        plain.extend([408, 413, 415]);
    }
    for status in plain {
        failures.entry(status).or_default();
    }
    let found = CODES
        .iter()
        .find(|(method, path, _)| route.method.starts_with(method) && route.path.starts_with(path));
    let own = found.into_iter().flat_map(|(_, _, groups)| groups.iter());
    let own = own.flat_map(|group| group.iter().copied());
    let body: &[Code] = match super::horde::takes_body(route) {
        true => &[InvalidPromptEncoding, NulByteInPayload],
        false => &[],
    };
    for code in own.chain(guards(route)).chain(body.iter().copied()) {
        let row = code.row();
        failures.entry(row.status).or_default().insert(row.rc);
        for (path, other, status) in ELSEWHERE {
            if *other == code && route.path.starts_with(path) {
                failures.entry(*status).or_default().insert(row.rc);
            }
        }
    }
}

/// Codes of the key check.
fn guards(route: &Route) -> Vec<Code> {
    if route.who.key().is_none() {
        return Vec::new();
    }
    let mut codes = vec![InvalidApiKey, Forbidden];
    if route.makes() {
        codes.push(DeletedUser);
    }
    match route.who.roles() {
        Roles::NONE => {}
        Roles::ADMIN => codes.push(NotAdmin),
        _ => codes.push(NotModerator),
    }
    codes
}

/// Every stable code with its meaning, for readers of the document.
pub fn codes() -> Value {
    let horde = Code::ALL.iter().map(|code| {
        let row = code.row();
        (row.rc.to_owned(), Value::from(row.message))
    });
    let other = FailureKind::ALL
        .iter()
        .map(|kind| (kind.row().code.to_owned(), Value::from(meaning(*kind))));
    horde.chain(other).collect::<serde_json::Map<_, _>>().into()
}

fn meaning(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::InvalidRequest => "the request is malformed",
        FailureKind::UnsupportedValue => "a field has a value that is not supported",
        FailureKind::ContextLengthExceeded => "the prompt is longer than the context of the model",
        FailureKind::ContentRefused => "the filters of the service refuse the prompt",
        FailureKind::InvalidKey => "the key is missing or unknown",
        FailureKind::InsufficientCredits => {
            "the account lacks credits for the request, or the model has no price"
        }
        FailureKind::AccessDenied => {
            "the key lacks a scope, the account a role, or the address is blocked"
        }
        FailureKind::AccountDeleted => "the account is scheduled for deletion",
        FailureKind::AccountSuspended => "the operator has suspended the account",
        FailureKind::TooLarge => "the body is too large",
        FailureKind::ModelNotFound => "the model does not exist",
        FailureKind::ModelOffline => "no worker of the model is online",
        FailureKind::NotBuilt => "the route is not implemented",
        FailureKind::RateLimited => {
            "the key sends too many requests per minute, or the account too many free ones per day"
        }
        FailureKind::InFlightLimit => "the account has too many open jobs",
        FailureKind::StorageQuota => {
            "the account stores as many responses, or bytes of them, as it may"
        }
        FailureKind::QueueFull => "the service is busy",
        FailureKind::ShuttingDown => "the service is starting or shutting down",
        FailureKind::StoreUnavailable => "the database or the media store is unavailable",
        FailureKind::NoWorker => "no worker can serve the request",
        FailureKind::WorkerFailed => "the worker reported an error",
        FailureKind::WorkerLost => "the worker disconnected",
        FailureKind::EmptyResult => "the worker returned no output",
        FailureKind::BadJob => {
            "several workers failed this job, or were lost while they prepared it"
        }
        FailureKind::Stalled => "the worker stopped sending output",
        FailureKind::Expired => "the job timed out",
        FailureKind::SlowClient => "the client read the stream too slowly",
        FailureKind::Cancelled => "the job was cancelled",
        FailureKind::Internal => "internal error",
    }
}

pub fn about(status: u16) -> &'static str {
    match status {
        400 => "Bad request.",
        401 => "Missing or unknown key.",
        402 => "Not enough credits.",
        403 => "Not permitted.",
        404 => "Not found.",
        408 => "Request body too slow.",
        409 => "Already used, or still running.",
        413 => "Request body too large.",
        415 => "Unsupported content type or content encoding.",
        422 => "Idempotency-Key used for another request.",
        423 => "Locked.",
        426 => "Not a WebSocket upgrade.",
        429 => "Too many requests.",
        499 => "Cancelled by the client.",
        500 => "Internal error.",
        501 => "Not implemented.",
        502 => "The worker failed.",
        503 => "Unavailable; retry later.",
        504 => "Timed out.",
        _ => "Error.",
    }
}
