//! Checks a coordinator step by step like a worker's start, without registering: name, connection, TLS, key and name of
//! the worker, clock, nodes of a cluster, and the path of jobs. A failed step skips the steps that depend on it. `demand`
//! queries the demand of models at a connected coordinator.

mod cluster;
mod demand;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap};
use reqwest::{Client, StatusCode};
use serde_json::Value;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;
use url::Url;

use super::dial::{connect, encrypt, lookup};
use super::{AddressError, Dial, DialError, api, base, endpoint, tls};
pub use demand::{Demand, ModelDemand};
use muster_protocol::link::RefusalCode;

/// Each step may take this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// A larger difference of clocks is reported; certificates and deadlines tolerate little.
const SKEW: Duration = Duration::from_secs(30);
/// Replies about a coordinator are short.
const LARGEST_ANSWER: usize = 64 << 10;

/// A coordinator, and the worker's identity there.
#[derive(Clone)]
pub struct Inquiry {
    /// As configured.
    pub url: Url,
    pub insecure: bool,
    pub tls: Arc<ClientConfig>,
    pub is_pinned: bool,
    /// Polls the AI Horde API instead of using a socket.
    pub polls: bool,
    pub key: String,
    /// The worker's name there.
    pub name: String,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub step: Step,
    pub verdict: Verdict,
    /// The result, and its cause where it is not well.
    pub found: String,
    pub remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Name,
    Connection,
    Encryption,
    Key,
    Clock,
    Cluster,
    Jobs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Good,
    Odd,
    Bad,
}

impl Finding {
    fn good(step: Step, found: impl Into<String>) -> Self {
        Self {
            step,
            verdict: Verdict::Good,
            found: found.into(),
            remedy: None,
        }
    }

    fn odd(step: Step, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Odd,
            remedy: Some(remedy.into()),
            ..Self::good(step, found)
        }
    }

    fn bad(step: Step, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Bad,
            ..Self::odd(step, found, remedy)
        }
    }

    /// An error that names its remedy after a colon.
    fn failed(step: Step, error: &str) -> Self {
        match error.split_once(": ") {
            Some((found, remedy)) => Self::bad(step, found, remedy),
            None => Self::bad(
                step,
                error,
                "try again later, or ask the coordinator's operator",
            ),
        }
    }
}

