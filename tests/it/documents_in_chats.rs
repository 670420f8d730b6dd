//! Files in chats of every dialect: pages of PDF files as images for models that read images, as text for others.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::GenericImageView;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{self, Capabilities, TextInput};
use muster::reader::{PageForm, PdfLimits, ReadError, Reader};
use muster_testing::pdf::{PageContent, PdfObjects, line, pdf};
use serde_json::{Value, json};

use crate::encode::service_with_images;
use crate::support::app::{App, request};
use crate::support::puppet::{Puppet, done, started, text as said};

const QUESTION: &str = "What is here?";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const FILTERS: &str = "/api/v2/filters";

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/");
    std::fs::read(format!("{folder}{name}")).unwrap()
}

fn data_url(kind: &str, bytes: &[u8]) -> String {
    format!("data:{kind};base64,{}", STANDARD.encode(bytes))
}

fn pdf_url(bytes: &[u8]) -> String {
    data_url("application/pdf", bytes)
}

/// A file of so many pages, each with its number.
fn numbered(pages: usize) -> Vec<u8> {
    let contents: Vec<String> = (1..=pages)
        .map(|page| line(20, 50, &format!("leaf {page}")))
        .collect();
    let pages: Vec<PageContent<'_>> = contents
        .iter()
        .map(|content| PageContent::of(content))
        .collect();
    pdf(&pages)
}

async fn post_as(app: &App, key: &str, path: &str, body: &Value) -> (StatusCode, Value) {
    let bearer = format!("Bearer {key}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let asked = request(Method::POST, path, &headers, Body::from(body.to_string()));
    let answer = app.send(asked).await;
    (answer.status, answer.json().await)
}

async fn post(app: &App, path: &str, body: &Value) -> (StatusCode, Value) {
    post_as(app, &app.key, path, body).await
}

fn file(url: &str) -> Value {
    json!({"type": "file", "file": {"file_data": url}})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn chat(model: &str, parts: Vec<Value>) -> Value {
    let content: Vec<Value> = parts.into_iter().chain([text(QUESTION)]).collect();
    json!({
        "model": model, "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": content}],
    })
}

fn response(model: &str, part: Value) -> Value {
    let content = json!([part, {"type": "input_text", "text": QUESTION}]);
    json!({
        "model": model, "max_output_tokens": 8, "temperature": 0,
        "input": [{"role": "user", "content": content}],
    })
}

fn message(model: &str, block: Value) -> Value {
    let content = json!([block, text(QUESTION)]);
    json!({
        "model": model, "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": content}],
    })
}

fn document(bytes: &[u8]) -> Value {
    let source =
        json!({"type": "base64", "media_type": "application/pdf", "data": STANDARD.encode(bytes)});
    json!({"type": "document", "source": source})
}

/// The content of the message that a worker gets for the request.
async fn content(app: &App, rig: &Puppet, path: &str, body: &Value) -> Value {
    let told = async {
        let offer = rig.offer().await;
        let job::Body::Text(asked) = &offer.job.body else {
            unreachable!("no text");
        };
        let TextInput::Chat(chat) = &asked.input else {
            unreachable!("no chat");
        };
        let content = chat.messages[0]["content"].clone();
        let finish = done(job::FinishReason::Stop);
        rig.say(&offer, [started(), said("ok"), finish]).await;
        content
    };
    let ((status, reply), content) = tokio::join!(post(app, path, body), told);
    assert_eq!(status, StatusCode::OK, "{reply}");
    content
}

