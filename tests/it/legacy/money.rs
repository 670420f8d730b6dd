//! Kudos between people, and the keys they hand to each other.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use futures_util::future::join_all;
use muster::coordinator::accounts::KeyOrder;
use muster::coordinator::kudos::{Cause, Posting};
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{AccountId, Kudos, UnixMillis};
use serde_json::{Value, json};

use crate::support::app::{App, request};

const TRANSFER: &str = "/api/v2/kudos/transfer";
const AWARD: &str = "/api/v2/kudos/award";
const KEYS: &str = "/api/v2/sharedkeys";

/// A user with an account.
pub struct Person {
    pub account: AccountId,
    pub key: String,
}

impl Person {
    pub async fn new(app: &App, name: &str, roles: Roles) -> Self {
        let account = app.accounts.create_account(name, roles).await.unwrap();
        let order = KeyOrder {
            scopes: Scopes::ALL,
            ..KeyOrder::default()
        };
        let key = app.accounts.create_key(account, order).await.unwrap();
        Self {
            account,
            key: key.text.expose().to_owned(),
        }
    }

    pub fn alias(&self) -> String {
        format!("somebody#{}", self.account.0)
    }

    /// Gives the user exactly this many kudos above the amount that may not be transferred.
    pub async fn can_give(&self, app: &App, kudos: i64) {
        let has = app.store.spendable(self.account).await.unwrap();
        let missing = Kudos(kudos * 1000 - has.0);
        let now = UnixMillis(1_700_000_000_000);
        let set = Posting::from_house(Cause::Correction, self.account, missing, now);
        app.store.post(set).await.unwrap();
    }

    pub async fn left(&self, app: &App) -> i64 {
        app.store.spendable(self.account).await.unwrap().0 / 1000
    }
}

async fn call(
    app: &App,
    key: &str,
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    call_with(app, &[("apikey", key)], method, path, body).await
}

async fn call_with(
    app: &App,
    headers: &[(&str, &str)],
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    let body = match body {
        Value::Null => Body::empty(),
        body => body.to_string().into(),
    };
    let answer = app.send(request(method, path, headers, body)).await;
    (answer.status, answer.json().await)
}

async fn give(app: &App, from: &Person, to: &str, amount: i64) -> (StatusCode, Value) {
    let gift = json!({"username": to, "amount": amount});
    call(app, &from.key, Method::POST, TRANSFER, gift).await
}

/// Gives under an idempotency key.
async fn give_once(
    app: &App,
    from: &Person,
    to: &str,
    amount: i64,
    once: &str,
) -> (StatusCode, Value) {
    let headers = [("apikey", from.key.as_str()), ("idempotency-key", once)];
    let gift = json!({"username": to, "amount": amount});
    call_with(app, &headers, Method::POST, TRANSFER, gift).await
}

#[track_caller]
pub fn refused((status, body): &(StatusCode, Value), expected: u16, rc: &str) {
    assert_eq!(
        (status.as_u16(), &body["rc"]),
        (expected, &json!(rc)),
        "{body}"
    );
}

#[tokio::test]
async fn kudos_go_from_one_user_to_another() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let bob = Person::new(&app, "bob", Roles::USER).await;
    alice.can_give(&app, 150).await;
    bob.can_give(&app, 0).await;
    let (status, answer) = give(&app, &alice, &bob.alias(), 30).await;
    assert_eq!(
        (status, &answer),
        (StatusCode::OK, &json!({"transferred": 30.0}))
    );
    // A hundred, where nothing is said.
    let gift = json!({"username": bob.alias()});
    let (_, answer) = call(&app, &alice.key, Method::POST, TRANSFER, gift).await;
    assert_eq!(answer["transferred"], 100.0);
    assert_eq!((alice.left(&app).await, bob.left(&app).await), (20, 130));
    refused(
        &give(&app, &alice, &bob.alias(), 21).await,
        400,
        "KudosTransferNotEnough",
    );
}

#[tokio::test]
async fn more_than_a_billion_kudos_can_be_transferred() {
    let app = App::start().await;
    let rich = Person::new(&app, "rich", Roles::USER).await;
    let bob = Person::new(&app, "bob", Roles::USER).await;
    bob.can_give(&app, 0).await;
    for billions in 1..=5 {
        rich.can_give(&app, billions * 1_000_000_000).await;
    }
    let (status, answer) = give(&app, &rich, &bob.alias(), 4_000_000_000).await;
    assert_eq!(
        (status, &answer),
        (StatusCode::OK, &json!({"transferred": 4e9}))
    );
    let left = (rich.left(&app).await, bob.left(&app).await);
    assert_eq!(left, (1_000_000_000, 4_000_000_000));
}

