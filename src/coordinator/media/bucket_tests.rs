//! The bucket, tested against an S3 server.

use std::time::{Duration, Instant};

use bytes::Bytes;
use muster_testing::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use url::{Position, Url};
use uuid::Uuid;

use super::{
    Area, BucketSettings, Key, Links, Media, MediaError, MediaSettings, MediaType, Owners,
    PlaceSettings, Unaccepted,
};
use crate::egress::{Egress, Limits, Schemes};
use muster_process::tasks::Tasks;

pub const HOUR: Duration = Duration::from_secs(3600);
pub const WEBP: &[u8] = b"RIFF\x10\0\0\0WEBPVP8 and so on";

fn server() -> String {
    std::env::var("MUSTER_TEST_S3").expect(
        "MUSTER_TEST_S3 is not set: `./test tests` starts a server that speaks S3 and sets it, \
         and `tests/bucket start FOLDER` prints what to set by hand",
    )
}

pub async fn bucket(keep: Duration, tasks: &Tasks) -> Media {
    bucket_with("secret", keep, tasks).await.unwrap()
}

async fn bucket_with(secret: &str, keep: Duration, tasks: &Tasks) -> Result<Media, MediaError> {
    bucket_at(server(), secret, keep, tasks).await
}

async fn bucket_at(
    endpoint: String,
    secret: &str,
    keep: Duration,
    tasks: &Tasks,
) -> Result<Media, MediaError> {
    let place = BucketSettings {
        name: "muster".to_owned(),
        region: "us-east-1".to_owned(),
        endpoint: Some(endpoint),
        key: Some(("test".to_owned(), secret.to_owned())),
    };
    let settings = MediaSettings {
        place: PlaceSettings::Bucket(place),
        keep,
        largest: 1000,
        spare: 0,
    };
    let links = Links {
        secret: [1; 32],
        base: String::new(),
    };
    Media::open(&settings, &links, tasks).await
}

/// A key unique to this test.
pub fn key() -> Key {
    Key::new(Area::Results, Uuid::new_v4(), 1, MediaType::Webp)
}

