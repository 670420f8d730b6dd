//! The documents tell the truth: `docs/status.md` is held against commands and tests, and every path and link exists.

use std::fs;
use std::path::Path;

use crate::support::worker::worker;

#[test]
fn every_command_is_in_the_table() {
    let rows = rows();
    let missing: Vec<_> = commands()
        .into_iter()
        .filter(|command| !rows.iter().any(|row| row.command() == Some(command)))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/status.md has no row for {missing:?}"
    );
}

#[test]
fn every_command_of_the_table_exists() {
    let commands = commands();
    for row in rows() {
        let known = row
            .command()
            .is_none_or(|name| commands.iter().any(|command| command == name));
        assert!(
            known,
            "the program has no command `worker {:?}`",
            row.command()
        );
    }
}

#[test]
fn what_works_names_a_test_or_a_check_that_exists() {
    for row in rows().iter().filter(|row| row.state != NOT_BUILT) {
        assert!(
            held(&row.held_by),
            "{}: nothing is called {}",
            row.what,
            row.held_by
        );
    }
}

#[test]
fn a_command_that_works_does_not_say_that_it_is_not_built() {
    for row in rows().iter().filter(|row| row.state == WORKS) {
        let Some(command) = row.command() else {
            continue;
        };
        let help = worker(&[command, "--help"]).run().ok();
        assert!(
            !help.contains(NOT_BUILT),
            "{} is not built yet: say so in docs/status.md",
            row.what
        );
    }
}

#[test]
fn what_is_not_built_yet_says_so_and_exits_69() {
    for row in rows().iter().filter(|row| row.state == NOT_BUILT) {
        if row.command().is_none() {
            // Routes say it with a status, to which a test of their own holds them.
            assert!(held(&row.held_by), "nothing holds {} to it", row.what);
            continue;
        }
        let words: Vec<&str> = row.what.trim_matches('`').split(' ').skip(1).collect();
        let run = worker(&words).run();
        let says_so = run.code == 69 && run.stderr.contains(NOT_BUILT);
        assert!(
            says_so,
            "docs/status.md says that {} is not built yet, and it is",
            row.what
        );
    }
}

#[test]
fn every_state_is_one_of_three() {
    for row in rows() {
        let known = [WORKS, NOT_BUILT, COMPILES].contains(&row.state.as_str());
        assert!(known, "{} is {:?}", row.what, row.state);
    }
}

#[test]
fn the_exit_codes_are_those_of_the_program() {
    let help = worker(&["--help"]).run().ok();
    let (_, codes) = help
        .split_once("Exit codes:\n")
        .expect("the help has exit codes");
    for line in codes.lines().take_while(|line| !line.trim().is_empty()) {
        let (code, meaning) = line
            .trim()
            .split_once("  ")
            .expect("a code and its meaning");
        let row = format!("| {code} | {meaning} |");
        assert!(read(STATUS).contains(&row), "docs/status.md lacks {row}");
    }
}

