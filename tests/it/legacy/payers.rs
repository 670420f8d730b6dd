//! Payment of requests: payers, and kudos holds until the end of a request.

use axum::http::{Method, StatusCode};
use futures_util::future::join_all;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::Roles;
use muster::protocol::job::{AccountId, Kudos};
use muster_testing::eventually;
use serde_json::{Value, json};

use super::money::{Person, refused};
use super::{ASYNC, STATUS, call_as, look, pop, submit, until};
use crate::support::app::App;

const KEYS: &str = "/api/v2/sharedkeys";
const DRAW: &str = "/api/v2/generate";
/// Creates a shared key of this user.
async fn shared_key(app: &App, owner: &Person, body: Value) -> String {
    let (status, key) = call_as(app, &owner.key, Method::PUT, KEYS, body).await;
    assert_eq!(status, StatusCode::OK, "{key}");
    key["id"].as_str().unwrap().to_owned()
}

async fn shown(app: &App, key: &str) -> Value {
    let path = format!("{KEYS}/{key}");
    call_as(app, "", Method::GET, &path, Value::Null).await.1
}

async fn ask(app: &App, key: &str, more: Value) -> (StatusCode, Value) {
    let mut body = json!({"prompt": "Once upon", "models": ["tiny"]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    call_as(app, key, Method::POST, ASYNC, body).await
}

/// Asks for an image with more steps than are for nothing: it is said to cost 13 kudos.
async fn draw(app: &App, key: &str, more: Value) -> (StatusCode, Value) {
    let mut body =
        json!({"prompt": "a cat", "models": ["tiny"], "r2": false, "params": {"steps": 50}});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    call_as(app, key, Method::POST, &format!("{DRAW}/async"), body).await
}

async fn pop_image(app: &App) -> Value {
    let worker = json!({
        "name": "artist", "models": ["tiny"], "max_pixels": 1_048_576, "amount": 1,
        "bridge_agent": "AI Horde Worker reGen:13:test",
    });
    let (status, popped) =
        call_as(app, &app.key, Method::POST, &format!("{DRAW}/pop"), worker).await;
    assert_eq!(status, StatusCode::OK, "{popped}");
    popped
}

/// An app that allows anonymous requests.
async fn open_to_all(settings: DoorSettings) -> App {
    App::with(DoorSettings {
        anonymous: true,
        ..settings
    })
    .await
}

#[track_caller]
fn accepted((status, body): (StatusCode, Value)) -> String {
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    body["id"].as_str().unwrap().to_owned()
}

/// Waits until nothing is kept of an account any more.
async fn nothing_is_held(app: &App, account: AccountId) {
    so_much_is_held(app, account, Kudos(0)).await;
}

async fn so_much_is_held(app: &App, account: AccountId, kudos: Kudos) {
    eventually("the wanted hold", async || {
        match app.store.held(account).await.unwrap() {
            held if held == kudos => Ok(()),
            held => Err(held),
        }
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_is_answered_with_its_price_alone_and_asks_nobody() {
    let app = App::start().await;
    let dry = json!({"dry_run": true, "params": {"max_length": 100, "max_context_length": 1024}});
    let (status, answer) = ask(&app, &app.key, dry.clone()).await;
    // Of a model of a billion parameters: 100 · 2.2 / 100, and two kudos more.
    assert_eq!((status, answer), (StatusCode::OK, json!({"kudos": 4.0})));
    assert_eq!(app.board.overview().queued, 0);
    refused(
        &ask(&app, "not a key at all", dry.clone()).await,
        401,
        "InvalidAPIKey",
    );
    let wrong = json!({"dry_run": true, "prompt": ""});
    refused(&ask(&app, &app.key, wrong).await, 400, "MissingPrompt");
}

#[tokio::test]
async fn what_is_asked_with_a_shared_key_its_owner_pays_and_the_key() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 100).await;
    let key = shared_key(&app, &alice, json!({"kudos": 50})).await;
    let id = accepted(ask(&app, &key, json!({})).await);
    let popped = pop(&app, "w1").await;
    submit(&app, &popped["id"], " a time.").await;
    until(&app, &id, |status| status["done"] == true).await;
    let key = shown(&app, &key).await;
    let spent = 100_000 - app.store.spendable(alice.account).await.unwrap().0;
    assert!(spent > 1000, "{spent}");
    assert_eq!(key["utilized"], spent / 1000);
    assert_eq!(key["kudos"], (50_000 - spent).div_euclid(1000));
    let sums = app.store.ledger_sums().await.unwrap();
    assert_eq!((sums.entries, sums.wrong_jobs), (Kudos(0), 0));
}

#[tokio::test]
async fn a_shared_key_opens_nothing_but_what_it_is_for() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let key = shared_key(&app, &alice, json!({})).await;
    for path in [
        "/api/v2/kudos/transfer",
        "/api/v2/kudos/award",
        "/v1/chat/completions",
    ] {
        let (status, _) = call_as(&app, &key, Method::POST, path, json!({})).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let unknown = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    refused(&ask(&app, unknown, json!({})).await, 401, "InvalidAPIKey");
}

#[tokio::test]
async fn a_shared_key_is_refused_where_it_cannot_pay() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let empty = shared_key(&app, &alice, json!({"kudos": 0})).await;
    let poor = shared_key(&app, &alice, json!({"kudos": 1})).await;
    let small = shared_key(&app, &alice, json!({"max_text_tokens": 20})).await;
    refused(&ask(&app, &empty, json!({})).await, 403, "SharedKeyEmpty");
    // Anonymous requests are disabled here.
    let downgraded = json!({"allow_downgrade": true});
    refused(
        &ask(&app, &empty, downgraded.clone()).await,
        403,
        "SharedKeyEmpty",
    );
    refused(&draw(&app, &empty, downgraded).await, 403, "SharedKeyEmpty");
    refused(
        &ask(&app, &poor, json!({})).await,
        403,
        "SharedKeyInsufficientKudos",
    );
    let long = json!({"params": {"max_length": 21}});
    refused(&ask(&app, &small, long).await, 400, "BadRequest");
    accepted(ask(&app, &small, json!({"params": {"max_length": 20}})).await);
    let path = format!("{KEYS}/{small}");
    call_as(&app, &alice.key, Method::PATCH, &path, json!({"expiry": 0})).await;
    refused(&ask(&app, &small, json!({})).await, 403, "SharedKeyExpired");
}

#[tokio::test]
async fn who_takes_less_than_a_key_can_pay_costs_its_owner_no_more_than_the_budget() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 100).await;
    let key = shared_key(&app, &alice, json!({"kudos": 2})).await;
    let three = json!({"allow_downgrade": true, "params": {"n": 3}});
    let id = accepted(ask(&app, &key, three).await);
    for _ in 0..3 {
        let popped = pop(&app, "w1").await;
        let (status, paid) = submit(&app, &popped["id"], " a time.").await;
        assert_eq!(status, StatusCode::OK, "{paid}");
    }
    until(&app, &id, |status| status["done"] == true).await;
    assert_eq!(alice.left(&app).await, 98);
    let key = shown(&app, &key).await;
    assert_eq!((&key["utilized"], &key["kudos"]), (&json!(2), &json!(0)));
    let sums = app.store.ledger_sums().await.unwrap();
    assert_eq!(
        (sums.entries, sums.wrong_jobs, sums.wrong_balances),
        (Kudos(0), 0, 0)
    );
}

