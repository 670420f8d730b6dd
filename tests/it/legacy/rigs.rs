//! Public information about workers, and moderation of them.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use muster::coordinator::clock::wall_clock;
use muster::coordinator::rigs::Quotas;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::suspicion::{Mark, Reason};
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::Kudos;
use serde_json::{Value, json};

use super::{POP, ask, call, call_as, images, pop, post, submit, until, worker};
use crate::support::app::App;

const WORKERS: &str = "/api/v2/workers";

async fn get(app: &App, path: &str) -> (StatusCode, Value) {
    let answer = app.get(&format!("{WORKERS}{path}")).await;
    (answer.status, answer.json().await)
}

async fn named(app: &App, name: &str) -> Value {
    let (status, worker) = get(app, &format!("/name/{name}")).await;
    assert_eq!(status, StatusCode::OK, "{worker}");
    worker
}

async fn put(app: &App, name: &str, body: Value) -> (StatusCode, Value) {
    let id = named(app, name).await["id"].as_str().unwrap().to_owned();
    call(app, Method::PUT, &format!("{WORKERS}/{id}"), body).await
}

fn check(answer: (StatusCode, Value), status: u16, rc: &str) {
    let found = answer.1["rc"].as_str().unwrap_or_default();
    assert_eq!((answer.0.as_u16(), found), (status, rc), "{}", answer.1);
}

async fn owner(app: &App, roles: Roles) -> String {
    app.account_with(roles, Scopes::ALL).await
}

#[tokio::test]
async fn a_worker_is_seen_by_its_id_and_its_name_and_in_the_list() {
    let app = App::start().await;
    pop(&app, "w1").await;
    let seen = named(&app, "w1").await;
    assert_eq!(
        (&seen["type"], &seen["online"]),
        (&json!("text"), &json!(true))
    );
    assert_eq!(seen["models"], json!(["tiny", "other"]));
    assert_eq!(
        (&seen["max_length"], &seen["max_context_length"]),
        (&json!(512), &json!(4096))
    );
    assert_eq!(seen["bridge_agent"], "test:1:url");
    assert!(seen.get("owner").is_none() && seen.get("paused").is_none());
    let (_, same) = get(&app, &format!("/{}", seen["id"].as_str().unwrap())).await;
    assert_eq!(same, seen);
    for query in ["", "?type=text", "?name=W1", "?type=image&name=w1"] {
        let (_, list) = get(&app, query).await;
        assert_eq!(list, json!([seen]), "{query}");
    }
    assert_eq!(get(&app, "?type=image").await.1, json!([]));
    check(get(&app, "?type=sound").await, 400, "BadRequest");
    check(get(&app, "/nobody").await, 404, "WorkerNotFound");
    check(get(&app, "/name/nobody").await, 404, "WorkerNotFound");
    let unknown = format!("/{}", uuid::Uuid::new_v4());
    check(get(&app, &unknown).await, 404, "WorkerNotFound");
}

