//! Text that fits a terminal.

use anyhow::{Result, ensure};

/// The columns that a line of the demo has at most.
pub(super) const WIDTH: usize = 120;

/// Before each line of a table.
const INDENT: &str = "   ";

/// Between two columns.
const GAP: &str = "  ";

/// The second column is broken before it leaves less than this to the last one.
const LAST_COLUMN: usize = 44;

/// A table of four columns: pod, constraints, node and reasons. Each constraint and each reason
/// begins a line where they do not fit into one.
///
/// # Errors
/// A pod has no reason.
pub(super) fn format_table(header: [&str; 4], rows: &[Row]) -> Result<String> {
    let without = rows.iter().find(|row| row.reasons.iter().all(|why| why.trim().is_empty()));
    ensure!(without.is_none(), "{} has no reason", without.map_or("", |row| &row.pod));
    let longest = |header: &str, of: &dyn Fn(&Row) -> usize| {
        rows.iter().map(of).chain([header.chars().count()]).max().unwrap_or(0)
    };
    let first = longest(header[0], &|row| row.pod.chars().count());
    let third = longest(header[2], &|row| row.node.chars().count());
    let for_two = WIDTH.saturating_sub(INDENT.len() + first + third + 3 * GAP.len());
    let second = longest(header[1], &|row| row.constraints.join(", ").chars().count())
        .min(for_two.saturating_sub(LAST_COLUMN));
    let last = for_two - second;
    let mut table = String::new();
    let mut push = |one: &str, two: &str, three: &str, four: &str| {
        let line = format!("{INDENT}{one:first$}{GAP}{two:second$}{GAP}{three:third$}{GAP}{four}");
        table.push_str(line.trim_end());
        table.push('\n');
    };
    push(header[0], header[1], header[2], header[3]);
    for row in rows {
        let constraints = lines_of(&row.constraints, ", ", second);
        let reasons = lines_of(&row.reasons, "; ", last);
        for number in 0..constraints.len().max(reasons.len()).max(1) {
            let (pod, node) = if number == 0 { (&*row.pod, &*row.node) } else { ("", "") };
            let line = |lines: &[String]| lines.get(number).cloned().unwrap_or_default();
            push(pod, &line(&constraints), node, &line(&reasons));
        }
    }
    Ok(table)
}

/// A row of a table.
pub(super) struct Row {
    pub(super) pod: String,
    pub(super) constraints: Vec<String>,
    pub(super) node: String,
    pub(super) reasons: Vec<String>,
}

/// One line if the items fit into it, else each item on lines of its own.
fn lines_of(items: &[String], separator: &str, width: usize) -> Vec<String> {
    let joined = items.join(separator);
    if joined.chars().count() <= width {
        return vec![joined];
    }
    items.iter().flat_map(|item| broken(item, width)).collect()
}

/// Broken between words into lines of at most `width`; a longer word is cut.
fn broken(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(width) {
            let piece: String = piece.iter().collect();
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + piece.chars().count() <= width => {
                    line.push(' ');
                    line.push_str(&piece);
                }
                _ => lines.push(piece),
            }
        }
    }
    lines
}

/// A text of others in lines that fit, such as kubectl's message.
pub(super) fn wrapped(text: &str) -> String {
    text.lines().flat_map(|line| broken(line, WIDTH)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pod: &str, constraints: &[&str], node: &str, reasons: &[&str]) -> Row {
        let owned = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect();
        Row {
            pod: pod.to_owned(),
            constraints: owned(constraints),
            node: node.to_owned(),
            reasons: owned(reasons),
        }
    }

    const HEADER: [&str; 4] = ["POD", "OPERATOR", "NODE", "WHY"];

    #[test]
    fn what_fits_is_one_line_and_what_does_not_is_broken() {
        let long = [
            "streams-job=parallel: element parallel-3, group bacd0ca8db",
            "host-pool=P1: members of pool 48c3a9a36d",
            "host-colocation=a: one node for all",
        ];
        let operators =
            ["Enrich: host(P1), hostColocation(\"a\"), hostColocation(\"b\")", "Next: y"];
        let word = "x".repeat(300);
        let rows = [
            row("p-1", &["host: a"], "node-1", &["b", "c"]),
            row("p-2", &operators, "node-11", &long),
            row("p-3", &[&word], "node-11", &[&word]),
        ];
        let table = format_table(HEADER, &rows).unwrap();
        assert!(table.lines().all(|line| line.chars().count() <= WIDTH), "{table}");
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>().join(" "),
            "p-1 host: a node-1 b; c"
        );
        assert!(lines[2].starts_with("   p-2  Enrich: host(P1)"), "{table}");
        assert!(lines[2].contains("node-11  streams-job=parallel"), "{table}");
        // Nothing is lost.
        let letters = |text: &str| text.chars().filter(|it| !it.is_whitespace()).count();
        let given: usize = rows
            .iter()
            .flat_map(|row| row.constraints.iter().chain(&row.reasons).chain([&row.pod, &row.node]))
            .map(|text| letters(text))
            .sum();
        // `; ` of the first row, and the header.
        assert_eq!(letters(&table), given + 1 + letters(&HEADER.concat()));
    }

    #[test]
    fn a_pod_without_a_reason_is_an_error() {
        for reasons in [&[][..], &[""], &[" ", ""]] {
            let error = format_table(HEADER, &[row("p", &[], "n", reasons)]).unwrap_err();
            assert_eq!(error.to_string(), "p has no reason");
        }
    }

    #[test]
    fn a_message_of_others_is_broken_between_words() {
        let message = format!("one {}\n\ntwo", "word ".repeat(100));
        let wrapped = wrapped(&message);
        assert!(wrapped.lines().all(|line| line.chars().count() <= WIDTH), "{wrapped}");
        assert!(wrapped.starts_with("one word") && wrapped.ends_with("\ntwo"), "{wrapped}");
    }
}
