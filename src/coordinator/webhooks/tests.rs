use std::sync::Arc;

use muster_testing::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::parties::Party;
use super::told::Told;
use super::{QUEUE, Webhooks, deliver};
use crate::accounts::{ANONYMOUS, Caller, Payer};
use crate::clock::wall_clock;
use crate::dispatch::Standing;
use crate::egress::Egress;
use crate::egress::tests::{Server, ok};
use crate::media::{Area, Key, Links, Media, MediaSettings, MediaType};
use crate::names::Names;
use crate::requests::orders::Asked;
use crate::requests::{Ended, Made, Order, Request, ResultListener};
use crate::storage::{Location, Store, Wanted};
use muster_process::tasks::Tasks;
use muster_protocol::job::{self, AccountId, Note, Product, RequestId};
use muster_protocol::legacy::Body;
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::legacy::interrogation::ModelInterrogationInputImage;
use muster_protocol::legacy::schemas::assert_fits;
use muster_protocol::legacy::text::request::GenerationInputText;

struct Place {
    webhooks: Webhooks,
    server: Server,
    media: Media,
    _folder: TempDir,
    _tasks: Tasks,
}

async fn place(answer: &str) -> Place {
    let (tasks, folder) = (Tasks::default(), tempfile::tempdir().unwrap());
    let location = Location::Sqlite(folder.path().join("store.sqlite"));
    let store = Store::open(&location, &tasks).await.unwrap();
    let server = Server::start(answer).await;
    let egress = Egress::permitting_own_ports([server.port]);
    let links = Links {
        secret: [7; 32],
        base: "https://muster.example".to_owned(),
    };
    let media = MediaSettings::in_folder(folder.path().join("media"));
    let media = Media::open(&media, &links, &tasks).await.unwrap();
    Place {
        webhooks: Webhooks::start(egress, store, media.clone(), &tasks),
        media,
        server,
        _folder: folder,
        _tasks: tasks,
    }
}

impl Place {
    fn follow(&self, request: &Arc<Request>) {
        let address = self.server.url().into();
        self.webhooks.follow(request.clone(), address);
    }

    /// The bodies received once this many calls have arrived.
    async fn said(&self, calls: usize) -> Vec<Value> {
        eventually("the calls", async || self.server.asked().len() >= calls).await;
        let body = |asked: &String| serde_json::from_str(asked.split_once("\r\n\r\n").unwrap().1);
        self.server
            .asked()
            .iter()
            .map(body)
            .map(Result::unwrap)
            .collect()
    }
}

/// A request for this many texts.
fn request(texts: u32) -> Arc<Request> {
    let body = json!({"prompt": "once", "params": {"n": texts}});
    let asked = GenerationInputText::read(body).unwrap();
    request_of(Asked::text(asked))
}

fn request_for(account: AccountId) -> Arc<Request> {
    let asked = GenerationInputText::read(json!({"prompt": "once"})).unwrap();
    let mut caller = Caller::anonymous();
    caller.account = account;
    request_by(&caller, Asked::text(asked))
}

fn request_of(asked: Asked) -> Arc<Request> {
    request_by(&Caller::anonymous(), asked)
}

fn request_by(caller: &Caller, asked: Asked) -> Arc<Request> {
    let payer = Payer::of(caller, None, false, wall_clock()).unwrap();
    let order = Order::new(RequestId::random(), &payer, asked);
    let mut new = order.request(Standing::default(), None, &Names::default());
    let row = new.take_row();
    let wishes = (new.wishes, new.standing);
    Request::new(&row, wishes, &new.jobs, &[], Vec::new()).into()
}

fn end(request: &Request, index: usize, ended: Ended) {
    request.outputs[index].end(ended);
    request.note();
}

fn made() -> Ended {
    made_of(Product::default())
}

fn made_of(product: Product) -> Ended {
    Ended::Made(Made {
        product,
        model: "tiny".into(),
        worker: "rig".into(),
        worker_id: uuid::Uuid::from_u128(3),
        hidden: None,
    })
}

#[tokio::test]
async fn each_result_is_told_once_as_the_contract_says() {
    let place = place(&ok("", "")).await;
    let request = request(3);
    place.follow(&request);
    end(&request, 0, made());
    end(&request, 1, Ended::Failed("worker_failed".into()));
    end(&request, 2, made());
    let said = place.said(2).await;
    let ids = [0, 2].map(|index: usize| request.outputs[index].job.to_string());
    for told in &said {
        assert_fits("WebhookText", told);
        assert_eq!(told["request"], request.id.to_string());
        assert_eq!(told["worker_name"], "rig");
        assert!(ids.iter().any(|id| told["id"] == **id), "{told}");
    }
    assert_ne!(said[0]["id"], said[1]["id"]);
    assert_eq!(place.server.asked().len(), 2);
}

