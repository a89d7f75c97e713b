//! Instructions of something that needs no sockets, counted in a copy of this very binary.
//!
//! The copy runs under callgrind and does one thing at a time, as the measuring process orders line
//! by line, so that each count holds that thing alone: not what was made for it, nor its end.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, ensure};

use super::callgrind::Counter;
use super::process::Owned;

/// How often a thing is done for one count.
const TIMES: u32 = 10;

/// The copy, as the measuring process sees it. It ends when this is dropped.
pub(crate) struct Player {
    child: Owned,
    counter: Counter,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    idle: f64,
}

impl Player {
    /// Starts the copy as `role`. `nothing` is the order that measures the cost of a turn by
    /// itself.
    pub(crate) fn start(role: &str, nothing: &str) -> anyhow::Result<Self> {
        let mut copy = Command::new(std::env::current_exe()?);
        let (counter, mut child) = Counter::start(copy.arg(role), Stdio::piped())?;
        let orders = child.0.stdin.take().context("standard input is piped")?;
        let answers = BufReader::new(child.0.stdout.take().context("standard output is piped")?);
        let mut player = Self { child, counter, orders, answers: answers.lines(), idle: 0.0 };
        player.idle = player.count(nothing)?;
        Ok(player)
    }

    /// The instructions of doing once what `order` says.
    pub(crate) fn count(&mut self, order: &str) -> anyhow::Result<f64> {
        self.turn(order, "ready")?;
        self.counter.lap()?;
        self.turn("go", "done")?;
        let counted = self.counter.lap()?;
        // Only now may it drop what was made for it.
        writeln!(self.orders, "next")?;
        Ok(counted as f64 / f64::from(TIMES) - self.idle)
    }

    fn turn(&mut self, order: &str, wanted: &str) -> anyhow::Result<()> {
        writeln!(self.orders, "{order}")?;
        let answer = self.answers.next().with_context(|| format!("it ended at `{order}`"))??;
        ensure!(answer == wanted, "`{order}`: {answer}");
        Ok(())
    }
}

/// The thing that is counted: the result of a copy once all is made.
pub(crate) type Turn<'t> =
    dyn FnMut(&mut dyn FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> + 't;

/// Plays the copy's part: `prepare` makes what an order asks for, and hands over what is counted.
pub(crate) fn play(
    mut prepare: impl FnMut(&str, &mut Turn<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut orders = std::io::stdin().lines();
    while let Some(order) = orders.next() {
        prepare(&order?, &mut |thing| {
            println!("ready");
            orders.next().context("go")??;
            for _ in 0..TIMES {
                thing()?;
            }
            println!("done");
            orders.next().context("next")??;
            Ok(())
        })?;
    }
    Ok(())
}
