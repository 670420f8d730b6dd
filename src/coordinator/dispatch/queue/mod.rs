//! Waiting jobs, sorted by [`super::fairness`]. Lanes hold accounts by the rank of their next job, accounts hold their
//! own jobs in order; every operation costs a logarithm of either.
//!
//! Returning jobs (their worker was lost, failed or handed them back) are kept separately, because they may exclude
//! workers. One account's jobs in one lane are a `line`.

mod line;

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::job::{AccountId, JobId, RequestId};

use super::clock::{Mono, Table};
use super::fairness::{Rank, Weight, Work, rank};
use super::lanes::LaneId;

pub use line::Ahead;
use line::{Counts, Line};

/// Limit of jobs of an account in a lane that are checked for one worker.
const LOOK: usize = 64;
/// Most jobs and accounts counted one by one for an outlook; beyond them, it is an estimate.
const COUNTED: usize = 1000;

/// A place in the queue: facts of the job when it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub job: JobId,
    pub request: RequestId,
    pub account: AccountId,
    pub arrived: Mono,
    /// Order among the account's own jobs: arrival, less the head start of its priority.
    pub order: Mono,
    /// Distinguishes jobs that arrived in the same microsecond.
    pub number: u64,
    pub work: Work,
    pub weight: Weight,
}

#[derive(Debug, Default)]
pub struct FairQueue {
    accounts: Table<AccountId, Account>,
    lanes: Table<LaneId, Waiting>,
    queued: usize,
}

/// Queued jobs of a lane.
#[derive(Debug, Default)]
struct Waiting {
    heads: BTreeSet<(Rank, AccountId)>,
    returning: BTreeMap<(Mono, u64), Ticket>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Account {
    /// Queued jobs of the account, in all lanes.
    waiting: usize,
    in_flight: Work,
    running: u32,
    served: Mono,
    lines: BTreeMap<LaneId, Line>,
    returning: BTreeMap<(Mono, u64), (LaneId, Ticket)>,
}

impl FairQueue {
    pub fn push(&mut self, lane: LaneId, ticket: Ticket) {
        let waiting = self.lanes.entry(lane).or_default();
        waiting.counts.add(ticket.request);
        let account = self.accounts.entry(ticket.account).or_default();
        account.waiting += 1;
        account.lines.entry(lane).or_default().push(ticket);
        self.queued += 1;
        self.rerank_in(lane, ticket.account);
    }

    /// Returns a job that has run before to the front, ordered by its first arrival.
    pub fn push_returning(&mut self, lane: LaneId, ticket: Ticket) {
        let waiting = self.lanes.entry(lane).or_default();
        let key = (ticket.arrived, ticket.number);
        waiting.returning.insert(key, ticket);
        waiting.counts.add(ticket.request);
        let account = self.accounts.entry(ticket.account).or_default();
        account.waiting += 1;
        account.returning.insert(key, (lane, ticket));
        self.queued += 1;
    }

    /// Removes a job at any place of the lane.
    pub fn remove(&mut self, lane: LaneId, ticket: &Ticket) -> bool {
        let removed = self.remove_returning(lane, ticket) || self.remove_in_line(lane, ticket);
        self.queued -= usize::from(removed);
        if removed && let Some(waiting) = self.lanes.get_mut(&lane) {
            waiting.counts.remove(ticket.request);
        }
        self.forget_empty(lane);
        removed
    }

    /// The next new job of the lane, and its rank.
    pub fn head(&self, lane: LaneId) -> Option<(Rank, Ticket)> {
        let (rank, account) = self.lanes.get(&lane)?.heads.first()?;
        let first = self.line(*account, lane)?.tickets.first_key_value();
        first.map(|(_, ticket)| (*rank, *ticket))
    }

    /// Returning jobs, the oldest first.
    pub fn returning(&self, lane: LaneId) -> impl Iterator<Item = (Rank, Ticket)> {
        let waiting = self.lanes.get(&lane).into_iter();
        let tickets = waiting.flat_map(|waiting| waiting.returning.values());
        tickets.map(|ticket| (Rank(ticket.arrived.0), *ticket))
    }

