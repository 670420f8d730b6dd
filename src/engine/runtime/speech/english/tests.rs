use super::English;
use super::numbers::{cardinal, ordinal, spoken, year};

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let english = English::open().unwrap();
    assert_eq!(english.sentences(text).unwrap(), expected, "{text}");
}

/// The same sound written with other words.
#[track_caller]
fn same(text: &str, words: &str) {
    let english = English::open().unwrap();
    let (found, wanted) = (
        english.sentences(text).unwrap(),
        english.sentences(words).unwrap(),
    );
    assert_eq!(found, wanted, "{text}");
}

#[test]
fn words_come_from_the_dictionary() {
    check("Hello, world!", &["həlˈO, wˈɜɹld!"]);
    check(
        "The cat sat on the old chair.",
        &["ðə kˈæt sˈæt ˌɔn ði ˈOld ʧˈɛɹ."],
    );
}

#[test]
fn numbers_are_read_as_words() {
    assert_eq!(cardinal(0), "zero");
    assert_eq!(
        cardinal(1_042_317),
        "one million forty two thousand three hundred seventeen"
    );
    assert_eq!(ordinal(42), "forty second");
    assert_eq!(ordinal(20), "twentieth");
    assert_eq!(year(1984), "nineteen eighty four");
    assert_eq!(year(2007), "two thousand seven");
    assert_eq!(year(1905), "nineteen oh five");
    assert_eq!(
        spoken("1,234.50"),
        "one thousand two hundred thirty four point five zero"
    );
    assert_eq!(spoken("007"), "zero zero seven");
    same(
        "In 1984 it cost $5.20.",
        "In nineteen eighty four it cost five dollars and twenty cents.",
    );
    same("$3 million", "three million dollars");
    same("12% of 5 km", "twelve percent of five kilometers");
    same("at 10:30", "at ten thirty");
    same("On November 26", "On November twenty sixth");
    same(
        "on 2026-11-26",
        "on November twenty sixth twenty twenty six",
    );
    same("the 1980s", "the nineteen eighties");
    same("the 3rd of 1/2", "the third of one half");
    same("-5 °C", "minus five degrees Celsius");
    same("pages 10-20", "pages ten to twenty");
}

#[test]
fn abbreviations_do_not_end_a_sentence() {
    same("Dr. Smith met Mr. Jones.", "doctor Smith met mister Jones.");
    let english = English::open().unwrap();
    let sentences =
        english.sentences("He lives in the U.S. now. She does, e.g. here. Cars, etc. Then?");
    assert_eq!(sentences.unwrap().len(), 4);
}

#[test]
fn sentences_end_at_stops_and_empty_lines() {
    let english = English::open().unwrap();
    let count = |text: &str| english.sentences(text).unwrap().len();
    assert_eq!(count("One. Two! Three? \"Four.\" Five"), 5);
    assert_eq!(count("A line\nthat goes on\n\nAnother"), 2);
    assert_eq!(count("Pi is 3.14 at example.com today."), 1);
    assert_eq!(count(" ... \n\n ! "), 0);
}

#[test]
fn phonemes_can_be_given() {
    check("Say [Kokoro](/kˈOkəɹO/) now.", &["sˈA kˈOkəɹO nˈW."]);
    // Not in this form: read as text.
    same("[a](b)", "(a) (b)");
}

#[test]
fn unknown_words_are_guessed_and_spelled() {
    let english = English::open().unwrap();
    let word = |text: &str| english.sentences(text).unwrap().concat();
    assert_eq!(word("blorp"), "blˈɔɹp");
    assert_eq!(word("zibe"), "zˈIb");
    assert_eq!(word("XQTV"), "ˌɛkskjutivˈi");
    assert_eq!(word("b"), "bˈi");
    assert_eq!(word("US"), "jˌuˈɛs");
    assert!(word("glimmerings").ends_with('z'));
    assert!(!word("žluťoučký").is_empty());
}

#[test]
fn verbs_are_told_from_nouns_by_the_word_before() {
    let english = English::open().unwrap();
    let word = |text: &str| english.sentences(text).unwrap().concat();
    assert!(word("to record").contains("ɹəkˈɔɹd"));
    assert!(word("a record").contains("ɹˈɛkəɹd"));
    assert!(word("They have read").contains("ɹˈɛd"));
}

#[test]
fn other_scripts_are_named() {
    let english = English::open().unwrap();
    let refused = |text: &str| english.sentences(text).unwrap_err();
    assert!(refused("Привет").contains("Cyrillic"));
    assert!(refused("hello 世界").contains("Chinese"));
    assert!(refused("こんにちは").contains("Japanese"));
}

#[test]
fn no_text_stops_the_reader() {
    let english = English::open().unwrap();
    let texts = [
        "",
        "-",
        "$",
        "$.",
        "1/",
        "1/2/",
        "9:",
        "99:99",
        "[](//)",
        "[x](/",
        "....",
        "'",
        "a.",
        "a.b.",
        "1e9999999999",
        "99999999999999999999999999",
        "1,2,3",
        "--5",
        "½ ² ³",
        "\u{300}e",
        "🙂",
        "x\u{0}y",
        "1-",
        "1–2–3",
        "0/0/0/0",
    ];
    for text in texts {
        let _ = english.sentences(text);
    }
}
