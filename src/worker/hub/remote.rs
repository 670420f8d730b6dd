//! Queries of the hub: metadata of a file, and the list of files.

use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{
    client::{Answer, Client, Named},
    error::HubError,
    progress::{Event, Progress},
    retry::{Backoff, Trouble, Verdict},
    settings::Patience,
    source::{FilePath, Repository, Revision},
};

/// A file as the hub has it at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    pub path: FilePath,
    pub url: Url,
    pub commit: Revision,
    /// The hub's name for these bytes; safe to be the name of a blob.
    pub etag: String,
    pub size: u64,
}

/// The connection of a pull, with its progress and cancellation.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    pub client: &'a Client,
    pub patience: Patience,
    pub progress: &'a dyn Progress,
    pub stop: &'a CancellationToken,
}

impl Line<'_> {
    /// Queries the metadata of a file.
    pub async fn file(
        &self,
        repository: &Repository,
        revision: &Revision,
        path: &FilePath,
    ) -> Result<RemoteFile, HubError> {
        let url = self.file_url(repository, revision, path);
        let what = format!("{path} of {repository} at {revision}");
        let answer = self
            .ask(&what, || self.client.head(url.clone(), &what))
            .await?;
        self.remote_file(repository, revision, path, answer.named)
            .map_err(|missing| HubError::BadAnswer {
                host: self.client.host(),
                what: format!("{what} has no usable {missing}"),
            })
    }

    /// The names of all files of a repository that are of use here, and the commit that has them.
    pub async fn listing(
        &self,
        repository: &Repository,
        revision: &Revision,
    ) -> Result<(Revision, Vec<FilePath>), HubError> {
        let what = format!("{repository} at {revision}");
        let parts = repository.as_str().split('/');
        let path = ["api", "models"].into_iter().chain(parts);
        let url = self.client.url(path.chain(["revision", revision.as_str()]));
        let answer = self
            .ask(&what, || self.client.get(url.clone(), None, &what))
            .await?;
        let nonsense = |error: String| HubError::BadAnswer {
            host: self.client.host(),
            what: format!("file list of {what}: {error}"),
        };
        let body = read_all(answer).await.map_err(nonsense)?;
        let listing: Listing =
            serde_json::from_slice(&body).map_err(|error| nonsense(error.to_string()))?;
        let commit = listing
            .sha
            .parse()
            .map_err(|bad| nonsense(format!("{bad}")))?;
        // Unsupported or unsafe names are skipped, since they are never requested.
        let files = listing
            .siblings
            .iter()
            .filter_map(|file| file.rfilename.parse().ok());
        Ok((commit, files.collect()))
    }

    /// Retries until a reply or the limit of attempts.
    async fn ask<F>(&self, what: &str, mut request: impl FnMut() -> F) -> Result<Answer, HubError>
    where
        F: Future<Output = Result<Answer, Trouble>>,
    {
        let mut backoff = Backoff::brief(self.patience);
        loop {
            let answer = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(HubError::Stopped),
                answer = request() => answer,
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(trouble) => self.wait(&mut backoff, trouble, what).await?,
            }
        }
    }

    /// Waits before a retry, or returns the error after the last one.
    pub async fn wait(
        &self,
        backoff: &mut Backoff,
        trouble: Trouble,
        what: &str,
    ) -> Result<(), HubError> {
        let (why, asked) = match trouble {
            Trouble::Passing(why) => (why, None),
            Trouble::TooMany { after } => ("too many requests".to_owned(), after),
            Trouble::Changed | Trouble::NoRanges => ("the file changed".to_owned(), None),
            Trouble::Fatal(error) => return Err(error),
        };
        let host = self.client.host();
        match backoff.failed(asked) {
            Verdict::Banned(wait) => Err(HubError::TooManyRequests { host, wait }),
            Verdict::GiveUp => Err(HubError::Unreachable {
                what: what.to_owned(),
                host,
                cause: why,
                attempts: backoff.failures(),
            }),
            Verdict::Wait(wait) => {
                self.progress.report(Event::Waiting {
                    what,
                    why: &why,
                    wait,
                });
                tokio::select! {
                    () = self.stop.cancelled() => Err(HubError::Stopped),
                    () = tokio::time::sleep(wait) => Ok(()),
                }
            }
        }
    }

    fn file_url(&self, repository: &Repository, revision: &Revision, path: &FilePath) -> Url {
        let before = repository.as_str().split('/');
        let parts = before.chain(["resolve", revision.as_str()]);
        self.client.url(parts.chain(path.as_str().split('/')))
    }

    fn remote_file(
        &self,
        repository: &Repository,
        revision: &Revision,
        path: &FilePath,
        named: Named,
    ) -> Result<RemoteFile, &'static str> {
        let commit = match named.commit {
            Some(commit) => commit.parse().map_err(|_| "commit (x-repo-commit)")?,
            None => revision.clone(),
        };
        if !commit.is_commit() {
            return Err("commit (x-repo-commit)");
        }
        Ok(RemoteFile {
            path: path.clone(),
            // By commit from now on: a branch may move during the download.
            url: self.file_url(repository, &commit, path),
            commit,
            etag: named.etag.filter(|etag| is_file_name(etag)).ok_or("etag")?,
            size: named.size.ok_or("length")?,
        })
    }
}

fn is_file_name(etag: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=128).contains(&etag.len()) && etag.bytes().all(plain)
}

#[derive(Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

/// The longest list of files that is believed.
const LONGEST_LISTING: usize = 32 * 1024 * 1024;

async fn read_all(mut answer: Answer) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = answer
        .response
        .chunk()
        .await
        .map_err(super::client::in_words)?
    {
        body.extend_from_slice(&chunk);
        if body.len() > LONGEST_LISTING {
            return Err(format!("more than {LONGEST_LISTING} bytes"));
        }
    }
    Ok(body)
}
