//! A job of one kind is not known where those of another are brought.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{forms, images, post};
use crate::support::app::App;

const KINDS: [Kind; 3] = [Kind::Image, Kind::Text, Kind::Form];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Image,
    Text,
    Form,
}

impl Kind {
    /// Submits a request, and lets a worker pop it.
    async fn hand_out(self, app: &App) -> Value {
        match self {
            Self::Image => {
                images::ask(app, json!({"r2": false})).await;
                images::pop(app, json!({})).await["id"].clone()
            }
            Self::Text => {
                super::ask(app, json!({})).await;
                super::pop(app, "writer").await["id"].clone()
            }
            Self::Form => {
                let forms = json!([{"name": "caption"}]);
                let asked = json!({"source_image": forms::PNG, "forms": forms});
                post(app, forms::ASYNC, asked).await;
                let worker =
                    json!({"name": "looker", "forms": ["caption"], "bridge_agent": "test:1:x"});
                let (_, popped) = post(app, "/api/v2/interrogate/pop", worker).await;
                popped["forms"][0]["id"].clone()
            }
        }
    }

    /// As a worker of this kind would.
    async fn bring(self, app: &App, id: &Value, state: &str) -> (StatusCode, Value) {
        let (path, made) = match self {
            Self::Image => (
                "generate",
                json!({"generation": images::drawn(), "seed": 1}),
            ),
            Self::Text => ("generate/text", json!({"generation": "a text", "seed": 1})),
            Self::Form => ("interrogate", json!({"result": {"caption": "a cat"}})),
        };
        let brought = images::with(made, json!({"id": id, "state": state}));
        post(app, &format!("/api/v2/{path}/submit"), brought).await
    }
}

async fn check(app: &App, kind: Kind, id: &Value) {
    assert!(id.is_string(), "{kind:?} is out: {id}");
    let elsewhere = async || {
        for other in KINDS.into_iter().filter(|other| *other != kind) {
            for state in ["faulted", "ok"] {
                let (status, answer) = other.bring(app, id, state).await;
                let found = (status.as_u16(), &answer["rc"]);
                let unknown = (404, &json!("InvalidJobID"));
                assert_eq!(found, unknown, "{kind:?} as {other:?}: {answer}");
            }
        }
    };
    elsewhere().await;
    let (status, answer) = kind.bring(app, id, "ok").await;
    assert_eq!(status, StatusCode::OK, "{kind:?}: {answer}");
    elsewhere().await;
    let (_, again) = kind.bring(app, id, "ok").await;
    assert_eq!(again["rc"], "DuplicateGen", "{kind:?}: {again}");
}

#[tokio::test]
async fn what_is_brought_as_another_kind_is_unknown_and_can_still_be_brought_as_its_own() {
    let app = App::start().await;
    for kind in KINDS {
        let id = kind.hand_out(&app).await;
        check(&app, kind, &id).await;
    }
}

#[tokio::test]
async fn nor_is_it_known_to_a_coordinator_that_began_anew() {
    let app = App::start().await;
    let mut jobs = Vec::new();
    for kind in KINDS {
        jobs.push((kind, kind.hand_out(&app).await));
    }
    let app = app.anew().await;
    for (kind, id) in &jobs {
        check(&app, *kind, id).await;
    }
    // After the restart only the store distinguishes submitted jobs from unknown ones.
    let app = app.anew().await;
    for (kind, id) in jobs {
        for other in KINDS {
            let (_, answer) = other.bring(&app, &id, "ok").await;
            let expected = match other == kind {
                true => "DuplicateGen",
                false => "InvalidJobID",
            };
            assert_eq!(answer["rc"], expected, "{kind:?} as {other:?}: {answer}");
        }
    }
}
