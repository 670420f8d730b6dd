//! Compilation with limits, and the compiled grammars of one model. Sources are checked by the prover before, if one
//! exists: in workers always.

use std::collections::HashMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use toktrie::{InferenceCapabilities, TokEnv};

use super::guide::first_line;
use super::lark;
use super::prover::Prover;
use super::slots::{CompileSlots, Slot};
use super::vocabulary::TokenTree;
use super::{Answer, Calls, Function, Grammar, Guide};
use crate::runtime::text::{Begins, Language};
use crate::runtime::{CacheScope, Failure, StopRules};

/// Limits of cached grammars, and of the bytes of their sources.
const MOST_KEPT: usize = 32;
const MOST_KEPT_BYTES: usize = 8 << 20;
const COMPILE_TIME: Duration = Duration::from_secs(3);
/// Schemas are compiled recursively.
const COMPILE_STACK: usize = 16 << 20;

/// Compiler of a model's grammars, created with the first of them.
pub struct Grammars {
    language: Arc<Language>,
    vocabulary: usize,
    factory: OnceLock<Option<Arc<ParserFactory>>>,
    /// Tokens that begin with a space, for tokenizers that strip the first space of a text.
    spaced: OnceLock<Option<Arc<[u32]>>>,
    kept: Mutex<GrammarCache>,
    prover: Option<Arc<Prover>>,
    slots: Arc<CompileSlots>,
}

#[derive(Default)]
struct GrammarCache {
    entries: HashMap<String, CachedGrammar>,
    bytes: usize,
    clock: u64,
}

struct CachedGrammar {
    matcher: Matcher,
    used: u64,
}

impl Grammars {
    /// Without a prover, clients must be trusted: a source may end this process.
    pub fn new(language: Arc<Language>, vocabulary: usize, prover: Option<Arc<Prover>>) -> Self {
        Self {
            language,
            vocabulary,
            factory: OnceLock::new(),
            spaced: OnceLock::new(),
            kept: Mutex::default(),
            prover,
            slots: Arc::default(),
        }
    }

    /// The guide of a sequence with these tokens so far. May take as long as compiling a grammar: not for the inference
    /// thread.
    pub fn guide(
        &self,
        grammar: &Grammar,
        scope: CacheScope,
        begins: Begins,
        rules: &StopRules,
        generated: &[u32],
    ) -> Result<Guide, Failure> {
        let matcher = self.matcher(grammar, scope)?;
        let ends = [&self.language.ends[..], &rules.stop_token_ids].concat();
        let not_first = match begins {
            Begins::Fresh => self.spaced().clone(),
            Begins::AfterPrompt => None,
        };
        let mut guide = Guide::new(matcher, ends, not_first);
        for &id in generated {
            if guide.ends.contains(&id) {
                break;
            }
            let refused = |error| Failure::BadRequest(format!("generated does not fit: {error}"));
            guide.take(id).map_err(refused)?;
        }
        Ok(guide)
    }

    /// If the parameters of a function without `strict` cannot be compiled, its arguments may be any object, while
    /// function names stay constrained.
    fn matcher(&self, grammar: &Grammar, scope: CacheScope) -> Result<Matcher, Failure> {
        match self.exact_matcher(grammar, scope) {
            Err(Failure::BadRequest(reason)) => match grammar.loosened() {
                Some(looser) => self.exact_matcher(&looser, scope),
                None => Err(Failure::BadRequest(reason)),
            },
            matcher => matcher,
        }
    }

    fn exact_matcher(&self, grammar: &Grammar, scope: CacheScope) -> Result<Matcher, Failure> {
        let key = key(grammar);
        if let Some(matcher) = lock(&self.kept).find(&key) {
            return Ok(matcher);
        }
        let source = lark::top_level(grammar);
        let source = source.map_err(|refusal| Failure::BadRequest(refusal.to_string()))?;
        let factory = self.factory().clone().ok_or_else(|| {
            Failure::BadRequest("the model's vocabulary cannot be used with grammars".to_owned())
        })?;
        let refusal = self.prover.as_ref();
        if let Some(refusal) = refusal.and_then(|prover| prover.known_refusal(&source)) {
            return Err(refusal);
        }
        let slot = CompileSlots::take(&self.slots, scope, key.len(), COMPILE_TIME)?;
        // Choices of one request compile the same grammar at the same time.
        if let Some(matcher) = lock(&self.kept).find(&key) {
            return Ok(matcher);
        }
        if let Some(prover) = &self.prover {
            prover.prove(&source)?;
        }
        let matcher = compile(&factory, source, slot)?;
        let copy = matcher.deep_clone();
        lock(&self.kept).keep(key, matcher);
        Ok(copy)
    }