#[tokio::test]
async fn a_moderator_sees_whose_a_worker_is() {
    let app = App::start().await;
    pop(&app, "w1").await;
    let path = format!("{WORKERS}/name/w1");
    let (_, deep) = call(&app, Method::GET, &path, Value::Null).await;
    assert!(deep["owner"].as_str().unwrap().starts_with("admin#"));
    assert_eq!(deep["paused"], false);
    let plain = owner(&app, Roles::USER).await;
    // A moderator's, but to connect a worker with.
    let lesser = app.key_for(Scopes::WORKER_CONNECT).await;
    for key in [plain, lesser] {
        let (_, shallow) = call_as(&app, &key, Method::GET, &path, Value::Null).await;
        for deep in ["owner", "paused", "ipaddr", "suspicious"] {
            assert!(shallow.get(deep).is_none(), "{deep}: {shallow}");
        }
    }
    let (status, _) = call_as(&app, &"A".repeat(22), Method::GET, &path, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn what_a_new_worker_says_is_on_disk_when_it_is_given_its_first_job() {
    let app = App::start().await;
    ask(&app, json!({})).await;
    assert!(pop(&app, "w1").await["id"].is_string());
    let rig = app.store.rig_named("w1").await.unwrap().unwrap();
    assert_eq!((&*rig.trade, &*rig.said.agent), ("text", "test:1:url"));
}

#[tokio::test]
async fn what_a_worker_has_done_is_counted() {
    let app = App::start().await;
    let id = ask(&app, json!({"n": 2})).await;
    for _ in 0..2 {
        let popped = pop(&app, "w1").await;
        // Results without delay are not used to measure speed.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(
            submit(&app, &popped["id"], "some text").await.0,
            StatusCode::OK
        );
    }
    until(&app, &id, |status| status["done"] == true).await;
    let seen = named(&app, "w1").await;
    assert_eq!(seen["requests_fulfilled"], 2);
    assert!(seen["kudos_rewards"].as_f64().unwrap() > 0.0, "{seen}");
    assert_eq!(seen["kudos_details"]["generated"], seen["kudos_rewards"]);
    assert!(
        seen["performance"]
            .as_str()
            .unwrap()
            .ends_with("tokens per second")
    );
}

#[tokio::test]
async fn in_maintenance_a_worker_gets_its_owners_jobs_only_and_is_told_why() {
    let app = App::start().await;
    let stranger = owner(&app, Roles::USER).await;
    pop(&app, "w1").await;
    let change = json!({"maintenance": true, "maintenance_msg": "back at noon"});
    let (status, changed) = put(&app, "w1", change).await;
    assert_eq!(
        (status, changed),
        (StatusCode::OK, json!({"maintenance": true}))
    );
    assert_eq!(named(&app, "w1").await["maintenance_mode"], true);
    let body = json!({"prompt": "p", "models": ["tiny"]});
    let (status, _) = call_as(&app, &stranger, Method::POST, super::ASYNC, body).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let (status, told) = post(&app, POP, worker("w1")).await;
    check((status, told.clone()), 403, "WorkerMaintenance");
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("maintenance mode") && message.contains("back at noon"));
    ask(&app, json!({})).await;
    let own = pop(&app, "w1").await;
    assert_eq!(own["payload"]["prompt"], "Once upon");
    put(&app, "w1", json!({"maintenance": false})).await;
    assert_eq!(pop(&app, "w1").await["payload"]["prompt"], "p");
}

#[tokio::test]
async fn a_maintenance_switch_during_a_pop_counts_for_every_pop_after_it() {
    let app = App::start().await;
    let stranger = owner(&app, Roles::USER).await;
    pop(&app, "w1").await;
    for _ in 0..20 {
        let body = json!({"prompt": "p", "models": ["tiny"]});
        call_as(&app, &stranger, Method::POST, super::ASYNC, body).await;
        let on = put(&app, "w1", json!({"maintenance": true}));
        let (switched, during) = tokio::join!(on, post(&app, POP, worker("w1")));
        assert_eq!(switched.0, StatusCode::OK);
        assert!(
            during.0 == StatusCode::OK || during.1["rc"] == "WorkerMaintenance",
            "{during:?}"
        );
        check(
            post(&app, POP, worker("w1")).await,
            403,
            "WorkerMaintenance",
        );
        put(&app, "w1", json!({"maintenance": false})).await;
        if during.1["id"].is_null() {
            assert!(pop(&app, "w1").await["id"].is_string());
        }
    }
}

