//! Credentials pasted into prompts, found by their well-known forms and removed before public and polling workers get them.
//!
//! Every pattern runs in linear time. A text is matched against all at once, and again only against the matching ones.

use std::sync::LazyLock;

use regex::{Regex, RegexSet};
use serde_json::Value;

/// Replacement of a secret.
const REDACTED: &str = "${1}[redacted]${2}";

/// Patterns of secrets. The first group may stay before the secret, and the second after it.
#[rustfmt::skip]
const FORMS: &[&str] = &[
    // Private keys, up to their end or the end of the text.
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)",
    // Clouds: ids and secrets of Amazon, Google, Azure storage.
    r"(?-u:\b)(?:AKIA|ASIA)[A-Z0-9]{16}(?-u:\b)",
    r#"(?i)(aws_?secret_?(?:access_?)?key["']?\s{0,4}[:=]\s{0,4}["']?)[a-z0-9/+]{40}"#,
    r"(?-u:\b)AIza[A-Za-z0-9_-]{35}",
    r"(AccountKey=)[A-Za-z0-9/+]{86}==",
    // Code: GitHub, GitLab, npm, PyPI.
    r"(?-u:\b)gh[pousr]_[A-Za-z0-9]{36,}",
    r"(?-u:\b)github_pat_[A-Za-z0-9_]{22,}",
    r"(?-u:\b)glpat-[A-Za-z0-9_-]{20,}",
    r"(?-u:\b)npm_[A-Za-z0-9]{36}",
    r"(?-u:\b)pypi-[A-Za-z0-9_-]{50,}",
    // Model services: OpenAI and compatible ones, Hugging Face, the public network.
    r"(?-u:\b)sk-(?:proj|svcacct|admin|ant|or)-[A-Za-z0-9_-]{20,}",
    r"(?-u:\b)sk-[A-Za-z0-9]{32,}",
    r"(?-u:\b)hf_[A-Za-z0-9]{30,}",
    r"(?-u:\b)gridu?_[A-Za-z0-9_-]{32,}",
    // Services: Slack, Stripe, SendGrid, Telegram.
    r"(?-u:\b)xox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"(?-u:\b)[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    r"(?-u:\b)SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,}",
    r"(?-u:\b)[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    // Signed tokens, and authorization headers.
    r"(?-u:\b)eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    r"(?i)(authorization:\s{0,4}(?:bearer|basic)\s{1,4})[a-z0-9._~+/=-]{16,}",
    // Crypto wallets: labelled private keys, and extended private keys.
    r#"(?i)(private[_ -]?key["']?\s{0,4}[:=]\s{0,4}["']?)(?:0x)?[0-9a-f]{64}"#,
    r"(?-u:\b)[xyz]prv[1-9A-HJ-NP-Za-km-z]{100,112}",
    // Passwords in URLs.
    r"(?i)((?-u:\b)[a-z][a-z0-9+.-]{1,30}://[^\s:/@]*:)[^\s/@]+(@)",
];

/// Longest head of a data URL.
const LONGEST_HEAD: usize = 256;

static ANY: LazyLock<RegexSet> = LazyLock::new(|| RegexSet::new(FORMS).unwrap_or_default());
static EACH: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    FORMS
        .iter()
        .filter_map(|form| Regex::new(form).ok())
        .collect()
});

/// Removes secrets from the messages of a chat. Images and other files stay unchanged.
pub fn scrub_messages(body: &mut Value) {
    if let Some(messages) = body.get_mut("messages") {
        scrub(messages);
    }
}

/// The same for a whole body of another API than chat.
pub fn scrub_body(body: &mut Value) {
    for (name, value) in body.as_object_mut().into_iter().flatten() {
        if name != "model" {
            scrub(value);
        }
    }
}

