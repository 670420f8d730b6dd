//! The sizes of Wan's transformer.

use serde::Deserialize;
use serde_json::Value;

use super::super::sized;
use crate::networks::weights::{Flaw, layered};

#[derive(Debug, Clone, PartialEq)]
pub struct WanSpec {
    /// Frames, rows and columns of a patch.
    pub patch: [usize; 3],
    pub heads: usize,
    pub head_size: usize,
    pub inputs: usize,
    pub outputs: usize,
    pub text_width: usize,
    pub time_width: usize,
    pub feed: usize,
    pub layers: usize,
    /// A norm before the attention to the text.
    pub has_text_norm: bool,
    pub eps: f64,
    /// The most patches of an axis.
    pub positions: usize,
}

/// `config.json` of diffusers.
#[derive(Deserialize)]
struct WanJson {
    patch_size: [usize; 3],
    num_attention_heads: usize,
    attention_head_dim: usize,
    in_channels: usize,
    out_channels: Option<usize>,
    text_dim: usize,
    freq_dim: usize,
    ffn_dim: usize,
    num_layers: usize,
    cross_attn_norm: bool,
    qk_norm: Option<String>,
    eps: f64,
    #[serde(default = "usual_positions")]
    rope_max_seq_len: usize,
}

fn usual_positions() -> usize {
    1024
}

const THETA: f64 = 10_000.0;
const QUERY_KEY_NORM: &str = "rms_norm_across_heads";
const MOST_PATCH: usize = 16;
/// Settings of networks with a separate image encoder.
const OF_IMAGES: &[&str] = &["image_dim", "added_kv_proj_dim", "pos_embed_seq_len"];

impl WanSpec {
    /// Reads the `config.json` of diffusers' WanTransformer3DModel.
    pub fn read(value: &Value) -> Result<Self, Flaw> {
        let json: WanJson = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("config.json", error, "a WanTransformer3DModel"))?;
        if let Some(name) = OF_IMAGES.iter().find(|name| !value[**name].is_null()) {
            return Err(Flaw::unsupported(
                *name,
                &value[*name],
                "null: text to video",
            ));
        }
        let norm = json.qk_norm.as_deref().unwrap_or("none");
        if norm != QUERY_KEY_NORM {
            return Err(Flaw::unsupported("qk_norm", norm, QUERY_KEY_NORM));
        }
        let head_size = sized("attention_head_dim", json.attention_head_dim)?;
        // Each axis rotates pairs, at most a third of them.
        if head_size < 6 || !head_size.is_multiple_of(2) {
            let wanted = "an even number from 6";
            return Err(Flaw::broken("attention_head_dim", head_size, wanted));
        }
        let freq_dim = sized("freq_dim", json.freq_dim)?;
        if !freq_dim.is_multiple_of(2) {
            return Err(Flaw::broken("freq_dim", freq_dim, "an even number"));
        }
        if json
            .patch_size
            .iter()
            .any(|side| !(1..=MOST_PATCH).contains(side))
        {
            let found = format!("{:?}", json.patch_size);
            return Err(Flaw::broken(
                "patch_size",
                found,
                format!("1 to {MOST_PATCH} a side"),
            ));
        }
        let inputs = sized("in_channels", json.in_channels)?;
        let outputs = sized("out_channels", json.out_channels.unwrap_or(inputs))?;
        if outputs != inputs {
            let known = format!("{inputs}, as in_channels: text to video");
            return Err(Flaw::unsupported("out_channels", outputs, known));
        }
        Ok(Self {
            patch: json.patch_size,
            heads: sized("num_attention_heads", json.num_attention_heads)?,
            head_size,
            inputs,
            outputs,
            text_width: sized("text_dim", json.text_dim)?,
            time_width: freq_dim,
            feed: sized("ffn_dim", json.ffn_dim)?,
            layers: layered("num_layers", json.num_layers)?,
            has_text_norm: json.cross_attn_norm,
            eps: json.eps,
            positions: sized("rope_max_seq_len", json.rope_max_seq_len)?,
        })
    }

    pub fn width(&self) -> usize {
        self.heads * self.head_size
    }

    /// The rope angles of all patches, half a head each: some by frame, some by row, some by column.
    pub(super) fn angles(&self, [frames, rows, columns]: [usize; 3]) -> Vec<f64> {
        let in_space = 2 * (self.head_size / 6);
        let in_time = self.head_size - 2 * in_space;
        let turns = |size: usize, position: usize| {
            (0..size / 2).map(move |at| position as f64 / THETA.powf(2.0 * at as f64 / size as f64))
        };
        let mut angles = Vec::with_capacity(frames * rows * columns * self.head_size / 2);
        for frame in 0..frames {
            for row in 0..rows {
                for column in 0..columns {
                    angles.extend(turns(in_time, frame));
                    angles.extend(turns(in_space, row));
                    angles.extend(turns(in_space, column));
                }
            }
        }
        angles
    }

    /// Numbers that a pass holds at once for each patch: the state and its norm, queries, keys, values and the result of
    /// attention with copies that turned, or the inner part of the feed-forward layer.
    pub fn floats_per_token(&self) -> u64 {
        let width = self.width() as u64;
        (8 * width).max(4 * width + 2 * self.feed as u64) + self.head_size as u64
    }
}
