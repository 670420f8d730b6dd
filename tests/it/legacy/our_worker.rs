//! Our own worker where it is one of those that poll: at a coordinator of ours, over TCP, and at one that answers as it
//! is told to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::any};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster::coordinator::http::serve::{Connections, serve};
use muster::coordinator::state::DoorSettings;
use muster::daemon::{AdapterFolders, Engines, MediaModel, OfferTerms, Post, Served, Way, Worker};
use muster::link::{Permissions, Standing, native_tls};
use muster::media::image::description;
use muster::runtime::maker::{Maker, MakerLimits, SamplePipeline};
use muster::runtime::{DeviceChoice, EngineLimits, Runtime};
use muster::tasks::Tasks;
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use url::Url;

use super::super::link::dial;
use super::super::support::app::{App, PATIENCE};
use super::super::support::boss::{
    engine, post, post_by, safety_checker, writing_and_drawing, writing_and_drawing_judged,
};
use super::super::support::rig::{Board, read_all};
use super::{ask, images, until};

/// The model's AI Horde name.
const NAME: &str = "koboldcpp/Tiny";

pub async fn open(router: Router, tasks: &Tasks) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    serve(listener, router, None, Connections::default(), tasks);
    address
}

pub fn post_at(address: SocketAddr, key: &str) -> Post {
    let way = Way::Calls {
        base: Url::parse(&format!("http://{address}/")).unwrap(),
        tls: native_tls().unwrap(),
        jobs: 4,
        agent: None,
    };
    Post {
        media_hosts: Vec::new(),
        terms: OfferTerms {
            permissions: Permissions {
                nsfw: false,
                ..Permissions::default()
            },
            ..OfferTerms::default()
        },
        key: key.to_owned(),
        ..post_by("ours", way)
    }
}

async fn work(posts: Vec<Post>, names: &[&str], tasks: &Tasks) -> Worker {
    let (runtime, info) = engine().await;
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let served = Served {
        other_names: BTreeMap::from([(info.name.clone(), names)]),
        models: vec![info],
        slots: 8,
        ..Served::default()
    };
    Worker::start(runtime, served, posts, tasks)
}

/// A worker that draws gradients and polls.
async fn drawing_work(posts: Vec<Post>, tasks: &Tasks) -> (Worker, Maker) {
    drawing_work_with(posts, AdapterFolders::default(), tasks).await
}

async fn drawing_work_with(
    posts: Vec<Post>,
    folders: AdapterFolders,
    tasks: &Tasks,
) -> (Worker, Maker) {
    let maker = Maker::start(MakerLimits::default()).unwrap();
    let sample = SamplePipeline::default();
    let loader = Box::new(|| Ok(Box::new(sample) as Box<_>));
    maker.load("tiny", loader).await.unwrap();
    let engines = Engines {
        folders,
        maker: Some(maker.clone()),
        safety: Some(safety_checker()),
        ..Runtime::start(DeviceChoice::Cpu, EngineLimits::default())
            .unwrap()
            .into()
    };
    let served = Served {
        media: vec![MediaModel::new("tiny", muster::protocol::job::Kind::Image)],
        slots: 8,
        ..Served::default()
    };
    (Worker::start(engines, served, posts, tasks), maker)
}

fn is_done(status: &Value) -> bool {
    status["done"] == json!(true)
}

#[tokio::test]
async fn our_worker_serves_a_coordinator_that_is_polled() {
    let app = App::start().await;
    let address = open(app.router.clone(), &app.tasks).await;
    let worker = work(vec![post_at(address, &app.key)], &["tiny"], &app.tasks).await;
    assert!(worker.connected().await);
    let id = ask(&app, json!({"max_length": 24, "n": 3})).await;
    let status = until(&app, &id, is_done).await;
    let texts = status["generations"].as_array().unwrap();
    assert_eq!(texts.len(), 3, "{status}");
    for text in texts {
        assert_eq!(text["worker_name"], "ours");
        assert!(!text["text"].as_str().unwrap().is_empty());
    }
    assert!(status["kudos"].as_f64().unwrap() > 0.0, "{status}");
    assert!(worker.drain(PATIENCE).await);
}