    /// Queued jobs of the lane in their approximate order: returning ones first, then some of each account's, in the
    /// order of the accounts.
    pub fn in_turn(&self, lane: LaneId) -> impl Iterator<Item = (Rank, Ticket)> {
        let waiting = self.lanes.get(&lane).into_iter();
        let heads = waiting.flat_map(|waiting| &waiting.heads);
        let lines =
            heads.filter_map(move |(rank, account)| Some((*rank, self.line(*account, lane)?)));
        let fresh = lines.flat_map(|(rank, line)| {
            let tickets = line.tickets.values().take(LOOK);
            tickets.map(move |ticket| (rank, *ticket))
        });
        self.returning(lane).chain(fresh)
    }

    /// The next jobs of an account in each lane, and its returning ones, unordered.
    pub fn of_account(&self, id: AccountId) -> impl Iterator<Item = (LaneId, Rank, Ticket)> {
        let account = self.accounts.get(&id);
        let lines = account.into_iter().flat_map(|account| &account.lines);
        let next = lines.filter_map(|(lane, line)| Some((*lane, line, line.rank?)));
        let next = next.flat_map(|(lane, line, rank)| {
            let tickets = line.tickets.values().take(LOOK);
            tickets.map(move |ticket| (lane, rank, *ticket))
        });
        let returning = account
            .into_iter()
            .flat_map(|account| account.returning.values());
        next.chain(returning.map(|(lane, ticket)| (*lane, Rank(ticket.arrived.0), *ticket)))
    }

    /// All queued jobs of the lane, in an unspecified order that is the same in every run.
    pub fn in_lane(&self, lane: LaneId) -> Vec<Ticket> {
        let mut all: Vec<Ticket> = self.returning(lane).map(|(_, ticket)| ticket).collect();
        let heads = self
            .lanes
            .get(&lane)
            .into_iter()
            .flat_map(|waiting| &waiting.heads);
        for (_, account) in heads {
            let line = self.line(*account, lane).into_iter();
            all.extend(line.flat_map(|line| line.tickets.values().copied()));
        }
        all
    }

    /// How much of the lane probably starts before this job. Accounts take turns, so each other account counts with as
    /// many jobs as precede this one in its own account.
    pub fn ahead(&self, lane: LaneId, ticket: &Ticket) -> Ahead {
        let Some(waiting) = self.lanes.get(&lane) else {
            return Ahead::default();
        };
        let key = (ticket.arrived, ticket.number);
        if waiting.returning.contains_key(&key) {
            let before = waiting.returning.range(..key);
            return Ahead::of(before.map(|(_, before)| before), ticket.request);
        }
        let before = self.line(ticket.account, lane);
        let before = before.map_or(Ahead::default(), |line| line.before(ticket));
        let others = waiting.heads.iter().filter(|(_, id)| *id != ticket.account);
        let lines = others
            .take(COUNTED)
            .filter_map(|(_, id)| self.line(*id, lane));
        let of_some = lines
            .map(|line| line.first(before.jobs + 1))
            .fold(Ahead::default(), Ahead::and);
        // Beyond the counted accounts, the others are assumed to be alike.
        let accounts = waiting.heads.len().max(1);
        let of_others = of_some.of_all(accounts, accounts.min(COUNTED));
        let returning = Ahead::of(waiting.returning.values(), ticket.request);
        returning.and(before).and(of_others)
    }

    fn line(&self, account: AccountId, lane: LaneId) -> Option<&Line> {
        self.accounts.get(&account)?.lines.get(&lane)
    }

    /// Lanes with waiting jobs, in no useful order.
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = LaneId> {
        self.lanes.keys().copied()
    }

    /// Waiting jobs of the lane.
    pub fn waiting(&self, lane: LaneId) -> usize {
        self.lanes
            .get(&lane)
            .map_or(0, |waiting| waiting.counts.jobs)
    }

    /// Waiting jobs of an account.
    pub fn waiting_of(&self, account: AccountId) -> usize {
        let account = self.accounts.get(&account);
        account.map_or(0, |account| account.waiting)
    }

    /// Number of requests with queued jobs.
    pub fn requests_waiting(&self, lane: LaneId) -> usize {
        let waiting = self.lanes.get(&lane);
        waiting.map_or(0, |waiting| waiting.counts.requests())
    }

    pub fn is_empty(&self, lane: LaneId) -> bool {
        self.lanes
            .get(&lane)
            .is_none_or(|waiting| waiting.heads.is_empty() && waiting.returning.is_empty())
    }

