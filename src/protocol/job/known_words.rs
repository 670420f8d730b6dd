//! Words that a small model was made of. Others mean nothing to it, which its clients are told.

use std::collections::BTreeSet;

/// The words of a model, in lower case. Empty for models that read any text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownWords(BTreeSet<String>);

/// Unknown words that are named, and the longest name.
const MOST_NAMED: usize = 16;
const LONGEST_NAME: usize = 32;

impl KnownWords {
    /// Words between spaces.
    pub fn of(text: &str) -> Self {
        Self(words(text).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The words of a prompt that the model does not know, each once: the first ones, and long ones without their end.
    pub fn unknown(&self, prompt: &str) -> Vec<String> {
        let mut found = Vec::new();
        if self.is_empty() {
            return found;
        }
        for word in words(prompt) {
            let named: String = word.chars().take(LONGEST_NAME).collect();
            if !self.0.contains(&word) && !found.contains(&named) {
                found.push(named);
            }
            if found.len() == MOST_NAMED {
                break;
            }
        }
        found
    }

    /// A sentence about the words of a prompt that the model does not know, if there are any.
    pub fn remark(&self, model: &str, prompt: &str) -> Option<String> {
        let unknown = self.unknown(prompt);
        let known: Vec<&str> = self.iter().collect();
        (!unknown.is_empty()).then(|| {
            let (unknown, known) = (unknown.join(", "), known.join(", "));
            format!(
                "{model} does not know these words: {unknown}; words that the model knows: {known}"
            )
        })
    }
}

/// Letters and digits, with apostrophes inside.
fn words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|letter: char| !letter.is_alphanumeric() && letter != '\'');
    let parts = parts.map(|part| part.trim_matches('\''));
    let words = parts.filter(|part| !part.is_empty());
    words.map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::KnownWords;

    #[test]
    fn each_unknown_word_is_named_once_in_its_order() {
        let known = KnownWords::of("a red circle on blue");
        let unknown = known.unknown("A purple cat, a red CIRCLE and the cat's 'hat' on blue!");
        assert_eq!(unknown, ["purple", "cat", "and", "the", "cat's", "hat"]);
        assert!(known.unknown("a red, red circle").is_empty());
        assert!(KnownWords::default().unknown("anything").is_empty());
        assert_eq!(known.remark("demo", "red"), None);
        let said = "demo does not know these words: cat; words that the model knows: a, blue, circle, on, red";
        assert_eq!(known.remark("demo", "a red cat").as_deref(), Some(said));
    }

    #[test]
    fn long_prompts_have_short_remarks() {
        let known = KnownWords::of("a");
        let long = "x".repeat(1000);
        let many: String = (0..100).map(|number| format!("w{number} ")).collect();
        assert_eq!(known.unknown(&long), ["x".repeat(32)]);
        assert_eq!(known.unknown(&many).len(), 16);
    }
}
