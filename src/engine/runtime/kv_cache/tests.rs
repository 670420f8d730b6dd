//! A sequence never shares pages of another prefix, however sequences are admitted, grown, forked and finished.

use proptest::prelude::{Strategy, prop_oneof, proptest};

use super::{AdapterId, Blocks, CacheKey, CacheScope, Chain, ImageDigest, ImageSpan};
use muster_kernels::PAGE_TOKENS;

fn prompt(pages: usize, word: u32) -> Vec<u32> {
    (0..pages * PAGE_TOKENS)
        .map(|i| (i / PAGE_TOKENS) as u32 * 7 + word)
        .collect()
}

/// A chain that holds all of `tokens`, computed and sealed.
fn computed(blocks: &mut Blocks, tokens: &[u32]) -> Chain {
    let mut chain = Chain::default();
    blocks.share(&mut chain, tokens);
    assert!(blocks.grow(&mut chain, tokens.len()), "there is room");
    blocks.seal(&mut chain, tokens, tokens.len());
    chain
}

#[test]
fn equal_prefixes_share_whole_pages_and_leave_one_token_to_compute() {
    let mut blocks = Blocks::new(8);
    let tokens = prompt(2, 1);
    let first = computed(&mut blocks, &tokens);

    let mut second = Chain::default();
    assert_eq!(blocks.share(&mut second, &tokens), PAGE_TOKENS);
    assert_eq!(second.pages(), &first.pages()[..1]);

    let mut longer = tokens.clone();
    longer.push(5);
    assert_eq!(blocks.share(&mut second, &longer), 2 * PAGE_TOKENS);
    assert_eq!(second.pages(), first.pages());
    blocks.release(first);
    blocks.release(second);
    assert_eq!(blocks.free(), 8);
}

#[test]
fn a_page_is_found_again_only_under_the_same_beginning() {
    let mut blocks = Blocks::new(8);
    let chain = computed(&mut blocks, &prompt(2, 1));
    let mut other_beginning = prompt(2, 1);
    other_beginning[0] = 99;
    other_beginning.push(5);
    assert_eq!(
        blocks.shareable(CacheScope::default(), &other_beginning),
        (0, 0)
    );
    blocks.release(chain);
}

#[test]
fn equal_prefixes_of_two_scopes_share_nothing() {
    let mut blocks = Blocks::new(8);
    let mut tokens = prompt(2, 1);
    tokens.push(5);
    let (ours, theirs) = (CacheScope(1), CacheScope(2));
    let in_scope = |blocks: &mut Blocks, scope| {
        let mut chain = Chain::new(scope);
        let known = blocks.share(&mut chain, &tokens);
        assert!(blocks.grow(&mut chain, tokens.len()));
        blocks.seal(&mut chain, &tokens, tokens.len());
        (known, chain)
    };
    let (_, first) = in_scope(&mut blocks, ours);
    assert_eq!(blocks.shareable(ours, &tokens), (2, 0));
    assert_eq!(blocks.shareable(theirs, &tokens), (0, 0));
    let (known, second) = in_scope(&mut blocks, theirs);
    assert_eq!(known, 0);
    let (known, third) = in_scope(&mut blocks, ours);
    assert_eq!(known, 2 * PAGE_TOKENS);
    let (first_pages, second_pages) = (first.pages()[..2].to_vec(), second.pages()[..2].to_vec());
    assert_ne!(first_pages, second_pages);
    assert_eq!(first_pages, third.pages()[..2]);
    for chain in [first, second, third] {
        blocks.release(chain);
    }
    assert_eq!(blocks.free(), 8);
}

/// The second page begins in an image, and the third ends in it.
#[test]
fn equal_tokens_of_other_images_share_nothing() {
    let mut blocks = Blocks::new(16);
    let mut tokens = prompt(4, 1);
    tokens.push(5);
    let of_image = |digest: u8, first: usize| CacheKey {
        images: [ImageSpan {
            tokens: first..first + 2 * PAGE_TOKENS - 8,
            digest: ImageDigest([digest; 32]),
        }]
        .into(),
        ..CacheKey::default()
    };
    let mut chain = Chain::new(of_image(1, PAGE_TOKENS + 4));
    assert!(blocks.grow(&mut chain, tokens.len()));
    blocks.seal(&mut chain, &tokens, tokens.len());
    let found = |key: CacheKey| blocks.shareable(key, &tokens).0;
    assert_eq!(found(of_image(1, PAGE_TOKENS + 4)), 4);
    assert_eq!(found(of_image(2, PAGE_TOKENS + 4)), 1, "the text before it");
    assert_eq!(found(of_image(1, PAGE_TOKENS + 5)), 1, "another part of it");
    assert_eq!(found(CacheKey::default()), 1);
    blocks.release(chain);
}

