//! Child processes whose pipes and ends are waited for with a limit.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use crate::{PATIENCE, eventually_blocking};

/// A pipe of a child process, read by a thread of its own.
pub struct Lines {
    pieces: Receiver<Vec<u8>>,
    read: Vec<u8>,
}

impl Lines {
    pub fn of(pipe: impl Read + Send + 'static) -> Self {
        let (sender, pieces) = channel();
        thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            while let Some(piece) = next_piece(&mut pipe) {
                // Continues to read without a receiver: a full or closed pipe would disturb the child.
                let _ = sender.send(piece);
            }
        });
        Self {
            pieces,
            read: Vec::new(),
        }
    }

    /// All that was read since the last call of `forget`.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }

    pub fn forget(&mut self) {
        self.read.clear();
    }

    /// The next line with its end, or an empty one where the pipe has ended.
    #[track_caller]
    pub fn next_line(&mut self) -> String {
        let start = self.read.len();
        while self.read[start..].last() != Some(&b'\n') && self.read_some() {}
        String::from_utf8_lossy(&self.read[start..]).into_owned()
    }

    /// Reads whole lines until the text has these words; the text.
    #[track_caller]
    pub fn until(&mut self, words: &str) -> String {
        while !self.text().contains(words) {
            let line = self.next_line();
            assert!(
                !line.is_empty(),
                "ended without {words:?}:\n{}",
                self.text()
            );
        }
        self.text()
    }

    /// The same where the words may be a question, whose line does not end.
    #[track_caller]
    pub fn until_asked(&mut self, words: &str) -> String {
        while !self.text().contains(words) {
            let more = self.read_some();
            assert!(more, "ended without {words:?}:\n{}", self.text());
        }
        self.text()
    }

    /// Reads to the end of the pipe; returns the rest.
    #[track_caller]
    pub fn rest(&mut self) -> String {
        let start = self.read.len();
        while self.read_some() {}
        String::from_utf8_lossy(&self.read[start..]).into_owned()
    }

    /// Waits for more; whether there was any before the pipe ended.
    #[track_caller]
    pub fn read_some(&mut self) -> bool {
        match self.pieces.recv_timeout(PATIENCE) {
            Ok(piece) => self.read.extend(piece),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                panic!("nothing more within {PATIENCE:?} after:\n{}", self.text())
            }
        }
        true
    }
}

/// A line, or as much of it as there is.
fn next_piece(pipe: &mut impl BufRead) -> Option<Vec<u8>> {
    let buffer = pipe.fill_buf().ok()?;
    let piece = buffer.split_inclusive(|byte| *byte == b'\n').next()?;
    let piece = piece.to_vec();
    pipe.consume(piece.len());
    Some(piece)
}

/// Waits for the end of a child process.
#[track_caller]
pub fn ended(child: &mut Child) -> ExitStatus {
    eventually_blocking("the end of a child process", || child.try_wait().unwrap())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_are_read_up_to_words_and_to_the_end() {
        let mut lines = Lines::of(&b"one\ntwo\nthree"[..]);
        assert_eq!(lines.until("two"), "one\ntwo\n");
        assert_eq!(lines.rest(), "three");
        assert_eq!(lines.next_line(), "");
    }

    #[test]
    fn a_question_is_read_before_its_line_ends() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut lines = Lines::of(reader);
        writer.write_all(b"hello\nagain? ").unwrap();
        assert_eq!(lines.until_asked("again? "), "hello\nagain? ");
        writer.write_all(b"yes\n").unwrap();
        assert_eq!(lines.next_line(), "yes\n");
    }

    #[test]
    #[should_panic(expected = "ended without \"three\":\none\n")]
    fn the_end_of_a_pipe_is_not_waited_past() {
        Lines::of(&b"one\n"[..]).until("three");
    }
}
