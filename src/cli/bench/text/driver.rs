//! A decoder on its own: batches go in as the engine would put them in, and the clock runs.

use std::time::{Duration, Instant};

use candle_core::{Result, Tensor};
use serde::Serialize;

use crate::kernels::{HostFloats, KvDtype, PAGE_TOKENS, Span, cpu};
use crate::networks::text::{Batch, Decoder, KvPages, StepCost};
use crate::runtime::Sampling;
use crate::runtime::sampling::{Sampler, Scratch, Settings};

/// Prompt tokens of a step, the engine's default.
const CHUNK: usize = 512;

/// The measured phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// A prompt of this many tokens, in steps of up to [`CHUNK`].
    Prefill(usize),
    /// This many streams, with a token each in every step.
    Decode(usize),
}

impl Phase {
    pub fn name(self) -> String {
        match self {
            Self::Prefill(tokens) => format!("prefill {tokens}"),
            Self::Decode(streams) => format!("decode {streams}"),
        }
    }

    pub fn tokens_per_step(self) -> usize {
        match self {
            Self::Prefill(tokens) => tokens,
            Self::Decode(streams) => streams,
        }
    }

    fn streams(self) -> usize {
        match self {
            Self::Prefill(_) => 0,
            Self::Decode(streams) => streams,
        }
    }
}

/// How decoding is measured.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Course {
    /// Tokens in each stream's context when it begins.
    pub context: usize,
    pub steps: usize,
}

pub struct Driver {
    decoder: Decoder,
    kv: KvDtype,
    pages: KvPages,
    course: Course,
    random: Random,
    /// Samplers of the streams.
    samplers: Vec<(Sampler, Scratch)>,
    logits: HostFloats,
}

impl Driver {
    /// Contexts for the largest phase, filled as prompts fill them.
    pub fn new(
        decoder: Decoder,
        kv: Option<KvDtype>,
        course: Course,
        phases: &[Phase],
    ) -> Result<Self> {
        let kv = kv.unwrap_or(decoder.kv_dtype());
        let pages = phases.iter().map(|phase| course.pages(*phase)).max();
        let pages = decoder.new_pages(pages.unwrap_or(0), kv)?;
        let streams = phases.iter().map(|phase| phase.streams()).max();
        let samplers = samplers(streams.unwrap_or(0), decoder.spec().vocab_size)?;
        let mut driver = Self {
            samplers,
            logits: HostFloats::default(),
            decoder,
            kv,
            pages,
            course,
            random: Random(1),
        };
        driver.fill(phases)?;
        Ok(driver)
    }

    pub fn kv(&self) -> KvDtype {
        self.kv
    }

    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Does the phase once: tokens that went through, per second.
    pub fn measure(&mut self, phase: Phase) -> Result<f64> {
        let (tokens, time) = match phase {
            Phase::Prefill(tokens) => (tokens, self.read(tokens)?),
            Phase::Decode(streams) => (streams * self.course.steps, self.decode(streams)?),
        };
        Ok(tokens as f64 / time.as_secs_f64())
    }

    /// Lower bound of the cost of a typical step.
    pub fn cost(&self, phase: Phase) -> StepCost {
        let spans = match phase {
            Phase::Prefill(tokens) => vec![self.course.prompt(tokens, 0)],
            Phase::Decode(streams) => self.course.decoding(streams, self.course.steps / 2),
        };
        self.decoder.step_cost(&spans, spans.len(), self.kv)
    }

    fn decode(&mut self, streams: usize) -> Result<Duration> {
        let mut time = Duration::ZERO;
        for step in 0..self.course.steps {
            let began = Instant::now();
            let logits = self.forward(self.course.decoding(streams, step))?;
            self.sample(&logits, step)?;
            time += began.elapsed();
        }
        Ok(time)
    }

    /// The context of the first stream. The contexts of the others stay zero: time does not depend on the values, and
    /// eight long prompts would take minutes.
    fn fill(&mut self, phases: &[Phase]) -> Result<()> {
        if phases.iter().any(|phase| phase.streams() > 0) {
            self.read(self.course.context)?;
        }
        Ok(())
    }

    /// Reads a prompt as the first stream.
    fn read(&mut self, tokens: usize) -> Result<Duration> {
        let mut time = Duration::ZERO;
        for past in (0..tokens).step_by(CHUNK) {
            let span = self.course.span(CHUNK.min(tokens - past), past, 0);
            let began = Instant::now();
            let logits = self.forward(vec![span])?;
            logits.device().synchronize()?;
            time += began.elapsed();
        }
        Ok(time)
    }

    fn forward(&mut self, spans: Vec<Span>) -> Result<Tensor> {
        let batch = self.batch(spans);
        self.decoder.forward(&batch, &mut self.pages)
    }

