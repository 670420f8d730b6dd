//! Jobs whose results are values, from the route to the worker's result. Every dialect's route runs them here: an
//! [`Encoder`] knows the caller, an [`Encoding`] is the work.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::dispatch::{Missing, Outcome, Refusal, Submission};
use crate::error::ApiError;
use crate::http::admission::{Admission, AdmittedAsker};
use crate::http::auto::Auto;
use crate::http::cashier::PendingHold;
use crate::http::generation::blocked;
use crate::http::models;
use crate::http::open::Open;
use crate::moderation::{Medium, Prompt};
use crate::sender::Sender;
use crate::state::DoorSettings;
use crate::switchboard::{Delivery, JobStream, ModelOnline};
use muster_protocol::job::{
    Body, Capabilities, Event, Failure, FailureKind, Formats, Job, JobId, KeepAlive, Kind, Limits,
    ModelChoice, ResultPart, TextInput, TokenList, UnixMillis, Usage,
};
use muster_protocol::openai::Problem;
use muster_protocol::openai::encode::TokenizeRequest;

/// Runs encodings for the caller of one request.
pub struct Encoder {
    admission: Admission,
    admitted: AdmittedAsker,
    keep_alive: Option<KeepAlive>,
}

/// The work of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoding {
    /// The client's name of the model.
    pub model: Arc<str>,
    pub request: Body,
    /// Capabilities that the worker needs besides the kind of the job.
    pub requires: Capabilities,
    /// The field that holds the texts, for errors.
    pub param: &'static str,
}

/// A result and the tokens that were read for it.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodeReply {
    pub result: ResultPart,
    pub usage: Usage,
    pub job: JobId,
}

/// A running job.
pub struct RunningEncoding {
    stream: JobStream,
    param: &'static str,
    has_result: bool,
}

/// A part of a job's output, or its end.
#[derive(Debug, Clone, PartialEq)]
pub enum EncodePart {
    /// The result, or the next part of a transcript or a speech. A restarted job sends its parts again.
    Part(ResultPart),
    End(Usage),
}

/// Names in a refusal.
const MOST_NAMES: usize = 100;

impl FromRequestParts<Open> for Encoder {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, open: &Open) -> Result<Self, ApiError> {
        let admission = Admission::from_request_parts(parts, open).await?;
        let admitted = admission.admit()?;
        Ok(Self::of(admission, admitted))
    }
}

impl Encoder {
    pub fn of(admission: Admission, admitted: AdmittedAsker) -> Self {
        Self {
            admission,
            admitted,
            keep_alive: None,
        }
    }

    /// The same for jobs after which the model stays in memory for a time.
    pub fn keeping(self, keep_alive: Option<KeepAlive>) -> Self {
        Self { keep_alive, ..self }
    }

    /// Waits for the result. Dropped before, the job is cancelled.
    pub async fn run(&self, encoding: Encoding) -> Result<EncodeReply, ApiError> {
        let mut running = self.begin(encoding).await?;
        let mut whole = None;
        loop {
            match running.next().await? {
                EncodePart::Part(part) => whole = Some(joined(whole.take(), part)),
                EncodePart::End(usage) => {
                    let result = whole.ok_or_else(empty)?;
                    let job = running.job();
                    return Ok(EncodeReply { result, usage, job });
                }
            }
        }
    }

    /// Files of one sender are processed one at a time.
    pub fn sender(&self) -> Sender {
        Sender::of(self.admitted.asker.account, self.admitted.asker.address)
    }

    pub fn settings(&self) -> &DoorSettings {
        &self.admission.settings
    }

    /// Refuses a text that moderation refuses.
    pub async fn examine(&self, text: &str, model: &str) -> Result<(), ApiError> {
        let prompt = Prompt {
            text,
            medium: Medium::Text,
            may_be_rewritten: false,
            models: &[model.to_owned()],
        };
        let examined = self
            .admission
            .moderation
            .examine(prompt, &self.admitted.asker)
            .await;
        examined.map(drop).map_err(blocked)
    }

    /// Refuses a model that is online without the kind.
    pub async fn check_able(&self, model: &str, kind: Kind) -> Result<(), ApiError> {
        let overview = self.admission.board.current().await;
        match overview.model(&self.admission.models.id(model)) {
            Some(online) if !online.kinds.contains(kind) => Err(self.unable(model, kind).await),
            _ => Ok(()),
        }
    }

