use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use serde_json::{Value, json};

use super::{
    About, Agreed, CancelWhy, Done, ErrorFrame, Extension, Extensions, FrameError, FromWorker,
    JobFrame, MOST_PREVIEW_BYTES, MediaResult, Output, Payload, Prefill, Ready, Registration,
    ToWorker, UploadSlot, Verdict, write_tokens,
};
use crate::job::{
    Channel, Event, FailureKind, FinishReason, Formats, ImageRequest, JobId, Kind, Kinds, Kudos,
    Progress, StopRules, TextInput, TextRequest, TokenEvent, TokenLogprob, ToolCallEvent, Usage,
};

/// Section 20 of the contract, frame by frame.
const TRANSCRIPTS: &str = include_str!("../../../tests/fixtures/link/transcripts.txt");

#[test]
fn every_frame_of_the_transcripts_is_understood() {
    let mut read = String::new();
    for line in TRANSCRIPTS.lines() {
        let understood = match line.split_once(' ') {
            Some(("→", frame)) => format!("{:#?}", FromWorker::parse(frame).unwrap()),
            Some(("←", frame)) => format!("{:#?}", ToWorker::parse(frame).unwrap()),
            _ => continue,
        };
        assert!(understood != "Unknown", "{line}");
        read.extend([line, "\n", &understood, "\n\n"]);
    }
    insta::assert_snapshot!(read);
}

