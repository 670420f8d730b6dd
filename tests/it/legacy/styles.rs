//! Styles and collections, from the permission to create them to the worker's request.

use axum::http::{Method, StatusCode};
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::Kudos;
use serde_json::{Value, json};

use super::super::support::app::App;
use super::{ASYNC, POP, call_as, worker};

const IMAGE: &str = "/api/v2/styles/image";
const TEXT: &str = "/api/v2/styles/text";
const COLLECTIONS: &str = "/api/v2/collections";

async fn customizer(app: &App) -> String {
    let roles = Roles::USER.with(Roles::CUSTOMIZER);
    app.account_with(roles, Scopes::ALL).await
}

async fn read(app: &App, path: &str) -> (StatusCode, Value) {
    let answer = app.get(path).await;
    (answer.status, answer.json().await)
}

/// Creates a style and returns its id.
async fn make(app: &App, key: &str, path: &str, body: Value) -> String {
    let (status, answer) = call_as(app, key, Method::POST, path, body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(
        (&answer["message"], &answer["warnings"]),
        (&json!("OK"), &json!([]))
    );
    answer["id"].as_str().unwrap().to_owned()
}

async fn make_image(app: &App, key: &str, name: &str) -> String {
    make(
        app,
        key,
        IMAGE,
        json!({"name": name, "models": ["painter"]}),
    )
    .await
}

fn check(answer: &(StatusCode, Value), status: u16, rc: &str) {
    assert_eq!(answer.0.as_u16(), status, "{}", answer.1);
    assert_eq!(answer.1["rc"], rc, "{}", answer.1);
}

#[tokio::test]
async fn a_style_is_made_shown_changed_and_deleted() {
    let app = App::start().await;
    let key = customizer(&app).await;
    let body = json!({
        "name": "oil", "info": "as if painted", "prompt": "oil, {p}###photo, {np}", "nsfw": true, "tags": ["art"],
        "models": ["painter"], "params": {"steps": 12, "loras": [{"name": "brush"}]},
    });
    let id = make(&app, &key, IMAGE, body.clone()).await;
    let path = format!("{IMAGE}/{id}");
    let (status, shown) = read(&app, &path).await;
    assert_eq!(status, StatusCode::OK);
    for (name, sent) in body
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "params")
    {
        assert_eq!(&shown[name], sent, "{name}");
    }
    assert_eq!(shown["params"]["steps"], 12);
    assert_eq!(
        (&shown["public"], &shown["use_count"]),
        (&json!(true), &json!(0))
    );
    // Omitted fields are unchanged: the public service resets them.
    let patch = json!({"public": false, "tags": ["old"]});
    let (status, _) = call_as(&app, &key, Method::PATCH, &path, patch).await;
    assert_eq!(status, StatusCode::OK);
    let (_, changed) = read(&app, &path).await;
    let mut expected = shown.clone();
    expected["public"] = json!(false);
    expected["tags"] = json!(["old"]);
    assert_eq!(changed, expected);
    let (_, nothing) = call_as(&app, &key, Method::PATCH, &path, json!({})).await;
    assert!(nothing["id"] == id.as_str() && nothing.get("warnings").is_none());
    assert_eq!(read(&app, IMAGE).await.1, json!([]));
    let (_, gone) = call_as(&app, &key, Method::DELETE, &path, Value::Null).await;
    assert_eq!(gone, json!({"message": "OK"}));
    check(&read(&app, &path).await, 404, "Image styleNotFound");
    let again = call_as(&app, &key, Method::DELETE, &path, Value::Null).await;
    check(&again, 404, "StyleNotFound");
}

