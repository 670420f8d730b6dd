//! `WS /v1/workers/ws` for its peers: admitted workers, refusals, and the cost of broken peers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt};
use muster::coordinator::accounts::{Accounts, KeyOrder, NewKey, SecretSource};
use muster::coordinator::dispatch::Settings;
use muster::coordinator::moderation::{Moderation, Rules};
use muster::coordinator::rigs::{Quotas, Records, RigSettings, Rigs};
use muster::coordinator::state::DoorSettings;
use muster::coordinator::storage::{Location, RoleChange, Store};
use muster::coordinator::switchboard::Switchboard;
use muster::coordinator::values::modes::ModeSet;
use muster::coordinator::values::{Roles, Scopes};
use muster::coordinator::workers::{Workers, WorkersSettings, mark_large};
use muster::protocol::job::AccountId;
use muster::tasks::Tasks;
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::support::rig::{Board, Closed, PATIENCE, Rig, ours, public, read_all};

fn quick() -> Board {
    let settings = WorkersSettings {
        registration_patience: Duration::from_millis(200),
        ping_every: Duration::from_millis(50),
        retired_models: vec!["old".into()],
        ..WorkersSettings::default()
    };
    Board::with(Settings::default(), settings)
}

#[tokio::test]
async fn the_worker_id_is_the_same_after_every_reconnect() {
    let board = Board::start();
    let (first, ready) = board.rig(public("rig")).await;
    let (_, again) = board.rig(public("rig")).await;
    assert_eq!(ready["worker_id"], again["worker_id"]);
    assert_eq!(ready["worker_id"].as_str().unwrap().len(), 36);
    drop(first);
    let (_, other) = board.rig(public("other")).await;
    assert_ne!(ready["worker_id"], other["worker_id"]);
}

fn profile() -> Value {
    json!({
        "id": "p", "version": 1, "digest": "d", "signing_key_id": "k", "capability_tier": 1,
        "canary_completed_at": 1, "canary_elapsed_seconds": 1, "runtime_adapter": "r",
        "runtime_digest": "d", "recipe_root": "r",
    })
}

async fn refusal(board: &Board, registration: Value) -> (Value, Closed) {
    let mut rig = board.dial().await;
    rig.send(registration).await;
    let error = rig.next().await;
    assert_eq!(error["type"], "error", "{error}");
    assert!(error["message"].as_str().unwrap().len() > 5);
    (error, rig.closed().await)
}

#[tokio::test]
async fn every_refusal_says_why_and_closes_with_its_code() {
    let board = quick();
    let with = |changes: Value| {
        let mut registration = public("rig");
        let fields = registration.as_object_mut().unwrap();
        fields.extend(changes.as_object().unwrap().clone());
        registration
    };
    let cases = [
        (json!({"apikey": ""}), 4001),
        (json!({"name": ""}), 4001),
        (json!({"apikey": "grid_WRONG"}), 4001),
        (json!({"apikey": "key-none"}), 4003),
        (json!({"apikey": "key-other"}), 4003),
        (json!({"name": "2.rig"}), 4003),
        (json!({"models": ["old"]}), 4003),
        (json!({"worker_profile": {"id": 1}}), 4003),
        (json!({"job_types": ["audio"]}), 4003),
        (json!({"worker_profile": profile()}), 4003),
        (
            json!({"worker_profile": profile(), "apikey": "grid_WRONG"}),
            4001,
        ),
        (json!({"max_context_length": "much"}), 4003),
        (json!({"type": "token", "id": "x"}), 4003),
        (json!({"apikey": "key-down"}), 1013),
    ];
    for (changes, code) in cases {
        let (error, closed) = refusal(&board, with(changes.clone())).await;
        assert_eq!(closed, Closed::Code(code), "{changes}: {error}");
        assert!(error.get("code").is_none(), "{error}");
    }
}