#[tokio::test]
async fn what_a_key_cannot_pay_for_is_not_kept_of_its_owner() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 100).await;
    let key = shared_key(&app, &alice, json!({"kudos": 5})).await;
    accepted(draw(&app, &key, json!({"allow_downgrade": true})).await);
    assert_eq!(app.store.held(alice.account).await.unwrap(), Kudos(0));
    let popped = pop_image(&app).await;
    let steps = popped["payload"]["ddim_steps"].as_i64().unwrap();
    assert!(steps < 50, "it becomes smaller: {popped}");
}

#[tokio::test]
async fn who_takes_less_for_an_empty_key_waits_as_anonymous() {
    let app = open_to_all(DoorSettings::default()).await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 100).await;
    let empty = shared_key(&app, &alice, json!({"kudos": 0})).await;
    let id = accepted(ask(&app, &empty, json!({"allow_downgrade": true})).await);
    let popped = pop(&app, "w1").await;
    submit(&app, &popped["id"], " a time.").await;
    until(&app, &id, |status| status["done"] == true).await;
    assert_eq!(alice.left(&app).await, 100, "she pays nothing");
    assert_eq!(shown(&app, &empty).await["utilized"], 0);
}

#[tokio::test]
async fn a_long_text_is_paid_for_before_and_what_was_kept_is_given_back() {
    let settings = DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    };
    let app = App::with(settings).await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    // 1,000 tokens of a model of a billion parameters: 47.6 kudos.
    let long = json!({"params": {"max_length": 1000, "max_context_length": 2048}});
    alice.can_give(&app, 40).await;
    refused(
        &ask(&app, &alice.key, long.clone()).await,
        403,
        "KudosUpfront",
    );
    assert_eq!(app.board.overview().queued, 0);
    alice.can_give(&app, 60).await;
    let id = accepted(ask(&app, &alice.key, long.clone()).await);
    // 47.6 are kept, and one is charged at once.
    assert_eq!(alice.left(&app).await, 11);
    // The held kudos can neither be held again nor transferred.
    refused(
        &ask(&app, &alice.key, long.clone()).await,
        403,
        "KudosUpfront",
    );
    let bob = Person::new(&app, "bob", Roles::USER).await;
    let gift = json!({"username": bob.alias(), "amount": 20});
    let gift = call_as(
        &app,
        &alice.key,
        Method::POST,
        "/api/v2/kudos/transfer",
        gift,
    )
    .await;
    refused(&gift, 400, "KudosTransferNotEnough");
    let path = format!("{STATUS}/{id}");
    call_as(&app, "", Method::DELETE, &path, Value::Null).await;
    nothing_is_held(&app, alice.account).await;
    assert_eq!(alice.left(&app).await, 59);
}

