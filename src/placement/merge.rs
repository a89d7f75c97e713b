//! Joins the intents of all systems with what the pod has.
//!
//! Lists are appended to, and nothing of the user's is lost; the few named exceptions are in the
//! README ("What is changed"). An own mark of an earlier round is kept as it is, so that a pod which
//! is sent again gets an empty patch whatever other webhooks added to it in between.

use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodAffinityTerm, WeightedPodAffinityTerm};
use serde_json::{Map, Value, json};

use super::affinity::{excludes, expressions, fields, implies, matches_nothing};
use super::intent::{Enforcement, Intent, PodTerm, Wish};
use super::patch::Editor;
use super::pod::Pod;
use super::reason::{Finding, Reason, quoted};
use super::record;
use super::toleration::tolerates;

/// The most node selector terms that a pod may end up with. 1,000 were seen to be accepted and
/// scheduled; every scheduling attempt reads them all.
pub const MAX_NODE_TERMS: usize = 256;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NODE_TERMS: [&str; 5] = ["spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"];

/// The operations that give `pod` what `intents` ask for, and the record of what holds.
///
/// `record` is the new value of the record annotation; `None` removes one that is there.
///
/// # Errors
/// Every intent that contradicts something the pod carries.
pub fn merge(
    pod: &Pod<'_>,
    intents: &[Intent],
    record: Option<String>,
) -> Result<Vec<PatchOperation>, Vec<Finding>> {
    let mut editor = Editor::new(shape(pod));
    let mut findings = Vec::new();
    labels(pod, intents, &mut editor, &mut findings);
    annotation(pod, record, &mut editor);
    node_name(pod, intents, &mut editor, &mut findings);
    node_affinity(pod, intents, &mut editor, &mut findings);
    pod_affinity(pod, intents, &mut editor, &mut findings);
    tolerations(pod, intents, &mut editor);
    if findings.is_empty() { Ok(editor.into_operations()) } else { Err(findings) }
}

/// The part of the pod that a merge can touch. Label and annotation values do not matter to it.
fn shape(pod: &Pod<'_>) -> Value {
    let mut metadata = Map::new();
    if pod.metadata.labels.is_some() {
        metadata.insert("labels".to_owned(), json!({}));
    }
    if let Some(annotations) = &pod.metadata.annotations {
        let record: Map<_, _> = annotations
            .get(record::KEY)
            .map(|_| (record::KEY.to_owned(), Value::Null))
            .into_iter()
            .collect();
        metadata.insert("annotations".to_owned(), Value::Object(record));
    }
    let mut document = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
    if pod.has_spec {
        let mut spec = Map::from_iter([("affinity".to_owned(), pod.affinity_document.clone())]);
        if let Some(node) = pod.node_name {
            spec.insert("nodeName".to_owned(), json!(node));
        }
        if let Some(tolerations) = &pod.tolerations {
            let items = vec![Value::Null; tolerations.len()];
            spec.insert("tolerations".to_owned(), Value::Array(items));
        }
        document.insert("spec".to_owned(), Value::Object(spec));
    }
    Value::Object(document)
}

fn labels(pod: &Pod<'_>, intents: &[Intent], editor: &mut Editor, findings: &mut Vec<Finding>) {
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
                editor.set(&["metadata", "labels", key], json!(value));
            }
        }
    }
}

fn annotation(pod: &Pod<'_>, record: Option<String>, editor: &mut Editor) {
    let path = ["metadata", "annotations", record::KEY];
    match (pod.annotation(record::KEY), record) {
        (Some(present), Some(wanted)) if present == wanted => {}
        (_, Some(wanted)) => editor.set(&path, json!(wanted)),
        (Some(_), None) => editor.remove(&path),
        (None, None) => {}
    }
}

fn node_name(pod: &Pod<'_>, intents: &[Intent], editor: &mut Editor, findings: &mut Vec<Finding>) {
    for intent in intents {
        match &intent.wish {
            Wish::ReleaseNodeName => editor.remove(&["spec", "nodeName"]),
            Wish::SetNodeName(_) if pod.gated => findings.push(Finding::new(
                Reason::NodeNameConflict,
                intent.key,
                "the pod has scheduling gates, and Kubernetes refuses a node name beside a gate",
                "remove spec.schedulingGates, or the policy's `compat: seed`",
            )),
            Wish::SetNodeName(node) if pod.node_name != Some(node) => {
                editor.set(&["spec", "nodeName"], json!(node));
            }
            _ => {}
        }
    }
}

