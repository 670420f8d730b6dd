//! A route: its method, path, permission and reply.

use std::sync::Arc;

use axum::extract::FromRef;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::MethodRouter;
use tower::ServiceBuilder;

use crate::accounts::Accounts;
use crate::values::{Roles, Scopes};

use super::auth::Guard;
use super::documents::{self, PackedBodies};
use super::idempotency::{self, Replays};
use super::limits::{self, Limits};
use super::open::Open;
use super::rates::{self, Counted, Rate, Rates};
use super::{auth, horde_refusal, legacy, paths};

use muster_protocol::ollama;

/// Routes that accept shared keys.
const TAKE_SHARED_KEYS: [&str; 4] = [
    "/api/v2/generate/async",
    "/api/v2/generate/text/async",
    "/api/v2/generate/request/{id}",
    "/api/v2/generate/text/request/{id}",
];

/// Cancels a job, even if the account is being deleted or the database is unavailable.
const CANCEL: &str = "/cancel";
const ACCOUNT: &str = "/v1/account/";

/// A row of [`ROUTES`](super::ROUTES).
#[derive(Debug)]
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub who: Who,
    pub answers: Answers,
    pub about: &'static str,
    rates: Option<&'static [Rate]>,
    handler: fn() -> MethodRouter<Open>,
}

/// The permission of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Anyone,
    /// Callers whose key has all of these scopes.
    Key(Scopes),
    /// Callers whose key has these scopes and whose account has all of these roles. Administrators have every deciding
    /// role.
    Role(Scopes, Roles),
}

impl Who {
    /// The scopes that the key needs; `None` for public routes.
    pub const fn key(self) -> Option<Scopes> {
        match self {
            Self::Anyone => None,
            Self::Key(scopes) | Self::Role(scopes, _) => Some(scopes),
        }
    }

    pub const fn roles(self) -> Roles {
        match self {
            Self::Anyone | Self::Key(_) => Roles::NONE,
            Self::Role(_, roles) => roles,
        }
    }
}

/// The content of a successful reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    Json,
    /// JSON, or server-sent events if requested.
    Stream,
    Text,
    Html,
    /// A stored object, with its own media type.
    Object,
    /// 101, then a WebSocket.
    Socket,
    /// 501: not implemented yet.
    Unbuilt,
}

macro_rules! methods {
    ($($name:ident = $method:literal,)*) => {
        impl Route {$(
            pub const fn $name(
                path: &'static str,
                who: Who,
                answers: Answers,
                about: &'static str,
                handler: fn() -> MethodRouter<Open>,
            ) -> Self {
                Self {
                    method: $method,
                    path,
                    who,
                    answers,
                    about,
                    rates: None,
                    handler,
                }
            }
        )*}
    };
}

methods! {
    get = "GET",
    post = "POST",
    put = "PUT",
    patch = "PATCH",
    delete = "DELETE",
}

impl Route {
    /// Whether the route belongs to the AI Horde API.
    pub fn is_legacy(&self) -> bool {
        self.path.starts_with(paths::HORDE)
    }

    /// The rate limits of a client.
    pub const fn at_most(mut self, rates: &'static [Rate]) -> Self {
        self.rates = Some(rates);
        self
    }