/// An HTTP reply.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Inquiry {
    pub async fn run(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        match self.reach(&mut findings).await {
            Ok(true) => self.ask(&mut findings).await,
            Ok(false) => {}
            Err(error) => {
                findings.push(Finding::failed(Step::Connection, &error.to_string()));
            }
        }
        findings
    }

    /// The URL that a worker would connect to.
    fn target(&self) -> Result<Url, AddressError> {
        match self.polls {
            true => base(&self.url, self.insecure),
            false => endpoint(&self.url, self.insecure),
        }
    }

    /// Checks name, connection and TLS. Returns whether further steps make sense.
    async fn reach(&self, findings: &mut Vec<Finding>) -> Result<bool, AddressError> {
        let target = self.target()?;
        let host = target.host_str().ok_or(AddressError::NoHost)?;
        let port = target.port_or_known_default().ok_or(AddressError::NoHost)?;
        match in_time(lookup(host, port)).await {
            Err(error) => {
                findings.push(Finding::bad(
                    Step::Name,
                    format!("looking up {host} failed ({})", cause(&error)),
                    "check the name in url, and this machine's DNS",
                ));
                return Ok(false);
            }
            Ok(found) => {
                let mut found: Vec<String> = found.iter().map(|one| one.ip().to_string()).collect();
                found.dedup();
                let found = format!("{host} resolves to {}", found.join(", "));
                findings.push(Finding::good(Step::Name, found));
            }
        }
        let tcp = match in_time(connect(host, port)).await {
            Ok(tcp) => tcp,
            Err(error) => {
                findings.push(Finding::failed(Step::Connection, &error.to_string()));
                return Ok(false);
            }
        };
        let found = format!("port {port} is open");
        findings.push(Finding::good(Step::Connection, found));
        if !matches!(target.scheme(), "wss" | "https") {
            findings.push(Finding::good(
                Step::Encryption,
                "none: url does not use TLS",
            ));
            return Ok(true);
        }
        let trust = match self.is_pinned {
            true => "the certificate matches the pinned one",
            false => "the certificate is valid and trusted by this machine",
        };
        let encrypted = in_time(encrypt(host, &self.tls, tcp)).await;
        findings.push(match &encrypted {
            Ok(_) => Finding::good(Step::Encryption, trust),
            Err(error) => Finding::failed(Step::Encryption, &error.to_string()),
        });
        Ok(encrypted.is_ok())
    }

    /// Key, name, clock and jobs.
    async fn ask(&self, findings: &mut Vec<Finding>) {
        let (base, client) = match (api(&self.url, self.insecure), self.client()) {
            (Ok(base), Ok(client)) => (base, client),
            (Err(error), _) => {
                return findings.push(Finding::failed(Step::Key, &error.to_string()));
            }
            (_, Err(error)) => return findings.push(Finding::failed(Step::Key, &error)),
        };
        let base = base.as_str().trim_end_matches('/').to_owned();
        let answer = self.registration(&client, &base).await;
        match answer {
            Ok(answer) => {
                let key = self.key(&answer, &client, &base).await;
                findings.push(key);
                findings.extend(clock(&answer.headers, SystemTime::now()));
            }
            Err(error) => findings.push(Finding::failed(Step::Key, &error)),
        }
        let health = self.get(&client, &format!("{base}/health")).await;
        findings.extend(
            health
                .ok()
                .and_then(|health| cluster::finding(&health.body)),
        );
        findings.push(match self.polls {
            true => self.polled(&client, &base).await,
            false => self.socket().await,
        });
    }

    fn client(&self) -> Result<Client, String> {
        Client::builder()
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured((*self.tls).clone())
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .build()
            .map_err(|error| error.without_url().to_string())
    }

    async fn get(&self, client: &Client, url: &str) -> Result<Answer, String> {
        self.get_at_most(client, url, LARGEST_ANSWER).await
    }

    async fn get_at_most(
        &self,
        client: &Client,
        url: &str,
        most_bytes: usize,
    ) -> Result<Answer, String> {
        let request = client.get(url).header("apikey", &self.key);
        let failed = |error: reqwest::Error| {
            let error = error.without_url();
            tls::explain(&error).unwrap_or_else(|| error.to_string())
        };
        let mut response = request.send().await.map_err(failed)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if bytes.len() + chunk.len() > most_bytes {
                break;
            }
            bytes.extend_from_slice(&chunk);
        }
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    /// Asks one of our coordinators whether it would accept the registration.
    async fn registration(&self, client: &Client, base: &str) -> Result<Answer, String> {
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("name", &self.name)
            .finish();
        self.get(client, &format!("{base}/v1/workers/check?{query}"))
            .await
    }

    async fn key(&self, answer: &Answer, client: &Client, base: &str) -> Finding {
        let name = &self.name;
        let body = &answer.body;
        match (answer.status.as_u16(), body["accepted"].as_bool()) {
            (200, Some(true)) => {
                let known = match body["known"].as_bool() {
                    Some(true) => "belongs to the key's account",
                    _ => "is available",
                };
                Finding::good(
                    Step::Key,
                    format!("the key is accepted, and the name {name} {known}"),
                )
            }
            (200, Some(false)) => {
                let reason = body["reason"].as_str().unwrap_or("no reason given");
                let code = serde_json::from_value(body["code"].clone()).ok();
                if let Some(bound) = self.bound_name(client, base, code).await {
                    return Finding::bad(
                        Step::Key,
                        format!("the key belongs to the worker {bound}, and this one is {name}"),
                        format!(
                            "set name = \"{bound}\" in this [[coordinator]], or create a key for {name} with `worker key join`"
                        ),
                    );
                }
                let remedy = remedy(code, reason);
                Finding::bad(
                    Step::Key,
                    format!("the worker {name} would be refused ({reason})"),
                    remedy,
                )
            }
            (401, _) => unknown_key(),
            _ => self.public_key(client, base).await,
        }
    }

    /// The worker that a refused key is bound to, if the coordinator reports it.
    async fn bound_name(
        &self,
        client: &Client,
        base: &str,
        code: Option<RefusalCode>,
    ) -> Option<String> {
        if code != Some(RefusalCode::Scope) {
            return None;
        }
        let answer = self.get(client, &format!("{base}/v1/workers/self")).await;
        let name = answer.ok()?.body["worker"]["name"].as_str()?.to_owned();
        let is_name = name.len() <= 200 && !name.chars().any(char::is_control);
        (is_name && name != self.name).then_some(name)
    }

    /// Other coordinators only report whether a key is valid.
    async fn public_key(&self, client: &Client, base: &str) -> Finding {
        let answer = self.get(client, &format!("{base}/api/v2/find_user")).await;
        match answer.map(|answer| (answer.status.as_u16(), answer.body)) {
            Ok((200, body)) => {
                let user = body["username"].as_str().unwrap_or("an account");
                let user: String = user
                    .chars()
                    .filter(|one| !one.is_control())
                    .take(100)
                    .collect();
                Finding::good(Step::Key, format!("the key of {user} is accepted"))
            }
            Ok((401 | 404, body)) if body["message"].is_string() => unknown_key(),
            _ => Finding::odd(
                Step::Key,
                "not checked: this coordinator checks keys only when a worker registers",
                "start the worker and read in its log whether the key is accepted",
            ),
        }
    }

    async fn polled(&self, client: &Client, base: &str) -> Finding {
        let url = format!("{base}/api/v2/status/heartbeat");
        match self.get(client, &url).await {
            Ok(answer) if answer.status.is_success() => {
                Finding::good(Step::Jobs, "polling: the worker requests each job")
            }
            Ok(answer) => Finding::bad(
                Step::Jobs,
                format!(
                    "/api/v2 is not available (status {})",
                    answer.status.as_u16()
                ),
                "check the path in url, or set kind = \"socket\"",
            ),
            Err(error) => Finding::failed(Step::Jobs, &error),
        }
    }

    async fn socket(&self) -> Finding {
        let Ok(url) = self.target() else {
            return Finding::bad(
                Step::Jobs,
                "url is not a valid socket address",
                "correct url in this [[coordinator]]",
            );
        };
        let dial = Dial::Url {
            url,
            tls: self.tls.clone(),
        };
        match in_time(dial.open()).await {
            Ok(_) => Finding::good(Step::Jobs, "socket: jobs arrive over one connection"),
            Err(error) => Finding::failed(Step::Jobs, &error.to_string()),
        }
    }
}