    /// Samples a token of each stream on all threads, as serving does.
    fn sample(&mut self, logits: &Tensor, index: usize) -> Result<()> {
        let vocabulary = self.decoder.spec().vocab_size;
        let logits = self.logits.read(logits)?;
        let cost = logits.len();
        let rows = logits.chunks_exact_mut(vocabulary.max(1));
        let mut pairs: Vec<_> = rows.zip(&mut self.samplers).collect();
        cpu::each(&mut pairs, cost, |(logits, (sampler, scratch))| {
            // Random weights give no NaN, and the token is not used.
            let _ = sampler.sample(logits, None, index, scratch);
        });
        Ok(())
    }

    /// Random tokens for these spans; logits of the last of each.
    fn batch(&mut self, spans: Vec<Span>) -> Batch {
        let vocabulary = self.decoder.spec().vocab_size;
        let tokens: usize = spans.iter().map(|span| span.new_tokens).sum();
        let ends = spans.iter().scan(0, |end, span| {
            *end += span.new_tokens as u32;
            Some(*end - 1)
        });
        Batch {
            logit_rows: ends.collect(),
            tokens: (0..tokens).map(|_| self.random.below(vocabulary)).collect(),
            states: (0..spans.len() as u32).collect(),
            spans,
            ..Batch::default()
        }
    }
}

/// With the neutral settings of a request: temperature 1 and nothing cut.
fn samplers(streams: usize, vocabulary: usize) -> Result<Vec<(Sampler, Scratch)>> {
    let request = Sampling {
        temperature: Some(1.0),
        seed: Some(1),
        ..Sampling::default()
    };
    let settings = Settings::resolve(&request, &Sampling::default(), vocabulary);
    let settings = settings.map_err(candle_core::Error::msg)?;
    let sampler = |_| {
        let sampler = Sampler::new(settings.clone(), 0, None, &[], &[]);
        (sampler, Scratch::default())
    };
    Ok((0..streams).map(sampler).collect())
}

impl Course {
    fn prompt(self, tokens: usize, stream: usize) -> Span {
        self.span(tokens, 0, stream)
    }

    fn decoding(self, streams: usize, step: usize) -> Vec<Span> {
        let past_tokens = self.context + step;
        (0..streams)
            .map(|stream| self.span(1, past_tokens, stream))
            .collect()
    }

    /// Streams are consecutive in the cache; a long prompt takes the pages of those behind it.
    fn span(self, new_tokens: usize, past_tokens: usize, stream: usize) -> Span {
        let first = stream * self.pages_per_stream();
        let pages = (past_tokens + new_tokens).div_ceil(PAGE_TOKENS);
        Span {
            new_tokens,
            past_tokens,
            pages: (first..first + pages).map(|page| page as u32).collect(),
        }
    }

    /// Pages of the KV cache that the phase needs.
    pub fn pages(self, phase: Phase) -> usize {
        match phase {
            Phase::Prefill(tokens) => tokens.div_ceil(PAGE_TOKENS),
            Phase::Decode(streams) => streams * self.pages_per_stream(),
        }
    }

    fn pages_per_stream(self) -> usize {
        (self.context + self.steps).div_ceil(PAGE_TOKENS)
    }
}

/// SplitMix64: the same tokens every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)) % bound.max(1) as u64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::text::{DecoderSpec, SyntheticQuant};

    const COURSE: Course = Course {
        context: 2 * PAGE_TOKENS,
        steps: 1,
    };

    #[test]
    fn streams_share_no_page() {
        let spans = COURSE.decoding(3, 0);
        let pages: Vec<u32> = spans.into_iter().flat_map(|span| span.pages).collect();
        assert_eq!(pages, (0..9).collect::<Vec<_>>());
        assert_eq!(COURSE.pages(Phase::Decode(3)), 9);
    }

    #[test]
    fn a_prompt_has_room_for_itself() {
        assert_eq!(COURSE.pages(Phase::Prefill(PAGE_TOKENS + 1)), 2);
        assert_eq!(COURSE.prompt(PAGE_TOKENS + 1, 0).pages, [0, 1]);
    }

    #[test]
    fn a_tiny_decoder_is_measured_in_every_phase() {
        let spec = DecoderSpec::named("tiny").unwrap();
        let decoder = Decoder::synthetic(
            spec,
            SyntheticQuant::Q8_0,
            &candle_core::Device::Cpu,
            &mut |_, _| {},
        )
        .unwrap();
        let phases = [Phase::Prefill(70), Phase::Decode(1), Phase::Decode(3)];
        let mut driver = Driver::new(decoder, Some(KvDtype::Q8_0), COURSE, &phases).unwrap();
        for phase in phases {
            assert!(driver.measure(phase).unwrap() > 0.0, "{phase:?}");
            assert!(
                driver.cost(phase).bytes > driver.decoder().weight_bytes(),
                "{phase:?}"
            );
        }
    }
}