#[test]
fn equal_tokens_of_other_adapters_share_nothing() {
    let mut blocks = Blocks::new(8);
    let mut tokens = prompt(2, 1);
    tokens.push(5);
    let with = |adapter: Option<u64>| CacheKey {
        adapter: adapter.map(AdapterId),
        ..CacheKey::default()
    };
    let mut chain = Chain::new(with(Some(1)));
    assert!(blocks.grow(&mut chain, tokens.len()));
    blocks.seal(&mut chain, &tokens, tokens.len());
    let found = |adapter| blocks.shareable(with(adapter), &tokens).0;
    assert_eq!([Some(1), Some(2), None].map(found), [2, 0, 0]);
    let prefixes = |adapter| blocks.prefixes(with(adapter), &tokens).len();
    assert_eq!([Some(1), Some(2), None].map(prefixes), [2, 0, 0]);
    blocks.release(chain);
}

#[test]
fn what_was_used_longest_ago_is_forgotten_first_and_from_its_end() {
    let mut blocks = Blocks::new(4);
    let (old, young) = (prompt(2, 1), prompt(2, 2));
    for tokens in [&old, &young] {
        let chain = computed(&mut blocks, tokens);
        blocks.release(chain);
    }
    let mut chain = Chain::default();
    assert!(blocks.grow(&mut chain, PAGE_TOKENS));
    let found = |tokens: &[u32]| {
        blocks
            .shareable(CacheScope::default(), &[tokens, &[0]].concat())
            .0
    };
    assert_eq!((found(&old), found(&young)), (1, 2));
    blocks.release(chain);
}

#[test]
fn fewer_pages_keep_what_is_held_and_what_was_used_last() {
    let mut blocks = Blocks::new(8);
    let [old, young, held] = [1, 2, 3].map(|word| prompt(2, word));
    for tokens in [&old, &young] {
        let chain = computed(&mut blocks, tokens);
        blocks.release(chain);
    }
    let mut chain = computed(&mut blocks, &held);
    assert_eq!((chain.pages(), blocks.held()), (&[4, 5][..], 2));
    let kept = blocks.resize(4);
    chain.renumber(&kept);
    assert_eq!((kept, chain.pages()), (vec![2, 3, 4, 5], &[2, 3][..]));
    let found = |blocks: &Blocks, tokens: &[u32]| {
        let tokens = [tokens, &[0]].concat();
        blocks.shareable(CacheScope::default(), &tokens).0
    };
    assert_eq!(
        [&old, &young, &held].map(|it| found(&blocks, it)),
        [0, 2, 2]
    );
    assert_eq!((blocks.total(), blocks.free()), (4, 2));
    // More pages lose nothing.
    assert_eq!(blocks.resize(6), [0, 1, 2, 3]);
    assert_eq!(found(&blocks, &young), 2);
    assert!(blocks.grow(&mut chain, 4 * PAGE_TOKENS));
    assert_eq!(chain.pages(), [2, 3, 4, 5]);
    blocks.release(chain);
    assert_eq!(blocks.free(), 6);
}

#[test]
fn two_sequences_that_computed_the_same_end_on_the_same_page() {
    let mut blocks = Blocks::new(8);
    let tokens = prompt(1, 3);
    let (mut a, mut b) = (Chain::default(), Chain::default());
    assert!(blocks.grow(&mut a, tokens.len()) && blocks.grow(&mut b, tokens.len()));
    assert_ne!(a.pages(), b.pages());
    blocks.seal(&mut a, &tokens, tokens.len());
    blocks.seal(&mut b, &tokens, tokens.len());
    assert_eq!(a.pages(), b.pages());
    assert_eq!(blocks.free(), 7);
    blocks.release(a);
    blocks.release(b);
}

#[test]
fn growing_past_the_last_page_changes_nothing() {
    let mut blocks = Blocks::new(2);
    let mut chain = Chain::default();
    assert!(!blocks.grow(&mut chain, 3 * PAGE_TOKENS));
    assert_eq!((chain.pages().len(), blocks.free()), (0, 2));
    blocks.release(chain);
}

