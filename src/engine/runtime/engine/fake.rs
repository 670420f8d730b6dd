//! A network without weights that reads its context from pages like a real one, so that a wrongly shared or reused page
//! changes its output. The next token follows a rule that a test can predict.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use candle_core::{Device, Result, Tensor, bail};

use super::Loader;
use crate::networks::text::Batch;
use crate::runtime::load::{CacheRoom, Loaded, LoadedNetwork};
use crate::runtime::model::Model;
use crate::runtime::text::{
    Language, Markup, Reader, TextError, Tokenizer, Vocabulary, VocabularyKind,
};
use crate::runtime::{CheckpointSummary, ModelInfo, Purpose, Sampling};
use muster_kernels::PAGE_TOKENS;

/// One token per byte, and the end-of-text token.
pub const VOCABULARY: usize = 257;
pub const END: u32 = 256;
pub const CONTEXT: usize = 4096;
/// [`Rule::Echoes`] repeats itself after this many tokens.
const ECHO: usize = 23;

/// Rows whose logits are returned together.
const SCORED_ROWS: usize = 5;

/// The rule for the next token.
#[derive(Debug, Clone)]
pub enum Rule {
    /// After `>` this text, byte by byte, then the end.
    Says(&'static str),
    /// A letter that depends on every token before.
    Rambles,
    /// Any token, by a number that depends on every token before.
    Scatters,
    /// A letter of two, nearly equally likely, by all tokens before: every pair of them was seen soon.
    Stutters,
    /// Repeats its last [`ECHO`] tokens, but for a letter now and then.
    Echoes,
    /// Like `Rambles`, but a sequence with an `X` gets logits of NaN.
    ChokesOnX,
    /// Like `Rambles`, but the device fails when the KV cache is resized.
    LosesPages,
    /// The device fails.
    Breaks,
    /// The network has a bug.
    Panics,
}

#[derive(Clone)]
pub struct Fake {
    pub rule: Rule,
    pub steps: Arc<AtomicUsize>,
    /// When set, each step waits for one message here, until the other end is dropped.
    gate: Option<Arc<Mutex<mpsc::Receiver<()>>>>,
}

struct FakeModel {
    fake: Fake,
    written: Vec<[u32; PAGE_TOKENS]>,
    vocabulary: Vocabulary,
}

impl Fake {
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            steps: Arc::default(),
            gate: None,
        }
    }

    /// A fake whose steps wait for a signal each.
    pub fn gated(rule: Rule) -> (Self, mpsc::Sender<()>) {
        let (open, gate) = mpsc::channel();
        let fake = Self {
            gate: Some(Arc::new(Mutex::new(gate))),
            ..Self::new(rule)
        };
        (fake, open)
    }

    pub fn steps(&self) -> usize {
        self.steps.load(Ordering::SeqCst)
    }

    pub fn loader(&self) -> Loader {
        let fake = self.clone();
        Box::new(move |source, progress| {
            progress(1, 1);
            let tokens = match source.cache {
                CacheRoom::Tokens(tokens) => tokens,
                _ => CONTEXT,
            };
            let pages = tokens.div_ceil(PAGE_TOKENS);
            let model = FakeModel {
                fake: fake.clone(),
                written: vec![[u32::MAX; PAGE_TOKENS]; pages],
                vocabulary: vocabulary(),
            };
            Ok(Loaded {
                network: LoadedNetwork::Text {
                    model: Box::new(model),
                    pages,
                },
                language: language()?,
                info: ModelInfo {
                    context: source.context.unwrap_or(CONTEXT).min(tokens),
                    ..info(pages)
                },
                defaults: source.defaults.clone(),
                images: None,
            })
        })
    }
}

fn info(pages: usize) -> ModelInfo {
    ModelInfo {
        name: String::new(),
        parent: None,
        purpose: Purpose::Generate,
        vocabulary: VOCABULARY,
        context: CONTEXT.min(pages * PAGE_TOKENS),
        weight_bytes: 0,
        cache_bytes: 0,
        cache_tokens: pages * PAGE_TOKENS,
        can_chat: false,
        reads_images: false,
        runs_one_job: false,
        files: CheckpointSummary::default(),
    }
}

fn language() -> std::result::Result<Language, TextError> {
    Ok(Language {
        reader: Reader::local(
            Tokenizer::new(vocabulary().tokenizer()?)?,
            Err(TextError::Missing {
                what: "the model's chat template".to_owned(),
            }),
        ),
        ends: vec![END],
        defaults: Sampling::default(),
        markup: Markup::default(),
    })
}

