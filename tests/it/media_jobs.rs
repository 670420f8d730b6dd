//! Images made by a worker of ours: the sample pipeline in its maker, behind `/v1/images/generations` and the AI Horde
//! API.

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster::catalog::{Catalog, Kind};
use muster::coordinator::billing::{MicroUsd, ModelRates, PriceBook};
use muster::coordinator::media::{Area, Key, MediaType};
use muster::coordinator::names::Names;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::daemon::{AdapterFolders, Engines, MediaModel, OfferTerms, Post, Served, Worker};
use muster::link::{Dial, Permissions};
use muster::media::image::description;
use muster::media::sound;
use muster::protocol::job::{
    self, Event, FinishReason, KnownWords, Kudos, ResultPart, TextInput, Transcript,
    TranscriptSegment,
};
use muster::protocol::legacy::image::reference::{family, knows};
use muster::protocol::link::ModelLimits;
use muster::reader::Reader;
use muster::runtime::maker::{Maker, MakerLimits, Pipeline, SampleFault, SamplePipeline};
use muster::runtime::music::MusicSource;
use muster::runtime::{DeviceChoice, EngineLimits, Runtime};
use muster::tasks::Tasks;
use muster_testing::eventually;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::watch;
use url::Url;

use super::account::{charging, money, pay};
use super::legacy::images::{ask, png, pop, until, until_done, with};
use super::support::app::{Answer, App, request};
use super::support::boss::{Cable, Office, post, safety_checker};
use super::support::puppet::{Puppet, done};
use super::up::tool;

const ROUTE: &str = "/v1/images/generations";
const MODEL: &str = "tiny";

/// A worker of ours with a maker.
pub struct Studio {
    worker: Worker,
    maker: Maker,
    tasks: Tasks,
}

pub async fn studio(app: &App, name: &str, sample: SamplePipeline) -> Studio {
    studio_over(app, name, sample, dial(app)).await
}

async fn studio_over(app: &App, name: &str, sample: SamplePipeline, dial: Dial) -> Studio {
    serving(app, name, drawing_model(), sample, dial).await
}

fn drawing_model() -> MediaModel {
    MediaModel {
        size: Some((320, 192)),
        ..MediaModel::new(MODEL, Kind::Image)
    }
}

async fn player(app: &App, sample: SamplePipeline) -> Studio {
    let model = MediaModel::new("plays", Kind::Music);
    serving(app, "player", model, sample, dial(app)).await
}

async fn serving(
    app: &App,
    name: &str,
    model: MediaModel,
    sample: SamplePipeline,
    dial: Dial,
) -> Studio {
    serving_from(app, name, model, sample, (dial, AdapterFolders::default())).await
}

async fn serving_from(
    app: &App,
    name: &str,
    model: MediaModel,
    pipeline: impl Pipeline + 'static,
    (dial, folders): (Dial, AdapterFolders),
) -> Studio {
    let maker = Maker::start(MakerLimits::default()).unwrap();
    let loader = Box::new(|| Ok(Box::new(pipeline) as Box<_>));
    maker.load(&model.name, loader).await.unwrap();
    let engines = Engines {
        folders,
        reader: Reader::of(env!("CARGO_BIN_EXE_worker").into()),
        maker: Some(maker.clone()),
        ..Runtime::start(DeviceChoice::Cpu, EngineLimits::default())
            .unwrap()
            .into()
    };
    let served = Served {
        media: vec![model],
        slots: 8,
        ..Served::default()
    };
    let tasks = app.tasks.part();
    let post = Post {
        media_hosts: Vec::new(),
        terms: OfferTerms::default(),
        key: app.key.clone(),
        ..post(name, dial)
    };
    let worker = Worker::start(engines, served, vec![post], &tasks);
    assert!(worker.connected().await);
    Studio {
        worker,
        maker,
        tasks,
    }
}

pub fn dial(app: &App) -> Dial {
    Dial::Pipe(Arc::new(far(app)))
}

fn far(app: &App) -> impl Fn() -> DuplexStream + Send + Sync + 'static {
    let (workers, tasks) = (app.workers.clone(), app.tasks.clone());
    move || {
        let (near, far) = duplex(1 << 16);
        let workers = workers.clone();
        tasks.start(async move { workers.serve(far, Vec::new()).await });
        near
    }
}

pub async fn app() -> App {
    App::listening(DoorSettings::default()).await
}

pub async fn generate(app: &App, more: Value) -> Answer {
    generate_as(app, &app.key, more).await
}

async fn generate_as(app: &App, key: &str, more: Value) -> Answer {
    let body = json!({"model": MODEL, "prompt": "a cat", "size": "320x256", "steps": 4});
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(with(body, more).to_string());
    app.send(request(Method::POST, ROUTE, &headers, body)).await
}

async fn generated(app: &App, more: Value) -> Value {
    let answer = generate(app, more).await;
    let (status, body) = (answer.status, answer.json().await);
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

async fn linked(app: &App, link: &Value) -> Vec<u8> {
    let link = Url::parse(link.as_str().unwrap()).unwrap();
    let path = format!("{}?{}", link.path(), link.query().unwrap());
    let fetched = app.get(&path).await;
    assert_eq!(fetched.status, StatusCode::OK);
    fetched.bytes().await.to_vec()
}

/// The gradient of the sample: red grows to the right, green downwards, blue is the seed.
fn assert_gradient(bytes: &[u8], (width, height): (u32, u32), seed: u8) {
    let image = image::load_from_memory(bytes).unwrap().to_rgb8();
    assert_eq!(image.dimensions(), (width, height));
    let near = |x, y, expected: [u8; 3]| {
        let found = image.get_pixel(x, y).0;
        let is_near = found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) < 32);
        assert!(is_near, "{found:?} is not {expected:?}");
    };
    near(0, 0, [0, 0, seed]);
    near(width - 1, 0, [255, 0, seed]);
    near(0, height - 1, [0, 255, seed]);
}

async fn running(maker: &Maker, wanted: usize) {
    eventually("the jobs of the maker", async || {
        let running = maker.status().running;
        if running == wanted {
            Ok(())
        } else {
            Err(running)
        }
    })
    .await;
}

fn open(gate: &Sender<()>, blocks: usize) {
    for _ in 0..blocks {
        gate.send(()).unwrap();
    }
}

#[tokio::test]
async fn an_image_without_a_size_has_that_of_the_model() {
    let app = app().await;
    let _studio = studio(&app, "artist", SamplePipeline::default()).await;
    for size in [Value::Null, json!("auto")] {
        let drawn = generated(&app, json!({"size": size})).await;
        assert_eq!(drawn["size"], "320x192", "{drawn}");
        let bytes = linked(&app, &drawn["data"][0]["url"]).await;
        let image = image::load_from_memory(&bytes).unwrap();
        assert_eq!((image.width(), image.height()), (320, 192));
    }
}

#[tokio::test]
async fn an_image_is_drawn_by_our_worker_as_link_and_as_base64() {
    let app = app().await;
    let studio = studio(&app, "ours", SamplePipeline::default()).await;
    let reply = generated(&app, json!({"seed": 200, "n": 2})).await;
    let images = reply["data"].as_array().unwrap();
    assert_eq!(
        (&images[0]["seed"], &images[1]["seed"]),
        (&json!(200), &json!(201))
    );
    assert_eq!(reply["grid"]["worker"], "ours");
    for (image, seed) in images.iter().zip([200, 201]) {
        assert_gradient(&linked(&app, &image["url"]).await, (320, 256), seed);
    }
    let more = json!({"seed": 7, "response_format": "b64_json", "output_format": "png"});
    let reply = generated(&app, more).await;
    let inline = reply["data"][0]["b64_json"].as_str().unwrap();
    let bytes = STANDARD.decode(inline).unwrap();
    assert_eq!(
        image::guess_format(&bytes).unwrap(),
        image::ImageFormat::Png
    );
    assert_gradient(&bytes, (320, 256), 7);
    assert_eq!(studio.worker.activity().done, 3);
}

#[tokio::test]
async fn a_request_of_the_ai_horde_is_drawn_by_our_worker() {
    let app = app().await;
    let _studio = studio(&app, "ours", SamplePipeline::default()).await;
    let params = json!({"seed": "42", "width": 192, "height": 128, "steps": 3, "n": 2, "clip_skip": 2, "tiling": true, "hires_fix": true});
    let id = ask(&app, json!({"params": params, "r2": true})).await;
    let status = until_done(&app, &id).await;
    let generations = status["generations"].as_array().unwrap();
    assert_eq!(generations.len(), 2, "{status}");
    let mut blues = Vec::new();
    for one in generations {
        assert_eq!(
            (&one["worker_name"], &one["seed"]),
            (&json!("ours"), &json!("42"))
        );
        let bytes = linked(&app, &one["img"]).await;
        let image = image::load_from_memory(&bytes).unwrap().to_rgb8();
        assert_eq!(image.dimensions(), (192, 128));
        blues.push(image.get_pixel(0, 0).0[2]);
    }
    assert_gradient(&linked(&app, &generations[0]["img"]).await, (192, 128), 42);
    assert_eq!(blues.len(), 2);
}

#[tokio::test]
async fn our_worker_draws_for_the_public_name_of_its_model() {
    let app = App::listening(DoorSettings {
        names: Names::of([(MODEL, ["stable_diffusion"])]),
        ..DoorSettings::default()
    })
    .await;
    let _studio = studio(&app, "ours", SamplePipeline::default()).await;
    let params = json!({"width": 128, "height": 128, "steps": 2});
    let id = ask(
        &app,
        json!({"models": ["stable_diffusion"], "params": params}),
    )
    .await;
    let status = until_done(&app, &id).await;
    assert_eq!(status["generations"][0]["worker_name"], "ours", "{status}");
    let drawn = generated(&app, json!({"model": "stable_diffusion"})).await;
    assert_eq!(drawn["grid"]["model"], MODEL);
}

/// Prices and settings follow the family that the public name has.
#[test]
fn image_models_of_the_catalog_are_of_the_family_of_their_public_names() {
    let catalog = Catalog::builtin().unwrap();
    let images = catalog.entries().iter();
    let mut images = images
        .filter(|entry| entry.kind() == Kind::Image)
        .peekable();
    assert!(images.peek().is_some());
    for entry in images {
        for name in &entry.names.legacy {
            assert_eq!(family(&entry.id), family(name), "{name}");
            assert_eq!(knows(&entry.id), knows(name), "{name}");
        }
    }
}

#[tokio::test]
async fn source_images_and_masks_reach_our_worker() {
    let app = app().await;
    let studio = studio(&app, "ours", SamplePipeline::default()).await;
    let params = json!({"width": 128, "height": 128, "steps": 2, "denoising_strength": 0.5});
    for more in [
        json!({"source_processing": "img2img"}),
        json!({"source_processing": "inpainting", "source_mask": png(128, 128)}),
    ] {
        let body = with(
            json!({"params": params, "source_image": png(128, 128)}),
            more,
        );
        let id = ask(&app, body).await;
        let status = until_done(&app, &id).await;
        assert_eq!(status["generations"][0]["worker_name"], "ours", "{status}");
    }
    let activity = studio.worker.activity();
    assert_eq!((activity.done, activity.failed), (2, 0));
}