#[tokio::test]
async fn our_worker_draws_for_a_coordinator_that_is_polled() {
    let app = App::listening(DoorSettings::default()).await;
    let address = open(app.router.clone(), &app.tasks).await;
    let (worker, _maker) = drawing_work(vec![post_at(address, &app.key)], &app.tasks).await;
    assert!(worker.connected().await);
    for more in [
        json!({"nsfw": false, "censor_nsfw": false, "params": {"n": 2, "seed": "42", "steps": 3}}),
        json!({
            "nsfw": false, "censor_nsfw": false, "source_image": images::png(64, 64),
            "params": {"denoising_strength": 0.5, "seed": PLAIN_SEED},
        }),
    ] {
        let wanted = more["params"]["n"].as_u64().unwrap_or(1) as usize;
        let id = images::ask(&app, more).await;
        let status = images::until_done(&app, &id).await;
        let drawn = status["generations"].as_array().unwrap();
        assert_eq!(drawn.len(), wanted, "{status}");
        for image in drawn {
            assert_eq!(image["worker_name"], "ours");
            assert_eq!(image["censored"], false);
            let link = Url::parse(image["img"].as_str().unwrap()).unwrap();
            let path = format!("{}?{}", link.path(), link.query().unwrap());
            let bytes = app.get(&path).await.bytes().await;
            let pixels = image::load_from_memory(&bytes).unwrap();
            assert_eq!((pixels.width(), pixels.height()), (512, 512));
        }
    }
    assert!(worker.drain(PATIENCE).await);
}

#[tokio::test]
async fn texts_and_images_of_one_worker_are_polled_for_by_two_names() {
    let app = App::listening(DoorSettings::default()).await;
    let address = open(app.router.clone(), &app.tasks).await;
    let worker = writing_and_drawing(post_at(address, &app.key), &app.tasks).await;
    assert!(worker.connected().await);
    let text = ask(&app, json!({"max_length": 24})).await;
    let image = json!({
        "models": ["draws"], "nsfw": false, "censor_nsfw": false, "params": {"steps": 2},
    });
    let image = images::ask(&app, image).await;
    let text = until(&app, &text, is_done).await;
    let image = images::until_done(&app, &image).await;
    assert_eq!(text["generations"][0]["worker_name"], "ours", "{text}");
    let name = &image["generations"][0]["worker_name"];
    assert_eq!(name, "ours images", "{image}");
    assert!(worker.drain(PATIENCE).await);
}

#[tokio::test]
async fn an_image_without_an_upload_link_goes_along_and_what_is_not_drawn_is_given_back() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    let drawn = json!({
        "id": "a", "ids": ["a"], "model": "tiny", "ttl": 120, "r2_upload": null,
        "payload": {"prompt": "a cat", "width": 64, "height": 128, "ddim_steps": 2, "seed": "7", "karras": true},
    });
    let mut controlled = drawn.clone();
    controlled["payload"]["control_type"] = json!("canny");
    script.answer("pop", vec![(200, drawn), (200, controlled)]);
    let (_worker, _maker) = drawing_work(vec![post_at(script.address, "k")], &tasks).await;
    let asked = script.hear("pop").await;
    assert_eq!(
        (&asked["models"], &asked["nsfw"], &asked["allow_lora"]),
        (&json!(["tiny"]), &json!(false), &json!(false))
    );
    assert_eq!(asked["allow_textual_inversions"], json!(false));
    let brought = script.hear("submit").await;
    assert_eq!(
        (&brought["state"], &brought["seed"]),
        (&json!("ok"), &json!(7))
    );
    let bytes = STANDARD.decode(brought["generation"].as_str().unwrap());
    let pixels = image::load_from_memory(&bytes.unwrap()).unwrap();
    assert_eq!((pixels.width(), pixels.height()), (64, 128));
    assert_eq!(script.hear("submit").await["state"], "faulted");
}

/// A gradient with much blue has a purple corner, which the small checker flags.
const FLAGGED_SEED: &str = "230";
const PLAIN_SEED: &str = "20";

