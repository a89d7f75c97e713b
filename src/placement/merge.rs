//! Joins the intents of all systems with what the pod has.
//!
//! Lists are appended to, and nothing of the user's is lost; the few named exceptions are in the
//! README ("What is changed"). An own mark of an earlier round is kept as it is, so that a pod which
//! is sent again gets an empty patch whatever other webhooks added to it in between.

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodAffinityTerm, WeightedPodAffinityTerm};
use serde_json::{Value, json};

use super::affinity::{Requirement, Requirements, excludes, implies, matches_nothing};
use super::intent::{Enforcement, Intent, NodeTerm, PodTerm, Wish};
use super::json::{Json, list};
use super::patch::Step::{Item, Member};
use super::patch::{Editor, Patch, Shape, Step};
use super::pod::Pod;
use super::reason::{Finding, Reason, quoted};
use super::record;
use super::toleration::tolerates;

/// The most node selector terms that a pod may end up with. 1,000 were seen to be accepted and
/// scheduled; every scheduling attempt reads them all.
pub const MAX_NODE_TERMS: usize = 256;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NODE_TERMS: [Step<'_>; 5] = [
    Member("spec"),
    Member("affinity"),
    Member("nodeAffinity"),
    Member(REQUIRED),
    Member("nodeSelectorTerms"),
];

/// The operations that give `pod` what `intents` ask for, and the record of what holds.
///
/// `record` is the new value of the record annotation; `None` removes one that is there.
///
/// # Errors
/// Every intent that contradicts something the pod carries.
pub fn merge(
    pod: &Pod<'_>,
    intents: &[Intent],
    record: Option<&str>,
) -> Result<Patch, Vec<Finding>> {
    let mut editor = Editor::new(shape(pod));
    let mut findings = Vec::new();
    labels(pod, intents, &mut editor, &mut findings);
    annotation(pod, record, &mut editor);
    node_name(pod, intents, &mut editor, &mut findings);
    node_affinity(pod, intents, &mut editor, &mut findings);
    pod_affinity(pod, intents, &mut editor, &mut findings);
    tolerations(pod, intents, &mut editor);
    if findings.is_empty() { Ok(editor.into_patch()) } else { Err(findings) }
}

/// The part of the pod that a merge can touch. Label and annotation values do not matter to it.
fn shape<'p>(pod: &'p Pod<'_>) -> Shape<'p> {
    let mut metadata = Vec::new();
    if pod.metadata.labels.is_some() {
        metadata.push(("labels", Shape::Object(Vec::new())));
    }
    if let Some(annotations) = &pod.metadata.annotations {
        let record = annotations.get(record::KEY).map(|_| (record::KEY, Shape::Scalar));
        metadata.push(("annotations", Shape::Object(record.into_iter().collect())));
    }
    let mut document = vec![("metadata", Shape::Object(metadata))];
    if pod.has_spec {
        let mut spec = vec![("affinity", Shape::of(&pod.affinity_document))];
        spec.extend(pod.node_name.map(|_| ("nodeName", Shape::Scalar)));
        if let Some(tolerations) = &pod.tolerations {
            spec.push(("tolerations", Shape::List(vec![Shape::Scalar; tolerations.len()])));
        }
        document.push(("spec", Shape::Object(spec)));
    }
    Shape::Object(document)
}

fn labels<'i>(
    pod: &Pod<'_>,
    intents: &'i [Intent],
    editor: &mut Editor<'i>,
    findings: &mut Vec<Finding>,
) {
    let mut set: Vec<&str> = Vec::new();
    for intent in intents {
        let Wish::Label { key, value } = &intent.wish else { continue };
        match pod.label(key) {
            Some(present) if present == value => {}
            Some(present) => findings.push(Finding::new(
                Reason::LabelConflict,
                intent.key,
                format!(
                    "label {key} is already {} and would become {}",
                    quoted(present),
                    quoted(value)
                ),
                "remove the label from the pod: stowplan sets it",
            )),
            // Two systems may ask for one label; the first has set it.
            None if set.contains(&key.as_str()) => {}
            None => {
                set.push(key);
                editor.set(&[Member("metadata"), Member("labels"), Member(key)], value);
            }
        }
    }
}

