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
use super::pod::{ClaimVolume, Pod};
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
    gates(pod, intents, &mut editor, &mut findings);
    claim_names(pod, intents, &mut editor);
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
        if let Some(gates) = &pod.gates {
            spec.push(("schedulingGates", Shape::List(vec![Shape::Scalar; gates.len()])));
        }
        if let Some(last) = pod.claims.last() {
            spec.push(("volumes", volumes(pod, last.index)));
        }
        document.push(("spec", Shape::Object(spec)));
    }
    Shape::Object(document)
}

/// The pod's volumes up to the one at `last`: those that are claims, and the others as something else.
fn volumes<'p>(pod: &Pod<'_>, last: usize) -> Shape<'p> {
    let mut volumes = vec![Shape::Scalar; last + 1];
    for ClaimVolume { index, .. } in &pod.claims {
        let source = Shape::Object(vec![("claimName", Shape::Scalar)]);
        volumes[*index] = Shape::Object(vec![("persistentVolumeClaim", source)]);
    }
    Shape::List(volumes)
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
            Wish::SetNodeName(_) if pod.is_gated() => findings.push(Finding::new(
                Reason::NodeNameConflict,
                intent.key,
                "the pod has scheduling gates, and Kubernetes refuses a node name beside a gate",
                "remove spec.schedulingGates, or the policy's `compat: upstream`",
            )),
            Wish::SetNodeName(node) if pod.node_name != Some(node) => {
                editor.set(&path, node);
            }
            _ => {}
        }
    }
}

/// A gate that is there is ours or does what ours would.
fn gates(pod: &Pod<'_>, intents: &[Intent], editor: &mut Editor<'_>, findings: &mut Vec<Finding>) {
    let is_released = intents.iter().any(|intent| intent.wish == Wish::ReleaseNodeName);
    let set_by = intents.iter().find(|intent| matches!(intent.wish, Wish::SetNodeName(_)));
    let mut added: Vec<&str> = Vec::new();
    for intent in intents {
        let Wish::Gate(name) = intent.wish else { continue };
        if pod.has_gate(name) || added.contains(&name) {
            continue;
        }
        let (problem, remedy) = match (pod.node_name, set_by) {
            (_, Some(by)) => {
                let remedy = format!("remove {} or {}", by.key, intent.key);
                (format!("{} sets spec.nodeName", by.why), remedy)
            }
            (Some(node), None) if !is_released => {
                (format!("spec.nodeName is {}", quoted(node)), "remove spec.nodeName".to_owned())
            }
            _ => {
                added.push(name);
                let list = [Member("spec"), Member("schedulingGates")];
                editor.append(&list, &json!({"name": name}));
                continue;
            }
        };
        let problem = format!(
            "{problem}, which Kubernetes refuses beside the scheduling gate {name} that the pod must \
             wait behind"
        );
        findings.push(Finding::new(Reason::NodeNameConflict, intent.key, problem, remedy));
    }
}

