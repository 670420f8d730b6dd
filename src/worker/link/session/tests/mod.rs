//! Tests of a session without its shell, at times that the test chooses.
//!
//! | file | behaviour |
//! | --- | --- |
//! | `talking` | successful jobs |
//! | `losing` | broken sockets, and reconnections |
//! | `leaving` | draining and pausing |
//! | `changing` | changed models |

mod changing;
mod leaving;
mod losing;
mod talking;

use std::time::Duration;

use crate::link::offer::Said;
use crate::link::session::{Input, Moment, Output, Session, Settings, Slot};
use muster_protocol::job::{Event, FinishReason, JobId, TokenEvent, Usage};
use muster_protocol::link::{
    About, Agreed, Extension, Extensions, FromWorker, JobFrame, Payload, Ready, Registration,
    ToWorker, VERSION, Verdict, Wanted,
};

const JOB: JobId = JobId(uuid::Uuid::from_u128(7));

/// A session, its clock, and its outputs.
struct Line {
    session: Session,
    now: Duration,
    out: Vec<Output>,
}

impl Line {
    fn new() -> Self {
        Self::wanting(Extensions::all().without(Extension::OwnJobs))
    }

    fn wanting(want: Extensions) -> Self {
        let mut registration = Registration::new("key", "rig", vec!["demo".to_owned()]);
        registration.ext = Some(Wanted {
            version: VERSION,
            want,
            can: Vec::new(),
            excludes: Vec::new(),
            max_frame: None,
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

    /// The sent frames, except for reports of the worker's state.
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
            hosts: None,
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
