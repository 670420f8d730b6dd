//! How much memory this process holds, from the kernel's own books.

use std::fs;

/// Bytes in memory now, mapped files counted in; `None` where the kernel does not tell.
pub fn resident_bytes() -> Option<u64> {
    resident_in(&fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read_and_anything_else_is_not() {
        assert_eq!(
            resident_in("VmPeak:\t 9 kB\nVmRSS:\t    2048 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(resident_in("VmRSS: many kB"), None);
        assert_eq!(resident_in(""), None);
    }
}
