//! Texts that are written while others are encoded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use muster_testing::eventually;

use super::{Fake, Rule, limited, run};
use crate::runtime::encode::Shorter;
use crate::runtime::encode::{Encode, Vectors};
use crate::runtime::engine::Loader;
use crate::runtime::load::{Loaded, LoadedNetwork};
use crate::runtime::{EncoderInput, EngineLimits, ModelInfo, ModelSource, Purpose, Runtime};

const TOKENS: usize = 512;
const BATCHES: usize = 40;

/// Two layers, each of which keeps the thread busy for 20 µs a token.
struct SlowEncoder {
    begun: Vec<EncoderInput>,
    layers: usize,
    encoded: Arc<AtomicUsize>,
}

impl Encode for SlowEncoder {
    fn begin(&mut self, batch: &[EncoderInput]) -> candle_core::Result<()> {
        (self.begun, self.layers) = (batch.to_vec(), 0);
        Ok(())
    }

    fn advance(&mut self) -> candle_core::Result<Option<Vec<Vec<f32>>>> {
        let tokens: usize = self.begun.iter().map(|one| one.tokens.len()).sum();
        let end = Instant::now() + Duration::from_micros(20) * tokens as u32;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        self.layers += 1;
        if self.layers < 2 {
            return Ok(None);
        }
        self.encoded.fetch_add(self.begun.len(), Ordering::SeqCst);
        Ok(Some(vec![vec![1.0]; self.begun.len()]))
    }
}

/// Loads `reads` as an encoder and all else as a text model.
fn loader(fake: &Fake, encoded: &Arc<AtomicUsize>) -> Loader {
    let (mut texts, encoded) = (fake.loader(), Arc::clone(encoded));
    Box::new(move |source, progress| {
        let loaded = texts(source, progress)?;
        if !source.path.ends_with("reads") {
            return Ok(loaded);
        }
        let network = SlowEncoder {
            begun: Vec::new(),
            layers: 0,
            encoded: Arc::clone(&encoded),
        };
        let purpose = Purpose::Embed(Vectors {
            dimensions: 1,
            shorter: Shorter::Never,
        });
        Ok(Loaded {
            network: LoadedNetwork::Encoder(Box::new(network)),
            info: ModelInfo {
                purpose,
                ..loaded.info
            },
            ..loaded
        })
    })
}

#[tokio::test]
async fn a_text_is_written_while_a_long_batch_is_encoded() {
    let encoded = Arc::new(AtomicUsize::new(0));
    let fake = Fake::new(Rule::Rambles);
    let runtime = Runtime::start_with(loader(&fake, &encoded), EngineLimits::default()).unwrap();
    for name in ["fake", "reads"] {
        runtime
            .load(name, ModelSource::new(name), |_, _| ())
            .await
            .unwrap();
    }
    // At one decode step per batch the text would have forty tokens at the end.
    let sequences: Vec<EncoderInput> = (0..BATCHES * 8)
        .map(|_| vec![1; TOKENS / 8].into())
        .collect();
    let all = sequences.len();
    let reading = {
        let runtime = runtime.clone();
        async move { runtime.encode("reads", sequences).await }
    };
    let writing = async {
        eventually("the first sequences", async || {
            (encoded.load(Ordering::SeqCst) > 0).then_some(())
        })
        .await;
        let (_, ids, end) = run(&runtime, limited("hi>", 60)).await;
        end.unwrap();
        (ids.len(), encoded.load(Ordering::SeqCst))
    };
    let (read, (written, before)) = tokio::join!(reading, writing);
    assert_eq!(written, 60);
    assert!(
        before < all,
        "all {all} sequences were encoded before 60 tokens"
    );
    assert_eq!(read.unwrap().len(), all);
}
