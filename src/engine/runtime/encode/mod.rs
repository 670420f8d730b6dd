//! Encoders: models that return embeddings or scores, and their execution on the inference thread.
//!
//! | file | content |
//! | --- | --- |
//! | `sentence` | pooling and length as the files of sentence-transformers state them |
//! | `gguf` | the same as the metadata of a GGUF file states it |
//! | `load` | loads an encoder from its files |
//! | `head` | dense layers after the pooling, scores from logits |

mod gguf;
#[cfg(test)]
mod golden;
mod head;
mod load;
mod sentence;

pub use load::{Encoding, encoder_footprint, open};

use candle_core::{Result, Tensor, bail};
use serde_json::json;

use super::Chat;
use crate::networks::encoder::{Encoder, EncoderInput, EncoderPass, Pooling, Task};
use crate::networks::text::{Decoder, LastStatesPass, StateRows};
use head::{Dense, TokenScore};
use muster_kernels::HostFloats;

/// The task of an encoder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Writing text.
    #[default]
    Generate,
    /// Vectors of texts.
    Embed(Vectors),
    /// Scores of documents by a query.
    Rerank(Pairing),
}

/// How a query and a document become one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pairing {
    /// Pairs are joined by the tokenizer's template.
    Tokenizer,
    Template(PairTemplate),
}

/// The chat template has messages of the roles `query` and `document`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PairTemplate {
    /// The instruction before them, a message of the role `system`.
    pub instruction: Option<String>,
    pub adds_generation_prompt: bool,
}

impl PairTemplate {
    pub fn chat(&self, query: &str, document: &str) -> Chat {
        let instruction = self.instruction.as_deref().map(|text| ("system", text));
        let messages = instruction.into_iter();
        let messages = messages.chain([("query", query), ("document", document)]);
        let messages = messages.map(|(role, content)| json!({"role": role, "content": content}));
        let mut variables = serde_json::Map::new();
        let is_added = self.adds_generation_prompt;
        variables.insert("add_generation_prompt".to_owned(), is_added.into());
        Chat {
            messages: messages.collect(),
            variables,
            ..Chat::default()
        }
    }
}

/// The vectors of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vectors {
    pub dimensions: usize,
    pub shorter: Shorter,
}

/// Lengths to which a vector may be truncated: models are trained for it (Matryoshka), or truncated vectors lose their
/// meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shorter {
    Never,
    ToAny,
    To(Vec<usize>),
}

impl Vectors {
    pub fn can_have(&self, dimensions: usize) -> bool {
        dimensions == self.dimensions
            || match &self.shorter {
                Shorter::Never => false,
                Shorter::ToAny => (1..self.dimensions).contains(&dimensions),
                Shorter::To(sizes) => sizes.contains(&dimensions),
            }
    }
}

/// A network that reads sequences whole, one layer after the other.
pub trait Encode: Send {
    /// Begins with these sequences, in place of earlier ones.
    fn begin(&mut self, batch: &[EncoderInput]) -> Result<()>;

    /// Runs one more layer. After the last one, returns a vector or a score per sequence.
    fn advance(&mut self) -> Result<Option<Vec<Vec<f32>>>>;
}

/// BERT and its kin.
struct Bidirectional {
    encoder: Encoder,
    pooling: Pooling,
    dense: Vec<Dense>,
    normalizes: bool,
    pass: Option<EncoderPass>,
}

/// A decoder whose pooled hidden states are the embedding.
struct DecoderStates {
    decoder: Decoder,
    pooling: Pooling,
    dense: Vec<Dense>,
    normalizes: bool,
    pass: Option<DecoderPass>,
}

/// A decoder whose next-token logits are the score.
struct NextToken {
    decoder: Decoder,
    score: TokenScore,
    pass: Option<LastStatesPass>,
}

struct DecoderPass {
    lengths: Vec<usize>,
    states: LastStatesPass,
}

