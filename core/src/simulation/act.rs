//! Carries out the actions of plans as the controller's executor does.

use std::borrow::Cow;
use std::collections::HashSet;

use json_patch::PatchOperation;

use super::store::{Answer, Id};
use super::{CONTROLLER, Simulation};
use crate::systems::plan::operation::replace_status;
use crate::systems::plan::{Action, Confirmation, Creation, Event, IfTaken, Target, Write};

/// The outcome of an action.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The object was written.
    Done,
    /// The precondition says that nothing has to be written.
    Kept,
    /// The API server has not carried it out.
    Refused(Answer),
}

/// A write of the controller.
#[derive(Clone, Debug)]
pub struct Written {
    /// `create`, `patch`, `status`, `delete`, the verb of a confirmed patch, or `kill` for a deletion
    /// without a grace period.
    pub verb: &'static str,
    pub target: Target,
    pub outcome: Outcome,
}

fn changes_template(operations: &[PatchOperation]) -> bool {
    operations.iter().any(|operation| operation.path().as_str().starts_with("/spec/template"))
}

impl Simulation {
    /// Carries out an action of the controller.
    pub fn carry_out(&mut self, action: Action) -> Outcome {
        if action.write == Write::None {
            self.record_once(&action);
            return Outcome::Done;
        }
        self.has_written = true;
        let outcome =
            self.attempt(&action).map_or_else(Outcome::Refused, |is_sent| match is_sent {
                true => Outcome::Done,
                false => Outcome::Kept,
            });
        let verb = match &action.write {
            Write::Delete { grace: Some(0), .. } => "kill",
            _ => action.verb(),
        };
        let Action { target, events, refusal, .. } = action;
        if let (Outcome::Refused(Answer::Forbidden), Some(refusal)) = (outcome, refusal) {
            for target in &refusal.waiting {
                let event =
                    Event { warning: true, reason: refusal.reason, note: refusal.note.clone() };
                self.record_once(&Action::new(target.clone(), Write::None, vec![event]));
            }
            let planned: HashSet<Target> =
                self.actions.iter().map(|of| of.target.clone()).collect();
            let instead = refusal.instead.into_iter().filter(|of| !planned.contains(&of.target));
            self.actions.extend(instead);
        }
        if outcome == Outcome::Done {
            self.events.extend(events.into_iter().map(|event| (target.clone(), event)));
        }
        self.writes.push(Written { verb, target, outcome });
        outcome
    }

    /// Records the events of an action, except those that were recorded before.
    pub(super) fn record_once(&mut self, action: &Action) {
        for event in &action.events {
            let record = (action.target.clone(), event.clone());
            if !self.events.contains(&record) {
                self.events.push(record);
            }
        }
    }

    /// Returns whether the write was sent.
    fn attempt(&mut self, action: &Action) -> Result<bool, Answer> {
        let Some(write) = self.prepare(action)? else { return Ok(false) };
        let (id, uid) = (Id::of_target(&action.target), &action.target.uid);
        let before = self.store.version();
        let object = match &*write {
            Write::Part("resize", _) if !self.resizes => return Err(Answer::NotFound),
            Write::Patch(operations) if self.keeps_templates && changes_template(operations) => {
                return Err(Answer::Forbidden);
            }
            Write::Patch(operations) => self.store.patch(&id, operations, false)?,
            Write::Part(subresource, operations) => {
                self.store.patch(&id, operations, *subresource == "status")?
            }
            Write::Status { resource_version, status } => {
                let operations = replace_status(uid, resource_version, status);
                self.store.patch(&id, &operations, true)?
            }
            Write::Create(_) if self.forbidden.contains(&&*id.kind) => {
                return Err(Answer::Forbidden);
            }
            Write::Create(document) => self.store.create(document.clone())?,
            Write::Delete { grace, version } => {
                self.store.delete_if(&id, uid, version.as_deref(), *grace)?;
                return Ok(true);
            }
            Write::None => return Ok(true),
        };
        let id = Id::of(object);
        if let Some(document) = self.store.documents().get(&id) {
            self.readers[CONTROLLER].learn(document);
        }
        self.is_stale |= self.store.version() != before;
        Ok(true)
    }

    /// Confirms the precondition of a write and reduces the write to what it confirms. `None`: nothing.
    fn prepare<'a>(&mut self, action: &'a Action) -> Result<Option<Cow<'a, Write>>, Answer> {
        match (&action.confirmation, &action.write) {
            (Some(Confirmation::List(listed)), Write::Patch(operations)) => {
                let objects: Vec<_> = self.store.all(listed.resource.kind).cloned().collect();
                let reduced = (listed.reduce)(&objects, &action.target, operations);
                Ok(reduced.map(|operations| Cow::Owned(Write::Patch(operations))))
            }
            (Some(Confirmation::Creation(creation)), write) => self.create_first(creation, write),
            (_, write) => Ok(Some(Cow::Borrowed(write))),
        }
    }

    /// Creates the object on which a write depends, or tries it.
    fn create_first<'a>(
        &mut self,
        creation: &Creation,
        write: &'a Write,
    ) -> Result<Option<Cow<'a, Write>>, Answer> {
        let created = match creation.is_trial {
            true if self.store.get(&Id::of(&creation.object)).is_some() => Err(Answer::Exists),
            true => Ok(creation.object.clone()),
            false => self.store.create(creation.object.clone()).cloned(),
        };
        let created = match (created, creation.if_taken) {
            (Ok(created), _) => Some(created),
            (Err(Answer::Exists), IfTaken::Send) => None,
            (Err(Answer::Exists), IfTaken::Keep) => return Ok(None),
            (Err(answer), _) => return Err(answer),
        };
        Ok(Some(creation.adapt(created.as_ref(), write)))
    }
}
