//! From the bytes of an AdmissionReview to the bytes of its answer, through the one decision.
//!
//! [`decide`] is the product: pure, total, the same in the webhook, in the command line and in the
//! reconciler's report. [`Review::parse`] and [`answer`] are its two ends. [`validate`] is the same for
//! our own objects.

pub mod answer;
pub mod review;
pub mod stored;
mod subject;
pub mod validate;

use crate::placement::intent::Intent;
use crate::placement::patch::Patch;
use crate::placement::pod::{Metadata, TextMap};
use crate::placement::reason::{Finding, Reason, Warning, quoted};
use crate::placement::record;
use crate::policy::{OnInvalid, Policy};
use crate::systems::vocabulary::{IGNORE, Meaning, meaning};
use crate::systems::{SYSTEMS, System};
use crate::view::{Key, View};
pub use review::{ParseError, Review};
use subject::{Kind, Subject};

/// What becomes of a request.
#[derive(Debug)]
pub enum Decision {
    /// Allowed as it is: none of our business, for this reason.
    Pass(Pass),
    /// Allowed, with a patch that may be empty.
    Admit(Admission),
    /// Not allowed.
    Refuse(Refusal),
    /// An object is missing that the watches may deliver in a moment.
    Wait {
        /// What is missing.
        awaited: Key,
        /// The decision without it: never itself a `Wait`.
        otherwise: Box<Self>,
    },
}

/// Why a request is none of our business.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pass {
    /// Not the creation of a pod or a claim.
    OutOfScope,
    /// In a namespace that the policy excludes.
    ExcludedNamespace,
    /// The object or its namespace opted out.
    Ignored,
    /// A mirror pod: its node has it already.
    MirrorPod,
    /// No key of ours.
    NoKeys,
    /// An object of ours in which nothing is wrong.
    Valid,
    /// An object of ours of which nothing new is asked, or that is about to go.
    Unchanged,
}

/// A pod or a claim that is admitted.
#[derive(Debug, Default)]
pub struct Admission {
    /// The changes. Empty where it has all it should.
    pub patch: Patch,
    /// What its author should know.
    pub warnings: Vec<Warning>,
    /// What it should have, and why.
    pub intents: Vec<Intent>,
    /// What would have refused it, where the policy only warns.
    pub findings: Vec<Finding>,
}

/// A pod or a claim that is refused.
#[derive(Debug)]
pub struct Refusal {
    /// Everything that is wrong, in the order of the checks. Never empty.
    pub findings: Vec<Finding>,
    /// What its author should know besides.
    pub warnings: Vec<Warning>,
}

impl Decision {
    /// The decision that is made without waiting.
    #[must_use]
    pub fn at_once(self) -> Self {
        match self {
            Self::Wait { otherwise, .. } => *otherwise,
            decision => decision,
        }
    }

    /// The stable word for what became of the request: a metric's label.
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

    /// The stable word for why.
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
    /// The finding that leads.
    #[must_use]
    pub fn first(&self) -> &Finding {
        // Made of at least one.
        &self.findings[0]
    }

    /// The HTTP status code that its author sees.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.first().reason.stage().code()
    }

    /// What its author reads.
    #[must_use]
    pub fn message(&self) -> String {
        let first = self.first();
        match self.findings.len() - 1 {
            0 => format!("stowplan: {first}"),
            more => format!("stowplan: {first} (and {more} more)"),
        }
    }
}

/// Decides what becomes of a request.
///
/// Pure: reads only its arguments, so that the same input gives the same answer wherever it is
/// asked. Applying the patch and deciding again gives an empty patch.
///
/// # Errors
/// The JSON error where a field that we read has the wrong type; the API server sends no such object.
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
    for system in &SYSTEMS {
        let concerned = |concerns: fn(&str, &Metadata<'_>, &View) -> bool| {
            (system.enabled)(policy)
                && kind.is_served_by(system)
                && concerns(request.namespace(), metadata, view)
        };
        if !keys.names(system) && system.concerns.is_some_and(concerned) {
            keys.systems.push((system, Vec::new()));
        }
    }
    if keys.is_empty() && !(keys.record && kind.has_record()) {
        return Ok(Decision::Pass(Pass::NoKeys));
    }
    if kind == Kind::Pod && metadata.annotation(MIRROR).is_some() {
        return Ok(Decision::Pass(Pass::MirrorPod));
    }
    if opted_out(metadata.label(IGNORE))
        || opted_out(
            view.namespace_labels(request.namespace())
                .and_then(|l| l.get(IGNORE))
                .map(AsRef::as_ref),
        )
    {
        return Ok(Decision::Pass(Pass::Ignored));
    }
    let subject = Subject::decode(kind, request.namespace(), object)?;
    let record = metadata.annotation(record::KEY);
    Ok(place(&subject, record, &keys, view, policy))
}

