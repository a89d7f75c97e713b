//! Tables on stdout, in Markdown: they go into the documentation as they are.

/// A table that is being filled.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|&cell| cell.to_owned()).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Prints it: the first column to the left, figures to the right.
    pub(crate) fn print(&self, title: &str) {
        let width = |column: usize| {
            let rows = self.rows.iter().chain([&self.head]);
            rows.filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
                .max(3)
        };
        let line = |cells: &[String]| {
            let cells = cells.iter().enumerate().map(|(column, cell)| match column {
                0 => format!("{cell:<0$}", width(column)),
                _ => format!("{cell:>0$}", width(column)),
            });
            format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
        };
        println!("\n## {title}\n\n{}", line(&self.head));
        let rule = (0..self.head.len()).map(|column| match column {
            0 => "-".repeat(width(column)),
            _ => format!("{}:", "-".repeat(width(column) - 1)),
        });
        println!("| {} |", rule.collect::<Vec<_>>().join(" | "));
        for row in &self.rows {
            println!("{}", line(row));
        }
    }
}

/// A count with separators: `1,234,567`.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digit.is_ascii_digit() && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A ratio: `1.25`.
pub(crate) fn ratio(value: f64) -> String {
    format!("{value:.2}")
}
