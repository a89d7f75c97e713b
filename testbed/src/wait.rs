//! Waiting for something to become true, always with an end and always with a reason.
//!
//! A test that hangs explains nothing, and "timed out" explains little more: the last reason is
//! kept and becomes the error.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// The pause between two checks: short for a test, but long enough not to load two cores.
const PAUSE: Duration = Duration::from_millis(300);

/// The result of one check.
#[derive(Debug)]
pub enum Seen<T> {
    /// The condition holds, with this result.
    Done(T),
    /// Not yet, and what was found instead.
    NotYet(String),
}

impl Seen<()> {
    /// Done if this holds; otherwise `why` tells what was found.
    pub fn when(holds: bool, why: impl FnOnce() -> String) -> Self {
        holds.then_some(()).ok_or_else(why).into()
    }
}

/// Something that failed, or is missing, may succeed later.
impl<T, E: Display> From<Result<T, E>> for Seen<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(found) => Self::Done(found),
            Err(why) => Self::NotYet(why.to_string()),
        }
    }
}

/// Calls `look` until it is [`Seen::Done`], for at most `limit`.
///
/// # Errors
/// The error of `look`, at once; or, when the time is over, `what` and the last reason.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Seen<T>>,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        let begun = Instant::now();
        match look().await? {
            Seen::Done(found) => return Ok(found),
            Seen::NotYet(why) if Instant::now() >= end => {
                bail!("waited {limit:?} for {what}; last seen: {why}")
            }
            // A check that takes long is a load of its own: it gets at most half of the time.
            Seen::NotYet(_) => sleep(PAUSE.max(begun.elapsed())).await,
        }
    }
}

/// Tries something that works once a file or a socket is closed everywhere. A process that another test is just
/// starting has copies of all of them for a moment, until it runs its program.
#[cfg(test)]
pub(crate) fn once_closed<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..500 {
        if let Some(done) = attempt() {
            return done;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within five seconds");
}