#[tokio::test]
async fn what_is_changed_about_a_worker_is_refused_by_its_code() {
    let app = App::start().await;
    pop(&app, "w1").await;
    pop(&app, "w2").await;
    check(put(&app, "w1", json!({})).await, 400, "NoWorkerModSelected");
    check(put(&app, "w1", json!({"name": "w2w2w"})).await, 200, "");
    let id = named(&app, "w2w2w").await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("{WORKERS}/{id}");
    let stranger = owner(&app, Roles::USER).await;
    let body = json!({"info": "mine"});
    check(
        call_as(&app, &stranger, Method::PUT, &path, body).await,
        403,
        "NotOwner",
    );
    check(
        call_as(&app, &stranger, Method::DELETE, &path, Value::Null).await,
        403,
        "NotModerator",
    );
    let unknown = format!("{WORKERS}/{}", uuid::Uuid::new_v4());
    check(
        call(&app, Method::PUT, &unknown, json!({"info": "i"})).await,
        404,
        "WorkerNotFound",
    );
    let (status, answer) = call(&app, Method::PUT, &path, json!({"name": "abc"})).await;
    assert!(status == StatusCode::BAD_REQUEST && answer["errors"]["name"].is_string());
    let _ = put(&app, "w2", json!({"name": "another"})).await;
    check(
        put(&app, "another", json!({"name": "w2w2w"})).await,
        400,
        "WorkerNameAlreadyExists",
    );
}

#[tokio::test]
async fn only_a_moderator_pauses_a_worker_which_then_works_for_nobody() {
    let app = App::start().await;
    let mine = owner(&app, Roles::USER).await;
    let body = worker("w1");
    let (status, _) = call_as(&app, &mine, Method::POST, POP, body.clone()).await;
    assert_eq!(status, StatusCode::OK);
    let id = named(&app, "w1").await["id"].as_str().unwrap().to_owned();
    let path = format!("{WORKERS}/{id}");
    let pause = json!({"paused": true});
    check(
        call_as(&app, &mine, Method::PUT, &path, pause.clone()).await,
        403,
        "NotModerator",
    );
    let (status, _) = call(&app, Method::PUT, &path, pause).await;
    assert_eq!(status, StatusCode::OK);
    let theirs = ask(&app, json!({})).await;
    let come = async || {
        let (status, popped) = call_as(&app, &mine, Method::POST, POP, body.clone()).await;
        assert_eq!(status, StatusCode::OK);
        popped
    };
    let shown = come().await;
    assert_eq!(shown["payload"]["prompt"], "Once upon");
    assert!(come().await["id"].is_null(), "it is shown a request once");
    let bring = async |id: &Value| {
        let body = json!({"id": id, "generation": "lies", "seed": 1});
        call_as(&app, &mine, Method::POST, super::SUBMIT, body).await
    };
    let (status, paid) = bring(&shown["id"]).await;
    assert_eq!((status, &paid["reward"]), (StatusCode::OK, &json!(0.0)));
    check(bring(&shown["id"]).await, 400, "DuplicateGen");
    let status = super::look(&app, &theirs).await;
    assert_eq!(
        (&status["waiting"], &status["finished"]),
        (&json!(1), &json!(0))
    );
    let own = json!({"prompt": "mine", "models": ["tiny"]});
    call_as(&app, &mine, Method::POST, super::ASYNC, own).await;
    let own = come().await;
    assert_eq!(own["payload"]["prompt"], "mine");
    assert_eq!(bring(&own["id"]).await.0, StatusCode::OK);
    assert_eq!(pop(&app, "w2").await["payload"]["prompt"], "Once upon");
}

