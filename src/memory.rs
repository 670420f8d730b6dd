//! The allocator of every program that is built on this library. A request's many small pieces are made by one thread and
//! freed by another, which the system's own does slowly.

/// A unit test measures what is allocated, with one of its own (`networks/weights/fuzz.rs`).
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Gives memory that nobody uses back to the system. The allocator keeps it otherwise for a while, and an owner who unloads
/// a model wants to see it gone.
#[expect(unsafe_code, reason = "the allocator is asked by name")]
pub fn give_back() {
    // SAFETY: takes no pointer and may be called at any time from any thread.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