#[tokio::test]
async fn who_takes_less_for_too_few_kudos_gets_a_shorter_text() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 0).await;
    let long = json!({
        "params": {"max_length": 1000, "max_context_length": 2048}, "allow_downgrade": true,
    });
    let id = accepted(ask(&app, &alice.key, long).await);
    let popped = pop(&app, "w1").await;
    assert_eq!(popped["payload"]["max_length"], 512);
    assert_eq!(look(&app, &id).await["processing"], 1);
    assert_eq!(app.store.held(alice.account).await.unwrap(), Kudos(0));
}

#[tokio::test]
async fn a_heavy_image_is_paid_for_before_and_what_was_kept_is_given_back() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 12).await;
    refused(
        &draw(&app, &alice.key, json!({})).await,
        403,
        "KudosUpfront",
    );
    assert_eq!(app.board.overview().queued, 0);
    // Requests that are free for all need no hold.
    let modest = json!({"params": {"steps": 40, "width": 1024, "height": 1024}});
    let id = accepted(draw(&app, &alice.key, modest).await);
    let cancel = async |id: &str| {
        let path = format!("{DRAW}/status/{id}");
        call_as(&app, "", Method::DELETE, &path, Value::Null).await
    };
    cancel(&id).await;
    assert_eq!(app.store.held(alice.account).await.unwrap(), Kudos(0));
    alice.can_give(&app, 20).await;
    let id = accepted(draw(&app, &alice.key, json!({})).await);
    assert_eq!(
        alice.left(&app).await,
        6,
        "13 are kept, and one is charged at once"
    );
    refused(
        &draw(&app, &alice.key, json!({})).await,
        403,
        "KudosUpfront",
    );
    cancel(&id).await;
    nothing_is_held(&app, alice.account).await;
    assert_eq!(alice.left(&app).await, 19);
    // Requests refused for other reasons hold nothing either.
    let broken = json!({"source_image": "no image at all"});
    assert_eq!(
        draw(&app, &alice.key, broken).await.0,
        StatusCode::BAD_REQUEST
    );
    nothing_is_held(&app, alice.account).await;
}

