//! Plain technical English, counted. Text that users read (strings, command help, documents, examples) keeps to zero;
//! comments and type names have a ceiling per crate that may only fall.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::sync::LazyLock;

use regex::Regex;
use syn::visit::{self, Visit};

use crate::documents::{self, read};
use crate::layering::{Source, root, sources};

/// Matches in comments, per crate: clauses for nouns, nameless actors, bare subjects.
const COMMENTS: &[(&str, [usize; 3])] = &[
    ("config", [1, 0, 0]),
    ("coordinator", [0, 0, 0]),
    ("engine", [0, 0, 0]),
    ("kernels", [0, 0, 0]),
    ("muster", [2, 0, 0]),
    ("process", [0, 0, 0]),
    ("protocol", [0, 0, 0]),
    ("worker", [0, 0, 0]),
];

/// Type names, per crate: participles, names that occur more than once.
const TYPES: &[(&str, [usize; 2])] = &[
    ("config", [4, 0]),
    ("coordinator", [105, 151]),
    ("engine", [10, 13]),
    ("kernels", [3, 3]),
    ("muster", [5, 33]),
    ("process", [1, 0]),
    ("protocol", [11, 6]),
    ("worker", [23, 13]),
];

/// A pattern of the old style, and what its matches are called.
const PATTERNS: [(&str, &str); 3] = [
    (
        "clause for a noun",
        r"(?i)\b(?:what|who) (?:is|are|was|were|has|have|had)\b",
    ),
    (
        "nameless actor",
        r"(?i)\b(?:whoever|somebody|nobody|anybody|everybody)\b",
    ),
    (
        "bare subject",
        r"(?:^|[.!?:] +)(?:(?:It|Its|They|Those)\b|One (?:is|has|of|that|which|who|whose|for|per|in|on|by|to|with)\b)",
    ),
];

/// The clause for a noun in comments, which ask no questions: "what a row holds" is "content of a row".
const CLAUSE_IN_COMMENTS: &str = r"(?i)\b(?:what (?:is|are|was|were|has|have|had|they|it|a|an|the|can|may|must)|who (?:is|are|was|were|has|have|had))\b";

/// Names of types that are participles without `ed`.
const PARTICIPLES: &[&str] = &[
    "Brought",
    "Built",
    "Chosen",
    "Drawn",
    "Found",
    "Given",
    "Gone",
    "Held",
    "Hidden",
    "Kept",
    "Known",
    "Left",
    "Lent",
    "Made",
    "Met",
    "Mine",
    "Paid",
    "Put",
    "Read",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Sold",
    "Spent",
    "Spoken",
    "Sought",
    "Taken",
    "Told",
    "Understood",
    "Untold",
    "Written",
];

#[test]
fn text_for_users_is_plain() {
    let mut found = String::new();
    for (place, text) in strings().into_iter().chain(help()).chain(documents()) {
        for (name, matched) in matches(&text) {
            let _ = writeln!(found, "{place}: {name} `{matched}`: {text}");
        }
    }
    assert!(
        found.is_empty(),
        "{} lines:\n{found}",
        found.lines().count()
    );
}

#[test]
fn comments_grow_plainer() {
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for Source { name: file, text } in sources() {
        let count = counts.entry(crate_of(&file).to_owned()).or_default();
        for sentence in comments(&text) {
            for (at, pattern) in IN_COMMENTS.iter().enumerate() {
                count[at] += pattern.find_iter(&sentence).count();
            }
        }
    }
    hold(&counts, COMMENTS);
}

#[test]
fn types_are_noun_phrases_and_unique_in_their_crate() {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Source { name: file, text } in sources() {
        let mut types = Types::default();
        types.visit_file(&syn::parse_file(&text).unwrap());
        let krate = names.entry(crate_of(&file).to_owned()).or_default();
        krate.extend(types.names);
    }
    let count = |names: Vec<String>| {
        let participles = names.iter().filter(|name| is_participle(name)).count();
        let unique: BTreeSet<&String> = names.iter().collect();
        [participles, names.len() - unique.len()]
    };
    let counts = names.into_iter().map(|(name, list)| (name, count(list)));
    hold(&counts.collect(), TYPES);
}

