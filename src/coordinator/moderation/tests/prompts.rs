//! Matches in prompts with disguised words, and the verdicts on them.

use std::time::{Duration, Instant};

use proptest::prelude::{Strategy, any, prop, prop_assert, proptest};
use proptest::sample::select;

use crate::moderation::NoPattern;
use crate::moderation::filters::{BUDGET, Filters, Suspicion};
use crate::moderation::forms::Forms;
use crate::moderation::letters::folded;
use crate::moderation::verdict::{self, Case, Medium, Verdict};
use crate::moderation::youth;
use crate::storage::FilterRow;
use muster_process::cpu_time::thread_time;
use muster_protocol::job::AccountId;
use muster_testing::peak::growth;

fn filter(kind: i64, regex: &str, replacement: &str) -> FilterRow {
    FilterRow {
        id: 1,
        regex: regex.to_owned(),
        kind,
        description: None,
        replacement: replacement.to_owned(),
        editor: AccountId(1),
        editor_name: "alice".to_owned(),
    }
}

pub fn filters() -> Filters {
    let rows = [
        filter(10, r"\bforbidden\b", "allowed"),
        filter(10, r"\bgone\b", ""),
        filter(11, "eleven", ""),
        filter(15, "fifteen", ""),
        filter(20, r"\bcontext\b", ""),
    ];
    Filters::compile(&rows, &Filters::default())
}

/// Filters that compile to some hundred kilobytes each.
fn heavy(count: usize) -> Vec<FilterRow> {
    let pattern = |number: usize| format!(r"x{number}\w{{8}}");
    let heavy = (0..count).map(|number| FilterRow {
        id: number as i64,
        ..filter(10, &pattern(number), "")
    });
    heavy.collect()
}

#[test]
fn a_filter_beyond_the_budget_of_all_is_refused_with_what_is_left() {
    let one = Filters::compile(&heavy(1), &Filters::default()).size();
    let fitting = BUDGET / one;
    let filters = Filters::compile(&heavy(fitting), &Filters::default());
    assert!(filters.size() <= BUDGET, "{}", filters.size());
    let new = r"another\w{8}";
    let refused = filters.check(new, Some(10), None).unwrap_err();
    let NoPattern::Full { size, left, most } = refused else {
        panic!("{refused}");
    };
    assert!(left < size && most == BUDGET, "{left} {size} {most}");
    assert_eq!(left, BUDGET - filters.size());
    assert!(
        NoPattern::Full { size, left, most }
            .to_string()
            .contains(&left.to_string())
    );
    // A filter may replace one of its size, and a repeated one takes no space.
    assert_eq!(filters.check(new, Some(10), Some(0)), Ok(()));
    assert_eq!(filters.check(r"x1\w{8}", Some(10), None), Ok(()));
    // A filter accepted by an earlier version is not applied beyond the budget.
    let all = Filters::compile(&heavy(fitting + 9), &filters);
    assert!(all.size() <= BUDGET);
}

#[test]
fn a_thousand_filters_look_at_a_prompt_in_bounded_memory_within_seconds() {
    let name = "moderation::tests::prompts::a_thousand_filters_look_at_a_prompt_in_bounded_memory_within_seconds";
    let grown = growth(name, || {
        let rows: Vec<FilterRow> = (0..1000)
            .map(|number| FilterRow {
                id: number,
                ..filter(
                    if number % 2 == 0 { 10 } else { 20 },
                    &format!(r"\bw{number}[a-z]{{2,40}}\w+\b"),
                    "",
                )
            })
            .collect();
        let filters = Filters::compile(&rows, &Filters::default());
        let prompt = "a w7 lighthouse at 12 past w13x, w77a and sö weiter ".repeat(20);
        let began = Instant::now();
        let found = filters.test(&prompt, None);
        assert!(found.matches.is_empty(), "{found:?}");
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(filters.test("a w10abcd", None).matches, ["w10abcd"]);
    });
    if let Some(grown) = grown {
        assert!(grown < 256 << 20, "{grown} bytes");
    }
}

/// Each of these is fast alone; together they are slow on any processor, and just fit into the budget.
const SLOW: usize = 190;

