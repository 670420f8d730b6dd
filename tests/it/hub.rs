//! Bringing files from a server that behaves like the hub, and misbehaves.

use std::{
    fs,
    path::PathBuf,
    sync::Mutex,
    time::{Duration, Instant},
};

use muster::hub::{
    Checked, Event, FilePath, FilesInUse, Hub, HubError, HubSettings, Patience, Progress, Pulled,
    Source, SourceFile,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::hub::{FakeHub, Fault, REPOSITORY, git_sha1, noise, sha256};

const KIB: usize = 1024;

/// A folder with a cache in it, and pulls into that.
struct Place {
    folder: TempDir,
    events: Events,
    stop: CancellationToken,
}

/// Events of a pull, formatted as text.
#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl Progress for Events {
    fn report(&self, event: Event<'_>) {
        self.0.lock().unwrap().push(format!("{event:?}"));
    }
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            events: Events::default(),
            stop: CancellationToken::new(),
        }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn settings(&self, hub: &FakeHub) -> HubSettings {
        HubSettings {
            endpoint: hub.endpoint.parse().unwrap(),
            token: None,
            cache_dir: self.cache(),
            records_dir: self.folder.path().join("records"),
            offline: false,
            connections: 4,
            bandwidth: None,
            disk: None,
            in_use: FilesInUse::default(),
            piece_bytes: 64 * KIB as u64,
            patience: Patience {
                first_wait: Duration::from_millis(1),
                ..Patience::default()
            },
        }
    }

    async fn pull(&self, hub: &FakeHub, files: &[&str]) -> Result<Pulled, HubError> {
        self.pull_with(self.settings(hub), &source(files)).await
    }

    async fn pull_with(&self, settings: HubSettings, source: &Source) -> Result<Pulled, HubError> {
        Hub::new(settings)
            .pull(source, &self.events, &self.stop)
            .await
    }

    /// The words of the first report that has this in it.
    #[track_caller]
    fn event(&self, part: &str) -> String {
        let events = self.events.0.lock().unwrap();
        let found = events.iter().find(|event| event.contains(part));
        found
            .unwrap_or_else(|| panic!("{part:?} is not in {events:#?}"))
            .clone()
    }

    /// Names in the folder of blobs, without locks.
    fn blobs(&self) -> Vec<String> {
        let folder = self.cache().join("models--org--model/blobs");
        let names = fs::read_dir(folder).into_iter().flatten();
        let names = names.map(|item| item.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
        names.sort();
        names
    }
}

fn source(files: &[&str]) -> Source {
    Source {
        repository: REPOSITORY.parse().unwrap(),
        revision: None,
        files: files
            .iter()
            .map(|file| SourceFile::from(file.parse::<FilePath>().unwrap()))
            .collect(),
    }
}

/// One file, with its hash as a catalog states it.
fn stating(file: &str, sha256: &str) -> Source {
    let mut source = source(&[file]);
    source.files[0].sha256 = Some(sha256.parse().unwrap());
    source
}

#[tokio::test]
async fn files_come_in_ranges_and_are_found_afterwards() {
    let hub = FakeHub::start();
    let weights = noise(1000 * KIB + 7, 1);
    hub.large_file("model.safetensors", weights.clone())
        .small_file("config.json", "{}");
    let place = Place::new();

    let pulled = place
        .pull(&hub, &["model.safetensors", "config.json"])
        .await
        .unwrap();

    assert_eq!(fs::read(&pulled.files[0]).unwrap(), weights);
    assert_eq!(fs::read(&pulled.files[1]).unwrap(), b"{}");
    assert_eq!(pulled.revision.as_str(), hub.commit());
    assert_eq!(
        hub.served_bytes(),
        weights.len() as u64 + 2,
        "no byte came twice"
    );
    assert!(
        hub.seen()
            .iter()
            .filter(|seen| seen.range.is_some())
            .count()
            > 10
    );
    let mut blobs = vec![sha256(&weights), git_sha1(b"{}")];
    blobs.sort();
    assert_eq!(place.blobs(), blobs);
}

