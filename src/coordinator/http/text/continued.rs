//! Streams that an earlier coordinator of the cluster began: the same jobs go on behind the output that the client has.

use std::sync::Arc;

use crate::dispatch::{BegunOutput, Refusal, Standing, Submission};
use crate::http::journal::{Journal, JournalHead, JournalWriter};
use crate::switchboard::JobStream;
use muster_protocol::dialect::StreamWriter;
use muster_protocol::job::Job;

use super::choices::Choices;
use super::endpoint::TextEndpoint;
use super::stream::Relay;

impl TextEndpoint {
    /// The reply so far, if an earlier coordinator began it.
    pub(super) fn begun(&self) -> Option<&Arc<Journal>> {
        self.journaled.as_ref()?.continues.as_ref()
    }

    /// The streamed reply, with a journal for a node that can continue it elsewhere.
    pub(super) fn relay(
        &self,
        writer: (Box<dyn StreamWriter>, &'static str),
        count: u32,
        choices: Choices,
        head: &JournalHead,
    ) -> Relay {
        let settings = &self.admission.settings;
        let Some(journaled) = &self.journaled else {
            return Relay::new(writer, count, choices, settings);
        };
        let begun = journaled.continues.as_ref();
        let journal = Some(JournalWriter::new(head, begun.is_some()));
        match begun {
            None => Relay::new(writer, count, choices, settings).journaled(journal),
            Some(begun) => Relay::new(writer, count, choices.after(begun), settings)
                .journaled(journal)
                .continued(),
        }
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