/// The annotation of a pod that a node made from a file of its own.
const MIRROR: &str = "kubernetes.io/config.mirror";

fn opted_out(label: Option<&str>) -> bool {
    label == Some("true")
}

/// The keys of ours on an object, sorted by what they are.
#[derive(Default)]
struct Keys<'k> {
    record: bool,
    systems: Vec<(&'static System, Vec<&'k str>)>,
    meant: Vec<(&'k str, &'static str)>,
    unknown: Vec<&'k str>,
}

impl<'k> Keys<'k> {
    fn read(keys: impl Iterator<Item = &'k str>) -> Self {
        let mut read = Self::default();
        for key in keys {
            match meaning(key) {
                Meaning::Foreign => {}
                Meaning::Record => read.record = true,
                Meaning::Meant(known) => read.meant.push((key, known)),
                Meaning::Unknown => read.unknown.push(key),
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

    fn names(&self, system: &System) -> bool {
        self.systems.iter().any(|(known, _)| known.name == system.name)
    }

    fn is_empty(&self) -> bool {
        self.systems.is_empty() && self.meant.is_empty() && self.unknown.is_empty()
    }
}

/// Decides on an object that is our business, and bears this record of an earlier round.
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
    let mut holds = Vec::new();
    let mut awaited = Vec::new();
    let mut kept = None;

    for (key, known) in &keys.meant {
        findings.push(Finding::new(
            Reason::UnknownKey,
            quoted(key).trim_matches('"'),
            "is not a key of stowplan",
            format!("write {known}"),
        ));
    }
    // One warning for all: a pod with a thousand unknown keys is one mistake.
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
    for system in &SYSTEMS {
        let Some((_, keys)) = keys.systems.iter().find(|(known, _)| known.name == system.name)
        else {
            continue;
        };
        let outcome = match (system.enabled)(policy) {
            true => subject.ask(system, view, policy),
            false => None,
        };
        let Some(outcome) = outcome else {
            let why = no_effect(system, subject.kind(), policy);
            warnings.extend(keys.iter().map(|key| Warning::new(key, &why)));
            continue;
        };
        findings.extend(outcome.findings);
        warnings.extend(outcome.warnings);
        intents.extend(outcome.intents);
        awaited.extend(outcome.awaited);
        if outcome.keeps_record {
            kept = recorded;
        }
        holds.extend(outcome.holds.into_iter().map(|text| (system.name, text)));
    }
    let record = match kept {
        Some(kept) => Some(kept.to_owned()),
        None if policy.record_placement => record::write(&holds),
        None => None,
    };
    let patch = subject.merge(&intents, record.as_deref()).unwrap_or_else(|conflicts| {
        findings.extend(conflicts);
        Patch::default()
    });
    // Stable: within one check, findings stay in the order in which they were made.
    findings.sort_by_key(|finding| finding.reason.stage());
    // What is wrong with the request or forbidden stays so, whatever is delivered.
    let hopeless = findings
        .iter()
        .any(|finding| finding.reason.stage() < crate::placement::reason::Stage::Cluster);
    let decision = conclude(subject, findings, warnings, intents, patch, policy);
    match awaited.into_iter().next() {
        Some(awaited) if !hopeless => Decision::Wait { awaited, otherwise: Box::new(decision) },
        _ => decision,
    }
}

/// Why a system that knows a key does not act on it.
fn no_effect(system: &System, kind: Kind, policy: &Policy) -> String {
    if !(system.enabled)(policy) {
        format!("no effect: the policy turns {} off", system.name)
    } else if [Kind::Pod, Kind::Claim].iter().any(|kind| kind.is_served_by(system)) {
        format!("no effect on a {}", kind.name())
    } else {
        "no effect: this release does not serve it yet".to_owned()
    }
}

fn conclude(
    subject: &Subject<'_>,
    findings: Vec<Finding>,
    mut warnings: Vec<Warning>,
    intents: Vec<Intent>,
    patch: Patch,
    policy: &Policy,
) -> Decision {
    let Some(first) = findings.first() else {
        return Decision::Admit(Admission { patch, warnings, intents, findings });
    };
    match policy.on_invalid {
        OnInvalid::Refuse => Decision::Refuse(Refusal { findings, warnings }),
        OnInvalid::Warn => {
            let text =
                format!("not placed ({}): {}; {}", first.reason, first.problem, first.remedy);
            warnings.insert(0, Warning::new(&first.subject, &text));
            // Nothing of ours holds, so a record that was sent is not true.
            let patch = subject.merge(&[], None).unwrap_or_default();
            Decision::Admit(Admission { patch, warnings, intents: Vec::new(), findings })
        }
    }
}
