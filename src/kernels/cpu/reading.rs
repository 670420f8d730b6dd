//! Reads memory and nothing else: the bandwidth limit of memory-bound kernels.

/// Parallel streams of a thread: more loads are in flight than with a single stream's prefetching.
const STREAMS: usize = 4;
/// Numbers of a cache line, each with a separate sum, so that loads are the bottleneck and not a chain of additions.
const LINE: usize = 8;

/// The sum of all numbers, so that no read can be left out.
pub fn sum(numbers: &[u64]) -> u64 {
    let (lines, rest) = numbers.as_chunks::<LINE>();
    let length = lines.len() / STREAMS;
    let (lines, last) = lines.split_at(length * STREAMS);
    let streams: [&[[u64; LINE]]; STREAMS] =
        std::array::from_fn(|stream| &lines[stream * length..(stream + 1) * length]);
    let mut sums = [[0; LINE]; STREAMS];
    for place in 0..length {
        for (sums, stream) in sums.iter_mut().zip(streams) {
            add(sums, &stream[place]);
        }
    }
    for line in last {
        add(&mut sums[0], line);
    }
    let parts = sums.as_flattened().iter().chain(rest);
    parts.fold(0, |all, part| all.wrapping_add(*part))
}

fn add(sums: &mut [u64; LINE], line: &[u64; LINE]) {
    for (sum, number) in sums.iter_mut().zip(line) {
        *sum = sum.wrapping_add(*number);
    }
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn every_number_is_read() {
        for count in [0, 1, 7, 33, 63, 1001, 1024] {
            let numbers: Vec<u64> = (0..count).collect();
            assert_eq!(sum(&numbers), numbers.iter().sum::<u64>());
        }
    }
}