#[derive(Debug, Clone)]
enum Act {
    /// A prompt of few different words, so that prefixes meet.
    Admit {
        pages: usize,
        word: u32,
        tail: usize,
    },
    Grow {
        who: usize,
        tokens: usize,
    },
    Fork {
        who: usize,
    },
    Finish {
        who: usize,
    },
    /// To this many pages, or to those of sequences if they are more.
    Resize {
        pages: usize,
    },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..4_usize, 0..3_u32, 0..40_usize).prop_map(|(pages, word, tail)| Act::Admit {
            pages,
            word,
            tail
        }),
        (0..8_usize, 1..50_usize).prop_map(|(who, tokens)| Act::Grow { who, tokens }),
        (0..8_usize).prop_map(|who| Act::Fork { who }),
        (0..8_usize).prop_map(|who| Act::Finish { who }),
        (0..16_usize).prop_map(|pages| Act::Resize { pages }),
    ]
}

/// Sequences, and the tokens written into each page of a device: the ground truth for sharing.
struct World {
    blocks: Blocks,
    written: Vec<Vec<u32>>,
    running: Vec<(Chain, Vec<u32>)>,
}

impl World {
    fn new(pages: usize) -> Self {
        Self {
            blocks: Blocks::new(pages),
            written: vec![Vec::new(); pages],
            running: Vec::new(),
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Admit { pages, word, tail } => {
                let mut tokens = prompt(pages, word);
                tokens.extend((0..=tail as u32).map(|i| i * word));
                let mut chain = Chain::default();
                let shared = self.blocks.share(&mut chain, &tokens);
                self.compute(chain, tokens, shared);
            }
            Act::Grow { who, tokens } if who < self.running.len() => {
                let (chain, mut all) = self.running.swap_remove(who);
                let from = all.len();
                all.extend((0..tokens as u32).map(|i| i % 3));
                self.compute(chain, all, from);
            }
            Act::Fork { who } if who < self.running.len() => {
                let (chain, tokens) = &self.running[who];
                let tokens = tokens.clone();
                let fork = self.blocks.fork(chain);
                let from = fork.room();
                self.compute(fork, tokens, from);
            }
            Act::Finish { who } if who < self.running.len() => {
                let (chain, _) = self.running.swap_remove(who);
                self.blocks.release(chain);
            }
            Act::Resize { pages } => self.resize(pages),
            _ => {}
        }
        self.check();
    }

    fn resize(&mut self, pages: usize) {
        let pages = pages.max(self.blocks.held());
        let kept = self.blocks.resize(pages);
        let stay = kept.iter().map(|&page| self.written[page as usize].clone());
        self.written = stay.collect();
        self.written.resize(pages, Vec::new());
        for (chain, _) in &mut self.running {
            chain.renumber(&kept);
        }
    }

    /// Writes `tokens[from..]` like a step, or releases the sequence if no page is free.
    fn compute(&mut self, mut chain: Chain, tokens: Vec<u32>, from: usize) {
        if !self.blocks.grow(&mut chain, tokens.len()) {
            return self.blocks.release(chain);
        }
        for (position, &token) in tokens.iter().enumerate().skip(from) {
            let page = &mut self.written[chain.pages()[position / PAGE_TOKENS] as usize];
            page.truncate(position % PAGE_TOKENS);
            page.push(token);
        }
        self.blocks.seal(&mut chain, &tokens, tokens.len());
        self.running.push((chain, tokens));
    }

    fn check(&self) {
        let mut held = std::collections::HashSet::<u32>::new();
        for (chain, tokens) in &self.running {
            let read: Vec<u32> = (0..tokens.len())
                .map(|i| self.written[chain.pages()[i / PAGE_TOKENS] as usize][i % PAGE_TOKENS])
                .collect();
            assert_eq!(
                &read, tokens,
                "every sequence finds its own tokens in its pages"
            );
            held.extend(chain.pages());
        }
        assert_eq!(
            self.blocks.free(),
            self.written.len() - held.len(),
            "no page is lost"
        );
        for (page, state) in self.blocks.pages.iter().enumerate() {
            let holders = self
                .running
                .iter()
                .filter(|(c, _)| c.pages().contains(&(page as u32)));
            assert_eq!(
                state.holders as usize,
                holders.count(),
                "page {page} counts its holders"
            );
        }
    }
}

proptest! {
    #[test]
    fn no_page_is_leaked_or_shared_wrongly(acts in proptest::collection::vec(act(), 1..120)) {
        let mut world = World::new(12);
        for act in acts {
            world.act(act);
        }
        for (chain, _) in std::mem::take(&mut world.running) {
            world.blocks.release(chain);
        }
        assert_eq!(world.blocks.free(), world.written.len());
    }
}
