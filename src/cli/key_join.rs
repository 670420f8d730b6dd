//! `worker key join`: a token with which a worker joins this coordinator in one line.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use serde::Serialize;
use url::{Host, Url};

use super::coordinator::serving::Serving;
use super::join::token::Token;
use super::key::lifetime;
use super::{Exit, Failure, Root, output};
use crate::config::{Config, show_duration};
use crate::coordinator::accounts::{Accounts, KeyOrder};
use crate::coordinator::values::Scopes;
use crate::protocol::job::AccountId;

const EXAMPLES: &str = "\
Examples:
  worker key join                              create a token for a worker of the administrator
  worker key join --account alice --worker attic
  worker key join --url https://muster.example
  worker join TOKEN                            join, on the worker's machine";

/// Create a token with which a worker joins this coordinator.
///
/// The token holds the coordinator's address and a new key that only connects workers; use it with `worker join
/// TOKEN` on the worker's machine within a day. From then on the key belongs to that worker alone and does not expire.
/// Keep the token secret: its holder can connect a worker of the account. `worker key revoke` revokes the key.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The account that owns the workers and earns their kudos (default: the administrator).
    #[arg(long, value_name = "ACCOUNT")]
    pub account: Option<String>,
    /// Bind the key to the worker of this name.
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// URL under which workers reach this coordinator (default: serve.public_url, else the listen address).
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// How long the token can be used for the first time, such as 12h; the worker that uses it keeps its key.
    #[arg(long, value_name = "TIME", value_parser = lifetime, default_value = "1d")]
    expires: Duration,
    /// Allow a URL without TLS, which sends the key in plain text; only for a private network.
    #[arg(long)]
    insecure: bool,
}

#[derive(Serialize)]
struct JoinReport<'a> {
    token: &'a str,
    id: &'a str,
    account: &'a str,
    url: &'a str,
    certificate_sha256: Option<&'a str>,
}

/// URL of the coordinator for workers, and its certificate.
struct Address {
    url: Url,
    certificate_sha256: Option<String>,
}

/// Makes the key for this account, which is shown by this name.
pub async fn run(
    args: &Args,
    root: &Root,
    accounts: &Accounts,
    (account, shown): (AccountId, &str),
    json: bool,
) -> Result<(), Failure> {
    let address = args.address(&root.load()?.config)?;
    let order = KeyOrder {
        label: "worker key join".to_owned(),
        scopes: Scopes::WORKER_CONNECT,
        worker_name: args.worker.clone(),
        lifetime: Some(args.expires),
        joins: true,
    };
    let key = accounts.create_key(account, order).await?;
    let url = address.url.as_str().trim_end_matches('/');
    let token = Token {
        url: url.to_owned(),
        key: key.text.expose().to_owned(),
        name: args.worker.clone(),
        certificate_sha256: address.certificate_sha256.clone(),
        insecure: args.insecure && address.url.scheme() == "http",
    }
    .text();
    let id = &*key.public_id;
    if json {
        return output::json(&JoinReport {
            token: &token,
            id,
            account: shown,
            url,
            certificate_sha256: address.certificate_sha256.as_deref(),
        });
    }
    output::line(&token)?;
    output::aside(format!(
        "token with key {id} of {shown}, which connects one worker; not shown again\n\
         next, on the worker's machine, within {}: worker join TOKEN",
        show_duration(args.expires)
    ));
    if is_local(&address.url) {
        output::aside(format!(
            "other machines cannot reach {url}: use --url URL with an address of this machine"
        ));
    }
    Ok(())
}

impl Args {
    fn address(&self, config: &Config) -> Result<Address, Failure> {
        let serving = Serving::read(&config.worker.data_dir);
        let fingerprint = serving
            .as_ref()
            .and_then(|serving| serving.certificate_sha256.clone());
        let public = config.serve.public_url.as_ref().map(|url| url.0.clone());
        let url = match self.url.clone().or(public) {
            Some(url) => url,
            None => served_at(serving.as_ref(), config)?,
        };
        if !matches!(url.scheme(), "http" | "https") {
            let message = format!("--url must begin with https:// or http://, found {url}");
            return Err(Failure::new(Exit::Usage, message));
        }
        if url.scheme() == "http" && !is_local(&url) && !self.insecure {
            let message = format!(
                "creating a join token failed: {url} has no TLS and would send the key in plain text"
            );
            return Err(Failure::new(Exit::BadConfiguration, message).hint(
                "start the coordinator with `worker serve --self-signed`, or add --insecure on a private network",
            ));
        }
        let has_tls = url.scheme() == "https";
        Ok(Address {
            certificate_sha256: fingerprint.filter(|_| has_tls),
            url,
        })
    }
}

/// The address of its last start; else the configured one.
fn served_at(serving: Option<&Serving>, config: &Config) -> Result<Url, Failure> {
    let has_tls = config.serve.self_signed || config.serve.tls().is_some();
    let (address, has_tls) = match serving {
        Some(serving) => (serving.address, serving.has_tls),
        None => (config.serve.listen, has_tls),
    };
    if address.port() == 0 {
        return Err(Failure::new(
            Exit::Unavailable,
            "creating a join token failed: the port of the coordinator is unknown until its start",
        )
        .hint("start the coordinator first, or give its address with --url"));
    }
    let scheme = if has_tls { "https" } else { "http" };
    let url = format!("{scheme}://{}", from_outside(address));
    Ok(url.parse().map_err(anyhow::Error::from)?)
}

/// An address of every interface is reached through the one that leads to other networks.
fn from_outside(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(own_address().unwrap_or(IpAddr::from([127, 0, 0, 1])));
    }
    address
}

/// Which address this machine would send from. Connecting a datagram socket sends nothing.
fn own_address() -> Option<IpAddr> {
    // An address of the documentation: https://www.rfc-editor.org/rfc/rfc5737.
    const ELSEWHERE: &str = "192.0.2.1:9";
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(ELSEWHERE).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified()).then_some(address)
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
