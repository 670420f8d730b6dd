//! Reading the prompt.

use std::io::{self, IsTerminal, Read};

use crate::cli::{Exit, Failure, quantity};

/// The prompt itself, or standard input: all of it, less the line break that ends a piped line.
pub fn read(argument: Option<&str>) -> Result<String, Failure> {
    match argument {
        Some(prompt) if prompt != "-" => return Ok(prompt.to_owned()),
        None if io::stdin().is_terminal() => {
            return Err(Failure::new(Exit::Usage, "no prompt given").hint(
                "give the prompt as an argument, or pipe it: echo Hello | worker generate MODEL",
            ));
        }
        _ => {}
    }
    piped(io::stdin().lock())
}

/// More than the longest context of any model holds.
const MOST_BYTES: u64 = 16 << 20;

fn piped(input: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = input.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("reading the prompt from standard input failed: {error}"),
        )
    })?;
    if bytes.len() as u64 > MOST_BYTES {
        let most = quantity::bytes(MOST_BYTES);
        let message = format!("the prompt on standard input has more than {most}");
        return Err(Failure::new(Exit::Usage, message));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::new(
            Exit::BadData,
            "the prompt on standard input is not UTF-8 text",
        )
    })?;
    let text = text.strip_suffix('\n').map_or(text.as_str(), |text| {
        text.strip_suffix('\r').unwrap_or(text)
    });
    match text.is_empty() {
        true => Err(Failure::new(
            Exit::Usage,
            "the prompt on standard input is empty",
        )),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_all_there_is_less_the_line_break_at_its_end() {
        assert_eq!(piped(&b"Hello\n\n"[..]).unwrap(), "Hello\n");
        assert_eq!(piped(&b"Hello\r\n"[..]).unwrap(), "Hello");
        let failure = piped(&b"\n"[..]).unwrap_err();
        assert_eq!(failure.exit(), Some(Exit::Usage));
    }

    #[test]
    fn a_prompt_without_end_is_read_no_further_than_any_model_would() {
        let failure = piped(io::repeat(b'a')).unwrap_err();
        assert_eq!(failure.exit(), Some(Exit::Usage));
        assert!(
            failure.to_string().contains("more than 16.0 MiB"),
            "{failure}"
        );
        let longest = piped(io::repeat(b'a').take(MOST_BYTES)).unwrap();
        assert_eq!(longest.len() as u64, MOST_BYTES);
    }
}
