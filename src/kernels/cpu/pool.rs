//! The thread pool for products.
//!
//! For calls of microseconds, many thousand per second, on a machine shared with other programs. The caller works too
//! and hands out pieces, so a helper that starts late (asleep or descheduled) costs nothing: the call ends when the
//! work is done and every helper that began has left. The call does not wait for helpers that have not begun.
//!
//! Helpers spin for about a millisecond after a call, longer than the gaps within a step, and then sleep.

#![expect(
    unsafe_code,
    reason = "pool threads outlive the closure that a call lends them"
)]

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::hint::spin_loop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const WATCH: Duration = Duration::from_millis(1);

/// Guided scheduling: a thread takes an equal share of the remaining work among this many times the threads. Large
/// pieces first and small ones last let all threads end together, and a slow thread delays little. Smaller pieces read
/// memory from more places, and each starts slowly: one stream of Q4_K is 3 % slower with 8.
const PIECES: usize = 2;

/// Variables with the number of threads, in order of precedence. Other libraries read them too.
pub const THREAD_VARIABLES: [&str; 2] = ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"];

thread_local! {
    static IS_HELPER: Cell<bool> = const { Cell::new(false) };
    /// Set by [`enter_background`].
    static BACKGROUND_POOL: Cell<Option<&'static Pool>> = const { Cell::new(None) };
}

/// From now on the calling thread shares its work with the process's background pool, and leaves the other pool's
/// helpers to other threads. The first call starts the pool; on Linux its helpers inherit the priority of that caller.
pub fn enter_background() {
    static POOL: OnceLock<Pool> = OnceLock::new();
    let pool = POOL.get_or_init(|| Pool::new(threads()));
    BACKGROUND_POOL.set(Some(pool));
}

pub struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<(Thread, Arc<AtomicBool>)>,
    /// Locked by the call that uses the helpers.
    calling: Mutex<()>,
}

struct Shared {
    /// Odd while a call takes helpers. Each call raises it by two.
    round: AtomicUsize,
    /// Helpers that read `call`.
    active: AtomicUsize,
    /// Written between rounds, while no helper is active.
    call: UnsafeCell<Option<Call>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `call` is written only while no helper is active, see `Shared::begin` and `Shared::enter`; the rest is
// made for threads.
unsafe impl Sync for Shared {}
// SAFETY: as above. The closure that `call` points to is `Sync`.
unsafe impl Send for Shared {}

#[derive(Clone, Copy)]
struct Call {
    work: *const (dyn Fn(Range<usize>) + Sync),
    items: usize,
    /// Threads, times [`PIECES`].
    parts: usize,
    next: *const AtomicUsize,
}

impl Pool {
    /// The pool of the calling thread, started when first used. `None` in a helper: nested calls run alone, and a
    /// background helper must not start the other pool with its own priority.
    pub fn current() -> Option<&'static Self> {
        static POOL: OnceLock<Pool> = OnceLock::new();
        if IS_HELPER.get() {
            return None;
        }
        let foreground = || POOL.get_or_init(|| Self::new(threads()));
        Some(BACKGROUND_POOL.get().unwrap_or_else(foreground))
    }

    /// Starts a pool of this many threads, including the caller.
    fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            round: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            call: UnsafeCell::new(None),
            panic: Mutex::new(None),
        });
        let helpers = (1..threads).filter_map(|index| helper(index, &shared));
        Self {
            helpers: helpers.collect(),
            shared,
            calling: Mutex::new(()),
        }
    }

    /// Calls `work` with ranges that cover `0..items` once, from several threads. Does all of it on this one if the
    /// helpers are taken, by another call or by the one this call is made in.
    pub fn run(&self, items: usize, work: impl Fn(Range<usize>) + Sync) {
        let guard = match self.calling.try_lock() {
            Ok(guard) if !self.helpers.is_empty() && !IS_HELPER.get() => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            _ => return work(0..items),
        };
        let next = AtomicUsize::new(0);
        let work: &(dyn Fn(Range<usize>) + Sync) = &work;
        let call = Call {
            // SAFETY: only the lifetime changes; `Round` keeps the closure in place until no helper is active.
            work: unsafe {
                std::mem::transmute::<
                    &(dyn Fn(Range<usize>) + Sync),
                    &'static (dyn Fn(Range<usize>) + Sync),
                >(work)
            },
            items,
            parts: (self.helpers.len() + 1) * PIECES,
            next: &raw const next,
        };
        let round = self.shared.begin(call);
        self.wake();
        // SAFETY: `call` points into this stack frame, which outlives `round`.
        unsafe { call.work_off() };
        drop(round);
        let panic = self.shared.panic.lock();
        let panic = panic.unwrap_or_else(PoisonError::into_inner).take();
        drop(guard);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn wake(&self) {
        for (thread, sleeps) in &self.helpers {
            if sleeps.swap(false, SeqCst) {
                thread.unpark();
            }
        }
    }
}

impl Call {
    /// # Safety
    /// The referenced data is alive.
    unsafe fn work_off(&self) {
        // SAFETY: alive by the caller's promise.
        let (work, next) = unsafe { (&*self.work, &*self.next) };
        let end = |start: usize| start + (self.items - start).div_ceil(self.parts);
        while let Ok(start) = next.fetch_update(SeqCst, SeqCst, |start| {
            (start < self.items).then(|| end(start))
        }) {
            work(start..end(start));
        }
    }
}

