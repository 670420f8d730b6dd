//! Counts tokens like the tokenizer o200k_base: a pattern splits the text into pieces, and in each piece the adjacent
//! pair that comes first in the vocabulary is merged repeatedly.
//!
//! The vocabulary is decompressed and indexed at its first use, in some 30 ms and 5 MB. Automata that count in linear
//! time
//! take 32 MB of the binary, or seconds to build.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

/// The tokens in the order of their merges, each after its length; from tiktoken (MIT, see `o200k.LICENSE`), packed by
/// `tests/fixtures/make/o200k.py`.
const PACKED: &[u8] = include_bytes!("o200k.zz");
/// Decompressed size.
const MOST_BYTES: usize = 2 << 20;
/// The pieces of a text.
const PIECES: [&str; 6] = [
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+$",
];
/// Spaces before a word, with its own last space: `\s+(?!\S)` without the look-ahead.
const SPACES: &str = r"\s+\s";
/// Index of that pattern.
const IS_SPACES: usize = 1;
const SPACE: &str = r"\s+";
/// In shorter pieces, a scan of all pairs per merge is faster than a queue.
const SHORT: usize = 64;
/// No token.
const NONE: u32 = u32::MAX;

pub struct O200k {
    vocabulary: Vocabulary,
    pieces: Regex,
}

/// Finds tokens by their bytes. A token's number is its rank in the order of merges.
struct Vocabulary {
    bytes: Vec<u8>,
    tokens: Vec<Range<u32>>,
    /// A hash table with open addressing, at most half full.
    slots: Vec<u32>,
    longest: usize,
}

/// Buffers shared by all pieces.
#[derive(Default)]
struct Workspace {
    /// The first byte of each part of a short piece, and the token of this part merged with the next.
    parts: Vec<(usize, u32)>,
    /// By the first byte of a part of a long piece: the first bytes of its neighbours, and the token merged from the
    /// part and the next one.
    before: Vec<u32>,
    after: Vec<u32>,
    merged: Vec<u32>,
    /// The token, then its position.
    queue: BinaryHeap<Reverse<u64>>,
}

impl O200k {
    pub fn load() -> Self {
        let bytes = decompress_to_vec_zlib_with_limit(PACKED, MOST_BYTES);
        let patterns = [&PIECES.join("|"), SPACES, SPACE];
        Self {
            vocabulary: Vocabulary::new(bytes.expect("the embedded vocabulary is whole")),
            pieces: Regex::new_many(&patterns).expect("the patterns are valid"),
        }
    }

    pub fn count(&self, text: &str) -> usize {
        let (mut tokens, mut rest) = (0, text);
        let mut workspace = Workspace::default();
        while let Some(found) = self.pieces.find(Input::new(rest).anchored(Anchored::Yes)) {
            let mut end = found.end();
            if found.pattern().as_usize() == IS_SPACES {
                let last = rest[..end].chars().next_back();
                end -= last.map_or(0, char::len_utf8);
            }
            let (piece, left) = rest.split_at(end);
            tokens += self.vocabulary.count(piece.as_bytes(), &mut workspace);
            rest = left;
        }
        tokens
    }
}

impl Vocabulary {
    /// From tokens with length prefixes.
    fn new(bytes: Vec<u8>) -> Self {
        let (mut tokens, mut longest, mut at) = (Vec::new(), 0, 0);
        while let Some(length) = bytes.get(at) {
            let begin = at + 1;
            at = begin + usize::from(*length);
            longest = longest.max(at - begin);
            tokens.push(begin as u32..at as u32);
        }
        let mut slots = vec![NONE; (2 * tokens.len()).next_power_of_two()];
        let mask = slots.len() - 1;
        for (id, token) in tokens.iter().enumerate() {
            let mut slot = hash(&bytes[token.start as usize..token.end as usize]) & mask;
            while slots[slot] != NONE {
                slot = (slot + 1) & mask;
            }
            slots[slot] = id as u32;
        }
        Self {
            bytes,
            tokens,
            slots,
            longest,
        }
    }

    fn token(&self, id: u32) -> &[u8] {
        let token = &self.tokens[id as usize];
        &self.bytes[token.start as usize..token.end as usize]
    }