#[tokio::test]
async fn jobs_that_our_worker_cannot_do_are_not_offered_to_it() {
    let app = app().await;
    let studio = studio(&app, "ours", SamplePipeline::default()).await;
    app.enrich(Kudos(1_000_000)).await;
    for params in [
        json!({"post_processing": ["GFPGAN"]}),
        json!({"sampler_name": "seeds_2"}),
        json!({"loras": [{"name": "x"}]}),
        json!({"control_type": "canny", "width": 128, "height": 128}),
    ] {
        let mut body = json!({"params": params});
        if params.get("control_type").is_some() {
            body["source_image"] = json!(png(128, 128));
        }
        let id = ask(&app, body).await;
        let status = until(&app, &id, |status| status["is_possible"] == false).await;
        assert_eq!(status["processing"], 0, "{params}");
    }
    assert_eq!(studio.maker.status().running, 0);
    let loras = json!({"loras": [{"name": "x"}]});
    let refused = generate(&app, loras).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(refused.json().await["error"]["param"], "loras");
}

#[tokio::test]
async fn textual_inversions_are_named_in_prompts_and_lists() {
    let app = app().await;
    let sample = SamplePipeline::default;
    let plain = studio(&app, "plain", sample()).await;
    app.enrich(Kudos(1_000_000)).await;
    let named = json!({"prompt": "a cat, by embedding:owl"});
    let refused = generate(&app, named.clone()).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(refused.json().await["error"]["param"], "prompt");
    let listed = |name: &str| {
        let tis = json!([{"name": name, "inject_ti": "prompt", "strength": 0.8}]);
        json!({"params": {"tis": tis, "width": 64, "height": 64, "steps": 2}})
    };
    let id = ask(&app, listed("owl")).await;
    until(&app, &id, |status| status["is_possible"] == false).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("owl.safetensors"), b"").unwrap();
    let folders = AdapterFolders {
        embeddings: Some(folder.path().to_owned()),
        ..AdapterFolders::default()
    };
    let (near, model) = (dial(&app), drawing_model());
    let owner = serving_from(&app, "owner", model, sample(), (near, folders)).await;
    let status = until_done(&app, &id).await;
    assert_eq!(status["generations"][0]["worker_name"], "owner", "{status}");
    let drawn = generated(&app, named).await;
    let about = description(&linked(&app, &drawn["data"][0]["url"]).await).unwrap();
    assert!(about.starts_with("a cat, by embedding:owl\n"), "{about}");
    let absent = generate(&app, json!({"prompt": "embedding:fox"})).await;
    assert_eq!(absent.status, StatusCode::BAD_REQUEST);
    let error = absent.json().await["error"]["message"].to_string();
    assert!(error.contains("fox"), "{error}");
    assert_eq!(plain.worker.activity().done, 0);
    assert_eq!(owner.worker.activity().done, 2);
}

#[tokio::test]
async fn a_file_says_how_its_image_was_made() {
    let app = app().await;
    let _studio = studio(&app, "artist", SamplePipeline::default()).await;
    for format in ["webp", "png", "jpeg"] {
        let more = json!({"output_format": format, "seed": 9, "negative_prompt": "a dog"});
        let drawn = generated(&app, with(more, json!({"response_format": "b64_json"}))).await;
        let file = drawn["data"][0]["b64_json"].as_str().unwrap();
        let about = description(&STANDARD.decode(file).unwrap()).unwrap();
        let (prompts, settings) = about.rsplit_once('\n').unwrap();
        assert_eq!(prompts, "a cat\nNegative prompt: a dog", "{format}");
        let expected = "Steps: 4, Seed: 9, Size: 320x256, Model: tiny";
        assert!(settings.starts_with(expected), "{format}: {settings}");
    }
}

#[tokio::test]
async fn an_unknown_setting_is_refused_by_name_and_costs_nothing() {
    let app = App::listening(charging()).await;
    let studio = studio(&app, "ours", SamplePipeline::default()).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 5_000_000).await;
    let answer = generate_as(&app, &key, json!({"scheduler": "gits"})).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.json().await["error"]["param"], "scheduler");
    let answer = generate_as(
        &app,
        &key,
        json!({"steps": 2, "size": "1536x1536", "sampler": "seeds_2"}),
    )
    .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.json().await["error"]["param"], "sampler");
    assert_eq!(money(&app, &key).await, (5_000_000, 0));
    for known in [
        json!({"scheduler": "beta"}),
        json!({"scheduler": "karras", "seed": 5_000_000_000_u64}),
        json!({"sampler": "uni_pc"}),
    ] {
        let answer = generate_as(&app, &key, known).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    assert_eq!(money(&app, &key).await, (2_000_000, 0));
    assert_eq!(studio.worker.activity().done, 3);
}

#[tokio::test]
async fn a_pipeline_that_fails_or_panics_fails_the_request_and_costs_nothing() {
    for fault in [SampleFault::FailAt(2), SampleFault::PanicAt(2)] {
        let app = App::listening(charging()).await;
        let sample = SamplePipeline {
            fault: Some(fault),
            ..SamplePipeline::default()
        };
        let _studio = studio(&app, "ours", sample).await;
        let key = app.account_with(Roles::USER, Scopes::ALL).await;
        pay(&app, &key, 5_000_000).await;
        let answer = generate_as(&app, &key, json!({})).await;
        assert!(answer.status.is_server_error(), "{fault:?}: {answer:?}");
        let body = answer.json().await;
        assert!(body["error"]["message"].is_string(), "{body}");
        assert_eq!(money(&app, &key).await, (5_000_000, 0));
    }
}

/// Reads a stream up to the next event that is not a heartbeat.
async fn event(answer: &mut Answer) -> Value {
    loop {
        let text = answer.frame().await.unwrap();
        if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[tokio::test]
async fn a_stream_has_as_many_partial_images_as_were_asked_for() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let _studio = studio(&app, "ours", sample).await;
    // Of six steps the second and the fourth have one.
    open(&gate, 2);
    let more = json!({"stream": true, "partial_images": 2, "steps": 6, "seed": 3});
    let mut answer = generate(&app, more).await;
    for number in 0..2 {
        let partial = event(&mut answer).await;
        assert_eq!(partial["type"], "image_generation.partial_image");
        assert_eq!(
            (&partial["partial_image_index"], &partial["output_format"]),
            (&json!(number), &json!("webp"))
        );
        let bytes = STANDARD
            .decode(partial["b64_json"].as_str().unwrap())
            .unwrap();
        assert!(bytes.len() <= 16 << 10);
        assert_eq!(
            image::guess_format(&bytes).unwrap(),
            image::ImageFormat::WebP
        );
        open(&gate, 2);
    }
    drop(gate);
    let completed = event(&mut answer).await;
    assert_eq!(
        completed["type"], "image_generation.completed",
        "{completed}"
    );
    let bytes = STANDARD
        .decode(completed["b64_json"].as_str().unwrap())
        .unwrap();
    assert_gradient(&bytes, (320, 256), 3);
    assert_eq!(answer.frame().await, None);
}

#[tokio::test]
async fn progress_is_shown_by_token() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let _studio = studio(&app, "ours", sample).await;
    open(&gate, 2);
    let progress = async {
        eventually("half of the steps", async || {
            let page = app.get("/v1/progress/half-a-cat").await.json().await;
            if page["progress"] == 50 {
                Ok(())
            } else {
                Err(page)
            }
        })
        .await;
        drop(gate);
    };
    // Without a count of steps the model draws its own four.
    let more = json!({"progress_token": "half-a-cat", "steps": null});
    let (reply, ()) = tokio::join!(generated(&app, more), progress);
    assert_eq!(reply["data"].as_array().unwrap().len(), 1);
    let page = app.get("/v1/progress/half-a-cat").await.json().await;
    assert_eq!(page["progress"], 100);
}

#[tokio::test]
async fn a_client_that_leaves_frees_the_maker() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let studio = studio(&app, "ours", sample).await;
    tokio::select! {
        _ = generate(&app, json!({})) => unreachable!("no block was let through"),
        () = running(&studio.maker, 1) => {}
    }
    eventually("the job to be cancelled", async || {
        let activity = studio.worker.activity();
        if activity.cancelled == 1 {
            Ok(())
        } else {
            Err(activity)
        }
    })
    .await;
    // The block that runs is the last one of the job.
    open(&gate, 1);
    running(&studio.maker, 0).await;
    drop(gate);
    generated(&app, json!({})).await;
}

#[tokio::test]
async fn a_paused_worker_hands_its_image_to_another() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let first = studio(&app, "first", sample).await;
    let handed_over = async {
        running(&first.maker, 1).await;
        let _second = studio(&app, "second", SamplePipeline::default()).await;
        let (paused, ()) = tokio::join!(first.worker.pause(None), async { drop(gate) });
        paused.unwrap();
        _second
    };
    let (reply, _second) = tokio::join!(generated(&app, json!({})), handed_over);
    assert_eq!(reply["grid"]["worker"], "second");
}

#[tokio::test]
async fn a_worker_that_keeps_to_a_power_rests_between_steps_and_ends_its_jobs() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let studio = studio(&app, "ours", sample).await;
    let (share, duty) = watch::channel(0.5);
    studio.worker.keep_duty(duty, &app.tasks);
    let rests = async {
        running(&studio.maker, 1).await;
        eventually("a rest", async || {
            // A step at each look: a thread does not rest within one.
            open(&gate, 1);
            match studio.maker.status().is_paused {
                true => Ok(()),
                false => Err(()),
            }
        })
        .await;
        drop(gate);
    };
    let many_steps = json!({"seed": 9, "steps": 80});
    let (reply, ()) = tokio::join!(generated(&app, many_steps), rests);
    assert_gradient(&linked(&app, &reply["data"][0]["url"]).await, (320, 256), 9);
    share.send_replace(1.0);
    generated(&app, json!({})).await;
}

#[tokio::test]
async fn a_lost_worker_is_replaced_by_another() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let first = studio(&app, "first", sample).await;
    let lost = async {
        open(&gate, 1);
        running(&first.maker, 1).await;
        let second = studio(&app, "second", SamplePipeline::default()).await;
        assert!(first.tasks.stop(Duration::from_secs(5)).await);
        drop(gate);
        second
    };
    let (reply, second) = tokio::join!(generated(&app, json!({"seed": 9})), lost);
    assert_eq!(reply["grid"]["worker"], "second");
    assert_gradient(&linked(&app, &reply["data"][0]["url"]).await, (320, 256), 9);
    assert_eq!(second.worker.activity().done, 1);
}

