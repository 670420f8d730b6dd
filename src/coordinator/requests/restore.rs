//! Restores an earlier process's requests: ended jobs with their results, the others queued again with their source
//! images.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::follow::kept_for_its_worker;
use super::orders::Order;
use super::output::{Ended, Made};
use super::request::Request;
use super::{Belongings, Requests};
use crate::clock::wall_clock;
use crate::dispatch::{Standing, Submission};
use crate::media::{Holding, Media};
use crate::names::Names;
use crate::storage::{OpenRequest, ResultRow, StorageError, Wanted};
use crate::switchboard::JobStream;
use muster_protocol::job::{Hidden, Job, JobId, Kind, Product};

impl Requests {
    /// Call once, before serving. Jobs keep their ids. Every request lives at least `unwritten` longer, because its
    /// last extension may not have been stored.
    pub async fn restore(
        &self,
        names: &Names,
        media: &Media,
        unwritten: Duration,
    ) -> Result<(), StorageError> {
        self.remember_holds().await?;
        let open = self.still_open(unwritten).await?;
        let mut accounts: Vec<_> = open.iter().map(|one| one.request.account).collect();
        accounts.sort_unstable();
        accounts.dedup();
        let means = self.0.store.means(&accounts).await?;
        let (mut requests, mut queued) = (0, 0);
        for one in open {
            match Order::read(&one.request) {
                Ok(order) => {
                    let means = means.get(&one.request.account).copied();
                    let standing = Standing {
                        kudos: means.unwrap_or_default().kudos,
                        since: Some(one.request.accepted_at),
                        ..order.standing()
                    };
                    queued += self.take_up((&one, &order), standing, names, media).await;
                }
                Err(error) => {
                    // The log omits the id, which is a secret.
                    warn!("reading a stored request failed, the request counts as failed: {error}");
                    let request = Request::unreadable(&one.request);
                    self.go_on(request, &[], Vec::new(), Belongings::default());
                    continue;
                }
            }
            requests += 1;
        }
        if requests > 0 {
            info!("restored {requests} requests, {queued} of their jobs are queued again");
        }
        Ok(())
    }

    async fn still_open(&self, unwritten: Duration) -> Result<Vec<OpenRequest>, StorageError> {
        let now = wall_clock();
        let mut open = self.0.store.open_requests(now.before(unwritten)).await?;
        let until = now.after(unwritten);
        let ending = open.iter_mut().map(|one| &mut one.request);
        let ending = ending.filter(|request| request.expires_at < until);
        let ids = ending.map(|request| {
            request.expires_at = until;
            request.id
        });
        let ids = ids.collect();
        self.0.store.keep_requests(ids, until).await?;
        Ok(open)
    }

    /// Queues the open jobs again. Returns their number.
    async fn take_up(
        &self,
        (one, order): (&OpenRequest, &Order),
        standing: Standing,
        names: &Names,
        media: &Media,
    ) -> usize {
        let jobs = order.jobs(names);
        let results = one.results.iter().map(|row| (row.job, row));
        let results: HashMap<JobId, &ResultRow> = results.collect();
        let (mut ended, mut left) = (Vec::new(), Vec::new());
        for (index, job) in jobs.iter().enumerate() {
            match results.get(&job.id) {
                Some(row) => ended.push((index, again(order.kind(), row))),
                None => left.push(job.clone()),
            }
        }
        let queued = left.len();
        // Jobs of a failed request are given to no new worker either.
        let has_failed = ended.iter().any(|(_, ended)| ended.is_fatal(order.kind()));
        let is_over = one.request.wanted != Wanted::Everything || has_failed;
        let submission = Submission {
            jobs: match is_over {
                true => left.iter().map(|job| kept_for_its_worker(job)).collect(),
                false => left,
            },
            standing,
        };
        // The follower retries a refused submission.
        let streams = match queued {
            0 => Vec::new(),
            _ => self
                .0
                .switchboard
                .submit(submission)
                .await
                .unwrap_or_default(),
        };
        let wishes = (order.wishes(), standing);
        let request = Request::new(&one.request, wishes, &jobs, &streams, ended);
        let request = request.restored(one.request.wanted);
        let belongings = Belongings {
            webhook: order.webhook(),
            memory: None,
            sources: Some(media.hold(order.sources())),
        };
        self.go_on(request, &jobs, streams, belongings);
        queued
    }

    fn go_on(
        &self,
        request: Request,
        jobs: &[Arc<Job>],
        streams: Vec<JobStream>,
        belongings: Belongings,
    ) {
        let request = Arc::new(request);
        self.take_in(&request, None);
        self.follow(&request, jobs, streams, belongings);
    }
}

/// Source images of a request that is not followed any more. While the request is open they stay, even after its
/// expiry: another process may queue it again and extend its lifetime.
pub fn let_go(sources: Holding, request: &Request) {
    if request.is_open() {
        sources.leave();
    }
}

/// Finish reason of a job with a hidden result.
const CENSORED: &str = "content_filter";
const UNLAWFUL: &str = "csam";

fn again(kind: Kind, row: &ResultRow) -> Ended {
    let (worker, worker_id) = row.worker.clone().unwrap_or_default();
    match (row.state.as_str(), row.output.is_empty()) {
        ("delivered", _) | ("cancelled", false) => Ended::Made(Made {
            product: Product::from_stored(kind, &row.output),
            model: row.model.as_str().into(),
            worker: worker.into(),
            worker_id,
            hidden: match row.reason.as_str() {
                CENSORED => Some(Hidden::Censored),
                UNLAWFUL => Some(Hidden::Unlawful),
                _ => None,
            },
        }),
        ("cancelled", true) => Ended::Cancelled,
        ("expired", _) => Ended::Expired,
        _ => Ended::Failed(row.reason.as_str().into()),
    }
}

#[cfg(test)]
mod tests {

    use bytes::Bytes;
    use muster_testing::eventually;
    use uuid::Uuid;

    use super::let_go;
    use crate::clock::wall_clock;
    use crate::media::{Area, Key, Links, Media, MediaSettings, MediaType};
    use crate::requests::request::tests::{request, with_jobs};
    use muster_process::tasks::Tasks;

    #[tokio::test]
    async fn images_of_what_is_open_stay_also_when_its_time_is_over() {
        let (tasks, folder) = (Tasks::default(), tempfile::tempdir().unwrap());
        let links = Links {
            secret: [1; 32],
            base: "http://muster.test".to_owned(),
        };
        let settings = MediaSettings::in_folder(folder.path().join("media"));
        let media = Media::open(&settings, &links, &tasks).await.unwrap();
        let (open, ended) = (with_jobs(wall_clock()), request(wall_clock()));
        let key = |number| Key::new(Area::Sources, Uuid::nil(), number, MediaType::Webp);
        for (number, request) in [(1, &open), (2, &ended)] {
            assert!(request.has_ended());
            let stored = media.put(key(number), Bytes::from_static(b"RIFF"));
            stored.await.unwrap();
            let_go(media.hold(vec![key(number)]), request);
        }
        eventually("the source image to be deleted", async || {
            media.get(key(2)).await.unwrap().is_none()
        })
        .await;
        assert!(media.get(key(1)).await.unwrap().is_some());
    }
}
