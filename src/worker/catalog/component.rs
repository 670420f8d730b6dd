//! Components of a model with files in other sources: a separate source, or another model of the catalog, whose files
//! are then stored once for both.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::complete::{is_one_file, refuse_incomplete_component};
use super::file::{SourceToml, parsed, quantization, source};
use super::keys::unknown;
use super::kinds::rules;
use super::{Catalog, CatalogError, Entry, Kind, Source, names};
use crate::hub::{self, FilePath};

/// The source of a component's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// The model of the catalog that has the files.
    pub model: Option<String>,
    /// The folder in the source; empty for its top.
    pub folder: String,
    /// By quantization of the model that uses it; a single one applies to all of them.
    sources: BTreeMap<String, Source>,
}

/// Files of a model in one quantization.
#[derive(Debug, Clone, Copy)]
pub struct EntrySource<'a> {
    /// The component of these files, with its name; `None` for the model's own files.
    pub component: Option<(&'a str, &'a Component)>,
    pub source: &'a Source,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentToml {
    model: Option<String>,
    folder: Option<String>,
    #[serde(default)]
    sources: BTreeMap<String, SourceToml>,
}

pub const COMPONENT: &[&str] = &["model", "folder", "sources"];

impl Component {
    fn source(&self, quantization: &str) -> Option<&Source> {
        let named = self.sources.get(quantization);
        named.or_else(|| self.sources.values().next())
    }
}

impl Entry {
    /// The model's own files in a quantization, then those of its components in other sources.
    pub fn sources_of(&self, quantization: &str) -> Vec<EntrySource<'_>> {
        let Ok((quantization, own)) = self.source(Some(quantization)) else {
            return Vec::new();
        };
        let own = EntrySource {
            component: None,
            source: own,
        };
        let components = self.components.iter().filter_map(|(name, component)| {
            Some(EntrySource {
                component: Some((name, component)),
                source: component.source(quantization)?,
            })
        });
        [own].into_iter().chain(components).collect()
    }

    /// The files of one component in a quantization, and the folder in them; none of a model that has no folders.
    pub fn component_source(&self, quantization: &str, name: &str) -> Option<(Source, String)> {
        let (quantization, own) = self.source(Some(quantization)).ok()?;
        match self.components.get(name) {
            Some(component) => {
                let source = component.source(quantization)?;
                Some((source.clone(), component.folder.clone()))
            }
            None => Some((below(own, name), name.to_owned())),
        }
    }
}

impl Catalog {
    /// Each quantization of each model, with all its files.
    pub fn quantized(&self) -> impl Iterator<Item = (&Entry, &str, Vec<EntrySource<'_>>)> {
        self.entries().iter().flat_map(|entry| {
            let names = entry.sources.keys().map(String::as_str);
            names.map(move |name| (entry, name, entry.sources_of(name)))
        })
    }
}

/// Paths in the entry are relative to `folder`.
pub fn read(
    raw: BTreeMap<String, ComponentToml>,
    folder: Option<&Path>,
    kind: Kind,
) -> Result<BTreeMap<String, Component>, String> {
    let read = |(name, raw): (String, ComponentToml)| {
        let known = rules(kind).folders;
        if known.is_empty() {
            return Err(format!(
                "a model of the kind {} has no components",
                kind.name()
            ));
        }
        if !known.contains(&name.as_str()) {
            return Err(unknown("component", &name, known));
        }
        let component = component(&name, raw, folder);
        let component = component.map_err(|what| format!("components.{name}: {what}"))?;
        Ok((name, component))
    };
    raw.into_iter().map(read).collect()
}

fn component(name: &str, raw: ComponentToml, folder: Option<&Path>) -> Result<Component, String> {
    let has_sources = !raw.sources.is_empty();
    let inside = match (&raw.model, raw.folder) {
        (Some(_), _) if has_sources => {
            return Err("a component has either a model or sources".to_owned());
        }
        (None, _) if !has_sources => {
            return Err("a component needs a model of the catalog or sources".to_owned());
        }
        (_, Some(inside)) => inside,
        (Some(_), None) => name.to_owned(),
        (None, None) => String::new(),
    };
    if !inside.is_empty() {
        // As safe to join as the path of a file.
        parsed::<FilePath>(&format!("{inside}/config.json"))
            .map_err(|_| format!("invalid folder {inside:?}: expected a path such as vae"))?;
    }
    let check = |source: &hub::Source| refuse_incomplete_component(name, &inside, source);
    let read = |(word, raw): (String, SourceToml)| {
        quantization(&word)?;
        let source =
            source(raw, folder, check).map_err(|what| format!("sources.{word}: {what}"))?;
        Ok((word, source))
    };
    let sources = raw.sources.into_iter().map(read);
    Ok(Component {
        sources: sources.collect::<Result<_, String>>()?,
        model: raw.model,
        folder: inside,
    })
}

