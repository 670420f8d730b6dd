//! Text without the marks of Markdown, which are not read aloud.

use muster_characters::GivenPhonemes;

/// The visible text of Markdown. Headings, list items and table rows are separate sentences.
pub fn without_marks(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut is_code = false;
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        if is_fence(line) {
            is_code = !is_code;
            shown.push('\n');
            continue;
        }
        if is_code {
            shown.extend([line, end]);
            continue;
        }
        let line = without_quote(line);
        if is_rule(line) || is_definition(line) {
            shown.push('\n');
        } else if let Some(title) = heading(line).or_else(|| item(line)) {
            shown.push_str("\n\n");
            inline(title, &mut shown);
            shown.push_str("\n\n");
        } else if let Some(cells) = row(line) {
            let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
            inline(&cells.join(", "), &mut shown);
            shown.push_str("\n\n");
        } else {
            inline(line, &mut shown);
            shown.push_str(end);
        }
    }
    shown
}

fn is_fence(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("```") || line.starts_with("~~~")
}

fn without_quote(line: &str) -> &str {
    let mut rest = line;
    while let Some(quoted) = rest.trim_start().strip_prefix('>') {
        if !quoted.is_empty() && !quoted.starts_with([' ', '>']) {
            break;
        }
        rest = quoted;
    }
    rest
}

/// A line of dashes, or one under a heading or the head of a table.
fn is_rule(line: &str) -> bool {
    let marks: Vec<char> = line.chars().filter(|mark| !mark.is_whitespace()).collect();
    let is_of = |allowed: &str| marks.iter().all(|mark| allowed.contains(*mark));
    let is_line = ["-", "*", "_", "="].into_iter().any(is_of);
    marks.len() > 2 && (is_line || marks.contains(&'-') && is_of("|:-"))
}

/// `[name]: https://example.com`.
fn is_definition(line: &str) -> bool {
    let named = line.trim_start().strip_prefix('[');
    let address = named.and_then(|rest| Some(rest.split_once("]:")?.1.trim_start()));
    address.is_some_and(|address| address.starts_with(['/', '<', '#']) || address.contains("://"))
}

fn heading(line: &str) -> Option<&str> {
    let title = line.trim_start().trim_start_matches('#');
    let level = line.trim_start().len() - title.len();
    let is_heading = (1..=6).contains(&level) && title.starts_with([' ', '\t']);
    is_heading.then(|| title.trim().trim_end_matches('#').trim_end())
}

fn item(line: &str) -> Option<&str> {
    let item = line.trim_start().strip_prefix(['-', '*', '+'])?;
    let item = item.strip_prefix([' ', '\t'])?.trim();
    let boxes = ["[ ] ", "[x] ", "[X] "];
    let task = boxes.iter().find_map(|mark| item.strip_prefix(mark));
    Some(task.unwrap_or(item))
}

fn row(line: &str) -> Option<&str> {
    let cells = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    (!cells.is_empty()).then_some(cells)
}

/// Marks within a line.
fn inline(line: &str, shown: &mut String) {
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if let Some(given) = GivenPhonemes::read(rest) {
            shown.push_str(given.whole);
            rest = &rest[given.whole.len()..];
            continue;
        }
        if let Some((text, later)) = link(rest) {
            inline(text, shown);
            rest = later;
            continue;
        }
        if matches!(first, '*' | '_' | '~' | '`') {
            let later = rest.trim_start_matches(first);
            let length = rest.len() - later.len();
            if is_plain(first, length, shown, later) {
                shown.push_str(&rest[..length]);
            }
            rest = later;
            continue;
        }
        shown.push(first);
        rest = &rest[first.len_utf8()..];
    }
}

/// Whether the mark is plain text: an operator between numbers, an underscore within a name, "about".
fn is_plain(mark: char, length: usize, before: &str, after: &str) -> bool {
    let last = before.chars().next_back();
    let next = after.chars().next();
    let is_alone = last.is_none_or(char::is_whitespace) && next.is_none_or(char::is_whitespace);
    let is_between = |fits: fn(char) -> bool| last.is_some_and(fits) && next.is_some_and(fits);
    match mark {
        '*' => is_alone || length == 1 && is_between(|one| one.is_ascii_digit()),
        '_' => is_between(char::is_alphanumeric),
        '~' => length == 1,
        _ => false,
    }
}

/// The text of a link or an image, and the rest.
fn link(text: &str) -> Option<(&str, &str)> {
    if let Some(address) = text.strip_prefix('<') {
        let (address, later) = address.split_once('>')?;
        let is_address = address.contains("://") && !address.contains(char::is_whitespace);
        return is_address.then_some((address, later));
    }
    let named = text.strip_prefix('!').unwrap_or(text).strip_prefix('[')?;
    let (name, later) = named.split_at(closing(named, '[', ']')?);
    let later = &later[1..];
    if name.starts_with('^') {
        return Some(("", later));
    }
    if let Some(address) = later.strip_prefix('(') {
        let (address, later) = address.split_at(closing(address, '(', ')')?);
        let target = address.split_whitespace().next().unwrap_or_default();
        let title = address.trim_start()[target.len()..].trim_start();
        let is_title = title.is_empty() || title.starts_with(['"', '\'']);
        return is_title.then_some((name, &later[1..]));
    }
    let reference = later.strip_prefix('[')?;
    let end = closing(reference, '[', ']')?;
    Some((name, &reference[end + 1..]))
}

/// The index of the bracket that closes one opened before the text.
fn closing(text: &str, opens: char, closes: char) -> Option<usize> {
    let mut depth = 0usize;
    for (at, letter) in text.char_indices() {
        if letter == opens {
            depth += 1;
        } else if letter == closes {
            if depth == 0 {
                return Some(at);
            }
            depth -= 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::without_marks;

    #[test]
    fn marks_are_left_out_and_text_stays() {
        for (text, wanted) in [
            (
                "*bold* and __bold__, `code`, ~~gone~~",
                "bold and bold, code, gone",
            ),
            ("un*frigging*believable", "unfriggingbelievable"),
            ("2 * 3, 2*3, a_b, ~5", "2 * 3, 2*3, a_b, ~5"),
            (
                "see [the docs](https://example.com/a_(b)).",
                "see the docs.",
            ),
            (
                "[a](b \"title\") ![cat](cat.png) [c][1] text[^1]",
                "a cat c text",
            ),
            ("[Kokoro](/kˈOkəɹO/)", "[Kokoro](/kˈOkəɹO/)"),
            (
                "<https://example.com> a < b > c",
                "https://example.com a < b > c",
            ),
            ("array[0](x", "array[0](x"),
            ("# Title #", "\n\nTitle\n\n"),
            ("#5 and #", "#5 and #"),
            ("- one\n- [x] *two*", "\n\none\n\n\n\ntwo\n\n"),
            ("> quoted\n---\nend", " quoted\n\nend"),
            ("| a | b |\n|---|---|\n| 1 | 2 |", "a, b\n\n\n1, 2\n\n"),
            ("```rust\nlet a = *b;\n```\nend", "\nlet a = *b;\n\nend"),
            ("[1]: https://example.com\nend", "\nend"),
            ("-5 °C", "-5 °C"),
        ] {
            assert_eq!(without_marks(text), wanted, "{text}");
        }
    }
}