#[tokio::test]
async fn what_we_bring_is_found_by_the_hubs_own_crate() {
    let hub = FakeHub::start();
    hub.small_file("deep/config.json", "{}");
    let place = Place::new();
    place.pull(&hub, &["deep/config.json"]).await.unwrap();
    let theirs = hf_hub::Cache::new(place.cache()).model(REPOSITORY.to_owned());
    assert_eq!(
        fs::read(theirs.get("deep/config.json").unwrap()).unwrap(),
        b"{}"
    );
}

#[tokio::test]
async fn a_repository_in_the_cache_is_found_without_network() {
    let hub = FakeHub::start();
    let place = Place::new();
    // As the hub's own tools leave it.
    let root = place.cache().join("models--org--model");
    let commit = "d".repeat(40);
    for folder in ["blobs", "refs", &format!("snapshots/{commit}")] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("blobs/abc"), "{}").unwrap();
    fs::write(root.join("refs/main"), &commit).unwrap();
    let link = root.join(format!("snapshots/{commit}/config.json"));
    std::os::unix::fs::symlink("../../blobs/abc", &link).unwrap();

    let pulled = place.pull(&hub, &["config.json"]).await.unwrap();

    assert_eq!(pulled.files, [link]);
    assert_eq!(hub.seen(), []);
}

#[tokio::test]
async fn what_another_program_brought_at_another_commit_will_do_where_the_hash_is_known() {
    let hub = FakeHub::start();
    let weights = noise(100, 1);
    hub.large_file("model.gguf", weights.clone());
    let place = Place::new();
    let brought = place.pull(&hub, &["model.gguf"]).await.unwrap();
    let before = hub.seen().len();

    let mut pinned = source(&["model.gguf"]);
    pinned.revision = Some("e".repeat(40).parse().unwrap());
    pinned.files[0].sha256 = Some(sha256(&weights).parse().unwrap());
    let found = place.pull_with(place.settings(&hub), &pinned).await;
    assert_eq!(found.unwrap(), brought);
    assert_eq!(hub.seen().len(), before);

    pinned.files[0].sha256 = Some("0".repeat(64).parse().unwrap());
    assert_eq!(Hub::new(place.settings(&hub)).locate(&pinned), None);
}

#[tokio::test]
async fn the_token_is_sent_to_the_hub_and_not_to_the_second_host() {
    let hub = FakeHub::start();
    hub.large_file("model.gguf", noise(100, 1))
        .wants_token("secret");
    let place = Place::new();
    let settings = HubSettings {
        token: Some("secret".to_owned()),
        ..place.settings(&hub)
    };
    place
        .pull_with(settings, &source(&["model.gguf"]))
        .await
        .unwrap();
    let seen = hub.seen();
    assert!(seen.iter().any(|seen| seen.second_host), "{seen:?}");
    for request in seen {
        assert_eq!(request.token.is_some(), !request.second_host, "{request:?}");
    }
}

#[tokio::test]
async fn a_gated_model_says_how_to_get_in() {
    let hub = FakeHub::start();
    hub.small_file("config.json", "{}").wants_token("secret");
    let place = Place::new();
    let error = place.pull(&hub, &["config.json"]).await.unwrap_err();
    let HubError::Denied { had_token, .. } = &error else {
        panic!("{error}")
    };
    assert!(!had_token);
    let message = error.to_string();
    assert!(message.contains("set HF_TOKEN"), "{message}");
    assert!(
        message.contains("Access to this model is restricted."),
        "{message}"
    );
}

#[tokio::test]
async fn a_file_that_is_not_there_is_named() {
    let hub = FakeHub::start();
    let place = Place::new();
    let error = place.pull(&hub, &["config.json"]).await.unwrap_err();
    assert!(matches!(error, HubError::NotFound { .. }), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("config.json of org/model at main was not found")
    );
}

