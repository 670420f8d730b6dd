//! The task that saves records, puts workers that drop too many jobs into maintenance, and pauses implausible ones.

use std::time::Duration;

use tokio::select;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::wall_clock;
use crate::storage::{RigChange, RigNews, StorageError};
use crate::values::suspicion::{Mark, Reason, TOO_MUCH, total};
use muster_process::tasks::Tasks;
use muster_protocol::job::WorkerId;

use super::live::{self, Seen};
use super::{Inner, Rigs};

/// Interval of saves.
const SAVE: Duration = Duration::from_secs(30);
/// Workers per commit.
const AT_ONCE: usize = 200;
/// Newer workers recognise automatic maintenance by these first words.
const NOTE: &str = "dropping too many jobs: too many within an hour went to other workers; check the worker's speed, \
                    then end the maintenance";

pub fn start(rigs: &Rigs, tasks: &Tasks) {
    tasks.start(keep(rigs.clone(), tasks.stopping()));
}

async fn keep(rigs: Rigs, stopping: CancellationToken) {
    let mut saving = interval(SAVE);
    saving.tick().await;
    loop {
        select! {
            () = stopping.cancelled() => break,
            _ = saving.tick() => {
                rigs.see_sockets();
                rigs.tell_speeds().await;
                rigs.0.save().await;
            }
            noticed = rigs.0.records.noticed() => {
                for (worker, reason) in noticed {
                    rigs.act_on(worker, reason).await;
                }
            }
        }
    }
    rigs.0.save().await;
}

impl Rigs {
    /// Socket workers are online as long as their socket.
    fn see_sockets(&self) {
        for worker in &self.0.board.overview().workers {
            if self.0.records.trade(worker.id).is_none() {
                let seen = Seen::on_socket(live::trade(Some(worker)));
                self.0.records.check_in(worker.id, seen);
            }
        }
    }

    /// Sends changed speed classes to dispatch.
    async fn tell_speeds(&self) {
        let inner = &*self.0;
        for (worker, terms) in inner.records.changed(|name| inner.billions(name)) {
            // A stopped switchboard answers no pops, so the error does not matter.
            let _ = inner.board.set_terms(worker, terms).await;
        }
    }

    async fn act_on(&self, worker: WorkerId, reason: Reason) {
        let id = worker.0;
        let too_many = reason == Reason::DroppedJobs;
        if too_many {
            match self.send_into_maintenance(worker).await {
                Ok(()) => info!(
                    worker = id,
                    "worker {id} dropped too many jobs and is in maintenance"
                ),
                Err(error) => warn!(
                    worker = id,
                    "setting worker {id} to maintenance failed: {error}"
                ),
            }
        }
        match self.suspect(worker, reason).await {
            Ok(true) => warn!(
                worker = id,
                "worker {id} is paused: suspicion limit reached"
            ),
            Ok(false) => {}
            Err(error) => warn!(
                worker = id,
                "recording a suspicion mark for worker {id} failed: {error}"
            ),
        }
    }

    async fn send_into_maintenance(&self, worker: WorkerId) -> Result<(), StorageError> {
        let change = RigChange {
            maintenance: Some(true),
            maintenance_note: Some(NOTE.to_owned()),
            ..RigChange::default()
        };
        self.0.store.decide(worker, change).await?;
        self.relearn(worker).await
    }

    /// Whether the worker is now paused. Suspicion is off where owners may have unlimited workers.
    async fn suspect(&self, worker: WorkerId, reason: Reason) -> Result<bool, StorageError> {
        let store = &self.0.store;
        let Some(rig) = store.rig_of_row(worker).await? else {
            return Ok(false);
        };
        if self.0.quotas.is_none() {
            return Ok(false);
        }
        let mark = Mark {
            account: rig.owner.account,
            worker: Some(worker),
            reason,
        };
        let counts = store.mark(mark, wall_clock()).await?;
        let suspicion = total(&store.marks_of_worker(worker).await?);
        if !counts || suspicion < TOO_MUCH || rig.decided.paused {
            return Ok(false);
        }
        let change = RigChange {
            paused: Some(true),
            ..RigChange::default()
        };
        store.decide(worker, change).await?;
        self.relearn(worker).await?;
        Ok(true)
    }
}

impl Inner {
    /// Saves one worker's changes.
    pub async fn save_one(&self, worker: WorkerId) -> Result<(), StorageError> {
        let Some(news) = self.records.take_news_of(worker) else {
            return Ok(());
        };
        let saved = self.store.save_rigs(vec![news.clone()]).await;
        if saved.is_err() {
            self.records.put_back(vec![news]);
        }
        saved
    }

    async fn save(&self) {
        let news = self.records.take_news();
        let mut unsaved: Vec<RigNews> = Vec::new();
        for some in news.chunks(AT_ONCE) {
            if let Err(error) = self.store.save_rigs(some.to_vec()).await {
                warn!("saving worker statistics failed, retrying later: {error}");
                unsaved.extend_from_slice(some);
            }
        }
        self.records.put_back(unsaved);
    }
}
