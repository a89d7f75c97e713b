//! Carries out plans.
//!
//! At most one write to each object is in flight, and [`CONCURRENCY`] in total. Each plan repeats a
//! write until the View shows its result. So the executor keeps no queue beyond the latest plan and
//! never undoes a write: a failed write is planned again, after a pause.
//!
//! | Answer | Meaning | Reaction |
//! | --- | --- | --- |
//! | success | the object was written | apply the returned object to the View; record the events. If the next plan repeats the write, something reverts it: pause, twice as long each time |
//! | 404 | the object was deleted | none; the watch will show the deletion |
//! | 409, or 422 after a failed `test` | the object has changed since the plan | a short pause |
//! | 403 with the cause NamespaceTerminating | the namespace of the object is being deleted | a short pause |
//! | 403, 422, other 4xx | a person has to fix something | an event, and a long pause, during which the plan's actions for this case are carried out |
//! | 409 to a creation, with the reason AlreadyExists | the name is taken, by an object that the watch is about to show or by one that is not stowplan's | a long pause; from the second time on as above. After a creation of this process that has succeeded, or may have: a short pause |
//! | 429 | the API server is busy | no writes before the time that it names |
//! | 401, 5xx, no answer | **the write may have been carried out** | a pause, twice as long each time |
//!
//! It is safe to repeat a write that may have been carried out: each write has a precondition (a
//! UID, a version, a free name), and by then the watch may have shown that the write is no longer
//! needed. A pause ends early if a different write to the object is planned.
//!
//! [`turns`] chooses the next write, and [`creations`] holds creations back until the View shows
//! earlier ones. [`writer`] carries out one write, from the precondition to the events, with
//! [`request`] and [`answer`] for HTTP, [`content`] for generated keys, and [`limit`] for the
//! requests per second. [`pause`] delays the next write to an object. [`audience`] finds the
//! objects that events are about, and [`reports`] holds back events without a write. The executor
//! knows no system: an [`Action`] contains everything that differs between systems.

mod answer;
mod audience;
mod content;
mod creations;
mod limit;
mod pause;
mod reports;
mod request;
#[cfg(test)]
mod tests;
mod turns;
mod writer;

use std::collections::{HashMap, HashSet};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use answer::Outcome;
use creations::Creations;
pub(crate) use limit::Limiter;
use pause::{Pause, Trouble};
use reports::Reports;
use stowplan_core::systems::plan::{Action, Target, Write};
use turns::Turns;
use writer::SharedLists;
pub(crate) use writer::Writer;

/// How long an object that this process has created counts as its own before the View shows it: longer than
/// a watch takes to begin again after some failures.
const OWN: Duration = Duration::from_secs(60);

/// The number of writes in flight at once.
pub(crate) const CONCURRENCY: usize = 8;

/// Carries out actions during one leadership. Dropping it aborts the writes in flight.
pub(crate) struct Executor {
    writer: Arc<Writer>,
    /// Actions of the latest plan that have not been started.
    waiting: Turns,
    /// The writes in flight. Tasks of their own, so that they proceed while a plan is computed.
    running: JoinSet<(Action, Outcome)>,
    /// The targets of `running`.
    busy: HashSet<Target>,
    creations: Creations,
    /// The objects that were created, or may have been, and that the latest plan still creates
    /// because the View does not show them yet; each with the time of the answer.
    created: HashMap<Target, Instant>,
    paused: HashMap<Target, Pause>,
    shared: Arc<SharedLists>,
    reports: Reports,
}

impl Executor {
    /// An executor without actions.
    #[must_use]
    pub(crate) fn new(writer: Writer) -> Self {
        Self {
            writer: Arc::new(writer),
            waiting: Turns::default(),
            running: JoinSet::new(),
            busy: HashSet::new(),
            creations: Creations::default(),
            created: HashMap::new(),
            paused: HashMap::new(),
            shared: Arc::new(SharedLists::beginning_at(Instant::now())),
            reports: Reports::default(),
        }
    }

    /// Replaces the actions of the previous plan with those of the latest one.
    pub(crate) fn take(&mut self, mut actions: Vec<Action>) {
        let now = Instant::now();
        actions.extend(self.instead(&actions, now));
        if self.shared.has_ended(now) {
            self.shared = Arc::new(SharedLists::beginning_at(now));
        }
        let refusals = actions.iter().filter_map(|action| action.refusal.as_ref());
        let all = refusals.flat_map(|of| &of.instead).chain(&actions);
        let planned: HashSet<Target> = all.map(|action| action.target.clone()).collect();
        self.paused.retain(|target, pause| now < pause.until || planned.contains(target));
        self.created.retain(|target, at| now < *at + OWN && planned.contains(target));
        let (mut waiting, mut reports) = (Vec::new(), Vec::new());
        let mut unfinished = self.busy.iter().filter(|target| !planned.contains(target)).count();
        let (busy, paused, created) = (&self.busy, &self.paused, &self.created);
        self.creations.plan(&actions, |target| {
            let may_be_unseen = |pause: &Pause| {
                let may_exist = pause.may_have_succeeded() || created.contains_key(target);
                now < pause.until && may_exist && planned.contains(target)
            };
            busy.contains(target) || paused.get(target).is_some_and(may_be_unseen)
        });
        for action in actions {
            if matches!(action.write, Write::None) {
                reports.push(action);
                continue;
            }
            unfinished += 1;
            // A plan after the write in flight will contain it again.
            if self.busy.contains(&action.target) {
                continue;
            }
            // An action that is carried out instead of a refused one neither waits for its pause
            // nor ends it. The refused one then waits for the pause of the action that was tried
            // last.
            let is_among = |all: &Action, one: &Action| {
                let instead = all.refusal.iter().flat_map(|refusal| &refusal.instead);
                instead.into_iter().any(|of| of.repeats(one))
            };
            match self.paused.get_mut(&action.target) {
                Some(pause) if is_among(&pause.action, &action) => {}
                Some(pause) if is_among(&action, &pause.action) && now < pause.until => continue,
                Some(pause) if is_among(&action, &pause.action) => {}
                Some(pause) if !action.repeats(&pause.action) => {
                    self.paused.remove(&action.target);
                }
                Some(pause) if now < pause.until => {
                    // The refusal is also reported on the objects that have begun to wait since.
                    if let Some(problem) = pause.problem_for_others(&action) {
                        self.writer.record_refusal(&action, problem);
                        pause.action = action;
                    }
                    continue;
                }
                _ => {}
            }
            if !self.creations.must_wait(&action.target) {
                waiting.push(action);
            }
        }
        for action in self.reports.take(reports, now) {
            self.writer.record_events_once(&action);
        }
        self.waiting.replace(waiting);
        self.writer.metrics.controller_actions.set(i64::try_from(unfinished).unwrap_or(i64::MAX));
    }

