//! Keys and values of one text or sound, for attention of few queries at a time.

use candle_core::{DType, Device, Result, Tensor};

use super::{KvDtype, Mask, cpu, dense_attention};

/// Keys and values of up to a fixed number of tokens, laid out once for the device's attention.
#[derive(Debug)]
pub struct KvCache(Storage);

#[derive(Debug)]
enum Storage {
    Cpu(cpu::KvTiles),
    /// `[1, tokens, heads, head_dim]` each.
    Device([Tensor; 2]),
}

impl KvCache {
    /// Room for `[tokens, heads, head_dim]`, stored as f32 or f16 on a CPU and as f32 elsewhere.
    pub fn new(shape: [usize; 3], dtype: KvDtype, device: &Device) -> Result<Self> {
        if device.is_cpu() {
            return cpu::KvTiles::new(shape, dtype).map(|tiles| Self(Storage::Cpu(tiles)));
        }
        let [tokens, heads, head_dim] = shape;
        let room = || Tensor::zeros((1, tokens, heads, head_dim), DType::F32, device);
        Ok(Self(Storage::Device([room()?, room()?])))
    }

    /// An independent copy.
    pub fn fork(&self) -> Result<Self> {
        Ok(Self(match &self.0 {
            Storage::Cpu(tiles) => Storage::Cpu(tiles.fork()?),
            Storage::Device([keys, values]) => Storage::Device([keys.copy()?, values.copy()?]),
        }))
    }

    /// Writes the keys and values of tokens from `from` on, `[tokens, heads, head_dim]` each.
    pub fn write(&mut self, from: usize, k: &Tensor, v: &Tensor) -> Result<()> {
        match &mut self.0 {
            Storage::Cpu(tiles) => tiles.write(from, k, v),
            Storage::Device([keys, values]) => {
                keys.slice_set(&k.unsqueeze(0)?.contiguous()?, 1, from)?;
                values.slice_set(&v.unsqueeze(0)?.contiguous()?, 1, from)
            }
        }
    }

    /// Like [`dense_attention()`] to the first `keys` tokens, without a bias. The queries `[queries, heads, head_dim]`
    /// are the last of these tokens; the result has the same shape.
    pub fn attend(&self, q: &Tensor, keys: usize, scale: f32, mask: Mask) -> Result<Tensor> {
        match &self.0 {
            Storage::Cpu(tiles) => tiles.attend(q, keys, scale, mask),
            Storage::Device(pair) => {
                let [k, v] = pair.each_ref().map(|x| x.narrow(1, 0, keys));
                let q = q.unsqueeze(0)?.contiguous()?;
                dense_attention(&q, &k?, &v?, scale, mask)?.squeeze(0)
            }
        }
    }

    /// The keys of a head, `[tokens, head_dim]`.
    pub fn keys(&self, head: usize) -> Result<Tensor> {
        match &self.0 {
            Storage::Cpu(tiles) => tiles.keys(head),
            Storage::Device([keys, _]) => keys
                .squeeze(0)?
                .narrow(1, head, 1)?
                .squeeze(1)?
                .contiguous(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(shape: [usize; 3]) -> Tensor {
        Tensor::randn(0f32, 1.0, &shape, &Device::Cpu).unwrap()
    }

    fn gap(a: &Tensor, b: &Tensor) -> f32 {
        assert_eq!(a.dims(), b.dims());
        let gap = (a - b).unwrap().abs().unwrap().max_all().unwrap();
        gap.to_scalar().unwrap()
    }

    /// Appends parts across page borders and compares with attention that lays out its own operands.
    #[test]
    fn attention_to_a_cache_is_dense_attention() {
        for (dtype, tolerance) in [(KvDtype::F32, 2e-6), (KvDtype::F16, 2e-3)] {
            for head_dim in [24, 64] {
                // Rounded like stored keys: rounding random keys may cost more than the tolerance.
                let stored = |x: Tensor| match dtype {
                    KvDtype::F16 => x.to_dtype(DType::F16).and_then(|x| x.to_dtype(DType::F32)),
                    _ => Ok(x),
                };
                let (k, v) = (random([75, 3, head_dim]), random([75, 3, head_dim]));
                let (k, v) = (stored(k).unwrap(), stored(v).unwrap());
                let mut cache = KvCache::new([80, 3, head_dim], dtype, &Device::Cpu).unwrap();
                for (from, to) in [(0, 40), (40, 41), (41, 75)] {
                    let part = |x: &Tensor| x.narrow(0, from, to - from).unwrap();
                    cache.write(from, &part(&k), &part(&v)).unwrap();
                }
                let forked = cache.fork().unwrap();
                cache
                    .write(60, &random([15, 3, head_dim]), &random([15, 3, head_dim]))
                    .unwrap();
                for (queries, keys, mask) in [
                    (1, 75, Mask::None),
                    (7, 75, Mask::Causal),
                    (5, 33, Mask::None),
                ] {
                    let q = random([queries, 3, head_dim]);
                    let whole = |x: &Tensor| x.narrow(0, 0, keys).unwrap().unsqueeze(0).unwrap();
                    let q_whole = q.unsqueeze(0).unwrap();
                    let wanted =
                        dense_attention(&q_whole, &whole(&k), &whole(&v), 0.3, mask).unwrap();
                    let found = forked.attend(&q, keys, 0.3, mask).unwrap();
                    assert!(
                        gap(&found, &wanted.squeeze(0).unwrap()) < tolerance,
                        "{dtype} {queries}"
                    );
                }
                let wanted = k.narrow(1, 2, 1).unwrap().squeeze(1).unwrap();
                let found = forked.keys(2).unwrap().narrow(0, 0, 75).unwrap();
                assert!(gap(&found, &wanted) < tolerance);
            }
        }
    }

    #[test]
    fn what_does_not_fit_a_cache_is_refused() {
        let mut cache = KvCache::new([8, 2, 16], KvDtype::F32, &Device::Cpu).unwrap();
        let error = cache
            .write(5, &random([4, 2, 16]), &random([4, 2, 16]))
            .unwrap_err();
        assert!(
            error.to_string().contains("do not fit a cache of 8 tokens"),
            "{error}"
        );
        let error = cache
            .attend(&random([1, 2, 16]), 9, 1.0, Mask::None)
            .unwrap_err();
        assert!(
            error.to_string().contains("of 9 keys do not fit"),
            "{error}"
        );
    }
}
