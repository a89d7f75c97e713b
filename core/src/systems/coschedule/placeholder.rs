//! Writes the placeholder of a group: a StatefulSet with one pod that mounts the group's claims and that
//! the group's members follow. The document depends only on [`Desired`] and the [`PodPlan`].
//!
//! The fields that Tekton's own affinity assistant copies from a run's pod template are copied.
//! Differences from that: an update waits until the pod is deleted (`OnDelete`), because a rolling update
//! would separate it from running members; a pending pod does not delay an update (`Parallel`); claims
//! are mounted; and the pod is held to the node of its members, so that the group is not split if it is
//! deleted. The hold is a required pod affinity to the pods of the group. The placeholder's pod is one of
//! them, so that it may run on any node while it is the only one.

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::NodeSelectorTerm;
use serde_json::{Value, json};

use super::groups::{Group, Groups, Leader};
use super::keys::{
    COMPONENT, COMPONENT_VALUE, GROUP, INSTANCE, MEMBER, MODE, PLACEHOLDER, PLAN, RECORD,
    SERVED_GROUP, SERVED_RUN,
};
use super::kinds::{PipelineRun, Placeholder};
use super::mode;
use super::pod_plan::{Added, PodPlan};
use crate::kubernetes::{HOSTNAME, PREFERRED, REQUIRED};
use crate::names::is_label_name;
use crate::systems::coschedule::policy::{
    IsolationScope, Placeholder as PlaceholderPolicy, Requests,
};
use crate::systems::pause::{self, KEEPS_NODE};
use crate::systems::plan::operation::add;
use crate::view::{Name, Resources};

/// The fields of a pod template that are copied to the placeholder.
const COPIED: [&str; 5] =
    ["tolerations", "imagePullSecrets", "priorityClassName", "nodeSelector", "securityContext"];

/// A placeholder that should exist. Its StatefulSet is written from this and the plan.
#[derive(Clone, Debug)]
pub(crate) struct Desired<'v> {
    pub name: Name,
    /// The group that it is for.
    pub cause: Cause<'v>,
    /// The claims that it mounts by name.
    pub claims: Vec<&'v str>,
    /// The claims that its StatefulSet creates: the name of the run's claim, and Tekton's template.
    pub templates: Vec<(String, &'v Value)>,
    /// The placeholders that may not be on its node: those of the namespace, or of the cluster.
    pub isolation: Option<IsolationScope>,
    /// True if autoscalers leave the node of its pod alone at first.
    pub keeps_node: bool,
    /// The node requirements of its members beyond the pod template. `None`: gates of others hold all of them, there is
    /// no member, or those of a run's are too long for an annotation.
    pub added: Option<Added>,
    /// The earlier groups that use its claims, the earliest first.
    pub leaders: Vec<Leader>,
}

/// The group that a placeholder is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'v> {
    /// A group of a PipelineRun, which owns it.
    Run(&'v Run<'v>, &'v Group),
    /// A native group.
    Native(&'v str),
}

/// An active root run.
#[derive(Debug)]
pub(crate) struct Run<'v> {
    pub name: &'v Name,
    pub run: &'v PipelineRun,
    pub groups: Groups,
    /// True if it has a TaskRun.
    pub has_started: bool,
}

impl<'v> Desired<'v> {
    /// Returns the run whose group it is for.
    pub(crate) fn run(&self) -> Option<&'v Run<'v>> {
        match self.cause {
            Cause::Run(run, _) => Some(run),
            Cause::Native(_) => None,
        }
    }

