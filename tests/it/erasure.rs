//! Accounts that are deleted, suspended and exported by the API: nothing of a deleted account is left in the files.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::accounts::KeyOrder;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{AccountId, Kudos};
use muster::runtime::maker::SamplePipeline;
use muster_testing::eventually;
use serde_json::{Value, json};

use super::media_jobs::studio;
use super::support::app::{Answer, App, request};
use super::support::puppet::{Puppet, started, text};

/// A user's account with a key of every scope.
struct User<'a> {
    app: &'a App,
    id: AccountId,
    key: String,
}

impl<'a> User<'a> {
    async fn new(app: &'a App, name: &str, roles: Roles) -> Self {
        let id = app.accounts.create_account(name, roles).await.unwrap();
        let order = KeyOrder {
            label: format!("label of {name}"),
            scopes: Scopes::ALL,
            ..KeyOrder::default()
        };
        let key = app.accounts.create_key(id, order).await.unwrap();
        let key = key.text.expose().to_owned();
        Self { app, id, key }
    }

    fn admin(app: &'a App) -> Self {
        let (id, key) = (app.account, app.key.clone());
        Self { app, id, key }
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Answer {
        let bearer = format!("Bearer {}", self.key);
        let headers = [("authorization", bearer.as_str())];
        let body = match body {
            Value::Null => Body::empty(),
            body => Body::from(body.to_string()),
        };
        self.app.send(request(method, path, &headers, body)).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, body).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, Value::Null).await
    }

    /// A response that the worker answered with this word, on disk.
    async fn responded(&self, worker: &Puppet, input: &str, word: &str) -> String {
        let body = json!({"model": "tiny", "input": input});
        let words = [word];
        let (answer, ()) = tokio::join!(self.post("/v1/responses", body), worker.answer(&words));
        let response = answer.json().await;
        let id = response["id"].as_str().unwrap().to_owned();
        eventually("the response to be stored", async || {
            let row = self.app.store.response(&id, self.id).await.unwrap();
            row.is_some()
        })
        .await;
        id
    }

    /// A text request of the AI Horde API that the worker answered with this word.
    async fn asked(&self, worker: &Puppet, prompt: &str, word: &str) -> String {
        let body = json!({"prompt": prompt, "models": ["tiny"], "params": {"max_length": 20}});
        let asked = self.post("/api/v2/generate/text/async", body).await;
        assert_eq!(asked.status, StatusCode::ACCEPTED);
        let id = asked.json().await["id"].as_str().unwrap().to_owned();
        worker.answer(&[word]).await;
        let status = format!("/api/v2/generate/text/status/{id}");
        eventually("the text", async || {
            self.app.get(&status).await.json().await["done"] == true
        })
        .await;
        status
    }
}

async fn code(answer: Answer) -> Value {
    answer.json().await["error"]["code"].clone()
}

async fn app() -> App {
    App::listening(DoorSettings::default()).await
}

