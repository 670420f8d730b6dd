//! What the operator tells people: terms, privacy, sponsors, news. There are texts of our own for the first three, which say
//! what the program itself does; an operator puts others in their place.
//!
//! | file | what it is |
//! | --- | --- |
//! | `markdown` | from Markdown to HTML that can do no harm |

mod markdown;

pub use markdown::html;

use std::sync::Arc;

/// The texts, in both forms.
#[derive(Debug, Clone)]
pub struct Documents {
    pub terms: Document,
    pub privacy: Document,
    pub sponsors: Document,
    /// The newest first.
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

impl Documents {
    /// The newest first, whatever order they came in.
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
            privacy: Document::of(include_str!("privacy.md")),
            sponsors: Document::of(include_str!("sponsors.md")),
            news: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Documents, News};

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
        let Documents {
            terms,
            privacy,
            sponsors,
            ..
        } = Documents::default();
        for document in [terms, privacy, sponsors] {
            assert!(document.markdown.starts_with("# "));
            assert!(document.html.starts_with("<h1>"), "{}", document.html);
        }
    }
}
