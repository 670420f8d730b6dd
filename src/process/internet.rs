//! Public internet addresses, as opposed to those of this machine or its network: URLs from other parties may only lead
//! to public ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: its first address and how many bits of it count.
type Network4 = (Ipv4Addr, u32);
type Network6 = (Ipv6Addr, u32);

/// Special-purpose networks of IANA (RFC 6890 and its registry), which have no public servers.
const INSIDE: &[Network4] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Multicast, reserved and broadcast.
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// Global unicast addresses of IPv6. All others (loopback, link-local, unique local, multicast, embedded IPv4) are not
/// public.
const GLOBAL: Network6 = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Special-purpose networks inside it: protocols such as Teredo; documentation; 6to4.
const APART: &[Network6] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !INSIDE.iter().any(|network| holds4(*network, v4)),
        IpAddr::V6(v6) => holds6(GLOBAL, v6) && !APART.iter().any(|network| holds6(*network, v6)),
    }
}

fn holds4((first, bits): Network4, address: Ipv4Addr) -> bool {
    (first.to_bits() ^ address.to_bits()) >> (32 - bits) == 0
}

fn holds6((first, bits): Network6, address: Ipv6Addr) -> bool {
    (first.to_bits() ^ address.to_bits()) >> (128 - bits) == 0
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::is_public;

    #[test]
    fn the_internet_is_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001:800::200e",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn inside_is_not() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    proptest! {
        #[test]
        fn no_address_inside_is_public_in_other_clothes(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from_bits(bits);
            prop_assert!(!is_public(IpAddr::V6(v4.to_ipv6_mapped())));
            prop_assert!(!is_public(IpAddr::V6(v4.to_ipv6_compatible())));
            if v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() {
                prop_assert!(!is_public(v4.into()));
            }
        }
    }
}
