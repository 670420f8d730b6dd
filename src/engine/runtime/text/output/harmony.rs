//! The Harmony format of gpt-oss: messages with a header that names a channel, and a function where the message is a
//! call. `analysis` is reasoning, `final` and `commentary` are content.

use super::Piece;

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const RECIPIENT: &str = "to=";
/// Namespace of the client's functions.
const FUNCTIONS: &str = "functions.";
/// Marks that end a message.
const ENDS: [&str; 4] = ["<|end|>", "<|call|>", "<|return|>", START];
/// A longer header is none.
const LONGEST_HEADER: usize = 4096;

/// Special tokens that the parser needs as text.
pub const CHANNEL_MARKS: [&str; 7] = [
    START,
    CHANNEL,
    MESSAGE,
    "<|constrain|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
];

/// Takes one answer apart, after a prompt that ends with the role of the model.
#[derive(Debug, Clone)]
pub struct HarmonyParser {
    offered: Vec<String>,
    at: HarmonyState,
    /// The header, or the possible beginning of a mark.
    held: String,
    calls: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HarmonyState {
    /// The start of the output, or the beginning of a header.
    Beginning,
    Header,
    Reasoning,
    Content,
    Call(u32),
    /// After a message.
    Between,
}

impl HarmonyParser {
    pub fn new(offered: Vec<String>) -> Self {
        Self {
            offered,
            at: HarmonyState::Beginning,
            held: String::new(),
            calls: 0,
        }
    }

    pub fn push(&mut self, c: char, out: &mut Vec<Piece>) {
        self.held.push(c);
        match self.at {
            HarmonyState::Beginning => self.begin(out),
            HarmonyState::Header => self.header(out),
            HarmonyState::Reasoning | HarmonyState::Content | HarmonyState::Call(_) => {
                self.body(out)
            }
            HarmonyState::Between => self.between(),
        }
    }

    pub fn finish(&mut self, out: &mut Vec<Piece>) {
        let held = std::mem::take(&mut self.held);
        match self.at {
            HarmonyState::Reasoning | HarmonyState::Content | HarmonyState::Call(_) => {
                self.say(&held, out)
            }
            // Too short for a header.
            HarmonyState::Beginning => write(&held, out),
            HarmonyState::Header | HarmonyState::Between => {}
        }
    }

    pub fn is_reasoning(&self) -> bool {
        self.at == HarmonyState::Reasoning
    }

    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// An answer without a header is content.
    fn begin(&mut self, out: &mut Vec<Piece>) {
        let begun = self.held.trim_start();
        let heads = [CHANNEL, START, MESSAGE, RECIPIENT];
        if heads.iter().any(|head| begun.starts_with(head)) {
            self.at = HarmonyState::Header;
            self.header(out);
        } else if !heads.iter().any(|head| head.starts_with(begun)) {
            self.at = HarmonyState::Content;
            let text = std::mem::take(&mut self.held);
            for c in text.chars() {
                self.push(c, out);
            }
        }
    }

    fn header(&mut self, out: &mut Vec<Piece>) {
        if self.held.len() > LONGEST_HEADER {
            self.at = HarmonyState::Content;
            let text = std::mem::take(&mut self.held);
            return write(&text, out);
        }
        let Some(header) = self.held.strip_suffix(MESSAGE) else {
            return;
        };
        let channel = header.split(CHANNEL).nth(1).unwrap_or_default();
        let channel = channel.split([' ', '<']).next().unwrap_or_default();
        let function = function(header).filter(|name| {
            // Without offered tools no message is a call.
            !self.offered.is_empty() && !name.is_empty()
        });
        self.at = match (function, channel) {
            (Some(name), _) => {
                let (index, name) = (self.calls, name.to_owned());
                self.calls += 1;
                out.push(Piece::Call { index, name });
                HarmonyState::Call(index)
            }
            (None, "analysis") => HarmonyState::Reasoning,
            (None, _) => HarmonyState::Content,
        };
        self.held.clear();
    }

    fn body(&mut self, out: &mut Vec<Piece>) {
        if ENDS.contains(&self.held.as_str()) {
            self.at = match self.held == START {
                true => HarmonyState::Header,
                false => HarmonyState::Between,
            };
            return self.held.clear();
        }
        while !self.held.is_empty() && !ENDS.iter().any(|end| end.starts_with(&self.held)) {
            let first = self.held.chars().next().map_or(0, char::len_utf8);
            let rest = self.held.split_off(first);
            let said = std::mem::replace(&mut self.held, rest);
            self.say(&said, out);
        }
    }

