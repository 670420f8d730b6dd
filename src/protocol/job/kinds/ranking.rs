//! For each document, how well it answers a query.

use serde::{Deserialize, Serialize};

use super::{JobRequest, KindFacts, OutputForm};

pub(super) const FACTS: KindFacts = KindFacts {
    name: "ranking",
    word: "text",
    ability: "reranking",
    job_type: "text",
    task: Some("rerank"),
    is_relayed: true,
    modality: Some("rerank"),
    route: Some("/v1/rerank"),
    limits: &[],
    rate: None,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankingRequest {
    pub query: String,
    pub documents: Vec<String>,
    /// The place of the first among the documents of the request, for errors.
    #[serde(default)]
    pub first: usize,
}

impl JobRequest for RankingRequest {
    fn output(&self) -> OutputForm {
        OutputForm::Values
    }

    fn size(&self) -> u64 {
        (self.read_bytes() as u64 / 4).max(1)
    }

    /// The query is read with each document.
    fn read_bytes(&self) -> usize {
        let pairs = self.documents.iter();
        pairs
            .map(|document| self.query.len() + document.len())
            .sum()
    }
}
