//! How many token frames a second are read and written: the hottest path of a coordinator, and of a worker.
//!
//! The number to look at is elements per second: one delta each.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use muster_protocol::job::{Event, JobId, TokenEvent};
use muster_protocol::link::{About, FromWorker, write_tokens};
use uuid::Uuid;

fn events(count: u32) -> Vec<Event> {
    let token = |id| {
        Event::Token(TokenEvent {
            text: " word".to_owned(),
            ids: vec![id],
            ..TokenEvent::default()
        })
    };
    (0..count).map(token).collect()
}

fn frames(criterion: &mut Criterion) {
    let about = About {
        seq: Some(77),
        ..About::attempt(JobId(Uuid::from_u128(7)), 1)
    };
    for count in [1, 16] {
        let events = events(count);
        let mut text = String::new();
        write_tokens(about, &events, &mut text);
        let mut group = criterion.benchmark_group(format!("frames of {count}"));
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_function("read", |bench| {
            bench.iter(|| FromWorker::parse(black_box(&text)));
        });
        group.bench_function("write", |bench| {
            let mut out = String::new();
            bench.iter(|| {
                out.clear();
                write_tokens(about, black_box(&events), &mut out);
                out.len()
            });
        });
        group.finish();
    }
}

criterion_group!(benches, frames);
criterion_main!(benches);
