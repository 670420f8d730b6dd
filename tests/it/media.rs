//! The media store's links, as workers and clients use them.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::media::{Area, Key, MediaType};
use uuid::Uuid;

use super::support::app::{Answer, App, BASE, request};

const HALF_AN_HOUR: Duration = Duration::from_secs(1800);
const WEBP: &[u8] = b"RIFF\x10\0\0\0WEBPVP8 and so on";
const KEY: Key = Key::new(Area::Results, Uuid::from_u128(1), 1, MediaType::Webp);

async fn send(app: &App, method: Method, link: &str, kind: &str, body: impl Into<Body>) -> Answer {
    let path = link.strip_prefix(BASE).unwrap();
    let headers = [("content-type", kind)];
    let headers = match kind {
        "" => &headers[..0],
        _ => &headers,
    };
    app.send(request(method, path, headers, body.into())).await
}

async fn put(app: &App, link: &str, kind: &str, body: impl Into<Body>) -> StatusCode {
    send(app, Method::PUT, link, kind, body).await.status
}

#[tokio::test]
async fn upload_links_used_twice_late_with_another_type() {
    let app = App::start().await;
    let link = app.media.upload_link(KEY, HALF_AN_HOUR).await.unwrap();
    let late = app.media.upload_link(KEY, Duration::ZERO).await.unwrap();
    assert_eq!(
        put(&app, &late, "image/webp", WEBP).await,
        StatusCode::FORBIDDEN
    );
    let other = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    assert_eq!(put(&app, &link, "text/html", WEBP).await, other);
    assert_eq!(put(&app, &link, "image/webp", "<svg></svg>.").await, other);
    assert_eq!(put(&app, &link, "", &b"GIF89a......"[..]).await, other);
    assert_eq!(app.media.get(KEY).await.unwrap(), None);
    assert_eq!(
        put(&app, &link, "image/webp; x=y", WEBP).await,
        StatusCode::OK
    );
    let again = put(&app, &link, "image/webp", WEBP).await;
    assert_eq!(
        again,
        StatusCode::OK,
        "the answer was lost, and is given again"
    );
    for other in [[WEBP, b"."].concat(), WEBP[..WEBP.len() - 1].to_vec()] {
        let twice = send(&app, Method::PUT, &link, "image/webp", other).await;
        assert_eq!(twice.status, StatusCode::CONFLICT);
        let said = twice.json().await["error"]["message"].to_string();
        assert!(said.contains("already used"), "{said}");
    }
    assert_eq!(app.media.get(KEY).await.unwrap().as_deref(), Some(WEBP));
    app.media.delete(KEY).await.unwrap();
    let gone = put(&app, &link, "image/webp", WEBP).await;
    assert_eq!(gone, StatusCode::CONFLICT);
}

#[tokio::test]
async fn the_bytes_say_which_kind_of_image_was_uploaded_and_its_label_does_not() {
    let images: [&[u8]; 3] = [WEBP, b"\x89PNG\r\n\x1a\n....", b"\xff\xd8\xff\xe0........"];
    for image in images {
        for label in ["image/webp", "image/png", "image/jpeg"] {
            let app = App::start().await;
            let link = app.media.upload_link(KEY, HALF_AN_HOUR).await.unwrap();
            assert_eq!(put(&app, &link, label, image).await, StatusCode::OK);
        }
    }
}

