//! Rows of the way to logits, for scores that are logits of a few tokens.

use super::family::Role;
use crate::networks::weights::{Checkpoint, CheckpointError, Flaw, TensorSource, convert};

/// The rows of the output matrix for these tokens.
pub fn head_rows(
    checkpoint: &Checkpoint,
    tokens: &[u32],
) -> Result<Vec<Vec<f32>>, CheckpointError> {
    let spec = checkpoint.spec()?;
    let rows = || {
        if spec.scales.logits != 1.0 || spec.soft_caps.logits.is_some() {
            let found = format!(
                "logits of a {} decoder, which are scaled or capped",
                spec.family
            );
            return Err(Flaw::unsupported(
                "a score by tokens",
                found,
                "plain logits",
            ));
        }
        let role = match spec.tied_embeddings {
            true => Role::Embedding,
            false => Role::Head,
        };
        let name = checkpoint.naming().weight(role);
        let shape = [spec.vocab_size, spec.hidden_size];
        let known = "f32, f16, bf16 and GGUF quantizations";
        let (_, dtype, bytes) = checkpoint.weight(&name, &[&shape], known)?;
        let row_bytes = bytes.len() / spec.vocab_size;
        let rows = tokens.iter().map(|&token| {
            let start = token as usize * row_bytes;
            match bytes.get(start..start + row_bytes) {
                Some(row) => Ok(convert::floats(dtype, row)?),
                None => {
                    let wanted = format!("an id below {}", spec.vocab_size);
                    Err(Flaw::broken("a token that scores", token, wanted))
                }
            }
        });
        rows.collect()
    };
    rows().map_err(|flaw: Flaw| flaw.in_file(checkpoint.path()))
}
