//! A vocabulary for synthetic models: all bytes, then every word of lower-case letters in order, as a byte-pair
//! encoding in GPT-2's style, so that any program for GGUF files can tokenize text and serve chats.

use crate::networks::weights::{GgufValue, GgufWriter};

const SPECIAL: [&str; 3] = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"];
/// Roles and texts, a line each.
const TEMPLATE: &str = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}\
                        {% if add_generation_prompt %}assistant: {% endif %}";
const NORMAL: i64 = 1;
const CONTROL: i64 = 3;

/// Writes a vocabulary of this size; one too small for all bytes gets the first of them.
pub fn describe(size: usize, writer: &mut GgufWriter) {
    let words = size.saturating_sub(256 + SPECIAL.len());
    let bytes = (size - words).saturating_sub(SPECIAL.len());
    let mut tokens: Vec<String> = (0..=255)
        .take(bytes)
        .map(|byte| letter(byte).into())
        .collect();
    let mut merges = Vec::with_capacity(words);
    for (start, last) in merged(words) {
        merges.push(format!("{start} {last}"));
        tokens.push(format!("{start}{last}"));
    }
    let first_special = tokens.len() as u64;
    tokens.extend(SPECIAL.map(str::to_owned));
    let types =
        (0..tokens.len() as u64).map(|id| if id < first_special { NORMAL } else { CONTROL });
    writer.text("tokenizer.ggml.model", "gpt2");
    writer.text("tokenizer.ggml.pre", "gpt-2");
    writer.value(
        "tokenizer.ggml.token_type",
        list(types.map(GgufValue::Signed)),
    );
    writer.value(
        "tokenizer.ggml.tokens",
        list(tokens.into_iter().map(GgufValue::Text)),
    );
    writer.value(
        "tokenizer.ggml.merges",
        list(merges.into_iter().map(GgufValue::Text)),
    );
    writer.unsigned("tokenizer.ggml.bos_token_id", first_special);
    writer.unsigned("tokenizer.ggml.eos_token_id", first_special + 2);
    writer.value("tokenizer.ggml.add_bos_token", GgufValue::Bool(true));
    writer.text("tokenizer.chat_template", TEMPLATE);
}

fn list(values: impl Iterator<Item = GgufValue>) -> GgufValue {
    GgufValue::List(values.collect())
}

/// The first `count` words of at least two letters, in order of length, each split into a shorter word and a letter.
fn merged(count: usize) -> Vec<(String, char)> {
    let mut made = Vec::with_capacity(count);
    let mut shorter: Vec<String> = ('a'..='z').map(String::from).collect();
    while made.len() < count {
        let mut longer = Vec::new();
        for start in &shorter {
            for last in 'a'..='z' {
                if made.len() == count {
                    return made;
                }
                longer.push(format!("{start}{last}"));
                made.push((start.clone(), last));
            }
        }
        shorter = longer;
    }
    made
}

/// GPT-2's letter for a byte: itself where it can be seen, else one of the letters after U+0100.
fn letter(byte: u8) -> char {
    let visible = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if visible(byte) {
        return char::from(byte);
    }
    let hidden_before = (0..byte).filter(|&byte| !visible(byte)).count();
    char::from_u32(0x100 + hidden_before as u32).unwrap_or('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_letters_that_gpt2_gave_them() {
        assert_eq!([letter(b'a'), letter(b' '), letter(b'\n')], ['a', 'Ġ', 'Ċ']);
        let all: std::collections::HashSet<char> = (0..=255).map(letter).collect();
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn words_are_merged_from_shorter_words() {
        let words = merged(26 * 26 + 1);
        assert_eq!(words[0], ("a".to_owned(), 'a'));
        assert_eq!(words[26 * 26], ("aa".to_owned(), 'a'));
    }
}