#[tokio::test]
async fn too_many_requests_are_answered_with_patience() {
    let hub = FakeHub::start();
    hub.large_file("model.gguf", noise(100, 1))
        .on_questions([Fault::TooMany(1)]);
    let place = Place::new();
    let begun = Instant::now();
    place.pull(&hub, &["model.gguf"]).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert!(place.event("Waiting").contains("wait: 1s"));
}

#[tokio::test]
async fn a_server_that_asks_for_an_hour_is_left_alone() {
    let hub = FakeHub::start();
    hub.large_file("model.gguf", noise(100, 1))
        .on_questions([Fault::TooMany(3600)]);
    let place = Place::new();
    let error = place.pull(&hub, &["model.gguf"]).await.unwrap_err();
    assert!(error.to_string().contains("3600 s"), "{error}");
}

#[tokio::test]
async fn servers_that_fail_for_a_while_are_asked_again() {
    let hub = FakeHub::start();
    let weights = noise(300 * KIB, 1);
    hub.large_file("model.gguf", weights.clone());
    hub.on_questions([Fault::Status(503), Fault::Status(500)]);
    hub.on_redirects([Fault::Status(502)]);
    hub.on_bytes([Fault::Status(500), Fault::Status(403)]);
    let place = Place::new();
    let pulled = place.pull(&hub, &["model.gguf"]).await.unwrap();
    assert_eq!(fs::read(&pulled.files[0]).unwrap(), weights);
}

#[tokio::test]
async fn a_server_that_fails_for_ever_is_given_up() {
    let hub = FakeHub::start();
    hub.small_file("config.json", "{}")
        .on_questions(vec![Fault::Status(500); 4]);
    let place = Place::new();
    let error = place.pull(&hub, &["config.json"]).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("500 Internal Server Error (attempts: 4)"),
        "{error}"
    );
}

#[tokio::test]
async fn truncated_bodies_go_on_where_they_broke() {
    let hub = FakeHub::start();
    let weights = noise(60 * KIB, 1);
    hub.large_file("model.gguf", weights.clone());
    hub.on_bytes([Fault::CutAfter(20 * KIB), Fault::CutAfter(10 * KIB)]);
    let place = Place::new();
    let pulled = place.pull(&hub, &["model.gguf"]).await.unwrap();
    assert_eq!(fs::read(&pulled.files[0]).unwrap(), weights);
    let ranges: Vec<_> = hub
        .seen()
        .into_iter()
        .filter(|seen| seen.second_host)
        .collect();
    assert_eq!(ranges[0].range, None);
    assert_eq!(ranges[1].range.as_deref(), Some("bytes=20480-61439"));
    assert_eq!(ranges[2].range.as_deref(), Some("bytes=30720-61439"));
    assert_eq!(hub.served_bytes(), weights.len() as u64);
}

#[tokio::test]
async fn a_server_without_ranges_sends_whole_files() {
    let hub = FakeHub::start();
    let weights = noise(500 * KIB, 1);
    hub.large_file("model.gguf", weights.clone())
        .ignores_ranges();
    let place = Place::new();
    let pulled = place.pull(&hub, &["model.gguf"]).await.unwrap();
    assert_eq!(fs::read(&pulled.files[0]).unwrap(), weights);
}

