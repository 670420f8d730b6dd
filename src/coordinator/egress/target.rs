//! The destination of a URL, before a connection.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use url::{Host, Url};

use super::{EgressError, Schemes};
use muster_process::internet::is_public;

/// Allowed ports of this machine.
#[derive(Debug, Clone, Default)]
pub struct Permitted(pub BTreeSet<u16>);

/// The host of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    Address(IpAddr),
    Name(String),
}

/// Parses a URL, and refuses those that are forbidden whatever the name resolves to.
pub fn check(url: &Url, schemes: Schemes) -> Result<(Named, u16), EgressError> {
    let fits = match schemes {
        Schemes::Https => url.scheme() == "https",
        Schemes::HttpToo => matches!(url.scheme(), "http" | "https"),
    };
    if !fits {
        return Err(EgressError::Scheme(schemes));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(EgressError::Credentials);
    }
    let port = url.port_or_known_default().filter(|port| *port != 0);
    let named = match url.host() {
        Some(Host::Ipv4(v4)) => Named::Address(v4.into()),
        Some(Host::Ipv6(v6)) => Named::Address(v6.into()),
        Some(Host::Domain(name)) if !name.is_empty() => Named::Name(name.to_owned()),
        _ => return Err(EgressError::NotAnAddress),
    };
    Ok((named, port.ok_or(EgressError::NotAnAddress)?))
}

/// Ports of web servers, proxied or not. Other ports are refused: images are not served there, and probing them would
/// be a port scan from our address.
const PORTS: [u16; 4] = [80, 443, 8080, 8443];

/// Names for the machine itself (RFC 6761).
pub fn is_own(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

impl Permitted {
    /// Permitted ports of this machine work without TLS.
    pub fn schemes(&self, url: &Url, schemes: Schemes) -> Schemes {
        let own = |port| self.0.contains(&port);
        match url.port_or_known_default().is_some_and(own) {
            true => Schemes::HttpToo,
            false => schemes,
        }
    }

    /// Refuses ports without web servers. To be called before the lookup of the name, so that the error does not depend
    /// on
    /// its address.
    pub fn check_port(&self, port: u16) -> Result<(), EgressError> {
        match PORTS.contains(&port) || self.0.contains(&port) {
            true => Ok(()),
            false => Err(EgressError::Port(port)),
        }
    }

    /// All addresses of a name, or an error if any of them is internal.
    pub fn admit(
        &self,
        addresses: impl IntoIterator<Item = IpAddr>,
        port: u16,
    ) -> Result<Vec<SocketAddr>, EgressError> {
        let own = self.0.contains(&port);
        let mut admitted = Vec::new();
        for address in addresses {
            match is_public(address) || own && address.is_loopback() {
                true => admitted.push(SocketAddr::new(address, port)),
                false => return Err(EgressError::Inside),
            }
        }
        self.check_port(port)?;
        match admitted.is_empty() {
            true => Err(EgressError::Unreachable),
            false => Ok(admitted),
        }
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::{Named, Permitted, check};
    use crate::egress::{EgressError, Schemes};

    fn admitted(url: &str) -> Result<usize, EgressError> {
        let url = Url::parse(url).map_err(|_| EgressError::NotAnAddress)?;
        match check(&url, Schemes::HttpToo)? {
            (Named::Address(address), port) => {
                let admitted = Permitted::default().admit([address], port);
                admitted.map(|addresses| addresses.len())
            }
            (Named::Name(_), _) => Ok(0),
        }
    }

    #[test]
    fn an_address_inside_is_refused_in_every_notation() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://017700000001/",
            "http://0177.0.0.1/",
            "http://0x7f.0.0.1/",
            "http://0x7f000001/",
            "http://127.0.0.1./",
            "http://１２７.0.0.1/",
            "http://127。0。0。1/",
            "http://0/",
            "http://10.1/",
            "http://0xa9fea9fe/latest/meta-data",
            "http://169.254.169.254/",
            "http://[::1]/",
            "http://[0:0:0:0:0:0:0:1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://[64:ff9b::127.0.0.1]/",
            "http://[2002:7f00:1::]/",
            "http://[fe80::1]/",
            "http://[fd00::1]/",
            "http://[ff02::1]/",
            "https://192.168.0.1:8443/",
        ] {
            assert_eq!(admitted(url), Err(EgressError::Inside), "{url}");
        }
        assert_eq!(admitted("http://8.8.8.8/"), Ok(1));
    }

    #[test]
    fn only_plain_addresses_of_the_web_are_asked() {
        let cases = [
            ("ftp://example.org/", EgressError::Scheme(Schemes::HttpToo)),
            ("file:///etc/passwd", EgressError::Scheme(Schemes::HttpToo)),
            ("gopher://8.8.8.8/", EgressError::Scheme(Schemes::HttpToo)),
            (
                "data:image/png;base64,AA",
                EgressError::Scheme(Schemes::HttpToo),
            ),
            ("http://me@8.8.8.8/", EgressError::Credentials),
            ("http://me:secret@8.8.8.8/", EgressError::Credentials),
            ("http://:secret@8.8.8.8/", EgressError::Credentials),
            ("http://8.8.8.8:0/", EgressError::NotAnAddress),
            ("http://8.8.8.8:22/", EgressError::Port(22)),
            ("http://8.8.8.8:25/", EgressError::Port(25)),
            ("https://8.8.8.8:5432/", EgressError::Port(5432)),
            ("https://8.8.8.8:65535/", EgressError::Port(65535)),
        ];
        for (url, expected) in cases {
            assert_eq!(admitted(url), Err(expected), "{url}");
        }
        for url in ["http://8.8.8.8:8080/", "https://8.8.8.8:8443/"] {
            assert_eq!(admitted(url), Ok(1), "{url}");
        }
        let plain = Url::parse("http://8.8.8.8/").unwrap();
        let refused = check(&plain, Schemes::Https);
        assert_eq!(refused, Err(EgressError::Scheme(Schemes::Https)));
    }

    #[test]
    fn one_address_inside_spoils_a_name() {
        let addresses = ["8.8.8.8", "10.0.0.1"].map(|text| text.parse().unwrap());
        let refused = Permitted::default().admit(addresses, 443);
        assert_eq!(refused, Err(EgressError::Inside));
    }

    #[test]
    fn a_permitted_port_is_permitted_on_this_machine_only() {
        let permitted = Permitted([8080].into());
        let admit = |text: &str, port| permitted.admit([text.parse().unwrap()], port).is_ok();
        assert!(admit("127.0.0.1", 8080) && admit("::1", 8080));
        assert!(!admit("127.0.0.1", 8081));
        assert!(!admit("10.0.0.1", 8080) && !admit("169.254.169.254", 8080));
    }
}
