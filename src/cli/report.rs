//! Formats a plan: [`text`] for people, [`list`] for programs.

pub(super) mod list;
pub(super) mod text;

use serde_json::Value;

use super::input::Item;
use stowplan_core::admission::{Decision, Pass, Refusal};
use stowplan_core::placement::intent::Intent;
use stowplan_core::placement::reason::{Finding, Warning};
use stowplan_core::systems::VALIDATIONS;
use stowplan_core::systems::preview::{Preview, Whole};

/// An object and the decision on its pods.
pub(super) struct Planned<'d> {
    pub(super) item: Item<'d>,
    pub(super) namespace: String,
    /// Its name, or one that the API server could generate.
    pub(super) name: String,
    pub(super) decision: Decision,
    /// The operations that change the object, or the template in it.
    pub(super) patch: Vec<Value>,
    /// The preview of its system, for an object that is not a pod.
    pub(super) preview: Preview,
    /// Warnings about keys on the object that have an effect only on its pods.
    pub(super) misplaced: Vec<Warning>,
    /// The part of the cluster that is not known and could change the decision.
    pub(super) hint: Option<String>,
    /// The object whose UID the patch needs and which does not exist yet. The patch is left out.
    pub(super) withheld: Option<String>,
    /// The index of its document in the input.
    pub(super) document: usize,
    /// The path to the template in an object whose controller is not played; empty: none was found.
    pub(super) unplayed: Option<String>,
    /// The claim that is planned, of those that a StatefulSet creates; `None`: a pod is.
    pub(super) claim: Option<String>,
}

impl Planned<'_> {
    /// Returns true if the webhook's answer is not known: the controller may add what is missing.
    pub(super) fn is_unknown(&self) -> bool {
        let is_answered = !matches!(self.decision, Decision::Refuse(_));
        self.unplayed.as_ref().is_some_and(|path| path.is_empty() || !is_answered)
    }

    /// Returns true for an object of stowplan's own that can be served, perhaps with a warning.
    fn is_accepted(&self) -> bool {
        match &self.decision {
            Decision::Pass(pass) => *pass == Pass::Valid,
            Decision::Admit(of) if of.findings.is_empty() => {
                VALIDATIONS.iter().any(|of| self.item.is_of(&of.resource))
            }
            _ => false,
        }
    }

    /// Returns true if its pod would be admitted by this plan, and waits.
    fn waits_now(&self) -> bool {
        self.preview.waits.is_some() && self.decision.outcome() == "placed" && !self.is_unknown()
    }

    /// The path to the template among those of the object; `None`: it is where it always is.
    fn path(&self) -> Option<&str> {
        self.unplayed.as_deref().filter(|path| !matches!(*path, "" | "spec.template"))
    }

    /// Explains why the answer is not known, or may be another one, and what to do.
    fn doubt(&self) -> Option<String> {
        self.unplayed.as_ref()?;
        let (kind, namespace) = (&self.item.kind, &self.namespace);
        let group = match self.item.group() {
            "" => String::new(),
            group => format!(".{group}"),
        };
        Some(format!(
            "plan does not play the controller of {kind}{group}: plan what that makes (`kubectl get \
             jobs,statefulsets,pods -n {namespace} -o yaml | stowplan plan -f -`)"
        ))
    }
}

/// The refusals and warnings of an object, for standard error beside output for programs.
pub(super) fn format_remarks(planned: &Planned<'_>) -> Vec<String> {
    let object = object(planned, &planned.name);
    let mut remarks = Vec::new();
    if let Decision::Refuse(refusal) = &planned.decision {
        let refusals = refusal.findings.iter().map(|finding| {
            let verdict = refused(planned, refusal);
            format!("{object}: {verdict}: {}: {finding}", finding.reason)
        });
        remarks.extend(refusals.map(|text| with_hint(text, planned)));
    }
    let doubt = planned.doubt().filter(|_| planned.is_unknown());
    remarks.extend(doubt.map(|doubt| format!("{object}: not known: {doubt}")));
    remarks.extend(planned.withheld.iter().map(|of| {
        format!(
            "{object}: not placed: the patch needs the UID of {of}: create that first, then plan \
             with --live"
        )
    }));
    remarks.extend(
        warnings(planned).map(|warning| format!("{object}: warning: {}", warning.as_str())),
    );
    remarks
}

/// The problem of a whole, for standard error beside output for programs.
pub(super) fn format_problem(whole: &Whole) -> Option<String> {
    let problem = whole.problem.as_ref()?;
    Some(format!("{} {}/{}: does not start: {problem}", whole.kind, whole.namespace, whole.name))
}

/// The verdict on a refused pod.
fn refused(planned: &Planned<'_>, refusal: &Refusal) -> String {
    let verdict = if planned.is_unknown() { "not known, refused as it is here" } else { "refused" };
    format!("{verdict} ({})", refusal.code())
}

/// Names an object, or several of its kind.
fn object(planned: &Planned<'_>, names: &str) -> String {
    let object = format!("{} {}/{names}", planned.item.kind, planned.namespace);
    match (&planned.claim, planned.path()) {
        (Some(claim), _) => format!("{object}, claim {claim}"),
        (None, Some(path)) => format!("{object}, {path}"),
        (None, None) => object,
    }
}

fn with_hint(text: String, planned: &Planned<'_>) -> String {
    match &planned.hint {
        Some(hint) => format!("{text} {hint}"),
        None => text,
    }
}

/// Returns the intents, the findings and the warnings of a decision.
pub(super) fn parts(decision: &Decision) -> (&[Intent], &[Finding], &[Warning]) {
    match decision {
        Decision::Admit(of) => (&of.intents, &of.findings, &of.warnings),
        Decision::Refuse(of) => (&[], &of.findings, &of.warnings),
        _ => (&[], &[], &[]),
    }
}

fn warnings<'p>(planned: &'p Planned<'_>) -> impl Iterator<Item = &'p Warning> {
    parts(&planned.decision).2.iter().chain(&planned.misplaced)
}
