//! Self-test of our kernels: when a GPU is opened with a driver or build for the first time, compares them with the CPU's on
//! one whole tile and on a ragged size. After a failure the operation falls back to candle's.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Result, Tensor};

use super::native;
use super::trial_record::TrialRecord;
pub use super::trial_record::keep_gpu_trials;
use crate::cpu::Mask;
use crate::{
    AttentionOptions, AttentionPlan, AttentionReach, Axis, BlockMatrix, Convolution, DeltaRule,
    GpuTrial, HeadNorm, KvDtype, LayerPages, LayerStates, RecurrenceShape, RopeStyle, RopeTable,
    RotaryHeads, ShortConvolution, Span, StateShape, StateSpan, dense_product, group_norm,
    layer_norm, paged_attention, rotary_attention, rotate, select_rows, silu_mul,
};

/// Work that is not left undone where our kernel for it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Gate,
    AddRmsNorm,
    LayerNorm,
    GroupNorm,
    Rotation,
    Attention,
    PagedAttention,
    HeadsIntoPages,
    Product,
    BlockProduct,
    Convolution,
    Recurrence,
    Selection,
}

/// A kernel that a GPU fails at.
#[derive(Debug, Clone)]
pub struct KernelFault {
    pub operation: Operation,
    pub why: String,
}

static FAULTY: AtomicU32 = AtomicU32::new(0);
static TRIALS: Mutex<Vec<GpuTrial>> = Mutex::new(Vec::new());

/// Whether the operation's self-test failed on any GPU of this process.
pub fn is_faulty(operation: Operation) -> bool {
    FAULTY.load(Ordering::Relaxed) & (1 << operation as u32) != 0
}

/// The faults of the GPUs that were opened.
pub fn gpu_faults() -> Vec<String> {
    let trials = gpu_trials().into_iter();
    trials.flat_map(|trial| trial.faults).collect()
}

/// The self-tests of the opened GPUs, in order of opening.
pub fn gpu_trials() -> Vec<GpuTrial> {
    TRIALS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

impl fmt::Display for KernelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.operation.name(), self.why)
    }
}

impl Operation {
    pub const ALL: [Self; 13] = [
        Self::Gate,
        Self::AddRmsNorm,
        Self::LayerNorm,
        Self::GroupNorm,
        Self::Rotation,
        Self::Attention,
        Self::PagedAttention,
        Self::HeadsIntoPages,
        Self::Product,
        Self::BlockProduct,
        Self::Convolution,
        Self::Recurrence,
        Self::Selection,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Gate => "gated activations",
            Self::AddRmsNorm => "RMS norms",
            Self::LayerNorm => "layer norms",
            Self::GroupNorm => "group norms",
            Self::Rotation => "rotary embeddings",
            Self::Attention => "attention",
            Self::PagedAttention => "attention to pages",
            Self::HeadsIntoPages => "rotary attention to pages",
            Self::Product => "products",
            Self::BlockProduct => "products with quantized matrices",
            Self::Convolution => "convolutions",
            Self::Recurrence => "recurrent layers",
            Self::Selection => "selected rows",
        }
    }

    /// The operation's results on a device, for comparison with the CPU's.
    fn results(self, device: &Device) -> Result<Vec<Tensor>> {
        match self {
            Self::Gate => Ok(vec![silu_mul(
                &x(&[3, 85], device)?,
                &x(&[3, 85], device)?,
            )?]),
            Self::AddRmsNorm => {
                let of = |shape: &[usize]| x(shape, device);
                let (sum, normed) =
                    crate::add_rms_norm(&of(&[3, 333])?, &of(&[3, 333])?, &of(&[333])?, 1e-5)?;
                Ok(vec![sum, normed])
            }
            Self::LayerNorm => Ok(vec![layer_norm(&x(&[5, 77], device)?, None, None, 1e-5)?]),
            Self::GroupNorm => {
                let x = x(&[2, 33, 64], device)?;
                Ok(vec![group_norm(&x, 32, None, None, 1e-5)?])
            }
            Self::Rotation => {
                let frequencies = (0..16).map(|i| 1e4f64.powf(f64::from(i) / -16.0)).collect();
                let table = RopeTable::new(frequencies, 99, RopeStyle::Halves, 1.0, device)?;
                let positions = Tensor::new(&[0u32, 7, 98], device)?;
                Ok(vec![rotate(&x(&[3, 2, 48], device)?, &table, &positions)?])
            }
            Self::Attention => [64, 128]
                .into_iter()
                .map(|size| {
                    let (q, k) = (
                        x(&[1, 67, 2, size], device)?,
                        x(&[1, 131, 1, size], device)?,
                    );
                    let attended = match device {
                        Device::Cpu => crate::cpu::dense_attention(&q, &k, &k, 0.1, Mask::Causal)?,
                        _ => native::attention(&q, &k, &k, 0.1, Mask::Causal)?.unwrap_or(q),
                    };
                    Ok(attended)
                })
                .collect(),
            Self::PagedAttention => {
                let mut results = paged(KvDtype::F16, false, device)?;
                results.extend(paged(KvDtype::Q8_0, false, device)?);
                Ok(results)
            }
            Self::HeadsIntoPages => paged(KvDtype::F16, true, device),
            Self::Product => {
                let weight = x(&[70, 40], device)?.to_dtype(DType::F16)?;
                let few = dense_product(&x(&[2, 40], device)?, &weight)?;
                Ok(vec![few, dense_product(&x(&[67, 40], device)?, &weight)?])
            }
            Self::BlockProduct => block_products(device),
            Self::Convolution => {
                let axis = Axis {
                    padding: [1, 1],
                    ..Axis::default()
                };
                let weight = x(&[12, 8, 3, 3], device)?;
                let layer = Convolution::new(&weight, None, [axis; 2], 1)?;
                Ok(vec![layer.apply(&x(&[1, 9, 7, 8], device)?)?])
            }
            Self::Recurrence => recurrent(device),
            Self::Selection => {
                let rows = Tensor::new(&[3u32, 0, 3, 6], device)?;
                let of = |columns| select_rows(&x(&[7, columns], device)?, &rows);
                Ok(vec![of(64)?, of(37)?])
            }
        }
    }
}

