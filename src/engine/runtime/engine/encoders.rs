//! Encoders and their waiting batches. Their passes are short, so that text generation continues: all encoders together
//! are one queue next to the queues of the generative models, and share the thread by measured time.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::EncodeBatch;
use crate::runtime::encode::Encode;
use crate::runtime::model::plain;
use crate::runtime::work::Queue;
use crate::runtime::{EncoderInput, Failure};

/// A pass takes no longer, unless one layer of one sequence does: a client that reads a text waits meanwhile.
const LONGEST_PASS: Duration = Duration::from_millis(50);
/// Time limit of a layer for all sequences encoded at once: a pass ends between two layers.
const LONGEST_LAYER: Duration = Duration::from_millis(20);

/// Tokens per layer before the first measurement.
const FIRST_TOKENS: f64 = 64.0;

#[derive(Default)]
pub struct Encoders {
    networks: BTreeMap<String, LoadedEncoder>,
    waiting: VecDeque<EncodeBatch>,
    active: Option<ActiveBatch>,
    served: Duration,
}

struct LoadedEncoder {
    network: Box<dyn Encode>,
    /// Seconds of a layer for each token, as measured lately.
    token_secs: f64,
}

/// The batch that is being encoded, some of its sequences at a time.
struct ActiveBatch {
    batch: EncodeBatch,
    encoded: Vec<Vec<f32>>,
    /// Sequences after the encoded ones that are on their way through the layers.
    begun: usize,
}

impl Encoders {
    pub fn insert(&mut self, name: String, network: Box<dyn Encode>) {
        let encoder = LoadedEncoder {
            network,
            token_secs: LONGEST_LAYER.as_secs_f64() / FIRST_TOKENS,
        };
        self.networks.insert(name, encoder);
    }

    pub fn contains(&self, name: &str) -> bool {
        self.networks.contains_key(name)
    }

    /// Removes the model. Waiting batches fail in their turn.
    pub fn remove(&mut self, name: &str, failure: &Failure) -> bool {
        if self
            .active
            .as_ref()
            .is_some_and(|it| it.batch.model == name)
        {
            self.finish(Err(failure.clone()));
        }
        self.networks.remove(name).is_some()
    }

    pub fn queue(&self) -> Queue {
        Queue {
            has_work: self.active.is_some() || !self.waiting.is_empty(),
            served: self.served,
        }
    }

    /// `level` is where the time of the encoders starts to count if they were idle.
    pub fn push(&mut self, batch: EncodeBatch, level: Duration) {
        if !self.queue().has_work {
            self.served = level;
        }
        self.waiting.push_back(batch);
    }

    /// Drops batches whose callers have stopped waiting.
    pub fn retire_abandoned(&mut self) {
        self.waiting.retain(|batch| !batch.reply.is_closed());
        if self
            .active
            .as_ref()
            .is_some_and(|it| it.batch.reply.is_closed())
        {
            self.active = None;
        }
    }

    pub fn fail_all(&mut self, failure: &Failure) {
        self.finish(Err(failure.clone()));
        for batch in std::mem::take(&mut self.waiting) {
            let _ = batch.reply.send(Err(failure.clone()));
        }
    }

    /// Runs as many layers as a pass has time for.
    pub fn pass(&mut self, not_loaded: impl Fn(&str) -> Failure) {
        let began = Instant::now();
        loop {
            let layer = Instant::now();
            if !self.advance(&not_loaded) {
                break;
            }
            // The next layer takes about as long as this one.
            if began.elapsed() + layer.elapsed() > LONGEST_PASS {
                break;
            }
        }
        self.served += began.elapsed();
    }

    /// Runs one layer of the next sequences. Returns false if none wait.
    fn advance(&mut self, not_loaded: &impl Fn(&str) -> Failure) -> bool {
        if self.active.is_none() {
            self.active = self.waiting.pop_front().map(ActiveBatch::from);
        }
        let Some(active) = &mut self.active else {
            return false;
        };
        let Some(encoder) = self.networks.get_mut(&active.batch.model) else {
            let failure = not_loaded(&active.batch.model);
            self.finish(Err(failure));
            return true;
        };
        match active.advance(encoder) {
            Ok(false) => {}
            Ok(true) => self.finish(Ok(())),
            Err(error) => self.finish(Err(Failure::internal(plain(&error)))),
        }
        true
    }

    /// Sends the reply to the caller of the batch, who may have stopped waiting.
    fn finish(&mut self, ended: Result<(), Failure>) {
        if let Some(active) = self.active.take() {
            let _ = active.batch.reply.send(ended.map(|()| active.encoded));
        }
    }
}

