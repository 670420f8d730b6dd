//! Moderation: prompt filters, blocked addresses, suspicion marks.
//!
//! | file | contents |
//! | --- | --- |
//! | `letters` | look-alike letters, invisible characters |
//! | `digits` | digits and signs that stand for letters |
//! | `forms` | normalised forms of a text |
//! | `pattern` | one filter's pattern: linear in time, bounded in size, refused with a reason |
//! | `automaton` | many patterns as few: a text is read once by each, in bounded memory |
//! | `limit` | time limit of a prompt's check |
//! | `filters` | all filters, compiled, within one budget, and their matches |
//! | `youth` | words and emoji for minors |
//! | `verdict` | the verdict on a prompt: pure |
//! | `talk` | the verdict on a conversation, which is many texts: pure |
//! | `timeouts` | blocked addresses |
//! | `whereabouts` | addresses of workers |
//! | `follow` | filters and timeouts as stored, whichever process changed them |
//!
//! Filters and timeouts are in memory and swapped as a whole; they are compiled off the async threads. Prompts and
//! addresses are never logged.

mod automaton;
mod digits;
mod filters;
mod follow;
mod forms;
mod letters;
mod limit;
mod pattern;
mod talk;
mod timeouts;
mod verdict;
mod whereabouts;
mod youth;

#[cfg(test)]
mod tests;

pub use filters::{LISTED, Suspicion};
pub use pattern::NoPattern;
pub use talk::{Piece, Said};
pub use timeouts::KeptOut;
pub use verdict::{LONGEST, Medium};

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::spawn_blocking;
use tracing::warn;

use super::address::{Network, Networks};
use super::clock::wall_clock;
use super::names::Names;
use super::storage::{
    FilterChange, FilterChanged, FilterMade, HITS_KEPT, Hit, NewFilter, StorageError, Store,
    TimeoutRow,
};
use super::values::Roles;
use super::values::suspicion::{self, Mark, Reason};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, WorkerId};
use muster_protocol::legacy::agent::is_program;

use filters::Filters;
use follow::Followed;
use limit::LONGEST_LOOK;
use talk::{Spoken, Talk};
use verdict::{Case, Verdict};
use whereabouts::Whereabouts;

/// The moderation service. Clones share the state.
#[derive(Debug, Clone)]
pub struct Moderation(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    followed: Followed,
    rules: Rules,
    whereabouts: Whereabouts,
    places: Places,
    /// Serialises writes of filters, so that concurrent ones cannot exceed the budget together.
    writing: Mutex<()>,
}

/// A new or changed pattern of a filter.
#[derive(Debug)]
struct NewPattern {
    regex: String,
    kind: Option<i64>,
    /// The filter that this pattern replaces.
    instead: Option<i64>,
}

/// Permits for checks of long prompts.
#[derive(Debug)]
struct Places {
    long: Arc<Semaphore>,
    /// Separate permits, so that very long prompts do not delay others.
    longest: Arc<Semaphore>,
}

/// Settings of the operator.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Models for adults only, by all their names.
    pub marked: HashSet<String>,
    /// Names of models.
    pub names: Names,
    /// Networks of VPNs and proxies.
    pub unsafe_networks: Networks,
    /// User agents of blocked client programs.
    pub blocked_clients: Vec<String>,
}

/// A prompt to check.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    pub text: &'a str,
    pub medium: Medium,
    /// `replacement_filter`: the client prefers a replacement to a refusal.
    pub may_be_rewritten: bool,
    /// The requested models; empty for any.
    pub models: &'a [String],
}

/// The sender of a prompt.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    pub account: AccountId,
    pub roles: Roles,
    pub address: IpAddr,
}

/// Why a prompt is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    Corrupt,
    /// Too long for rewriting: its characters, of at most [`LONGEST`].
    TooLong(usize),
    /// The check exceeded [`limit::LONGEST_LOOK`].
    Slow,
    /// Too many bytes for a check.
    Unread {
        found: usize,
        most: usize,
    },
}

