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
    merge.set_record(record);
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
