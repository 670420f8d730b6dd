//! The last stages of encoding: dense layers after the pooling, and scores from a decoder's logits.

use candle_core::{Device, Result, Tensor};

use super::sentence::{AnswerRows, DenseActivation, DenseModule, DenseWeights};
use crate::networks::layers::Linear;
use crate::networks::text::head_rows;
use crate::networks::weights::{
    Checkpoint, CheckpointError, Flaw, TensorSource, Weight, tensor_floats,
};

const KNOWN: &str = "f32, f16, bf16 and GGUF quantizations";

/// A product with vectors, and the function after it.
pub struct Dense {
    linear: Linear,
    activation: DenseActivation,
}

impl Dense {
    pub fn load(
        module: &DenseModule,
        network: &Checkpoint,
        device: &Device,
    ) -> std::result::Result<Self, CheckpointError> {
        let beside;
        let (checkpoint, name) = match &module.weights {
            DenseWeights::Tensor(name) => (network, *name),
            DenseWeights::Folder(folder) => {
                beside = Checkpoint::open_tensors(&folder.join("model.safetensors"))?;
                (&beside, "linear.weight")
            }
        };
        let load = || -> std::result::Result<Self, Flaw> {
            let shape = [module.outputs, module.inputs];
            let (_, dtype, bytes) = checkpoint.weight(name, &[&shape], KNOWN)?;
            // Vectors are f32 on every device, and these products are few.
            let dense = Some(candle_core::DType::F32);
            let weight = Weight::place(dtype, &bytes, (shape[0], shape[1]), device, dense)?;
            let bias = match module.has_bias {
                false => None,
                true => {
                    let shape = [module.outputs];
                    let (_, dtype, bytes) = checkpoint.weight("linear.bias", &[&shape], KNOWN)?;
                    let numbers = tensor_floats(dtype, &bytes)?;
                    Some(Tensor::from_vec(numbers, module.outputs, device)?)
                }
            };
            Ok(Self {
                linear: Linear { weight, bias },
                activation: module.activation,
            })
        };
        load().map_err(|flaw| flaw.in_file(checkpoint.path()))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let product = self.linear.forward(x)?;
        match self.activation {
            DenseActivation::Identity => Ok(product),
            DenseActivation::Tanh => product.tanh(),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.linear.bytes()
    }
}

/// The vectors after all products, in order.
pub fn through(dense: &[Dense], pooled: Tensor) -> Result<Tensor> {
    let pooled = pooled.contiguous()?;
    dense.iter().try_fold(pooled, |x, dense| dense.forward(&x))
}

/// How much more likely one token is than another, as a product with the last hidden state.
pub struct TokenScore(Vec<f32>);

impl TokenScore {
    pub fn load(
        checkpoint: &Checkpoint,
        answers: AnswerRows,
    ) -> std::result::Result<Self, CheckpointError> {
        let rows = match answers {
            AnswerRows::Tokens(answers) => {
                let tokens = [Some(answers.yes), answers.no];
                let tokens: Vec<u32> = tokens.into_iter().flatten().collect();
                head_rows(checkpoint, &tokens)?
            }
            AnswerRows::Tensor(name) => {
                answer_rows(checkpoint, name).map_err(|flaw| flaw.in_file(checkpoint.path()))?
            }
        };
        let mut rows = rows.into_iter();
        let mut weights = rows.next().unwrap_or_default();
        for (weight, no) in weights.iter_mut().zip(rows.flatten()) {
            *weight -= no;
        }
        Ok(Self(weights))
    }

    pub fn of(&self, state: &[f32]) -> f32 {
        let products = self.0.iter().zip(state);
        let sum: f64 = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        sum as f32
    }
}

/// The two rows of a tensor.
fn answer_rows(checkpoint: &Checkpoint, name: &str) -> std::result::Result<Vec<Vec<f32>>, Flaw> {
    let hidden = checkpoint
        .tensor(name)
        .map_or(0, |header| header.shape.last().copied().unwrap_or(0));
    let (_, dtype, bytes) = checkpoint.weight(name, &[&[2, hidden]], KNOWN)?;
    let numbers = tensor_floats(dtype, &bytes)?;
    Ok(numbers
        .chunks_exact(hidden.max(1))
        .map(<[f32]>::to_vec)
        .collect())
}
