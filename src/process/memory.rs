//! The allocator of every program that is built on this library. A request's many small pieces are made by one thread and
//! freed by another, which the system's own does slowly.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// After this many bytes are freed, threads return their unused memory.
const MUCH: usize = 16 << 20;
/// Giving back takes a thread some milliseconds.
const BETWEEN: Duration = Duration::from_millis(250);

/// Bytes freed since memory was last returned.
static FREED: AtomicUsize = AtomicUsize::new(0);
/// How often it was to be given back.
static TIMES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The value of `TIMES` that this thread has seen, and the time when it last returned memory.
    static SEEN: Cell<(u64, Option<Instant>)> = const { Cell::new((0, None)) };
}

/// The allocator that a program installs as its `#[global_allocator]`.
pub type Allocator = mimalloc::MiMalloc;
pub const ALLOCATOR: Allocator = mimalloc::MiMalloc;

/// Returns unused memory to the system. The allocator would keep it for a while, although the owner expects an unloaded
/// model's memory to be free.
#[expect(unsafe_code, reason = "mimalloc is called through FFI")]
pub fn give_back() {
    // SAFETY: takes no pointer and may be called at any time from any thread.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// Reports freed bytes. After many of them every thread that calls [`on_idle`] returns its unused memory: pages belong
/// to the thread that allocated them, and only it notices that other threads have freed their content.
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

/// For an idle thread: returns memory if many bytes were freed.
pub fn on_idle() {
    let times = TIMES.load(Ordering::Relaxed);
    let (seen, last) = SEEN.get();
    if seen == times || last.is_some_and(|last| last.elapsed() < BETWEEN) {
        return;
    }
    SEEN.set((times, Some(Instant::now())));
    give_back();
}