#[test]
fn planted_sentences_are_counted() {
    let check = |text: &str, expected: &[&str]| {
        let found: Vec<_> = matches(text).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, expected, "{text}");
    };
    check("The model is what was asked for.", &["clause for a noun"]);
    check("nobody reads this", &["nameless actor"]);
    check("The queue is full. It was read late.", &["bare subject"]);
    check("One of the keys. One key is left.", &["bare subject"]);
    let in_comment = |text: &str| IN_COMMENTS[0].find_iter(text).count();
    assert_eq!(in_comment("What a row holds, and what it may be."), 2);
    assert_eq!(
        in_comment("What rows hold, for a caller who may see them."),
        0
    );
    check("What is Muster?", &[]);
    check("the worker reads its file, one line at a time", &[]);
    assert!(is_participle("Asked") && is_participle("Told") && !is_participle("UserId"));
    let code = "// a \"b\"\nlet x = \"it \\\n    is\"; let c = '\"'; f(r#\"raw\"#); /* \"no\" */\n";
    assert_eq!(string_literals(code), ["it is", "raw"]);
}

fn hold<const N: usize>(counts: &BTreeMap<String, [usize; N]>, ceilings: &[(&str, [usize; N])]) {
    let ceiling = |name: &str| ceilings.iter().find(|(listed, _)| *listed == name);
    let over = |name: &str, count: &[usize; N]| match ceiling(name) {
        Some((_, most)) => count.iter().zip(most).any(|(count, most)| count > most),
        None => count.iter().any(|count| *count > 0),
    };
    let wrong: Vec<_> = counts
        .iter()
        .filter(|(name, count)| over(name, count))
        .collect();
    let lower: Vec<_> = counts
        .iter()
        .filter(|(name, count)| ceiling(name).is_some_and(|(_, most)| most != *count))
        .collect();
    assert!(wrong.is_empty(), "over the ceiling: {wrong:?}");
    assert!(
        lower.is_empty(),
        "fewer than the ceiling, which can fall: {lower:?}"
    );
}

static COMPILED: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    let compiled = PATTERNS.map(|(name, pattern)| (name, Regex::new(pattern).unwrap()));
    compiled.into()
});

static IN_COMMENTS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let [_, actor, subject] = PATTERNS.map(|(_, pattern)| pattern);
    let patterns = [CLAUSE_IN_COMMENTS, actor, subject];
    patterns.map(|it| Regex::new(it).unwrap()).into()
});

/// A question may ask what something is.
fn matches(text: &str) -> Vec<(&'static str, String)> {
    let sentences = text.split_inclusive(['.', '!', '?', '\n']);
    let is_question = |at: usize| {
        let mut end = 0;
        let mut sentences = sentences.clone();
        let sentence = sentences.find(|part| {
            end += part.len();
            end > at
        });
        sentence.is_some_and(|part| part.trim_end().ends_with('?'))
    };
    let found = COMPILED.iter().flat_map(|(name, pattern)| {
        pattern
            .find_iter(text)
            .filter(|found| !is_question(found.end()))
            .map(|found| (*name, found.as_str().to_owned()))
    });
    found.collect()
}

fn is_participle(name: &str) -> bool {
    let one_word = name.chars().filter(|c| c.is_uppercase()).count() == 1;
    one_word && (name.ends_with("ed") || PARTICIPLES.contains(&name))
}

/// Literals in code that is not a test.
fn strings() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for Source { name: file, text } in sources() {
        if is_test(&file) {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        found.extend(
            string_literals(code)
                .into_iter()
                .map(|text| (file.clone(), text)),
        );
    }
    assert!(found.len() > 1000, "found only {} strings", found.len());
    found
}

fn is_test(file: &str) -> bool {
    let test_files = ["tests.rs", "golden.rs", "fuzz.rs"];
    file.contains("/tests/") || test_files.iter().any(|name| file.ends_with(name))
}

/// Doc comments that clap prints.
fn help() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let cli = sources().into_iter();
    for Source { name: file, text } in cli.filter(|source| source.name.starts_with("cli/")) {
        let mut help = Help::default();
        help.visit_file(&syn::parse_file(&text).unwrap());
        found.extend(help.texts.into_iter().map(|text| (file.clone(), text)));
    }
    assert!(found.len() > 50, "found only {} help texts", found.len());
    found
}

