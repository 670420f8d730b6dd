//! Networks of addresses as people write them: `10.0.0.0/8`, `2001:db8::/32`, or one address alone.

use std::net::IpAddr;

use super::raw::Raw;
use super::value::{Place, Value, quote};

/// Each an address and how many of its leading bits count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(pub Vec<(IpAddr, u8)>);

impl Value for Networks {
    fn wanted() -> String {
        "a list of addresses and networks such as [\"10.0.0.0/8\", \"192.0.2.7\"]".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        let texts = raw.texts().ok_or_else(String::new)?;
        let networks = texts
            .iter()
            .map(|text| network(text).ok_or_else(String::new));
        networks.collect::<Result<_, _>>().map(Self)
    }

    fn show(&self) -> Option<String> {
        let networks = self.0.iter();
        let texts = networks.map(|(address, bits)| quote(&format!("{address}/{bits}")));
        Some(format!("[{}]", texts.collect::<Vec<_>>().join(", ")))
    }
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok())?;
    (bits <= most).then_some((address, bits))
}

#[cfg(test)]
mod tests {
    use super::network;

    #[test]
    fn a_network_is_an_address_and_how_many_bits_of_it_count() {
        let check = |text, expected: Option<(&str, u8)>| {
            let expected = expected.map(|(address, bits)| (address.parse().unwrap(), bits));
            assert_eq!(network(text), expected, "{text}");
        };
        check("10.0.0.0/8", Some(("10.0.0.0", 8)));
        check("192.0.2.7", Some(("192.0.2.7", 32)));
        check("2001:db8::/32", Some(("2001:db8::", 32)));
        check("::1", Some(("::1", 128)));
        for wrong in [
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "10.0.0.0/",
            "name",
            "/8",
        ] {
            check(wrong, None);
        }
    }
}
