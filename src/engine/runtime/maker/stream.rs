//! The channel of a job's events. The thread never waits for its reader.
//!
//! A new step replaces an unread one. Outputs are buffered up to [`UNREAD_OUTPUTS`]. A job with [`UNREAD_FRAMES`]
//! unread frames pauses, so that a video of any length needs the memory of a few frames. The last event always arrives:
//! an outbox dropped early reports that the maker has stopped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};

use super::thread::MakerCommand;
use super::{Output, Pixels};
use crate::runtime::Failure;
use crate::runtime::outbox::TooSlow;

/// Results that a reader may leave unread before the job fails.
pub const UNREAD_OUTPUTS: usize = 64;
/// Frames that a reader may leave unread before the job rests.
pub const UNREAD_FRAMES: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub enum MakeEvent {
    /// The latest step. Earlier ones that were not read are left out.
    Step {
        at: u32,
        of: u32,
        preview: Option<Pixels>,
    },
    Made(Output),
    Done,
    Failed(Failure),
}

/// A job's events. Dropping it cancels the job at most one block later.
pub struct MakeStream {
    mailbox: Arc<Mailbox>,
    wake: mpsc::WeakSender<MakerCommand>,
    has_ended: bool,
}

/// The thread's end of a [`MakeStream`].
pub struct MakeOutbox {
    mailbox: Arc<Mailbox>,
    wake: mpsc::WeakSender<MakerCommand>,
    has_ended: bool,
}

#[derive(Default)]
struct Mailbox {
    unread: Mutex<UnreadEvents>,
    arrived: Notify,
}

#[derive(Default)]
struct UnreadEvents {
    events: VecDeque<MakeEvent>,
    is_abandoned: bool,
}

pub fn channel(wake: mpsc::WeakSender<MakerCommand>) -> (MakeOutbox, MakeStream) {
    let mailbox = Arc::<Mailbox>::default();
    let outbox = MakeOutbox {
        mailbox: Arc::clone(&mailbox),
        wake: wake.clone(),
        has_ended: false,
    };
    let stream = MakeStream {
        mailbox,
        wake,
        has_ended: false,
    };
    (outbox, stream)
}

impl MakeOutbox {
    pub fn is_abandoned(&self) -> bool {
        self.mailbox.lock().is_abandoned
    }

    pub fn step(&self, at: u32, of: u32, preview: Option<Pixels>) {
        let step = MakeEvent::Step { at, of, preview };
        self.mailbox.put(step);
    }

    /// Whether the job rests until its reader has read frames. Without a maker no reader could wake it.
    pub fn is_full(&self) -> bool {
        self.mailbox.lock().frames() >= UNREAD_FRAMES && self.wake.strong_count() > 0
    }

    pub fn made(&self, output: Output) -> Result<(), TooSlow> {
        if let Output::Frames { .. } = output {
            self.mailbox.put(MakeEvent::Made(output));
            return Ok(());
        }
        let unread = self.mailbox.lock().outputs();
        match unread < UNREAD_OUTPUTS {
            true => {
                self.mailbox.put(MakeEvent::Made(output));
                Ok(())
            }
            false => Err(TooSlow),
        }
    }

    pub fn finish(mut self, last: Result<(), Failure>) {
        self.end(last);
    }

    fn end(&mut self, last: Result<(), Failure>) {
        self.has_ended = true;
        self.mailbox.put(match last {
            Ok(()) => MakeEvent::Done,
            Err(failure) => MakeEvent::Failed(failure),
        });
    }
}

impl Drop for MakeOutbox {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Err(Failure::Stopped));
        }
    }
}

impl MakeStream {
    /// The next event. `None` after [`MakeEvent::Done`] or [`MakeEvent::Failed`], one of which always comes.
    pub async fn next(&mut self) -> Option<MakeEvent> {
        while !self.has_ended {
            let (event, rested) = self.mailbox.lock().take();
            match event {
                Some(event) => {
                    if rested {
                        self.wake();
                    }
                    self.has_ended = event.is_last();
                    return Some(event);
                }
                None => self.mailbox.arrived.notified().await,
            }
        }
        None
    }
}

