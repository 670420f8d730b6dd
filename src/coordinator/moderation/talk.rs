//! The verdict on a conversation: pure, from all of its texts and the filters.
//!
//! A conversation is checked as one prompt, so that suspicious text cannot be spread over its messages, but it is
//! rewritten message by message. The model's messages come back with every turn: they are checked as well, since a
//! client can write them, but cause no suspicion mark.

use super::filters::Filters;
use super::verdict::{
    EMPTY, GUILTY, LONGEST, TOO_SUSPICIOUS, Verdict, grown_up, replaced, says_something,
};
use super::youth;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    pub said: Said,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    ByClient,
    ByModel,
    /// A name or a schema; rewriting it would break the program that reads it.
    ToProgram,
}

#[derive(Debug, Clone)]
pub struct Talk {
    pub pieces: Vec<Piece>,
    /// As for a prompt.
    pub may_be_rewritten: bool,
    pub for_adults: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spoken {
    AsItIs,
    /// Replacements of the pieces that change.
    Rewritten(Vec<Option<String>>),
    /// Refused, with the verdict of a prompt.
    Not(Verdict),
}

pub fn of_talk(talk: &Talk, filters: &Filters) -> Spoken {
    let all = || talk.pieces.iter().map(|piece| piece.text.as_str());
    let is_suspicious = is_suspicious(all(), filters);
    if is_suspicious && !talk.may_be_rewritten {
        return Spoken::Not(guilt(talk, filters));
    }
    if !is_suspicious && !talk.for_adults {
        return Spoken::AsItIs;
    }
    let mut rewritten = Vec::with_capacity(talk.pieces.len());
    for piece in &talk.pieces {
        match (rewrite(piece, is_suspicious, talk, filters), piece.said) {
            (Verdict::AsItIs, _) => rewritten.push(None),
            (Verdict::Rewritten(text), Said::ByClient | Said::ByModel) => {
                rewritten.push(Some(text))
            }
            (Verdict::Rewritten(_), Said::ToProgram) | (Verdict::Refused { .. }, Said::ByModel) => {
                return Spoken::Not(EMPTY);
            }
            (not, _) => return Spoken::Not(not),
        }
    }
    let served = all().zip(&rewritten);
    let served = served.map(|(text, rewritten)| rewritten.as_deref().unwrap_or(text));
    if is_suspicious && self::is_suspicious(served, filters) {
        return Spoken::Not(guilt(talk, filters));
    }
    match rewritten.iter().all(Option::is_none) {
        true => Spoken::AsItIs,
        false => Spoken::Rewritten(rewritten),
    }
}

fn is_suspicious<'a>(texts: impl Iterator<Item = &'a str>, filters: &Filters) -> bool {
    let texts: Vec<&str> = texts.collect();
    filters.test(&texts.join("\n"), None).level >= TOO_SUSPICIOUS
}

/// Whether the client's own text is to blame, or the model's.
fn guilt(talk: &Talk, filters: &Filters) -> Verdict {
    let by_model = |piece: &&Piece| piece.said == Said::ByModel;
    let own = talk.pieces.iter().filter(|piece| !by_model(piece));
    match is_suspicious(own.map(|piece| piece.text.as_str()), filters) {
        true => GUILTY,
        false => EMPTY,
    }
}

fn rewrite(piece: &Piece, is_suspicious: bool, talk: &Talk, filters: &Filters) -> Verdict {
    if !says_something(&piece.text) {
        // A message without words is part of the conversation all the same.
        return match youth::drawings(&piece.text).next() {
            None => Verdict::AsItIs,
            Some(_) => Verdict::Rewritten(youth::GROWN_UP.to_owned()),
        };
    }
    let mut text = Some(piece.text.clone());
    if is_suspicious {
        text = text.and_then(|text| replaced(&text, filters));
    }
    if talk.for_adults {
        text = text.and_then(|text| grown_up(&text, filters));
    }
    let length = piece.text.chars().count();
    match text {
        None => EMPTY,
        Some(text) if text == piece.text => Verdict::AsItIs,
        Some(_) if is_suspicious && length > LONGEST => Verdict::TooLong(length),
        Some(text) => Verdict::Rewritten(text),
    }
}