#[tokio::test]
async fn styles_are_made_by_customizers_and_deleted_by_owners_and_moderators() {
    let settings = DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    };
    let app = App::with(settings).await;
    let scopes = Scopes::ALL;
    let key = customizer(&app).await;
    let trusted = app.account_with(Roles::TRUSTED, scopes).await;
    let other = app.account_with(Roles::USER, scopes).await;
    let moderator = app.account_with(Roles::MODERATOR, scopes).await;
    let body = || json!({"name": "mine", "models": ["m"]});
    for path in [IMAGE, TEXT] {
        for (key, rc) in [
            (other.as_str(), "StylesRequiresCustomizer"),
            ("0000000000", "StylesAnonForbidden"),
        ] {
            check(
                &call_as(&app, key, Method::POST, path, body()).await,
                403,
                rc,
            );
        }
        make(&app, &trusted, path, json!({"name": path, "models": ["m"]})).await;
        let id = make(&app, &key, path, json!({"name": path, "models": ["m"]})).await;
        let path = format!("{path}/{id}");
        for key in [&other, &moderator] {
            check(
                &call_as(&app, key, Method::PATCH, &path, json!({"name": "x"})).await,
                403,
                "Forbidden",
            );
        }
        check(
            &call_as(&app, &other, Method::DELETE, &path, Value::Null).await,
            403,
            "Forbidden",
        );
        let anonymous = call_as(&app, "0000000000", Method::DELETE, &path, Value::Null).await;
        check(&anonymous, 403, "StylesAnonForbidden");
        let (status, _) = call_as(&app, &moderator, Method::DELETE, &path, Value::Null).await;
        assert_eq!(status, StatusCode::OK);
    }
    let deleted = app
        .account_with(Roles::CUSTOMIZER.with(Roles::DELETED), scopes)
        .await;
    check(
        &call_as(&app, &deleted, Method::POST, IMAGE, body()).await,
        403,
        "DeletedUser",
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_style_is_said_by_its_code() {
    let app = App::start().await;
    let key = customizer(&app).await;
    make_image(&app, &key, "taken").await;
    let refused = async |path: &str, change: Value, rc: &str| {
        let mut body = json!({"name": "new", "models": ["m"]});
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        check(
            &call_as(&app, &key, Method::POST, path, body).await,
            400,
            rc,
        );
    };
    refused(IMAGE, json!({"models": []}), "BadRequest").await;
    refused(
        IMAGE,
        json!({"models": ["1", "2", "3", "4", "5", "6"]}),
        "BadRequest",
    )
    .await;
    refused(IMAGE, json!({"tags": vec!["t"; 11]}), "BadRequest").await;
    refused(IMAGE, json!({"name": "taken"}), "BadRequest").await;
    refused(IMAGE, json!({"name": "style::x"}), "BadRequest").await;
    refused(IMAGE, json!({"name": "5hit"}), "BadRequest").await;
    refused(TEXT, json!({"tags": ["art", "shit"]}), "BadRequest").await;
    refused(
        IMAGE,
        json!({"prompt": "only {p}"}),
        "StylePromptMissingVars",
    )
    .await;
    refused(
        IMAGE,
        json!({"params": {"cfg_scale": 1.234}}),
        "BadCFGDecimals",
    )
    .await;
    refused(
        IMAGE,
        json!({"params": {"special": {}}}),
        "SpecialFieldNeedsSpecialUser",
    )
    .await;
    refused(
        TEXT,
        json!({"params": {"sampler_order": [1]}}),
        "MissingFullSamplerOrder",
    )
    .await;
    // Names of other users' styles are free.
    let other = app.account_with(Roles::TRUSTED, Scopes::ALL).await;
    make_image(&app, &other, "taken").await;
    let (status, invalid) = call_as(&app, &key, Method::POST, IMAGE, json!({"name": 5})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(invalid["errors"]["name"].is_string() && invalid.get("rc").is_none());
}

#[tokio::test]
async fn lists_have_twenty_five_on_a_page() {
    let app = App::start().await;
    let key = customizer(&app).await;
    for number in 0..30 {
        let tag = if number % 2 == 0 { "even" } else { "odd" };
        let body = json!({"name": format!("style {number}"), "models": ["m"], "tags": [tag]});
        make(&app, &key, TEXT, body).await;
        let styles = json!([format!("style {number}")]);
        make(
            &app,
            &key,
            COLLECTIONS,
            json!({"name": format!("c{number}"), "styles": styles}),
        )
        .await;
    }
    let names = async |path: &str, query: &str| {
        let (status, list) = read(&app, &format!("{path}{query}")).await;
        assert_eq!(status, StatusCode::OK, "{list}");
        let names = list
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].clone());
        names.collect::<Vec<_>>()
    };
    for (path, first, next) in [(TEXT, "style 0", "style 25"), (COLLECTIONS, "c0", "c25")] {
        for sort in ["", "&sort=age", "&sort=popular"] {
            let page = names(path, &format!("?page=1{sort}")).await;
            assert_eq!((page.len(), &page[0]), (25, &json!(first)));
            let page = names(path, &format!("?page=2{sort}")).await;
            assert_eq!((page.len(), &page[0]), (5, &json!(next)));
            assert!(names(path, &format!("?page=3{sort}")).await.is_empty());
        }
        check(
            &read(&app, &format!("{path}?sort=size")).await,
            400,
            "BadRequest",
        );
    }
    assert_eq!(names(TEXT, "?tag=odd").await.len(), 15);
    assert_eq!(names(TEXT, "?tag=odd&model=n").await.len(), 0);
    assert!(names(IMAGE, "").await.is_empty());
    assert!(names(COLLECTIONS, "?type=image").await.is_empty());
    assert_eq!(names(COLLECTIONS, "?type=text").await.len(), 25);
    check(
        &read(&app, &format!("{COLLECTIONS}?type=sound")).await,
        400,
        "BadRequest",
    );
}

