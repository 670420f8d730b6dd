use std::fs;
use std::path::Path;

use tokio::time::{sleep, timeout};

use super::*;
use crate::catalog::Catalog;
use crate::daemon::locate::{LocatedSource, Shelves, locate};
use crate::hardware;
use crate::hub::{Hub, HubSettings};
use muster_config::{Config, Sources};
use muster_engine::runtime::ModelSource;

/// The text model of the program, served under this name.
pub fn located(folder: &Path, name: &str) -> Located {
    located_as(folder, "demo-text", name)
}

fn located_as(folder: &Path, model: &str, name: &str) -> Located {
    let endpoint = "http://127.0.0.1:9".parse().unwrap();
    let shelves = Shelves {
        catalog: &Catalog::builtin().unwrap(),
        hub: &Hub::new(HubSettings::new(endpoint, folder.join("hub"), folder)),
        unpacked: folder,
        preferred: None,
    };
    Located {
        name: name.to_owned(),
        ..locate(model, shelves).unwrap()
    }
}

pub fn device(folder: &Path) -> Device {
    Device::start(&config(folder), &hardware::probe()).unwrap()
}

pub fn config(folder: &Path) -> Config {
    config_with(folder, "")
}

fn config_with(folder: &Path, engine: &str) -> Config {
    config_of(folder, &format!("kv_memory = \"16MiB\"\n{engine}"))
}

fn config_of(folder: &Path, engine: &str) -> Config {
    let (file, place) = (folder.join("worker.toml"), folder.display());
    let text = format!(
        "[engine]\ndevice = \"cpu\"\n{engine}\
         [worker]\ndata_dir = \"{place}\"\n[hub]\ncache_dir = \"{place}/hub\"\n"
    );
    fs::write(&file, text).unwrap();
    let sources = Sources {
        file: Some(file),
        ..Sources::default()
    };
    Config::load(&sources).unwrap().config
}

/// With the model `one` in memory, and not enough memory for a second one.
async fn with_room_for_one(folder: &Path) -> Residency {
    let mut device = device(folder);
    let one = located(folder, "one");
    let model = device.load(one.clone(), |_, _| {}).await.unwrap();
    device.leave_room_for_one();
    let residency = Residency::new(device, None);
    let device = residency.device().await;
    residency.note(&device, one, model);
    drop(device);
    residency
}

fn in_memory(residency: &Residency) -> Vec<String> {
    let models = residency.lock();
    let loaded = models.iter().filter(|(_, resident)| resident.is_loaded);
    loaded.map(|(name, _)| name.clone()).collect()
}

#[tokio::test]
async fn weights_that_two_models_hold_together_take_memory_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut device = device(folder.path());
    let model = |name: &str| located_as(folder.path(), "demo-image", name);
    let shared = crate::daemon::shared(&model("one")).unwrap();
    let shared: u64 = shared.iter().map(|weights| weights.bytes).sum();
    assert!(shared > 1 << 20, "text encoder and autoencoder: {shared}");
    let mut left = vec![device.room().left_bytes()];
    let mut loaded = Vec::new();
    for name in ["one", "two"] {
        loaded.push(device.load(model(name), |_, _| {}).await.unwrap());
        left.push(device.room().left_bytes());
    }
    let (first, second) = (left[0] - left[1], left[1] - left[2]);
    assert_eq!(first - second, shared);
    // The second one holds them alone now.
    device.unload(&loaded[0]).await.unwrap();
    assert_eq!(left[0] - device.room().left_bytes(), first);
    device.unload(&loaded[1]).await.unwrap();
    assert_eq!(left[0], device.room().left_bytes());
}

#[tokio::test]
async fn models_without_jobs_make_room_and_come_back_for_their_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let residency = with_room_for_one(folder.path()).await;
    let (_, unloaded) = residency
        .load_new(located(folder.path(), "two"))
        .await
        .unwrap();
    assert_eq!(unloaded, ["one"]);
    assert_eq!(in_memory(&residency), ["two"]);

    let job = residency.hold("one").await.unwrap();
    assert!(job.is_some());
    assert_eq!(in_memory(&residency), ["one"]);
    // A running job keeps its memory: the next model waits for its end, and a new one is refused.
    let waiting = timeout(Duration::from_millis(100), residency.hold("two"));
    assert!(waiting.await.is_err());
    let refused = residency.load_new(located(folder.path(), "three")).await;
    assert!(matches!(refused, Err(DaemonError::DoesNotFit { .. })));
    assert_eq!(in_memory(&residency), ["one"]);
    let (second, ()) = tokio::join!(residency.hold("two"), async {
        sleep(Duration::from_millis(50)).await;
        drop(job);
    });
    assert!(second.unwrap().is_some());
    assert_eq!(in_memory(&residency), ["two"]);
}

