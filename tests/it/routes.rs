//! Every route, with every key there is.

use std::io::Read;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::http::{Answers, DEVELOPMENT, ROUTES, Route};
use muster::coordinator::people::Development;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use serde_json::{Value, json};

use super::support::app::{Answer, App, request};

const ROLES: [Roles; 5] = [
    Roles::USER,
    Roles::MODERATOR,
    Roles::ADMIN,
    Roles::WORKER_OWNER,
    Roles::TRUSTED,
];
const SCOPES: [Scopes; 6] = [
    Scopes::INFERENCE_SUBMIT,
    Scopes::WORKER_CONNECT,
    Scopes::ACCOUNT_READ,
    Scopes::ACCOUNT_MANAGE,
    Scopes::ALL.without(Scopes::ACCOUNT_MANAGE),
    Scopes::INFERENCE_SUBMIT.with(Scopes::ACCOUNT_MANAGE),
];

/// What changes something and needs no `account.manage`: work that is asked for, done, looked at and cancelled.
const WITHOUT_MANAGE: &[(&str, &str)] = &[
    // A signed link to one object stands for the key.
    ("PUT", "/media/{*id}"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/tokenize"),
    ("POST", "/v1/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/v1/detokenize"),
    ("POST", "/v1/embeddings"),
    ("POST", "/rerank"),
    ("POST", "/v1/rerank"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/responses/input_tokens"),
    ("DELETE", "/v1/responses/{id}"),
    ("POST", "/v1/responses/{id}/cancel"),
    ("POST", "/v1/messages"),
    ("POST", "/api/chat"),
    ("POST", "/api/generate"),
    ("POST", "/api/embed"),
    ("POST", "/api/embeddings"),
    ("POST", "/api/show"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/images/generations"),
    ("POST", "/v1/images/edits"),
    ("POST", "/v1/images/variations"),
    ("POST", "/v1/images/describe"),
    ("POST", "/v1/videos/generations"),
    ("POST", "/v1/videos"),
    ("DELETE", "/v1/videos/{id}"),
    ("POST", "/v1/videos/{id}/remix"),
    ("POST", "/v1/audio/generations"),
    ("POST", "/v1/audio/transcriptions"),
    ("POST", "/v1/audio/translations"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1/generate"),
    ("POST", "/mcp"),
    ("POST", "/v1/jobs/{id}/cancel"),
    ("POST", "/v1/account/credits/quote"),
    ("POST", "/api/v2/generate/text/async"),
    ("DELETE", "/api/v2/generate/text/status/{id}"),
    ("POST", "/api/v2/generate/text/pop"),
    ("POST", "/api/v2/generate/text/submit"),
    ("POST", "/api/v2/generate/async"),
    ("DELETE", "/api/v2/generate/status/{id}"),
    ("POST", "/api/v2/generate/rate/{id}"),
    ("POST", "/api/v2/generate/pop"),
    ("POST", "/api/v2/generate/submit"),
    ("POST", "/api/v2/generate/progress"),
    ("POST", "/api/v2/interrogate/async"),
    ("DELETE", "/api/v2/interrogate/status/{id}"),
    ("POST", "/api/v2/interrogate/pop"),
    ("POST", "/api/v2/interrogate/submit"),
];

/// All stored data of an account, prompts and results included, require a key that manages it.
const READ_ALL: (&str, &str) = ("GET", "/v1/account/export");

/// The key opens nothing afterwards.
const END_ACCOUNT: [(&str, &str); 2] =
    [("DELETE", "/v1/account"), ("PUT", "/v1/account/suspension")];

/// A body that says nothing is a bad request.
const ENCODE: [&str; 18] = [
    "/v1/audio/speech",
    "/v1/videos/generations",
    "/v1/generate",
    "/v1/images/variations",
    "/v1/images/describe",
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    "/v1/audio/generations",
    "/v1/messages/count_tokens",
    "/v1/responses/input_tokens",
    "/tokenize",
    "/v1/tokenize",
    "/detokenize",
    "/v1/detokenize",
    "/v1/embeddings",
    "/rerank",
    "/v1/rerank",
];

/// Public routes whose reply depends on the key; other tests cover them.
const LOOK_AT_KEYS: [&str; 4] = [
    "/api/v2/find_user",
    "/api/v2/users/{id}",
    "/api/v2/status/modes",
    "/api/v2/teams/{id}",
];

async fn call(app: &App, route: &Route, headers: &[(&str, &str)]) -> Answer {
    let method = Method::from_bytes(route.method.as_bytes()).unwrap();
    let path = route.path.replace("{*id}", "a/b");
    let path = ["{token}", "{id}", "{name}", "{address}", "{example}"]
        .iter()
        .fold(path, |path, part| path.replace(part, "t"));
    app.send(request(method, &path, headers, Body::empty()))
        .await
}

/// Whether an admitted caller would get this status from a route with an empty body and empty ids. Handlers of the AI
/// Horde API check the body, the ids and the account in different orders, which their own tests cover.
fn is_admitted(route: &Route, status: StatusCode) -> bool {
    let is_legacy = route.path.starts_with("/api/v2/");
    let expected = match (route.answers, route.path) {
        (Answers::Unbuilt, _) => StatusCode::NOT_IMPLEMENTED,
        (_, path)
            if path.starts_with("/v1/responses/{id}") || path.starts_with("/v1/videos/{id}") =>
        {
            StatusCode::NOT_FOUND
        }
        (Answers::Stream, _) | (_, "/api/pull" | "/api/delete" | "/api/copy") => {
            StatusCode::BAD_REQUEST
        }
        (_, path) if ENCODE.contains(&path) => StatusCode::BAD_REQUEST,
        (Answers::Socket, _) => StatusCode::UPGRADE_REQUIRED,
        (_, "/media/{*id}") => StatusCode::FORBIDDEN,
        (_, "/v1/models/{*id}" | "/v1/jobs/{id}/cancel" | "/v1/account/keys/{id}") => {
            StatusCode::NOT_FOUND
        }
        // The last administrator stays; another account may go.
        (_, "/v1/account" | "/v1/account/suspension") if route.method != "GET" => {
            return [200, 409].contains(&status.as_u16());
        }
        (_, path) if path.starts_with("/v1/accounts/{id}") => StatusCode::NOT_FOUND,
        (_, "/v1/account/keys" | "/v1/account/credits/quote") if route.method == "POST" => {
            StatusCode::BAD_REQUEST
        }
        // The key is bound to no worker, and none is named.
        (_, "/v1/workers/self") => StatusCode::BAD_REQUEST,
        (_, "/v1/media/results" | "/v1/audio/translations") => StatusCode::BAD_REQUEST,
        (_, "/v1/videos") if route.method == "POST" => StatusCode::BAD_REQUEST,
        _ if is_legacy => {
            return [200, 201, 400, 403, 404].contains(&status.as_u16());
        }
        _ => StatusCode::OK,
    };
    status == expected
}

/// The AI Horde API's code for a key whose account lacks these roles.
fn lacking(roles: Roles) -> &'static str {
    match roles {
        Roles::MODERATOR => "NotModerator",
        Roles::ADMIN => "NotAdmin",
        _ => "Forbidden",
    }
}

async fn refusal(answer: Answer, status: StatusCode, message: &str, place: &str) {
    assert_eq!(answer.status, status, "{place}");
    let body = answer.json().await;
    if place.contains("/api/v2/") {
        assert_eq!(body["message"], message, "{place}");
        return;
    }
    if place.contains(" /api/") {
        // Of Ollama's API.
        assert_eq!(body["error"], message, "{place}");
        return;
    }
    assert_eq!(body["detail"], message, "{place}");
    assert_eq!(body["error"]["message"], message, "{place}");
}

#[tokio::test]
async fn no_key_and_a_wrong_key_are_401_on_every_route_that_wants_one() {
    let app = App::start().await;
    let wrong = "A".repeat(22);
    let bearer = format!("Bearer {wrong}");
    for route in ROUTES {
        let tries: [&[(&str, &str)]; 5] = [
            &[],
            &[("authorization", &bearer)],
            &[("apikey", &wrong)],
            &[("x-api-key", &wrong)],
            &[("authorization", "Bearer too short")],
        ];
        for headers in tries {
            let place = format!("{} {} {headers:?}", route.method, route.path);
            let answer = call(&app, route, headers).await;
            match route.who.key() {
                None if LOOK_AT_KEYS.contains(&route.path) => {
                    let status = answer.status.as_u16();
                    assert!([200, 401, 404].contains(&status), "{place}: {status}");
                }
                None => assert!(
                    is_admitted(route, answer.status),
                    "{place}: {}",
                    answer.status
                ),
                Some(_) => {
                    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                    let status = StatusCode::UNAUTHORIZED;
                    let said = match headers.is_empty() && !route.path.starts_with("/api/v2/") {
                        true => "no key was sent: send yours as Authorization: Bearer KEY",
                        false => "Invalid API Key",
                    };
                    refusal(answer, status, said, &place).await;
                }
            }
        }
    }
}

#[test]
fn every_route_that_changes_something_wants_a_key_that_manages() {
    for route in ROUTES {
        let place = format!("{} {}", route.method, route.path);
        let is_write = route.method != "GET";
        let is_excepted = WITHOUT_MANAGE.contains(&(route.method, route.path));
        let manages = route
            .who
            .key()
            .is_some_and(|scopes| scopes.contains(Scopes::ACCOUNT_MANAGE));
        let is_for_a_role = route.who.roles() != Roles::NONE;
        let reads_all = (route.method, route.path) == READ_ALL;
        let wanted = (is_write && !is_excepted) || is_for_a_role || reads_all;
        assert_eq!(manages, wanted, "{place}");
    }
    for (method, path) in WITHOUT_MANAGE {
        let is_it = |route: &Route| route.method == *method && route.path == *path;
        assert!(ROUTES.iter().any(is_it), "{method} {path} is no route");
    }
}

#[tokio::test]
async fn the_anonymous_key_changes_nothing_by_any_route_that_wants_a_key_that_manages() {
    let app = App::with(DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    })
    .await;
    let manages = |route: &&Route| {
        let scopes = route.who.key();
        scopes.is_some_and(|scopes| scopes.contains(Scopes::ACCOUNT_MANAGE))
    };
    for route in ROUTES.iter().filter(manages) {
        let answer = call(&app, route, &[("apikey", "0000000000")]).await;
        assert!(
            answer.status.is_client_error(),
            "{} {}",
            route.method,
            route.path
        );
    }
}

#[tokio::test]
async fn a_key_without_the_scope_is_403_on_every_route_whatever_the_role() {
    let app = App::start().await;
    for role in ROLES {
        for scope in SCOPES {
            let key = app.account_with(role, scope).await;
            let stays = |route: &&Route| {
                let ends = END_ACCOUNT.contains(&(route.method, route.path));
                !(ends && scope.contains(Scopes::ACCOUNT_MANAGE))
            };
            for route in ROUTES.iter().filter(stays) {
                let place = format!("{} {} {role:?} {scope:?}", route.method, route.path);
                let answer = call(&app, route, &[("apikey", &key)]).await;
                let has_role = || role.contains(route.who.roles()) || role == Roles::ADMIN;
                match route.who.key() {
                    Some(needed) if !scope.contains(needed) => {
                        let missing = needed.without(scope);
                        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{place}");
                        let body = answer.json().await;
                        let message = match &body["error"] {
                            // Of the AI Horde API, and of Ollama's.
                            _ if place.contains("/api/v2/") => &body["message"],
                            error if error.is_string() => error,
                            error => &error["message"],
                        };
                        let message = message.as_str().unwrap();
                        for name in missing.names() {
                            assert!(message.contains(name), "{place}: {message}");
                        }
                        assert!(message.contains("worker key create"), "{place}: {message}");
                    }
                    Some(_) if !has_role() => {
                        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{place}");
                        let body = answer.json().await;
                        match place.contains("/api/v2/") {
                            true => assert_eq!(body["rc"], lacking(route.who.roles())),
                            // Ollama's errors are texts.
                            false if body["error"].is_string() => {
                                assert_eq!(body["code"], "access_denied");
                            }
                            false => assert_eq!(body["error"]["code"], "access_denied"),
                        }
                    }
                    _ => assert!(
                        is_admitted(route, answer.status),
                        "{place}: {}",
                        answer.status
                    ),
                }
            }
        }
    }
}

#[tokio::test]
async fn a_good_key_opens_every_route_from_each_of_the_three_headers() {
    let app = App::start().await;
    let bearer = format!("Bearer {}", app.key);
    for route in ROUTES {
        for header in [
            ("authorization", bearer.as_str()),
            ("apikey", &app.key),
            ("x-api-key", &app.key),
        ] {
            let answer = call(&app, route, &[header]).await;
            let place = format!("{} {} {}", route.method, route.path, header.0);
            assert!(
                is_admitted(route, answer.status),
                "{place}: {}",
                answer.status
            );
        }
    }
}

#[tokio::test]
async fn two_different_keys_are_400_on_every_route() {
    let app = App::start().await;
    let other = app.key_for(Scopes::ALL).await;
    let bearer = format!("Bearer {}", app.key);
    for route in ROUTES {
        let two = [("authorization", bearer.as_str()), ("apikey", &other)];
        let answer = call(&app, route, &two).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", route.path);
        let same = [("authorization", bearer.as_str()), ("apikey", &app.key)];
        let answer = call(&app, route, &same).await;
        assert!(is_admitted(route, answer.status), "{}", route.path);
    }
}

#[tokio::test]
async fn a_revoked_key_opens_nothing() {
    let app = App::start().await;
    let key = app.key_for(Scopes::ALL).await;
    let opens = async || {
        let route = ROUTES.iter().find(|route| route.path == "/v1/account");
        call(&app, route.unwrap(), &[("apikey", &key)]).await.status
    };
    assert_eq!(opens().await, StatusCode::OK);
    let keys = app.accounts.list_keys().await.unwrap();
    let newest = keys.iter().max_by_key(|row| row.id).unwrap();
    assert!(app.accounts.revoke_key(&newest.public_id).await.unwrap());
    assert_eq!(opens().await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn every_reply_has_a_request_id_and_may_be_read_by_any_page() {
    let app = App::start().await;
    for route in ROUTES {
        let answer = call(&app, route, &[("x-request-id", "mine-1")]).await;
        assert_eq!(
            answer.header("x-request-id"),
            Some("mine-1"),
            "{}",
            route.path
        );
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    }
    let strange = [("x-request-id", "two words")];
    let answer = app
        .send(request(Method::GET, "/health", &strange, Body::empty()))
        .await;
    let made_up = answer.header("x-request-id").unwrap();
    assert!(uuid::Uuid::parse_str(made_up).is_ok(), "{made_up}");
    let missing = app.get("/nowhere").await;
    assert!(missing.header("x-request-id").is_some());
}

#[tokio::test]
async fn a_browser_runs_nothing_in_a_page_that_is_not_written_in_it() {
    let app = App::start().await;
    let pages = ROUTES.iter().filter(|route| route.answers == Answers::Html);
    for route in pages {
        let answer = call(&app, route, &[]).await;
        let policy = answer.header("content-security-policy").unwrap().to_owned();
        for words in ["default-src 'none'", "frame-ancestors 'none'", "'sha256-"] {
            assert!(policy.contains(words), "{}: {policy}", route.path);
        }
        assert!(!policy.contains("unsafe"), "{}: {policy}", route.path);
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "DENY"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{}", route.path);
        }
        let html = answer.text().await;
        for inline in [
            " style=",
            " onclick=",
            " onload=",
            "javascript:",
            "<script ",
        ] {
            assert!(!html.contains(inline), "{} has {inline}", route.path);
        }
    }
}

#[tokio::test]
async fn in_development_mode_no_page_of_another_origin_is_served() {
    let app = App::with(DoorSettings {
        development: Some(Development::default()),
        ..DoorSettings::default()
    })
    .await;
    let foreign = [
        [
            ("host", "localhost:7010"),
            ("origin", "https://evil.example"),
        ],
        [("host", "evil.example:7010"), ("accept", "*/*")],
    ];
    let own = [
        ("host", "localhost:7010"),
        ("origin", "http://localhost:7010"),
    ];
    let all = ROUTES.iter().chain(DEVELOPMENT);
    for route in all {
        for headers in foreign {
            let answer = call(&app, route, &headers).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{}", route.path);
            assert!(answer.text().await.contains("without a key"));
        }
        let answer = call(&app, route, &own).await;
        let said = answer.text().await;
        assert!(
            !said.contains("in development mode"),
            "{}: {said}",
            route.path
        );
    }
    let asks = [
        foreign[0][0],
        foreign[0][1],
        ("access-control-request-method", "POST"),
    ];
    let path = "/api/v2/dev/test-user";
    let preflight = request(Method::OPTIONS, path, &asks, Body::empty());
    let answer = app.send(preflight).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let outside = App::start().await;
    let answer = call(&outside, &ROUTES[0], &foreign[0]).await;
    assert_eq!(answer.status, StatusCode::OK, "only in development mode");
}

#[tokio::test]
async fn no_cache_keeps_what_is_answered_to_somebodys_key() {
    let app = App::start().await;
    for route in ROUTES {
        for header in ["apikey", "x-api-key"] {
            let own = call(&app, route, &[(header, &app.key)]).await;
            let said = own.header("cache-control");
            assert!(said.is_some(), "{} says nothing of caches", route.path);
            let everybodys = call(&app, route, &[(header, "0000000000")]).await;
            assert_ne!(
                everybodys.header("cache-control"),
                Some("private, no-store")
            );
        }
    }
    let headers = [("apikey", app.key.as_str())];
    let find = request(Method::GET, "/api/v2/find_user", &headers, Body::empty());
    let found = app.send(find).await;
    assert_eq!(found.header("cache-control"), Some("private, no-store"));
}

#[tokio::test]
async fn a_page_from_anywhere_may_send_its_key() {
    let app = App::start().await;
    let asked = [
        ("origin", "https://page.example"),
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "authorization, x-stainless-os",
        ),
    ];
    let path = "/v1/chat/completions";
    let answer = app
        .send(request(Method::OPTIONS, path, &asked, Body::empty()))
        .await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let allowed = answer.header("access-control-allow-headers");
    assert_eq!(allowed, Some("authorization, x-stainless-os"));
    assert!(
        answer
            .header("access-control-allow-methods")
            .unwrap()
            .contains("POST")
    );
}

#[tokio::test]
async fn wrong_paths_and_methods_are_refused_in_the_usual_shape() {
    let app = App::start().await;
    let missing = app.get("/v1/nothing").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert_eq!(
        missing.json().await["error"]["type"],
        "invalid_request_error"
    );
    let wrong = app.get("/v1/chat/completions").await;
    assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(wrong.header("allow"), Some("POST"));
    assert!(wrong.json().await["detail"].is_string());
}

#[tokio::test]
async fn routes_that_are_not_implemented_say_their_name() {
    let app = App::start().await;
    for route in ROUTES
        .iter()
        .filter(|route| route.answers == Answers::Unbuilt)
    {
        let answer = call(&app, route, &[("apikey", &app.key)]).await;
        let expected = format!("{} {} is not implemented", route.method, route.path);
        let place = format!("{} {}", route.method, route.path);
        refusal(answer, StatusCode::NOT_IMPLEMENTED, &expected, &place).await;
    }
}

#[tokio::test]
async fn a_browser_gets_a_page_where_programs_get_the_descriptor() {
    let app = App::start().await;
    let get = async |accept: &str| {
        let headers = [("accept", accept)];
        app.send(request(Method::GET, "/", &headers, Body::empty()))
            .await
    };
    for accept in ["*/*", "application/json", ""] {
        let answer = get(accept).await;
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    let page = get("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8").await;
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(page.header("vary"), Some("accept"));
    let policy = page.header("content-security-policy").unwrap().to_owned();
    assert!(
        policy.contains("'sha256-") && !policy.contains("unsafe"),
        "{policy}"
    );
    let html = page.text().await;
    for inline in [" style=", " onclick=", "javascript:", "<script "] {
        assert!(!html.contains(inline), "{inline}");
    }
}

#[tokio::test]
async fn the_descriptor_names_endpoints_that_work() {
    let app = App::start().await;
    let descriptor = app.get("/").await.json().await;
    assert_eq!(
        descriptor["p2p"],
        json!({"enabled": false, "peer_id": null, "status": "disabled"})
    );
    let endpoints = descriptor["endpoints"].as_object().unwrap();
    let names: Vec<&str> = endpoints.keys().map(String::as_str).collect();
    let expected = [
        "openai",
        "anthropic",
        "responses",
        "completions",
        "embeddings",
        "rerank",
        "tokenize",
        "detokenize",
        "images",
        "audio",
        "models",
        "pricing",
        "worker_ws",
        "health",
    ];
    assert_eq!(names, expected);
    for endpoint in endpoints.values() {
        let (method, path) = endpoint.as_str().unwrap().split_once(' ').unwrap();
        let method = method.replace("WS", "GET");
        let found = ROUTES
            .iter()
            .find(|route| route.method == method && route.path == path);
        assert!(
            found.is_some_and(|route| route.answers != Answers::Unbuilt),
            "{endpoint}"
        );
    }
}

#[tokio::test]
async fn refusals_and_the_descriptor_point_to_the_console() {
    let console = "https://console.example/keys";
    let app = App::with(DoorSettings {
        console_url: Some(console.to_owned()),
        ..DoorSettings::default()
    })
    .await;
    assert_eq!(app.get("/").await.json().await["console_url"], console);
    let refused = app
        .send(request(
            Method::POST,
            "/v1/chat/completions",
            &[],
            Body::empty(),
        ))
        .await;
    let body: Value = refused.json().await;
    assert!(
        body["detail"]
            .as_str()
            .unwrap()
            .starts_with("no key was sent")
    );
    assert_eq!(body["error"]["console_url"], console);
    assert!(body["error"]["message"].as_str().unwrap().contains(console));
}

#[tokio::test]
async fn the_swagger_document_is_in_the_form_that_clients_know() {
    let app = App::start().await;
    let document = app.get("/api/swagger.json").await.json().await;
    let told = ["swagger", "basePath"].map(|name| document[name].clone());
    assert_eq!(told, [json!("2.0"), json!("/api")]);
    assert_eq!(document["info"]["title"], "AI Horde");
    for name in ["produces", "consumes"] {
        assert_eq!(document[name], json!(["application/json"]));
    }
    for route in ROUTES.iter().filter(|it| it.path.starts_with("/api/v2/")) {
        let place = route.path.strip_prefix("/api").unwrap();
        let fixed = place.split('{').next().unwrap();
        let paths = document["paths"].as_object().unwrap();
        let method = route.method.to_lowercase();
        let found = paths.iter().any(|(path, methods)| {
            path.starts_with(fixed) && methods[&method]["summary"] == route.about
        });
        assert!(found, "{} {}", route.method, route.path);
    }
    let parameters = &document["paths"]["/v2/generate/async"]["post"]["parameters"];
    let payload = parameters.as_array().unwrap().last().unwrap();
    let schema = json!({"$ref": "#/definitions/GenerationInputStable"});
    assert_eq!(
        (&payload["name"], &payload["schema"]),
        (&json!("payload"), &schema)
    );
    let width = &document["definitions"]["ModelGenerationInputStable"]["properties"]["width"];
    assert_eq!(
        (&width["minimum"], &width["maximum"]),
        (&json!(64), &json!(3072))
    );
    for path in ["/api", "/api/"] {
        let page = app.get(path).await;
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; style-src 'sha256-"),
            "{policy}"
        );
        assert!(page.text().await.contains("/v2/generate/async"));
    }
}

#[tokio::test]
async fn the_openapi_document_lists_every_route_and_every_field() {
    let app = App::start().await;
    let document = app.get("/openapi.json").await.json().await;
    for route in ROUTES {
        let path = route.path.replace("{*", "{");
        let operation = &document["paths"][&path][route.method.to_lowercase()];
        assert_eq!(operation["summary"], route.about, "{path}");
        let security = operation["security"].as_array();
        let is_optional = security.is_none_or(|list| list.contains(&json!({})));
        assert_eq!(is_optional, route.who.key().is_none(), "{path}");
    }
    let fields = &document["components"]["schemas"]["ChatCompletionRequest"]["properties"];
    for field in [
        "model",
        "messages",
        "logit_bias",
        "top_k",
        "web_search_options",
    ] {
        assert!(fields[field]["description"].is_string(), "{field}");
    }
    let page = app.get("/docs").await;
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("text/html")
    );
    assert!(page.text().await.contains("openapi.json"));
}

#[tokio::test]
async fn documents_have_a_tag_and_are_compressed_for_clients_that_read_it() {
    let app = App::start().await;
    for path in ["/openapi.json", "/docs", "/console", "/api/swagger.json"] {
        let get = async |headers: &[(&str, &str)]| {
            let asked = request(Method::GET, path, headers, Body::empty());
            app.send(asked).await
        };
        let plain = get(&[]).await;
        assert_eq!(plain.header("content-encoding"), None, "{path}");
        let tag = plain.header("etag").unwrap().to_owned();
        assert!(plain.header("last-modified").unwrap().ends_with(" GMT"));
        let whole = plain.bytes().await;
        let head = app
            .send(request(Method::HEAD, path, &[], Body::empty()))
            .await;
        assert_eq!(head.header("etag"), Some(&*tag), "{path}");
        assert_eq!(
            head.header("content-length"),
            Some(&*whole.len().to_string())
        );
        assert_eq!(head.bytes().await.len(), 0);
        for (taken, encoding) in [("deflate, gzip", "gzip"), ("gzip, deflate, br", "br")] {
            let packed = get(&[("accept-encoding", taken)]).await;
            assert_eq!(packed.header("content-encoding"), Some(encoding), "{path}");
            assert_eq!(packed.header("etag"), Some(&*tag));
            assert_eq!(packed.header("vary"), Some("accept-encoding"));
            let packed = packed.bytes().await;
            assert!(packed.len() * 2 < whole.len(), "{path}: {}", packed.len());
            let mut unpacked = Vec::new();
            match encoding {
                "br" => brotli::Decompressor::new(&*packed, 4096).read_to_end(&mut unpacked),
                _ => flate2::read::GzDecoder::new(&*packed).read_to_end(&mut unpacked),
            }
            .unwrap();
            assert_eq!(unpacked, whole, "{path} {encoding}");
        }
        let again = get(&[("if-none-match", &tag), ("accept-encoding", "gzip")]).await;
        assert_eq!(again.status, StatusCode::NOT_MODIFIED, "{path}");
        assert_eq!(again.bytes().await.len(), 0);
    }
}