    /// Returns the pod template of its run.
    fn template(&self) -> Option<&'v Value> {
        self.run()?.run.template.document.as_deref()
    }

    /// The plan of a new placeholder, which must be on the node `only`, if given, and reserves this room.
    pub(crate) fn first_plan(&self, only: Option<Box<str>>, room: Option<Resources>) -> PodPlan {
        let claims = self.claims.iter().map(|claim| (*claim).into()).collect();
        let (held, added) = (self.can_be_held(), self.added.clone().unwrap_or_default());
        PodPlan { only, held, claims, room, added, ..PodPlan::default() }
    }

    /// The StatefulSet with a pod template of this plan.
    pub(crate) fn document(&self, plan: &PodPlan, policy: &PlaceholderPolicy) -> Value {
        let (namespace, name) = (&*self.name.namespace, &*self.name.name);
        let selector = json!({COMPONENT: COMPONENT_VALUE, INSTANCE: name});
        let mut labels = selector.clone();
        labels[PLACEHOLDER] = json!(name);
        let (key, served) = match &self.cause {
            Cause::Run(run, _) => (SERVED_RUN, &*run.name.name),
            Cause::Native(group) => (SERVED_GROUP, *group),
        };
        // The name of a run can be longer than a label's value.
        if is_label_name(served) {
            labels[key] = json!(served);
        }
        let mut pod_labels = labels.clone();
        pod_labels[MEMBER] = json!(name);
        let mut metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        match &self.cause {
            Cause::Run(run, group) => {
                let mode = mode::word(run.groups.mode);
                metadata["annotations"] = json!({MODE: mode, RECORD: group.record().text()});
                let mut owner = reference(run);
                // It must not delay the deletion of its run.
                owner["blockOwnerDeletion"] = json!(false);
                owner["controller"] = json!(true);
                metadata["ownerReferences"] = json!([owner]);
            }
            Cause::Native(group) => metadata["annotations"] = json!({GROUP: group}),
        }
        let mut annotations = json!({PLAN: plan.text()});
        for (key, value) in KEEPS_NODE.into_iter().filter(|_| self.keeps_node) {
            annotations[key] = json!(value);
        }
        json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "serviceName": "",
                "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": "OnDelete"},
                "selector": {"matchLabels": selector},
                "template": {
                    "metadata": {"annotations": annotations, "labels": pod_labels},
                    "spec": self.pod(plan, policy),
                },
                "volumeClaimTemplates": self.claim_templates(),
            },
        })
    }

    fn pod(&self, plan: &PodPlan, policy: &PlaceholderPolicy) -> Value {
        let mut pod = json!({
            "volumes": volumes(&plan.claims),
            "affinity": self.affinity(plan),
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
        });
        for key in COPIED {
            let own = self.template().and_then(|template| template.get(key));
            own.filter(|own| !own.is_null()).into_iter().for_each(|own| pod[key] = own.clone());
        }
        if !plan.added.tolerations.is_empty() {
            pod["tolerations"] = self.tolerations(plan);
        }
        if !policy.priority_class_name.is_empty() && pod["priorityClassName"].is_null() {
            pod["priorityClassName"] = json!(policy.priority_class_name);
        }
        if let Cause::Run(run, group) = self.cause {
            if !group.node_selector.is_empty() {
                let labels = group.node_selector.iter();
                let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key, value)).collect();
                pod["nodeSelector"] = json!(labels);
            }
            if let Some(account) = &run.run.service_account {
                pod["serviceAccountName"] = json!(account);
            }
        }
        if let Some(selector) = self.native_selector(plan) {
            pod["nodeSelector"] = selector;
        }
        let system = plan.added.labels.get("kubernetes.io/os").map(AsRef::as_ref);
        let system = system.or_else(|| pod["nodeSelector"]["kubernetes.io/os"].as_str());
        let is_windows = system == Some("windows");
        // The run's volumes or the cluster may need the run's own user. Root is not allowed.
        let has_user = pod["securityContext"]["runAsUser"].as_i64().is_some_and(|user| user != 0);
        let mut container = pause::container(COMPONENT_VALUE, &policy.image, is_windows, has_user);
        container["resources"] = resources(plan.room.as_ref(), &policy.requests);
        let templates = self.templates.iter().map(|(claim, _)| super::keys::template(claim));
        container["volumeMounts"] = json!(mounts(&plan.claims, &templates.collect::<Vec<_>>()));
        pod["containers"] = json!([container]);
        pod
    }

    /// The operations that write another plan into the pod template of a StatefulSet.
    pub(crate) fn rewrite(
        &self,
        placeholder: &Placeholder,
        plan: &PodPlan,
        requests: &Requests,
    ) -> Vec<PatchOperation> {
        const TEMPLATE: [&str; 2] = ["spec", "template"];
        let at = |path: &[&str], value: Value| add(&[&TEMPLATE[..], path].concat(), value);
        let Placeholder { templates, plan: former, details, .. } = placeholder;
        let is_annotated = details.as_ref().is_some_and(|details| details.has_annotations);
        let mut operations = vec![
            // Its selector requires that it has labels.
            at(&["metadata", "labels", MEMBER], json!(*self.name.name)),
            match is_annotated {
                true => at(&["metadata", "annotations", PLAN], json!(plan.text())),
                false => at(&["metadata", "annotations"], json!({PLAN: plan.text()})),
            },
            at(&["spec", "containers", "0", "resources"], resources(plan.room.as_ref(), requests)),
            at(&["spec", "volumes"], json!(volumes(&plan.claims))),
            at(
                &["spec", "containers", "0", "volumeMounts"],
                json!(mounts(&plan.claims, templates)),
            ),
            at(&["spec", "affinity"], self.affinity(plan)),
        ];
        let former = former.as_ref().map(|former| &*former.added.tolerations);
        if *plan.added.tolerations != *former.unwrap_or_default() {
            operations.push(at(&["spec", "tolerations"], self.tolerations(plan)));
        }
        operations.extend(self.native_selector(plan).map(|it| at(&["spec", "nodeSelector"], it)));
        operations
    }

    /// The node selector of a native group's placeholder, where earlier releases have it, too: they keep it if they
    /// cannot read the plan.
    fn native_selector(&self, plan: &PodPlan) -> Option<Value> {
        matches!(self.cause, Cause::Native(_)).then(|| json!(plan.added.labels))
    }

    /// The tolerations of the template, and those of the plan.
    fn tolerations(&self, plan: &PodPlan) -> Value {
        let own = self.template().and_then(|template| template["tolerations"].as_array());
        let mut tolerations = own.cloned().unwrap_or_default();
        let added = plan.added.tolerations.iter().filter(|added| !tolerations.contains(added));
        let added: Vec<Value> = added.cloned().collect();
        tolerations.extend(added);
        Value::Array(tolerations)
    }

    fn claim_templates(&self) -> Vec<Value> {
        let templates = self.templates.iter().map(|(claim, template)| {
            let map = |key: &str| template["metadata"][key].as_object().cloned();
            let [mut labels, mut annotations] =
                ["labels", "annotations"].map(|key| map(key).unwrap_or_default());
            labels.insert(PLACEHOLDER.to_owned(), json!(*self.name.name));
            let mut metadata = json!({"name": super::keys::template(claim), "labels": labels});
            if let Some(run) = self.run() {
                // Without `blockOwnerDeletion`: the StatefulSet controller may not set it.
                metadata["ownerReferences"] = json!([reference(run)]);
                // The mode decides whether the claim is deleted when the run has ended. By then the
                // placeholder does not exist, and the effective mode may have changed.
                annotations.insert(MODE.to_owned(), json!(mode::word(run.groups.mode)));
            }
            metadata["annotations"] = json!(annotations);
            json!({"metadata": metadata, "spec": template["spec"]})
        });
        templates.collect()
    }

    /// The required node terms of the template, or those of its members. `None` without valid ones.
    pub(crate) fn node_terms(&self, added: &Added) -> Option<Vec<NodeSelectorTerm>> {
        let terms = match self.template() {
            Some(own) => {
                own["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].as_array()?
            }
            None => &added.terms,
        };
        let terms = serde_json::from_value(Value::Array(terms.clone())).ok();
        terms.filter(|terms: &Vec<_>| !terms.is_empty())
    }

    /// Returns true if a plan can hold the placeholder to its members. Not if the run's pod template has required
    /// pod affinity: the scheduler lets the first pod of a group run on any node only if the pod matches
    /// all of its required terms itself. Members of such a run require the placeholder's node by name.
    pub(crate) fn can_be_held(&self) -> bool {
        let affinity =
            self.template().map(|template| &template["affinity"]["podAffinity"][REQUIRED]);
        affinity.is_none_or(|own| own.is_null() || own.as_array().is_some_and(Vec::is_empty))
    }

    /// The affinity: the terms of the template, then those of the plan.
    fn affinity(&self, plan: &PodPlan) -> Value {
        let own = self.template().map(|template| &template["affinity"]);
        let own = own.filter(|affinity| affinity.is_object());
        let mut affinity = own.cloned().unwrap_or_else(|| json!({}));
        // No preference for nodes without others: an autoscaler would make a node for each placeholder. What
        // they request spreads them.
        if let Some(scope) = self.isolation {
            // Placeholders and members have the label. One term for both: after the end of a pod that matches
            // not all terms, the scheduler would not try the placeholder again for five minutes.
            let of_groups = json!({"key": MEMBER, "operator": "Exists"});
            let of_others =
                json!({"key": MEMBER, "operator": "NotIn", "values": [*self.name.name]});
            let mut others = json!({
                "labelSelector": {"matchExpressions": [of_groups, of_others]},
                "topologyKey": HOSTNAME,
            });
            if scope == IsolationScope::Cluster {
                others["namespaceSelector"] = json!({});
            }
            append(&mut affinity["podAntiAffinity"], REQUIRED, others);
        }
        if !plan.added.terms.is_empty() {
            affinity["nodeAffinity"] = json!({REQUIRED: {"nodeSelectorTerms": plan.added.terms}});
        }
        if let Some(node) = &plan.only {
            require(&mut affinity, "matchFields", &[on_node("In", node)]);
        }
        if self.run().is_some() && !plan.added.labels.is_empty() {
            let labels = plan.added.labels.iter();
            let labels =
                labels.map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
            require(&mut affinity, "matchExpressions", &labels.collect::<Vec<_>>());
        }
        if !plan.avoid.is_empty() {
            let others: Vec<Value> = plan.avoid.iter().map(|node| on_node("NotIn", node)).collect();
            let preferred = json!({"weight": OTHERS, "preference": {"matchFields": others}});
            append(&mut affinity["nodeAffinity"], PREFERRED, preferred);
        }
        let members = json!({
            "labelSelector": {"matchLabels": {MEMBER: *self.name.name}},
            "topologyKey": HOSTNAME,
        });
        match plan.held && self.can_be_held() {
            true => append(&mut affinity["podAffinity"], REQUIRED, members),
            false => append(
                &mut affinity["podAffinity"],
                PREFERRED,
                json!({"weight": MEMBERS, "podAffinityTerm": members}),
            ),
        }
        affinity
    }
}

