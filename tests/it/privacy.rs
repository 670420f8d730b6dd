//! Stored parts of requests, compared with the served privacy policy.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::clock::wall_clock;
use muster::coordinator::responses::{ResponseSettings, StoreResponses};
use muster::coordinator::state::DoorSettings;
use muster::runtime::maker::SamplePipeline;
use muster_testing::eventually;
use serde_json::{Value, json};

use super::media_jobs::{
    TRANSCRIPTIONS, accepted, film, filmer, finished, generate, hear, listener, say, speaker,
    steps, studio,
};
use super::support::app::{Answer, App, request};
use super::support::puppet::Puppet;

const DAY: Duration = Duration::from_secs(86_400);
const DATABASE: &str = "database";
const MEDIA: &str = "media";

async fn call(app: &App, method: Method, path: &str, body: Value) -> Answer {
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = match body {
        Value::Null => Body::empty(),
        body => Body::from(body.to_string()),
    };
    app.send(request(method, path, &headers, body)).await
}

async fn post(app: &App, path: &str, body: Value) -> Answer {
    call(app, Method::POST, path, body).await
}

/// One line, as it is served.
async fn policy(app: &App) -> String {
    let answer = app.get("/api/v2/documents/privacy?format=markdown").await;
    let policy = answer.json().await;
    let words = policy["markdown"].as_str().unwrap().split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

/// The words of a request and of its result, and where they are found.
struct Trace<'a> {
    app: &'a App,
    policy: String,
}

impl<'a> Trace<'a> {
    async fn of(app: &'a App) -> Self {
        let policy = policy(app).await;
        Self { app, policy }
    }

    /// The policy says this, and each of the words is in these places, and in no others.
    #[track_caller]
    fn check(&self, statement: &str, words: &[&str], places: &[&str]) {
        assert!(
            self.policy.contains(statement),
            "{statement}: {}",
            self.policy
        );
        for word in words {
            assert_eq!(self.app.places_of(word), places, "{word}: {statement}");
        }
    }
}

/// A reply of the worker with this word.
async fn replied(app: &App, worker: &Puppet, path: &str, body: Value, word: &str) -> Value {
    let words = [word];
    let (answer, ()) = tokio::join!(post(app, path, body), worker.answer(&words));
    assert_eq!(answer.status, StatusCode::OK, "{path}");
    answer.json().await
}

/// Nothing is left of a response once it is told to be deleted.
async fn stored(app: &App, response: &Value, kept: Duration) {
    let id = response["id"].as_str().unwrap();
    eventually("the response to be stored", async || {
        let row = app.store.response(id, app.account).await.unwrap();
        let row = row.filter(|row| row.body.is_none());
        row.is_some_and(|row| row.expires_at.since(row.created_at) >= kept)
    })
    .await;
}

#[tokio::test]
async fn texts_are_stored_where_the_policy_says_so() {
    let app = App::with(DoorSettings {
        responses: ResponseSettings {
            kept: 7 * DAY,
            ..ResponseSettings::default()
        },
        ..DoorSettings::default()
    })
    .await;
    let worker = Puppet::connect(&app.board).await;
    let trace = Trace::of(&app).await;
    let chat = json!({"model": "tiny", "messages": [{"role": "user", "content": "zanzibarchat"}]});
    replied(&app, &worker, "/v1/chat/completions", chat, "zanzibarreply").await;
    let message = json!({
        "model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "zanzibarmessage"}],
    });
    replied(&app, &worker, "/v1/messages", message, "zanzibarreply").await;
    let statement = "are not written to the database";
    let words = ["zanzibarchat", "zanzibarmessage", "zanzibarreply"];
    trace.check(statement, &words, &[]);

    let unset = json!({"model": "tiny", "input": "borneounset"});
    let unset = replied(&app, &worker, "/v1/responses", unset, "borneoanswer").await;
    assert_eq!(unset["store"], true);
    stored(&app, &unset, 7 * DAY).await;
    let statement = "stored in the database for 7 days, unless the request says `\"store\": false`";
    trace.check(statement, &["borneounset", "borneoanswer"], &[DATABASE]);
    let refused = json!({"model": "tiny", "input": "celebesrefused", "store": false});
    let refused = replied(&app, &worker, "/v1/responses", refused, "celebesanswer").await;
    assert_eq!(refused["store"], false);
    trace.check(statement, &["celebesrefused", "celebesanswer"], &[]);
    let behind = json!({"model": "tiny", "input": "sumatrabehind", "background": true});
    let (behind, ()) = tokio::join!(
        post(&app, "/v1/responses", behind),
        worker.answer(&["sumatraanswer"])
    );
    let behind = behind.json().await;
    stored(&app, &behind, 7 * DAY).await;
    trace.check(statement, &["sumatrabehind", "sumatraanswer"], &[DATABASE]);

    for response in [unset, behind] {
        let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
        let deleted = call(&app, Method::DELETE, &path, Value::Null).await;
        assert_eq!(deleted.status, StatusCode::OK);
    }
    app.store.compact().await.unwrap();
    let words = [
        "borneounset",
        "borneoanswer",
        "sumatrabehind",
        "sumatraanswer",
    ];
    trace.check("deletes a stored response at once", &words, &[]);
}