fn slow(count: usize) -> Vec<FilterRow> {
    let slow = (0..count).map(|number| FilterRow {
        id: number as i64,
        ..filter(10, &format!(r"[a-z ]{{600}}q{number}"), "")
    });
    slow.collect()
}

fn hard_prompt(bytes: usize) -> String {
    "ab c d".chars().cycle().take(bytes).collect()
}

#[test]
fn a_filter_with_which_hard_texts_take_too_long_is_refused() {
    let none = Filters::default();
    let new = r"[a-z ]{600}new";
    assert_eq!(none.check(new, Some(10), None), Ok(()));
    let many = Filters::compile(&slow(SLOW), &none);
    assert_eq!(many.check(new, Some(10), None), Err(NoPattern::Slow));
    // Filters of another type have their own automaton.
    assert_eq!(many.check(new, Some(20), None), Ok(()));
}

#[test]
fn filters_stop_looking_at_a_prompt_when_its_time_is_over() {
    let filters = Filters::compile(&slow(SLOW), &Filters::default());
    let began = thread_time();
    let limited = filters.within(Duration::from_millis(100));
    limited.test(&hard_prompt(4096), None);
    let took = thread_time() - began;
    assert!(limited.ran_out_of_time(), "{took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    let quick = filters.within(Duration::from_secs(10));
    quick.test("hello", None);
    assert!(!quick.ran_out_of_time());
}

#[test]
fn heavy_filters_are_not_applied_on_the_async_threads() {
    let plain = filters().work(1000);
    assert!(plain < 50_000, "{plain}");
    let heavy = Filters::compile(&heavy(20), &Filters::default());
    assert!(heavy.work(1000) > 50_000, "{}", heavy.work(1000));
}

fn suspicion(prompt: &str) -> Suspicion {
    filters().test(prompt, None)
}

fn case(prompt: &str) -> Case {
    Case {
        prompt: prompt.to_owned(),
        medium: Medium::Image,
        may_be_rewritten: true,
        for_adults: false,
    }
}

fn verdict(case: &Case) -> Verdict {
    verdict::of(case, &filters())
}

#[test]
fn each_group_that_finds_something_adds_one() {
    let check = |prompt: &str, level, matches: &[&str]| {
        let found = suspicion(prompt);
        assert_eq!(
            (found.level, found.matches),
            (
                level,
                matches.iter().map(|text| (*text).to_owned()).collect()
            ),
            "{prompt}"
        );
    };
    check("a red hat", 0, &[]);
    check("a Forbidden hat", 1, &["Forbidden"]);
    check("forbidden eleven", 1, &["forbidden", "eleven"]);
    check("context", 1, &["context"]);
    check("eleven in context", 2, &["eleven", "context"]);
    check("fifteen", 0, &[]);
    check("👧 in context", 2, &["👧", "context"]);
}

#[test]
fn one_type_may_be_tried_alone() {
    let check = |kind, level| {
        assert_eq!(
            filters()
                .test("forbidden fifteen context", Some(kind))
                .level,
            level
        );
    };
    check(10, 1);
    check(11, 0);
    check(15, 1);
    check(20, 1);
    check(29, 0);
}

#[test]
fn a_prompt_is_found_however_it_is_written() {
    for prompt in [
        "f o r b i d d e n",
        "f.o.r.b.i.d.d.e.n",
        "for-bid-den",
        "(forbidden:1.3)",
        "f(or:1.2)bidden",
        "((forbidden))",
        "ｆｏｒｂｉｄｄｅｎ",
        "fоrbіddеn",
        "f\u{200b}orb\u{ad}idden",
        "fórbíddèn",
        "𝔣𝔬𝔯𝔟𝔦𝔡𝔡𝔢𝔫",
        "Ⓕⓞⓡⓑⓘⓓⓓⓔⓝ",
        "a\u{200b}forbidden\u{200b}hat",
        "a\u{200b}fоrbidden\u{200b}hat",
        "see a f o r b i d d e n",
    ] {
        assert_eq!(suspicion(prompt).level, 1, "{prompt}");
    }
    for prompt in ["forbid", "unforbiddenly", "for bid a den", "forbiddance"] {
        assert_eq!(suspicion(prompt).level, 0, "{prompt}");
    }
}

#[test]
fn only_what_is_to_be_shown_is_looked_at() {
    let verdict = verdict(&case("a hat ### forbidden context"));
    assert_eq!(verdict, Verdict::AsItIs);
}

#[test]
fn one_group_alone_blocks_nothing() {
    assert_eq!(verdict(&case("a forbidden eleven hat")), Verdict::AsItIs);
    assert_eq!(verdict(&case("a hat in context")), Verdict::AsItIs);
}

#[test]
fn a_suspicious_prompt_is_rewritten_or_refused() {
    let check = |prompt: &str, expected: Option<&str>| match (verdict(&case(prompt)), expected) {
        (Verdict::Rewritten(text), Some(expected)) => assert_eq!(text, expected),
        (verdict, None) => assert_eq!(verdict, Verdict::Refused { suspicious: true }, "{prompt}"),
        (verdict, _) => panic!("{prompt}: {verdict:?}"),
    };
    let negative = "### child, infant, teenager, underage, childlike body";
    check(
        "a Forbidden context",
        Some(&format!("a allowed context {negative}")),
    );
    check(
        "fоrbidden context ### rain",
        Some(&format!("allowed context {negative}, rain")),
    );
    check("👶 context", Some(&format!("context {negative}")));
    // An empty replacement leaves the rest of the prompt, and does not refuse it.
    check("gone, context", Some(&format!(", context {negative}")));
    // Still suspicious: filters of type 11 have no replacement.
    check("eleven context", None);
    let strict = Case {
        may_be_rewritten: false,
        ..case("forbidden context")
    };
    assert_eq!(verdict(&strict), Verdict::Refused { suspicious: true });
}

#[test]
fn a_prompt_of_which_nothing_is_left_is_refused() {
    let rows = [filter(10, "gone", ""), filter(20, "gone", "")];
    let filters = Filters::compile(&rows, &Filters::default());
    let verdict = verdict::of(&case("gone!"), &filters);
    assert_eq!(verdict, Verdict::Refused { suspicious: true });
}

#[test]
fn a_prompt_that_is_too_long_to_be_rewritten_says_so() {
    let long = format!("forbidden context {}", "x".repeat(6990));
    assert_eq!(verdict(&case(&long)), Verdict::TooLong(long.len()));
    // The length limit applies only to prompts that must be rewritten.
    assert_eq!(verdict(&case(&"x".repeat(8000))), Verdict::AsItIs);
}

#[test]
fn for_adults_the_young_are_replaced_in_pictures_and_texts() {
    let check = |prompt: &str, medium, expected: &str| {
        let case = Case {
            medium,
            for_adults: true,
            ..case(prompt)
        };
        assert_eq!(
            verdict(&case),
            Verdict::Rewritten(expected.to_owned()),
            "{prompt}"
        );
    };
    check("Two kids, \"hello\"", Medium::Text, "Two adult, \"hello\"");
    check("a tееnаgеr", Medium::Text, "a adult");
    check("k i d", Medium::Text, "adult");
    check("a forbidden thing", Medium::Text, "a allowed thing");
    check(
        "a child ### rain",
        Medium::Image,
        "a adult ### child, infant, teenager, underage, childlike body, rain",
    );
    let empty = Case {
        medium: Medium::Text,
        for_adults: true,
        ..case("gone")
    };
    assert_eq!(verdict(&empty), Verdict::Refused { suspicious: false });
}

#[test]
fn a_suspicion_of_two_blocks_texts_as_it_blocks_images() {
    let text = |prompt: &str, may_be_rewritten| {
        verdict(&Case {
            medium: Medium::Text,
            may_be_rewritten,
            ..case(prompt)
        })
    };
    assert_eq!(text("a forbidden hat, and a child", false), Verdict::AsItIs);
    let guilty = Verdict::Refused { suspicious: true };
    assert_eq!(text("a forbidden context", false), guilty);
    // Texts have no negative prompt.
    assert_eq!(text("a hat ### forbidden context", false), guilty);
    assert_eq!(
        text("a forbidden context", true),
        Verdict::Rewritten("a allowed context".to_owned())
    );
}

/// Harmless prompts.
const HARMLESS: [&str; 24] = [
    "1girl, solo, 35mm photo, f/1.8, 8k uhd, 4k, high detail (masterpiece:1.2)",
    "a kidney bean stew, 250g of beans and 2 cups of water",
    "a photo taken with a canon 5d and a 70-200mm lens at 1/250s",
    "portrait of a 30 year old woman, 1980s fashion, studio light",
    "the 3rd of may 1808, oil on canvas, 268cm x 347cm",
    "an assassin in the grass, classic bass guitar",
    "r2d2 and c3po walk over the dunes",
    "Scunthorpe and Penistone are towns in England",
    "analysis of the 2nd law of thermodynamics, eq. 4a and 5b",
    "b2b sales rose by 12% in q3, h264 video at 60fps",
    "write a poem about a minority of one in a canteen",
    "I owe you $500, and 3,000€ to her!",
    "the year 2077: rain, neon, a car, 21:9, --ar 16:9 --v 5.2",
    "x1y2z3 = 4 * (a1 + b2); return x[0];",
    "Was it 1, 2 or 3? It was 1!",
    "a teepee in front of a mountain, mint tea, an infantry parade",
    "the totem of a tribe, a total eclipse, totalitarian buildings",
    "12 monkeys, 101 dalmatians, ocean's 11, 28 days later",
    "a babylonian gate, lapis lazuli, babysitter wanted? no",
    "mp3, mp4, a4 paper, ipv6, utf8, sha256, i18n, k8s",
    "Das Kind im Manne ist 50 geworden",
    "он вошёл в комнату и сел",
    "彼女は30歳です。",
    "a lollipop, lolling about, a lowly shot at a lot of totes",
];

#[test]
fn what_means_no_harm_is_not_found() {
    let rows = [
        r"\bass(?:es)?\b",
        r"\btits?\b",
        r"\brape\b",
        r"\bcunt\b",
        r"\bsex\b",
        r"\bloli\b",
    ];
    let rows: Vec<_> = rows.iter().map(|regex| filter(10, regex, "")).collect();
    let filters = Filters::compile(&rows, &Filters::default());
    for text in HARMLESS {
        let found = filters.test(text, None);
        assert_eq!(found.matches, [""; 0], "{text}");
        let forms = Forms::of(text);
        let mut young = youth::words().filter_map(|(word, _)| word.find(&forms));
        assert_eq!(young.next(), None, "{text}");
    }
}

/// The word with digits for some letters.
fn spelt_with_digits(word: &'static str) -> impl Strategy<Value = String> {
    let disguise = |letter| match letter {
        'o' => "o0",
        'i' => "i1!|",
        'e' => "e3",
        'a' => "a4@",
        't' => "t7+",
        's' => "s5$",
        _ => "",
    };
    let letters = word.chars().map(|letter| {
        let mut all: Vec<char> = disguise(letter).chars().collect();
        all.push(letter);
        select(all)
    });
    let letters: Vec<_> = letters.collect();
    letters.prop_map(String::from_iter)
}

#[test]
fn replacements_that_grow_and_grow_are_given_up() {
    let long = "ab ".repeat(333);
    let rows: Vec<_> = (0..20).map(|_| filter(10, r"\bab\b", &long)).collect();
    let filters = Filters::compile(&rows, &Filters::default());
    let grown = Case {
        medium: Medium::Text,
        for_adults: true,
        ..case(&long)
    };
    assert_eq!(
        verdict::of(&grown, &filters),
        Verdict::Refused { suspicious: false }
    );
}

/// Characters that are invisible anywhere, or at most a mark on a letter.
const UNSEEN: [&str; 14] = [
    "\u{200b}",
    "\u{200c}",
    "\u{200d}",
    "\u{2060}",
    "\u{feff}",
    "\u{ad}",
    "\u{34f}",
    "\u{202e}",
    "\u{fe0f}",
    "\u{e0061}",
    "\u{301}",
    "\u{336}",
    "\u{1ab0}",
    "\u{20dd}",
];

/// Look-alikes of a letter.
fn disguises(letter: char) -> Vec<char> {
    let rows = [
        ('ａ', 'a'),
        ('𝐚', 'a'),
        ('𝑎', 'a'),
        ('𝒂', 'a'),
        ('𝓪', 'a'),
        ('𝔞', 'a'),
        ('𝕒', 'a'),
        ('𝖆', 'a'),
        ('𝖺', 'a'),
        ('𝗮', 'a'),
        ('𝘢', 'a'),
        ('𝙖', 'a'),
        ('𝚊', 'a'),
        ('ⓐ', 'a'),
        ('Ａ', 'a'),
        ('𝐀', 'a'),
        ('🄰', 'a'),
        ('🅐', 'a'),
        ('🅰', 'a'),
        ('🇦', 'a'),
    ];
    let alike = [
        ('o', "оοօσｏ"),
        ('r', "ᴦгʀ"),
        ('b', "ьƄʙвВΒ"),
        ('i', "іɩιІΙı"),
        ('d', "ԁᴅⅾđ"),
        ('e', "еєҽЕΕ"),
        ('n', "ոпNɴ"),
        ('f', "ƒꜰſ"),
        ('a', "аαɑА"),
        ('c', "сϲС"),
        ('t', "тΤᴛ"),
        ('x', "хχХ"),
    ];
    let place = u32::from(letter) - u32::from('a');
    let moved = rows
        .into_iter()
        .filter_map(|(first, _)| char::from_u32(u32::from(first) + place));
    let listed = alike
        .into_iter()
        .filter(|(plain, _)| *plain == letter && letter != 'f');
    moved
        .filter(|disguise| folded(&disguise.to_string()) == letter.to_string())
        .chain(listed.flat_map(|(_, alike)| alike.chars()))
        .chain([letter, letter.to_ascii_uppercase()])
        .collect()
}

/// The word in disguise, with invisible characters between its letters.
fn disguised(word: &'static str) -> impl Strategy<Value = String> {
    let letters: Vec<_> = word
        .chars()
        .map(|letter| {
            let unseen = prop::collection::vec(select(UNSEEN.as_slice()), 0..3);
            (select(disguises(letter)), unseen)
                .prop_map(|(letter, unseen)| format!("{letter}{}", unseen.concat()))
        })
        .collect();
    letters.prop_map(|letters| letters.concat())
}

#[test]
fn there_are_many_disguises_for_every_letter() {
    for letter in 'a'..='z' {
        assert!(
            disguises(letter).len() >= 18,
            "{letter}: {:?}",
            disguises(letter)
        );
    }
}

proptest! {
    #[test]
    fn no_disguise_evades_a_filter(
        word in disguised("forbidden"),
        context in disguised("context"),
        before in select(["", "a ", "hat, ", "(", "«"].as_slice()),
        after in select(["", " hat", ", hat", ":1.2)", "!"].as_slice()),
    ) {
        let prompt = format!("{before}{word}{after} {context}");
        prop_assert!(suspicion(&prompt).level == 2, "{prompt:?}");
    }

    #[test]
    fn no_digits_evade_a_filter(
        word in spelt_with_digits("forbidden"),
        context in spelt_with_digits("context"),
        before in select(["", "a ", "hat, ", "(", "«"].as_slice()),
        after in select(["", " hat", ", hat", ":1.2)", "!"].as_slice()),
    ) {
        let prompt = format!("{before}{word}{after} {context}");
        prop_assert!(suspicion(&prompt).level == 2, "{prompt:?}");
        match verdict(&case(&prompt)) {
            Verdict::Rewritten(text) => prop_assert!(suspicion(&text).level < 2, "{text:?}"),
            verdict => prop_assert!(false, "{prompt:?}: {verdict:?}"),
        }
    }

    #[test]
    fn no_disguise_survives_rewriting(word in disguised("forbidden"), context in disguised("context")) {
        match verdict(&case(&format!("{word} {context}"))) {
            Verdict::Rewritten(text) => prop_assert!(suspicion(&text).level < 2, "{text:?}"),
            verdict => prop_assert!(false, "{verdict:?}"),
        }
    }

    #[test]
    fn any_text_is_looked_at_without_harm(prompt in any::<String>()) {
        let _ = verdict(&case(&prompt));
        let _ = verdict(&Case { for_adults: true, ..case(&prompt) });
    }
}