#[tokio::test]
async fn peers_that_negotiate_hear_the_code_of_their_refusal() {
    let board = quick();
    let mut registration = ours("rig", 4);
    registration["apikey"] = json!("unknown");
    let (error, _) = refusal(&board, registration).await;
    assert_eq!(error["code"], "auth");
    let mut registration = ours("2.rig", 4);
    registration["apikey"] = json!("key-1");
    let (error, closed) = refusal(&board, registration).await;
    assert_eq!(
        (error["code"].as_str(), closed),
        (Some("name_taken"), Closed::Code(4003))
    );
    let mut registration = ours("rig", 4);
    registration["ext"]["v"] = json!(0);
    let (error, _) = refusal(&board, registration).await;
    assert_eq!(error["code"], "version");
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_dropped() {
    let board = quick();
    let mut rig = board.dial().await;
    assert_eq!(rig.closed().await, Closed::Abruptly);
}

#[tokio::test]
async fn a_stranger_cannot_send_large_frames() {
    let board = Board::start();
    let mut rig = board.dial().await;
    let text = format!(r#"{{"apikey":"key-1","x":"{}"}}"#, "x".repeat(4 << 20));
    // Closed before all of it is written.
    let _ = rig.socket.send(Message::text(text)).await;
    assert!(matches!(
        rig.closed().await,
        Closed::Code(1009) | Closed::Abruptly
    ));
    let (mut known, _) = board.rig(public("known")).await;
    let text = format!(r#"{{"type":"pong","x":"{}"}}"#, "x".repeat(1_000_000));
    known.send_text(text).await;
    still_serves(&board, &mut known).await;
}

#[tokio::test]
async fn unknown_wants_are_ignored_and_the_rest_is_agreed() {
    let board = Board::start();
    let mut registration = ours("rig", 4);
    registration["ext"]["want"] = json!(["multi", "telepathy", "bin", "drain"]);
    let (_, ready) = board.rig(registration).await;
    assert_eq!(ready["ext"]["use"], json!(["multi", "drain"]));
    assert_eq!(ready["ext"]["v"], 1);
    let mut registration = ours("rig2", 4);
    registration["ext"]["want"] = json!(["resume"]);
    let (_, ready) = board.rig(registration).await;
    assert_eq!(
        ready["ext"]["use"],
        json!([]),
        "frames are numbered per attempt"
    );
}

#[tokio::test]
async fn a_newer_socket_of_the_same_name_replaces_the_older() {
    let board = Board::start();
    let mut first = board.public_rig("rig").await;
    let mut second = board.public_rig("rig").await;
    let closed = timeout(PATIENCE, first.socket.next()).await.unwrap();
    assert!(
        matches!(&closed, Some(Ok(Message::Close(Some(frame))))
            if u16::from(frame.code) == 1012 && frame.reason.contains("newer connection with the same name")),
        "{closed:?}"
    );
    drop(first);
    let mut stream = board.submit("hello").await;
    let job = second.job().await;
    second.token(&job, "hi").await;
    second.done(&job).await;
    assert_eq!(read_all(&mut stream).await.0, "hi");
    assert_eq!(board.switchboard.overview().workers.len(), 1);
}

async fn still_serves(board: &Board, rig: &mut Rig) {
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.token(&job, "hi").await;
    rig.done(&job).await;
    assert_eq!(read_all(&mut stream).await.0, "hi");
    assert_eq!(rig.frame().await["type"], "ack");
}

#[tokio::test]
async fn frames_nobody_can_read_cost_their_own_socket_only() {
    let board = Board::start();
    let mut good = board.public_rig("good").await;
    let mut unserved = public("bad");
    unserved["models"] = json!(["other"]);
    let deep = "[".repeat(100_000);
    let messages = [
        Message::binary(b"{\"type\":\"pong\"}".to_vec()),
        Message::text("no json"),
        Message::text("[1,2]"),
        Message::text(r#"{"type":"token","id":NaN}"#),
        Message::text(deep.clone()),
        Message::text(format!(r#"{{"type":"done","x":{deep}"#)),
    ];
    for message in messages {
        let (mut bad, _) = board.rig(unserved.clone()).await;
        let what = format!("{message:.60}");
        bad.socket.send(message).await.unwrap();
        assert_eq!(bad.closed().await, Closed::Abruptly, "{what}");
    }
    still_serves(&board, &mut good).await;
}

#[tokio::test]
async fn what_breaks_the_socket_protocol_is_closed_with_its_code() {
    let board = Board::start();
    let mut good = board.public_rig("good").await;
    let mut unserved = public("bad");
    unserved["models"] = json!(["other"]);
    let (mut huge, _) = board.rig(unserved.clone()).await;
    // Closed before all of it is written.
    let _ = huge.socket.send(Message::text("x".repeat(33 << 20))).await;
    assert!(matches!(
        huge.closed().await,
        Closed::Code(1009) | Closed::Abruptly
    ));
    let (mut latin, _) = board.rig(unserved.clone()).await;
    let frame = Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true);
    latin.socket.send(Message::Frame(frame)).await.unwrap();
    assert_eq!(latin.closed().await, Closed::Code(1007));
    still_serves(&board, &mut good).await;
}

#[tokio::test]
async fn fragments_and_fields_nobody_knows_are_read() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let text = format!(
        r#"{{"type":"token","x":{deep},"id":{},"delta":{{"content":"hi"}}}}"#,
        job["id"]
    );
    let (head, tail) = text.as_bytes().split_at(30);
    let parts = [
        (head, OpCode::Data(Data::Text), false),
        (&tail[..10], OpCode::Data(Data::Continue), false),
        (&tail[10..], OpCode::Data(Data::Continue), true),
    ];
    for (part, code, last) in parts {
        let frame = Frame::message(part.to_vec(), code, last);
        rig.socket.send(Message::Frame(frame)).await.unwrap();
    }
    rig.send(json!({"type": "telepathy", "id": job["id"]}))
        .await;
    rig.send(json!({"type": "pong"})).await;
    rig.done(&job).await;
    assert_eq!(read_all(&mut stream).await.0, "hi");
}

#[tokio::test]
async fn a_public_worker_is_pinged_when_idle_and_never_in_a_job() {
    let board = quick();
    let mut rig = board.public_rig("rig").await;
    for _ in 0..2 {
        assert_eq!(rig.next().await["type"], "ping");
        rig.send(json!({"type": "pong"})).await;
    }
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    let quiet = tokio::time::timeout(Duration::from_millis(300), rig.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    rig.token(&job, "hi").await;
    rig.done(&job).await;
    read_all(&mut stream).await;
    assert_eq!(rig.next().await["type"], "ack");
    assert_eq!(rig.next().await["type"], "ping");
}

#[tokio::test]
async fn control_pings_are_answered_in_a_job() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let _stream = board.submit("hello").await;
    rig.job().await;
    let ping = Message::Ping(vec![7].into());
    rig.socket.send(ping).await.unwrap();
    let answer = futures_util::StreamExt::next(&mut rig.socket).await;
    assert_eq!(answer.unwrap().unwrap(), Message::Pong(vec![7].into()));
}

#[tokio::test]
async fn six_strikes_drop_the_socket_and_bar_the_name() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    // A job fails twice on the only worker, and counts as one strike.
    for _ in 0..6 {
        let mut stream = board.submit("hello").await;
        for _ in 0..2 {
            let job = rig.job().await;
            let error =
                json!({"type": "error", "id": job["id"], "message": "backend answered 503"});
            rig.send(error).await;
        }
        read_all(&mut stream).await;
    }
    assert_eq!(rig.closed().await, Closed::Abruptly);
    let (error, closed) = refusal(&board, ours("rig", 2)).await;
    assert_eq!(
        (error["code"].as_str(), closed),
        (Some("cooldown"), Closed::Code(4003))
    );
    assert!(
        (1..=30).contains(&error["retry_s"].as_i64().unwrap()),
        "{error}"
    );
}

#[tokio::test]
async fn a_coordinator_that_stops_says_so() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let stopping = board.tasks.stop(Duration::from_secs(10));
    let (stopped, closed) = tokio::join!(stopping, async {
        let closed = rig.closed().await;
        drop(rig);
        closed
    });
    assert_eq!(closed, Closed::Code(1012));
    assert!(stopped);
}

#[tokio::test]
async fn a_worker_that_reads_slowly_is_told_from_one_that_does_not_read() {
    let settings = WorkersSettings {
        ping_every: Duration::from_millis(50),
        write_patience: Duration::from_millis(200),
        ..WorkersSettings::default()
    };
    let board = Board::with(Settings::default(), settings);
    let mut slow = board.our_rig("slow", 2).await;
    let request = "word ".repeat(400_000);
    let _stream = board.submit(&request).await;
    let (mut read, mut buffer) = (0, vec![0; 64 << 10]);
    while read < request.len() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let more = slow.socket.get_mut().read(&mut buffer).await.unwrap();
        assert!(more > 0, "closed after {read} bytes");
        read += more;
    }
    assert_eq!(board.switchboard.overview().workers.len(), 1);

    let _stream = board.submit(&request).await;
    let overview = || board.switchboard.overview();
    eventually("no worker", async || overview().workers.is_empty()).await;
}

#[tokio::test]
async fn what_a_worker_says_of_its_cards_is_listed_as_far_as_it_is_worth_showing() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 2).await;
    let card = json!({"name": "H200 ".repeat(1000), "vram_total": 140.4, "vram_free": 41.0, "util": 0.83,
               "failed_kernels": ["attention", 7, "x".repeat(1000)]});
    rig.send(json!({"type": "state", "gpus": vec![card; 64], "models": []}))
        .await;
    let gpus = eventually("the GPUs of a worker", async || {
        let overview = board.switchboard.overview();
        let rig = overview.workers.first()?;
        (!rig.gpus.is_empty()).then(|| rig.gpus.clone())
    })
    .await;
    assert_eq!((gpus.len(), gpus[0].name.len()), (16, 100));
    assert_eq!((gpus[0].vram_free, gpus[0].util), (Some(41.0), Some(0.83)));
    let failed = &gpus[0].failed_kernels;
    assert_eq!(
        (failed[0].as_str(), failed[1].len(), failed.len()),
        ("attention", 100, 2)
    );
}

