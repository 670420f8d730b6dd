//! Clients that submit requests, and cancel some.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::super::pollers::DRAWN;
use super::super::rigs::MODELS;
use super::{Happening, World};
use crate::dispatch::tests::text;
use crate::dispatch::{Input, Priority, Standing, Submission};
use muster_protocol::job::{
    AccountId, Capabilities, Formats, ImageRequest, Job, JobId, Kind, Kudos, Limits, ModelChoice,
    Privacy, RequestId,
};

impl World {
    pub(super) fn request(&mut self) {
        self.issued += 1;
        let request = RequestId(Uuid::from_u128(self.issued.into()));
        let account = AccountId(1 + self.random.below(8) as i64);
        let kind = match self.pollers.is_empty() || self.random.permille(800) {
            true => Kind::Text,
            false => Kind::Image,
        };
        let durable = kind == Kind::Image || self.random.permille(250);
        let polled = durable || self.random.permille(300);
        let life = self.random.millis(5000, 180_000);
        let model = MODELS[(self.random.below(8) as usize).min(4) / 2];
        let prompt_tokens = [100, 100, 3000, 20_000][self.random.below(4) as usize];
        let count = if kind == Kind::Image || self.random.permille(200) {
            1 + self.random.below(4)
        } else {
            1
        };
        let mut jobs = Vec::new();
        for _ in 0..count {
            self.issued += 1;
            let id = JobId(Uuid::from_u128((1 << 100) + u128::from(self.issued)));
            let length = match kind {
                Kind::Image => 1,
                _ => 1 + self.random.below(25) as u32,
            };
            self.clients
                .expect(id, length, self.now.mono + life, durable);
            jobs.push(Job {
                id,
                request,
                account,
                shared_key: None,
                kind,
                model: ModelChoice(vec![match kind {
                    Kind::Image => DRAWN.into(),
                    _ => model.into(),
                }]),
                body: match kind {
                    Kind::Image => ImageRequest::default().into(),
                    _ => text(),
                },
                limits: Limits {
                    formats: match (kind, polled) {
                        (Kind::Image, _) => Formats::LEGACY,
                        (_, true) => Formats::NEUTRAL
                            .with(Formats::OPENAI_CHAT)
                            .with(Formats::LEGACY),
                        (_, false) => Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
                    },
                    requires: Capabilities::default(),
                    prompt_tokens,
                    patience: durable.then(|| Duration::from_secs(30)),
                    output_tokens: Some(length),
                    ..Limits::default()
                },
                privacy: Privacy::Anyone,
                deadline: self.now.wall.after(life),
                durable,
                prefixes: vec![self.issued % 7, self.issued % 50],
                original: None,
                price: None,
            });
        }
        self.requests
            .insert(request, jobs.iter().map(|job| job.id).collect());
        let priority =
            [Priority::Low, Priority::Normal, Priority::High][self.random.below(3) as usize];
        let kudos = Kudos(self.random.below(1 << 40) as i64);
        // Half of the stored requests were found on disk: an earlier process may have leased their jobs.
        let is_from_before = durable && self.issued.is_multiple_of(2);
        let standing = Standing {
            kudos,
            priority,
            since: is_from_before.then_some(self.now.wall),
            ..Standing::default()
        };
        self.give(Input::Submit(Submission {
            jobs: jobs.into_iter().map(Arc::new).collect(),
            standing,
        }));
    }

    pub(super) fn lose_patience(&mut self, job: JobId) {
        if !self.clients.open.contains(&job) {
            return;
        }
        self.clients.jobs.get_mut(&job).unwrap().left = true;
        let slow = self.random.permille(300);
        self.give(if slow {
            Input::SlowClient { job }
        } else {
            Input::Cancel { job }
        });
        self.after(Duration::from_secs(1), Happening::SlotFree(job));
        let entry = self.dispatcher.jobs.get(&job);
        if let Some(lease) = entry.and_then(|entry| entry.lease()) {
            assert!(
                self.told_to_stop.contains(&(job, lease.attempt)),
                "{job} still runs, and its worker was not told to stop"
            );
        }
    }

    pub(super) fn accepted(&mut self, request: RequestId) {
        for job in self.requests[&request].clone() {
            self.clients.accepted(job);
            let expires = self.clients.jobs[&job].expires;
            let overdue = expires.since(self.now.mono) + Duration::from_secs(30);
            self.after(overdue, Happening::Overdue(job));
            if self.random.permille(150) {
                let wait = self.random.millis(0, 20_000);
                self.after(wait, Happening::Impatience(job));
            }
        }
    }
}
