//! The memory permits of one socket's large messages, from the first byte beyond the free allowance until their inputs
//! were passed on. A slow message is dropped, and its socket with it, when others need the memory.

use std::io;
use std::task::{Context, Poll};

use crate::room::{Memory, Room, Transit};
use muster_process::intake::{MessageBudget, MessageRefused};

#[derive(Debug)]
pub struct MessageRoom {
    memory: Memory,
    /// The incomplete message, with its counted bytes.
    unfinished: Option<(Transit, usize)>,
    /// Permits of messages that were read and not passed on.
    read: Vec<Room>,
}

impl MessageRoom {
    pub fn new(memory: Memory) -> Self {
        Self {
            memory,
            unfinished: None,
            read: Vec::new(),
        }
    }

    /// The messages read so far have been passed on.
    pub fn release(&mut self) {
        self.read.clear();
    }

    /// Ready when the incomplete message has lost its memory to others.
    pub fn poll_gave_way(&self, context: &mut Context<'_>) -> Poll<()> {
        match &self.unfinished {
            Some((transit, _)) => transit.poll_let_go(context),
            None => Poll::Pending,
        }
    }
}

impl MessageBudget for MessageRoom {
    fn grow(&mut self, bytes: usize) -> io::Result<()> {
        let memory = &self.memory;
        let (transit, counted) = self
            .unfinished
            .get_or_insert_with(|| (memory.room_for_message().carry(Vec::new()), 0));
        let more = bytes - *counted;
        *counted = bytes;
        transit.grow(bytes, more).map_err(|error| {
            // In a request body this error would be a timeout.
            let refused = match error.status() {
                408 => MessageRefused::GaveWay,
                _ => MessageRefused::NoMemory,
            };
            refused.into()
        })
    }

    fn finish(&mut self) {
        let finished = self.unfinished.take();
        let room = finished.and_then(|(transit, _)| transit.unload().ok());
        self.read.extend(room.map(|(_, room)| room));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::MessageRoom;
    use crate::room::Memory;
    use muster_process::intake::{MessageBudget, MessageRefused};

    const LARGEST: usize = muster_protocol::link::LARGEST_FRAME;

    #[tokio::test(start_paused = true)]
    async fn messages_that_stand_still_give_way_and_those_that_were_read_are_counted() {
        let memory = Memory::new(64 << 20, Duration::from_secs(5));
        let mut sockets: Vec<_> = (0..5).map(|_| MessageRoom::new(memory.clone())).collect();
        let full = |error: std::io::Error| MessageRefused::of(&error);
        for socket in &mut sockets[..4] {
            socket.grow(LARGEST).unwrap();
        }
        let refused = sockets[4].grow(LARGEST).map_err(full);
        assert_eq!(refused, Err(Some(MessageRefused::NoMemory)));
        // The completely read message stays.
        sockets[0].finish();
        advance(Duration::from_secs(60)).await;
        sockets[4].grow(LARGEST).unwrap();
        let gone = sockets[1..4]
            .iter_mut()
            .filter_map(|socket| socket.grow(LARGEST).map_err(full).err())
            .collect::<Vec<_>>();
        assert_eq!(gone, [Some(MessageRefused::GaveWay)]);
        sockets[0].release();
        MessageRoom::new(memory).grow(LARGEST).unwrap();
    }
}