/// A type of each layout of blocks, with one row and with several. The activations are integers, which rounding to
/// eight bits keeps.
fn block_products(device: &Device) -> Result<Vec<Tensor>> {
    const COLUMNS: usize = 512;
    const ROWS: usize = 13;
    let mut results = Vec::new();
    for dtype in [GgmlDType::Q8_0, GgmlDType::Q4K, GgmlDType::Q6K] {
        let blocks = QTensor::quantize(&x(&[ROWS, COLUMNS], &Device::Cpu)?, dtype)?;
        for rows in [1, 3] {
            let numbers = x(&[rows, COLUMNS], &Device::Cpu)?.flatten_all()?;
            let numbers = numbers.to_vec1::<f32>()?.into_iter().enumerate();
            let numbers = numbers.map(|(at, number)| match at % 32 {
                0 => 127.0,
                _ => (number * 127.0).round(),
            });
            let numbers = Tensor::from_iter(numbers, device)?.reshape((rows, COLUMNS))?;
            results.push(match device {
                Device::Cpu => numbers.matmul(&blocks.dequantize(device)?.t()?)?,
                _ => {
                    let matrix = BlockMatrix::new(dtype, blocks.data()?, (ROWS, COLUMNS), device)?;
                    matrix.product(&numbers)?
                }
            });
        }
    }
    Ok(results)
}

/// A prompt, and a token after it with a context of two parts.
fn paged(stored: KvDtype, is_rotary: bool, device: &Device) -> Result<Vec<Tensor>> {
    const PROMPT: usize = 270;
    let mut pages = LayerPages::new(9, 1, 64, stored, device)?;
    let options = AttentionOptions {
        scale: 0.1,
        window: None,
        softcap: None,
        reach: AttentionReach::Past,
    };
    let frequencies = (0..16).map(|i| 1e4f64.powf(f64::from(i) / -16.0)).collect();
    let table = RopeTable::new(frequencies, 300, RopeStyle::Halves, 1.0, device)?;
    let weight = x(&[64], device)?;
    let norm = HeadNorm {
        weight: &weight,
        eps: 1e-5,
    };
    let norms = [Some(norm), None];
    let mut results = Vec::new();
    for (new_tokens, past_tokens) in [(PROMPT, 0), (1, PROMPT)] {
        let span = Span {
            new_tokens,
            past_tokens,
            pages: (0..9).collect(),
        };
        let plan = AttentionPlan::new(vec![span], device)?;
        let (q, k) = (
            x(&[new_tokens, 4, 64], device)?,
            x(&[new_tokens, 1, 64], device)?,
        );
        results.push(match is_rotary {
            false => paged_attention(&q, &k, &k, &mut pages, &plan, options)?,
            true => {
                let rope = Some((&table, plan.positions()));
                let heads = RotaryHeads { norms, rope };
                rotary_attention([&q, &k, &k], &heads, &mut pages, &plan, options, None)?
            }
        });
    }
    Ok(results)
}