fn annotation(pod: &Pod<'_>, record: Option<&str>, editor: &mut Editor<'_>) {
    let path = [Member("metadata"), Member("annotations"), Member(record::KEY)];
    match (pod.annotation(record::KEY), record) {
        (Some(present), Some(wanted)) if present == wanted => {}
        (_, Some(wanted)) => editor.set(&path, wanted),
        (Some(_), None) => editor.remove(&path),
        (None, None) => {}
    }
}

fn node_name(
    pod: &Pod<'_>,
    intents: &[Intent],
    editor: &mut Editor<'_>,
    findings: &mut Vec<Finding>,
) {
    let path = [Member("spec"), Member("nodeName")];
    for intent in intents {
        match &intent.wish {
            Wish::ReleaseNodeName => editor.remove(&path),
            Wish::SetNodeName(_) if pod.gated => findings.push(Finding::new(
                Reason::NodeNameConflict,
                intent.key,
                "the pod has scheduling gates, and Kubernetes refuses a node name beside a gate",
                "remove spec.schedulingGates, or the policy's `compat: seed`",
            )),
            Wish::SetNodeName(node) if pod.node_name != Some(node) => {
                editor.set(&path, node);
            }
            _ => {}
        }
    }
}

/// A term of the pod's required node affinity on its way to the new list: it means its own
/// requirements and those of what was added.
#[derive(Clone)]
struct Term<'t> {
    /// Where it stood, and what it was; `None` for the one that stands for "any node".
    own: Option<(usize, &'t NodeSelectorTerm)>,
    /// What was added to it.
    added: Vec<&'t NodeTerm>,
}

impl<'t> Term<'t> {
    fn with(&self, alternative: &'t NodeTerm) -> Self {
        let added = self.added.iter().copied().chain([alternative]).collect();
        Self { own: self.own, added }
    }
}

impl Requirements for Term<'_> {
    fn fields(&self) -> impl Iterator<Item = Requirement<'_>> {
        let own = self.own.iter().flat_map(|(_, term)| term.fields());
        own.chain(self.added.iter().flat_map(|term| term.fields()))
    }

    fn expressions(&self) -> impl Iterator<Item = Requirement<'_>> {
        let own = self.own.iter().flat_map(|(_, term)| term.expressions());
        own.chain(self.added.iter().flat_map(|term| term.expressions()))
    }
}

