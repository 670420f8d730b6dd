use std::time::Duration;

use super::jobs::{GATHER, MOST_GATHERED, MOST_KEPT_BYTES};
use super::{Ending, Input, Moment, Output, Session, Settings, Slot};
use crate::link::offer::Said;
use crate::protocol::job::{
    Event, Failure, FailureKind, FinishReason, JobId, Kudos, TokenEvent, Usage,
};
use crate::protocol::link::{
    About, Agreed, Extensions, FromWorker, JobFrame, ModelState, Payload, Ready, RefusalCode,
    RefusalFrame, Registration, State, ToWorker, VERSION, Verdict, Wanted,
};

const JOB: JobId = JobId(uuid::Uuid::from_u128(7));

/// A session, its time, and what it has asked for.
struct Line {
    session: Session,
    now: Duration,
    out: Vec<Output>,
}

impl Line {
    fn new() -> Self {
        let mut registration = Registration::new("key", "rig", vec!["demo".to_owned()]);
        registration.ext = Some(Wanted {
            version: VERSION,
            want: Extensions::all(),
            can: Vec::new(),
            max_frame: None,
            instance: None,
        });
        let settings = Settings {
            registration,
            jitter: 1,
        };
        let mut line = Self {
            session: Session::new(settings),
            now: Duration::ZERO,
            out: Vec::new(),
        };
        line.tick();
        assert_eq!(line.outputs(), [Output::Dial]);
        line
    }

    fn public() -> Self {
        let mut line = Self::new();
        line.put(Input::Opened);
        line.hear(ToWorker::Ready(Ready::default()));
        line.out.clear();
        line
    }

    fn ours() -> Self {
        let mut line = Self::new();
        line.put(Input::Opened);
        line.hear(ready(&[]));
        line.out.clear();
        line
    }

    fn put(&mut self, input: Input) {
        let mut out = std::mem::take(&mut self.out);
        self.session.handle(input, Moment(self.now), &mut out);
        self.out = out;
    }

    fn tick(&mut self) {
        self.put(Input::Tick);
    }

    fn hear(&mut self, frame: ToWorker) {
        self.put(Input::Frame(frame));
    }

    fn say(&mut self, slot: Slot, said: Said) {
        self.put(Input::Said { slot, said });
    }

    fn write(&mut self, slot: Slot, text: &str) {
        let event = Event::Token(TokenEvent {
            text: text.to_owned(),
            ids: vec![text.len() as u32],
            ..TokenEvent::default()
        });
        self.say(slot, Said::Output(vec![event]));
    }

    /// Lets time pass, with every wake on the way.
    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.session.next_wake()
            && due.0 <= end
        {
            self.now = self.now.max(due.0);
            self.tick();
        }
        self.now = end;
        self.tick();
    }

    fn job(&mut self, attempt: Option<u32>) -> Slot {
        let about = About {
            attempt,
            ..About::job(JOB)
        };
        let job = JobFrame::text(about, "demo", Payload::Public(serde_json::Map::new()));
        self.hear(ToWorker::Job(Box::new(job)));
        let begun = self.outputs().into_iter().find_map(|output| match output {
            Output::Begin(work) => Some(work.slot),
            _ => None,
        });
        begun.unwrap()
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// What was sent, without the reports on the worker's state.
    fn sent(&mut self) -> Vec<FromWorker> {
        let outputs = self.outputs().into_iter();
        let frames = outputs.filter_map(|output| match output {
            Output::Send(text) => Some(FromWorker::parse(&text).unwrap()),
            _ => None,
        });
        frames
            .filter(|frame| !matches!(frame, FromWorker::State(_)))
            .collect()
    }

    fn texts(&mut self) -> Vec<String> {
        let outputs = self.outputs().into_iter();
        let texts = outputs.filter_map(|output| match output {
            Output::Send(text) => Some(text),
            _ => None,
        });
        texts.filter(|text| !text.contains("state")).collect()
    }
}

