//! `/api/swagger.json` and `/api/`: the AI Horde API's Swagger document and page, in the form that its clients know.
//! Paths and methods come from [`ROUTES`], bodies and replies from the contract's schemas, against which readers and
//! replies are tested; [`OPERATIONS`] lists the bodies and replies of each route.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::http::pages::Page;
use crate::http::reply::Reply;
use crate::http::{ROUTES, Route};
use crate::state::DoorSettings;
use muster_protocol::legacy::contract;

/// The bodies and replies of a route.
pub struct Operation {
    method: &'static str,
    /// As in `ROUTES`, without `/api`.
    path: &'static str,
    /// Public name of the path parameter.
    pub id: &'static str,
    pub takes: &'static str,
    pub answers: &'static [Answer],
    pub query: &'static [(&'static str, &'static str, &'static str)],
}

/// A status with the schema of its body, or of each of them in a list.
pub type Answer = (u16, Shape);

#[derive(Clone, Copy)]
pub enum Shape {
    One(&'static str),
    Many(&'static str),
}

use Shape::{Many, One};

pub const NOTHING: &str = "";
const PAGE: (&str, &str, &str) = ("page", "integer", "Page number, from 1.");
const SORT: (&str, &str, &str) = ("sort", "string", "Order: popular or age.");
const LISTED_STYLES: &[(&str, &str, &str)] = &[
    SORT,
    PAGE,
    ("tag", "string", "Only styles with this tag."),
    ("model", "string", "Only styles with this model."),
];
const FORMAT: &[(&str, &str, &str)] = &[("format", "string", "Format: html or markdown.")];
const MODEL_STATE: (&str, &str, &str) = (
    "model_state",
    "string",
    "Models to list: known, custom or all.",
);
const OK: &[Answer] = &[(200, One("SimpleResponse"))];

macro_rules! operations {
    ($($method:ident $path:literal $id:literal $takes:expr, $answers:expr, $query:expr;)*) => {
        &[$(Operation {
            method: stringify!($method),
            path: $path,
            id: $id,
            takes: $takes,
            answers: $answers,
            query: $query,
        },)*]
    };
}

#[rustfmt::skip]
const OPERATIONS: &[Operation] = operations! {
    POST   "/v2/generate/async"             "" "GenerationInputImage", &[(200, One("RequestAsync")), (202, One("RequestAsync"))], &[];
    GET    "/v2/generate/check/{id}"        "id" NOTHING, &[(200, One("RequestStatusCheck"))], &[];
    GET    "/v2/generate/status/{id}"       "id" NOTHING, &[(200, One("RequestStatusImage"))], &[];
    DELETE "/v2/generate/status/{id}"       "id" NOTHING, &[(200, One("RequestStatusImage"))], &[];
    GET    "/v2/generate/request/{id}"      "id" NOTHING, &[(200, One("GenerationInputImage"))], &[];
    POST   "/v2/generate/rate/{id}"         "id" "AestheticsPayload", &[(200, One("GenerationSubmitted"))], &[];
    POST   "/v2/generate/pop"               "" "PopInputImage", &[(200, One("GenerationPayloadImage"))], &[];
    POST   "/v2/generate/submit"            "" "SubmitInputImage", &[(200, One("GenerationSubmitted"))], &[];
    POST   "/v2/generate/progress"          "" "ProgressInput", &[(200, One(NOTHING))], &[];
    POST   "/v2/generate/text/async"        "" "GenerationInputText", &[(200, One("RequestAsync")), (202, One("RequestAsync"))], &[];
    GET    "/v2/generate/text/status/{id}"  "id" NOTHING, &[(200, One("RequestStatusText"))], &[];
    DELETE "/v2/generate/text/status/{id}"  "id" NOTHING, &[(200, One("RequestStatusText"))], &[];
    GET    "/v2/generate/text/request/{id}" "id" NOTHING, &[(200, One("GenerationInputText"))], &[];
    POST   "/v2/generate/text/pop"          "" "PopInputText", &[(200, One("GenerationPayloadText"))], &[];
    POST   "/v2/generate/text/submit"       "" "SubmitInputText", &[(200, One("GenerationSubmitted"))], &[];
    POST   "/v2/interrogate/async"          "" "ModelInterrogationInputImage", &[(202, One("RequestInterrogationResponse"))], &[];
    GET    "/v2/interrogate/status/{id}"    "id" NOTHING, &[(200, One("InterrogationStatus"))], &[];
    DELETE "/v2/interrogate/status/{id}"    "id" NOTHING, &[(200, One("InterrogationStatus"))], &[];
    POST   "/v2/interrogate/pop"            "" "InterrogationPopInput", &[(200, One("InterrogationPopPayload"))], &[];
    POST   "/v2/interrogate/submit"         "" "InterrogationSubmitInput", &[(200, One("GenerationSubmitted"))], &[];
    GET    "/v2/find_user"                  "" NOTHING, &[(200, One("UserDetails"))], &[];
    GET    "/v2/users"                      "" NOTHING, &[(200, Many("UserDetails"))], &[PAGE, ("sort", "string", "Order: kudos or age.")];
    GET    "/v2/users/{id}"                 "user_id" NOTHING, &[(200, One("UserDetails"))], &[];
    PUT    "/v2/users/{id}"                 "user_id" "ModifyUserInput", &[(200, One("ModifyUser"))], &[];
    DELETE "/v2/users/{id}"                 "user_id" NOTHING, OK, &[];
    GET    "/v2/auto_worker_type"           "" NOTHING, &[(200, One("AutoWorkerTypeResponse"))], &[];
    POST   "/v2/kudos/transfer"             "" "KudosTransferInput", &[(200, One("KudosTransferred"))], &[];
    POST   "/v2/kudos/award"                "" "KudosAwardInput", &[(200, One("KudosAwarded"))], &[];
    PUT    "/v2/sharedkeys"                 "" "SharedKeyInput", &[(200, One("SharedKeyDetails"))], &[];
    GET    "/v2/sharedkeys/{id}"            "sharedkey_id" NOTHING, &[(200, One("SharedKeyDetails"))], &[];
    PATCH  "/v2/sharedkeys/{id}"            "sharedkey_id" "SharedKeyInput", &[(200, One("SharedKeyDetails"))], &[];
    DELETE "/v2/sharedkeys/{id}"            "sharedkey_id" NOTHING, OK, &[];
    GET    "/v2/workers"                    "" NOTHING, &[(200, Many("WorkerDetails"))], &[("type", "string", "Worker type: image, text or interrogation."), ("name", "string", "Only the worker with this name.")];
    GET    "/v2/workers/{id}"               "worker_id" NOTHING, &[(200, One("WorkerDetails"))], &[];
    GET    "/v2/workers/name/{name}"        "worker_name" NOTHING, &[(200, One("WorkerDetails"))], &[];
    PUT    "/v2/workers/{id}"               "worker_id" "ModifyWorkerInput", &[(200, One("ModifyWorker"))], &[];
    DELETE "/v2/workers/{id}"               "worker_id" NOTHING, &[(200, One("DeletedWorker"))], &[];
    GET    "/v2/workers/messages"           "" NOTHING, &[(200, Many("WorkerMessage"))], &[("user_id", "string", "Only messages to this user's workers."), ("worker_id", "string", "Only messages to this worker."), ("validity", "string", "Messages to list: active, expired or all."), PAGE];
    POST   "/v2/workers/messages"           "" "WorkerMessageInput", &[(200, One("WorkerMessage"))], &[];
    GET    "/v2/workers/messages/{id}"      "message_id" NOTHING, &[(200, One("WorkerMessage"))], &[];
    DELETE "/v2/workers/messages/{id}"      "message_id" NOTHING, OK, &[];
    GET    "/v2/teams"                      "" NOTHING, &[(200, Many("TeamDetails"))], &[];
    POST   "/v2/teams"                      "" "CreateTeamInput", &[(200, One("ModifyTeam"))], &[];
    GET    "/v2/teams/{id}"                 "team_id" NOTHING, &[(200, One("TeamDetails"))], &[];
    PATCH  "/v2/teams/{id}"                 "team_id" "ModifyTeamInput", &[(200, One("ModifyTeam"))], &[];
    DELETE "/v2/teams/{id}"                 "team_id" NOTHING, &[(200, One("DeletedTeam"))], &[];
    GET    "/v2/status/heartbeat"           "" NOTHING, &[(200, One("HeartbeatResponse"))], &[];
    GET    "/v2/status/modes"               "" NOTHING, &[(200, One("ModeStatus"))], &[];
    PUT    "/v2/status/modes"               "" "ModesInput", &[(200, One("ModeStatus"))], &[];
    GET    "/v2/status/performance"         "" NOTHING, &[(200, One("ServicePerformance"))], &[];
    GET    "/v2/status/models"              "" NOTHING, &[(200, Many("ActiveModel"))], &[("type", "string", "Model type: image or text."), ("min_count", "integer", "Minimum number of workers."), ("max_count", "integer", "Maximum number of workers."), MODEL_STATE];
    GET    "/v2/status/models/{name}"       "model_name" NOTHING, &[(200, Many("ActiveModel"))], &[];
    GET    "/v2/status/news"                "" NOTHING, &[(200, Many("Newspiece"))], &[];
    GET    "/v2/stats/img/totals"           "" NOTHING, &[(200, One("StatsImgTotals"))], &[];
    GET    "/v2/stats/img/models"           "" NOTHING, &[(200, One("ImgModelStats"))], &[MODEL_STATE];
    GET    "/v2/stats/text/totals"          "" NOTHING, &[(200, One("StatsTxtTotals"))], &[];
    GET    "/v2/stats/text/models"          "" NOTHING, &[(200, One("TxtModelStats"))], &[];
    GET    "/v2/documents/terms"            "" NOTHING, &[(200, One("DocumentResponse"))], FORMAT;
    GET    "/v2/documents/privacy"          "" NOTHING, &[(200, One("DocumentResponse"))], FORMAT;
    GET    "/v2/documents/sponsors"         "" NOTHING, &[(200, One("DocumentResponse"))], FORMAT;
    POST   "/v2/filters"                    "" "PromptCheckInput", &[(200, One("FilterPromptSuspicion"))], &[];
    PUT    "/v2/filters"                    "" "PutNewFilter", &[(201, One("FilterDetails"))], &[];
    GET    "/v2/filters"                    "" NOTHING, &[(200, Many("FilterDetails"))], &[("filter_type", "integer", "Only filters of this type."), ("contains", "string", "Only filters with this text in their regex or description.")];
    GET    "/v2/filters/regex"              "" NOTHING, &[(200, Many("FilterRegex"))], &[("filter_type", "integer", "Only filters of this type.")];
    GET    "/v2/filters/{id}"               "filter_id" NOTHING, &[(200, Many("FilterDetails"))], &[];
    PATCH  "/v2/filters/{id}"               "filter_id" "PatchExistingFilter", &[(200, One("FilterDetails"))], &[];
    DELETE "/v2/filters/{id}"               "filter_id" NOTHING, OK, &[];
    PUT    "/v2/operations/block_worker_ipaddr/{id}"    "worker_id" "AddWorkerTimeout", OK, &[];
    DELETE "/v2/operations/block_worker_ipaddr/{id}"    "worker_id" NOTHING, OK, &[];
    GET    "/v2/operations/ipaddr"          "" NOTHING, &[(200, Many("IPTimeout"))], &[];
    POST   "/v2/operations/ipaddr"          "" "AddTimeoutIPInput", OK, &[];
    DELETE "/v2/operations/ipaddr"          "" "DeleteTimeoutIPInput", OK, &[];
    GET    "/v2/operations/ipaddr/{address}" "ipaddr" NOTHING, &[(200, Many("IPTimeout"))], &[];
    GET    "/v2/collections"                "" NOTHING, &[(200, Many("ResponseModelCollection"))], &[SORT, PAGE, ("type", "string", "Style type: image, text or all.")];
    POST   "/v2/collections"                "" "InputModelCollection", &[(200, One("StyleModify"))], &[];
    GET    "/v2/collections/{id}"           "collection_id" NOTHING, &[(200, One("ResponseModelCollection"))], &[];
    PATCH  "/v2/collections/{id}"           "collection_id" "InputModelCollection", &[(200, One("StyleModify"))], &[];
    DELETE "/v2/collections/{id}"           "collection_id" NOTHING, OK, &[];
    GET    "/v2/collection_by_name/{name}"  "collection_name" NOTHING, &[(200, One("ResponseModelCollection"))], &[];
    GET    "/v2/styles/image"               "" NOTHING, &[(200, Many("StyleImage"))], LISTED_STYLES;
    POST   "/v2/styles/image"               "" "ModelStyleInputImage", &[(200, One("StyleModify"))], &[];
    GET    "/v2/styles/image/{id}"          "style_id" NOTHING, &[(200, One("StyleImage"))], &[];
    PATCH  "/v2/styles/image/{id}"          "style_id" "ModelStylePatchImage", &[(200, One("StyleModify"))], &[];
    DELETE "/v2/styles/image/{id}"          "style_id" NOTHING, OK, &[];
    GET    "/v2/styles/image_by_name/{name}" "style_name" NOTHING, &[(200, One("StyleImage"))], &[];
    POST   "/v2/styles/image/{id}/example"  "style_id" "InputStyleExamplePost", &[(200, One("StyleModify"))], &[];
    PATCH  "/v2/styles/image/{id}/example/{example}"  "style_id" "InputStyleExamplePost", &[(200, One("StyleModify"))], &[];
    DELETE "/v2/styles/image/{id}/example/{example}"  "style_id" NOTHING, OK, &[];
    GET    "/v2/styles/text"                "" NOTHING, &[(200, Many("StyleText"))], LISTED_STYLES;
    POST   "/v2/styles/text"                "" "ModelStyleInputText", &[(200, One("StyleModify"))], &[];
    GET    "/v2/styles/text/{id}"           "style_id" NOTHING, &[(200, One("StyleText"))], &[];
    PATCH  "/v2/styles/text/{id}"           "style_id" "ModelStylePatchText", &[(200, One("StyleModify"))], &[];
    DELETE "/v2/styles/text/{id}"           "style_id" NOTHING, OK, &[];
    GET    "/v2/styles/text_by_name/{name}" "style_name" NOTHING, &[(200, One("StyleText"))], &[];
};

/// Public names of definitions other than [`suffixed`] ones.
const PUBLIC_NAMES: &[(&str, &str)] = &[
    ("DocumentResponse", "HordeDocument"),
    ("ModeStatus", "HordeModes"),
    ("ServicePerformance", "HordePerformance"),
    ("WorkerMessage", "ResponseModelMessage"),
    ("UserActiveGenerations", "ActiveGenerations"),
    (
        "NoValidInterrogationsFound",
        "NoValidInterrogationsFoundStable",
    ),
    ("ExtraSourceImage", "ExtraSourceImage"),
    ("ExtraText", "ExtraText"),
];

static DOCUMENT: LazyLock<Value> = LazyLock::new(document);
static PAGE_OF_ROUTES: LazyLock<Page> = LazyLock::new(|| Page::new(page(&DOCUMENT)));

/// `GET /api/swagger.json`
pub async fn show(State(settings): State<Arc<DoorSettings>>) -> Reply {
    let mut document = DOCUMENT.clone();
    let name = &settings.name;
    document["info"]["description"] = format!("AI Horde API of {name}.").into();
    Reply(document)
}

/// `GET /api/`: a page without scripts, and with nothing from elsewhere.
pub async fn browse() -> &'static Page {
    &PAGE_OF_ROUTES
}

fn document() -> Value {
    let (mut paths, mut used) = (Map::new(), BTreeSet::new());
    for route in ROUTES.iter().filter(|route| route.is_legacy()) {
        let Some(operation) = operation_of(route) else {
            continue;
        };
        let described = describe(route, operation, &mut used);
        let place = paths.entry(operation.public_path());
        let place = place.or_insert_with(|| operation.path_parameters());
        place[route.method.to_lowercase()] = described;
    }
    json!({
        "swagger": "2.0",
        "basePath": "/api",
        "info": {"title": "AI Horde", "version": "2.5", "description": ""},
        "produces": ["application/json"],
        "consumes": ["application/json"],
        "tags": [{"name": "v2", "description": "API Version 2"}],
        "responses": {
            "ParseError": {"description": "When a mask can't be parsed"},
            "MaskError": {"description": "When any error occurs on mask"},
        },
        "paths": paths,
        "definitions": definitions(used),
    })
}

/// Development routes have none.
pub fn operation_of(route: &Route) -> Option<&'static Operation> {
    let path = route.path.strip_prefix("/api")?;
    let mut all = OPERATIONS.iter();
    all.find(|it| it.path == path && it.method == route.method)
}

