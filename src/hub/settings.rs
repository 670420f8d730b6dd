//! What the hub's own tools read from the environment, in their order, and what we add.

use std::{fmt, path::PathBuf, time::Duration};

use url::Url;

/// How files are brought here. Never printed with its token.
#[derive(Clone)]
pub struct HubSettings {
    pub endpoint: Url,
    pub token: Option<String>,
    /// The folder with `models--organization--name` in it, shared with other programs.
    pub cache_dir: PathBuf,
    /// Where revisions and hashes are written down at the first pull.
    pub records_dir: PathBuf,
    /// Never asks the network.
    pub offline: bool,
    /// Ranges of one file on their way at the same time.
    pub connections: usize,
    /// The longest range asked for at once.
    pub piece_bytes: u64,
    pub patience: Patience,
}

/// How long a server may disappoint us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Failures in a row, without a byte between them, until the pull gives up.
    pub attempts: u32,
    /// Before the first new attempt; doubled with every further one.
    pub first_wait: Duration,
    pub longest_wait: Duration,
    /// The longest a server may ask us to stay away.
    pub longest_ban: Duration,
    /// Until a connection that brings nothing counts as broken.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 8,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            longest_ban: Duration::from_secs(300),
            silence: Duration::from_secs(60),
        }
    }
}

/// A variable of the environment that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {what}")]
pub struct BadVariable {
    pub name: &'static str,
    pub what: String,
}

const PUBLIC_ENDPOINT: &str = "https://huggingface.co";

impl HubSettings {
    /// From `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME`, `HF_HUB_CACHE`, `HF_HUB_OFFLINE` and the older names of these.
    pub fn from_environment(
        records_dir: PathBuf,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, BadVariable> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = hub_home(&variable)?;
        Ok(Self {
            endpoint: endpoint(&variable)?,
            token: token(&variable, &home),
            cache_dir: variable("HF_HUB_CACHE")
                .or_else(|| variable("HUGGINGFACE_HUB_CACHE"))
                .map_or_else(|| home.join("hub"), PathBuf::from),
            records_dir,
            offline: variable("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
            connections: 8,
            piece_bytes: 32 * 1024 * 1024,
            patience: Patience::default(),
        })
    }
}

fn hub_home(variable: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, BadVariable> {
    let in_cache = |cache: PathBuf| cache.join("huggingface");
    variable("HF_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("XDG_CACHE_HOME").map(PathBuf::from).map(in_cache))
        .or_else(|| variable("HOME").map(|home| in_cache(PathBuf::from(home).join(".cache"))))
        .ok_or_else(|| BadVariable {
            name: "HOME",
            what: "is not set, and neither is HF_HOME: there is no place for models".to_owned(),
        })
}

fn endpoint(variable: &impl Fn(&str) -> Option<String>) -> Result<Url, BadVariable> {
    let text = variable("HF_ENDPOINT").unwrap_or_else(|| PUBLIC_ENDPOINT.to_owned());
    parse_endpoint(&text).map_err(|what| BadVariable {
        name: "HF_ENDPOINT",
        what,
    })
}

/// An address under which a hub answers.
pub fn parse_endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim_end_matches('/')).map_err(|error| {
        format!("must be an address like {PUBLIC_ENDPOINT}, found {text}: {error}")
    })?;
    match matches!(url.scheme(), "http" | "https") && url.has_host() {
        true => Ok(url),
        false => Err(format!("must be http:// or https://, found {text}")),
    }
}

fn token(variable: &impl Fn(&str) -> Option<String>, home: &std::path::Path) -> Option<String> {
    let file = || {
        let path = variable("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
        std::fs::read_to_string(path).ok()
    };
    variable("HF_TOKEN")
        .or_else(|| variable("HUGGING_FACE_HUB_TOKEN"))
        .or_else(file)
        .map(|token| token.trim().to_owned())
        .filter(|token| !token.is_empty())
}

fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&value.to_ascii_lowercase().as_str())
}

impl fmt::Debug for HubSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubSettings")
            .field("endpoint", &self.endpoint.as_str())
            .field("token", &self.token.as_ref().map(|_| "(hidden)"))
            .field("cache_dir", &self.cache_dir)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> HubSettings {
        let find = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        HubSettings::from_environment("/records".into(), find).unwrap()
    }

    #[test]
    fn the_cache_is_where_the_hubs_own_tools_have_it() {
        let check = |variables: &[(&str, &str)], expected: &str| {
            assert_eq!(read(variables).cache_dir, PathBuf::from(expected));
        };
        check(&[("HOME", "/h")], "/h/.cache/huggingface/hub");
        check(
            &[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")],
            "/c/huggingface/hub",
        );
        check(&[("HOME", "/h"), ("HF_HOME", "/f")], "/f/hub");
        check(&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/x")], "/x");
    }

    #[test]
    fn the_token_comes_from_the_environment_or_from_the_file_the_tools_keep() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "from-file\n").unwrap();
        let folder = home.path().to_str().unwrap();
        assert_eq!(read(&[("HF_HOME", folder)]).token.unwrap(), "from-file");
        let both = read(&[("HF_HOME", folder), ("HF_TOKEN", "from-environment")]);
        assert_eq!(both.token.as_deref(), Some("from-environment"));
        assert!(
            !format!("{both:?}").contains("from-environment"),
            "a token is never printed"
        );
    }

    #[test]
    fn offline_is_said_in_the_words_of_the_tools() {
        assert!(read(&[("HOME", "/h"), ("HF_HUB_OFFLINE", "1")]).offline);
        assert!(read(&[("HOME", "/h"), ("HF_HUB_OFFLINE", "TRUE")]).offline);
        assert!(!read(&[("HOME", "/h"), ("HF_HUB_OFFLINE", "0")]).offline);
    }

    #[test]
    fn an_endpoint_is_an_address() {
        let find = |name: &str| (name == "HF_ENDPOINT").then(|| "ftp://x".to_owned());
        let home = |name: &str| {
            if name == "HOME" {
                Some("/h".to_owned())
            } else {
                find(name)
            }
        };
        let error = HubSettings::from_environment("/records".into(), home).unwrap_err();
        assert_eq!(
            error.to_string(),
            "HF_ENDPOINT must be http:// or https://, found ftp://x"
        );
    }
}
