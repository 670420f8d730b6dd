//! Requests that another coordinator of the cluster had or gets: a stream that was begun goes on with the same jobs behind
//! the output that the client has, and a text without a reply runs again.

use std::sync::Arc;

use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};

use crate::clock::wall_clock;
use crate::dispatch::{BegunOutput, Refusal, Standing, Submission};
use crate::error::ApiError;
use crate::http::headers::NOT_LEADING;
use crate::http::journal::{Journal, JournalHead, JournalWriter};
use crate::switchboard::JobStream;
use muster_protocol::job::{FailureKind, Job};
use muster_protocol::openai::chat::{ChatRequest, StreamWriter};

use super::choices::{Choices, shutting_down};
use super::endpoint::TextEndpoint;
use super::order::Order;
use super::stream::{Relay, RelayMode};

impl TextEndpoint {
    /// The reply so far, if an earlier coordinator began it.
    pub(super) fn begun(&self) -> Option<&Arc<Journal>> {
        self.journaled.as_ref()?.continues.as_ref()
    }

    /// Refuses a repeated request that an earlier coordinator has settled: its reply is lost. That coordinator writes
    /// nothing more.
    pub(super) async fn refuse_settled(&self) -> Result<(), ApiError> {
        let Some(store) = &self.repeated_from else {
            return Ok(());
        };
        let admission = &self.admission;
        let since = wall_clock().before(admission.settings.lifetime);
        let settled = store.is_delivered(admission.request, admission.caller.account, since);
        let (kind, message) = match settled.await {
            Ok(false) => return Ok(()),
            Ok(true) => (
                FailureKind::ShuttingDown,
                "the coordinator ended between charging this request and answering it: its output is lost; repeat it",
            ),
            Err(_) => (
                FailureKind::StoreUnavailable,
                "looking for an earlier reply to this request failed; repeat it",
            ),
        };
        Err(ApiError::new(kind, message))
    }

    /// `None` for a request that no node continues elsewhere.
    pub(super) fn journal_head(
        &self,
        order: &Order,
        request: &ChatRequest,
        jobs: &[Arc<Job>],
    ) -> Option<JournalHead> {
        self.journaled.as_ref()?;
        let ids = jobs.iter().map(|job| job.id).collect();
        Some(order.journal_head(request, ids))
    }

    /// Removes the jobs of choices that ended at an earlier coordinator.
    pub(super) fn keep_open(&self, jobs: &mut Vec<Arc<Job>>) {
        if let Some(journal) = self.begun() {
            let mut choices = 0..;
            jobs.retain(|_| {
                choices
                    .next()
                    .is_some_and(|choice| !journal.has_ended(choice))
            });
        }
    }

    /// The streamed reply, with a journal if a node can continue it elsewhere.
    pub(super) fn relay(
        &self,
        writer: (Box<dyn StreamWriter>, &'static str),
        count: u32,
        choices: Choices,
        head: Option<&JournalHead>,
    ) -> Relay {
        let settings = &self.admission.settings;
        let (mode, choices) = match (head, self.begun()) {
            (None, _) => (RelayMode::Plain, choices),
            (Some(head), None) => (
                RelayMode::Journaled(JournalWriter::new(head, false)),
                choices,
            ),
            (Some(head), Some(begun)) => (
                RelayMode::Continued(JournalWriter::new(head, true)),
                choices.after(begun),
            ),
        };
        Relay::new(writer, count, choices, settings, mode)
    }

    /// Queues the jobs of a reply that an earlier coordinator began.
    pub(super) async fn submit_begun(
        &self,
        jobs: Vec<Arc<Job>>,
        standing: Standing,
        journal: &Journal,
    ) -> Result<Vec<JobStream>, Refusal> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let open = (0..).take(journal.head.jobs.len());
        let open = open.filter(|choice| !journal.has_ended(*choice));
        let begun: Vec<BegunOutput> = open.map(|choice| journal.output(choice)).collect();
        let submission = Submission { jobs, standing };
        self.admission.board.submit_begun(submission, begun).await
    }
}

/// The reply to a node for a request of which nothing was settled: the next leading coordinator may run it.
pub fn handed_over() -> Response {
    let mut response = ApiError::from(shutting_down()).into_response();
    let yes = HeaderValue::from_static("1");
    response.headers_mut().insert(NOT_LEADING, yes);
    response
}
