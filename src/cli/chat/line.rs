//! A line editor: the keys of a terminal to a text and a cursor.

use std::io::{self, Read, Write};

use rustix::termios::{
    InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// Default width of a terminal.
const USUAL_COLUMNS: usize = 80;

/// How reading a line ended.
#[derive(Debug, PartialEq, Eq)]
pub enum LineEnd {
    Entered(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D on an empty line, or the end of input.
    Closed,
}

/// A text that is being written.
#[derive(Debug, Default)]
struct EditedLine {
    text: Vec<char>,
    cursor: usize,
    /// The row of the cursor below the prompt, as it was last shown.
    row: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKey {
    Sign(char),
    Enter,
    Interrupt,
    /// Ctrl-D: the end, or the sign under the cursor.
    Close,
    Backspace,
    Delete,
    Left,
    Right,
    WordLeft,
    WordRight,
    Home,
    End,
    Up,
    Down,
    EraseToStart,
    EraseToEnd,
    EraseWord,
    Clear,
    Other,
}

/// Keys come one by one, and nothing but the line shows them, for as long as this lives.
struct RawMode(Termios);

impl RawMode {
    fn begin() -> io::Result<Self> {
        let usual = tcgetattr(io::stdin())?;
        let mut raw = usual.clone();
        raw.local_modes -=
            LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        raw.input_modes -= InputModes::IXON;
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self(usual))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}

/// Reads a line from the terminal. `history` has the oldest line first.
pub fn read(prompt: &str, history: &[String]) -> io::Result<LineEnd> {
    let _raw = RawMode::begin()?;
    let mut keys = io::stdin().lock();
    let mut out = io::stdout().lock();
    let (mut line, mut at, mut draft) = (EditedLine::default(), history.len(), String::new());
    line.show(prompt, &mut out)?;
    loop {
        let Some(key) = next_key(&mut keys)? else {
            return Ok(LineEnd::Closed);
        };
        match key {
            LineKey::Enter => {
                line.leave(&mut out)?;
                return Ok(LineEnd::Entered(line.text.iter().collect()));
            }
            LineKey::Interrupt => {
                line.leave(&mut out)?;
                return Ok(LineEnd::Interrupted);
            }
            LineKey::Close if line.text.is_empty() => {
                line.leave(&mut out)?;
                return Ok(LineEnd::Closed);
            }
            LineKey::Up if at > 0 => {
                if at == history.len() {
                    draft = line.text.iter().collect();
                }
                at -= 1;
                line.replace(&history[at]);
            }
            LineKey::Down if at < history.len() => {
                at += 1;
                line.replace(history.get(at).unwrap_or(&draft));
            }
            LineKey::Clear => {
                out.write_all(b"\x1b[H\x1b[2J")?;
                line.row = 0;
            }
            key => line.press(key),
        }
        line.show(prompt, &mut out)?;
    }
}

impl EditedLine {
    fn replace(&mut self, text: &str) {
        self.text = text.chars().collect();
        self.cursor = self.text.len();
    }

    fn press(&mut self, key: LineKey) {
        match key {
            LineKey::Sign(sign) => {
                self.text.insert(self.cursor, sign);
                self.cursor += 1;
            }
            LineKey::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.text.remove(self.cursor);
            }
            LineKey::Delete | LineKey::Close if self.cursor < self.text.len() => {
                self.text.remove(self.cursor);
            }
            LineKey::Left => self.cursor = self.cursor.saturating_sub(1),
            LineKey::Right => self.cursor = (self.cursor + 1).min(self.text.len()),
            LineKey::WordLeft => self.cursor = self.word_start(),
            LineKey::WordRight => {
                let rest = &self.text[self.cursor..];
                let blanks = rest.iter().take_while(|sign| sign.is_whitespace()).count();
                let word = rest[blanks..]
                    .iter()
                    .take_while(|sign| !sign.is_whitespace());
                self.cursor += blanks + word.count();
            }
            LineKey::Home => self.cursor = 0,
            LineKey::End => self.cursor = self.text.len(),
            LineKey::EraseToStart => {
                self.text.drain(..self.cursor);
                self.cursor = 0;
            }
            LineKey::EraseToEnd => self.text.truncate(self.cursor),
            LineKey::EraseWord => {
                let start = self.word_start();
                self.text.drain(start..self.cursor);
                self.cursor = start;
            }
            _ => {}
        }
    }

    /// Start of the word before the cursor.
    fn word_start(&self) -> usize {
        let before = &self.text[..self.cursor];
        let blanks = before
            .iter()
            .rev()
            .take_while(|sign| sign.is_whitespace())
            .count();
        let word = before[..self.cursor - blanks].iter().rev();
        self.cursor - blanks - word.take_while(|sign| !sign.is_whitespace()).count()
    }

    /// Redraws prompt and text.
    fn show(&mut self, prompt: &str, out: &mut impl Write) -> io::Result<()> {
        let columns = columns();
        if self.row > 0 {
            write!(out, "\x1b[{}A", self.row)?;
        }
        let text: String = self.text.iter().collect();
        write!(out, "\r\x1b[J{prompt}{text}")?;
        let prompt = prompt.chars().count();
        let end = prompt + width(&self.text);
        if end > 0 && end.is_multiple_of(columns) {
            // The terminal begins the next row with the next sign only.
            out.write_all(b"\r\n")?;
        }
        let cursor = prompt + width(&self.text[..self.cursor]);
        self.row = cursor / columns;
        match end / columns - self.row {
            0 => {}
            up => write!(out, "\x1b[{up}A")?,
        }
        match cursor % columns {
            0 => out.write_all(b"\r")?,
            right => write!(out, "\r\x1b[{right}C")?,
        }
        out.flush()
    }

    /// Moves below the line.
    fn leave(&mut self, out: &mut impl Write) -> io::Result<()> {
        let columns = columns();
        let rows = width(&self.text[self.cursor..]) / columns;
        if rows > 0 {
            write!(out, "\x1b[{rows}B")?;
        }
        out.write_all(b"\r\n")?;
        out.flush()
    }
}

fn columns() -> usize {
    let size = tcgetwinsize(io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { USUAL_COLUMNS } else { columns }
}

/// In columns of a terminal: signs of East Asian scripts and emoji take two.
fn width(text: &[char]) -> usize {
    let wide = |sign: &char| {
        matches!(
            u32::from(*sign),
            0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff
                | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1_f300..=0x1_f64f
                | 0x1_f900..=0x1_f9ff | 0x2_0000..=0x3_fffd
        )
    };
    text.iter().map(|sign| if wide(sign) { 2 } else { 1 }).sum()
}

/// None at the end of input.
fn next_key(keys: &mut impl Read) -> io::Result<Option<LineKey>> {
    let Some(first) = byte(keys)? else {
        return Ok(None);
    };
    Ok(Some(match first {
        b'\r' | b'\n' => LineKey::Enter,
        0x01 => LineKey::Home,
        0x02 => LineKey::Left,
        0x03 => LineKey::Interrupt,
        0x04 => LineKey::Close,
        0x05 => LineKey::End,
        0x06 => LineKey::Right,
        0x08 | 0x7f => LineKey::Backspace,
        0x0b => LineKey::EraseToEnd,
        0x0c => LineKey::Clear,
        0x0e => LineKey::Down,
        0x10 => LineKey::Up,
        0x15 => LineKey::EraseToStart,
        0x17 => LineKey::EraseWord,
        b'\t' => LineKey::Sign(' '),
        0x1b => sequence(keys)?,
        first if first < 0x20 => LineKey::Other,
        first => match sign(first, keys)? {
            Some(sign) => LineKey::Sign(sign),
            None => LineKey::Other,
        },
    }))
}

fn byte(keys: &mut impl Read) -> io::Result<Option<u8>> {
    let mut byte = [0];
    Ok((keys.read(&mut byte)? == 1).then_some(byte[0]))
}

/// The key whose sequence follows ESC.
fn sequence(keys: &mut impl Read) -> io::Result<LineKey> {
    match byte(keys)? {
        Some(b'[' | b'O') => {}
        Some(b'b') => return Ok(LineKey::WordLeft),
        Some(b'f') => return Ok(LineKey::WordRight),
        _ => return Ok(LineKey::Other),
    }
    let mut operands = Vec::new();
    loop {
        match byte(keys)? {
            Some(sign @ (b'0'..=b'9' | b';')) if operands.len() < 8 => operands.push(sign),
            Some(end) => return Ok(named(&operands, end)),
            None => return Ok(LineKey::Other),
        }
    }
}

fn named(operands: &[u8], end: u8) -> LineKey {
    match (operands, end) {
        (b"1;5" | b"1;3", b'C') => LineKey::WordRight,
        (b"1;5" | b"1;3", b'D') => LineKey::WordLeft,
        (_, b'A') => LineKey::Up,
        (_, b'B') => LineKey::Down,
        (_, b'C') => LineKey::Right,
        (_, b'D') => LineKey::Left,
        (_, b'H') | (b"1" | b"7", b'~') => LineKey::Home,
        (_, b'F') | (b"4" | b"8", b'~') => LineKey::End,
        (b"3", b'~') => LineKey::Delete,
        _ => LineKey::Other,
    }
}

/// A sign in UTF-8 that begins with this byte.
fn sign(first: u8, keys: &mut impl Read) -> io::Result<Option<char>> {
    let length = match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    let mut bytes = vec![first];
    while bytes.len() < length {
        match byte(keys)? {
            Some(next) => bytes.push(next),
            None => return Ok(None),
        }
    }
    let text = std::str::from_utf8(&bytes).ok();
    Ok(text.and_then(|text| text.chars().next()))
}

#[cfg(test)]
mod tests {
    use super::{EditedLine, LineKey, next_key};

    /// The line after these bytes, with a bar at the cursor.
    fn typed(bytes: &str) -> String {
        let (mut line, mut bytes) = (EditedLine::default(), bytes.as_bytes());
        while let Some(key) = next_key(&mut bytes).unwrap() {
            line.press(key);
        }
        let mut text = line.text.clone();
        text.insert(line.cursor, '|');
        text.into_iter().collect()
    }

    #[test]
    fn keys_edit_the_line() {
        let check = |bytes: &str, expected: &str| assert_eq!(typed(bytes), expected, "{bytes:?}");
        check("ab\x1b[Dc", "ac|b");
        check("größe\x7f\x7f", "grö|");
        check("one two\x17", "one |");
        check("one two\x1b[1;5Dx", "one x|two");
        check("one two\x01\x1b[1;5C!", "one!| two");
        check("abc\x01\x1b[3~", "|bc");
        check("abc\x1b[D\x0b", "ab|");
        check("abc\x1b[D\x15", "|c");
        check("a\x1bOHb\x1b[4~c", "bac|");
        check("a\x1b[200~b", "ab|");
    }

    #[test]
    fn control_signs_have_names() {
        let key = |bytes: &[u8]| next_key(&mut &*bytes).unwrap();
        assert_eq!(key(b"\x03"), Some(LineKey::Interrupt));
        assert_eq!(key(b"\x04"), Some(LineKey::Close));
        assert_eq!(key(b"\x1b[A"), Some(LineKey::Up));
        assert_eq!(key(b""), None);
    }

    #[test]
    fn a_line_is_drawn_over_the_one_before() {
        let mut line = EditedLine::default();
        line.replace("abc");
        line.press(LineKey::Left);
        let mut out = Vec::new();
        line.show("> ", &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\r\x1b[J> abc\r\x1b[4C");
    }
}