/// The own files of a model and its components must not be in each other's way.
pub fn check(entry: &Entry) -> Result<(), String> {
    for (name, component) in &entry.components {
        let prefix = format!("{name}/");
        for (quantization, source) in &entry.sources {
            let Source::Hub(source) = source else {
                continue;
            };
            if source
                .files
                .iter()
                .any(|file| file.path.as_str().starts_with(&prefix))
            {
                return Err(format!(
                    "sources.{quantization} lists files of {prefix}, which components.{name} replaces; remove them"
                ));
            }
            let taken = rules(entry.kind()).of_one_file;
            if is_one_file(source) && !taken.contains(&name.as_str()) {
                return Err(format!(
                    "components.{name}: a model in one file takes only {}",
                    taken.join(", ")
                ));
            }
        }
        let several = component.sources.len() > 1;
        let has = |quantization: &&String| component.sources.contains_key(*quantization);
        if let Some(without) = entry.sources.keys().find(|it| several && !has(it)) {
            return Err(format!(
                "components.{name}.sources has no {without}, which the model has"
            ));
        }
    }
    Ok(())
}

/// Finds the files of components that are other models.
pub fn resolve(entries: &mut [Entry]) -> Result<(), CatalogError> {
    let mut found = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        for (name, component) in &entry.components {
            let Some(model) = &component.model else {
                continue;
            };
            let component = of_model(entry, name, &component.folder, model, entries);
            let component = component.map_err(|what| CatalogError::Entry {
                place: format!("the catalog entry of {}", entry.id),
                what: format!("components.{name}: {what}"),
            })?;
            found.push((at, name.clone(), component));
        }
    }
    for (at, name, component) in found {
        if let Some(entry) = entries.get_mut(at) {
            entry.components.insert(name, component);
        }
    }
    Ok(())
}

fn of_model(
    entry: &Entry,
    name: &str,
    folder: &str,
    model: &str,
    entries: &[Entry],
) -> Result<Component, String> {
    let other = names::find(entries, model).map_err(|error| error.to_string())?;
    if other.id == entry.id {
        return Err("a model cannot be a component of itself".to_owned());
    }
    let theirs = other.components.get(folder);
    if let Some(next) = theirs.and_then(|theirs| theirs.model.as_ref()) {
        return Err(format!("{folder} of {model} is one of {next}; name {next}"));
    }
    let source = |quantization: &String| {
        let usual = &other.default_quantization;
        let word = match other.sources.contains_key(quantization) {
            true => quantization,
            false => usual,
        };
        let source = match theirs {
            Some(theirs) => theirs.source(word).cloned(),
            None => other.sources.get(word).map(|source| below(source, folder)),
        };
        let source = source.ok_or_else(|| format!("{model} has no source"))?;
        if let Source::Hub(source) = &source {
            let inside = theirs.map_or(folder, |theirs| &theirs.folder);
            let complete = refuse_incomplete_component(name, inside, source);
            complete.map_err(|what| format!("{model}: {what}"))?;
        }
        Ok((quantization.clone(), source))
    };
    Ok(Component {
        model: Some(other.id.clone()),
        folder: theirs.map_or(folder, |theirs| &theirs.folder).to_owned(),
        sources: entry
            .sources
            .keys()
            .map(source)
            .collect::<Result<_, String>>()?,
    })
}