fn ready(resume: &[Verdict]) -> ToWorker {
    ToWorker::Ready(Ready {
        worker_id: "w".to_owned(),
        ext: Some(Agreed {
            version: VERSION,
            r#use: Extensions::all(),
            max_frame: None,
            session: Some("s1".to_owned()),
            beat_secs: Some(10),
            grace_secs: Some(45),
        }),
        resume: resume.to_vec(),
    })
}

fn done() -> Said {
    Said::Done {
        finish: FinishReason::Stop,
        usage: Usage::default(),
    }
}

fn seqs(frames: &[FromWorker]) -> Vec<u64> {
    let seq = |frame: &FromWorker| frame.about()?.seq;
    frames.iter().filter_map(seq).collect()
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_public_coordinator_sees_the_public_protocol_exactly() {
    let mut line = Line::public();
    let slot = line.job(None);
    line.say(
        slot,
        Said::Started {
            prompt_tokens: 3,
            cached_tokens: 0,
            seed: None,
        },
    );
    line.write(slot, "Red");
    line.write(slot, " and");
    line.say(slot, done());
    let id = JOB;
    assert_eq!(
        line.texts(),
        [
            format!(
                r#"{{"type":"token","id":"{id}","delta":{{"content":"Red"}},"finish_reason":null}}"#
            ),
            format!(
                r#"{{"type":"token","id":"{id}","delta":{{"content":" and"}},"finish_reason":null}}"#
            ),
            format!(
                r#"{{"type":"done","id":"{id}","full_text":"Red and","finish_reason":"stop","usage":{{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}}}"#
            ),
        ]
    );
}

#[test]
fn a_ping_is_answered_at_any_time() {
    for mut line in [Line::public(), Line::ours()] {
        line.job(Some(1));
        line.hear(ToWorker::Ping);
        assert!(line.sent().contains(&FromWorker::Pong));
    }
}

#[test]
fn a_silent_public_job_is_kept_alive_by_pongs_and_ours_by_beats() {
    let mut line = Line::public();
    line.job(None);
    for _ in 0..3 {
        line.wait(secs(20));
        line.put(Input::Heard);
    }
    let pongs = line.sent();
    assert_eq!(pongs, [const { FromWorker::Pong }; 3]);

    let mut line = Line::ours();
    line.job(Some(1));
    line.wait(secs(11));
    let beats = line.sent();
    assert_eq!(beats.len(), 2);
    assert!(beats.iter().all(
        |beat| matches!(beat, FromWorker::Alive { phase, .. } if phase.as_deref() == Some("prefill"))
    ));
}

#[test]
fn the_first_token_leaves_at_once_and_the_next_ones_gather() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.write(slot, "a");
    assert_eq!(line.sent().len(), 1, "at once");
    line.now += millis(1);
    line.write(slot, "b");
    line.write(slot, "c");
    assert_eq!(line.sent(), []);
    line.wait(GATHER);
    let sent = line.sent();
    assert_eq!((sent.len(), seqs(&sent)), (1, vec![2]));
    assert!(matches!(&sent[0], FromWorker::Output(output) if output.events.len() == 2));
    for _ in 0..MOST_GATHERED {
        line.write(slot, "d");
    }
    assert_eq!(seqs(&line.sent()), [4], "full");
    line.wait(secs(1));
    line.write(slot, "e");
    assert_eq!(
        seqs(&line.sent()),
        [4 + MOST_GATHERED as u64],
        "a slow stream is not slowed"
    );
}