#[tokio::test]
async fn what_was_kept_for_an_image_is_given_back_when_it_is_drawn_and_it_is_charged_once() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 20).await;
    let before = app.store.balance(alice.account).await.unwrap();
    let id = accepted(draw(&app, &alice.key, json!({})).await);
    let popped = pop_image(&app).await;
    let drawn = json!({"id": popped["id"], "generation": super::images::drawn(), "seed": 7});
    let submit = format!("{DRAW}/submit");
    let (_, paid) = call_as(&app, &app.key, Method::POST, &submit, drawn).await;
    assert_eq!(paid["reward"], 11.0, "{paid}");
    nothing_is_held(&app, alice.account).await;
    let check = format!("{DRAW}/check/{id}");
    let (_, check) = call_as(&app, "", Method::GET, &check, Value::Null).await;
    assert_eq!(
        (&check["done"], &check["kudos"]),
        (&json!(true), &json!(13.0))
    );
    let after = app.store.balance(alice.account).await.unwrap();
    assert_eq!(before.0 - after.0, 13_000);
    let sums = app.store.ledger_sums().await.unwrap();
    assert_eq!(
        (sums.entries, sums.wrong_jobs, sums.wrong_balances),
        (Kudos(0), 0, 0)
    );
}

#[tokio::test]
async fn what_is_kept_for_several_images_is_less_with_each_that_is_drawn() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 100).await;
    let two = json!({"params": {"steps": 50, "n": 2}});
    accepted(draw(&app, &alice.key, two).await);
    let both = app.store.held(alice.account).await.unwrap();
    assert!(both >= Kudos(2000), "{both:?}");
    for left in [Kudos(both.0 - both.0 / 2), Kudos(0)] {
        let popped = pop_image(&app).await;
        let drawn = json!({"id": popped["id"], "generation": super::images::drawn(), "seed": 7});
        let submit = format!("{DRAW}/submit");
        let (status, paid) = call_as(&app, &app.key, Method::POST, &submit, drawn).await;
        assert_eq!(status, StatusCode::OK, "{paid}");
        so_much_is_held(&app, alice.account, left).await;
    }
}

#[tokio::test]
async fn who_takes_less_for_too_few_kudos_gets_a_smaller_image_with_fewer_steps() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 0).await;
    let large = |more: Value| {
        let mut params = json!({"width": 2048, "height": 1024, "steps": 90});
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        json!({"params": params, "slow_workers": false, "allow_downgrade": true})
    };
    accepted(draw(&app, &alice.key, large(json!({"sampler_name": "k_heun"}))).await);
    let popped = pop_image(&app).await;
    let payload = &popped["payload"];
    // 2:1 as far as steps of 64 allow, of a million pixels; each step of this sampler counts twice.
    assert_eq!(
        (&payload["width"], &payload["height"]),
        (&json!(1408), &json!(704)),
        "{popped}"
    );
    assert_eq!(payload["ddim_steps"], 20);
    assert_eq!(app.store.held(alice.account).await.unwrap(), Kudos(0));
    // A request with an adaptive sampler cannot be downgraded to fewer steps.
    let control = json!({"sampler_name": "k_dpm_adaptive", "control_type": "canny"});
    let mut adaptive = large(control);
    adaptive["source_image"] = json!(super::images::PNG);
    refused(&draw(&app, &alice.key, adaptive).await, 403, "KudosUpfront");
}

