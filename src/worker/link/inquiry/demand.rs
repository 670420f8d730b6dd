//! Demand for a worker's models at a coordinator, and the speed of other workers, as far as the coordinator reports
//! them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Inquiry, api};

/// The list of a large network's models.
const LARGEST_LIST: usize = 4 << 20;

/// A snapshot of the demand.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Demand {
    /// By model name.
    pub models: BTreeMap<String, ModelDemand>,
    /// Kudos of the key's account that are held back until the account is trusted.
    pub held_kudos: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModelDemand {
    /// Workers that serve it.
    pub workers: Option<u64>,
    /// Jobs that were delivered in the last 24 hours.
    pub jobs_per_day: Option<u64>,
    /// Jobs that wait for a worker now.
    pub queued: Option<u64>,
    /// Speed of this worker relative to the fastest worker of the model: 1 for the fastest.
    pub relative_speed: Option<f64>,
}

impl Inquiry {
    /// `None` if the coordinator reports no demand.
    pub async fn demand(&self) -> Option<Demand> {
        let base = api(&self.url, self.insecure).ok()?;
        let base = base.as_str().trim_end_matches('/').to_owned();
        let client = self.client().ok()?;
        let ask = async |path: &str| {
            let url = format!("{base}{path}");
            let answer = self.get_at_most(&client, &url, LARGEST_LIST).await.ok()?;
            answer.status.is_success().then_some(answer.body)
        };
        let mut demand = Demand::default();
        match self.polls {
            false => {
                demand.add_models(&ask("/v1/status/models").await?);
                if let Some(routing) = ask("/v1/status/routing").await {
                    demand.add_scores(&routing, &self.name);
                }
            }
            true => {
                for kind in ["text", "image"] {
                    let path = format!("/api/v2/status/models?type={kind}");
                    if let Some(models) = ask(&path).await {
                        demand.add_polled_models(&models);
                    }
                }
            }
        }
        let account = ask("/api/v2/find_user").await;
        demand.held_kudos = account.and_then(|account| account["evaluating_kudos"].as_f64());
        Some(demand)
    }
}

impl Demand {
    fn add_models(&mut self, list: &Value) {
        for entry in list.as_array().into_iter().flatten() {
            let Some(model) = self.entry(entry) else {
                continue;
            };
            model.workers = entry["count"].as_u64().or(model.workers);
            // A model has an entry for each of its kinds.
            let jobs = entry["samples"].as_u64();
            model.jobs_per_day = match (model.jobs_per_day, jobs) {
                (Some(before), Some(jobs)) => Some(before.saturating_add(jobs)),
                (before, jobs) => before.or(jobs),
            };
        }
    }

    fn add_polled_models(&mut self, list: &Value) {
        for entry in list.as_array().into_iter().flatten() {
            let Some(model) = self.entry(entry) else {
                continue;
            };
            model.workers = entry["count"].as_u64();
            model.queued = entry["jobs"].as_f64().map(|jobs| jobs.max(0.0) as u64);
        }
    }

    fn add_scores(&mut self, routing: &Value, worker: &str) {
        let scores = routing["worker_scores"].as_object();
        for (key, score) in scores.into_iter().flatten() {
            if let Some((model, name)) = key.rsplit_once('|')
                && name == worker
                && let Some(model) = self.models.get_mut(model)
            {
                model.relative_speed = score.as_f64();
            }
        }
    }

    fn entry(&mut self, entry: &Value) -> Option<&mut ModelDemand> {
        let name = entry["name"].as_str()?;
        Some(self.models.entry(name.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn demand_is_read_from_the_lists_of_both_kinds_of_coordinators() {
        let mut demand = Demand::default();
        demand.add_models(&json!([
            {"name": "a", "count": 2, "type": "text", "samples": 5},
            {"name": "a", "count": 2, "type": "embedding", "samples": 1},
            {"name": "b", "count": 1, "samples": 0},
            {"name": 7},
            "nothing",
        ]));
        demand.add_scores(
            &json!({"worker_scores": {"a|rig": 0.25, "a|other": 1.0, "c|rig": 1.0}}),
            "rig",
        );
        let wanted = ModelDemand {
            workers: Some(2),
            jobs_per_day: Some(6),
            queued: None,
            relative_speed: Some(0.25),
        };
        assert_eq!(demand.models["a"], wanted);
        assert_eq!(demand.models["b"].jobs_per_day, Some(0));
        assert!(!demand.models.contains_key("c"));
        let mut polled = Demand::default();
        polled.add_polled_models(&json!([{"name": "d", "count": 3, "jobs": 4.0, "queued": 100.0}]));
        assert_eq!(polled.models["d"].queued, Some(4));
        polled.add_models(&json!({"message": "no"}));
        assert_eq!(polled.models.len(), 1);
    }
}