#[test]
fn a_lost_socket_stops_nothing_and_only_what_was_not_confirmed_is_sent_again() {
    let mut line = Line::ours();
    let slot = line.job(Some(3));
    for text in ["a", "b", "c"] {
        line.write(slot, text);
        line.wait(GATHER);
    }
    assert_eq!(seqs(&line.sent()), [1, 2, 3]);
    line.hear(ToWorker::Got {
        about: About {
            seq: Some(1),
            ..About::attempt(JOB, 3)
        },
    });
    line.put(Input::Lost { code: None });
    line.write(slot, "d");
    line.say(slot, done());
    assert_eq!(line.sent(), [], "there is no socket");
    line.wait(secs(2));
    assert_eq!(line.outputs(), [Output::Dial]);
    line.put(Input::Opened);
    let greeting = line.sent();
    let FromWorker::Register(registration) = &greeting[0] else {
        panic!("{greeting:?}");
    };
    let resume = registration.resume.as_ref().unwrap();
    assert_eq!((resume.session.as_str(), resume.jobs[0].last), ("s1", 5));
    line.hear(ready(&[Verdict {
        job: JOB,
        attempt: 3,
        go_on_after: Some(2),
    }]));
    assert_eq!(seqs(&line.sent()), [3, 4, 5]);
    line.hear(ToWorker::Ack {
        about: About::attempt(JOB, 3),
        reward: Kudos(1),
    });
    assert!(line.session.jobs.is_empty());
}

#[test]
fn jobs_the_coordinator_gave_to_others_are_stopped() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.put(Input::Lost { code: None });
    line.wait(secs(2));
    line.put(Input::Opened);
    line.outputs();
    line.hear(ready(&[]));
    assert!(line.outputs().contains(&Output::Stop(slot)));
}

#[test]
fn after_the_grace_the_jobs_are_given_up_and_a_public_loss_gives_them_up_at_once() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.put(Input::Lost { code: None });
    assert_eq!(line.outputs(), []);
    line.wait(secs(44));
    assert!(!line.outputs().contains(&Output::Stop(slot)));
    line.wait(secs(2));
    assert!(line.outputs().contains(&Output::Stop(slot)));

    let mut line = Line::public();
    let slot = line.job(None);
    line.put(Input::Lost { code: None });
    assert_eq!(line.outputs(), [Output::Stop(slot)]);
}

#[test]
fn what_is_never_confirmed_is_bounded() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    let long = "x".repeat(1 << 20);
    let mut stopped = false;
    for _ in 0..=MOST_KEPT_BYTES >> 20 {
        line.write(slot, &long);
        line.wait(GATHER);
        stopped |= line.outputs().contains(&Output::Stop(slot));
    }
    assert!(stopped && line.session.jobs.is_empty());
}

#[test]
fn a_cancel_stops_the_work_and_its_last_word_is_passed_on() {
    for (mut line, attempt) in [(Line::public(), None), (Line::ours(), Some(2))] {
        let slot = line.job(attempt);
        line.write(slot, "a");
        line.outputs();
        let about = About {
            attempt,
            ..About::job(JOB)
        };
        line.hear(ToWorker::Cancel { about, why: None });
        line.hear(ToWorker::Cancel { about, why: None });
        assert_eq!(line.outputs(), [Output::Stop(slot)]);
        let finish = FinishReason::Cancelled;
        let usage = Usage::default();
        line.say(slot, Said::Done { finish, usage });
        let sent = line.sent();
        assert!(
            matches!(&sent[..], [FromWorker::Done(done)] if done.cancelled),
            "{sent:?}"
        );
    }
}

#[test]
fn a_dropped_attempt_is_stopped_without_a_word() {
    let mut line = Line::ours();
    let slot = line.job(Some(2));
    let stray = About::attempt(JOB, 1);
    line.hear(ToWorker::Drop { about: stray });
    assert_eq!(line.outputs(), []);
    let about = About::attempt(JOB, 2);
    line.hear(ToWorker::Drop { about });
    assert_eq!(line.outputs(), [Output::Stop(slot)]);
    line.say(slot, done());
    assert_eq!(line.outputs(), []);
}

