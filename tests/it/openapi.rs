//! The OpenAPI document as a whole. `support::documented` checks every reply of the other tests against it.

use std::collections::BTreeSet;

use muster::coordinator::http::{Answers, DEVELOPMENT, ROUTES, Route};
use serde_json::Value;

use super::support::app::App;

async fn document() -> Value {
    let app = App::with_development().await;
    app.get("/openapi.json").await.json().await
}

fn operation<'a>(document: &'a Value, route: &Route) -> &'a Value {
    let path = route.path.replace("{*", "{");
    &document["paths"][path][route.method.to_lowercase()]
}

fn operations(document: &Value) -> impl Iterator<Item = (&String, &String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap();
        methods.iter().map(move |(method, it)| (path, method, it))
    })
}

fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Object(entries) => {
            let own = entries.get("$ref").and_then(Value::as_str);
            own.into_iter()
                .chain(entries.values().flat_map(references))
                .collect()
        }
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn every_reference_resolves() {
    let document = document().await;
    let references = references(&document);
    assert!(references.len() > 300, "{}", references.len());
    for pointer in references {
        let found = document.pointer(pointer.strip_prefix('#').unwrap());
        assert!(found.is_some_and(Value::is_object), "{pointer}");
    }
}

/// Client generators refuse arrays without the schema of their items.
#[tokio::test]
async fn every_array_has_items() {
    fn without_items<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
        if value["type"] == "array" && value["items"].is_null() {
            found.push(value);
        }
        match value {
            Value::Array(items) => items.iter().for_each(|item| without_items(item, found)),
            Value::Object(entries) => entries.values().for_each(|item| without_items(item, found)),
            _ => {}
        }
    }
    let document = document().await;
    let mut found = Vec::new();
    without_items(&document, &mut found);
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn every_route_is_described_and_nothing_else() {
    let document = document().await;
    let routes = || ROUTES.iter().chain(DEVELOPMENT);
    for route in routes() {
        assert_eq!(operation(&document, route)["summary"], route.about);
    }
    assert_eq!(operations(&document).count(), routes().count());
    let outside = App::start().await.get("/openapi.json").await.json().await;
    assert_eq!(operations(&outside).count(), ROUTES.len());
}

#[tokio::test]
async fn operation_ids_are_unique_and_tags_are_declared() {
    let document = document().await;
    let tags = document["tags"].as_array().unwrap();
    let tags: BTreeSet<_> = tags.iter().map(|tag| tag["name"].as_str()).collect();
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap();
        assert!(ids.insert(id), "{method} {path}: {id}");
        assert!(tags.contains(&operation["tags"][0].as_str()), "{path}");
    }
}

#[tokio::test]
async fn path_parameters_are_declared_once() {
    let document = document().await;
    for (path, method, operation) in operations(&document) {
        let declared = operation["parameters"].as_array().into_iter().flatten();
        let declared = declared.filter(|it| it["in"] == "path");
        let declared: Vec<_> = declared.filter_map(|it| it["name"].as_str()).collect();
        let parts = path.split('/');
        let in_path = parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(declared, in_path.collect::<Vec<_>>(), "{method} {path}");
    }
}

#[tokio::test]
async fn working_routes_have_schemas_and_others_answer_501_only() {
    let document = document().await;
    for route in ROUTES.iter().chain(DEVELOPMENT) {
        let operation = operation(&document, route);
        let place = format!("{} {}", route.method, route.path);
        let responses = operation["responses"].as_object().unwrap();
        let is_built = route.answers != Answers::Unbuilt;
        let statuses: Vec<&str> = responses.keys().map(String::as_str).collect();
        match is_built {
            true => assert!(statuses.iter().any(|status| *status < "400"), "{place}"),
            false => assert_eq!(statuses, ["501"], "{place}"),
        }
        assert_eq!(operation["x-not-implemented"] == true, !is_built, "{place}");
        let contents = responses
            .values()
            .filter_map(|it| it["content"].as_object());
        for (kind, media) in contents.flatten() {
            let schema = media["schema"].as_object();
            assert!(schema.is_some_and(|it| !it.is_empty()), "{place} {kind}");
        }
    }
}

#[tokio::test]
async fn the_page_loads_nothing_from_elsewhere() {
    let page = App::start().await.get("/docs").await;
    let policy = page.header("content-security-policy").unwrap().to_owned();
    assert!(policy.contains("default-src 'none'") && policy.contains("connect-src 'self'"));
    let html = page.text().await;
    for foreign in ["://", " style=", " onclick=", "<img", "<link", "src="] {
        assert!(!html.contains(foreign), "{foreign}");
    }
}
