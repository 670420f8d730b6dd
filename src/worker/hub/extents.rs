//! Ranges of a file that are on disk: pure.

use std::ops::Range;

/// Disjoint ranges in order, none touching another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extents(Vec<Range<u64>>);

impl Extents {
    pub fn insert(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let first = self.0.partition_point(|old| old.end < new.start);
        let after = self.0.partition_point(|old| old.start <= new.end);
        let touched = &self.0[first..after];
        let start = touched
            .first()
            .map_or(new.start, |old| old.start.min(new.start));
        let end = touched.last().map_or(new.end, |old| old.end.max(new.end));
        self.0.splice(first..after, std::iter::once(start..end));
    }

    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// The missing ranges of the first `size` bytes, in order, each at most `longest`.
    pub fn missing(&self, size: u64, longest: u64) -> Vec<Range<u64>> {
        let longest = longest.max(1);
        let mut gaps = Vec::new();
        let mut at = 0;
        for here in self.0.iter().chain([&(size..size)]) {
            while at < here.start.min(size) {
                let end = here.start.min(size).min(at.saturating_add(longest));
                gaps.push(at..end);
                at = end;
            }
            at = at.max(here.end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extents_are_the_set_of_bytes_inserted(
            ranges in prop::collection::vec((0u64..64, 0u64..16), 0..20),
            longest in 1u64..40,
        ) {
            let mut extents = Extents::default();
            let mut bytes = [false; 80];
            for (start, length) in ranges {
                extents.insert(start..start + length);
                bytes[start as usize..(start + length) as usize].fill(true);
            }
            prop_assert_eq!(extents.bytes(), bytes.iter().filter(|here| **here).count() as u64);
            prop_assert!(extents.0.windows(2).all(|pair| pair[0].end < pair[1].start));
            let missing = extents.missing(80, longest);
            prop_assert!(missing.iter().all(|gap| !gap.is_empty() && gap.end - gap.start <= longest));
            for gap in missing {
                for byte in &mut bytes[gap.start as usize..gap.end as usize] {
                    prop_assert!(!*byte, "asked for what is here");
                    *byte = true;
                }
            }
            prop_assert!(bytes.iter().all(|here| *here), "something is never asked for");
        }
    }

    #[test]
    fn nothing_is_missing_past_the_size() {
        let mut extents = Extents::default();
        extents.insert(10..30);
        assert_eq!(format!("{:?}", extents.missing(20, 100)), "[0..10]");
        assert!(Extents::default().missing(0, 100).is_empty());
    }
}