impl Operation {
    /// The path with public parameter names.
    fn public_path(&self) -> String {
        let path = self.path.replace("{example}", "{example_id}");
        match path.split_once('{') {
            Some((before, after)) => {
                let (_, after) = after.split_once('}').unwrap_or_default();
                format!("{before}{{{}}}{after}", self.id)
            }
            None => path,
        }
    }

    fn path_parameters(&self) -> Value {
        let path = self.public_path();
        let names = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameters = names
            .map(|name| json!({"name": name, "in": "path", "required": true, "type": "string"}));
        let parameters: Vec<Value> = parameters.collect();
        match parameters.is_empty() {
            true => json!({}),
            false => json!({"parameters": parameters}),
        }
    }
}

fn describe(route: &Route, operation: &Operation, used: &mut BTreeSet<&'static str>) -> Value {
    let header = |name: &str, required: bool, about: &str| json!({"name": name, "in": "header", "type": "string", "required": required, "description": about});
    let scopes = route.who.key();
    let mut parameters = vec![
        header(
            "apikey",
            scopes.is_some(),
            "API key; 0000000000 is the anonymous key.",
        ),
        header(
            "Client-Agent",
            false,
            "Client name, version and contact: name:version:contact.",
        ),
        json!({"name": "X-Fields", "in": "header", "type": "string", "format": "mask", "description": "Fields of the reply to return."}),
    ];
    if route.path.ends_with("/kudos/transfer") {
        parameters.push(header(
            "Idempotency-Key",
            false,
            "Transfers with the same key are executed once.",
        ));
    }
    for (name, kind, about) in operation.query {
        parameters.push(json!({"name": name, "in": "query", "type": kind, "required": false, "description": about}));
    }
    if operation.takes != NOTHING {
        used.insert(operation.takes);
        parameters.push(json!({
            "name": "payload", "in": "body", "required": true, "schema": reference(operation.takes),
        }));
    }
    let mut described = json!({
        "summary": route.about,
        "operationId": operation_id(route),
        "parameters": parameters,
        "responses": responses(route, operation, used),
        "tags": ["v2"],
    });
    if let Some(scopes) = scopes {
        let names: Vec<_> = scopes.names().collect();
        described["description"] =
            format!("Requires a key with scope {}.", names.join(", ")).into();
    }
    described
}

