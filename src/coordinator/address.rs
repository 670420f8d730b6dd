//! Addresses of clients and workers in canonical form, and networks.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// An address with the number of its significant leading bits. Ordered by first address, larger networks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    first: u128,
    /// Out of 128.
    bits: u8,
}

/// Prefix length of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    V4(u8),
    V6(u8),
}

/// A set of networks: an address is looked up once per prefix length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks {
    all: HashSet<Network>,
    sizes: BTreeSet<u8>,
}

/// The smallest network of a provider's customer, whose addresses in it change at will.
const HOUSEHOLD: u8 = 64;
/// Bits before an IPv4 address in its IPv6 form.
const MAPPED: u8 = 96;

impl Network {
    /// `None` if the address has fewer bits.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let bits = match address {
            IpAddr::V4(_) if bits <= 32 => MAPPED + bits,
            IpAddr::V6(_) if bits <= 128 => bits,
            _ => return None,
        };
        Some(Self::of(address, bits))
    }

    /// A single address, or a network in CIDR notation: `10.0.0.0/8`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        match bits {
            None => Some(Self::of(address, 128)),
            // Without signs and leading zeros, which `parse` would accept.
            Some(bits) if bits.len() > 3 || !bits.bytes().all(|digit| digit.is_ascii_digit()) => {
                None
            }
            Some(bits) => Self::new(address, bits.parse().ok()?),
        }
    }

    /// The network that is counted and blocked together: an IPv4 address alone, an IPv6 address with its household.
    pub fn around(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(_) => Self::of(address, 128),
            // The first /64 has the loopback address and, in mapped form, all IPv4 addresses.
            IpAddr::V6(v6) if v6.to_bits() >> HOUSEHOLD == 0 => Self::of(address, 128),
            IpAddr::V6(_) => Self::of(address, HOUSEHOLD),
        }
    }

    /// The prefix length in IPv4 or IPv6 notation.
    pub fn prefix(&self) -> Prefix {
        match Ipv6Addr::from_bits(self.first).to_ipv4_mapped() {
            Some(_) if self.bits >= MAPPED => Prefix::V4(self.bits - MAPPED),
            _ => Prefix::V6(self.bits),
        }
    }

    /// Whether any address is in both.
    pub fn overlaps(&self, other: Self) -> bool {
        self.holds(other) || other.holds(*self)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        wide(address) & mask(self.bits) == self.first
    }

    /// Whether it includes the whole other network.
    pub fn holds(&self, other: Self) -> bool {
        self.bits <= other.bits && other.first & mask(self.bits) == self.first
    }

    /// Whether it is a single address.
    pub fn is_single(&self) -> bool {
        self.bits == 128
    }

    /// Out of 128, in IPv6 form.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// The network of an address with this many bits out of 128.
    pub fn of(address: IpAddr, bits: u8) -> Self {
        let first = wide(address) & mask(bits);
        Self { first, bits }
    }
}

impl Networks {
    pub fn contain(&self, address: IpAddr) -> bool {
        let around = |bits: &u8| self.all.contains(&Network::of(address, *bits));
        self.sizes.iter().any(around)
    }
}

impl FromIterator<Network> for Networks {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        let all: HashSet<Network> = networks.into_iter().collect();
        let sizes = all.iter().map(Network::bits).collect();
        Self { all, sizes }
    }
}

/// The form that [`Network::parse`] reads.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = IpAddr::V6(Ipv6Addr::from_bits(self.first));
        let (address, bits) = match self.prefix() {
            Prefix::V4(bits) => (address.to_canonical(), bits),
            Prefix::V6(bits) => (address, bits),
        };
        match self.is_single() {
            true => write!(f, "{address}"),
            false => write!(f, "{address}/{bits}"),
        }
    }
}

fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => Ipv6Addr::to_bits(address),
    }
}