#[tokio::test]
async fn of_many_heavy_images_at_once_as_many_are_kept_for_as_there_are_kudos() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 60).await;
    let many = (0..20).map(|_| draw(&app, &alice.key, json!({"allow_downgrade": true})));
    // All are accepted: those without enough kudos are downgraded.
    join_all(many)
        .await
        .into_iter()
        .for_each(|one| drop(accepted(one)));
    // Each is charged one at once as well.
    let kept = app.store.holding().await.unwrap().len();
    assert!((3..=4).contains(&kept), "{kept}");
    let held = app.store.held(alice.account).await.unwrap();
    assert_eq!(held, Kudos(13_000 * kept as i64));
    let mut heavy = 0;
    for _ in 0..20 {
        heavy += usize::from(pop_image(&app).await["payload"]["ddim_steps"] == 50);
    }
    assert_eq!(heavy, kept);
}

#[tokio::test]
async fn what_is_not_for_slow_workers_is_drawn_by_fast_ones() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 100).await;
    let hasty = json!({"slow_workers": false, "params": {}});
    for _ in 0..2 {
        accepted(draw(&app, &alice.key, hasty.clone()).await);
        // Until it is measured a worker counts as fast enough, and this one is.
        let popped = pop_image(&app).await;
        let drawn = json!({"id": popped["id"], "generation": super::images::drawn(), "seed": 7});
        let submit = format!("{DRAW}/submit");
        let (status, paid) = call_as(&app, &app.key, Method::POST, &submit, drawn).await;
        assert_eq!(status, StatusCode::OK, "{popped} {paid}");
    }
}

#[tokio::test]
async fn what_a_request_costs_at_once_is_charged_when_it_is_accepted() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 10).await;
    let plain = json!({"params": {}});
    let id = accepted(draw(&app, &alice.key, plain.clone()).await);
    accepted(ask(&app, &alice.key, json!({})).await);
    assert_eq!(alice.left(&app).await, 8);
    let path = format!("{DRAW}/check/{id}");
    let (_, check) = call_as(&app, "", Method::GET, &path, Value::Null).await;
    assert_eq!(check["kudos"], 1.0, "{check}");
    // Refused requests and dry runs are free.
    let dry = json!({"dry_run": true});
    assert_eq!(draw(&app, &alice.key, dry).await.0, StatusCode::OK);
    refused(
        &draw(&app, &alice.key, json!({})).await,
        403,
        "KudosUpfront",
    );
    assert_eq!(alice.left(&app).await, 8);
    // A key pays it as well as its owner.
    let key = shared_key(&app, &alice, json!({"kudos": 50})).await;
    accepted(draw(&app, &key, plain).await);
    assert_eq!(alice.left(&app).await, 7);
    assert_eq!(shown(&app, &key).await["utilized"], 1);
}

#[tokio::test]
async fn a_service_asks_for_its_own_people_each_of_whom_has_room() {
    let settings = DoorSettings {
        polled_texts: 2,
        ..DoorSettings::default()
    };
    let app = App::with(settings).await;
    let plain = Person::new(&app, "alice", Roles::USER).await;
    let service = Person::new(&app, "bot", Roles::USER.with(Roles::SERVICE)).await;
    let one = |name: &str| json!({"proxied_account": name, "params": {}});
    for asked in [
        ask(&app, &plain.key, one("carol")).await,
        draw(&app, &plain.key, one("carol")).await,
    ] {
        refused(&asked, 400, "OnlyServiceAccountProxy");
    }
    for name in ["carol", "dave"] {
        for _ in 0..2 {
            accepted(ask(&app, &service.key, one(name)).await);
            accepted(draw(&app, &service.key, one(name)).await);
        }
        refused(
            &ask(&app, &service.key, one(name)).await,
            429,
            "TooManyPrompts",
        );
        refused(
            &draw(&app, &service.key, one(name)).await,
            429,
            "TooManyPrompts",
        );
    }
    accepted(ask(&app, &service.key, json!({})).await);
    let popped = pop(&app, "w1").await;
    assert!(popped["id"].is_string(), "{popped}");
    assert!(
        !popped.to_string().contains("carol"),
        "workers are not told"
    );
}