#[test]
fn every_path_that_a_document_names_exists() {
    for document in documents() {
        // Blocks of commands would upset the count of backticks.
        let text = read(&document).replace("```", "\n");
        for path in quoted(&text).filter(|word| is_path(word)) {
            assert!(root().join(path).exists(), "{document} names {path}");
        }
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    for document in documents() {
        let folder = root().join(&document);
        let folder = folder.parent().expect("a document is in a folder");
        for target in links(&read(&document)) {
            let file = target.split('#').next().unwrap_or_default();
            assert!(
                folder.join(file).is_file(),
                "{document} links to {target}, which does not exist"
            );
        }
    }
}

#[test]
fn the_lines_of_example_diffs_are_in_their_files() {
    let mut checked = 0;
    for document in documents() {
        for diff in read(&document).split("```diff\n").skip(1) {
            let (diff, _) = diff.split_once("```").expect("a block of code ends");
            let mut file = String::new();
            for line in diff.lines() {
                if let Some(path) = line.strip_prefix("+++ ") {
                    file = read(path);
                } else if let Some(added) = line.strip_prefix('+') {
                    let is_there = file.lines().any(|line| line == added);
                    assert!(
                        is_there,
                        "{document} shows a line that is not there: {added}"
                    );
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 20, "found only {checked} lines");
}

#[test]
fn the_readme_has_two_commands_to_set_up_and_stays_short() {
    let readme = read("README.md");
    let bytes = readme.len();
    assert!(
        bytes <= 8 << 10,
        "README.md has {bytes} bytes, at most 8192"
    );
    let blocks: Vec<&str> = readme.split("```sh\n").skip(1).collect();
    assert!(
        blocks.len() == 1 && blocks[0].starts_with("cargo run --release -- up\n./test\n```"),
        "README.md has other commands than those two: {blocks:?}"
    );
}

#[test]
fn the_recording_is_small_and_loads_nothing() {
    let recording = read("docs/recording.svg");
    assert!(recording.len() < 300_000);
    for word in ["kill -9", "Killed", "writes the rest of the stream"] {
        assert!(recording.contains(word), "docs/recording.svg lacks {word}");
    }
    let links = recording.replace("http://www.w3.org/2000/svg", "");
    assert!(!links.contains("href") && !links.contains("<script"));
}

#[test]
fn a_table_that_lies_is_caught() {
    assert!(held("`tests/it/documents.rs: a_table_that_lies_is_caught`"));
    assert!(!held("`tests/it/documents.rs: a_test_nobody_wrote`"));
    assert!(!held("`tests/it/nowhere.rs: a_table_that_lies_is_caught`"));
    assert!(held("`./test cuda`") && !held("`./test everything`"));
    assert!(!held("hope"));
}

const STATUS: &str = "docs/status.md";
const WORKS: &str = "works";
const NOT_BUILT: &str = "not built yet";
const COMPILES: &str = "compiles, not yet run on a GPU";

/// One row of the table under "What works".
struct Row {
    what: String,
    state: String,
    held_by: String,
}

impl Row {
    /// The subcommand, when the row is about one: `worker models pull` is about `models`.
    fn command(&self) -> Option<&str> {
        let words = self.what.split('`').nth(1)?.strip_prefix("worker ")?;
        words
            .split(' ')
            .next()
            .filter(|word| !word.starts_with('-'))
    }
}

fn rows() -> Vec<Row> {
    let status = read(STATUS);
    let (_, section) = status
        .split_once("## What works\n")
        .expect("docs/status.md has \"What works\"");
    let table = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let mut cells = line
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned());
        let mut cell = || cells.next().unwrap_or_default();
        let (what, _, state, held_by) = (cell(), cell(), cell(), cell());
        Row {
            what,
            state,
            held_by,
        }
    })
    .collect()
}

/// Is there a test or a check of this name? `` `FILE: TEST` `` or `` `./test PART` ``.
fn held(by: &str) -> bool {
    let by = by.trim_matches('`');
    if let Some(part) = by.strip_prefix("./test ") {
        return read("test").contains(&format!("part_{part}() {{"));
    }
    by.split_once(": ").is_some_and(|(file, test)| {
        root().join(file).is_file() && read(file).contains(&format!("fn {test}("))
    })
}

/// The subcommands, as the program lists them.
fn commands() -> Vec<String> {
    let help = worker(&["--help"]).run().ok();
    let (_, listed) = help
        .split_once("Commands:\n")
        .expect("the help lists commands");
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<String> = names
        .filter_map(|line| line.split_whitespace().next())
        // Prints what `--help` prints.
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 5, "found only {names:?}");
    names
}

pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Is it a path of this repository, and one file or folder rather than a pattern?
fn is_path(word: &str) -> bool {
    let folders = [
        "src/",
        "tests/",
        "benches/",
        "models/",
        "cuda/",
        "docs/",
        "packaging/",
        ".ci/",
    ];
    let starts = folders.iter().any(|folder| word.starts_with(folder));
    starts && !word.contains(['*', '<', ' ', ':'])
}

/// README.md, CHANGELOG.md, SECURITY.md and every page of `docs/`.
pub fn documents() -> Vec<String> {
    let entries = fs::read_dir(root().join("docs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages = names.filter(|name| name.ends_with(".md"));
    let mut documents: Vec<String> = pages.map(|name| format!("docs/{name}")).collect();
    assert!(documents.len() > 5, "found only {documents:?}");
    documents.extend(["README.md", "CHANGELOG.md", "SECURITY.md"].map(str::to_owned));
    documents
}

/// The targets of Markdown links within the repository.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .collect()
}

pub fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