#[tokio::test]
async fn a_thousand_sockets_that_only_open_disturb_nobody() {
    let board = Board::start();
    let silent: Vec<_> = (0..1000).map(|_| board.socket()).collect();
    let mut rig = board.public_rig("rig").await;
    still_serves(&board, &mut rig).await;
    drop(silent);
}

/// The real accounts and the real store, in a folder of their own, with workers that come through the real door.
struct House {
    accounts: Accounts,
    store: Store,
    workers: Workers,
    tasks: Tasks,
    _folder: tempfile::TempDir,
}

impl House {
    async fn open(worker_quotas: Option<Quotas>) -> Self {
        let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
        let location = Location::Sqlite(folder.path().join("muster.db"));
        let store = Store::open(&location, &tasks).await.unwrap();
        let secret = SecretSource::Given("a secret of 32 characters and more".to_owned());
        let accounts = Accounts::open(store.clone(), &secret, &tasks)
            .await
            .unwrap();
        let records = Records::new(store.modes());
        let notes = muster::coordinator::rigs::notes(records.clone());
        let books =
            muster::coordinator::settlements::books(store.clone(), Arc::default(), |_| true, notes);
        let switchboard =
            Switchboard::start(Settings::default(), books, &tasks).marking(mark_large);
        let doors = DoorSettings {
            worker_quotas,
            ..DoorSettings::default()
        };
        let board = switchboard.clone();
        let rigs = Rigs::start(
            records,
            board,
            store.clone(),
            RigSettings::from(&doors),
            &tasks,
        );
        let settings = WorkersSettings::default();
        let moderation = Moderation::open(store.clone(), Rules::default(), &tasks).await;
        let guards = (rigs, moderation.unwrap());
        Self {
            workers: Workers::new(switchboard, accounts.clone(), guards, settings),
            accounts,
            store,
            tasks,
            _folder: folder,
        }
    }

