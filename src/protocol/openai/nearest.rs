//! Suggestions for misspelt names.

/// The known name closest to `written`, if any is close.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&written, name), name))
        .filter(|(likeness, _)| *likeness >= 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// A name that came from outside, short enough to be said in an error.
pub fn shortened(name: &str) -> &str {
    const LONGEST: usize = 64;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => &name[..end],
        None => name,
    }
}
