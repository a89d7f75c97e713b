//! Logging to standard error that never blocks a request, and in which a user's text cannot imitate
//! another log line or control a terminal.
//!
//! Lines go through a bounded queue to one thread that writes them. That thread and its queue are
//! stowplan's own, so that these guarantees hold together and are tested in one file:
//! - **Bounded memory.** At most 1,024 lines of 8 KiB wait; a longer line is replaced by a short
//!   one.
//! - **No request waits for a reader of logs.** If standard error is not read fast enough and the
//!   queue is full, the line is dropped.
//! - **Dropped lines are counted** in the metric `stowplan_log_lines_dropped_total`.
//! - **The last lines are written at exit, with a deadline:** a reader that reads no more cannot
//!   keep the process from ending.
//! - **The filter can be replaced** while the process runs ([`Filter`]).
//! - **Each complete line is escaped before it is queued,** so that also a field which the caller
//!   forgot to escape is harmless. (Callers use [`shown`] to shorten a user's text.)

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use prometheus_client::metrics::counter::Counter;
use tracing::{error, info};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, reload};

use super::Metrics;
use stowplan_core::text::misleads;

/// The environment variable that filters logs, for example `info` or `stowplan=debug`.
pub(crate) const LOG_VARIABLE: &str = "STOWPLAN_LOG";

/// The most lines that wait to be written. With [`MAX_LINE`], they take 8 MiB at most.
const QUEUE: usize = 1024;

/// The longest line, in bytes. The lines that stowplan logs are much shorter.
const MAX_LINE: usize = 8 * 1024;

/// How much of a user's text one field shows, in bytes.
const MAX_SHOWN: usize = 512;

/// How long writing the last lines may take when the process ends.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The format of log lines.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON object a line
    Json,
    /// Lines for people
    Text,
}

/// Logging is active until this is dropped; dropping it writes the lines in the queue.
#[derive(Debug)]
pub(crate) struct Log {
    queue: SyncSender<Message>,
    done: Receiver<()>,
}

/// The filter of log lines, which the policy may replace.
pub(crate) struct Filter {
    /// The filter with which the process was started.
    own: String,
    /// The filter that is used.
    used: String,
    replace: Replace,
}

type Replace = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

impl Filter {
    pub(crate) fn new(own: &str, replace: Replace) -> Self {
        Self { own: own.to_owned(), used: own.to_owned(), replace }
    }

    /// Uses `filter` from now on; empty: the one with which the process was started.
    pub(crate) fn set(&mut self, filter: &str) {
        let Self { own, used, replace } = self;
        let filter = if filter.is_empty() { own.as_str() } else { filter };
        if used == filter {
            return;
        }
        let replaced = EnvFilter::try_new(filter).map_err(|error| error.to_string());
        match replaced.and_then(|new| replace(new).map_err(|error| error.to_string())) {
            Ok(()) => {
                filter.clone_into(used);
                info!(filter, "log lines are filtered by the policy from now on");
            }
            Err(error) => error!(filter, error, "the log filter cannot be used"),
        }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Filter").field(&self.used).finish()
    }
}

enum Message {
    Line(Vec<u8>),
    End,
}

/// Starts logging to standard error in `format`; by default as text on a terminal, else as JSON.
/// Panics are logged, too, and counted. Returns the filter, too, which may be replaced.
///
/// # Errors
/// The filter in [`LOG_VARIABLE`] is invalid, or logging was started before.
pub(crate) fn start(format: Option<Format>, metrics: &Metrics) -> Result<(Log, Filter), String> {
    let own = std::env::var(LOG_VARIABLE).unwrap_or_else(|_| "info".to_owned());
    let filter = EnvFilter::try_new(&own)
        .map_err(|error| format!("{LOG_VARIABLE}={own}: {error}; write for example info"))?;
    let (lines, log) = start_writer(io::stderr(), metrics.log_lines_dropped.clone());
    let default_format = || if io::stderr().is_terminal() { Format::Text } else { Format::Json };
    // No colours: so every control character in a line comes from a user's text, and is escaped.
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(lines);
    let layer = match format.unwrap_or_else(default_format) {
        Format::Text => layer.boxed(),
        Format::Json => {
            let layer = layer.json().flatten_event(true).with_current_span(true);
            layer.with_span_list(false).boxed()
        }
    };
    let (filter, handle) = reload::Layer::new(filter);
    let replaceable = Filter::new(&own, Box::new(move |filter| handle.reload(filter)));
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .try_init()
        .map_err(|error| format!("cannot start logging: {error}"))?;
    let panics = metrics.panics.clone();
    // The standard hook writes to standard error itself, which can block, and it escapes nothing.
    std::panic::set_hook(Box::new(move |panic| {
        panics.inc();
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let why = panic.payload_as_str().unwrap_or("(no text)");
        error!(location, why = &*shown(why), "panicked; this is a bug in stowplan");
    }));
    Ok((log, replaceable))
}