fn operation_id(route: &Route) -> String {
    let words = route.path.split(|sign: char| !sign.is_alphanumeric());
    let words: Vec<&str> = words
        .filter(|word| !matches!(*word, "" | "api" | "v2"))
        .collect();
    format!("{}_{}", route.method.to_lowercase(), words.join("_"))
}

fn responses(route: &Route, operation: &Operation, used: &mut BTreeSet<&'static str>) -> Value {
    let mut responses = Map::new();
    for (status, shape) in operation.answers {
        let mut answer = json!({"description": "Success"});
        match *shape {
            One(NOTHING) => {}
            One(name) => {
                used.insert(name);
                answer["schema"] = reference(name);
            }
            Many(name) => {
                used.insert(name);
                answer["schema"] = json!({"type": "array", "items": reference(name)});
            }
        }
        responses.insert(status.to_string(), answer);
    }
    let mut failure = |status: u16, name: &'static str, about: &str| {
        used.insert(name);
        let answer = json!({"description": about, "schema": reference(name)});
        responses.insert(status.to_string(), answer);
    };
    let takes = operation.takes != NOTHING;
    if takes || !operation.query.is_empty() {
        failure(400, "RequestValidationError", "Validation Error");
    }
    if route.who.key().is_some() {
        failure(401, "RequestError", "Invalid API Key");
        failure(403, "RequestError", "Access Denied");
    }
    if operation.path.contains('{') || route.path.ends_with("/submit") {
        failure(404, "RequestError", "Not Found");
    }
    failure(429, "RequestError", "Too Many Requests");
    Value::Object(responses)
}

