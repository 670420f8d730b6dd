//! `[serve]`: the coordinator that `worker serve` and `worker up` start.

use std::net::SocketAddr;
use std::path::PathBuf;

use url::Url;

use super::choice::choice;
use super::network::Networks;
use super::price::Usd;
use super::reader::Reader;
use super::secret::Secret;
use super::setting::settings;
use super::units::Size;
use super::value::WebAddress;

settings! {
    /// The coordinator that `worker serve` and `worker up` run.
    pub struct ServeConfig = "serve" {
        /// Address to listen on; port 0 picks a free port. Change it to accept connections from other machines.
        listen: SocketAddr = "127.0.0.1:7010",
        /// URL under which clients and workers reach the coordinator. Set it behind a reverse proxy: links to images start with it.
        public_url: Option<WebAddress>; unset "the listen address",
        /// Name of the service, as clients see it.
        name: String = "Muster",
        /// Database of accounts, keys and the ledger: the path of an SQLite file or postgres://USER:PASSWORD@HOST/NAME, also as "file:PATH" or "env:NAME".
        database: Option<Secret>; unset "coordinator.sqlite in worker.data_dir",
        /// Server secret for the digests of all keys, as "file:PATH" or "env:NAME"; at least 32 characters. Set the same secret on every machine that may run a coordinator on one database server, and keep a copy apart from the database.
        secret: Option<Secret>; unset "a file created at the first start, beside the SQLite file, or coordinator.secret in worker.data_dir with PostgreSQL",
        /// Certificate chain, a PEM file. Set it with tls_key to serve https:// and wss://.
        tls_certificate: Option<PathBuf>; unset "plain http:// and ws://",
        /// Private key of that certificate, a PEM file.
        tls_key: Option<PathBuf>; unset "none",
        /// Serve https:// and wss:// with a self-signed certificate, created once and kept in worker.data_dir. Workers that join with a token of `worker key join` pin it. Set it on a network without a domain name.
        self_signed: bool = false,
        /// Folder with your own terms.md, privacy.md, sponsors.md and news.toml. A missing file keeps the built-in text.
        documents: Option<PathBuf>; unset "the built-in texts",
        /// Whether the AI Horde API applies its usual rate limits per client address. Set it to false on a private network that sends more requests.
        rate_limits: bool = true,
        /// Addresses and networks of reverse proxies, whose X-Forwarded-For header gives the client address. For any other peer, the connecting address is the client address.
        trusted_proxies: Networks = [],
        /// Maximum open connections per address or IPv6 /64; 0 means no such limit. Set it to 0 where all clients share one address, as behind a TCP load balancer or rootless Docker.
        connections_per_address: usize where (0..=1_000_000) = 2048,
        /// Networks that hide their users, such as VPNs and proxies. Untrusted owners cannot run workers there; during a raid, untrusted users cannot send requests from there.
        unsafe_networks: Networks = [],
        /// Client programs that the AI Horde API refuses, by their Client-Agent header: "name", or "name:version" for one version.
        blocked_clients: Vec<String> = [],
        /// Names of NSFW models. Words about minors never reach them.
        nsfw_models: Vec<String> = [],
        /// Whether image workers may serve only known models, unless their owner has the role customizer. Set it to true when strangers run workers: a name then means the same model everywhere.
        known_image_models_only: bool = false,
        /// Page where users get a key. Refusals and the descriptor link to it.
        console_url: Option<Url>; unset "no link",
        /// Maximum generation requests per key and minute. Set it when strangers have keys.
        requests_per_minute: Option<usize> where (1..=1_000_000); unset "no limit",
        /// Maximum waiting and running jobs per account. Set it when strangers have keys.
        jobs_in_flight: Option<usize> where (1..=1_000_000); unset "no limit",
        /// Whether requests cost credits: "off", "allowlist" for charged_accounts only, or "on" for all accounts. Set it when users pay.
        charging: Charging = "off",
        /// Accounts that pay with charging = "allowlist", by login.
        charged_accounts: Vec<String> = [],
        /// Version of the prices, as /v1/pricing shows it. Change it with each change of a price.
        price_version: Option<String>; unset "a digest of the prices",
        /// Accepted /v1 generation requests per account and UTC day for accounts without paid credits; 0 means no such limit. Set it when strangers have keys.
        free_requests_per_day: Option<usize> where (0..=1_000_000); unset "200 with charging, otherwise no limit",
        /// Free credits in USD per account and UTC day, spent before paid ones; unused credits end with the day.
        free_credits_per_day_usd: Usd = 0,
        /// Maximum waiting and running texts per account on /v1; 0 means no such limit. Raise it for accounts of whole services.
        texts_in_flight: usize where (0..=1_000_000) = 24,
        /// Maximum waiting and running images, sounds, videos and transcripts for later per account on /v1, counted by outputs; 0 means no such limit. Raise it for accounts of whole services.
        media_in_flight: usize where (0..=1_000_000) = 200,
        /// Maximum size of the images and sounds that the open requests of one account have sent along, as they are stored; more are refused until some have ended. Lower it to save disk space.
        source_media_bytes: Size where (1 << 10..=1 << 40) = "256 MiB",
        /// Maximum messages of one chat request. Raise it for agents with long conversations.
        chat_messages: usize where (1..=1_000_000) = 500,
        /// Fields of chat requests to ignore instead of refusing the request, by name or path as messages[].content[].cache_control, or "all"; the header x-ignored-fields lists the ignored fields. Set it when clients insist on unsupported fields.
        ignored_fields: Vec<String> = [],
        /// Model that writes down the audio parts of chat messages for models that read only text; each part is a transcript of its own, for the client to pay. Set it where a worker serves such a model.
        chat_audio_model: Option<String>; unset "audio parts are refused",
        /// Whether to remove keys, tokens and passwords from prompts before public workers see them.
        scrub_secrets: bool = true,
        /// Maximum texts of one account waiting for a worker, in requests to the AI Horde API. Raise it for accounts of whole services.
        polled_texts: usize where (1..=1_000_000) = 30,
        /// Whether the AI Horde API accepts the anonymous key 0000000000, which is public. Set it to true on an open network.
        anonymous: bool = false,
        /// Whether keys with the scope inference.submit may also connect workers. Set it to true where users connect workers with the keys of their clients, as on public networks.
        submit_keys_connect_workers: bool = false,
        /// Kudos that an owner must earn until half of each reward is no longer held back; 0 trusts every owner at once. Set it to 0 on a network of friends.
        trust_after: usize where (0..=1_000_000_000) = 50000,
        /// Administrators under `worker serve --dev`, as name or name#id. Only for tests of other programs.
        dev_admins: Vec<String> = [],
        /// Whether a gray image stands in for an image that a worker has not uploaded, under `worker serve --dev`. Only for tests of other programs.
        dev_fill_in_images: bool = false,
        /// Maximum size of a request. Lower it when memory is short.
        largest_request: Size where (1 << 10..=1 << 30) = "64 MiB",
        /// Maximum jobs waiting for a worker, at most half of them anonymous; more are refused at once. Lower it when memory is short.
        queue: usize where (1..=10_000_000) = 100000,
        /// Which responses of /v1/responses are stored: "unless_refused" as OpenAI's API stores them, all but those with store: false; "on_request", only those with store: true; "never". The privacy policy says which. Change it to keep less of your users.
        store_responses: StoreResponses = "unless_refused",
        /// Days to keep stored responses. Lower it to keep less of your users, or to save disk space.
        responses_days: usize where (1..=36_500) = 30,
        /// Maximum stored responses of /v1/responses per account; more are refused until some are deleted or expire. Lower it to save disk space.
        stored_responses: usize where (1..=10_000_000) = 50000,
        /// Maximum size of all stored responses of one account. Lower it to save disk space.
        stored_response_bytes: Size where (1 << 10..=1 << 40) = "1 GiB",
        /// Days to keep finished jobs and their ledger entries; balances stay. Lower it to save disk space.
        retention_days: usize where (1..=36_500) = 90,
    }
}

