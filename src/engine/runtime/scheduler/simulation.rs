//! Simulated steps with the costs of real machines: no stream stalls and no prompt starves.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::{Strategy, prop_oneof, proptest};

use super::pace::Pace;
use super::{Generating, Limits, Row, Scheduler, SequenceId};
use crate::runtime::CacheScope;

/// Seconds that parts of a step cost.
#[derive(Debug, Clone, Copy)]
struct Costs {
    /// Cost of reading all weights, once per step.
    weights: f64,
    /// Starting a step.
    step: f64,
    /// The products of one token.
    token: f64,
    /// The logits of one token.
    logits: f64,
    /// Cost of one token attending to another.
    context: f64,
}

/// A 1B model in Q4_K_M on two cores with fast products and slow memory.
const SLOW_MEMORY: Costs = Costs {
    weights: 0.045,
    step: 0.004,
    token: 0.0040,
    logits: 0.001,
    context: 1e-6,
};

/// The same model on two cores of a server with fast memory, where four tokens are bound by their products.
const FAST_MEMORY: Costs = Costs {
    weights: 0.016,
    step: 0.002,
    token: 0.0050,
    logits: 0.0022,
    context: 1e-6,
};

/// An 8B model on a GPU: hundreds of tokens cost as much as one.
const GPU: Costs = Costs {
    weights: 0.008,
    step: 0.001,
    token: 0.000_035,
    logits: 0.000_01,
    context: 1e-9,
};

impl Costs {
    fn of(&self, rows: &[Row]) -> f64 {
        let (mut tokens, mut logits, mut pairs) = (0, 0, 0);
        for row in rows {
            tokens += row.tokens.len();
            logits += usize::from(row.draws);
            pairs += row.tokens.len() * (row.tokens.start + row.tokens.end) / 2;
        }
        let products = tokens as f64 * self.token;
        let rest = logits as f64 * self.logits + pairs as f64 * self.context;
        self.step + products.max(self.weights) + rest
    }
}

#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: f64,
    prompt: usize,
    wanted: usize,
}

#[derive(Debug, Default)]
struct Stream {
    arrived: f64,
    wanted: usize,
    /// Sampling times of its tokens.
    tokens: Vec<f64>,
}

impl Stream {
    fn gaps(&self) -> impl Iterator<Item = (f64, f64)> {
        self.tokens
            .windows(2)
            .map(|pair| (pair[1], pair[1] - pair[0]))
    }

    fn wait(&self) -> f64 {
        self.tokens[0] - self.arrived
    }
}

/// Serves all arrivals to their end.
fn serve(costs: Costs, limits: Limits, arrivals: &[Arrival]) -> Vec<Stream> {
    let mut scheduler = Scheduler::new(limits, 1 << 14);
    let mut pace = Pace::new(limits.prefill_chunk);
    let mut streams = BTreeMap::<SequenceId, Stream>::new();
    let mut arrivals: VecDeque<(u64, Arrival)> = (0..).zip(arrivals.iter().copied()).collect();
    let mut noise = 1_u32;
    let mut clock = 0.0;
    while !scheduler.is_idle() || !arrivals.is_empty() {
        if scheduler.is_idle() {
            clock = arrivals[0].1.at.max(clock);
        }
        while let Some((id, arrival)) = arrivals.pop_front_if(|(_, next)| next.at <= clock) {
            // Distinct prompts, so that no pages are shared.
            let tokens = (0..arrival.prompt as u32).map(|i| i ^ (id as u32) << 16);
            scheduler.submit(id, CacheScope::default(), tokens.collect());
            let stream = Stream {
                arrived: arrival.at,
                wanted: arrival.wanted,
                tokens: Vec::new(),
            };
            streams.insert(id, stream);
        }
        let mut rows = scheduler.plan();
        let generating = Generating::of(&rows);
        scheduler.add_prompts(&mut rows, pace.prompt_limit(generating, Duration::ZERO));
        // Up to 4 % more or less, as on a quiet machine.
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let elapsed = costs.of(&rows) * (0.96 + 0.08 * f64::from(noise >> 16) / 65_536.0);
        clock += elapsed;
        let tokens: usize = rows.iter().map(|row| row.tokens.len()).sum();
        let prompt_tokens = tokens - generating.tokens;
        pace.record(generating, prompt_tokens, Duration::from_secs_f64(elapsed));
        scheduler.advance(&rows);
        for row in rows.iter().filter(|row| row.draws) {
            let stream = streams.get_mut(&row.id).expect("submitted");
            stream.tokens.push(clock);
            match stream.tokens.len() == stream.wanted {
                true => scheduler.finish(row.id),
                false => scheduler.accept(row, &[7]),
            }
        }
    }
    streams.into_values().collect()
}

fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

const LIMITS: Limits = Limits {
    max_running: 64,
    prefill_chunk: 512,
};

