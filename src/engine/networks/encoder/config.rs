//! `config.json` of an encoder, parsed once and checked. Unsupported values that would change the result are refused by
//! name.

use serde::Deserialize;
use serde_json::Value;

use super::gguf;
use crate::networks::weights::{Checkpoint, CheckpointError, Description, Flaw, layered};

/// Everything the one encoder needs to know to be a BERT or a RoBERTa.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderSpec {
    pub family: EncoderFamily,
    pub task: Task,
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layers: usize,
    pub heads: usize,
    /// Rows of the table of positions.
    pub positions: usize,
    pub token_types: usize,
    pub norm_eps: f64,
    pub activation: Activation,
    /// RoBERTa counts positions from the one after it, and gives it to padding.
    pub padding: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderFamily {
    Bert,
    Roberta,
}

/// The encoder's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// A vector.
    Embed,
    /// A score by the checkpoint's classification head.
    Score,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    Gelu,
    /// Approximates GELU by a hyperbolic tangent.
    GeluTanh,
    Relu,
}

/// Entries of `architectures`.
const ARCHITECTURES: &[(&str, EncoderFamily, Task)] = &[
    ("BertModel", EncoderFamily::Bert, Task::Embed),
    ("RobertaModel", EncoderFamily::Roberta, Task::Embed),
    ("XLMRobertaModel", EncoderFamily::Roberta, Task::Embed),
    (
        "BertForSequenceClassification",
        EncoderFamily::Bert,
        Task::Score,
    ),
    (
        "RobertaForSequenceClassification",
        EncoderFamily::Roberta,
        Task::Score,
    ),
    (
        "XLMRobertaForSequenceClassification",
        EncoderFamily::Roberta,
        Task::Score,
    ),
];

/// The raw file.
#[derive(Debug, Deserialize)]
struct EncoderJson {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    max_position_embeddings: usize,
    #[serde(default = "usual_token_types")]
    type_vocab_size: usize,
    #[serde(default = "usual_eps")]
    layer_norm_eps: f64,
    hidden_act: Option<String>,
    position_embedding_type: Option<String>,
    pad_token_id: Option<u32>,
    is_decoder: Option<bool>,
    quantization_config: Option<Value>,
}

fn usual_token_types() -> usize {
    2
}

fn usual_eps() -> f64 {
    1e-12
}

impl Checkpoint {
    /// The encoder in these files; none where they hold another network.
    pub fn encoder_spec(&self) -> Result<Option<EncoderSpec>, CheckpointError> {
        let spec = match self.description() {
            Description::Config(config) => spec(config),
            Description::Gguf(metadata) => gguf::spec(self, metadata),
        };
        let spec = spec.transpose();
        spec.map_err(|flaw| flaw.in_file(self.path()))
    }
}

fn spec(value: &Value) -> Option<Result<EncoderSpec, Flaw>> {
    let names = value["architectures"].as_array()?;
    let mut names = names.iter().filter_map(Value::as_str);
    let found = names.find_map(|name| ARCHITECTURES.iter().find(|row| row.0 == name));
    found.map(|(_, family, task)| read(value, *family, *task))
}

fn read(value: &Value, family: EncoderFamily, task: Task) -> Result<EncoderSpec, Flaw> {
    let config: EncoderJson = serde_json::from_value(value.clone())
        .map_err(|error| Flaw::broken("config.json", error, "the configuration of an encoder"))?;
    config.check()?;
    let spec = EncoderSpec {
        family,
        task,
        vocab_size: config.vocab_size,
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        layers: layered("num_hidden_layers", config.num_hidden_layers)?,
        heads: config.num_attention_heads,
        positions: config.max_position_embeddings,
        token_types: config.type_vocab_size,
        norm_eps: config.layer_norm_eps,
        activation: activation(config.hidden_act.as_deref())?,
        padding: config.pad_token_id.unwrap_or(match family {
            EncoderFamily::Bert => 0,
            EncoderFamily::Roberta => 1,
        }),
    };
    spec.check()?;
    Ok(spec)
}

