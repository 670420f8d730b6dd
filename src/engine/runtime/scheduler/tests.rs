//! No sequence starves, whatever is submitted and cancelled, and however few pages exist.

use std::collections::HashMap;

use proptest::prelude::{Strategy, prop_oneof, proptest};

use super::{Limits, Row, SNAPSHOTS, Scheduler, SequenceId, StateCopy};
use crate::runtime::CacheScope;
use muster_kernels::PAGE_TOKENS;

/// A simulated device: remembers the tokens written into each page, and samples tokens by a rule.
struct World {
    scheduler: Scheduler,
    limits: Limits,
    written: Vec<[u32; PAGE_TOKENS]>,
    /// For a network with recurrent states, the tokens in each state.
    states: Option<Vec<Vec<u32>>>,
    /// Tokens proposed for each sequence in each step; every third step, one of them is wrong.
    proposed: usize,
    /// Number of tokens that each unfinished sequence still has to sample.
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
            states: None,
            proposed: 0,
            wanted: HashMap::new(),
            history: HashMap::new(),
            next_id: 0,
        }
    }

    fn with_states(limits: Limits, pages: usize) -> Self {
        Self {
            scheduler: Scheduler::new(limits, pages).with_states(),
            states: Some(vec![Vec::new(); limits.max_running + SNAPSHOTS]),
            ..Self::new(limits, pages)
        }
    }

    /// Updates the states like a step.
    fn advance_states(&mut self, rows: &[Row]) {
        let copies = self.scheduler.take_state_copies();
        let Some(states) = &mut self.states else {
            assert_eq!(copies, [], "no state is copied where there is none");
            return;
        };
        for StateCopy { from, to } in copies {
            states[to as usize] = states[from as usize].clone();
        }
        for row in rows {
            let slot = self.scheduler.state(row.id).expect("it is running");
            let state = &mut states[slot as usize];
            if row.tokens.start == 0 {
                state.clear();
            }
            let known = &self.history[&row.id];
            assert_eq!(
                *state,
                known[..row.tokens.start],
                "a state has seen all before"
            );
            state.extend_from_slice(&known[row.tokens.clone()]);
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

    /// Runs a step; returns the number of tokens that each sequence computed.
    fn step(&mut self) -> Vec<(SequenceId, usize)> {
        let mut rows = self.scheduler.plan();
        if !self.scheduler.reads_prompts() && self.states.is_none() {
            for row in &mut rows {
                let proposed = self.guess(row.id);
                self.scheduler.propose(row, proposed);
            }
        }
        let generating: usize = rows.iter().map(|row| row.tokens.len()).sum();
        self.scheduler.add_prompts(&mut rows, usize::MAX);
        let prompt_tokens = rows.iter().map(|row| row.tokens.len()).sum::<usize>() - generating;
        assert!(
            prompt_tokens <= self.limits.prefill_chunk,
            "prompts stay within their budget"
        );
        assert!(self.scheduler.running() <= self.limits.max_running);
        for row in &rows {
            let (tokens, pages) = self.scheduler.row_input(row).expect("the row exists");
            let proposed = row.tokens.start..row.tokens.start + row.new_tokens();
            for (position, &token) in proposed.zip(tokens.iter().chain(&row.proposed)) {
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
        self.advance_states(&rows);
        self.scheduler.advance(&rows);
        for row in rows.iter().filter(|row| row.draws) {
            self.draw(row);
        }
        rows.iter().map(|row| (row.id, row.tokens.len())).collect()
    }

    /// Draws as long as proposals are right.
    fn draw(&mut self, row: &Row) {
        let history = self.history.get_mut(&row.id).expect("it is running");
        let left = self.wanted.get_mut(&row.id).expect("it is running");
        let mut drawn = Vec::new();
        while *left > 0 && row.proposed.starts_with(&drawn) {
            drawn.push(rule(history.len()));
            history.extend(drawn.last());
            *left -= 1;
        }
        let is_last = *left == 0;
        self.scheduler.accept(row, &drawn);
        if is_last {
            self.finish(row.id);
        }
    }

    fn guess(&mut self, id: SequenceId) -> Vec<u32> {
        let length = self.history[&id].len();
        let most = self.proposed.min(self.wanted[&id] - 1);
        let is_wrong = |position| length.is_multiple_of(3) && position == length + most / 2;
        let guess = |position| rule(position) + u32::from(is_wrong(position));
        (length..length + most).map(guess).collect()
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

/// The token at a position.
fn rule(position: usize) -> u32 {
    (position % 3) as u32
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
fn a_common_prefix_is_read_twice_where_sequences_have_states() {
    let mut world = World::with_states(LIMITS, 64);
    let common = prompt(70, 3);
    let mut cached = |end: u32| {
        let tokens = [common.clone(), vec![end; 40]].concat();
        let id = world.submit(tokens, 3);
        world.step();
        let cached = world.scheduler.cached_tokens(id);
        world.run_dry();
        cached
    };
    // The second one finds that the prefix is common, and keeps its state.
    assert_eq!([12, 13, 14, 15].map(&mut cached), [0, 0, 64, 64]);
    // A prompt once more: all but its last page.
    assert_eq!(cached(13), 96);
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
            .row_input(&Row {
                id: old,
                tokens: 0..1,
                proposed: Vec::new(),
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
fn proposals_that_are_drawn_are_computed_already() {
    let mut world = World::new(LIMITS, 16);
    world.proposed = 5;
    let id = world.submit(prompt(10, 1), 40);
    world.step();
    let lengths: Vec<_> = (0..4).map(|_| world.step()[0].1).collect();
    // After 11 tokens all are right; after 17, which is no multiple of 3, as well.
    assert_eq!(lengths, [1, 1, 1, 1]);
    assert_eq!(world.history[&id].len(), 11 + 6 + 6 + 6 + 6);
}

#[test]
fn proposals_take_no_page_that_a_sequence_may_need() {
    let mut world = World::new(LIMITS, 5);
    world.proposed = 40;
    for word in [1, 2] {
        world.submit(prompt(PAGE_TOKENS - 1, word), PAGE_TOKENS);
    }
    while !world.scheduler.is_idle() {
        world.step();
        assert_eq!(world.scheduler.waiting(), 0, "both have room for two pages");
    }
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
        proposed in 0..40_usize,
        has_states in proptest::bool::ANY,
    ) {
        let limits = Limits { max_running, prefill_chunk };
        let mut world = match has_states {
            true => World::with_states(limits, pages),
            false => World::new(limits, pages),
        };
        world.proposed = proposed;
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
