//! One step's bookkeeping with 64 sequences: plan, what each row reads, advance, and a token for each.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use muster_engine::runtime::CacheScope;
use muster_engine::runtime::scheduler::{Limits, Scheduler};

const SEQUENCES: u64 = 64;
const PROMPT: usize = 1000;

/// All prompts read, every sequence about to generate.
fn generating() -> Scheduler {
    let limits = Limits {
        max_running: SEQUENCES as usize,
        prefill_chunk: 1 << 20,
    };
    let mut scheduler = Scheduler::new(limits, 64 * SEQUENCES as usize);
    for id in 0..SEQUENCES {
        scheduler.submit(
            id,
            CacheScope::default(),
            (0..PROMPT as u32).map(|i| i ^ id as u32).collect(),
        );
    }
    step(&mut scheduler);
    scheduler
}

fn step(scheduler: &mut Scheduler) -> usize {
    let mut rows = scheduler.plan();
    scheduler.add_prompts(&mut rows, usize::MAX);
    let read = |row| {
        scheduler
            .row_input(row)
            .map_or(0, |(tokens, pages)| tokens.len() + pages.len())
    };
    let read = rows.iter().map(read).sum();
    scheduler.advance(&rows);
    for row in rows.iter().filter(|row| row.draws) {
        scheduler.accept(row, &[1]);
    }
    read
}

fn scheduler(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scheduler");
    group.bench_function("32 steps of 64 sequences", |bencher| {
        // Few steps each, so that the sequences stay as long as they are.
        bencher.iter_batched_ref(
            generating,
            |scheduler| (0..32).map(|_| black_box(step(scheduler))).sum::<usize>(),
            BatchSize::LargeInput,
        );
    });
    group.bench_function("admitting 64 prompts of 1000 tokens", |bencher| {
        bencher.iter(|| black_box(generating().running()));
    });
    group.finish();
}

criterion_group!(benches, scheduler);
criterion_main!(benches);
