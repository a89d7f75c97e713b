//! The scheduler of the simulator: it knows the fields by which placeholders and members are placed.

use super::*;

impl World {
    /// The scheduler. Returns whether it has placed a pod or given one up.
    pub(super) fn schedule(&mut self) -> bool {
        let mut changed = false;
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            let pod = &self.pods[&name];
            let gates = pod["spec"]["schedulingGates"].as_array();
            if !pod["spec"]["nodeName"].is_null()
                || gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == keys::GATE))
            {
                continue;
            }
            let last = pod["status"]["conditions"][0].clone();
            let woken = pod["metadata"]["labels"][WAKE].clone();
            let is_first = self.is_first(pod);
            // kubernetes#141354: it waited for pods that were deleted, and was not woken.
            let is_forgotten = is_first && last["message"] == NOT_BESIDE && last["woken"] == woken;
            let mut nodes = self.nodes.keys().filter(|_| !is_forgotten);
            let node = nodes.find(|node| self.fits(pod, node, is_first)).cloned();
            let status = if node.is_some() { "True" } else { "False" };
            let toward = required(pod, "podAffinity");
            let unnamed =
                |node: &Value| node["metadata"]["labels"]["kubernetes.io/hostname"].is_null();
            let is_beside = toward.is_empty() || is_first && !self.nodes.values().any(unnamed);
            let message = if is_beside { "No room." } else { NOT_BESIDE };
            let pod = self.pods.get_mut(&name).unwrap();
            if last["status"] != status || last["message"] != message && !is_forgotten {
                let since = match last["status"] == status {
                    true => last["lastTransitionTime"].clone(),
                    false => json!(self.now.to_string()),
                };
                pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": status,
                    "reason": if node.is_some() { Value::Null } else { json!("Unschedulable") },
                    "message": message, "lastTransitionTime": since, "woken": woken}]);
                changed = true;
            } else if !is_forgotten {
                pod["status"]["conditions"][0]["woken"] = woken;
            }
            if let Some(node) = node {
                pod["spec"]["nodeName"] = json!(node);
                pod["status"]["phase"] = json!("Running");
            }
        }
        changed
    }

    /// Whether the pods that it must be beside are none but itself: then it may go anywhere.
    fn is_first(&self, pod: &Value) -> bool {
        let terms = required(pod, "podAffinity");
        let all = |other: &Value| terms.iter().all(|term| matches(term, other));
        let is_there = |other: &Value| {
            let node = other["spec"]["nodeName"].as_str();
            node.is_some_and(|node| self.nodes.contains_key(node))
                && other["status"]["phase"] != "Succeeded"
        };
        !terms.is_empty()
            && all(pod)
            && !self.pods.values().any(|other| is_there(other) && all(other))
    }

    fn fits(&self, pod: &Value, name: &str, is_first: bool) -> bool {
        let spec: core::PodSpec = serde_json::from_value(pod["spec"].clone()).unwrap();
        let node: core::Node = serde_json::from_value(self.nodes[name].clone()).unwrap();
        let details = crate::view::NodeDetails::from(&node);
        let affinity = spec.affinity.clone().unwrap_or_default();
        let terms = affinity
            .node_affinity
            .and_then(|of| of.required_during_scheduling_ignored_during_execution);
        let selected =
            terms.is_none_or(|terms| selects(&terms.node_selector_terms, name, &details.labels));
        let mut claims = spec
            .volumes
            .iter()
            .flatten()
            .filter_map(|volume| volume.persistent_volume_claim.as_ref());
        let mountable = claims.all(|claim| {
            let Some(claim) = self.claims.get(&claim.claim_name) else { return false };
            let Some(volume) = claim["spec"]["volumeName"].as_str() else { return true };
            let terms =
                self.volumes[volume]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
                    .clone();
            selects(&serde_json::from_value::<Vec<_>>(terms).unwrap(), name, &details.labels)
        });
        let there: Vec<&Value> = self
            .pods
            .values()
            .filter(|other| {
                other["spec"]["nodeName"] == *name && other["status"]["phase"] != "Succeeded"
            })
            .collect();
        let mut free = details.allocatable.clone();
        for other in &there {
            let spec: core::PodSpec = serde_json::from_value(other["spec"].clone()).unwrap();
            free = free.minus(&Resources::requested(&spec));
        }
        let toward = required(pod, "podAffinity");
        let all = |other: &&Value| toward.iter().all(|term| matches(term, other));
        let is_named = details.labels.contains_key("kubernetes.io/hostname");
        let near = toward.is_empty() || is_named && (is_first || there.iter().any(all));
        let far = !required(pod, "podAntiAffinity")
            .iter()
            .any(|term| there.iter().any(|other| matches(term, other)));
        let apart = !there
            .iter()
            .any(|other| required(other, "podAntiAffinity").iter().any(|term| matches(term, pod)));
        let tolerations = spec.tolerations.clone().unwrap_or_default();
        let tolerated = |key: &str, value: &str, effect: &str| {
            effect == "PreferNoSchedule"
                || tolerations.iter().any(|one| tolerates(one, key, value, effect))
        };
        let labelled = spec.node_selector.iter().flatten().all(|(key, value)| {
            details.labels.get(key.as_str()).is_some_and(|own| **own == *value.as_str())
        });
        // A NotReady node is recognized by its taints alone.
        (!details.cordoned || tolerated("node.kubernetes.io/unschedulable", "", "NoSchedule"))
            && details.taints.iter().all(|taint| tolerated(&taint.key, &taint.value, &taint.effect))
            && labelled
            && selected
            && mountable
            && there.len() < details.pod_limit
            && free.covers(&Resources::requested(&spec))
            && near
            && far
            && apart
    }
}

/// What the scheduler says where a pod that one must be beside is not.
const NOT_BESIDE: &str = "2 node(s) didn't match pod affinity rules";

fn matches(term: &core::PodAffinityTerm, other: &Value) -> bool {
    let labels = term.label_selector.as_ref().and_then(|of| of.match_labels.as_ref()).unwrap();
    labels.iter().all(|(key, value)| other["metadata"]["labels"][key] == **value)
}

fn required(pod: &Value, kind: &str) -> Vec<core::PodAffinityTerm> {
    let terms = pod["spec"]["affinity"][kind][REQUIRED].clone();
    serde_json::from_value(terms).unwrap_or_default()
}

/// Whether a pod is a member of a group, and not its placeholder's.
pub(in super::super) fn is_member(pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    !labels[keys::MEMBER].is_null() && labels[keys::PLACEHOLDER].is_null()
}