/// What was added where the pod had no terms, as a term of its own.
struct Added<'t>(&'t [&'t NodeTerm]);

impl Json for Added<'_> {
    fn write(&self, json: &mut Vec<u8>) {
        let write = |requirement: Requirement<'_>, json: &mut Vec<u8>| requirement.write(json);
        let mut expressions = self.0.iter().flat_map(|term| term.expressions()).peekable();
        let mut fields = self.0.iter().flat_map(|term| term.fields()).peekable();
        let mut before = "{";
        if expressions.peek().is_some() {
            json.extend_from_slice(br#"{"matchExpressions":"#);
            list(json, expressions, write);
            before = ",";
        }
        if fields.peek().is_some() {
            json.extend_from_slice(before.as_bytes());
            json.extend_from_slice(br#""matchFields":"#);
            list(json, fields, write);
        }
        json.push(b'}');
    }
}

fn node_affinity(
    pod: &Pod<'_>,
    intents: &[Intent],
    editor: &mut Editor<'_>,
    findings: &mut Vec<Finding>,
) {
    let wishes: Vec<_> = intents
        .iter()
        .filter_map(|intent| match &intent.wish {
            Wish::NodeAffinity(alternatives) => Some((intent, alternatives)),
            _ => None,
        })
        .collect();
    let Some((first, _)) = wishes.first() else { return };

    let present = required_node_terms(pod);
    let mut terms: Vec<Term<'_>> = match present {
        None => vec![Term { own: None, added: Vec::new() }],
        Some(present) => present
            .iter()
            .enumerate()
            .filter(|&(index, term)| !is_empty(pod, index, term))
            .map(|own| Term { own: Some(own), added: Vec::new() })
            .collect(),
    };
    if terms.is_empty() {
        findings.push(Finding::new(
            Reason::NodeAffinityConflict,
            first.key,
            "the pod's required node affinity has only empty terms, which match no node",
            "remove the empty terms from nodeSelectorTerms",
        ));
        return;
    }

    let mut crossed = false;
    for (intent, alternatives) in wishes {
        let before_it = terms.len();
        let mut next = Vec::with_capacity(before_it);
        let mut possible = false;
        for term in terms {
            if alternatives.iter().any(|alternative| implies(&term, alternative)) {
                possible = true;
                next.push(term);
                continue;
            }
            let before = next.len();
            next.extend(
                alternatives
                    .iter()
                    .filter(|alternative| !excludes(&term, *alternative))
                    .map(|alternative| term.with(alternative)),
            );
            match next.len() - before {
                // The user's term stays, although it can no longer be met: it is his.
                0 => next.extend(alternatives.first().map(|alternative| term.with(alternative))),
                1 => possible = true,
                _ => {
                    possible = true;
                    crossed = true;
                }
            }
        }
        if !possible {
            findings.push(Finding::new(
                Reason::NodeAffinityConflict,
                intent.key,
                "the pod's own required node affinity excludes every node that would do",
                "change the pod's nodeAffinity, or this constraint",
            ));
            return;
        }
        // A user's own terms may be more; only multiplying them is ours.
        if next.len() > MAX_NODE_TERMS.max(before_it) {
            findings.push(Finding::new(
                Reason::NodeAffinityConflict,
                intent.key,
                format!(
                    "{} node selector terms would be needed, at most {MAX_NODE_TERMS} are made",
                    next.len()
                ),
                "use fewer terms in the pod's nodeAffinity, or a smaller pool",
            ));
            return;
        }
        terms = next;
    }

    if terms.iter().all(|term| term.added.is_empty()) {
        return;
    }
    let Some(present) = present else {
        let added: Vec<_> = terms.iter().map(|term| Added(&term.added)).collect();
        editor.set_list(&NODE_TERMS, &added);
        return;
    };
    if crossed {
        let documents: Vec<Value> = terms.iter().map(|term| document(pod, term)).collect();
        editor.set_list(&NODE_TERMS, &documents);
        return;
    }
    for term in &terms {
        let Some((index, _)) = term.own else { continue };
        let list = |member| {
            let mut path = NODE_TERMS.to_vec();
            path.extend([Item(index), Member(member)]);
            path
        };
        for added in &term.added {
            for requirement in added.fields() {
                editor.append(&list("matchFields"), &requirement);
            }
            for requirement in added.expressions() {
                editor.append(&list("matchExpressions"), &requirement);
            }
        }
    }
    // From the end, so that an index still means the same item.
    for (index, term) in present.iter().enumerate().rev() {
        if is_empty(pod, index, term) {
            let mut path = NODE_TERMS.to_vec();
            path.push(Item(index));
            editor.remove(&path);
        }
    }
}

/// The pod's required node affinity terms; `None` where it has no required node affinity.
#[must_use]
pub fn required_node_terms<'p>(pod: &'p Pod<'_>) -> Option<&'p [NodeSelectorTerm]> {
    let node_affinity = pod.affinity.node_affinity.as_ref()?;
    let required = node_affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(&required.node_selector_terms)
}

fn term_document<'p>(pod: &'p Pod<'_>, index: usize) -> Option<&'p Value> {
    let pointer = format!("/nodeAffinity/{REQUIRED}/nodeSelectorTerms");
    pod.affinity_document.pointer(&pointer)?.get(index)
}

/// Whether a term of the user's says nothing at all, not even in fields that we do not know.
fn is_empty(pod: &Pod<'_>, index: usize, term: &NodeSelectorTerm) -> bool {
    let nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let document = term_document(pod, index).and_then(Value::as_object);
    matches_nothing(term) && document.is_none_or(|members| members.values().all(nothing))
}

/// The term as it is written: the user's own document with the requirements appended.
fn document(pod: &Pod<'_>, term: &Term<'_>) -> Value {
    let own = term.own.and_then(|(index, _)| term_document(pod, index));
    let mut document = own.cloned().unwrap_or_else(|| json!({}));
    let mut append = |member: &str, requirement: Requirement<'_>| {
        let list = &mut document[member];
        if !list.is_array() {
            *list = json!([]);
        }
        if let Value::Array(items) = list {
            items.push(json!(requirement));
        }
    };
    for added in &term.added {
        added.fields().for_each(|requirement| append("matchFields", requirement));
        added.expressions().for_each(|requirement| append("matchExpressions", requirement));
    }
    document
}