#[tokio::test]
async fn a_model_of_texts_gets_the_text_of_the_pages_in_every_dialect() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let bytes = fixture("report.pdf");
    let url = pdf_url(&bytes);
    let in_chat = content(&app, &rig, CHAT, &chat("tiny", vec![file(&url)])).await;
    let told = in_chat.as_str().unwrap();
    let (first, second) = told.split_once("Page 2\n").unwrap();
    assert!(first.starts_with("Page 1\nHarbour report 2026"), "{first}");
    assert!(
        second.contains("The West leads with twenty-two."),
        "{second}"
    );
    assert!(second.ends_with(QUESTION), "{second}");

    let part =
        json!({"type": "input_file", "filename": "report.pdf", "file_data": url, "detail": "low"});
    let in_response = content(&app, &rig, RESPONSES, &response("tiny", part)).await;
    assert_eq!(in_response, format!("File report.pdf\n{told}"));

    let mut block = document(&bytes);
    block["title"] = "Report".into();
    let in_message = content(&app, &rig, MESSAGES, &message("tiny", block)).await;
    assert_eq!(in_message, format!("Report\n{told}"));

    // Text files are passed on unchanged.
    let notes = data_url("text/markdown", "# Zürich\n".as_bytes());
    let body = chat("tiny", vec![file(&notes)]);
    let told = content(&app, &rig, CHAT, &body).await;
    assert_eq!(told, format!("# Zürich\n\n{QUESTION}"));
}

