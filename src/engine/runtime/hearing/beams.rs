//! Beam search like the reference implementation's with its default patience: the likeliest texts continue until enough
//! of them have ended.

use muster_kernels::cpu::log_sum_exp;

/// A text, and the sum of the log probabilities of its tokens and, once it has ended, of its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Beam {
    pub tokens: Vec<u32>,
    /// Log probability of each token.
    pub logprobs: Vec<f32>,
    pub logprob: f32,
}

#[derive(Debug)]
pub struct Beams {
    /// Number of beams.
    size: usize,
    end: u32,
    going: Vec<Beam>,
    ended: Vec<Beam>,
}

/// A text extended by one token.
struct Continuation {
    source: usize,
    token: u32,
    logprob: f32,
}

impl Beam {
    pub fn mean_logprob(&self) -> f32 {
        self.logprob / self.tokens.len().max(1) as f32
    }
}

impl Beams {
    pub fn new(size: usize, end: u32) -> Self {
        Self {
            size,
            end,
            going: vec![Beam::default()],
            ended: Vec::new(),
        }
    }

    pub fn going(&self) -> &[Beam] {
        &self.going
    }

    /// Extends all beams by a token, given the scores after each beam. Returns the source beam of each new beam.
    pub fn advance(&mut self, scores: &[Vec<f32>]) -> Vec<usize> {
        let mut found: Vec<Continuation> = self
            .going
            .iter()
            .zip(scores)
            .enumerate()
            .flat_map(|(source, (beam, scores))| self.continuations(source, beam, scores))
            .collect();
        found.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
        let (mut going, mut sources, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        for one in found {
            let mut beam = self.going[one.source].clone();
            let before = beam.logprob;
            beam.logprob = one.logprob;
            if one.token == self.end {
                ended.push(beam);
                continue;
            }
            beam.tokens.push(one.token);
            beam.logprobs.push(one.logprob - before);
            going.push(beam);
            sources.push(one.source);
            if going.len() == self.size {
                break;
            }
        }
        ended.truncate(self.size - self.ended.len());
        self.ended.extend(ended);
        self.going = going;
        sources
    }

    /// One more continuation than beams, since one of them may be the end token.
    fn continuations(
        &self,
        source: usize,
        beam: &Beam,
        scores: &[f32],
    ) -> impl Iterator<Item = Continuation> {
        let norm = log_sum_exp(scores);
        let mut best: Vec<usize> = (0..scores.len())
            .filter(|&token| scores[token].is_finite())
            .collect();
        let by_score = |a: &usize, b: &usize| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b));
        let most = self.size + 1;
        if best.len() > most {
            best.select_nth_unstable_by(most - 1, by_score);
            best.truncate(most);
        }
        best.sort_by(by_score);
        let sum = beam.logprob;
        best.into_iter().map(move |token| Continuation {
            source,
            token: token as u32,
            logprob: sum + (scores[token] - norm),
        })
    }

    pub fn is_complete(&self) -> bool {
        self.ended.len() >= self.size || self.going.is_empty()
    }

    /// The text with the best mean log probability. If too few have ended, the likeliest unfinished ones count, too.
    pub fn best(self) -> Option<Beam> {
        let missing = self.size - self.ended.len();
        let mut going = self.going;
        going.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
        let all = self
            .ended
            .into_iter()
            .chain(going.into_iter().take(missing));
        let mut best: Option<Beam> = None;
        for beam in all {
            let is_better = |best: &Beam| beam.mean_logprob() > best.mean_logprob();
            if best.as_ref().is_none_or(is_better) {
                best = Some(beam);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::Beams;
    use crate::networks::golden::fixtures;

    /// Scores after a text, equal to those of the script.
    fn scores(case: &Value, text: &[u32]) -> Vec<f32> {
        let number = |key: &str| case[key].as_u64().unwrap();
        let mut state = number("seed");
        for &token in text {
            state = state.wrapping_mul(6_364_136_223_846_793_005) + u64::from(token) + 1;
        }
        let bias = case["bias"].as_f64().unwrap() as f32;
        let mut all: Vec<f32> = (0..number("vocabulary"))
            .map(|token| {
                let mixed = (state ^ token).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (mixed >> 40) as f32 / (1 << 22) as f32
            })
            .collect();
        all[0] += if text.is_empty() { -100.0 } else { bias };
        all
    }

    /// `tests/fixtures/make/beams.py` searches with the reference's own class.
    #[test]
    fn texts_are_those_of_the_reference() {
        let file = fixtures().join("golden/sound/beams.json");
        let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let mut differ_from_greedy = 0;
        for case in &cases {
            let tokens: Vec<u32> = serde_json::from_value(case["tokens"].clone()).unwrap();
            let number = |key: &str| case[key].as_u64().unwrap() as usize;
            let search = |size: usize| {
                let mut beams = Beams::new(size, 0);
                for _ in 0..number("steps") {
                    let texts = beams.going().iter();
                    let found: Vec<_> = texts.map(|beam| scores(case, &beam.tokens)).collect();
                    beams.advance(&found);
                    if beams.is_complete() {
                        break;
                    }
                }
                beams.best().unwrap()
            };
            let best = search(number("size"));
            assert_eq!(best.tokens, tokens, "{case}");
            assert_eq!(best.logprobs.len(), tokens.len(), "{case}");
            assert!((best.logprob - case["logprob"].as_f64().unwrap() as f32).abs() < 1e-3);
            differ_from_greedy += usize::from(search(1).tokens != best.tokens);
        }
        assert!(cases.len() >= 20 && differ_from_greedy > cases.len() / 2);
    }
}