    /// The voices of a model, if it is online and speaks.
    pub async fn voices(&self, model: &str) -> Arc<[Arc<str>]> {
        let overview = self.admission.board.current().await;
        let model = overview.model(&self.admission.models.id(model));
        model.map(|model| model.voices.clone()).unwrap_or_default()
    }

    /// The same for the same request alone.
    pub fn seed(&self) -> u64 {
        self.admission.seed()
    }

    /// Checks the model, the permission and the price before any work, and releases the hold before the work itself is
    /// queued. Work that waits for its worker needs no worker now.
    pub async fn reserve(
        &self,
        encoding: &Encoding,
        may_wait: bool,
    ) -> Result<PendingHold, ApiError> {
        let model = &encoding.model;
        refuse_auto(model)?;
        let kind = encoding.request.kind();
        let mut jobs = vec![Arc::new(self.job(
            model,
            encoding.request.clone(),
            encoding.requires,
        ))];
        if let Err(refusal) = self.admission.board.check(jobs[0].clone()).await {
            let is_away = matches!(
                &refusal,
                Refusal::Unserved {
                    missing: Missing::Model(_) | Missing::Absent(_),
                    ..
                }
            );
            if !(may_wait && is_away && self.admission.models.contains(model)) {
                return Err(self.explain(refusal, model, kind, encoding.param).await);
            }
        }
        self.admission.cashier.hold(&mut jobs).await
    }

    /// Queues the work. Dropped, the job is cancelled.
    pub async fn begin(&self, encoding: Encoding) -> Result<RunningEncoding, ApiError> {
        let Encoding {
            model,
            request,
            requires,
            param,
        } = encoding;
        refuse_auto(&model)?;
        let kind = request.kind();
        let is_computed = request.is_computed();
        let mut jobs = vec![Arc::new(self.job(&model, request, requires))];
        // Tokenizing is free, since no network runs.
        let held = match is_computed {
            true => Some(self.admission.cashier.hold(&mut jobs).await?),
            false => None,
        };
        let submission = Submission {
            jobs,
            standing: self.admission.caller.standing(),
        };
        let mut streams = match self.admission.board.submit(submission).await {
            Ok(streams) => streams,
            Err(refusal) => {
                if let Some(held) = held {
                    held.release().await;
                }
                return Err(self.explain(refusal, &model, kind, param).await);
            }
        };
        held.map_or(Ok(()), PendingHold::queued)?;
        self.admission
            .models
            .learn(&self.admission.models.id(&model));
        match streams.pop() {
            Some(stream) => Ok(RunningEncoding {
                stream,
                param,
                has_result: false,
            }),
            None => Err(shutting_down().into()),
        }
    }

    /// Tokenizes a prompt: the same number as its `prompt_tokens` would be.
    pub async fn tokenize(&self, request: TokenizeRequest) -> Result<(TokenList, JobId), ApiError> {
        let param = match request.input {
            TextInput::Chat(_) => "messages",
            TextInput::Prompt(_) | TextInput::Tokens(_) => "prompt",
        };
        let encoding = Encoding {
            model: request.model.clone(),
            requires: request.requires,
            request: request.neutral().into(),
            param,
        };
        let EncodeReply { result, job, .. } = self.run(encoding).await?;
        match result {
            ResultPart::Tokens(tokens) => Ok((tokens, job)),
            _ => Err(unexpected()),
        }
    }

    fn job(&self, model: &str, request: Body, requires: Capabilities) -> Job {
        let needs = request.limits().needs;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = UnixMillis::default().after(since.unwrap_or_default());
        Job {
            id: JobId::random(),
            request: self.admission.request,
            account: self.admission.caller.account,
            shared_key: None,
            kind: request.kind(),
            model: ModelChoice(vec![self.admission.models.id(model)]),
            limits: Limits {
                formats: Formats::NEUTRAL,
                requires,
                needs,
                restartable: true,
                keep_alive: self.keep_alive,
                ..Limits::default()
            },
            body: request,
            privacy: self.admitted.privacy(),
            deadline: now.after(self.admission.settings.lifetime),
            durable: false,
            prefixes: Vec::new(),
            original: None,
            price: None,
        }
    }

