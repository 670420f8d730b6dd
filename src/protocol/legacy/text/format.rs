//! Formatting options of a client for its prompt and its text. Polling workers apply them; for the text of another
//! worker, this module does.

use std::borrow::Cow;

use crate::job::LegacySampling;

/// The prompt as the model is to see it.
pub fn prompt<'a>(prompt: &'a str, wanted: &LegacySampling) -> Cow<'a, str> {
    let add = wanted.frmtadsnsp == Some(true) && !prompt.starts_with(char::is_whitespace);
    match add {
        true => Cow::Owned(format!(" {prompt}")),
        false => Cow::Borrowed(prompt),
    }
}

/// The text as the client is to see it.
pub fn output(text: &str, wanted: &LegacySampling) -> String {
    let mut text = Cow::Borrowed(text);
    if wanted.frmttriminc == Some(true) {
        text = Cow::Owned(whole_sentences(&text).to_owned());
    }
    if wanted.frmtrmblln == Some(true) {
        text = Cow::Owned(without_blank_lines(&text));
    }
    if wanted.frmtrmspch == Some(true) {
        text = Cow::Owned(text.replace(|letter| "#/@%<>{}+=~|^".contains(letter), ""));
    }
    if wanted.singleline == Some(true) {
        text = Cow::Owned(text.lines().next().unwrap_or_default().to_owned());
    }
    text.into_owned()
}

/// Up to the end of the last sentence with what closes around it. A text without an end is left as it is.
fn whole_sentences(text: &str) -> &str {
    let Some(end) = text.rfind(['.', '!', '?', '。', '！', '？']) else {
        return text;
    };
    let closes = |letter: char| "\"'*)]”’».!?。！？".contains(letter);
    let end = text[end..]
        .char_indices()
        .find(|(_, letter)| !closes(*letter))
        .map_or(text.len(), |(length, _)| end + length);
    &text[..end]
}

fn without_blank_lines(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter != '\n' || !kept.ends_with('\n') {
            kept.push(letter);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::{output, prompt};
    use crate::job::LegacySampling;

    fn none() -> LegacySampling {
        LegacySampling::default()
    }

    fn check(text: &str, wanted: LegacySampling, expected: &str) {
        assert_eq!(output(text, &wanted), expected);
    }

    #[test]
    fn nothing_is_done_that_was_not_asked_for() {
        check("a\n\nb # c", none(), "a\n\nb # c");
        assert_eq!(prompt("once", &none()), "once");
    }

    #[test]
    fn a_space_goes_before_a_prompt_without_one() {
        let wanted = LegacySampling {
            frmtadsnsp: Some(true),
            ..none()
        };
        assert_eq!(prompt("once", &wanted), " once");
        assert_eq!(prompt("\nonce", &wanted), "\nonce");
    }

    #[test]
    fn an_unfinished_sentence_is_cut() {
        let wanted = || LegacySampling {
            frmttriminc: Some(true),
            ..none()
        };
        check("One. Two! Thr", wanted(), "One. Two!");
        check("\"One.\" said", wanted(), "\"One.\"");
        check("on and on", wanted(), "on and on");
        check("やめて。それ", wanted(), "やめて。");
    }

    #[test]
    fn blank_lines_special_characters_and_further_lines_go() {
        check(
            "a\n\n\nb\n",
            LegacySampling {
                frmtrmblln: Some(true),
                ..none()
            },
            "a\nb\n",
        );
        check(
            "a#b <c>",
            LegacySampling {
                frmtrmspch: Some(true),
                ..none()
            },
            "ab c",
        );
        check(
            "a\nb",
            LegacySampling {
                singleline: Some(true),
                ..none()
            },
            "a",
        );
    }
}
