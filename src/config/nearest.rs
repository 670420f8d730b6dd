//! Suggestions for misspelled names.

/// The most similar known name, if any is similar enough.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness =
        |name: &&str| strsim::jaro_winkler(&written.to_lowercase(), &name.to_lowercase());
    known
        .into_iter()
        .map(|name| (likeness(&name), name))
        .filter(|(likeness, _)| *likeness >= 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_its_word_and_nonsense_finds_none() {
        let known = ["max_running", "max_waiting", "threads"];
        assert_eq!(nearest("max_runing", known), Some("max_running"));
        assert_eq!(nearest("Treads", known), Some("threads"));
        assert_eq!(nearest("colour", known), None);
    }
}
