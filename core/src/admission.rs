//! Decides on AdmissionReviews: from the bytes of the review to the bytes of the answer.
//!
//! [`decide`] is the only decision on pods and claims: pure, and the same in the webhook, on the
//! command line and in the controller's report. [`Review::parse`] reads its input, and
//! [`answer`] writes its result. [`validate`] decides on stowplan's own objects.

pub mod answer;
pub(crate) mod review;
pub mod stored;
mod subject;
pub mod validate;

use crate::placement::intent::Intent;
use crate::placement::merge::leave_out_hints;
use crate::placement::object::Metadata;
use crate::placement::patch::Patch;
use crate::placement::reason::{Finding, Reason, Stage, Warning, quoted};
use crate::placement::record;
use crate::policy::OnInvalid;
use crate::systems::exclusion::{Exclusion, IGNORE, has_no_effect};
use crate::systems::policy::Policy;
use crate::systems::vocabulary::{Meaning, find_system, meaning};
use crate::systems::{SYSTEMS, System, View, find_contradictions};
use crate::view::Key;
use crate::wire::TextMap;
pub use review::{ParseError, Review};
use subject::{Kind, Subject};

/// The decision on a request.
#[derive(Debug)]
pub enum Decision {
    /// Allowed unchanged: stowplan has nothing to decide, for this reason.
    Pass(Pass),
    /// Allowed, with a patch, which may be empty.
    Admit(Admission),
    /// Not allowed.
    Refuse(Refusal),
    /// The decision depends on an object that is missing and that the watches may deliver soon.
    Wait {
        /// The missing object.
        awaited: Key,
        /// The decision without that object; never a `Wait`.
        otherwise: Box<Self>,
    },
}

/// The reason why a request is allowed unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pass {
    /// It does not create a pod or a claim.
    OutOfScope,
    /// In a namespace that the policy excludes.
    ExcludedNamespace,
    /// The object or its namespace opted out.
    Ignored,
    /// A mirror pod, which already runs on its node.
    MirrorPod,
    /// The object has no key of stowplan.
    NoKeys,
    /// An object of stowplan that is valid.
    Valid,
    /// An object of stowplan whose spec does not change, or that is being deleted.
    Unchanged,
}

/// A pod or a claim that is admitted.
#[derive(Debug, Default)]
pub struct Admission {
    /// The changes; empty if it has all of them already.
    pub patch: Patch,
    /// Warnings for its author.
    pub warnings: Vec<Warning>,
    /// The changes that the systems request, and why.
    pub intents: Vec<Intent>,
    /// The findings that would refuse it if the policy did not only warn.
    pub findings: Vec<Finding>,
}

/// A pod or a claim that is refused.
#[derive(Debug)]
pub struct Refusal {
    /// All problems, in the order of the checks. Never empty.
    pub findings: Vec<Finding>,
    /// Further warnings for its author.
    pub warnings: Vec<Warning>,
}

impl From<Exclusion> for Pass {
    fn from(exclusion: Exclusion) -> Self {
        match exclusion {
            Exclusion::Policy => Self::ExcludedNamespace,
            Exclusion::Namespace | Exclusion::Object => Self::Ignored,
        }
    }
}

impl Decision {
    /// The decision without waiting for missing objects.
    #[must_use]
    pub fn at_once(self) -> Self {
        match self {
            Self::Wait { otherwise, .. } => *otherwise,
            decision => decision,
        }
    }

    /// The stable word for the outcome, which is a label of metrics.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Pass(_) => "passed",
            Self::Admit(admission) if !admission.findings.is_empty() => "unplaced",
            Self::Admit(admission) if admission.patch.is_empty() => "unchanged",
            Self::Admit(_) => "placed",
            Self::Refuse(_) => "refused",
            Self::Wait { otherwise, .. } => otherwise.outcome(),
        }
    }

    /// The stable word for the reason of the outcome.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Pass(Pass::OutOfScope) => "OutOfScope",
            Self::Pass(Pass::ExcludedNamespace) => "ExcludedNamespace",
            Self::Pass(Pass::Ignored) => "Ignored",
            Self::Pass(Pass::MirrorPod) => "MirrorPod",
            Self::Pass(Pass::NoKeys) => "NoKeys",
            Self::Pass(Pass::Valid) => "Valid",
            Self::Pass(Pass::Unchanged) => "Unchanged",
            Self::Admit(admission) => {
                admission.findings.first().map_or("Placed", |finding| finding.reason.as_str())
            }
            Self::Refuse(refusal) => refusal.first().reason.as_str(),
            Self::Wait { otherwise, .. } => otherwise.reason(),
        }
    }
}

impl Refusal {
    /// The finding that the message and the HTTP status code come from.
    #[must_use]
    pub fn first(&self) -> &Finding {
        // A refusal has at least one finding.
        &self.findings[0]
    }

    /// The HTTP status code for the author of the object.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.first().reason.stage().code()
    }

    /// The message for the author of the object.
    #[must_use]
    pub fn message(&self) -> String {
        let first = self.first();
        match self.findings.len() - 1 {
            0 => format!("stowplan: {first}"),
            more => format!("stowplan: {first} (and {more} more)"),
        }
    }
}

