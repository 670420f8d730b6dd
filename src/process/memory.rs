//! The allocator of every program that is built on this library. A request's many small pieces are made by one thread and
//! freed by another, which the system's own does slowly.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Once so much was freed, threads give back what they keep.
const MUCH: usize = 16 << 20;
/// Giving back takes a thread some milliseconds.
const BETWEEN: Duration = Duration::from_millis(250);

/// Freed since memory was last to be given back.
static FREED: AtomicUsize = AtomicUsize::new(0);
/// How often it was to be given back.
static TIMES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What this thread has seen of `TIMES`, and when it last gave back.
    static SEEN: Cell<(u64, Option<Instant>)> = const { Cell::new((0, None)) };
}

/// The allocator that a program installs as its `#[global_allocator]`.
pub type Allocator = mimalloc::MiMalloc;
pub const ALLOCATOR: Allocator = mimalloc::MiMalloc;

/// Gives memory that nobody uses back to the system. The allocator keeps it otherwise for a while, and an owner who unloads
/// a model wants to see it gone.
#[expect(unsafe_code, reason = "mimalloc is called through FFI")]
pub fn give_back() {
    // SAFETY: takes no pointer and may be called at any time from any thread.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// Says that about so much is being freed. After much of it every thread that calls [`on_idle`] gives back what it keeps:
/// pages belong to the thread that took them, and it alone notices that others have freed what was in them.
pub fn freed(bytes: usize) {
    if bytes == 0 {
        return;
    }
    let before = FREED.fetch_add(bytes, Ordering::Relaxed);
    if before.saturating_add(bytes) >= MUCH {
        FREED.store(0, Ordering::Relaxed);
        TIMES.fetch_add(1, Ordering::Relaxed);
    }
}

/// For a thread that has nothing to do: gives memory back where much was freed.
pub fn on_idle() {
    let times = TIMES.load(Ordering::Relaxed);
    let (seen, last) = SEEN.get();
    if seen == times || last.is_some_and(|last| last.elapsed() < BETWEEN) {
        return;
    }
    SEEN.set((times, Some(Instant::now())));
    give_back();
}