#[tokio::test]
async fn types_that_http_libraries_name_by_themselves_say_nothing() {
    for untold in [
        "application/octet-stream",
        "application/x-www-form-urlencoded",
    ] {
        let app = App::start().await;
        let link = app.media.upload_link(KEY, HALF_AN_HOUR).await.unwrap();
        let svg = put(&app, &link, untold, "<svg></svg>.").await;
        assert_eq!(svg, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(put(&app, &link, untold, WEBP).await, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_worker_that_names_no_type_is_held_to_it_all_the_same() {
    let app = App::start().await;
    let link = app.media.upload_link(KEY, HALF_AN_HOUR).await.unwrap();
    assert_eq!(put(&app, &link, "", WEBP).await, StatusCode::OK);
    assert_eq!(app.media.get(KEY).await.unwrap().as_deref(), Some(WEBP));
}

#[tokio::test]
async fn what_was_uploaded_can_be_fetched_by_whoever_has_a_link() {
    let app = App::start().await;
    app.media.put(KEY, WEBP.into()).await.unwrap();
    let link = app.media.download_link(KEY, HALF_AN_HOUR).await.unwrap();
    let answer = send(&app, Method::GET, &link, "", "").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), Some("image/webp"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.bytes().await, WEBP);
    let refused = send(&app, Method::PUT, &link, "", WEBP).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    app.media.delete(KEY).await.unwrap();
    let gone = send(&app, Method::GET, &link, "", "").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
}

/// The reply to a range request for 100 bytes numbered from 0: the status, `content-range` and the bytes.
async fn ranged(asked: &[(&str, &str)]) -> (StatusCode, Option<String>, Vec<u8>) {
    let app = App::start().await;
    let numbers: Vec<u8> = WEBP.iter().copied().chain(WEBP.len() as u8..100).collect();
    app.media.put(KEY, numbers.into()).await.unwrap();
    let link = app.media.download_link(KEY, HALF_AN_HOUR).await.unwrap();
    let path = link.strip_prefix(BASE).unwrap();
    let answer = app
        .send(request(Method::GET, path, asked, Body::empty()))
        .await;
    assert_eq!(answer.header("accept-ranges"), Some("bytes"));
    let range = answer.header("content-range").map(str::to_owned);
    let length = answer.header("content-length").map(str::to_owned);
    let (status, bytes) = (answer.status, answer.bytes().await.to_vec());
    assert_eq!(length, Some(bytes.len().to_string()));
    (status, range, bytes)
}

#[tokio::test]
async fn a_player_gets_the_part_that_it_asks_for() {
    for (asked, said, from, to) in [
        ("bytes=90-", "bytes 90-99/100", 90, 100),
        ("bytes=40-49", "bytes 40-49/100", 40, 50),
        ("bytes=40-4000", "bytes 40-99/100", 40, 100),
        ("bytes=-3", "bytes 97-99/100", 97, 100),
        ("bytes=0-0", "bytes 0-0/100", 0, 1),
    ] {
        let (status, range, bytes) = ranged(&[("range", asked)]).await;
        assert_eq!(status, StatusCode::PARTIAL_CONTENT, "{asked}");
        assert_eq!(range.as_deref(), Some(said));
        assert_eq!(bytes.len(), to - from);
        assert!(from < 40 || bytes == (from as u8..to as u8).collect::<Vec<u8>>());
    }
}

#[tokio::test]
async fn what_is_not_one_range_gets_the_whole_object() {
    for asked in [
        &[][..],
        &[("range", "lines=1-2")],
        &[("range", "bytes=a-b")],
        &[("range", "bytes=0-1,50-60")],
        &[("range", "bytes=0-9"), ("if-range", "\"tag\"")],
    ] {
        let (status, range, bytes) = ranged(asked).await;
        let whole = (StatusCode::OK, None, 100);
        assert_eq!((status, range, bytes.len()), whole, "{asked:?}");
    }
}

#[tokio::test]
async fn an_object_that_a_client_has_is_not_sent_again() {
    let app = App::start().await;
    app.media.put(KEY, WEBP.into()).await.unwrap();
    let link = app.media.download_link(KEY, HALF_AN_HOUR).await.unwrap();
    let path = link.strip_prefix(BASE).unwrap();
    let get = async |headers: &[(&str, &str)]| {
        let asked = request(Method::GET, path, headers, Body::empty());
        app.send(asked).await
    };
    let first = get(&[]).await;
    let tag = first.header("etag").unwrap().to_owned();
    assert!(first.header("last-modified").unwrap().ends_with(" GMT"));
    let again = get(&[("if-none-match", &tag)]).await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);
    assert_eq!(again.header("etag"), Some(&*tag));
    assert_eq!(again.bytes().await.len(), 0);
    let other = get(&[("if-none-match", "\"other\"")]).await;
    assert_eq!(other.status, StatusCode::OK);
    let rest = get(&[("range", "bytes=5-"), ("if-range", &tag)]).await;
    assert_eq!(rest.status, StatusCode::PARTIAL_CONTENT);
}

#[tokio::test]
async fn a_range_behind_the_end_is_refused_with_the_length() {
    for asked in ["bytes=100-", "bytes=5000-6000"] {
        let (status, range, _) = ranged(&[("range", asked)]).await;
        assert_eq!(status, StatusCode::RANGE_NOT_SATISFIABLE, "{asked}");
        assert_eq!(range.as_deref(), Some("bytes */100"));
    }
}

#[tokio::test]
async fn the_head_of_an_object_says_its_type_and_length() {
    let app = App::start().await;
    app.media.put(KEY, WEBP.into()).await.unwrap();
    let link = app.media.download_link(KEY, HALF_AN_HOUR).await.unwrap();
    let answer = send(&app, Method::HEAD, &link, "", "").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), Some("image/webp"));
    assert_eq!(answer.header("content-length"), Some("25"));
    assert_eq!(answer.bytes().await.len(), 0);
}

#[tokio::test]
async fn without_a_good_link_there_is_nothing_to_see() {
    let app = App::start().await;
    app.media.put(KEY, WEBP.into()).await.unwrap();
    let link = app.media.download_link(KEY, HALF_AN_HOUR).await.unwrap();
    let (path, query) = link.split_once('?').unwrap();
    let (rest, last) = query.split_at(query.len() - 1);
    let forged = format!("{rest}{}", if last == "0" { "1" } else { "0" });
    let longer = query.replace("until=", "until=1");
    for wrong in [
        path.to_owned(),
        format!("{path}?"),
        format!("{path}?{rest}"),
        format!("{path}?{forged}"),
        format!("{path}?{longer}"),
        format!("{path}?{query}&more=1"),
        format!("{BASE}/media/../store.sqlite?{query}"),
        format!("{BASE}/media/%2e%2e/store.sqlite?{query}"),
        format!("{BASE}/media/results%2f..%2f..%2fstore.sqlite?{query}"),
        format!("{BASE}/media/results/%00?{query}"),
    ] {
        let answer = send(&app, Method::GET, &wrong, "", "").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{wrong}");
    }
}

#[tokio::test]
async fn more_than_a_link_is_for_is_not_taken() {
    let mut large = vec![0; (32 << 20) + 1];
    large[..WEBP.len()].copy_from_slice(WEBP);
    let app = App::start().await;
    let link = app.media.upload_link(KEY, HALF_AN_HOUR).await.unwrap();
    let refused = put(&app, &link, "", large).await;
    assert_eq!(refused, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(put(&app, &link, "", WEBP).await, StatusCode::OK);
}
