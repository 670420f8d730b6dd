//! Penalties of repeated tokens.

use std::collections::{HashMap, VecDeque};

use super::Settings;

/// Tokens seen so far; only for sequences with a penalty.
#[derive(Debug)]
pub struct Penalties {
    repetition: f32,
    presence: f32,
    frequency: f32,
    /// Times that each token was generated; 0 for tokens only in the prompt.
    seen: HashMap<u32, u32>,
    /// With a range, only recent tokens are penalized.
    recent: Option<Recent>,
}

/// The last tokens of prompt and text together.
#[derive(Debug)]
struct Recent {
    most: usize,
    tokens: VecDeque<u32>,
    counts: HashMap<u32, usize>,
}

impl Penalties {
    /// The repetition penalty counts the prompt in; presence and frequency are about generated tokens only.
    pub fn after(settings: &Settings, prompt: &[u32], generated: &[u32]) -> Option<Self> {
        let Settings {
            repetition_penalty,
            repetition_range,
            presence_penalty,
            frequency_penalty,
            ..
        } = *settings;
        if repetition_penalty == 1.0 && presence_penalty == 0.0 && frequency_penalty == 0.0 {
            return None;
        }
        let repeats = repetition_penalty != 1.0;
        let mut penalties = Self {
            repetition: repetition_penalty,
            presence: presence_penalty,
            frequency: frequency_penalty,
            seen: HashMap::new(),
            recent: (repeats && repetition_range < usize::MAX)
                .then(|| Recent::of(prompt, repetition_range)),
        };
        if repeats && penalties.recent.is_none() {
            penalties.seen.extend(prompt.iter().map(|&id| (id, 0)));
        }
        generated.iter().for_each(|&id| penalties.count(id));
        Some(penalties)
    }

    pub fn count(&mut self, id: u32) {
        *self.seen.entry(id).or_insert(0) += 1;
        if let Some(recent) = &mut self.recent {
            recent.push(id);
        }
    }

    pub fn apply(&self, logits: &mut [f32]) {
        if let Some(recent) = &self.recent {
            return self.apply_with(recent, logits);
        }
        for (&id, &count) in &self.seen {
            let Some(logit) = logits.get_mut(id as usize) else {
                continue;
            };
            *logit = self.repeated(*logit);
            if count > 0 {
                *logit -= self.presence + self.frequency * count as f32;
            }
        }
    }

    fn apply_with(&self, recent: &Recent, logits: &mut [f32]) {
        for &id in recent.counts.keys() {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = self.repeated(*logit);
            }
        }
        for (&id, &count) in &self.seen {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit -= self.presence + self.frequency * count as f32;
            }
        }
    }

    /// Towards less likely on either side of zero (CTRL, Keskar et al. 2019).
    fn repeated(&self, logit: f32) -> f32 {
        if logit > 0.0 {
            logit / self.repetition
        } else {
            logit * self.repetition
        }
    }
}

impl Recent {
    fn of(prompt: &[u32], most: usize) -> Self {
        let mut recent = Self {
            most,
            tokens: VecDeque::new(),
            counts: HashMap::new(),
        };
        let last = &prompt[prompt.len().saturating_sub(most)..];
        last.iter().for_each(|&id| recent.push(id));
        recent
    }

    fn push(&mut self, id: u32) {
        self.tokens.push_back(id);
        *self.counts.entry(id).or_insert(0) += 1;
        if self.tokens.len() <= self.most {
            return;
        }
        if let Some(oldest) = self.tokens.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Penalties, Settings};
    use crate::runtime::Sampling;

    fn after(range: usize, prompt: &[u32], generated: &[u32]) -> Penalties {
        let asked = Sampling {
            repetition_penalty: Some(2.0),
            repetition_range: Some(range),
            frequency_penalty: Some(0.5),
            ..Sampling::default()
        };
        let settings = Settings::resolve(&asked, &Sampling::default(), 4).unwrap();
        Penalties::after(&settings, prompt, generated).unwrap()
    }

    fn check(penalties: &Penalties, wanted: [f32; 4]) {
        let mut logits = [4.0, 4.0, 4.0, -4.0];
        penalties.apply(&mut logits);
        assert_eq!(logits, wanted, "{penalties:?}");
    }

    #[test]
    fn only_the_last_tokens_of_prompt_and_text_pay_for_repetition() {
        let mut penalties = after(2, &[0, 1, 2], &[]);
        check(&penalties, [4.0, 2.0, 2.0, -4.0]);
        penalties.count(3);
        check(&penalties, [4.0, 4.0, 2.0, -8.5]);
        penalties.count(3);
        check(&penalties, [4.0, 4.0, 4.0, -9.0]);
        // The older occurrence leaves the window, the other stays.
        penalties.count(0);
        check(&penalties, [1.5, 4.0, 4.0, -9.0]);
        // How often it was generated counts for ever.
        penalties.count(1);
        check(&penalties, [1.5, 1.5, 4.0, -5.0]);
    }

    #[test]
    fn the_range_goes_on_where_another_stopped() {
        let drawn = [3, 3, 0, 1, 1, 2];
        for range in 1..8 {
            let mut whole = after(range, &[0, 1, 2], &[]);
            for length in 0..=drawn.len() {
                let continued = after(range, &[0, 1, 2], &drawn[..length]);
                let mut wanted = [4.0, 4.0, 4.0, -4.0];
                whole.apply(&mut wanted);
                check(&continued, wanted);
                if let Some(&id) = drawn.get(length) {
                    whole.count(id);
                }
            }
        }
    }

    #[test]
    fn a_range_over_all_and_none_are_the_same() {
        let mut wanted = [4.0, 4.0, 4.0, -4.0];
        after(0, &[0, 1, 0], &[3, 1]).apply(&mut wanted);
        assert_eq!(wanted, [2.0, 1.5, 4.0, -8.5]);
        check(&after(5, &[0, 1, 0], &[3, 1]), wanted);
        check(&after(1000, &[0, 1, 0], &[3, 1]), wanted);
    }
}
