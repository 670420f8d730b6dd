//! The owner's page of a worker, over HTTP.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use muster_testing::{Lines, PATIENCE, eventually_blocking};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::hub::FakeHub;
use crate::support::worker::{OWNER_PAGE, worker};

/// A worker with its page, killed when its test ends.
struct PageOfWorker {
    child: Child,
    log: Lines,
    folder: TempDir,
    /// Where the page listens, and its token.
    address: String,
    token: String,
}

impl Drop for PageOfWorker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reply of the page.
struct PageReply {
    status: u16,
    head: String,
    body: String,
}

impl PageReply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl PageOfWorker {
    /// Returns once the worker is ready.
    fn start(configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start_in(folder, configuration, &[("MUSTER_HUB_OFFLINE", "true")])
    }

    fn start_in(folder: TempDir, configuration: &str, variables: &[(&str, &str)]) -> Self {
        fs::write(folder.path().join("worker.toml"), configuration).unwrap();
        let (mut child, mut log) = start(&folder, variables);
        log.until("ready; SIGTERM");
        let data = folder.path().join("data");
        let printed = worker(&["page", "--json", "--data-dir", data.to_str().unwrap()]).run();
        if printed.code != 0 {
            let _ = child.kill();
            panic!("{}\n{}", printed.stderr, log.text());
        }
        let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
        let link = printed["link"].as_str().unwrap();
        let (url, token) = link.split_once("#token=").unwrap();
        assert_eq!(printed["url"], url);
        let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
        Self {
            child,
            log,
            folder,
            address: address.to_owned(),
            token: token.to_owned(),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("worker.toml")
    }

    /// The reply to one request with these headers.
    fn raw(&self, method: &str, path: &str, headers: &str, body: &str) -> PageReply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        PageReply {
            status,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    fn host(&self) -> String {
        format!("host: {}\r\n", self.address)
    }

    fn with_token(&self) -> String {
        let host = self.host();
        format!(
            "{host}authorization: Bearer {}\r\ncontent-type: application/json\r\n",
            self.token
        )
    }

    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let reply = self.raw("GET", path, &self.with_token(), "");
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        reply.json()
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> PageReply {
        self.raw(method, path, &self.with_token(), &body.to_string())
    }
}

fn start(folder: &TempDir, variables: &[(&str, &str)]) -> (Child, Lines) {
    let file = folder.path().join("worker.toml");
    let data = folder.path().join("data");
    let arguments = [
        "--config",
        file.to_str().unwrap(),
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let mut command = worker(&arguments).command();
    command.env_remove(OWNER_PAGE).stdin(Stdio::null());
    command.envs(variables.iter().copied());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let log = Lines::of(child.stderr.take().unwrap());
    (child, log)
}

const CONFIGURATION: &str = "[models]\nserve = [\"demo-text\"]\n[owner]\npage = \"127.0.0.1:0\"\n";

#[test]
fn the_owners_page_needs_its_token_and_a_name_of_this_machine() {
    let page = PageOfWorker::start(CONFIGURATION);
    let host = page.host();
    let opened = page.raw("GET", "/", &host, "");
    assert_eq!(opened.status, 200);
    assert!(opened.body.contains("Why no jobs come"));
    assert!(!opened.body.contains(&page.token));
    assert!(
        opened
            .head
            .contains("content-security-policy: default-src 'none'; style-src 'sha256-")
    );
    assert!(
        opened.head.contains("frame-ancestors 'none'"),
        "{}",
        opened.head
    );

    let check = |headers: &str, status: u16| {
        for path in ["/api/status", "/api/nothing"] {
            let reply = page.raw("GET", path, headers, "");
            assert_eq!(reply.status, status, "{path} {headers}: {}", reply.body);
            assert!(
                !reply.head.contains("access-control-allow"),
                "{}",
                reply.head
            );
        }
    };
    check(&host, 401);
    check(
        &format!("{host}authorization: Bearer {}x\r\n", page.token),
        401,
    );
    check(&format!("{host}cookie: token={}\r\n", page.token), 401);
    let token = format!("authorization: Bearer {}\r\n", page.token);
    check(&format!("host: evil.example\r\n{token}"), 403);
    check(
        &format!("{host}{token}origin: https://evil.example\r\n"),
        403,
    );
    check(&format!("{host}{token}sec-fetch-site: cross-site\r\n"), 403);
    let opened = page.raw("GET", "/", "host: evil.example\r\n", "");
    assert_eq!(opened.status, 403);
    let preflight = format!("{host}access-control-request-method: POST\r\n");
    let preflight = page.raw("OPTIONS", "/api/pause", &preflight, "");
    assert_eq!(preflight.status, 401, "{}", preflight.head);

    let report = page.get("/api/status");
    assert_eq!(report["models"][0]["name"], "demo-text", "{report}");
    let url = format!("http://{}/", page.address);
    assert_eq!(report["page"], url, "{report}");
    let nothing = page.raw("GET", "/api/nothing", &page.with_token(), "");
    assert_eq!(nothing.status, 404);
    let data = page.folder.path().join("data");
    let shown = worker(&["status", "--data-dir", data.to_str().unwrap()])
        .run()
        .ok();
    assert!(shown.contains(&format!("page: {url}")), "{shown}");
    let log = page.log.text();
    assert!(log.contains(&url) && !log.contains(&page.token), "{log}");
}

#[test]
fn the_owners_page_pauses_and_resumes_the_worker() {
    let page = PageOfWorker::start(CONFIGURATION);
    let paused = page.send("POST", "/api/pause", &json!({"seconds": 3600}));
    assert_eq!(paused.status, 200, "{}", paused.body);
    assert_eq!(paused.json()["state"], "paused");
    let report = page.get("/api/status");
    assert_eq!(report["pause"]["state"], "paused", "{report}");
    assert!(report["pause"]["until"].as_i64() > Some(0), "{report}");
    assert_eq!(report["no_jobs"][0]["cause"], "paused", "{report}");
    let resumed = page.send("POST", "/api/resume", &json!({}));
    assert_eq!(resumed.json()["state"], "open", "{}", resumed.body);
    assert!(page.get("/api/status")["pause"].is_null());
    let refused = page.send("POST", "/api/pause", &json!({"seconds": "long"}));
    assert!(refused.json()["error"].is_string() && refused.status >= 400);
    let plain = format!("{}authorization: Bearer {}\r\n", page.host(), page.token);
    let plain = page.raw("POST", "/api/pause", &plain, "{\"seconds\": 60}");
    assert_eq!(plain.status, 415, "{}", plain.body);
    assert!(page.get("/api/status")["pause"].is_null());
}

#[test]
fn a_worker_whose_page_has_no_port_works_without_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker.toml");
    fs::write(
        &file,
        CONFIGURATION.replace("127.0.0.1:0", &address.to_string()),
    )
    .unwrap();
    let (mut child, mut log) = start(&folder, &[("MUSTER_HUB_OFFLINE", "true")]);
    log.until("the owner's page is not served");
    log.until("ready; SIGTERM");
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let said = worker(&["page", "--data-dir", data])
        .run()
        .fails(69, "serves no page");
    assert!(said.contains("owner.page"), "{said}");
    worker(&["pause", "--data-dir", data]).run().ok();
    child.kill().unwrap();
    child.wait().unwrap();
    worker(&["page", "--data-dir", data])
        .run()
        .fails(69, "no worker runs");
}

#[test]
fn rules_changed_on_the_page_keep_comments_and_are_in_force() {
    let configuration = "# My worker.\n[models]\nserve = [\"demo-text\"] # the small one\n\n[owner]\n\
        page = \"127.0.0.1:0\"\n# Never while I play.\npause_for = [\"muster-no-game\"] # that one\nresume_after = \"0s\"\n\n\
        # Nothing else.\n[hub]\noffline = true\n";
    let page = PageOfWorker::start(configuration);
    let settings = page.get("/api/settings");
    let file = page.file();
    assert_eq!(settings["file"], file.to_str().unwrap(), "{settings}");
    let setting = |settings: &Value, name: &str| {
        let mut all = settings["settings"].as_array().unwrap().iter();
        all.find(|one| one["name"] == name).unwrap().clone()
    };
    let known = setting(&settings, "owner.pause_for");
    assert_eq!(known["value"], "[\"muster-no-game\"]", "{known}");
    assert_eq!(known["is_in_file"], true, "{known}");
    assert_eq!(known["needs_restart"], false, "{known}");
    let address = setting(&settings, "owner.page");
    assert_eq!(address["needs_restart"], true, "{address}");

    let change = |name: &str, value: Value| {
        let reply = page.send("PUT", "/api/settings", &json!({name: value}));
        (reply.status, reply.json())
    };
    let (status, reply) = change("owner.pause_for", json!("muster-no-game, sleep-no-more"));
    assert_eq!(
        (status, &reply["is_in_force"]),
        (200, &json!(true)),
        "{reply}"
    );
    let rules = page.get("/api/status")["rules"].clone();
    assert_eq!(rules[0], "owner.pause_for = muster-no-game, sleep-no-more");
    let text = fs::read_to_string(&file).unwrap();
    let expected = configuration.replace(
        "[\"muster-no-game\"]",
        "[\"muster-no-game\", \"sleep-no-more\"]",
    );
    assert_eq!(text, expected);

    let folder = tempfile::tempdir().unwrap();
    let game = folder.path().join("muster-page");
    fs::copy("/bin/sleep", &game).unwrap();
    let mut game = Command::new(game).arg("600").spawn().unwrap();
    let (status, reply) = change("owner.pause_for", json!(["muster-page"]));
    assert_eq!(status, 200, "{reply}");
    eventually_blocking("the rule to be in force", || {
        let report = page.get("/api/status");
        let reason = report["pause"]["reasons"][0].clone();
        match reason == "while muster-page runs (owner.pause_for)" {
            true => Ok(()),
            false => Err(report),
        }
    });
    let (status, reply) = change("owner.pause_for", Value::Null);
    assert_eq!(
        (status, &reply["is_in_force"]),
        (200, &json!(true)),
        "{reply}"
    );
    eventually_blocking("jobs to be taken again", || {
        let report = page.get("/api/status");
        match report["pause"].is_null() {
            true => Ok(()),
            false => Err(report),
        }
    });
    game.kill().unwrap();
    game.wait().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    for kept in [
        "# My worker.",
        "# the small one",
        "# Never while I play.",
        "# that one",
        "# Nothing else.",
    ] {
        assert!(text.contains(kept), "{kept} left:\n{text}");
    }
    assert!(!text.contains("pause_for"), "{text}");

    let before = text;
    let (status, reply) = change("owner.others_load", json!("500"));
    assert_eq!(status, 400);
    let error = reply["error"].as_str().unwrap();
    assert!(
        error.contains("owner.others_load must be an integer from 1 to 100"),
        "{error}"
    );
    let (status, reply) = change("serve.listen", json!("0.0.0.0:80"));
    assert_eq!(status, 400, "{reply}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
}

#[test]
fn the_page_has_plots_the_log_and_the_doctor() {
    let page = PageOfWorker::start(&format!(
        "{CONFIGURATION}energy_price = 0.4\nkudos_worth = 2\n"
    ));
    for (span, bins) in [("day", 144), ("week", 168)] {
        let report = page.get(&format!("/api/history?span={span}"));
        assert_eq!(report["bins"].as_array().unwrap().len(), bins);
        assert_eq!(report["energy_price"], 0.4, "{report}");
        assert_eq!(report["kudos_worth"], 2.0, "{report}");
    }
    let refused = page.raw("GET", "/api/history?span=year", &page.with_token(), "");
    assert_eq!(refused.status, 400);
    let log = page.get("/api/log");
    let lines = log["lines"].as_array().unwrap();
    let is_ready = |line: &Value| line["text"].as_str().unwrap().contains("ready; SIGTERM");
    let ready = lines.iter().find(|line| is_ready(line));
    let number = ready.expect("the log has its line")["number"]
        .as_u64()
        .unwrap();
    let later = page.get(&format!("/api/log?after={number}"));
    assert!(
        !later["lines"].as_array().unwrap().iter().any(is_ready),
        "{later}"
    );
    let examined = page.send("POST", "/api/doctor", &json!({})).json();
    let checks = examined["checks"].as_array().unwrap();
    let check = |name: &str| {
        let found = checks.iter().find(|check| check["check"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {examined}"))
    };
    assert_eq!(check("configuration")["verdict"], "ok", "{examined}");
    assert_eq!(check("models")["finding"], "demo-text is on disk");
    assert!(
        check("coordinators")["advice"]
            .as_str()
            .unwrap()
            .contains("worker join")
    );
}

const TINY: &str = "description = \"Nonsense.\"\nfamily = \"llama\"\nkind = \"text\"\nlicence = \"MIT\"\n\
    context = 2048\ndefault_quantization = \"f32\"\n[sources.f32]\nrepository = \"org/model\"\n\
    files = [{ path = \"tiny-llama.gguf\" }]\n[shape]\nlayers = 2\nkv_heads = 2\nhead_dim = 16\n";

#[test]
fn a_model_is_downloaded_on_the_page_and_served() {
    let hub = FakeHub::start();
    let root = env!("CARGO_MANIFEST_DIR");
    let weights = fs::read(format!("{root}/tests/fixtures/tiny-llama.gguf")).unwrap();
    hub.large_file("tiny-llama.gguf", weights.clone());
    let folder = tempfile::tempdir().unwrap();
    let catalog = folder.path().join("catalog");
    fs::create_dir(&catalog).unwrap();
    for (name, parameters) in [("tiny", "189_000"), ("huge", "9_000_000_000_000")] {
        let names = format!("[names]\nv1 = [\"{name}\"]\nlegacy = []\n");
        let entry = format!("id = \"{name}\"\n{TINY}parameters = {parameters}\n{names}");
        fs::write(catalog.join(format!("{name}.toml")), entry).unwrap();
    }
    let configuration = format!(
        "{CONFIGURATION}[hub]\ncache_dir = \"cache\"\nendpoint = \"{}\"\n",
        hub.endpoint
    );
    let configuration = configuration.replace("[models]", "[models]\ndir = \"catalog\"");
    let page = PageOfWorker::start_in(folder, &configuration, &[]);
    let listed = page.get("/api/models");
    let model = |listed: &Value, name: &str| {
        let mut all = listed["models"].as_array().unwrap().iter();
        all.find(|one| one["name"] == name).unwrap().clone()
    };
    let tiny = model(&listed, "tiny");
    assert_eq!(
        (&tiny["fits"], &tiny["is_on_disk"]),
        (&json!("now"), &json!(false)),
        "{tiny}"
    );
    let huge = model(&listed, "huge");
    assert_eq!(huge["fits"], "no", "{huge}");
    assert!(
        huge["refusal"].as_str().unwrap().contains("needs "),
        "{huge}"
    );

    let pull = |name: &str| page.send("POST", "/api/models/pull", &json!({"name": name}));
    assert_eq!(pull("tinny").status, 404);
    let state = |name: &str| {
        let listed = page.get("/api/models");
        let mut all = listed["pulls"].as_array().unwrap().iter();
        all.find(|one| one["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    // A model that does not fit is refused before it is brought.
    assert_eq!(pull("huge").status, 202);
    let refused = eventually_blocking("the refusal", || {
        let pull = state("huge");
        match pull["state"] == "failed" {
            true => Ok(pull),
            false => Err(pull),
        }
    });
    assert!(
        refused["text"]
            .as_str()
            .unwrap()
            .contains("huge does not fit"),
        "{refused}"
    );
    assert_eq!(hub.served_bytes(), 0);

    hub.hold_after(100_000);
    assert_eq!(pull("tiny").status, 202);
    let length = weights.len();
    eventually_blocking("the hub to say how much comes", || {
        let pull = state("tiny");
        match pull["state"] == "downloading" && pull["total_bytes"] == length {
            true => Ok(()),
            false => Err(pull),
        }
    });
    let stopped = page.send("POST", "/api/models/stop", &json!({"name": "tiny"}));
    assert_eq!(stopped.status, 200, "{}", stopped.body);
    eventually_blocking("the end of the download", || {
        let pull = state("tiny");
        match pull["state"] == "failed" {
            true => Ok(()),
            false => Err(pull),
        }
    });
    hub.release();
    assert_eq!(pull("tiny").status, 202);
    let done = eventually_blocking("the model to be served", || {
        let pull = state("tiny");
        match pull["state"] == "done" {
            true => Ok(pull),
            false => Err(pull),
        }
    });
    assert_eq!(done["received_bytes"], length, "{done}");
    assert!(
        done["text"].as_str().unwrap().contains("loaded tiny"),
        "{done}"
    );
    let report = page.get("/api/status");
    let mut served = report["models"].as_array().unwrap().iter();
    assert!(served.any(|model| model["name"] == "tiny"), "{report}");
    let unloaded = page.send("POST", "/api/models/unload", &json!({"name": "tiny"}));
    assert_eq!(unloaded.json()["state"], "unloaded", "{}", unloaded.body);
    assert_eq!(model(&page.get("/api/models"), "tiny")["is_on_disk"], true);
}

#[cfg(feature = "coordinator")]
#[test]
fn administrators_of_up_get_the_link_to_the_page_of_its_worker() {
    use crate::operator::ask;

    let folder = tempfile::tempdir().unwrap();
    let up = crate::up::up_with(folder.path(), &[(OWNER_PAGE, "127.0.0.1:0")]);
    let address = up.url.strip_prefix("http://").unwrap();
    let call = |method: &str, path: &str, key: &str, body: &str| -> Value {
        let headers = format!("authorization: Bearer {key}\r\ncontent-type: application/json\r\n");
        let reply = ask(address, method, path, &headers, body);
        serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let account = call("GET", "/v1/account", &up.key, "");
    let link = account["worker_page"].as_str().unwrap();
    let printed = crate::up::beside(folder.path(), &["page"]);
    assert_eq!(printed.trim_end(), link);
    let (url, token) = link.split_once("#token=").unwrap();
    let page = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let headers = format!("authorization: Bearer {token}\r\n");
    let report = ask(page, "GET", "/api/status", &headers, "");
    assert!(report.contains("demo-text"), "{report}");
    // Without a file of the owner's, the rules are kept in one of the data folder.
    let headers = format!("{headers}content-type: application/json\r\n");
    let rule = r#"{"owner.most_heat": "80"}"#;
    let changed = ask(page, "PUT", "/api/settings", &headers, rule);
    assert!(changed.contains(r#""is_in_force":true"#), "{changed}");
    let file = folder.path().join("data/owner.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.ends_with("[owner]\nmost_heat = 80\n"), "{text}");
    let settings = ask(page, "GET", "/api/settings", &headers, "");
    assert!(settings.contains(file.to_str().unwrap()), "{settings}");
    // The demand at the coordinator is asked for, as it is at one elsewhere.
    let report = eventually_blocking("the inquiry", || {
        let report = crate::up::beside(folder.path(), &["status", "--json"]);
        let report: Value = serde_json::from_str(&report).unwrap();
        let causes = report["worker"]["no_jobs"].clone();
        match causes[0]["model"] == "demo-text" {
            true => Ok(report["worker"]["rules"].clone()),
            false => Err(causes),
        }
    });
    assert_eq!(report, json!(["owner.most_heat = 80 °C"]));
    // A key that reads the account does not operate the worker.
    let wanted = r#"{"label": "reader", "scopes": ["account.read"]}"#;
    let made = call("POST", "/v1/account/keys", &up.key, wanted);
    let account = call("GET", "/v1/account", made["api_key"].as_str().unwrap(), "");
    assert!(account["worker_page"].is_null(), "{account}");
}
