//! Everybody is served, whatever is submitted and cancelled, and however few pages there are.

use std::collections::HashMap;

use proptest::prelude::{Strategy, prop_oneof, proptest};

use super::{CacheScope, Limits, Scheduler, SequenceId};
use muster_kernels::PAGE_TOKENS;

/// A device of the imagination: remembers what was written into each page, and draws tokens by rule.
struct World {
    scheduler: Scheduler,
    limits: Limits,
    written: Vec<[u32; PAGE_TOKENS]>,
    /// How many tokens each unfinished sequence still draws.
    wanted: HashMap<SequenceId, usize>,
    history: HashMap<SequenceId, Vec<u32>>,
    next_id: SequenceId,
}

impl World {
    fn new(limits: Limits, pages: usize) -> Self {
        Self {
            scheduler: Scheduler::new(limits, pages),
            limits,
            written: vec![[u32::MAX; PAGE_TOKENS]; pages],
            wanted: HashMap::new(),
            history: HashMap::new(),
            next_id: 0,
        }
    }

    fn submit(&mut self, tokens: Vec<u32>, wanted: usize) -> SequenceId {
        let id = self.next_id;
        self.next_id += 1;
        let room = self.scheduler.capacity().saturating_sub(tokens.len());
        self.wanted.insert(id, wanted.clamp(1, room + 1));
        self.history.insert(id, tokens.clone());
        self.scheduler.submit(id, CacheScope::default(), tokens);
        id
    }

    fn finish(&mut self, id: SequenceId) {
        self.wanted.remove(&id);
        self.history.remove(&id);
        self.scheduler.finish(id);
    }

    /// One step; returns how many tokens each sequence computed.
    fn step(&mut self) -> Vec<(SequenceId, usize)> {
        let rows = self.scheduler.plan();
        let prompt_tokens: usize = rows.iter().map(|r| r.tokens.len()).filter(|&n| n > 1).sum();
        assert!(
            prompt_tokens <= self.limits.prefill_chunk,
            "prompts stay within their budget"
        );
        assert!(self.scheduler.running() <= self.limits.max_running);
        for row in &rows {
            let (tokens, pages) = self.scheduler.row_input(row).expect("the row exists");
            for (position, &token) in row.tokens.clone().zip(tokens) {
                self.written[pages[position / PAGE_TOKENS] as usize][position % PAGE_TOKENS] =
                    token;
            }
        }
        for row in &rows {
            let (_, pages) = self.scheduler.row_input(row).expect("the row exists");
            let read = (0..row.tokens.end)
                .map(|i| self.written[pages[i / PAGE_TOKENS] as usize][i % PAGE_TOKENS]);
            let known = &self.history[&row.id][..row.tokens.end];
            assert_eq!(
                read.collect::<Vec<_>>(),
                known,
                "a sequence sees its own past"
            );
        }
        self.scheduler.advance(&rows);
        for row in rows.iter().filter(|row| row.draws) {
            self.draw(row.id);
        }
        rows.iter().map(|row| (row.id, row.tokens.len())).collect()
    }

    fn draw(&mut self, id: SequenceId) {
        let history = self.history.get_mut(&id).expect("it is running");
        let token = (history.len() % 3) as u32;
        history.push(token);
        self.scheduler.push(id, token);
        let left = self.wanted.get_mut(&id).expect("it is running");
        *left -= 1;
        if *left == 0 {
            self.finish(id);
        }
    }

    fn run_dry(&mut self) {
        let tokens: usize = self.history.values().map(Vec::len).sum::<usize>()
            + self.wanted.values().sum::<usize>();
        let mut steps = 20 + tokens * (1 + self.wanted.len());
        while !self.scheduler.is_idle() {
            assert!(
                !self.step().is_empty(),
                "a step advances a sequence while any waits"
            );
            steps = steps
                .checked_sub(1)
                .expect("every sequence is served in the end");
        }
        assert_eq!(
            self.scheduler.free_pages(),
            self.scheduler.pages(),
            "no page is lost"
        );
    }
}