#[tokio::test]
async fn an_image_survives_a_lost_socket() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let cable = Cable::default();
    let dial = cable.dial(far(&app), &app.tasks);
    let studio = studio_over(&app, "ours", sample, dial).await;
    let cut = async {
        open(&gate, 2);
        running(&studio.maker, 1).await;
        cable.cut();
        drop(gate);
    };
    let (reply, ()) = tokio::join!(generated(&app, json!({"seed": 5})), cut);
    assert_gradient(&linked(&app, &reply["data"][0]["url"]).await, (320, 256), 5);
    let activity = studio.worker.activity();
    assert_eq!((activity.done, activity.cancelled), (1, 0));
}

#[tokio::test]
async fn images_of_a_public_coordinator_are_drawn_and_uploaded() {
    let app = app().await;
    let (mut office, dial) = Office::open();
    let sample = SamplePipeline::default();
    let (_studio, (mut boss, registration)) =
        tokio::join!(studio_over(&app, "ours", sample, dial), office.hire());
    assert_eq!(registration["job_types"], json!(["image"]));
    let id = "71a3c9f0-58b1-4a2f-9d0e-3f6f1b0c2a11";
    let keys = [1, 2]
        .map(|attempt| Key::new(Area::Results, id.parse().unwrap(), attempt, MediaType::Webp));
    let mut slots = Vec::new();
    for key in keys {
        let link = app.media.upload_link(key, Duration::from_secs(60)).await;
        let slot =
            json!({"put_url": link.unwrap(), "key": key.to_string(), "content_type": "image/webp"});
        slots.push(slot);
    }
    boss.send(json!({
        "type": "job", "id": id, "model": MODEL, "job_type": "image", "upload": slots,
        "payload": {
            "prompt": "a cat", "n": 2, "ext": "webp", "width": 64, "height": 96, "steps": 3,
            "sampler_name": "euler", "seed": 11, "seeds": [11, 12],
        },
    }))
    .await;
    let first = boss.next().await;
    assert_eq!(first["type"], "progress");
    assert!(
        first.get("step").is_none() && first.get("att").is_none(),
        "{first}"
    );
    let (_, done) = boss.read_job().await;
    let mut results = Vec::new();
    for (index, (key, seed)) in keys.iter().zip([11, 12]).enumerate() {
        let bytes = app.media.get(*key).await.unwrap();
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => {
                app.media.take_in(*key).await.unwrap();
                app.media.get(*key).await.unwrap().unwrap()
            }
        };
        assert_gradient(&bytes, (64, 96), seed);
        let digest = Sha256::digest(&bytes);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        results.push(json!({"index": index, "seed": seed, "sha256": digest}));
    }
    assert_eq!(done, json!({"type": "done", "id": id, "results": results}));
}

/// A gradient with much blue has a purple corner, which the checker of the tests flags.
const FLAGGED_SEED: u64 = 230;

const CAREFUL: Permissions = Permissions {
    nsfw: false,
    loras: false,
    hidden_addresses: false,
    others: true,
};

/// A worker that takes jobs with these permissions, has a folder of LoRAs and judges images.
async fn careful_worker(
    app: &App,
    dial: Dial,
    permissions: Permissions,
) -> (Worker, tempfile::TempDir) {
    let maker = Maker::start(MakerLimits::default()).unwrap();
    let loader = Box::new(|| Ok(Box::new(SamplePipeline::default()) as Box<_>));
    maker.load(MODEL, loader).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("paper.safetensors"), b"").unwrap();
    let engines = Engines {
        folders: AdapterFolders {
            loras: Some(folder.path().to_owned()),
            embeddings: None,
        },
        maker: Some(maker),
        safety: Some(safety_checker()),
        ..Runtime::start(DeviceChoice::Cpu, EngineLimits::default())
            .unwrap()
            .into()
    };
    let served = Served {
        media: vec![drawing_model()],
        slots: 8,
        ..Served::default()
    };
    let post = Post {
        terms: OfferTerms {
            permissions,
            ..OfferTerms::default()
        },
        key: app.key.clone(),
        ..post("careful", dial)
    };
    (
        Worker::start(engines, served, vec![post], &app.tasks),
        folder,
    )
}

#[tokio::test]
async fn a_worker_on_a_socket_gets_no_images_that_its_owner_does_not_take() {
    let app = app().await;
    let (careful, _folder) = careful_worker(&app, dial(&app), CAREFUL).await;
    assert!(careful.connected().await);
    app.enrich(Kudos(1_000_000)).await;
    let params = json!({"width": 64, "height": 64, "steps": 2});
    let unsafe_one = ask(&app, json!({"nsfw": true, "params": params})).await;
    let is_impossible = |status: &Value| status["is_possible"] == false;
    until(&app, &unsafe_one, is_impossible).await;
    let refused = generate(&app, json!({"loras": [{"name": "paper"}]})).await;
    assert_eq!(refused.json().await["error"]["param"], "loras");

    let flagged = json!({"seed": FLAGGED_SEED, "size": "256x256"});
    let refused = generate(&app, flagged).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let error = refused.json().await["error"].clone();
    assert_eq!(error["code"], "content_policy_violation", "{error}");
    generated(&app, json!({"seed": 20, "size": "256x256"})).await;

    let _studio = studio(&app, "other", SamplePipeline::default()).await;
    let status = until_done(&app, &unsafe_one).await;
    assert_eq!(status["generations"][0]["worker_name"], "other", "{status}");
}

#[tokio::test]
async fn a_worker_for_its_owner_alone_gets_no_jobs_of_others() {
    let app = app().await;
    let own = Permissions {
        others: false,
        ..Permissions::default()
    };
    let (worker, _folder) = careful_worker(&app, dial(&app), own).await;
    assert!(worker.connected().await);
    let other = app.account_with(Roles::USER, Scopes::ALL).await;
    let refused = generate_as(&app, &other, json!({})).await;
    assert!(refused.status.is_server_error(), "{refused:?}");
    generated(&app, json!({})).await;
    assert_eq!(worker.activity().done, 1);
}

#[tokio::test]
async fn a_job_with_loras_that_comes_all_the_same_is_handed_back() {
    let app = app().await;
    let (mut office, dial) = Office::open();
    let (_careful, _folder) = careful_worker(&app, dial, CAREFUL).await;
    let mut boss = office.next().await;
    let registration = boss.next().await;
    let can = registration["ext"]["can"].as_array().unwrap();
    assert!(!can.contains(&json!("loras")), "{registration}");
    let excludes = json!(["nsfw", "hidden_addresses"]);
    assert_eq!(registration["ext"]["excludes"], excludes);
    boss.send(json!({
        "type": "ready", "worker_id": "2d0f4a52-6b0d-4c55-9c7e-0f5a4a3b9d10",
        "ext": {"v": 1, "use": ["multi"]},
    }))
    .await;
    let id = "71a3c9f0-58b1-4a2f-9d0e-3f6f1b0c2a11";
    let image = json!({
        "kind": "image", "prompt": "a cat", "width": 64, "height": 64, "index": 0,
        "loras": [{"name": "paper", "model": 1.0, "clip": 1.0, "is_version": false}],
    });
    let slot = json!({"put_url": "", "key": "k", "content_type": "image/webp"});
    boss.send(json!({
        "type": "job", "id": id, "att": 1, "model": MODEL, "job_type": "image", "upload": [slot],
        "payload": {"api_format": "neutral", "media": image},
    }))
    .await;
    let answer = boss.next().await;
    assert_eq!(
        (&answer["type"], &answer["id"]),
        (&json!("busy"), &json!(id))
    );
}

#[tokio::test]
async fn a_text_for_a_model_that_draws_is_refused_at_the_door() {
    let app = app().await;
    let studio = studio(&app, "ours", SamplePipeline::default()).await;
    let body = json!({"model": MODEL, "prompt": "hello"});
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(body.to_string());
    let answer = app
        .send(request(Method::POST, "/v1/completions", &headers, body))
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.json().await["error"]["param"], "model");
    assert_eq!(studio.worker.activity().failed, 0);
    assert!(pop(&app, json!({})).await["id"].is_null());
}

async fn play(app: &App, key: &str, more: Value) -> Answer {
    let body = json!({"model": "plays", "prompt": "a calm piano", "seconds": 2, "seed": 3});
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(with(body, more).to_string());
    app.send(request(
        Method::POST,
        "/v1/audio/generations",
        &headers,
        body,
    ))
    .await
}

#[tokio::test]
async fn music_is_made_by_our_worker_in_each_type_of_file() {
    let app = app().await;
    let _studio = player(&app, SamplePipeline::default()).await;
    for (format, kind) in [
        (json!(null), MediaType::Wav),
        (json!("flac"), MediaType::Flac),
        (json!("opus"), MediaType::Opus),
        (json!("mp3"), MediaType::Mp3),
    ] {
        let more = json!({"response_format": format, "progress_token": "a-piano", "model": null});
        let answer = play(&app, &app.key, more).await;
        let job = answer.header("x-job-id").unwrap().to_owned();
        let (status, reply) = (answer.status, answer.json().await);
        assert_eq!(status, StatusCode::OK, "{reply}");
        assert_eq!(reply["data"][0]["seed"], 3);
        let grid = &reply["grid"];
        assert_eq!(
            (&grid["worker"], &grid["model"]),
            (&json!("player"), &json!("plays"))
        );
        assert_eq!(grid["job_id"], job);
        let bytes = linked(&app, &reply["data"][0]["url"]).await;
        let header = sound::inspect(&bytes, kind).unwrap();
        assert!((header.seconds() - 2.0).abs() < 0.1, "{header:?}");
    }
    let more = json!({"response_format": "b64_json", "progress_token": "a-piano"});
    let reply = play(&app, &app.key, more).await.json().await;
    assert!(reply["data"][0].get("url").is_none());
    let inline = reply["data"][0]["b64_json"].as_str().unwrap();
    let header = sound::inspect(&STANDARD.decode(inline).unwrap(), MediaType::Wav).unwrap();
    assert!((header.seconds() - 2.0).abs() < 0.1, "{header:?}");
    let page = app.get("/v1/progress/a-piano").await.json().await;
    assert_eq!(page["progress"], 100);
}

#[tokio::test]
async fn music_costs_its_seconds_and_a_failed_sound_nothing() {
    let rates = ModelRates::default().with(Kind::Music, Some(MicroUsd(1000)));
    let app = App::listening(DoorSettings {
        price_book: PriceBook::new(None).with("plays", [], rates),
        ..charging()
    })
    .await;
    let studio = player(&app, SamplePipeline::default()).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 10_000).await;
    let refused = play(&app, &key, json!({"bpm": 120})).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let body = refused.json().await;
    assert!(
        body["error"]["message"].as_str().unwrap().contains("bpm"),
        "{body}"
    );
    assert_eq!(money(&app, &key).await, (10_000, 0));
    let played = play(&app, &key, json!({})).await;
    assert_eq!(played.status, StatusCode::OK);
    assert_eq!(money(&app, &key).await, (8_000, 0));
    assert_eq!(studio.worker.activity().done, 1);
}

