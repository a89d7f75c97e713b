//! Combines the intents of all systems with what the pod has.
//!
//! Lists are appended to, and nothing that the user wrote is lost, except as docs/operations.md
//! states under "What is changed". A change that the pod has from an earlier round is kept as it
//! is, so that a pod which is sent again gets an empty patch, whatever other webhooks added to it
//! in between.

mod containers;
mod metadata;
mod node_affinity;
mod pod_affinity;

use serde_json::{Map, Value, json};

use super::container::Parts;
use super::intent::{Change, Intent};
use super::patch::{Editor, Patch, SCALAR, outline_list};
use super::pod::{ClaimVolume, Pod};
use super::reason::{Finding, Reason, quoted};
use super::record;
use super::toleration::tolerates;
pub(crate) use pod_affinity::leave_out_hints;
pub use pod_affinity::takes_pod_term;

/// The operations that give `pod` the changes in `intents` and the record.
///
/// `record` is the new value of the record annotation; `None` removes a present one.
///
/// # Errors
/// A finding for every intent that contradicts something that the pod has.
pub fn merge(
    pod: &Pod<'_>,
    intents: &[Intent],
    record: Option<&str>,
) -> Result<Patch, Vec<Finding>> {
    let has_parts = intents.iter().any(containers::is_about_parts);
    // Decided on by a system that has decoded them already.
    let parts = has_parts.then(|| Parts::decode(pod).unwrap_or_default());
    let editor = Editor::new(outline(pod, intents, parts.as_ref()));
    let mut merge = Merge { pod, intents, editor, findings: Vec::new() };
    merge.set_labels();
    merge.set_annotations();
    merge.set_annotation(record::KEY, record);
    merge.set_node_name();
    merge.add_node_affinity();
    merge.add_pod_affinity();
    merge.add_tolerations();
    merge.add_gates();
    merge.rename_claims();
    if let Some(parts) = &parts {
        merge.change_parts(parts);
    }
    let Merge { editor, findings, .. } = merge;
    if findings.is_empty() { Ok(editor.into_patch()) } else { Err(findings) }
}

/// The intents of all systems for a pod, and what they come to.
struct Merge<'m> {
    pod: &'m Pod<'m>,
    intents: &'m [Intent],
    editor: Editor,
    /// The contradictions between intents and what the pod has.
    findings: Vec<Finding>,
}

/// The part of the pod that operations can touch, without the values of labels and annotations.
fn outline(pod: &Pod<'_>, intents: &[Intent], parts: Option<&Parts<'_>>) -> Value {
    let mut document = json!({});
    if pod.metadata.is_present {
        document["metadata"] = metadata::outline(pod, intents);
    }
    if !pod.has_spec {
        return document;
    }
    let mut spec = Map::from_iter([("affinity".to_owned(), pod.affinity_document.clone())]);
    let mut insert = |field: &str, outline| spec.insert(field.to_owned(), outline);
    if pod.node_name.is_some() {
        insert("nodeName", SCALAR);
    }
    if let Some(tolerations) = &pod.tolerations {
        insert("tolerations", outline_list(tolerations.len()));
    }
    if let Some(gates) = &pod.gates {
        insert("schedulingGates", outline_list(gates.len()));
    }
    let count = parts.and_then(|parts| parts.volumes.as_ref()).map(Vec::len);
    let known = pod.claims.last().map(|last| last.index + 1);
    if let Some(count) = count.or(known) {
        insert("volumes", outline_volumes(pod, count));
    }
    if let Some(parts) = parts {
        spec.append(&mut containers::outline(parts));
    }
    document["spec"] = spec.into();
    document
}

/// The first `count` volumes of the pod, of which only the claims have members.
fn outline_volumes(pod: &Pod<'_>, count: usize) -> Value {
    let mut volumes = outline_list(count);
    for ClaimVolume { index, .. } in &pod.claims {
        volumes[*index] = json!({"persistentVolumeClaim": {"claimName": SCALAR}});
    }
    volumes
}

