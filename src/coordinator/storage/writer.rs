//! The one writer task, which owns its connection, takes up to a few hundred writes at once, and answers them when
//! their common commit is on disk.
//!
//! The log of an SQLite file is checkpointed while it holds pages, so that deleted texts do not stay there.
//!
//! If a write of a batch fails, the batch is rolled back and written one by one. When the database is gone every caller
//! gets the error, and the next batch reconnects, as after every failed commit.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use sqlx::AnyConnection;
use sqlx::Executor;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::leadership::Leadership;
use muster_process::tasks::Tasks;

use super::compaction::Compactor;
use super::election::Fence;
use super::file::OpenFiles;
use super::location::Location;
use super::pulse::Health;
use super::work::Work;
use super::write::{Asked, Compaction, Write};
use super::{PATIENCE, StorageError, connect, too_slow};

/// Limit of writes per commit.
const BATCH: usize = 256;
/// How long the writer accepts more writes after the shutdown signal.
const LINGER: Duration = Duration::from_millis(300);
/// How long writes may stay in the log.
const LOG_KEPT: Duration = Duration::from_secs(30);
/// Pause after a rewrite of the file, as a multiple of its duration.
const REST: u32 = 20;

pub struct Writer {
    location: Location,
    /// `None` after an error, until the next batch.
    connection: Option<AnyConnection>,
    health: Arc<Health>,
    files: OpenFiles,
    /// Time of the oldest write in the log; `None` if the log is empty.
    logged: Option<Instant>,
    compactions: Vec<Asked<Compaction, ()>>,
    /// Earliest time of the next rewrite.
    compacts_from: Instant,
    leadership: Leadership,
    fence: Fence,
    _writes: Arc<()>,
}

impl Writer {
    pub fn new(
        location: &Location,
        connection: AnyConnection,
        (health, files): (Arc<Health>, OpenFiles),
        leadership: Leadership,
    ) -> Self {
        Self {
            location: location.clone(),
            connection: Some(connection),
            health,
            files,
            logged: None,
            compactions: Vec::new(),
            compacts_from: Instant::now(),
            fence: Fence(leadership.epoch()),
            _writes: leadership.writer(),
            leadership,
        }
    }

    pub fn start(self, inbox: mpsc::Receiver<Write>, tasks: &Tasks) {
        tasks.start(self.run(inbox, tasks.stopping()));
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<Write>, stopping: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            match next_batch(&mut inbox, &mut batch, &stopping, self.due()).await {
                WriterStep::Batch => {}
                WriterStep::Upkeep => {
                    self.empty_old_log().await;
                    self.compact_if_due().await;
                    continue;
                }
                WriterStep::End => break,
            }
            let mut work = Work::of(&mut batch);
            let committed = self.write(&mut work).await;
            self.note(&committed);
            if committed.is_ok() {
                self.compactions.extend(work.take_compactions());
            }
            work.answer(&committed);
            self.compact_if_due().await;
        }
        if let Some(connection) = self.connection.take() {
            let _ = sqlx::Connection::close(connection).await;
        }
    }

    /// A write into a deleted file must not be reported as stored.
    async fn write(&mut self, work: &mut Work) -> Result<(), StorageError> {
        if self.leadership.is_fenced() {
            return Err(StorageError::Fenced);
        }
        self.files.check()?;
        self.write_in_time(work).await?;
        self.files.check()
    }

    async fn write_in_time(&mut self, work: &mut Work) -> Result<(), StorageError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.location).await?,
        };
        let writing = timeout(PATIENCE, self.write_on(&mut connection, work));
        let written = writing.await.unwrap_or_else(|_| Err(too_slow(PATIENCE)));
        // A failed commit may have left any state, and a server that has become read-only stays so: reconnect.
        self.connection = written.is_ok().then_some(connection);
        written
    }

    async fn write_on(
        &mut self,
        connection: &mut AnyConnection,
        work: &mut Work,
    ) -> Result<(), StorageError> {
        let together = work.write_together(self.fence, connection).await;
        if let Err(error) = together {
            if !error.is_of_one_write() {
                return Err(error);
            }
            // Without a transaction, ROLLBACK fails as well; the first error is the more useful one.
            let undone = connection.execute("ROLLBACK").await;
            undone.map_err(|_| error)?;
            self.fence.begin(connection).await?;
            work.write_one_by_one(connection).await?;
        }
        connection.execute("COMMIT").await?;
        Ok(())
    }

    /// Time of the next checkpoint or rewrite.
    fn due(&self) -> Option<Instant> {
        let log = self.logged.map(|since| since + LOG_KEPT);
        let compaction = (!self.compactions.is_empty()).then_some(self.compacts_from);
        log.into_iter().chain(compaction).min()
    }

    /// Writes wait while the file is rewritten, so rewrites take a small share of the time, however many are requested.
    async fn compact_if_due(&mut self) {
        let began = Instant::now();
        if self.compactions.is_empty() || began < self.compacts_from {
            return;
        }
        let compacted = self.compact().await;
        self.compacts_from = Instant::now() + began.elapsed() * REST;
        for asked in self.compactions.drain(..) {
            asked.answer(compacted.clone());
        }
    }

    /// Failures are retried after the next batch.
    async fn empty_old_log(&mut self) {
        if self.logged.is_none_or(|since| since.elapsed() < LOG_KEPT) {
            return;
        }
        self.logged = None;
        let Some(connection) = &mut self.connection else {
            return;
        };
        if self.files.check().is_err() {
            return;
        }
        if let Err(error) = Compactor::of(connection).empty_log().await {
            debug!("emptying the database log failed, retrying later: {error}");
        }
    }

    async fn compact(&mut self) -> Result<(), StorageError> {
        self.files.check()?;
        let connection = self.connection.as_mut().ok_or(StorageError::Closed)?;
        let compacted = Compactor::of(connection).compact().await;
        if compacted.is_ok() {
            self.logged = None;
        }
        compacted
    }

    fn note(&mut self, committed: &Result<(), StorageError>) {
        if committed.is_ok() && matches!(self.location, Location::Sqlite(_)) {
            self.logged.get_or_insert_with(Instant::now);
        }
        let was_good = self.health.note_write(committed);
        if *committed == Err(StorageError::Fenced) {
            self.leadership.fence();
        }
        match committed {
            // The copy's own log line names the remedy.
            Err(StorageError::FileGone) => {}
            Err(error) if was_good => error!("database writes fail: {error}"),
            Ok(()) if !was_good => info!("database writes work again"),
            _ => {}
        }
    }
}

/// The writer's next step.
enum WriterStep {
    Batch,
    Upkeep,
    End,
}

/// Waits for writes until the next checkpoint or rewrite is due.
async fn next_batch(
    inbox: &mut mpsc::Receiver<Write>,
    batch: &mut Vec<Write>,
    stopping: &CancellationToken,
    due: Option<Instant>,
) -> WriterStep {
    let is_due = async {
        match due {
            Some(until) => sleep_until(until).await,
            None => pending().await,
        }
    };
    let taken = tokio::select! {
        biased;
        () = stopping.cancelled() => {
            timeout(LINGER, inbox.recv_many(batch, BATCH)).await.unwrap_or(0)
        }
        () = is_due => return WriterStep::Upkeep,
        taken = inbox.recv_many(batch, BATCH) => taken,
    };
    match taken {
        0 => WriterStep::End,
        _ => WriterStep::Batch,
    }
}
