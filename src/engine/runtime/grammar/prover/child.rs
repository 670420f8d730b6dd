//! The prover's process: compiles a source and generates random text from it, under limits.

use std::io::{self, Write, stdin, stdout};
use std::process::exit;
use std::sync::Arc;
use std::thread;

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::{MEMORY, PROOF_TIME, Proof, STACK};
use crate::runtime::grammar::compiler::factory;
use crate::runtime::grammar::guide::first_line;
use muster_process::child::{self, Watch, limit_memory};

/// Every byte, and the end.
const VOCABULARY: u32 = 257;
const END: TokenId = 256;
/// How often a source is followed, and for how many tokens.
const WALKS: u64 = 2;
const STEPS: usize = 200;

/// Proves one source after another until the parent closes our input.
pub fn serve() -> io::Result<()> {
    child::write_no_core()?;
    limit_memory(MEMORY)?;
    // The worker's own threads come first.
    let _ = rustix::process::nice(10);
    let watch = Watch::start()?;
    let thread = thread::Builder::new()
        .name("prover".to_owned())
        .stack_size(STACK)
        .spawn(move || prove_all(&watch))?;
    // A panic was printed, and the parent reads why we ended.
    thread.join().unwrap_or_else(|_| exit(101))
}

fn prove_all(watch: &Watch) -> io::Result<()> {
    let factory = factory(Arc::new(Bytes::new()))
        .ok_or_else(|| io::Error::other("the vocabulary of bytes cannot be used with grammars"))?;
    let (mut input, mut output) = (stdin(), stdout());
    child::confine()?;
    loop {
        let frame = match child::read(&mut input) {
            Ok(frame) => frame,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        watch.begin(PROOF_TIME);
        let proof = match serde_json::from_slice(&frame) {
            Ok(source) => prove(&factory, source),
            Err(error) => Proof::Refused(format!("reading the source failed: {error}")),
        };
        output.write_all(&child::to_bytes(&proof))?;
        output.flush()?;
        watch.end();
    }
}

fn prove(factory: &ParserFactory, source: TopLevelGrammar) -> Proof {
    let mut matcher = Matcher::new(factory.create_parser(source));
    if let Some(error) = matcher.get_error() {
        return Proof::Refused(first_line(&error));
    }
    let _ = matcher.compute_mask();
    for walk in 0..WALKS {
        let mut copy = matcher.deep_clone();
        follow(&mut copy, walk);
        if let Some(error) = copy.get_error() {
            return Proof::Refused(first_line(&error));
        }
    }
    Proof::Sound
}

/// The same way each time, so that a refusal does not depend on luck.
fn follow(matcher: &mut Matcher, seed: u64) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    for _ in 0..STEPS {
        let Ok(mask) = matcher.compute_mask() else {
            return;
        };
        let allowed: Vec<TokenId> = (0..END).filter(|&byte| mask.is_allowed(byte)).collect();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let Some(&byte) = allowed.get((random % allowed.len().max(1) as u64) as usize) else {
            return;
        };
        if matcher.consume_token(byte).is_err() || matcher.is_stopped() {
            return;
        }
    }
}

/// The smallest vocabulary that can write any text: independent of the model and built in milliseconds.
struct Bytes(TokTrie);

impl Bytes {
    fn new() -> Self {
        let words: Vec<Vec<u8>> = (0..=u8::MAX)
            .map(|byte| vec![byte])
            .chain([Vec::new()])
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(VOCABULARY, END), &words);
        Self(trie.with_eos_tokens(&[END]))
    }
}

impl TokenizerEnv for Bytes {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(bytes)
    }
}