#[test]
fn acks_are_matched_by_id_and_not_by_their_place() {
    let mut line = Line::public();
    let slot = line.job(None);
    line.say(slot, done());
    line.outputs();
    line.hear(ToWorker::Ping);
    let stranger = JobId(uuid::Uuid::from_u128(8));
    line.hear(ToWorker::Ack {
        about: About::job(stranger),
        reward: Kudos(0),
    });
    assert_eq!(line.session.jobs.len(), 1);
    line.hear(ToWorker::Ack {
        about: About::job(JOB),
        reward: Kudos(0),
    });
    assert!(line.session.jobs.is_empty());
}

#[test]
fn a_wrong_key_ends_the_line_and_tells_the_operator() {
    let mut line = Line::new();
    line.put(Input::Opened);
    line.hear(ToWorker::Error(RefusalFrame {
        message: "unknown key".to_owned(),
        code: None,
        retry_secs: None,
    }));
    line.outputs();
    line.put(Input::Lost { code: Some(4001) });
    let ending = Ending::Refused("unknown key".to_owned());
    assert_eq!(line.outputs(), [Output::Over(ending)]);
    assert_eq!(line.session.next_wake(), None);
}

#[test]
fn waits_after_a_loss_follow_its_reason() {
    let waits = |code, refusal: Option<RefusalFrame>| {
        let mut line = Line::ours();
        if let Some(refusal) = refusal {
            line.hear(ToWorker::Error(refusal));
        }
        line.put(Input::Lost { code });
        line.session.next_wake().unwrap().0.as_secs()
    };
    assert!((1..=2).contains(&waits(None, None)));
    assert_eq!(waits(Some(4003), None), 30);
    let mut cooldown = RefusalFrame::new(RefusalCode::Cooldown, "too many failures");
    cooldown.retry_secs = Some(120);
    assert_eq!(waits(Some(4003), Some(cooldown)), 120);
    assert_eq!(waits(Some(1012), None), 10, "somebody else has our name");
}

#[test]
fn a_coordinator_that_says_it_drains_is_dialled_again_soon() {
    let mut line = Line::ours();
    line.hear(ToWorker::Drain {
        within: secs(5),
        why: None,
    });
    line.put(Input::Lost { code: Some(1012) });
    assert!(line.session.next_wake().unwrap().0 <= secs(2));
}

#[test]
fn a_draining_worker_finishes_what_runs_and_takes_no_more() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.put(Input::Leave { within: secs(60) });
    assert!(matches!(line.sent()[..], [FromWorker::Drain { .. }]));
    let other = JobId(uuid::Uuid::from_u128(9));
    let job = JobFrame::text(About::attempt(other, 1), "demo", Payload::Unreadable);
    line.hear(ToWorker::Job(Box::new(job)));
    assert!(matches!(line.sent()[..], [FromWorker::Busy { about, .. }] if about.job == other));
    line.say(slot, done());
    assert!(matches!(line.sent()[..], [FromWorker::Done(_)]));
    line.hear(ToWorker::Ack {
        about: About::attempt(JOB, 1),
        reward: Kudos(1),
    });
    let left = [Output::Close(Some(1000)), Output::Over(Ending::Left)];
    assert_eq!(line.outputs(), left);
}

#[test]
fn a_drain_that_takes_too_long_hands_the_jobs_back() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.put(Input::Leave { within: secs(4) });
    line.outputs();
    line.wait(secs(4));
    let outputs = line.outputs();
    assert_eq!(outputs[0], Output::Stop(slot));
    assert!(matches!(&outputs[1], Output::Send(text) if text.contains("busy")));
    assert_eq!(outputs.last(), Some(&Output::Over(Ending::Left)));
}

#[test]
fn an_idle_public_line_is_left_at_once_and_a_busy_one_after_its_ack() {
    let mut line = Line::public();
    line.put(Input::Leave { within: secs(60) });
    let left = [Output::Close(Some(1000)), Output::Over(Ending::Left)];
    assert_eq!(line.outputs(), left);

    let mut line = Line::public();
    let slot = line.job(None);
    line.put(Input::Leave { within: secs(60) });
    line.say(slot, done());
    assert!(matches!(line.outputs()[..], [Output::Send(_)]));
    line.wait(secs(10));
    assert_eq!(
        line.outputs(),
        left,
        "an ack that never comes is not waited for"
    );
}