/// The wanted definitions, and all that they refer to.
fn definitions(mut wanted: BTreeSet<&'static str>) -> Value {
    let contract = contract::schemas();
    let mut defined = Map::new();
    while let Some(name) = wanted.pop_first() {
        let schema = definition(&contract["$defs"][name], &mut wanted);
        defined.insert(public_name(name), schema);
        wanted.retain(|name| !defined.contains_key(&public_name(name)));
    }
    Value::Object(defined)
}

fn definition(schema: &'static Value, wanted: &mut BTreeSet<&'static str>) -> Value {
    let mut properties = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        properties.insert(name.clone(), self::property(property, wanted));
    }
    let mut definition = json!({"type": "object", "properties": properties});
    if let Some(required) = schema["required"].as_array().filter(|it| !it.is_empty()) {
        definition["required"] = required.clone().into();
    }
    definition
}

/// Converts a schema to Swagger 2.0.
fn property(schema: &'static Value, wanted: &mut BTreeSet<&'static str>) -> Value {
    const PLAIN: [&str; 10] = [
        "description",
        "default",
        "enum",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "multipleOf",
        "uniqueItems",
        "additionalProperties",
    ];
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|path| path.strip_prefix("#/$defs/"))
    {
        wanted.insert(name);
        return reference(name);
    }
    let mut property = Map::new();
    // Swagger 2 has no null type, so a list of types is reduced to its first.
    let kind = schema["type"]
        .as_str()
        .or_else(|| schema["type"][0].as_str());
    if let Some(kind) = kind {
        property.insert("type".to_owned(), kind.into());
    }
    for word in PLAIN {
        if let Some(value) = schema.get(word) {
            property.insert(word.to_owned(), value.clone());
        }
    }
    if let Some(items) = schema.get("items") {
        property.insert("items".to_owned(), self::property(items, wanted));
    }
    Value::Object(property)
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/definitions/{}", public_name(name))})
}

