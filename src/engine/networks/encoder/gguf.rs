//! BERT as GGUF files hold it: its keys, and its tensors under other names. RoBERTa is written as the same, without the rows of
//! positions before its first token.

use super::config::{Activation, EncoderFamily, EncoderSpec, Task};
use crate::networks::weights::{Checkpoint, Flaw, GgufMetadata};

pub const ARCHITECTURE: &str = "bert";
/// Embedding tables, whose rows stay in the file on a CPU.
pub const TABLES: [&str; 3] = [WORDS, POSITIONS, TYPES];

const WORDS: &str = "token_embd.weight";
const POSITIONS: &str = "position_embd.weight";
const TYPES: &str = "token_types.weight";

/// Names of the hub and of the format: the part after a layer's number, or the whole name.
const NAMES: &[(&str, &str)] = &[
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

/// `None` if the file holds another network.
pub fn spec(checkpoint: &Checkpoint, metadata: &GgufMetadata) -> Option<Result<EncoderSpec, Flaw>> {
    let is_one = metadata.text("general.architecture") == Some(ARCHITECTURE);
    is_one.then(|| read(checkpoint, metadata))
}

fn read(checkpoint: &Checkpoint, metadata: &GgufMetadata) -> Result<EncoderSpec, Flaw> {
    let size = |name: &str| {
        let key = format!("{ARCHITECTURE}.{name}");
        let size = metadata.unsigned(&key).map(usize::try_from);
        match size {
            Some(Ok(size)) => Ok(size),
            _ => Err(Flaw::broken(key, "nothing", "a number")),
        }
    };
    let rows = |name: &str| {
        let header = checkpoint.tensor(name);
        let rows = header.and_then(|header| header.shape.first().copied());
        rows.ok_or_else(|| Flaw::broken(format!("the tensor {name:?}"), "nothing", "a table"))
    };
    let eps = format!("{ARCHITECTURE}.attention.layer_norm_epsilon");
    let spec = EncoderSpec {
        family: EncoderFamily::Bert,
        task: Task::Embed,
        vocab_size: rows(WORDS)?,
        hidden_size: size("embedding_length")?,
        intermediate_size: size("feed_forward_length")?,
        layers: size("block_count")?,
        heads: size("attention.head_count")?,
        positions: rows(POSITIONS)?,
        token_types: rows(TYPES)?,
        norm_eps: metadata.float(&eps).unwrap_or(1e-12),
        activation: Activation::Gelu,
        padding: 0,
    };
    spec.check()?;
    Ok(spec)
}

/// The name of a tensor of the hub: `encoder.layer.3.output.dense.bias` is `blk.3.ffn_down.bias`.
pub fn name(hub: &str) -> Option<String> {
    let (stem, end) = hub.rsplit_once('.')?;
    let (layer, part) = match stem.strip_prefix("encoder.layer.") {
        None => (None, stem),
        Some(rest) => {
            let (layer, part) = rest.split_once('.')?;
            (Some(layer), part)
        }
    };
    let (_, part) = NAMES.iter().find(|(known, _)| *known == part)?;
    Some(match layer {
        None => format!("{part}.{end}"),
        Some(layer) => format!("blk.{layer}.{part}.{end}"),
    })
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn tensors_have_the_names_of_the_format() {
        for (hub, found) in [
            ("embeddings.LayerNorm.bias", "token_embd_norm.bias"),
            ("encoder.layer.3.output.dense.bias", "blk.3.ffn_down.bias"),
            (
                "encoder.layer.0.attention.output.LayerNorm.weight",
                "blk.0.attn_output_norm.weight",
            ),
            (
                "encoder.layer.11.output.LayerNorm.weight",
                "blk.11.layer_output_norm.weight",
            ),
        ] {
            assert_eq!(name(hub).as_deref(), Some(found));
        }
        assert_eq!(name("pooler.dense.weight"), None);
    }
}
