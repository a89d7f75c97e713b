//! Logs that hold up nobody, and in which no text of a user passes for something else.
//!
//! Lines go through a bounded queue to a thread that writes them. When standard error is slow, lines
//! are dropped and counted; a request never waits for a reader of logs. Everything that is written
//! is cleaned as a whole line, so that what a caller forgot to escape is escaped all the
//! same; callers use [`shown`] to keep a user's text short.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use prometheus_client::metrics::counter::Counter;
use tracing::error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::Metrics;
use crate::text::misleads;

/// The environment variable that filters logs, for example `info` or `stowplan=debug`.
pub const LOG_VARIABLE: &str = "STOWPLAN_LOG";

/// Lines that wait to be written. With [`MAX_LINE`] this bounds their memory to 8 MiB.
const QUEUE: usize = 1024;

/// The longest line, in bytes. Nothing of ours comes near it.
const MAX_LINE: usize = 8 * 1024;

/// The most of a user's text that one field shows, in bytes.
const MAX_SHOWN: usize = 512;

/// How long the last lines may take at the end of the process.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How log lines look.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// One JSON object a line
    Json,
    /// Lines for people
    Text,
}

/// Logging, until it is dropped: then the lines that wait are written.
#[derive(Debug)]
pub struct Log {
    queue: SyncSender<Message>,
    done: Receiver<()>,
}

enum Message {
    Line(Vec<u8>),
    End,
}

/// Starts logging to standard error, in `format` or by default in JSON, or in lines for people where
/// that is a terminal. Panics are logged too, and counted.
///
/// # Errors
/// The filter in [`LOG_VARIABLE`] is not one, or logging is started already.
pub fn start(format: Option<Format>, metrics: &Metrics) -> Result<Log, String> {
    let filter = match std::env::var(LOG_VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text)
            .map_err(|error| format!("{LOG_VARIABLE}={text}: {error}; write for example info"))?,
        Err(_) => EnvFilter::new("info"),
    };
    let (lines, log) = queue(io::stderr(), metrics.log_lines_dropped.clone());
    let fitting = || if io::stderr().is_terminal() { Format::Text } else { Format::Json };
    // No colours: a control character in a line is then always somebody else's.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(lines);
    match format.unwrap_or_else(fitting) {
        Format::Text => builder.try_init(),
        Format::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .try_init(),
    }
    .map_err(|error| format!("cannot start logging: {error}"))?;
    let panics = metrics.panics.clone();
    // The standard hook writes to standard error itself: it waits, and it escapes nothing.
    std::panic::set_hook(Box::new(move |panic| {
        panics.inc();
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let why = panic.payload_as_str().unwrap_or("(no text)");
        error!(place, why = &*shown(why), "panicked; this is a bug in stowplan");
    }));
    Ok(log)
}

/// A queue whose lines a thread writes to `sink`.
fn queue(mut sink: impl Write + Send + 'static, dropped: Counter) -> (Lines, Log) {
    let (queue, lines) = sync_channel(QUEUE);
    let (end, done) = sync_channel(1);
    let writer = thread::Builder::new().name("log".to_owned()).spawn(move || {
        for message in lines {
            match message {
                // Standard error is gone: there is nobody left to tell.
                Message::Line(line) => _ = sink.write_all(&line),
                Message::End => break,
            }
        }
        let _ = sink.flush();
        let _ = end.send(());
    });
    // Without the thread every line is dropped and counted, and the webhook serves.
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

/// The near end of the queue.
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
    /// Takes a whole line: that is how tracing-subscriber writes.
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

/// `line` without what could be taken for another line or for a terminal's command, and not too
/// long. The escapes are JSON's, so a JSON line stays one.
fn clean(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
    let mut clean = if text.len() <= MAX_LINE {
        escaped(&text).into_owned()
    } else {
        let begins = head(&text, MAX_SHOWN);
        let bytes = text.len();
        let stub = serde_json::json!({
            "level": "WARN", "message": "a line that is too long is left out", "bytes": bytes, "begins": begins,
        });
        escaped(&stub.to_string()).into_owned()
    };
    clean.push('\n');
    clean.into_bytes()
}

/// A user's text as a log field shows it: at most 512 bytes, control characters escaped.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    let head = head(text, MAX_SHOWN);
    match escaped(head) {
        Cow::Borrowed(_) if head.len() == text.len() => Cow::Borrowed(text),
        escaped if head.len() == text.len() => escaped,
        escaped => Cow::Owned(format!("{escaped}… ({} bytes)", text.len())),
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
            // All of them fit into four digits.
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_line_stays_one_line_and_commands_no_terminal() {
        let line = "a\r\nb\u{1b}[31mred\u{7f}\u{9b}2J\u{202e}x\n".as_bytes();
        let clean = String::from_utf8(clean(line)).unwrap();
        assert_eq!(clean, "a\\u000d\\u000ab\\u001b[31mred\\u007f\\u009b2J\\u202ex\n");
        // JSON stays JSON, and means the same.
        let json = serde_json::json!({"message": "\u{9b}\u{202e}\u{7f}\n"}).to_string();
        let cleaned = super::clean(json.as_bytes());
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&cleaned).unwrap()["message"],
            "\u{9b}\u{202e}\u{7f}\n"
        );
    }

    #[test]
    fn what_is_too_long_is_told_and_left_out() {
        let long = clean("é".repeat(MAX_LINE).as_bytes());
        assert!(long.len() < 1024, "{}", long.len());
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&long).unwrap()["bytes"],
            2 * MAX_LINE
        );
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
    fn a_slow_reader_costs_lines_and_never_time() {
        let (slow, dropped) = (Slow::default(), Counter::default());
        let (mut lines, log) = queue(slow.clone(), dropped.clone());
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
    fn a_reader_that_is_gone_does_not_keep_the_process() {
        let slow = Slow::default();
        let (mut lines, log) = queue(slow.clone(), Counter::default());
        let _held = slow.0.lock().unwrap();
        lines.write_all(b"line\n").unwrap();
        drop(log);
    }
}
