//! Owners of pages in the KV cache. Pages are reference-counted, shared between equal prefixes, and evicted in LRU
//! order.
//!
//! A full page of computed tokens is *sealed*: from then on its content is a fact, named by the previous page's fact
//! and its own tokens. That name is the cache's key, compared as a whole, so that neither a hash collision nor a reused
//! page can make two different prefixes share. Unreferenced pages stay in the cache until their memory is needed; a
//! chain is released tail first, so that no parent is evicted before its children.
//!
//! Names begin with a scope, so that sequences of different scopes never share: a cache hit reveals, by the count of
//! cached tokens and by timing, that another request had the same prefix. Tokens of an image are the same for all
//! images, so the name of their page includes the image's digest. Adapters change keys and values, so that only
//! sequences with the same adapter share pages.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use muster_kernels::PAGE_TOKENS;

/// All pages of one model on one device.
#[derive(Debug)]
pub struct Blocks {
    pages: Vec<Page>,
    /// Pages without cached content.
    empty: Vec<u32>,
    /// Sealed pages without references, least recently released first.
    resting: BTreeSet<(u64, u32)>,
    sealed: HashMap<Content, u32>,
    clock: u64,
}

/// The pages of one sequence, in order. Give it back with [`Blocks::release`].
#[derive(Debug, Default)]
#[must_use = "pages that are not released are lost"]
pub struct Chain {
    pages: Vec<u32>,
    /// Number of sealed pages, from the front, and the name of the last one.
    sealed: usize,
    last: Parent,
    images: Arc<[ImageSpan]>,
}

/// Sequences of one scope share pages, and no others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CacheScope(pub u128);

/// Identifies an adapter during the engine's lifetime. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdapterId(pub u64);

/// SHA-256 of an image as a network sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageDigest(pub [u8; 32]);

/// The tokens of an image in a sequence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageSpan {
    pub tokens: Range<usize>,
    pub digest: ImageDigest,
}

/// The part of a page's name besides its tokens.
#[derive(Debug, Clone, Default)]
pub struct CacheKey {
    pub scope: CacheScope,
    pub adapter: Option<AdapterId>,
    /// In prompt order.
    pub images: Arc<[ImageSpan]>,
}

impl From<CacheScope> for CacheKey {
    fn from(scope: CacheScope) -> Self {
        Self {
            scope,
            ..Self::default()
        }
    }
}

/// Identifies the content of a sealed page, and through its parent the whole prefix. Never reused.
type Fact = u64;

/// Names the content of the first pages of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix(Parent);

impl From<CacheScope> for Prefix {
    /// The empty prefix.
    fn from(scope: CacheScope) -> Self {
        Self(Parent::Start(scope, None))
    }
}

/// The parent of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Parent {
    /// The page is the first of its sequence.
    Start(CacheScope, Option<AdapterId>),
    Page(Fact),
}