fn pod_affinity(
    pod: &Pod<'_>,
    intents: &[Intent],
    editor: &mut Editor<'_>,
    findings: &mut Vec<Finding>,
) {
    let (mut required, mut preferred): (Vec<&PodAffinityTerm>, Vec<&WeightedPodAffinityTerm>) =
        (Vec::new(), Vec::new());
    if let Some(affinity) = &pod.affinity.pod_affinity {
        required
            .extend(affinity.required_during_scheduling_ignored_during_execution.iter().flatten());
        preferred
            .extend(affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten());
    }
    let (mut anti_required, mut anti_preferred): (
        Vec<&PodAffinityTerm>,
        Vec<&WeightedPodAffinityTerm>,
    ) = (Vec::new(), Vec::new());
    if let Some(affinity) = &pod.affinity.pod_anti_affinity {
        anti_required
            .extend(affinity.required_during_scheduling_ignored_during_execution.iter().flatten());
        anti_preferred
            .extend(affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten());
    }

    let mut ours: Option<&Intent> = None;
    for intent in intents {
        match &intent.wish {
            Wish::PodAffinity(term) if is_present(term, &required, &preferred) => {}
            Wish::PodAffinity(term) => {
                // An existing pod counts only if it matches all required terms of the newcomer, so a
                // second term next to another one would silently void both.
                if term.enforcement == Enforcement::Required
                    && (!required.is_empty() || ours.is_some())
                {
                    let other = ours.map_or_else(
                        || "its own required pod affinity".to_owned(),
                        |intent| format!("that of {}", intent.why),
                    );
                    findings.push(Finding::new(
                        Reason::PodAffinityConflict,
                        intent.key,
                        format!("the pod would have a second required pod-affinity term beside {other}, and the scheduler counts only pods that match both"),
                        "remove one of them, or make the pod's own term preferred",
                    ));
                    continue;
                }
                if term.enforcement == Enforcement::Required {
                    ours = Some(intent);
                }
                write(editor, "podAffinity", term);
            }
            Wish::PodAntiAffinity(term) if is_present(term, &anti_required, &anti_preferred) => {}
            Wish::PodAntiAffinity(term) => write(editor, "podAntiAffinity", term),
            _ => {}
        }
    }
}

/// A toleration that the pod's own tolerations cover is not added: PodTolerationRestriction would drop
/// one of the two, and the pod could not be changed any more (kubernetes#70502).
fn tolerations(pod: &Pod<'_>, intents: &[Intent], editor: &mut Editor<'_>) {
    let mut added: Vec<&Wish> = Vec::new();
    for intent in intents {
        let wish @ Wish::Toleration { key, value, effect } = &intent.wish else { continue };
        let present = pod.tolerations.iter().flatten();
        if added.contains(&wish) || present.into_iter().any(|t| tolerates(t, key, value, effect)) {
            continue;
        }
        added.push(wish);
        editor.append(
            &[Member("spec"), Member("tolerations")],
            &json!({"key": key, "operator": "Equal", "value": value, "effect": effect}),
        );
    }
}

fn is_present(
    wish: &PodTerm,
    required: &[&PodAffinityTerm],
    preferred: &[&WeightedPodAffinityTerm],
) -> bool {
    match wish.enforcement {
        Enforcement::Required => required.iter().any(|term| wish.is_own_mark(term)),
        Enforcement::Preferred => {
            preferred.iter().any(|term| wish.is_own_mark(&term.pod_affinity_term))
        }
    }
}

fn write(editor: &mut Editor<'_>, member: &'static str, wish: &PodTerm) {
    let list = match wish.enforcement {
        Enforcement::Required => REQUIRED,
        Enforcement::Preferred => PREFERRED,
    };
    editor.append(&[Member("spec"), Member("affinity"), Member(member), Member(list)], wish);
}