/// The pages of models in memory.
async fn pages(residency: &Residency) -> Vec<(String, usize)> {
    let runtime = residency.device().await.engines().runtime.clone();
    let models = runtime.status().models.into_iter();
    models.map(|it| (it.info.name.clone(), it.pages)).collect()
}

#[tokio::test]
async fn the_cache_of_a_busy_model_makes_room_and_grows_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = config_of(folder.path(), "");
    let mut device = Device::start(&config, &hardware::probe()).unwrap();
    let one = located(folder.path(), "one");
    let model = device.load(one.clone(), |_, _| {}).await.unwrap();
    // For all but a part of the cache that the next model needs.
    let least = device.least_bytes(&located(folder.path(), "two"));
    device.leave_no_room();
    device.give_room(least - (4 << 20));
    let residency = Residency::new(device, None);
    let device = residency.device().await;
    residency.note(&device, one, model);
    drop(device);
    let whole = pages(&residency).await[0].1;
    let busy = residency.hold("one").await.unwrap();

    let two = residency.load_new(located(folder.path(), "two")).await;
    let (two, unloaded) = two.unwrap();
    assert_eq!(unloaded, [""; 0]);
    assert_eq!(in_memory(&residency), ["one", "two"]);
    let smaller = pages(&residency).await;
    assert!(smaller[0].1 < whole && smaller[1].1 > 0, "{smaller:?}");
    let shares = residency.device().await.shares();
    assert_eq!(shares.pages, smaller[0].1 + smaller[1].1);
    assert!(shares.left_bytes < least, "{shares}");

    residency.unload("two").await;
    assert_eq!(in_memory(&residency), ["one"]);
    assert_eq!(pages(&residency).await, [("one".to_owned(), whole)]);
    drop(busy);
    let _again = residency.hold("two").await.unwrap();
    assert_eq!(in_memory(&residency), ["one", "two"]);
    assert!(pages(&residency).await[0].1 < whole);
    residency.remove(&two).await.unwrap();
    assert_eq!(pages(&residency).await, [("one".to_owned(), whole)]);

    // No cache shrinks for a model that does not fit all the same.
    let _busy = residency.hold("one").await.unwrap();
    let spare = residency.device().await.most_room().left_bytes();
    residency.device().await.take_room(spare);
    let refused = residency.load_new(located(folder.path(), "two")).await;
    assert!(matches!(refused, Err(DaemonError::DoesNotFit { .. })));
    assert_eq!(pages(&residency).await, [("one".to_owned(), whole)]);
}

#[tokio::test]
async fn an_unloaded_model_leaves_after_its_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let residency = with_room_for_one(folder.path()).await;
    let tasks = Tasks::default();
    residency.keep(&tasks);
    assert_eq!(residency.unload("two").await, UnloadOutcome::NotOffered);
    assert_eq!(residency.unload("one").await, UnloadOutcome::Unloaded);
    assert_eq!(residency.unload("one").await, UnloadOutcome::NotLoaded);
    assert_eq!(
        residency.load("two").await.unwrap(),
        LoadOutcome::NotOffered
    );
    assert_eq!(residency.load("one").await.unwrap(), LoadOutcome::Loaded);
    let again = residency.load("one").await.unwrap();
    assert_eq!(again, LoadOutcome::AlreadyLoaded);

    let job = residency.hold("one").await.unwrap();
    assert_eq!(residency.unload("one").await, UnloadOutcome::AfterJobs(1));
    assert_eq!(in_memory(&residency), ["one"]);
    drop(job);
    let gone = async {
        while !in_memory(&residency).is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), gone).await.unwrap();
    assert_eq!(residency.calls_tools("one"), Some(true));

    // A time that a request names holds until another one names its own.
    let job = residency.hold("one").await.unwrap();
    residency.set_keep_alive("one", KeepAlive::For(Duration::from_millis(20)));
    assert!(matches!(residency.stay("one"), MemoryStay::Until(_)));
    drop(job);
    let gone = async {
        while residency.stay("one") != MemoryStay::Unloaded {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), gone).await.unwrap();
    residency.load("one").await.unwrap();
    assert_eq!(residency.stay("one"), MemoryStay::Always);
    tasks.stop(Duration::from_secs(1)).await;
}