    fn factory(&self) -> &Option<Arc<ParserFactory>> {
        self.factory.get_or_init(|| {
            let tree = TokenTree::new(Arc::clone(&self.language), self.vocabulary)?;
            factory(Arc::new(tree)).map(Arc::new)
        })
    }

    fn spaced(&self) -> &Option<Arc<[u32]>> {
        self.spaced.get_or_init(|| {
            let pieces = self.language.pieces();
            let ids = 0..u32::try_from(self.vocabulary).unwrap_or(u32::MAX);
            let spaced = ids.filter(|&id| pieces.bytes(id).starts_with(b" "));
            pieces.strips_first_space().then(|| spaced.collect())
        })
    }
}

/// The grammar as text. Two schemas that differ in the order of their properties are equal, and their grammars are not.
/// (Printing a schema as JSON takes a tenth of the time of printing it for debugging.)
fn key(grammar: &Grammar) -> String {
    let Grammar {
        thought,
        calls,
        answer,
    } = grammar;
    let mut key = match answer {
        Answer::JsonSchema(schema) => format!("{thought:?} JsonSchema {schema}"),
        answer => format!("{thought:?} {answer:?}"),
    };
    let Some(Calls {
        markup,
        functions,
        single,
    }) = calls
    else {
        return key;
    };
    key.push_str(&format!("{markup:?} {single}"));
    for Function {
        name,
        parameters,
        strict,
    } in functions
    {
        key.push_str(&format!("{name:?} {strict} "));
        match parameters {
            Some(schema) => key.push_str(&schema.to_string()),
            None => key.push('-'),
        }
    }
    key
}

pub fn factory(tokens: TokEnv) -> Option<ParserFactory> {
    let can = InferenceCapabilities {
        ff_tokens: tokens.tokenize_is_canonical(),
        ..InferenceCapabilities::default()
    };
    let slices = SlicedBiasComputer::general_slices();
    let mut factory = ParserFactory::new(&tokens, can, &slices).ok()?;
    factory.quiet();
    *factory.limits_mut() = ParserLimits {
        // A mask at these limits takes about 10 ms: a grammar that needs more ends with its own sequence.
        step_lexer_fuel: 100_000,
        step_max_items: 50_000,
        // 1 to 2 KiB each.
        max_lexer_states: 50_000,
        // About 100 bytes each, in every copy.
        max_grammar_size: 150_000,
        verbose_errors: false,
        ..ParserLimits::default()
    };
    Some(factory)
}

/// Compiles on a separate thread: library calls cannot be cancelled, so the request stops waiting for it.
fn compile(
    factory: &Arc<ParserFactory>,
    source: llguidance::api::TopLevelGrammar,
    slot: Slot,
) -> Result<Matcher, Failure> {
    let (sender, compiled) = mpsc::sync_channel(1);
    let factory = Arc::clone(factory);
    let body = move || {
        let mut matcher = Matcher::new(factory.create_parser(source));
        // The first mask is the dearest of many grammars, and the first place where one leads nowhere.
        let _ = matcher.compute_mask();
        drop(slot);
        // After the limit the receiver was dropped.
        let _ = sender.send(matcher);
    };
    let thread = thread::Builder::new()
        .name("muster-grammar".to_owned())
        .stack_size(COMPILE_STACK)
        .spawn(body);
    thread.map_err(Failure::internal)?;
    let matcher = match compiled.recv_timeout(COMPILE_TIME) {
        Ok(matcher) => matcher,
        Err(RecvTimeoutError::Timeout) => {
            let limit = COMPILE_TIME.as_secs();
            let message = format!("the grammar is too complex: compiling took over {limit} s");
            return Err(Failure::BadRequest(message));
        }
        Err(RecvTimeoutError::Disconnected) => {
            return Err(Failure::BadRequest(
                "the grammar cannot be compiled".to_owned(),
            ));
        }
    };
    match matcher.get_error() {
        None => Ok(matcher),
        Some(error) => Err(Failure::BadRequest(format!(
            "the grammar cannot be compiled: {}",
            first_line(&error)
        ))),
    }
}

impl GrammarCache {
    fn find(&mut self, key: &str) -> Option<Matcher> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(entry.matcher.deep_clone())
    }

    fn keep(&mut self, key: String, matcher: Matcher) {
        self.bytes += key.len();
        let used = self.clock;
        if let Some((old, _)) = self.entries.remove_entry(&key) {
            self.bytes -= old.len();
        }
        self.entries.insert(key, CachedGrammar { matcher, used });
        while self.entries.len() > MOST_KEPT || self.bytes > MOST_KEPT_BYTES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.entries.remove(&oldest);
            self.bytes -= oldest.len();
        }
    }
}

/// A panic while holding the lock cannot leave these values half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
