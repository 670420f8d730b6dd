//! Attention without pages, for networks that see all their tokens at once.

use candle_core::{D, DType, Device, Result, Tensor};

pub use super::cpu::Mask;
use super::{cpu, cuda};

/// `softmax(q · kᵀ * scale + mask) · v` for `q` of `[batch, queries, heads, d]` and `k` and `v` of
/// `[batch, keys, kv_heads, d]`, where several heads may share one of the keys'. The result has the shape of `q`.
pub fn dense_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    scale: f32,
    mask: Mask,
) -> Result<Tensor> {
    if q.device().is_cpu() {
        return cpu::dense_attention(q, k, v, scale, mask);
    }
    let scores = q.elem_count() / q.dim(D::Minus1)?.max(1) * k.dim(1)?;
    if scores * size_of::<f32>() > MOST_WRITTEN_BYTES
        && let Some(attended) = cuda::attention(q, k, v, scale, mask)?
    {
        return Ok(attended);
    }
    with_products(q, k, v, scale, mask)
}

/// Limit above which a kernel avoids materializing the scores, if it can; its operands are then f16.
const MOST_WRITTEN_BYTES: usize = 4 << 20;

/// Attends with candle's operations, which materializes the scores.
fn with_products(q: &Tensor, k: &Tensor, v: &Tensor, scale: f32, mask: Mask) -> Result<Tensor> {
    let (batch, queries, heads, d) = q.dims4()?;
    let (_, keys, kv_heads, _) = k.dims4()?;
    let shared = |x: &Tensor| {
        let shape = (batch, keys, kv_heads, heads / kv_heads, d);
        let x = x
            .unsqueeze(3)?
            .expand(shape)?
            .reshape((batch, keys, heads, d))?;
        x.transpose(1, 2)?.contiguous()
    };
    let scores = q.transpose(1, 2)?.contiguous()?.matmul(&shared(k)?.t()?)?;
    let scores = (scores.to_dtype(DType::F32)? * f64::from(scale))?;
    let bias = match mask {
        Mask::None => None,
        Mask::Bias(bias) => Some(bias.to_dtype(DType::F32)?),
        Mask::Causal => Some(band(queries, keys, usize::MAX, 0, q.device())?),
        Mask::Band { before, after } => Some(band(queries, keys, before, after, q.device())?),
    };
    let scores = match bias {
        Some(bias) => scores.broadcast_add(&bias)?,
        None => scores,
    };
    let weights = candle_nn::ops::softmax(&scores, D::Minus1)?.to_dtype(v.dtype())?;
    weights.matmul(&shared(v)?)?.transpose(1, 2)?.contiguous()
}

/// Zero where a query sees, minus infinity elsewhere.
fn band(
    queries: usize,
    keys: usize,
    before: usize,
    after: usize,
    device: &Device,
) -> Result<Tensor> {
    let pairs =
        (0..queries).flat_map(|query| (0..keys).map(move |key| (query + keys - queries, key)));
    let bias = pairs.map(|(own, key)| {
        let is_seen = (own.saturating_sub(before)..=own.saturating_add(after)).contains(&key);
        if is_seen { 0.0 } else { f32::NEG_INFINITY }
    });
    Tensor::from_vec(bias.collect(), (queries, keys), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(shape: &[usize]) -> Tensor {
        Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap()
    }

    fn check(q: &[usize], k: &[usize], mask: Mask) {
        let (q, k, v) = (random(q), random(k), random(k));
        let scale = (q.dim(3).unwrap() as f32).powf(-0.5);
        let wanted = with_products(&q, &k, &v, scale, mask).unwrap();
        let found = dense_attention(&q, &k, &v, scale, mask).unwrap();
        let gap = (found - wanted).unwrap().abs().unwrap().max_all().unwrap();
        assert!(gap.to_scalar::<f32>().unwrap() < 2e-5, "{mask:?}");
    }

    #[test]
    fn heads_of_all_sizes() {
        for d in [32, 40, 64, 80, 96, 128, 160, 256, 512] {
            check(&[2, 37, 3, d], &[2, 37, 3, d], Mask::None);
        }
    }

    #[test]
    fn masks_hide_what_they_should() {
        let bias = random(&[2, 1, 70, 90]);
        let of_heads = random(&[1, 4, 70, 90]);
        let band = Mask::Band {
            before: 9,
            after: 3,
        };
        for mask in [
            Mask::None,
            Mask::Causal,
            band,
            Mask::Bias(&bias),
            Mask::Bias(&of_heads),
        ] {
            check(&[2, 70, 4, 48], &[2, 90, 2, 48], mask);
        }
    }

    #[test]
    fn a_query_does_not_depend_on_those_beside_it() {
        let (q, k) = (random(&[1, 50, 2, 40]), random(&[1, 60, 2, 40]));
        let all = dense_attention(&q, &k, &k, 0.2, Mask::None).unwrap();
        for row in [0, 7, 49] {
            let alone =
                dense_attention(&q.narrow(1, row, 1).unwrap(), &k, &k, 0.2, Mask::None).unwrap();
            let among = all.narrow(1, row, 1).unwrap();
            let floats = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(floats(&alone), floats(&among));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (q, k) = (random(&[1, 5, 3, 8]), random(&[1, 5, 2, 8]));
        let error = dense_attention(&q, &k, &k, 1.0, Mask::None).unwrap_err();
        assert!(error.to_string().contains("do not fit queries"), "{error}");
    }
}