const TINY: &str = "tiny-llama";
const PIRATE: &str = "tiny-llama:pirate";

/// The small Llama of the tests, and in the folder two adapters: its own one, and one of another model.
async fn with_adapters(folder: &Path) -> Residency {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let adapters = folder.join("adapters");
    for (from, to) in [("tiny-llama/pirate", "pirate"), ("qwen2/all", "broken")] {
        let to = adapters.join(TINY).join(to);
        fs::create_dir_all(&to).unwrap();
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            let from = fixtures.join("golden/text-adapters").join(from);
            fs::copy(from.join(file), to.join(file)).unwrap();
        }
    }
    let engine = format!("adapters = \"{}\"\n", adapters.display());
    let config = config_with(folder, &engine);
    let mut device = Device::start(&config, &hardware::probe()).unwrap();
    let base = Located {
        name: TINY.to_owned(),
        source: LocatedSource::Text(Box::new(ModelSource::new(fixtures.join(TINY)))),
        is_vouched: true,
        sources: Vec::new(),
    };
    let model = device.load(base.clone(), |_, _| {}).await.unwrap();
    let residency = Residency::new(device, None);
    let device = residency.device().await;
    residency.note(&device, base, model);
    drop(device);
    residency
}

async fn offer_pirate(residency: &Residency) {
    let mut new = residency.new_adapters().await.into_iter();
    let pirate = new.find(|adapter| adapter.name == PIRATE).unwrap();
    let model = residency.offer_adapter(pirate).await.unwrap();
    assert_eq!((model.name(), model.parent()), (PIRATE, Some(TINY)));
}

#[tokio::test]
async fn an_adapter_is_offered_beside_its_model_and_loaded_by_its_job() {
    let folder = tempfile::tempdir().unwrap();
    let residency = with_adapters(folder.path()).await;
    let new = residency.new_adapters().await;
    let names: Vec<&str> = new.iter().map(|adapter| adapter.name.as_str()).collect();
    assert_eq!(names, ["tiny-llama:broken", PIRATE]);
    let refused = residency.offer_adapter(new[0].clone()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("made for another model (\"qwen2\")"),
        "{refused}"
    );
    offer_pirate(&residency).await;
    assert_eq!(residency.new_adapters().await.len(), 1, "the broken one");
    assert_eq!(in_memory(&residency), [TINY]);

    let hold = residency.hold(PIRATE).await.unwrap().unwrap();
    assert_eq!(in_memory(&residency), [TINY, PIRATE]);
    let runtime = residency.device().await.engines().runtime.clone();
    assert_eq!(runtime.info(PIRATE).unwrap().parent.as_deref(), Some(TINY));
    // The model of a job stays, and takes its adapters along when it leaves.
    assert_eq!(residency.unload(TINY).await, UnloadOutcome::AfterJobs(1));
    drop(hold);
    residency.unload_due().await;
    assert_eq!(in_memory(&residency), [""; 0]);
    assert!(runtime.info(PIRATE).is_err() && runtime.info(TINY).is_err());
    let hold = residency.hold(PIRATE).await.unwrap().unwrap();
    assert_eq!(in_memory(&residency), [TINY, PIRATE]);
    assert!(runtime.info(PIRATE).is_ok());
    drop(hold);
    assert_eq!(residency.unload(PIRATE).await, UnloadOutcome::Unloaded);
    assert_eq!(in_memory(&residency), [TINY]);
    assert!(runtime.info(PIRATE).is_err() && runtime.info(TINY).is_ok());
}

/// The job would wait for the end of its model's jobs, which are its own.
#[tokio::test]
async fn a_job_whose_adapter_does_not_fit_beside_its_model_fails_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let residency = with_adapters(folder.path()).await;
    offer_pirate(&residency).await;
    residency.device().await.leave_no_room();
    let held = timeout(Duration::from_secs(60), residency.hold(PIRATE)).await;
    let failure = held.unwrap().err().unwrap().to_string();
    assert!(
        failure.contains("tiny-llama:pirate does not fit"),
        "{failure}"
    );
    assert_eq!(residency.load_of(TINY).unwrap().jobs, 0);
    assert!(residency.hold(TINY).await.unwrap().is_some());
}