#[tokio::test]
async fn a_wrong_hash_deletes_what_came_and_says_found_and_wanted() {
    let hub = FakeHub::start();
    let weights = noise(10 * KIB, 1);
    hub.large_file("model.gguf", weights.clone())
        .on_bytes([Fault::Corrupt]);
    let place = Place::new();
    let error = place.pull(&hub, &["model.gguf"]).await.unwrap_err();
    let flipped: Vec<u8> = weights.iter().map(|byte| byte ^ 1).collect();
    let HubError::WrongHash { found, wanted, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((found, wanted), (sha256(&flipped), sha256(&weights)));
    assert_eq!(place.blobs(), Vec::<String>::new());
    place.pull(&hub, &["model.gguf"]).await.unwrap();
}

#[tokio::test]
async fn a_small_file_is_held_to_the_name_git_gives_it() {
    let hub = FakeHub::start();
    hub.small_file("config.json", "{}");
    let place = Place::new();
    // Another file of the same length while the hub's own name for it stays.
    let root = place.cache().join("models--org--model/blobs");
    fs::create_dir_all(&root).unwrap();
    let blob = root.join(git_sha1(b"{}"));
    fs::write(blob.with_extension("muster.incomplete"), "[]").unwrap();
    fs::write(
        blob.with_extension("muster.journal"),
        "muster part 1 of 2 bytes\n0 2\n",
    )
    .unwrap();
    // Damaged bytes are detected by their hash and downloaded again.
    let pulled = place.pull(&hub, &["config.json"]).await.unwrap();
    assert_eq!(fs::read(&pulled.files[0]).unwrap(), b"{}");
    assert!(place.event("Restarted").contains("damaged"));
}

#[tokio::test]
async fn a_file_that_is_not_the_one_in_the_catalog_is_refused_before_it_comes() {
    let hub = FakeHub::start();
    hub.large_file("model.gguf", noise(100, 1));
    let place = Place::new();
    let mut wanted = source(&["model.gguf"]);
    wanted.files[0].size_bytes = Some(99);
    let error = place
        .pull_with(place.settings(&hub), &wanted)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("100 bytes, expected 99"),
        "{error}"
    );
    wanted.files[0].size_bytes = None;
    wanted.files[0].sha256 = Some("0".repeat(64).parse().unwrap());
    let error = place
        .pull_with(place.settings(&hub), &wanted)
        .await
        .unwrap_err();
    assert!(matches!(error, HubError::OtherHash { .. }), "{error}");
    assert_eq!(hub.served_bytes(), 0);
}

#[tokio::test]
async fn a_file_that_is_here_is_held_to_the_hash_in_the_catalog() {
    let hub = FakeHub::start();
    let weights = noise(100, 1);
    hub.large_file("model.gguf", weights.clone());
    let place = Place::new();
    let pulled = place.pull(&hub, &["model.gguf"]).await.unwrap();
    let here = Hub::new(place.settings(&hub));

    let right = stating("model.gguf", &sha256(&weights));
    assert_eq!(here.locate(&right), Some(pulled));

    let other = stating("model.gguf", &"0".repeat(64));
    assert_eq!(here.locate(&other), None);
    let state = here.state(&other);
    assert_eq!((state.present, state.wrong, state.bytes), (0, 1, 100));
    let checked = here
        .verify(&other, &other.files[0], &mut |_, _| {})
        .unwrap();
    assert!(matches!(checked, Checked::Wrong { .. }), "{checked:?}");
    let error = place
        .pull_with(place.settings(&hub), &other)
        .await
        .unwrap_err();
    assert!(matches!(error, HubError::OtherHash { .. }), "{error}");
    assert_eq!(hub.served_bytes(), 100);
    assert_eq!(here.remove(&other, &[], false).unwrap().bytes, 100);
}

#[tokio::test]
async fn a_file_named_by_git_is_known_by_the_record_of_its_pull_and_else_by_its_bytes() {
    let hub = FakeHub::start();
    hub.small_file("config.json", "{}");
    let place = Place::new();
    place.pull(&hub, &["config.json"]).await.unwrap();
    let right = stating("config.json", &sha256(b"{}"));
    let other = stating("config.json", &"0".repeat(64));
    for is_recorded in [true, false] {
        if !is_recorded {
            fs::remove_dir_all(place.folder.path().join("records")).unwrap();
        }
        let here = Hub::new(place.settings(&hub));
        assert!(here.locate(&right).is_some(), "recorded: {is_recorded}");
        assert_eq!(here.locate(&other), None, "recorded: {is_recorded}");
        let error = place
            .pull_with(place.settings(&hub), &other)
            .await
            .unwrap_err();
        assert!(matches!(error, HubError::OtherHash { .. }), "{error}");
    }
    assert_eq!(hub.served_bytes(), 2, "it came once");
}

