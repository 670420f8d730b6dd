//! Noise levels of flow networks: a latent at level `s` is `(1 - s)` of the clean one and `s` of noise.
//!
//! Samplers use the clean latent plus `sigma` times noise. Both are equivalent with `sigma = s / (1 - s)` and the
//! latent divided by `1 - s`, so that the samplers of diffusion apply.

use serde_json::{Value, json};

use super::{DiffusionSampler, NetworkLevel, SamplingRun, UniPcVariant};
use crate::networks::weights::Flaw;

/// The noise schedule and solver of a model's folder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowSchedule {
    solver: FlowSolver,
    /// How much longer a run stays at high levels.
    pub shift: f64,
    training_steps: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum FlowSolver {
    UniPc { order: usize, variant: UniPcVariant },
    Euler,
}

/// Noise levels of a run, descending, then 0, and the network's timestep of each level but the last.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowLevels {
    solver: FlowSolver,
    training_steps: f64,
    pub levels: Vec<f64>,
    pub timesteps: Vec<f32>,
}

/// At level 1 nothing of the latent is left to divide by.
const HIGHEST: f64 = 1.0 - 1e-7;
/// The reference lowers a first level of 1 by this amount.
const LOWERED: f64 = 1e-6;
const MOST_SHIFT: f64 = 100.0;

/// This many even steps from noise to the clean latent, shifted towards noise.
pub fn even_levels(shift: f64, steps: u32) -> Vec<f64> {
    let even = (0..=steps).map(|at| f64::from(steps - at) / f64::from(steps));
    even.map(|level| shifted(shift, level)).collect()
}

fn shifted(shift: f64, level: f64) -> f64 {
    shift * level / (1.0 + (shift - 1.0) * level)
}

/// Settings that are computed with one value alone. A setting that is missing has it.
fn fixed(class: &str) -> Vec<(&'static str, Value)> {
    let mut fixed = vec![
        ("use_karras_sigmas", json!(false)),
        ("use_exponential_sigmas", json!(false)),
        ("use_beta_sigmas", json!(false)),
        ("use_dynamic_shifting", json!(false)),
        ("shift_terminal", Value::Null),
    ];
    match class {
        EULER => fixed.extend([
            ("invert_sigmas", json!(false)),
            ("stochastic_sampling", json!(false)),
        ]),
        _ => fixed.extend([
            ("thresholding", json!(false)),
            ("predict_x0", json!(true)),
            ("lower_order_final", json!(true)),
            ("disable_corrector", json!([])),
            ("solver_p", Value::Null),
            ("final_sigmas_type", json!("zero")),
        ]),
    }
    fixed
}

const UNI_PC: &str = "UniPCMultistepScheduler";
const EULER: &str = "FlowMatchEulerDiscreteScheduler";

impl FlowSchedule {
    /// The one that Wan was published with.
    pub fn published(shift: f64) -> Self {
        Self {
            solver: FlowSolver::UniPc {
                order: 2,
                variant: UniPcVariant::Bh2,
            },
            shift,
            training_steps: 1000.0,
        }
    }

    /// Reads the `scheduler_config.json` of diffusers.
    pub fn read(config: &Value) -> Result<Self, Flaw> {
        let class = config["_class_name"].as_str().unwrap_or_default();
        let solver = match class {
            EULER => FlowSolver::Euler,
            UNI_PC => {
                for (name, wanted) in [
                    ("use_flow_sigmas", json!(true)),
                    ("prediction_type", json!("flow_prediction")),
                ] {
                    if config[name] != wanted {
                        return Err(Flaw::unsupported(name, &config[name], wanted.to_string()));
                    }
                }
                FlowSolver::UniPc {
                    order: match config["solver_order"].as_u64() {
                        None => 2,
                        Some(order @ 1..=3) => order as usize,
                        Some(order) => {
                            return Err(Flaw::unsupported("solver_order", order, "1 to 3"));
                        }
                    },
                    variant: match config["solver_type"].as_str() {
                        Some("bh1") => UniPcVariant::Bh1,
                        None | Some("bh2") => UniPcVariant::Bh2,
                        Some(other) => {
                            return Err(Flaw::unsupported("solver_type", other, "bh1 and bh2"));
                        }
                    },
                }
            }
            other => {
                let known = format!("{UNI_PC} and {EULER}");
                return Err(Flaw::unsupported(
                    "the class of the scheduler",
                    other,
                    known,
                ));
            }
        };
        for (name, wanted) in fixed(class) {
            let found = config.get(name).unwrap_or(&wanted);
            if *found != wanted {
                return Err(Flaw::unsupported(name, found, wanted.to_string()));
            }
        }
        let shift = match solver {
            FlowSolver::UniPc { .. } => "flow_shift",
            FlowSolver::Euler => "shift",
        };
        let number = |name: &str, usual: f64, most: f64| {
            let found = config[name].as_f64().unwrap_or(usual);
            match found > 0.0 && found <= most {
                true => Ok(found),
                false => Err(Flaw::broken(
                    name,
                    found,
                    format!("more than 0, at most {most}"),
                )),
            }
        };
        Ok(Self {
            solver,
            shift: number(shift, 1.0, MOST_SHIFT)?,
            training_steps: number("num_train_timesteps", 1000.0, 1e6)?,
        })
    }

