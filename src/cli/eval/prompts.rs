//! A prompt file: one JSON object on each line, with the chat, the tools, and the expected answer.

use serde::Deserialize;
use serde_json::Value;

use super::expect::Expect;

/// A prompt of an evaluation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    pub skill: String,
    /// Input of the model's chat template.
    pub messages: Vec<Value>,
    #[serde(default)]
    pub tools: Vec<Value>,
    pub expect: Expect,
}

impl Prompt {
    /// The last message, for the report of a wrong answer.
    pub fn question(&self) -> &str {
        let last = self
            .messages
            .last()
            .and_then(|message| message["content"].as_str());
        last.unwrap_or_default()
    }
}

/// A line that is no prompt.
#[derive(Debug, thiserror::Error)]
#[error("invalid prompt in line {line}: {cause}")]
pub struct BadLine {
    pub line: usize,
    cause: serde_json::Error,
}

/// The prompts of a file's text; empty lines do not count.
pub fn read(text: &str) -> Result<Vec<Prompt>, BadLine> {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|cause| BadLine {
                line: index + 1,
                cause,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"skill": "sums", "messages": [{"role": "user", "content": "1 + 1"}],
        "expect": {"kind": "exact", "text": "2"}}"#;

    #[test]
    fn every_line_is_a_prompt() {
        let line = GOOD.replace('\n', " ");
        let prompts = read(&format!("{line}\n\n{line}\n")).unwrap();
        assert_eq!(prompts.len(), 2);
        assert_eq!(prompts[0].skill, "sums");
    }

    #[test]
    fn a_bad_line_is_named() {
        let line = GOOD.replace('\n', " ");
        let error = read(&format!("{line}\n{{}}\n")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("invalid prompt in line 2: missing field"),
            "{error}"
        );
    }
}
