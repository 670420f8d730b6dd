//! The operator's own documents, from the files of a folder. Missing files keep the built-in text.

use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::cli::{Exit, Failure};
use crate::coordinator::documents::{Document, Documents, News};

/// `news.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewsFile {
    #[serde(default)]
    news: Vec<NewsEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewsEntry {
    date: String,
    text: String,
    title: Option<String>,
    importance: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    links: Vec<String>,
}

pub fn read(folder: Option<&Path>) -> Result<Documents, Failure> {
    let mut documents = Documents::default();
    let Some(folder) = folder else {
        return Ok(documents);
    };
    // A folder that is not there is a mistake; a file that is not in it is none.
    fs::read_dir(folder)
        .map_err(|error| Failure::reading(folder, &error).of_setting("serve.documents"))?;
    for (name, document) in [
        ("terms.md", &mut documents.terms),
        ("sponsors.md", &mut documents.sponsors),
    ] {
        if let Some(text) = text(&folder.join(name))? {
            *document = Document::of(&text);
        }
    }
    if let Some(text) = text(&folder.join("privacy.md"))? {
        documents.privacy = Some(text.into());
    }
    let file = folder.join("news.toml");
    match text(&file)? {
        Some(text) => Ok(documents.with_news(news(&file, &text)?)),
        None => Ok(documents),
    }
}

fn text(file: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::reading(file, &error)),
    }
}

fn news(file: &Path, text: &str) -> Result<Vec<News>, Failure> {
    let wrong = |what: String| {
        Failure::new(
            Exit::BadConfiguration,
            format!("{}: {what}", file.display()),
        )
    };
    let read: NewsFile = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let all = read
        .news
        .into_iter()
        .map(|entry| match is_date(&entry.date) {
            true => Ok(entry.into()),
            false => Err(wrong(format!(
                "date must be like \"2026-01-31\", found {:?}",
                entry.date
            ))),
        });
    all.collect()
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let number = |part: &str, digits: usize| match part.len() == digits {
        true if part.bytes().all(|byte| byte.is_ascii_digit()) => part.parse::<u32>().ok(),
        _ => None,
    };
    number(year, 4).is_some()
        && number(month, 2).is_some_and(|month| (1..=12).contains(&month))
        && number(day, 2).is_some_and(|day| (1..=31).contains(&day))
}

impl From<NewsEntry> for News {
    fn from(entry: NewsEntry) -> Self {
        Self {
            date: entry.date,
            text: entry.text,
            title: entry.title,
            importance: entry.importance,
            tags: entry.tags,
            links: entry.links,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::read;

    #[test]
    fn files_of_the_operator_take_the_place_of_our_texts() {
        let folder = tempfile::tempdir().unwrap();
        let ours = read(None).unwrap();
        fs::write(folder.path().join("terms.md"), "# Be kind").unwrap();
        let news = "[[news]]\ndate = \"2026-01-02\"\ntext = \"old\"\n[[news]]\ndate = \"2026-02-03\"\ntext = \"new\"\ntags = [\"a\"]\n";
        fs::write(folder.path().join("news.toml"), news).unwrap();
        let theirs = read(Some(folder.path())).unwrap();
        assert_eq!(&*theirs.terms.html, "<h1>Be kind</h1>\n");
        assert_eq!(theirs.privacy, None);
        assert_eq!(theirs.sponsors, ours.sponsors);
        let texts: Vec<&str> = theirs.news.iter().map(|news| &*news.text).collect();
        assert_eq!(texts, ["new", "old"]);
    }

    #[test]
    fn news_that_cannot_be_read_are_said_to_be_wrong() {
        let folder = tempfile::tempdir().unwrap();
        for wrong in [
            "[[news]]\ndate = \"2026-13-01\"\ntext = \"t\"",
            "[[news]]\ndate = \"yesterday\"\ntext = \"t\"",
            "[[news]]\ntext = \"t\"",
            "[[news]]\ndate = \"2026-01-01\"\ntext = \"t\"\ncolour = \"red\"",
        ] {
            fs::write(folder.path().join("news.toml"), wrong).unwrap();
            assert!(read(Some(folder.path())).is_err(), "{wrong}");
        }
        assert!(read(Some(&folder.path().join("nowhere"))).is_err());
    }
}
