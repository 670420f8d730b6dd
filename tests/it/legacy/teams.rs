//! Teams of workers: creation and changes, members, and statistics.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{call, call_as, images, pop, post};
use crate::support::app::{App, request};
use crate::support::contract::{assert_all_fit, assert_fits};

const TEAMS: &str = "/api/v2/teams";
const WORKERS: &str = "/api/v2/workers";

async fn user(app: &App, roles: Roles) -> String {
    app.account_with(roles, Scopes::ALL).await
}

fn trusted() -> Roles {
    Roles::USER.with(Roles::TRUSTED)
}

/// Creates a team and returns its path.
async fn team(app: &App, key: &str, name: &str) -> String {
    let body = json!({"name": name, "info": "we draw"});
    let (status, made) = call_as(app, key, Method::POST, TEAMS, body).await;
    assert_eq!(status, StatusCode::OK, "{made}");
    format!("{TEAMS}/{}", made["id"].as_str().unwrap())
}

async fn seen(app: &App, path: &str) -> Value {
    let answer = app.get(path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}");
    answer.json().await
}

async fn worker(app: &App, name: &str) -> Value {
    seen(app, &format!("{WORKERS}/name/{name}")).await
}

/// Puts a worker of the admin's into the team at this path.
async fn join(app: &App, name: &str, team: &str) -> (StatusCode, Value) {
    let team = team.rsplit('/').next().unwrap_or_default();
    let id = worker(app, name).await["id"].as_str().unwrap().to_owned();
    let body = json!({"team": team});
    call(app, Method::PUT, &format!("{WORKERS}/{id}"), body).await
}

fn check(answer: (StatusCode, Value), status: u16, rc: &str) {
    let found = answer.1["rc"].as_str().unwrap_or_default();
    assert_eq!((answer.0.as_u16(), found), (status, rc), "{}", answer.1);
}