#[tokio::test]
async fn an_account_has_a_share_of_the_queue_and_a_few_of_the_places() {
    let place = place(&ok("", "")).await;
    let webhooks = &place.webhooks;
    let room = |account| webhooks.room_for(&[Party::Account(AccountId(account))]);
    let hers: Vec<_> = (0..QUEUE / 8).map(|_| room(1).unwrap()).collect();
    assert!(room(1).is_none() && room(2).is_some());
    drop(hers);
    assert!(room(1).is_some());
    // Unresponsive URLs occupy all calls of the anonymous account, and none of another's.
    let keyless = Party::Account(ANONYMOUS);
    let tarpits = (0..keyless.at_once()).map(|_| webhooks.turns.turn_now(keyless.clone()));
    let tarpits: Vec<_> = tarpits.map(Option::unwrap).collect();
    let (keyless, keyed) = (request(1), request_for(AccountId(7)));
    for request in [&keyless, &keyed] {
        place.follow(request);
        end(request, 0, made());
    }
    assert_eq!(place.said(1).await[0]["request"], keyed.id.to_string());
    drop(tarpits);
    assert_eq!(place.said(2).await[1]["request"], keyless.id.to_string());
}

#[tokio::test]
async fn a_host_that_does_not_answer_keeps_no_other_from_those_who_have_no_key() {
    let place = place(&ok("", "")).await;
    let webhooks = &place.webhooks;
    let tarpit = Party::all_of(ANONYMOUS, "https://tarpit.example/");
    let room = |parties: &[Party]| webhooks.room_for(parties);
    let waiting = std::iter::from_fn(|| room(&tarpit));
    let waiting: Vec<_> = waiting.take(QUEUE).collect();
    assert_eq!(waiting.len(), tarpit[0].share());
    assert!(room(&Party::all_of(ANONYMOUS, "https://other.example/")).is_some());
    let places = (0..tarpit[0].at_once()).map(|_| {
        let turns = tarpit.iter().cloned();
        let turns = turns.map(|party| webhooks.turns.turn_now(party).unwrap());
        turns.collect::<Vec<_>>()
    });
    let places: Vec<_> = places.collect();
    let request = request(1);
    place.follow(&request);
    end(&request, 0, made());
    assert_eq!(place.said(1).await[0]["request"], request.id.to_string());
    drop((waiting, places));
}

#[tokio::test]
async fn an_image_is_told_as_a_link_or_whole_as_its_client_wanted_it() {
    let place = place(&ok("", "")).await;
    let key = Key::new(Area::Results, uuid::Uuid::from_u128(9), 1, MediaType::Webp);
    place
        .media
        .put(key, b"RIFF".as_slice().into())
        .await
        .unwrap();
    for (links, shown) in [(true, "https://muster.example/"), (false, "UklGRg==")] {
        let body = json!({"prompt": "a cat", "r2": links});
        let asked = GenerationInputImage::read(body).unwrap();
        let request = request_of(Asked::image(asked));
        place.follow(&request);
        let product = Product::Media(job::Media {
            seed: Some(77),
            key: key.to_string(),
            content_type: "image/webp".to_owned(),
            ..job::Media::default()
        });
        end(&request, 0, made_of(product));
        let said = place.said(if links { 1 } else { 2 }).await;
        let told = said.last().unwrap();
        assert_fits("WebhookImage", told);
        assert_eq!(
            (&told["seed"], &told["censored"]),
            (&json!(77), &json!(false))
        );
        assert_eq!(told["request"], request.id.to_string());
        assert!(told["img"].as_str().unwrap().starts_with(shown), "{told}");
    }
}

#[tokio::test]
async fn what_waits_to_be_told_holds_no_image() {
    let place = place(&ok("", "")).await;
    let key = Key::new(Area::Results, uuid::Uuid::from_u128(9), 1, MediaType::Webp);
    let asked = GenerationInputImage::read(json!({"prompt": "a cat", "r2": false})).unwrap();
    let request = request_of(Asked::image(asked));
    let product = Product::Media(job::Media {
        key: key.to_string(),
        ..job::Media::default()
    });
    end(&request, 0, made_of(product));
    let waiting = Told {
        address: place.server.url().into(),
        request,
        index: 0,
        kudos: 0.0,
    };
    let image = async || {
        let call = waiting.call(&place.media).await.unwrap();
        let said: Value = serde_json::from_slice(&call.body).unwrap();
        said["img"].clone()
    };
    assert_eq!(image().await, "N/A");
    let stored = place.media.put(key, b"RIFF".as_slice().into()).await;
    stored.unwrap();
    assert_eq!(image().await, "UklGRg==");
}

