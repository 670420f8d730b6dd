//! Timeouts and limits of dispatch. The defaults are those of the worker contract where it names one.

use std::time::Duration;

use muster_protocol::job::{AccountId, Kind};

use super::input::Limits;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Limit of waiting jobs of all accounts.
    pub queue_limit: usize,
    /// The anonymous account, which may fill at most half of the queue.
    pub keyless: Option<AccountId>,
    /// Limit of an account's jobs, queued and running; `None` is unlimited.
    pub in_flight_limit: Option<usize>,
    /// The same for texts with a waiting client.
    pub direct_text_limit: Option<usize>,
    /// The same for media and stored transcripts of `/v1`.
    pub media_limit: Option<usize>,
    /// Longest lifetime of a job, whatever its deadline.
    pub longest_life: Duration,
    /// Timeout of jobs that no connected worker can serve.
    pub unserved_patience: Duration,
    /// Limit of failed attempts of one job, on different workers while there are any.
    pub failure_limit: usize,
    /// Limit of lost connections of one job that was not isolated.
    pub loss_limit: u32,
    /// Grace time of a disconnected worker with `resume`, before its jobs are requeued.
    pub grace: Duration,
    /// The same while another worker is free.
    pub short_grace: Duration,
    /// Timeout of a worker's confirmation of a cancel. Then its slot counts as free.
    pub cancel_patience: Duration,
    /// How long a peer without `multi` may continue a cancelled job before its socket is closed.
    pub mute_patience: Duration,
    /// Silence timeout of a job on a peer with `lease`: three missed heartbeats.
    pub beat_window: Duration,
    /// Timeout of a polling worker's job without its own limit.
    pub poll_patience: Duration,
    /// A polling worker serves waiting clients if its last pop is within this time, or while it has jobs.
    pub poll_presence: Duration,
    /// From the first silence check of a job to the second. A later second check counts as a first one: this process
    /// was
    /// paused, and the worker was not.
    pub second_look: Duration,
    /// How long a settlement is retried before the job ends without one. For a durable job, as long as it lives.
    pub settle_patience: Duration,
    /// Timeout of a public peer for the ack of its `done`.
    pub ack_patience: Duration,
    pub strikes: StrikeRules,
    /// Lifetime of unused lanes.
    pub lane_life: Duration,
    /// Limit of cached prompt beginnings.
    pub affinity_entries: usize,
}

#[derive(Debug, Clone)]
pub struct StrikeRules {
    pub limit: usize,
    pub window: Duration,
    /// Durations of the bar: first eviction, second, …; the last one repeats.
    pub ladder: Vec<Duration>,
    /// Lifetime of recorded evictions.
    pub memory: Duration,
}

impl Settings {
    pub fn limits(&self) -> Limits {
        Limits {
            queue: self.queue_limit,
            in_flight: self.in_flight_limit,
            direct_texts: self.direct_text_limit,
            media: self.media_limit,
        }
    }

    pub fn set_limits(&mut self, limits: Limits) {
        self.queue_limit = limits.queue;
        self.in_flight_limit = limits.in_flight;
        self.direct_text_limit = limits.direct_texts;
        self.media_limit = limits.media;
    }

    /// A form is requeued three times, as in the AI Horde; one more failure is its last.
    pub fn failures_of(&self, kind: Kind) -> usize {
        match kind {
            Kind::Form => self.failure_limit.saturating_add(1),
            _ => self.failure_limit,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queue_limit: 100_000,
            keyless: None,
            in_flight_limit: None,
            direct_text_limit: None,
            media_limit: None,
            longest_life: Duration::from_secs(3600),
            unserved_patience: Duration::from_secs(30),
            failure_limit: 3,
            loss_limit: 5,
            grace: Duration::from_secs(45),
            short_grace: Duration::from_secs(5),
            cancel_patience: Duration::from_millis(900),
            mute_patience: Duration::from_secs(10),
            beat_window: Duration::from_secs(15),
            poll_patience: Duration::from_secs(150),
            poll_presence: Duration::from_secs(30),
            second_look: Duration::from_secs(1),
            settle_patience: Duration::from_secs(25),
            ack_patience: Duration::from_secs(8),
            strikes: StrikeRules::default(),
            lane_life: Duration::from_secs(600),
            affinity_entries: 65_536,
        }
    }
}

impl Default for StrikeRules {
    fn default() -> Self {
        Self {
            limit: 6,
            window: Duration::from_secs(300),
            ladder: [30, 120, 600, 3600].map(Duration::from_secs).to_vec(),
            memory: Duration::from_secs(3600),
        }
    }
}

impl Settings {
    /// Silence timeout of a job on a peer without `lease`.
    pub fn silence_window(&self, kind: Kind) -> Duration {
        Duration::from_secs(match kind {
            Kind::Music => 1860,
            kind if kind.is_relayed() => 300,
            _ => 600,
        })
    }
}