fn judged_job(id: &str, seed: &str, more: Value) -> Value {
    let payload =
        json!({"prompt": "a cat", "width": 64, "height": 64, "ddim_steps": 2, "seed": seed});
    json!({
        "id": id, "ids": [id], "model": "tiny", "ttl": 120, "r2_upload": null,
        "payload": super::images::with(payload, more),
    })
}

/// The state, the remark about the image, and whether it is of one color.
fn judged(brought: &Value) -> (Value, Value, bool) {
    let file = STANDARD.decode(brought["generation"].as_str().unwrap());
    let file = file.unwrap();
    let pixels = image::load_from_memory(&file).unwrap().to_rgb8();
    assert_eq!((pixels.width(), pixels.height()), (64, 64));
    let mut levels = pixels.pixels().flat_map(|pixel| pixel.0);
    let is_empty = levels.all(|level| level.abs_diff(128) < 4);
    assert_eq!(description(&file).is_none(), is_empty);
    let about = brought.get("gen_metadata").cloned();
    (
        brought["state"].clone(),
        about.unwrap_or_default(),
        is_empty,
    )
}

#[tokio::test]
async fn an_image_that_the_checker_flags_is_replaced_or_named_as_the_owner_and_the_job_have_it() {
    for (takes_nsfw, wanted) in [
        (false, [true, true]),
        // The owner sends such images, unless the job wants them replaced.
        (true, [true, false]),
    ] {
        let tasks = Tasks::default();
        let mut script = Script::open(&tasks).await;
        let censored = json!({"use_nsfw_censor": true});
        let jobs = [
            judged_job("a", FLAGGED_SEED, censored.clone()),
            judged_job("b", FLAGGED_SEED, json!({})),
            judged_job("c", PLAIN_SEED, censored),
        ];
        script.answer("pop", jobs.map(|job| (200, job)).to_vec());
        let mut post = post_at(script.address, "k");
        if let Way::Calls { jobs, .. } = &mut post.way {
            *jobs = 1;
        }
        post.terms.permissions.nsfw = takes_nsfw;
        let (_worker, _maker) = drawing_work(vec![post], &tasks).await;
        assert_eq!(script.hear("pop").await["nsfw"], json!(takes_nsfw));
        for is_replaced in wanted {
            let brought = script.hear("submit").await;
            let (state, about) = match is_replaced {
                true => ("censored", "censorship"),
                false => ("ok", "information"),
            };
            let about = json!([{"type": about, "value": "nsfw"}]);
            assert_eq!(
                judged(&brought),
                (json!(state), about, is_replaced),
                "{}",
                brought["id"]
            );
        }
        let plain = script.hear("submit").await;
        assert_eq!(judged(&plain), (json!("ok"), Value::Null, false));
    }
}

#[tokio::test]
async fn a_usual_request_reaches_our_worker_and_shows_what_was_censored() {
    let app = App::listening(DoorSettings::default()).await;
    let address = open(app.router.clone(), &app.tasks).await;
    let (worker, _maker) = drawing_work(vec![post_at(address, &app.key)], &app.tasks).await;
    assert!(worker.connected().await);
    for (seed, is_flagged) in [(FLAGGED_SEED, true), (PLAIN_SEED, false)] {
        let usual = json!({"nsfw": false, "params": {"seed": seed, "steps": 2}});
        let id = images::ask(&app, usual).await;
        let status = images::until_done(&app, &id).await;
        let image = &status["generations"][0];
        assert_eq!(image["worker_name"], "ours", "{status}");
        assert_eq!(image["censored"], is_flagged, "{status}");
    }
    assert!(worker.drain(PATIENCE).await);
}