#[tokio::test]
async fn a_style_is_found_by_every_form_of_its_name() {
    let app = App::start().await;
    let key = customizer(&app).await;
    let id = make_image(&app, &key, "oil").await;
    let (_, shown) = read(&app, &format!("{IMAGE}/{id}")).await;
    let creator = shown["creator"]
        .as_str()
        .unwrap()
        .replace('#', "%23")
        .replace(' ', "%20");
    for name in [
        "oil".to_owned(),
        id.clone(),
        "style::oil".to_owned(),
        format!("{creator}::oil"),
        format!("style::{creator}::oil"),
        format!("{creator}::style::oil"),
    ] {
        let (status, found) = read(&app, &format!("{IMAGE}_by_name/{name}")).await;
        assert_eq!((status, &found), (StatusCode::OK, &shown), "{name}");
    }
    for name in ["ink", "collection::oil", "x%2399::oil", "%FF"] {
        check(
            &read(&app, &format!("{IMAGE}_by_name/{name}")).await,
            404,
            "StyleNotFound",
        );
    }
    check(
        &read(&app, &format!("{TEXT}_by_name/oil")).await,
        400,
        "StyleGetMistmatch",
    );
    check(
        &read(&app, &format!("{TEXT}/{id}")).await,
        400,
        "StyleGetMistmatch",
    );
    check(
        &read(&app, &format!("{TEXT}/no-uuid")).await,
        404,
        "Text styleNotFound",
    );
}