impl ActiveBatch {
    /// Whether the last sequence is through the last layer.
    fn advance(&mut self, encoder: &mut LoadedEncoder) -> candle_core::Result<bool> {
        let left = &self.batch.sequences[self.encoded.len()..];
        if left.is_empty() {
            return Ok(true);
        }
        let began = Instant::now();
        if self.begun == 0 {
            self.begun = encoder.at_once(left);
            encoder.network.begin(&left[..self.begun])?;
        }
        let tokens: usize = left[..self.begun].iter().map(|it| it.tokens.len()).sum();
        let done = encoder.network.advance()?;
        let secs = began.elapsed().as_secs_f64() / tokens.max(1) as f64;
        // The last layer of some networks computes little, which predicts nothing about the others.
        encoder.token_secs = secs.max(0.9 * encoder.token_secs);
        if let Some(done) = done {
            self.encoded.extend(done);
            self.begun = 0;
        }
        Ok(self.encoded.len() == self.batch.sequences.len())
    }
}

impl From<EncodeBatch> for ActiveBatch {
    fn from(batch: EncodeBatch) -> Self {
        Self {
            encoded: Vec::with_capacity(batch.sequences.len()),
            begun: 0,
            batch,
        }
    }
}

impl LoadedEncoder {
    /// How many of these sequences go through a layer in time; at least one.
    fn at_once(&self, sequences: &[EncoderInput]) -> usize {
        let most = LONGEST_LAYER.as_secs_f64() / self.token_secs.max(f64::MIN_POSITIVE);
        let mut tokens = 0;
        let fitting = sequences.iter().take_while(|sequence| {
            tokens += sequence.tokens.len();
            tokens as f64 <= most
        });
        fitting.count().max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use candle_core::Result;
    use tokio::sync::oneshot;

    use super::{EncodeBatch, Encoders};
    use crate::runtime::encode::Encode;
    use crate::runtime::{EncoderInput, Failure};

    const LAYERS: usize = 4;

    /// The vector of a sequence is its first token. Each token keeps a layer busy for 50 µs.
    #[derive(Default)]
    struct Busy {
        begun: Vec<EncoderInput>,
        layers: usize,
        failing: bool,
    }

    impl Encode for Busy {
        fn begin(&mut self, batch: &[EncoderInput]) -> Result<()> {
            (self.begun, self.layers) = (batch.to_vec(), 0);
            Ok(())
        }

        fn advance(&mut self) -> Result<Option<Vec<Vec<f32>>>> {
            let tokens: usize = self.begun.iter().map(|one| one.tokens.len()).sum();
            let end = Instant::now() + Duration::from_micros(50) * tokens as u32;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            if self.failing {
                candle_core::bail!("broken");
            }
            self.layers += 1;
            let encode = |one: &EncoderInput| vec![one.tokens[0] as f32];
            Ok((self.layers == LAYERS).then(|| self.begun.iter().map(encode).collect()))
        }
    }

    type Answer = oneshot::Receiver<std::result::Result<Vec<Vec<f32>>, Failure>>;

    fn batch(model: &str, sequences: u32) -> (EncodeBatch, Answer) {
        let (reply, answer) = oneshot::channel();
        let sequences = (0..sequences).map(|first| vec![first; 40].into());
        let batch = EncodeBatch {
            model: model.to_owned(),
            sequences: sequences.collect(),
            reply,
        };
        (batch, answer)
    }

    fn encoders() -> Encoders {
        let mut encoders = Encoders::default();
        encoders.insert("busy".to_owned(), Box::new(Busy::default()));
        encoders
    }

    fn pass(encoders: &mut Encoders) {
        encoders.pass(|model| Failure::NotLoaded {
            model: model.to_owned(),
            loaded: Vec::new(),
        });
    }

    #[test]
    fn a_long_batch_takes_several_passes_and_keeps_its_order() {
        let mut encoders = encoders();
        let (long, mut answer) = batch("busy", 30);
        encoders.push(long, Duration::from_secs(7));
        assert_eq!(encoders.queue().served, Duration::from_secs(7));
        let mut passes = 0;
        while encoders.queue().has_work {
            pass(&mut encoders);
            passes += 1;
        }
        // The batch needs 240 ms.
        assert!(passes >= 3, "{passes} passes");
        assert!(encoders.queue().served >= Duration::from_millis(7240));
        let expected: Vec<Vec<f32>> = (0..30).map(|first| vec![first as f32]).collect();
        assert_eq!(answer.try_recv().unwrap().unwrap(), expected);
    }

    #[test]
    fn what_nobody_waits_for_is_not_encoded_and_failures_are_told() {
        let mut encoders = encoders();
        let busy = Busy {
            failing: true,
            ..Busy::default()
        };
        encoders.insert("broken".to_owned(), Box::new(busy));
        let (left, answer) = batch("busy", 30);
        encoders.push(left, Duration::ZERO);
        pass(&mut encoders);
        drop(answer);
        encoders.retire_abandoned();
        assert!(!encoders.queue().has_work);
        for model in ["broken", "unknown"] {
            let (failing, mut answer) = batch(model, 1);
            encoders.push(failing, Duration::ZERO);
            while encoders.queue().has_work {
                pass(&mut encoders);
            }
            assert!(answer.try_recv().unwrap().is_err(), "{model}");
        }
        let (paused, mut answer) = batch("busy", 30);
        encoders.push(paused, Duration::ZERO);
        pass(&mut encoders);
        encoders.fail_all(&Failure::Paused);
        assert_eq!(answer.try_recv().unwrap(), Err(Failure::Paused));
    }
}