#[tokio::test]
async fn without_a_safety_checker_no_image_is_asked_for() {
    let app = App::listening(DoorSettings::default()).await;
    let address = open(app.router.clone(), &app.tasks).await;
    let image = json!({"models": ["draws"], "nsfw": false, "params": {"steps": 2}});
    let image = images::ask(&app, image).await;
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    let posts = vec![post_at(address, &app.key), post_at(script.address, "k")];
    let worker = writing_and_drawing_judged(posts, None, &tasks).await;
    assert!(worker.connected().await);
    for _ in 0..3 {
        let asked = script.hear("pop").await;
        assert!(asked.get("max_pixels").is_none(), "{asked}");
    }
    let text = ask(&app, json!({"max_length": 24})).await;
    until(&app, &text, is_done).await;
    let path = format!("/api/v2/generate/check/{image}");
    let check = app.get(&path).await.json().await;
    assert_eq!(check["waiting"], 1);
    assert!(worker.drain(PATIENCE).await);
}

#[tokio::test]
async fn files_that_a_polled_job_names_are_those_of_our_folders() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    let folder = tempfile::tempdir().unwrap();
    for name in ["paper", "owl"] {
        let file = folder.path().join(format!("{name}.safetensors"));
        std::fs::write(file, b"").unwrap();
    }
    let job = |more: Value| {
        let payload =
            json!({"prompt": "a cat", "width": 64, "height": 64, "ddim_steps": 2, "seed": "7"});
        json!({
            "id": "a", "ids": ["a"], "model": "tiny", "ttl": 120, "r2_upload": null,
            "payload": super::images::with(payload, more),
        })
    };
    let here = json!({
        "loras": [{"name": "paper", "model": 0.5}], "tis": [{"name": "owl", "inject_ti": "prompt"}],
    });
    let jobs = [here, json!({"loras": [{"name": "stone"}]})];
    script.answer("pop", jobs.map(|more| (200, job(more))).to_vec());
    let folders = AdapterFolders {
        loras: Some(folder.path().to_owned()),
        embeddings: Some(folder.path().to_owned()),
    };
    let posts = vec![post_at(script.address, "k")];
    let (_worker, _maker) = drawing_work_with(posts, folders, &tasks).await;
    assert_eq!(script.hear("pop").await["allow_lora"], json!(true));
    let brought = script.hear("submit").await;
    assert_eq!(brought["state"], "ok", "{brought}");
    let file = STANDARD.decode(brought["generation"].as_str().unwrap());
    let about = description(&file.unwrap()).unwrap();
    assert!(about.starts_with("(embedding:owl:1), a cat\n"), "{about}");
    assert!(about.contains("Loras: \"paper: 0.5\""), "{about}");
    assert_eq!(script.hear("submit").await["state"], "faulted");
}

#[tokio::test]
async fn a_polled_coordinator_is_told_what_the_owner_takes_and_gets_back_other_jobs() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("paper.safetensors"), b"").unwrap();
    let named = json!({"loras": [{"name": "paper"}]});
    let jobs = [
        judged_job("a", PLAIN_SEED, json!({})),
        judged_job("b", PLAIN_SEED, named),
    ];
    script.answer("pop", jobs.map(|job| (200, job)).to_vec());
    let folders = AdapterFolders {
        loras: Some(folder.path().to_owned()),
        embeddings: None,
    };
    let mut post = post_at(script.address, "k");
    post.terms.permissions.loras = false;
    post.terms.permissions.hidden_addresses = false;
    let (_worker, _maker) = drawing_work_with(vec![post], folders, &tasks).await;
    let asked = script.hear("pop").await;
    let told = ["nsfw", "allow_lora", "allow_unsafe_ipaddr"].map(|key| &asked[key]);
    assert_eq!(told, [&json!(false); 3]);
    let first = script.hear("submit").await;
    let second = script.hear("submit").await;
    let mut states = [&first, &second].map(|brought| (&brought["id"], &brought["state"]));
    states.sort_by_key(|(id, _)| id.to_string());
    let [ok, faulted] = [json!("ok"), json!("faulted")];
    assert_eq!(states, [(&json!("a"), &ok), (&json!("b"), &faulted)]);
}

