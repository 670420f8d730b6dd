use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use muster_testing::eventually;
use tempfile::TempDir;
use uuid::Uuid;

use super::{Area, BadLink, Interrupted, Key, Links, Media, MediaSettings, MediaType, Unaccepted};
use muster_process::tasks::Tasks;

const HOUR: Duration = Duration::from_secs(3600);
const NOW: Duration = Duration::ZERO;
const WEBP: &[u8] = b"RIFF\x10\0\0\0WEBPVP8 and so on";

struct Place {
    media: Media,
    folder: TempDir,
    _tasks: Tasks,
}

async fn place() -> Place {
    place_keeping(HOUR * 24, 0).await
}

/// With this retention and reserved free space.
async fn place_keeping(keep: Duration, spare: u64) -> Place {
    let folder = tempfile::tempdir().unwrap();
    let tasks = Tasks::default();
    let settings = MediaSettings {
        keep,
        largest: 1000,
        spare,
        ..MediaSettings::in_folder(folder.path().join("media"))
    };
    let links = Links {
        secret: [1; 32],
        base: "http://muster.test".to_owned(),
    };
    Place {
        media: Media::open(&settings, &links, &tasks).await.unwrap(),
        folder,
        _tasks: tasks,
    }
}

impl Place {
    async fn upload(&self, link: &str, pieces: &[&[u8]]) -> Result<u64, Unaccepted> {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| Ok(Bytes::copy_from_slice(piece)))
            .collect();
        let (key, query) = parts(link);
        let body = stream::iter(pieces);
        self.media.upload(key, query, None, body).await
    }

    /// All files of the folder.
    fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        for area in ["results", "sources", "parts"] {
            let folder = self.folder.path().join("media").join(area);
            for entry in folder.read_dir().unwrap() {
                files.push(entry.unwrap().file_name().into_string().unwrap());
            }
        }
        files
    }
}

fn parts(link: &str) -> (&str, &str) {
    let path = link.strip_prefix("http://muster.test/media/").unwrap();
    path.split_once('?').unwrap()
}

fn key(number: u32) -> Key {
    Key::new(Area::Results, Uuid::from_u128(1), number, MediaType::Webp)
}

#[tokio::test]
async fn what_is_put_is_there_until_it_is_deleted() {
    let place = place().await;
    assert_eq!(place.media.get(key(1)).await.unwrap(), None);
    let bytes = Bytes::from_static(b"one");
    place.media.put(key(1), bytes.clone()).await.unwrap();
    assert_eq!(place.media.get(key(1)).await.unwrap(), Some(bytes));
    let other = Bytes::from_static(b"other");
    place.media.put(key(1), other.clone()).await.unwrap();
    assert_eq!(place.media.get(key(1)).await.unwrap(), Some(other));
    place.media.delete(key(1)).await.unwrap();
    place.media.delete(key(1)).await.unwrap();
    assert_eq!(place.media.get(key(1)).await.unwrap(), None);
}

#[tokio::test]
async fn what_nobody_holds_any_more_is_deleted_without_a_trace() {
    let place = place().await;
    let source = |number| Key::new(Area::Sources, Uuid::from_u128(1), number, MediaType::Webp);
    for number in 1..=3 {
        let stored = place.media.put(source(number), Bytes::from_static(b"one"));
        stored.await.unwrap();
    }
    place.media.hold(vec![source(1)]).leave();
    let mut held = place.media.hold(vec![source(2)]);
    held.add(source(3));
    drop(held);
    let left = [format!("{}-1.webp", Uuid::from_u128(1))];
    eventually("one file to be left", async || match place.files() {
        files if files == left => Ok(()),
        files => Err(files),
    })
    .await;
}

#[tokio::test]
async fn a_disk_that_is_to_stay_free_takes_nothing() {
    let place = place_keeping(HOUR, u64::MAX).await;
    let refused = place.media.put(key(1), Bytes::from_static(b"one")).await;
    let refused = refused.unwrap_err().to_string();
    let wanted = format!("bytes free, {} are required", u64::MAX);
    assert!(refused.ends_with(&wanted), "{refused}");
    let link = place.media.upload_link(key(1), HOUR).await;
    assert!(link.is_err(), "nobody draws what is not taken: {link:?}");
    // A link from before the disk was full.
    let roomy = self::place().await;
    let link = roomy.media.upload_link(key(1), HOUR).await.unwrap();
    let refused = place.upload(&link, &[WEBP]).await;
    assert!(matches!(refused, Err(Unaccepted::Store(_))), "{refused:?}");
    assert_eq!(place.files(), [""; 0]);
}

#[tokio::test]
async fn files_are_nobody_elses() {
    let place = place().await;
    place.media.put(key(1), Bytes::new()).await.unwrap();
    let folder = place.folder.path().join("media/results");
    let file = folder.join(format!("{}-1.webp", Uuid::from_u128(1)));
    for (path, mode) in [(folder, 0o700), (file, 0o600)] {
        let found = path.metadata().unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{}", path.display());
    }
}