/// Bytes as byte-level vocabularies spell them: the printable ones, then the others.
fn vocabulary() -> Vocabulary {
    let printable = ('!'..='~')
        .chain('\u{a1}'..='\u{ac}')
        .chain('\u{ae}'..='\u{ff}');
    let mut tokens: Vec<String> = printable
        .chain('\u{100}'..='\u{143}')
        .map(String::from)
        .collect();
    tokens.push("<|end|>".to_owned());
    let mut types = vec![1; VOCABULARY];
    types[END as usize] = 3;
    Vocabulary {
        kind: VocabularyKind::BytePairs {
            pre: "default".to_owned(),
            merges: Vec::new(),
        },
        tokens,
        types,
        ..Vocabulary::default()
    }
}

impl FakeModel {
    fn id(&self, byte: u8) -> u32 {
        let spelled = match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
            0..=0x20 => 0x100 + u32::from(byte),
            0x7f..=0xa0 => 0x121 + u32::from(byte - 0x7f),
            0xad => 0x143,
        };
        let letter = char::from_u32(spelled).map(String::from);
        self.vocabulary
            .tokens
            .iter()
            .zip(0..)
            .find(|(token, _)| Some(*token) == letter.as_ref())
            .map_or(END, |(_, id)| id)
    }

    fn logits(&self, history: &[u32]) -> Vec<f32> {
        let sum = history.iter().fold(7_u64, |sum, &id| {
            sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(id)
        });
        let mut logits: Vec<f32> = (0..VOCABULARY as u64)
            .map(|id| (sum.wrapping_mul(id * 2 + 1) >> 40) as f32 / f32::from(u16::MAX))
            .collect();
        if matches!(self.fake.rule, Rule::Scatters) {
            return logits.iter().map(|logit| logit / 32.0).collect();
        }
        if matches!(self.fake.rule, Rule::Stutters) {
            logits[self.id(b'a') as usize] += 1000.0;
            logits[self.id(b'b') as usize] += 1000.0;
            return logits;
        }
        let is_new = history.len() % 31 < 2;
        let next = match self.fake.rule {
            Rule::Echoes if history.len() > ECHO && !is_new => history[history.len() - ECHO],
            Rule::Says(text) => self.next_said(text, history),
            Rule::ChokesOnX if history.contains(&self.id(b'X')) => {
                return vec![f32::NAN; VOCABULARY];
            }
            _ => self.id(b'a' + (sum >> 33) as u8 % 26),
        };
        logits[next as usize] += 1000.0;
        logits
    }

    fn next_said(&self, text: &str, history: &[u32]) -> u32 {
        let prompt_end = history.iter().position(|&id| id == self.id(b'>'));
        let said = history.len() - prompt_end.map_or(0, |end| end + 1);
        text.as_bytes().get(said).map_or(END, |&byte| self.id(byte))
    }
}

impl Model for FakeModel {
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    fn resize_cache(&mut self, pages: usize, kept: &[u32]) -> Result<()> {
        if matches!(self.fake.rule, Rule::LosesPages) {
            bail!("the device is full");
        }
        let stay = kept.iter().map(|&page| self.written[page as usize]);
        let mut written: Vec<_> = stay.collect();
        written.resize(pages, [END; PAGE_TOKENS]);
        self.written = written;
        Ok(())
    }

    fn forward(
        &mut self,
        batch: &Batch,
        scored: &[u32],
        take: &mut dyn FnMut(Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        if let Some(gate) = &self.fake.gate {
            let _ = gate.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
        self.fake.steps.fetch_add(1, Ordering::SeqCst);
        if matches!(self.fake.rule, Rule::Breaks) {
            bail!("the device fell off");
        }
        assert!(!matches!(self.fake.rule, Rule::Panics), "a bug");
        let mut tokens = batch.tokens.iter();
        let mut rows = Vec::new();
        for span in &batch.spans {
            for position in span.past_tokens..span.past_tokens + span.new_tokens {
                let page = span.pages[position / PAGE_TOKENS] as usize;
                self.written[page][position % PAGE_TOKENS] = *tokens.next().unwrap_or(&END);
                rows.push((span, position));
            }
        }
        let logits = |asked: &[u32]| {
            let mut logits = Vec::new();
            for &row in asked {
                let (span, position) = rows[row as usize];
                let read = |at: usize| {
                    self.written[span.pages[at / PAGE_TOKENS] as usize][at % PAGE_TOKENS]
                };
                logits.extend(self.logits(&(0..=position).map(read).collect::<Vec<_>>()));
            }
            Tensor::from_vec(logits, (asked.len(), VOCABULARY), &Device::Cpu)
        };
        for some in scored.chunks(SCORED_ROWS) {
            take(logits(some)?)?;
        }
        logits(&batch.logit_rows)
    }
}