fn scrub(value: &mut Value) {
    match value {
        Value::String(text) if is_data_url(text) => {}
        Value::String(text) => {
            if let Some(clean) = scrubbed(text) {
                *text = clean;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(scrub),
        Value::Object(entries) => {
            // A file in Anthropic's API.
            let is_file = entries.get("type").is_some_and(|it| it == "base64");
            for (name, value) in entries {
                match value {
                    Value::String(data) if is_file && name == "data" && is_base64(data) => {}
                    value => scrub(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a text is an inline file: `data:image/png;base64,…`.
pub fn is_data_url(text: &str) -> bool {
    let Some((head, data)) = text
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(','))
    else {
        return false;
    };
    let is_head = |byte: u8| byte.is_ascii_alphanumeric() || b"/.+-;=_".contains(&byte);
    head.ends_with(";base64")
        && head.len() <= LONGEST_HEAD
        && head.bytes().all(is_head)
        && is_base64(data)
}

fn is_base64(data: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte);
    data.bytes().all(is_part)
}

/// The text without its secrets; `None` if there are none.
pub fn scrubbed(text: &str) -> Option<String> {
    let found = ANY.matches(text);
    let forms = found.iter().filter_map(|index| EACH.get(index));
    forms.fold(None, |clean, form| {
        let text = clean.as_deref().unwrap_or(text);
        Some(form.replace_all(text, REDACTED).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::{ANY, EACH, FORMS, is_data_url, scrub_messages, scrubbed};

    #[test]
    fn every_form_can_be_read() {
        assert_eq!((ANY.len(), EACH.len()), (FORMS.len(), FORMS.len()));
    }

    #[test]
    fn files_stay_and_text_that_looks_like_one_does_not() {
        assert!(is_data_url("data:image/png;base64,aGk="));
        for text in [
            "data: x",
            "data:image/png;base64,a b",
            "data:text/plain,hi",
            "data:",
        ] {
            assert!(!is_data_url(text), "{text}");
        }
        let secret = format!("data: ghp_{}", "A1b2".repeat(9));
        let mut body = json!({"messages": [
            {"content": secret}, {"type": "base64", "data": "aGk=", "note": secret},
        ]});
        scrub_messages(&mut body);
        assert_eq!(body["messages"][0]["content"], "data: [redacted]");
        assert_eq!(body["messages"][1]["note"], "data: [redacted]");
        assert_eq!(body["messages"][1]["data"], "aGk=");
    }

    #[test]
    fn secrets_are_taken_out_and_what_is_around_them_stays() {
        let long = "A1b2".repeat(30);
        let cases = [
            (format!("use sk-proj-{}", &long[..40]), "use [redacted]"),
            (format!("é ghp_{} ok", &long[..36]), "é [redacted] ok"),
            ("AKIAIOSFODNN7EXAMPLE".into(), "[redacted]"),
            (
                format!("aws_secret_access_key = {}", &long[..40]),
                "aws_secret_access_key = [redacted]",
            ),
            (
                "postgres://ann:hunter2@db/x".into(),
                "postgres://ann:[redacted]@db/x",
            ),
            (
                "curl -H 'Authorization: Bearer abcdefghijklmnop'".into(),
                "curl -H 'Authorization: Bearer [redacted]'",
            ),
            (format!("eyJ{0}.eyJ{0}.{0}!", &long[..20]), "[redacted]!"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nbye".into(),
                "[redacted]\nbye",
            ),
            ("-----BEGIN PRIVATE KEY-----\nMII".into(), "[redacted]"),
            (
                format!("private_key: 0x{}", "ab".repeat(32)),
                "private_key: [redacted]",
            ),
            (format!("grid_{}", &long[..32]), "[redacted]"),
        ];
        for (text, clean) in cases {
            assert_eq!(scrubbed(&text).as_deref(), Some(clean), "{text}");
        }
    }

    #[test]
    fn ordinary_texts_stay_as_they_are() {
        for text in [
            "see https://example.org:8080/a?b=c and mail ann@example.org",
            "sk-learn-based-classification-pipelines and grid_search_cv_parameters",
            "a sk-etch, an AKIA, and eyJ.eyJ.eyJ",
            "commit 3f786850e387550fdab836ed7e6dc881de23001b",
            "-----BEGIN PUBLIC KEY-----",
        ] {
            assert_eq!(scrubbed(text), None, "{text}");
        }
    }

    #[test]
    fn words_of_messages_are_scrubbed_and_files_are_not() {
        let secret = "AKIAIOSFODNN7EXAMPLE";
        let picture = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{secret}")}});
        let mut body = json!({"stop": [secret], "messages": [
            {"role": "user", "content": [{"type": "text", "text": secret}, picture]},
        ]});
        scrub_messages(&mut body);
        assert_eq!(body["stop"], json!([secret]));
        assert_eq!(body["messages"][0]["content"][0]["text"], "[redacted]");
        assert_eq!(body["messages"][0]["content"][1], picture);
    }

    #[test]
    fn a_text_made_to_be_slow_is_searched_within_seconds() {
        let began = Instant::now();
        for text in [
            "a://",
            "eyJ",
            "-----BEGIN PRIVATE KEY",
            "private key: ",
            "sk-a-",
        ] {
            scrubbed(&text.repeat((1 << 20) / text.len()));
        }
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
    }
}