impl Merge<'_> {
    fn set_node_name(&mut self) {
        let path = ["spec", "nodeName"];
        for intent in self.intents {
            match &intent.change {
                Change::ReleaseNodeName => self.editor.remove(&path),
                Change::SetNodeName(_) if self.pod.is_gated() => self.findings.push(Finding::new(
                    Reason::NodeNameConflict,
                    intent.key,
                    "the pod has scheduling gates, and Kubernetes refuses a node name beside a gate",
                    "remove spec.schedulingGates, or the policy's `compat: upstream`",
                )),
                Change::SetNodeName(node) if self.pod.node_name != Some(node) => {
                    self.editor.set(&path, node.as_str());
                }
                _ => {}
            }
        }
    }

    /// Adds each gate that the pod does not have, whoever added a present one.
    fn add_gates(&mut self) {
        let Self { pod, intents, .. } = *self;
        let is_released = intents.iter().any(|intent| intent.change == Change::ReleaseNodeName);
        let set_by = intents.iter().find(|intent| matches!(intent.change, Change::SetNodeName(_)));
        let mut added: Vec<&str> = Vec::new();
        for intent in intents {
            let Change::Gate(name) = intent.change else { continue };
            if pod.has_gate(name) || added.contains(&name) {
                continue;
            }
            let (problem, remedy) = match (pod.node_name, set_by) {
                (_, Some(by)) => {
                    let remedy = format!("remove {} or {}", by.key, intent.key);
                    (format!("{} sets spec.nodeName", by.why), remedy)
                }
                (Some(node), None) if !is_released => {
                    let problem = format!("spec.nodeName is {}", quoted(node));
                    (problem, "remove spec.nodeName".to_owned())
                }
                _ => {
                    added.push(name);
                    self.editor.append(&["spec", "schedulingGates"], json!({"name": name}));
                    continue;
                }
            };
            let problem = format!(
                "{problem}, which Kubernetes refuses beside the scheduling gate {name} that the pod must \
                 wait behind"
            );
            let reason = Reason::NodeNameConflict;
            self.findings.push(Finding::new(reason, intent.key, problem, remedy));
        }
    }

    /// Renames the claims of volumes. After an earlier round no volume has the old name.
    fn rename_claims(&mut self) {
        for ClaimVolume { index, claim } in &self.pod.claims {
            let wanted = self.intents.iter().find_map(|intent| match &intent.change {
                Change::ClaimName { from, to } if from == claim.as_str() => Some(to),
                _ => None,
            });
            if let Some(to) = wanted.filter(|to| *to != claim.as_str()) {
                let index = index.to_string();
                let name = ["spec", "volumes", &index, "persistentVolumeClaim", "claimName"];
                self.editor.set(&name, to.as_str());
            }
        }
    }

    /// Adds tolerations that the pod's own do not cover. Of two for the same taint, the admission
    /// plugin PodTolerationRestriction would drop one, and later updates of the pod would be refused
    /// (kubernetes#70502).
    fn add_tolerations(&mut self) {
        let mut added: Vec<&Change> = Vec::new();
        for intent in self.intents {
            let change @ Change::Toleration { key, value, effect } = &intent.change else {
                continue;
            };
            let mut present = self.pod.tolerations.iter().flatten();
            if added.contains(&change) || present.any(|own| tolerates(own, key, value, effect)) {
                continue;
            }
            added.push(change);
            let toleration =
                json!({"effect": effect, "key": key, "operator": "Equal", "value": value});
            self.editor.append(&["spec", "tolerations"], toleration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::{HOSTNAME, PREFERRED, REQUIRED};
    use crate::placement::intent::{ContainerChange, Enforcement, PodTerm, Selector, on_node};
    use crate::placement::object::Object;

    const GATE: &str = "stowplan.dev/placeholder";
    const LABELS: [(&str, &str); 2] = [
        ("app.kubernetes.io/component", "affinity-assistant"),
        ("app.kubernetes.io/instance", "affinity-assistant-0123456789"),
    ];

    fn intent(key: &'static str, change: Change) -> Intent {
        Intent { system: "test", key, why: format!("{key}=value"), change }
    }

    fn member_term() -> PodTerm {
        let labels = LABELS.map(|(key, value)| (key, value.to_owned()));
        PodTerm { enforcement: Enforcement::Required, selector: Selector::Labels(labels.into()) }
    }

    /// The spec after the merge, and the paths of the operations.
    fn merged(spec: &Value, changes: Vec<Change>) -> Result<(Value, Vec<String>), Vec<Finding>> {
        let mut document = json!({"metadata": {"name": "p"}, "spec": spec});
        let text = document.to_string();
        let object: Object<'_> = serde_json::from_str(&text).unwrap();
        let pod = Pod::decode("default", &object).unwrap();
        let intents: Vec<_> = changes.into_iter().map(|change| intent("key", change)).collect();
        let operations = merge(&pod, &intents, None)?.operations();
        json_patch::patch(&mut document, &operations).unwrap();
        let paths = operations.iter().map(|operation| operation.path().to_string()).collect();
        Ok((document["spec"].take(), paths))
    }

    /// An author may have copied the mount from a pod that stowplan had changed.
    #[test]
    fn a_volume_of_stowplan_that_is_mounted_at_its_path_is_mounted_once() {
        let mounted = |volume: &str, path: &str| {
            let mounts = json!([{"mountPath": path, "name": volume}]);
            let spec = json!({"containers": [{"name": "main", "volumeMounts": mounts}]});
            let change = ContainerChange::Mount {
                volume: "own",
                part: Some("run"),
                path: "/run/sshd".to_owned(),
            };
            match merged(&spec, vec![Change::Container { index: 0, change }]) {
                Ok((_, paths)) => paths.len().to_string(),
                Err(findings) => findings[0].to_string(),
            }
        };
        for path in ["/run/sshd", "/run/sshd/"] {
            assert_eq!(mounted("own", path), "0", "{path}");
            let refused = mounted("other", path);
            assert!(refused.contains("mounts volume \"other\" at /run/sshd"), "{refused}");
        }
        assert_eq!(mounted("other", "/run"), "1");
    }

    #[test]
    fn a_gate_and_a_node_name_never_meet() {
        let (gate, set) = (|| Change::Gate(GATE), || Change::SetNodeName("n1".to_owned()));
        for changes in [vec![gate(), set()], vec![set(), gate()]] {
            let findings = merged(&json!({}), changes).unwrap_err();
            let [finding] = findings.as_slice() else { panic!("{findings:?}") };
            assert_eq!(finding.reason, Reason::NodeNameConflict);
            let text = finding.to_string();
            assert!(text.contains("key=value sets spec.nodeName") && text.contains(GATE), "{text}");
        }
        let on_n1 = Change::NodeAffinity(vec![on_node("n1")]);
        let changes = vec![gate(), gate(), on_n1, Change::ReleaseNodeName];
        let (spec, _) = merged(&json!({"nodeName": "n1"}), changes).unwrap();
        assert_eq!(spec["schedulingGates"], json!([{"name": GATE}]), "the gate is added once");
        assert!(spec.get("nodeName").is_none());
    }

    #[test]
    fn a_term_of_labels_is_recognized_in_any_order() {
        let labels: Map<_, _> =
            LABELS.iter().rev().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let written = json!({"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME});
        let (spec, paths) = merged(&json!({}), vec![Change::PodAffinity(member_term())]).unwrap();
        assert_eq!(spec["affinity"]["podAffinity"][REQUIRED], json!([written]));
        assert_eq!(paths.len(), 1);

        // How many operations add the term to a pod with this affinity between pods, if it takes the term.
        let added = |affinity: Value| {
            let spec = json!({"affinity": affinity});
            let text = json!({"spec": spec}).to_string();
            let object: Object<'_> = serde_json::from_str(&text).unwrap();
            let takes = takes_pod_term(&Pod::decode("default", &object).unwrap(), &member_term());
            match merged(&spec, vec![Change::PodAffinity(member_term())]) {
                Ok((_, paths)) => {
                    assert!(takes, "{spec}: {paths:?}");
                    Some(paths.len())
                }
                Err(findings) => {
                    assert_eq!((takes, findings[0].reason), (false, Reason::PodAffinityConflict));
                    None
                }
            }
        };
        let beside = |term: &Value| added(json!({"podAffinity": {REQUIRED: [term]}}));
        let changed = |pointer: &str, member: &str, value: Value| {
            let mut term = written.clone();
            term.pointer_mut(pointer).unwrap()[member] = value;
            term
        };
        let mut again = changed("/labelSelector", "matchExpressions", json!([]));
        again["namespaces"] = json!([]);
        for same in [&written, &again] {
            assert_eq!(beside(same), Some(0), "{same}");
        }
        let exists = json!([{"key": "a", "operator": "Exists"}]);
        let (selector, labels) = ("/labelSelector", "/labelSelector/matchLabels");
        for other in [
            changed("", "topologyKey", json!("topology.kubernetes.io/zone")),
            changed("", "namespaces", json!(["other"])),
            changed("", "namespaceSelector", json!({})),
            changed("", "matchLabelKeys", json!(["a"])),
            changed(selector, "matchExpressions", exists),
            changed(labels, "another", json!("label")),
            changed(labels, LABELS[1].0, json!("affinity-assistant-9876543210")),
            changed(selector, "matchLabels", json!({LABELS[0].0: LABELS[0].1})),
            changed("", "labelSelector", Value::Null),
        ] {
            assert_eq!(beside(&other), None, "{other}");
        }
        assert!(added(json!({"podAffinity": {REQUIRED: null}})).is_some());
        let apart = json!({REQUIRED: [{"topologyKey": HOSTNAME}]});
        assert!(added(json!({"podAffinity": {PREFERRED: []}, "podAntiAffinity": apart})).is_some());
    }
}