const LIMITS: Limits = Limits {
    max_running: 4,
    prefill_chunk: 48,
};

fn prompt(len: usize, word: u32) -> Vec<u32> {
    (0..len as u32).map(|i| i * word % 11).collect()
}

#[test]
fn a_long_prompt_is_read_in_chunks_beside_those_who_generate() {
    let mut world = World::new(LIMITS, 16);
    let talking = world.submit(prompt(3, 1), 100);
    world.step();
    let reading = world.submit(prompt(100, 2), 5);
    assert_eq!(world.step(), [(talking, 1), (reading, 48)]);
    assert_eq!(world.step(), [(talking, 1), (reading, 48)]);
    assert_eq!(world.step(), [(talking, 1), (reading, 4)]);
    assert_eq!(world.step(), [(talking, 1), (reading, 1)]);
}

#[test]
fn choices_of_one_prompt_read_it_once() {
    let mut world = World::new(LIMITS, 16);
    let first = world.submit(prompt(70, 3), 5);
    let second = world.submit(prompt(70, 3), 5);
    assert_eq!(world.step(), [(first, 48)]);
    assert_eq!(world.step(), [(first, 22), (second, 26)]);
    assert_eq!(world.scheduler.cached_tokens(second), PAGE_TOKENS);
    world.run_dry();
}

#[test]
fn when_pages_run_out_the_youngest_steps_back_and_is_served_later() {
    let mut world = World::new(LIMITS, 4);
    let old = world.submit(prompt(30, 1), 70);
    let young = world.submit(prompt(31, 2), 60);
    world.step();
    while world.scheduler.waiting() == 0 {
        world.step();
    }
    assert!(
        world
            .scheduler
            .row_input(&super::Row {
                id: old,
                tokens: 0..1,
                draws: false
            })
            .is_some()
    );
    assert!(
        world.history.contains_key(&young),
        "it waits and is not lost"
    );
    world.run_dry();
}

#[test]
fn a_sequence_alone_may_fill_every_page() {
    let mut world = World::new(LIMITS, 2);
    world.submit(prompt(2 * PAGE_TOKENS, 1), 1);
    world.run_dry();
}

#[test]
fn more_than_max_running_wait_in_order() {
    let mut world = World::new(LIMITS, 64);
    let ids: Vec<_> = (1..=6)
        .map(|word| world.submit(prompt(2, word), 3))
        .collect();
    let stepped: Vec<_> = world.step().into_iter().map(|(id, _)| id).collect();
    assert_eq!(stepped, ids[..4]);
    world.run_dry();
}

#[derive(Debug, Clone)]
enum Act {
    Submit {
        len: usize,
        word: u32,
        wanted: usize,
    },
    Cancel {
        who: usize,
    },
    Step,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (1..150_usize, 0..3_u32, 1..80_usize)
            .prop_map(|(len, word, wanted)| Act::Submit { len, word, wanted }),
        1 => (0..8_usize).prop_map(|who| Act::Cancel { who }),
        8 => proptest::strategy::Just(Act::Step),
    ]
}

proptest! {
    #[test]
    fn everybody_is_served_and_no_page_is_lost(
        acts in proptest::collection::vec(act(), 1..120),
        max_running in 1..6_usize,
        prefill_chunk in 1..100_usize,
        pages in 5..20_usize,
    ) {
        let mut world = World::new(Limits { max_running, prefill_chunk }, pages);
        for act in acts {
            match act {
                Act::Submit { len, word, wanted } => drop(world.submit(prompt(len, word), wanted)),
                Act::Cancel { who } => {
                    let mut ids: Vec<_> = world.wanted.keys().copied().collect();
                    ids.sort_unstable();
                    if let Some(&id) = ids.get(who) {
                        world.finish(id);
                    }
                }
                Act::Step => drop(world.step()),
            }
        }
        world.run_dry();
    }
}
