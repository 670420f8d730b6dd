//! Timeouts and limits of dispatch. The defaults are those of the worker contract where it names one.

use std::time::Duration;

use muster_protocol::job::{AccountId, Kind};

use super::input::Limits;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Jobs that may wait, all accounts together.
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
    /// How long jobs wait while no connected worker can serve them.
    pub unserved_patience: Duration,
    /// Failed attempts of one job, on different workers while there are any.
    pub failure_limit: usize,
    /// Lost sockets of one job that did not run alone.
    pub loss_limit: u32,
    /// How long a worker with `resume` may be gone before its jobs are given to others.
    pub grace: Duration,
    /// The same while another worker is free to take them over.
    pub short_grace: Duration,
    /// How long a worker may take to confirm a cancel. Afterwards its slot counts as free.
    pub cancel_patience: Duration,
    /// How long a peer without `multi` may continue a cancelled job before its socket is closed.
    pub mute_patience: Duration,
    /// Silence in a job of a peer with `lease`: three missed beats.
    pub beat_window: Duration,
    /// How long a worker that polls may keep a job whose limits do not say.
    pub poll_patience: Duration,
    /// A worker that polls serves clients who wait for their answer while it has come within this time, or has jobs out.
    pub poll_presence: Duration,
    /// From the first look at a silent job to the second one. A second look later than this counts as a first one: this
    /// process was paused, and the worker was not.
    pub second_look: Duration,
    /// How long a settlement is retried before the job ends without one. For a durable job, as long as it lives.
    pub settle_patience: Duration,
    /// A public peer counts on an ack this soon after its `done`.
    pub ack_patience: Duration,
    pub strikes: StrikeRules,
    /// Unused lanes are forgotten after this.
    pub lane_life: Duration,
    /// How many prompt beginnings are remembered with the worker that read them.
    pub affinity_entries: usize,
}

#[derive(Debug, Clone)]
pub struct StrikeRules {
    pub limit: usize,
    pub window: Duration,
    /// How long a name is barred: first eviction, second, …; the last one repeats.
    pub ladder: Vec<Duration>,
    /// Evictions are forgotten after this.
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

    /// A form comes back to the queue three times, as its clients know it, before one more failure is its last.
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
    /// How long a peer without `lease` may be silent in a job.
    pub fn silence_window(&self, kind: Kind) -> Duration {
        Duration::from_secs(match kind {
            Kind::Music => 1860,
            kind if kind.is_relayed() => 300,
            _ => 600,
        })
    }
}
