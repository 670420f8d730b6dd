//! Where the prompt comes from.

use std::io::{self, IsTerminal, Read};

use crate::cli::{Exit, Failure};

/// The prompt itself, or standard input: all of it, less the line break that ends a piped line.
pub fn read(argument: Option<&str>) -> Result<String, Failure> {
    match argument {
        Some(prompt) if prompt != "-" => return Ok(prompt.to_owned()),
        None if io::stdin().is_terminal() => {
            return Err(Failure::new(Exit::Usage, "there is no prompt").hint(
                "give it as an argument, or pipe it in: echo Hello | worker generate MODEL",
            ));
        }
        _ => {}
    }
    let mut bytes = Vec::new();
    let read = io::stdin().read_to_end(&mut bytes);
    read.map_err(|error| {
        Failure::new(Exit::Failed, format!("the prompt cannot be read: {error}"))
    })?;
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