/// Two steps of two sequences through a convolution and the delta rule.
fn recurrent(device: &Device) -> Result<Vec<Tensor>> {
    let shape = RecurrenceShape {
        key_heads: 1,
        value_heads: 2,
        key_dim: 40,
        value_dim: 40,
        is_tiled: false,
    };
    let width = 2 * shape.key_size() + shape.value_size();
    let numbers = |count: usize| x(&[count], &Device::Cpu)?.to_vec1::<f32>();
    let convolution = ShortConvolution::new(&numbers(4 * width)?, None, 4, true)?;
    let rule = DeltaRule {
        shape,
        rates: vec![-0.5, -0.1].into(),
        step_bias: vec![0.1, 0.2].into(),
    };
    let state = StateShape {
        convolution: convolution.state_numbers(),
        recurrence: shape.state_numbers(),
    };
    let mut states = LayerStates::new(state, device)?;
    let mut results = Vec::new();
    for (is_first, tokens) in [(true, [5, 3]), (false, [1, 4])] {
        let spans = [0, 1].map(|slot| StateSpan {
            new_tokens: tokens[slot],
            is_first,
            slot,
        });
        let rows = tokens[0] + tokens[1];
        states.prepare(&spans)?;
        let qkv = convolution.forward(&x(&[rows, width], device)?, &mut states, &spans)?;
        let (steps, betas) = (x(&[rows, 2], device)?, x(&[rows, 2], device)?);
        results.push(rule.forward(&qkv, &steps, &betas, &mut states, &spans)?);
    }
    Ok(results)
}

/// Pseudo-random numbers between -1 and 1, the same on every machine.
fn x(shape: &[usize], device: &Device) -> Result<Tensor> {
    let count: usize = shape.iter().product();
    let number = |index: u32| {
        let mixed = index.wrapping_mul(0x9E37_79B9) ^ 0x5bd1_e995;
        (mixed.wrapping_mul(0x85eb_ca6b) >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let numbers: Vec<f32> = (0..count as u32).map(number).collect();
    Tensor::from_vec(numbers, shape, device)
}

/// Operands of products are rounded to f16 on both sides, in other places.
const TOLERANCE: f64 = 4e-3;

/// Tests each kernel on a GPU, unless the record has the result, and disables the faulty ones.
pub fn try_kernels(index: usize, device: &Device, record: Option<&TrialRecord>) {
    let (faults, is_kept) = outcome(device, record);
    for fault in &faults {
        FAULTY.fetch_or(1 << fault.operation as u32, Ordering::Relaxed);
    }
    let trial = GpuTrial {
        gpu: index,
        kernels: Operation::ALL.len(),
        failed: faults.iter().map(|fault| fault.operation.name()).collect(),
        faults: faults.iter().map(ToString::to_string).collect(),
        is_kept,
    };
    TRIALS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(trial);
}

/// The faults of a GPU, and whether they come from the record.
fn outcome(device: &Device, record: Option<&TrialRecord>) -> (Vec<KernelFault>, bool) {
    let key = match (record, device) {
        (Some(record), Device::Cuda(device)) => record.key(device).ok(),
        _ => None,
    };
    let known = record.zip(key.as_ref());
    if let Some(faults) = known.and_then(|(record, key)| record.faults(key)) {
        return (faults, true);
    }
    let tried = Operation::ALL.into_iter().filter_map(|operation| {
        let why = fault(operation, device)?;
        Some(KernelFault { operation, why })
    });
    let faults: Vec<KernelFault> = tried.collect();
    if let Some((record, key)) = known {
        // Without a record the next start repeats the test.
        let _ = record.keep(key, &faults);
    }
    (faults, false)
}

fn fault(operation: Operation, device: &Device) -> Option<String> {
    let compared = || -> Result<f64> {
        let found = operation.results(device)?;
        let wanted = operation.results(&Device::Cpu)?;
        let mut most = 0f64;
        for (found, wanted) in found.iter().zip(&wanted) {
            most = most.max(gap(found, wanted)?);
        }
        Ok(most)
    };
    match compared() {
        Ok(gap) if gap <= TOLERANCE => None,
        Ok(gap) => Some(format!("results are off by {gap:.1e}")),
        Err(error) => Some(
            error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
        ),
    }
}

/// The norm of the difference, relative to the expected one; infinite if a result is not finite.
fn gap(found: &Tensor, wanted: &Tensor) -> Result<f64> {
    let wide = |x: &Tensor| {
        x.to_device(&Device::Cpu)?
            .to_dtype(DType::F64)?
            .flatten_all()
    };
    let (found, wanted) = (wide(found)?, wide(wanted)?);
    let length = |x: &Tensor| x.sqr()?.sum_all()?.to_scalar::<f64>();
    let gap = (length(&(found - &wanted)?)? / length(&wanted)?).sqrt();
    Ok(if gap.is_nan() { f64::INFINITY } else { gap })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_tried_once_with_a_driver() {
        let folder = std::env::temp_dir().join(format!("muster-trial-{}", std::process::id()));
        let device = crate::cuda::text::open_untried(0).unwrap();
        for (driver, is_known) in [
            ("580", false),
            ("580", true),
            ("590", false),
            ("580", false),
        ] {
            let record = TrialRecord::new(&folder, driver);
            let (faults, is_kept) = outcome(&device, Some(&record));
            assert!(faults.is_empty(), "{faults:?}");
            assert_eq!(is_kept, is_known, "{driver}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