/// Documents, by paragraph, without their code blocks.
fn documents() -> Vec<(String, String)> {
    let built_in = "src/coordinator/documents";
    let built_in = fs::read_dir(root().join(built_in))
        .unwrap()
        .map(|entry| format!("{built_in}/{}", entry.unwrap().file_name().display()))
        .filter(|file| file.ends_with(".md"));
    let further = ["benches/RESULTS.md", "worker.example.toml"].map(str::to_owned);
    let files = documents::documents().into_iter().chain(built_in);
    let files = files.chain(further);
    files.flat_map(|file| paragraphs(&file)).collect()
}

fn paragraphs(file: &str) -> Vec<(String, String)> {
    let text = read(file);
    let outside = text.split("```").step_by(2);
    let lines = outside
        .flat_map(str::lines)
        .map(|line| line.trim_start_matches(['#', '-', '|', ' ']));
    let mut found = vec![String::new()];
    for line in lines {
        if line.is_empty() {
            found.push(String::new());
        }
        let last = found.last_mut().unwrap();
        let _ = write!(last, "{}{line}", if last.is_empty() { "" } else { " " });
    }
    found
        .into_iter()
        .map(|text| (file.to_owned(), text))
        .collect()
}

/// The comments of a file, neighbouring lines joined.
fn comments(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for line in text.lines() {
        match line.trim_start().strip_prefix("//") {
            Some(comment) => {
                let comment = comment.trim_start_matches(['/', '!']).trim();
                let last = found.last_mut().unwrap();
                let _ = write!(last, "{}{comment}", if last.is_empty() { "" } else { " " });
            }
            None => found.push(String::new()),
        }
    }
    found.retain(|text| !text.is_empty());
    found
}

/// Text between quotes; line continuations are joined, escapes stay as they are.
fn string_literals(code: &str) -> Vec<String> {
    static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
        let raw = r##"r#"(?<hashed>(?s:.*?))"#|\br"(?<raw>[^"]*)""##;
        let plain = r#""(?<plain>(?:\\(?s:.)|[^"\\])*)""#;
        let skipped = r"//[^\n]*|/\*(?s:.*?)\*/|'(?:\\.[^']*|[^'\\])'";
        Regex::new(&format!("{skipped}|{raw}|{plain}")).unwrap()
    });
    static CONTINUED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\\\n\s*").unwrap());
    let text = |found: regex::Captures| {
        let literal = ["hashed", "raw", "plain"]
            .iter()
            .find_map(|name| found.name(name))?;
        Some(CONTINUED.replace_all(literal.as_str(), "").into_owned())
    };
    TOKEN.captures_iter(code).filter_map(text).collect()
}

fn crate_of(file: &str) -> &str {
    match file.split_once('/') {
        Some(("cli", _)) | None => "muster",
        Some((name, _)) => name,
    }
}

#[derive(Default)]
struct Types {
    names: Vec<String>,
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.names.push(item.ident.to_string());
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.names.push(item.ident.to_string());
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.names.push(item.ident.to_string());
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.names.push(item.ident.to_string());
    }
}

/// Doc comments of the types that derive clap's traits, and of their fields and variants.
#[derive(Default)]
struct Help {
    texts: Vec<String>,
}

impl Help {
    fn read(&mut self, attributes: &[syn::Attribute]) {
        let lines = attributes
            .iter()
            .filter_map(|attribute| match &attribute.meta {
                syn::Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
                    syn::Expr::Lit(syn::ExprLit {
                        lit: syn::Lit::Str(text),
                        ..
                    }) => Some(text.value()),
                    _ => None,
                },
                _ => None,
            });
        let text = lines.collect::<Vec<_>>().join(" ");
        if !text.is_empty() {
            self.texts.push(text.trim().to_owned());
        }
    }

    fn is_printed(attributes: &[syn::Attribute]) -> bool {
        attributes.iter().any(|attribute| match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("derive") => {
                let derived = list.tokens.to_string();
                ["Parser", "Args", "Subcommand", "ValueEnum"]
                    .iter()
                    .any(|name| derived.contains(name))
            }
            _ => false,
        })
    }
}

impl<'ast> Visit<'ast> for Help {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if Self::is_printed(&item.attrs) {
            self.read(&item.attrs);
            item.fields.iter().for_each(|field| self.read(&field.attrs));
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if Self::is_printed(&item.attrs) {
            self.read(&item.attrs);
            for variant in &item.variants {
                self.read(&variant.attrs);
                variant
                    .fields
                    .iter()
                    .for_each(|field| self.read(&field.attrs));
            }
        }
    }
}
