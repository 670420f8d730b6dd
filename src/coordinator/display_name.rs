//! Characters that names of users, workers, teams, styles, collections and shared keys must not contain: invisible
//! ones, and those that change the text direction. With them a name can imitate another, or rearrange the line of a log
//! or a table.

use std::sync::LazyLock;

use regex::Regex;

/// Completes "the name must not contain …".
pub const FORBIDDEN: &str = "control characters, direction marks or invisible characters";

/// A joiner or a variation selector may stand where an emoji needs it, and nowhere else.
static READABLE: LazyLock<Regex> = LazyLock::new(|| {
    let hidden =
        r"\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\x{2800}\x{FFF9}-\x{FFFB}";
    let emoji = r"\p{Extended_Pictographic}\x{FE0F}?[\x{1F3FB}-\x{1F3FF}]?";
    let readable = format!(r"\A(?:[^{hidden}]|{emoji}(?:\x{{200D}}{emoji})*)*\z");
    Regex::new(&readable).expect("a constant pattern compiles")
});

/// Whether everything in it is seen, in the order in which it stands.
pub fn is_readable(name: &str) -> bool {
    READABLE.is_match(name)
}

#[cfg(test)]
mod tests {
    use super::is_readable;

    #[test]
    fn a_name_has_no_direction_marks_and_nothing_invisible() {
        for name in [
            "",
            "alice",
            "Ünal Ødegård",
            "名前",
            "محمد",
            "👩‍💻 rig ❤️",
            "a b",
        ] {
            assert!(is_readable(name), "{name}");
        }
        for name in [
            "a\nb",
            "alice\u{202e}nimda",
            "\u{200f}alice",
            "al\u{200b}ice",
            "alice\u{200d}",
            "👍\u{200d}",
            "alice\u{fe0f}",
            "\u{feff}alice",
            "al\u{ad}ice",
            "\u{3164}",
            "\u{2800}",
            "a\u{2028}b",
            "alice\u{e0041}",
        ] {
            assert!(!is_readable(name), "{name:?}");
        }
    }
}