    /// Text between messages is dropped.
    fn between(&mut self) {
        if self.held.ends_with(START) {
            self.at = HarmonyState::Header;
            self.held.clear();
        } else if self.held.len() > LONGEST_HEADER {
            let kept = self
                .held
                .chars()
                .rev()
                .take(START.len())
                .collect::<Vec<_>>();
            self.held = kept.into_iter().rev().collect();
        }
    }

    fn say(&self, text: &str, out: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        let text = text.to_owned();
        out.push(match self.at {
            HarmonyState::Reasoning => Piece::Reasoning(text),
            HarmonyState::Call(index) => Piece::Arguments { index, text },
            _ => Piece::Content(text),
        });
    }
}

/// The function that a message goes to.
fn function(header: &str) -> Option<&str> {
    let recipient = header.split(RECIPIENT).nth(1)?;
    let recipient = recipient.split([' ', '<']).next()?;
    Some(recipient.strip_prefix(FUNCTIONS).unwrap_or(recipient))
}

fn write(text: &str, out: &mut Vec<Piece>) {
    if !text.is_empty() {
        out.push(Piece::Content(text.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::super::{Markup, OfferedTool, OutputParser, Piece};

    const CHANNELS: Markup = Markup {
        thinks: false,
        tools: None,
        channels: true,
    };

    fn parser() -> OutputParser {
        OutputParser::new(CHANNELS, [OfferedTool::new("look", None)].into(), false)
    }

    /// Reasoning in parentheses, calls in brackets.
    fn read(parser: &mut OutputParser, text: &str) -> String {
        let mut pieces = Vec::new();
        parser.push(text, &mut pieces);
        parser.finish(&mut pieces);
        let written = pieces.into_iter().map(|piece| match piece {
            Piece::Content(text) => text,
            Piece::Reasoning(text) => format!("({text})"),
            Piece::Call { index, name } => format!("[{index} {name}]"),
            Piece::Arguments { text, .. } => text,
        });
        written.collect::<String>().replace(")(", "")
    }

    #[test]
    fn channels_are_reasoning_content_and_calls() {
        let check = |text: &str, expected: &str| {
            assert_eq!(read(&mut parser(), text), expected, "{text}");
        };
        check(
            "<|channel|>analysis<|message|>Hm <b>.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
            "(Hm <b>.)Yes.",
        );
        check(
            "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>{\"at\": 1}<|call|>",
            "(Look.)[0 look]{\"at\": 1}",
        );
        // The recipient may precede the channel, and a plan the call.
        check(
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.look<|channel|>commentary json<|message|>{}<|call|><|start|>assistant to=look<|channel|>commentary<|message|>{}",
            "I look.[0 look]{}[1 look]{}",
        );
        check("Hello.", "Hello.");
        check("<|channel|>final<|message|>a <|en", "a <|en");
        check("<|chan", "<|chan");
        check("<|channel|>analysis", "");
    }

    #[test]
    fn nothing_is_a_call_where_no_tools_are_offered() {
        let mut parser = OutputParser::new(CHANNELS, [].into(), false);
        let text = "<|channel|>commentary to=functions.look<|message|>{}<|call|>";
        assert_eq!(read(&mut parser, text), "{}");
        assert_eq!(parser.calls(), 0);
    }

    proptest! {
        #[test]
        fn any_text_is_read_alike_in_one_piece_and_in_two(
            marks in proptest::collection::vec(0..8_usize, 0..12), text in any::<String>(), cut in any::<proptest::sample::Index>(),
        ) {
            let parts = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "final", " to=look", "<|", &text];
            let whole: String = marks.iter().map(|mark| parts[*mark]).collect();
            let letters: Vec<char> = whole.chars().collect();
            let cut = cut.index(letters.len() + 1);
            let (first, second): (String, String) = (letters[..cut].iter().collect(), letters[cut..].iter().collect());
            let mut at_once = parser();
            let expected = read(&mut at_once, &whole);
            let mut in_parts = parser();
            let mut pieces = Vec::new();
            in_parts.push(&first, &mut pieces);
            let begun: Vec<Piece> = pieces.clone();
            in_parts.push(&second, &mut pieces);
            in_parts.finish(&mut pieces);
            assert_eq!(begun[..], pieces[..begun.len()]);
            let written = |pieces: &[Piece]| pieces.iter().map(|piece| match piece {
                Piece::Content(text) | Piece::Reasoning(text) | Piece::Arguments { text, .. } => text.clone(),
                Piece::Call { index, name } => format!("[{index} {name}]"),
            }).collect::<String>();
            let plain = |text: &str| text.replace(['(', ')'], "");
            assert_eq!(plain(&written(&pieces)), plain(&expected));
        }
    }
}