#[tokio::test]
async fn an_empty_key_gives_nobody_more_room_than_all_who_have_none() {
    let settings = DoorSettings {
        polled_texts: 2,
        ..DoorSettings::default()
    };
    let app = open_to_all(settings).await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let empty = shared_key(&app, &alice, json!({"kudos": 0})).await;
    let twenty = json!({"allow_downgrade": true, "params": {"n": 20}});
    for _ in 0..25 {
        accepted(ask(&app, &empty, twenty.clone()).await);
    }
    let one = json!({"allow_downgrade": true});
    refused(&ask(&app, &empty, one).await, 429, "TooManyPrompts");
    accepted(ask(&app, &alice.key, json!({})).await);
}

#[tokio::test]
async fn of_many_at_once_as_many_are_taken_as_a_shared_key_can_pay_for() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let (_, price) = ask(&app, &alice.key, json!({"dry_run": true})).await;
    let price = price["kudos"].as_f64().unwrap() as i64;
    // Each is charged one at once as well.
    let left = json!({"kudos": 3 * price + 2});
    let key = shared_key(&app, &alice, left).await;
    let many = join_all((0..20).map(|_| ask(&app, &key, json!({})))).await;
    let (taken, others): (Vec<_>, Vec<_>) = many
        .into_iter()
        .partition(|(status, _)| *status == StatusCode::ACCEPTED);
    assert_eq!(taken.len(), 3);
    for other in &others {
        refused(other, 403, "SharedKeyInsufficientKudos");
    }
    assert_eq!(app.store.holding().await.unwrap().len(), 3);
    // Downgraded requests queue behind the others, and the rest stays held.
    let downgraded = json!({"allow_downgrade": true});
    let last = ask(&app, &key, downgraded.clone()).await;
    assert_eq!(app.store.holding().await.unwrap().len(), 4);
    for more in [downgraded, json!({})] {
        let late = ask(&app, &key, more).await;
        refused(&late, 403, "SharedKeyInsufficientKudos");
    }
    for one in taken.into_iter().chain([last]) {
        let path = format!("{STATUS}/{}", accepted(one));
        call_as(&app, "", Method::DELETE, &path, Value::Null).await;
    }
    eventually("no holds", async || {
        app.store.holding().await.unwrap().is_empty()
    })
    .await;
    accepted(ask(&app, &key, json!({})).await);
}

#[tokio::test]
async fn nobody_asks_as_anonymous_with_a_key_that_has_kudos_which_are_kept_for_others() {
    let app = open_to_all(DoorSettings::default()).await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 100).await;
    let key = shared_key(&app, &alice, json!({"kudos": 3})).await;
    let all = json!({"allow_downgrade": true, "params": {"n": 10}});
    accepted(ask(&app, &key, all).await);
    for more in [json!({}), json!({"allow_downgrade": true})] {
        let late = ask(&app, &key, more).await;
        refused(&late, 403, "SharedKeyInsufficientKudos");
    }
}

#[tokio::test]
async fn a_worker_that_wants_kudos_first_serves_those_who_have_them_above_their_floor() {
    let app = App::start().await;
    let pop = async || {
        let worker = json!({
            "name": "proud", "models": ["tiny"], "require_upfront_kudos": true,
            "bridge_agent": "KoboldCppEmbedWorker:2:url", "max_length": 512, "max_context_length": 2048,
        });
        let path = "/api/v2/generate/text/pop";
        call_as(&app, &app.key, Method::POST, path, worker).await.1
    };
    let with = async |name: &str, kudos: i64, roles: Roles| {
        let person = Person::new(&app, name, roles).await;
        person.can_give(&app, kudos).await;
        accepted(ask(&app, &person.key, json!({})).await);
    };
    // Her initial kudos may not be transferred, although they would suffice.
    with("alice", 0, Roles::USER).await;
    let popped = pop().await;
    let told = (&popped["id"], &popped["skipped"]["kudos"]);
    assert_eq!(told, (&Value::Null, &json!(1)), "{popped}");
    with("bob", 20, Roles::USER.with(Roles::FLAGGED)).await;
    assert!(pop().await["id"].is_string());
}