choice! {
    /// Which accounts pay for requests.
    pub enum Charging { Off = "off", Allowlist = "allowlist", On = "on" }
}

choice! {
    /// Which responses of `/v1/responses` are stored.
    pub enum StoreResponses { UnlessRefused = "unless_refused", OnRequest = "on_request", Never = "never" }
}

/// The name of a setting, and its error.
type Wrong = (&'static str, String);

impl ServeConfig {
    /// Reads the section, and checks settings that depend on each other.
    pub(super) fn read_whole(reader: &mut Reader<'_>) -> Option<Self> {
        let serve = Self::read(reader)?;
        let wrong = [
            serve.half_of_tls(),
            serve.two_certificates(),
            serve.strange_database(),
            serve.nameless_client(),
            serve.idle_allowlist(),
            serve.free_without_charging(),
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
        let what = format!("{set} is set and {other} is not: TLS needs both");
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

    /// Without a name the rule would block clients that send an empty name.
    fn nameless_client(&self) -> Option<Wrong> {
        let is_nameless =
            |client: &&String| client.split(':').next().unwrap_or("").trim().is_empty();
        let client = self.blocked_clients.iter().find(is_nameless)?;
        let what = format!(
            "serve.blocked_clients must contain \"name\" or \"name:version\", found {client:?}"
        );
        Some(("serve.blocked_clients", what))
    }

    /// An empty allowlist, or a list that no mode reads.
    fn idle_allowlist(&self) -> Option<Wrong> {
        let (name, what) = match (self.charging, self.charged_accounts.is_empty()) {
            (Charging::Allowlist, true) => (
                "serve.charging",
                "serve.charging is allowlist and serve.charged_accounts is empty: list accounts or choose off",
            ),
            (Charging::Off | Charging::On, false) => (
                "serve.charged_accounts",
                "serve.charged_accounts needs serve.charging = \"allowlist\"",
            ),
            _ => return None,
        };
        Some((name, what.to_owned()))
    }

    fn free_without_charging(&self) -> Option<Wrong> {
        let is_idle = self.charging == Charging::Off && self.free_credits_per_day_usd.micro > 0;
        is_idle.then(|| {
            let what = "serve.free_credits_per_day_usd needs serve.charging: without it requests cost no credits";
            ("serve.free_credits_per_day_usd", what.to_owned())
        })
    }

    /// The certificate chain and its key, where both are set.
    pub fn tls(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.tls_certificate.as_ref().zip(self.tls_key.as_ref())
    }
}
