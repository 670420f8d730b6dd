//! Incremental detokenization, never emitting part of a character.
//!
//! Tokens are byte strings: all of them in byte-level vocabularies, those of the byte fallback in SentencePiece ones.
//! The bytes come from a table built once per model, and text is emitted once its characters are complete. Invalid
//! UTF-8 becomes U+FFFD, as in decoding everything at once.

/// The bytes of every token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pieces {
    bytes: Vec<u8>,
    /// End offsets of the tokens' bytes.
    ends: Vec<u32>,
    /// Whether a text loses the space that its first word was encoded with.
    strips_first_space: bool,
}

impl Pieces {
    pub fn new(strips_first_space: bool) -> Self {
        Self {
            strips_first_space,
            ..Self::default()
        }
    }

    pub fn strips_first_space(&self) -> bool {
        self.strips_first_space
    }

    /// Appends the next token's bytes; none for tokens that are not text.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends
            .push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The table as bytes, for [`from_bytes`](Self::from_bytes).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(5 + 4 * self.ends.len() + self.bytes.len());
        out.push(u8::from(self.strips_first_space));
        out.extend(
            u32::try_from(self.ends.len())
                .unwrap_or(u32::MAX)
                .to_le_bytes(),
        );
        out.extend(self.ends.iter().flat_map(|end| end.to_le_bytes()));
        out.extend_from_slice(&self.bytes);
        out
    }

    /// `None` for bytes that no table has: its ends ascend, and the last is where the text ends.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (strips, rest) = bytes.split_first()?;
        let (count, rest) = rest.split_first_chunk()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (ends, bytes) = rest.split_at_checked(count.checked_mul(4)?)?;
        let ends: Vec<u32> = ends
            .chunks_exact(4)
            .map(|end| end.try_into().map_or(0, u32::from_le_bytes))
            .collect();
        let last = ends.last().map_or(0, |&end| end as usize);
        (ends.is_sorted() && last == bytes.len()).then(|| Self {
            bytes: bytes.to_vec(),
            ends,
            strips_first_space: *strips != 0,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Empty for ids past the vocabulary: networks are often padded.
    pub fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = id
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0);
        let end = self.ends.get(id).copied().unwrap_or(start);
        self.bytes
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }
}

/// The position of the first token in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begins {
    /// The text is a separate reply: a leading space of the encoding is dropped.
    Fresh,
    /// The text continues a prompt: a leading space may separate the words.
    AfterPrompt,
}

/// The decoding of one sequence.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    /// The incomplete character at the end.
    half: Vec<u8>,
    strip: bool,
}

impl Detokenizer {
    pub fn new(pieces: &Pieces, begins: Begins) -> Self {
        Self {
            half: Vec::new(),
            strip: pieces.strips_first_space && begins == Begins::Fresh,
        }
    }

    /// Whether the last token ended inside a character.
    pub fn is_mid_character(&self) -> bool {
        !self.half.is_empty()
    }

    /// Ends the text: an incomplete character is replaced.
    pub fn finish(&mut self, out: &mut String) {
        if !self.half.is_empty() {
            self.half.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Appends to `out` the characters that are whole with this token.
    pub fn push(&mut self, pieces: &Pieces, id: u32, out: &mut String) {
        let mut bytes = pieces.bytes(id);
        if self.strip && !bytes.is_empty() {
            self.strip = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        if self.half.is_empty() {
            let rest = whole_characters(bytes, out);
            self.half.extend_from_slice(rest);
        } else {
            self.half.extend_from_slice(bytes);
            let rest = whole_characters(&self.half, out).len();
            self.half.drain(..self.half.len() - rest);
        }
    }
}

/// Appends all whole characters and returns the beginning of one that may follow them.
fn whole_characters<'a>(bytes: &'a [u8], out: &mut String) -> &'a [u8] {
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        out.push_str(chunk.valid());
        let invalid = chunk.invalid();
        if invalid.is_empty() {
            continue;
        }
        if chunks.peek().is_none() && could_go_on(invalid) {
            return invalid;
        }
        out.push(char::REPLACEMENT_CHARACTER);
    }
    &[]
}

fn could_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::{Begins, Detokenizer, Pieces};

    fn decode(pieces: &Pieces, begins: Begins, ids: &[u32]) -> Vec<String> {
        let mut detokenizer = Detokenizer::new(pieces, begins);
        let push = |&id: &u32| {
            let mut out = String::new();
            detokenizer.push(pieces, id, &mut out);
            out
        };
        ids.iter().map(push).collect()
    }

    fn pieces(texts: &[&[u8]], strips_first_space: bool) -> Pieces {
        let mut pieces = Pieces::new(strips_first_space);
        texts.iter().for_each(|bytes| pieces.push(bytes));
        pieces
    }

    #[test]
    fn a_character_across_tokens_leaves_when_it_is_whole() {
        let euro = pieces(&[b"\xe2", b"\x82", b"\xac!", b"a"], false);
        assert_eq!(
            decode(&euro, Begins::Fresh, &[3, 0, 1, 2]),
            ["a", "", "", "€!"]
        );
        assert_eq!(
            decode(&euro, Begins::Fresh, &[0, 1, 3]),
            ["", "", "\u{fffd}a"]
        );
        assert_eq!(
            decode(&euro, Begins::Fresh, &[1, 3, 99]),
            ["\u{fffd}", "a", ""]
        );
    }

    #[test]
    fn a_piece_table_survives_its_bytes_and_refuses_others() {
        let table = pieces(&[b"", b" Hello", b"\xff", b""], true);
        let bytes = table.to_bytes();
        assert_eq!(Pieces::from_bytes(&bytes), Some(table));
        assert_eq!(Pieces::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Pieces::from_bytes(&bytes[..7]), None);
        let mut falling = bytes.clone();
        falling[5] = 0xff;
        assert_eq!(Pieces::from_bytes(&falling), None);
        let mut endless = bytes;
        endless[1..5].fill(0xff);
        assert_eq!(Pieces::from_bytes(&endless), None);
    }

    #[test]
    fn only_a_fresh_text_loses_its_first_space() {
        let words = pieces(&[b"", b" Hello", b" you"], true);
        assert_eq!(
            decode(&words, Begins::Fresh, &[0, 1, 2]),
            ["", "Hello", " you"]
        );
        assert_eq!(
            decode(&words, Begins::AfterPrompt, &[0, 1, 2]),
            ["", " Hello", " you"]
        );
    }

    proptest! {
        #[test]
        fn token_by_token_is_the_same_as_all_at_once(tokens in proptest::collection::vec(
            proptest::collection::vec(proptest::sample::select(vec![b'a', 0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xff]), 0..4), 0..20)
        ) {
            let texts: Vec<&[u8]> = tokens.iter().map(Vec::as_slice).collect();
            let ids: Vec<u32> = (0..texts.len() as u32).collect();
            let found = decode(&pieces(&texts, false), Begins::Fresh, &ids).concat();
            let whole = tokens.concat();
            let wanted = String::from_utf8_lossy(&whole);
            // At the end half a character may be missing, which all at once would have been replaced.
            let wanted_without_half = wanted.strip_suffix('\u{fffd}').unwrap_or(&wanted);
            assert!(found == wanted || found == wanted_without_half, "{found:?} is not {wanted:?}");
        }
    }
}
