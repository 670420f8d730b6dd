//! `POST /api/pull`: which model is downloaded, and the lines by which clients follow the download.

use serde_json::{Value, json};

use super::fields::model_beside_flag;
use crate::openai::Problem;

/// A model to download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    pub model: String,
    pub streams: bool,
    /// Names of fields without a meaning here.
    pub ignored: Vec<String>,
}

impl PullRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let (model, ignored) = model_beside_flag(&body, "stream")?;
        Ok(Self {
            model,
            streams: body["stream"] != false,
            ignored,
        })
    }

    /// The first line.
    pub fn begun() -> Value {
        json!({"status": "pulling manifest"})
    }

    /// A line about the bytes so far. Clients draw a bar for each `digest`.
    pub fn moved(&self, completed: u64, total: u64) -> Value {
        json!({
            "status": format!("pulling {}", self.model),
            "digest": self.model,
            "total": total,
            "completed": completed,
        })
    }

    pub fn loading() -> Value {
        json!({"status": "loading the model"})
    }

    /// The last line.
    pub fn succeeded() -> Value {
        json!({"status": "success"})
    }

    /// The last line of a download that failed.
    pub fn failed(message: &str) -> Value {
        json!({"error": message})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::PullRequest;

    #[test]
    fn a_model_is_named_by_either_field() {
        let read = |body| PullRequest::read(body).unwrap();
        let old = read(json!({"name": "qwen3:latest", "stream": false, "insecure": true}));
        assert_eq!((old.model.as_str(), old.streams), ("qwen3", false));
        assert_eq!(old.ignored, ["insecure"]);
        assert!(read(json!({"model": "a"})).streams);
        for (body, param) in [
            (json!({}), "model"),
            (json!({"model": "a", "stream": 1}), "stream"),
        ] {
            let problem = PullRequest::read(body).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some(param));
        }
    }
}