fn public_name(name: &str) -> String {
    let known = PUBLIC_NAMES.iter().find(|(ours, _)| *ours == name);
    known.map_or_else(|| suffixed(name), |(_, public)| (*public).to_owned())
}

/// Public names of definitions end in Stable for images, and in Kobold for texts.
fn suffixed(name: &str) -> String {
    for (ours, public) in [("Image", "Stable"), ("Text", "Kobold")] {
        if let Some(start) = name.strip_suffix(ours) {
            return format!("{start}{public}");
        }
    }
    name.to_owned()
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color-scheme:light dark}code{font-family:ui-monospace,monospace;font-size:.9em}summary{cursor:pointer;padding:.3rem 0}\
table{border-collapse:collapse;width:100%}td,th{border-top:1px solid #8884;padding:.2rem .6rem .2rem 0;text-align:left;\
vertical-align:top}.method{display:inline-block;min-width:4.5rem;font-weight:bold}";

fn page(document: &Value) -> String {
    let mut html = format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width,initial-scale=1\"><title>AI Horde API</title>\
         <style>{STYLE}</style><h1>AI Horde API</h1><p>For programs: \
         <a href=\"/api/swagger.json\">/api/swagger.json</a>. Other routes: <a href=\"/docs\">/docs</a>.</p><h2>Routes</h2>"
    );
    let empty = Map::new();
    for (path, methods) in document["paths"].as_object().unwrap_or(&empty) {
        for (method, operation) in methods.as_object().unwrap_or(&empty) {
            if method == "parameters" {
                continue;
            }
            route_into(&mut html, (method, path), (methods, operation));
        }
    }
    html.push_str("<h2>Schemas</h2>");
    for (name, schema) in document["definitions"].as_object().unwrap_or(&empty) {
        let name = escaped(name);
        let _ = write!(
            html,
            "<details id=\"{name}\"><summary><code>{name}</code></summary><table>"
        );
        for (field, property) in schema["properties"].as_object().unwrap_or(&empty) {
            let required = schema["required"].as_array().into_iter().flatten();
            let mark = match required.into_iter().any(|it| it == field) {
                true => " (always)",
                false => "",
            };
            let field = escaped(field);
            let _ = write!(
                html,
                "<tr><td><code>{field}</code>{mark}<td>{}",
                shape(property)
            );
        }
        html.push_str("</table></details>");
    }
    html.push_str("</html>");
    html
}