#[tokio::test]
async fn a_team_is_made_shown_changed_and_deleted() {
    let app = App::start().await;
    let alice = user(&app, trusted()).await;
    let body = json!({"name": " <b>the rigs</b>", "info": "we draw"});
    let (status, made) = call_as(&app, &alice, Method::POST, TEAMS, body).await;
    assert_eq!(status, StatusCode::OK, "{made}");
    assert_fits("ModifyTeam", &made);
    assert_eq!(
        (&made["name"], &made["info"]),
        (&json!("the rigs"), &json!("we draw"))
    );
    let path = format!("{TEAMS}/{}", made["id"].as_str().unwrap());
    let shown = seen(&app, &path).await;
    assert_fits("TeamDetails", &shown);
    assert!(shown["creator"].as_str().unwrap().contains('#'));
    assert_eq!(
        (&shown["worker_count"], &shown["kudos"]),
        (&json!(0), &json!(0.0))
    );
    assert_eq!(seen(&app, TEAMS).await, json!([shown]));
    let change = json!({"name": "the others"});
    let (status, changed) = call_as(&app, &alice, Method::PATCH, &path, change.clone()).await;
    assert_eq!((status, &changed), (StatusCode::OK, &change));
    let (_, changed) = call_as(&app, &alice, Method::PATCH, &path, change.clone()).await;
    assert_eq!(changed, change, "a team may keep its name");
    assert_eq!(seen(&app, &path).await["info"], "we draw");
    let (status, gone) = call_as(&app, &alice, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    assert_fits("DeletedTeam", &gone);
    assert_eq!(gone["deleted_name"], "the others");
    assert_eq!(seen(&app, TEAMS).await, json!([]));
}

#[tokio::test]
async fn teams_are_made_by_the_trusted_and_changed_by_their_creators_and_moderators() {
    let app = App::with(DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    })
    .await;
    let (alice, plain) = (user(&app, trusted()).await, user(&app, Roles::USER).await);
    let moderator = user(&app, Roles::USER.with(Roles::MODERATOR)).await;
    let body = json!({"name": "the rigs"});
    let made = async |key: &str| call_as(&app, key, Method::POST, TEAMS, body.clone()).await;
    check(made(&plain).await, 403, "UntrustedTeamCreation");
    check(made("0000000000").await, 403, "AnonForbidden");
    check(made(&"A".repeat(22)).await, 401, "InvalidAPIKey");
    let path = team(&app, &alice, "the rigs").await;
    check(made(&alice).await, 400, "TeamNameAlreadyExists");
    let change =
        async |key: &str, body: Value| call_as(&app, key, Method::PATCH, &path, body).await;
    let name = json!({"name": "mine now"});
    for key in [&*plain, "0000000000"] {
        check(change(key, name.clone()).await, 403, "NotOwner");
        let gone = call_as(&app, key, Method::DELETE, &path, Value::Null).await;
        check(gone, 403, "NotModerator");
    }
    team(&app, &moderator, "second").await;
    let taken = json!({"name": "second"});
    check(change(&alice, taken).await, 400, "TeamNameAlreadyExists");
    check(change(&alice, json!({})).await, 400, "NoTeamModSelected");
    let profane = json!({"name": "sh1t happens"});
    check(change(&alice, profane).await, 400, "ProfaneTeamName");
    let profane = json!({"name": "third", "info": "fuck this"});
    let made = call_as(&app, &alice, Method::POST, TEAMS, profane).await;
    check(made, 400, "ProfaneTeamInfo");
    let (status, wrong) = change(&alice, json!({"name": "x", "info": null})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let errors = wrong["errors"].as_object().unwrap();
    assert!(errors.contains_key("name") && errors.contains_key("info"));
    assert_eq!(change(&moderator, name).await.0, StatusCode::OK);
    let gone = call_as(&app, &moderator, Method::DELETE, &path, Value::Null).await;
    assert_eq!(gone.0, StatusCode::OK);
}

#[tokio::test]
async fn an_unknown_team_is_404_and_one_team_is_for_no_key_or_a_moderators() {
    let app = App::start().await;
    let plain = user(&app, Roles::USER).await;
    let nobody = format!("{TEAMS}/{}", Uuid::new_v4());
    for path in [&*nobody, "/api/v2/teams/nobody", "/api/v2/teams/1"] {
        for (method, body) in [
            (Method::GET, Value::Null),
            (Method::PATCH, json!({"name": "three"})),
            (Method::DELETE, Value::Null),
        ] {
            check(call(&app, method, path, body).await, 404, "TeamNotFound");
        }
    }
    let path = team(&app, &app.key, "the rigs").await;
    let shown = call(&app, Method::GET, &path, Value::Null).await;
    assert_eq!(shown.0, StatusCode::OK);
    let of_worker = app.key_for(Scopes::WORKER_CONNECT).await;
    for key in [plain, of_worker] {
        let shown = call_as(&app, &key, Method::GET, &path, Value::Null).await;
        check(shown, 403, "NotModerator");
    }
    let shown = call_as(&app, &"A".repeat(22), Method::GET, &path, Value::Null).await;
    check(shown, 401, "InvalidAPIKey");
}

#[tokio::test]
async fn a_worker_joins_a_team_and_leaves_it() {
    let app = App::start().await;
    let path = team(&app, &app.key, "the rigs").await;
    pop(&app, "w1").await;
    pop(&app, "w2").await;
    assert_eq!(
        worker(&app, "w1").await["team"],
        json!({"name": null, "id": null})
    );
    let (status, joined) = join(&app, "w1", &path).await;
    assert_eq!(
        (status, joined),
        (StatusCode::OK, json!({"team": "the rigs"}))
    );
    join(&app, "w2", &path).await;
    let id = &seen(&app, &path).await["id"];
    assert_eq!(
        worker(&app, "w1").await["team"],
        json!({"name": "the rigs", "id": id})
    );
    let shown = seen(&app, &path).await;
    assert_fits("TeamDetails", &shown);
    assert_eq!(shown["worker_count"], 2);
    assert_eq!(shown["workers"][1]["name"], "w2");
    assert_eq!(
        shown["models"],
        json!([{"name": "other", "count": 2}, {"name": "tiny", "count": 2}])
    );
    let all = seen(&app, TEAMS).await;
    assert_all_fit("TeamDetails", &all);
    assert_eq!(all, json!([shown]));
    let left = join(&app, "w2", "").await;
    assert_eq!(left, (StatusCode::OK, json!({"team": "None"})));
    assert_eq!(seen(&app, &path).await["worker_count"], 1);
    for nowhere in [Uuid::new_v4().to_string(), "nowhere".to_owned()] {
        check(join(&app, "w1", &nowhere).await, 404, "TeamNotFound");
    }
    call(&app, Method::DELETE, &path, Value::Null).await;
    let alone = worker(&app, "w1").await;
    assert_eq!(alone["team"], json!({"name": null, "id": null}));
}

#[tokio::test]
async fn what_a_worker_does_in_a_team_stays_with_the_team() {
    let app = App::start().await;
    let (first, second) = (
        team(&app, &app.key, "first").await,
        team(&app, &app.key, "second").await,
    );
    let sums = async |path: &str| {
        let shown = seen(&app, path).await;
        (shown["requests_fulfilled"].clone(), shown["kudos"].clone())
    };
    images::draw_one(&app).await;
    let before = worker(&app, "artist").await["kudos_details"]["generated"].clone();
    assert_ne!(before, json!(0.0));
    join(&app, "artist", &first).await;
    assert_eq!(sums(&first).await, (json!(0), json!(0.0)), "it came later");
    images::draw_one(&app).await;
    join(&app, "artist", &second).await;
    images::draw_one(&app).await;
    assert_eq!(sums(&first).await, (json!(1), before.clone()));
    assert_eq!(sums(&second).await, (json!(1), before));
    // Texts count for no team.
    let id = super::ask(&app, json!({})).await;
    let popped = pop(&app, "writer").await;
    join(&app, "writer", &first).await;
    super::submit(&app, &popped["id"], "some text").await;
    super::until(&app, &id, |status| status["done"] == true).await;
    assert_eq!(sums(&first).await.0, json!(1));
    // Results for a deleted team do not count either.
    call(&app, Method::DELETE, &second, Value::Null).await;
    let third = team(&app, &app.key, "third").await;
    join(&app, "artist", &third).await;
    assert_eq!(sums(&third).await, (json!(0), json!(0.0)));
}

#[tokio::test]
async fn x_fields_masks_what_teams_answer() {
    let app = App::start().await;
    let body = json!({"name": "the rigs"}).to_string();
    let headers = [("apikey", app.key.as_str()), ("x-fields", "name")];
    let made = request(Method::POST, TEAMS, &headers, body.into());
    assert_eq!(
        app.send(made).await.json().await,
        json!({"name": "the rigs"})
    );
    let list = request(Method::GET, TEAMS, &headers, Body::empty());
    assert_eq!(
        app.send(list).await.json().await,
        json!([{"name": "the rigs"}])
    );
    let (_, all) = call(&app, Method::GET, TEAMS, Value::Null).await;
    let path = format!("{TEAMS}/{}", all[0]["id"].as_str().unwrap());
    let change = json!({"name": "others", "info": "we draw"}).to_string();
    for (method, body, expected) in [
        (Method::GET, Body::empty(), json!({"name": "the rigs"})),
        (Method::PATCH, change.into(), json!({"name": "others"})),
        (Method::DELETE, Body::empty(), json!({})),
    ] {
        let masked = request(method, &path, &headers, body);
        assert_eq!(app.send(masked).await.json().await, expected);
    }
}

#[tokio::test]
async fn two_teams_of_one_name_are_not_made_at_once() {
    let app = App::start().await;
    let body = json!({"name": "the rigs"});
    let make = || post(&app, TEAMS, body.clone());
    let (one, two, three) = tokio::join!(make(), make(), make());
    let made = [one, two, three]
        .iter()
        .filter(|answer| answer.0 == StatusCode::OK)
        .count();
    assert_eq!(made, 1);
}
