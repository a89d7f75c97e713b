//! Waiting for something to become true, always with an end and always with a reason.
//!
//! A test that hangs tells nothing, and "timed out" tells little more: what was last seen is kept
//! and becomes the error.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// The pause between two looks: short enough not to be felt, long enough not to load two cores.
const PAUSE: Duration = Duration::from_millis(50);

/// What one look found.
#[derive(Debug)]
pub enum Seen<T> {
    /// What was waited for.
    Done(T),
    /// Not there yet, and what is there instead.
    NotYet(String),
}

/// Calls `look` until it is [`Seen::Done`], for at most `limit`.
///
/// # Errors
/// What `look` fails with, at once; or, when the time is over, `what` and the last reason.
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
            // A look that takes long is a load of its own: at most half of the time goes there.
            Seen::NotYet(_) => sleep(PAUSE.max(begun.elapsed())).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_reason_becomes_the_error() {
        let mut looks = 0;
        let error = until::<()>("a sail", Duration::from_millis(1), async || {
            looks += 1;
            Ok(Seen::NotYet(format!("sea, {looks}")))
        })
        .await
        .unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("waited 1ms for a sail; last seen: sea, "), "{text}");
    }

    #[tokio::test]
    async fn a_failing_look_ends_the_wait() {
        let error =
            until::<()>("a sail", Duration::from_secs(3600), async || bail!("the glass is broken"))
                .await
                .unwrap_err();
        assert_eq!(error.to_string(), "the glass is broken");
    }
}
