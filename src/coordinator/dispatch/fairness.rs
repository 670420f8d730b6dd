//! Fair queueing: which job is next. This file is the whole policy; [`super::queue`] only keeps jobs sorted.
//!
//! Jobs are compared by *rank*, a moment: the job with the earliest rank goes first.
//!
//! ```text
//! rank = ready + SHARE · (work in flight of the account + work of this job) / weight
//! ```
//!
//! - `ready` is when the job came, or when its account was last served if that was later. A long queue of one account
//!   is therefore as old as its last turn, and not as old as its first job.
//! - *Work* is the expected size of a job; a typical one is 1. An account that has much running goes as if it had come
//!   that much later, so accounts that always have jobs waiting end up with running work in proportion to their
//!   weights.
//! - `weight` grows with kudos, slowly, and with the job's priority.
//! - *Ageing* is built in: a rank does not move while its account waits, and the ready moments of all others do. Once
//!   the clock has passed a job's rank, any other account can be served at most once more before it. So no account
//!   starves, however many jobs and kudos the others have.
//!
//! Ranks of different models compare with each other, because they are moments. A job that lost its worker or was
//! handed back has waited before: it returns with its arrival as its rank.

use std::time::Duration;

use muster_protocol::job::{Job, Kudos, UnixMillis};

use super::clock::Mono;

/// Delay per unit of work in flight, for an account of weight 1.
pub const SHARE: Duration = Duration::from_secs(30);

/// Waiting jobs are ordered by this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u64);

/// Expected work of a job, in thousandths of a typical one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work(pub u64);

/// An account's share, in thousandths of an ordinary one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u64);

/// An account's standing in the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    pub kudos: Kudos,
    pub priority: Priority,
    /// The account may lack the kudos for the request; some workers take paid requests only.
    pub short: bool,
    /// When the request came, if it came to an earlier process or was parked.
    pub since: Option<UnixMillis>,
}

/// Within one account, a higher priority goes first, as if the job had come up to a minute earlier; between accounts
/// the priority is a factor of the weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

/// The formula of the module's documentation.
pub fn rank(ready: Mono, in_flight: Work, work: Work, weight: Weight) -> Rank {
    let share = u64::try_from(SHARE.as_micros()).unwrap_or(u64::MAX);
    let running = in_flight.0.saturating_add(work.0);
    Rank(
        ready
            .0
            .saturating_add(share.saturating_mul(running) / weight.0),
    )
}

impl Weight {
    /// An ordinary account has 1. Each doubling of kudos above 1,000 adds a quarter, up to 6; negative kudos give a
    /// half.
    /// A low priority halves the weight, a high one doubles it.
    pub fn of(standing: Standing) -> Self {
        let whole = standing.kudos.0 / 1000;
        let weight = match u64::try_from(whole) {
            Err(_) => 500,
            Ok(kudos) => 1000 + 250 * u64::from((1 + kudos / 1000).ilog2()).min(20),
        };
        Self(match standing.priority {
            Priority::Low => weight / 2,
            Priority::Normal => weight,
            Priority::High => weight * 2,
        })
    }
}

impl Work {
    /// The job's own estimate, limited to an eighth up to 16.
    pub fn of(job: &Job) -> Self {
        Self(job.body.work(&job.limits).clamp(125, 16_000))
    }
}

impl Priority {
    /// How much earlier a job of this priority is placed within its own account.
    pub fn head_start(self) -> Duration {
        match self {
            Self::Low => Duration::ZERO,
            Self::Normal => Duration::from_secs(30),
            Self::High => Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Priority, SHARE, Standing, Weight, Work, rank};
    use crate::dispatch::clock::Mono;
    use muster_protocol::job::{
        AccountId, Body, ImageRequest, Job, Kudos, MusicRequest, VideoRequest,
    };

    fn weight(kudos: i64, priority: Priority) -> Weight {
        let kudos = Kudos(kudos * 1000);
        Weight::of(Standing {
            kudos,
            priority,
            ..Standing::default()
        })
    }

    #[test]
    fn work_in_flight_makes_a_job_later() {
        let plain = weight(0, Priority::Normal);
        let idle = rank(Mono(0), Work(0), Work(1000), plain);
        let busy = rank(Mono(0), Work(3000), Work(1000), plain);
        assert_eq!(idle.0, SHARE.as_micros() as u64);
        assert_eq!(busy.0, 4 * idle.0);
    }

    #[test]
    fn kudos_and_priority_raise_a_weight_slowly() {
        assert_eq!(weight(0, Priority::Normal), Weight(1000));
        assert_eq!(weight(-1, Priority::Normal), Weight(500));
        assert_eq!(weight(1_000_000, Priority::Normal), Weight(3250));
        assert_eq!(weight(i64::MAX / 1000, Priority::Normal), Weight(6000));
        assert_eq!(weight(0, Priority::Low), Weight(500));
        assert_eq!(weight(0, Priority::High), Weight(2000));
    }

    #[test]
    fn media_count_by_their_size_and_unset_sizes_as_usual_ones() {
        let check = |body: Body, expected| {
            let job = Job::plain(AccountId(1), "tiny", body);
            assert_eq!(Work::of(&job), Work(expected));
        };
        let image = |side, steps| ImageRequest {
            width: side,
            height: side,
            steps: Some(steps),
            ..ImageRequest::default()
        };
        check(image(1024, 30).into(), 1000);
        check(image(64, 1).into(), 125);
        check(ImageRequest::default().into(), 1000);
        let video = |frames: u32| VideoRequest {
            width: 768,
            height: 512,
            fps: 10,
            seconds: f64::from(frames) / 10.0,
            ..VideoRequest::default()
        };
        check(video(20).into(), 937);
        check(video(96).into(), 4500);
        let music = |seconds| MusicRequest {
            seconds,
            ..MusicRequest::default()
        };
        check(music(30.0).into(), 1000);
        check(music(300.0).into(), 10_000);
    }
}