#[tokio::test]
async fn a_model_of_another_kind_is_refused_by_name() {
    let app = app().await;
    let check = async |answer: Answer| {
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let body = answer.json().await;
        assert_eq!(body["error"]["param"], "model", "{body}");
    };
    let _player = player(&app, SamplePipeline::default()).await;
    let _studio = studio(&app, "ours", SamplePipeline::default()).await;
    check(play(&app, &app.key, json!({"model": MODEL})).await).await;
    check(generate(&app, json!({"model": "plays"})).await).await;
    let unknown = play(&app, &app.key, json!({"model": "none"})).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_music() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let studio = player(&app, sample).await;
    tokio::select! {
        _ = play(&app, &app.key, json!({})) => unreachable!("no block was let through"),
        () = running(&studio.maker, 1) => {}
    }
    eventually("the job to be cancelled", async || {
        let activity = studio.worker.activity();
        if activity.cancelled == 1 {
            Ok(())
        } else {
            Err(activity)
        }
    })
    .await;
    drop(gate);
}

pub async fn listener(app: &App, sample: SamplePipeline) -> Studio {
    let model = MediaModel::new("hears", Kind::Transcription);
    serving(app, "listener", model, sample, dial(app)).await
}

/// Two seconds and a half; each second is louder than the one before.
pub fn steps() -> Vec<u8> {
    let level = |at: usize| [0.1, 0.25, 0.5][at / 48_000];
    let samples = (0..120_000).map(|at| level(at) * if at % 100 < 50 { 1.0 } else { -1.0 });
    let sound = sound::Sound::new(48_000, 1, samples.collect()).unwrap();
    sound::to_wav(&sound, sound::WavFormat::Int16).unwrap()
}

pub async fn hear(app: &App, route: &str, fields: &[(&str, &str)], file: &[u8]) -> Answer {
    hear_as(app, &app.key, route, (fields, file)).await
}