impl EncoderJson {
    fn check(&self) -> Result<(), Flaw> {
        let positions = self.position_embedding_type.as_deref();
        if let Some(other) = positions.filter(|&name| name != "absolute") {
            return Err(Flaw::unsupported(
                "position_embedding_type",
                other,
                "absolute",
            ));
        }
        if self.is_decoder == Some(true) {
            return Err(Flaw::unsupported("is_decoder", "true", "false"));
        }
        match &self.quantization_config {
            None => Ok(()),
            Some(_) => Err(Flaw::unsupported(
                "quantization_config",
                "a quantized encoder",
                "weights in f32, f16 or bf16",
            )),
        }
    }
}

fn activation(name: Option<&str>) -> Result<Activation, Flaw> {
    match name {
        None | Some("gelu") => Ok(Activation::Gelu),
        Some("gelu_new" | "gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        Some("relu") => Ok(Activation::Relu),
        Some(other) => Err(Flaw::unsupported(
            "hidden_act",
            other,
            "gelu, gelu_new, gelu_pytorch_tanh and relu",
        )),
    }
}

impl EncoderSpec {
    /// The most tokens of a sequence, by the table of positions.
    pub fn context(&self) -> usize {
        self.positions.saturating_sub(self.first_position())
    }

    /// The position of a sequence's first token.
    pub fn first_position(&self) -> usize {
        match self.family {
            EncoderFamily::Bert => 0,
            EncoderFamily::Roberta => self.padding as usize + 1,
        }
    }

    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.heads
    }

    /// Sizes that an encoder can have at all, so that arithmetic on them later needs no second thought.
    pub(super) fn check(&self) -> Result<(), Flaw> {
        for (name, size, most) in [
            ("the vocabulary size", self.vocab_size, 1 << 24),
            ("the hidden size", self.hidden_size, 1 << 16),
            ("the feed-forward size", self.intermediate_size, 1 << 18),
            ("the number of layers", self.layers, 1 << 10),
            ("the number of heads", self.heads, 1 << 10),
            ("the number of positions", self.positions, 1 << 20),
            ("the number of token types", self.token_types, 1 << 10),
            ("the context", self.context(), 1 << 20),
        ] {
            if !(1..=most).contains(&size) {
                return Err(Flaw::broken(name, size, format!("1 to {most}")));
            }
        }
        if !self.hidden_size.is_multiple_of(self.heads) {
            let found = format!("{} over {} heads", self.hidden_size, self.heads);
            return Err(Flaw::broken(
                "the hidden size",
                found,
                "a multiple of the heads",
            ));
        }
        match self.norm_eps.is_finite() && self.norm_eps >= 0.0 {
            true => Ok(()),
            false => Err(Flaw::broken(
                "the norm's epsilon",
                self.norm_eps,
                "a finite number from 0",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{EncoderFamily, Task, spec};

    fn config(fields: Value) -> Value {
        let mut config = json!({
            "architectures": ["XLMRobertaModel"], "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 514, "pad_token_id": 1,
        });
        for (name, value) in fields.as_object().unwrap() {
            config[name] = value.clone();
        }
        config
    }

    #[test]
    fn positions_of_roberta_begin_after_its_padding() {
        let found = spec(&config(json!({}))).unwrap().unwrap();
        assert_eq!(
            (found.family, found.task),
            (EncoderFamily::Roberta, Task::Embed)
        );
        assert_eq!((found.first_position(), found.context()), (2, 512));
        let bert = config(json!({"architectures": ["BertForSequenceClassification"]}));
        let bert = spec(&bert).unwrap().unwrap();
        assert_eq!((bert.task, bert.context()), (Task::Score, 514));
        assert!(spec(&config(json!({"architectures": ["LlamaForCausalLM"]}))).is_none());
    }

    #[test]
    fn a_value_that_is_not_computed_is_refused_by_name() {
        let cases = [
            (
                json!({"position_embedding_type": "relative_key"}),
                "position_embedding_type",
            ),
            (json!({"hidden_act": "silu"}), "hidden_act"),
            (json!({"is_decoder": true}), "is_decoder"),
            (json!({"quantization_config": {}}), "quantization_config"),
            (json!({"num_attention_heads": 5}), "the hidden size"),
            (json!({"num_attention_heads": 0}), "the number of heads"),
            (json!({"max_position_embeddings": 2}), "the context"),
        ];
        for (fields, part) in cases {
            let flaw = spec(&config(fields)).unwrap().unwrap_err();
            let error = flaw.in_file("config.json".as_ref()).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
