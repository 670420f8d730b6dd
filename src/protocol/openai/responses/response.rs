//! The response object: fields repeated from the request, and the status.

use serde_json::{Value, json};

use crate::job::{Failure, FinishReason, Usage};
use crate::openai::chat::{Ending, Grid, Head};

use super::output::OutputItems;

/// A response without its output.
#[derive(Debug, Clone)]
pub struct Frame {
    pub id: String,
    created: i64,
    body: Value,
}

impl Frame {
    pub fn new(head: &Head, echo: &Value) -> Self {
        let mut body = echo.clone();
        body["id"] = head.id.as_str().into();
        body["object"] = "response".into();
        body["created_at"] = head.created.into();
        body["model"] = (&*head.model).into();
        body["error"] = Value::Null;
        body["incomplete_details"] = Value::Null;
        body["completed_at"] = Value::Null;
        body["output"] = json!([]);
        body["usage"] = Value::Null;
        Self {
            id: head.id.clone(),
            created: head.created,
            body,
        }
    }

    fn with_status(&self, status: &str) -> Value {
        let mut body = self.body.clone();
        body["status"] = status.into();
        body
    }

    pub fn queued(&self) -> Value {
        self.with_status("queued")
    }

    pub fn in_progress(&self) -> Value {
        self.with_status("in_progress")
    }

    pub fn ended(&self, output: &OutputItems, ending: &Ending, grid: &Grid) -> Value {
        let (status, reason) = match ending.finish {
            FinishReason::Length => ("incomplete", Some("max_output_tokens")),
            FinishReason::ContentFilter | FinishReason::Unlawful => {
                ("incomplete", Some("content_filter"))
            }
            FinishReason::Cancelled => ("cancelled", None),
            FinishReason::Stop | FinishReason::StopString(_) | FinishReason::ToolCalls => {
                ("completed", None)
            }
        };
        let mut body = self.with_status(status);
        if let Some(reason) = reason {
            body["incomplete_details"] = json!({"reason": reason});
        }
        if status == "completed" {
            body["completed_at"] = self
                .created
                .saturating_add(grid.gen_time.ceil() as i64)
                .into();
        }
        body["output"] = output.rendered(status == "completed").into();
        body["usage"] = usage(ending.usage);
        body["grid"] = grid.body();
        body
    }

    pub fn failed(&self, output: &OutputItems, failure: &Failure) -> Value {
        let mut body = self.with_status("failed");
        body["error"] = json!({"code": failure.code(), "message": failure.message});
        body["output"] = output.rendered(false).into();
        body
    }
}

fn usage(usage: Usage) -> Value {
    let Usage {
        prompt_tokens,
        cached_tokens,
        completion_tokens,
        reasoning_tokens,
    } = usage;
    json!({
        "input_tokens": prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached_tokens},
        "output_tokens": completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": u64::from(prompt_tokens) + u64::from(completion_tokens),
    })
}