async fn hear_as(
    app: &App,
    key: &str,
    route: &str,
    (fields, file): (&[(&str, &str)], &[u8]),
) -> Answer {
    let mut body = Vec::new();
    let has_model = fields.iter().any(|(name, _)| *name == "model");
    let usual: &[(&str, &str)] = if has_model {
        &[]
    } else {
        &[("model", "hears")]
    };
    for (name, value) in [usual, fields].concat() {
        let part =
            format!("--edge\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend(part.into_bytes());
    }
    body.extend(
        b"--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n",
    );
    body.extend(file);
    body.extend(b"\r\n--edge--\r\n");
    let bearer = format!("Bearer {key}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "multipart/form-data; boundary=edge"),
    ];
    app.send(request(Method::POST, route, &headers, Body::from(body)))
        .await
}

pub const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";

/// Levels come through a change of the rate within a tenth.
#[track_caller]
fn check_levels(text: &str) {
    let levels: Vec<f64> = text
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    assert_eq!(levels.len(), 3, "{text}");
    for (found, wanted) in levels.into_iter().zip([10.0, 25.0, 50.0]) {
        assert!((found - wanted).abs() < 0.25 * wanted, "{text}");
    }
}

#[tokio::test]
async fn a_sound_is_written_down_by_our_worker_in_each_form() {
    let app = app().await;
    let studio = listener(&app, SamplePipeline::default()).await;
    let answer = hear(&app, TRANSCRIPTIONS, &[], &steps()).await;
    let job = answer.header("x-job-id").map(str::to_owned);
    let (status, body) = (answer.status, answer.json().await);
    assert_eq!(status, StatusCode::OK, "{body}");
    assert!(job.is_some());
    check_levels(body["text"].as_str().unwrap());
    assert_eq!(body["usage"], json!({"type": "duration", "seconds": 3}));

    let verbose = [
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
        ("language", "german"),
    ];
    let body = hear(&app, TRANSCRIPTIONS, &verbose, &steps())
        .await
        .json()
        .await;
    assert_eq!(
        (&body["language"], &body["duration"]),
        (&json!("german"), &json!(2.5))
    );
    let words = body["words"].as_array().unwrap();
    assert_eq!(
        (words.len(), &words[1]["start"]),
        (3, &json!(1.0)),
        "{body}"
    );
    assert!(body.get("segments").is_none());
    // The sample hears the last language of those that its job names.
    let several = [
        ("response_format", "verbose_json"),
        ("languages[]", "de"),
        ("languages[]", "fr"),
    ];
    let body = hear(&app, TRANSCRIPTIONS, &several, &steps()).await;
    assert_eq!(body.json().await["language"], "french");

    let srt = hear(
        &app,
        TRANSCRIPTIONS,
        &[("response_format", "srt")],
        &steps(),
    )
    .await;
    assert_eq!(
        srt.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let srt = srt.text().await;
    assert!(srt.contains("3\n00:00:02,000 --> 00:00:02,500\n"), "{srt}");

    let logprobs = ("include[]", "logprobs");
    let body = hear(&app, TRANSCRIPTIONS, &[logprobs], &steps()).await;
    let body = body.json().await;
    let found = body["logprobs"].as_array().unwrap();
    assert_eq!((found.len(), &found[0]["logprob"]), (3, &json!(-0.25)));
    let token = found[0]["token"].as_str().unwrap();
    assert_eq!(found[0]["bytes"], json!(token.as_bytes()));
    let fields = [logprobs, ("stream", "true")];
    let events = hear(&app, TRANSCRIPTIONS, &fields, &steps()).await;
    let events = events.text().await;
    assert!(events.matches(r#""logprobs":[{"#).count() >= 2, "{events}");

    let stream = hear(&app, TRANSCRIPTIONS, &[("stream", "true")], &steps()).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    let events = stream.text().await;
    let data = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let data: Vec<&str> = data.collect();
    let first: Value = serde_json::from_str(data[0]).unwrap();
    assert_eq!(first["type"], "transcript.text.delta");
    let last: Value = serde_json::from_str(data[data.len() - 2]).unwrap();
    assert_eq!(last["type"], "transcript.text.done");
    check_levels(last["text"].as_str().unwrap());
    assert_eq!(data.last(), Some(&"[DONE]"));

    let answer = hear(&app, "/v1/audio/translations", &[], &steps()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(studio.worker.activity().done, 8);
}

/// Six seconds of silence, a sentence of demo-speech of two and a half, and as much silence again.
fn sentence_in_silence() -> Vec<u8> {
    let sentence = include_bytes!("../../models/demo-hearing/reference.wav");
    let sentence = sound::listen(sentence, 16_000, 10.0).unwrap();
    let silence = vec![0.0; 6 * 16_000];
    let samples = [&silence, sentence.samples(), &silence].concat();
    let sound = sound::Sound::new(16_000, 1, samples).unwrap();
    sound::to_wav(&sound, sound::WavFormat::Int16).unwrap()
}

#[tokio::test]
async fn with_vad_filter_only_speech_is_transcribed_and_times_are_those_of_the_whole_sound() {
    let app = app().await;
    let _studio = listener(&app, SamplePipeline::default()).await;
    let file = sentence_in_silence();
    for field in [
        ("vad_filter", "true"),
        ("chunking_strategy[type]", "server_vad"),
    ] {
        let fields = [field, ("response_format", "verbose_json")];
        let body = hear(&app, TRANSCRIPTIONS, &fields, &file).await;
        let body = body.json().await;
        let duration = body["duration"].as_f64().unwrap();
        assert!((14.0..15.0).contains(&duration), "{body}");
        let paid = body["usage"]["seconds"].as_u64().unwrap();
        assert!((3..=5).contains(&paid), "{body}");
        let segments = body["segments"].as_array().unwrap();
        let first = segments[0]["start"].as_f64().unwrap();
        assert!((5.4..6.4).contains(&first), "{body}");
        let last = segments.last().unwrap()["end"].as_f64().unwrap();
        assert!((7.5..9.6).contains(&last), "{body}");
    }
    let plain = hear(&app, TRANSCRIPTIONS, &[], &file).await.json().await;
    assert_eq!(plain["usage"]["seconds"], 15, "{plain}");

    let silence = sound::Sound::new(8_000, 1, vec![0.0; 24_000]).unwrap();
    let silence = sound::to_wav(&silence, sound::WavFormat::Int16).unwrap();
    for more in [("stream", "false"), ("stream", "true")] {
        let fields = [("vad_filter", "true"), ("response_format", "text"), more];
        let answer = hear(&app, TRANSCRIPTIONS, &fields, &silence).await;
        assert_eq!(answer.status, StatusCode::OK);
        let text = answer.text().await;
        match more.1 {
            "true" => {
                assert!(text.contains(r#""text":"""#), "{text}");
                assert!(!text.contains("transcript.text.delta"), "{text}");
            }
            _ => assert_eq!(text, "\n"),
        }
    }
}

#[tokio::test]
async fn sounds_that_cannot_be_heard_are_refused_before_a_worker_sees_them() {
    let app = app().await;
    let studio = listener(&app, SamplePipeline::default()).await;
    let check = async |file: &[u8], words: &str| {
        let answer = hear(&app, TRANSCRIPTIONS, &[], file).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let error = answer.json().await["error"].clone();
        assert_eq!(error["param"], "file", "{error}");
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{error}"
        );
    };
    check(b"", "no sound").await;
    check(&[0; 4096], "no sound").await;
    check(png(8, 8).as_bytes(), "no sound").await;
    check(&steps()[..100_000], "truncated").await;
    let silence = sound::Sound::new(8_000, 1, vec![0.0; 5 * 3600 * 8_000]).unwrap();
    let hours = sound::to_wav(&silence, sound::WavFormat::Int16).unwrap();
    check(&hours[..44 + 1000], "truncated").await;
    assert_eq!(studio.worker.activity().failed, 0);

    let _player = player(&app, SamplePipeline::default()).await;
    let other = hear(&app, TRANSCRIPTIONS, &[("model", "plays")], &steps()).await;
    assert_eq!(other.status, StatusCode::BAD_REQUEST);
    let chat = json!({"model": "hears", "messages": [{"role": "user", "content": "hello"}]});
    let chat = app.chat(&chat).await;
    assert_eq!(chat.status, StatusCode::BAD_REQUEST);
    let error = chat.json().await["error"].clone();
    let route = "send transcription requests for it to POST /v1/audio/transcriptions";
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(route), "{error}");
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_transcript() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let studio = listener(&app, sample).await;
    let file = steps();
    tokio::select! {
        _ = hear(&app, TRANSCRIPTIONS, &[], &file) => unreachable!("no block was let through"),
        () = running(&studio.maker, 1) => {}
    }
    eventually("the job to be cancelled", async || {
        let activity = studio.worker.activity();
        if activity.cancelled == 1 {
            Ok(())
        } else {
            Err(activity)
        }
    })
    .await;
    drop(gate);
}

#[tokio::test]
async fn a_client_that_leaves_a_transcript_pays_for_what_was_written() {
    let rates = ModelRates::default().with(Kind::Transcription, Some(MicroUsd(6000)));
    let app = App::listening(DoorSettings {
        price_book: PriceBook::new(None).with("hears", [], rates),
        ..charging()
    })
    .await;
    let rig = Puppet::of_kind(&app.board, "hears", job::Kind::Transcription).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 1000).await;
    let (fields, file) = (&[("stream", "true")][..], steps());
    let heard = async {
        let offer = rig.offer().await;
        let segment = TranscriptSegment {
            end: 1.0,
            text: " one".to_owned(),
            ..TranscriptSegment::default()
        };
        let part = Transcript {
            language: "en".to_owned(),
            segments: vec![segment],
        };
        let part = ResultPart::Transcript(Box::new(part));
        rig.say(&offer, [Event::Part(Box::new(part))]).await;
        offer
    };
    let asked = hear_as(&app, &key, TRANSCRIPTIONS, (fields, &file));
    let (mut answer, offer) = tokio::join!(asked, heard);
    while !answer.frame().await.unwrap().contains("one") {}
    assert_eq!(money(&app, &key).await, (750, 250));
    drop(answer);
    rig.cancelled(&offer).await;
    eventually("the rest of the hold to be given back", async || {
        let money = money(&app, &key).await;
        if money == (900, 0) {
            Ok(())
        } else {
            Err(money)
        }
    })
    .await;
}

pub async fn speaker(app: &App, sample: SamplePipeline) -> Studio {
    let model = MediaModel {
        voices: ["af_alloy", "am_adam"].map(str::to_owned).to_vec(),
        ..MediaModel::new("speaks", Kind::Speech)
    };
    serving(app, "speaker", model, sample, dial(app)).await
}

const SPEECH: &str = "/v1/audio/speech";

pub async fn say(app: &App, more: Value) -> Answer {
    say_as(app, &app.key, more).await
}

async fn say_as(app: &App, key: &str, more: Value) -> Answer {
    let body = json!({"model": "speaks", "input": "Hello there."});
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(with(body, more).to_string());
    app.send(request(Method::POST, SPEECH, &headers, body))
        .await
}

/// A second of a tone of half the full scale, at 24 kHz.
#[track_caller]
fn check_tone(samples: &[u8]) {
    assert_eq!(samples.len(), 48_000);
    let pairs = samples.chunks_exact(2);
    let levels = pairs.map(|pair| i16::from_le_bytes([pair[0], pair[1]]).unsigned_abs());
    let loudest = levels.max().unwrap();
    assert!((16_300..16_400).contains(&loudest), "{loudest}");
}

#[tokio::test]
async fn words_that_a_small_model_does_not_know_are_named() {
    let words = KnownWords::of("a cat hello there");
    let known_words = [MODEL, "speaks", "plays"].map(|model| (model.to_owned(), words.clone()));
    let app = App::listening(DoorSettings {
        known_words: known_words.into(),
        ..DoorSettings::default()
    })
    .await;
    let _drawer = studio(&app, "drawer", SamplePipeline::default()).await;
    let _speaker = speaker(&app, SamplePipeline::default()).await;
    let _player = player(&app, SamplePipeline::default()).await;
    let unknown = |answer: &Answer| answer.header("x-unknown-words").map(str::to_owned);

    let known = generate(&app, json!({})).await;
    assert_eq!((known.status, unknown(&known)), (StatusCode::OK, None));
    let prompt = json!({"prompt": "A große cat, a dragon"});
    let drawn = generate(&app, prompt).await;
    assert_eq!(unknown(&drawn).as_deref(), Some("gro%C3%9Fe, dragon"));
    assert_eq!(unknown(&say(&app, json!({})).await), None);
    let spoken = say(&app, json!({"input": "Hello you"})).await;
    assert_eq!(unknown(&spoken).as_deref(), Some("you"));
    let song = json!({"model": "plays", "prompt": "a waltz", "seconds": 1, "async": true});
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(song.to_string());
    let path = "/v1/audio/generations";
    let played = app.send(request(Method::POST, path, &headers, body)).await;
    assert_eq!(played.status, StatusCode::ACCEPTED);
    assert_eq!(unknown(&played).as_deref(), Some("waltz"));
    let entry = app.get("/v1/models/speaks").await.json().await;
    assert_eq!(entry["known_words"], json!(["a", "cat", "hello", "there"]));
}

#[tokio::test]
async fn a_text_is_spoken_by_our_worker_as_each_type_of_file() {
    let app = app().await;
    let studio = speaker(&app, SamplePipeline::default()).await;
    let mp3 = say(&app, json!({"voice": "onyx", "instructions": "whisper"})).await;
    assert_eq!(mp3.header("content-type"), Some("audio/mpeg"));
    assert_eq!(mp3.header("x-voice"), Some("am_adam"));
    assert_eq!(mp3.header("x-ignored-fields"), Some("instructions"));
    let heard = sound::listen(&mp3.bytes().await, 24_000, 60.0).unwrap();
    assert!((heard.seconds() - 1.0).abs() < 0.01, "{}", heard.seconds());

    let wav = say(
        &app,
        json!({"voice": "alloy", "response_format": "wav", "seed": 7}),
    )
    .await;
    assert_eq!(wav.status, StatusCode::OK);
    assert_eq!(wav.header("content-type"), Some("audio/wav"));
    assert!(wav.header("x-job-id").is_some());
    assert_eq!(wav.header("x-skipped-characters"), None);
    let wav = wav.bytes().await;
    assert_eq!(wav[40..44], 48_000_u32.to_le_bytes());
    check_tone(&wav[44..]);

    let foreign = json!({"input": "Hello 世界 α!", "response_format": "pcm", "speed": 1.5});
    let pcm = say(&app, foreign).await;
    assert_eq!(pcm.header("x-skipped-characters"), Some("U+4E16, U+754C"));
    assert_eq!(pcm.header("content-type"), Some("audio/pcm"));
    check_tone(&pcm.bytes().await);

    let more = json!({"stream_format": "audio", "response_format": "wav"});
    let streamed = say(&app, more).await;
    let streamed = streamed.bytes().await;
    assert_eq!(streamed[40..44], u32::MAX.to_le_bytes());
    check_tone(&streamed[44..]);

    for (form, content_type) in [("flac", "audio/flac"), ("opus", "audio/ogg")] {
        let file = say(&app, json!({"response_format": form})).await;
        assert_eq!(file.header("content-type"), Some(content_type));
        let heard = sound::listen(&file.bytes().await, 24_000, 60.0).unwrap();
        assert!((heard.seconds() - 1.0).abs() < 0.01, "{form}");
    }

    for (form, content_type) in [("opus", "audio/ogg"), ("mp3", "audio/mpeg")] {
        let more = json!({"response_format": form, "stream_format": "audio"});
        let file = say(&app, more).await;
        assert_eq!(file.header("content-type"), Some(content_type));
        let heard = sound::listen(&file.bytes().await, 24_000, 60.0).unwrap();
        // A stream of mp3 does not say what its delay is.
        assert!((heard.seconds() - 1.0).abs() < 0.1, "{form}");
    }

    for (form, content_type) in [
        ("wav", "audio/wav"),
        ("flac", "audio/flac"),
        ("opus", "audio/ogg"),
        ("mp3", "audio/mpeg"),
    ] {
        let more = json!({"response_format": form, "stream_format": "sse"});
        let stream = say(&app, more).await;
        assert_eq!(stream.header("content-type"), Some("text/event-stream"));
        let events = stream.text().await;
        let data = events
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        let (last, deltas) = events.split_last().unwrap();
        assert_eq!(
            (&last["type"], &last["usage"]["input_tokens"]),
            (&json!("speech.audio.done"), &json!(12))
        );
        let bytes = deltas.iter().flat_map(|event| {
            assert_eq!(event["type"], "speech.audio.delta");
            STANDARD.decode(event["audio"].as_str().unwrap()).unwrap()
        });
        let file: Vec<u8> = bytes.collect();
        let kind = MediaType::sniff(&file).unwrap();
        assert_eq!(kind.content_type(), content_type);
        // Of a flac the length is told at its beginning.
        let is_streamed = form != "flac";
        let is_encoded = matches!(form, "opus" | "mp3");
        assert_eq!(deltas.len() > 1, is_streamed && is_encoded, "{form}");
        let heard = sound::listen(&file, 24_000, 60.0);
        assert!(form == "wav" || (heard.unwrap().seconds() - 1.0).abs() < 0.1);
    }
    assert_eq!(studio.worker.activity().done, 12);

    let longest = "a".repeat(muster::protocol::job::most_spoken(1.0) as usize);
    let long = say(&app, json!({"input": longest})).await;
    assert_eq!(long.status, StatusCode::OK);
    let later = say(&app, json!({"input": longest, "async": true})).await;
    assert_eq!(later.status, StatusCode::ACCEPTED);

    let music = play(&app, &app.key, json!({"model": "speaks"})).await;
    assert_eq!(music.status, StatusCode::OK);
}

#[tokio::test]
async fn models_that_hear_and_speak_are_listed_as_audio() {
    let app = app().await;
    let _studio = speaker(&app, SamplePipeline::default()).await;
    let _listener = listener(&app, SamplePipeline::default()).await;
    let _player = player(&app, SamplePipeline::default()).await;
    let listed = app.get("/v1/status/models").await.json().await;
    let listed = listed.as_array().unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|model| (&model["name"], &model["type"], &model["max_context_length"]))
        .collect();
    let (audio, none) = (json!("audio"), Value::Null);
    let names = ["hears", "plays", "speaks"].map(Value::from);
    assert_eq!(listed, names.each_ref().map(|name| (name, &audio, &none)));
    let status = app.get("/v1/status").await.json().await;
    assert_eq!(status["models"]["by_type"], json!({"audio": 3}));
    let network = app.get("/v1/status/network").await.json().await;
    let network = network["capacity"]["models"].as_array().unwrap();
    assert!(network.iter().all(|model| model["type"] == audio));
    // A client that asks the AI Horde API for texts could get none of these.
    let texts = app.get("/api/v2/status/models?type=text").await;
    assert_eq!(texts.json().await, json!([]));

    let params = async |name: &str| {
        app.get(&format!("/v1/models/{name}/params"))
            .await
            .json()
            .await
    };
    let speaks = params("speaks").await;
    assert_eq!(speaks["route"], "/v1/audio/speech");
    let voices = json!({"type": "string", "options": ["af_alloy", "am_adam"]});
    assert_eq!(speaks["params"]["voice"], voices);
    assert_eq!(speaks["params"]["speed"]["maximum"], 4.0);
    assert_eq!(params("hears").await["route"], "/v1/audio/transcriptions");
    assert_eq!(params("plays").await["route"], "/v1/audio/generations");
    // A request of another kind is told the same route.
    for (model, kind, route) in [
        ("speaks", "speech", "/v1/audio/speech"),
        ("hears", "transcription", "/v1/audio/transcriptions"),
    ] {
        let refused = generate(&app, json!({"model": model})).await;
        let told = refused.json().await["error"]["message"].to_string();
        assert!(
            told.contains(&format!("{kind} requests for it to POST {route}")),
            "{told}"
        );
    }
}

#[tokio::test]
async fn voices_are_listed_and_unknown_ones_refused() {
    let app = app().await;
    let _studio = speaker(&app, SamplePipeline::default()).await;
    let _player = player(&app, SamplePipeline::default()).await;
    for query in ["", "?model=speaks"] {
        let listed = app.get(&format!("/v1/audio/voices{query}")).await;
        let listed = listed.json().await;
        let voices = ["af_alloy", "am_adam"].map(|name| json!({"id": name, "name": name}));
        assert_eq!(listed["voices"], json!(voices));
        assert_eq!(listed["data"][0]["models"], json!(["speaks"]));
    }
    let none = app.get("/v1/audio/voices?model=plays").await;
    assert_eq!(none.json().await["voices"], json!([]));
    let other = app.get("/v1/audio/voices?model=other").await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);

    let check = async |more: Value, param: &str, words: &str| {
        let answer = say(&app, more).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let error = answer.json().await["error"].clone();
        assert_eq!(error["param"], param, "{error}");
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{error}"
        );
    };
    check(json!({"voice": "novella"}), "voice", "af_alloy, am_adam").await;
    check(json!({"response_format": "aac"}), "response_format", "flac").await;
    check(
        json!({"model": "plays"}),
        "model",
        "speech; models that do: speaks",
    )
    .await;

    let listed = app.get("/v1/models?type=all").await.json().await;
    let models = listed["data"].as_array().unwrap();
    let one = models.iter().find(|model| model["id"] == "speaks").unwrap();
    assert_eq!(one["output_modalities"], json!(["audio"]));
    let chat = json!({"model": "speaks", "messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(app.chat(&chat).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_speech_whose_worker_is_lost_begins_anew_on_another() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let first = speaker(&app, sample).await;
    let lost = async {
        open(&gate, 1);
        running(&first.maker, 1).await;
        let second = speaker(&app, SamplePipeline::default()).await;
        assert!(first.tasks.stop(Duration::from_secs(5)).await);
        drop(gate);
        second
    };
    let (spoken, second) = tokio::join!(say(&app, json!({"response_format": "pcm"})), lost);
    check_tone(&spoken.bytes().await);
    assert_eq!(second.worker.activity().done, 1);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_speech() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let studio = speaker(&app, sample).await;
    tokio::select! {
        _ = say(&app, json!({})) => unreachable!("no block was let through"),
        () = running(&studio.maker, 1) => {}
    }
    eventually("the job to be cancelled", async || {
        let activity = studio.worker.activity();
        if activity.cancelled == 1 {
            Ok(())
        } else {
            Err(activity)
        }
    })
    .await;
    drop(gate);
}

pub async fn get(app: &App, key: &str, path: &str) -> Value {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let answer = app
        .send(request(Method::GET, path, &headers, Body::empty()))
        .await;
    let (status, body) = (answer.status, answer.json().await);
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

/// The link to the results of a request that is served later.
pub async fn accepted(answer: Answer) -> Value {
    let (status, body) = (answer.status, answer.json().await);
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    assert_eq!(body["is_possible"], true);
    body["links"].clone()
}

pub async fn finished(app: &App, links: &Value) -> Value {
    let path = links["results"].as_str().unwrap();
    eventually("the results", async || {
        let results = get(app, &app.key, path).await;
        match results["state"] == "pending" {
            false => Ok(results),
            true => Err(results),
        }
    })
    .await
}

/// The linked document, and its type.
async fn document(app: &App, results: &Value) -> (String, String) {
    assert_eq!(results["state"], "completed", "{results}");
    let media = results["result"]["media"].as_array().unwrap();
    assert_eq!(media.len(), 1, "{results}");
    let link = Url::parse(media[0]["url"].as_str().unwrap()).unwrap();
    let path = format!("{}?{}", link.path(), link.query().unwrap());
    let fetched = app.get(&path).await;
    assert_eq!(fetched.status, StatusCode::OK);
    let kind = fetched.header("content-type").unwrap().to_owned();
    let bytes = fetched.bytes().await;
    let digest = Sha256::digest(&bytes);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(media[0]["sha256"], digest);
    (kind, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn a_transcript_that_is_served_later_survives_a_restart() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let first = listener(&app, sample).await;
    let fields = [
        ("async", "true"),
        ("client_ref", "talk"),
        ("progress_token", "a-long-talk"),
        ("response_format", "srt"),
    ];
    let links = accepted(hear(&app, TRANSCRIPTIONS, &fields, &steps()).await).await;
    running(&first.maker, 1).await;
    let path = "/v1/media/results?client_ref=talk";
    assert_eq!(get(&app, &app.key, path).await["state"], "pending");
    assert_eq!(app.sources(), 1);
    assert!(first.tasks.stop(Duration::from_secs(5)).await);
    drop((first, gate));

    let app = app.anew_listening().await;
    assert_eq!(get(&app, &app.key, path).await["state"], "pending");
    let second = listener(&app, SamplePipeline::default()).await;
    let results = finished(&app, &links).await;
    assert_eq!(results["result"]["worker"], "listener");
    let (kind, srt) = document(&app, &results).await;
    assert_eq!(kind, "application/x-subrip; charset=utf-8");
    assert!(srt.contains("3\n00:00:02,000 --> 00:00:02,500\n"), "{srt}");
    let progress = app.get("/v1/progress/a-long-talk").await.json().await;
    assert_eq!(progress["progress"], 100);
    eventually("the sound to be deleted", async || {
        (app.sources() == 0).then_some(())
    })
    .await;
    assert_eq!(second.worker.activity().done, 1);
    drop(second);

    let app = app.anew_listening().await;
    let again = document(&app, &finished(&app, &links).await).await;
    assert_eq!(again, (kind, srt));
}

#[tokio::test]
async fn transcripts_come_later_in_each_form_and_are_cancelled_by_their_link() {
    let app = app().await;
    let studio = listener(&app, SamplePipeline::default()).await;
    let verbose = [
        ("async", "true"),
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
    ];
    let links = accepted(hear(&app, TRANSCRIPTIONS, &verbose, &steps()).await).await;
    let (kind, text) = document(&app, &finished(&app, &links).await).await;
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (kind.as_str(), &body["duration"]),
        ("application/json", &json!(2.5))
    );
    assert_eq!(body["words"].as_array().unwrap().len(), 3);

    let text = [("async", "true"), ("response_format", "text")];
    let answer = hear(&app, "/v1/audio/translations", &text, &steps()).await;
    let links = accepted(answer).await;
    let (kind, text) = document(&app, &finished(&app, &links).await).await;
    assert_eq!(kind, "text/plain; charset=utf-8");
    check_levels(&text);

    let _player = player(&app, SamplePipeline::default()).await;
    let other = [("async", "true"), ("model", "plays")];
    let other = hear(&app, TRANSCRIPTIONS, &other, &steps()).await;
    assert_eq!(other.status, StatusCode::BAD_REQUEST);
    assert_eq!(other.json().await["error"]["param"], "model");
    let unknown = [("async", "true"), ("model", "nobody")];
    let unknown = hear(&app, TRANSCRIPTIONS, &unknown, &steps()).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert!(studio.tasks.stop(Duration::from_secs(5)).await);

    let (sample, gate) = SamplePipeline::default().gated();
    let slow = listener(&app, sample).await;
    let later = [("async", "true")];
    let links = accepted(hear(&app, TRANSCRIPTIONS, &later, &steps()).await).await;
    running(&slow.maker, 1).await;
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let cancel = links["cancel"].as_str().unwrap();
    let cancel = request(Method::POST, cancel, &headers, Body::from("{}"));
    assert_eq!(app.send(cancel).await.status, StatusCode::OK);
    let results = finished(&app, &links).await;
    assert_eq!(
        (&results["state"], &results["error"]),
        (&json!("closed_without_result"), &json!("cancelled"))
    );
    eventually("the sounds to be deleted", async || {
        (app.sources() == 0).then_some(())
    })
    .await;
    drop(gate);
}

#[tokio::test]
async fn a_speech_that_is_served_later_survives_a_restart() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let first = speaker(&app, sample).await;
    let more = json!({"async": true, "response_format": "flac", "voice": "alloy", "speed": 2});
    let links = accepted(say(&app, more).await).await;
    running(&first.maker, 1).await;
    assert!(first.tasks.stop(Duration::from_secs(5)).await);
    drop((first, gate));

    let app = app.anew_listening().await;
    let _player = player(&app, SamplePipeline::default()).await;
    let _second = speaker(&app, SamplePipeline::default()).await;
    let results = finished(&app, &links).await;
    assert_eq!(results["state"], "completed", "{results}");
    let file = linked(&app, &results["result"]["media"][0]["url"]).await;
    assert_eq!(MediaType::sniff(&file), Some(MediaType::Flac));
    let heard = sound::listen(&file, 24_000, 60.0).unwrap();
    assert!((heard.seconds() - 1.0).abs() < 0.01, "{}", heard.seconds());

    let voice = say(&app, json!({"async": true, "voice": "novella"})).await;
    assert_eq!(voice.status, StatusCode::BAD_REQUEST);
    let other = say(&app, json!({"async": true, "model": "plays"})).await;
    assert_eq!(other.status, StatusCode::BAD_REQUEST);
    assert_eq!(other.json().await["error"]["param"], "model");
}

#[tokio::test]
async fn sounds_are_paid_by_the_minute_and_speech_by_the_character() {
    let rates = ModelRates::default()
        .with(Kind::Transcription, Some(MicroUsd(6000)))
        .with(Kind::Speech, Some(MicroUsd(10_000_000)));
    let book = PriceBook::new(None);
    let book = book
        .with("hears", [], rates)
        .with("speaks", ["says"], rates);
    let app = App::listening(DoorSettings {
        price_book: book,
        ..charging()
    })
    .await;
    let listener = listener(&app, SamplePipeline::default()).await;
    let _speaker = speaker(&app, SamplePipeline::default()).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    let listed = app.get("/v1/pricing").await.json().await;
    let listed = listed["price_book"]["models"].as_array().unwrap().clone();
    let listed = listed.iter().find(|model| model["model"] == "hears");
    let listed = &listed.unwrap()["rates"];
    assert_eq!(listed["per_minute_heard_usd"], json!(0.006));
    assert_eq!(listed["per_mchar_spoken_usd"], json!(10.0));

    let file = steps();
    for fields in [&[][..], &[("async", "true")]] {
        let refused = hear_as(&app, &key, TRANSCRIPTIONS, (fields, &file)).await;
        assert_eq!(refused.status, StatusCode::PAYMENT_REQUIRED);
    }
    for more in [json!({}), json!({"async": true})] {
        let refused = say_as(&app, &key, more).await;
        assert_eq!(refused.status, StatusCode::PAYMENT_REQUIRED);
    }
    eventually("the sounds to be deleted", async || {
        (app.sources() == 0).then_some(())
    })
    .await;
    assert_eq!(listener.worker.activity().done, 0);

    let quote = async |body: Value| {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str())];
        let body = Body::from(body.to_string());
        let path = "/v1/account/credits/quote";
        let answer = app.send(request(Method::POST, path, &headers, body)).await;
        answer.json().await["estimate"]["cost_micro"]
            .as_i64()
            .unwrap()
    };
    let minutes = json!({"model": "hears", "modality": "transcript", "seconds": 2.5});
    assert_eq!(quote(minutes).await, 250);
    let characters = json!({"model": "says", "modality": "speech", "characters": 12});
    assert_eq!(quote(characters).await, 120);

    pay(&app, &key, 1000).await;
    let heard = hear_as(&app, &key, TRANSCRIPTIONS, (&[], &file)).await;
    assert_eq!(heard.status, StatusCode::OK);
    drop(heard.text().await);
    assert_eq!(money(&app, &key).await, (750, 0));
    let said = say_as(&app, &key, json!({})).await;
    assert_eq!(said.status, StatusCode::OK);
    drop(said.bytes().await);
    assert_eq!(money(&app, &key).await, (630, 0));

    assert!(listener.tasks.stop(Duration::from_secs(5)).await);
    let (sample, gate) = SamplePipeline::default().gated();
    let slow = self::listener(&app, sample).await;
    let later = &[("async", "true")][..];
    let links = hear_as(&app, &key, TRANSCRIPTIONS, (later, &file)).await;
    let links = accepted(links).await;
    running(&slow.maker, 1).await;
    assert_eq!(money(&app, &key).await, (380, 250));
    let cancel = links["cancel"].as_str().unwrap();
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let cancel = request(Method::POST, cancel, &headers, Body::from("{}"));
    assert_eq!(app.send(cancel).await.status, StatusCode::OK);
    eventually("the hold to be given back", async || {
        let money = money(&app, &key).await;
        if money == (630, 0) {
            Ok(())
        } else {
            Err(money)
        }
    })
    .await;
    drop(gate);

    let links = accepted(say_as(&app, &key, json!({"async": true})).await).await;
    let path = links["results"].as_str().unwrap();
    let spoken = eventually("the speech", async || {
        let results = get(&app, &key, path).await;
        match results["state"] == "completed" {
            true => Ok(results),
            false => Err(results),
        }
    })
    .await;
    assert_eq!(spoken["actual_micro"], 120, "{spoken}");
    assert_eq!(money(&app, &key).await, (510, 0));
    // A speech costs the same kudos at once and later, and counts as sound as transcripts do.
    let jobs = get(&app, &key, "/v1/account/jobs").await;
    let jobs = jobs["jobs"].as_array().unwrap().clone();
    let kinds: Vec<&str> = jobs
        .iter()
        .map(|job| job["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["audio"; 4]);
    let spoken = jobs.iter().filter(|job| job["model"] == "speaks");
    let kudos: Vec<f64> = spoken.map(|job| job["kudos"].as_f64().unwrap()).collect();
    assert_eq!(kudos, [1.1, 1.1], "{jobs:?}");
}

/// The small model of music at the lowest rate that is taken from workers.
fn music_at_16_khz() -> tempfile::TempDir {
    let from = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny-music");
    let to = tempfile::tempdir().unwrap();
    copy(&from, to.path());
    let config = to.path().join("vae/config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains("\"sampling_rate\": 8000"), "{text}");
    let faster = text.replace("\"sampling_rate\": 8000", "\"sampling_rate\": 16000");
    std::fs::write(&config, faster).unwrap();
    to
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[tokio::test]
async fn a_song_is_made_by_a_model_of_our_worker() {
    let app = app().await;
    let folder = music_at_16_khz();
    let source = MusicSource::new(folder.path().to_owned());
    let pipeline = source.load(DeviceChoice::Cpu).unwrap();
    let model = MediaModel::new("plays", Kind::Music);
    let folders = AdapterFolders::default();
    let studio = serving_from(&app, "band", model, pipeline, (dial(&app), folders)).await;
    let song = json!({
        "prompt": "a calm piano", "lyrics": "[verse]\nRain falls", "seconds": 2, "seed": 7, "bpm": 96,
        "key_scale": "D minor", "time_signature": "3/4", "vocal_language": "en", "inference_steps": 3,
    });
    let made = async |more: Value| {
        let answer = play(&app, &app.key, with(song.clone(), more)).await;
        let (status, body) = (answer.status, answer.json().await);
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(body["grid"]["worker"], "band");
        linked(&app, &body["data"][0]["url"]).await
    };
    let wav = made(json!({})).await;
    let header = sound::inspect(&wav, MediaType::Wav).unwrap();
    assert!((header.seconds() - 2.0).abs() < 0.01, "{header:?}");
    assert_eq!(made(json!({})).await, wav, "the seed repeats");
    assert_ne!(made(json!({"seed": 8})).await, wav);
    assert_ne!(made(json!({"bpm": 97})).await, wav);
    let short = made(json!({"inference_steps": null, "response_format": "flac"})).await;
    assert_eq!(MediaType::sniff(&short), Some(MediaType::Flac));
    assert_eq!(studio.worker.activity().done, 5);

    let long = json!({"lyrics": "la ".repeat(5000)});
    let refused = play(&app, &app.key, with(song.clone(), long)).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let message = refused.json().await["error"]["message"].to_string();
    assert!(
        message.contains("lyrics has more than the 2048 tokens"),
        "{message}"
    );
}

pub async fn filmer(app: &App, sample: SamplePipeline) -> Studio {
    let model = MediaModel {
        size: Some((64, 64)),
        clip: Some((8, 17)),
        ..MediaModel::new("films", Kind::Video)
    };
    serving(app, "filmer", model, sample, dial(app)).await
}

pub async fn film(app: &App, more: Value) -> Answer {
    let body = json!({"model": "films", "prompt": "a white square moves to the right"});
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(with(body, more).to_string());
    app.send(request(
        Method::POST,
        "/v1/videos/generations",
        &headers,
        body,
    ))
    .await
}

#[tokio::test]
async fn a_video_is_made_by_our_worker_in_the_size_that_suits_its_model() {
    let app = app().await;
    let studio = filmer(&app, SamplePipeline::default()).await;
    let answer = film(&app, json!({})).await;
    let (status, body) = (answer.status, answer.json().await);
    assert_eq!(status, StatusCode::OK, "{body}");
    let file = linked(&app, &body["data"][0]["url"]).await;
    assert_eq!(MediaType::sniff(&file), Some(MediaType::Mp4));
    // Width, height and the count of frames as the tables of the file have them.
    let place = |name: &[u8]| file.windows(4).position(|four| four == name).unwrap();
    let entry = place(b"avc1");
    assert_eq!(file[entry + 28..entry + 32], [0, 64, 0, 64]);
    let sizes = place(b"stsz");
    assert_eq!(file[sizes + 12..sizes + 16], 17_u32.to_be_bytes());

    let more = json!({"size": "320x256", "seconds": 2, "fps": 8});
    let answer = film(&app, more).await;
    let file = linked(&app, &answer.json().await["data"][0]["url"]).await;
    assert_eq!(MediaType::sniff(&file), Some(MediaType::Mp4));
    let odd = film(&app, json!({"sampler": "k_euler"})).await;
    assert_eq!(odd.status, StatusCode::BAD_REQUEST);
    assert_eq!(studio.worker.activity().done, 2);
}

async fn order(app: &App, path: &str, body: Value) -> Value {
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(body.to_string());
    let answer = app.send(request(Method::POST, path, &headers, body)).await;
    let (status, body) = (answer.status, answer.json().await);
    assert!(status.is_success(), "{body}");
    body
}

/// The files of orders that came while their workers were away, after a restart of the coordinator.
#[tokio::test]
async fn what_is_asked_for_while_workers_are_away_has_the_defaults_of_their_models() {
    let app = app().await;
    let orders = [
        (
            "/v1/videos/generations",
            json!({"model": "films", "prompt": "a square"}),
        ),
        (ROUTE, json!({"model": MODEL, "prompt": "a cat"})),
        (
            "/v1/audio/generations",
            json!({"model": "speaks", "prompt": "Hello there."}),
        ),
    ];
    // A model is known once it was asked for.
    let workers = (
        filmer(&app, SamplePipeline::default()).await,
        studio(&app, "artist", SamplePipeline::default()).await,
        speaker(&app, SamplePipeline::default()).await,
    );
    for (path, body) in &orders {
        order(&app, path, body.clone()).await;
    }
    for worker in [workers.0, workers.1, workers.2] {
        assert!(worker.tasks.stop(Duration::from_secs(5)).await);
    }
    let mut links = Vec::new();
    for (path, body) in orders {
        let accepted = order(&app, path, with(body, json!({"async": true}))).await;
        links.push(accepted["links"].clone());
    }
    let video = order(
        &app,
        "/v1/videos",
        json!({"model": "films", "prompt": "a square"}),
    )
    .await;
    assert_eq!(
        (&video["size"], &video["seconds"]),
        (&Value::Null, &Value::Null)
    );

    let app = app.anew_listening().await;
    let _workers = (
        filmer(&app, SamplePipeline::default()).await,
        studio(&app, "artist", SamplePipeline::default()).await,
        speaker(&app, SamplePipeline::default()).await,
    );
    let mut files = Vec::new();
    for links in &links {
        let results = finished(&app, links).await;
        assert_eq!(results["state"], "completed", "{results}");
        files.push(linked(&app, &results["result"]["media"][0]["url"]).await);
    }
    let place = |name: &[u8]| files[0].windows(4).position(|four| four == name).unwrap();
    let entry = place(b"avc1");
    assert_eq!(files[0][entry + 28..entry + 32], [0, 64, 0, 64]);
    let sizes = place(b"stsz");
    assert_eq!(files[0][sizes + 12..sizes + 16], 17_u32.to_be_bytes());
    let image = image::load_from_memory(&files[1]).unwrap();
    assert_eq!((image.width(), image.height()), (320, 192));
    // A spoken text, and no music of 30 s.
    let spoken = sound::inspect(&files[2], MediaType::Wav).unwrap();
    assert!((spoken.seconds() - 1.0).abs() < 0.01, "{spoken:?}");
    let path = format!("/v1/videos/{}", video["id"].as_str().unwrap());
    eventually("the video", async || {
        let video = get(&app, &app.key, &path).await;
        let is_made = video["status"] == "completed" && video["size"] == "64x64";
        if is_made { Ok(()) } else { Err(video) }
    })
    .await;
}

#[tokio::test]
async fn a_video_of_our_worker_has_a_thumbnail_and_a_sheet() {
    let app = app().await;
    let _studio = filmer(&app, SamplePipeline::default()).await;
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = json!({"model": "films", "prompt": "a white square"});
    let created = request(
        Method::POST,
        "/v1/videos",
        &headers,
        Body::from(body.to_string()),
    );
    let created = app.send(created).await.json().await;
    let path = format!("/v1/videos/{}", created["id"].as_str().unwrap());
    eventually("the video", async || {
        let video = get(&app, &app.key, &path).await;
        match video["status"] == "completed" {
            true => Ok(()),
            false => Err(video),
        }
    })
    .await;
    let content = async |query: &str| {
        let path = format!("{path}/content{query}");
        app.send(request(Method::GET, &path, &headers, Body::empty()))
            .await
    };
    let thumbnail = content("?variant=thumbnail").await;
    assert_eq!(thumbnail.header("content-type"), Some("image/webp"));
    let image = image::load_from_memory(&thumbnail.bytes().await).unwrap();
    assert_eq!((image.width(), image.height()), (64, 64));
    let video = content("").await;
    assert_eq!(video.header("content-type"), Some("video/mp4"));
    let sheet = content("?variant=spritesheet").await;
    assert_eq!(sheet.header("content-type"), Some("image/webp"));
    let sheet = image::load_from_memory(&sheet.bytes().await).unwrap();
    assert_eq!(sheet.width(), 4 * 64);
    let other = content("?variant=poster").await;
    assert_eq!(other.status, StatusCode::BAD_REQUEST);
}

/// OpenAI's clients for Python and Node, on workers that speak, hear and film.
#[tokio::test(flavor = "multi_thread")]
async fn the_official_clients_speak_hear_and_film() {
    let app = app().await;
    let _studios = (
        speaker(&app, SamplePipeline::default()).await,
        listener(&app, SamplePipeline::default()).await,
        filmer(&app, SamplePipeline::default()).await,
    );
    let folder = tempfile::tempdir().unwrap();
    let clients = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let mut python = Command::new(tool("MUSTER_TEST_PYTHON"));
    python.arg(clients.join("check_media.py"));
    // Modules are looked for beside the file that asks for them.
    let check = folder.path().join("check_media.mjs");
    std::fs::copy(clients.join("check_media.mjs"), &check).unwrap();
    let modules = tool("MUSTER_TEST_NODE_MODULES");
    std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).unwrap();
    let mut node = Command::new("node");
    node.arg(check);
    for mut client in [python, node] {
        client.args([&app.base, &app.key]);
        let ended = tokio::task::spawn_blocking(move || client.output());
        let ended = ended.await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{said}");
        assert_eq!(String::from_utf8_lossy(&ended.stdout).trim(), "ok");
    }
}

#[tokio::test]
async fn audio_parts_of_a_chat_are_written_down_where_the_operator_allows_it() {
    let sound = STANDARD.encode(steps());
    let chat = json!({"model": "tiny", "messages": [
        {"role": "system", "content": "Answer."},
        {"role": "user", "content": [
            {"type": "text", "text": "Listen:"},
            {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}},
        ]},
    ]});
    let refused = app().await.chat(&chat).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        refused.json().await["error"]["param"],
        "messages[1].content[1]"
    );

    let app = App::listening(DoorSettings {
        chat_audio_model: Some("hears".to_owned()),
        ..DoorSettings::default()
    })
    .await;
    let rig = Puppet::connect(&app.board).await;
    // Nothing hears yet.
    let nothing = app.chat(&chat).await;
    assert_eq!(nothing.status, StatusCode::SERVICE_UNAVAILABLE);
    let studio = listener(&app, SamplePipeline::default()).await;
    let (answer, offer) = tokio::join!(app.chat(&chat), async {
        let offer = rig.offer().await;
        rig.say(&offer, [done(FinishReason::Stop)]).await;
        offer
    });
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(studio.worker.activity().done, 1);
    let job::Body::Text(asked) = &offer.job.body else {
        panic!("a text was asked for");
    };
    let TextInput::Chat(asked) = &asked.input else {
        panic!("a chat was asked for");
    };
    let content = asked.messages[1]["content"].as_str().unwrap();
    let (text, heard) = content.split_once('\n').unwrap();
    assert_eq!(text, "Listen:");
    check_levels(heard);

    let mut broken = chat;
    broken["messages"][1]["content"][1]["input_audio"]["data"] = json!("AAAA");
    let refused = app.chat(&broken).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        refused.json().await["error"]["param"],
        "messages[1].content[1]"
    );
}