    /// A key of a new account.
    async fn key(&self, name: &str) -> NewKey {
        let account = self.accounts.create_account(name, Roles::USER).await;
        self.key_with(account.unwrap(), KeyOrder::default()).await
    }

    async fn key_with(&self, account: AccountId, order: KeyOrder) -> NewKey {
        let order = KeyOrder {
            scopes: Scopes::WORKER_CONNECT,
            ..order
        };
        self.accounts.create_key(account, order).await.unwrap()
    }

    /// The first thing a worker of this name is told that comes with this key.
    async fn dial(&self, key: &NewKey, name: &str) -> (Value, Rig) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let workers = self.workers.clone();
        self.tasks
            .start(async move { workers.serve(near, Vec::new()).await });
        let socket = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let mut rig = Rig { socket };
        let mut registration = public(name);
        registration["apikey"] = json!(key.text.expose());
        rig.send(registration).await;
        (rig.next().await, rig)
    }

    async fn enters(&self, key: &NewKey, name: &str) -> Rig {
        let (answer, rig) = self.dial(key, name).await;
        assert_eq!(answer["type"], "ready", "{answer}");
        rig
    }

    async fn is_refused(&self, key: &NewKey, name: &str) {
        let (answer, mut rig) = self.dial(key, name).await;
        assert_eq!(answer["type"], "error", "{answer}");
        assert_eq!(rig.closed().await, Closed::Code(4003));
    }
}

