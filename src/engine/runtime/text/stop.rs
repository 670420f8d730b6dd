//! Stop strings: text is let through as soon as it can no longer be part of one, and not before.

/// The most stop strings a request may have, and how long all of them together.
pub const MAX_STOPS: usize = 128;
pub const MAX_STOP_BYTES: usize = 8192;

/// Watches one sequence's text for its stop strings.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// The end of the text so far, while it could be the beginning of a stop.
    held: String,
}

impl StopStrings {
    /// The error is for the client.
    pub fn new(stops: Vec<String>) -> Result<Self, String> {
        if stops.len() > MAX_STOPS {
            return Err(format!(
                "a request may have at most {MAX_STOPS} stop strings, found {}",
                stops.len()
            ));
        }
        if stops.iter().any(String::is_empty) {
            return Err("a stop string must not be empty".to_owned());
        }
        let found: usize = stops.iter().map(String::len).sum();
        if found > MAX_STOP_BYTES {
            return Err(format!(
                "stop strings may have at most {MAX_STOP_BYTES} bytes in total, found {found}"
            ));
        }
        Ok(Self {
            stops,
            held: String::new(),
        })
    }

    /// Adds a piece of text and appends the final part to `out`. Returns the stop string when one is found; the string
    /// and the text after it are dropped. The result does not depend on the split into pieces: the stop string that
    /// ends first wins, and among those the longest.
    pub fn push(&mut self, text: &str, out: &mut String) -> Option<&str> {
        if self.stops.is_empty() {
            out.push_str(text);
            return None;
        }
        self.held.push_str(text);
        if let Some((start, stop)) = self.first_stop() {
            out.push_str(&self.held[..start]);
            self.held.clear();
            return Some(&self.stops[stop]);
        }
        let keep = self.held.len() - self.undecided_bytes();
        out.push_str(&self.held[..keep]);
        self.held.drain(..keep);
        None
    }

    /// Ends the text: text held back is appended.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
    }

    fn first_stop(&self) -> Option<(usize, usize)> {
        let found = self.stops.iter().enumerate().filter_map(|(index, stop)| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, index))
        });
        found.min().map(|(_, start, index)| (start, index))
    }

    /// How long the longest end of the held text is that some stop begins with.
    fn undecided_bytes(&self) -> usize {
        let longest = |stop: &String| {
            let most = self.held.len().min(stop.len() - 1);
            let begins =
                |&length: &usize| self.held.as_bytes().ends_with(&stop.as_bytes()[..length]);
            (1..=most)
                .rev()
                .filter(|&length| stop.is_char_boundary(length))
                .find(begins)
        };
        self.stops.iter().filter_map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::{MAX_STOP_BYTES, MAX_STOPS, StopStrings};

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let mut watch = StopStrings::new(stops.iter().map(|&s| s.to_owned()).collect()).unwrap();
        let mut texts = Vec::new();
        for piece in pieces {
            let mut out = String::new();
            let stop = watch.push(piece, &mut out).map(str::to_owned);
            texts.push(out);
            if stop.is_some() {
                return (texts, stop);
            }
        }
        let mut rest = String::new();
        watch.finish(&mut rest);
        texts.push(rest);
        (texts, None)
    }

    fn check(stops: &[&str], pieces: &[&str], texts: &[&str], stop: Option<&str>) {
        let (found, found_stop) = run(stops, pieces);
        assert_eq!(found, texts, "{stops:?} in {pieces:?}");
        assert_eq!(found_stop.as_deref(), stop);
    }

    #[test]
    fn stop_strings_are_found_across_token_borders() {
        check(&["END"], &["a E", "N", "D b"], &["a ", "", ""], Some("END"));
        check(&["END"], &["aEND"], &["a"], Some("END"));
        check(&["\n\n"], &["x\n", "\ny"], &["x", ""], Some("\n\n"));
        check(&["é!"], &["caf", "é", "!"], &["caf", "", ""], Some("é!"));
    }

    #[test]
    fn only_what_could_still_be_a_stop_is_held_back() {
        check(&["END"], &["a E", "x", "EN"], &["a ", "Ex", "", "EN"], None);
        check(
            &["aab"],
            &["aa", "a", "a", "b"],
            &["", "a", "a", ""],
            Some("aab"),
        );
        check(&[], &["anything"], &["anything", ""], None);
    }

    #[test]
    fn the_stop_that_is_complete_first_wins() {
        check(&["bcd", "bc"], &["abcd"], &["a"], Some("bc"));
        check(&["bc", "abc"], &["xabc"], &["x"], Some("abc"));
    }

    #[test]
    fn absurd_stops_are_refused() {
        assert!(StopStrings::new(vec![String::new()]).is_err());
        assert!(StopStrings::new(vec!["x".to_owned(); MAX_STOPS + 1]).is_err());
        assert!(StopStrings::new(vec!["x".repeat(MAX_STOP_BYTES)]).is_ok());
        assert!(StopStrings::new(vec!["x".repeat(MAX_STOP_BYTES / 2 + 1); 2]).is_err());
    }

    proptest! {
        #[test]
        fn how_text_is_cut_into_tokens_changes_nothing(
            text in "[abé]{0,30}",
            stops in proptest::collection::vec("[abé]{1,4}", 0..4),
            cuts in proptest::collection::vec(1..5_usize, 30),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let letters: Vec<char> = text.chars().collect();
            let mut pieces = Vec::new();
            let mut rest = &letters[..];
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece.iter().collect::<String>());
                rest = after;
            }
            let cut: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let whole: String = pieces.concat();
            let (cut_texts, cut_stop) = run(&stops, &cut);
            let (whole_texts, whole_stop) = run(&stops, &[&whole]);
            assert_eq!((cut_texts.concat(), cut_stop), (whole_texts.concat(), whole_stop));
        }
    }
}
