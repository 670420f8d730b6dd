//! The addresses by which other machines reach a coordinator that listens on all of this one's.

use std::net::{IpAddr, SocketAddr};

use tracing::warn;

use crate::config::Config;

/// URLs of this machine for other machines. Warns of unencrypted access, and of links that others cannot follow.
pub fn others_reach(listens: SocketAddr, config: &Config) -> Vec<String> {
    let has_tls = config.serve.self_signed || config.serve.tls().is_some();
    let urls = urls(listens, has_tls, own_addresses());
    let public = config.serve.public_url.as_ref().map(|url| url.0.as_str());
    let is_encrypted = has_tls || public.is_some_and(|url| url.starts_with("https:"));
    if !listens.ip().is_loopback() && !is_encrypted {
        warn!(
            "listening on {listens} without TLS: keys and prompts cross the network in plain text; set serve.tls_certificate \
             and serve.tls_key, or put a TLS proxy in front and set serve.public_url"
        );
    }
    if listens.ip().is_unspecified() && public.is_none() {
        warn!("serve.public_url is not set: links to images work on this machine only");
    }
    urls
}

fn urls(listens: SocketAddr, has_tls: bool, own: Vec<IpAddr>) -> Vec<String> {
    let scheme = if has_tls { "https" } else { "http" };
    let reachable = match listens.ip() {
        ip if ip.is_loopback() => Vec::new(),
        // A socket of IPv6 takes both, unless the system says otherwise.
        ip if ip.is_unspecified() => {
            let is_taken = |own: &IpAddr| ip.is_ipv6() || own.is_ipv4();
            own.into_iter().filter(is_taken).collect()
        }
        ip => vec![ip],
    };
    let urls = reachable.into_iter().filter(is_useful);
    urls.map(|ip| format!("{scheme}://{}", SocketAddr::new(ip, listens.port())))
        .collect()
}

/// Others cannot name an address of one link without the name of their own interface.
fn is_useful(ip: &IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_loopback() && !is_link_local
}

fn own_addresses() -> Vec<IpAddr> {
    match if_addrs::get_if_addrs() {
        Ok(interfaces) => interfaces.iter().map(if_addrs::Interface::ip).collect(),
        Err(error) => {
            warn!("listing the network addresses of this machine failed, showing none: {error}");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::urls;

    #[test]
    fn an_open_address_is_told_by_the_addresses_that_others_can_use() {
        let own = [
            "127.0.0.1",
            "::1",
            "192.0.2.7",
            "169.254.3.4",
            "fe80::1",
            "2001:db8::7",
        ];
        let check = |listens: &str, has_tls, expected: &[&str]| {
            let own = own.map(|ip| ip.parse().unwrap()).to_vec();
            assert_eq!(
                urls(listens.parse().unwrap(), has_tls, own),
                expected,
                "{listens}"
            );
        };
        check("0.0.0.0:7010", false, &["http://192.0.2.7:7010"]);
        let both = ["https://192.0.2.7:7010", "https://[2001:db8::7]:7010"];
        check("[::]:7010", true, &both);
        check("127.0.0.1:7010", false, &[]);
        check("192.0.2.9:80", false, &["http://192.0.2.9:80"]);
    }
}