    /// Adds running work of the account, which has had its turn.
    pub fn start(&mut self, account: AccountId, work: Work, now: Mono) {
        let entry = self.accounts.entry(account).or_default();
        entry.in_flight.0 += work.0;
        entry.running += 1;
        entry.served = entry.served.max(now);
        self.rerank(account);
    }

    pub fn stop(&mut self, account: AccountId, work: Work) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        entry.in_flight.0 = entry.in_flight.0.saturating_sub(work.0);
        entry.running = entry.running.saturating_sub(1);
        self.rerank(account);
    }

    pub fn len(&self) -> usize {
        self.queued
    }

    #[cfg(test)]
    fn ranks(&self, lane: LaneId) -> Vec<(Rank, AccountId)> {
        let heads = self.lanes.get(&lane).map(|waiting| &waiting.heads);
        heads.into_iter().flatten().copied().collect()
    }

    pub fn accounts(&self) -> usize {
        self.accounts.len()
    }

    fn remove_returning(&mut self, lane: LaneId, ticket: &Ticket) -> bool {
        let Some(waiting) = self.lanes.get_mut(&lane) else {
            return false;
        };
        let key = (ticket.arrived, ticket.number);
        let removed = waiting.returning.remove(&key).is_some();
        if removed && let Some(account) = self.accounts.get_mut(&ticket.account) {
            account.returning.remove(&key);
            account.waiting -= 1;
            self.forget_idle(ticket.account);
        }
        removed
    }

    fn remove_in_line(&mut self, lane: LaneId, ticket: &Ticket) -> bool {
        let Some(account) = self.accounts.get_mut(&ticket.account) else {
            return false;
        };
        let Some(line) = account.lines.get_mut(&lane) else {
            return false;
        };
        let removed = line.remove(ticket);
        account.waiting -= usize::from(removed);
        self.rerank_in(lane, ticket.account);
        removed
    }

    fn forget_empty(&mut self, lane: LaneId) {
        let is_empty = |waiting: &Waiting| waiting.heads.is_empty() && waiting.returning.is_empty();
        if self.lanes.get(&lane).is_some_and(is_empty) {
            self.lanes.remove(&lane);
        }
    }

    /// Updates the account's ranks in all its lanes.
    fn rerank(&mut self, id: AccountId) {
        let Some(account) = self.accounts.get_mut(&id) else {
            return;
        };
        let (in_flight, served) = (account.in_flight, account.served);
        for (lane, line) in &mut account.lines {
            move_head(&mut self.lanes, (*lane, id), line, (in_flight, served));
        }
        self.forget_idle(id);
    }

    /// The same in one lane, after a change of the account's jobs there.
    fn rerank_in(&mut self, lane: LaneId, id: AccountId) {
        let Some(account) = self.accounts.get_mut(&id) else {
            return;
        };
        let running = (account.in_flight, account.served);
        let Some(line) = account.lines.get_mut(&lane) else {
            return;
        };
        move_head(&mut self.lanes, (lane, id), line, running);
        if line.tickets.is_empty() {
            account.lines.remove(&lane);
        }
        self.forget_idle(id);
    }

    fn forget_idle(&mut self, id: AccountId) {
        let is_idle = |account: &Account| account.waiting == 0 && account.running == 0;
        if self.accounts.get(&id).is_some_and(is_idle) {
            self.accounts.remove(&id);
        }
    }
}

/// Updates the rank of the line's first job in the lane.
fn move_head(
    lanes: &mut Table<LaneId, Waiting>,
    (lane, id): (LaneId, AccountId),
    line: &mut Line,
    (in_flight, served): (Work, Mono),
) {
    let head = line.tickets.first_key_value().map(|(_, ticket)| ticket);
    let fresh = head.map(|head| rank(head.arrived.max(served), in_flight, head.work, head.weight));
    if fresh == line.rank {
        return;
    }
    let waiting = lanes.entry(lane).or_default();
    if let Some(before) = line.rank {
        waiting.heads.remove(&(before, id));
    }
    if let Some(rank) = fresh {
        waiting.heads.insert((rank, id));
    }
    line.rank = fresh;
}

impl Ticket {
    fn key(&self) -> (Mono, u64) {
        (self.order, self.number)
    }
}

#[cfg(test)]
mod tests;