#[tokio::test]
async fn a_link_takes_one_object() {
    let place = place().await;
    let link = place.media.upload_link(key(1), HOUR).await.unwrap();
    assert_eq!(place.media.take_in(key(1)).await.unwrap(), None);
    let length = u64::try_from(WEBP.len()).unwrap();
    let sent = place.upload(&link, &[&WEBP[..5], &WEBP[5..]]).await;
    assert_eq!(sent.unwrap(), length);
    assert_eq!(place.media.take_in(key(1)).await.unwrap(), Some(length));
    let stored = place.media.get(key(1)).await.unwrap().unwrap();
    assert_eq!(&*stored, WEBP);
    let again = place.upload(&link, &[&WEBP[..3], &WEBP[3..]]).await;
    assert_eq!(again.unwrap(), length, "whoever lost the answer gets it");
    let longer = place.upload(&link, &[WEBP, b"."]).await;
    assert!(matches!(longer, Err(Unaccepted::Used)), "{longer:?}");
    let shorter = place.upload(&link, &[&WEBP[..WEBP.len() - 1]]).await;
    assert!(matches!(shorter, Err(Unaccepted::Used)), "{shorter:?}");
    place.media.delete(key(1)).await.unwrap();
    let again = place.upload(&link, &[WEBP]).await;
    assert!(matches!(again, Err(Unaccepted::Used)), "{again:?}");
    assert_eq!(place.media.get(key(1)).await.unwrap(), None);
}

#[tokio::test]
async fn of_many_who_use_a_link_at_once_one_is_taken() {
    let place = place().await;
    let link = place.media.upload_link(key(1), HOUR).await.unwrap();
    let objects: Vec<[&[u8]; 2]> = (0..20)
        .map(|number| [WEBP, &b"01234567890123456789"[number..]])
        .collect();
    let tries = objects.iter().map(|object| place.upload(&link, object));
    let outcomes = futures_util::future::join_all(tries).await;
    let taken = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(taken, 1);
    assert_eq!(place.files().len(), 1);
}

#[tokio::test]
async fn what_does_not_fit_leaves_nothing_behind_and_the_link_good() {
    let place = place().await;
    let link = place.media.upload_link(key(1), HOUR).await.unwrap();
    let large = place.upload(&link, &[WEBP, &[0; 990]]).await;
    assert!(matches!(large, Err(Unaccepted::TooLarge { most: 1000 })));
    let svg: &[u8] = b"<svg xmlns='http://www.w3.org/2000/svg'/>";
    let wav: &[u8] = b"RIFF\x24\0\0\0WAVEfmt ";
    for other in [svg, wav, b"RIFF", b"", b"GIF89a000000"] {
        let refused = place.upload(&link, &[other]).await;
        assert!(matches!(refused, Err(Unaccepted::OtherType { .. })));
    }
    let (name, query) = parts(&link);
    let broken = [Ok(Bytes::from_static(WEBP)), Err(Interrupted::BrokeOff)];
    let broken = place.media.upload(name, query, None, stream::iter(broken));
    assert!(matches!(broken.await, Err(Unaccepted::Interrupted(_))));
    let named = place.media.upload(
        name,
        query,
        Some("text/html"),
        stream::iter([Ok(Bytes::from_static(WEBP))]),
    );
    let refused = named.await;
    assert!(matches!(refused, Err(Unaccepted::OtherType { .. })));
    assert_eq!(place.files(), [""; 0]);
    place.upload(&link, &[WEBP]).await.unwrap();
}

#[tokio::test]
async fn links_end() {
    let place = place().await;
    let link = place.media.upload_link(key(1), NOW).await.unwrap();
    let late = place.upload(&link, &[WEBP]).await;
    assert!(matches!(late, Err(Unaccepted::Link(BadLink::Expired))));
    place.media.put(key(1), Bytes::new()).await.unwrap();
    let link = place.media.download_link(key(1), NOW).await.unwrap();
    let (name, query) = parts(&link);
    let late = place.media.download(name, query).await;
    assert!(matches!(late, Err(Unaccepted::Link(BadLink::Expired))));
}

#[tokio::test]
async fn what_is_old_goes_and_what_is_young_stays() {
    let place = place_keeping(HOUR, 0).await;
    place.media.put(key(1), Bytes::new()).await.unwrap();
    place.media.put(key(2), Bytes::new()).await.unwrap();
    assert_eq!(place.media.sweep().await.unwrap(), 0);
    let old = place.folder.path().join(format!("media/{}", key(1)));
    let file = std::fs::File::options().write(true).open(old).unwrap();
    let then = std::time::SystemTime::now() - HOUR * 2;
    file.set_modified(then).unwrap();
    assert_eq!(place.media.sweep().await.unwrap(), 1);
    assert_eq!(place.media.get(key(1)).await.unwrap(), None);
    assert!(place.media.get(key(2)).await.unwrap().is_some());
}
