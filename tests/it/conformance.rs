//! The conformance page states the handling of every field of every dialect; these tests compare the page with the
//! tables of fields, and the tables with the service.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::protocol::conformance;
use muster::protocol::job::FailureKind;
use muster::protocol::openai::field::{FieldRow, Support};
use serde_json::{Value, json};

use super::legacy::images::PNG;
use crate::support::app::{Answer, App, request};
use crate::support::puppet::{Puppet, failed};

const PAGE: &str = "docs/conformance.md";
/// All fields are as old as the first version.
const SINCE: &str = "0.1";
const BEGINNING: &str = "# Which fields does each API honour?

| word | meaning |
| --- | --- |
| honoured | has the effect that the API describes |
| some values | other values are refused by name |
| no effect | accepted, and changes nothing; a value that asks for more is named in the header `x-ignored-fields` |
| refused | status 400, with the field's name in `param` |

Fields that are not listed are refused too, and the error names the nearest known field; on the routes of Ollama's API they
are ignored, as Ollama does. The operator may let the coordinator ignore fields (`ignored_fields`). The header
`x-ignored-fields` names fields that were ignored.

This page is generated from the tables that the coordinator reads requests by. `tests/it/conformance.rs` compares it and
sends wrong values for every field.
";

/// The page as it should be.
fn page() -> String {
    let mut page = BEGINNING.to_owned();
    for (route, rows) in conformance::routes() {
        let _ = write!(
            page,
            "\n## `POST {route}`\n\n| field | | since | meaning |\n| --- | --- | --- | --- |\n"
        );
        for FieldRow {
            name,
            about,
            support,
        } in rows
        {
            let about = about.replace('|', "\\|");
            let _ = writeln!(
                page,
                "| `{name}` | {} | {SINCE} | {about} |",
                support.word()
            );
        }
    }
    page
}

#[test]
fn the_page_lists_every_field() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if env::var_os("MUSTER_UPDATE_PAGES").is_some() {
        fs::write(&path, page()).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page(),
        "{PAGE} is out of date: run this test with MUSTER_UPDATE_PAGES=1"
    );
}

fn least_body(route: &str) -> Value {
    let messages = json!([{"role": "user", "content": "hi"}]);
    match route {
        "/v1/chat/completions" | "/v1/messages" => json!({"model": "tiny", "messages": messages}),
        "/v1/responses" | "/v1/embeddings" => json!({"model": "tiny", "input": "hi"}),
        "/v1/rerank" => json!({"model": "tiny", "query": "a", "documents": ["b"]}),
        "/api/chat" => json!({"model": "tiny", "messages": messages, "stream": false}),
        "/api/generate" => json!({"model": "tiny", "prompt": "hi", "stream": false}),
        "/api/embed" => json!({"model": "tiny", "input": "hi"}),
        "/v1/detokenize" => json!({"model": "tiny", "tokens": [1]}),
        "/v1/images/edits" => json!({"model": "tiny", "prompt": "hi", "image": PNG}),
        "/v1/images/variations" | "/v1/images/describe" => json!({"model": "tiny", "image": PNG}),
        "/v1/audio/speech" => json!({"model": "tiny", "input": "hi"}),
        _ => json!({"model": "tiny", "prompt": "hi"}),
    }
}

/// A value of a wrong type is refused with the field's name, which proves that the field is read. Fields declared as
/// refused are refused with any value.
#[tokio::test]
async fn no_field_is_ignored() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    tokio::select! {
        silent = silent_fields(&app) => {
            assert!(silent.is_empty(), "not refused:\n{}", silent.join("\n"));
        }
        // A value that fits is served: this worker ends its job at once.
        () = refuse_jobs(&rig) => unreachable!("it serves without end"),
    }
}

async fn refuse_jobs(rig: &Puppet) {
    loop {
        let offer = rig.offer().await;
        let end = failed(FailureKind::InvalidRequest, "served");
        rig.say(&offer, [end]).await;
    }
}

/// The fields that take any value.
async fn silent_fields(app: &App) -> Vec<String> {
    let mut silent = Vec::new();
    for (route, rows) in conformance::routes() {
        for row in rows {
            if !is_read(app, route, row).await {
                silent.push(format!("{route} {} ({})", row.name, row.support.word()));
            }
        }
        let name = "n0_such_field";
        if route.starts_with("/api/") {
            // As Ollama does, but for the header.
            let answer = answer_to(app, route, name, json!(1)).await;
            assert_eq!(answer.header("x-ignored-fields"), Some(name), "{route}");
            continue;
        }
        let unknown = refused_field(app, route, name, json!(1)).await;
        assert_eq!(unknown.as_deref(), Some(name), "{route}");
    }
    silent
}

/// Whether wrong values are refused by the field's name: all of them, where the field is declared as refused.
async fn is_read(app: &App, route: &str, row: FieldRow) -> bool {
    let wrong = [
        json!(-7.5),
        json!({"\u{1}": 1}),
        json!([{}]),
        json!("\u{1}"),
        json!(true),
    ];
    let needs_all = row.support == Support::Refused;
    for value in wrong {
        let refused = refused_field(app, route, row.name, value).await;
        let is_refused = refused.is_some_and(|param| param.starts_with(row.name));
        if is_refused != needs_all {
            return is_refused;
        }
    }
    needs_all
}

/// The field that an answer of status 400 is about.
async fn refused_field(app: &App, route: &str, name: &str, value: Value) -> Option<String> {
    let answer = answer_to(app, route, name, value).await;
    if answer.status != StatusCode::BAD_REQUEST {
        return None;
    }
    let error = answer.json().await;
    let param = error["error"]["param"].as_str();
    // Ollama's errors are texts.
    param.or(error["param"].as_str()).map(str::to_owned)
}

async fn answer_to(app: &App, route: &str, name: &str, value: Value) -> Answer {
    let mut body = least_body(route);
    match name.split_once('.') {
        Some((outer, name)) => body[outer][name] = value,
        None => body[name] = value,
    }
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(body.to_string());
    app.send(request(Method::POST, route, &headers, body)).await
}
