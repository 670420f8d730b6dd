//! Time in tests: they wait for conditions, and compare real time only if their name promises it. `./test promises`
//! runs those separately.

use super::{Source, files_of, sources};

/// Suffixes of tests that measure real time.
const PROMISES: [&str; 2] = ["within_seconds", "within_a_second"];

/// Functions that ask the clock without a promise.
const OTHERS: &[(&str, &str)] = &[
    ("up_with", "keeps the time for a test that promises"),
    (
        "too_many_requests_are_answered_with_patience",
        "at least a second: a slow machine makes it longer",
    ),
    (
        "whoever_gives_back_does_not_ask_again_at_once",
        "at least eight seconds: a slow machine makes it longer",
    ),
    (
        "a_compiled_grammar_is_kept",
        "compares two times of one machine",
    ),
];

#[test]
fn tests_wait_for_conditions_and_not_for_time() {
    let mut wrong = Vec::new();
    // `tests/testing` is how they wait.
    for source in files_of("tests/it").iter().filter(|one| !is_support(one)) {
        wrong.extend(impatient("tests/it", source));
    }
    for source in &sources() {
        wrong.extend(impatient("src", source));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn planted_impatience_is_caught() {
    let planted = [
        "fn waits() { thread::sleep(MOMENT); }",
        "async fn waits() { while !ready() { tokio::task::yield_now().await; } }",
        "fn answers() { assert!(began.elapsed() < LIMIT); }",
    ];
    for text in planted {
        let source = Source {
            name: "tests.rs".to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(impatient("src", &source).len(), 1, "{text}");
    }
    let lawful = [
        "fn answers_within_seconds() { assert!(began.elapsed() < LIMIT); }",
        "#[tokio::test(start_paused = true)]\nasync fn rests() { assert_eq!(began.elapsed(), REST); }",
    ];
    for text in lawful {
        let source = Source {
            name: "tests.rs".to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(impatient("src", &source), Vec::<String>::new(), "{text}");
    }
}

/// Servers and scripts that tests talk to.
fn is_support(source: &Source) -> bool {
    source.name.starts_with("support/") || source.name.starts_with("layering/")
}

/// Lines of tests that wait for time, or compare it without a promise.
fn impatient(folder: &str, source: &Source) -> Vec<String> {
    let is_test_file = folder != "src" || source.name.contains("tests");
    let (mut in_tests, mut is_paused) = (is_test_file, false);
    let (mut name, mut found) = (String::new(), Vec::new());
    for (number, line) in source.text.lines().enumerate() {
        in_tests |= line == "mod tests {";
        if line.contains("start_paused") {
            is_paused = true;
        }
        if let Some(function) = function_of(line) {
            name = function.to_owned();
        }
        // Tests stand at the left, or within `mod tests`.
        if line == "}" || line == "    }" {
            is_paused = false;
        }
        if !in_tests {
            continue;
        }
        let is_lawful = is_paused
            || PROMISES.iter().any(|promise| name.contains(promise))
            || OTHERS.iter().any(|(other, _)| *other == name);
        let waits = line.contains("thread::sleep") || line.contains("yield_now(");
        if waits || (line.contains(".elapsed()") && !is_lawful) {
            let at = format!("{folder}/{}:{}", source.name, number + 1);
            found.push(format!(
                "{at}: {name}: wait with muster_testing, or name the promise: {}",
                line.trim()
            ));
        }
    }
    found
}

fn function_of(line: &str) -> Option<&str> {
    let rest = line.split_once("fn ")?.1;
    let end = rest.find(['(', '<'])?;
    let name = &rest[..end];
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}
