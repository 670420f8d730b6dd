//! The queued jobs of one account in one lane, and how many of them have a waiting client.

use std::collections::BTreeMap;

use crate::dispatch::clock::{Mono, Table};
use crate::dispatch::fairness::Rank;
use muster_protocol::job::RequestId;

use super::{COUNTED, Ticket};

/// Waiting jobs of an account in a lane, and the rank of the first one.
#[derive(Debug, Default)]
pub struct Line {
    pub tickets: BTreeMap<(Mono, u64), Ticket>,
    counts: Counts,
    pub rank: Option<Rank>,
}

/// Numbers of queued jobs, maintained because they are read often.
#[derive(Debug, Default)]
pub struct Counts {
    pub jobs: usize,
    by_request: Table<RequestId, u32>,
}

/// Estimated jobs ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ahead {
    pub jobs: usize,
    /// Without the job's own request.
    pub requests: usize,
}

impl Line {
    pub fn push(&mut self, ticket: Ticket) {
        self.tickets.insert(ticket.key(), ticket);
        self.counts.add(ticket.request);
    }

    pub fn remove(&mut self, ticket: &Ticket) -> bool {
        let removed = self.tickets.remove(&ticket.key()).is_some();
        if removed {
            self.counts.remove(ticket.request);
        }
        removed
    }

    /// Jobs of the line before this one.
    pub fn before(&self, ticket: &Ticket) -> Ahead {
        let before = self.tickets.range(..ticket.key());
        let before = before.map(|(_, before)| before).take(COUNTED);
        let counted = Ahead::of(before, ticket.request);
        match counted.jobs {
            COUNTED => self.first(self.reckon(ticket).max(COUNTED)),
            _ => counted,
        }
    }

    /// The first `jobs` of the line, with the average number of requests.
    pub fn first(&self, jobs: usize) -> Ahead {
        let all = self.tickets.len().max(1);
        let jobs = jobs.min(self.tickets.len());
        Ahead {
            jobs,
            requests: (jobs * self.counts.requests()).div_ceil(all),
        }
    }

    /// Estimate, as if the jobs had arrived evenly from the first to the last.
    fn reckon(&self, ticket: &Ticket) -> usize {
        let ends = (
            self.tickets.first_key_value(),
            self.tickets.last_key_value(),
        );
        let (Some((_, first)), Some((_, last))) = ends else {
            return 0;
        };
        let since_first = |ticket: &Ticket| ticket.number.saturating_sub(first.number) as f64;
        let part = since_first(ticket) / since_first(last).max(1.0);
        (part.min(1.0) * (self.tickets.len() - 1) as f64) as usize
    }
}

impl Counts {
    pub fn add(&mut self, request: RequestId) {
        self.jobs += 1;
        *self.by_request.entry(request).or_default() += 1;
    }

    pub fn remove(&mut self, request: RequestId) {
        self.jobs = self.jobs.saturating_sub(1);
        if let Some(count) = self.by_request.get_mut(&request) {
            *count -= 1;
            if *count == 0 {
                self.by_request.remove(&request);
            }
        }
    }

    pub fn requests(&self) -> usize {
        self.by_request.len()
    }
}

impl Ahead {
    /// The jobs of one request are adjacent.
    pub fn of<'a>(tickets: impl Iterator<Item = &'a Ticket>, own: RequestId) -> Self {
        let mut ahead = Self::default();
        let mut last = own;
        for ticket in tickets {
            ahead.jobs += 1;
            let is_next = ticket.request != last && ticket.request != own;
            ahead.requests += usize::from(is_next);
            last = ticket.request;
        }
        ahead
    }

    pub fn and(self, other: Self) -> Self {
        Self {
            jobs: self.jobs + other.jobs,
            requests: self.requests + other.requests,
        }
    }

    /// Extrapolates from the counted part to all.
    pub fn of_all(self, all: usize, counted: usize) -> Self {
        let of_all = |count: usize| count * all / counted.max(1);
        Self {
            jobs: of_all(self.jobs),
            requests: of_all(self.requests),
        }
    }
}
