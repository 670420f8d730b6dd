//! The operator's documents: terms, privacy, sponsors, news. The first three have built-in texts about the program
//! itself, which an operator can replace.
//!
//! | file | contents |
//! | --- | --- |
//! | `markdown` | Markdown to safe HTML |
//! | `privacy` | the privacy policy, from the settings in force |

mod markdown;
mod privacy;

pub use markdown::html;
pub use privacy::{DatabaseKind, MediaPlace, PrivacySettings, ResponsePolicy};

use std::sync::Arc;

/// The documents in both formats.
#[derive(Debug, Clone)]
pub struct Documents {
    pub terms: Document,
    /// The operator's own, as Markdown. `None`: written by the program from the settings.
    pub privacy: Option<Arc<str>>,
    pub sponsors: Document,
    /// Newest first.
    pub news: Arc<[News]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub markdown: Arc<str>,
    pub html: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// `YYYY-MM-DD`
    pub date: String,
    pub text: String,
    pub title: Option<String>,
    pub importance: Option<String>,
    pub tags: Vec<String>,
    pub links: Vec<String>,
}

impl Document {
    pub fn of(markdown: &str) -> Self {
        Self {
            html: html(markdown).into(),
            markdown: markdown.into(),
        }
    }
}

/// A line in the operator's own privacy policy, replaced by the stored data and retention times of the settings in
/// force.
pub const STORAGE_MARK: &str = "{{storage}}";

impl Documents {
    pub fn privacy(&self, settings: &PrivacySettings) -> Document {
        match &self.privacy {
            None => Document::of(&privacy::policy(settings)),
            Some(own) if own.contains(STORAGE_MARK) => {
                let section = privacy::storage_section(settings);
                Document::of(&own.replace(STORAGE_MARK, &section))
            }
            Some(own) => Document::of(own),
        }
    }

    /// Sorts the news, newest first.
    #[must_use]
    pub fn with_news(self, mut news: Vec<News>) -> Self {
        news.sort_by(|one, other| other.date.cmp(&one.date));
        Self {
            news: news.into(),
            ..self
        }
    }
}

impl Default for Documents {
    fn default() -> Self {
        Self {
            terms: Document::of(include_str!("terms.md")),
            privacy: None,
            sponsors: Document::of(include_str!("sponsors.md")),
            news: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DatabaseKind, Documents, MediaPlace, News, PrivacySettings, ResponsePolicy};

    fn settings() -> PrivacySettings {
        PrivacySettings {
            responses: ResponsePolicy::UnlessRefused,
            responses_kept: Duration::from_secs(7 * 86_400),
            requests_kept: Duration::from_secs(3600),
            media: MediaPlace::Folder,
            media_kept: Duration::from_secs(36 * 3600),
            records_kept: Duration::from_secs(90 * 86_400),
            replies_kept: Duration::from_secs(86_400),
            grace: Duration::from_secs(30 * 86_400),
            scrubs_secrets: true,
            database: DatabaseKind::Sqlite,
        }
    }

    #[test]
    fn the_policy_follows_the_settings() {
        let policy = |settings: PrivacySettings| {
            let document = Documents::default().privacy(&settings);
            document.markdown.replace('\n', " ")
        };
        let usual = policy(settings());
        for words in [
            "for 7 days, unless",
            "for up to 36 hours",
            "kept for 90 days",
        ] {
            assert!(usual.contains(words), "{words}: {usual}");
        }
        let other = policy(PrivacySettings {
            responses: ResponsePolicy::Never,
            media: MediaPlace::Bucket,
            scrubs_secrets: false,
            ..settings()
        });
        for words in ["are not stored", "S3 bucket", "as they are"] {
            assert!(other.contains(words), "{words}: {other}");
        }
        assert!(!other.contains("7 days"), "{other}");
    }

    #[test]
    fn an_operators_own_policy_stands_and_takes_in_what_is_stored() {
        let privacy = |own: &str| {
            let documents = Documents {
                privacy: Some(own.into()),
                ..Documents::default()
            };
            documents.privacy(&settings()).markdown.to_string()
        };
        assert_eq!(privacy("# Ours"), "# Ours");
        let marked = privacy("# Ours\n\n{{storage}}");
        assert!(
            marked.starts_with("# Ours\n\n## Prompts and results"),
            "{marked}"
        );
    }

    fn news(date: &str) -> News {
        News {
            date: date.to_owned(),
            text: "something happened".to_owned(),
            title: None,
            importance: None,
            tags: Vec::new(),
            links: Vec::new(),
        }
    }

    #[test]
    fn news_are_told_the_newest_first() {
        let mixed = ["2026-01-02", "2026-03-01", "2025-12-31"].map(news);
        let documents = Documents::default().with_news(mixed.into());
        let dates: Vec<&str> = documents.news.iter().map(|news| &*news.date).collect();
        assert_eq!(dates, ["2026-03-01", "2026-01-02", "2025-12-31"]);
    }

    #[test]
    fn our_own_texts_are_there_in_both_forms() {
        let documents = Documents::default();
        let privacy = documents.privacy(&settings());
        let Documents {
            terms, sponsors, ..
        } = documents;
        for document in [terms, privacy, sponsors] {
            assert!(document.markdown.starts_with("# "));
            assert!(document.html.starts_with("<h1>"), "{}", document.html);
        }
    }
}
