//! Stored responses that a request goes on from.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Responses, StoredResponse};
use crate::storage::StorageError;
use muster_protocol::job::AccountId;
use muster_protocol::openai::responses::{ID_PREFIX, Intent, request_of};

#[derive(Debug, Clone, Default)]
pub struct EarlierResponses {
    /// Items of the responses before this one, the oldest first.
    pub history: Arc<Vec<Value>>,
    /// Items that the request names by their ids.
    pub referenced: Arc<HashMap<String, Value>>,
    /// Of the JSON that was read.
    pub bytes: usize,
}

/// Why a request cannot go on from what it names.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(
        "no stored response of your account has the id {0:?}: it may have been deleted, have expired, or not been stored"
    )]
    Unknown(String),
    #[error("the response {0:?} has not ended")]
    Unfinished(String),
    #[error("the conversation is too long to go on from: send the items that matter as input")]
    TooLong,
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Responses of one conversation.
const MOST_RESPONSES: usize = 1000;
const MOST_BYTES: usize = 32 << 20;

impl Responses {
    pub async fn sources(
        &self,
        account: AccountId,
        intent: &Intent,
    ) -> Result<EarlierResponses, LinkError> {
        let mut sources = EarlierResponses::default();
        let mut responses = Vec::new();
        let mut next = intent.previous.clone();
        while let Some(id) = next.take() {
            let found = self.known(&id, account, &mut sources).await?;
            if responses.is_empty() && is_unfinished(&found.response) {
                return Err(LinkError::Unfinished(id));
            }
            next.clone_from(&found.previous);
            responses.push(found);
            if responses.len() > MOST_RESPONSES {
                return Err(LinkError::TooLong);
            }
        }
        let mut history = Vec::new();
        for found in responses.into_iter().rev() {
            history.extend(found.input);
            history.extend(output(&found.response).cloned());
        }
        sources.history = Arc::new(history);
        sources.referenced = Arc::new(self.referenced(account, intent, &mut sources).await?);
        Ok(sources)
    }

    /// The referenced items that exist; reading the body refuses the others by their places.
    async fn referenced(
        &self,
        account: AccountId,
        intent: &Intent,
        sources: &mut EarlierResponses,
    ) -> Result<HashMap<String, Value>, LinkError> {
        let mut responses: HashMap<String, Option<StoredResponse>> = HashMap::new();
        let mut referenced = HashMap::new();
        for id in &intent.references {
            let Some(request) = request_of(id) else {
                continue;
            };
            let response = format!("{ID_PREFIX}{request}");
            if !responses.contains_key(&response) {
                let found = match self.known(&response, account, sources).await {
                    Err(LinkError::Unknown(_)) => None,
                    found => Some(found?),
                };
                responses.insert(response.clone(), found);
            }
            let Some(Some(found)) = responses.get(&response) else {
                continue;
            };
            let mut items = output(&found.response).chain(&found.input);
            if let Some(item) = items.find(|item| item["id"] == id.as_str()) {
                referenced.insert(id.clone(), item.clone());
            }
        }
        Ok(referenced)
    }

    async fn known(
        &self,
        id: &str,
        account: AccountId,
        sources: &mut EarlierResponses,
    ) -> Result<StoredResponse, LinkError> {
        let found = self.find(id, account).await?;
        let found = found.ok_or_else(|| LinkError::Unknown(id.to_owned()))?;
        let items = found.input.iter().chain(output(&found.response));
        sources.bytes += items.map(|item| item.to_string().len()).sum::<usize>();
        match sources.bytes > MOST_BYTES {
            true => Err(LinkError::TooLong),
            false => Ok(found),
        }
    }
}

fn output(response: &Value) -> impl Iterator<Item = &Value> {
    response["output"].as_array().into_iter().flatten()
}

fn is_unfinished(response: &Value) -> bool {
    matches!(response["status"].as_str(), Some("queued" | "in_progress"))
}