#[tokio::test]
async fn an_inversion_reaches_a_polling_worker_that_has_their_folder_alone() {
    let app = App::listening(DoorSettings::default()).await;
    let address = open(app.router.clone(), &app.tasks).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("owl.safetensors"), b"").unwrap();
    let folders = AdapterFolders {
        embeddings: Some(folder.path().to_owned()),
        ..AdapterFolders::default()
    };
    let posts = vec![post_at(address, &app.key)];
    let (worker, _maker) = drawing_work_with(posts, folders, &app.tasks).await;
    assert!(worker.connected().await);
    let with = |params: Value| json!({"nsfw": false, "censor_nsfw": false, "params": params});
    let inverted = with(json!({"tis": [{"name": "owl", "inject_ti": "prompt"}]}));
    let id = images::ask(&app, inverted).await;
    let status = images::until_done(&app, &id).await;
    assert_eq!(status["generations"][0]["worker_name"], "ours", "{status}");
    let lora = images::ask(&app, with(json!({"loras": [{"name": "paper"}]}))).await;
    let path = format!("/api/v2/generate/check/{lora}");
    let check = app.get(&path).await.json().await;
    assert_eq!(check["is_possible"], false, "{check}");
    assert!(worker.drain(PATIENCE).await);
}

#[tokio::test]
async fn one_worker_serves_a_socket_and_a_coordinator_that_is_polled_at_the_same_time() {
    let app = App::start().await;
    let board = Board::start();
    let address = open(app.router.clone(), &app.tasks).await;
    let posts = vec![post("rig", dial(&board)), post_at(address, &app.key)];
    let worker = work(posts, &["tiny"], &app.tasks).await;
    let connected = |standing: &Standing| matches!(standing, Standing::Connected(_));
    eventually("both coordinators", async || {
        worker.standings().iter().all(connected)
    })
    .await;
    let id = ask(&app, json!({"max_length": 24})).await;
    let mut stream = board.submit("Say something.").await;
    let (polled, streamed) = tokio::join!(until(&app, &id, is_done), read_all(&mut stream));
    assert_eq!(polled["finished"], 1, "{polled}");
    assert!(!streamed.0.is_empty());
}

#[tokio::test]
async fn a_text_with_every_setting_is_made_at_once() {
    let app = App::start().await;
    let address = open(app.router.clone(), &app.tasks).await;
    let worker = work(vec![post_at(address, &app.key)], &["tiny"], &app.tasks).await;
    assert!(worker.connected().await);
    let every = json!({
        "max_length": 24, "temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "typical": 0.9, "tfs": 0.95,
        "top_a": 0.1, "smoothing_factor": 0.3, "dynatemp_range": 0.5, "dynatemp_exponent": 1.5, "rep_pen": 1.1,
        "rep_pen_range": 16, "rep_pen_slope": 0.7, "sampler_order": [0, 6, 1, 2, 3, 4, 5],
    });
    let id = ask(&app, every).await;
    let status = until(&app, &id, is_done).await;
    assert_eq!(
        (&status["finished"], &status["restarted"]),
        (&json!(1), &json!(0)),
        "{status}"
    );
}

#[tokio::test]
async fn a_worker_that_is_asked_to_leave_brings_what_it_has_begun() {
    let app = App::start().await;
    let address = open(app.router.clone(), &app.tasks).await;
    let worker = work(vec![post_at(address, &app.key)], &["tiny"], &app.tasks).await;
    assert!(worker.connected().await);
    let id = ask(&app, json!({"max_length": 200})).await;
    until(&app, &id, |status| status["waiting"] == json!(0)).await;
    assert!(worker.drain(PATIENCE).await);
    let status = until(&app, &id, is_done).await;
    assert_eq!(status["finished"], 1, "{status}");
}

#[tokio::test]
async fn a_coordinator_that_does_not_know_the_key_is_left_for_good() {
    let app = App::start().await;
    let address = open(app.router.clone(), &app.tasks).await;
    let wrong = "A".repeat(22);
    let worker = work(vec![post_at(address, &wrong)], &["tiny"], &app.tasks).await;
    assert!(!worker.connected().await);
    assert_eq!(
        worker.standings(),
        [Standing::Refused("Invalid API Key".to_owned())]
    );
}

/// What comes next, by the last part of the path; of forms by the last two.
type Answers = Mutex<BTreeMap<&'static str, Vec<(u16, Value)>>>;

