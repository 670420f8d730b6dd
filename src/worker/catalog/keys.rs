//! Refuses unknown words, with the most similar known one.

pub const ENTRY: &[&str] = &[
    "id",
    "description",
    "family",
    "kind",
    "licence",
    "context",
    "parameters",
    "default_quantization",
    "known_words",
    "names",
    "shape",
    "defaults",
    "sources",
    "components",
];

pub const NAMES: &[&str] = &["v1", "legacy"];
pub const SHAPE: &[&str] = &[
    "parameters",
    "active_parameters",
    "layers",
    "kv_heads",
    "head_dim",
    "latent_dim",
];

/// The most similar known word, if any is similar enough.
pub fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|word| (word, likeness(found, word)))
        .filter(|(_, likeness)| *likeness > 0.6)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(word, _)| word)
}

/// From 0 to 1, ignoring case.
pub fn likeness(a: &str, b: &str) -> f64 {
    strsim::jaro_winkler(&a.to_lowercase(), &b.to_lowercase())
}

/// `what` is the kind of word: `unknown key`, `unknown family`.
pub fn unknown(what: &str, found: &str, known: &[&str]) -> String {
    match nearest(found, known.iter().copied()) {
        Some(nearest) => format!("unknown {what} {found}; did you mean {nearest}?"),
        None => format!("unknown {what} {found}; known: {}", known.join(", ")),
    }
}

pub fn refuse_unknown(table: &toml::Table, known: &[&str], place: &str) -> Result<(), String> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(unknown(&format!("key in {place}:"), key, known)),
        None => Ok(()),
    }
}