    /// The declared rate limits, or the default.
    pub fn rates(&self) -> &'static [Rate] {
        match self.rates {
            Some(rates) => rates,
            None if self.is_legacy() => rates::USUAL,
            None => rates::UNLIMITED,
        }
    }

    /// The handler behind its guard, which every handler has. A single stack, since layers added one by one would be
    /// boxed each, and each layer would copy the boxes within it for every request.
    pub(super) fn guarded(&self, open: &Open) -> MethodRouter<Open> {
        let legacy = self.is_legacy();
        let anyone = self.who.key().is_none();
        let packed = self.is_document().then(Arc::<PackedBodies>::default);
        let stack = ServiceBuilder::new()
            .option_layer(packed.map(|packed| from_fn_with_state(packed, documents::tag)))
            .option_layer(legacy.then(|| from_fn(legacy::dress)))
            .option_layer(
                self.rated(open)
                    .map(|rates| from_fn_with_state(rates, rates::count)),
            )
            .option_layer(legacy.then(|| from_fn(legacy::mask)))
            .option_layer(legacy.then(|| from_fn(horde_refusal::reword)))
            .option_layer(
                anyone.then(|| from_fn_with_state(Accounts::from_ref(open), auth::welcome)),
            )
            .option_layer(
                self.guard(open)
                    .map(|guard| from_fn_with_state(guard, auth::admit)),
            )
            .option_layer(
                self.replayed(open)
                    .map(|replays| from_fn_with_state(replays, idempotency::replay)),
            )
            .option_layer(
                self.limited(open)
                    .map(|limits| from_fn_with_state(limits, limits::count)),
            )
            .option_layer(
                self.befriends(open)
                    .map(|rates| from_fn_with_state(rates, rates::befriend)),
            );
        (self.handler)().route_layer(stack)
    }

    fn guard(&self, open: &Open) -> Option<Arc<Guard>> {
        let scopes = self.who.key()?;
        let guard = Guard::new(open, scopes, self.who.roles(), self.is_legacy());
        let guard = guard.for_making(self.makes());
        let guard = guard.for_local(self.is_for_local());
        Some(Arc::new(match TAKE_SHARED_KEYS.contains(&self.path) {
            true => guard.with_shared_keys(open),
            false => guard,
        }))
    }

    /// Whether its reply is constant until a restart.
    pub fn is_document(&self) -> bool {
        const DOCUMENTS: [&str; 2] = ["/openapi.json", "/api/swagger.json"];
        self.answers == Answers::Html || DOCUMENTS.contains(&self.path)
    }

    /// Whether it only calls other routes, which have their own limits.
    fn calls_others(&self) -> bool {
        self.path == paths::MCP
    }

    /// Whether programs on this machine may use it without a key: Ollama's routes and generation on `/v1`, but not
    /// accounts and keys.
    fn is_for_local(&self) -> bool {
        let works =
            self.who.key() == Some(Scopes::INFERENCE_SUBMIT) && self.path.starts_with("/v1/");
        works || ollama::ROUTES.contains(&self.path)
    }

    /// The counters of its rate limits.
    fn rated(&self, open: &Open) -> Option<Arc<Counted>> {
        let limits = self.rates();
        let is_limited = self.is_legacy() && !limits.is_empty();
        is_limited.then(|| {
            Arc::new(Counted {
                rates: Arc::<Rates>::from_ref(open),
                method: self.method,
                path: self.path,
                limits,
            })
        })
    }

    /// Routes on which a trusted account makes its address known, which raises the address's limits.
    fn befriends(&self, open: &Open) -> Option<Arc<Rates>> {
        let is_asked = self.rates().iter().any(Rate::knows_friends);
        let is_guarded = self.who.key().is_some();
        let befriends = is_guarded && is_asked && self.path.ends_with("/async");
        befriends.then(|| Arc::<Rates>::from_ref(open))
    }

    /// The key's rate limit, for generation routes.
    fn limited(&self, open: &Open) -> Option<Arc<Limits>> {
        self.is_limited().then(|| Arc::<Limits>::from_ref(open))
    }

    /// Replay of stored replies, which does not count as a request.
    fn replayed(&self, open: &Open) -> Option<Arc<Replays>> {
        self.takes_idempotency_key()
            .then(|| Arc::<Replays>::from_ref(open))
    }

    /// Whether it supports `Idempotency-Key`.
    pub fn takes_idempotency_key(&self) -> bool {
        !self.is_legacy() && self.is_limited() && !self.path.starts_with(ACCOUNT)
    }

    /// Whether the key's rate limit applies.
    pub fn is_limited(&self) -> bool {
        let scopes = self.who.key();
        self.method == "POST"
            && !self.calls_others()
            && !self.path.ends_with(CANCEL)
            && scopes.is_some_and(|scopes| {
                scopes.contains(Scopes::INFERENCE_SUBMIT) || self.path.starts_with(ACCOUNT)
            })
    }

    /// Whether the route starts new work. Submits and cancels finish earlier work, and kudos transfers do their own
    /// checks.
    pub fn makes(&self) -> bool {
        const ENDS: [&str; 4] = ["/submit", "/progress", "/transfer", CANCEL];
        self.method == "POST"
            && !self.calls_others()
            && !ENDS.iter().any(|end| self.path.ends_with(end))
    }
}
