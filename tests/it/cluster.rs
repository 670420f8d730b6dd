//! Three coordinators of one database, each with its own address: any of them answers whatever comes to it.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use muster::coordinator::storage::{Location, Store};
use muster::protocol::job::Kudos;
use muster::tasks::Tasks;
use muster_testing::{ended, eventually_blocking};
use serde_json::{Value, json};
use sqlx::Connection;
use tempfile::TempDir;

use crate::failover::Server;
use crate::killed::{Process, Service, Stream};
use crate::support::worker::{Worker, worker};

const SECRET: &str = "a secret of 32 characters and more";

/// Coordinators of one cluster; the first that started leads at first.
struct Cluster {
    folder: TempDir,
    database: String,
    nodes: Vec<Service>,
    key: String,
}

impl Cluster {
    fn start(server: &Server, nodes: usize) -> Self {
        let mut cluster = Self {
            folder: tempfile::tempdir().unwrap(),
            database: server.start(),
            nodes: Vec::new(),
            key: String::new(),
        };
        let leader = cluster.node("node-0");
        until(&leader, "ready");
        let key = cluster
            .with_settings(worker(&["key", "create", "--json", "--full"]), None)
            .env(
                "MUSTER_WORKER_DATA_DIR",
                cluster.folder.path().to_str().unwrap(),
            )
            .run()
            .ok();
        let key: Value = serde_json::from_str(&key).unwrap();
        cluster.key = key["key"]
            .as_str()
            .unwrap_or_else(|| panic!("{key}"))
            .to_owned();
        cluster.nodes.push(leader);
        for number in 1..nodes {
            let node = cluster.node(&format!("node-{number}"));
            until(&node, "ready");
            cluster.nodes.push(node);
        }
        for node in &mut cluster.nodes {
            node.key.clone_from(&cluster.key);
        }
        cluster
    }

    fn with_settings(&self, command: Worker, address: Option<&str>) -> Worker {
        let bucket = std::env::var("MUSTER_TEST_S3").expect(
            "MUSTER_TEST_S3 is not set: `./test tests` sets it, and `tests/bucket start FOLDER` prints what to set by hand",
        );
        let command = command
            .env("MUSTER_SERVE_DATABASE", &self.database)
            .env("MUSTER_SERVE_SECRET", SECRET)
            .env("MUSTER_SERVE_MEDIA_BUCKET", "muster")
            .env("MUSTER_SERVE_MEDIA_ENDPOINT", &bucket)
            .env("MUSTER_SERVE_MEDIA_ACCESS_KEY_ID", "test")
            .env("MUSTER_SERVE_MEDIA_SECRET_ACCESS_KEY", "secret");
        match address {
            Some(address) => command.env("MUSTER_CLUSTER_ADDRESS", address),
            None => command,
        }
    }

    fn node(&self, name: &str) -> Service {
        self.node_with(name, SECRET)
    }

    fn node_with(&self, name: &str, secret: &str) -> Service {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        self.node_at(name, secret, &address)
    }

    fn node_at(&self, name: &str, secret: &str, address: &str) -> Service {
        let url = format!("http://{address}");
        let folder = self.folder.path();
        let command = worker(&["serve", "--listen", address, "--data-dir"]);
        let mut command = self
            .with_settings(command, Some(&url))
            .env("MUSTER_SERVE_SECRET", secret)
            .command();
        let log = folder.join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let command = command.arg(folder.join(name)).stdout(Stdio::null());
        Service {
            process: Process(command.stderr(log).spawn().unwrap()),
            url,
            key: self.key.clone(),
        }
    }

    /// A TCP balancer before all nodes, in the shape of a node.
    fn balancer(&self) -> Service {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/balancer.py");
        let file = self.folder.path().join("balancer");
        let mut command = Command::new("python3");
        command.arg(script).arg(&file);
        let addresses = self.nodes.iter().map(Service::address);
        let child = command.args(addresses).spawn().unwrap();
        let url = eventually_blocking("the balancer to listen", || {
            std::fs::read_to_string(&file).map_err(|error| error.to_string())
        });
        Service {
            process: Process(child),
            url: url.trim().to_owned(),
            key: self.key.clone(),
        }
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap()
    }