/// A pod whose volumes are renamed already has none of the old name.
fn claim_names<'i>(pod: &Pod<'_>, intents: &'i [Intent], editor: &mut Editor<'i>) {
    for ClaimVolume { index, claim } in &pod.claims {
        let wanted = intents.iter().find_map(|intent| match &intent.wish {
            Wish::ClaimName { from, to } if from == claim.as_str() => Some(to),
            _ => None,
        });
        if let Some(to) = wanted.filter(|to| *to != claim.as_str()) {
            let volume = [Member("spec"), Member("volumes"), Item(*index)];
            let name = [Member("persistentVolumeClaim"), Member("claimName")];
            editor.set(&[volume.as_slice(), &name].concat(), to);
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

/// The pod's required pod-affinity terms.
#[must_use]
pub fn required_pod_terms<'p>(pod: &'p Pod<'_>) -> &'p [PodAffinityTerm] {
    let affinity = pod.affinity.pod_affinity.as_ref();
    let required = affinity.and_then(|affinity| {
        affinity.required_during_scheduling_ignored_during_execution.as_deref()
    });
    required.unwrap_or_default()
}

/// Whether the required pod-affinity term `wish` holds for the pod, or can be added to it.
///
/// It cannot where the pod has one of its own: an existing pod counts only if it matches *all* required
/// terms of the newcomer, so a second one would silently void both (seen on the scheduler of Kubernetes
/// 1.36). A system that knows another way asks here first; for others the merge finds the conflict.
#[must_use]
pub fn takes_pod_term(pod: &Pod<'_>, wish: &PodTerm) -> bool {
    let required = required_pod_terms(pod);
    required.is_empty() || required.iter().any(|term| wish.is_own_mark(term))
}

fn pod_affinity(
    pod: &Pod<'_>,
    intents: &[Intent],
    editor: &mut Editor<'_>,
    findings: &mut Vec<Finding>,
) {
    let required = required_pod_terms(pod);
    let mut preferred: Vec<&WeightedPodAffinityTerm> = Vec::new();
    if let Some(affinity) = &pod.affinity.pod_affinity {
        preferred
            .extend(affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten());
    }
    let mut anti_required: &[PodAffinityTerm] = &[];
    let mut anti_preferred: Vec<&WeightedPodAffinityTerm> = Vec::new();
    if let Some(affinity) = &pod.affinity.pod_anti_affinity {
        let terms = affinity.required_during_scheduling_ignored_during_execution.as_deref();
        anti_required = terms.unwrap_or_default();
        anti_preferred
            .extend(affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten());
    }

    let mut ours: Option<&Intent> = None;
    for intent in intents {
        match &intent.wish {
            Wish::PodAffinity(term) if is_present(term, required, &preferred) => {}
            Wish::PodAffinity(term) => {
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
            Wish::PodAntiAffinity(term) if is_present(term, anti_required, &anti_preferred) => {}
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
    required: &[PodAffinityTerm],
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::intent::{HOSTNAME, Selector, on_node};
    use crate::placement::pod::Object;

    const GATE: &str = "stowplan.dev/placeholder";
    const LABELS: [(&str, &str); 2] = [
        ("app.kubernetes.io/component", "affinity-assistant"),
        ("app.kubernetes.io/instance", "affinity-assistant-0123456789"),
    ];

    fn intent(key: &'static str, wish: Wish) -> Intent {
        Intent { system: "test", key, why: format!("{key}=value"), wish }
    }

    fn member_term() -> PodTerm {
        let labels = LABELS.map(|(key, value)| (key, value.to_owned()));
        PodTerm { enforcement: Enforcement::Required, selector: Selector::Labels(labels.into()) }
    }

    fn rename(from: &str, to: &str) -> Wish {
        Wish::ClaimName { from: from.to_owned(), to: to.to_owned() }
    }

    /// What becomes of a pod of this spec, and by which paths.
    fn merged(spec: &Value, wishes: Vec<Wish>) -> Result<(Value, Vec<String>), Vec<Finding>> {
        let mut document = json!({"metadata": {"name": "p"}, "spec": spec});
        let text = document.to_string();
        let object: Object<'_> = serde_json::from_str(&text).unwrap();
        let pod = Pod::decode("default", &object).unwrap();
        let intents: Vec<_> = wishes.into_iter().map(|wish| intent("key", wish)).collect();
        let operations = merge(&pod, &intents, None)?.operations();
        json_patch::patch(&mut document, &operations).unwrap();
        let paths = operations.iter().map(|operation| operation.path().to_string()).collect();
        Ok((document["spec"].take(), paths))
    }

    #[test]
    fn a_gate_is_appended_once() {
        let gate = json!({"name": GATE});
        let other = json!({"name": "example.com/wait"});
        for (before, after) in [
            (json!({}), json!([gate])),
            (json!({"schedulingGates": null}), json!([gate])),
            (json!({"schedulingGates": []}), json!([gate])),
            (json!({"schedulingGates": [other]}), json!([other, gate])),
            (json!({"schedulingGates": [gate, other]}), json!([gate, other])),
            (json!({"schedulingGates": [{"name": null}, {}]}), json!([{"name": null}, {}, gate])),
            (json!({"nodeName": ""}), json!([gate])),
        ] {
            let (spec, _) = merged(&before, vec![Wish::Gate(GATE), Wish::Gate(GATE)]).unwrap();
            assert_eq!(spec["schedulingGates"], after, "{before}");
            let (again, paths) = merged(&spec, vec![Wish::Gate(GATE)]).unwrap();
            assert!(paths.is_empty(), "{again}");
        }
    }

    #[test]
    fn a_gate_and_a_node_name_never_meet() {
        let pinned = json!({"nodeName": "n1"});
        let conflict = |spec: &Value, wishes| {
            let findings = merged(spec, wishes).unwrap_err();
            let [finding] = findings.as_slice() else { panic!("{findings:?}") };
            assert_eq!(finding.reason, Reason::NodeNameConflict);
            finding.to_string()
        };
        let told = conflict(&pinned, vec![Wish::Gate(GATE)]);
        assert!(told.contains(r#"spec.nodeName is "n1""#) && told.contains(GATE), "{told}");
        let set = || Wish::SetNodeName("n1".to_owned());
        let told = conflict(&json!({}), vec![Wish::Gate(GATE), set()]);
        assert!(told.contains("key=value sets spec.nodeName"), "{told}");
        conflict(&json!({}), vec![set(), Wish::Gate(GATE)]);
        conflict(&json!({"schedulingGates": [{"name": "other"}]}), vec![set()]);

        let on_n1 = Wish::NodeAffinity(vec![on_node("n1")]);
        let wishes = vec![Wish::Gate(GATE), on_n1, Wish::ReleaseNodeName];
        let (spec, _) = merged(&pinned, wishes).unwrap();
        assert!(spec.get("nodeName").is_none() && spec["schedulingGates"][0]["name"] == GATE);
    }

    #[test]
    fn each_volume_of_a_claim_is_renamed_at_its_place() {
        let spec = json!({"volumes": [
            {"name": "token", "projected": {}},
            {"name": "a", "persistentVolumeClaim": {"claimName": "pvc-1", "readOnly": true}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "pvc-2"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "pvc-1"}, "future": [1]},
            {"name": "d", "persistentVolumeClaim": null},
            null,
        ]});
        let wishes = || vec![rename("pvc-1", "pvc-1-p-0"), rename("pvc-1", "no"), rename("x", "y")];
        let (after, paths) = merged(&spec, wishes()).unwrap();
        let mut wanted = spec.clone();
        for volume in [1, 3] {
            wanted["volumes"][volume]["persistentVolumeClaim"]["claimName"] = json!("pvc-1-p-0");
        }
        assert_eq!(after, wanted);
        let place = |volume| format!("/spec/volumes/{volume}/persistentVolumeClaim/claimName");
        assert_eq!(paths, [place(1), place(3)]);
        assert!(merged(&after, wishes()).unwrap().1.is_empty(), "renamed once");
    }

    #[test]
    fn a_pod_without_such_a_volume_is_left_alone() {
        for spec in [
            json!({}),
            json!({"volumes": null}),
            json!({"volumes": []}),
            json!({"volumes": [{"name": "a", "emptyDir": {}}]}),
            json!({"volumes": [{"name": "a", "persistentVolumeClaim": {}}]}),
            json!({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": null}}]}),
            json!({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "pvc"}}]}),
        ] {
            let wishes = vec![rename("pvc-1", "other"), rename("pvc", "pvc")];
            assert!(merged(&spec, wishes).unwrap().1.is_empty(), "{spec}");
        }
    }

    #[test]
    fn a_term_of_labels_is_written_last_and_known_again_in_any_order() {
        let labels: serde_json::Map<_, _> =
            LABELS.iter().rev().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let ours = json!({"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME});
        let (spec, paths) = merged(&json!({}), vec![Wish::PodAffinity(member_term())]).unwrap();
        assert_eq!(spec["affinity"]["podAffinity"][REQUIRED], json!([ours]));
        assert_eq!(paths.len(), 1);
        let mut text = Vec::new();
        member_term().write(&mut text);
        let text = String::from_utf8(text).unwrap();
        assert!(text.find("component") < text.find("instance"), "{text}");

        let present = |term: &Value| {
            let spec = json!({"affinity": {"podAffinity": {REQUIRED: [term]}}});
            merged(&spec, vec![Wish::PodAffinity(member_term())]).map(|(_, paths)| paths)
        };
        assert_eq!(present(&ours).unwrap(), [""; 0]);
        let mut again = ours.clone();
        again["labelSelector"]["matchExpressions"] = json!([]);
        again["namespaces"] = json!([]);
        assert_eq!(present(&again).unwrap(), [""; 0]);

        let changed = |pointer: &str, member: &str, value: Value| {
            let mut term = ours.clone();
            term.pointer_mut(pointer).unwrap()[member] = value;
            term
        };
        for other in [
            changed("", "topologyKey", json!("topology.kubernetes.io/zone")),
            changed("", "namespaces", json!(["other"])),
            changed("", "namespaceSelector", json!({})),
            changed("", "matchLabelKeys", json!(["a"])),
            changed(
                "/labelSelector",
                "matchExpressions",
                json!([{"key": "a", "operator": "Exists"}]),
            ),
            changed("/labelSelector/matchLabels", "another", json!("label")),
            changed(
                "/labelSelector/matchLabels",
                LABELS[1].0,
                json!("affinity-assistant-9876543210"),
            ),
            changed("/labelSelector", "matchLabels", json!({LABELS[0].0: LABELS[0].1})),
            changed("", "labelSelector", Value::Null),
        ] {
            let findings = present(&other).unwrap_err();
            assert_eq!(findings[0].reason, Reason::PodAffinityConflict, "{other}");
        }
    }

    #[test]
    fn a_pod_takes_a_required_term_where_it_has_none_of_its_own() {
        let own = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": HOSTNAME});
        let (ours, _) = merged(&json!({}), vec![Wish::PodAffinity(member_term())]).unwrap();
        for (spec, takes) in [
            (json!({}), true),
            (json!({"affinity": {"podAffinity": {REQUIRED: null}}}), true),
            (
                json!({"affinity": {"podAffinity": {PREFERRED: []}, "podAntiAffinity": {REQUIRED: [own]}}}),
                true,
            ),
            (json!({"affinity": {"podAffinity": {REQUIRED: [own]}}}), false),
            (ours, true),
        ] {
            let text = json!({"spec": spec}).to_string();
            let object: Object<'_> = serde_json::from_str(&text).unwrap();
            let pod = Pod::decode("default", &object).unwrap();
            assert_eq!(takes_pod_term(&pod, &member_term()), takes, "{spec}");
            assert_eq!(
                merged(&spec, vec![Wish::PodAffinity(member_term())]).is_ok(),
                takes,
                "{spec}"
            );
        }
    }
}
