//! Decides which characters of a user's text may be shown in messages, on a terminal and in logs.

/// Whether `c` can mislead a terminal or a reader of logs: control characters (C1 included), line
/// separators, and characters that reverse or hide the text beside them.
#[must_use]
pub(crate) fn misleads(c: char) -> bool {
    let reverses_or_hides = matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    reverses_or_hides || c.is_control()
}
