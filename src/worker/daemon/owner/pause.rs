//! Commands and rules that pause the worker for its owner, and their result.

use std::time::{Duration, SystemTime};

use muster_config::show_duration;

/// Whether the worker accepts jobs, or is paused for its owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Availability {
    #[default]
    Open,
    /// No new jobs, and running ones end as usual.
    Closing,
    /// Running jobs are handed back, and no model is in memory.
    Paused,
}

/// A command to pause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PauseOrder {
    /// Without an end it lasts until the owner resumes.
    pub until: Option<SystemTime>,
    /// Running jobs end first.
    pub after_jobs: bool,
}

/// All that keeps jobs away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerPause {
    pub order: Option<PauseOrder>,
    /// The rules of `[owner]` in force, in words.
    pub rules: Vec<String>,
}

impl OwnerPause {
    /// `is_idle`: whether no jobs are running.
    pub fn availability(&self, is_idle: bool) -> Availability {
        match (&self.order, self.rules.as_slice()) {
            (None, []) => Availability::Open,
            (Some(order), []) if order.after_jobs && !is_idle => Availability::Closing,
            _ => Availability::Paused,
        }
    }

    /// Removes an expired command; returns whether there was one.
    pub fn expire(&mut self, now: SystemTime) -> bool {
        let until = self.order.and_then(|order| order.until);
        let is_over = until.is_some_and(|until| until <= now);
        if is_over {
            self.order = None;
        }
        is_over
    }

    /// When all that keeps jobs away is known to be over.
    pub fn until(&self) -> Option<SystemTime> {
        self.order
            .filter(|_| self.rules.is_empty())
            .and_then(|order| order.until)
    }

    /// Time until the command expires.
    pub fn remaining(&self, now: SystemTime) -> Option<Duration> {
        let until = self.order?.until?;
        Some(until.duration_since(now).unwrap_or_default())
    }

    /// Formatted for messages.
    pub fn reasons(&self, now: SystemTime) -> Vec<String> {
        let command = self.order.map(|order| {
            let after = if order.after_jobs {
                " after running jobs"
            } else {
                ""
            };
            match self.remaining(now) {
                Some(left) => {
                    let left = Duration::from_secs(left.as_secs() + 1);
                    format!("by command{after}, for another {}", show_duration(left))
                }
                None => format!("by command{after}, until `worker resume`"),
            }
        });
        command.into_iter().chain(self.rules.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_rules_keep_jobs_away_until_both_are_over() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let mut pause = OwnerPause::default();
        assert_eq!(pause.availability(false), Availability::Open);
        pause.order = Some(PauseOrder {
            until: Some(now + Duration::from_secs(60)),
            after_jobs: true,
        });
        assert_eq!(pause.availability(false), Availability::Closing);
        assert_eq!(pause.availability(true), Availability::Paused);
        pause.rules = vec!["outside its hours".to_owned()];
        assert_eq!(pause.availability(false), Availability::Paused);
        assert_eq!(pause.reasons(now).len(), 2);
        assert_eq!(pause.remaining(now), Some(Duration::from_secs(60)));
        assert!(!pause.expire(now + Duration::from_secs(59)));
        assert!(pause.expire(now + Duration::from_secs(60)));
        assert_eq!(pause.availability(true), Availability::Paused);
        pause.rules.clear();
        assert_eq!(pause.availability(true), Availability::Open);
    }
}