fn route_into(
    html: &mut String,
    (method, path): (&str, &str),
    (shared, operation): (&Value, &Value),
) {
    let text = |value: &Value| escaped(value.as_str().unwrap_or_default());
    // Writing to a String cannot fail.
    let _ = write!(
        html,
        "<details><summary><code class=method>{}</code> <code>{}</code> {}</summary><p>{}</p><table>",
        method.to_uppercase(),
        escaped(path),
        text(&operation["summary"]),
        text(&operation["description"]),
    );
    let parameters = [shared, operation].into_iter();
    let parameters = parameters.flat_map(|it| it["parameters"].as_array().into_iter().flatten());
    for parameter in parameters {
        let shape = match parameter.get("schema") {
            Some(schema) => shape(schema),
            None => text(&parameter["type"]),
        };
        let _ = write!(
            html,
            "<tr><td><code>{}</code><td>{}<td>{shape}<td>{}",
            text(&parameter["name"]),
            text(&parameter["in"]),
            text(&parameter["description"]),
        );
    }
    html.push_str("</table><table>");
    for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
        let shape = answer.get("schema").map(shape).unwrap_or_default();
        let about = text(&answer["description"]);
        let _ = write!(
            html,
            "<tr><td><code>{}</code><td>{about}<td>{shape}",
            escaped(status)
        );
    }
    html.push_str("</table></details>");
}

