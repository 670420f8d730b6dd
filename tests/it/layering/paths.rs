//! All paths that a source file names, as complete as the file alone allows: `use` trees are unfolded, `self` and
//! `super` resolved, imported names expanded, macros searched.

use std::collections::HashMap;

use super::root;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, UseTree};

pub struct Named {
    pub paths: Vec<Vec<String>>,
    /// The last names of derived traits.
    pub derives: Vec<String>,
}

impl Named {
    /// `file` is relative to `src/`.
    pub fn in_file(file: &str, text: &str) -> Self {
        let syntax = syn::parse_file(text).unwrap_or_else(|error| panic!("src/{file}: {error}"));
        Self::in_syntax(file, &syntax)
    }

    /// The same without items of tests and of documents.
    pub fn outside_tests(file: &str, text: &str) -> Self {
        let mut syntax =
            syn::parse_file(text).unwrap_or_else(|error| panic!("src/{file}: {error}"));
        syntax.items.retain(|item| !is_conditional(item));
        Self::in_syntax(file, &syntax)
    }

    fn in_syntax(file: &str, syntax: &syn::File) -> Self {
        let mut imports = Reader::new(file, Stage::Imports);
        imports.visit_file(syntax);
        let mut reader = Reader::new(file, Stage::Everything);
        reader.brought_in = imports.brought_in;
        reader.visit_file(syntax);
        Self {
            paths: reader.paths,
            derives: reader.derives,
        }
    }
}

/// Whether an item exists for tests or documents alone.
fn is_conditional(item: &Item) -> bool {
    let attributes = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        let condition = attribute.meta.require_list();
        condition.is_ok_and(|list| {
            list.path.is_ident("cfg") && ["test", "doc"].contains(&list.tokens.to_string().as_str())
        })
    })
}

/// A file's path from the root of its crate: a folder of `src/` with a manifest is one.
fn in_crate(file: &str) -> &str {
    match file.split_once('/') {
        Some((krate, rest)) if root().join("src").join(krate).join("Cargo.toml").exists() => rest,
        _ => file,
    }
}

#[derive(PartialEq)]
enum Stage {
    Imports,
    Everything,
}

struct Reader {
    stage: Stage,
    /// The module the file is, and the inline modules inside it that we are in.
    module: Vec<String>,
    brought_in: HashMap<String, Vec<String>>,
    paths: Vec<Vec<String>>,
    derives: Vec<String>,
}

impl Reader {
    fn new(file: &str, stage: Stage) -> Self {
        let mut module: Vec<String> = in_crate(file)
            .trim_end_matches(".rs")
            .split('/')
            .map(str::to_owned)
            .collect();
        if matches!(
            module.last().map(String::as_str),
            Some("mod" | "lib" | "main")
        ) {
            module.pop();
        }
        Self {
            stage,
            module,
            brought_in: HashMap::new(),
            paths: Vec::new(),
            derives: Vec::new(),
        }
    }

    fn absolute(&self, path: &[String]) -> Vec<String> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let own = path.first().is_some_and(|name| name == "self");
        if supers == 0 && !own {
            return self.expanded(path);
        }
        let depth = self.module.len().saturating_sub(supers);
        let rest = path.iter().skip(supers + usize::from(own));
        let above = self.module[..depth].iter();
        std::iter::once("crate".to_owned())
            .chain(above.chain(rest).cloned())
            .collect()
    }

    fn expanded(&self, path: &[String]) -> Vec<String> {
        match path.first().and_then(|name| self.brought_in.get(name)) {
            Some(whole) => whole.iter().chain(&path[1..]).cloned().collect(),
            None => path.to_vec(),
        }
    }

    fn unfold(&mut self, tree: &UseTree, mut prefix: Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.unfold(&path.tree, prefix);
            }
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|item| self.unfold(item, prefix.clone())),
            UseTree::Name(name) => self.bring_in(prefix, name.ident.to_string(), None),
            UseTree::Rename(rename) => self.bring_in(
                prefix,
                rename.ident.to_string(),
                Some(rename.rename.to_string()),
            ),
            UseTree::Glob(_) => self.bring_in(prefix, "self".to_owned(), None),
        }
    }

    fn bring_in(&mut self, mut path: Vec<String>, name: String, renamed: Option<String>) {
        if name != "self" {
            path.push(name);
        }
        let whole = self.absolute(&path);
        let known_as = renamed
            .or_else(|| whole.last().cloned())
            .unwrap_or_default();
        if self.stage == Stage::Imports && whole.len() > 1 {
            self.brought_in.insert(known_as, whole);
        } else {
            self.paths.push(whole);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.unfold(&item.tree, Vec::new());
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_some() {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        self.paths.push(self.absolute(&names));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, found: &'ast Macro) {
        for path in paths_in_tokens(&found.tokens.to_string()) {
            self.paths.push(self.absolute(&path));
        }
        visit::visit_macro(self, found);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("derive") {
            let _ = attribute.parse_nested_meta(|meta| {
                self.derives
                    .extend(meta.path.segments.last().map(|part| part.ident.to_string()));
                Ok(())
            });
        }
        visit::visit_attribute(self, attribute);
    }
}

/// Runs of names joined by `::` in the text of a token stream, string literals left out.
fn paths_in_tokens(tokens: &str) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut joined = false;
    for word in words(&without_strings(tokens)) {
        match word.as_str() {
            "::" => joined = true,
            name if is_name(name) => {
                if !joined {
                    found.push(Vec::new());
                }
                found
                    .last_mut()
                    .expect("starts with one")
                    .push(name.to_owned());
                joined = false;
            }
            _ => {
                found.push(Vec::new());
                joined = false;
            }
        }
    }
    found.retain(|path| path.len() > 1);
    found
}

fn words(tokens: &str) -> Vec<String> {
    let spaced: String = tokens
        .replace("::", " :: ")
        .chars()
        .flat_map(|c| {
            let is_part = c.is_alphanumeric() || matches!(c, '_' | ':' | ' ');
            if is_part { vec![c] } else { vec![' ', c, ' '] }
        })
        .collect();
    spaced.split_whitespace().map(str::to_owned).collect()
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn without_strings(tokens: &str) -> String {
    let mut kept = String::new();
    let mut chars = tokens.chars();
    while let Some(c) = chars.next() {
        if c != '"' {
            kept.push(c);
            continue;
        }
        while let Some(inside) = chars.next() {
            match inside {
                '\\' => drop(chars.next()),
                '"' => break,
                _ => {}
            }
        }
        kept.push(' ');
    }
    kept
}