#[tokio::test]
async fn a_form_is_told_with_what_was_found() {
    let place = place(&ok("", "")).await;
    let body = json!({"source_image": "https://example.org/a.png", "forms": [{"name": "caption"}]});
    let asked = ModelInterrogationInputImage::read(body).unwrap();
    let request = request_of(Asked::forms(asked, (64, 64)));
    place.follow(&request);
    let found = json!({"result": {"caption": "a cat"}, "image": ""}).to_string();
    end(&request, 0, made_of(Product::from(found)));
    let told = place.said(1).await.remove(0);
    assert_fits("WebhookAlchemy", &told);
    assert_eq!(
        (&told["form"], &told["state"], &told["result"]),
        (
            &json!("caption"),
            &json!("done"),
            &json!({"caption": "a cat"})
        )
    );
}

#[tokio::test]
async fn what_was_there_before_and_what_is_cancelled_is_not_told() {
    let place = place(&ok("", "")).await;
    let (before, cancelled, last) = (request(1), request(1), request(1));
    end(&before, 0, made());
    cancelled.cancel();
    for request in [&before, &cancelled, &last] {
        place.follow(request);
    }
    end(&cancelled, 0, made());
    end(&last, 0, made());
    let said = place.said(1).await;
    assert_eq!(said.len(), 1);
    assert_eq!(said[0]["request"], last.id.to_string());
}

#[tokio::test]
async fn what_a_worker_was_busy_with_when_nobody_was_given_more_is_told() {
    let place = place(&ok("", "")).await;
    let request = request(2);
    place.follow(&request);
    request.end_waiting();
    end(&request, 0, Ended::Cancelled);
    end(&request, 1, made());
    let said = place.said(1).await;
    assert_eq!(said[0]["id"], request.outputs[1].job.to_string());
    // Results of a cancelled request are not delivered.
    let (unwanted, last) = (self::request(2), self::request(1));
    unwanted.end_waiting();
    unwanted.cancel();
    for request in [&unwanted, &last] {
        place.follow(request);
    }
    end(&unwanted, 0, made());
    end(&last, 0, made());
    let said = place.said(2).await;
    assert_eq!(said[1]["request"], last.id.to_string());
}

#[tokio::test]
async fn what_a_worker_was_busy_with_before_a_restart_is_told_unless_its_client_gave_it_up() {
    let place = place(&ok("", "")).await;
    let restored = |wanted| {
        let request = Arc::into_inner(request(1)).unwrap();
        Arc::new(request.restored(wanted))
    };
    let (unwanted, begun) = (restored(Wanted::Nothing), restored(Wanted::Begun));
    for request in [&unwanted, &begun] {
        place.follow(request);
        end(request, 0, made());
    }
    let said = place.said(1).await;
    assert_eq!(said.len(), 1);
    assert_eq!(said[0]["request"], begun.id.to_string());
}

#[tokio::test]
async fn a_text_is_told_with_the_seed_that_its_worker_has_used() {
    let place = place(&ok("", "")).await;
    let request = request(1);
    place.follow(&request);
    let note = Note {
        seed: Some(-7),
        ..Note::default()
    };
    let text = job::Text {
        text: "once".to_owned(),
        note,
    };
    end(&request, 0, made_of(Product::Text(text)));
    let told = place.said(1).await.remove(0);
    assert_eq!(told["seed"], -7);
}

#[tokio::test]
async fn a_call_that_is_not_taken_is_tried_three_times() {
    let busy = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
    let moved = "HTTP/1.1 302 Found\r\nlocation: http://10.0.0.1/\r\ncontent-length: 0\r\n\r\n";
    for (answer, taken, calls) in [(busy, false, 3), (moved, true, 1)] {
        let server = Server::start(answer).await;
        let egress = Egress::permitting_own_ports([server.port]);
        let call = super::Call {
            address: server.url().into(),
            body: "{}".into(),
        };
        assert_eq!(deliver::deliver(&egress, &call).await, taken, "{answer}");
        assert_eq!(server.asked().len(), calls, "{answer}");
    }
}

#[tokio::test]
async fn an_address_inside_is_not_called() {
    let server = Server::start(ok("", "")).await;
    let call = super::Call {
        address: format!("https://127.0.0.1:{}/", server.port).into(),
        body: "{}".into(),
    };
    assert!(!deliver::deliver(&Egress::new(), &call).await);
    assert_eq!(server.asked(), [""; 0]);
}
