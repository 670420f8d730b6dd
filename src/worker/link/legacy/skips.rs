//! Reasons why a coordinator has no jobs for this worker although some wait, because the owner would otherwise notice
//! nothing. Logged when the reasons change, ignoring their counts.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

#[derive(Debug, Default)]
pub struct Skips {
    reasons: BTreeSet<String>,
    words: Option<String>,
}

impl Skips {
    /// Words for the log, if they are news.
    pub fn news(&mut self, skipped: &Map<String, Value>) -> Option<String> {
        let acting = skipped.iter().filter_map(|(reason, count)| {
            let count = count.as_u64().filter(|count| *count > 0)?;
            Some((reason, count))
        });
        let acting: Vec<_> = acting.collect();
        let reasons = acting.iter().map(|(reason, _)| (*reason).clone()).collect();
        let told = acting
            .into_iter()
            .map(|(reason, count)| format!("{count} for {}", worded(reason)));
        let told: Vec<String> = told.collect();
        self.words = (!told.is_empty()).then(|| told.join(", "));
        let is_new = reasons != self.reasons;
        self.reasons = reasons;
        self.words.clone().filter(|_| is_new)
    }

    /// The reasons that were logged last, with their counts.
    pub fn words(&self) -> Option<String> {
        self.words.clone()
    }
}

/// A clearer wording of a reason with a hint for the owner.
fn worded(reason: &str) -> String {
    let why = match reason {
        "bridge_version" => "this worker software is unknown to the coordinator",
        "max_length" | "max_context_length" => "longer than this worker offers",
        "models" => "other models requested",
        "untrusted" => "trusted workers only",
        "performance" => "faster workers only",
        "kudos" => "the client cannot pay in advance",
        _ => return reason.replace('_', " "),
    };
    format!("{reason} ({why})")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Skips;

    #[test]
    fn reasons_are_told_when_they_change_and_not_their_numbers() {
        let mut skips = Skips::default();
        let mut news = |skipped: Value| skips.news(skipped.as_object().unwrap());
        assert_eq!(news(json!({"models": 0, "nsfw": null})), None);
        let told = news(json!({"models": 3, "worker_id": 1, "kudos": 0}));
        assert_eq!(
            told.as_deref(),
            Some("3 for models (other models requested), 1 for worker id")
        );
        assert_eq!(news(json!({"models": 7, "worker_id": 2})), None);
        assert_eq!(news(json!({})), None);
        assert!(news(json!({"models": 1})).is_some());
    }
}
