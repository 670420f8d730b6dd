//! Work shared by the threads of the pool.

#![expect(unsafe_code, reason = "threads write disjoint parts of one result")]

use std::marker::PhantomData;
use std::ops::Range;

use super::pool::Pool;

/// Below this many steps (of about a nanosecond) waking the others costs more than it saves.
const WORTH_SHARING: usize = 20_000;

/// Calls `work` with ranges that cover `0..items`, on all threads if `cost` (in steps) is large enough.
pub fn share(items: usize, cost: usize, work: impl Fn(Range<usize>) + Sync) {
    let is_worth_it = items > 1 && cost >= WORTH_SHARING;
    match is_worth_it.then(Pool::current).flatten() {
        Some(pool) => pool.run(items, work),
        None if items > 0 => work(0..items),
        None => {}
    }
}

/// Calls `work` with every item once, on all threads if `cost` (in steps) is large enough.
pub fn each<T: Send>(items: &mut [T], cost: usize, work: impl Fn(&mut T) + Sync) {
    let count = items.len();
    let items = Disjoint::new(items);
    share(count, cost, |range| {
        // SAFETY: `share` hands out ranges that do not overlap.
        unsafe { items.part(range) }.iter_mut().for_each(&work);
    });
}

/// A mutable slice that threads write in parts that do not overlap.
pub struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: parts handed out do not overlap, by the contract of `part`.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}
// SAFETY: as a mutable slice.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            slice: PhantomData,
        }
    }

    /// # Safety
    /// No two parts that are alive at the same time overlap.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees disjoint parts")]
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the line above; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn every_item_has_its_turn_whether_shared_or_not() {
        for cost in [0, usize::MAX] {
            for count in [0, 1, 2, 1000] {
                let mut items: Vec<usize> = (0..count).collect();
                each(&mut items, cost, |item| *item += 1);
                assert_eq!(items, (1..=count).collect::<Vec<_>>());
            }
        }
    }
}