/// Decides on a request that creates a pod or a claim; other requests pass.
///
/// Pure: it reads only its arguments, so the same input gives the same decision everywhere.
/// Deciding again on the patched object gives an empty patch.
///
/// # Errors
/// The JSON error if a field that stowplan reads has the wrong type; the API server sends no such
/// object.
pub fn decide(review: &Review<'_>, view: &View, policy: &Policy) -> Result<Decision, ParseError> {
    let request = &review.request;
    let (Some(object), Some(kind)) = (&request.object, Kind::created_by(request)) else {
        return Ok(Decision::Pass(Pass::OutOfScope));
    };
    let metadata = &object.metadata;
    if policy.excludes(request.namespace()) {
        return Ok(Decision::Pass(Pass::ExcludedNamespace));
    }
    let annotations = metadata.annotations.iter().flat_map(TextMap::iter);
    let mut keys = Keys::read(annotations.map(|(key, _)| key));
    keys.read_labels(metadata);
    for system in SYSTEMS {
        let is_concerned = |concerns: fn(&str, &Metadata<'_>, &View) -> bool| {
            (system.enabled)(policy)
                && kind.is_served_by(system)
                && concerns(request.namespace(), metadata, view)
        };
        let is_tolerated = |key: &str| {
            (system.enabled)(policy) && kind.is_served_by(system) && object.spec.may_tolerate(key)
        };
        if !keys.has_key_of(system)
            && (system.concerns.is_some_and(is_concerned)
                || system.traces.taints.iter().copied().any(is_tolerated))
        {
            keys.systems.push((system, Vec::new()));
        }
    }
    if keys.is_empty() && !(keys.has_record && kind.has_record()) {
        return Ok(Decision::Pass(Pass::NoKeys));
    }
    if kind == Kind::Pod && metadata.annotation(MIRROR).is_some() {
        return Ok(Decision::Pass(Pass::MirrorPod));
    }
    let ignore = metadata.label(IGNORE);
    if let Some(exclusion) = Exclusion::of_object(ignore, request.namespace(), view, policy) {
        return Ok(Decision::Pass(exclusion.into()));
    }
    if has_no_effect(view.namespace_labels(request.namespace()).and_then(|of| of.get(IGNORE))) {
        keys.misplaced.push((IGNORE, NO_OPT_OUT_OF_NAMESPACE));
    }
    let subject = Subject::decode(kind, request.namespace(), object)?;
    let record = metadata.annotation(record::KEY);
    Ok(place(&subject, record, &keys, view, policy))
}

/// The annotation of a mirror pod: the kubelet has created it for a static pod of its node.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The keys of stowplan on an object, grouped by their meaning.
#[derive(Default)]
struct Keys<'k> {
    /// True if the object has the record of an earlier round.
    has_record: bool,
    systems: Vec<(&'static System, Vec<&'k str>)>,
    /// Misspelt keys, with the correct ones.
    misspelt: Vec<(&'k str, &'static str)>,
    unknown: Vec<&'k str>,
    /// Keys without effect where they are, with the remedy.
    misplaced: Vec<(&'k str, &'static str)>,
}

/// The warning about an annotation that is written as a label.
const NO_LABEL: &str = "is a label here and has no effect; make it an annotation";

/// The warning about the label that opts out, written as an annotation.
const NO_ANNOTATION: &str =
    "is an annotation here and has no effect; make it a label, with the value \"true\"";

/// The warning about the label that opts out, with another value.
const NO_OPT_OUT: &str = "has no effect with this value; write \"true\" to opt out";

/// The warning about the same label of the object's namespace.
const NO_OPT_OUT_OF_NAMESPACE: &str =
    "has no effect with the value that the namespace has; write \"true\" to opt out";

impl<'k> Keys<'k> {
    fn read(keys: impl Iterator<Item = &'k str>) -> Self {
        let mut read = Self::default();
        for key in keys {
            match meaning(key) {
                Meaning::Foreign => {}
                Meaning::Record => read.has_record = true,
                Meaning::Meant(known) => read.misspelt.push((key, known)),
                Meaning::Unknown => read.unknown.push(key),
                Meaning::Label => read.misplaced.push((key, NO_ANNOTATION)),
                Meaning::Known(system) => {
                    match read.systems.iter_mut().find(|(known, _)| known.name == system.name) {
                        Some((_, keys)) => keys.push(key),
                        None => read.systems.push((system, vec![key])),
                    }
                }
            }
        }
        read
    }

    /// Finds annotation keys among the labels. One that is an annotation too has its effect.
    fn read_labels(&mut self, metadata: &'k Metadata<'_>) {
        let Some(labels) = &metadata.labels else { return };
        for (key, value) in labels.iter() {
            if key == IGNORE && has_no_effect(Some(value)) {
                self.misplaced.push((key, NO_OPT_OUT));
            } else if find_system(key).is_some() && metadata.annotation(key).is_none() {
                self.misplaced.push((key, NO_LABEL));
            }
        }
    }

    fn has_key_of(&self, system: &System) -> bool {
        self.systems.iter().any(|(known, _)| known.name == system.name)
    }

