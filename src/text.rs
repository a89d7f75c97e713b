//! What of a text may be shown.

/// Whether a terminal or a reader of logs is misled by `c`: control characters (C1 too), separators of
/// lines, and what turns or hides the text beside it.
#[must_use]
pub fn misleads(c: char) -> bool {
    let turns_or_hides = matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    turns_or_hides || c.is_control()
}