#[tokio::test]
async fn a_transfer_is_refused_in_the_order_that_clients_know() {
    let settings = DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    };
    let app = App::with(settings).await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let bob = Person::new(&app, "bob", Roles::USER).await;
    alice.can_give(&app, 100).await;
    let nobody = Person {
        account: AccountId(0),
        key: "0000000000".to_owned(),
    };
    refused(
        &give(&app, &nobody, "nobody", -5).await,
        400,
        "KudosTransferFromAnon",
    );
    for unknown in [
        "nobody",
        "nobody#999999",
        "house#-1",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    ] {
        refused(
            &give(&app, &alice, unknown, -5).await,
            400,
            "InvalidTargetUsername",
        );
    }
    refused(
        &give(&app, &alice, "Anonymous#0", -5).await,
        400,
        "KudosTransferToAnon",
    );
    refused(
        &give(&app, &alice, &alice.alias(), -5).await,
        400,
        "KudosTransferToSelf",
    );
    let code = async |giver, receiver| {
        let giver = Person::new(&app, "giver", giver).await;
        let receiver = Person::new(&app, "receiver", receiver).await;
        give(&app, &giver, &receiver.alias(), -5).await
    };
    refused(
        &code(Roles::FLAGGED, Roles::FLAGGED).await,
        400,
        "SourceAccountFlagged",
    );
    refused(
        &code(Roles::EDUCATION, Roles::FLAGGED).await,
        400,
        "EducationCannotSendKudos",
    );
    refused(
        &code(Roles::USER, Roles::FLAGGED).await,
        400,
        "TargetAccountFlagged",
    );
    refused(&code(Roles::USER, Roles::DELETED).await, 400, "DeletedUser");
    refused(
        &give(&app, &alice, &bob.alias(), -5).await,
        400,
        "NegativeKudosTransfer",
    );
    refused(
        &give(&app, &alice, &bob.alias(), 0).await,
        400,
        "InvalidKudosTransferAmount",
    );
    refused(
        &give(&app, &alice, &bob.alias(), i64::MAX).await,
        400,
        "BadRequest",
    );
    assert_eq!(give(&app, &alice, &bob.alias(), 5).await.0, StatusCode::OK);
    // Kudos just received may not be sent back.
    refused(
        &give(&app, &bob, &alice.alias(), 5).await,
        400,
        "TooFastKudosTransfers",
    );
    let (status, body) = call(
        &app,
        &alice.key,
        Method::POST,
        TRANSFER,
        json!({"amount": 5}),
    )
    .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body["errors"]["username"].is_string(), "{body}");
}

#[tokio::test]
async fn a_repeated_transfer_counts_once_and_is_answered_the_same() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let bob = Person::new(&app, "bob", Roles::USER).await;
    alice.can_give(&app, 10).await;
    bob.can_give(&app, 0).await;
    let to = bob.alias();
    let same = (0..20).map(|_| give_once(&app, &alice, &to, 10, "one"));
    for (status, answer) in join_all(same).await {
        assert_eq!(
            (status, &answer),
            (StatusCode::OK, &json!({"transferred": 10.0}))
        );
    }
    assert_eq!((alice.left(&app).await, bob.left(&app).await), (0, 10));
    alice.can_give(&app, 10).await;
    refused(
        &give_once(&app, &alice, &bob.alias(), 9, "one").await,
        400,
        "IdempotencyKeyConflict",
    );
    // A key is its sender's own.
    let carol = Person::new(&app, "carol", Roles::USER).await;
    carol.can_give(&app, 10).await;
    assert_eq!(
        give_once(&app, &carol, &bob.alias(), 10, "one").await.0,
        StatusCode::OK
    );
    let long = "k".repeat(256);
    let (status, body) = give_once(&app, &alice, &bob.alias(), 1, &long).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body["errors"]["Idempotency-Key"].is_string(), "{body}");
}

