//! Public ids of `/v1` media requests: ids of jobs, clients' own names, and progress tokens.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::request::Request;
use super::{Ended, Requests};
use crate::storage::StorageError;
use muster_protocol::job::{AccountId, JobId, Kind, RequestId, UnixMillis};

/// The public id of a media request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaName {
    Job(JobId),
    /// The client's own id, which several requests may have.
    ClientRef(Arc<str>),
}

#[derive(Debug, Default)]
pub struct MediaNames {
    by_job: HashMap<JobId, RequestId>,
    by_ref: HashMap<(AccountId, Arc<str>), Vec<RequestId>>,
    by_token: HashMap<Arc<str>, RequestId>,
    /// In order of acceptance.
    by_kind: HashMap<(AccountId, Kind), BTreeSet<(UnixMillis, RequestId)>>,
}

impl MediaNames {
    pub fn add(&mut self, request: &Request) {
        let Some(notes) = &request.wishes.media else {
            return;
        };
        let jobs = request.outputs.iter().map(|output| output.job);
        self.by_job.extend(jobs.map(|job| (job, request.id)));
        if let Some(client_ref) = &notes.client_ref {
            let name = (request.account, client_ref.clone());
            self.by_ref.entry(name).or_default().push(request.id);
        }
        if let Some(token) = &notes.progress_token {
            self.by_token.insert(token.clone(), request.id);
        }
        let of_kind = (request.account, request.kind);
        let requests = self.by_kind.entry(of_kind).or_default();
        requests.insert((request.accepted_at, request.id));
    }

    pub fn remove(&mut self, request: &Request) {
        let Some(notes) = &request.wishes.media else {
            return;
        };
        for output in &request.outputs {
            self.by_job.remove(&output.job);
        }
        if let Some(client_ref) = &notes.client_ref {
            let name = (request.account, client_ref.clone());
            if let Some(ids) = self.by_ref.get_mut(&name) {
                ids.retain(|id| *id != request.id);
                if ids.is_empty() {
                    self.by_ref.remove(&name);
                }
            }
        }
        if let Some(token) = &notes.progress_token
            && self.by_token.get(token) == Some(&request.id)
        {
            self.by_token.remove(token);
        }
        let of_kind = (request.account, request.kind);
        if let Some(requests) = self.by_kind.get_mut(&of_kind) {
            requests.remove(&(request.accepted_at, request.id));
            if requests.is_empty() {
                self.by_kind.remove(&of_kind);
            }
        }
    }

    fn find(&self, account: AccountId, name: &MediaName) -> Vec<RequestId> {
        match name {
            MediaName::Job(job) => self.by_job.get(job).copied().into_iter().collect(),
            MediaName::ClientRef(client_ref) => {
                let found = self.by_ref.get(&(account, client_ref.clone()));
                found.cloned().unwrap_or_default()
            }
        }
    }
}

impl Requests {
    /// Media requests of this account by job id or client reference.
    pub fn media(&self, account: AccountId, name: &MediaName) -> Vec<Arc<Request>> {
        let ids = self.read().media_names().find(account, name);
        let found = ids.into_iter().filter_map(|id| self.find(id));
        found.filter(|request| request.account == account).collect()
    }

    /// All media requests of an account of this kind, the oldest first.
    pub fn media_of_kind(&self, account: AccountId, kind: Kind) -> Vec<Arc<Request>> {
        let ids: Vec<RequestId> = {
            let shelves = self.read();
            let of_kind = shelves.media_names().by_kind.get(&(account, kind));
            of_kind.into_iter().flatten().map(|(_, id)| *id).collect()
        };
        ids.into_iter().filter_map(|id| self.find(id)).collect()
    }

    /// Cancels the open jobs of a request, and forgets the request.
    pub async fn delete(&self, request: &Request) -> Result<(), StorageError> {
        self.cancel(request).await?;
        self.0.store.expire_request(request.id).await?;
        request.delete();
        Ok(())
    }

    /// Progress of the request with this token, in percent.
    pub fn progress_of(&self, token: &str) -> Option<u8> {
        let id = self.read().media_names().by_token.get(token).copied()?;
        Some(self.find(id)?.percent())
    }

    /// Jobs that may have holds of credits.
    pub fn open_media_jobs(&self) -> Vec<JobId> {
        let shelves = self.read();
        let requests = shelves.all_unfinished();
        let requests = requests.filter(|request| request.wishes.media.is_some());
        let outputs = requests.flat_map(|request| &request.outputs);
        let open = outputs.filter(|output| output.is_open());
        open.map(|output| output.job).collect()
    }
}

impl Request {
    /// Progress of all outputs together.
    pub fn percent(&self) -> u8 {
        let percents = self.outputs.iter().map(|output| match output.ended() {
            Some(Ended::Made(_)) => 100,
            Some(_) => 0,
            None => output
                .progress()
                .map_or(0, |progress| usize::from(progress.percent)),
        });
        let sum: usize = percents.sum();
        u8::try_from(sum / self.outputs.len().max(1)).unwrap_or(100)
    }
}