fn unknown_key() -> Finding {
    let found = "the coordinator does not accept the key";
    Finding::bad(Step::Key, found, remedy(Some(RefusalCode::Auth), ""))
}

/// The remedy for a refusal. The coordinator's message distinguishes the key of another worker from one without the
/// permission.
pub fn remedy(code: Option<RefusalCode>, words: &str) -> &'static str {
    match code {
        Some(RefusalCode::Auth) => {
            "ask the coordinator's operator for a key (`worker key join` creates one), and set key in this [[coordinator]]"
        }
        Some(RefusalCode::Scope) if words.contains("another name") => {
            "set name in this [[coordinator]] to the worker that the key was made for, or create a key for this one with `worker key join`"
        }
        Some(RefusalCode::Scope) => {
            "ask the coordinator's operator for a key with the scope worker.connect"
        }
        Some(RefusalCode::NameTaken) => "choose another name in this [[coordinator]]",
        Some(RefusalCode::Cooldown) => {
            "wait: the worker tries again by itself; its log says why jobs failed"
        }
        Some(RefusalCode::RetiredModel) => "take the model out of models.serve",
        _ => "ask the coordinator's operator",
    }
}

/// The difference of this machine's clock to the coordinator's, if it reports the time.
fn clock(headers: &HeaderMap, now: SystemTime) -> Option<Finding> {
    let date = headers.get(DATE)?.to_str().ok()?;
    let there = httpdate::parse_http_date(date).ok()?;
    let (off, word) = match now.duration_since(there) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    let seconds = off.as_secs();
    Some(match off > SKEW {
        false => Finding::good(Step::Clock, "matches the coordinator's clock"),
        true => Finding::odd(
            Step::Clock,
            format!("this machine's clock is {seconds} s {word} the coordinator's"),
            "set the clock, for example with `timedatectl set-ntp true`",
        ),
    })
}

fn cause(error: &DialError) -> String {
    match error {
        DialError::Lookup { cause, .. } => cause.to_string(),
        other => other.to_string(),
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, DialError>>) -> Result<T, DialError> {
    match timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use reqwest::header::{DATE, HeaderMap, HeaderValue};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::{Inquiry, Step, Verdict, clock};
    use crate::link::native_tls;

    #[test]
    fn a_clock_far_from_the_coordinators_is_named_with_its_distance() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let of = |there: SystemTime| {
            let mut headers = HeaderMap::new();
            let date = httpdate::fmt_http_date(there);
            headers.insert(DATE, HeaderValue::from_str(&date).unwrap());
            clock(&headers, now).unwrap()
        };
        assert_eq!(of(now).verdict, Verdict::Good);
        let ahead = of(now - Duration::from_secs(90));
        assert_eq!(ahead.verdict, Verdict::Odd);
        assert!(ahead.found.contains("90 s ahead of"), "{}", ahead.found);
        assert!(
            of(now + Duration::from_secs(90))
                .found
                .contains("90 s behind")
        );
    }

    fn inquiry(url: &str) -> Inquiry {
        Inquiry {
            url: url.parse().unwrap(),
            insecure: false,
            tls: native_tls().unwrap(),
            is_pinned: false,
            polls: false,
            key: "key".to_owned(),
            name: "rig".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_port_without_tls_is_told_from_one_where_nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let plain = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        };
        let inquiry = inquiry(&format!("wss://127.0.0.1:{port}"));
        let findings = tokio::select! {
            () = plain => unreachable!(),
            findings = inquiry.run() => findings,
        };
        let last = findings.last().unwrap();
        assert_eq!((last.step, last.verdict), (Step::Encryption, Verdict::Bad));
        assert_eq!(last.found, "the server does not use TLS");
        assert!(last.remedy.as_ref().unwrap().contains("ws://"));
        drop(listener);
        let findings = inquiry.run().await;
        let last = findings.last().unwrap();
        assert_eq!((last.step, last.verdict), (Step::Connection, Verdict::Bad));
        assert!(last.found.contains("connection refused"), "{last:?}");
    }
}
