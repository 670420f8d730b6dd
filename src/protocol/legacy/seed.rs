//! Seeds: clients send text, workers get a number below 2^32.

/// Digits that are still read as a number. A number of more would cost more to read than it is worth.
const MOST_DIGITS: usize = 4300;

/// The number of a seed: of its digits, or of its bytes, shifted right by 32 bits until it is small enough. `None` for
/// an empty seed: then each pop uses a random one.
pub fn seed(text: &str) -> Option<u32> {
    let digits = text.len() <= MOST_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    match text {
        "" => None,
        text if digits => Some(leading(&limbs_of_digits(text))),
        text => Some(leading(&limbs_of_bytes(text.as_bytes()))),
    }
}

/// The seed of one of several pops of a request whose seed is to vary.
pub fn varied(base: u32, variation: u32, slots_left: u32) -> u32 {
    let seed = u64::from(base) + u64::from(variation) * u64::from(slots_left);
    match u32::try_from(seed) {
        Ok(seed) => seed,
        Err(_) => (seed >> 32) as u32,
    }
}

/// Shifting limbs out from below leaves the highest that is not zero.
fn leading(limbs: &[u32]) -> u32 {
    limbs
        .iter()
        .rev()
        .copied()
        .find(|limb| *limb != 0)
        .unwrap_or(0)
}

/// A number of any length in base 2^32, the lowest limb first.
fn limbs_of_digits(digits: &str) -> Vec<u32> {
    let mut limbs: Vec<u32> = Vec::new();
    for digit in digits.bytes() {
        let mut carry = u64::from(digit - b'0');
        for limb in &mut limbs {
            let product = u64::from(*limb) * 10 + carry;
            *limb = product as u32;
            carry = product >> 32;
        }
        if carry != 0 {
            limbs.push(carry as u32);
        }
    }
    limbs
}

fn limbs_of_bytes(bytes: &[u8]) -> Vec<u32> {
    let limbs = bytes.chunks(4).map(|chunk| {
        let mut limb = [0; 4];
        limb[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(limb)
    });
    limbs.collect()
}

#[cfg(test)]
mod tests {
    use super::{seed, varied};

    #[test]
    fn digits_are_a_number() {
        assert_eq!(seed("0"), Some(0));
        assert_eq!(seed("42"), Some(42));
        assert_eq!(seed("4294967295"), Some(u32::MAX));
        assert_eq!(seed("4294967296"), Some(1));
        // 5 * 2^64 + 7
        assert_eq!(seed("92233720368547758087"), Some(5));
    }

    #[test]
    fn other_text_is_the_number_of_its_bytes() {
        assert_eq!(seed("a"), Some(0x61));
        assert_eq!(seed("abcd"), Some(0x6463_6261));
        // The first four bytes are shifted away.
        assert_eq!(seed("abcde"), Some(0x65));
        assert_eq!(seed("-5"), Some(0x352d));
        assert_eq!(seed("ä"), Some(0xa4c3));
    }

    #[test]
    fn nothing_leaves_it_to_the_pop() {
        assert_eq!(seed(""), None);
    }

    #[test]
    fn a_million_digits_are_read_in_no_time() {
        assert!(seed(&"9".repeat(1_000_000)).is_some());
    }

    #[test]
    fn a_varied_seed_stays_below_two_to_the_thirty_two() {
        assert_eq!(varied(10, 3, 2), 16);
        assert_eq!(varied(u32::MAX, 1, 1), 1);
        assert_eq!(varied(u32::MAX, u32::MAX, u32::MAX), u32::MAX);
    }
}