#[tokio::test]
async fn a_revoked_key_ends_its_workers_socket_within_a_second() {
    let house = House::open(None).await;
    let admin = house.accounts.first_start().await.unwrap().unwrap();
    let bound = KeyOrder {
        worker_name: Some("rig".into()),
        ..KeyOrder::default()
    };
    let key = house.key_with(admin.account, bound).await;
    house.is_refused(&key, "another rig").await;
    let mut rig = house.enters(&key, "rig").await;
    let mut admins = house.enters(&admin, "any rig").await;
    let revoked = Instant::now();
    house.accounts.revoke_key(&key.public_id).await.unwrap();
    assert_eq!(rig.frame().await["type"], "error");
    assert_eq!(rig.closed().await, Closed::Code(4001));
    assert!(revoked.elapsed() < Duration::from_secs(1));
    assert!(admins.hears_nothing(Duration::from_millis(100)).await);
    drop((rig, admins));
    assert!(house.tasks.stop(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn the_key_of_a_join_token_belongs_to_the_first_worker_that_uses_it() {
    let house = House::open(None).await;
    let admin = house.accounts.first_start().await.unwrap().unwrap();
    let joins = |lifetime, worker: Option<&str>| KeyOrder {
        joins: true,
        lifetime: Some(lifetime),
        worker_name: worker.map(str::to_owned),
        ..KeyOrder::default()
    };
    let day = Duration::from_secs(86_400);
    let key = house.key_with(admin.account, joins(day, None)).await;
    let first = house.enters(&key, "attic").await;
    house.is_refused(&key, "cellar").await;
    drop(first);
    house.enters(&key, "attic").await;
    let rows = house.accounts.list_keys().await.unwrap();
    let row = rows.iter().find(|row| row.public_id == key.public_id);
    let row = row.unwrap();
    assert_eq!(row.worker_name.as_deref(), Some("attic"));
    assert_eq!(row.expires_at, None);
    let named = house
        .key_with(admin.account, joins(day, Some("attic")))
        .await;
    house.is_refused(&named, "cellar").await;
    house.enters(&named, "attic").await;
    let late = house.key_with(admin.account, joins(Duration::ZERO, None));
    let (answer, mut rig) = house.dial(&late.await, "attic").await;
    assert_eq!(answer["type"], "error", "{answer}");
    assert_eq!(rig.closed().await, Closed::Code(4001));
}

#[tokio::test]
async fn two_workers_cannot_join_with_one_token_at_once() {
    let house = House::open(None).await;
    let admin = house.accounts.first_start().await.unwrap().unwrap();
    let order = KeyOrder {
        joins: true,
        ..KeyOrder::default()
    };
    let key = house.key_with(admin.account, order).await;
    let names = ["attic", "cellar", "garage", "shed"];
    let answers = join_all(names.map(|name| house.dial(&key, name))).await;
    let ready = answers.iter();
    let ready = ready.filter(|(answer, _)| answer["type"] == "ready");
    assert_eq!(ready.count(), 1);
}

#[tokio::test]
async fn an_account_has_so_many_workers_on_sockets_however_many_come_at_once() {
    let house = House::open(Some(Quotas::default())).await;
    let key = house.key("alice").await;
    let names: Vec<String> = (0..20).map(|number| format!("rig {number}")).collect();
    let coming = names.iter().map(|name| house.dial(&key, name));
    let answers = join_all(coming).await;
    let is_in = |(answer, _): &(Value, Rig)| answer["type"] == "ready";
    let first = answers.iter().position(is_in).unwrap();
    let all = answers.iter().filter(|answer| is_in(answer));
    assert_eq!(all.count(), 4);
    house.is_refused(&key, "one more").await;
    house.enters(&key, &names[first]).await;
    let other = house.key("bob").await;
    house.enters(&other, "his").await;
}

#[tokio::test]
async fn new_workers_come_on_sockets_by_invitation_where_that_is_switched_on() {
    let house = House::open(None).await;
    let key = house.key("alice").await;
    house.enters(&key, "before").await;
    let modes = vec![(ModeSet::INVITE_ONLY, true)];
    house.store.switch_modes(modes).await.unwrap();
    house.is_refused(&key, "after").await;
    house.enters(&key, "before").await;
}

#[tokio::test]
async fn an_account_that_is_flagged_or_deleted_loses_its_sockets_and_gets_no_more() {
    let house = House::open(None).await;
    for role in [Roles::FLAGGED, Roles::DELETED] {
        let key = house.key(&role.to_string()).await;
        let name = format!("rig of {role}");
        let mut rig = house.enters(&key, &name).await;
        let roles = Roles::USER.with(role);
        let change = house.accounts.set_roles(key.account, roles).await;
        assert_eq!(change, Ok(RoleChange::Done));
        assert_eq!(rig.frame().await["type"], "error");
        assert_eq!(rig.closed().await, Closed::Code(4003));
        house.is_refused(&key, &name).await;
        let back = house.accounts.set_roles(key.account, Roles::USER).await;
        assert_eq!(back, Ok(RoleChange::Done));
        house.enters(&key, &name).await;
    }
}
