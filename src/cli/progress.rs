//! Shows on a terminal what a slow command is doing.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time for which a command is silent.
const PATIENCE: Duration = Duration::from_secs(2);

/// Shows a line on standard error while it lives, after two seconds, if that is a terminal. The line is
/// removed at the end.
#[derive(Debug, Default)]
pub(super) struct Progress {
    running: Option<(Sender<String>, JoinHandle<()>)>,
}

impl Progress {
    /// Begins with this step, such as `reading pods`.
    pub(super) fn begin(step: &str) -> Self {
        if !io::stderr().is_terminal() {
            return Self::default();
        }
        let (sender, steps) = mpsc::channel::<String>();
        let first = step.to_owned();
        let running = thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let mut step = first;
            // Steps of the silent time are not shown.
            let deadline = std::time::Instant::now() + PATIENCE;
            loop {
                let left = deadline.saturating_duration_since(std::time::Instant::now());
                match steps.recv_timeout(left) {
                    Ok(next) => step = next,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            show(&format!("{step} …"));
            steps.iter().for_each(|step| show(&format!("{step} …")));
            show("");
        });
        Self { running: running.ok().map(|running| (sender, running)) }
    }

    /// Goes on with the next step.
    pub(super) fn step(&self, step: &str) {
        if let Some((steps, _)) = &self.running {
            // The thread ends only after this sender.
            let _ = steps.send(step.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((steps, thread)) = self.running.take() {
            drop(steps);
            let _ = thread.join();
        }
    }
}

/// Replaces the line.
fn show(line: &str) {
    let _ = write!(io::stderr(), "\r\u{1b}[K{line}");
    let _ = io::stderr().flush();
}
