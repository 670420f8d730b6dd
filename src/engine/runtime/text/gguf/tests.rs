use super::{CONTROL, Vocabulary, VocabularyKind};
use crate::runtime::text::{Begins, Detokenizer, Tokenizer};

fn decode(tokenizer: &Tokenizer, begins: Begins, ids: &[u32]) -> String {
    let mut detokenizer = Detokenizer::new(tokenizer.pieces(), begins);
    let mut out = String::new();
    ids.iter()
        .for_each(|&id| detokenizer.push(tokenizer.pieces(), id, &mut out));
    out
}

fn tokens(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn sentence_piece() -> Tokenizer {
    let mut all = tokens(&["<unk>", "<s>", "</s>"]);
    all.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let words = [
        "▁", "H", "e", "l", "o", "▁H", "el", "lo", "ello", "▁Hello", "▁l", "ll",
    ];
    all.extend(tokens(&words));
    let score = |id: usize| if id < 264 { 0.0 } else { -(id as f64) };
    let vocabulary = Vocabulary {
        kind: VocabularyKind::SentencePiece {
            scores: (0..all.len()).map(score).collect(),
        },
        types: [
            vec![2, CONTROL, CONTROL],
            vec![6; 256],
            vec![1; words.len()],
        ]
        .concat(),
        tokens: all,
        bos: Some(1),
        unknown: Some(0),
        ..Vocabulary::default()
    };
    Tokenizer::new(vocabulary.tokenizer().unwrap()).unwrap()
}

#[test]
fn sentence_piece_merges_by_score_and_falls_back_to_bytes() {
    let tokenizer = sentence_piece();
    let ids = tokenizer.encode("Hello é", true).unwrap();
    let texts: Vec<_> = ids.iter().map(|&id| tokenizer.token(id).unwrap()).collect();
    assert_eq!(texts, ["<s>", "▁Hello", "▁", "<0xC3>", "<0xA9>"]);
    assert_eq!(decode(&tokenizer, Begins::Fresh, &ids), "Hello é");
    assert_eq!(decode(&tokenizer, Begins::AfterPrompt, &ids), " Hello é");
}

#[test]
fn pairs_of_characters_merge_across_spaces_and_fall_back_to_bytes() {
    let mut all = tokens(&["<unk>", "<bos>"]);
    all.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let words = ["▁", "\n", "a", "b", "▁a", "▁a▁", "\n\n", "ab", "<|turn>"];
    all.extend(tokens(&words));
    let vocabulary = Vocabulary {
        kind: VocabularyKind::CharacterPairs {
            merges: tokens(&["▁ a", "▁a ▁", "\n \n", "a b"]),
        },
        types: [vec![2, CONTROL], vec![6; 256], vec![1; 8], vec![4]].concat(),
        tokens: all,
        bos: Some(1),
        unknown: Some(0),
        ..Vocabulary::default()
    };
    let tokenizer = Tokenizer::new(vocabulary.tokenizer().unwrap()).unwrap();
    let ids = tokenizer.encode("b a  a\n\n\né<|turn>ab", true).unwrap();
    let texts: Vec<_> = ids.iter().map(|&id| tokenizer.token(id).unwrap()).collect();
    let wanted = [
        "<bos>", "b", "▁a▁", "▁a", "\n\n", "\n", "<0xC3>", "<0xA9>", "<|turn>", "ab",
    ];
    assert_eq!(texts, wanted);
}

fn byte_pairs(pre: &str) -> Vocabulary {
    let mut all: Vec<String> = ('!'..='~')
        .chain('\u{a1}'..='\u{ac}')
        .chain('\u{ae}'..='\u{143}')
        .map(String::from)
        .collect();
    let first = all.len();
    all.extend(tokens(&["12", "123", "ab", "Ġab", "<|end|>"]));
    Vocabulary {
        kind: VocabularyKind::BytePairs {
            pre: pre.to_owned(),
            merges: tokens(&["1 2", "12 3", "a b", "Ġ ab"]),
        },
        types: [vec![1; first + 4], vec![CONTROL]].concat(),
        bos: Some(first as u32 + 4),
        tokens: all,
        ..Vocabulary::default()
    }
}

fn check(pre: &str, text: &str, wanted: &[&str]) {
    let tokenizer = Tokenizer::new(byte_pairs(pre).tokenizer().unwrap()).unwrap();
    let ids = tokenizer.encode(text, true).unwrap();
    let texts: Vec<_> = ids.iter().map(|&id| tokenizer.token(id).unwrap()).collect();
    assert_eq!(texts, wanted, "{pre}");
    assert_eq!(
        decode(&tokenizer, Begins::Fresh, &ids),
        text.replace("<|end|>", "")
    );
}

#[test]
fn each_pre_tokenizer_cuts_in_its_own_way() {
    check(
        "llama-bpe",
        "ab 123<|end|>",
        &["<|end|>", "ab", "Ġ", "123", "<|end|>"],
    );
    check(
        "qwen2",
        "ab 123<|end|> ab",
        &["ab", "Ġ", "1", "2", "3", "<|end|>", "Ġab"],
    );
    check("default", "ab é", &["ab", "Ġ", "Ã", "©"]);
    check("default", "ab 123", &["ab", "Ġ", "123"]);
    check("smollm", "ab 123 ab", &["ab", "Ġ", "1", "2", "3", "Ġab"]);
    check("refact", "ab 123 ab", &["ab", "Ġ", "1", "2", "3", "Ġab"]);
    check("olmo", "ab 123", &["ab", "Ġ", "123"]);
    check("dbrx", "ab 123", &["ab", "Ġ", "123"]);
    check("glm4", "ab 123", &["ab", "Ġ", "123"]);
    check("lfm2", "ab 123", &["<|end|>", "ab", "Ġ", "123"]);
    check("qwen35", "ab 123 ab", &["ab", "Ġ", "1", "2", "3", "Ġab"]);
    check("gpt-4o", "ab 123", &["ab", "Ġ", "123"]);
    check("llama4", "ab 123", &["ab", "Ġ", "123"]);
    check("starcoder", "ab 123", &["ab", "Ġ", "1", "2", "3"]);
    check("granite-docling", "ab 123", &["ab", "Ġ", "123"]);
    check("deepseek-llm", "ab ab1234", &["ab", "Ġab", "123", "4"]);
    check("deepseek-coder", "ab ab12", &["ab", "Ġab", "1", "2"]);
    check("deepseek-v3", "ab 1234", &["ab", "Ġ", "123", "4"]);
    check("tekken", "ab 123", &["<|end|>", "ab", "Ġ", "1", "2", "3"]);
}

fn check_refused(vocabulary: &Vocabulary, wanted: &str) {
    let error = vocabulary.tokenizer().unwrap_err().to_string();
    assert_eq!(error, wanted);
}

#[test]
fn merges_that_make_no_token_are_refused() {
    let mut vocabulary = byte_pairs("default");
    vocabulary.kind = VocabularyKind::BytePairs {
        pre: "default".to_owned(),
        merges: tokens(&["<|end|> <|end|>"]),
    };
    check_refused(
        &vocabulary,
        "tokenizer.ggml.merges is invalid: found \"<|end|> <|end|>\", expected two tokens that form a third",
    );
}

#[test]
fn vocabularies_that_would_take_forever_are_refused() {
    let pieces = |texts: Vec<String>| Vocabulary {
        types: vec![1; texts.len()],
        tokens: texts,
        ..Vocabulary::default()
    };
    check_refused(
        &pieces(vec!["a".to_owned(), "ab".repeat(1000)]),
        "tokenizer.ggml.tokens is invalid: found 2000 bytes in token 1, expected at most 1024",
    );
    let many = (0..16 << 10).map(|id| format!("{id:01024}"));
    check_refused(
        &pieces(many.chain(["a".to_owned()]).collect()),
        "tokenizer.ggml.tokens is invalid: found 16777217 bytes in all tokens, expected at most 16777216",
    );
    let runs = (1..=1024).map(|length| "a".repeat(length));
    check_refused(
        &pieces(runs.collect()),
        "tokenizer.ggml.tokens is invalid: found 134640220 bytes in the token pairs, expected at most 134217728",
    );
    let control = (0..1025).map(|id| format!("{id:01024}")).collect();
    let control = Vocabulary {
        types: vec![CONTROL; 1025],
        ..pieces(control)
    };
    check_refused(
        &control,
        "tokenizer.ggml.tokens is invalid: found 1049600 bytes in all control and user-defined tokens, expected at most 1048576",
    );
}

#[test]
fn an_unknown_pre_tokenizer_is_refused_by_name() {
    check_refused(
        &byte_pairs("klingon"),
        "tokenizer.ggml.pre: found klingon; supported: llama-bpe, llama4, lfm2, qwen2, qwen35, smollm, dbrx, glm4, \
         gpt-4o, olmo, refact, starcoder, granite-docling, tekken, deepseek-llm, deepseek-coder, deepseek-v3, gpt-2 and default",
    );
}

/// Compares with the same pairs whose merges are spelled out by the reference.
#[test]
fn pairs_merge_by_the_rank_of_their_token() {
    let words = ["a", "b", " ", "ab", " a", "abb", "\u{e9}"];
    let tokens: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let vocabulary = Vocabulary::of_ranks(&tokens, vec!["<|end|>".to_owned()]).unwrap();
    let tokenizer = vocabulary.tokenizer().unwrap();
    let ids = |text: &str| {
        tokenizer
            .encode_fast(text, false)
            .unwrap()
            .get_ids()
            .to_vec()
    };
    assert_eq!(ids("ab abb"), [3, 2, 5]);
    assert_eq!(ids(" a"), [4]);
    assert_eq!(ids("<|end|>"), [7]);
}