#[tokio::test]
async fn a_file_is_read_for_its_hash_once_until_somebody_writes_it() {
    let hub = FakeHub::start();
    hub.small_file("config.json", "{}");
    let place = Place::new();
    place.pull(&hub, &["config.json"]).await.unwrap();
    fs::remove_dir_all(place.folder.path().join("records")).unwrap();
    let wanted = stating("config.json", &sha256(b"{}"));
    let here = Hub::new(place.settings(&hub));
    assert!(here.locate(&wanted).is_some());

    let blobs = place.cache().join("models--org--model/blobs");
    let blob = blobs.join(git_sha1(b"{}"));
    let before = fs::metadata(&blob).unwrap().modified().unwrap();
    fs::write(&blob, "[]").unwrap();
    let modified = |time| {
        let file = fs::File::options().write(true).open(&blob).unwrap();
        file.set_modified(time).unwrap();
    };
    // Restores the old modification time: reading the file again would detect the change.
    modified(before);
    assert!(here.locate(&wanted).is_some());
    modified(before + Duration::from_secs(1));
    assert_eq!(here.locate(&wanted), None);
}

#[tokio::test]
async fn a_spoilt_file_comes_again_where_its_hash_is_stated() {
    let hub = FakeHub::start();
    hub.small_file("config.json", "{}");
    let place = Place::new();
    place.pull(&hub, &["config.json"]).await.unwrap();
    fs::remove_dir_all(place.folder.path().join("records")).unwrap();
    let blobs = place.cache().join("models--org--model/blobs");
    fs::write(blobs.join(git_sha1(b"{}")), "[]").unwrap();

    let wanted = stating("config.json", &sha256(b"{}"));
    let pulled = place.pull_with(place.settings(&hub), &wanted).await;

    assert_eq!(fs::read(&pulled.unwrap().files[0]).unwrap(), b"{}");
    assert!(place.event("Restarted").contains("damaged"));
}

#[tokio::test]
async fn a_file_that_was_cut_is_not_here_and_comes_again() {
    let hub = FakeHub::start();
    let weights = noise(100, 1);
    hub.large_file("model.gguf", weights.clone());
    let place = Place::new();
    let pulled = place.pull(&hub, &["model.gguf"]).await.unwrap();
    fs::write(&pulled.files[0], &weights[..10]).unwrap();

    let (here, wanted) = (Hub::new(place.settings(&hub)), source(&["model.gguf"]));
    assert_eq!(here.locate(&wanted), None);
    let state = here.state(&wanted);
    assert_eq!((state.present, state.wrong, state.bytes), (0, 1, 10));
    let checked = here.verify(&wanted, &wanted.files[0], &mut |_, _| {});
    let short = Checked::WrongSize {
        found: 10,
        wanted: 100,
    };
    assert_eq!(checked.unwrap(), short);
    let again = place.pull(&hub, &["model.gguf"]).await.unwrap();
    assert_eq!(fs::read(&again.files[0]).unwrap(), weights);
    assert_eq!(hub.served_bytes(), 200);
}