#[tokio::test]
async fn a_style_has_four_examples_of_which_one_is_the_main_one() {
    let app = App::start().await;
    let key = customizer(&app).await;
    let id = make_image(&app, &key, "oil").await;
    let path = format!("{IMAGE}/{id}/example");
    let example = |number: u32| json!({"url": format!("https://example.org/{number}.webp"), "primary": number == 2});
    let first = make(&app, &key, &path, example(0)).await;
    for number in 1..4 {
        make(&app, &key, &path, example(number)).await;
    }
    let mains = async || {
        let (_, style) = read(&app, &format!("{IMAGE}/{id}")).await;
        let examples = style["examples"].as_array().unwrap().clone();
        examples
            .iter()
            .map(|one| one["primary"] == true)
            .collect::<Vec<_>>()
    };
    assert_eq!(mains().await, [false, false, true, false]);
    check(
        &call_as(&app, &key, Method::POST, &path, example(9)).await,
        403,
        "TooManyStyleExamples",
    );
    let one = format!("{path}/{first}");
    let (status, _) = call_as(&app, &key, Method::PATCH, &one, json!({"primary": true})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(mains().await, [true, false, false, false]);
    let used = json!({"url": "https://example.org/1.webp"});
    check(
        &call_as(&app, &key, Method::PATCH, &one, used).await,
        400,
        "ExampleURLAlreadyInUse",
    );
    for url in ["http://example.org/x", "https://", "javascript:x"] {
        let body = json!({"url": url});
        check(
            &call_as(&app, &key, Method::PATCH, &one, body).await,
            400,
            "BadRequest",
        );
    }
    let other = app.account_with(Roles::TRUSTED, Scopes::ALL).await;
    check(
        &call_as(&app, &other, Method::DELETE, &one, Value::Null).await,
        403,
        "Forbidden",
    );
    let (status, _) = call_as(&app, &key, Method::DELETE, &one, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(mains().await, [true, false, false]);
    let again = call_as(&app, &key, Method::DELETE, &one, Value::Null).await;
    check(&again, 404, "Style exampleNotFound");
}

#[tokio::test]
async fn a_collection_mixes_ids_and_names_of_one_kind() {
    let app = App::start().await;
    let key = customizer(&app).await;
    let user = app.account_with(Roles::USER, Scopes::ALL).await;
    let oil = make_image(&app, &key, "oil").await;
    make_image(&app, &key, "ink").await;
    make(&app, &key, TEXT, json!({"name": "tale", "models": ["m"]})).await;
    let body = json!({"name": "art", "info": "all of it", "styles": [oil, "ink", "oil"]});
    let id = make(&app, &user, COLLECTIONS, body).await;
    let path = format!("{COLLECTIONS}/{id}");
    let (_, shown) = read(&app, &path).await;
    let names = |shown: &Value| {
        let styles = shown["styles"].as_array().unwrap().iter();
        let names = styles.map(|style| {
            style["name"]
                .as_str()
                .unwrap()
                .rsplit("::")
                .next()
                .unwrap()
                .to_owned()
        });
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&shown), ["oil", "ink"]);
    assert_eq!(
        (&shown["type"], &shown["info"]),
        (&json!("image"), &json!("all of it"))
    );
    let (_, named) = read(&app, "/api/v2/collection_by_name/collection::art").await;
    assert_eq!(named, shown);
    let none = read(&app, "/api/v2/collection_by_name/style::art").await;
    check(&none, 404, "CollectionNotFound");
    for (styles, rc) in [
        (json!([]), "BadRequest"),
        (json!(["nobody's"]), "BadRequest"),
        (json!([oil, "tale"]), "StyleMismatch"),
    ] {
        let body = json!({"name": "wrong", "styles": styles});
        let made = call_as(&app, &user, Method::POST, COLLECTIONS, body).await;
        check(&made, 400, rc);
        let body = json!({"styles": styles});
        let changed = call_as(&app, &user, Method::PATCH, &path, body).await;
        check(&changed, 400, rc);
    }
    let patch = json!({"styles": ["ink"]});
    let (status, _) = call_as(&app, &user, Method::PATCH, &path, patch.clone()).await;
    assert_eq!(status, StatusCode::OK);
    let (_, changed) = read(&app, &path).await;
    assert_eq!(
        (names(&changed), &changed["info"]),
        (vec!["ink".to_owned()], &json!("all of it"))
    );
    check(
        &call_as(&app, &key, Method::PATCH, &path, patch).await,
        403,
        "Forbidden",
    );
    check(
        &call_as(&app, &key, Method::DELETE, &path, Value::Null).await,
        403,
        "Forbidden",
    );
    let (status, _) = call_as(&app, &user, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    check(&read(&app, &path).await, 404, "CollectionNotFound");
}

/// As its holder sees it.
async fn user(app: &App, key: &str) -> Value {
    let path = "/api/v2/find_user";
    call_as(app, key, Method::GET, path, Value::Null).await.1
}

#[tokio::test]
async fn a_style_makes_the_request_and_its_owner_is_paid_once() {
    let app = App::start().await;
    let key = customizer(&app).await;
    let style = json!({
        "name": "tale", "prompt": "A tale: {p}{rest}", "models": ["other"],
        "params": {"temperature": 0.5, "max_length": 40},
    });
    let id = make(&app, &key, TEXT, style).await;
    make(
        &app,
        &key,
        COLLECTIONS,
        json!({"name": "tales", "styles": ["tale"]}),
    )
    .await;
    let path = format!("/api/v2/users/{}", user(&app, &app.key).await["id"]);
    call_as(&app, &app.key, Method::PUT, &path, json!({"kudos": 100})).await;
    let (asker, owner) = (user(&app, &app.key).await, user(&app, &key).await);
    let ask = async |key: &str, change: Value| {
        let mut body = json!({"prompt": "once", "models": ["tiny"], "params": {"n": 2, "top_k": 4}, "style": "tale"});
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        call_as(&app, key, Method::POST, ASYNC, body).await
    };
    let (status, told) = ask(&app.key, json!({"dry_run": true})).await;
    assert_eq!(status, StatusCode::OK, "{told}");
    let told = &told["resolved"];
    assert_eq!(
        (&told["prompt"], &told["models"]),
        (&json!("A tale: once"), &json!(["other"]))
    );
    let params = &told["params"];
    assert_eq!(
        (&params["n"], &params["temperature"]),
        (&json!(2), &json!(0.5))
    );
    assert_eq!(
        (params.get("top_k"), told.get("negative_prompt")),
        (None, None)
    );
    assert_eq!(told["style"], json!({"id": id, "name": "tale"}));
    let full = owner["styles"][0]["name"].clone();
    assert!(full.as_str().unwrap().ends_with("::style::tale"));
    for style in [json!("tale"), full, json!("collection::tales")] {
        let (status, answer) = ask(&app.key, json!({"style": style})).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
        let mut wanted = worker("w1");
        wanted["amount"] = json!(2);
        let (_, popped) = call_as(&app, &app.key, Method::POST, POP, wanted).await;
        let payload = &popped["payload"];
        assert_eq!(
            (&payload["prompt"], &popped["model"]),
            (&json!("A tale: once"), &json!("other"))
        );
        assert_eq!(
            [
                &payload["temperature"],
                &payload["max_length"],
                &payload["n"]
            ],
            [&json!(0.5), &json!(40), &json!(1)]
        );
        assert_eq!(popped["ids"].as_array().unwrap().len(), 2);
        assert!(payload.get("top_k").is_none() || payload["top_k"].is_null());
    }
    // The owner's own uses are free, and refused requests are no uses.
    let (status, _) = ask(&key, json!({})).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    for (change, status, rc) in [
        (json!({"prompt": ""}), 400, "MissingPrompt"),
        (json!({"style": "nobody's"}), 404, "StyleNotFound"),
        (
            json!({"params": {"n": 20}, "style": "tale"}),
            429,
            "TooManyPrompts",
        ),
    ] {
        if status == 429 {
            ask(&app.key, json!({"params": {"n": 20}, "style": id.clone()})).await;
        }
        check(&ask(&app.key, change).await, status, rc);
    }
    let (_, shown) = read(&app, &format!("{TEXT}/{id}")).await;
    assert_eq!(shown["use_count"], 5);
    let (_, collection) = read(&app, "/api/v2/collection_by_name/tales").await;
    assert_eq!(collection["use_count"], 1);
    let kudos = |user: &Value| user["kudos"].as_f64().unwrap();
    let (paying, paid) = (user(&app, &app.key).await, user(&app, &key).await);
    // Each request costs one kudos at once, three with another user's style.
    assert_eq!(kudos(&paid), kudos(&owner) + 8.0 - 1.0);
    assert_eq!(paid["kudos_details"]["styled"], 8.0);
    assert_eq!(paid["records"]["style"]["text"], 5);
    assert_eq!(kudos(&paying), kudos(&asker) - 4.0 * 3.0);
}

#[tokio::test]
async fn an_image_style_writes_no_text() {
    let app = App::start().await;
    let key = customizer(&app).await;
    make_image(&app, &key, "oil").await;
    make(
        &app,
        &key,
        COLLECTIONS,
        json!({"name": "art", "styles": ["oil"]}),
    )
    .await;
    for style in ["oil", "art"] {
        let body = json!({"prompt": "p", "style": style});
        let refused = call_as(&app, &app.key, Method::POST, ASYNC, body).await;
        check(&refused, 400, "StyleMismatch");
    }
}

#[tokio::test]
async fn an_image_style_draws_and_its_owner_is_paid() {
    let app = App::start().await;
    app.enrich(Kudos(1_000_000)).await;
    let key = customizer(&app).await;
    let style = json!({
        "name": "oil", "prompt": "oil, {p}###photo, {np}", "models": ["painter"], "params": {"steps": 12},
    });
    let id = make(&app, &key, IMAGE, style).await;
    make(
        &app,
        &key,
        COLLECTIONS,
        json!({"name": "art", "styles": [id]}),
    )
    .await;
    let before = user(&app, &key).await;
    let asked = json!({
        "prompt": "a cat###a dog", "models": ["tiny"], "style": "collection::art",
        "params": {"steps": 5, "width": 576, "height": 640},
    });
    let mut dry = asked.clone();
    dry["dry_run"] = json!(true);
    let path = "/api/v2/generate/async";
    let price = async |key: &str| {
        let (status, priced) = call_as(&app, key, Method::POST, path, dry.clone()).await;
        assert_eq!(status, StatusCode::OK, "{priced}");
        priced["kudos"].as_f64().unwrap()
    };
    assert_eq!(price(&app.key).await, price(&key).await + 2.0);
    let (_, told) = call_as(&app, &key, Method::POST, path, dry.clone()).await;
    let told = &told["resolved"];
    assert_eq!(told["prompt"], "oil, a cat###photo, a dog");
    assert_eq!(told["negative_prompt"], "photo, a dog");
    assert_eq!(told["models"], json!(["painter"]));
    let params = &told["params"];
    assert_eq!(
        (&params["steps"], &params["width"], &params["height"]),
        (&json!(12), &json!(576), &json!(640))
    );
    assert_eq!(told["style"], json!({"id": id, "name": "oil"}));
    let (status, answer) = call_as(&app, &app.key, Method::POST, path, asked).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    assert_eq!(answer.get("resolved"), None);
    let worker = json!({
        "name": "artist", "models": ["painter"], "bridge_agent": "AI Horde Worker reGen:13:test",
        "max_pixels": 1_048_576,
    });
    let path = "/api/v2/generate/pop";
    let (_, popped) = call_as(&app, &app.key, Method::POST, path, worker).await;
    let payload = &popped["payload"];
    assert_eq!(payload["prompt"], "oil, a cat###photo, a dog", "{popped}");
    assert_eq!(
        (&popped["model"], &payload["ddim_steps"]),
        (&json!("painter"), &json!(12))
    );
    assert_eq!(
        (&payload["width"], &payload["height"]),
        (&json!(576), &json!(640))
    );
    let after = user(&app, &key).await;
    let kudos = |user: &Value| user["kudos"].as_f64().unwrap();
    assert_eq!(kudos(&after), kudos(&before) + 2.0);
    assert_eq!(after["records"]["style"]["image"], 1);
}

#[tokio::test]
async fn a_style_that_leaves_nothing_of_a_prompt_is_refused_and_nothing_waits() {
    let app = App::start().await;
    let key = customizer(&app).await;
    make_image(&app, &key, "plain").await;
    make(
        &app,
        &key,
        TEXT,
        json!({"name": "bare", "models": ["tiny"], "prompt": "{p}"}),
    )
    .await;
    for (path, prompt, style) in [
        ("/api/v2/generate/async", "###", "plain"),
        (ASYNC, "", "bare"),
    ] {
        for dry_run in [true, false] {
            let body = json!({"prompt": prompt, "style": style, "dry_run": dry_run});
            let refused = call_as(&app, &app.key, Method::POST, path, body).await;
            check(&refused, 400, "MissingPrompt");
        }
    }
    let (_, load) = read(&app, "/api/v2/status/performance").await;
    assert_eq!(load["queued_requests"], 0);
}

#[tokio::test]
async fn a_style_that_does_not_suit_its_model_is_kept_and_warned_of() {
    let app = App::start().await;
    let key = customizer(&app).await;
    let codes = |answer: &Value| -> Vec<String> {
        let warnings = answer["warnings"].as_array().unwrap().iter();
        let codes = warnings.map(|warning| warning["code"].as_str().unwrap().to_owned());
        codes.collect()
    };
    let fit = json!({"steps": 6, "cfg_scale": 2.0, "sampler_name": "k_dpmpp_sde", "karras": true});
    let style = json!({"name": "fast", "models": ["DreamShaper XL"], "params": {"steps": 40}});
    let (status, answer) = call_as(&app, &key, Method::POST, IMAGE, style).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(
        codes(&answer).contains(&"StepsTooMany".to_owned()),
        "{answer}"
    );
    let path = format!("{IMAGE}/{}", answer["id"].as_str().unwrap());
    let (status, answer) = call_as(&app, &key, Method::PATCH, &path, json!({"params": fit})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(codes(&answer), [""; 0], "{answer}");
}