    /// The levels of a run of at least one step. The reference computes them in f64 and keeps them in f32.
    pub fn levels(&self, steps: usize) -> FlowLevels {
        let steps = steps.max(1);
        let all = self.training_steps;
        let mut levels: Vec<f64> = match self.solver {
            FlowSolver::UniPc { .. } => {
                let step = (1.0 / all - 1.0) / steps as f64;
                let even = (0..steps).map(|at| at as f64 * step + 1.0);
                even.map(|level| shifted(self.shift, level)).collect()
            }
            FlowSolver::Euler => {
                // The lowest level of training is shifted, and with the others once more.
                let lowest = f64::from(shifted(self.shift, 1.0 / all) as f32);
                let step = (lowest - 1.0) * all / (steps - 1).max(1) as f64;
                let even = (0..steps).map(|at| (at as f64 * step + all) / all);
                even.map(|level| shifted(self.shift, level)).collect()
            }
        };
        let narrow = |level: f64| f64::from(level as f32);
        let timesteps = match self.solver {
            FlowSolver::UniPc { .. } => {
                if let Some(first) = levels.first_mut()
                    && (*first - 1.0).abs() < LOWERED
                {
                    *first -= LOWERED;
                }
                let timesteps = levels.iter().map(|level| (level * all).trunc() as f32);
                timesteps.collect()
            }
            FlowSolver::Euler => {
                let timesteps = levels.iter().map(|&level| level as f32 * all as f32);
                timesteps.collect()
            }
        };
        let levels = levels.into_iter().map(narrow).chain([0.0]);
        FlowLevels {
            solver: self.solver,
            training_steps: all,
            levels: levels.collect(),
            timesteps,
        }
    }
}

impl FlowLevels {
    pub fn steps(&self) -> usize {
        self.timesteps.len()
    }

    /// The levels as samplers know them.
    pub fn sigmas(&self) -> Vec<f64> {
        self.levels.iter().map(|&level| sigma(level)).collect()
    }

    /// A level of [`sigmas`](Self::sigmas), or between two of them.
    pub fn level(&self, noise: f64) -> NetworkLevel {
        let steps = self.levels.iter().zip(&self.timesteps);
        let mut known = steps.filter(|(level, _)| sigma(**level) == noise);
        let (level, timestep) = match known.next() {
            Some((&level, &timestep)) => (level, timestep),
            None => {
                let level = noise / (1.0 + noise);
                (level, (level * self.training_steps) as f32)
            }
        };
        let share = 1.0 - level.min(HIGHEST);
        NetworkLevel {
            timestep,
            input_scale: share,
            clean: [share, -level],
        }
    }

    /// The run of a sampler from this noise on.
    pub fn start(&self, noise: &[f64]) -> SamplingRun {
        let (first, sigmas) = (self.levels[0], self.sigmas());
        let share = 1.0 - first.min(HIGHEST);
        let x = noise.iter().map(|value| value * first / share).collect();
        match self.solver {
            FlowSolver::UniPc { order, variant } => SamplingRun::uni_pc(order, variant, x, sigmas),
            FlowSolver::Euler => {
                SamplingRun::start(DiffusionSampler::Euler, x, sigmas, Box::new(Vec::new))
            }
        }
    }
}

fn sigma(level: f64) -> f64 {
    let level = level.min(HIGHEST);
    level / (1.0 - level)
}
