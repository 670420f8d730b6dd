//! Every documented error, produced where a client or a worker would meet it.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use futures_util::future::join_all;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::Kudos;
use muster::protocol::legacy::Code;
use serde_json::{Value, json};

use super::{ASYNC, POP, call, call_as, images, post, worker};
use crate::support::app::{App, request};

const IMAGES: &str = "/api/v2/generate/async";

fn check(answer: (StatusCode, Value), rc: &str) {
    let (status, body) = answer;
    let code = Code::ALL.iter().find(|code| code.row().rc == rc);
    assert_eq!(body["rc"], rc, "{body}");
    assert_eq!(status.as_u16(), code.unwrap().row().status, "{body}");
    assert!(
        body["message"].is_string() && body.get("errors").is_none(),
        "{body}"
    );
}

/// What users without trust are refused.
async fn stranger(app: &App) -> String {
    let roles = Roles::USER.with(Roles::WORKER_OWNER);
    app.account_with(roles, Scopes::ALL).await
}

async fn refuse(app: &App, key: &str, path: &str, body: Value, rc: &str) {
    check(call_as(app, key, Method::POST, path, body).await, rc);
}

#[tokio::test]
async fn a_client_program_that_is_blocked_is_refused_whatever_it_asks_for() {
    let app = App::with(DoorSettings {
        blocked_clients: vec!["Painter:1.2".to_owned()],
        ..DoorSettings::default()
    })
    .await;
    let key = stranger(&app).await;
    let form = json!({"source_image": images::PNG, "forms": [{"name": "caption"}]});
    for (path, body) in [
        (ASYNC, json!({"prompt": "p"})),
        (IMAGES, json!({"prompt": "p"})),
        ("/api/v2/interrogate/async", form),
    ] {
        let ask = async |agent: Option<&str>| {
            let mut headers = vec![("apikey", &*key)];
            headers.extend(agent.map(|agent| ("client-agent", agent)));
            let body = Body::from(body.to_string());
            let answer = app.send(request(Method::POST, path, &headers, body)).await;
            (answer.status, answer.json().await)
        };
        let refused = ask(Some("Painter:1.2:https://example.org")).await;
        check(refused, "BannedClientAgent");
        for agent in [Some("Painter:1.3:https://example.org"), None] {
            assert_eq!(ask(agent).await.0, StatusCode::ACCEPTED, "{path} {agent:?}");
        }
    }
}