#[tokio::test]
async fn a_pull_reads_what_was_written_since_the_last_one() {
    let hub = FakeHub::start();
    let weights = noise(100, 1);
    hub.large_file("model.gguf", weights.clone());
    let place = Place::new();
    let pulled = place.pull(&hub, &["model.gguf"]).await.unwrap();
    let blob = &pulled.files[0];
    let before = fs::metadata(blob).unwrap().modified().unwrap();
    fs::write(blob, noise(100, 2)).unwrap();
    let file = fs::File::options().write(true).open(blob).unwrap();
    file.set_modified(before + Duration::from_secs(1)).unwrap();

    let wanted = source(&["model.gguf"]);
    assert!(
        Hub::new(place.settings(&hub)).locate(&wanted).is_some(),
        "nothing is read where nothing is pulled"
    );
    let offline = HubSettings {
        offline: true,
        ..place.settings(&hub)
    };
    let error = place.pull_with(offline, &wanted).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("offline, but an undamaged model.gguf of org/model is not in"),
        "{error}"
    );
    let again = place.pull(&hub, &["model.gguf"]).await.unwrap();
    assert_eq!(fs::read(&again.files[0]).unwrap(), weights);
    assert!(place.event("Restarted").contains("damaged"));

    let seen = hub.seen().len();
    place.events.0.lock().unwrap().clear();
    place.pull(&hub, &["model.gguf"]).await.unwrap();
    assert_eq!(hub.seen().len(), seen);
    assert_eq!(*place.events.0.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn what_another_program_brought_is_recorded_by_a_pull_and_stays_its_own() {
    let hub = FakeHub::start();
    hub.large_file("model.gguf", noise(100, 1));
    let place = Place::new();
    let pulled = place.pull(&hub, &["model.gguf"]).await.unwrap();
    fs::remove_dir_all(place.folder.path().join("records")).unwrap();
    let (here, wanted) = (Hub::new(place.settings(&hub)), source(&["model.gguf"]));
    assert_eq!(here.pulled_weights(), []);

    assert_eq!(place.pull(&hub, &["model.gguf"]).await.unwrap(), pulled);
    let file = wanted.files[0].path.clone();
    let recorded = [(wanted.repository.clone(), file.clone())];
    assert_eq!(here.pulled_weights(), recorded);
    assert_eq!(hub.served_bytes(), 100, "it came once");

    assert_eq!(here.remove(&wanted, &[], false).unwrap().kept, [file]);
    assert_eq!(here.pulled_weights(), [], "no pull pins it any more");
    assert_eq!(here.remove(&wanted, &[], true).unwrap().bytes, 100);
}

#[tokio::test]
async fn files_of_several_commits_are_found_without_a_record() {
    let hub = FakeHub::start();
    hub.large_file("one.gguf", noise(100, 1))
        .large_file("two.gguf", noise(100, 2));
    let place = Place::new();
    let pull = async |file: &str| {
        let repository = REPOSITORY.parse().unwrap();
        let hub = Hub::new(place.settings(&hub));
        let chosen = hub.choose(&repository, Some(file), &place.events, &place.stop);
        let chosen = chosen.await.unwrap();
        hub.pull(&chosen, &place.events, &place.stop).await.unwrap()
    };
    let one = pull("one.gguf").await;
    hub.on_questions([Fault::Change("two.gguf", noise(100, 3))]);
    let two = pull("two.gguf").await;
    assert_ne!(one.revision, two.revision);

    let here = Hub::new(place.settings(&hub));
    for is_recorded in [true, false] {
        if !is_recorded {
            fs::remove_dir_all(place.folder.path().join("records")).unwrap();
        }
        for (name, pulled) in [("one", &one), ("two", &two)] {
            let found = here.model_on_disk(&REPOSITORY.parse().unwrap(), Some(name));
            let found = found.unwrap().and_then(|source| here.locate(&source));
            assert_eq!(found.as_ref(), Some(pulled), "recorded: {is_recorded}");
        }
    }
}

#[tokio::test]
async fn a_file_that_changes_midway_starts_over() {
    let hub = FakeHub::start();
    let new = noise(400 * KIB, 2);
    hub.large_file("model.gguf", noise(400 * KIB, 1));
    hub.on_redirects([
        Fault::Nothing,
        Fault::Nothing,
        Fault::Change("model.gguf", new.clone()),
    ]);
    let place = Place::new();
    let settings = HubSettings {
        connections: 1,
        ..place.settings(&hub)
    };
    let pulled = place
        .pull_with(settings, &source(&["model.gguf"]))
        .await
        .unwrap();
    assert_eq!(fs::read(&pulled.files[0]).unwrap(), new);
    assert_eq!(
        place.blobs(),
        [sha256(&new)],
        "nothing of the old file is left"
    );
    assert!(
        place
            .event("Restarted")
            .contains("the file changed on the hub")
    );
}

#[tokio::test]
async fn a_file_that_never_stops_changing_is_given_up() {
    let hub = FakeHub::start();
    hub.large_file("model.gguf", noise(KIB, 0));
    hub.on_redirects((1..9).map(|seed| Fault::Change("model.gguf", noise(KIB, seed))));
    let place = Place::new();
    let error = place.pull(&hub, &["model.gguf"]).await.unwrap_err();
    assert!(matches!(error, HubError::KeepsChanging { .. }), "{error}");
}

#[tokio::test]
async fn a_stopped_pull_loses_nothing() {
    let hub = FakeHub::start();
    let weights = noise(4096 * KIB, 1);
    hub.large_file("model.gguf", weights.clone())
        .hold_after(2048 * KIB as u64);
    let place = Place::new();
    let stop = async {
        hub.until_held().await;
        place.stop.cancel();
    };
    let (result, ()) = tokio::join!(place.pull(&hub, &["model.gguf"]), stop);
    assert!(matches!(result, Err(HubError::Stopped)), "{result:?}");

    hub.release();
    let again = Hub::new(place.settings(&hub));
    let go_on = CancellationToken::new();
    let pulled = again
        .pull(&source(&["model.gguf"]), &place.events, &go_on)
        .await
        .unwrap();
    assert_eq!(fs::read(&pulled.files[0]).unwrap(), weights);
    // Only bytes in flight at the stop are downloaded again.
    assert!(
        hub.served_bytes() < (weights.len() + 1024 * KIB) as u64,
        "{}",
        hub.served_bytes()
    );
}

#[tokio::test]
async fn two_pulls_at_once_bring_every_byte_once() {
    let hub = FakeHub::start();
    let weights = noise(1024 * KIB, 1);
    hub.large_file("model.gguf", weights.clone())
        .hold_after(512 * KIB as u64);
    let [one, two] = [Place::new(), Place::new()];
    let mut settings = two.settings(&hub);
    settings.cache_dir = one.cache();
    let release = async {
        hub.until_held().await;
        hub.release();
    };
    let wanted = source(&["model.gguf"]);
    let (first, second, ()) = tokio::join!(
        one.pull(&hub, &["model.gguf"]),
        two.pull_with(settings, &wanted),
        release
    );
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(hub.served_bytes(), weights.len() as u64);
}

#[tokio::test]
async fn offline_says_what_is_missing_and_asks_nobody() {
    let hub = FakeHub::start();
    hub.small_file("config.json", "{}")
        .small_file("tokenizer.json", "{}");
    let place = Place::new();
    place.pull(&hub, &["config.json"]).await.unwrap();
    let before = hub.seen().len();
    let settings = || HubSettings {
        offline: true,
        ..place.settings(&hub)
    };
    place
        .pull_with(settings(), &source(&["config.json"]))
        .await
        .unwrap();
    let both = source(&["config.json", "tokenizer.json"]);
    let error = place.pull_with(settings(), &both).await.unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("offline, but tokenizer.json of org/model is not in"),
        "{message}"
    );
    assert_eq!(hub.seen().len(), before);
}

