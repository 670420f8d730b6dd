//! `[serve]`: the coordinator that `worker serve` and `worker up` start.

use std::net::SocketAddr;
use std::path::PathBuf;

use url::Url;

use super::network::Networks;
use super::reader::Reader;
use super::secret::Secret;
use super::setting::settings;
use super::units::Size;
use super::value::WebAddress;

settings! {
    /// The coordinator that `worker serve` and `worker up` start.
    pub struct ServeConfig = "serve" {
        /// The address it listens on; port 0 takes a free one. Change it to be reached from other machines.
        listen: SocketAddr = "127.0.0.1:7010",
        /// Where others reach it. Set it when a proxy stands in front: links to images begin with it.
        public_url: Option<WebAddress>; unset "the address it listens on",
        /// What the service calls itself to its clients.
        name: String = "Muster",
        /// Where accounts, keys and the ledger are kept: the path of an SQLite file, or postgres://USER:PASSWORD@HOST/NAME, also as "file:PATH" or "env:NAME".
        database: Option<Secret>; unset "coordinator.sqlite in worker.data_dir",
        /// The server secret, from which the digests of all keys are made, as "file:PATH" or "env:NAME"; at least 32 characters. Set it to the same one for every machine that starts a coordinator on one database server, and keep a copy apart from the database.
        secret: Option<Secret>; unset "a file that the first start makes: beside the file of the database, or coordinator.secret in worker.data_dir where that is on a server",
        /// The certificate chain, a PEM file. Set it with tls_key to serve https:// and wss://.
        tls_certificate: Option<PathBuf>; unset "plain http:// and ws://",
        /// The key of that certificate, a PEM file.
        tls_key: Option<PathBuf>; unset "none",
        /// Serve https:// and wss:// with a certificate of its own, made once and kept in worker.data_dir. Workers that join with `worker key join` pin it. Set it on a network without a domain name.
        self_signed: bool = false,
        /// A folder with terms.md, privacy.md, sponsors.md and news.toml of your own; what is not in it keeps the text of the program.
        documents: Option<PathBuf>; unset "the texts of the program",
        /// Whether the poll API limits how often one address may ask for one thing, as its clients know it. Set it to false for a network of your own that asks more often.
        rate_limits: bool = true,
        /// Reverse proxies in front of it: the client is who they name in X-Forwarded-For. Without one here, whoever connects is the client.
        trusted_proxies: Networks = [],
        /// Connections that one address, or one /64 of IPv6, may have open at once; 0 lets it have all there are. Set it to 0 where everybody comes from one address that names no clients, such as a balancer of TCP or rootless Docker.
        connections_per_address: usize where (0..=1_000_000) = 2048,
        /// Networks that hide who uses them, such as VPNs and proxies. Untrusted owners have no workers there, and in a raid untrusted users ask for nothing from there.
        unsafe_networks: Networks = [],
        /// Client programs whose requests the poll API refuses, as they call themselves in the header Client-Agent: "name", or "name:version" for one version.
        blocked_clients: Vec<String> = [],
        /// Models for adults only, by the names they are asked for by. Words about the young never reach them.
        nsfw_models: Vec<String> = [],
        /// Whether image workers serve known models and no others, unless their owner has the role customizer. Set it to true when strangers run workers: what a name stands for is then the same everywhere.
        known_image_models_only: bool = false,
        /// Where people get a key. Refusals and the descriptor point there.
        console_url: Option<Url>; unset "nowhere",
        /// Generation requests of one key in a minute. Set it when strangers have keys.
        requests_per_minute: Option<usize> where (1..=1_000_000); unset "no limit",
        /// Jobs of one account that wait or run at the same time. Set it when strangers have keys.
        jobs_in_flight: Option<usize> where (1..=1_000_000); unset "no limit",
        /// Fields of chat requests that are left aside where they would be refused, by their names, or "all"; the header x-ignored-fields names those that were. Set it when clients insist on fields that are not supported here.
        ignored_fields: Vec<String> = [],
        /// Whether prompts go to workers of the public network without the keys, tokens and passwords in them.
        scrub_secrets: bool = true,
        /// Texts of one account that wait for a worker at the same time, of requests that are polled for. Raise it for accounts of whole services.
        polled_texts: usize where (1..=1_000_000) = 30,
        /// Whether the poll API takes requests with the key 0000000000, which everybody knows. Set it for a network that is open to all.
        anonymous: bool = false,
        /// Whether a key with the scope inference.submit may connect workers as one with worker.connect may. Set it to true where the keys of clients run workers, as on public networks.
        submit_keys_connect_workers: bool = false,
        /// Kudos that a worker's owner earns before half of each reward is no longer kept back; 0 trusts everybody at once. Set it to 0 on a network of friends.
        trust_after: usize where (0..=1_000_000_000) = 50000,
        /// Users who are administrators under `worker serve --dev`, as name#id or by their names. Only for tests of other programs.
        dev_admins: Vec<String> = [],
        /// The largest request. Lower it when memory is short.
        largest_request: Size where (1 << 10..=1 << 30) = "64 MiB",
        /// Jobs that may wait for a worker, half of them at most without a key; more are refused at once.
        queue: usize where (1..=10_000_000) = 100000,
        /// Days for which ended jobs and their entries in the ledger are kept, one by one; balances stay. Lower it to save room.
        retention_days: usize where (1..=36_500) = 90,
    }
}

