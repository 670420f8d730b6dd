//! Expected answers: the rules of a prompt file.

use serde::Deserialize;
use serde_json::Value;

/// How an answer is judged.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Expect {
    /// This text and nothing else; white space around it does not count.
    Exact { text: String },
    /// At least one string of `any`, and each of `all`.
    Contains {
        #[serde(default)]
        any: Vec<String>,
        #[serde(default)]
        all: Vec<String>,
    },
    /// At least this many complete sentences, which contain each of `all`.
    Story { all: Vec<String>, sentences: usize },
    /// JSON of this value, however it is written.
    Json { value: Value },
    /// These calls of tools in this order, and no others.
    Tools { calls: Vec<Value> },
}

impl Expect {
    pub fn passes(&self, answer: &str) -> bool {
        let answer = answer.trim();
        match self {
            Self::Exact { text } => answer == text.trim(),
            Self::Contains { any, all } => {
                contains_all(answer, all)
                    && (any.is_empty() || any.iter().any(|part| answer.contains(part.as_str())))
            }
            Self::Story { all, sentences } => {
                contains_all(answer, all)
                    && answer.ends_with('.')
                    && answer.matches(". ").count() + 1 >= *sentences
            }
            Self::Json { value } => {
                serde_json::from_str::<Value>(answer).is_ok_and(|found| found == *value)
            }
            Self::Tools { calls } => tool_calls(answer).is_some_and(|found| found == *calls),
        }
    }
}

fn contains_all(answer: &str, parts: &[String]) -> bool {
    parts.iter().all(|part| answer.contains(part.as_str()))
}

/// The contents of `<tool_call>` blocks; `None` if a block is open or not JSON.
fn tool_calls(answer: &str) -> Option<Vec<Value>> {
    let blocks = answer.split("<tool_call>").skip(1);
    blocks
        .map(|block| {
            let (json, _) = block.split_once("</tool_call>")?;
            serde_json::from_str(json).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expect(value: Value) -> Expect {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn exact_text_may_have_space_around_it_and_nothing_else() {
        let expect = expect(json!({"kind": "exact", "text": "4 + 5 = 9."}));
        assert!(expect.passes(" 4 + 5 = 9.\n"));
        assert!(!expect.passes("4 + 5 = 9. Yes."));
    }

    #[test]
    fn one_of_several_is_enough_and_all_of_all_are_needed() {
        let any = expect(json!({"kind": "contains", "any": ["small", "little"]}));
        assert!(any.passes("It is little.") && !any.passes("It is big."));
        let all = expect(json!({"kind": "contains", "all": ["12", "rain"]}));
        assert!(all.passes("12 degrees with rain") && !all.passes("12 degrees"));
    }

    #[test]
    fn a_story_names_its_hero_and_ends() {
        let story = expect(json!({"kind": "story", "all": ["robot", "Ada"], "sentences": 2}));
        assert!(story.passes("Ada was a robot. Ada hummed."));
        assert!(!story.passes("Ada was a robot."));
        assert!(!story.passes("Ada was a robot. Ada hummed and"));
    }

    #[test]
    fn json_is_compared_as_a_value() {
        let object = expect(json!({"kind": "json", "value": {"a": 1, "b": [true]}}));
        assert!(object.passes(r#"{"b":[true], "a": 1}"#));
        assert!(!object.passes(r#"{"a": 1}"#));
        assert!(!object.passes("a: 1"));
    }

    #[test]
    fn tools_are_called_in_order_and_no_others() {
        let call = json!({"name": "get_time", "arguments": {"city": "Oslo"}});
        let wanted = expect(json!({"kind": "tools", "calls": [call]}));
        let answer = format!("<tool_call>{call}</tool_call>");
        assert!(wanted.passes(&answer));
        assert!(!wanted.passes(&format!("{answer}\n{answer}")));
        assert!(!wanted.passes(&format!("<tool_call>{call}")));
        assert!(!wanted.passes("It is noon in Oslo."));
    }

    #[test]
    fn an_unknown_rule_is_refused() {
        let rule = json!({"kind": "exact", "text": "a", "texts": []});
        assert!(serde_json::from_value::<Expect>(rule).is_err());
    }
}
