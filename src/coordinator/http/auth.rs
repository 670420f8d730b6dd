//! Authentication: API key to caller. A key comes as `Authorization: Bearer`, `apikey` or `x-api-key`; a request may
//! repeat the same key, two different keys are refused.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::accounts::{ANONYMOUS, ANONYMOUS_KEY, Accounts, Caller, Denied};
use crate::error::ApiError;
use crate::sharing::Sharing;
use crate::state::DoorSettings;
use crate::storage::{StorageError, Store};
use crate::values::{Roles, Scopes};
use muster_protocol::job::{FailureKind, SharedKeyText};

use super::admitted::{Admitted, key_in};
use super::body;
use super::entrance::LocalRequest;
use super::open::Open;

/// The caller of a public route: `None` without a key. No guard has checked the scopes of the key, so a handler shows
/// private fields only if [`Caller::sees_own`] or [`Caller::sees_all`] says so.
#[derive(Debug, Clone)]
pub struct Visitor(pub Option<Arc<Caller>>);

/// Checks the permission for a route.
#[derive(Debug)]
pub struct Guard {
    accounts: Accounts,
    scopes: Scopes,
    roles: Roles,
    /// Accounts scheduled for deletion are refused here.
    makes: bool,
    /// Checked before new work: without the database it could not be settled.
    store: Store,
    console: Option<Arc<str>>,
    /// The anonymous key opens this route, too.
    anonymous: bool,
    /// Shared keys open this route, too.
    sharing: Option<Sharing>,
    /// Programs on this machine need no key of their own, where the coordinator serves its own user.
    is_for_local: bool,
    /// Keys that may submit requests may connect workers, too.
    submit_keys_connect: bool,
}

impl Guard {
    pub fn new(open: &Open, scopes: Scopes, roles: Roles, is_legacy: bool) -> Self {
        let settings = Arc::<DoorSettings>::from_ref(open);
        Self {
            accounts: Accounts::from_ref(open),
            scopes,
            roles,
            makes: false,
            store: Store::from_ref(open),
            anonymous: is_legacy && settings.anonymous,
            sharing: None,
            is_for_local: false,
            submit_keys_connect: settings.submit_keys_connect_workers,
            console: settings.console_url.as_deref().map(Arc::from),
        }
    }

    /// For routes that start new work.
    #[must_use]
    pub fn for_making(self, makes: bool) -> Self {
        Self { makes, ..self }
    }

    /// Lets in shared keys as well.
    pub fn with_shared_keys(self, open: &Open) -> Self {
        let sharing = Some(Sharing::from_ref(open));
        Self { sharing, ..self }
    }

    /// Lets in local requests without a key.
    #[must_use]
    pub fn for_local(self, is_for_local: bool) -> Self {
        Self {
            is_for_local,
            ..self
        }
    }

    async fn caller(&self, headers: &HeaderMap, is_local: bool) -> Result<Arc<Caller>, ApiError> {
        let own = self.accounts.own_key();
        let own = own.filter(|_| self.is_for_local && is_local);
        let key = match own {
            Some(own) => own,
            None => key_in(headers)?.ok_or_else(|| self.no_key())?,
        };
        let caller = match self.anonymous && key == ANONYMOUS_KEY {
            true => Arc::new(Caller::anonymous()),
            false => match SharedKeyText::parse(key) {
                Some(key) => self.shared(key).await?,
                None => self.known(key).await?,
            },
        };
        refuse_suspended(&caller)?;
        if self.makes && caller.roles.contains(Roles::DELETED) {
            let message = "this account is scheduled for deletion";
            return Err(ApiError::new(FailureKind::AccountDeleted, message));
        }
        let missing = self.missing_scopes(&caller);
        if missing != Scopes::NONE {
            let message = missing_scope_message(missing);
            return Err(ApiError::new(FailureKind::AccessDenied, message));
        }
        if caller.has(self.roles) {
            return match self.store.problem().filter(|_| self.makes) {
                Some(problem) => Err(unavailable("new requests are refused", &problem)),
                None => Ok(caller),
            };
        }
        Err(ApiError {
            lacks: self.roles,
            ..ApiError::new(FailureKind::AccessDenied, "Access Denied")
        })
    }

    fn missing_scopes(&self, caller: &Caller) -> Scopes {
        let connects = self.submit_keys_connect && caller.may(Scopes::INFERENCE_SUBMIT);
        let needed = match caller.account {
            // The anonymous account passes here; handlers refuse it on account routes, each with its documented code.
            ANONYMOUS => self
                .scopes
                .without(Scopes::ACCOUNT_MANAGE.with(Scopes::ACCOUNT_READ)),
            _ if connects => self.scopes.without(Scopes::WORKER_CONNECT),
            _ => self.scopes,
        };
        // A key in a worker's configuration file may not manage the account.
        let held = match caller.worker_name {
            Some(_) => caller.scopes.without(Scopes::ACCOUNT_MANAGE),
            None => caller.scopes,
        };
        needed.without(held)
    }