/// Starts the thread that writes lines to `sink`, and returns both ends of its queue.
fn start_writer(mut sink: impl Write + Send + 'static, dropped: Counter) -> (Lines, Log) {
    let (queue, lines) = sync_channel(QUEUE);
    let (end, done) = sync_channel(1);
    let writer = thread::Builder::new().name("log".to_owned()).spawn(move || {
        for message in lines {
            match message {
                // If standard error is closed, there is no way to report it.
                Message::Line(line) => _ = sink.write_all(&line),
                Message::End => break,
            }
        }
        let _ = sink.flush();
        let _ = end.send(());
    });
    // If the thread does not start, every line is dropped and counted, and the webhook still
    // serves.
    drop(writer);
    (Lines { queue: queue.clone(), dropped }, Log { queue, done })
}

impl Drop for Log {
    fn drop(&mut self) {
        let deadline = Instant::now() + LAST_LINES;
        let mut end = Message::End;
        while let Err(TrySendError::Full(back)) = self.queue.try_send(end) {
            if Instant::now() >= deadline {
                return;
            }
            end = back;
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// The sending end of the queue.
#[derive(Clone, Debug)]
struct Lines {
    queue: SyncSender<Message>,
    dropped: Counter,
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Write for Lines {
    /// Queues one complete line: tracing-subscriber writes a line with one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Message::Line(clean(line))).is_err() {
            self.dropped.inc();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes the characters of `line` that would begin another line or control a terminal, and
/// replaces a line that is too long. The escapes are those of JSON, so a JSON line stays valid
/// JSON.
fn clean(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
    let mut clean = if text.len() <= MAX_LINE {
        escaped(&text).into_owned()
    } else {
        let begins = head(&text, MAX_SHOWN);
        let bytes = text.len();
        let stub = serde_json::json!({
            "level": "WARN", "message": "a log line is too long and was replaced", "bytes": bytes, "begins": begins,
        });
        escaped(&stub.to_string()).into_owned()
    };
    clean.push('\n');
    clean.into_bytes()
}

/// A user's text for a log field: at most 512 bytes of it, control characters escaped.
#[must_use]
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    let head = head(text, MAX_SHOWN);
    let escaped = escaped(head);
    match text.len() {
        bytes if bytes == head.len() => escaped,
        bytes => format!("{escaped}… ({bytes} bytes)").into(),
    }
}

fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(misleads) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match misleads(c) {
            // All misleading characters have code points of at most four hexadecimal digits.
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;

    #[test]
    fn a_line_stays_one_line_and_cannot_control_a_terminal() {
        let line = "a\r\nb\u{1b}[31mred\u{7f}\u{9b}2J\u{202e}x\n".as_bytes();
        let clean = String::from_utf8(clean(line)).unwrap();
        assert_eq!(clean, "a\\u000d\\u000ab\\u001b[31mred\\u007f\\u009b2J\\u202ex\n");
    }

    #[test]
    fn a_line_that_is_too_long_is_replaced_by_its_length_and_its_beginning() {
        let long = clean("é".repeat(MAX_LINE).as_bytes());
        assert!(long.len() < 1024, "{}", long.len());
        assert_eq!(serde_json::from_slice::<Value>(&long).unwrap()["bytes"], 2 * MAX_LINE);
        assert_eq!(shown("plain"), "plain");
        assert_eq!(shown("a\nb"), "a\\u000ab");
        let long = "é".repeat(500);
        assert_eq!(shown(&long), format!("{}… (1000 bytes)", "é".repeat(256)));
    }

    /// A sink that blocks while the lock is held.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_reader_loses_lines_and_blocks_no_caller() {
        let (slow, dropped) = (Slow::default(), Counter::default());
        let (mut lines, log) = start_writer(slow.clone(), dropped.clone());
        let held = slow.0.lock().unwrap();
        let all = QUEUE + 100;
        for number in 0..all {
            // Would never return if it waited for the sink.
            lines.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        assert!((99..=100).contains(&dropped.get()), "{}", dropped.get());
        drop(held);
        // The rest is written before the end.
        drop(log);
        let written = String::from_utf8(slow.0.lock().unwrap().clone()).unwrap();
        assert_eq!(written.lines().count(), all - usize::try_from(dropped.get()).unwrap());
        assert!(written.starts_with("line 0\nline 1\n"));
    }

    #[test]
    fn a_reader_that_reads_nothing_does_not_keep_the_process_from_ending() {
        let slow = Slow::default();
        let (mut lines, log) = start_writer(slow.clone(), Counter::default());
        let _held = slow.0.lock().unwrap();
        lines.write_all(b"line\n").unwrap();
        drop(log);
    }
}
