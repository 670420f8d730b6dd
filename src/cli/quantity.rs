//! Numbers as people read them.

use std::fmt::Display;

/// `5.2 GiB`, `512 MiB`, `300 bytes`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => count(bytes, "byte"),
    }
}

/// `5.2 GiB free of 8.0 GiB`
pub fn free_of(free: u64, total: u64) -> String {
    format!("{} free of {}", bytes(free), bytes(total))
}

/// `1 thread`, `2 threads`
pub fn count(number: impl Display + PartialEq + From<u8>, noun: &str) -> String {
    let plural = if number == 1.into() { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_the_largest_unit_that_fits() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(6 << 30), "6.0 GiB");
    }
}