    async fn known(&self, key: &str) -> Result<Arc<Caller>, ApiError> {
        let caller = self.accounts.authenticate(key).await;
        caller.map_err(|denied| match (denied, self.store.problem()) {
            (Denied::Unavailable, Some(problem)) => unavailable(NO_KEYS, &problem),
            _ => ApiError {
                console: self.console.clone(),
                ..unknown(denied)
            },
        })
    }

    async fn shared(&self, key: SharedKeyText) -> Result<Arc<Caller>, ApiError> {
        let sharing = self.sharing.as_ref().ok_or_else(|| self.unauthorized())?;
        let caller = sharing.holder(key).await;
        let caller = caller.map_err(|_| unknown(Denied::Unavailable))?;
        caller.map(Arc::new).ok_or_else(|| self.unauthorized())
    }

    fn no_key(&self) -> ApiError {
        let message = "no key was sent: send yours as Authorization: Bearer KEY";
        ApiError {
            console: self.console.clone(),
            ..ApiError::new(FailureKind::InvalidKey, message)
        }
    }

    fn unauthorized(&self) -> ApiError {
        ApiError {
            console: self.console.clone(),
            ..unknown(Denied::UnknownKey)
        }
    }
}

fn refuse_suspended(caller: &Caller) -> Result<(), ApiError> {
    match caller.roles.contains(Roles::SUSPENDED) {
        true => Err(ApiError::new(FailureKind::AccountSuspended, SUSPENDED)),
        false => Ok(()),
    }
}

pub const SUSPENDED: &str = "this account is suspended: ask the operator of the service";

const NO_KEYS: &str = "API key lookup failed";

fn unavailable(what: &str, problem: &StorageError) -> ApiError {
    let message = format!("{what}: {problem}; retry later");
    ApiError::new(FailureKind::StoreUnavailable, message)
}

/// Names the scopes and says how to get such a key.
fn missing_scope_message(missing: Scopes) -> String {
    let flags: Vec<_> = missing
        .names()
        .map(|name| format!("--scope {name}"))
        .collect();
    format!(
        "Access Denied: this key lacks the scope {}; use a key that has it; an operator creates one with \
         \"worker key create {}\"",
        missing.names().collect::<Vec<_>>().join(" and "),
        flags.join(" ")
    )
}

fn unknown(denied: Denied) -> ApiError {
    match denied {
        Denied::UnknownKey => ApiError::new(FailureKind::InvalidKey, "Invalid API Key"),
        Denied::Unavailable => ApiError::new(
            FailureKind::StoreUnavailable,
            "API key lookup failed; retry later",
        ),
    }
}

/// Middleware of routes that need a key.
pub async fn admit(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let is_local = request.extensions().get::<LocalRequest>().is_some();
    match guard.caller(request.headers(), is_local).await {
        Ok(caller) => {
            request.extensions_mut().insert(Admitted(caller));
            next.run(request).await
        }
        Err(error) => {
            // The body is read first, since a client that is still sending may miss an early reply.
            body::discard(request.into_body()).await;
            error.into_response()
        }
    }
}

/// Middleware of public routes: a key is optional, and two different keys are an error all the same. Only handlers that
/// extract [`Visitor`] look it up.
pub async fn welcome(
    State(accounts): State<Accounts>,
    mut request: Request,
    next: Next,
) -> Response {
    // A local request has no key, whatever placeholder it sends.
    let is_local = request.extensions().get::<LocalRequest>().is_some();
    match key_in(request.headers()).map(|key| key.map(str::to_owned)) {
        Ok(key) => {
            let key = key.filter(|_| !is_local);
            request.extensions_mut().insert(Brought { key, accounts });
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

/// The unchecked key of a request to a public route.
#[derive(Clone)]
pub struct Brought {
    key: Option<String>,
    accounts: Accounts,
}

impl<S: Sync> FromRequestParts<S> for Visitor {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(Brought { key, accounts }) = parts.extensions.get::<Brought>() else {
            return Ok(Self(None));
        };
        match key.as_deref() {
            None => Ok(Self(None)),
            Some(ANONYMOUS_KEY) => Ok(Self(Some(Arc::new(Caller::anonymous())))),
            Some(key) => {
                let caller = accounts.authenticate(key).await.map_err(unknown)?;
                refuse_suspended(&caller)?;
                Ok(Self(Some(caller)))
            }
        }
    }
}
