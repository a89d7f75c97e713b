//! Decides which characters of a user's text may be shown in messages, on a terminal and in logs.

use std::borrow::Cow;

/// Returns true if `c` can mislead a terminal or a reader of logs: control characters (C1 included), line
/// separators, and characters that reverse or hide the text beside them.
#[must_use]
pub fn misleads(c: char) -> bool {
    let reverses_or_hides = matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    reverses_or_hides || c.is_control()
}

/// Escapes the characters that mislead, and leaves the others as the user wrote them: quotation
/// marks and backslashes, too.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(misleads) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if misleads(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
}

/// Quotes a value for a message: as the user wrote it, but for the characters that mislead, and at
/// most 80 characters of it. One with double quotation marks has single ones around it, as in YAML.
#[must_use]
pub fn quoted(value: &str) -> String {
    // Escaped after the cut, so that a value of 256 KiB costs no more than one of 80 characters.
    let cut = value.char_indices().nth(80).map_or(value.len(), |(at, _)| at);
    let (head, more) = (&value[..cut], if cut < value.len() { "…" } else { "" });
    let mark = if head.contains('"') && !head.contains('\'') { "'" } else { "\"" };
    [mark, &*escape(head), more, mark].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_value_is_as_the_user_wrote_it_but_for_what_misleads() {
        for (value, expected) in [
            ("", r#""""#),
            ("node-1", r#""node-1""#),
            (r#"{"required":[]}"#, r#"'{"required":[]}'"#),
            ("['a']", r#""['a']""#),
            (r#"["it's"]"#, r#""["it's"]""#),
            (r"a\nb\", r#""a\nb\""#),
            ("é, e\u{301}, 日本", "\"é, e\u{301}, 日本\""),
            ("a\nb\tc\r", r#""a\nb\tc\r""#),
            ("\u{1b}[31m\u{9b}\u{202e}\0", r#""\u{1b}[31m\u{9b}\u{202e}\u{0}""#),
        ] {
            assert_eq!(quoted(value), expected);
        }
        for long in ["é", "\"", "\n"] {
            let shown = quoted(&long.repeat(262_144));
            assert_eq!(shown.matches(&*escape(long)).count(), 80, "{shown}");
            assert!(shown.contains('…'), "{shown}");
        }
    }
}
