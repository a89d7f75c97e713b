//! Texts of users in lines of a given width, counted in columns of a monospaced font.

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use stowplan_core::text::misleads;

/// The most characters of a text that are looked at: annotations may have 256 KiB.
const LONGEST: usize = 600;

/// The sign for a part of a text that is left out.
const CUT: char = '…';

/// A text without characters that could control a terminal or are not allowed in XML, on one line, and no
/// longer than what somebody reads.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut characters = text.chars();
    for c in characters.by_ref().take(LONGEST) {
        match c {
            '\n' | '\t' => plain.push(' '),
            '\u{fffe}' | '\u{ffff}' => plain.push(char::REPLACEMENT_CHARACTER),
            _ if misleads(c) => plain.extend(c.escape_default()),
            _ => plain.push(c),
        }
    }
    if characters.next().is_some() {
        plain.push(CUT);
    }
    plain
}

/// The width of a text in columns.
pub(super) fn columns(text: &str) -> usize {
    text.width()
}

/// The text, cut at its end to a number of columns.
pub(super) fn fit(text: &str, most: usize) -> String {
    cut(text, most, None)
}

/// A name, cut in its middle to a number of columns: names of pods differ at their ends.
pub(super) fn fit_name(name: &str, most: usize) -> String {
    cut(name, most, Some(most.saturating_sub(1) / 2))
}

/// The text in at most so many columns, of which `end` are for its end.
fn cut(text: &str, most: usize, end: Option<usize>) -> String {
    let text = plain(text);
    if columns(&text) <= most {
        return text;
    }
    let mut cut = take(text.chars(), most.saturating_sub(1) - end.unwrap_or(0));
    cut.extend((most > 0).then_some(CUT));
    if let Some(end) = end {
        cut.extend(take(text.chars().rev(), end).chars().rev());
    }
    cut
}

/// The first characters that fit into a number of columns.
fn take(characters: impl Iterator<Item = char>, most: usize) -> String {
    let mut width = 0;
    let fits = |c: &char| {
        width += c.width().unwrap_or_default();
        width <= most
    };
    characters.take_while(fits).collect()
}

/// A sentence in lines of a number of columns. What does not fit into `lines` lines is cut.
pub(super) fn wrap(text: &str, most: usize, lines: usize) -> Vec<String> {
    let text = plain(text);
    let options = Options::new(most.max(1))
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    let mut wrapped: Vec<String> =
        textwrap::wrap(&text, options).into_iter().map(Into::into).collect();
    if wrapped.len() > lines {
        wrapped.truncate(lines);
        if let Some(last) = wrapped.last_mut() {
            *last = fit(&format!("{last} {CUT}"), most);
        }
    }
    wrapped
}

/// `3 pods`, `1,200 pods`.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{} {what}{}", number(count), if count == 1 { "" } else { "s" })
}

/// A number with commas between groups of three digits.
pub(super) fn number(count: usize) -> String {
    let mut text = count.to_string();
    let before_group = (1..text.len()).rev().skip(2).step_by(3);
    before_group.for_each(|at| text.insert(at, ','));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fits_into_its_columns() {
        let long = "x".repeat(262_144);
        for text in ["", "a", "abcdef", "é-ü-ß-ø", "日本語の名前", "a\u{1b}[31m\n\u{202e}b", &long]
        {
            for most in [0, 1, 2, 5, 12] {
                for cut in [fit(text, most), fit_name(text, most)] {
                    assert!(columns(&cut) <= most, "{text:.20} {most}: {cut:?}");
                    assert!(!cut.contains(['\u{1b}', '\n', '\u{202e}']), "{cut:?}");
                }
                let lines = wrap(text, most.max(2), 3);
                assert!(lines.len() <= 3 && lines.iter().all(|line| columns(line) <= most.max(2)));
            }
        }
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(fit_name("trades-source-1", 9), "trad…ce-1");
        assert_eq!(wrap("one two three four", 8, 2), ["one two", "three …"]);
    }

    #[test]
    fn counts_are_read_easily() {
        assert_eq!(counted(1, "pod"), "1 pod");
        assert_eq!(counted(1_234_567, "pod"), "1,234,567 pods");
        assert_eq!([0, 999, 1000].map(number), ["0", "999", "1,000"]);
    }
}
