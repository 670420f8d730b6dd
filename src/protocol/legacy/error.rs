//! Refusals for clients and workers. Clients tell three shapes apart: `errors` for a body or header that could not be
//! parsed, `rc` for a refused request, and both, since old clients look for the path and newer ones for the code.

use std::borrow::Cow;
use std::fmt::Display;

use serde_json::{Map, Value, json};

pub use super::codes::{Code, CodeRow};

/// Says that the body as a whole failed; which parts, and why, stands in `errors`.
const UNREADABLE: &str = "payload validation failed";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `{message, rc}`
    #[error("{message}")]
    Coded {
        code: Code,
        /// The code's status, unless the route has its own.
        status: u16,
        message: Cow<'static, str>,
    },
    /// `{message, errors}`, 400: errors by dotted path.
    #[error("{UNREADABLE}")]
    Invalid(Vec<(String, String)>),
    /// `{message, rc, errors}`, 400: fields that contradict each other, by dotted path.
    #[error("{UNREADABLE}")]
    Unfit {
        code: Code,
        errors: Vec<(String, String)>,
    },
    /// A missing key: `{message, rc, errors: {apikey}}`, 401. The status and the code are those of the specification;
    /// clients of the public service look for the entry in `errors`.
    #[error("Invalid API Key")]
    MissingKey,
    /// `{message}`: the rate limiter, broken JSON, a broken mask, or our own fault.
    #[error("{message}")]
    Plain {
        status: u16,
        message: Cow<'static, str>,
    },
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Coded {
            code,
            status: code.row().status,
            message: message.into(),
        }
    }

    pub fn plain(status: u16, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Plain {
            status,
            message: message.into(),
        }
    }

    /// An unreadable header or query parameter.
    pub fn invalid(name: &str, complaint: impl Into<String>) -> Self {
        Self::Invalid(vec![(name.to_owned(), complaint.into())])
    }

    /// A field that contradicts another.
    pub fn unfit(code: Code, path: &str, complaint: impl Into<String>) -> Self {
        Self::Unfit {
            code,
            errors: vec![(path.to_owned(), complaint.into())],
        }
    }

    /// The same code where a route answers another status: an expired shared key is 403 to its user, 400 to who
    /// sends it kudos.
    #[must_use]
    pub fn at(mut self, another: u16) -> Self {
        if let Self::Coded { status, .. } | Self::Plain { status, .. } = &mut self {
            *status = another;
        }
        self
    }

    pub fn status(&self) -> u16 {
        match self {
            Self::Coded { status, .. } | Self::Plain { status, .. } => *status,
            Self::Invalid(_) | Self::Unfit { .. } => 400,
            Self::MissingKey => 401,
        }
    }

    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Coded { code, .. } | Self::Unfit { code, .. } => Some(*code),
            Self::MissingKey => Some(Code::InvalidApiKey),
            Self::Invalid(_) | Self::Plain { .. } => None,
        }
    }

    pub fn body(&self) -> Value {
        let message = self.to_string();
        match self {
            Self::Coded { code, .. } => json!({"message": message, "rc": code.row().rc}),
            Self::Invalid(errors) => json!({"message": message, "errors": by_path(errors)}),
            Self::Unfit { code, errors } => {
                json!({"message": message, "rc": code.row().rc, "errors": by_path(errors)})
            }
            Self::MissingKey => json!({
                "message": message,
                "rc": Code::InvalidApiKey.row().rc,
                "errors": {"apikey": "missing: send your API key"},
            }),
            Self::Plain { .. } => json!({"message": message}),
        }
    }
}

/// The first complaint about a place says most.
fn by_path(errors: &[(String, String)]) -> Map<String, Value> {
    let mut first = Map::new();
    for (path, why) in errors {
        first.entry(path).or_insert_with(|| why.as_str().into());
    }
    first
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self::new(code, code.row().message)
    }
}

impl Code {
    /// Says no if that is the case.
    pub fn when(self, wrong: bool) -> Result<(), Refusal> {
        match wrong {
            true => Err(self.into()),
            false => Ok(()),
        }
    }
}

/// Messages that public workers parse: they compare parts of them, some in lower case, some exactly.
impl Refusal {
    pub fn worker_in_maintenance(note: Option<&str>) -> Self {
        let message = match note {
            Some(note) if !note.is_empty() => {
                format!("the worker is in maintenance mode: {note}")
            }
            _ => return Code::WorkerMaintenance.into(),
        };
        Self::new(Code::WorkerMaintenance, message)
    }

    pub fn models_not_accepted() -> Self {
        Self::new(
            Code::BadRequest,
            "we cannot accept workers serving unrecognised models, or models reserved for another user",
        )
    }

    pub fn worker_of_another(name: &str) -> Self {
        let message = format!("wrong credentials: the worker {name} belongs to another key");
        Self::new(Code::WrongCredentials, message)
    }

    pub fn unknown_job(id: impl Display) -> Self {
        let message = format!("Processing Job with ID {id} does not exist");
        Self::new(Code::InvalidJobId, message)
    }

