//! Which jobs a polling worker accepts among those it could run.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::jobs::Entry;
use muster_protocol::job::{JobId, RequestId};

/// The conditions of one pop.
#[derive(Debug, Clone, Default)]
pub struct Wants {
    /// Limit of jobs, of one request by default.
    pub most: u32,
    /// The jobs may belong to different requests.
    pub scattered: bool,
    /// Memory for all images together, in pixels; `None` is unlimited.
    pub room: Option<f64>,
    /// Refuses prompts with one of these words.
    pub unwanted: Words,
    /// Accepts only requests whose account has the kudos.
    pub paid: bool,
    /// Only jobs of the worker's owner.
    pub own_only: bool,
    /// Only one of these jobs, if there are any: the worker claims to have finished it.
    pub only: Vec<JobId>,
    /// The worker's results are discarded: without a job of its owner it gets a copy of another's, of a request outside
    /// this set.
    pub decoys: Option<Arc<BTreeSet<RequestId>>>,
}

/// A list of words, in lower case.
#[derive(Debug, Clone, Default)]
pub struct Words {
    list: Arc<[String]>,
    /// Hash of the list.
    mark: u64,
}

/// Cached results of recent word lists for a prompt: a prompt may be long, and workers poll every second.
#[derive(Debug, Default)]
pub struct Judged(RefCell<Vec<(u64, bool)>>);

/// Limit of cached lists per prompt.
const LISTS: usize = 16;

/// Why a worker refuses a job that it could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwanted {
    Words,
    Kudos,
}

impl Wants {
    pub fn most(most: u32) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// Claims one of these jobs, leased by an earlier process.
    pub fn only(jobs: Vec<JobId>) -> Self {
        Self {
            only: jobs,
            ..Self::most(1)
        }
    }

    /// Number of jobs of this size in one pop; at least one.
    pub fn batch(&self, bulk: u64) -> u32 {
        let most = match self.room {
            Some(room) if bulk > 0 => {
                let fitting = (room * 100.0 / bulk as f64).round_ties_even();
                // The cast saturates: negative memory still gets one job.
                self.most.min(fitting as u32)
            }
            _ => self.most,
        };
        most.max(1)
    }

    /// Whether the worker accepts every job that it could run.
    pub fn takes_all(&self) -> bool {
        self.unwanted.is_empty() && !self.paid && !self.own_only
    }

    pub fn unwanted(&self, entry: &Entry) -> Option<Unwanted> {
        if self.paid && entry.short {
            return Some(Unwanted::Kudos);
        }
        let body = &entry.job.body;
        let holds_one = body.file().is_some()
            && entry.judged.by(&self.unwanted, || {
                let texts = body.texts();
                texts.iter().any(|text| self.unwanted.are_in(text))
            });
        holds_one.then_some(Unwanted::Words)
    }
}

impl Words {
    pub fn new<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let list: Arc<[String]> = words.map(str::to_lowercase).collect();
        let mut hasher = DefaultHasher::new();
        list.hash(&mut hasher);
        Self {
            mark: hasher.finish(),
            list,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the prompt contains one of them.
    fn are_in(&self, prompt: &str) -> bool {
        let prompt = prompt.to_lowercase();
        self.list.iter().any(|word| prompt.contains(word))
    }
}

impl Judged {
    fn by(&self, words: &Words, judge: impl FnOnce() -> bool) -> bool {
        if words.is_empty() {
            return false;
        }
        let mut judged = self.0.borrow_mut();
        let known = judged.iter().find(|(mark, _)| *mark == words.mark);
        if let Some((_, holds_one)) = known {
            return *holds_one;
        }
        let holds_one = judge();
        if judged.len() == LISTS {
            judged.remove(0);
        }
        judged.push((words.mark, holds_one));
        holds_one
    }
}

#[cfg(test)]
mod tests {
    use super::{Judged, LISTS, Wants, Words};

    #[test]
    fn a_batch_is_what_the_room_holds_and_one_at_least() {
        let wants = |room| Wants {
            room,
            ..Wants::most(4)
        };
        let check = |room, bulk, expected| assert_eq!(wants(room).batch(bulk), expected);
        check(None, 100, 4);
        check(Some(10.0), 0, 4);
        check(Some(10.0), 400, 2);
        check(Some(10.0), 100, 4);
        check(Some(-1.0), 100, 1);
        check(Some(10.0), u64::MAX, 1);
    }

    #[test]
    fn a_prompt_is_read_once_for_each_list_of_words() {
        let words = |list: &[&str]| Words::new(list.iter().copied());
        let (cats, dogs) = (words(&["CAT"]), words(&["dog", "wolf"]));
        assert!(cats.are_in("a Cat on a mat") && !dogs.are_in("a Cat on a mat"));
        let judged = Judged::default();
        assert!(judged.by(&cats, || true));
        assert!(judged.by(&words(&["cat"]), || panic!("it was read before")));
        assert!(!judged.by(&dogs, || false));
        assert!(!judged.by(&Words::default(), || panic!("there is nothing to look for")));
        for number in 0..LISTS {
            judged.by(&words(&[&number.to_string()]), || false);
        }
        assert!(!judged.by(&cats, || false), "the oldest is forgotten");
    }
}