impl Encode for Bidirectional {
    fn begin(&mut self, batch: &[EncoderInput]) -> Result<()> {
        self.pass = None;
        self.pass = Some(self.encoder.begin(batch)?);
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<Vec<Vec<f32>>>> {
        let Some(mut pass) = self.pass.take() else {
            bail!("no sequences were begun");
        };
        if !self.encoder.advance(&mut pass)? {
            self.pass = Some(pass);
            return Ok(None);
        }
        let encoded = match self.encoder.spec().task {
            Task::Embed => {
                let pooled = head::through(&self.dense, pass.pooled(self.pooling)?)?;
                rows(&pooled, self.normalizes)
            }
            Task::Score => rows(&self.encoder.scores_of(&pass)?, false),
        };
        encoded.map(Some)
    }
}

impl Encode for DecoderStates {
    fn begin(&mut self, batch: &[EncoderInput]) -> Result<()> {
        self.pass = None;
        let wanted = match self.pooling {
            Pooling::Last => StateRows::Last,
            Pooling::First | Pooling::Mean | Pooling::Max => StateRows::All,
        };
        self.pass = Some(DecoderPass {
            lengths: batch.iter().map(|one| one.tokens.len()).collect(),
            states: self.decoder.begin_states(&tokens_of(batch), wanted)?,
        });
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<Vec<Vec<f32>>>> {
        let Some(mut pass) = self.pass.take() else {
            bail!("no sequences were begun");
        };
        let Some(states) = self.decoder.advance_last_states(&mut pass.states)? else {
            self.pass = Some(pass);
            return Ok(None);
        };
        let pooled = match self.pooling {
            Pooling::Last => states,
            pooling => pooling.of(&states, &pass.lengths)?,
        };
        rows(&head::through(&self.dense, pooled)?, self.normalizes).map(Some)
    }
}

impl Encode for NextToken {
    fn begin(&mut self, batch: &[EncoderInput]) -> Result<()> {
        self.pass = None;
        let tokens = tokens_of(batch);
        self.pass = Some(self.decoder.begin_states(&tokens, StateRows::Last)?);
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<Vec<Vec<f32>>>> {
        let Some(mut pass) = self.pass.take() else {
            bail!("no sequences were begun");
        };
        let Some(states) = self.decoder.advance_last_states(&mut pass)? else {
            self.pass = Some(pass);
            return Ok(None);
        };
        let states = rows(&states, false)?;
        let scores = states.iter().map(|state| vec![self.score.of(state)]);
        Ok(Some(scores.collect()))
    }
}

fn tokens_of(batch: &[EncoderInput]) -> Vec<&[u32]> {
    batch.iter().map(|one| one.tokens.as_slice()).collect()
}

fn rows(states: &Tensor, normalizes: bool) -> Result<Vec<Vec<f32>>> {
    let (_, width) = states.dims2()?;
    let mut host = HostFloats::default();
    let numbers = host.read(states)?;
    let rows = numbers.chunks_exact(width).map(|row| {
        let mut row = row.to_vec();
        if normalizes {
            normalize(&mut row);
        }
        row
    });
    Ok(rows.collect())
}

/// Scales to length 1; a zero vector stays as it is.
pub fn normalize(vector: &mut [f32]) {
    let square: f64 = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let length = square.sqrt().max(1e-12);
    for number in vector {
        *number = (f64::from(*number) / length) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::{Shorter, Vectors, normalize};

    #[test]
    fn a_vector_is_cut_only_where_its_model_allows_it() {
        let of = |shorter| Vectors {
            dimensions: 8,
            shorter,
        };
        assert!(of(Shorter::Never).can_have(8) && !of(Shorter::Never).can_have(4));
        assert!(of(Shorter::ToAny).can_have(3) && !of(Shorter::ToAny).can_have(9));
        assert!(!of(Shorter::ToAny).can_have(0));
        assert!(of(Shorter::To(vec![4])).can_have(4) && !of(Shorter::To(vec![4])).can_have(3));
    }

    #[test]
    fn a_vector_is_brought_to_length_one() {
        let mut vector = [3.0, 4.0];
        normalize(&mut vector);
        assert_eq!(vector, [0.6, 0.8]);
        let mut nothing = [0.0, 0.0];
        normalize(&mut nothing);
        assert_eq!(nothing, [0.0, 0.0]);
    }
}