async fn pause(app: &App, name: &str) {
    let (status, answer) = put(app, name, json!({"paused": true})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// A worker of this account comes, and wants a text of this model.
async fn pop_of(app: &App, key: &str, name: &str, model: &str) -> Value {
    let mut body = worker(name);
    body["models"] = json!([model]);
    let (status, popped) = call_as(app, key, Method::POST, POP, body).await;
    assert_eq!(status, StatusCode::OK, "{popped}");
    popped
}

/// A worker of this account submits its job.
async fn bring(app: &App, key: &str, id: &Value) -> StatusCode {
    let body = json!({"id": id, "generation": "a text", "seed": 1});
    call_as(app, key, Method::POST, super::SUBMIT, body).await.0
}

#[tokio::test]
async fn what_a_paused_worker_brings_to_a_coordinator_that_began_anew_is_not_taken() {
    let app = App::start().await;
    let mine = owner(&app, Roles::USER).await;
    let id = ask(&app, json!({})).await;
    let popped = pop_of(&app, &mine, "w1", "tiny").await;
    pause(&app, "w1").await;
    let app = app.anew().await;
    assert_eq!(
        bring(&app, &mine, &popped["id"]).await,
        StatusCode::NOT_FOUND
    );
    assert_eq!(super::look(&app, &id).await["finished"], 0);
    // And it is shown copies, as it was before.
    let shown = pop_of(&app, &mine, "w1", "tiny").await;
    assert_eq!(bring(&app, &mine, &shown["id"]).await, StatusCode::OK);
    assert_eq!(super::look(&app, &id).await["finished"], 0);
    assert!(pop(&app, "w2").await["id"].is_string());
}

/// A worker of an account has a running text of this key's user, and another one is paused; the next process has seen
/// only the paused one.
async fn beside_a_paused_one(app: App, mine: &str, asks: &str, name: &str) -> (App, String, Value) {
    let body = json!({"prompt": "Once upon", "models": ["tiny"]});
    let (status, asked) = call_as(&app, asks, Method::POST, super::ASYNC, body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{asked}");
    let popped = pop_of(&app, mine, name, "tiny").await;
    assert!(popped["id"].is_string(), "{popped}");
    pop_of(&app, mine, "paused", "other").await;
    pause(&app, "paused").await;
    let app = app.anew().await;
    assert!(pop_of(&app, mine, "paused", "other").await["id"].is_null());
    let id = asked["id"].as_str().unwrap().to_owned();
    (app, id, popped["id"].clone())
}

#[tokio::test]
async fn beside_a_paused_worker_another_of_its_owner_brings_what_an_earlier_process_gave_it() {
    let app = App::start().await;
    let (mine, theirs) = (owner(&app, Roles::USER).await, app.key.clone());
    let (app, id, job) = beside_a_paused_one(app, &mine, &theirs, "honest").await;
    assert_eq!(bring(&app, &mine, &job).await, StatusCode::OK);
    let status = until(&app, &id, |status| status["finished"] == 1).await;
    assert_eq!(status["generations"][0]["worker_name"], "honest");
}

#[tokio::test]
async fn a_paused_worker_brings_what_its_owner_asked_an_earlier_process_for() {
    let app = App::start().await;
    let mine = owner(&app, Roles::USER).await;
    let (app, id, job) = beside_a_paused_one(app, &mine, &mine, "paused").await;
    assert_eq!(bring(&app, &mine, &job).await, StatusCode::OK);
    until(&app, &id, |status| status["finished"] == 1).await;
}

#[tokio::test]
async fn a_worker_is_not_deleted_while_somebody_may_read_what_it_made() {
    let app = App::start().await;
    ask(&app, json!({})).await;
    let popped = pop(&app, "w1").await;
    let id = named(&app, "w1").await["id"].as_str().unwrap().to_owned();
    let path = format!("{WORKERS}/{id}");
    submit(&app, &popped["id"], "text").await;
    check(
        call(&app, Method::DELETE, &path, Value::Null).await,
        423,
        "Locked",
    );
    pop(&app, "w2").await;
    let id = named(&app, "w2").await["id"].clone();
    let path = format!("{WORKERS}/{}", id.as_str().unwrap());
    let (status, deleted) = call(&app, Method::DELETE, &path, Value::Null).await;
    assert_eq!(
        (status, deleted),
        (
            StatusCode::OK,
            json!({"deleted_id": id, "deleted_name": "w2"})
        )
    );
    check(get(&app, "/name/w2").await, 404, "WorkerNotFound");
    pop(&app, "w2").await;
    assert_ne!(named(&app, "w2").await["id"], id);
}

#[tokio::test]
async fn who_may_not_have_a_worker_is_told_the_first_thing_that_is_wrong() {
    let app = App::with(DoorSettings {
        worker_quotas: Some(Quotas::default()),
        ..DoorSettings::default()
    })
    .await;
    let pop_as = async |key: &str, body: Value| call_as(&app, key, Method::POST, POP, body).await;
    let mut bad = worker("w1");
    bad["priority_usernames"] = json!(["alice"]);
    check(post(&app, POP, bad).await, 400, "InvalidPriorityUsername");
    let flagged = owner(&app, Roles::FLAGGED).await;
    check(
        pop_as(&flagged, worker("w1")).await,
        403,
        "WorkerFlaggedMaintenance",
    );
    let deleted = owner(&app, Roles::DELETED).await;
    check(pop_as(&deleted, worker("w1")).await, 403, "DeletedUser");
    check(
        post(&app, POP, worker("my colab 7")).await,
        400,
        "BadRequest",
    );
    let mut foreign = worker("w1");
    foreign["models"] = json!(["special::alice#999"]);
    let (status, told) = post(&app, POP, foreign).await;
    assert!(
        told["message"]
            .as_str()
            .unwrap()
            .contains("we cannot accept workers serving")
    );
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let small = owner(&app, Roles::USER).await;
    for number in 0..4 {
        let (status, _) = pop_as(&small, worker(&format!("small {number}"))).await;
        assert_eq!(status, StatusCode::OK);
    }
    check(
        pop_as(&small, worker("small 4")).await,
        403,
        "TooManyWorkers",
    );
    check(pop_as(&small, worker("small 1")).await, 200, "");
    let trusted = owner(&app, Roles::TRUSTED).await;
    for number in 0..21 {
        let (status, _) = pop_as(&trusted, worker(&format!("large {number}"))).await;
        assert_eq!(status, StatusCode::OK);
    }
    check(
        pop_as(&trusted, worker("large 21")).await,
        403,
        "TooManyWorkersTrusted",
    );
    check(
        pop_as(&trusted, worker("small 1")).await,
        403,
        "WrongCredentials",
    );
}

#[tokio::test]
async fn what_is_for_trusted_workers_goes_to_those_of_trusted_owners() {
    let app = App::start().await;
    let (known, stranger) = (
        owner(&app, Roles::USER.with(Roles::TRUSTED)).await,
        owner(&app, Roles::USER).await,
    );
    let body = json!({"prompt": "Once", "models": ["tiny"], "trusted_workers": true});
    let (status, _) = post(&app, "/api/v2/generate/text/async", body).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let come = async |key: &str, name: &str| {
        let (_, popped) = call_as(&app, key, Method::POST, POP, worker(name)).await;
        popped
    };
    let popped = come(&stranger, "strange").await;
    assert_eq!(popped["skipped"], json!({"untrusted": 1}), "{popped}");
    assert!(come(&known, "known").await["id"].is_string());
}

#[tokio::test]
async fn no_public_name_or_note_holds_a_profanity() {
    let app = App::start().await;
    pop(&app, "w1").await;
    let note = json!({"info": "fuck this"});
    check(put(&app, "w1", note).await, 400, "ProfaneWorkerInfo");
    let name = json!({"name": "sh1t happens"});
    check(put(&app, "w1", name).await, 400, "ProfaneWorkerName");
    let new = post(&app, POP, worker("b1tch")).await;
    check(new, 400, "ProfaneWorkerName");
    let user = json!({"contact": "a$$hole@example.org"});
    let (_, me) = call(&app, Method::GET, "/api/v2/find_user", Value::Null).await;
    let path = format!("/api/v2/users/{}", me["id"]);
    check(
        call(&app, Method::PUT, &path, user).await,
        400,
        "ProfaneUserContact",
    );
}

#[tokio::test]
async fn a_request_may_name_the_workers_it_is_for_or_those_it_is_not_for() {
    let app = App::start().await;
    pop(&app, "w1").await;
    pop(&app, "w2").await;
    let id = named(&app, "w2").await["id"].clone();
    let wanted = |deny: bool, id: &Value| json!({"prompt": "p", "models": ["tiny"], "workers": [id], "worker_blacklist": deny});
    let unknown = json!(uuid::Uuid::new_v4());
    for wrong in [unknown, json!("nobody")] {
        check(
            post(&app, super::ASYNC, wanted(false, &wrong)).await,
            404,
            "WorkerNotFound",
        );
    }
    post(&app, super::ASYNC, wanted(false, &id)).await;
    let empty = pop(&app, "w1").await;
    assert_eq!(
        (&empty["id"], &empty["skipped"]["worker_id"]),
        (&Value::Null, &json!(1))
    );
    assert!(pop(&app, "w2").await["id"].is_string());
    post(&app, super::ASYNC, wanted(true, &id)).await;
    assert!(pop(&app, "w2").await["id"].is_null());
    assert!(pop(&app, "w1").await["id"].is_string());
}

#[tokio::test]
async fn a_request_may_want_validated_software_and_speed() {
    let app = App::start().await;
    // Speed is paid for before.
    app.enrich(Kudos(1_000_000)).await;
    let mut body = json!({"prompt": "p", "models": ["tiny"], "validated_backends": true});
    post(&app, super::ASYNC, body.clone()).await;
    let empty = pop(&app, "w1").await;
    assert_eq!(empty["skipped"]["bridge_version"], 1);
    let mut validated = worker("w2");
    validated["bridge_agent"] = json!("KoboldCppEmbedWorker:2:url");
    let (_, popped) = post(&app, POP, validated).await;
    assert!(popped["id"].is_string(), "{popped}");
    body = json!({"prompt": "p", "models": ["tiny"], "slow_workers": false});
    post(&app, super::ASYNC, body).await;
    assert_eq!(pop(&app, "w1").await["skipped"]["performance"], 1);
}

#[tokio::test]
async fn very_slow_workers_get_images_that_have_time_and_any_text() {
    let app = App::start().await;
    let slow = json!({"extra_slow_worker": true});
    images::ask(&app, json!({})).await;
    let popped = images::pop(&app, slow.clone()).await;
    assert_eq!(popped["skipped"]["performance"], 1, "{popped}");
    images::ask(&app, json!({"extra_slow_workers": true})).await;
    let popped = images::pop(&app, slow).await;
    assert!(popped["id"].is_string(), "{popped}");
    ask(&app, json!({})).await;
    let mut slow = worker("slow");
    slow["extra_slow_worker"] = json!(true);
    let (_, popped) = post(&app, POP, slow).await;
    assert!(popped["id"].is_string(), "{popped}");
}

#[tokio::test]
async fn moderators_see_how_suspicious_a_worker_is() {
    let app = App::start().await;
    let key = owner(&app, Roles::USER).await;
    for name in ["fast", "plain"] {
        call_as(&app, &key, Method::POST, POP, worker(name)).await;
    }
    let fast = app.store.rig_named("fast").await.unwrap().unwrap();
    for _ in 0..2 {
        let mark = Mark {
            account: fast.owner.account,
            worker: Some(fast.id),
            reason: Reason::TooFast,
        };
        assert_eq!(app.store.mark(mark, wall_clock()).await, Ok(true));
    }
    let (_, workers) = call(&app, Method::GET, "/api/v2/workers", Value::Null).await;
    let all = workers.as_array().unwrap().iter();
    let seen: Vec<_> = all.map(|it| (&it["name"], &it["suspicious"])).collect();
    let expected = [(&json!("fast"), &json!(2)), (&json!("plain"), &json!(0))];
    assert_eq!(seen, expected);
    assert_eq!(named(&app, "fast").await["suspicious"], Value::Null);
}

#[tokio::test]
async fn a_worker_that_is_renamed_goes_on_as_the_same_and_is_here_once() {
    let app = App::start().await;
    ask(&app, json!({})).await;
    let popped = pop(&app, "before").await;
    let (status, answer) = put(&app, "before", json!({"name": "after"})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(pop(&app, "after").await["id"], Value::Null);
    let online = app.board.current().await;
    let names: Vec<_> = online.workers.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["after"]);
    let (status, answer) = submit(&app, &popped["id"], "a text").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}
