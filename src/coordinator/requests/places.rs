//! Concurrency limits: how many jobs an account has here. Requests being accepted count as well, so that concurrent
//! ones cannot exceed the limit together.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::known::Known;
use super::{Request, Requests};
use muster_protocol::job::{AccountId, Kind};

/// Which jobs count against the limit.
#[derive(Debug, Clone)]
pub struct Counted {
    pub account: AccountId,
    pub kind: Kind,
    /// The service's end user.
    pub end_user: Option<Arc<str>>,
    /// Count only jobs for one of these models or for unknown ones; all jobs if both are empty.
    pub models: Vec<Arc<str>>,
    /// Count jobs that name a model outside this list: all unknown names share one limit.
    pub strange_to: Option<Known>,
}

/// Reserves a place in the limit, until dropped or the request is accepted.
#[derive(Debug)]
pub struct Place {
    requests: Requests,
    key: Option<Key>,
}

/// The number of jobs already open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPlace(pub usize);

type Key = (AccountId, u64);

#[derive(Debug, Default)]
pub(super) struct Places {
    kept: BTreeMap<Key, (Counted, usize)>,
    last: u64,
}

impl Requests {
    /// Reserves a place for these jobs, if no more than `most` are open with them.
    pub fn place(&self, counted: Counted, jobs: usize, most: usize) -> Result<Place, NoPlace> {
        // Locked while open requests are counted and while a place becomes a request, so that each counts exactly once.
        let mut places = self.places();
        let here = self.counted(&counted);
        let key = places.keep(counted, jobs, here, most)?;
        Ok(Place {
            requests: self.clone(),
            key: Some(key),
        })
    }

    fn counted(&self, counted: &Counted) -> usize {
        let shelves = self.read();
        let unfinished = shelves.unfinished(counted.account);
        let its = unfinished.filter(|request| counted.counts(request));
        its.map(|request| counted.jobs_of(request)).sum()
    }

    /// Adds the request to the index, and frees its place.
    pub(super) fn take_in(&self, request: &Arc<Request>, place: Option<Place>) {
        let mut places = self.places();
        self.write().add(request);
        if let Some(key) = place.and_then(|mut place| place.key.take()) {
            places.kept.remove(&key);
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.places.lock()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.requests.places().kept.remove(&key);
        }
    }
}

impl Places {
    fn keep(
        &mut self,
        counted: Counted,
        jobs: usize,
        here: usize,
        most: usize,
    ) -> Result<Key, NoPlace> {
        let its = (counted.account, 0)..=(counted.account, u64::MAX);
        let kept = self.kept.range(its).map(|(_, kept)| kept);
        let at_the_door = kept.filter(|(other, _)| counted.counts_with(other));
        let open = here + at_the_door.map(|(_, jobs)| jobs).sum::<usize>();
        if open.saturating_add(jobs) > most {
            return Err(NoPlace(open));
        }
        self.last += 1;
        let key = (counted.account, self.last);
        self.kept.insert(key, (counted, jobs));
        Ok(key)
    }
}

impl Counted {
    fn counts(&self, request: &Request) -> bool {
        request.kind == self.kind
            && request.wishes.end_user == self.end_user
            && (self.counts_all()
                || request.wants_one_of(&self.models)
                || self.finds_strange(request.models()))
    }

    fn counts_with(&self, other: &Self) -> bool {
        let is_beside = |model| self.models.contains(model);
        other.kind == self.kind
            && other.end_user == self.end_user
            && (self.counts_all()
                || other.models.iter().any(is_beside)
                || self.strange_to.is_some() && other.strange_to.is_some())
    }

    fn counts_all(&self) -> bool {
        self.models.is_empty() && self.strange_to.is_none()
    }

    fn finds_strange(&self, models: &[Arc<str>]) -> bool {
        let known = self.strange_to.as_ref();
        known.is_some_and(|known| models.iter().any(|model| !known.knows(model)))
    }

    /// Texts and images count while they are queued, forms until they are done.
    fn jobs_of(&self, request: &Request) -> usize {
        match self.kind {
            Kind::Form => request.open_jobs(),
            _ => request.waiting_jobs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, Known, NoPlace, Places};
    use muster_protocol::job::{AccountId, Kind};

    fn counted(account: i64, models: &[&str]) -> Counted {
        Counted {
            account: AccountId(account),
            kind: Kind::Image,
            end_user: None,
            models: models.iter().map(|model| (*model).into()).collect(),
            strange_to: None,
        }
    }

    fn strange(models: &[&str]) -> Counted {
        Counted {
            strange_to: Some(Known::default()),
            ..counted(1, models)
        }
    }

    #[test]
    fn what_is_at_the_door_counts_like_what_is_here() {
        let mut places = Places::default();
        let first = places.keep(counted(1, &[]), 3, 4, 10).unwrap();
        assert_eq!(places.keep(counted(1, &[]), 4, 4, 10), Err(NoPlace(7)));
        places.keep(counted(1, &[]), 3, 4, 10).unwrap();
        places.keep(counted(2, &[]), 10, 0, 10).unwrap();
        places.kept.remove(&first);
        places.keep(counted(1, &[]), 3, 4, 10).unwrap();
        assert_eq!(places.keep(counted(1, &[]), 1, 4, 10), Err(NoPlace(10)));
    }

    #[test]
    fn others_of_an_account_count_where_they_are_of_the_same_kind_person_and_models() {
        let mut places = Places::default();
        places.keep(counted(1, &["crowded"]), 5, 0, 5).unwrap();
        let mut full = |counted| places.keep(counted, 5, 0, 5).is_err();
        assert!(full(counted(1, &["quiet", "crowded"])));
        assert!(full(counted(1, &[])));
        assert!(!full(counted(1, &["quiet"])));
        let form = Counted {
            kind: Kind::Form,
            ..counted(1, &[])
        };
        assert!(!full(form));
        let person = Counted {
            end_user: Some("carol".into()),
            ..counted(1, &[])
        };
        assert!(!full(person));
    }

    #[test]
    fn names_that_are_made_up_share_one_room() {
        let mut places = Places::default();
        places.keep(strange(&[]), 5, 0, 5).unwrap();
        let mut full = |counted| places.keep(counted, 5, 0, 5).is_err();
        assert!(full(strange(&[])));
        assert!(full(strange(&["quiet"])));
        assert!(!full(counted(1, &["quiet"])));
        let wanted = |models: &[&str]| models.iter().map(|&model| model.into()).collect::<Vec<_>>();
        assert!(strange(&[]).finds_strange(&wanted(&["made up"])));
        assert!(!strange(&[]).finds_strange(&[]));
        assert!(!counted(1, &["quiet"]).finds_strange(&wanted(&["made up"])));
    }
}