#[tokio::test]
async fn more_than_a_model_takes_is_refused_before_a_worker_sees_it() {
    let app = app().await;
    let limited = |name: &str, kind, limits| MediaModel {
        limits,
        ..MediaModel::new(name, kind)
    };
    let drawing = ModelLimits {
        pixels: Some(320 * 256),
        steps: Some(8),
        ..ModelLimits::default()
    };
    let model = limited(MODEL, Kind::Image, drawing);
    let studio = serving(&app, "small", model, SamplePipeline::default(), dial(&app)).await;
    let playing = ModelLimits {
        seconds: Some(3),
        ..ModelLimits::default()
    };
    let model = limited("plays", Kind::Music, playing);
    let player = serving(&app, "player", model, SamplePipeline::default(), dial(&app)).await;
    let speaking = ModelLimits {
        characters: Some(11),
        ..ModelLimits::default()
    };
    let model = MediaModel {
        voices: vec!["af_alloy".to_owned()],
        ..limited("speaks", Kind::Speech, speaking)
    };
    let speaker = serving(
        &app,
        "speaker",
        model,
        SamplePipeline::default(),
        dial(&app),
    )
    .await;

    generated(&app, json!({"steps": 8})).await;
    let refused = [
        (
            generate(&app, json!({"size": "384x256"})).await,
            "size",
            "98304 pixels (at most 81920)",
        ),
        (
            generate(&app, json!({"steps": 9})).await,
            "steps",
            "9 steps (at most 8)",
        ),
        (
            play(&app, &app.key, json!({"seconds": 4})).await,
            "seconds",
            "4 seconds (at most 3)",
        ),
        (
            say(&app, json!({})).await,
            "input",
            "12 characters (at most 11)",
        ),
    ];
    for (answer, param, message) in refused {
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let error = &answer.json().await["error"];
        assert_eq!(error["param"], param, "{error}");
        let said = error["message"].as_str().unwrap();
        assert!(said.contains(message), "{said}");
    }
    assert_eq!(studio.worker.activity().failed, 0);
    assert_eq!(player.worker.activity().failed, 0);
    let short = say(&app, json!({"input": "Hello there"})).await;
    assert_eq!(short.status, StatusCode::OK);
    assert_eq!(speaker.worker.activity().failed, 0);
    let params = app.get("/v1/models/speaks/params").await.json().await;
    assert_eq!(params["params"]["input"]["maxLength"], 11);

    let models = app.get("/v1/models?type=all").await.json().await;
    let entries = models["data"].as_array().unwrap().iter();
    let mut drawn = entries.filter(|entry| entry["id"] == MODEL);
    let limits = &drawn.next().unwrap()["limits"];
    assert_eq!(limits, &json!({"pixels": 81_920, "steps": 8}));
}