/// A link to the schema, or its type and bounds.
fn shape(schema: &Value) -> String {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|path| path.strip_prefix("#/definitions/"))
    {
        let name = escaped(name);
        return format!("<a href=\"#{name}\"><code>{name}</code></a>");
    }
    let mut words = schema.as_object().cloned().unwrap_or_default();
    let about = words.remove("description");
    let items = words.remove("items");
    let mut shape = format!(
        "<code>{}</code>",
        escaped(&Value::Object(words).to_string())
    );
    if let Some(items) = items {
        let _ = write!(shape, " of {}", self::shape(&items));
    }
    if let Some(about) = about.as_ref().and_then(Value::as_str) {
        let _ = write!(shape, "<br>{}", escaped(about));
    }
    shape
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{DOCUMENT, OPERATIONS, ROUTES, operation_of, page};
    use crate::http::DEVELOPMENT;

    #[test]
    fn every_route_of_the_poll_api_is_described_and_nothing_else_is() {
        let routes = || ROUTES.iter().filter(|route| route.is_legacy());
        for route in routes() {
            assert!(
                operation_of(route).is_some(),
                "{} {}",
                route.method,
                route.path
            );
        }
        assert_eq!(routes().count(), OPERATIONS.len());
        assert!(
            DEVELOPMENT
                .iter()
                .all(|route| operation_of(route).is_none())
        );
        let paths = DOCUMENT["paths"].as_object().unwrap();
        assert!(paths.contains_key("/v2/styles/image/{style_id}/example/{example_id}"));
        assert!(paths.contains_key("/v2/operations/ipaddr/{ipaddr}"));
    }

    #[test]
    fn every_reference_leads_to_a_definition_and_only_known_words_are_used() {
        let text = DOCUMENT.to_string();
        let definitions = DOCUMENT["definitions"].as_object().unwrap();
        for name in text.split("#/definitions/").skip(1) {
            let (name, _) = name.split_once('"').unwrap();
            assert!(definitions.contains_key(name), "{name}");
        }
        for name in [
            "ModelGenerationInputStable",
            "GenerationInputKobold",
            "HordeModes",
        ] {
            assert!(definitions.contains_key(name), "{name}");
        }
        for (name, definition) in definitions {
            let properties = definition["properties"].as_object().unwrap();
            assert!(!properties.is_empty(), "{name} has no fields");
            assert!(!definition.to_string().contains("\"x-"), "{name}");
        }
    }

    #[test]
    fn the_page_needs_no_script_and_nothing_from_elsewhere() {
        let html = page(&DOCUMENT);
        assert!(!html.contains("<script") && !html.contains("://") && !html.contains(" style="));
        assert!(html.contains("/v2/generate/async") && html.contains("ModelGenerationInputStable"));
    }
}
