//! The pause between a finished write to an object and the next one.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use stowplan_core::systems::plan::Action;

/// The pause after a creation or deletion, unless the watch shows its result earlier.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// A pause of the writes to one object.
#[derive(Debug)]
pub(super) struct Pause {
    /// The finished action. A different action for the object ends the pause.
    pub(super) action: Action,
    pub(super) until: Instant,
    trouble: Option<(Trouble, ExponentialBackoff)>,
    /// The API server's message, if the events about a refusal have been recorded.
    problem: Option<String>,
}

/// The reason why writes are paused. Each reason starts with its shortest pause.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Trouble {
    /// The object has changed since the plan.
    Conflict,
    /// The API server refuses the write.
    Refused,
    /// The name of the object to be created is taken, perhaps by stowplan's own, which the View does not show yet.
    Taken,
    /// The write may have been carried out.
    Unsure,
    /// The write succeeded; if it is planned again, something reverts it.
    Reverted,
}

impl Trouble {
    /// Pauses that double from the first to the longest, each lengthened randomly by up to its
    /// length.
    fn pauses(self) -> ExponentialBackoff {
        let (first, longest) = match self {
            Self::Conflict => (Duration::from_millis(100), Duration::from_millis(2500)),
            Self::Unsure | Self::Reverted => (Duration::from_millis(500), Duration::from_secs(15)),
            Self::Refused | Self::Taken => (Duration::from_secs(1), Duration::from_secs(150)),
        };
        let pauses = ExponentialBuilder::new().with_min_delay(first).with_max_delay(longest);
        pauses.without_max_times().with_jitter().build()
    }
}

impl Pause {
    /// The pause after `action`; longer than the pause `before` if the trouble is the same.
    pub(super) fn after(
        action: Action,
        trouble: Option<Trouble>,
        problem: Option<String>,
        before: Option<Self>,
        now: Instant,
    ) -> Self {
        let Some(trouble) = trouble else {
            return Self { action, until: now + SETTLE, trouble: None, problem };
        };
        let before = before.and_then(|before| before.trouble);
        let same = before.filter(|(before, _)| *before == trouble);
        // The first success needs no pause: the write is rarely planned again.
        let is_first_success = trouble == Trouble::Reverted && same.is_none();
        let mut pauses = same.map_or_else(|| trouble.pauses(), |(_, pauses)| pauses);
        let pause = if is_first_success { Some(Duration::ZERO) } else { pauses.next() };
        let until = now + pause.unwrap_or(SETTLE);
        Self { action, until, trouble: Some((trouble, pauses)), problem }
    }

    /// Returns true if the creation or deletion has succeeded, or may have.
    pub(super) fn may_have_succeeded(&self) -> bool {
        matches!(self.trouble(), None | Some(Trouble::Unsure))
    }

    /// Returns the API server's message, if other objects wait for the refused write by now.
    pub(super) fn problem_for_others(&self, action: &Action) -> Option<&str> {
        let waiting = |action: &Action| action.refusal.as_ref().map(|of| of.waiting.clone());
        self.problem.as_deref().filter(|_| waiting(action) != waiting(&self.action))
    }

    /// Returns the reason why writes are paused. `None`: only the watch is awaited, after a
    /// creation or a deletion that succeeded, or a write that was not needed any more.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.trouble.as_ref().map(|(trouble, _)| *trouble)
    }
}
