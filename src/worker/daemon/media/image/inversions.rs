//! Textual inversions of a request: files of the worker's folder, by their names in prompts and in lists. Strangers' files
//! are not downloaded.

use std::path::{Path, PathBuf};

use super::request::{named_file, unsupported};
use muster_engine::runtime::image::Inversion;
use muster_engine::runtime::image::inversion_words;
use muster_protocol::job::{Failure, ImageRequest, PromptSide, TextualInversion};

/// The prompts of a request with the inversions that it lists added, and the files of all that they name.
#[derive(Debug, Default, PartialEq)]
pub struct InvertedPrompts {
    pub shown: String,
    pub excluded: Option<String>,
    pub inversions: Vec<Inversion>,
}

impl InvertedPrompts {
    /// Without a folder, a word of a prompt stays text.
    pub fn of(request: &ImageRequest, folder: Option<&Path>) -> Result<Self, Failure> {
        let mut prompts = Self {
            shown: request.prompt.clone(),
            excluded: request.negative_prompt.clone(),
            inversions: Vec::new(),
        };
        for listed in &request.inversions {
            prompts.add(listed, folder)?;
        }
        if let Some(folder) = folder {
            prompts.find_words(folder)?;
        }
        Ok(prompts)
    }

    /// Adds them before the prompt and after the negative one, like public workers.
    fn add(&mut self, listed: &TextualInversion, folder: Option<&Path>) -> Result<(), Failure> {
        let folder = folder.ok_or_else(|| {
            unsupported("textual inversions are not supported by this worker".to_owned())
        })?;
        let file = named_file(folder, &listed.name).ok_or_else(|| absent(&listed.name))?;
        let Some(side) = listed.prompt else {
            return Ok(());
        };
        let name = listed.name.replace(char::is_whitespace, "_");
        let word = name.replace('(', r"\(").replace(')', r"\)");
        let word = format!("(embedding:{word}:{})", listed.strength);
        match (side, &mut self.excluded) {
            (PromptSide::Shown, _) => self.shown = format!("{word}, {}", self.shown),
            (PromptSide::Excluded, Some(text)) if !text.trim().is_empty() => {
                *text = format!("{text}, {word}");
            }
            (PromptSide::Excluded, text) => *text = Some(word),
        }
        self.know(name, file);
        Ok(())
    }

    fn find_words(&mut self, folder: &Path) -> Result<(), Failure> {
        let prompts = [Some(&self.shown), self.excluded.as_ref()];
        let prompts = prompts.into_iter().flatten();
        let words: Vec<String> = prompts
            .flat_map(|it| inversion_words(it.as_str()))
            .collect();
        let is_known = |known: &[Inversion], word: &str| {
            let mut known = known.iter();
            known.any(|it| word.strip_prefix(&*it.name).is_some_and(ends_a_name))
        };
        let mut files = None;
        for word in &words {
            if is_known(&self.inversions, word) {
                continue;
            }
            let files = files.get_or_insert_with(|| names_in(folder));
            let found = files.iter().filter(|(name, _)| {
                let rest = word.strip_prefix(name.as_str());
                rest.is_some_and(ends_a_name)
            });
            let found = found.max_by_key(|(name, _)| name.len());
            let (name, file) = found.ok_or_else(|| {
                let ends = |it: char| it.is_whitespace() || matches!(it, ',' | ';' | ':');
                absent(word.split(ends).next().unwrap_or_default())
            })?;
            self.know(name.clone(), file.clone());
        }
        Ok(())
    }

    fn know(&mut self, name: String, file: PathBuf) {
        if self.inversions.iter().all(|known| known.name != name) {
            self.inversions.push(Inversion { name, file });
        }
    }
}

/// Whether a name ends before this text.
fn ends_a_name(rest: &str) -> bool {
    let mut rest = rest.chars();
    match (rest.next(), rest.next()) {
        (Some('.'), Some(next)) => !next.is_alphanumeric(),
        (Some(next), _) => !next.is_alphanumeric() && !matches!(next, '_' | '-'),
        (None, _) => true,
    }
}