    fn is_empty(&self) -> bool {
        self.systems.is_empty()
            && self.misspelt.is_empty()
            && self.unknown.is_empty()
            && self.misplaced.is_empty()
    }
}

/// Decides on an object that has keys of stowplan or concerns a system. `recorded` is its record of
/// an earlier round.
fn place(
    subject: &Subject<'_>,
    recorded: Option<&str>,
    keys: &Keys<'_>,
    view: &View,
    policy: &Policy,
) -> Decision {
    let mut findings = Vec::new();
    let mut warnings = Vec::new();
    let mut intents = Vec::new();
    let mut recorded_entries = Vec::new();
    let mut awaited = Vec::new();
    // The systems that keep their entries of the record.
    let mut keeping = Vec::new();

    for (key, known) in &keys.misspelt {
        findings.push(Finding::new(
            Reason::UnknownKey,
            quoted(key).trim_matches('"'),
            "is not a key of stowplan",
            format!("write {known}"),
        ));
    }
    // One warning for all unknown keys, of which a pod may have thousands.
    if let Some((first, others)) = keys.unknown.split_first() {
        warnings.push(Warning::new(
            first,
            &match others.len() {
                0 => "unknown key, ignored (a newer release may know it)".to_owned(),
                more => format!(
                    "unknown key, ignored, with {more} more (a newer release may know them)"
                ),
            },
        ));
    }
    warnings.extend(keys.misplaced.iter().map(|(key, text)| Warning::new(key, text)));
    for system in SYSTEMS {
        let Some((_, keys)) = keys.systems.iter().find(|(known, _)| known.name == system.name)
        else {
            continue;
        };
        let outcome = match (system.enabled)(policy) {
            true => subject.ask(system, view, policy),
            false => None,
        };
        let Some(outcome) = outcome else {
            let why = explain_no_effect(system, subject.kind(), policy);
            warnings.extend(keys.iter().map(|key| Warning::new(key, &why)));
            continue;
        };
        findings.extend(outcome.findings);
        warnings.extend(outcome.warnings);
        intents.extend(outcome.intents);
        awaited.extend(outcome.awaited);
        if outcome.keeps_record {
            keeping.push(system.name);
        }
        recorded_entries.extend(outcome.holds.into_iter().map(|text| (system.name, text)));
    }
    if let Subject::Pod(pod) = subject {
        warnings.extend(leave_out_hints(pod, &mut intents));
        findings.extend(find_contradictions(pod, &intents, view));
    }
    let record = match recorded.filter(|_| !keeping.is_empty()) {
        Some(recorded) if policy.record_placement => {
            record::update(recorded, &keeping, recorded_entries)
        }
        Some(recorded) => Some(recorded.to_owned()),
        None if policy.record_placement => record::write(&recorded_entries),
        None => None,
    };
    let patch = subject.merge(&intents, record.as_deref()).unwrap_or_else(|conflicts| {
        findings.extend(conflicts);
        Patch::default()
    });
    // A stable sort: within one check, findings keep their order.
    findings.sort_by_key(|finding| finding.reason.stage());
    // Errors of syntax and policy stay errors whatever the watches deliver, so waiting is useless.
    let is_final = findings.iter().any(|finding| finding.reason.stage() < Stage::Cluster);
    let admission = Admission { patch, warnings, intents, findings };
    let decision = conclude(subject, admission, policy);
    match awaited.into_iter().next() {
        Some(awaited) if !is_final => Decision::Wait { awaited, otherwise: Box::new(decision) },
        _ => decision,
    }
}

/// Explains why a key of `system` has no effect.
fn explain_no_effect(system: &System, kind: Kind, policy: &Policy) -> String {
    if !(system.enabled)(policy) {
        format!("no effect: the policy turns {} off", system.name)
    } else {
        format!("no effect on a {}", kind.name())
    }
}

/// The further remedy for the copy of a placed pod. It has the annotations of its original, and neither the
/// labels nor the owner, so it is refused for what it lacks.
const OF_COPY: &str = "; if it is a copy by kubectl debug, copy with --profile=general, baseline or \
                       restricted, which leave annotations out, or debug the pod itself with --target=CONTAINER";

/// Refuses an object with findings, or admits it unchanged, as the policy says.
fn conclude(subject: &Subject<'_>, mut admission: Admission, policy: &Policy) -> Decision {
    let Some(first) = admission.findings.first_mut() else { return Decision::Admit(admission) };
    match policy.on_invalid {
        OnInvalid::Refuse => {
            if subject.may_be_copy() && first.reason.stage() == Stage::Syntax {
                first.remedy.push_str(OF_COPY);
            }
            let Admission { findings, warnings, .. } = admission;
            Decision::Refuse(Refusal { findings, warnings })
        }
        OnInvalid::Warn => {
            admission.warnings.insert(0, Warning::of_finding("not placed", first));
            // No constraint holds, so a record that the object has is removed.
            admission.patch = subject.merge(&[], None).unwrap_or_default();
            admission.intents = Vec::new();
            Decision::Admit(admission)
        }
    }
}
