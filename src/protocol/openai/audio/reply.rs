//! A finished sound as the client reads it.

use serde_json::{Value, json};

/// A sound in the media store.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedSound {
    /// Seconds since the epoch.
    pub created: i64,
    pub url: String,
    pub seed: Option<u64>,
    pub job: String,
    pub worker: Option<String>,
    pub model: String,
    /// From the offer to the end.
    pub seconds: f64,
}

impl FinishedSound {
    pub fn render(&self) -> Value {
        let seconds = (self.seconds * 100.0).round() / 100.0;
        json!({
            "created": self.created,
            "data": [{"url": self.url, "seed": self.seed}],
            "grid": {
                "job_id": self.job,
                "worker": self.worker,
                "model": self.model,
                "gen_time": seconds,
            },
        })
    }
}