/// The names in a folder: of each file without its extension, and in common spellings.
fn names_in(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|it| it == "safetensors") && path.is_file());
    let names = files.filter_map(|path| {
        let stem = path.file_stem()?.to_str()?.to_owned();
        let endings = ["", ".safetensors", ".pt"].into_iter();
        Some(endings.map(move |ending| (format!("{stem}{ending}"), path.clone())))
    });
    names.flatten().collect()
}

fn absent(name: &str) -> Failure {
    unsupported(format!("this worker has no textual inversion {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_protocol::job::FailureKind;

    fn request(prompt: &str, listed: &[(&str, f64, Option<PromptSide>)]) -> ImageRequest {
        let inversions = listed
            .iter()
            .map(|(name, strength, prompt)| TextualInversion {
                name: (*name).to_owned(),
                strength: *strength,
                prompt: *prompt,
            });
        ImageRequest {
            prompt: prompt.to_owned(),
            inversions: inversions.collect(),
            ..ImageRequest::default()
        }
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["owl", "owl-2", "a b (c)"] {
            let file = folder.path().join(format!("{name}.safetensors"));
            std::fs::write(file, b"").unwrap();
        }
        std::fs::write(folder.path().join("note.txt"), b"").unwrap();
        folder
    }

    #[test]
    fn words_of_prompts_are_files_of_the_folder() {
        let folder = folder();
        let read = |prompt: &str| InvertedPrompts::of(&request(prompt, &[]), Some(folder.path()));
        for (prompt, name, file) in [
            ("a embedding:owl, b", "owl", "owl"),
            ("(embedding:owl-2:1.2)", "owl-2", "owl-2"),
            ("embedding:owl. End", "owl", "owl"),
            ("embedding:owl.pt", "owl.pt", "owl"),
            (
                "embedding:owl-2.safetensors x",
                "owl-2.safetensors",
                "owl-2",
            ),
        ] {
            let found = read(prompt).unwrap();
            assert_eq!(found.shown, prompt);
            let file = folder.path().join(format!("{file}.safetensors"));
            let name = name.to_owned();
            assert_eq!(found.inversions, [Inversion { name, file }], "{prompt}");
        }
        assert_eq!(read("a cat").unwrap().inversions, []);
        for (prompt, name) in [
            ("embedding:fox, b", "fox"),
            ("embedding:owls", "owls"),
            ("embedding:owl_3", "owl_3"),
            ("embedding:note.txt", "note.txt"),
            ("embedding:../owl", "../owl"),
        ] {
            let failure = read(prompt).unwrap_err();
            assert_eq!(failure.kind, FailureKind::UnsupportedValue);
            let expected = format!("no textual inversion {name:?}");
            assert!(failure.message.contains(&expected), "{failure}");
        }
        let text = InvertedPrompts::of(&request("embedding:owl", &[]), None).unwrap();
        assert_eq!(text.inversions, []);
    }

    #[test]
    fn listed_inversions_are_added_to_the_prompt_that_the_client_names() {
        let folder = folder();
        let listed = [
            ("owl", 1.2, Some(PromptSide::Shown)),
            ("a b (c)", -0.5, Some(PromptSide::Excluded)),
            ("owl-2", 1.0, None),
        ];
        let found = InvertedPrompts::of(&request("a cat", &listed), Some(folder.path())).unwrap();
        assert_eq!(found.shown, "(embedding:owl:1.2), a cat");
        assert_eq!(
            found.excluded.as_deref(),
            Some(r"(embedding:a_b_\(c\):-0.5)")
        );
        let names: Vec<_> = found.inversions.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["owl", "a_b_(c)"]);
        let refused = |name: &str, folder: Option<&Path>| {
            let listed = [(name, 1.0, None)];
            InvertedPrompts::of(&request("a", &listed), folder)
                .unwrap_err()
                .message
        };
        assert!(refused("fox", Some(folder.path())).contains("\"fox\""));
        assert!(refused("../owl", Some(folder.path())).contains("\"../owl\""));
        assert!(refused("owl", None).contains("textual inversions"));
    }
}
