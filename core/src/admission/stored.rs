//! Decides on an object without a review of the API server: one from a file, or one that the
//! cluster has already.

use serde_json::{Value, json};

use super::review::API_VERSION;
use super::{Decision, ParseError, Refusal, Review, decide, validate};
use crate::placement::intent::{Change, Intent};
use crate::placement::reason::{Finding, Reason};
use crate::placement::record;
use crate::systems::View;
use crate::systems::policy::Policy;
use crate::view::resource::{POD, Resource};

/// An object without a review, and what the decision on it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Unreviewed<'u> {
    /// The kind of the object.
    pub resource: &'u Resource,
    /// Its namespace, which may be missing in its metadata.
    pub namespace: &'u str,
    pub object: &'u Value,
    pub view: &'u View,
    pub policy: &'u Policy,
}

impl Unreviewed<'_> {
    /// Decides as if the object were created now: as a stored one if it has a UID.
    ///
    /// # Errors
    /// A field that stowplan reads has the wrong type.
    pub fn decide_creation(self) -> Result<Decision, ParseError> {
        match self.object.pointer("/metadata/uid") {
            Some(_) => self.decide_stored(),
            None => self.decide_as_written(None),
        }
    }

    /// Decides without what stowplan and the scheduler change in a stored pod after its admission: a node name
    /// that contradicts the pod is the scheduler's, and a pod with a record has lost its gates and keeps the
    /// record of what was decided then.
    fn decide_stored(self) -> Result<Decision, ParseError> {
        let mut decision = self.decide_as_written(None)?;
        let is_of_scheduler = |finding: &Finding| finding.reason == Reason::NodeNameConflict;
        if let Decision::Refuse(refusal) = &decision
            && refusal.findings.iter().any(is_of_scheduler)
        {
            let mut object = self.object.clone();
            if let Some(Value::Object(spec)) = object.get_mut("spec") {
                spec.remove("nodeName");
            }
            decision = Unreviewed { object: &object, ..self }.decide_as_written(None)?;
        }
        let annotations = self.object.pointer("/metadata/annotations");
        if annotations.is_some_and(|all| all.get(record::KEY).is_some())
            && let Decision::Admit(admission) = &mut decision
        {
            admission.intents.retain(|intent| !matches!(intent.change, Change::Gate(_)));
            let record = ["metadata", "annotations", record::KEY];
            admission.patch = admission.patch.without(&[&["spec", "schedulingGates"], &record]);
        }
        Ok(decision)
    }

    /// Decides as if the object were written now: in place of `old`, or as a new one.
    ///
    /// # Errors
    /// A field that stowplan reads has the wrong type.
    pub fn decide_as_written(self, old: Option<&Value>) -> Result<Decision, ParseError> {
        let Self { resource, namespace, object, view, policy } = self;
        let Resource { group, version, plural, .. } = resource;
        let review = json!({
            "apiVersion": API_VERSION,
            "kind": "AdmissionReview",
            "request": {
                "uid": "stored",
                "resource": {"group": group, "version": version, "resource": plural},
                "namespace": namespace,
                "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
                "object": object,
                "oldObject": old,
            },
        });
        let bytes = review.to_string();
        let review = Review::parse(bytes.as_bytes())?;
        let decide = if validate::concerns(&review) { validate::validate } else { decide };
        Ok(decide(&review, view, policy)?.at_once())
    }
}

/// The difference between a stored pod and what a decision gives it now.
pub enum Lack {
    /// It would be refused.
    Refused(Refusal),
    /// It has no record of a decision, and these changes were not made.
    Changes(Vec<Intent>),
    /// This field has less than its record says.
    Removed(String),
}

/// Compares a stored pod with what it would get now. `None`: it lacks nothing, or it is not known what it should
/// have. Only its record shows that a pod was decided about. Where the policy has no records written, a pod that
/// lacks something may have been changed since, by the controller too.
pub fn find_lack(namespace: &str, pod: &Value, view: &View, policy: &Policy) -> Option<Lack> {
    let stored = Unreviewed { resource: &POD, namespace, object: pod, view, policy };
    let admission = match stored.decide_stored().ok()? {
        Decision::Refuse(refusal) => return Some(Lack::Refused(refusal)),
        // With findings, the policy admits the pod without its placement: its author got a warning.
        Decision::Admit(of) if of.findings.is_empty() && !of.intents.is_empty() => of,
        _ => return None,
    };
    let operations = admission.patch.operations();
    let annotations = pod.pointer("/metadata/annotations");
    let Some(record) = annotations.and_then(|all| all.get(record::KEY)) else {
        let is_known = policy.record_placement && !operations.is_empty();
        return is_known.then_some(Lack::Changes(admission.intents));
    };
    // Other systems may have come to serve the pod since.
    let record = record.as_str().unwrap_or_default();
    let is_recorded = |of: &Intent| !record::entries(record, of.system).is_empty();
    if !admission.intents.iter().all(is_recorded) {
        return None;
    }
    let paths = operations.iter().map(|operation| operation.path().as_str());
    let path = paths.filter(|path| path.starts_with("/spec/")).min()?;
    let field: Vec<&str> = path.split('/').skip(1).take(3).collect();
    Some(Lack::Removed(field.join(".")))
}