/// A term of the pod's required node affinity on its way to the new list.
#[derive(Clone)]
struct Term {
    /// Where it stood; `None` for the one that stands for "any node".
    index: Option<usize>,
    /// What it means by now.
    meaning: NodeSelectorTerm,
    /// What was added to it.
    added: Vec<NodeSelectorTerm>,
}

impl Term {
    fn with(&self, alternative: &NodeSelectorTerm) -> Self {
        let mut term = self.clone();
        let meaning = &mut term.meaning;
        meaning.match_fields.get_or_insert_default().extend_from_slice(fields(alternative));
        meaning
            .match_expressions
            .get_or_insert_default()
            .extend_from_slice(expressions(alternative));
        term.added.push(alternative.clone());
        term
    }
}

fn node_affinity(
    pod: &Pod<'_>,
    intents: &[Intent],
    editor: &mut Editor,
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
    let mut terms: Vec<Term> = match present {
        None => vec![Term { index: None, meaning: NodeSelectorTerm::default(), added: Vec::new() }],
        Some(present) => present
            .iter()
            .enumerate()
            .filter(|&(index, term)| !is_empty(pod, index, term))
            .map(|(index, term)| Term {
                index: Some(index),
                meaning: term.clone(),
                added: Vec::new(),
            })
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
            if alternatives.iter().any(|alternative| implies(&term.meaning, alternative)) {
                possible = true;
                next.push(term);
                continue;
            }
            let before = next.len();
            next.extend(
                alternatives
                    .iter()
                    .filter(|alternative| !excludes(&term.meaning, alternative))
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
    if crossed || present.is_none() {
        editor.set_list(&NODE_TERMS, terms.iter().map(|term| document(pod, term)).collect());
        return;
    }
    for term in &terms {
        let Some(index) = term.index.map(|index| index.to_string()) else { continue };
        for (member, requirements) in term.added.iter().flat_map(members) {
            for requirement in requirements {
                let path: Vec<&str> =
                    NODE_TERMS.into_iter().chain([index.as_str(), member]).collect();
                editor.append(&path, json!(requirement));
            }
        }
    }
    // From the end, so that an index still means the same item.
    for (index, _) in present
        .unwrap_or_default()
        .iter()
        .enumerate()
        .rev()
        .filter(|&(index, term)| is_empty(pod, index, term))
    {
        let index = index.to_string();
        let path: Vec<&str> = NODE_TERMS.into_iter().chain([index.as_str()]).collect();
        editor.remove(&path);
    }
}

/// The pod's required node affinity terms; `None` where it has no required node affinity.
#[must_use]
pub fn required_node_terms<'p>(pod: &'p Pod<'_>) -> Option<&'p [NodeSelectorTerm]> {
    let node_affinity = pod.affinity.node_affinity.as_ref()?;
    let required = node_affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(&required.node_selector_terms)
}

fn members(
    added: &NodeSelectorTerm,
) -> [(&'static str, &[k8s_openapi::api::core::v1::NodeSelectorRequirement]); 2] {
    [("matchFields", fields(added)), ("matchExpressions", expressions(added))]
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
fn document(pod: &Pod<'_>, term: &Term) -> Value {
    let own = term.index.and_then(|index| term_document(pod, index));
    let mut document = own.cloned().unwrap_or_else(|| json!({}));
    for (member, requirements) in term.added.iter().flat_map(members) {
        if requirements.is_empty() {
            continue;
        }
        let list = &mut document[member];
        if !list.is_array() {
            *list = json!([]);
        }
        if let Value::Array(items) = list {
            items.extend(requirements.iter().map(|requirement| json!(requirement)));
        }
    }
    document
}

fn pod_affinity(
    pod: &Pod<'_>,
    intents: &[Intent],
    editor: &mut Editor,
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
fn tolerations(pod: &Pod<'_>, intents: &[Intent], editor: &mut Editor) {
    let mut added: Vec<&Wish> = Vec::new();
    for intent in intents {
        let wish @ Wish::Toleration { key, value, effect } = &intent.wish else { continue };
        let present = pod.tolerations.iter().flatten();
        if added.contains(&wish) || present.into_iter().any(|t| tolerates(t, key, value, effect)) {
            continue;
        }
        added.push(wish);
        editor.append(
            &["spec", "tolerations"],
            json!({"key": key, "operator": "Equal", "value": value, "effect": effect}),
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

fn write(editor: &mut Editor, member: &str, wish: &PodTerm) {
    match wish.enforcement {
        Enforcement::Required => {
            editor.append(&["spec", "affinity", member, REQUIRED], wish.to_document());
        }
        Enforcement::Preferred => editor.append(
            &["spec", "affinity", member, PREFERRED],
            json!({"weight": 100, "podAffinityTerm": wish.to_document()}),
        ),
    }
}