#[tokio::test]
async fn the_first_pull_pins_the_commit() {
    let hub = FakeHub::start();
    hub.small_file("config.json", "{}")
        .small_file("tokenizer.json", "{}");
    let place = Place::new();
    let first = place.pull(&hub, &["config.json"]).await.unwrap();
    hub.on_questions([Fault::Change("tokenizer.json", b"[]".to_vec())]);
    place
        .pull(&hub, &["config.json", "tokenizer.json"])
        .await
        .unwrap();
    let asked = hub
        .seen()
        .into_iter()
        .rev()
        .find(|seen| seen.method == "HEAD")
        .unwrap();
    assert!(!asked.path.contains("/main/"), "{asked:?}");
    let question = hub
        .seen()
        .into_iter()
        .filter(|seen| seen.method == "HEAD")
        .nth(1)
        .unwrap();
    assert!(
        question.path.contains(first.revision.as_str()),
        "{question:?}"
    );
}

#[tokio::test]
async fn a_repository_is_pulled_without_what_runs_code() {
    let hub = FakeHub::start();
    for file in [
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "model.bin",
        "modeling.py",
    ] {
        hub.small_file(file, "");
    }
    let place = Place::new();
    let repository = REPOSITORY.parse().unwrap();
    let hub = Hub::new(place.settings(&hub));
    let chosen = hub
        .choose(&repository, None, &place.events, &place.stop)
        .await
        .unwrap();
    let names: Vec<&str> = chosen.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(
        names,
        ["config.json", "tokenizer.json", "model.safetensors"]
    );
    hub.pull(&chosen, &place.events, &place.stop).await.unwrap();
    assert_eq!(hub.on_disk(&repository).unwrap().1.len(), 3);
}