    pub fn already_submitted(id: impl Display) -> Self {
        let message = format!("Processing Job with ID {id} was already submitted");
        Self::new(Code::DuplicateGen, message)
    }

    pub fn taken_away(id: impl Display) -> Self {
        let message = format!(
            "Processing Job with ID {id} was aborted because it took too long. Please check your worker speed"
        );
        Self::new(Code::AbortedGen, message)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::{Code, Refusal};
    use crate::legacy::schemas;

    #[test]
    fn every_code_is_known_to_the_contract_and_spelled_once() {
        let known = schemas::known_codes();
        let sent: BTreeSet<_> = Code::ALL
            .iter()
            .map(|code| code.row().rc.to_owned())
            .collect();
        assert_eq!(sent.len(), Code::ALL.len());
        let invented: Vec<_> = sent.difference(&known).collect();
        assert!(invented.is_empty(), "{invented:?}");
    }

    #[test]
    fn only_retired_and_base_codes_have_no_row() {
        let sent: BTreeSet<_> = Code::ALL
            .iter()
            .map(|code| code.row().rc.to_owned())
            .collect();
        let known = schemas::known_codes();
        let left: Vec<_> = known.difference(&sent).map(String::as_str).collect();
        let expected = [
            // Published without the dot they are sent with.
            "InvalidExtraSourceImages",
            "InvalidExtraTexts",
            "MissingExtraTexts",
            "MoreThanMinExtraSourceImage",
            "TooManyExtraSourceImages",
            // Codes of the retired synchronous route, caught by the schema, or never sent.
            "BadClientAgent",
            "ControlNetInvalidPayload",
            "HiResFixMismatch",
            "Img2ImgMismatch",
            "InvalidRemixModel",
            "InvalidSize",
            "NoValidWorkers",
            "RequestExpired",
            "TilingMismatch",
            "TooManySteps",
            "UnsupportedSampler",
            // Base codes of other codes.
            "KudosValidationError",
            "NameAlreadyExists",
            "NoValidActions",
            "NotPrivileged",
            "NotTrusted",
            "Profanity",
            "TooLong",
            "UnsupportedModel",
        ];
        assert_eq!(
            left,
            expected
                .into_iter()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn each_shape_is_that_of_the_contract() {
        let check = |refusal: Refusal, schema: &str, status: u16| {
            schemas::assert_fits(schema, &refusal.body());
            assert_eq!(refusal.status(), status);
        };
        for code in Code::ALL {
            check((*code).into(), "RequestError", code.row().status);
        }
        check(
            Refusal::invalid("params.width", "found 20"),
            "RequestValidationError",
            400,
        );
        let unfit = Refusal::unfit(Code::FlowShiftInapplicable, "params.flow_shift", "found 3");
        check(unfit, "RequestValidationError", 400);
        check(Refusal::MissingKey, "RequestValidationError", 401);
        check(Refusal::plain(429, "2 per 1 second"), "RateLimitError", 429);
    }

    #[test]
    fn only_what_could_not_be_read_has_errors_and_no_code() {
        let refused = Refusal::invalid("params.width", "found 20");
        assert_eq!(
            refused.body(),
            json!({"message": "payload validation failed", "errors": {"params.width": "found 20"}})
        );
        assert_eq!(refused.code(), None);
        assert_eq!(Refusal::plain(400, "no").body(), json!({"message": "no"}));
    }

    #[test]
    fn what_does_not_go_together_has_its_code_and_its_place() {
        let refused = Refusal::unfit(Code::FlowShiftInapplicable, "params.flow_shift", "found 3");
        let expected = json!({
            "message": "payload validation failed",
            "rc": "FlowShiftInapplicable",
            "errors": {"params.flow_shift": "found 3"},
        });
        assert_eq!(refused.body(), expected);
        assert_eq!(refused.code(), Some(Code::FlowShiftInapplicable));
    }

    #[test]
    fn a_route_may_answer_another_status_with_the_same_code() {
        let refusal = Refusal::from(Code::SharedKeyExpired).at(400);
        assert_eq!(
            (refusal.status(), refusal.code()),
            (400, Some(Code::SharedKeyExpired))
        );
    }

    #[test]
    fn public_workers_find_the_words_they_look_for() {
        let lower = |refusal: Refusal| refusal.to_string().to_lowercase();
        assert!(
            lower(Refusal::worker_in_maintenance(Some("back at noon")))
                .contains("maintenance mode")
        );
        assert!(
            lower(Refusal::worker_in_maintenance(Some("back at noon"))).contains("back at noon")
        );
        assert!(lower(Refusal::worker_in_maintenance(None)).contains("maintenance mode"));
        assert!(lower(Refusal::models_not_accepted()).contains("we cannot accept workers serving"));
        assert!(lower(Refusal::worker_of_another("w")).contains("wrong credentials"));
        let unknown = Refusal::unknown_job("x").to_string();
        assert!(unknown.contains("Processing Job with ID") && unknown.contains("does not exist"));
        assert!(
            Refusal::already_submitted("x")
                .to_string()
                .contains("already submitted")
        );
        assert!(
            Refusal::taken_away("x")
                .to_string()
                .contains("Please check your worker speed")
        );
    }
}
