//! Requests to a coordinator, and answers as they come.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use rustls::ClientConfig;
use serde_json::Value;
use tokio::signal::ctrl_c;
use url::Url;

use super::conversation::Conversation;
use crate::cli::{Exit, Failure, output};

const CONNECTING: Duration = Duration::from_secs(10);
/// The largest event, in bytes.
const LONGEST_EVENT: usize = 8 << 20;
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// A coordinator that answers.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: Url,
    key: Option<String>,
}

/// The text of an answer so far, and the facts of its last events.
#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    pub was_stopped: bool,
    usage: Value,
    grid: Value,
}

impl Client {
    pub fn new(url: Url, key: Option<String>, tls: Arc<ClientConfig>) -> Result<Self, Failure> {
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured((*tls).clone())
            .connect_timeout(CONNECTING);
        let http = match url.host_str() {
            // No proxy reaches this machine.
            Some("127.0.0.1" | "localhost" | "[::1]") => http.no_proxy(),
            _ => http,
        };
        let http = http.build().map_err(anyhow::Error::from)?;
        Ok(Self { http, url, key })
    }

    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Whether a coordinator responds.
    pub async fn is_reachable(&self) -> bool {
        let request = self.http.get(self.at("health/live"));
        let request = request.timeout(Duration::from_secs(2)).send();
        request.await.is_ok_and(|reply| reply.status().is_success())
    }

    /// Names of models that write text.
    pub async fn models(&self) -> Result<Vec<String>, Failure> {
        let list = self.get("v1/models").await?;
        let data = list["data"].as_array().into_iter().flatten();
        let names = data.filter_map(|model| model["id"].as_str());
        Ok(names
            .filter(|name| *name != "auto")
            .map(str::to_owned)
            .collect())
    }

    /// The named model, or the first one.
    pub async fn choose(&self, name: Option<&str>) -> Result<String, Failure> {
        match name {
            Some(name) => {
                let model = self.get(&format!("v1/models/{name}")).await?;
                Ok(model["id"].as_str().unwrap_or(name).to_owned())
            }
            None => self.models().await?.into_iter().next().ok_or_else(|| {
                Failure::unavailable(format!("no model is online at {}", self.url))
                    .hint("`worker up --model NAME` serves one")
            }),
        }
    }

    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        let reply = self.send(self.http.get(self.at(path))).await?;
        reply.json_value().await
    }

    /// Sends a request and returns its status, content type and body, whatever the status.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, String, Vec<u8>), Failure> {
        let mut request = self.http.request(method, self.address(path));
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json");
            request = request.body(body.to_string());
        }
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let reply = request.send().await.map_err(|error| self.broken(&error))?;
        let (status, kind) = (reply.status(), reply.headers().get(CONTENT_TYPE));
        let kind = kind.and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        let body = reply.bytes().await.map_err(|error| self.broken(&error))?;
        Ok((status, kind, body.into()))
    }

    /// Prints an answer while it comes. Ctrl-C stops it.
    pub async fn answer(
        &self,
        conversation: &Conversation,
        is_chat: bool,
    ) -> Result<Answer, Failure> {
        let request = self
            .http
            .post(self.at("v1/chat/completions"))
            .header("content-type", "application/json")
            .body(conversation.body().to_string());
        let mut answer = Answer::default();
        let mut shown = AnswerScreen::new(is_chat);
        let read = async {
            let reply = self.send(request).await?;
            let mut pieces = reply.0.bytes_stream();
            let mut buffer = Vec::new();
            while let Some(piece) = pieces.next().await {
                buffer.extend_from_slice(&piece.map_err(|error| self.broken(&error))?);
                while let Some(end) = buffer.windows(2).position(|pair| pair == b"\n\n") {
                    let event: Vec<u8> = buffer.drain(..end + 2).collect();
                    answer.event(&event, &mut shown)?;
                }
                if buffer.len() > LONGEST_EVENT {
                    return Err(Failure::unavailable(
                        "the coordinator sent an event without end",
                    ));
                }
            }
            Ok(())
        };
        let ended: Result<bool, Failure> = tokio::select! {
            read = read => read.map(|()| false),
            _ = ctrl_c() => Ok(true),
        };
        shown.end()?;
        answer.was_stopped = ended?;
        Ok(answer)
    }

    /// A path that may have a query.
    fn address(&self, path: &str) -> Url {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut url = self.at(path);
        url.set_query((!query.is_empty()).then_some(query));
        url
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        let base = url
            .path()
            .trim_end_matches('/')
            .trim_end_matches("/v1")
            .to_owned();
        url.set_path(&format!("{base}/{path}"));
        url
    }

    async fn send(&self, request: RequestBuilder) -> Result<Reply, Failure> {
        let request = match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        let reply = request.send().await.map_err(|error| self.broken(&error))?;
        let (status, reply) = (reply.status(), Reply(reply));
        if status.is_success() {
            return Ok(reply);
        }
        let body = reply.json_value().await.unwrap_or_default();
        let message = body["error"]["message"].as_str();
        let message =
            message.map_or_else(|| format!("{} answered {status}", self.url), str::to_owned);
        Err(match status.as_u16() {
            401 => Failure::new(Exit::Failed, message).hint("--key or MUSTER_API_KEY gives a key"),
            404 => Failure::new(Exit::NotFound, message)
                .hint("`worker list` lists the models of the catalog"),
            _ => Failure::new(Exit::Failed, message),
        })
    }

    fn broken(&self, error: &reqwest::Error) -> Failure {
        // The innermost cause names the reason; the others name the address again.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        Failure::unavailable(format!("reaching {} failed: {cause}", self.url))
    }
}