impl Default for Parent {
    fn default() -> Self {
        Self::Start(CacheScope::default(), None)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Content {
    parent: Parent,
    tokens: [u32; PAGE_TOKENS],
    /// Images that some of the tokens belong to.
    images: Box<[ImageSpan]>,
}

#[derive(Debug, Default)]
struct Page {
    holders: u32,
    sealed: Option<(Fact, Content)>,
    released_at: u64,
}

impl Chain {
    pub fn new(key: impl Into<CacheKey>) -> Self {
        let CacheKey {
            scope,
            adapter,
            images,
        } = key.into();
        Self {
            last: Parent::Start(scope, adapter),
            images,
            ..Self::default()
        }
    }

    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// The name of the content of the sealed pages.
    pub fn prefix(&self) -> Prefix {
        Prefix(self.last)
    }

    /// Capacity in tokens.
    pub fn room(&self) -> usize {
        self.pages.len() * PAGE_TOKENS
    }

    /// Takes note of [`Blocks::resize`], which has kept these pages.
    pub fn renumber(&mut self, kept: &[u32]) {
        for page in &mut self.pages {
            let at = kept.partition_point(|it| *it < *page);
            debug_assert_eq!(
                kept.get(at).copied(),
                Some(*page),
                "a page of a sequence stays"
            );
            *page = at as u32;
        }
    }

    /// The content of the page after the sealed ones.
    fn next_content(&self, tokens: &[u32]) -> Option<Content> {
        let page = self.sealed * PAGE_TOKENS..(self.sealed + 1) * PAGE_TOKENS;
        let tokens = tokens.get(page.clone())?.try_into().ok()?;
        let images = self.images.iter();
        let here =
            images.filter(|image| image.tokens.start < page.end && page.start < image.tokens.end);
        Some(Content {
            parent: self.last,
            tokens,
            images: here.cloned().collect(),
        })
    }
}

impl Blocks {
    pub fn new(pages: usize) -> Self {
        let count = u32::try_from(pages).unwrap_or(u32::MAX);
        Self {
            pages: (0..count).map(|_| Page::default()).collect(),
            empty: (0..count).rev().collect(),
            resting: BTreeSet::new(),
            sealed: HashMap::new(),
            clock: 0,
        }
    }

    pub fn total(&self) -> usize {
        self.pages.len()
    }

    /// Available pages: empty ones, and cached ones without references.
    pub fn free(&self) -> usize {
        self.empty.len() + self.resting.len()
    }

    /// Pages of sequences.
    pub fn held(&self) -> usize {
        self.total() - self.free()
    }

    /// Changes the number of pages, which are at least the held ones. The least recently released cached pages leave
    /// where not all fit. Returns the earlier numbers of the pages that stay, ascending: the first one is page 0 now.
    /// Every chain must be [renumbered](Chain::renumber).
    pub fn resize(&mut self, total: usize) -> Vec<u32> {
        debug_assert!(self.held() <= total, "the pages of sequences stay");
        while self.held() + self.resting.len() > total
            && let Some((_, page)) = self.resting.pop_first()
        {
            self.unseal(page);
            self.empty.push(page);
        }
        let is_empty: HashSet<u32> = self.empty.drain(..).collect();
        let kept = (0..self.pages.len() as u32).filter(|page| !is_empty.contains(page));
        let kept: Vec<u32> = kept.collect();
        let new = |page: u32| kept.partition_point(|it| *it < page) as u32;
        self.sealed.values_mut().for_each(|page| *page = new(*page));
        let resting = std::mem::take(&mut self.resting).into_iter();
        self.resting = resting.map(|(since, page)| (since, new(page))).collect();
        let pages = std::mem::take(&mut self.pages).into_iter().zip(0..);
        let stay = pages.filter(|(_, page)| !is_empty.contains(page));
        self.pages = stay.map(|(page, _)| page).collect();
        self.pages.resize_with(total, Page::default);
        self.empty = (kept.len() as u32..total as u32).rev().collect();
        kept
    }

    /// Replaces the chain's pages after its sealed ones by cached pages of `tokens`. Returns the number of cached
    /// tokens. At least one token remains to compute, because the next token needs its logits.
    pub fn share(&mut self, chain: &mut Chain, tokens: &[u32]) -> usize {
        self.share_pages(chain, tokens, usize::MAX)
    }

    /// The same, up to this many sealed pages.
    pub fn share_pages(&mut self, chain: &mut Chain, tokens: &[u32], most: usize) -> usize {
        while chain.sealed < most
            && let Some(page) = self.next_shared(chain, tokens)
        {
            self.hold(page);
            match chain.pages.get_mut(chain.sealed) {
                Some(own) => {
                    let own = std::mem::replace(own, page);
                    self.let_go(own);
                }
                None => chain.pages.push(page),
            }
            chain.sealed += 1;
            chain.last = self.named(page, chain.last);
        }
        chain.sealed * PAGE_TOKENS
    }

    /// Number of pages that [`share`](Self::share) would find for a new chain with this key, and how many of them have
    /// no references (sharing those uses up free pages).
    pub fn shareable(&self, key: impl Into<CacheKey>, tokens: &[u32]) -> (usize, usize) {
        let mut probe = Chain::new(key);
        let mut unheld = 0;
        while let Some(page) = self.next_shared(&probe, tokens) {
            unheld += usize::from(self.pages[page as usize].holders == 0);
            probe.sealed += 1;
            probe.last = self.named(page, probe.last);
        }
        (probe.sealed, unheld)
    }

    /// The prefixes of these tokens in the cache: of one page, of two, and so on.
    pub fn prefixes(&self, key: impl Into<CacheKey>, tokens: &[u32]) -> Vec<Prefix> {
        let mut probe = Chain::new(key);
        let mut prefixes = Vec::new();
        while let Some(page) = self.next_shared(&probe, tokens) {
            probe.sealed += 1;
            probe.last = self.named(page, probe.last);
            prefixes.push(probe.prefix());
        }
        prefixes
    }

    /// Allocates pages for `tokens` tokens in all, or returns `false` without a change.
    pub fn grow(&mut self, chain: &mut Chain, tokens: usize) -> bool {
        let missing = tokens
            .div_ceil(PAGE_TOKENS)
            .saturating_sub(chain.pages.len());
        if missing > self.free() {
            return false;
        }
        for _ in 0..missing {
            let page = self.take().expect("free pages were just counted");
            chain.pages.push(page);
        }
        true
    }

    /// Tells that the first `computed` of `tokens` are in the chain's pages. Pages that this fills become
    /// shareable; where another sequence sealed the same content meanwhile, its page replaces ours.
    pub fn seal(&mut self, chain: &mut Chain, tokens: &[u32], computed: usize) {
        let full = computed.min(tokens.len()).min(chain.room()) / PAGE_TOKENS;
        while chain.sealed < full {
            let Some(content) = chain.next_content(tokens) else {
                return;
            };
            let own = chain.pages[chain.sealed];
            let page = match self.sealed.get(&content).copied() {
                Some(page) => {
                    self.hold(page);
                    self.let_go(own);
                    page
                }
                None => {
                    self.name(own, content);
                    own
                }
            };
            chain.pages[chain.sealed] = page;
            chain.sealed += 1;
            chain.last = self.named(page, chain.last);
        }
    }

    /// A second chain on the sealed pages of the first. Unsealed tokens must be computed again.
    pub fn fork(&mut self, chain: &Chain) -> Chain {
        let pages = chain.pages[..chain.sealed].to_vec();
        for &page in &pages {
            self.hold(page);
        }
        Chain {
            pages,
            sealed: chain.sealed,
            last: chain.last,
            images: Arc::clone(&chain.images),
        }
    }

    pub fn release(&mut self, chain: Chain) {
        for &page in chain.pages.iter().rev() {
            self.let_go(page);
        }
    }

    /// The page after the chain's last, if it exists for these tokens.
    fn next_shared(&self, chain: &Chain, tokens: &[u32]) -> Option<u32> {
        if (chain.sealed + 1) * PAGE_TOKENS >= tokens.len() {
            return None;
        }
        let content = chain.next_content(tokens)?;
        self.sealed.get(&content).copied()
    }

    /// The name of a page, which every sealed one has.
    fn named(&self, page: u32, before: Parent) -> Parent {
        let sealed = self.pages[page as usize].sealed.as_ref();
        sealed.map_or(before, |(fact, _)| Parent::Page(*fact))
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn name(&mut self, page: u32, content: Content) {
        let fact = self.tick();
        self.sealed.insert(content.clone(), page);
        self.pages[page as usize].sealed = Some((fact, content));
    }

    fn hold(&mut self, page: u32) {
        let state = &mut self.pages[page as usize];
        if state.holders == 0 {
            self.resting.remove(&(state.released_at, page));
        }
        state.holders += 1;
    }

    fn let_go(&mut self, page: u32) {
        let now = self.tick();
        let state = &mut self.pages[page as usize];
        state.holders -= 1;
        if state.holders > 0 {
            return;
        }
        state.released_at = now;
        match state.sealed {
            Some(_) => drop(self.resting.insert((now, page))),
            None => self.empty.push(page),
        }
    }

    /// An empty page, or the one that was released longest ago.
    fn take(&mut self) -> Option<u32> {
        let page = match self.empty.pop() {
            Some(page) => page,
            None => self.resting.pop_first()?.1,
        };
        self.unseal(page);
        self.pages[page as usize].holders = 1;
        Some(page)
    }

    /// Forgets the content of a page.
    fn unseal(&mut self, page: u32) {
        if let Some((_, content)) = self.pages[page as usize].sealed.take() {
            self.sealed.remove(&content);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