#[tokio::test]
async fn a_thousand_parallel_transfers_of_the_last_kudos_give_them_away_once() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let bob = Person::new(&app, "bob", Roles::USER).await;
    alice.can_give(&app, 7).await;
    bob.can_give(&app, 0).await;
    let to = bob.alias();
    let gifts = (0..1000).map(|_| give(&app, &alice, &to, 7));
    let answers = join_all(gifts).await;
    let given = answers
        .iter()
        .filter(|(status, _)| *status == StatusCode::OK);
    assert_eq!(given.count(), 1);
    let others = answers
        .iter()
        .filter(|(status, _)| *status != StatusCode::OK);
    others.for_each(|answer| refused(answer, 400, "KudosTransferNotEnough"));
    assert_eq!((alice.left(&app).await, bob.left(&app).await), (0, 7));
    let sums = app.store.ledger_sums().await.unwrap();
    assert_eq!((sums.entries, sums.balances), (Kudos(0), Kudos(0)));
    assert_eq!((sums.wrong_jobs, sums.wrong_balances), (0, 0));
}

/// The details of a user's kudos, as shown to the user.
async fn details(app: &App, person: &Person) -> Value {
    let user = call(
        app,
        &person.key,
        Method::GET,
        "/api/v2/find_user",
        Value::Null,
    )
    .await;
    assert_eq!(user.0, StatusCode::OK, "{}", user.1);
    user.1["kudos_details"].clone()
}

#[tokio::test]
async fn what_is_given_received_donated_and_awarded_is_shown_apart() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let bob = Person::new(&app, "bob", Roles::USER).await;
    let class = Person::new(&app, "class", Roles::EDUCATION).await;
    alice.can_give(&app, 100).await;
    bob.can_give(&app, 100).await;
    let corrected = details(&app, &alice).await["admin"].clone();
    give(&app, &alice, &bob.alias(), 30).await;
    give(&app, &alice, &class.alias(), 20).await;
    let carol = Person::new(&app, "carol", Roles::USER).await;
    carol.can_give(&app, 100).await;
    give(&app, &carol, &alice.alias(), 45).await;
    let award = json!({"username": alice.alias(), "amount": 7});
    call(&app, &app.key, Method::POST, AWARD, award).await;
    let shown = details(&app, &alice).await;
    let expected = json!({
        "accumulated": 0.0, "gifted": -30.0, "donated": -20.0, "admin": corrected, "received": 45.0,
        "recurring": 0.0, "awarded": 7.0, "styled": 0.0,
    });
    assert_eq!(shown, expected);
    let shown = details(&app, &class).await;
    assert_eq!(
        (&shown["received"], &shown["gifted"]),
        (&json!(20.0), &json!(0.0))
    );
}

#[tokio::test]
async fn kudos_are_awarded_by_whoever_runs_the_service() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 0).await;
    let award = async |key: &str, to: &str, amount: i64| {
        let gift = json!({"username": to, "amount": amount});
        call(&app, key, Method::POST, AWARD, gift).await
    };
    let (status, answer) = award(&app.key, &alice.alias(), 12).await;
    assert_eq!(
        (status, &answer),
        (StatusCode::OK, &json!({"awarded": 12.0}))
    );
    assert_eq!(alice.left(&app).await, 12);
    refused(
        &award(&alice.key, &alice.alias(), 12).await,
        403,
        "NotAllowedAwards",
    );
    refused(
        &award(&app.key, "nobody#99999", 12).await,
        400,
        "InvalidAwardUsername",
    );
    refused(
        &award(&app.key, "Anonymous#0", 12).await,
        400,
        "KudosAwardToAnon",
    );
    refused(
        &award(&app.key, &alice.alias(), -12).await,
        400,
        "NegativeKudosTransfer",
    );
}