    /// The ledger is whole, and so many jobs were settled.
    async fn assert_settled(&self, jobs: i64) {
        let location = Location::parse(&self.database).unwrap();
        let tasks = Tasks::default();
        let store = Store::open(&location, &tasks).await.unwrap();
        let sums = store.ledger_sums().await.unwrap();
        assert_eq!((sums.entries, sums.balances), (Kudos(0), Kudos(0)));
        assert_eq!((sums.wrong_jobs, sums.wrong_balances), (0, 0));
        let mut connection = sqlx::AnyConnection::connect(&self.database).await.unwrap();
        let row = sqlx::Executor::fetch_one(&mut connection, "SELECT COUNT(*) FROM settled");
        let settled: i64 = sqlx::Row::try_get(&row.await.unwrap(), 0).unwrap();
        assert_eq!(settled, jobs);
        tasks.stop(Duration::from_secs(5)).await;
    }
}

fn curl(arguments: &[&str]) -> String {
    let out = Command::new("curl").args(arguments).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

fn health(node: &Service) -> Value {
    let text = curl(&["-s", "-m", "1", &format!("{}/health/ready", node.url)]);
    serde_json::from_str(&text).unwrap_or_default()
}

fn until(node: &Service, status: &str) {
    eventually_blocking("the status of a coordinator", || {
        let now = health(node);
        (now["status"] == status)
            .then_some(())
            .ok_or(format!("{now}, wanted {status}"))
    });
}

/// A call to the AI Horde API or `/v1`.
fn call(node: &Service, method: &str, path: &str, body: &Value) -> Value {
    let key = format!("apikey: {}", node.key);
    let (url, body) = (format!("{}{path}", node.url), body.to_string());
    let json = "content-type: application/json";
    let answer = curl(&[
        "-s", "-m", "60", "-X", method, "-d", &body, "-H", &key, "-H", json, &url,
    ]);
    serde_json::from_str(&answer).unwrap_or(Value::String(answer))
}

#[tokio::test(flavor = "multi_thread")]
async fn any_coordinator_answers_any_request_as_one_would() {
    let server = Server::new();
    let cluster = Cluster::start(&server, 3);
    let [leader, second, third] = &cluster.nodes[..] else {
        unreachable!()
    };
    assert_eq!(health(second)["role"], "follower");
    assert_eq!(health(second)["leader"], leader.url.as_str());
    // A request, its job, its result and its status, each at another coordinator.
    let asked = json!({"prompt": "Once", "models": ["any"], "params": {"n": 2}});
    let accepted = call(second, "POST", "/api/v2/generate/text/async", &asked);
    let id = accepted["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{accepted}"));
    let poller = json!({"name": "poller", "models": ["any"], "bridge_agent": "test:1:url"});
    for (pops, submits) in [(third, leader), (second, third)] {
        let popped = call(pops, "POST", "/api/v2/generate/text/pop", &poller);
        let result = json!({"id": popped["id"], "generation": "a text"});
        let paid = call(submits, "POST", "/api/v2/generate/text/submit", &result);
        assert!(paid["reward"].is_number(), "{popped} {paid}");
        // What comes twice is paid once.
        let again = call(pops, "POST", "/api/v2/generate/text/submit", &result);
        assert!(again["reward"].is_null() || again == paid, "{again}");
    }
    let status = format!("/api/v2/generate/text/status/{id}");
    let done = call(third, "GET", &status, &json!({}));
    assert_eq!(
        (&done["done"], &done["finished"]),
        (&json!(true), &json!(2)),
        "{done}"
    );
    // A worker at one of them, a stream at another, a stored response at two.
    let _worker = second.worker(cluster.folder.path(), "at-the-second");
    let (text, _) = Stream::open(third.story(7, true)).read_all();
    assert_eq!(text, leader.told(7));
    let asked = json!({"model": "demo-text", "input": "Say hello.", "store": true});
    let created = call(leader, "POST", "/v1/responses", &asked);
    let path = format!(
        "/v1/responses/{}",
        created["id"].as_str().unwrap_or_default()
    );
    assert_eq!(
        call(third, "GET", &path, &json!({}))["id"],
        created["id"],
        "{created}"
    );
    // Counted where they came in.
    let metrics = curl(&["-s", &format!("{}/metrics", third.url)]);
    assert!(metrics.contains("muster_cluster_leader 0\n"), "{metrics}");
    let metrics = curl(&["-s", &format!("{}/metrics", leader.url)]);
    assert!(metrics.contains("muster_cluster_leader 1\n"), "{metrics}");
    assert!(metrics.contains("muster_cluster_nodes 3\n"), "{metrics}");
    let all = curl(&["-s", &format!("{}/health", second.url)]);
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!(
        all["cluster"]["nodes"].as_array().unwrap().len(),
        3,
        "{all}"
    );
    // Only coordinators may forward requests.
    let forged = "muster-forwarded: 1 127.0.0.1 00";
    let refused = curl(&["-s", "-H", forged, &format!("{}/v1/models", leader.url)]);
    assert!(refused.contains("muster-forwarded"), "{refused}");
    cluster.assert_settled(5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_replaced_and_requests_at_the_others_wait_for_the_next() {
    let server = Server::new();
    let mut cluster = Cluster::start(&server, 3);
    let worker = cluster.nodes[1].worker(cluster.folder.path(), "at-the-second");
    let asked = json!({"prompt": "Once", "models": ["any"]});
    let accepted = call(
        &cluster.nodes[2],
        "POST",
        "/api/v2/generate/text/async",
        &asked,
    );
    let id = accepted["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{accepted}"))
        .to_owned();
    let expected = cluster.nodes[0].told(3);
    let leader = cluster.nodes.remove(0);
    drop(leader);
    // Both calls are made while no coordinator leads.
    let told = std::thread::scope(|scope| {
        let [second, third] = &cluster.nodes[..] else {
            unreachable!()
        };
        let models = scope.spawn(|| call(second, "GET", "/v1/models", &json!({})));
        let status = format!("/api/v2/generate/text/status/{id}");
        let waiting = scope.spawn(move || call(third, "GET", &status, &json!({})));
        let models = models.join().unwrap();
        assert!(models["data"].is_array(), "{models}");
        let waiting = waiting.join().unwrap();
        assert_eq!(waiting["waiting"], 1, "{waiting}");
        // The worker comes back by itself, to the address that it has.
        eventually_blocking("the worker to connect again", || {
            third.workers().contains(&"at-the-second".to_owned())
        });
        third.told(3)
    });
    assert_eq!(told, expected);
    let leads = cluster
        .nodes
        .iter()
        .filter(|node| health(node)["role"].is_null());
    assert_eq!(leads.count(), 1);
    // A clean stop of the next leader hands over as well.
    let at = cluster
        .nodes
        .iter()
        .position(|node| health(node)["role"].is_null());
    let mut next = cluster.nodes.remove(at.unwrap());
    next.process.signal("-TERM");
    let last = &cluster.nodes[0];
    eventually_blocking("the last coordinator to lead", || {
        let now = health(last);
        (now["status"] == "ready" && now["role"].is_null())
            .then_some(())
            .ok_or(now.to_string())
    });
    assert!(ended(&mut next.process.0).success());
    let waiting = call(
        last,
        "GET",
        &format!("/api/v2/generate/text/status/{id}"),
        &json!({}),
    );
    assert_eq!(waiting["waiting"], 1, "{waiting}");
    drop(worker);
    cluster.assert_settled(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_at_other_coordinators_go_on_when_the_leader_is_killed() {
    let server = Server::new();
    let mut cluster = Cluster::start(&server, 3);
    let _worker = cluster.nodes[1].worker(cluster.folder.path(), "at-the-second");
    let both = |stream: bool| {
        json!({
            "model": "demo-text", "stream": stream, "seed": 11, "temperature": 1.2, "max_tokens": 500, "n": 2,
            "stream_options": stream.then(|| json!({"include_usage": true})),
            "logit_bias": { "1": -100, "2": -100, "3": -100 },
            "messages": [{ "role": "user", "content": "Tell me two stories." }],
        })
    };
    let leader = cluster.nodes.remove(0);
    let [second, third] = &cluster.nodes[..] else {
        unreachable!()
    };
    let expected = (leader.told(5), leader.reply(leader.chat(&both(false))));
    let expected_plain = leader.told(8);
    let mut story = Stream::open(second.story(5, true));
    // With and without a key for repetitions.
    let keyed = |key: &str, mut request: Command| {
        let header = format!("idempotency-key: {key}");
        request.args(["-H", &header]);
        request
    };
    let mut stories = Stream::open(keyed("stories", third.chat(&both(true))));
    let plain = keyed("plain", third.story(8, false)).spawn().unwrap();
    story.read_some();
    // A stream without a word is told again, and does not go on.
    stories.read_some();
    eventually_blocking("four jobs to run", || {
        curl(&["-s", &format!("{}/metrics", leader.url)]).contains("\nmuster_jobs_running 4")
    });
    drop(leader);
    let (text, usage) = story.read_all();
    assert_eq!(text, expected.0);
    assert_eq!(usage["completion_tokens"].as_u64(), Some(700), "{usage}");
    let (texts, usage) = stories.read_both();
    for (index, text) in texts.iter().enumerate() {
        let whole = &expected.1["choices"][index]["message"]["content"];
        assert_eq!(text, whole.as_str().unwrap(), "choice {index}");
    }
    assert_eq!(
        usage["completion_tokens"],
        expected.1["usage"]["completion_tokens"]
    );
    for (node, streams) in [(second, 1), (third, 1)] {
        let metrics = curl(&["-s", &format!("{}/metrics", node.url)]);
        let line = format!("muster_cluster_continued_streams_total {streams}\n");
        // The next leader is one of them, and has the counter as well.
        assert!(metrics.contains(&line), "{metrics}");
    }
    // A text that is not streamed is told again.
    let plain = plain.wait_with_output().unwrap().stdout;
    let plain: Value = serde_json::from_slice(&plain).unwrap();
    let told = &plain["choices"][0]["message"]["content"];
    assert_eq!(told, &expected_plain, "{plain}");
    let again = keyed("plain", second.story(8, false)).output();
    let again = again.unwrap().stdout;
    let again: Value = serde_json::from_slice(&again).unwrap();
    assert_eq!(again, plain);
    // Each job once, whichever coordinator ended it.
    cluster.assert_settled(8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_hands_over_within_seconds_and_texts_go_on_at_every_node() {
    let server = Server::new();
    let mut cluster = Cluster::start(&server, 3);
    let _worker = cluster.nodes[1].worker(cluster.folder.path(), "at-the-second");
    let [leader, second, third] = &cluster.nodes[..] else {
        unreachable!()
    };
    let expected: Vec<String> = (1..=4).map(|seed| leader.told(seed)).collect();
    let mut streams = [
        Stream::open(leader.story(1, true)),
        Stream::open(second.story(2, true)),
    ];
    let plain = [(leader, 3), (third, 4)].map(|(node, seed)| {
        let story = node.story(seed, false).spawn();
        story.unwrap()
    });
    streams.iter_mut().for_each(Stream::read_some);
    eventually_blocking("four jobs to run", || {
        curl(&["-s", &format!("{}/metrics", leader.url)]).contains("\nmuster_jobs_running 4")
    });
    let stopped = Instant::now();
    leader.process.signal("-TERM");
    eventually_blocking("the next leader", || {
        let leads =
            |node: &&Service| health(node)["status"] == "ready" && health(node)["role"].is_null();
        [second, third].iter().any(leads)
    });
    let took = stopped.elapsed();
    eprintln!("a stopped leader was replaced in {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    for (stream, expected) in streams.into_iter().zip(&expected) {
        let (text, usage) = stream.read_all();
        assert_eq!(&text, expected);
        assert_eq!(usage["completion_tokens"], 700);
    }
    for (told, expected) in plain.into_iter().zip(&expected[2..]) {
        let reply = String::from_utf8(told.wait_with_output().unwrap().stdout).unwrap();
        let told: Value = serde_json::from_str(&reply).unwrap();
        let told = &told["choices"][0]["message"]["content"];
        assert_eq!(told, expected, "{reply}");
    }
    let status = ended(&mut cluster.nodes[0].process.0);
    let log = cluster.log("node-0");
    assert!(status.success(), "{log}");
    assert!(log.contains("another coordinator leads"), "{log}");
    cluster.assert_settled(8).await;
}

/// Sends the request through the balancer until it is served. A 503 with `Retry-After` is repeated.
fn insist(balancer: &Service, body: &Value, refused: &AtomicI64) -> String {
    let (key, body) = (format!("apikey: {}", balancer.key), body.to_string());
    let url = format!("{}/v1/chat/completions", balancer.url);
    eventually_blocking("a request to be served", || {
        let answer = curl(&["-siN", "-m", "120", "-d", &body, "-H", &key, &url]);
        let (head, reply) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if head.starts_with("HTTP/1.1 200") {
            return Ok(reply.to_owned());
        }
        let has_time = head.to_ascii_lowercase().contains("\r\nretry-after: ");
        assert!(head.starts_with("HTTP/1.1 503") && has_time, "{answer:?}");
        refused.fetch_add(1, Ordering::Relaxed);
        Err(answer)
    })
}

/// The text of a reply, in one piece or streamed.
fn text_of(reply: &str, is_streamed: bool) -> String {
    let content = |chunk: &str, field: &str| {
        let chunk: Value = serde_json::from_str(chunk).unwrap();
        let content = chunk["choices"][0][field]["content"].as_str();
        content.unwrap_or_default().to_owned()
    };
    if !is_streamed {
        return content(reply, "message");
    }
    assert!(reply.trim_end().ends_with("data: [DONE]"), "{reply}");
    let chunks = reply
        .lines()
        .filter_map(|line| line.strip_prefix("data: {"));
    chunks
        .map(|chunk| content(&format!("{{{chunk}"), "delta"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_restarted_one_by_one_under_load_and_every_request_is_served() {
    let server = Server::new();
    let mut cluster = Cluster::start(&server, 3);
    let balancer = cluster.balancer();
    let _worker = balancer.worker(cluster.folder.path(), "behind-the-balancer");
    let request = |seed: u64, is_streamed: bool| {
        json!({
            "model": "demo-text", "stream": is_streamed, "seed": seed, "temperature": 1.2, "max_tokens": 300,
            "logit_bias": { "1": -100, "2": -100, "3": -100 },
            "messages": [{ "role": "user", "content": "Tell me a story." }],
        })
    };
    let refused = AtomicI64::new(0);
    let expected: Vec<String> = (0..4)
        .map(|seed| text_of(&insist(&balancer, &request(seed, false), &refused), false))
        .collect();
    let (served, is_over) = (AtomicI64::new(4), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (seed, expected) in (0..).zip(&expected) {
            let is_streamed = seed % 2 == 0;
            let (balancer, refused) = (&balancer, &refused);
            let (served, is_over) = (&served, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let reply = insist(balancer, &request(seed, is_streamed), refused);
                    assert_eq!(&text_of(&reply, is_streamed), expected);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Ends the load if a restart fails.
        let _over = Over(&is_over);
        for number in 0..cluster.nodes.len() {
            let before = served.load(Ordering::Relaxed);
            eventually_blocking("requests served since the last restart", || {
                served.load(Ordering::Relaxed) >= before + 4
            });
            let node = &mut cluster.nodes[number];
            node.process.signal("-TERM");
            let (status, address) = (ended(&mut node.process.0), node.address());
            let name = format!("node-{number}");
            assert!(status.success(), "{}", cluster.log(&name));
            let again = cluster.node_at(&name, SECRET, &address);
            until(&again, "ready");
            cluster.nodes[number] = again;
        }
    });
    let served = served.into_inner();
    let refused = refused.into_inner();
    eprintln!("{served} requests were served, {refused} times one was to be repeated");
    cluster.assert_settled(served).await;
}

/// Sets the flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_is_no_cluster_is_refused_by_name() {
    let server = Server::new();
    let cluster = Cluster::start(&server, 1);
    let mut other = cluster.node_with("other", "another secret of 32 characters or more");
    assert!(!ended(&mut other.process.0).success());
    let log = cluster.log("other");
    assert!(log.contains("does not match the database"), "{log}");
    let check = |unset: &str, message: &str| {
        let command = worker(&["serve", "--listen", "127.0.0.1:0"]);
        let mut command = cluster
            .with_settings(command, Some("http://127.0.0.1:7010"))
            .env(
                "MUSTER_WORKER_DATA_DIR",
                Path::new("/nonexistent").to_str().unwrap(),
            )
            .command();
        command.env_remove(unset);
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            !out.status.success() && said.contains(message),
            "{unset}: {said}"
        );
    };
    check("MUSTER_SERVE_DATABASE", "needs a PostgreSQL server");
    check("MUSTER_SERVE_MEDIA_BUCKET", "needs serve.media.bucket");
    check("MUSTER_SERVE_SECRET", "needs serve.secret");
    let up = worker(&["up", "--quiet"]);
    let up = cluster
        .with_settings(up, Some("http://127.0.0.1:7010"))
        .env(
            "MUSTER_WORKER_DATA_DIR",
            cluster.folder.path().join("up").to_str().unwrap(),
        );
    let out = up.command().output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        said.contains("start the coordinators of a cluster with `worker serve`"),
        "{said}"
    );
}
