//! The same steps as the metadata of a GGUF file state them. Programs that write such files leave out that vectors are
//! normalized: all readers do it.

use super::PairTemplate;
use super::sentence::{AnswerRows, DenseActivation, DenseModule, DenseWeights, SentenceConfig};
use crate::networks::encoder::Pooling;
use crate::networks::weights::{Checkpoint, Flaw, GgufMetadata, GgufValue};

/// Products after the pooling, in order: identities with a matrix before them.
const DENSE: [&str; 2] = ["dense_2.weight", "dense_3.weight"];
const ANSWERS: &str = "cls.output.weight";
/// Labels of the rows of `ANSWERS`, where a file has labels.
const LABELS: [&str; 2] = ["yes", "no"];
const NONE: u64 = 0;
const RANK: u64 = 4;

impl SentenceConfig {
    /// `None` if the file holds a generative model.
    pub fn of_gguf(checkpoint: &Checkpoint, metadata: &GgufMetadata) -> Result<Option<Self>, Flaw> {
        let architecture = metadata.text("general.architecture").unwrap_or_default();
        let key = format!("{architecture}.pooling_type");
        let Some(value) = metadata.value(&key) else {
            return Ok(None);
        };
        let unsupported = || {
            let known = "0 to 4: none, mean, cls, last and rank";
            Flaw::unsupported(&key, format!("{value:?}"), known)
        };
        let config = Self {
            normalizes: true,
            template: PairTemplate::default(),
            ..Self::default()
        };
        let pooling = match value.unsigned() {
            Some(NONE) => return Ok(None),
            Some(1) => Pooling::Mean,
            Some(2) => Pooling::First,
            Some(3) => Pooling::Last,
            Some(RANK) => {
                check_answers(checkpoint, metadata, architecture)?;
                return Ok(Some(Self {
                    answers: Some(AnswerRows::Tensor(ANSWERS)),
                    ..config
                }));
            }
            _ => return Err(unsupported()),
        };
        let dense = DENSE.iter().filter_map(|name| dense(checkpoint, name));
        Ok(Some(Self {
            pooling: Some(pooling),
            dense: dense.collect(),
            ..config
        }))
    }
}

fn dense(checkpoint: &Checkpoint, name: &'static str) -> Option<DenseModule> {
    let [outputs, inputs] = *checkpoint.tensor(name)?.shape.as_slice() else {
        return None;
    };
    Some(DenseModule {
        weights: DenseWeights::Tensor(name),
        inputs,
        outputs,
        has_bias: false,
        activation: DenseActivation::Identity,
    })
}

/// Scores by the rows of two answers, of which the first means that a document fits.
fn check_answers(
    checkpoint: &Checkpoint,
    metadata: &GgufMetadata,
    architecture: &str,
) -> Result<(), Flaw> {
    let shape = checkpoint
        .tensor(ANSWERS)
        .map(|header| header.shape.clone());
    if shape.as_ref().and_then(|shape| shape.first()) != Some(&2) {
        let (what, found) = (format!("the tensor {ANSWERS:?}"), format!("{shape:?}"));
        return Err(Flaw::unsupported(what, found, "two rows, of yes and no"));
    }
    let key = format!("{architecture}.classifier.output_labels");
    let labels = metadata.texts(&key);
    if labels.as_ref().is_some_and(|labels| *labels != LABELS) {
        return Err(Flaw::unsupported(key, format!("{labels:?}"), "yes and no"));
    }
    let key = "tokenizer.chat_template.rerank";
    match metadata.value(key) {
        Some(GgufValue::Text(template))
            if template.contains("{query}") && template.contains("{document}") =>
        {
            Ok(())
        }
        found => {
            let wanted = "a text with {query} and {document}";
            let found = match found {
                None => "nothing".to_owned(),
                Some(_) => "another value".to_owned(),
            };
            Err(Flaw::broken(key, found, wanted))
        }
    }
}