#[tokio::test]
async fn half_a_character_in_a_prompt_is_refused_by_its_code() {
    let app = App::start().await;
    let key = stranger(&app).await;
    for path in [ASYNC, IMAGES] {
        let body = Body::from(r#"{"prompt": "hello \udde2 world"}"#);
        let headers = [("apikey", &*key)];
        let answer = app.send(request(Method::POST, path, &headers, body)).await;
        let refused = (answer.status, answer.json().await);
        let message = refused.1["message"].to_string();
        assert!(message.contains("lone leading surrogate"), "{message}");
        check(refused, "InvalidPromptEncoding");
    }
}

#[tokio::test]
async fn parameters_of_images_that_do_not_go_together_are_refused_by_their_codes() {
    let app = App::start().await;
    let key = stranger(&app).await;
    let image = images::PNG;
    let lora = json!({"name": "12a", "is_version": true});
    let control = json!({"control_type": "canny"});
    let upscalers = json!({"post_processing": ["RealESRGAN_x4plus", "4x_AnimeSharp"]});
    let qr_code = json!({"workflow": "qr_code"});
    let texts = json!({"extra_texts": [{"text": "t", "reference": "qr_code"}]});
    let layered = json!({"transparent": true});
    let layered_control = json!({"transparent": true, "control_type": "canny"});
    let extra =
        |number: usize| json!({"extra_source_images": vec![json!({"image": image}); number]});
    let source = json!({"source_image": image});
    let painting = json!({"source_image": image, "source_processing": "inpainting"});
    let none = || json!({});
    for (model, params, more, rc) in [
        (
            "x [Flux]",
            json!({"hires_fix": true}),
            none(),
            "HiResMismatch",
        ),
        (
            "x",
            json!({"loras": vec![json!({"name": "x"}); 6]}),
            none(),
            "TooManyLoras",
        ),
        ("x", json!({"loras": [lora]}), none(), "BadLoraVersion"),
        (
            "x",
            json!({"tis": vec![json!({"name": "x"}); 21]}),
            none(),
            "TooManyTIs",
        ),
        (
            "x [Flux]",
            layered.clone(),
            none(),
            "InvalidTransparencyModel",
        ),
        ("x [Flux]", qr_code.clone(), none(), "ControlNetMismatch."),
        (
            "x",
            none(),
            json!({"prompt": "a ".repeat(7501)}),
            "InvalidPromptSize",
        ),
        ("GFPGAN", none(), none(), "UnexpectedModelName"),
        ("x", upscalers, none(), "TooManyUpscalers"),
        (
            "pix2pix",
            control.clone(),
            source.clone(),
            "ControlNetUnsupported",
        ),
        ("x", control.clone(), none(), "ControlNetSourceMissing"),
        (
            "x",
            control.clone(),
            painting,
            "ControlNetInpaintingMismatch",
        ),
        ("x [SDXL]", control, source.clone(), "ControlNetMismatch"),
        ("x", layered_control, source, "InvalidTransparencyCN"),
        ("x", layered, extra(1), "InvalidTransparencyImg2Img"),
        ("x", none(), extra(1), "InvalidExtraSourceImages."),
        ("x", none(), extra(2), "MoreThanMinExtraSourceImage."),
        ("x", none(), extra(6), "TooManyExtraSourceImages."),
        (
            "x",
            none(),
            json!({"source_processing": "remix"}),
            "InvalidRemix",
        ),
        ("x", texts, none(), "InvalidExtraTexts."),
        ("x [SDXL]", qr_code, none(), "MissingExtraTexts."),
        ("pix2pix", none(), none(), "SourceImageRequiredForModel"),
        (
            "x",
            json!({"n": 2}),
            json!({"disable_batching": true}),
            "RequiresTrust",
        ),
        (
            "horde_special::a#1",
            json!({"special": {"a": 1}}),
            none(),
            "SpecialModelNeedsSpecialUser",
        ),
    ] {
        let body = json!({"prompt": "p", "models": [model], "params": params});
        refuse(&app, &key, IMAGES, images::with(body, more), rc).await;
    }
    let special = app
        .account_with(Roles::USER.with(Roles::SPECIAL), Scopes::ALL)
        .await;
    for (model, params, rc) in [
        (
            "horde_special",
            json!({"special": {"a": 1}}),
            "SpecialMissingUsername",
        ),
        (
            "horde_special::bob#2",
            json!({"special": {"a": 1}}),
            "SpecialForbidden",
        ),
    ] {
        let body = json!({"prompt": "p", "models": [model], "params": params});
        refuse(&app, &special, IMAGES, body, rc).await;
    }
    let (_, me) = call_as(
        &app,
        &special,
        Method::GET,
        "/api/v2/find_user",
        Value::Null,
    )
    .await;
    let own = format!("horde_special::{}", me["username"].as_str().unwrap());
    let body = json!({"prompt": "p", "models": [own]});
    refuse(&app, &special, IMAGES, body, "SpecialMissingPayload").await;
}

#[tokio::test]
async fn parameters_of_texts_that_do_not_go_together_are_refused_by_their_codes() {
    let app = App::start().await;
    let key = stranger(&app).await;
    let stops: Vec<String> = (0..129).map(|number| number.to_string()).collect();
    for (params, rc) in [
        (
            json!({"max_length": 512, "max_context_length": 256}),
            "TokenOverflow",
        ),
        (json!({"stop_sequence": stops}), "TooManyStopSequences"),
        (
            json!({"stop_sequence": ["a".repeat(2001)]}),
            "ExcessiveStopSequence",
        ),
        (
            json!({"sampler_order": [6, 0, 1]}),
            "MissingFullSamplerOrder",
        ),
    ] {
        let body = json!({"prompt": "p", "params": params});
        refuse(&app, &key, ASYNC, body, rc).await;
    }
}

#[tokio::test]
async fn of_several_mistakes_the_first_in_the_order_clients_know_is_told() {
    let app = App::start().await;
    let key = stranger(&app).await;
    let nobody = json!([uuid::Uuid::new_v4()]);
    let six = vec![json!({"image": images::PNG}); 6];
    let overflow = json!({"max_length": 512, "max_context_length": 256});
    let hook = "http://example.org/hook";
    for (path, body, rc) in [
        (
            IMAGES,
            json!({"webhook": hook, "proxied_account": "bob"}),
            "BadRequest",
        ),
        (
            IMAGES,
            json!({"workers": nobody, "extra_source_images": six}),
            "TooManyExtraSourceImages.",
        ),
        (
            IMAGES,
            json!({"workers": nobody, "disable_batching": true, "params": {"n": 2}}),
            "WorkerNotFound",
        ),
        (
            ASYNC,
            json!({"webhook": hook, "params": overflow}),
            "BadRequest",
        ),
        (
            ASYNC,
            json!({"workers": nobody, "params": overflow}),
            "WorkerNotFound",
        ),
        (
            ASYNC,
            json!({"workers": nobody, "disable_batching": true, "params": {"n": 2}}),
            "WorkerNotFound",
        ),
        (
            ASYNC,
            json!({"disable_batching": true, "params": {"n": 2, "sampler_order": [1]}}),
            "RequiresTrust",
        ),
    ] {
        let body = images::with(json!({"prompt": "p", "models": ["x"]}), body);
        refuse(&app, &key, path, body, rc).await;
    }
}

#[tokio::test]
async fn source_images_are_refused_by_what_is_wrong_with_them() {
    let app = App::start().await;
    let wide = images::png(3073, 3073);
    let heavy = "A".repeat(46 << 20);
    for (image, rc) in [
        (wide.as_str(), "SourceImageResolutionExceeded"),
        (heavy.as_str(), "SourceImageSizeExceeded"),
        ("bm8gaW1hZ2U=", "SourceImageUnreadable"),
        ("no base64!", "ImageValidationFailed"),
        ("http://127.0.0.1/a.png", "SourceImageUrlInvalid"),
    ] {
        let body = json!({"prompt": "p", "source_image": image});
        check(post(&app, IMAGES, body).await, rc);
    }
}

/// A finished request of so many images; its id and theirs.
async fn drawn(app: &App, images: u32, shared: bool) -> (String, Vec<Value>) {
    app.enrich(Kudos(1_000_000)).await;
    let id = images::ask(app, json!({"params": {"n": images}, "shared": shared})).await;
    let mut ids = Vec::new();
    while ids.len() < images as usize {
        let popped = images::pop(app, json!({"amount": images})).await;
        for job in popped["ids"].as_array().unwrap() {
            let (status, answer) = images::submit(app, job, json!({})).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            ids.push(job.clone());
        }
    }
    images::until_done(app, &id).await;
    (id, ids)
}

#[tokio::test]
async fn ratings_are_refused_by_what_is_wrong_with_them() {
    let app = App::start().await;
    let waiting = images::ask(&app, json!({"shared": true})).await;
    let rate = async |id: &str, body: Value| {
        post(&app, &format!("/api/v2/generate/rate/{id}"), body).await
    };
    let somebody = json!(uuid::Uuid::new_v4());
    check(
        rate(&waiting, json!({"best": somebody})).await,
        "AestheticsNotCompleted",
    );
    let popped = images::pop(&app, json!({})).await;
    images::submit(&app, &popped["id"], json!({})).await;
    images::until_done(&app, &waiting).await;
    check(rate(&waiting, json!({})).await, "AestheticsMissing");
    let alone = json!({"best": popped["id"]});
    check(rate(&waiting, alone).await, "AestheticsSolo");
    check(
        rate(&waiting, json!({"best": somebody})).await,
        "ProcGenNotFound",
    );
    let rating = json!({"id": popped["id"], "rating": 5});
    let twice = json!({"ratings": [rating, rating]});
    check(rate(&waiting, twice).await, "AestheticsDuplicate");
    let (hidden, ids) = drawn(&app, 1, false).await;
    let rating = json!({"ratings": [{"id": ids[0], "rating": 5}]});
    check(rate(&hidden, rating).await, "AestheticsNotPublic");
}

#[tokio::test]
async fn of_many_ratings_at_once_one_counts_and_is_paid() {
    let app = App::start().await;
    let (id, ids) = drawn(&app, 2, true).await;
    let path = format!("/api/v2/generate/rate/{id}");
    let body = json!({"best": ids[0], "ratings": [{"id": ids[0], "rating": 8}]});
    let before = kudos(&app).await;
    let answers = join_all((0..16).map(|_| post(&app, &path, body.clone()))).await;
    let mut paid = 0.0;
    for (status, answer) in answers {
        match status {
            StatusCode::OK => paid += answer["reward"].as_f64().unwrap(),
            _ => check((status, answer), "AestheticsAlreadyExist"),
        }
    }
    assert_eq!(paid, 9.0);
    assert!((kudos(&app).await - before - paid).abs() < 0.01);
}

async fn kudos(app: &App) -> f64 {
    let (_, me) = call(app, Method::GET, "/api/v2/find_user", Value::Null).await;
    me["kudos"].as_f64().unwrap()
}

#[tokio::test]
async fn the_key_everybody_knows_has_no_workers() {
    let app = App::with(DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    })
    .await;
    for path in [POP, "/api/v2/generate/pop", "/api/v2/interrogate/pop"] {
        refuse(&app, "0000000000", path, worker("w"), "AnonForbiddenWorker").await;
    }
}