#[tokio::test]
async fn a_deleted_account_leaves_only_numbers() {
    let app = app().await;
    let worker = Puppet::connect(&app.board).await;
    let _artist = studio(&app, "artist", SamplePipeline::default()).await;
    let alice = User::new(&app, "madagascaralice", Roles::USER.with(Roles::CUSTOMIZER)).await;
    let bob = User::new(&app, "zanzibarbob", Roles::USER).await;
    app.enrich(Kudos(1_000_000)).await;
    alice
        .responded(&worker, "madagascarinput", "madagascaroutput")
        .await;
    bob.responded(&worker, "zanzibarinput", "zanzibaroutput")
        .await;
    let status = alice
        .asked(&worker, "madagascarprompt", "madagascartext")
        .await;
    let style = json!({"name": "madagascarstyle", "prompt": "madagascarart {p}###{np}", "models": ["painter"]});
    let style = alice.post("/api/v2/styles/image", style).await;
    assert_eq!(style.status, StatusCode::OK);
    let draw = json!({"model": "tiny", "prompt": "madagascarimage", "size": "320x256", "steps": 2});
    let drawn = alice.post("/v1/images/generations", draw.clone()).await;
    assert_eq!(drawn.status, StatusCode::OK);
    let link = drawn.json().await["data"][0]["url"].clone();
    let drawn = bob.post("/v1/images/generations", draw).await;
    assert_eq!(drawn.status, StatusCode::OK);
    let settled = app.store.jobs_of(alice.id, None, 100).await.unwrap();
    assert!(settled.len() >= 3);
    let balance = app.store.balance(alice.id).await.unwrap();
    let files = app.media_files();
    assert_eq!(app.places_of("madagascarinput"), ["database"]);

    let deleted = alice.delete("/v1/account").await;
    assert_eq!(deleted.status, StatusCode::OK);
    assert_eq!(deleted.json().await["deleted"], true);
    assert_eq!(
        code(alice.get("/v1/account").await).await,
        "invalid_api_key"
    );
    for word in ["alice", "input", "output", "prompt", "text", "style", "art"] {
        let word = format!("madagascar{word}");
        assert_eq!(app.places_of(&word), <[&str; 0]>::default(), "{word}");
    }
    assert_eq!(app.media_files(), files - 1);
    let url = url::Url::parse(link.as_str().unwrap()).unwrap();
    let path = format!("{}?{}", url.path(), url.query().unwrap());
    assert_eq!(app.get(&path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(app.get(&status).await.status, StatusCode::NOT_FOUND);
    // Of others everything stays, and so do the numbers.
    assert_eq!(app.places_of("zanzibarinput"), ["database"]);
    assert_eq!(bob.get("/v1/account").await.status, StatusCode::OK);
    let jobs = app.store.jobs_of(alice.id, None, 100).await.unwrap();
    assert_eq!(jobs, settled);
    assert_eq!(app.store.balance(alice.id).await.unwrap(), balance);
    let sums = app.store.ledger_sums().await.unwrap();
    assert_eq!((sums.entries, sums.balances), (Kudos(0), Kudos(0)));
    assert_eq!((sums.wrong_jobs, sums.wrong_balances), (0, 0));
    let left = app.store.account(alice.id).await.unwrap().unwrap();
    assert_eq!(left.name, "deleted");
    let again = User::admin(&app)
        .delete(&format!("/v1/accounts/{}", alice.id.0))
        .await;
    assert_eq!(
        again.status,
        StatusCode::OK,
        "deleting it again changes nothing"
    );
}

#[tokio::test]
async fn a_response_that_is_written_while_its_account_is_deleted_is_not_stored() {
    let app = app().await;
    let worker = Puppet::connect(&app.board).await;
    let alice = User::new(&app, "alice", Roles::USER).await;
    let body = json!({"model": "tiny", "input": "madagascarinput", "stream": true});
    let behind = json!({"model": "tiny", "input": "madagascarbehind", "background": true});
    let behind = alice.post("/v1/responses", behind);
    let (answer, offers) = tokio::join!(
        async { (alice.post("/v1/responses", body).await, behind.await) },
        async {
            let mut offers = Vec::new();
            for _ in 0..2 {
                let offer = worker.offer().await;
                worker
                    .say(&offer, [started(), text("madagascaroutput")])
                    .await;
                offers.push(offer);
            }
            offers
        }
    );
    let (streamed, behind) = answer;
    assert_eq!(behind.status, StatusCode::OK);
    let admin = User::admin(&app);
    let path = format!("/v1/accounts/{}", alice.id.0);
    let (deleted, ()) = tokio::join!(admin.delete(&path), worker.cancelled_all(&offers));
    assert_eq!(deleted.status, StatusCode::OK);
    let events = streamed.text().await;
    assert!(events.contains("account_deleted"), "{events}");
    for word in ["input", "behind", "output"] {
        let word = format!("madagascar{word}");
        assert_eq!(app.places_of(&word), <[&str; 0]>::default(), "{word}");
    }
}

#[tokio::test]
async fn a_suspended_account_is_refused_until_the_suspension_is_lifted() {
    let app = app().await;
    let worker = Puppet::connect(&app.board).await;
    let alice = User::new(&app, "alice", Roles::USER).await;
    let moderator = User::new(&app, "mary", Roles::USER.with(Roles::MODERATOR)).await;
    let chat = json!({
        "model": "tiny", "stream": true, "messages": [{"role": "user", "content": "hi"}],
    });
    let (answer, offer) = tokio::join!(alice.post("/v1/chat/completions", chat.clone()), async {
        let offer = worker.offer().await;
        worker.say(&offer, [started(), text("a")]).await;
        offer
    });
    let path = format!("/v1/accounts/{}/suspension", alice.id.0);
    let suspending = moderator.call(Method::PUT, &path, Value::Null);
    let (suspended, ()) = tokio::join!(suspending, worker.cancelled(&offer));
    assert_eq!(suspended.status, StatusCode::OK);
    let stream = answer.text().await;
    assert!(stream.contains("account_suspended"), "{stream}");
    for path in ["/v1/account", "/v1/account/export"] {
        let refused = alice.get(path).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(code(refused).await, "account_suspended");
    }
    let refused = alice.post("/v1/chat/completions", chat).await;
    assert_eq!(code(refused).await, "account_suspended");
    let user = format!("/api/v2/users/{}", alice.id.0);
    assert_eq!(alice.get(&user).await.status, StatusCode::FORBIDDEN);

    let lifted = moderator.delete(&path).await;
    assert_eq!(lifted.json().await["suspended"], false);
    assert_eq!(alice.get("/v1/account").await.status, StatusCode::OK);
}

#[tokio::test]
async fn moderators_and_administrators_manage_only_accounts_below_them() {
    let app = app().await;
    let alice = User::new(&app, "alice", Roles::USER).await;
    let moderator = User::new(&app, "mary", Roles::USER.with(Roles::MODERATOR)).await;
    let admin = User::admin(&app);
    let path = |user: &User<'_>| format!("/v1/accounts/{}", user.id.0);
    for path in [path(&admin), path(&moderator)] {
        let refused = alice.delete(&path).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
    }
    let refused = moderator.delete(&path(&admin)).await;
    assert_eq!(code(refused).await, "access_denied");
    let export = format!("{}/export", path(&alice));
    assert_eq!(moderator.get(&export).await.status, StatusCode::FORBIDDEN);
    assert_eq!(admin.get(&export).await.status, StatusCode::OK);
    for end in ["/v1/account", "/v1/accounts/1"] {
        let refused = admin.delete(end).await;
        assert_eq!(
            refused.status,
            StatusCode::CONFLICT,
            "the last administrator stays"
        );
    }
    assert_eq!(
        admin.delete("/v1/accounts/99").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        admin.delete("/v1/accounts/0").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(moderator.delete(&path(&alice)).await.status, StatusCode::OK);
    assert_eq!(admin.delete(&path(&moderator)).await.status, StatusCode::OK);
    assert_eq!(
        moderator.get("/v1/account").await.status,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn the_ai_horde_api_deletes_contents_at_once_and_the_account_may_come_back() {
    let app = app().await;
    let worker = Puppet::connect(&app.board).await;
    let alice = User::new(&app, "alice", Roles::USER).await;
    let response = alice
        .responded(&worker, "madagascarinput", "madagascaroutput")
        .await;
    let status = alice
        .asked(&worker, "madagascarprompt", "madagascartext")
        .await;
    let user = format!("/api/v2/users/{}", alice.id.0);
    let marked = alice.delete(&user).await;
    assert_eq!(marked.status, StatusCode::OK);
    for word in ["input", "output", "prompt", "text"] {
        let word = format!("madagascar{word}");
        assert_eq!(app.places_of(&word), <[&str; 0]>::default(), "{word}");
    }
    assert_eq!(app.get(&status).await.status, StatusCode::NOT_FOUND);
    let response = format!("/v1/responses/{response}");
    assert_eq!(alice.get(&response).await.status, StatusCode::NOT_FOUND);
    let admin = User::admin(&app);
    let found = admin.get(&user).await.json().await;
    assert_eq!(found["deleted"], true, "{found}");
    let back = admin
        .call(Method::PUT, &user, json!({"undelete": true}))
        .await;
    assert_eq!(back.status, StatusCode::OK);
    assert_eq!(app.store.erasures().await.unwrap(), []);
    alice
        .responded(&worker, "madagascaragain", "madagascaroutput")
        .await;
    assert_eq!(app.places_of("madagascaragain"), ["database"]);
}

#[tokio::test]
async fn what_comes_after_a_deletion_is_deleted_by_a_later_pass() {
    let app = app().await;
    let worker = Puppet::connect(&app.board).await;
    let alice = User::new(&app, "alice", Roles::USER).await;
    let status = alice
        .asked(&worker, "madagascarprompt", "madagascartext")
        .await;
    // As a coordinator finds it that was stopped while a command deleted the account.
    let now = muster::coordinator::clock::wall_clock();
    app.store.delete_account(alice.id, now).await.unwrap();
    eventually("the key to be refused", async || {
        alice.get("/v1/account").await.status == StatusCode::UNAUTHORIZED
    })
    .await;
    eventually("the request to be forgotten", async || {
        app.get(&status).await.status == StatusCode::NOT_FOUND
    })
    .await;
    eventually("the files to be rewritten", async || {
        app.places_of("madagascartext").is_empty()
    })
    .await;
}

#[tokio::test]
async fn an_export_holds_all_that_is_stored_and_no_secret() {
    let app = app().await;
    let worker = Puppet::connect(&app.board).await;
    let _artist = studio(&app, "artist", SamplePipeline::default()).await;
    let alice = User::new(&app, "alice", Roles::USER).await;
    let response = alice
        .responded(&worker, "madagascarinput", "madagascaroutput")
        .await;
    alice
        .asked(&worker, "madagascarprompt", "madagascartext")
        .await;
    let draw = json!({"model": "tiny", "prompt": "an image", "size": "320x256", "steps": 2});
    let drawn = alice.post("/v1/images/generations", draw).await;
    assert_eq!(drawn.status, StatusCode::OK);
    drawn.json().await;
    let export = alice.get("/v1/account/export").await;
    assert_eq!(export.status, StatusCode::OK);
    let text = export.text().await;
    let digest = app.accounts.keys_of(alice.id).await.unwrap()[0]
        .digest
        .clone();
    assert!(!text.contains(&alice.key) && !text.contains(&digest));
    let export: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(export["account"][0]["name"], "alice", "{export}");
    assert_eq!(export["keys"][0]["label"], "label of alice");
    assert_eq!(export["responses"][0]["id"], response.as_str());
    let input = export["responses"][0]["input"].to_string();
    assert!(input.contains("madagascarinput"), "{input}");
    assert!(
        export["requests"][0]["body"]
            .to_string()
            .contains("madagascarprompt")
    );
    assert!(
        export["results"][0]["output"]
            .to_string()
            .contains("madagascartext")
    );
    let count = |name: &str| export[name].as_array().unwrap().len();
    assert_eq!((count("jobs"), count("media")), (3, 1), "{export}");
    assert!(count("ledger") >= 3, "{export}");
    let url = url::Url::parse(export["media"][0]["url"].as_str().unwrap()).unwrap();
    let path = format!("{}?{}", url.path(), url.query().unwrap());
    assert_eq!(app.get(&path).await.status, StatusCode::OK);
}

#[tokio::test]
async fn keys_of_an_account_that_another_process_deletes_are_dead_within_a_second() {
    let app = app().await;
    let alice = User::new(&app, "alice", Roles::USER).await;
    assert_eq!(alice.get("/v1/account").await.status, StatusCode::OK);
    let now = muster::coordinator::clock::wall_clock();
    app.store.delete_account(alice.id, now).await.unwrap();
    let began = std::time::Instant::now();
    eventually("the key to be refused", async || {
        alice.get("/v1/account").await.status == StatusCode::UNAUTHORIZED
    })
    .await;
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
}

/// The status and the body of a reply of a running service.
fn curl(up: &super::up::Up, key: &str, path: &str, body: &str) -> (String, String) {
    let mut command = std::process::Command::new("curl");
    let (auth, url) = (
        format!("authorization: Bearer {key}"),
        format!("{}{path}", up.url),
    );
    command.args(["-s", "-w", "\n%{http_code}", "-H", &auth, &url]);
    if !body.is_empty() {
        command.args(["-d", body]);
    }
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

/// Files under a folder that hold a word.
fn holding(folder: &std::path::Path, word: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, word));
        } else if let Ok(bytes) = std::fs::read(&path) {
            let holds = bytes
                .windows(word.len())
                .any(|part| part == word.as_bytes());
            found.extend(holds.then_some(path));
        }
    }
    found
}

#[test]
fn an_account_deleted_beside_a_running_service_leaves_no_word_in_any_file() {
    let folder = tempfile::tempdir().unwrap();
    let up = super::up::up(folder.path());
    let beside = |arguments: &[&str]| super::up::beside(folder.path(), arguments);
    let created = beside(&[
        "key",
        "create",
        "--account",
        "madagascar",
        "--full",
        "--json",
    ]);
    let created: Value = serde_json::from_str(&created).unwrap();
    let key = created["key"].as_str().unwrap();
    let respond =
        r#"{"model": "demo-text", "input": "What is Muster? madagascar", "max_output_tokens": 20}"#;
    let (status, response) = curl(&up, key, "/v1/responses", respond);
    assert_eq!(status, "200", "{response}");
    let draw = r#"{"model": "demo-image", "prompt": "a red circle, madagascar"}"#;
    let (status, drawn) = curl(&up, key, "/v1/images/generations", draw);
    assert_eq!(status, "200", "{drawn}");
    let drawn: Value = serde_json::from_str(&drawn).unwrap();
    let link = drawn["data"][0]["url"].as_str().unwrap();
    let path = link.strip_prefix(&*up.url).unwrap();
    assert_eq!(curl(&up, "", path, "").0, "200");
    let data = folder.path().join("data");
    muster_testing::eventually_blocking("the response to be stored", || {
        let files = holding(&data, "madagascar");
        match files.is_empty() {
            true => Err("no file holds it"),
            false => Ok(()),
        }
    });
    beside(&["account", "delete", "madagascar"]);
    muster_testing::eventually_blocking("the key to be refused", || {
        match curl(&up, key, "/v1/account", "").0.as_str() {
            "401" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
    assert_eq!(curl(&up, "", path, "").0, "404");
    muster_testing::eventually_blocking("no file to hold a word of it", || {
        let files = holding(&data, "madagascar");
        match files.is_empty() {
            true => Ok(()),
            false => Err(files),
        }
    });
}