/// A setting by its name, and what is wrong with it.
type Wrong = (&'static str, String);

impl ServeConfig {
    /// The section, and what its settings must be besides what each of them can be.
    pub(super) fn read_whole(reader: &mut Reader<'_>) -> Option<Self> {
        let serve = Self::read(reader)?;
        let wrong = [
            serve.half_of_tls(),
            serve.two_certificates(),
            serve.strange_database(),
            serve.nameless_client(),
        ];
        let mut is_right = true;
        for (name, what) in wrong.into_iter().flatten() {
            reader.problem_about(name, what);
            is_right = false;
        }
        is_right.then_some(serve)
    }

    fn half_of_tls(&self) -> Option<Wrong> {
        let (set, other) = match (&self.tls_certificate, &self.tls_key) {
            (Some(_), None) => ("serve.tls_certificate", "serve.tls_key"),
            (None, Some(_)) => ("serve.tls_key", "serve.tls_certificate"),
            _ => return None,
        };
        let what = format!("{set} is set and {other} is not: TLS takes both");
        Some((set, what))
    }

    fn two_certificates(&self) -> Option<Wrong> {
        (self.self_signed && self.tls_certificate.is_some()).then(|| {
            let what =
                "serve.self_signed and serve.tls_certificate are both set: choose one".to_owned();
            ("serve.self_signed", what)
        })
    }

    /// No more of it than the scheme is quoted: it may hold a password.
    fn strange_database(&self) -> Option<Wrong> {
        let (scheme, _) = self.database.as_ref()?.expose().split_once("://")?;
        let is_word = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_word || matches!(scheme, "postgres" | "postgresql" | "sqlite") {
            return None;
        }
        let what = format!(
            "serve.database must be a path, sqlite:PATH or postgres://HOST/NAME, found {scheme}://"
        );
        Some(("serve.database", what))
    }

    /// Without a name it would be those who send an empty one.
    fn nameless_client(&self) -> Option<Wrong> {
        let is_nameless =
            |client: &&String| client.split(':').next().unwrap_or("").trim().is_empty();
        let client = self.blocked_clients.iter().find(is_nameless)?;
        let what = format!(
            "serve.blocked_clients must hold \"name\" or \"name:version\", found {client:?}"
        );
        Some(("serve.blocked_clients", what))
    }

    /// The certificate chain and its key, where both are set.
    pub fn tls(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.tls_certificate.as_ref().zip(self.tls_key.as_ref())
    }
}