impl Shared {
    fn begin(&self, call: Call) -> Round<'_> {
        // SAFETY: the round is even and no helper is active: `Round` waited for that when the last call ended, and
        // a helper that comes now sees the even round and leaves without looking.
        unsafe { *self.call.get() = Some(call) };
        // Discards the panic of a call whose caller panicked too.
        *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.round.fetch_add(1, SeqCst);
        Round(self)
    }

    /// Takes part in the call of this round, if it still takes helpers.
    fn enter(&self, round: usize) {
        self.active.fetch_add(1, SeqCst);
        // Either the caller sees us active, or we see that the round is over: both orders are total.
        if self.round.load(SeqCst) == round {
            // SAFETY: the round is open and we are active, so the caller waits for us before it changes or leaves.
            let call = unsafe { *self.call.get() };
            // SAFETY: as above.
            let work = || call.into_iter().for_each(|call| unsafe { call.work_off() });
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
            }
        }
        self.active.fetch_sub(1, SeqCst);
    }
}

/// A call that uses helpers. Dropping it admits no more helpers and waits for active ones, also when the caller panics.
struct Round<'a>(&'a Shared);

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.0.round.fetch_add(1, SeqCst);
        while self.0.active.load(SeqCst) != 0 {
            spin_loop();
        }
    }
}

fn helper(index: usize, shared: &Arc<Shared>) -> Option<(Thread, Arc<AtomicBool>)> {
    let (shared, sleeps) = (shared.clone(), Arc::new(AtomicBool::new(false)));
    let flag = sleeps.clone();
    let body = move || {
        IS_HELPER.set(true);
        let mut seen = 0;
        loop {
            seen = next_round(&shared, seen, &flag);
            shared.enter(seen);
        }
    };
    let name = format!("product-{index}");
    // If the system refuses a thread, the existing ones do the work.
    let handle = thread::Builder::new().name(name).spawn(body).ok()?;
    Some((handle.thread().clone(), sleeps))
}

/// Waits for an open round after `seen`: watching at first, then asleep.
fn next_round(shared: &Shared, seen: usize, sleeps: &AtomicBool) -> usize {
    let is_new = |round: usize| round % 2 == 1 && round != seen;
    let mut began = Instant::now();
    let mut turns = 0_u32;
    loop {
        let round = shared.round.load(SeqCst);
        if is_new(round) {
            return round;
        }
        spin_loop();
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(256) && began.elapsed() > WATCH {
            sleeps.store(true, SeqCst);
            if !is_new(shared.round.load(SeqCst)) {
                thread::park();
            }
            sleeps.store(false, SeqCst);
            began = Instant::now();
        }
    }
}

/// How many threads share a product.
pub fn threads() -> usize {
    let stated = |name: &str| std::env::var(name).ok()?.parse().ok().filter(|n| *n > 0);
    let all = || thread::available_parallelism().map_or(1, usize::from);
    THREAD_VARIABLES
        .iter()
        .find_map(|name| stated(name))
        .unwrap_or_else(all)
}

#[cfg(test)]
mod tests {
    use muster_testing::eventually_blocking;

    use super::*;

    fn sum(pool: &Pool, items: usize) -> usize {
        let sum = AtomicUsize::new(0);
        pool.run(items, |range| {
            sum.fetch_add(range.sum::<usize>(), SeqCst);
        });
        sum.into_inner()
    }

    #[test]
    fn every_item_is_visited_once_in_call_after_call() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads);
            for items in (0..3000).chain([100_000]) {
                let expected = (0..items).sum::<usize>();
                assert_eq!(sum(&pool, items), expected, "{threads} threads, {items}");
            }
        }
    }

    #[test]
    fn helpers_that_fell_asleep_come_back() {
        let pool = Pool::new(3);
        sum(&pool, 10);
        let asleep = || pool.helpers.iter().all(|(_, sleeps)| sleeps.load(SeqCst));
        eventually_blocking("all threads to sleep", asleep);
        let began = AtomicUsize::new(0);
        pool.run(3, |range| {
            began.fetch_add(range.len(), SeqCst);
            // Each waits for the others, so that all three threads are needed.
            eventually_blocking("all three threads", || began.load(SeqCst) >= 3);
        });
    }

    #[test]
    fn a_call_within_a_call_and_beside_a_call_is_done_alone() {
        let pool = Pool::new(3);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let inner = AtomicUsize::new(0);
                        pool.run(8, |range| {
                            range.for_each(|_| {
                                inner.fetch_add(sum(&pool, 10), SeqCst);
                            });
                        });
                        assert_eq!(inner.into_inner(), 8 * 45);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(3);
        for bad in 0..20 {
            let run = || pool.run(20, |range| assert!(!range.contains(&bad), "bad item"));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            assert_eq!(sum(&pool, 100), 4950);
        }
    }

    #[test]
    fn a_background_thread_leaves_the_other_pool_alone() {
        let foreground = Pool::current().map(std::ptr::from_ref);
        let background = thread::spawn(|| {
            enter_background();
            let pool = Pool::current().unwrap();
            assert_eq!(sum(pool, 100), 4950);
            std::ptr::from_ref(pool).addr()
        });
        assert_ne!(background.join().unwrap(), foreground.unwrap().addr());
        assert_eq!(foreground, Pool::current().map(std::ptr::from_ref));
    }
}
