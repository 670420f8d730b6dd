//! Latent attention: in the hub's files the keys and values of all heads are one matrix, of which each head takes its
//! rows; GGUF files hold the two apart.

use candle_core::quantized::GgmlDType;

use super::{
    super::{
        family::{Naming, Part, Role},
        latent::LatentSpec,
        spec::DecoderSpec,
    },
    tensors::{Loader, RowRange},
};
use crate::networks::{
    layers::{LatentAttention, LatentQuery, LatentSizes},
    weights::{Flaw, Weight, convert},
};
use muster_kernels::AttentionOptions;

impl Loader<'_> {
    pub fn latent_attention(
        &mut self,
        spec: &DecoderSpec,
        latent: &LatentSpec,
        index: usize,
    ) -> Result<LatentAttention, Flaw> {
        let (hidden, sizes) = (spec.hidden_size, latent.sizes);
        let biases = spec.biases;
        let rows = |part, rows| RowRange::all(Role::Layer(index, part), rows);
        let query = match latent.query_rank {
            None => LatentQuery::Whole(self.linear(
                rows(Part::Query, spec.query_size(index)),
                hidden,
                false,
            )?),
            Some(rank) => LatentQuery::LowRank {
                down: self.linear(rows(Part::QueryDown, rank), hidden, biases.query_key_value)?,
                norm: self.norm(Role::Layer(index, Part::QueryDownNorm), rank, spec)?,
                up: self.linear(rows(Part::QueryUp, spec.query_size(index)), rank, false)?,
            },
        };
        let down = rows(Part::LatentDown, sizes.kept());
        let output = rows(Part::AttentionOutput, hidden);
        let (keys, values) = match self.naming {
            Naming::Gguf => self.latent_heads_apart(spec.heads, sizes, index)?,
            _ => self.latent_heads(spec.heads, sizes, index)?,
        };
        Ok(LatentAttention {
            query,
            latent: self.linear(down, hidden, biases.query_key_value)?,
            latent_norm: self.norm(Role::Layer(index, Part::LatentNorm), sizes.rank, spec)?,
            keys,
            values,
            output: self.linear(output, spec.gathered_size(index), biases.attention_output)?,
            sizes,
            options: AttentionOptions {
                scale: spec.attention_scale() as f32,
                window: spec.window(index),
                softcap: spec.soft_caps.attention.map(|cap| cap as f32),
                reach: spec.reach(index),
            },
        })
    }

    /// Rows of a head: those of its key, then those of its value.
    fn latent_heads(
        &mut self,
        heads: usize,
        sizes: LatentSizes,
        index: usize,
    ) -> Result<(Vec<Weight>, Vec<Weight>), Flaw> {
        let name = self.naming.weight(Role::Layer(index, Part::LatentUp));
        let of_head = sizes.plain_dim + sizes.value_dim;
        let (header, dtype, all) = self.find(&name, &[heads * of_head, sizes.rank])?;
        if !convert::is_dense(dtype) {
            let what = format!("the tensor {name:?}");
            return Err(Flaw::unsupported(what, header.dtype, "f32, f16 and bf16"));
        }
        all.will_read();
        let row_bytes = sizes.rank * dtype.type_size();
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for rows in all.chunks_exact(of_head * row_bytes) {
            let (key, value) = rows.split_at(sizes.plain_dim * row_bytes);
            let key = transposed(key, sizes.rank, dtype);
            keys.push(self.placed(dtype, &key, (sizes.rank, sizes.plain_dim), false)?);
            values.push(self.placed(dtype, value, (sizes.value_dim, sizes.rank), false)?);
        }
        all.release();
        Ok((keys, values))
    }

    fn latent_heads_apart(
        &mut self,
        heads: usize,
        sizes: LatentSizes,
        index: usize,
    ) -> Result<(Vec<Weight>, Vec<Weight>), Flaw> {
        let keys = (sizes.rank, sizes.plain_dim);
        let values = (sizes.value_dim, sizes.rank);
        Ok((
            self.matrices_of(Role::Layer(index, Part::LatentKeys), heads, keys)?,
            self.matrices_of(Role::Layer(index, Part::LatentValues), heads, values)?,
        ))
    }

    /// The matrices of all heads, concatenated in a tensor.
    fn matrices_of(
        &mut self,
        role: Role,
        heads: usize,
        (rows, cols): (usize, usize),
    ) -> Result<Vec<Weight>, Flaw> {
        let name = self.naming.weight(role);
        let (_, dtype, all) = self.find(&name, &[heads, rows, cols])?;
        all.will_read();
        let each = all.chunks_exact(all.len() / heads);
        let weights = each.map(|bytes| self.placed(dtype, bytes, (rows, cols), false));
        let weights = weights.collect();
        all.release();
        weights
    }
}

/// Dense rows as columns.
fn transposed(rows: &[u8], cols: usize, dtype: GgmlDType) -> Vec<u8> {
    let size = dtype.type_size();
    let row_bytes = cols * size;
    let columns = (0..cols).flat_map(|col| {
        let numbers = rows.chunks_exact(row_bytes);
        numbers.flat_map(move |row| &row[col * size..(col + 1) * size])
    });
    columns.copied().collect()
}