/// The files of a source in one of its folders.
fn below(source: &Source, folder: &str) -> Source {
    let Source::Hub(hub) = source else {
        return source.clone();
    };
    let prefix = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let files = hub.files.iter();
    let inside = files.filter(|file| file.path.as_str().starts_with(&prefix));
    Source::Hub(hub::Source {
        files: inside.cloned().collect(),
        ..hub.clone()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{DRAWING, read};
    use super::*;

    /// The entry of an image model, without the text encoder and with these lines.
    fn borrower(more: &str) -> String {
        let encoder = "  { path = \"text_encoder/config.json\" },\n  { path = \"text_encoder/model.safetensors\" },\n";
        assert!(DRAWING.contains(encoder), "{DRAWING}");
        let text = DRAWING
            .replace(encoder, "")
            .replace("\"draws\"", "\"borrows\"");
        format!("{}\n{more}", text.replace("\"Draws\"", "\"Borrows\""))
    }

    #[test]
    fn a_component_has_files_of_its_own_or_those_of_another_model() {
        let own = borrower(
            "[components.text_encoder.sources.f16]\nrepository = \"org/encoder\"\n\
         files = [{ path = \"config.json\", size = 5 }, { path = \"model.safetensors\", size = 7 }]",
        );
        let entry = read(&own).unwrap();
        let sources = entry.sources_of("f16");
        assert_eq!(sources.len(), 2);
        let (name, component) = sources[1].component.unwrap();
        assert_eq!((name, component.folder.as_str()), ("text_encoder", ""));
        // Only stated sizes of all files replace the estimate.
        assert_eq!(entry.weight_bytes("f16"), Some(2_000_000_000));

        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("draws.toml"), DRAWING).unwrap();
        let lent = borrower("[components.text_encoder]\nmodel = \"Draws\"");
        fs::write(folder.path().join("borrows.toml"), &lent).unwrap();
        let catalog = Catalog::open(Some(folder.path())).unwrap();
        let entry = catalog.find("borrows").unwrap();
        let sources = entry.sources_of("f16");
        let Source::Hub(source) = sources[1].source else {
            panic!("{sources:?}")
        };
        let files: Vec<&str> = source.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            files,
            ["text_encoder/config.json", "text_encoder/model.safetensors"]
        );
        let (_, component) = sources[1].component.unwrap();
        assert_eq!(component.model.as_deref(), Some("draws"));
        assert_eq!(component.folder, "text_encoder");

        // A third model names the owner, not the second one.
        let third = lent
            .replace("orrows\"", "orrows2\"")
            .replace("\"Draws\"", "\"borrows\"");
        fs::write(folder.path().join("third.toml"), third).unwrap();
        let refused = Catalog::open(Some(folder.path())).unwrap_err().to_string();
        assert!(
            refused.contains("text_encoder of borrows is one of Draws; name Draws"),
            "{refused}"
        );
    }

    #[test]
    fn a_component_that_cannot_be_used_is_refused() {
        let refused = |more: &str, reason: &str| {
            let found = read(&borrower(more)).unwrap_err();
            assert!(found.contains(reason), "{found}");
        };
        refused("", "also needs text_encoder/config.json");
        refused(
            "[components.text_encoder]",
            "needs a model of the catalog or sources",
        );
        refused(
            "[components.transformer]\nmodel = \"x\"",
            "unknown component transformer",
        );
        refused(
            "[components.text_encoder]\nmodle = \"x\"",
            "did you mean model?",
        );
        refused(
            "[components.text_encoder]\nmodel = \"x\"\nfolder = \"../x\"",
            "invalid folder",
        );
        let source = |quantization: &str, file: &str| {
            format!(
                "[components.text_encoder.sources.{quantization}]\nrepository = \"org/encoder\"\n\
             files = [{{ path = \"{file}\" }}, {{ path = \"model.safetensors\" }}]\n"
            )
        };
        refused(
            &source("f16", "tokenizer.json"),
            "a component also needs config.json",
        );
        let two = source("q8_0", "config.json") + &source("q4_0", "config.json");
        refused(&two, "components.text_encoder.sources has no f16");
        let vae = "[components.vae]\nmodel = \"x\"\n[components.text_encoder]\nmodel = \"x\"";
        refused(vae, "sources.f16 lists files of vae/");
        let hears = "id = \"hears\"\nfamily = \"whisper\"\nkind = \"hearing\"\nlicence = \"MIT\"\nparameters = 1\n\
                 default_quantization = \"f32\"\nnames = { v1 = [\"hears\"] }\n\
                 sources.f32 = { path = \"x\" }\ncomponents.vae.model = \"x\"";
        let found = read(hears).unwrap_err();
        assert!(
            found.contains("a model of the kind transcription has no components"),
            "{found}"
        );

        let folder = tempfile::tempdir().unwrap();
        let write = |model: &str| {
            let text = borrower(&format!("[components.text_encoder]\nmodel = \"{model}\""));
            fs::write(folder.path().join("borrows.toml"), text).unwrap();
            Catalog::open(Some(folder.path())).unwrap_err().to_string()
        };
        assert!(write("nothing-like-it").contains("unknown model nothing-like-it"));
        assert!(write("borrows").contains("a component of itself"));
        assert!(write("qwen3-4b").contains("no files of text_encoder are listed"));
    }

    #[test]
    fn entries_of_this_program_share_text_encoders() {
        let catalog = Catalog::builtin().unwrap();
        for (name, quantization, of) in [
            ("sdxl-turbo", "f16", "stable-diffusion-xl"),
            ("wan-2.1-t2v-1.3b", "f32", "wan-2.2-ti2v-5b"),
        ] {
            let entry = catalog.find(name).unwrap();
            let own = catalog.find(of).unwrap().source(None).unwrap().1;
            let (Source::Hub(own), sources) = (own, entry.sources_of(quantization)) else {
                panic!("{of} has no repository")
            };
            let lent = sources.iter().filter(|it| it.component.is_some());
            let mut weights = 0;
            for it in lent {
                let Source::Hub(source) = it.source else {
                    panic!("{it:?}")
                };
                assert_eq!(source.repository, own.repository);
                assert!(source.files.iter().all(|file| own.files.contains(file)));
                weights += source
                    .files
                    .iter()
                    .filter(|file| file.path.is_weights())
                    .count();
            }
            assert!(weights > 1, "{name}");
        }
    }
}