    fn find(&self, bytes: &[u8]) -> u32 {
        if bytes.len() > self.longest {
            return NONE;
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash(bytes) & mask;
        loop {
            let id = self.slots[slot];
            if id == NONE || self.token(id) == bytes {
                return id;
            }
            slot = (slot + 1) & mask;
        }
    }

    fn count(&self, piece: &[u8], workspace: &mut Workspace) -> usize {
        match piece.len() {
            _ if self.find(piece) != NONE => 1,
            ..=SHORT => self.count_short(piece, workspace),
            _ => self.count_long(piece, workspace),
        }
    }

    fn count_short(&self, piece: &[u8], workspace: &mut Workspace) -> usize {
        let parts = &mut workspace.parts;
        parts.clear();
        let pair = |at: usize| piece.get(at..at + 2).map_or(NONE, |pair| self.find(pair));
        parts.extend((0..piece.len()).map(|at| (at, pair(at))));
        parts.push((piece.len(), NONE));
        // The token of the parts at an index and after it.
        let merged = |parts: &[(usize, u32)], index: usize| match parts.get(index + 2) {
            Some((end, _)) => self.find(&piece[parts[index].0..*end]),
            None => NONE,
        };
        loop {
            let (mut first, mut index) = (NONE, 0);
            for (at, (_, token)) in parts.iter().enumerate() {
                if *token < first {
                    (first, index) = (*token, at);
                }
            }
            if first == NONE {
                return parts.len() - 1;
            }
            parts.remove(index + 1);
            parts[index].1 = merged(parts, index);
            if index > 0 {
                parts[index - 1].1 = merged(parts, index - 1);
            }
        }
    }

    fn count_long(&self, piece: &[u8], workspace: &mut Workspace) -> usize {
        let Workspace {
            before,
            after,
            merged,
            queue,
            ..
        } = workspace;
        let end = piece.len();
        before.clear();
        after.clear();
        merged.clear();
        before.extend((0..end as u32).map(|at| at.wrapping_sub(1)));
        after.extend(1..=end as u32);
        merged.extend(piece.windows(2).map(|pair| self.find(pair)));
        merged.push(NONE);
        let mut waiting = std::mem::take(queue).into_vec();
        waiting.clear();
        let pairs = merged.iter().enumerate();
        let pairs = pairs.filter(|(_, token)| **token != NONE);
        waiting.extend(pairs.map(|(at, token)| entry(*token, at)));
        *queue = BinaryHeap::from(waiting);
        let mut parts = end;
        while let Some(Reverse(first)) = queue.pop() {
            let (token, at) = ((first >> 32) as u32, first as u32 as usize);
            // Another merge used one of the two parts.
            if merged[at] != token {
                continue;
            }
            let taken = after[at] as usize;
            let next = after[taken];
            merged[taken] = NONE;
            after[at] = next;
            if let Some(before) = before.get_mut(next as usize) {
                *before = at as u32;
            }
            parts -= 1;
            for part in [at, before[at] as usize] {
                // The first part has no previous one.
                let Some(next) = after.get(part) else {
                    continue;
                };
                let next_end = after.get(*next as usize);
                let token = next_end.map_or(NONE, |end| self.find(&piece[part..*end as usize]));
                merged[part] = token;
                if token != NONE {
                    queue.push(entry(token, part));
                }
            }
        }
        parts
    }
}

fn entry(token: u32, at: usize) -> Reverse<u64> {
    Reverse(u64::from(token) << 32 | at as u64)
}

/// The table holds only the vocabulary: texts cannot lengthen its chains of collisions.
fn hash(bytes: &[u8]) -> usize {
    const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;
    let mut hash = bytes.len() as u64;
    for part in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
        hash ^= hash >> 32;
    }
    hash as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with their token counts by the crate bpe-openai 0.3.2.
    fn texts() -> Vec<(&'static str, u32, String)> {
        // Random letters.
        let mut seed = 1_u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % below
        };
        let letters: String = (0..50_000)
            .map(|_| char::from(b'a' + random(26) as u8))
            .collect();
        let han: String = (0..20_000)
            .filter_map(|_| char::from_u32(0x4e00 + random(5000)))
            .collect();
        let visible: String = (0..50_000)
            .map(|_| char::from(b' ' + random(95) as u8))
            .collect();
        let any: String = (0..50_000)
            .filter_map(|_| char::from_u32(random(0x11_0000)))
            .collect();
        let code = "fn main() {\n    let x: u32 = 0xFF_u32;\n\tprintln!(\"{x:?}\"); // what's this?\r\n}\n";
        let prose = "The lighthouse keeper's log, 1883: \"We've seen nothing.\" It'd rained -- again!  Then came 12345 gulls.\n\n";
        vec![
            ("", 0, String::new()),
            ("word", 1, "hello".to_owned()),
            ("words", 7, "Hello world, how are you?".to_owned()),
            (
                "contractions",
                11,
                "It's they've I'LL we'd don'T 's 're".to_owned(),
            ),
            (
                "cases",
                15,
                "camelCase PascalCase SCREAMING_CASE HTTPServer ǅungla".to_owned(),
            ),
            (
                "digits",
                27,
                "1 12 123 1234 12345 1234567890 3.14159 ٣٤٥ ½".to_owned(),
            ),
            (
                "spaces",
                13,
                "a b  c   d    e\t\tf \t g          ".to_owned(),
            ),
            (
                "lines",
                12,
                "a\n\nb\r\n\r\nc \n d\n   \n\n   e  \n".to_owned(),
            ),
            (
                "other spaces",
                11,
                "a\u{a0}b\u{3000}c\u{2003}\u{2003}d\u{85}e".to_owned(),
            ),
            (
                "paths",
                20,
                "/usr/local/bin//x https://example.org/a?b=c&d=e#f\n///".to_owned(),
            ),
            ("code", 30, code.to_owned()),
            ("prose", 31, prose.to_owned()),
            (
                "Chinese",
                20,
                "敏捷的棕色狐狸跳过了懒狗。我们今天去北京吗?".to_owned(),
            ),
            (
                "Japanese",
                27,
                "素早い茶色の狐がのろまな犬を飛び越えた。カタカナもある。".to_owned(),
            ),
            (
                "Korean",
                17,
                "빠른 갈색 여우가 게으른 개를 뛰어넘는다.".to_owned(),
            ),
            (
                "Russian",
                13,
                "Съешь же ещё этих мягких французских булок.".to_owned(),
            ),
            (
                "Arabic",
                15,
                "الثعلب البني السريع يقفز فوق الكلب الكسول".to_owned(),
            ),
            ("Hindi", 19, "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है".to_owned()),
            ("Thai", 28, "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ".to_owned()),
            ("emoji", 29, "😀 👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️ ☃ 🏳️‍🌈".to_owned()),
            ("accents", 9, "e\u{301}cole école Ångström ﬁ Å".to_owned()),
            (
                "special tokens",
                20,
                "<|endoftext|><|im_start|>user<|endofprompt|>".to_owned(),
            ),
            (
                "json",
                22,
                "{\"a\":[1,2,{\"b\":null}],\"c\":\"\\u00e9\\n\"}".to_owned(),
            ),
            (
                "controls",
                6,
                "\0\u{1}\u{7f}\u{feff}\u{fffd}\u{200d}".to_owned(),
            ),
            ("letters", 25_869, letters),
            ("Chinese letters", 36_988, han),
            ("visible", 37_176, visible),
            ("any", 191_834, any),
            ("a run of a letter", 8192, "a".repeat(1 << 16)),
            ("a run of spaces", 512, " ".repeat(1 << 16)),
            ("a run of lines", 4096, "\n".repeat(1 << 16)),
            ("a run of marks", 65_538, "!?".repeat(1 << 17)),
            ("a run of digits", 33_334, "1234567890".repeat(10_000)),
            ("a run of a Chinese letter", 15_000, "哈".repeat(30_000)),
            ("long code", 25_200, code.repeat((1 << 16) / code.len())),
            ("long prose", 19_530, prose.repeat((1 << 16) / prose.len())),
        ]
    }

    #[test]
    fn texts_have_as_many_tokens_as_another_implementation_counts() {
        let tokenizer = O200k::load();
        for (name, tokens, text) in texts() {
            assert_eq!(tokenizer.count(&text), tokens as usize, "{name}");
        }
    }

    #[test]
    fn the_merges_of_a_token_make_that_token_alone() {
        let vocabulary = O200k::load().vocabulary;
        assert_eq!(vocabulary.tokens.len(), 199_998);
        let mut workspace = Workspace::default();
        for id in (0..199_998).step_by(23) {
            let token = vocabulary.token(id);
            assert_eq!(vocabulary.find(token), id);
            assert_eq!(vocabulary.count_short(token, &mut workspace), 1, "{id}");
            assert_eq!(vocabulary.count_long(token, &mut workspace), 1, "{id}");
        }
    }

    #[test]
    fn short_and_long_pieces_are_counted_alike() {
        let vocabulary = O200k::load().vocabulary;
        let mut workspace = Workspace::default();
        for (name, _, text) in texts() {
            for piece in text.as_bytes().chunks(SHORT).take(100) {
                let short = vocabulary.count_short(piece, &mut workspace);
                let long = vocabulary.count_long(piece, &mut workspace);
                assert_eq!(short, long, "{name}: {piece:?}");
            }
        }
    }
}