/// Uploads an object like public workers: without a content type.
pub async fn put(link: &str, bytes: &[u8]) -> String {
    let url = Url::parse(link).unwrap();
    let (host, port) = (url.host_str().unwrap(), url.port().unwrap());
    let mut socket = TcpStream::connect((host, port)).await.unwrap();
    let (path, length) = (&url[Position::BeforePath..], bytes.len());
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

async fn get(link: &str) -> Option<Bytes> {
    let port = Url::parse(link).unwrap().port().unwrap();
    let limits = Limits {
        schemes: Schemes::HttpToo,
        bytes: 1 << 20,
        time: HOUR,
        redirects: 0,
    };
    let egress = Egress::permitting_own_ports([port]);
    let fetched = egress.fetch(link, limits).await;
    fetched.ok().map(|fetched| fetched.bytes)
}

#[tokio::test]
async fn what_is_put_in_a_bucket_is_there_until_it_is_deleted() {
    let tasks = Tasks::default();
    let (media, key) = (bucket(HOUR, &tasks).await, key());
    assert_eq!(media.get(key).await.unwrap(), None);
    media.put(key, Bytes::from_static(WEBP)).await.unwrap();
    assert_eq!(media.get(key).await.unwrap().as_deref(), Some(WEBP));
    let link = media.download_link(key, HOUR).await.unwrap();
    assert!(link.contains("X-Amz-Expires=3600"), "{link}");
    assert_eq!(get(&link).await.as_deref(), Some(WEBP));
    media.delete(key).await.unwrap();
    media.delete(key).await.unwrap();
    assert_eq!(media.get(key).await.unwrap(), None);
    assert_eq!(get(&link).await, None);
}

#[tokio::test]
async fn a_bucket_lets_nobody_in_whose_signature_is_not_right() {
    let tasks = Tasks::default();
    let refused = bucket_with("another", HOUR, &tasks).await.unwrap_err();
    let told = format!("{refused:?}");
    assert!(told.contains("SignatureDoesNotMatch"), "{told}");
    let (media, key) = (bucket(HOUR, &tasks).await, key());
    let link = media.upload_link(key, HOUR).await.unwrap();
    let longer = link.replace("X-Amz-Expires=3600", "X-Amz-Expires=3601");
    let elsewhere = link.replace("-1.webp", "-2.webp");
    let (unsigned, _) = link.split_once('?').unwrap();
    for forged in [&longer, &elsewhere, unsigned] {
        assert_ne!(forged, link);
        assert!(put(forged, WEBP).await.contains("403"), "{forged}");
    }
    let brief = media.upload_link(key, Duration::from_secs(1)).await;
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert!(put(&brief.unwrap(), WEBP).await.contains("403"));
    assert_eq!(media.take_in(key).await.unwrap(), None);
    assert!(put(&link, WEBP).await.contains("200"));
}

#[tokio::test]
async fn what_comes_by_a_presigned_link_counts_when_it_was_looked_at() {
    let tasks = Tasks::default();
    let (media, key) = (bucket(HOUR, &tasks).await, key());
    let link = media.upload_link(key, HOUR).await.unwrap();
    assert_eq!(media.take_in(key).await.unwrap(), None);
    assert!(put(&link, WEBP).await.contains("200"));
    assert_eq!(media.get(key).await.unwrap(), None);
    let length = u64::try_from(WEBP.len()).unwrap();
    assert_eq!(media.take_in(key).await.unwrap(), Some(length));
    // The link still accepts an upload, which changes nothing.
    let other = b"RIFF\x10\0\0\0WEBPother";
    assert!(put(&link, other).await.contains("200"));
    assert_eq!(media.take_in(key).await.unwrap(), Some(length));
    assert_eq!(media.get(key).await.unwrap().as_deref(), Some(WEBP));
    media.delete(key).await.unwrap();
    assert_eq!(media.take_in(key).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_of_another_kind_or_too_large_is_taken_away_again() {
    let tasks = Tasks::default();
    let (media, key) = (bucket(HOUR, &tasks).await, key());
    let link = media.upload_link(key, HOUR).await.unwrap();
    let mut large = vec![0; 1001];
    large[..WEBP.len()].copy_from_slice(WEBP);
    let svg = b"<svg xmlns='http://www.w3.org/2000/svg'/>";
    for sent in [&svg[..], b"", &large] {
        assert!(put(&link, sent).await.contains("200"));
        let refused = media.take_in(key).await.unwrap_err();
        let is_for_that = matches!(
            refused,
            Unaccepted::OtherType { .. } | Unaccepted::TooLarge { .. }
        );
        assert!(is_for_that, "{refused}");
        assert_eq!(media.take_in(key).await.unwrap(), None);
    }
}

#[tokio::test]
async fn what_is_larger_than_its_link_was_for_is_taken_away_again() {
    let tasks = Tasks::default();
    let (media, key) = (bucket(HOUR, &tasks).await, key());
    let most = u64::try_from(WEBP.len()).unwrap();
    let link = media.upload_link_up_to(most, key, HOUR).await.unwrap();
    let larger = [WEBP, b"."].concat();
    assert!(put(&link, &larger).await.contains("200"));
    let refused = media.take_in_up_to(most, key).await.unwrap_err();
    assert!(matches!(refused, Unaccepted::TooLarge { most: told } if told == most));
    assert_eq!(media.take_in(key).await.unwrap(), None);
    assert!(put(&link, WEBP).await.contains("200"));
    assert_eq!(media.take_in_up_to(most, key).await.unwrap(), Some(most));
}

#[tokio::test]
async fn links_to_a_bucket_are_not_served_here_and_end_with_what_they_lead_to() {
    let tasks = Tasks::default();
    let (media, key) = (bucket(HOUR, &tasks).await, key());
    let link = media.upload_link(key, HOUR * 100).await.unwrap();
    assert!(link.contains("X-Amz-Expires=3600"), "{link}");
    let query = format!("until=99999999999&signature={}", "0".repeat(64));
    let own = media.download(&key.to_string(), &query).await;
    assert!(matches!(own, Err(Unaccepted::Link(_))));
}

#[tokio::test]
async fn the_objects_of_a_job_are_deleted_also_before_they_were_taken_in() {
    let tasks = Tasks::default();
    let media = bucket(HOUR, &tasks).await;
    let (first, other) = (key(), key());
    let second = Key::new(Area::Results, first.id(), 2, MediaType::Webp);
    for key in [first, other] {
        media.put(key, Bytes::from_static(WEBP)).await.unwrap();
    }
    let link = media.upload_link(second, HOUR).await.unwrap();
    assert!(put(&link, WEBP).await.contains("200"));
    let owners: Owners = [first.id()].into_iter().collect();
    assert_eq!(media.delete_all_of(&owners).await.unwrap(), 2);
    assert_eq!(media.take_in(second).await.unwrap(), None);
    assert!(media.get(first).await.unwrap().is_none());
    assert!(media.get(other).await.unwrap().is_some());
}

/// A proxy before the bucket, which can be closed together with its connections.
struct Way {
    port: u16,
    running: Option<JoinHandle<()>>,
}

impl Way {
    async fn open() -> Self {
        let mut way = Self {
            port: 0,
            running: None,
        };
        way.reopen().await;
        way
    }

    async fn reopen(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        self.port = listener.local_addr().unwrap().port();
        let url = Url::parse(&server()).unwrap();
        let there = (url.host_str().unwrap().to_owned(), url.port().unwrap());
        self.running = Some(Tasks::default().start(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut here, _) = listener.accept().await.unwrap();
                let there = there.clone();
                connections.spawn(async move {
                    let mut there = TcpStream::connect(there).await.unwrap();
                    copy_bidirectional(&mut here, &mut there).await
                });
            }
        }));
    }

    async fn close(&mut self) {
        let running = self.running.take().unwrap();
        running.abort();
        let _ = running.await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_gone_is_a_problem_within_seconds_until_it_is_back() {
    let tasks = Tasks::default();
    let mut way = Way::open().await;
    let endpoint = format!("http://127.0.0.1:{}", way.port);
    let media = bucket_at(endpoint, "secret", HOUR, &tasks).await.unwrap();
    assert_eq!(media.problem(), None);
    assert!(media.has_room());
    way.close().await;
    let until = async |is_so: fn(Option<&str>) -> bool| {
        let seen = async || match media.problem() {
            problem if is_so(problem) => Ok(()),
            problem => Err(problem),
        };
        eventually("the look at the bucket", seen).await;
    };
    let gone = Instant::now();
    until(|problem| problem.is_some_and(|it| it.contains("does not answer"))).await;
    assert!(gone.elapsed() < Duration::from_secs(5));
    assert!(!media.has_room());
    way.reopen().await;
    until(|problem| problem.is_none()).await;
    let key = key();
    media.put(key, Bytes::from_static(WEBP)).await.unwrap();
    assert_eq!(media.get(key).await.unwrap().as_deref(), Some(WEBP));
}
