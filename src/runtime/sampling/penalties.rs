//! What a sequence pays for repeating itself.

use std::collections::HashMap;

use super::Settings;

/// Tokens seen so far. Only kept for sequences with a penalty to apply.
#[derive(Debug)]
pub struct Penalties {
    repetition: f32,
    presence: f32,
    frequency: f32,
    /// How often each was generated; 0 for those only in the prompt.
    seen: HashMap<u32, u32>,
}

impl Penalties {
    /// The repetition penalty counts the prompt in; presence and frequency are about generated tokens only.
    pub fn after(settings: &Settings, prompt: &[u32], generated: &[u32]) -> Option<Self> {
        let Settings {
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            ..
        } = *settings;
        if repetition_penalty == 1.0 && presence_penalty == 0.0 && frequency_penalty == 0.0 {
            return None;
        }
        let mut penalties = Self {
            repetition: repetition_penalty,
            presence: presence_penalty,
            frequency: frequency_penalty,
            seen: HashMap::new(),
        };
        if repetition_penalty != 1.0 {
            penalties.seen.extend(prompt.iter().map(|&id| (id, 0)));
        }
        generated.iter().for_each(|&id| penalties.count(id));
        Some(penalties)
    }

    pub fn count(&mut self, id: u32) {
        *self.seen.entry(id).or_insert(0) += 1;
    }

    pub fn apply(&self, logits: &mut [f32]) {
        for (&id, &count) in &self.seen {
            let Some(logit) = logits.get_mut(id as usize) else {
                continue;
            };
            // Towards less likely on either side of zero (CTRL, Keskar et al. 2019).
            *logit = if *logit > 0.0 {
                *logit / self.repetition
            } else {
                *logit * self.repetition
            };
            if count > 0 {
                *logit -= self.presence + self.frequency * count as f32;
            }
        }
    }
}