/// Why a filter is refused.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    #[error(transparent)]
    Pattern(#[from] NoPattern),
    #[error("the replacement has {0} characters, at most {LONGEST_REPLACEMENT} are allowed")]
    LongReplacement(usize),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

const LONGEST_REPLACEMENT: usize = 1000;
/// Up to this much [`Filters::work`] runs on the request's own thread; more runs on a blocking thread.
const AT_ONCE: usize = 50_000;
/// Concurrent checks there. Each takes about ten times its prompt, for all normalised forms.
const JUDGED_TOGETHER: usize = 4;
/// Prompts above this size have their own, lower limit.
const LONG: usize = 64 << 10;
const LONGER_TOGETHER: usize = 2;
/// Cost of a piece of a conversation besides its bytes.
const PIECE: usize = 100;

/// The size of a text to check, and its limit.
#[derive(Debug, Clone, Copy)]
struct Size {
    bytes: usize,
    most: usize,
}

/// A verdict type of a moderated text.
trait Judged: Send + 'static {
    const UNSEEN: Self;
}

impl Judged for Verdict {
    const UNSEEN: Self = verdict::EMPTY;
}

impl Judged for Spoken {
    const UNSEEN: Self = Self::Not(verdict::EMPTY);
}

impl Places {
    fn of(&self, bytes: usize) -> &Arc<Semaphore> {
        match bytes > LONG {
            true => &self.longest,
            false => &self.long,
        }
    }
}

impl Rules {
    /// Whether a request for these models may reach a marked one. A request for any model may.
    fn may_reach_marked(&self, models: &[String]) -> bool {
        let is_marked = |model: &String| {
            let id = self.names.id(model);
            let mut marked = self.marked.iter();
            marked.any(|name| self.names.id(name) == id)
        };
        !self.marked.is_empty() && (models.is_empty() || models.iter().any(is_marked))
    }
}

impl Moderation {
    /// Loads filters and timeouts, and follows their changes.
    pub async fn open(store: Store, rules: Rules, tasks: &Tasks) -> Result<Self, StorageError> {
        let inner = Arc::new(Inner {
            followed: Followed::read(&store).await?,
            whereabouts: Whereabouts::start(store.clone(), tasks),
            store,
            rules,
            places: Places {
                long: Arc::new(Semaphore::new(JUDGED_TOGETHER)),
                longest: Arc::new(Semaphore::new(LONGER_TOGETHER)),
            },
            writing: Mutex::default(),
        });
        follow::start(&inner, tasks);
        Ok(Self(inner))
    }

    /// Whether any prompt of these roles could be refused or replaced.
    pub fn may_object(&self, roles: Roles) -> bool {
        roles.contains(Roles::FLAGGED)
            || !self.0.rules.marked.is_empty()
            || self.0.followed.filters().can_block()
    }

    /// The verdict on a prompt: `None` if unchanged, or its replacement. Suspicious prompts add a mark to the account,
    /// unless it is a moderator's, who may be testing.
    pub async fn examine(
        &self,
        prompt: Prompt<'_>,
        who: &Asker,
    ) -> Result<Option<String>, Blocked> {
        let case = Case {
            prompt: prompt.text.to_owned(),
            medium: prompt.medium,
            may_be_rewritten: prompt.may_be_rewritten || is_always_rewritten(who.roles),
            for_adults: self.is_for_adults(prompt.models, who),
        };
        let size = Size {
            bytes: case.prompt.len(),
            most: case.medium.longest(),
        };
        let for_adults = case.for_adults;
        let judge = move |filters: &Filters| verdict::of(&case, filters);
        match self.judge(size, for_adults, judge).await? {
            None | Some(Verdict::AsItIs) => Ok(None),
            Some(Verdict::Rewritten(prompt)) => Ok(Some(prompt)),
            Some(not) => Err(self.refuse(not, who).await),
        }
    }

    /// The same for a conversation: replacements of its pieces; `None` if all are unchanged.
    pub async fn examine_talk(
        &self,
        pieces: Vec<Piece>,
        models: &[String],
        who: &Asker,
    ) -> Result<Vec<Option<String>>, Blocked> {
        let talk = Talk {
            pieces,
            // Chat APIs have no field for it.
            may_be_rewritten: is_always_rewritten(who.roles),
            for_adults: self.is_for_adults(models, who),
        };
        let bytes = talk.pieces.iter().map(|piece| PIECE + piece.text.len());
        let size = Size {
            bytes: bytes.sum(),
            most: Medium::Text.longest(),
        };
        let for_adults = talk.for_adults;
        let judge = move |filters: &Filters| talk::of_talk(&talk, filters);
        match self.judge(size, for_adults, judge).await? {
            None | Some(Spoken::AsItIs) => Ok(Vec::new()),
            Some(Spoken::Rewritten(pieces)) => Ok(pieces),
            Some(Spoken::Not(not)) => Err(self.refuse(not, who).await),
        }
    }

