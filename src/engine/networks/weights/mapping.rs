//! Memory-mapped files: the operating system loads pages on demand and may drop them.
#![expect(
    unsafe_code,
    reason = "a memory map is unsafe: the file must not change while it is mapped"
)]

use std::{fs::File, io, ops::Range, path::Path, sync::Arc};

use memmap2::{Advice, Mmap, UncheckedAdvice};

pub struct Mapping {
    map: Mmap,
}

impl Mapping {
    pub fn open(path: &Path) -> io::Result<Arc<Self>> {
        let file = File::open(path)?;
        // SAFETY: the map is read-only, and sound as long as the file is not truncated: our hub writes other files
        // and renames them, and a user who truncates a model in use causes the same SIGBUS in every program that maps
        // its files.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(Arc::new(Self { map }))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Says that these bytes will be read soon and in order.
    fn will_read(&self, range: &Range<usize>) {
        // Advice is a hint: a system that does not take it still reads the file.
        let _ = self
            .map
            .advise_range(Advice::WillNeed, range.start, range.len());
    }

    /// Releases the memory of the whole pages in a range; later reads load them from the file again.
    fn release(&self, range: &Range<usize>) {
        let start = range.start.next_multiple_of(PAGE_BYTES);
        let end = range.end / PAGE_BYTES * PAGE_BYTES;
        if start >= end {
            return;
        }
        // SAFETY: on a read-only map of a file this drops clean pages, whose content equals the file's; existing
        // references see the same content.
        let released = unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start)
        };
        if let Err(error) = released {
            tracing::debug!("releasing mapped pages failed: {error}");
        }
    }
}

/// Rounding to more than the system's page size only keeps a few pages at the borders.
const PAGE_BYTES: usize = 64 * 1024;

/// The bytes of one tensor: a piece of a mapped file, or made in memory.
pub enum TensorBytes {
    Mapped {
        mapping: Arc<Mapping>,
        range: Range<usize>,
    },
    Owned(Vec<u8>),
}

impl TensorBytes {
    /// Part of a mapped file; the caller has checked that the range is inside it.
    pub fn mapped(mapping: Arc<Mapping>, range: Range<usize>) -> Self {
        Self::Mapped { mapping, range }
    }

    /// Some of them. The caller has checked that the range is inside.
    pub fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::Mapped {
                mapping,
                range: whole,
            } => Self::Mapped {
                mapping,
                range: whole.start + range.start..whole.start + range.end,
            },
            Self::Owned(bytes) => Self::Owned(bytes[range].to_vec()),
        }
    }

    /// The same bytes once more, where they are in a file and take no memory.
    pub fn in_file(&self) -> Option<Self> {
        match self {
            Self::Mapped { mapping, range } => Some(Self::Mapped {
                mapping: Arc::clone(mapping),
                range: range.clone(),
            }),
            Self::Owned(_) => None,
        }
    }

    pub fn will_read(&self) {
        if let Self::Mapped { mapping, range } = self {
            mapping.will_read(range);
        }
    }

    /// Called after the bytes were copied elsewhere, so that they are in memory only once.
    pub fn release(&self) {
        if let Self::Mapped { mapping, range } = self {
            mapping.release(range);
        }
    }
}

impl std::ops::Deref for TensorBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped { mapping, range } => &mapping.bytes()[range.clone()],
            Self::Owned(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn released_pages_read_the_same_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let written: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
        file.write_all(&written).unwrap();
        let mapping = Mapping::open(file.path()).unwrap();
        let bytes = TensorBytes::mapped(mapping, 1000..290_000);
        bytes.will_read();
        assert_eq!(&*bytes, &written[1000..290_000]);
        bytes.release();
        assert_eq!(&*bytes, &written[1000..290_000]);
    }
}