/// The resources of its container, with which it reserves this room. Without room it has limits, because a
/// namespace's quota may require them. With room it has none of cpu and memory, because they could not be
/// lowered with the requests: that would need a limit that stays above the room, which counts against a quota.
pub(crate) fn resources(room: Option<&Resources>, requests: &Requests) -> Value {
    match room.filter(|room| !room.is_zero()) {
        Some(room) => pause::resources(&requests.amounts().plus(room)),
        None => {
            let own = json!({"cpu": requests.cpu.as_str(), "memory": requests.memory.as_str()});
            json!({"requests": own, "limits": own})
        }
    }
}

/// The weight of preferring the node of the members, if the placeholder is not held to them.
const MEMBERS: u32 = 100;

/// The weight of preferring other nodes than those that it left.
const OTHERS: u32 = 100;

fn append(affinity: &mut Value, list: &str, item: Value) {
    if !affinity.is_object() {
        *affinity = json!({});
    }
    match affinity[list].as_array_mut() {
        Some(items) => items.push(item),
        None => affinity[list] = json!([item]),
    }
}

/// Adds requirements to the list `part` of every required node term, or as the only term.
fn require(affinity: &mut Value, part: &str, requirements: &[Value]) {
    if !affinity["nodeAffinity"].is_object() {
        affinity["nodeAffinity"] = json!({});
    }
    let required = &mut affinity["nodeAffinity"][REQUIRED];
    if required["nodeSelectorTerms"].as_array().is_none_or(Vec::is_empty) {
        *required = json!({"nodeSelectorTerms": [{}]});
    }
    let Some(terms) = required["nodeSelectorTerms"].as_array_mut() else { return };
    for term in terms.iter_mut().filter(|term| term.is_object()) {
        match term[part].as_array_mut() {
            Some(present) => present.extend_from_slice(requirements),
            None => term[part] = json!(requirements),
        }
    }
}

fn on_node(operator: &str, node: &str) -> Value {
    json!({"key": "metadata.name", "operator": operator, "values": [node]})
}

fn reference(Run { name, run, .. }: &Run<'_>) -> Value {
    let uid = &run.identity.uid;
    json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": *name.name, "uid": uid})
}

/// The volumes of these claims.
fn volumes(claims: &[Box<str>]) -> Vec<Value> {
    let volume = |(index, claim): (usize, &str)| {
        let name = format!("workspace-{index}");
        json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
    };
    claims.iter().map(AsRef::as_ref).enumerate().map(volume).collect()
}

/// The mounts of these claims, and of those from the claim templates with these names.
fn mounts(claims: &[Box<str>], templates: &[impl AsRef<str>]) -> Vec<Value> {
    let mount = |volume: &str, folder: &str, index: usize| json!({"name": volume, "mountPath": format!("/{folder}/{index}"), "readOnly": true});
    let named =
        (0..claims.len()).map(|index| mount(&format!("workspace-{index}"), "claims", index));
    let templates = templates.iter().enumerate();
    let from_templates = templates.map(|(index, volume)| mount(volume.as_ref(), "made", index));
    named.chain(from_templates).collect()
}

#[cfg(test)]
mod tests;
