//! Memory of responses, and storage quotas of accounts.

use serde_json::{Value, json};

use super::{
    LinkError, MemoryFull, MemoryLimits, NotRecorded, OverQuota, Recording, RequestTexts,
    ResponseSettings, Responses,
};
use crate::storage::tests::scratch::Scratch;
use muster_protocol::job::AccountId;
use muster_protocol::openai::responses::{Intent, Recorder};

const ALICE: AccountId = AccountId(1);
const BOB: AccountId = AccountId(2);
const MIB: usize = 1 << 20;

async fn responses(
    scratch: &Scratch,
    limits: MemoryLimits,
    settings: ResponseSettings,
) -> Responses {
    let store = scratch.open().await;
    Responses::with(store, settings, limits, &scratch.tasks)
}

async fn usual(scratch: &Scratch) -> Responses {
    responses(
        scratch,
        MemoryLimits::default(),
        ResponseSettings::default(),
    )
    .await
}

fn background() -> Intent {
    Intent::of(&json!({"background": true}))
}

/// Texts of this many bytes, for input and body.
fn texts(bytes: usize) -> RequestTexts {
    let text = "x".repeat(bytes / 2);
    RequestTexts {
        input: json!([{"id": "msg_1_i0", "content": text}]).to_string(),
        body: Some(json!({"model": "tiny", "input": text}).to_string()),
    }
}

async fn begin(responses: &Responses, account: AccountId, number: u32, bytes: usize) -> Recording {
    let recording = responses
        .record(account, &background(), None, texts(bytes))
        .await;
    let recording = recording.unwrap();
    recording.began(&json!({"id": format!("resp_{number}"), "status": "queued"}));
    responses.save(recording.live()).await.unwrap();
    recording
}

async fn end(responses: &Responses, recording: &Recording, output: &str) {
    let id = recording.live().id().unwrap();
    let output = json!([{"id": "msg_1_o0", "content": output}]);
    recording.ended(&json!({"id": id, "status": "completed", "output": output}));
    responses.save(recording.live()).await.unwrap();
}

#[tokio::test]
async fn texts_leave_memory_when_they_are_on_disk() {
    let scratch = Scratch::sqlite();
    let responses = usual(&scratch).await;
    let mut running = Vec::new();
    for number in 0..10 {
        running.push(begin(&responses, ALICE, number, 4 * MIB).await);
    }
    assert!(responses.memory.taken() < MIB, "ten of 4 MiB run");
    let output = "y".repeat(MIB);
    for recording in &running {
        recording.event(b"event: a\n\n");
        end(&responses, recording, &output).await;
    }
    assert!(
        responses.memory.taken() < MIB,
        "{} bytes",
        responses.memory.taken()
    );
    for number in 0..10 {
        let found = responses
            .find(&format!("resp_{number}"), ALICE)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(found.response["output"][0]["content"], output.as_str());
        assert_eq!(found.input.len(), 1);
    }
    let live = responses.live("resp_3", ALICE).unwrap();
    assert_eq!(
        live.events_from(0).unwrap().0.len(),
        1,
        "events can still be streamed"
    );
    assert!(responses.delete("resp_3", ALICE).await.unwrap());
    drop(live);
    assert!(responses.find("resp_3", ALICE).await.unwrap().is_none());
}

#[tokio::test]
async fn an_account_has_a_share_of_the_memory() {
    let scratch = Scratch::sqlite();
    let limits = MemoryLimits {
        all: 4 * MIB,
        share: 2 * MIB,
    };
    let responses = responses(&scratch, limits, ResponseSettings::default()).await;
    let intent = background();
    let record = |account| responses.record(account, &intent, None, texts(3 * MIB / 2));
    let first = record(ALICE).await.unwrap();
    assert!(matches!(
        record(ALICE).await,
        Err(NotRecorded::NoMemory(MemoryFull::Account))
    ));
    let second = record(BOB).await.unwrap();
    assert!(matches!(
        record(AccountId(3)).await,
        Err(NotRecorded::NoMemory(MemoryFull::All))
    ));
    drop((first, second));
    assert_eq!(responses.memory.taken(), 0);

    // Beyond the limit only this response's events are dropped.
    let (one, other) = (
        begin(&responses, ALICE, 1, 10).await,
        begin(&responses, ALICE, 2, 10).await,
    );
    one.event(b"a");
    other.event(&vec![b'x'; 2 * MIB]);
    assert!(other.live().events_from(0).is_err());
    assert_eq!(one.live().events_from(0).unwrap().0.len(), 1);
    assert_eq!(other.live().response().unwrap()["status"], "in_progress");
}