#[test]
fn a_pause_leaves_public_coordinators_and_stays_with_ours() {
    let mut line = Line::public();
    let slot = line.job(None);
    line.put(Input::Pause(true));
    let stopped = [Output::Close(Some(1000)), Output::Stop(slot)];
    assert_eq!(line.outputs(), stopped);
    line.wait(secs(3600));
    assert_eq!(line.outputs(), []);
    line.put(Input::Pause(false));
    assert_eq!(line.outputs(), [Output::Dial]);

    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.put(Input::Pause(true));
    let retry_after = secs(30);
    line.say(slot, Said::Busy { retry_after });
    assert!(matches!(line.sent()[..], [FromWorker::Busy { about, .. }] if about.seq == Some(1)));
}

#[test]
fn failures_say_whose_fault_it_was_and_ours_hear_the_kind() {
    let failure = || Failure::new(FailureKind::ContextLengthExceeded, "too long");
    let mut line = Line::public();
    let slot = line.job(None);
    line.say(slot, Said::Failed(failure()));
    let wanted =
        format!(r#"{{"type":"error","id":"{JOB}","message":"too long","client_error":true}}"#);
    assert_eq!(line.texts(), [wanted]);
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.say(slot, Said::Failed(failure()));
    assert!(line.texts()[0].ends_with(r#""code":"context_length_exceeded"}"#));
}

#[test]
fn the_state_is_told_when_it_changes_and_every_beat() {
    let mut line = Line::ours();
    let state = |running| State {
        models: vec![ModelState {
            name: "demo".to_owned(),
            running,
            ..ModelState::default()
        }],
        ..State::default()
    };
    let reports = |line: &mut Line| {
        let is_state =
            |output: &Output| matches!(output, Output::Send(text) if text.contains("state"));
        line.outputs().into_iter().filter(is_state).count()
    };
    line.put(Input::Report(state(1)));
    line.put(Input::Report(state(2)));
    line.wait(secs(1));
    assert_eq!(reports(&mut line), 1, "changes close together are one");
    line.wait(secs(10));
    assert_eq!(reports(&mut line), 1);
}

#[test]
fn a_dead_socket_is_noticed() {
    let mut line = Line::public();
    line.wait(secs(31));
    assert_eq!(line.outputs(), [Output::Ping]);
    line.put(Input::Heard);
    line.wait(secs(31));
    assert_eq!(line.outputs(), [Output::Ping]);
    line.wait(secs(10));
    assert!(line.outputs().contains(&Output::Close(None)));
}

#[test]
fn a_coordinator_that_does_not_answer_a_registration_is_left() {
    let mut line = Line::new();
    line.put(Input::Opened);
    line.outputs();
    line.wait(secs(30));
    assert!(line.outputs().contains(&Output::Close(None)));
}

#[test]
fn an_offer_that_comes_twice_is_begun_once() {
    let mut line = Line::ours();
    line.job(Some(1));
    let about = About::attempt(JOB, 1);
    let job = JobFrame::text(about, "demo", Payload::Unreadable);
    line.hear(ToWorker::Job(Box::new(job)));
    assert_eq!(line.outputs(), []);
}

#[test]
fn a_deadline_ends_the_work() {
    let mut line = Line::ours();
    let about = About::attempt(JOB, 1);
    let mut job = JobFrame::text(about, "demo", Payload::Unreadable);
    job.deadline = Some(secs(3));
    line.hear(ToWorker::Job(Box::new(job)));
    line.outputs();
    line.wait(secs(4));
    assert!(matches!(line.outputs()[..], [Output::Stop(_)]));
}
