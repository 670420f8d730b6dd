//! Types of settings, each with a description and a parser.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::raw::Raw;
use super::sources::Environment;
use super::units::{parse_duration, show_duration};

/// Something a setting can hold.
pub trait Value: Sized {
    /// The expected value, as part of a message: `a whole number`.
    fn wanted() -> String;
    /// The value, or an error. An empty error is complete with [`Value::wanted`].
    fn parse(raw: &Raw, place: &Place<'_>) -> Result<Self, String>;
    /// The value in the syntax of the file; `None` if it is unset.
    fn show(&self) -> Option<String>;

    /// Whether others must not read it.
    fn is_secret() -> bool {
        false
    }

    /// The value of an unset setting without a default.
    fn unset() -> Option<Self> {
        None
    }

    /// The number that a range applies to.
    fn number(&self) -> Option<u64> {
        None
    }

    /// An end of a range, in the words of a message.
    fn limit(number: u64) -> String {
        number.to_string()
    }
}

/// The place of a value: the base of relative paths and of variable names.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub folder: &'a Path,
    pub environment: &'a Environment,
}

impl Place<'_> {
    /// A path as meant: `~` is the home folder, a relative path starts where it was written.
    pub fn path(&self, text: &str) -> Result<PathBuf, String> {
        if text.is_empty() {
            return Err(String::new());
        }
        match text.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                self.in_home(&rest[rest.len().min(1)..])
            }
            _ => Ok(self.folder.join(text)),
        }
    }

    fn in_home(&self, rest: &str) -> Result<PathBuf, String> {
        match self.environment.get("HOME").filter(|home| !home.is_empty()) {
            Some(home) => Ok(Path::new(home).join(rest)),
            None => Err("a path without ~: HOME is not set".to_owned()),
        }
    }
}

impl Value for bool {
    fn wanted() -> String {
        "true or false".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        match raw {
            Raw::Switch(switch) => Ok(*switch),
            Raw::Untyped(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Ok(true),
                "false" | "0" | "no" | "off" | "" => Ok(false),
                _ => Err(String::new()),
            },
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for usize {
    fn wanted() -> String {
        "an integer".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        match raw {
            Raw::Whole(number) => usize::try_from(*number).map_err(|_| String::new()),
            Raw::Untyped(text) => text.trim().parse().map_err(|_| String::new()),
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn number(&self) -> Option<u64> {
        u64::try_from(*self).ok()
    }
}

impl Value for String {
    fn wanted() -> String {
        "a non-empty string".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        match raw.text() {
            Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> Option<String> {
        Some(quote(self))
    }
}

impl Value for Vec<String> {
    fn wanted() -> String {
        "a list of strings such as [\"one\", \"two\"]".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        raw.texts().ok_or_else(String::new)
    }

    fn show(&self) -> Option<String> {
        let texts: Vec<String> = self.iter().map(|text| quote(text)).collect();
        Some(format!("[{}]", texts.join(", ")))
    }
}

impl Value for PathBuf {
    fn wanted() -> String {
        "a path".to_owned()
    }

    fn parse(raw: &Raw, place: &Place<'_>) -> Result<Self, String> {
        raw.text()
            .ok_or_else(String::new)
            .and_then(|text| place.path(text))
    }

    fn show(&self) -> Option<String> {
        Some(quote(&self.to_string_lossy()))
    }
}

impl Value for SocketAddr {
    fn wanted() -> String {
        "an address and port such as \"127.0.0.1:7010\" or \"[::]:7010\"".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        let text = raw.text().ok_or_else(String::new)?.trim();
        let text = text.replacen("localhost:", "127.0.0.1:", 1);
        text.parse().map_err(|_| String::new())
    }

    fn show(&self) -> Option<String> {
        Some(quote(&self.to_string()))
    }
}

impl Value for Url {
    fn wanted() -> String {
        "a URL such as https://example.org".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        let text = raw.text().ok_or_else(String::new)?;
        let url = Url::parse(text).map_err(|_| String::new())?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL without a user name or password".to_owned());
        }
        Ok(url)
    }

    fn show(&self) -> Option<String> {
        Some(quote(self.as_str().trim_end_matches('/')))
    }
}

/// The URL of an HTTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebAddress(pub Url);

impl Value for WebAddress {
    fn wanted() -> String {
        "a URL that begins with https:// or http://".to_owned()
    }

    fn parse(raw: &Raw, place: &Place<'_>) -> Result<Self, String> {
        let url = <Url as Value>::parse(raw, place)?;
        match url.scheme() {
            "https" | "http" => Ok(Self(url)),
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> Option<String> {
        self.0.show()
    }
}

impl Value for Duration {
    fn wanted() -> String {
        "a duration such as \"20s\" or \"5 min\"".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        raw.text().and_then(parse_duration).ok_or_else(String::new)
    }

    fn show(&self) -> Option<String> {
        Some(quote(&show_duration(*self)))
    }

    /// In seconds, rounded up.
    fn number(&self) -> Option<u64> {
        Some(self.as_secs() + u64::from(self.subsec_nanos() > 0))
    }

    fn limit(seconds: u64) -> String {
        show_duration(Duration::from_secs(seconds))
    }
}

impl<T: Value> Value for Option<T> {
    fn wanted() -> String {
        T::wanted()
    }

    fn parse(raw: &Raw, place: &Place<'_>) -> Result<Self, String> {
        T::parse(raw, place).map(Some)
    }

    fn show(&self) -> Option<String> {
        self.as_ref().and_then(T::show)
    }

    fn is_secret() -> bool {
        T::is_secret()
    }

    fn unset() -> Option<Self> {
        Some(None)
    }

    fn number(&self) -> Option<u64> {
        self.as_ref().and_then(T::number)
    }

    fn limit(number: u64) -> String {
        T::limit(number)
    }
}

/// A text as TOML writes it.
pub fn quote(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
