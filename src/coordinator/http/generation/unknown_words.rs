//! The header that lists words of a prompt which a small model does not know.

use axum::http::HeaderValue;
use axum::response::Response;

use super::MediaEndpoint;
use crate::http::headers::UNKNOWN_WORDS;

/// Words of a prompt that its model does not know.
#[derive(Debug, Clone, Default)]
pub struct UnknownWords(Option<HeaderValue>);

impl MediaEndpoint {
    pub fn unknown_words(&self, model: &str, prompt: &str) -> UnknownWords {
        let settings = self.settings();
        let known = settings.known_words.get(&*settings.names.id(model));
        let unknown = known.map_or_else(Vec::new, |known| known.unknown(prompt));
        let words: Vec<String> = unknown.iter().map(|word| encoded(word)).collect();
        let header = HeaderValue::try_from(words.join(", ")).ok();
        UnknownWords(header.filter(|_| !words.is_empty()))
    }
}

impl UnknownWords {
    /// Lists them in a response.
    pub fn list(self, response: &mut Response) {
        if let Some(words) = self.0 {
            response.headers_mut().insert(UNKNOWN_WORDS, words);
        }
    }
}

fn encoded(word: &str) -> String {
    let bytes = word.bytes().map(|byte| match byte.is_ascii_graphic() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn words_are_plain_letters_in_the_header() {
        assert_eq!(encoded("cat's"), "cat's");
        assert_eq!(encoded("größe"), "gr%C3%B6%C3%9Fe");
    }
}
