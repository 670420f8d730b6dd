//! A `[[coordinator]]` as it is written into a configuration.

/// A worker's settings for one coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    pub url: String,
    /// The key itself, `file:PATH` or `env:NAME`.
    pub key: String,
    /// The worker's name there, if not its usual one.
    pub name: Option<String>,
    pub certificate_sha256: Option<String>,
    pub insecure: bool,
}

impl Section {
    pub fn text(&self) -> String {
        let mut text = format!(
            "\n[[coordinator]]\nurl = {}\nkey = {}\n",
            quoted(&self.url),
            quoted(&self.key)
        );
        if let Some(name) = &self.name {
            text += &format!("name = {}\n", quoted(name));
        }
        if let Some(fingerprint) = &self.certificate_sha256 {
            text += &format!("certificate_sha256 = {}\n", quoted(fingerprint));
        }
        if self.insecure {
            text += "insecure = true\n";
        }
        text
    }
}

/// A text as TOML writes it.
pub fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