#[tokio::test]
async fn a_shared_key_is_made_looked_at_changed_and_taken_back() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let (status, key) = call(&app, &alice.key, Method::PUT, KEYS, json!({})).await;
    assert_eq!(status, StatusCode::OK, "{key}");
    let id = key["id"].as_str().unwrap();
    let expected = json!({
        "id": id, "username": format!("alice#{}", alice.account.0), "kudos": 5000, "utilized": 0,
        "max_image_pixels": -1, "max_image_steps": -1, "max_text_tokens": -1,
    });
    assert_eq!(key, expected);
    let path = format!("{KEYS}/{id}");
    // Any holder of the key may read it.
    let (status, shown) = call_with(&app, &[], Method::GET, &path, Value::Null).await;
    assert_eq!((status, &shown), (StatusCode::OK, &expected));
    let change = json!({"kudos": -1, "expiry": 2, "name": "class", "max_text_tokens": 80});
    let (status, changed) = call(&app, &alice.key, Method::PATCH, &path, change).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    assert_eq!(
        (&changed["kudos"], &changed["name"]),
        (&json!(-1), &json!("class"))
    );
    assert_eq!(
        (&changed["max_text_tokens"], &changed["max_image_steps"]),
        (&json!(80), &json!(-1))
    );
    assert!(changed["expiry"].as_str().unwrap().ends_with("-0000"));
    // Omitted fields are unchanged, and -1 days means no expiry.
    let (_, changed) = call(
        &app,
        &alice.key,
        Method::PATCH,
        &path,
        json!({"expiry": -1}),
    )
    .await;
    assert_eq!(
        (&changed["name"], changed.get("expiry")),
        (&json!("class"), None)
    );
    let (status, answer) = call(&app, &alice.key, Method::DELETE, &path, Value::Null).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"message": "OK"})));
    let gone = call_with(&app, &[], Method::GET, &path, Value::Null).await;
    refused(&gone, 404, "InvalidAPIKey");
}

#[tokio::test]
async fn shared_keys_are_for_their_owner_to_change_and_few() {
    let settings = DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    };
    let app = App::with(settings).await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let bob = Person::new(&app, "bob", Roles::USER).await;
    let make = async |key: &str| call(&app, key, Method::PUT, KEYS, json!({"kudos": 5})).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(make(&alice.key).await.1["id"].as_str().unwrap().to_owned());
    }
    refused(&make(&alice.key).await, 403, "Forbidden");
    refused(&make("0000000000").await, 403, "AnonForbidden");
    let path = format!("{KEYS}/{}", ids[0]);
    let change = json!({"kudos": 1_000_000});
    refused(
        &call(&app, &bob.key, Method::PATCH, &path, change).await,
        403,
        "Forbidden",
    );
    refused(
        &call(&app, &bob.key, Method::DELETE, &path, Value::Null).await,
        403,
        "Forbidden",
    );
    refused(
        &call(&app, &alice.key, Method::PATCH, &path, json!({})).await,
        400,
        "NoSharedKeyModSelected",
    );
    for unknown in [
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "no-uuid",
        "%00",
        "'--",
    ] {
        let path = format!("{KEYS}/{unknown}");
        refused(
            &call_with(&app, &[], Method::GET, &path, Value::Null).await,
            404,
            "InvalidAPIKey",
        );
        refused(
            &call(&app, &alice.key, Method::PATCH, &path, json!({"kudos": 5})).await,
            404,
            "InvalidAPIKey",
        );
        refused(
            &call(&app, &alice.key, Method::DELETE, &path, Value::Null).await,
            404,
            "InvalidAPIKey",
        );
    }
}

#[tokio::test]
async fn kudos_sent_to_a_shared_key_are_its_owners_and_its_to_spend() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let bob = Person::new(&app, "bob", Roles::USER).await;
    alice.can_give(&app, 100).await;
    bob.can_give(&app, 0).await;
    let (_, key) = call(&app, &bob.key, Method::PUT, KEYS, json!({"kudos": 5})).await;
    let id = key["id"].as_str().unwrap();
    let (status, _) = give(&app, &alice, id, 30).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(bob.left(&app).await, 30);
    let path = format!("{KEYS}/{id}");
    let (_, key) = call_with(&app, &[], Method::GET, &path, Value::Null).await;
    assert_eq!(key["kudos"], 35);
    // Refused transfers do not count.
    refused(
        &give(&app, &alice, id, 71).await,
        400,
        "KudosTransferNotEnough",
    );
    call(
        &app,
        &bob.key,
        Method::PATCH,
        &path,
        json!({"kudos": -1, "expiry": 0}),
    )
    .await;
    refused(&give(&app, &alice, id, 1).await, 400, "SharedKeyExpired");
    call(&app, &bob.key, Method::PATCH, &path, json!({"expiry": -1})).await;
    give(&app, &alice, id, 1).await;
    let (_, key) = call_with(&app, &[], Method::GET, &path, Value::Null).await;
    assert_eq!(key["kudos"], -1, "no limit stays none");
}