#[tokio::test]
async fn workers_that_may_not_come_are_refused_by_their_codes() {
    let app = App::start().await;
    let key = stranger(&app).await;
    let (status, _) = call_as(&app, &key, Method::POST, POP, worker("a writer")).await;
    assert_eq!(status, StatusCode::OK);
    let painter = images::worker(json!({"name": "a writer"}));
    refuse(
        &app,
        &key,
        "/api/v2/generate/pop",
        painter,
        "PolymorphicNameConflict",
    )
    .await;
    let rude = images::with(
        worker("another"),
        json!({"bridge_agent": "fuck this:1:url"}),
    );
    refuse(&app, &key, POP, rude, "ProfaneBridgeAgent").await;
    let wrong = images::with(worker("another"), json!({"priority_usernames": ["nobody"]}));
    refuse(&app, &key, POP, wrong, "InvalidPriorityUsername").await;
    let modes = json!({"invite_only_mode": true});
    call(&app, Method::PUT, "/api/v2/status/modes", modes).await;
    refuse(&app, &key, POP, worker("a new one"), "WorkerInviteOnly").await;
    let (_, known) = call(
        &app,
        Method::GET,
        "/api/v2/workers/name/a%20writer",
        Value::Null,
    )
    .await;
    let path = format!("/api/v2/workers/{}", known["id"].as_str().unwrap());
    let long = json!({"name": "女".repeat(100)});
    check(
        call(&app, Method::PUT, &path, long).await,
        "TooLongWorkerName",
    );
    let comment = json!({"admin_comment": "what a b1tch"});
    let (_, me) = call_as(&app, &key, Method::GET, "/api/v2/find_user", Value::Null).await;
    let path = format!("/api/v2/users/{}", me["id"]);
    check(
        call(&app, Method::PUT, &path, comment).await,
        "ProfaneAdminComment",
    );
}