#[tokio::test]
async fn a_model_that_reads_images_gets_the_pages_as_images() {
    let app = App::start().await;
    let rig = Puppet::serving(&app.board, "seeing", Capabilities::IMAGE_INPUT).await;
    let red = PageContent::of("1 0 0 rg 0 0 200 100 re f");
    let blue = PageContent {
        size: (100.0, 3000.0),
        content: "0 0 1 rg 0 0 100 3000 re f",
    };
    let url = pdf_url(&pdf(&[red, blue]));
    let part = json!({"type": "input_file", "file_data": url, "detail": "low"});
    let told = content(&app, &rig, RESPONSES, &response("seeing", part)).await;
    let parts = told.as_array().unwrap();
    let kinds: Vec<&str> = parts
        .iter()
        .map(|part| part["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["text", "image_url", "text", "image_url", "text"]);
    assert_eq!(
        (&parts[0]["text"], &parts[2]["text"]),
        (&json!("Page 1"), &json!("Page 2"))
    );
    assert_eq!(parts[1]["image_url"]["detail"], "low");
    for (part, size, pixel) in [
        (&parts[1], (556, 278), [255, 0, 0]),
        (&parts[3], (51, 1536), [0, 0, 255]),
    ] {
        let url = part["image_url"]["url"].as_str().unwrap();
        let data = url.strip_prefix("data:image/png;base64,").unwrap();
        let image = image::load_from_memory(&STANDARD.decode(data).unwrap()).unwrap();
        assert_eq!(image.dimensions(), size);
        assert_eq!(image.get_pixel(20, 100).0[..3], pixel);
    }
}

#[tokio::test]
async fn pages_are_seen_and_counted_as_images_are() {
    let (app, _worker) = service_with_images().await;
    let page = |content: &str| pdf_url(&pdf(&[PageContent::of(content)]));
    let (status, plain) = post(&app, CHAT, &chat("seeing", vec![text("Page 1")])).await;
    assert_eq!(status, StatusCode::OK, "{plain}");
    let ask = async |content: &str| {
        let (status, reply) = post(&app, CHAT, &chat("seeing", vec![file(&page(content))])).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        let text = reply["choices"][0]["message"]["content"].clone();
        (text, reply["usage"]["prompt_tokens"].as_u64().unwrap())
    };
    let (red, tokens) = ask("1 0 0 rg 0 0 200 100 re f").await;
    let (blue, same) = ask("0 0 1 rg 0 0 120 60 re f").await;
    assert_ne!(red, blue);
    assert_eq!(tokens, same);
    let before = plain["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(tokens > before + 2, "{tokens} and {before}");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_refused_by_its_place() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let _seeing = Puppet::serving(&app.board, "seeing", Capabilities::IMAGE_INPUT).await;
    let refuse = async |path: &str, body: Value, param: &str, words: &str| {
        let (status, reply) = post(&app, path, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
        let error = &reply["error"];
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
        match path {
            MESSAGES => assert!(message.contains(param), "{message}"),
            _ => assert_eq!(error["param"], param, "{reply}"),
        }
    };
    let place = "messages[0].content[0].file";
    let in_chat = |bytes: &[u8]| chat("tiny", vec![file(&pdf_url(bytes))]);
    refuse(CHAT, in_chat(&fixture("encrypted.pdf")), place, "encrypted").await;
    refuse(CHAT, in_chat(b"%PDF-1.7 and no more"), place, "damaged").await;
    refuse(
        CHAT,
        in_chat(b"\x89PNG\r\n\x1a\n\0\0"),
        place,
        "neither a PDF nor text",
    )
    .await;
    refuse(
        CHAT,
        chat("tiny", vec![file("data:application/pdf;base64,!!")]),
        place,
        "base64",
    )
    .await;
    refuse(
        CHAT,
        chat("tiny", vec![file("http://127.0.0.1:1/a.pdf")]),
        place,
        "URL",
    )
    .await;
    refuse(
        CHAT,
        in_chat(&numbered(101)),
        place,
        "101 pages, where at most 100 are read",
    )
    .await;
    let drawn = pdf(&[PageContent::of("0 0 9 9 re f")]);
    refuse(CHAT, in_chat(&drawn), place, "has no text").await;
    let many = vec![file(&pdf_url(&numbered(1))); 21];
    refuse(
        CHAT,
        chat("tiny", many),
        "messages[0].content[20].file",
        "at most 20 files",
    )
    .await;

    // Pages of all files count together.
    let two = vec![
        file(&pdf_url(&numbered(15))),
        text("and"),
        file(&pdf_url(&numbered(6))),
    ];
    let second = "messages[0].content[2].file";
    refuse(
        CHAT,
        chat("seeing", two),
        second,
        "6 pages, where at most 5 are read",
    )
    .await;
    // Later parts keep their places.
    let image = json!({"type": "image_url", "image_url": {"url": "ftp://x"}});
    let parts = vec![file(&pdf_url(&numbered(2))), json!({"type": "drum"})];
    refuse(
        CHAT,
        chat("tiny", parts),
        "messages[0].content[1].type",
        "drum",
    )
    .await;
    let parts = vec![file(&pdf_url(&numbered(2))), image];
    refuse(
        CHAT,
        chat("tiny", parts),
        "messages[0].content[1].image_url.url",
        "https://",
    )
    .await;

    let part = |part: Value| response("tiny", part);
    let stored = json!({"type": "input_file", "file_id": "file-1"});
    refuse(
        RESPONSES,
        part(stored),
        "input[0].content[0].file_id",
        "not supported",
    )
    .await;
    refuse(
        RESPONSES,
        part(json!({"type": "input_file"})),
        "input[0].content[0]",
        "neither",
    )
    .await;
    let url = "http://10.0.0.1/a.pdf";
    refuse(
        RESPONSES,
        part(json!({"type": "input_file", "file_url": url})),
        "input[0]",
        "URL",
    )
    .await;
    let url = json!({"type": "document", "source": {"type": "url", "url": url}});
    refuse(MESSAGES, message("tiny", url), "messages.0", "URL").await;
    refuse(
        MESSAGES,
        message("tiny", document(b"%PDF-")),
        "messages.0",
        "damaged",
    )
    .await;
}

/// Files that make a reader allocate, recurse or compute without end cost their request alone.
#[tokio::test]
async fn a_hostile_file_is_refused_within_its_limits() {
    let app = App::start().await;
    let _seeing = Puppet::serving(&app.board, "seeing", Capabilities::IMAGE_INPUT).await;
    for (name, bytes) in hostile() {
        let body = chat("seeing", vec![file(&pdf_url(&bytes))]);
        let (status, reply) = post(&app, CHAT, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{name}: {reply}");
        let param = &reply["error"]["param"];
        assert_eq!(param, "messages[0].content[0].file", "{name}");
    }
}

/// A page that is drawn for ever ends with the time of its reader.
#[tokio::test]
async fn a_page_of_patterns_of_patterns_ends_its_reader() {
    let reader = Reader::of(env!("CARGO_BIN_EXE_worker").into());
    let limits = PdfLimits {
        pages: 1,
        side: 1536,
        text_bytes: 1000,
    };
    let read = reader.pages(patterns().into(), PageForm::Image, limits);
    let refused = read.await.unwrap_err();
    assert!(matches!(refused, ReadError::Ended(_)), "{refused:?}");
}

const CATALOG: &str = "<< /Type /Catalog /Pages 2 0 R >>";

/// A file of one page with these entries, whose content is the next object.
fn one_page(more: &str) -> PdfObjects {
    let mut objects = PdfObjects::default();
    objects.add(CATALOG);
    objects.add("<< /Type /Pages /Count 1 /Kids [3 0 R] >>");
    objects.add(format!(
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R {more} >>"
    ));
    objects
}

/// Every pattern is painted by many of the next one.
fn patterns() -> Vec<u8> {
    let mut patterns = one_page("/Resources << /Pattern << /P 5 0 R >> >>");
    let paint = "/Pattern cs /P scn 0 0 200 200 re f\n".repeat(20);
    patterns.add_stream("", paint.as_bytes());
    for next in 6..46 {
        let entries = format!(
            "/PatternType 1 /PaintType 1 /TilingType 1 /BBox [0 0 9 9] /XStep 9 /YStep 9 /Resources << /Pattern << /P {next} 0 R >> >>"
        );
        patterns.add_stream(&entries, paint.as_bytes());
    }
    patterns.file()
}

fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let mut tree = PdfObjects::default();
    tree.add(CATALOG);
    tree.add("<< /Type /Pages /Count 1 /Kids [3 0 R] >>");
    tree.add("<< /Type /Pages /Count 1 /Kids [2 0 R 3 0 R] >>");
    vec![
        ("ten thousand pages", numbered(10_000)),
        ("a stream of gigabytes", fixture("bomb.pdf")),
        ("pages that hold themselves", tree.file()),
    ]
}

#[tokio::test]
async fn a_page_of_any_size_is_an_image_of_the_usual_size() {
    let app = App::start().await;
    let rig = Puppet::serving(&app.board, "seeing", Capabilities::IMAGE_INPUT).await;
    let huge = PageContent {
        size: (1e9, 5e8),
        content: "",
    };
    let url = pdf_url(&pdf(&[huge]));
    let told = content(&app, &rig, CHAT, &chat("seeing", vec![file(&url)])).await;
    let url = told[1]["image_url"]["url"].as_str().unwrap();
    let data = url.strip_prefix("data:image/png;base64,").unwrap();
    let image = image::load_from_memory(&STANDARD.decode(data).unwrap()).unwrap();
    assert_eq!(image.dimensions(), (1536, 768));
}

#[tokio::test]
async fn content_filters_read_the_text_of_files() {
    let app = App::start().await;
    let stranger = app.account_with(Roles::USER, Scopes::ALL).await;
    let bytes = pdf(&[PageContent::of(&line(20, 50, "the dark side"))]);
    let body = chat("tiny", vec![file(&pdf_url(&bytes))]);
    for (regex, kind) in [("dark", 10), ("side", 20)] {
        let filter = json!({"regex": regex, "filter_type": kind});
        let headers = [
            ("apikey", app.key.as_str()),
            ("content-type", "application/json"),
        ];
        let asked = request(
            Method::PUT,
            FILTERS,
            &headers,
            Body::from(filter.to_string()),
        );
        assert_eq!(app.send(asked).await.status, StatusCode::CREATED);
    }
    let (status, reply) = post_as(&app, &stranger, CHAT, &body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
    assert_eq!(
        reply["error"]["param"], "messages[0].content[0].file",
        "{reply}"
    );
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.contains("content filters"), "{message}");
}

#[tokio::test]
async fn models_are_listed_with_pdf_input() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let headers = [("anthropic-version", "2023-06-01")];
    let asked = request(Method::GET, "/v1/models/tiny", &headers, Body::empty());
    let model = app.send(asked).await.json().await;
    assert_eq!(
        model["capabilities"]["pdf_input"],
        json!({"supported": true})
    );
}
