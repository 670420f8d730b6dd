//! Stored responses that a request continues. Their lengths are known before they are read, so that the memory is taken
//! first.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::{Responses, StoredResponse};
use crate::storage::{ResponseHead, StorageError};
use muster_protocol::job::AccountId;
use muster_protocol::openai::responses::{ID_PREFIX, Intent, request_of};

#[derive(Debug, Clone, Default)]
pub struct EarlierResponses {
    /// Items of the previous responses, the oldest first.
    pub history: Arc<Vec<Value>>,
    /// Items referenced by id in the request.
    pub referenced: Arc<HashMap<String, Value>>,
}

/// Why a request cannot continue from the named response.
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

/// Limit of responses per conversation.
const MOST_RESPONSES: usize = 1000;
const MOST_BYTES: usize = 32 << 20;

/// The responses that a request continues from.
#[derive(Debug, Default)]
pub struct ResponseChain {
    /// The continued responses, latest first.
    conversation: Vec<String>,
    /// Existing responses with referenced items.
    referenced: BTreeSet<String>,
    bytes: usize,
}

impl Responses {
    /// Loads the responses found by [`Self::chain`]. The caller must reserve the memory for them first.
    pub async fn sources(
        &self,
        account: AccountId,
        intent: &Intent,
        chain: &ResponseChain,
    ) -> Result<EarlierResponses, LinkError> {
        let mut history = Vec::new();
        for (place, id) in chain.conversation.iter().enumerate().rev() {
            let found = self.known(id, account).await?;
            if place == 0 && is_unfinished(&found.response) {
                return Err(LinkError::Unfinished(id.clone()));
            }
            history.extend(found.input);
            history.extend(into_output(found.response));
        }
        Ok(EarlierResponses {
            history: Arc::new(history),
            referenced: Arc::new(self.referenced(account, intent, chain).await?),
        })
    }

    /// The responses named by a request, without their contents.
    pub async fn chain(
        &self,
        account: AccountId,
        intent: &Intent,
    ) -> Result<ResponseChain, LinkError> {
        let mut chain = ResponseChain::default();
        let mut next = intent.previous.clone();
        while let Some(id) = next.take() {
            let head = self.head(&id, account).await?;
            let head = head.ok_or_else(|| LinkError::Unknown(id.clone()))?;
            chain.add(head.bytes)?;
            next = head.previous;
            chain.conversation.push(id);
            if chain.conversation.len() > MOST_RESPONSES {
                return Err(LinkError::TooLong);
            }
        }
        for id in intent.references.iter().filter_map(|id| request_of(id)) {
            let id = format!("{ID_PREFIX}{id}");
            if chain.referenced.contains(&id) {
                continue;
            }
            if let Some(head) = self.head(&id, account).await? {
                chain.add(head.bytes)?;
                chain.referenced.insert(id);
            }
            if chain.referenced.len() > MOST_RESPONSES {
                return Err(LinkError::TooLong);
            }
        }
        Ok(chain)
    }

    async fn head(
        &self,
        id: &str,
        account: AccountId,
    ) -> Result<Option<ResponseHead>, StorageError> {
        let live = self.live(id, account);
        let stored = self.store.response_head(id, account).await?;
        Ok(stored.or_else(|| {
            live.map(|live| ResponseHead {
                previous: live.previous(),
                bytes: live.bytes(),
            })
        }))
    }

    /// The existing referenced items; the others are refused by their places when the body is parsed.
    async fn referenced(
        &self,
        account: AccountId,
        intent: &Intent,
        chain: &ResponseChain,
    ) -> Result<HashMap<String, Value>, LinkError> {
        let wanted: HashSet<&str> = intent.references.iter().map(String::as_str).collect();
        let mut referenced = HashMap::new();
        for response in &chain.referenced {
            let Some(found) = self.find(response, account).await? else {
                continue;
            };
            let items = into_output(found.response).chain(found.input);
            for item in items {
                let id = item["id"].as_str().map(str::to_owned);
                if let Some(id) = id.filter(|id| wanted.contains(id.as_str())) {
                    referenced.entry(id).or_insert(item);
                }
            }
        }
        Ok(referenced)
    }

    async fn known(&self, id: &str, account: AccountId) -> Result<StoredResponse, LinkError> {
        let found = self.find(id, account).await?;
        found.ok_or_else(|| LinkError::Unknown(id.to_owned()))
    }
}

impl ResponseChain {
    /// Bytes of all texts, as stored.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn add(&mut self, bytes: usize) -> Result<(), LinkError> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > MOST_BYTES {
            true => Err(LinkError::TooLong),
            false => Ok(()),
        }
    }
}

fn into_output(mut response: Value) -> impl Iterator<Item = Value> {
    let output = match response["output"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    output.into_iter()
}

fn is_unfinished(response: &Value) -> bool {
    matches!(response["status"].as_str(), Some("queued" | "in_progress"))
}