/// A coordinator with scripted replies that records requests.
struct Script {
    address: SocketAddr,
    answers: Arc<Answers>,
    heard: mpsc::Receiver<(String, Value)>,
}

impl Script {
    async fn open(tasks: &Tasks) -> Self {
        let answers: Arc<Answers> = Arc::default();
        let (tell, heard) = mpsc::channel(64);
        let known = answers.clone();
        let handler = move |_: Method, uri: Uri, body: Bytes| {
            let (tell, known) = (tell.clone(), known.clone());
            async move {
                let call = match uri.path().strip_prefix("/api/v2/interrogate/") {
                    Some(call) => format!("interrogate/{call}"),
                    None => uri.path().rsplit('/').next().unwrap().to_owned(),
                };
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let answer = next(&known, &call);
                let _ = tell.send((call, body)).await;
                answer
            }
        };
        let address = open(Router::new().fallback(any(handler)), tasks).await;
        Self {
            address,
            answers,
            heard,
        }
    }

    /// These come next, one by one; then pops find nothing and everything else is taken.
    fn answer(&self, call: &'static str, answers: Vec<(u16, Value)>) {
        self.answers.lock().unwrap().insert(call, answers);
    }

    async fn hear(&mut self, wanted: &str) -> Value {
        loop {
            let heard = timeout(PATIENCE, self.heard.recv()).await;
            let (call, body) = heard.unwrap().unwrap();
            if call == wanted {
                return body;
            }
        }
    }
}

fn next(answers: &Answers, call: &str) -> Response {
    let mut answers = answers.lock().unwrap();
    let scripted = answers.get_mut(call).filter(|left| !left.is_empty());
    let (status, body) = match (scripted, call) {
        (Some(left), _) => left.remove(0),
        (None, "pop") => (
            200,
            json!({"id": null, "ids": [], "payload": {}, "skipped": {}}),
        ),
        (None, "interrogate/pop") => (200, json!({"forms": null, "skipped": {}})),
        (None, _) => (200, json!({"reward": 1.5})),
    };
    (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
}

fn job(id: &str) -> Value {
    json!({
        "id": id, "ids": [id], "model": NAME, "ttl": 120, "skipped": {}, "softprompt": null,
        "payload": {
            "prompt": "Once upon", "n": 1, "max_length": 16, "max_context_length": 128, "temperature": 0.7,
            "rep_pen": 1.07, "rep_pen_range": 320, "sampler_order": [6, 0, 1, 2, 3, 4, 5], "quiet": true,
        },
    })
}

#[tokio::test]
async fn a_strangers_coordinator_is_told_the_names_it_knows_and_brought_the_text() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    script.answer("pop", vec![(200, job("not-a-uuid"))]);
    let worker = work(vec![post_at(script.address, "k")], &[NAME], &tasks).await;
    let asked = script.hear("pop").await;
    assert_eq!(
        (&asked["models"], &asked["name"], &asked["threads"]),
        (&json!([NAME]), &json!("ours"), &json!(4))
    );
    assert!(asked["max_context_length"].as_u64().unwrap() > 0);
    let brought = script.hear("submit").await;
    assert_eq!(
        (&brought["id"], &brought["state"]),
        (&json!("not-a-uuid"), &json!("ok"))
    );
    assert!(!brought["generation"].as_str().unwrap().is_empty());
    drop(worker);
}

#[tokio::test]
async fn a_text_that_cannot_be_brought_is_brought_again() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    script.answer("pop", vec![(200, job("a"))]);
    let busy = json!({"message": "2 per 1 second"});
    script.answer("submit", vec![(500, json!({})), (429, busy)]);
    let _worker = work(vec![post_at(script.address, "k")], &[NAME], &tasks).await;
    let first = script.hear("submit").await;
    assert_eq!(script.hear("submit").await, first);
    assert_eq!(script.hear("submit").await, first);
}

