//! `[[serve.alias]]`: another name for a model. May be repeated.

use super::reader::Reader;
use super::setting::settings;

settings! {
    /// Another name for a model; repeat the section for several.
    pub struct AliasConfig = "serve.alias" {
        /// Name that clients send, such as gpt-4o-mini, whisper-1 or tts-1.
        name: String,
        /// Model that serves it, as in /v1/models.
        model: String,
    }
}

impl AliasConfig {
    /// Reads one section.
    pub(super) fn read_one(reader: &mut Reader<'_>) -> Option<Self> {
        let alias = Self::read(reader)?;
        if alias.name != alias.model {
            return Some(alias);
        }
        let name = &alias.name;
        reader.problem_here(format!("{name} is an alias of itself: name another model"));
        None
    }
}

/// An alias that is defined twice.
pub fn named_twice(aliases: &[AliasConfig]) -> Option<&str> {
    let mut seen = std::collections::HashSet::new();
    let mut names = aliases.iter().map(|alias| alias.name.as_str());
    names.find(|name| !seen.insert(*name))
}