#[tokio::test]
async fn an_empty_file_is_a_file() {
    let hub = FakeHub::start();
    hub.small_file("merges.txt", "");
    let place = Place::new();
    let pulled = place.pull(&hub, &["merges.txt"]).await.unwrap();
    assert_eq!(fs::read(&pulled.files[0]).unwrap(), b"");
}

#[tokio::test]
async fn a_pull_beyond_the_disk_budget_removes_what_was_not_used_for_the_longest_time() {
    let hub = FakeHub::start();
    let names = ["own.gguf", "a.gguf", "b.gguf", "c.gguf", "d.gguf"];
    for (seed, name) in names.into_iter().enumerate() {
        hub.large_file(name, noise(300 * KIB, seed as u64));
    }
    let place = Place::new();
    // Without a record, the file counts as another program's.
    place.pull(&hub, &["own.gguf"]).await.unwrap();
    fs::remove_dir_all(place.folder.path().join("records")).unwrap();
    let settings = HubSettings {
        disk: Some(700 * KIB as u64),
        ..place.settings(&hub)
    };
    let here = Hub::new(settings.clone());
    let pull = async |name: &str| place.pull_with(settings.clone(), &source(&[name])).await;
    let is_here = |name: &str| here.locate(&source(&[name])).is_some();

    for name in ["own.gguf", "a.gguf", "b.gguf"] {
        pull(name).await.unwrap();
    }
    here.note_use(&[source(&["a.gguf"])]).unwrap();
    pull("c.gguf").await.unwrap();
    let removed = place.event("Removed");
    assert!(removed.contains("b.gguf"), "{removed}");
    let found = names.map(is_here);
    assert_eq!(found, [true, true, false, true, false], "{names:?}");

    for name in ["a.gguf", "c.gguf"] {
        settings.in_use.insert(name, name, vec![source(&[name])]);
    }
    let error = pull("d.gguf").await.unwrap_err().to_string();
    let wanted = format!(
        "hub.disk allows {} bytes of downloads: {} bytes needed, {} bytes stay on disk (models in use: a.gguf, c.gguf)",
        700 * KIB,
        300 * KIB,
        600 * KIB
    );
    assert!(error.starts_with(&wanted), "{error}");
    assert_eq!(names.map(is_here), found, "nothing leaves in vain");

    settings.in_use.retain(|name| name == "c.gguf");
    pull("d.gguf").await.unwrap();
    assert_eq!(names.map(is_here), [true, false, false, true, true]);
    let last_used = here.last_used(&source(&["d.gguf"])).unwrap();
    assert!(here.last_used(&source(&["a.gguf"])).is_none());
    assert!(last_used > 1_700_000_000, "{last_used}");
}