fn mask(bits: u8) -> u128 {
    u128::MAX
        .checked_shl(u32::from(128_u8.saturating_sub(bits)))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Network, Networks, Prefix};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_holds_the_addresses_with_its_leading_bits() {
        let check = |first, bits, address, expected| {
            let network = Network::new(ip(first), bits).unwrap();
            assert_eq!(network.contains(ip(address)), expected, "{address}");
        };
        check("10.0.0.0", 8, "10.200.3.4", true);
        check("10.0.0.0", 8, "11.0.0.1", false);
        check("10.0.0.0", 8, "::ffff:10.1.1.1", true);
        check("0.0.0.0", 0, "255.1.2.3", true);
        check("0.0.0.0", 0, "2001:db8::1", false);
        check("::", 0, "2001:db8::1", true);
        check("2001:db8::", 32, "2001:db8:7::1", true);
        check("2001:db8::", 32, "2001:db9::1", false);
        assert_eq!(Network::new(ip("10.0.0.0"), 33), None);
        assert_eq!(Network::new(ip("::"), 129), None);
    }

    #[test]
    fn networks_are_read_and_written() {
        let check = |text: &str, expected: Option<&str>| {
            let read = Network::parse(text).map(|network| network.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        };
        check("192.0.2.7", Some("192.0.2.7"));
        check("192.0.2.7/32", Some("192.0.2.7"));
        check("10.1.2.3/8", Some("10.0.0.0/8"));
        check("0.0.0.0/0", Some("0.0.0.0/0"));
        check("::/0", Some("::/0"));
        check("2001:db8::1/64", Some("2001:db8::/64"));
        check("::ffff:10.0.0.1", Some("10.0.0.1"));
        check("::ffff:10.0.0.0/104", Some("10.0.0.0/8"));
        for wrong in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "::/129",
            "::/0064",
            "a/8",
            "1.2.3.4/8/8",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn a_network_holds_those_in_it() {
        let check = |one: &str, other: &str, expected| {
            let [one, other] = [one, other].map(|text| Network::parse(text).unwrap());
            assert_eq!(one.holds(other), expected, "{one} {other}");
        };
        check("10.0.0.0/8", "10.1.0.0/16", true);
        check("10.0.0.0/8", "10.0.0.0/8", true);
        check("10.1.0.0/16", "10.0.0.0/8", false);
        check("10.0.0.0/8", "11.0.0.1", false);
    }

    #[test]
    fn a_household_is_one_ipv4_address_or_64_bits_of_ipv6() {
        assert_eq!(
            Network::around(ip("2001:db8::1")),
            Network::around(ip("2001:db8::ffff:2"))
        );
        assert_ne!(
            Network::around(ip("2001:db8::1")),
            Network::around(ip("2001:db8:0:1::1"))
        );
        assert_ne!(
            Network::around(ip("192.0.2.1")),
            Network::around(ip("192.0.2.2"))
        );
        assert_eq!(
            Network::around(ip("192.0.2.1")),
            Network::around(ip("::ffff:192.0.2.1"))
        );
    }

    #[test]
    fn the_household_of_ipv6_loopback_holds_no_ipv4_address() {
        let household = Network::around(ip("::1"));
        assert_eq!(household.to_string(), "::1");
        assert!(!household.contains(ip("192.0.2.1")));
    }

    #[test]
    fn a_prefix_is_that_of_its_own_family() {
        let prefix = |text: &str| Network::parse(text).unwrap().prefix();
        assert_eq!(prefix("10.0.0.0/8"), Prefix::V4(8));
        assert_eq!(prefix("::ffff:10.0.0.0/104"), Prefix::V4(8));
        assert_eq!(prefix("0.0.0.0/0"), Prefix::V4(0));
        assert_eq!(prefix("192.0.2.7"), Prefix::V4(32));
        assert_eq!(prefix("::ffff:0:0/80"), Prefix::V6(80));
        assert_eq!(prefix("2001:db8::/32"), Prefix::V6(32));
    }

    #[test]
    fn an_address_is_in_any_of_some_networks() {
        let texts = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"];
        let networks: Networks = texts
            .iter()
            .filter_map(|text| Network::parse(text))
            .collect();
        for inside in ["10.9.8.7", "::ffff:10.9.8.7", "192.0.2.7", "2001:db8:1::"] {
            assert!(networks.contain(ip(inside)), "{inside}");
        }
        for outside in ["11.0.0.1", "192.0.2.8", "2001:db9::", "::a00:1"] {
            assert!(!networks.contain(ip(outside)), "{outside}");
        }
        assert!(!Networks::default().contain(ip("0.0.0.0")));
    }
}