#[tokio::test]
async fn a_text_that_is_not_taken_is_given_back_as_a_fault() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    script.answer("pop", vec![(200, job("a"))]);
    script.answer(
        "submit",
        vec![(400, json!({"message": "no", "rc": "BadRequest"}))],
    );
    let _worker = work(vec![post_at(script.address, "k")], &[NAME], &tasks).await;
    assert_eq!(script.hear("submit").await["state"], "ok");
    assert_eq!(script.hear("submit").await["state"], "faulted");
}

#[tokio::test]
async fn maintenance_and_outages_are_waited_out() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    script.answer("pop", vec![(502, json!("bad gateway")), (200, job("a"))]);
    let worker = work(vec![post_at(script.address, "k")], &[NAME], &tasks).await;
    assert_eq!(script.hear("submit").await["id"], "a");
    assert!(worker.connected().await);
    assert!(worker.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_worker_that_is_refused_brings_what_it_was_given_before() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    let refusal = json!({"message": "not with this name", "rc": "WrongCredentials"});
    let mut long = job("a");
    long["payload"]["max_length"] = json!(100);
    script.answer("pop", vec![(200, long), (403, refusal)]);
    let worker = work(vec![post_at(script.address, "k")], &[NAME], &tasks).await;
    let brought = script.hear("submit").await;
    assert_eq!(
        (&brought["id"], &brought["state"]),
        (&json!("a"), &json!("ok"))
    );
    assert!(worker.drain(PATIENCE).await);
}

#[tokio::test]
async fn pages_of_something_between_are_waited_out() {
    let tasks = Tasks::default();
    for status in [200, 302, 403, 404] {
        let mut script = Script::open(&tasks).await;
        let page = json!("<html>blocked</html>");
        script.answer("pop", vec![(status, page.clone()), (200, job("a"))]);
        script.answer("submit", vec![(status, page)]);
        let worker = work(vec![post_at(script.address, "k")], &[NAME], &tasks).await;
        let first = script.hear("submit").await;
        assert_eq!(
            (&first["id"], &first["state"]),
            (&json!("a"), &json!("ok")),
            "{status}"
        );
        assert_eq!(script.hear("submit").await, first, "{status}");
        drop(worker);
    }
}

#[tokio::test]
async fn a_job_for_a_model_that_is_not_served_is_given_back() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    let mut other = job("a");
    other["model"] = json!("koboldcpp/Other");
    script.answer("pop", vec![(200, other)]);
    let _worker = work(vec![post_at(script.address, "k")], &[NAME], &tasks).await;
    assert_eq!(script.hear("submit").await["state"], "faulted");
}

#[tokio::test]
async fn whoever_gives_back_does_not_ask_again_at_once() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    let mut unreadable = job("a");
    unreadable["ids"] = json!(["a", "b"]);
    unreadable["payload"] = json!({"prompt": 7});
    script.answer("pop", vec![(200, unreadable)]);
    let _worker = work(vec![post_at(script.address, "k")], &[NAME], &tasks).await;
    script.hear("pop").await;
    let began = Instant::now();
    let mut given_back = Vec::new();
    for _ in 0..2 {
        let submitted = script.hear("submit").await;
        assert_eq!(submitted["state"], "faulted");
        given_back.push(submitted["id"].as_str().unwrap().to_owned());
    }
    given_back.sort();
    assert_eq!(given_back, ["a", "b"]);
    script.hear("pop").await;
    let rested = began.elapsed();
    assert!(rested > Duration::from_secs(8), "{rested:?}");
}

#[tokio::test]
async fn a_prompt_that_is_too_long_loses_its_beginning() {
    let tasks = Tasks::default();
    let mut script = Script::open(&tasks).await;
    let mut long = job("a");
    long["payload"]["prompt"] = json!("Once upon a time there was a fox. ".repeat(500));
    long["payload"]["stop_sequence"] = json!(["", "\u{1}", "\u{1}"]);
    script.answer("pop", vec![(200, long)]);
    let _worker = work(vec![post_at(script.address, "k")], &[NAME], &tasks).await;
    let brought = script.hear("submit").await;
    assert_eq!(brought["state"], "ok", "{brought}");
    assert!(!brought["generation"].as_str().unwrap().is_empty());
}