    fn is_for_adults(&self, models: &[String], who: &Asker) -> bool {
        who.roles.contains(Roles::FLAGGED) || self.0.rules.may_reach_marked(models)
    }

    /// `None` if no filter or rule applies.
    async fn judge<V: Judged>(
        &self,
        Size { bytes, most }: Size,
        for_adults: bool,
        judge: impl FnOnce(&Filters) -> V + Send + 'static,
    ) -> Result<Option<V>, Blocked> {
        let filters = self.0.followed.filters();
        if !for_adults && !filters.can_block() {
            return Ok(None);
        }
        if bytes > most {
            return Err(Blocked::Unread { found: bytes, most });
        }
        let work = filters.work(bytes);
        let judge = move || {
            let filters = filters.within(LONGEST_LOOK);
            let judged = judge(&filters);
            match filters.ran_out_of_time() {
                true => Err(Blocked::Slow),
                false => Ok(judged),
            }
        };
        if work <= AT_ONCE {
            return judge().map(Some);
        }
        // A prompt that could not be checked is refused.
        let judged = self.working(bytes, judge).await;
        judged.unwrap_or(Ok(V::UNSEEN)).map(Some)
    }

    /// Runs a check of this many bytes on a blocking thread, with a limit of concurrent ones.
    async fn working<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let place = self.0.places.of(bytes).clone().acquire_owned().await;
        // The permit is held until the work is done, even if the caller stops waiting.
        let work = move || {
            let _place = place;
            work()
        };
        spawn_blocking(work).await.ok()
    }

    async fn refuse(&self, not: Verdict, who: &Asker) -> Blocked {
        match not {
            Verdict::TooLong(characters) => Blocked::TooLong(characters),
            Verdict::Refused { suspicious: true } if !who.roles.moderates() => {
                self.hold_against(who).await;
                Blocked::Corrupt
            }
            _ => Blocked::Corrupt,
        }
    }

    /// Adds a mark to the account and blocks its network. If the store cannot write now, the prompt is still refused.
    async fn hold_against(&self, who: &Asker) {
        let now = wall_clock();
        let hit = Hit {
            network: Network::around(who.address).to_string(),
            now,
            since: now.before(HITS_KEPT),
            penalty: timeouts::penalty,
        };
        let mark = Mark {
            account: who.account,
            worker: None,
            reason: Reason::CorruptPrompt,
        };
        let (hit, mark) = tokio::join!(self.0.store.note_hit(hit), self.mark(mark));
        if let Err(error) = hit.map(drop).and(mark.map(drop)) {
            warn!("recording a refused suspicious prompt failed: {error}");
        }
        self.catch_up().await;
    }

    /// The suspicion of a prompt, by all filters or by those of one type.
    pub async fn suspicion_of(&self, prompt: String, kind: Option<i64>) -> Suspicion {
        let filters = self.0.followed.filters();
        let bytes = prompt.len();
        let test = move || filters.within(LONGEST_LOOK).test(&prompt, kind);
        let tested = self.working(bytes, test).await;
        tested.unwrap_or_default()
    }

    /// Creates a filter with a valid pattern.
    pub async fn make_filter(&self, filter: NewFilter) -> Result<FilterMade, NotWritten> {
        let _writing = self.0.writing.lock().await;
        let new = NewPattern {
            regex: filter.regex.clone(),
            kind: Some(filter.kind),
            instead: None,
        };
        self.check(Some(new), Some(&filter.replacement)).await?;
        let made = self.0.store.make_filter(filter).await?;
        self.catch_up().await;
        Ok(made)
    }

    pub async fn change_filter(&self, change: FilterChange) -> Result<FilterChanged, NotWritten> {
        let _writing = self.0.writing.lock().await;
        let new = change.regex.clone().map(|regex| NewPattern {
            regex,
            kind: change.kind,
            instead: Some(change.id),
        });
        self.check(new, change.replacement.as_deref()).await?;
        let changed = self.0.store.change_filter(change).await?;
        self.catch_up().await;
        Ok(changed)
    }

    pub async fn remove_filter(&self, id: i64) -> Result<bool, StorageError> {
        let removed = self.0.store.remove_filter(id).await?;
        self.catch_up().await;
        Ok(removed)
    }

    /// Whether the address is of a VPN or proxy and the account is not trusted.
    pub fn is_hidden(&self, address: IpAddr, roles: Roles) -> bool {
        let is_vouched_for =
            roles.contains(Roles::TRUSTED) || roles.contains(Roles::VPN) || roles.moderates();
        !is_vouched_for && self.0.rules.unsafe_networks.contain(address)
    }

    /// Whether this user agent is of a blocked client program.
    pub fn is_blocked_client(&self, agent: &str) -> bool {
        let mut blocked = self.0.rules.blocked_clients.iter();
        blocked.any(|program| is_program(agent, program))
    }

    /// The rest of an address's block.
    pub fn kept_out(&self, address: IpAddr) -> Option<Duration> {
        self.0.followed.timeouts().left(address, wall_clock())
    }

    /// Notifies of changed timeouts.
    pub fn timeouts_changed(&self) -> watch::Receiver<()> {
        self.0.followed.timeouts_changed()
    }

    /// All blocked networks.
    pub fn all_kept_out(&self) -> Vec<KeptOut> {
        self.0.followed.timeouts().all(wall_clock())
    }

    /// Timeouts that cover this network.
    pub fn kept_out_around(&self, network: Network) -> Vec<KeptOut> {
        self.0.followed.timeouts().holding(network, wall_clock())
    }

    pub async fn keep_out(&self, network: Network, time: Duration) -> Result<(), StorageError> {
        let now = wall_clock();
        let row = TimeoutRow {
            network: network.to_string(),
            until: now.after(time),
        };
        self.0.store.keep_out(row, now).await?;
        self.catch_up().await;
        Ok(())
    }

    pub async fn let_in(&self, network: Network) -> Result<bool, StorageError> {
        let was_kept_out = self.0.store.let_in(network.to_string()).await?;
        self.catch_up().await;
        Ok(was_kept_out)
    }

    /// Last addresses of workers.
    pub fn whereabouts(&self) -> &Whereabouts {
        &self.0.whereabouts
    }

    /// Adds a suspicion mark. True if it counts.
    pub async fn mark(&self, mark: Mark) -> Result<bool, StorageError> {
        self.0.store.mark(mark, wall_clock()).await
    }

    /// Adds a suspicion mark after a refusal.
    pub async fn suspect(&self, account: AccountId, reason: Reason) {
        let mark = Mark {
            account,
            worker: None,
            reason,
        };
        if let Err(error) = self.mark(mark).await {
            warn!("recording a suspicion mark failed: {error}");
        }
    }

    /// The suspicion of an account and its workers: from [`suspicion::TOO_MUCH`] on it cannot transfer kudos.
    pub async fn suspicion(&self, account: AccountId) -> Result<u32, StorageError> {
        Ok(suspicion::total(&self.0.store.marks(account).await?))
    }

    /// The suspicion of a worker: from [`suspicion::TOO_MUCH`] on it is paused.
    pub async fn suspicion_of_worker(&self, worker: WorkerId) -> Result<u32, StorageError> {
        Ok(suspicion::total(
            &self.0.store.marks_of_worker(worker).await?,
        ))
    }

    /// The same for all workers with marks.
    pub async fn suspicion_of_workers(&self) -> Result<HashMap<WorkerId, u32>, StorageError> {
        let marks = self.0.store.marks_of_workers().await?.into_iter();
        Ok(marks
            .map(|(worker, marks)| (worker, suspicion::total(&marks)))
            .collect())
    }

    pub async fn forgive(&self, account: AccountId) -> Result<(), StorageError> {
        self.0.store.forgive(account).await
    }

    pub async fn forgive_worker(&self, worker: WorkerId) -> Result<(), StorageError> {
        self.0.store.forgive_worker(worker).await
    }

    async fn check(
        &self,
        new: Option<NewPattern>,
        replacement: Option<&str>,
    ) -> Result<(), NotWritten> {
        let length = replacement.map_or(0, |replacement| replacement.chars().count());
        if length > LONGEST_REPLACEMENT {
            return Err(NotWritten::LongReplacement(length));
        }
        let Some(NewPattern {
            regex,
            kind,
            instead,
        }) = new
        else {
            return Ok(());
        };
        let filters = self.0.followed.filters();
        let checked = spawn_blocking(move || filters.check(&regex, kind, instead)).await;
        Ok(checked.unwrap_or(Err(NoPattern::Large))?)
    }

    /// Applies this process's own changes at once.
    async fn catch_up(&self) {
        if let Err(error) = self.0.followed.catch_up(&self.0.store).await {
            warn!("reading changed filters and timeouts failed, retrying later: {error}");
        }
    }
}

/// Other users choose by `replacement_filter`.
fn is_always_rewritten(roles: Roles) -> bool {
    roles.contains(Roles::EDUCATION) || roles.contains(Roles::FILTERED)
}
