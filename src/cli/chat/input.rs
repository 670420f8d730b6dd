//! Messages and commands as a person types them.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::line::{self, LineEnd};
use crate::cli::{Exit, Failure, output};

/// Lines of the history that are kept in memory.
const MOST_LINES: usize = 1000;
const PROMPT: &str = "> ";
const MORE: &str = "... ";
/// Before and after several lines.
const LINES: &str = "\"\"\"";

pub const HELP: &str = "\
/model          list the models; /model NAME talks to another one
/system TEXT    set the system prompt; /system shows it
/save FILE      write the conversation to a file
/load FILE      go on with a saved conversation
/stats          tokens and speed of the last answer
/clear          forget the conversation
/bye            end the chat, as Ctrl-D does
\"\"\"             begin and end a message of several lines";

/// An entry at a terminal.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    Message(String),
    Command(ChatCommand),
    /// An empty line, or one that Ctrl-C has taken back.
    Nothing,
    End,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ChatCommand {
    Help,
    Leave,
    Clear,
    Model(Option<String>),
    System(Option<String>),
    Save(PathBuf),
    Load(PathBuf),
    Stats,
    Unknown(String),
}

/// Lines with editing and a history.
pub struct Terminal {
    file: PathBuf,
    history: Vec<String>,
}

impl Terminal {
    /// The history is a file, which need not be there yet.
    pub fn open(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let latest = lines.len().saturating_sub(MOST_LINES);
        Self {
            file: file.to_owned(),
            history: lines[latest..]
                .iter()
                .map(|line| (*line).to_owned())
                .collect(),
        }
    }

    /// Blocks until a line is entered.
    pub fn next(&mut self) -> Result<Entry, Failure> {
        let Some(first) = self.line(PROMPT)? else {
            return Ok(Entry::End);
        };
        let Some(begun) = first.trim_start().strip_prefix(LINES) else {
            return Ok(entry(&first));
        };
        let mut text = begun.to_owned();
        loop {
            if let Some(whole) = text.strip_suffix(LINES) {
                return Ok(message(whole.trim_matches('\n')));
            }
            match self.line(MORE)? {
                Some(line) => text = format!("{text}\n{line}"),
                None => return Ok(Entry::Nothing),
            }
        }
    }

    /// None at the end of input. A line that is taken back is empty.
    fn line(&mut self, prompt: &str) -> Result<Option<String>, Failure> {
        let end = line::read(prompt, &self.history).map_err(|error| {
            let message = format!("reading from the terminal failed: {error}");
            Failure::new(Exit::Failed, message)
        })?;
        match end {
            LineEnd::Entered(line) => {
                self.remember(&line);
                Ok(Some(line))
            }
            LineEnd::Interrupted => {
                output::aside("Ctrl-D or /bye ends the chat");
                Ok(Some(String::new()))
            }
            LineEnd::Closed => Ok(None),
        }
    }

    /// After each line: a chat may end by a closed window. Without a history the chat works all the same.
    fn remember(&mut self, line: &str) {
        if line.trim().is_empty() || self.history.last().is_some_and(|last| last == line) {
            return;
        }
        self.history.push(line.to_owned());
        if let Some(folder) = self.file.parent() {
            let _ = fs::create_dir_all(folder);
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.file);
        let _ = file.and_then(|mut file| writeln!(file, "{line}"));
    }
}

fn message(text: &str) -> Entry {
    match text.trim().is_empty() {
        true => Entry::Nothing,
        false => Entry::Message(text.to_owned()),
    }
}

fn entry(line: &str) -> Entry {
    let line = line.trim();
    match line.strip_prefix('/') {
        // So that a message may begin with a slash.
        Some(text) if text.starts_with('/') => message(text),
        Some(text) => Entry::Command(command(text)),
        None => message(line),
    }
}

fn command(text: &str) -> ChatCommand {
    let (name, operand) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let operand = operand.trim();
    let optional = || (!operand.is_empty()).then(|| operand.to_owned());
    match (name, operand) {
        ("help" | "?", _) => ChatCommand::Help,
        ("bye" | "exit" | "quit", _) => ChatCommand::Leave,
        ("clear", _) => ChatCommand::Clear,
        ("model", _) => ChatCommand::Model(optional()),
        ("system", _) => ChatCommand::System(optional()),
        ("save", file) if !file.is_empty() => ChatCommand::Save(file.into()),
        ("load", file) if !file.is_empty() => ChatCommand::Load(file.into()),
        ("stats", _) => ChatCommand::Stats,
        _ => ChatCommand::Unknown(format!("/{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{ChatCommand, Entry, entry};

    #[test]
    fn a_line_is_a_message_or_a_command() {
        let check = |line: &str, expected: Entry| assert_eq!(entry(line), expected, "{line}");
        check("  hello ", Entry::Message("hello".to_owned()));
        check("", Entry::Nothing);
        check(
            "//etc is a folder",
            Entry::Message("/etc is a folder".to_owned()),
        );
        check("/bye", Entry::Command(ChatCommand::Leave));
        check("/model", Entry::Command(ChatCommand::Model(None)));
        let set = ChatCommand::System(Some("Be brief.".to_owned()));
        check("/system  Be brief.", Entry::Command(set));
        check(
            "/save a b.json",
            Entry::Command(ChatCommand::Save("a b.json".into())),
        );
        let unknown = ChatCommand::Unknown("/save".to_owned());
        check("/save", Entry::Command(unknown));
    }
}
