//! The networks of candle-transformers as [`SingleSequenceNetwork`]s.

use candle_core::{Device, Error, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{
    gemma, glm4_new, helium, mamba, olmo, phi, stable_lm, starcoder2,
};
use serde::de::DeserializeOwned;

use super::family::PHI_FIRST_PASS;
use super::{SingleSequenceFamily, SingleSequenceNetwork, SingleSequenceSpec};

/// Builds the network of a spec for sequences of up to `context` tokens.
pub fn network(
    spec: &SingleSequenceSpec,
    context: usize,
    weights: VarBuilder<'static>,
) -> Result<Box<dyn SingleSequenceNetwork>> {
    Ok(match spec.family {
        SingleSequenceFamily::Gemma => {
            let config = config(spec, context)?;
            Box::new(gemma::Model::new(false, &config, weights)?)
        }
        SingleSequenceFamily::Glm4 => {
            let config = config(spec, context)?;
            Box::new(glm4_new::ModelForCausalLM::new(&config, weights)?)
        }
        SingleSequenceFamily::Helium => {
            let config = config(spec, context)?;
            Box::new(helium::Model::new(&config, weights)?)
        }
        SingleSequenceFamily::Mamba => {
            let config: mamba::Config = config(spec, context)?;
            let device = weights.device().clone();
            let model = mamba::Model::new(&config, weights.pp("backbone"))?;
            Box::new(Mamba {
                state: mamba::State::new(1, &config, model.dtype(), &device)?,
                model,
                config,
                device,
            })
        }
        SingleSequenceFamily::Olmo => {
            let config = config(spec, context)?;
            Box::new(olmo::Model::new(&config, weights)?)
        }
        SingleSequenceFamily::Phi => {
            let config = config(spec, context)?;
            Box::new(phi::Model::new(&config, weights)?)
        }
        SingleSequenceFamily::StableLm => {
            let config = config(spec, context)?;
            Box::new(StableLm {
                model: stable_lm::Model::new(&config, weights.clone())?,
                config,
                weights,
            })
        }
        SingleSequenceFamily::Starcoder2 => {
            let config = config(spec, context)?;
            Box::new(starcoder2::Model::new(&config, weights)?)
        }
    })
}

fn config<C: DeserializeOwned>(spec: &SingleSequenceSpec, context: usize) -> Result<C> {
    serde_json::from_value(spec.network_config(context)).map_err(Error::wrap)
}

/// Networks with a cache that can be emptied, and masks for several tokens after others.
macro_rules! with_cache {
    ($($model:ty),*) => {
        $(impl SingleSequenceNetwork for $model {
            fn clear(&mut self) -> Result<()> {
                self.clear_kv_cache();
                Ok(())
            }

            fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
                self.forward(tokens, past)
            }
        })*
    };
}

with_cache!(
    gemma::Model,
    glm4_new::ModelForCausalLM,
    helium::Model,
    olmo::Model,
    starcoder2::Model
);

impl SingleSequenceNetwork for phi::Model {
    fn clear(&mut self) -> Result<()> {
        self.clear_kv_cache();
        Ok(())
    }

    fn pass_tokens(&self, past: usize) -> usize {
        match past {
            0 => PHI_FIRST_PASS,
            _ => 1,
        }
    }

    /// The network counts the past by its cache.
    fn forward(&mut self, tokens: &Tensor, _past: usize) -> Result<Tensor> {
        self.forward(tokens)
    }
}

/// Has no way to empty its cache, so a sequence has a network of its own with the same weights.
struct StableLm {
    model: stable_lm::Model,
    config: stable_lm::Config,
    weights: VarBuilder<'static>,
}

impl SingleSequenceNetwork for StableLm {
    fn clear(&mut self) -> Result<()> {
        self.model = stable_lm::Model::new(&self.config, self.weights.clone())?;
        Ok(())
    }

    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        self.model.forward(tokens, past)
    }
}

struct Mamba {
    model: mamba::Model,
    config: mamba::Config,
    state: mamba::State,
    device: Device,
}

impl SingleSequenceNetwork for Mamba {
    fn clear(&mut self) -> Result<()> {
        self.state = mamba::State::new(1, &self.config, self.model.dtype(), &self.device)?;
        Ok(())
    }

    fn pass_tokens(&self, _past: usize) -> usize {
        1
    }

    fn forward(&mut self, tokens: &Tensor, _past: usize) -> Result<Tensor> {
        self.model.forward(&tokens.squeeze(0)?, &mut self.state)
    }
}
