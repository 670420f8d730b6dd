//! Modules that use each other in a circle have no order in which to read or to test them.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::Named;
use super::{Source, is_of_tests, sources};

/// Folders whose modules, files and folders, stand in an order: none uses itself by way of others.
const ORDERED: &[&str] = &[
    "coordinator",
    "coordinator/http",
    "coordinator/http/openai",
    "protocol",
    "protocol/job",
    "protocol/link",
    "protocol/openai",
    "worker",
];

/// The modules of a folder, and which of the others each of them uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_module_uses_itself_by_way_of_others() {
    let sources = sources();
    let circles: Vec<String> = ORDERED
        .iter()
        .filter_map(|folder| {
            let uses = uses_in(folder, &sources);
            assert!(uses.len() > 2, "found {} modules in {folder}", uses.len());
            let circle = circle_in(&uses)?;
            Some(format!("src/{folder}: {}", circle.join(" -> ")))
        })
        .collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn a_planted_circle_is_found() {
    let files = |texts: [(&str, &str); 3]| -> Vec<Source> {
        let source = |(name, text): (&str, &str)| Source {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        texts.into_iter().map(source).collect()
    };
    let first = ("protocol/first.rs", "use crate::second::B; struct A(B);");
    let second = (
        "protocol/second/mod.rs",
        "use super::third; pub struct B(third::C);",
    );
    let circle = ("protocol/third.rs", "fn f() { crate::first::g() }");
    let found = circle_in(&uses_in("protocol", &files([first, second, circle])));
    assert_eq!(found.unwrap(), ["first", "second", "third", "first"]);
    let tests_alone = (
        "protocol/third.rs",
        "#[cfg(doc)] use crate::first; #[cfg(test)] mod tests { use crate::first::A; }",
    );
    let found = circle_in(&uses_in("protocol", &files([first, second, tests_alone])));
    assert_eq!(found, None);
}

fn uses_in(folder: &str, sources: &[Source]) -> Uses {
    let inside = |source: &Source| {
        let rest = source.name.strip_prefix(folder)?.strip_prefix('/')?;
        let module = rest.split('/').next()?.trim_end_matches(".rs");
        (!is_of_tests(rest) && module != "mod").then(|| module.to_owned())
    };
    let mut uses = Uses::new();
    for source in sources {
        if let Some(module) = inside(source) {
            uses.entry(module).or_default();
        }
    }
    // The path of the folder from the root of its crate.
    let above: Vec<&str> = std::iter::once("crate")
        .chain(folder.split('/').skip(1))
        .collect();
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for source in sources {
        let Some(module) = inside(source) else {
            continue;
        };
        let named = Named::outside_tests(&source.name, &source.text);
        let siblings = named.paths.iter().filter_map(|path| {
            let is_below = path.iter().zip(&above).all(|(part, above)| part == above);
            path.get(above.len()).filter(|_| is_below)
        });
        let siblings = siblings.filter(|name| modules.contains(*name) && **name != module);
        let used: Vec<String> = siblings.cloned().collect();
        uses.entry(module).or_default().extend(used);
    }
    uses
}

/// The modules of a circle, from one of them back to it.
fn circle_in(uses: &Uses) -> Option<Vec<String>> {
    uses.keys().find_map(|module| way_back(module, uses))
}

/// The shortest way from a module to itself.
fn way_back(module: &str, uses: &Uses) -> Option<Vec<String>> {
    let mut ways = vec![vec![module.to_owned()]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = way.last().expect("a way begins with a module");
            for next in uses.get(last).into_iter().flatten() {
                let mut way = way.clone();
                way.push(next.clone());
                if next == module {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}
