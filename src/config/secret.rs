//! A token or key: usable, never shown.

use std::fmt;

use super::raw::Raw;
use super::value::{Place, Value};

/// A secret. Without `Display`, and with a `Debug` that hides the value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// For sending the secret.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl Value for Secret {
    fn wanted() -> String {
        "a secret: the text itself, \"file:PATH\" or \"env:NAME\"".to_owned()
    }

    fn parse(raw: &Raw, place: &Place<'_>) -> Result<Self, String> {
        let text = raw.text().ok_or_else(String::new)?;
        let secret = match text.split_once(':') {
            Some(("file", path)) => from_file(path, place)?,
            Some(("env", name)) => from_variable(name, place)?,
            _ => text.to_owned(),
        };
        match secret.trim() {
            "" => Err("a non-empty secret".to_owned()),
            secret if secret.contains(char::is_control) => Err("a secret on one line".to_owned()),
            secret => Ok(Self(secret.to_owned())),
        }
    }

    fn is_secret() -> bool {
        true
    }

    fn show(&self) -> Option<String> {
        Some("(hidden)".to_owned())
    }
}

fn from_file(path: &str, place: &Place<'_>) -> Result<String, String> {
    let path = place.path(path)?;
    std::fs::read_to_string(&path).map_err(|error| {
        format!(
            "a secret in a readable file: reading {} failed: {error}",
            path.display()
        )
    })
}

fn from_variable(name: &str, place: &Place<'_>) -> Result<String, String> {
    let value = place.environment.get(name).cloned();
    value.ok_or_else(|| format!("a secret in a set environment variable: {name} is not set"))
}
