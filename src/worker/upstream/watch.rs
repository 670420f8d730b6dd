//! Watches the available models: each program is checked every few seconds, and at once after a failed job.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::model::{UpstreamModel, UpstreamSource};
use super::{UpstreamError, UpstreamWish};
use muster_process::tasks::Tasks;
use rustls::ClientConfig;

const PERIOD: Duration = Duration::from_secs(3);
/// Checks without a reply before a connected program counts as gone.
const PATIENCE: u32 = 2;

/// Loads the trusted certificates, only if a program is configured.
type MakeTls = fn() -> Result<Arc<ClientConfig>, String>;

/// The models of other programs. Clones are the same.
#[derive(Clone)]
pub struct UpstreamWatch {
    wishes: watch::Sender<Vec<UpstreamWish>>,
    states: watch::Receiver<Vec<UpstreamState>>,
}

/// A model of another program, served or not.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamState {
    pub name: String,
    pub url: String,
    /// Why it is not served.
    pub model: Result<Arc<UpstreamModel>, String>,
}

/// The state of a program between two checks.
struct WatchEntry {
    source: Result<UpstreamSource, String>,
    wish: UpstreamWish,
    misses: u32,
    state: Option<UpstreamState>,
}

impl UpstreamWatch {
    /// Checks until the tasks stop; returns after the first check.
    pub async fn start(wishes: Vec<UpstreamWish>, tls: MakeTls, tasks: &Tasks) -> Self {
        let (told, states) = watch::channel(Vec::new());
        let (wishes, wished) = watch::channel(wishes);
        let alarm = Arc::new(Notify::new());
        let mut watched = watched(Vec::new(), &wished.borrow(), (tls, &alarm));
        told.send_replace(look(&mut watched).await);
        let stopping = tasks.stopping();
        let mut wished = wished;
        tasks.start(async move {
            loop {
                let next = Instant::now() + PERIOD;
                tokio::select! {
                    () = stopping.cancelled() => return,
                    changed = wished.changed() => match changed {
                        Ok(()) => {
                            let wishes = wished.borrow_and_update().clone();
                            watched = self::watched(watched, &wishes, (tls, &alarm));
                        }
                        Err(_) => return,
                    },
                    () = alarm.notified() => {}
                    () = sleep_until(next), if !watched.is_empty() => {}
                }
                let states = look(&mut watched).await;
                told.send_if_modified(|told| {
                    let is_new = *told != states;
                    *told = states;
                    is_new
                });
            }
        });
        Self { wishes, states }
    }

    /// Other programs from now on.
    pub fn change(&self, wishes: Vec<UpstreamWish>) {
        self.wishes.send_if_modified(|known| {
            let is_new = *known != wishes;
            *known = wishes;
            is_new
        });
    }

    /// All of them, served or not.
    pub fn states(&self) -> Vec<UpstreamState> {
        self.states.borrow().clone()
    }

    /// The models that are served now.
    pub fn models(&self) -> Vec<Arc<UpstreamModel>> {
        let states = self.states.borrow();
        let models = states.iter().filter_map(|state| state.model.as_ref().ok());
        models.cloned().collect()
    }

    /// Waits until others are served than were [seen](Self::mark_seen).
    pub async fn changed(&mut self) {
        if self.states.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub fn mark_seen(&mut self) {
        self.states.mark_unchanged();
    }
}

/// Programs with unchanged settings keep their connections.
fn watched(
    before: Vec<WatchEntry>,
    wishes: &[UpstreamWish],
    (tls, alarm): (MakeTls, &Arc<Notify>),
) -> Vec<WatchEntry> {
    let mut before: Vec<Option<WatchEntry>> = before.into_iter().map(Some).collect();
    let one = |wish: &UpstreamWish| {
        let is_it = |known: &&mut Option<WatchEntry>| {
            known.as_ref().is_some_and(|known| known.wish == *wish)
        };
        let known = before.iter_mut().find(is_it);
        known.and_then(Option::take).unwrap_or_else(|| WatchEntry {
            source: tls().and_then(|tls| UpstreamSource::new(wish.clone(), tls, Arc::clone(alarm))),
            wish: wish.clone(),
            misses: 0,
            state: None,
        })
    };
    wishes.iter().map(one).collect()
}

async fn look(watched: &mut [WatchEntry]) -> Vec<UpstreamState> {
    join_all(watched.iter_mut().map(WatchEntry::look)).await
}

impl WatchEntry {
    async fn look(&mut self) -> UpstreamState {
        let found = match &self.source {
            Ok(source) => source.look().await,
            Err(error) => Err(UpstreamError::Failed(error.clone())),
        };
        let before = self.state.take();
        let served = before.as_ref().and_then(|state| state.model.as_ref().ok());
        let model = match (found, served) {
            (Ok(found), _) => {
                self.misses = 0;
                Ok(Arc::new(found))
            }
            // A program that computes may be slow to answer.
            (Err(UpstreamError::Silent(_) | UpstreamError::Busy), Some(served))
                if self.misses + 1 < PATIENCE =>
            {
                self.misses += 1;
                Ok(Arc::clone(served))
            }
            (Err(error), _) => Err(error.to_string()),
        };
        let state = UpstreamState {
            name: self.wish.name.clone(),
            url: self.wish.url.as_str().trim_end_matches('/').to_owned(),
            model,
        };
        if before.as_ref() != Some(&state) {
            tell(&state);
        }
        self.state = Some(state.clone());
        state
    }
}

fn tell(UpstreamState { name, url, model }: &UpstreamState) {
    match model {
        Ok(model) => info!(
            model.name = %name,
            "{name} is served by {} at {url}: context of {} tokens, {} jobs at once",
            model.software(), model.context, model.jobs
        ),
        Err(why) => warn!(model.name = %name, "not serving {name} from {url}: {why}"),
    }
}