async fn converse(app: &App, more: Value) -> Answer {
    let body = json!({
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "You are helpful."},
            {"role": "user", "content": "a red circle"},
        ],
    });
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(with(body, more).to_string());
    app.send(request(
        Method::POST,
        "/v1/chat/completions",
        &headers,
        body,
    ))
    .await
}

#[tokio::test]
async fn a_chat_with_a_model_that_draws_answers_with_an_image() {
    let app = app().await;
    let studio = studio(&app, "studio", SamplePipeline::default()).await;
    let answer = converse(&app, json!({"seed": 5})).await;
    assert!(answer.header("x-job-id").is_some());
    let (status, reply) = (answer.status, answer.json().await);
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(reply["object"], "chat.completion");
    assert_eq!(reply["usage"]["total_tokens"], 0);
    assert_eq!(reply["grid"]["worker"], "studio");
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "stop");
    let url = &choice["message"]["images"][0]["image_url"]["url"];
    let content = choice["message"]["content"].as_str().unwrap();
    assert_eq!(content, format!("![image]({})", url.as_str().unwrap()));
    let drawn = linked(&app, url).await;
    // The model's own size, and what its own route draws.
    let same = generated(
        &app,
        json!({"seed": 5, "size": null, "prompt": "a red circle", "steps": null}),
    );
    let same = linked(&app, &same.await["data"][0]["url"]).await;
    assert_eq!(drawn, same);

    let source = format!("data:image/png;base64,{}", png(64, 64));
    let more = json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "a red circle"},
        {"type": "image_url", "image_url": {"url": source}},
    ]}]});
    let answer = converse(&app, more).await;
    assert_eq!(answer.status, StatusCode::OK);

    for (more, param) in [
        (json!({"temperature": 0.5}), "temperature"),
        (json!({"n": 2}), "n"),
        (json!({"seed": -1}), "seed"),
        (json!({"messages": []}), "messages"),
    ] {
        let answer = converse(&app, more).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert_eq!(answer.json().await["error"]["param"], param);
    }
    assert_eq!(studio.worker.activity().failed, 0);
}

