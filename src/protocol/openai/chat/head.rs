//! Common parts of the reply and every chunk of one request.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::job::{FinishReason, RequestId, Usage};

use super::{CallStyle, ChatRequest};

/// Named in replies, so that clients can tell when the answers to a seed may change.
pub const FINGERPRINT: &str = concat!("muster-", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Clone)]
pub struct Head {
    pub id: String,
    /// Seconds since the epoch.
    pub created: i64,
    pub model: Arc<str>,
}

/// Fields of this network beside OpenAI's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Grid {
    pub worker: Option<Arc<str>>,
    /// Seconds.
    pub gen_time: f64,
    pub ttft: Option<f64>,
    pub tokens_per_s: Option<f64>,
    pub seed: i64,
    /// Set if the client left the choice of the model to the service.
    pub routing: Option<Routing>,
    /// The API of the request, where its worker got a translation of it.
    pub translated: Option<&'static str>,
    /// The program behind the worker that serves the model: `vllm`, `ollama`.
    pub upstream: Option<Arc<str>>,
}

/// The requested name and the model chosen for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    pub requested: Arc<str>,
    pub resolved: Arc<str>,
}

/// How one choice came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub finish: FinishReason,
    pub usage: Usage,
}

impl Head {
    /// The prefix names the API, such as `chatcmpl-`.
    pub fn new(prefix: &str, request: RequestId, created: i64, model: Arc<str>) -> Self {
        Self {
            id: format!("{prefix}{}", request.0.simple()),
            created,
            model,
        }
    }
}

/// A shorter time says nothing about how fast a model writes.
const LEAST_WRITING: Duration = Duration::from_millis(50);

impl Grid {
    pub fn new(
        worker: Option<Arc<str>>,
        total: Duration,
        first: Option<Duration>,
        tokens: u32,
        seed: i64,
    ) -> Self {
        let writing = total.saturating_sub(first.unwrap_or_default());
        // Output that came at once was written before it came.
        let (tokens, time) = match writing < LEAST_WRITING {
            true => (tokens, total),
            false => (tokens.saturating_sub(1), writing),
        };
        let speed = match time < LEAST_WRITING {
            true => 0.0,
            false => f64::from(tokens) / time.as_secs_f64(),
        };
        Self {
            worker,
            gen_time: rounded(total.as_secs_f64()),
            ttft: first.map(|first| rounded(first.as_secs_f64())),
            tokens_per_s: (speed > 0.0).then(|| rounded(speed)),
            seed,
            routing: None,
            translated: None,
            upstream: None,
        }
    }

    pub fn body(&self) -> Value {
        let mut body = json!({
            "worker": self.worker.as_deref(),
            "gen_time": self.gen_time,
            "ttft": self.ttft,
            "tokens_per_s": self.tokens_per_s,
            "seed": self.seed,
        });
        if let Some(Routing {
            requested,
            resolved,
        }) = &self.routing
        {
            body["routing"] = json!({
                "auto": true,
                "requested": &**requested,
                "resolved_model": &**resolved,
            });
        }
        if let Some(api) = self.translated {
            body["translated"] = api.into();
        }
        if let Some(program) = &self.upstream {
            body["upstream"] = (**program).into();
        }
        body
    }
}

impl ChatRequest {
    /// The reply's service tier, for requests that name one.
    pub(super) fn tier(&self) -> Option<&'static str> {
        self.names_tier.then_some("default")
    }
}

/// The finish reason for clients; tool calls turn `stop` into their own.
pub fn finish_word(finish: &FinishReason, has_calls: bool, style: CallStyle) -> &'static str {
    match finish {
        FinishReason::Length => "length",
        FinishReason::ContentFilter | FinishReason::Unlawful => "content_filter",
        FinishReason::Cancelled => "cancelled",
        FinishReason::Stop | FinishReason::StopString(_) | FinishReason::ToolCalls => {
            match (has_calls, style) {
                (false, _) => "stop",
                (true, CallStyle::Function) => "function_call",
                (true, CallStyle::Tools) => "tool_calls",
            }
        }
    }
}

fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Grid;

    #[test]
    fn no_speed_is_told_of_what_took_no_time() {
        let check = |total: u64, first: Option<u64>, expected: Option<f64>| {
            let [total, first] = [Some(total), first].map(|it| it.map(Duration::from_millis));
            let grid = Grid::new(None, total.unwrap(), first, 101, 0);
            assert_eq!(grid.tokens_per_s, expected, "{total:?} {first:?}");
        };
        check(3000, Some(1000), Some(50.0));
        // All of the output arrived at once, so the whole time counts.
        check(2000, Some(1999), Some(50.5));
        check(2000, None, Some(50.0));
        check(3, Some(1), None);
    }
}