    /// Returns the actions that are carried out while others of the plan are refused, but for objects to which the plan
    /// has a write of its own, other than the refused one.
    fn instead<'a>(&self, actions: &'a [Action], now: Instant) -> Vec<Action> {
        let is_refused = |action: &&Action| {
            let pause = self.paused.get(&action.target).filter(|pause| now < pause.until);
            pause.is_some_and(|pause| {
                pause.trouble() == Some(Trouble::Refused) && action.repeats(&pause.action)
            })
        };
        let refused: Vec<_> = actions.iter().filter(is_refused).collect();
        if refused.is_empty() {
            return Vec::new();
        }
        let writes = actions.iter().filter(|action| action.write != Write::None);
        let written: HashSet<&Target> = writes.map(|action| &action.target).collect();
        let instead_of = |action: &'a Action| {
            let all = action.refusal.iter().flat_map(|refusal| &refusal.instead);
            all.filter(|of| of.target == action.target || !written.contains(&of.target))
        };
        refused.into_iter().flat_map(instead_of).cloned().collect()
    }

    /// Returns true if planned writes have not been started.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns once a write has finished, a pause has ended, or an event is due: then a new plan is due. Cancellation
    /// safe.
    pub(crate) async fn next(&mut self) {
        loop {
            let now = Instant::now();
            let busy_until = self.writer.busy_until().filter(|until| now < *until);
            if busy_until.is_none() {
                self.start_writes();
            }
            let ends = self.paused.values().map(|pause| pause.until).filter(|until| now < *until);
            let wake = ends.chain(busy_until).chain(self.reports.next(now)).min();
            tokio::select! {
                Some(done) = self.running.join_next() => {
                    // A task is not aborted before its executor is dropped.
                    let done = done.unwrap_or_else(|error| resume_unwind(error.into_panic()));
                    return self.finish(done);
                }
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => return,
                else => std::future::pending().await,
            }
        }
    }

    /// Waits for the writes in flight, and starts no others.
    pub(crate) async fn drain(mut self) {
        while self.running.join_next().await.is_some() {}
    }

    fn start_writes(&mut self) {
        while self.running.len() < CONCURRENCY
            && let Some(action) = self.waiting.next()
        {
            // If a plan contains two writes to an object, the second waits for the next plan.
            if !self.busy.insert(action.target.clone()) {
                continue;
            }
            if matches!(action.write, Write::Create(_)) {
                self.creations.start(&action.target);
            }
            let (writer, shared) = (Arc::clone(&self.writer), Arc::clone(&self.shared));
            self.running.spawn(async move {
                let outcome = writer.carry_out(&action, &shared).await;
                (action, outcome)
            });
        }
    }

    fn finish(&mut self, (action, outcome): (Action, Outcome)) {
        self.busy.remove(&action.target);
        let before = self.paused.get(&action.target).and_then(Pause::trouble);
        let was_refused = matches!(before, Some(Trouble::Refused | Trouble::Taken));
        let is_creation = matches!(action.write, Write::Create(_));
        if is_creation && matches!(outcome, Outcome::Done | Outcome::Unsure(_)) {
            self.created.insert(action.target.clone(), Instant::now());
        }
        let is_own = self.created.contains_key(&action.target);
        let (trouble, problem) = match outcome {
            Outcome::Done => match action.write {
                // The View does not show the result yet: the write must not be repeated meanwhile.
                Write::Create(_) | Write::Delete { .. } => (None, None),
                _ => (Some(Trouble::Reverted), None),
            },
            Outcome::NotFound | Outcome::Kept => (None, None),
            Outcome::Conflict => (Some(Trouble::Conflict), None),
            Outcome::Taken(_) if is_own => (Some(Trouble::Conflict), None),
            // The first time, the object may be stowplan's own, which the watch has not shown yet.
            Outcome::Taken(_) if !was_refused => (Some(Trouble::Taken), None),
            Outcome::Taken(problem) => {
                let problem = format!("{problem}, and the existing object is not stowplan's");
                (Some(Trouble::Refused), Some(problem))
            }
            Outcome::Refused(problem) => (Some(Trouble::Refused), Some(problem)),
            Outcome::Unsure(_) => (Some(Trouble::Unsure), None),
            // No pause for this object: nothing is written while the API server is busy.
            Outcome::Throttled(_) | Outcome::Unsent => return,
        };
        if let Some(problem) = &problem {
            self.writer.record_refusal(&action, problem);
        }
        let before = self.paused.remove(&action.target);
        let target = action.target.clone();
        self.paused.insert(target, Pause::after(action, trouble, problem, before, Instant::now()));
    }
}