#[tokio::test]
async fn an_account_stores_so_many_responses_and_bytes() {
    let scratch = Scratch::sqlite();
    let settings = ResponseSettings {
        most: 2,
        most_bytes: MIB,
        ..ResponseSettings::default()
    };
    let responses = responses(&scratch, MemoryLimits::default(), settings).await;
    let intent = background();
    let record = |account, bytes| responses.record(account, &intent, None, texts(bytes));
    let bytes = record(ALICE, 2 * MIB).await;
    let over = NotRecorded::OverQuota(OverQuota::Bytes(MIB));
    assert_eq!(format!("{:?}", bytes.err()), format!("{:?}", Some(over)));
    let first = begin(&responses, ALICE, 1, 10).await;
    end(&responses, &first, "a").await;
    let running = record(ALICE, 10).await.unwrap();
    let third = record(ALICE, 10).await;
    let over = NotRecorded::OverQuota(OverQuota::Responses(2));
    assert_eq!(format!("{:?}", third.err()), format!("{:?}", Some(over)));
    assert!(record(BOB, 10).await.is_ok());
    drop(running);
    assert!(
        record(ALICE, 10).await.is_ok(),
        "what was never stored does not count"
    );
    responses.delete("resp_1", ALICE).await.unwrap();
    let usage = responses.store.response_usage(ALICE).await.unwrap();
    assert_eq!((usage.responses, usage.bytes), (0, 0));
}

#[tokio::test]
async fn the_length_of_earlier_responses_is_known_before_they_are_read() {
    let scratch = Scratch::sqlite();
    let responses = usual(&scratch).await;
    let first = begin(&responses, ALICE, 1, 2 * MIB).await;
    end(&responses, &first, "answer").await;
    let going_on = Intent::of(&json!({"previous_response_id": "resp_1"}));
    let naming = Intent::of(&json!({"input": [{"type": "item_reference", "id": "msg_1_o0"}]}));
    for intent in [&going_on, &naming] {
        let chain = responses.chain(ALICE, intent).await.unwrap();
        let bytes = chain.bytes();
        assert!((MIB..3 * MIB).contains(&bytes), "{bytes} bytes");
        let sources = responses.sources(ALICE, intent, &chain).await.unwrap();
        let found = sources.history.len() + sources.referenced.len();
        assert_eq!(found, if intent.previous.is_some() { 2 } else { 1 });
    }
    let unknown = Intent::of(&json!({"previous_response_id": "resp_9"}));
    let unknown = responses.chain(ALICE, &unknown).await;
    assert!(matches!(unknown, Err(LinkError::Unknown(_))));
}

#[tokio::test]
async fn responses_that_wait_after_a_restart_take_no_memory() {
    let scratch = Scratch::sqlite();
    let before = usual(&scratch).await;
    for number in 0..5 {
        begin(&before, ALICE, number, 2 * MIB).await;
    }
    let after = usual(&scratch).await;
    let open = after.unfinished().await.unwrap();
    assert_eq!(open.len(), 5);
    let waiting: Vec<Recording> = open.iter().map(|open| after.resume(open)).collect();
    assert_eq!(after.memory.taken(), 0);
    let found: Value = after.find("resp_2", ALICE).await.unwrap().unwrap().response;
    assert_eq!(found["status"], "queued");
    assert_eq!(after.beginnings(&open[2]).await, Ok(Some(1)));
    after.note_beginning("resp_2").await.unwrap();
    assert_eq!(after.beginnings(&open[2]).await, Ok(Some(2)));
    waiting[2].end_stored(found, "failed", None);
    after.save(waiting[2].live()).await.unwrap();
    assert_eq!(after.beginnings(&open[2]).await, Ok(None));
    assert_eq!(after.unfinished().await.unwrap().len(), 4);
}
