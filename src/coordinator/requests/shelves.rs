//! Requests in memory, indexed by id, account and expiry. There may be a million of them, so long scans and deletions
//! run in small steps and release the lock in between.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::MARGIN;
use super::names::MediaNames;
use super::request::Request;
use muster_protocol::job::{AccountId, RequestId, UnixMillis};

/// Requests checked per step: well below a millisecond.
const STEP: usize = 500;

#[derive(Debug, Default)]
pub struct Shelves {
    by_id: HashMap<RequestId, Arc<Request>>,
    /// Unfinished requests, in order of arrival.
    by_account: HashMap<AccountId, BTreeMap<Place, Arc<Request>>>,
    /// By expiry as last read; the present one is never earlier.
    by_end: BTreeMap<Place, Arc<Request>>,
    /// Requests with kudos holds.
    paid_before: HashSet<RequestId>,
    media_names: MediaNames,
}

/// Sort key: a time, made unique by an id.
pub type Place = (UnixMillis, RequestId);

impl Shelves {
    pub fn add(&mut self, request: &Arc<Request>) {
        let (id, ends) = (request.id, request.expires_at());
        self.by_id.insert(id, request.clone());
        self.media_names.add(request);
        self.by_end.insert((ends, id), request.clone());
        if request.is_open() {
            let its = self.by_account.entry(request.account).or_default();
            its.insert((request.accepted_at, id), request.clone());
        }
    }

    pub fn find(&self, id: RequestId) -> Option<Arc<Request>> {
        self.by_id.get(&id).cloned()
    }

    /// Unfinished requests of an account, oldest first.
    pub fn unfinished(&self, account: AccountId) -> impl Iterator<Item = &Arc<Request>> {
        let its = self.by_account.get(&account).into_iter().flatten();
        its.map(|(_, request)| request)
            .filter(|request| request.is_open())
    }

    /// All requests of an account, ended ones included. Scans every request.
    pub fn all_of(&self, account: AccountId) -> impl Iterator<Item = &Arc<Request>> {
        let all = self.by_id.values();
        all.filter(move |request| request.account == account)
    }

    /// Unfinished requests of all accounts.
    pub fn all_unfinished(&self) -> impl Iterator<Item = &Arc<Request>> {
        self.by_account.values().flat_map(BTreeMap::values)
    }

    pub fn media_names(&self) -> &MediaNames {
        &self.media_names
    }

    /// The request has ended.
    pub fn finish(&mut self, request: &Request) {
        let place = (request.accepted_at, request.id);
        if let Some(its) = self.by_account.get_mut(&request.account) {
            its.remove(&place);
            if its.is_empty() {
                self.by_account.remove(&request.account);
            }
        }
    }

    /// Some requests in the order of their expiry, after a place if given.
    pub fn after(&self, place: Option<Place>) -> Vec<(Place, Arc<Request>)> {
        let from = place.map_or(Bound::Unbounded, Bound::Excluded);
        let some = self.by_end.range((from, Bound::Unbounded)).take(STEP);
        some.map(|(place, request)| (*place, request.clone()))
            .collect()
    }

    /// Removes some expired requests. True if there may be more.
    pub fn forget(&mut self, now: UnixMillis) -> bool {
        let is_kept = |ends: UnixMillis| ends.after(MARGIN) > now;
        for _ in 0..STEP {
            let first = self.by_end.first_entry();
            let Some(first) = first.filter(|first| !is_kept(first.key().0)) else {
                return false;
            };
            let request = first.remove();
            let ends = request.expires_at();
            match is_kept(ends) {
                true => drop(self.by_end.insert((ends, request.id), request)),
                false => {
                    self.by_id.remove(&request.id);
                    self.media_names.remove(&request);
                    self.finish(&request);
                }
            }
        }
        true
    }

    /// Records requests with held kudos.
    pub fn keep_kudos(&mut self, requests: impl IntoIterator<Item = RequestId>) {
        self.paid_before.extend(requests);
    }

    pub fn keeps_kudos(&self, id: RequestId) -> bool {
        self.paid_before.contains(&id)
    }

    /// Removes the record of held kudos. False if there was none.
    pub fn release_kudos(&mut self, id: RequestId) -> bool {
        self.paid_before.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{MARGIN, STEP, Shelves};
    use crate::clock::wall_clock;
    use crate::requests::request::tests::{request, with_jobs};
    use crate::requests::{Ended, Request};
    use muster_protocol::job::UnixMillis;

    const MINUTE: Duration = Duration::from_secs(60);

    fn shelved(requests: &[Arc<Request>]) -> Shelves {
        let mut shelves = Shelves::default();
        requests.iter().for_each(|request| shelves.add(request));
        shelves
    }

    fn forget_all(shelves: &mut Shelves, now: UnixMillis) -> usize {
        (1..).find(|_| !shelves.forget(now)).unwrap()
    }

    #[test]
    fn what_is_over_goes_in_steps_and_what_lives_on_stays() {
        let now = wall_clock();
        let over: Vec<_> = (0..2 * STEP).map(|_| request(now)).collect();
        let later = request(now.after(MINUTE));
        let renewed = with_jobs(now);
        renewed.renew();
        let all = [&over[..], &[later.clone(), renewed.clone()]].concat();
        let mut shelves = shelved(&all);
        assert!(!shelves.forget(now.after(MARGIN - MINUTE)));
        assert!(shelves.find(over[0].id).is_some(), "not before the margin");
        assert_eq!(forget_all(&mut shelves, now.after(MARGIN)), 3);
        assert!(
            over.iter()
                .all(|request| shelves.find(request.id).is_none())
        );
        assert!(shelves.find(later.id).is_some() && shelves.find(renewed.id).is_some());
        forget_all(&mut shelves, renewed.expires_at().after(MARGIN));
        assert!(shelves.find(renewed.id).is_none());
        assert_eq!(shelves.all_unfinished().count(), 0);
    }

    #[test]
    fn every_request_is_looked_at_once_in_pages() {
        let now = wall_clock();
        let all: Vec<_> = (0..STEP + 7).map(|_| request(now)).collect();
        let shelves = shelved(&all);
        let (mut seen, mut place) = (0, None);
        while let Some((last, _)) = shelves.after(place).last() {
            seen += shelves.after(place).len();
            place = Some(*last);
        }
        assert_eq!(seen, all.len());
    }

    #[test]
    fn an_account_has_those_with_jobs_to_come() {
        let now = wall_clock();
        let (ended, open, finished) = (request(now), with_jobs(now), with_jobs(now));
        let mut shelves = shelved(&[ended, open.clone(), finished.clone()]);
        let its = |shelves: &Shelves| shelves.unfinished(open.account).count();
        assert_eq!(its(&shelves), 2);
        let outputs = finished.outputs.iter();
        outputs.for_each(|output| output.end(Ended::Cancelled));
        assert_eq!(its(&shelves), 1);
        shelves.finish(&finished);
        shelves.finish(&open);
        assert_eq!(shelves.all_unfinished().count(), 0);
    }
}