struct Reply(Response);

impl Reply {
    async fn json_value(self) -> Result<Value, Failure> {
        let text = self.0.text().await;
        let text =
            text.map_err(|error| Failure::unavailable(format!("reading a reply failed: {error}")))?;
        serde_json::from_str(&text).map_err(|_| {
            Failure::unavailable("the reply is not JSON: is this the address of a coordinator?")
        })
    }
}

impl Answer {
    fn event(&mut self, event: &[u8], shown: &mut AnswerScreen) -> Result<(), Failure> {
        let event = String::from_utf8_lossy(event);
        let lines = event.lines();
        for data in lines.filter_map(|line| line.strip_prefix("data: ")) {
            let Ok(chunk) = serde_json::from_str::<Value>(data) else {
                // The end of the stream.
                continue;
            };
            if let Some(message) = chunk["error"]["message"].as_str() {
                return Err(Failure::new(Exit::Failed, message));
            }
            for (key, place) in [("usage", &mut self.usage), ("grid", &mut self.grid)] {
                if chunk[key].is_object() {
                    *place = chunk[key].clone();
                }
            }
            let delta = &chunk["choices"][0]["delta"];
            if let Some(thought) = delta["reasoning_content"].as_str() {
                shown.thought(thought)?;
            }
            for key in ["content", "refusal"] {
                if let Some(text) = delta[key].as_str() {
                    self.text.push_str(text);
                    shown.text(text)?;
                }
            }
        }
        Ok(())
    }

    /// `12 tokens at 31.5 tokens/s after 0.2 s; prompt of 40 tokens, 32 of them cached`
    pub fn stats(&self) -> String {
        let usage = &self.usage;
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let mut stats = format!("{} tokens", count(&usage["completion_tokens"]));
        if let Some(speed) = self.grid["tokens_per_s"].as_f64() {
            stats.push_str(&format!(" at {speed:.1} tokens/s"));
        }
        if let Some(first) = self.grid["ttft"].as_f64() {
            stats.push_str(&format!(", the first after {first:.2} s"));
        }
        let prompt = count(&usage["prompt_tokens"]);
        let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
        stats.push_str(&format!(
            "; prompt of {prompt} tokens, {cached} of them cached"
        ));
        if let Some(worker) = self.grid["worker"].as_str() {
            stats.push_str(&format!("; worker {worker}"));
        }
        stats
    }
}

/// The part of an answer that the terminal shows.
struct AnswerScreen {
    /// Thoughts are for people alone.
    with_thoughts: bool,
    is_dim: bool,
    has_text: bool,
    ends_line: bool,
}

impl AnswerScreen {
    fn new(is_chat: bool) -> Self {
        Self {
            with_thoughts: is_chat && io::stdout().is_terminal(),
            is_dim: false,
            has_text: false,
            ends_line: true,
        }
    }

    fn thought(&mut self, text: &str) -> Result<(), Failure> {
        if !self.with_thoughts || text.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.is_dim, true) {
            output::text(DIM)?;
        }
        self.ends_line = text.ends_with('\n');
        output::text(text)
    }

    fn text(&mut self, text: &str) -> Result<(), Failure> {
        // Some models begin with empty lines.
        let text = match self.has_text {
            true => text,
            false => text.trim_start_matches('\n'),
        };
        if text.is_empty() {
            return Ok(());
        }
        self.bright()?;
        self.has_text = true;
        self.ends_line = text.ends_with('\n');
        output::text(text)
    }

    fn bright(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.is_dim) {
            return Ok(());
        }
        let gap = if self.ends_line { "" } else { "\n" };
        output::text(format!("{PLAIN}{gap}"))
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.bright()?;
        match self.ends_line {
            true => Ok(()),
            false => output::text("\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use url::Url;

    use super::{Answer, AnswerScreen, Client};
    use crate::link::native_tls;

    #[test]
    fn addresses_may_name_the_api() {
        let at = |url: &str| {
            let tls = native_tls().unwrap();
            let client = Client::new(Url::parse(url).unwrap(), None, Arc::clone(&tls)).unwrap();
            client.at("v1/models").to_string()
        };
        assert_eq!(at("http://a:1"), "http://a:1/v1/models");
        assert_eq!(at("http://a:1/v1/"), "http://a:1/v1/models");
        assert_eq!(at("http://a:1/b"), "http://a:1/b/v1/models");
    }

    #[test]
    fn events_become_text_and_figures() {
        let (mut answer, mut shown) = (Answer::default(), AnswerScreen::new(false));
        let events = [
            r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"content":"He"}}]}"#,
            r#"{"choices":[{"delta":{"content":"y"}}]}"#,
            r#"{"choices":[],"usage":{"completion_tokens":2,"prompt_tokens":9},"grid":{"tokens_per_s":31.52}}"#,
            "[DONE]",
        ];
        for event in events {
            let event = format!("data: {event}\n\n");
            answer.event(event.as_bytes(), &mut shown).unwrap();
        }
        assert_eq!(answer.text, "Hey");
        assert_eq!(
            answer.stats(),
            "2 tokens at 31.5 tokens/s; prompt of 9 tokens, 0 of them cached"
        );
        let failed = answer.event(b"data: {\"error\":{\"message\":\"no\"}}\n\n", &mut shown);
        assert_eq!(failed.unwrap_err().to_string(), "no");
    }
}
