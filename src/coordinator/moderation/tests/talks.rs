//! Verdicts on conversations.

use super::prompts::filters;
use crate::moderation::talk::{Piece, Said, Spoken, Talk, of_talk};
use crate::moderation::verdict::{EMPTY, GUILTY, Verdict};

use Said::{ByClient, ByModel, ToProgram};

fn talk(said: &[(&str, Said)]) -> Talk {
    let piece = |(text, said): &(&str, Said)| Piece {
        text: (*text).to_owned(),
        said: *said,
    };
    Talk {
        pieces: said.iter().map(piece).collect(),
        may_be_rewritten: false,
        for_adults: false,
    }
}

fn spoken(talk: &Talk) -> Spoken {
    of_talk(talk, &filters())
}

fn rewritten<const N: usize>(pieces: [Option<&str>; N]) -> Spoken {
    let pieces = pieces.into_iter().map(|piece| piece.map(str::to_owned));
    Spoken::Rewritten(pieces.collect())
}

#[test]
fn what_is_suspicious_may_not_be_spread_over_messages() {
    let one = talk(&[("a forbidden hat", ByClient), ("in blue", ByClient)]);
    assert_eq!(spoken(&one), Spoken::AsItIs);
    let both = talk(&[("a forbidden hat", ByClient), ("in context", ByClient)]);
    assert_eq!(spoken(&both), Spoken::Not(GUILTY));
    let in_a_tool = talk(&[("a forbidden hat", ByClient), ("in context", ToProgram)]);
    assert_eq!(spoken(&in_a_tool), Spoken::Not(GUILTY));
}

#[test]
fn what_a_model_said_is_refused_and_held_against_nobody() {
    let by_model = talk(&[("hi", ByClient), ("forbidden, in context", ByModel)]);
    assert_eq!(spoken(&by_model), Spoken::Not(EMPTY));
    let by_client = talk(&[("forbidden, in context", ByClient), ("hi", ByModel)]);
    assert_eq!(spoken(&by_client), Spoken::Not(GUILTY));
}

#[test]
fn words_of_the_young_are_replaced_in_each_message() {
    let for_adults = |said: &[(&str, Said)]| Talk {
        for_adults: true,
        ..talk(said)
    };
    let grown = for_adults(&[
        ("a kid", ByClient),
        ("?!", ByClient),
        ("the child", ByModel),
    ]);
    let expected = rewritten([Some("a adult"), None, Some("the adult")]);
    assert_eq!(spoken(&grown), expected);
    let drawn = for_adults(&[("hi", ByClient), ("👧", ByClient)]);
    assert_eq!(spoken(&drawn), rewritten([None, Some("adult")]));
    // The end of one piece and the beginning of the next do not form a word.
    let innocent = for_adults(&[("5", ByModel), ("yo, thanks", ByClient)]);
    assert_eq!(spoken(&innocent), Spoken::AsItIs);
    let schema = for_adults(&[("hi", ByClient), ("kid", ToProgram)]);
    assert_eq!(spoken(&schema), Spoken::Not(EMPTY));
}

#[test]
fn what_is_rewritten_message_by_message_is_clear_as_a_whole() {
    let rewrite = |said: &[(&str, Said)]| Talk {
        may_be_rewritten: true,
        ..talk(said)
    };
    let long = "a hat ".repeat(2000);
    let cured = rewrite(&[(&long, ByClient), ("forbidden in context", ByClient)]);
    assert_eq!(
        spoken(&cured),
        rewritten([None, Some("allowed in context")])
    );
    let spread = rewrite(&[("a forbidden hat", ByClient), ("in context", ByModel)]);
    assert_eq!(spoken(&spread), rewritten([Some("a allowed hat"), None]));
    let for_good = rewrite(&[("eleven hats", ByClient), ("in context", ByClient)]);
    assert_eq!(spoken(&for_good), Spoken::Not(GUILTY));
    let too_long = format!("{long} forbidden");
    let too_long = rewrite(&[(&too_long, ByClient), ("in context", ByClient)]);
    assert!(matches!(
        spoken(&too_long),
        Spoken::Not(Verdict::TooLong(_))
    ));
}
