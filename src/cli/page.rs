//! Text for people. What it quotes from users cannot control the terminal, and where colours are
//! shown, what has a meaning has a colour. Equal parts are put together.

use std::collections::HashMap;
use std::io;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use super::escape_for_terminal;
use stowplan_core::systems::check::words::{LISTED, some};

/// The name of an object, or a title.
pub(super) const TITLE: Style = Style::new().bold();

/// A state that is as it should be.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();

/// A warning, or what is not known.
pub(super) const DOUBT: Style = AnsiColor::Yellow.on_default();

/// An obstacle, a problem or a refusal.
pub(super) const BAD: Style = AnsiColor::Red.on_default();

/// A remedy.
pub(super) const REMEDY: Style = AnsiColor::Cyan.on_default();

/// The beginnings of sentences in the texts of the systems, with their styles.
const SENTENCES: [(&str, Style); 3] =
    [("warning: ", DOUBT), ("conflict: ", BAD), ("refused: ", BAD)];

/// Colours texts, or leaves them as they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Painter {
    pub(super) is_coloured: bool,
}

impl Painter {
    /// Colours if standard output is a terminal, or as `NO_COLOR`, `CLICOLOR_FORCE`, `CLICOLOR` and
    /// `TERM` say.
    pub(super) fn of_stdout() -> Self {
        Self { is_coloured: AutoStream::choice(&io::stdout()) != ColorChoice::Never }
    }

    pub(super) fn paint(self, style: Style, text: &str) -> String {
        let text = escape_for_terminal(text);
        match self.is_coloured {
            true => format!("{style}{text}{style:#}"),
            false => text,
        }
    }
}

/// A text in the making.
#[derive(Debug)]
pub(super) struct Page {
    painter: Painter,
    text: String,
}

impl Page {
    pub(super) fn new(painter: Painter) -> Self {
        Self { painter, text: String::new() }
    }

    /// Adds a text without a style.
    pub(super) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(&escape_for_terminal(text));
        self
    }

    /// Adds a text in a style.
    pub(super) fn paint(&mut self, style: Style, text: &str) -> &mut Self {
        self.text.push_str(&self.painter.paint(style, text));
        self
    }

    /// Adds a line, in which a warning, a conflict or a refusal has the style of these.
    pub(super) fn line(&mut self, line: &str) -> &mut Self {
        let of_line = |(word, style): &(&str, Style)| {
            let at = line.find(word)?;
            let begins = line[..at].trim().is_empty() || line[..at].ends_with(": ");
            begins.then_some((at, *style))
        };
        match SENTENCES.iter().find_map(of_line) {
            Some((at, style)) => self.push(&line[..at]).paint(style, &line[at..]).push("\n"),
            None => self.push(line).push("\n"),
        }
    }

    /// Adds another text as it is.
    pub(super) fn append(&mut self, other: &Self) -> &mut Self {
        self.text.push_str(&other.text);
        self
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

/// Puts items with equal texts together. A text has a [`mask`] in place of the name of its item.
pub(super) fn collapse<T>(items: impl IntoIterator<Item = (String, T)>) -> Vec<Vec<T>> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut collapsed: Vec<Vec<T>> = Vec::new();
    for (text, item) in items {
        let at = *known.entry(text).or_insert(collapsed.len());
        match collapsed.get_mut(at) {
            Some(equal) => equal.push(item),
            None => collapsed.push(vec![item]),
        }
    }
    collapsed
}

/// Names the objects of one block.
pub(super) fn join_names<N: AsRef<str>>(names: &[N]) -> String {
    let hint = if names.len() > LISTED { " (-o json shows all)" } else { "" };
    format!("{}{hint}", some(names))
}

/// Replaces a name in a text by a mark where it is a word of its own.
pub(super) fn mask(text: &str, name: &str, mark: char) -> String {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let mut masked = String::with_capacity(text.len());
    let mut rest = 0;
    for (at, _) in text.match_indices(name).filter(|_| !name.is_empty()) {
        let end = at + name.len();
        let is_word = !text[..at].ends_with(is_of_name) && !text[end..].starts_with(is_of_name);
        if is_word {
            masked.push_str(&text[rest..at]);
            masked.push(mark);
            rest = end;
        }
    }
    masked + &text[rest..]
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;

    fn page(is_coloured: bool) -> String {
        let mut page = Page::new(Painter { is_coloured });
        page.paint(TITLE, "Pod a\u{1b}[31m/b").push(": \u{9b}2Jtext\n");
        page.line("  warning: a\u{1b}]8;;http://x\u{7}: b").line("pods of a: refused: b");
        page.line("  no warning: c").line("conflict: d");
        page.as_str().to_owned()
    }

    #[test]
    fn colours_add_nothing_but_their_escape_sequences_and_users_add_none() {
        let (plain, coloured) = (page(false), page(true));
        assert!(!plain.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{plain:?}");
        assert_eq!(strip_str(&coloured).to_string(), plain);
        let painted: Vec<&str> = coloured.split('\u{1b}').skip(1).step_by(2).collect();
        assert_eq!(
            painted,
            [
                "[1mPod a\\u{1b}[31m/b",
                "[33mwarning: a\\u{1b}]8;;http://x\\u{7}: b",
                "[31mrefused: b",
                "[31mconflict: d"
            ]
        );
    }

    #[test]
    fn items_that_are_equal_but_for_their_names_are_put_together() {
        let items = [
            ("a", "delete pod a, of a-0"),
            ("b", "delete pod b, of b-0"),
            ("c", "delete pod c, of a-0"),
            ("a", "delete pod b, of a-0"),
            ("", "delete pod , of a-0"),
            ("d", "delete pod d, of a-0"),
        ];
        let items = items.map(|(name, text)| (mask(text, name, '\0'), name));
        let names: Vec<String> = collapse(items).iter().map(|names| join_names(names)).collect();
        assert_eq!(names, ["a, c, d", "b", "a", ""]);
        let many: Vec<String> = (0..8).map(|number| format!("p{number}")).collect();
        assert_eq!(join_names(&many), "p0, p1, p2, p3, p4 and 3 more (-o json shows all)");
        assert_eq!(join_names(&many[..5]), "p0, p1, p2, p3, p4");
    }
}