/// Gaps while a long prompt is read over the median before, and how much later its first token comes than alone.
fn disturb(costs: Costs, streams: usize, prompt: usize) -> (f64, f64) {
    let long = Arrival {
        at: 0.0,
        prompt,
        wanted: 2,
    };
    let alone = serve(costs, LIMITS, &[long])[0].wait();
    let undisturbed = costs.weights.max(costs.token * streams as f64);
    let arrived = 40.0 * undisturbed;
    let talk = Arrival {
        at: 0.0,
        prompt: 30,
        wanted: 100 + (3.0 * alone / undisturbed) as usize,
    };
    let mut arrivals = vec![talk; streams];
    arrivals.push(Arrival {
        at: arrived + 0.5 * alone,
        ..long
    });
    let served = serve(costs, LIMITS, &arrivals);
    let reading = served.last().expect("the long prompt");
    let gaps = |from: f64, to: f64| -> Vec<f64> {
        let all = served[..streams].iter().flat_map(Stream::gaps);
        let inside = all.filter(|(at, _)| (from..to).contains(at));
        inside.map(|(_, gap)| gap).collect()
    };
    let first = reading.tokens[0];
    let median = percentile(gaps(arrived * 0.3, reading.arrived), 50);
    let p99 = percentile(gaps(reading.arrived, first), 99);
    (p99 / median, reading.wait() / alone)
}

#[test]
fn streams_keep_flowing_while_a_long_prompt_is_read() {
    for (costs, streams) in [
        (SLOW_MEMORY, 1),
        (SLOW_MEMORY, 4),
        (FAST_MEMORY, 1),
        (GPU, 1),
        (GPU, 4),
        (GPU, 8),
        (GPU, 24),
    ] {
        let (gap, later) = disturb(costs, streams, 4000);
        assert!(gap <= 3.0, "{streams} streams: {gap:.2} x, {costs:?}");
        assert!(later <= 1.3, "{streams} streams: {later:.2} x, {costs:?}");
    }
}

/// If decode steps are limited by compute instead of memory, prefill slows them down: at a third of their speed, the
/// streams need a third of the time.
#[test]
fn streams_and_a_long_prompt_share_a_busy_processor() {
    for (costs, streams) in [
        (SLOW_MEMORY, 24),
        (FAST_MEMORY, 4),
        (FAST_MEMORY, 8),
        (FAST_MEMORY, 24),
    ] {
        let (gap, later) = disturb(costs, streams, 4000);
        assert!(gap <= 3.0, "{streams} streams: {gap:.2} x, {costs:?}");
        assert!(later <= 1.8, "{streams} streams: {later:.2} x, {costs:?}");
    }
}

#[test]
fn a_short_prompt_does_not_wait_behind_a_long_one() {
    let long = Arrival {
        at: 0.0,
        prompt: 8000,
        wanted: 1,
    };
    let short = Arrival {
        at: 1.0,
        prompt: 60,
        wanted: 1,
    };
    for costs in [SLOW_MEMORY, FAST_MEMORY] {
        let served = serve(costs, LIMITS, &[long, short]);
        let chunk = 1.1 * (costs.step + 512.0 * (costs.token + 8000.0 * costs.context));
        assert!(served[1].wait() <= 2.0 * chunk, "{}", served[1].wait());
    }
}

/// Each step has other requests of one token with cached prompts, so that no two steps are alike.
#[test]
fn a_long_prompt_is_read_among_ever_changing_streams() {
    let long = Arrival {
        at: 0.0,
        prompt: 2000,
        wanted: 1,
    };
    let alone = serve(FAST_MEMORY, LIMITS, &[long])[0].wait();
    let mut arrivals = vec![Arrival {
        at: 0.0,
        prompt: 1,
        wanted: 3,
    }];
    arrivals.push(Arrival { at: 0.05, ..long });
    for burst in 0..2000 {
        let brief = Arrival {
            at: f64::from(burst) * 0.02,
            prompt: 1,
            wanted: 1,
        };
        arrivals.extend(vec![brief; 1 + burst as usize % 4]);
    }
    arrivals.sort_by(|a, b| a.at.total_cmp(&b.at));
    let served = serve(FAST_MEMORY, LIMITS, &arrivals);
    let reading = served.iter().max_by(|a, b| a.wait().total_cmp(&b.wait()));
    let wait = reading.expect("the long prompt").wait();
    assert!(wait <= 4.0 * alone, "{wait:.1} s instead of {alone:.1} s");
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let prompt = prop_oneof![4 => 1..200_usize, 1 => 1000..5000_usize];
    (0.0..20.0_f64, prompt, 1..150_usize).prop_map(|(at, prompt, wanted)| Arrival {
        at,
        prompt,
        wanted,
    })
}

proptest! {
    /// `serve` returns when all prompts are answered, and no stream paused for much longer than a step in which
    /// all of them generate.
    #[test]
    fn no_stream_starves_in_any_mix(
        mut arrivals in proptest::collection::vec(arrival(), 1..40),
        costs in prop_oneof![
            proptest::strategy::Just(SLOW_MEMORY),
            proptest::strategy::Just(FAST_MEMORY),
            proptest::strategy::Just(GPU),
        ],
    ) {
        arrivals.sort_by(|a, b| a.at.total_cmp(&b.at));
        let context: usize = arrivals.iter().map(|arrival| arrival.prompt + arrival.wanted).sum();
        let streams = arrivals.len() as f64;
        let all = costs.step
            + costs.weights.max(streams * costs.token)
            + streams * costs.logits
            + context as f64 * costs.context;
        for stream in serve(costs, LIMITS, &arrivals) {
            let longest = stream.gaps().map(|(_, gap)| gap).fold(0.0, f64::max);
            assert!(longest <= 4.0 * all, "{longest:.3} s instead of {all:.3} s");
        }
    }
}