impl Drop for MakeStream {
    fn drop(&mut self) {
        let unread = {
            let mut unread = self.mailbox.lock();
            unread.is_abandoned = true;
            std::mem::take(&mut unread.events)
        };
        drop(unread);
        if !self.has_ended {
            self.wake();
        }
    }
}

impl MakeStream {
    /// Wakes a parked thread. A busy thread checks after its block anyway.
    fn wake(&self) {
        if let Some(inbox) = self.wake.upgrade() {
            let _ = inbox.try_send(MakerCommand::Wake);
        }
    }
}

impl MakeEvent {
    fn is_last(&self) -> bool {
        match self {
            Self::Step { .. } | Self::Made(_) => false,
            Self::Done | Self::Failed(_) => true,
        }
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, UnreadEvents> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, event: MakeEvent) {
        self.lock().put(event);
        self.arrived.notify_one();
    }
}

impl UnreadEvents {
    fn put(&mut self, event: MakeEvent) {
        if self.is_abandoned {
            return;
        }
        if matches!(event, MakeEvent::Step { .. }) {
            self.events
                .retain(|unread| !matches!(unread, MakeEvent::Step { .. }));
        }
        self.events.push_back(event);
    }

    /// The next event, and whether its job rested until now.
    fn take(&mut self) -> (Option<MakeEvent>, bool) {
        let before = self.frames();
        let event = self.events.pop_front();
        let rested = before >= UNREAD_FRAMES && self.frames() < UNREAD_FRAMES;
        (event, rested)
    }

    fn frames(&self) -> usize {
        let frames = self.events.iter().map(|event| match event {
            MakeEvent::Made(Output::Frames { frames, .. }) => frames.len(),
            _ => 0,
        });
        frames.sum()
    }

    fn outputs(&self) -> usize {
        let outputs = self.events.iter();
        outputs
            .filter(|event| matches!(event, MakeEvent::Made(_)))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::{MakeEvent, UNREAD_OUTPUTS, channel};
    use crate::runtime::Failure;
    use crate::runtime::maker::{Output, Pcm};

    fn sound(rate: u32) -> Output {
        Output::Sound(Pcm {
            rate,
            channels: 1,
            samples: Vec::new(),
        })
    }

    fn step(at: u32) -> MakeEvent {
        MakeEvent::Step {
            at,
            of: 9,
            preview: None,
        }
    }

    #[tokio::test]
    async fn only_the_latest_step_waits_and_results_keep_their_order() {
        let (inbox, _commands) = mpsc::channel(1);
        let (outbox, mut stream) = channel(inbox.downgrade());
        outbox.step(1, 9, None);
        outbox.made(sound(1)).unwrap();
        outbox.step(2, 9, None);
        outbox.step(3, 9, None);
        assert_eq!(stream.next().await, Some(MakeEvent::Made(sound(1))));
        assert_eq!(stream.next().await, Some(step(3)));
        outbox.finish(Ok(()));
        assert_eq!(stream.next().await, Some(MakeEvent::Done));
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn results_are_bounded_and_the_last_event_still_fits() {
        let (inbox, _commands) = mpsc::channel(1);
        let (outbox, mut stream) = channel(inbox.downgrade());
        for rate in 0..UNREAD_OUTPUTS as u32 {
            outbox.made(sound(rate)).unwrap();
        }
        assert!(outbox.made(sound(0)).is_err());
        drop(outbox);
        for rate in 0..UNREAD_OUTPUTS as u32 {
            assert_eq!(stream.next().await, Some(MakeEvent::Made(sound(rate))));
        }
        let stopped = MakeEvent::Failed(Failure::Stopped);
        assert_eq!(stream.next().await, Some(stopped));
    }
}
