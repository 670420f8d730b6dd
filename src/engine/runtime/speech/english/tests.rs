use super::English;
use super::numbers::{cardinal, ordinal, spoken, year};

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(phonemes(text), expected, "{text}");
}

fn phonemes(text: &str) -> Vec<String> {
    let sentences = English::open().unwrap().sentences(text).into_iter();
    sentences.map(|sentence| sentence.phonemes).collect()
}

/// The same sound written with other words.
#[track_caller]
fn same(text: &str, words: &str) {
    assert_eq!(phonemes(text), phonemes(words), "{text}");
}

#[test]
fn words_have_places_among_the_phonemes() {
    let sentences = English::open()
        .unwrap()
        .sentences("“The 2 cats, [ab](/xy/)!”");
    let [sentence] = &sentences[..] else {
        panic!("one sentence: {sentences:?}");
    };
    let letters: Vec<char> = sentence.phonemes.chars().collect();
    let words = sentence.words.iter();
    let words = words.map(|word| {
        let phonemes: String = letters[word.place.clone()].iter().collect();
        (word.text.as_str(), phonemes)
    });
    let words: Vec<_> = words.collect();
    let expected = [("The", "ðə"), ("two", "tˈu"), ("cats", "kˈæts")];
    let expected = expected.map(|(word, phonemes)| (word, phonemes.to_owned()));
    assert_eq!(words, expected, "{sentence:?}");
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
    assert_eq!(sentences.len(), 4);
}

#[test]
fn sentences_end_at_stops_and_empty_lines() {
    let english = English::open().unwrap();
    let count = |text: &str| english.sentences(text).len();
    assert_eq!(count("One. Two! Three? \"Four.\" Five"), 5);
    assert_eq!(count("A line\nthat goes on\n\nAnother"), 2);
    assert_eq!(count("Pi is 3.14 at example.com today."), 1);
    assert_eq!(count(" ... \n\n ! "), 0);
}

#[test]
fn phonemes_can_be_given() {
    check("Say [Kokoro](/kˈOkəɹO/) now.", &["sˈA kˈOkəɹO nˈW."]);
    // A link: its text is read.
    same("[a](b)", "a");
    same("read [the docs](/docs/v1/).", "read the docs.");
}

#[test]
fn unknown_words_are_guessed_and_spelled() {
    let word = |text: &str| phonemes(text).concat();
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
    let word = |text: &str| phonemes(text).concat();
    assert!(word("to record").contains("ɹəkˈɔɹd"));
    assert!(word("a record").contains("ɹˈɛkəɹd"));
    assert!(word("They have read").contains("ɹˈɛd"));
}

#[test]
fn no_character_refuses_a_text() {
    let table = [
        ("the angle α is 90°", "the angle alpha is ninety degrees"),
        ("Σ and Ω", "sigma and omega"),
        ("±5 and 3×4", "plus or minus five and three times four"),
        ("5€, €5, a €", "five euros, five euros, a euros"),
        ("a → b", "a right arrow b"),
        ("2 * 3 − 1", "two times three minus one"),
        ("Hello Привет world", "Hello world"),
        ("hello 世界!", "hello!"),
        ("hi 🙂👍🏽 there", "hi there"),
        ("a naïve cafe\u{301}", "a naive cafe"),
        (
            "x² + y³ = 10⁶",
            "x squared plus y cubed equals ten to the sixth",
        ),
    ];
    for (text, words) in table {
        same(text, words);
    }
    let english = English::open().unwrap();
    assert!(english.sentences("Привет, 世界! 🙂").is_empty());
}

#[test]
fn marks_of_markdown_are_not_read() {
    let table = [
        ("*bold* and **bold**, _so_", "bold and bold, so"),
        (
            "the `code` of [Muster](https://example.com)",
            "the code of Muster",
        ),
        ("# A heading\ntext", "A heading\n\ntext"),
        ("- one\n- two\n* three", "one\n\ntwo\n\nthree"),
        ("| a | b |\n| --- | --- |\n| 1 | 2 |", "a, b\n\none, two"),
        ("> quoted", "quoted"),
    ];
    for (text, words) in table {
        same(text, words);
    }
}

#[test]
fn numerals_phones_and_powers_are_numbers() {
    let table = [
        ("Chapter IV", "Chapter four"),
        ("Henry VIII had six wives", "Henry the eighth had six wives"),
        ("Charles I of England", "Charles the first of England"),
        ("World War II", "World War two"),
        ("World War I began", "World War one began"),
        ("the XIX century", "the nineteenth century"),
        ("Rocky III", "Rocky three"),
        ("When Henry came I left", "When Henry came I left"),
        (
            "Call +1 555 123-4567.",
            "Call plus one, five five five, one two three, four five six seven.",
        ),
        ("call 911", "call nine one one"),
        ("10^6", "ten to the sixth"),
        ("10^-3", "ten to the minus three"),
        ("x^2", "x squared"),
        ("2^{10}", "two to the tenth"),
        ("e^x", "e to the x"),
    ];
    for (text, words) in table {
        same(text, words);
    }
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