#[test]
fn every_frame_of_the_transcripts_is_written_as_it_stands_there() {
    for line in TRANSCRIPTS.lines() {
        let (frame, written) = match line.split_once(' ') {
            // Absent fields of a registration have defaults, which we spell out.
            Some(("→", frame)) if !frame.contains(r#""type""#) => continue,
            // A raw job's usage is in its dialect's spelling; we read both and write one.
            Some(("→", frame)) if frame.contains("input_tokens") => continue,
            Some(("→", frame)) => (frame, FromWorker::parse(frame).unwrap().to_text()),
            Some(("←", frame)) => (frame, ToWorker::parse(frame).unwrap().to_text()),
            _ => continue,
        };
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(value(&written), value(frame));
    }
}

fn job() -> JobId {
    JobId(uuid::Uuid::from_u128(7))
}

fn about() -> About {
    About {
        job: job(),
        attempt: Some(2),
        seq: Some(17),
    }
}

fn text(text: &str) -> Event {
    Event::Token(TokenEvent {
        text: text.to_owned(),
        ..TokenEvent::default()
    })
}

fn check_from_worker(frame: FromWorker, wanted: &str) {
    assert_eq!(frame.to_text(), wanted);
    assert_eq!(FromWorker::parse(wanted), Ok(frame));
}

fn check_to_worker(frame: ToWorker, wanted: &str) {
    assert_eq!(frame.to_text(), wanted);
    assert_eq!(ToWorker::parse(wanted), Ok(frame));
}

const ID: &str = "00000000-0000-0000-0000-000000000007";

#[test]
fn what_only_our_own_peers_say_crosses_in_both_directions() {
    let id = format!(r#""id":"{ID}","att":2,"seq":17"#);
    let check = |frame, rest: &str| check_from_worker(frame, &rest.replace("ID", &id));
    check(
        FromWorker::Started {
            about: about(),
            prompt_tokens: 11,
            cached_tokens: 3,
        },
        r#"{"type":"started",ID,"prompt_tokens":11,"cached_tokens":3}"#,
    );
    let usage = Usage {
        prompt_tokens: 11,
        cached_tokens: 3,
        completion_tokens: 5,
        reasoning_tokens: 1,
    };
    check(
        FromWorker::Usage {
            about: about(),
            usage,
        },
        r#"{"type":"usage",ID,"usage":{"prompt_tokens":11,"completion_tokens":5,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":1}}}"#,
    );
    check(
        FromWorker::Busy {
            about: about(),
            retry_after: Duration::from_millis(200),
        },
        r#"{"type":"busy",ID,"retry_ms":200}"#,
    );
    check(
        FromWorker::Alive {
            about: about(),
            phase: Some("prefill".to_owned()),
        },
        r#"{"type":"alive",ID,"phase":"prefill"}"#,
    );
    check(
        FromWorker::Error(ErrorFrame {
            about: about(),
            message: "too long".to_owned(),
            client_error: true,
            code: Some(FailureKind::ContextLengthExceeded),
        }),
        r#"{"type":"error",ID,"message":"too long","client_error":true,"code":"context_length_exceeded"}"#,
    );
    check(
        FromWorker::Done(Box::new(Done::new(about(), FinishReason::Stop, usage))),
        r#"{"type":"done",ID,"finish_reason":"stop","usage":{"prompt_tokens":11,"completion_tokens":5,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":1}}}"#,
    );
    check(
        FromWorker::Output(Output {
            about: about(),
            events: vec![text("a"), text("b")],
            finish: None,
        }),
        r#"{"type":"tokens",ID,"d":[{"content":"a"},{"content":"b"}]}"#,
    );
    check_from_worker(
        FromWorker::Drain {
            within: Duration::from_secs(120),
            why: Some("update".to_owned()),
        },
        r#"{"type":"drain","deadline_s":120,"why":"update"}"#,
    );
}

#[test]
fn what_the_coordinator_adds_for_our_own_peers_crosses_too() {
    let ready = Ready {
        worker_id: ID.to_owned(),
        ext: Some(Agreed {
            version: 1,
            r#use: Extensions::default()
                .with(Extension::Multi)
                .with(Extension::Resume),
            max_frame: Some(33_554_432),
            session: Some("s".to_owned()),
            beat_secs: Some(10),
            grace_secs: Some(45),
            hosts: Some(vec!["https://store.example".to_owned()]),
        }),
        resume: vec![
            Verdict {
                job: job(),
                attempt: 2,
                go_on_after: Some(17),
            },
            Verdict {
                job: job(),
                attempt: 3,
                go_on_after: None,
            },
        ],
    };
    let wanted = r#"{"type":"ready","worker_id":"ID","ext":{"v":1,"use":["multi","resume"],"max_frame":33554432,"session":"s","hb_s":10,"grace_s":45,"hosts":["https://store.example"]},"resume":[{"id":"ID","att":2,"have":17,"verdict":"continue"},{"id":"ID","att":3,"verdict":"drop"}]}"#;
    check_to_worker(ToWorker::Ready(ready), &wanted.replace("ID", ID));
    let attempt = About::attempt(job(), 2);
    check_to_worker(
        ToWorker::Cancel {
            about: attempt,
            why: Some(CancelWhy::Client),
        },
        &r#"{"type":"cancel","id":"ID","att":2,"why":"client"}"#.replace("ID", ID),
    );
    check_to_worker(
        ToWorker::Got { about: about() },
        &r#"{"type":"got","id":"ID","att":2,"seq":17}"#.replace("ID", ID),
    );
    let request = TextRequest {
        input: TextInput::Prompt("Once".to_owned()),
        sampling: crate::job::Sampling {
            seed: Some(u64::MAX),
            temperature: Some(0.7),
            ..Default::default()
        },
        max_tokens: Some(64),
        stop: Vec::new(),
        logprobs: None,
        prompt_logprobs: None,
        tool_choice: None,
        stop_rules: StopRules::default(),
        parallel_tool_calls: None,
        format: None,
        choice: 1,
    };
    let job = JobFrame {
        prefill: Some(Prefill {
            text: "up".to_owned(),
            tokens: vec![4, 5],
            written: Some(2),
        }),
        cache_salt: Some("5eed".to_owned()),
        deadline: Some(Duration::from_secs(9)),
        keep_alive: Some(crate::job::KeepAlive::Always),
        ..JobFrame::text(attempt, "demo", Payload::Neutral(request.into()))
    };
    let frame = ToWorker::Job(Box::new(job));
    assert_eq!(ToWorker::parse(&frame.to_text()), Ok(frame));
}

#[test]
fn a_registration_that_says_little_gets_the_contracts_defaults() {
    let read = Registration::parse(r#"{"apikey":"k","name":"n","models":["a",7,null]}"#).unwrap();
    let wanted = Registration::new("k", "n", vec!["a".to_owned()]);
    assert_eq!(read, wanted);
    let numbers = Registration::parse(r#"{"max_length":8192.0,"max_context_length":-1}"#).unwrap();
    assert_eq!((numbers.max_length, numbers.max_context_length), (8192, 0));
    assert_eq!(
        (read.max_length, read.max_context_length, read.formats),
        (512, 2048, Formats::OPENAI_CHAT)
    );
    assert!(!format!("{:?}", Registration::new("hidden", "n", Vec::new())).contains("hidden"));
}

#[test]
fn job_types_and_formats_keep_what_is_known() {
    let read = |text: &str| Registration::parse(text).unwrap();
    let media = read(r#"{"job_types":["3d","jpeg","image"],"worker_type":"audio"}"#);
    assert_eq!(media.kinds, Kinds::from(Kind::Image).with(Kind::Mesh));
    assert_eq!(
        read(r#"{"job_types":[],"worker_type":"audio"}"#).kinds,
        Kinds::from(Kind::Music)
    );
    assert_eq!(
        read(r#"{"job_types":["x"]}"#).kinds,
        Kinds::from(Kind::Text)
    );
    let formats = read(r#"{"api_formats":["soap","neutral","anthropic"]}"#).formats;
    assert_eq!(formats, Formats::NEUTRAL.with(Formats::ANTHROPIC));
}

#[test]
fn deltas_of_strange_backends_are_read_as_far_as_they_go() {
    let events = |rest: &str| {
        let frame = format!(r#"{{"type":"token","id":"{ID}",{rest}}}"#);
        match FromWorker::parse(&frame).unwrap() {
            FromWorker::Output(output) => (output.events, output.finish),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        events(r#""text":"a","reasoning":false"#),
        (vec![text("a")], None)
    );
    let thought = Event::Token(TokenEvent {
        channel: Channel::Reasoning,
        text: "hm".to_owned(),
        ..TokenEvent::default()
    });
    assert_eq!(
        events(r#""text":"hm","reasoning":true"#).0,
        std::slice::from_ref(&thought)
    );
    let both = r#""delta":{"role":"assistant","content":"a","reasoning":"hm","tool_calls":null}"#;
    assert_eq!(events(both).0, [thought, text("a")]);
    let twice = r#""delta":{"content":"a","reasoning":"hm","reasoning_content":"hm"}"#;
    assert_eq!(events(twice).0, events(both).0);
    let strange = r#""delta":{"content":"a"},"logprobs":{"content":[{"token":null}]}"#;
    assert_eq!(events(strange).0, [text("a")]);
    let empty = r#""delta":{"content":""},"finish_reason":"length""#;
    assert_eq!(events(empty), (Vec::new(), Some(FinishReason::Length)));
    let call = r#""delta":{"tool_calls":[{"id":"c","type":"function","function":{"name":"f"}}]}"#;
    let wanted = ToolCallEvent {
        id: Some("c".to_owned()),
        name: Some("f".to_owned()),
        ..ToolCallEvent::default()
    };
    assert_eq!(events(call).0, [Event::ToolCall(wanted)]);
}

#[test]
fn frames_without_a_job_or_of_unknown_type_change_nothing() {
    for frame in [
        r#"{"type":"no_job"}"#,
        r#"{"type":"token","delta":{"content":"a"}}"#,
        r#"{"type":"done","id":"not-an-id"}"#,
        r#"{"type":"busy","id":7}"#,
    ] {
        assert_eq!(FromWorker::parse(frame), Ok(FromWorker::Unknown), "{frame}");
        assert_eq!(ToWorker::parse(frame), Ok(ToWorker::Unknown), "{frame}");
    }
    assert_eq!(ToWorker::parse("{}"), Ok(ToWorker::Unknown));
}

#[test]
fn half_an_emoji_is_read_as_a_replacement_character() {
    let frame = format!(
        r#"{{"type":"token","id":"{ID}","delta":{{"content":"so \ud83d","reasoning_content":"\ud83d\ude00"}}}}"#
    );
    let FromWorker::Output(output) = FromWorker::parse(&frame).unwrap() else {
        panic!("output was wanted");
    };
    let texts = output.events.iter().map(|event| match event {
        Event::Token(token) => token.text.as_str(),
        other => panic!("{other:?}"),
    });
    assert_eq!(texts.collect::<Vec<_>>(), ["😀", "so \u{fffd}"]);
    let registration = FromWorker::parse(r#"{"name":"rig \udc00"}"#).unwrap();
    assert!(matches!(registration, FromWorker::Register(it) if it.name == "rig \u{fffd}"));
}

fn job_of(frame: &str) -> JobFrame {
    match ToWorker::parse(frame).unwrap() {
        ToWorker::Job(job) => *job,
        other => panic!("a job was wanted, found {other:?}"),
    }
}

#[test]
fn a_job_with_what_python_writes_and_json_does_not_know_is_read() {
    let frame = format!(
        r#"{{"type":"job","id":"{ID}","model":"m","payload":{{"request":{{"a":"\ud83d","b":[NaN,-Infinity,1]}}}}}}"#
    );
    let Payload::Public(payload) = job_of(&frame).payload else {
        panic!("a public payload was wanted");
    };
    let wanted = json!({"a": "\u{fffd}", "b": [null, null, 1]});
    assert_eq!(payload["request"], wanted);
}

#[test]
fn a_job_that_cannot_be_taken_in_can_still_be_refused() {
    let check = |rest: &str, wanted: Payload| {
        let frame = format!(r#"{{"type":"job","id":"{ID}","att":3,"model":"m",{rest}}}"#);
        let job = job_of(&frame);
        assert_eq!(
            (job.about, job.model.as_str()),
            (About::attempt(self::job(), 3), "m")
        );
        assert_eq!(job.payload, wanted, "{frame:.80}");
    };
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    check(
        &format!(r#""payload":{{"request":{deep}}}"#),
        Payload::Excessive,
    );
    check(
        &format!(r#""payload":{{"request":{deep},"x":NaN}}"#),
        Payload::Excessive,
    );
    check(
        r#""payload":{"request":{"seed":1e999}}"#,
        Payload::Excessive,
    );
    check(r#""payload":7"#, Payload::Unreadable);
    check(r#""payload":{},"job_type":"opera""#, Payload::Unreadable);
    let nameless = format!(r#"{{"type":"job","model":"m","payload":{{"request":{deep}}}}}"#);
    assert_eq!(ToWorker::parse(&nameless), Ok(ToWorker::Unknown));
}

#[test]
fn an_image_job_comes_back_as_it_was_written() {
    let image: ImageRequest = serde_json::from_value(json!({
        "prompt": "a cat", "negative_prompt": "a dog", "width": 512, "height": 768, "steps": 20,
        "cfg_scale": 7.5, "sampler": "k_euler_a", "karras": true, "scheduler": "beta",
        "clip_skip": 2, "seed": 5_000_000_000_u64, "strength": 0.5, "index": 1, "previews": 3,
        "source": {"image": "https://example.org/a?signature=b", "mask": "https://example.org/c"},
    }))
    .unwrap();
    let payload = Payload::Neutral(image.into());
    let job = JobFrame {
        kind: Kind::Image,
        upload: vec![UploadSlot {
            put_url: "https://example.org/put".to_owned(),
            key: "results/a.webp".to_owned(),
            content_type: "image/webp".to_owned(),
        }],
        ..JobFrame::text(About::attempt(job(), 3), "m", payload)
    };
    let frame = ToWorker::Job(Box::new(job));
    assert_eq!(ToWorker::parse(&frame.to_text()), Ok(frame));
}

#[test]
fn a_media_job_of_an_unknown_kind_is_unreadable() {
    let check = |media: &str| {
        let frame = format!(
            r#"{{"type":"job","id":"{ID}","att":3,"model":"m","payload":{{"api_format":"neutral","media":{media}}}}}"#
        );
        assert_eq!(job_of(&frame).payload, Payload::Unreadable, "{media}");
    };
    check(r#"{"kind":"opera","prompt":"a"}"#);
    check(r#"{"prompt":"a"}"#);
    check(r#"{"kind":"image","prompt":7}"#);
    check("[]");
}

#[test]
fn more_upload_links_than_outputs_can_have_spoil_a_job() {
    let slot = r#"{"put_url":"u","key":"k","content_type":"image/webp"}"#;
    let frame = |count: usize| {
        let slots = vec![slot; count].join(",");
        format!(
            r#"{{"type":"job","id":"{ID}","att":3,"model":"m","payload":{{}},"upload":[{slots}]}}"#
        )
    };
    assert_eq!(job_of(&frame(64)).upload.len(), 64);
    assert_eq!(job_of(&frame(65)).payload, Payload::Unreadable);
}

#[test]
fn progress_has_steps_and_a_preview_that_is_small() {
    let check = |progress: Progress, preview: Option<Vec<u8>>, kept: Option<Vec<u8>>| {
        let about = about();
        let frame = FromWorker::Progress {
            about,
            progress,
            preview,
        };
        let preview = kept;
        let kept = FromWorker::Progress {
            about,
            progress,
            preview,
        };
        assert_eq!(FromWorker::parse(&frame.to_text()), Ok(kept));
    };
    check(Progress::at(5, 20), None, None);
    check(Progress::percent(30), None, None);
    let largest = vec![7; MOST_PREVIEW_BYTES];
    check(Progress::at(1, 2), Some(largest.clone()), Some(largest));
    check(
        Progress::at(1, 2),
        Some(vec![7; MOST_PREVIEW_BYTES + 1]),
        None,
    );
}

#[test]
fn absurd_progress_is_only_a_sign_of_life() {
    let frame = format!(
        r#"{{"type":"progress","id":"{ID}","pct":1e300,"step":9,"steps":3,"preview_b64":"not base64"}}"#
    );
    let FromWorker::Progress {
        progress, preview, ..
    } = FromWorker::parse(&frame).unwrap()
    else {
        panic!("progress was wanted");
    };
    assert_eq!((progress, preview), (Progress::percent(100), None));
    let frame = format!(r#"{{"type":"progress","id":"{ID}","pct":{{}},"step":-1,"steps":"x"}}"#);
    let parsed = FromWorker::parse(&frame).unwrap();
    assert!(
        matches!(parsed, FromWorker::Progress { progress, .. } if progress == Progress::percent(0))
    );
}

#[test]
fn results_come_back_as_they_were_written_and_are_few() {
    let image = MediaResult {
        index: 0,
        seed: Some(7),
        sha256: "ab".repeat(32),
        key: Some("results/a.webp".to_owned()),
        content_type: Some("image/webp".to_owned()),
        bytes: Some(9),
        width: Some(512),
        height: Some(768),
        seconds: None,
        inline: None,
    };
    let with = |count: usize| Done {
        results: vec![image.clone(); count],
        ..Done::new(about(), FinishReason::Stop, Usage::default())
    };
    let frame = FromWorker::Done(Box::new(with(64)));
    assert_eq!(FromWorker::parse(&frame.to_text()), Ok(frame));
    let frame = FromWorker::Done(Box::new(with(65)));
    let none = FromWorker::Done(Box::new(with(0)));
    assert_eq!(FromWorker::parse(&frame.to_text()), Ok(none));
}

#[test]
fn a_done_is_one_whatever_else_it_says() {
    let frame = format!(
        r#"{{"type":"done","id":"{ID}","usage":"much","finish_reason":{{}},"cancelled":"no","full_text":7,"results":{{}}}}"#
    );
    let FromWorker::Done(done) = FromWorker::parse(&frame).unwrap() else {
        panic!("a done was wanted");
    };
    assert_eq!(
        (done.usage, done.finish, done.cancelled),
        (None, None, false)
    );
    let frame = format!(r#"{{"type":"error","id":"{ID}","message":{{"code":503}}}}"#);
    let FromWorker::Error(error) = FromWorker::parse(&frame).unwrap() else {
        panic!("an error was wanted");
    };
    assert_eq!((error.message.as_str(), error.client_error), ("", false));
}

#[test]
fn lone_surrogates_nan_and_100000_deep_json_do_no_harm() {
    let check = |frame: &str, wanted: &str| {
        let errors = [FromWorker::parse(frame).err(), ToWorker::parse(frame).err()];
        let said: Vec<_> = errors.iter().flatten().map(FrameError::to_string).collect();
        assert!(
            said.iter().any(|said| said.contains(wanted)),
            "{said:?} of {frame:.80}"
        );
    };
    check(
        &format!(r#"{{"type":"token","id":"{ID}","delta":{{"content":"\ud800}}}}"#),
        "not valid JSON",
    );
    check(
        &format!(r#"{{"type":"token","id":"{ID}","delta":NaN}}"#),
        "not valid JSON",
    );
    check(
        &format!(r#"{{"type":"token","id":"{ID}","seq":1e999}}"#),
        "not valid JSON",
    );
    check(
        &format!(r#"{{"type":"token","id":"{ID}","att":-1}}"#),
        "field of the wrong type",
    );
    check(
        &format!(r#"{{"type":"token","id":"{ID}","att":4294967296}}"#),
        "field of the wrong type",
    );
    check(
        &format!(
            r#"{{"type":"tokens","id":"{ID}","d":[{}{{}}]}}"#,
            "{},".repeat(5000)
        ),
        "field of the wrong type",
    );
    check("[]", "not a JSON object");
    check("", "not a JSON object");
    check(r#"{"type":7}"#, "field of the wrong type");
    let deep = "[".repeat(100_000);
    for frame in [
        deep.clone(),
        format!(r#"{{"type":{deep}"#),
        format!(r#"{{"type":"done","id":"{ID}","full_json":{deep}"#),
        format!(r#"{{"type":"job","id":"{ID}","payload":{{"request":{deep}"#),
        format!(r#"{{"models":{deep}"#),
    ] {
        assert!(FromWorker::parse(&frame).is_err());
        assert!(ToWorker::parse(&frame).is_err());
    }
    let closed = format!(r#"{{"type":"ping","x":{deep}{}}}"#, "]".repeat(100_000));
    assert_eq!(ToWorker::parse(&closed), Ok(ToWorker::Ping));
}

#[test]
fn a_neutral_job_that_is_none_is_told_from_a_broken_frame() {
    let frame = format!(
        r#"{{"type":"job","id":"{ID}","model":"m","payload":{{"api_format":"neutral","request":{{"input":{{"song":1}}}}}}}}"#
    );
    match ToWorker::parse(&frame).unwrap() {
        ToWorker::Job(job) => assert_eq!(job.payload, Payload::Unreadable),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_worker_can_blame_itself_or_the_request_and_nothing_else() {
    let failure = |client_error, code| {
        let frame = ErrorFrame {
            about: about(),
            message: String::new(),
            client_error,
            code,
        };
        frame.failure().kind
    };
    assert_eq!(failure(true, None), FailureKind::InvalidRequest);
    assert_eq!(failure(false, None), FailureKind::WorkerFailed);
    let overflow = Some(FailureKind::ContextLengthExceeded);
    assert_eq!(failure(true, overflow), FailureKind::ContextLengthExceeded);
    assert_eq!(failure(false, overflow), FailureKind::WorkerFailed);
    let doors = Some(FailureKind::InvalidKey);
    assert_eq!(failure(true, doors), FailureKind::InvalidRequest);
}

#[test]
fn rewards_are_written_as_public_peers_read_them() {
    let ack = |amount| ToWorker::Ack {
        about: About::job(job()),
        reward: Kudos(amount),
    };
    for (amount, wanted) in [
        (0, "0"),
        (100, "0.1"),
        (480, "0.48"),
        (12_005, "12.005"),
        (-50, "-0.05"),
    ] {
        let frame = ack(amount).to_text();
        assert!(frame.ends_with(&format!(r#""den":{wanted}}}"#)), "{frame}");
        assert_eq!(ToWorker::parse(&frame), Ok(ack(amount)));
    }
}

fn token_event() -> impl Strategy<Value = Event> {
    let channel = prop_oneof![
        Just(Channel::Content),
        Just(Channel::Reasoning),
        Just(Channel::Refusal)
    ];
    let logprob = (
        vec(any::<u8>(), 0..9),
        -1e30f32..0.0,
        vec((vec(any::<u8>(), 0..9), -50f32..0.0), 0..3),
    );
    let logprob = logprob.prop_map(|(bytes, logprob, top)| TokenLogprob {
        bytes,
        logprob,
        top,
    });
    let token = (channel, ".+", vec(any::<u32>(), 0..4), vec(logprob, 0..3));
    let token = token.prop_map(|(channel, text, ids, logprobs)| {
        Event::Token(TokenEvent {
            channel,
            text,
            ids,
            logprobs,
        })
    });
    let call = (
        any::<u32>(),
        option::of(".+"),
        option::of(".+"),
        any::<String>(),
        vec(any::<u32>(), 0..4),
    );
    let call = call.prop_map(|(index, id, name, arguments, ids)| {
        Event::ToolCall(ToolCallEvent {
            index,
            id,
            name,
            arguments,
            ids,
        })
    });
    prop_oneof![token, call]
}

proptest! {
    #[test]
    fn every_token_and_tool_call_crosses_without_loss(events in vec(token_event(), 1..5)) {
        let mut written = String::new();
        write_tokens(about(), &events, &mut written);
        let wanted = Output { about: about(), events, finish: None };
        assert_eq!(FromWorker::parse(&written), Ok(FromWorker::Output(wanted)));
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in any::<String>()) {
        let _ = FromWorker::parse(&text);
        let _ = ToWorker::parse(&text);
    }

    /// Frames of the contract with bytes changed, cut and repeated.
    #[test]
    fn broken_frames_are_errors_and_never_panics(
        line in 0..TRANSCRIPTS.lines().count(),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let frame = TRANSCRIPTS.lines().nth(line).unwrap_or_default();
        let frame = frame.split_once(' ').map_or("{}", |(_, frame)| frame);
        let mut bytes = frame.as_bytes().to_vec();
        bytes.push(b' ');
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() * 4).min(bytes.len()));
        let text = String::from_utf8_lossy(&bytes);
        let _ = FromWorker::parse(&text);
        let _ = ToWorker::parse(&text);
    }
}

#[test]
fn usage_is_read_in_every_spelling() {
    let usage = |text: Value| {
        let frame = json!({"type": "done", "id": ID, "usage": text}).to_string();
        match FromWorker::parse(&frame).unwrap() {
            FromWorker::Done(done) => done.usage.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let raw = usage(json!({"input_tokens": 6, "output_tokens": 5}));
    assert_eq!((raw.prompt_tokens, raw.completion_tokens), (6, 5));
    let twice = usage(
        json!({"prompt_tokens": 6, "input_tokens": 6, "completion_tokens": 5, "output_tokens": 5}),
    );
    assert_eq!(twice, raw);
    let odd = usage(
        json!({"prompt_tokens": null, "completion_tokens": -3.5, "prompt_tokens_details": null}),
    );
    assert_eq!(odd, Usage::default());
}

#[test]
fn a_large_frame_about_a_job_nobody_wants_is_answered_and_not_read() {
    let job = JobId::random();
    let zeros = "0,".repeat(1_200_000);
    for kind in ["token", "done", "usage", "progress"] {
        let text = format!(
            r#"{{"type":"{kind}","id":"{job}","att":2,"text":"{}"}}"#,
            "x".repeat(1 << 17)
        );
        let frame = FromWorker::parse_wanted(&text, |_| false).unwrap();
        let about = frame.about().unwrap();
        assert_eq!((about.job, about.attempt), (job, Some(2)));
        match frame {
            FromWorker::Done(done) => assert_eq!(done.full_text, None),
            FromWorker::Output(output) => {
                assert_eq!(output.events, [Event::Token(TokenEvent::default())])
            }
            other => panic!("{other:?}"),
        }
    }
    let text = format!(r#"{{"type":"token","id":"{job}","delta":{{}},"logprobs":[{zeros}0]}}"#);
    for is_wanted in [true, false] {
        let read = FromWorker::parse_wanted(&text, |_| is_wanted);
        assert!(matches!(read, Err(FrameError::TooManyValues { .. })));
    }
    let text =
        format!(r#"{{"type":"job","id":"{job}","model":"tiny","payload":{{"x":[{zeros}0]}}}}"#);
    let ToWorker::Job(frame) = ToWorker::parse(&text).unwrap() else {
        panic!("a job was wanted");
    };
    assert_eq!(frame.payload, Payload::Excessive);
}