    /// The client's error for a refusal by the queue.
    async fn explain(
        &self,
        refusal: Refusal,
        model: &Arc<str>,
        kind: Kind,
        param: &'static str,
    ) -> ApiError {
        let param = match &refusal {
            Refusal::Unserved { missing, online } => match missing {
                Missing::Model(_) if self.admission.models.contains(model) => Some("model"),
                Missing::Model(_) if online.is_empty() => {
                    return Failure::new(FailureKind::NoWorker, refusal.to_string()).into();
                }
                Missing::Model(_) => {
                    let online: Vec<&str> = online.iter().map(|name| &**name).collect();
                    return models::unknown(model, &online, &self.admission.models);
                }
                Missing::Kind(_) | Missing::Format(_) => return self.unable(model, kind).await,
                Missing::Context { .. } | Missing::Reach { .. } => Some(param),
                Missing::Capability(_) => None,
                Missing::Absent(_) | Missing::Trust => Some("model"),
            },
            _ => None,
        };
        ApiError {
            param: param.map(Into::into),
            ..Failure::from(refusal).into()
        }
    }

    /// The error if no worker of the model can do it: names the models that can.
    async fn unable(&self, model: &str, kind: Kind) -> ApiError {
        let overview = self.admission.board.current().await;
        let can = |model: &&ModelOnline| model.kinds.contains(kind);
        let able = overview.models.iter().filter(can).take(MOST_NAMES);
        let able: Vec<&str> = able.map(|model| &*model.name).collect();
        let able = match able.is_empty() {
            true => "no model that is online does".to_owned(),
            false => format!("models that do: {}", able.join(", ")),
        };
        let what = kind.ability();
        let message = format!("no worker of {model} supports {what}; {able}");
        Problem::unsupported("model", message).into()
    }
}

fn refuse_auto(model: &str) -> Result<(), ApiError> {
    if Auto::called(model).is_none() {
        return Ok(());
    }
    let message =
        format!("model must name one model here, found {model}: use a name listed by /v1/models");
    Err(Problem::unsupported("model", message).into())
}

/// The error for a result whose type does not fit its job.
pub fn unexpected() -> ApiError {
    ApiError::new(
        FailureKind::WorkerFailed,
        "the worker sent a result of another kind",
    )
}

impl RunningEncoding {
    pub fn job(&self) -> JobId {
        self.stream.job()
    }

    pub async fn next(&mut self) -> Result<EncodePart, ApiError> {
        while let Some(delivery) = self.stream.next().await {
            match delivery {
                Delivery::Event(Event::Part(result)) => {
                    self.has_result = true;
                    return Ok(EncodePart::Part(*result));
                }
                Delivery::Event(_) => {}
                Delivery::End { outcome, .. } => {
                    return self.ended(&outcome).map_err(|failure| ApiError {
                        param: (failure.kind == FailureKind::ContextLengthExceeded)
                            .then_some(self.param.into()),
                        ..failure.into()
                    });
                }
            }
        }
        Err(shutting_down().into())
    }

    fn ended(&self, outcome: &Outcome) -> Result<EncodePart, Failure> {
        if let Some(failure) = outcome.failure() {
            return Err(failure);
        }
        match outcome {
            Outcome::Delivered { usage, .. } if self.has_result => Ok(EncodePart::End(*usage)),
            _ => Err(empty()),
        }
    }
}

/// Appends parts of a transcript, unless the job restarted; of other results the last one counts.
fn joined(before: Option<ResultPart>, next: ResultPart) -> ResultPart {
    match (before, next) {
        (Some(ResultPart::Transcript(mut before)), ResultPart::Transcript(next))
            if !next.segments.is_empty() =>
        {
            before.absorb(*next);
            ResultPart::Transcript(before)
        }
        (_, next) => next,
    }
}

fn empty() -> Failure {
    Failure::new(FailureKind::EmptyResult, "the worker sent an empty result")
}

fn shutting_down() -> Failure {
    Failure::new(
        FailureKind::ShuttingDown,
        "the coordinator is shutting down",
    )
}