#[tokio::test]
async fn a_chat_with_a_model_that_draws_or_films_is_streamed() {
    let app = app().await;
    let _studio = studio(&app, "studio", SamplePipeline::default()).await;
    let _filmer = filmer(&app, SamplePipeline::default()).await;
    for (model, list, entry) in [
        (MODEL, "images", "image_url"),
        ("films", "videos", "video_url"),
    ] {
        let more = json!({
            "model": model, "stream": true, "stream_options": {"include_usage": true},
        });
        let answer = converse(&app, more).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.header("content-type").unwrap(), "text/event-stream");
        let chunks = answer.chunks().await;
        let [opening, said, stop, usage] = &chunks[..] else {
            panic!("expected four chunks, found {chunks:?}");
        };
        let delta = |chunk: &Value| chunk["choices"][0]["delta"].clone();
        assert_eq!(delta(opening)["role"], "assistant");
        let url = &delta(said)[list][0][entry]["url"];
        assert!(!linked(&app, url).await.is_empty());
        assert_eq!(stop["choices"][0]["finish_reason"], "stop");
        assert_eq!(usage["usage"]["total_tokens"], 0);
    }
}

#[tokio::test]
async fn a_client_that_leaves_its_chat_cancels_the_image() {
    let app = app().await;
    let (sample, gate) = SamplePipeline::default().gated();
    let studio = studio(&app, "studio", sample).await;
    tokio::select! {
        _ = converse(&app, json!({})) => unreachable!("no block was let through"),
        () = running(&studio.maker, 1) => {}
    }
    eventually("the job to be cancelled", async || {
        let activity = studio.worker.activity();
        if activity.cancelled == 1 {
            Ok(())
        } else {
            Err(activity)
        }
    })
    .await;
    drop(gate);
}
