//! Tokens to text, one at a time, with stop strings watched: a thousand tokens of one sequence.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use muster_engine::runtime::text::{Begins, Detokenizer, StopStrings, Tokenizer};

fn detokenize(criterion: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/tiny-llama/tokenizer.json");
    let tokenizer = Tokenizer::open(&path).expect("the fixture is there");
    let text = "The worker said: “naïve prices are 12 € today” 😀. And then?\n".repeat(40);
    let mut tokens = tokenizer
        .encode(&text, false)
        .expect("the fixture reads everything");
    tokens.truncate(1000);
    let stops = ["\n\nUser:", "<|end|>", "###", "</s>"].map(str::to_owned);

    let mut group = criterion.benchmark_group("detokenize");
    group.throughput(Throughput::Elements(tokens.len() as u64));
    for (name, stops) in [("plain", Vec::new()), ("four stops", stops.to_vec())] {
        let watch = StopStrings::new(stops).expect("the stops are sound");
        let (mut piece, mut out) = (String::new(), String::new());
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut detokenizer = Detokenizer::new(tokenizer.pieces(), Begins::Fresh);
                let mut watch = watch.clone();
                out.clear();
                for &token in &tokens {
                    piece.clear();
                    detokenizer.push(tokenizer.pieces(), token, &mut piece);
                    watch.push(&piece, &mut out);
                }
                black_box(out.len())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, detokenize);
criterion_main!(benches);
