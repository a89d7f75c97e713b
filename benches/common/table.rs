//! Tables on stdout, in Markdown: they go into the documentation as they are. And the figures in them.

use std::hint::black_box;
use std::time::Instant;

/// The timed turns of which the median is printed.
pub(crate) const ROUNDS: usize = 9;

/// A table that is being filled: its head, and its rows.
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    /// A table with this head: `step | first, s | all, s`.
    pub(crate) fn new(head: &str) -> Self {
        Self(vec![head.split(" | ").map(str::to_owned).collect()])
    }

    pub(crate) fn row(&mut self, label: &str, figures: impl IntoIterator<Item = String>) {
        self.0.push([label.to_owned()].into_iter().chain(figures).collect());
    }

    /// Prints it: the first column to the left, figures to the right.
    pub(crate) fn print(&self, title: &str) {
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).fold(3, usize::max)
        };
        let rule = (0..self.0[0].len()).map(|column| match column {
            0 => "-".repeat(width(column)),
            _ => format!("{}:", "-".repeat(width(column) - 1)),
        });
        let rule: Vec<String> = rule.collect();
        println!("\n## {title}\n");
        for row in self.0[..1].iter().chain([&rule]).chain(&self.0[1..]) {
            let cells = row.iter().enumerate().map(|(column, cell)| match column {
                0 => format!("{cell:<0$}", width(column)),
                _ => format!("{cell:>0$}", width(column)),
            });
            println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
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

/// A figure with one decimal: `1.3`.
pub(crate) fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

/// A ratio of two figures; `-` if there is nothing to compare with.
pub(crate) fn growth(from: f64, to: f64) -> String {
    if from > 0.0 { ratio(to / from) } else { "-".to_owned() }
}

/// The value below which this part of the values is; `None` without values.
pub(crate) fn quantile(mut values: Vec<f64>, part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get((values.len().saturating_sub(1) as f64 * part).round() as usize).copied()
}

/// The median, and in brackets the lowest and the highest.
pub(crate) fn spread(mut values: Vec<f64>, shown: impl Fn(f64) -> String) -> String {
    values.sort_by(f64::total_cmp);
    let (Some(lowest), Some(highest)) = (values.first(), values.last()) else {
        return "-".to_owned();
    };
    // Of an odd number of values both are the one in the middle.
    let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
    format!("{} ({}-{})", shown(median), shown(*lowest), shown(*highest))
}

/// The milliseconds of a turn, the median of [`ROUNDS`].
pub(crate) fn median_time<T>(mut turn: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<f64> {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        black_box(turn()?);
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(quantile(took, 0.5).unwrap_or_default())
}