#[tokio::test]
async fn responses_are_stored_on_request_or_never_where_the_operator_says_so() {
    let with = |store| {
        App::with(DoorSettings {
            responses: ResponseSettings {
                store,
                ..ResponseSettings::default()
            },
            ..DoorSettings::default()
        })
    };
    let app = with(StoreResponses::OnRequest).await;
    let worker = Puppet::connect(&app.board).await;
    let trace = Trace::of(&app).await;
    let unset = json!({"model": "tiny", "input": "borneounset"});
    let unset = replied(&app, &worker, "/v1/responses", unset, "borneoanswer").await;
    assert_eq!(unset["store"], false);
    let statement = "if the request says `\"store\": true`, and not otherwise";
    trace.check(statement, &["borneounset", "borneoanswer"], &[]);
    let wanted = json!({"model": "tiny", "input": "celebeswanted", "store": true});
    let wanted = replied(&app, &worker, "/v1/responses", wanted, "celebesanswer").await;
    stored(&app, &wanted, 30 * DAY).await;
    trace.check(
        "for 30 days if",
        &["celebeswanted", "celebesanswer"],
        &[DATABASE],
    );
    let behind = json!({"model": "tiny", "input": "sumatra", "background": true});
    let refused = post(&app, "/v1/responses", behind).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);

    let app = with(StoreResponses::Never).await;
    let worker = Puppet::connect(&app.board).await;
    let unset = json!({"model": "tiny", "input": "borneounset"});
    replied(&app, &worker, "/v1/responses", unset, "borneoanswer").await;
    let statement = "**Responses** (`/v1/responses`) are not stored";
    Trace::of(&app)
        .await
        .check(statement, &["borneounset", "borneoanswer"], &[]);
    let wanted = json!({"model": "tiny", "input": "celebeswanted", "store": true});
    let refused = post(&app, "/v1/responses", wanted).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let refused = refused.json().await;
    assert_eq!(refused["error"]["param"], "store", "{refused}");
}

#[tokio::test]
async fn requests_that_are_fetched_later_are_stored_until_they_expire() {
    let app = App::start().await;
    let worker = Puppet::connect(&app.board).await;
    let trace = Trace::of(&app).await;
    let body = json!({"prompt": "javaprompt", "models": ["tiny"], "params": {"max_length": 20}});
    let asked = post(&app, "/api/v2/generate/text/async", body).await;
    assert_eq!(asked.status, StatusCode::ACCEPTED);
    let id = asked.json().await["id"].as_str().unwrap().to_owned();
    worker.answer(&["javaanswer"]).await;
    let status = format!("/api/v2/generate/text/status/{id}");
    eventually("the text", async || {
        app.get(&status).await.json().await["done"] == true
    })
    .await;
    let statement =
        "stored in the database until the request expires, 64 minutes after its last result";
    trace.check(statement, &["javaprompt", "javaanswer"], &[DATABASE]);
    let later = wall_clock().after(Duration::from_secs(64 * 60));
    app.store.forget_requests(later).await.unwrap();
    app.store.compact().await.unwrap();
    trace.check(statement, &["javaprompt", "javaanswer"], &[]);
}

#[tokio::test]
async fn media_are_stored_where_the_policy_says_so() {
    let app = super::media_jobs::app().await;
    let trace = Trace::of(&app).await;
    let _artist = studio(&app, "artist", SamplePipeline::default()).await;
    let drawn = generate(
        &app,
        json!({"prompt": "timorimage", "response_format": "url"}),
    )
    .await;
    assert_eq!(drawn.status, StatusCode::OK);
    drawn.json().await;
    let statement = "for up to 24 hours. The link of a file is enough to download it. An image may carry its prompt";
    trace.check(statement, &["timorimage"], &[MEDIA]);
    let _filmer = filmer(&app, SamplePipeline::default()).await;
    let filmed = film(&app, json!({"prompt": "timorvideo", "seconds": 1})).await;
    assert_eq!(filmed.status, StatusCode::OK);
    filmed.json().await;
    trace.check(statement, &["timorvideo"], &[]);
    let files = app.media_files();
    assert!(files >= 2, "an image and a video, found {files}");

    let _speaker = speaker(&app, SamplePipeline::default()).await;
    let said = say(&app, json!({"input": "Floreswords."})).await;
    assert_eq!(said.status, StatusCode::OK);
    said.bytes().await;
    let _listener = listener(&app, SamplePipeline::default()).await;
    let fields = [("prompt", "floreshint"), ("response_format", "text")];
    let heard = hear(&app, TRANSCRIPTIONS, &fields, &steps()).await;
    assert_eq!(heard.status, StatusCode::OK);
    heard.text().await;
    let statement = "transcriptions, speech): prompt and result are kept in memory";
    trace.check(statement, &["Floreswords", "floreshint"], &[]);
    eventually("sounds to leave with their requests", async || {
        match (app.media_files(), app.sources()) {
            (now, 0) if now == files => Ok(()),
            other => Err(other),
        }
    })
    .await;

    let fields = [("async", "true"), ("prompt", "floreslater")];
    let heard = hear(&app, TRANSCRIPTIONS, &fields, &steps()).await;
    finished(&app, &accepted(heard).await).await;
    let said = say(&app, json!({"input": "Flores later.", "async": true})).await;
    finished(&app, &accepted(said).await).await;
    let statement = "stored in the database until the request expires";
    trace.check(statement, &["floreslater", "Flores later"], &[DATABASE]);
    let statement =
        "documents that were generated are stored in a folder of this service for up to 24 hours";
    trace.check(statement, &[], &[]);
    assert!(app.media_files() > files);
}
