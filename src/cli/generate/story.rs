//! Output of a generation as it runs: text for people, events for programs.

use std::time::Instant;

use serde_json::json;

use crate::cli::{Exit, Failure, output};
use crate::runtime::{self, Event, FinishReason, Generation, TokenInfo, Usage};

/// Shows the events of a generation.
pub struct Story {
    started: Instant,
    /// When the first text came, and of how many tokens.
    first: Option<(Instant, usize)>,
    /// The most tokens that came at once.
    most: usize,
    json: bool,
}

impl Story {
    pub fn new(json: bool) -> Self {
        Self {
            started: Instant::now(),
            first: None,
            most: 0,
            json,
        }
    }

    pub async fn tell(&mut self, generation: &mut Generation) -> Result<Usage, Failure> {
        while let Some(event) = generation.next().await {
            match event {
                Event::Started {
                    prompt_tokens,
                    cached_tokens,
                } => {
                    self.event(|| {
                        json!({ "event": "started", "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens })
                    })?;
                }
                // Not requested here.
                Event::Prompt { .. } => {}
                Event::Text { text, tokens } => {
                    self.first
                        .get_or_insert_with(|| (Instant::now(), tokens.len()));
                    self.most = self.most.max(tokens.len());
                    self.text(&text, &tokens)?;
                }
                Event::Done { reason, usage } => {
                    self.done(&reason, usage)?;
                    return Ok(usage);
                }
                Event::Failed(failure) => return Err(failure.into()),
            }
        }
        Err(runtime::Failure::Stopped.into())
    }

    fn event(&self, event: impl FnOnce() -> serde_json::Value) -> Result<(), Failure> {
        match self.json {
            true => output::json_line(&event()),
            false => Ok(()),
        }
    }

    fn text(&self, text: &str, tokens: &[TokenInfo]) -> Result<(), Failure> {
        if !self.json {
            return output::text(text);
        }
        let tokens: Vec<_> = tokens.iter().map(token).collect();
        output::json_line(&json!({ "event": "text", "text": text, "tokens": tokens }))
    }

    fn done(&self, reason: &FinishReason, usage: Usage) -> Result<(), Failure> {
        if !self.json {
            return output::text("\n");
        }
        let (reason, stop) = match reason {
            FinishReason::EndOfTurn => ("end_of_turn", None),
            FinishReason::Stop(text) => ("stop", Some(text)),
            FinishReason::Length => ("length", None),
        };
        output::json_line(&json!({
            "event": "done",
            "reason": reason,
            "stop": stop,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "seconds": self.started.elapsed().as_secs_f64(),
        }))
    }

    /// How fast it was from the first text on.
    pub fn statistics(&self, usage: Usage) -> String {
        self.statistics_at(Instant::now(), usage)
    }

    /// Leaves the speed out when most tokens came at once or in no time: text that is read late was not written fast.
    fn statistics_at(&self, now: Instant, usage: Usage) -> String {
        let (first, begun) = self.first.unwrap_or((now, 0));
        let reading = (first - self.started).as_secs_f64();
        let writing = (now - first).as_secs_f64();
        let all = usage.completion_tokens;
        let steps = all.saturating_sub(begun);
        let is_steady = 2 * steps > all && 2 * self.most <= steps;
        let speed = if !is_steady || writing < LEAST_WRITING {
            String::new()
        } else {
            format!(", {:.1} tokens/s", steps as f64 / writing)
        };
        format!(
            "prompt: {} tokens in {reading:.2} s; text: {all} tokens{speed}",
            usage.prompt_tokens
        )
    }

    /// The text so far stands; the line it stands on is ended.
    pub fn interrupted(&self) -> Failure {
        if !self.json {
            // The terminal may be gone.
            let _ = output::text("\n");
        }
        Failure::new(Exit::Interrupted, "interrupted")
    }
}

/// Seconds of writing that say something about speed.
const LEAST_WRITING: f64 = 0.0005;

fn token(token: &TokenInfo) -> serde_json::Value {
    let top: Vec<_> = token
        .top
        .iter()
        .map(|(id, logprob)| json!({ "id": id, "logprob": logprob }))
        .collect();
    match token.logprob {
        Some(logprob) => json!({ "id": token.id, "logprob": logprob, "top": top }),
        None => json!({ "id": token.id }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The statistics of `all` tokens, the first text with `first` of them, after `millis`.
    fn told(all: usize, first: usize, most: usize, millis: u64) -> String {
        let started = Instant::now();
        let story = Story {
            started,
            first: Some((started, first)),
            most,
            json: false,
        };
        let usage = Usage {
            completion_tokens: all,
            ..Usage::default()
        };
        story.statistics_at(started + Duration::from_millis(millis), usage)
    }

    #[test]
    fn a_speed_is_told_only_where_tokens_came_one_after_another() {
        assert!(told(101, 1, 1, 1000).contains("100.0 tokens/s"));
        for (all, first, most, millis) in [
            (100, 60, 60, 1000),
            (101, 1, 90, 1000),
            (101, 1, 1, 0),
            (2, 1, 1, 1000),
        ] {
            let told = told(all, first, most, millis);
            assert!(!told.contains("tokens/s"), "{told}");
        }
    }
}
