//! The claims that pods mount, whatever created the pods.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodAffinityTerm, Toleration};

use super::member::runs_for_ever;
use super::unschedulable::Unschedulable;
use crate::kubernetes::{
    self, AboveNodeTerms, affinity, controller, gates, is_finished, kept_texts, label, node_name,
    required_node_terms, required_pod_terms, workload,
};
use crate::systems::coschedule::keys::{CLAIMS_GATE, ONE_NODE_CLAIMS, WAITED, of_claim};
use crate::systems::exclusion::{IGNORE, is_opted_out};
use crate::systems::fit::{self, Candidate, PodNeeds, Question};
use crate::systems::wake::woken;
use crate::systems::{self, View};
use crate::view::index::Sets;
use crate::view::pod::{PODS, all_for_controller};
use crate::view::rows::{RowIndex, Rows, TableRow};
use crate::view::table::Watch;
use crate::view::{Identity, Kind, Name, Scope};

/// A pod that mounts claims and has not ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Mounted {
    pub identity: Identity,
    /// The claims, sorted by name, each once. Those of ephemeral volumes have the pod's name in theirs.
    pub claims: Box<[MountedClaim]>,
    /// The node that it is bound to.
    pub node: Option<Box<str>>,
    /// True if it has labels.
    pub has_labels: bool,
    /// True if its label [`IGNORE`] opts it out: stowplan does not change it.
    pub ignored: bool,
    /// True if it has waited, or waits, behind [`CLAIMS_GATE`], by its label.
    pub has_waited: bool,
    /// True if it is of a DaemonSet, which gives each node one pod: such a pod is left alone.
    pub of_daemon_set: bool,
    /// True if a controller of Kubernetes creates it again if it is deleted, and does not count that as a failure;
    /// and the node that it requires by name is none of its author's choice.
    pub can_be_recreated: bool,
    /// The Deployment that it belongs to.
    pub deployment: Option<Box<str>>,
    /// Set while it has no node.
    pub waiting: Option<Box<Waiting>>,
}

/// A claim that a pod mounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MountedClaim {
    pub name: Box<str>,
    /// True if the pod has the label of the claim.
    pub is_labelled: bool,
    /// True if required pod affinity of the pod selects by the label of the claim.
    pub is_followed: bool,
}

/// The fields of a pod without a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Waiting {
    /// The index of [`CLAIMS_GATE`] among its scheduling gates.
    pub gate: Option<usize>,
    /// True if it has a scheduling gate.
    pub is_gated: bool,
    /// True if it has another scheduling gate, that is removed without regard to [`CLAIMS_GATE`].
    pub has_foreign_gate: bool,
    /// The object below which a patch gives it its first required node term.
    pub above_terms: AboveNodeTerms,
    /// The terms of its required node affinity.
    pub terms: Box<[NodeSelectorTerm]>,
    /// The node selector.
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
    pub tolerations: Box<[Toleration]>,
    /// Set while the scheduler finds no node for it.
    pub unschedulable: Option<Unschedulable>,
    /// When it was last woken, in seconds since 1970.
    pub woken: Option<i64>,
}

impl Waiting {
    /// Returns true if [`CLAIMS_GATE`] or a gate of others keeps it from the scheduler.
    pub(crate) fn is_held(&self) -> bool {
        self.gate.is_some() || self.has_foreign_gate
    }

    /// Returns true if the node selector or node affinity of the pod excludes a node.
    pub(crate) fn excludes(&self, node: &str, view: &View) -> bool {
        let needs = PodNeeds {
            node_selector: self
                .node_selector
                .iter()
                .map(|(key, value)| (&**key, &**value))
                .collect(),
            node_terms: Some(Cow::Borrowed(&*self.terms)).filter(|terms| !terms.is_empty()),
            ..PodNeeds::default()
        };
        let excludes = |candidate| {
            fit::first_obstacle(&Question::new(candidate, &needs), fit::CHOICE).is_some()
        };
        Candidate::find(node, view).is_some_and(excludes)
    }

    fn read(pod: &core::Pod) -> Self {
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.clone());
        Self {
            gate: gates(pod).position(|gate| gate == CLAIMS_GATE),
            is_gated: gates(pod).next().is_some(),
            has_foreign_gate: gates(pod).any(|gate| {
                gate != CLAIMS_GATE && systems::gate(gate).is_none_or(|known| !known.is_last)
            }),
            above_terms: AboveNodeTerms::from(pod),
            terms: required_node_terms(affinity(pod)).unwrap_or_default().into(),
            node_selector: kept_texts(
                pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref()),
            ),
            tolerations: tolerations.unwrap_or_default().into(),
            unschedulable: Unschedulable::read(pod),
            woken: woken(pod),
        }
    }
}

impl MountedClaim {
    fn read(pod: &core::Pod, name: String) -> Self {
        let key = of_claim(&name);
        let selects = |term: &PodAffinityTerm| {
            let selector = term.label_selector.as_ref();
            let expressions = selector.and_then(|selector| selector.match_expressions.as_ref());
            expressions.into_iter().flatten().any(|of| of.key == key)
        };
        Self {
            name: name.into(),
            is_labelled: label(&pod.metadata, &key).is_some(),
            is_followed: required_pod_terms(affinity(pod)).iter().any(selects),
        }
    }
}

impl Mounted {
    /// Returns true if its gate is removed and it has no node yet: later pods of its claims wait for it.
    pub(crate) fn is_on_its_way(&self) -> bool {
        self.has_waited && self.waiting.as_ref().is_some_and(|of| !of.is_held())
    }
}

/// The table of such pods; at admission, of those that have waited behind [`CLAIMS_GATE`].
pub(crate) type Mounts = Rows<Mounted, Sets<Name>>;

impl TableRow for Mounted {
    type Object = core::Pod;
    const KIND: &'static Kind = &PODS;

    fn watches(scope: Scope) -> Vec<Watch> {
        let selector = ONE_NODE_CLAIMS.into();
        match scope {
            Scope::Admission => vec![Watch { store: "pods that waited for claims", selector }],
            _ => all_for_controller(scope),
        }
    }

    fn from_object(pod: &core::Pod, scope: Scope) -> Option<Self> {
        let is_kept = scope != Scope::Admission || label(&pod.metadata, ONE_NODE_CLAIMS).is_some();
        let spec = pod.spec.as_ref().filter(|_| is_kept && !is_finished(pod))?;
        let mut names: Vec<String> = kubernetes::claims(spec).map(ToOwned::to_owned).collect();
        let own = pod.metadata.name.as_deref().unwrap_or_default();
        let made = spec.volumes.iter().flatten().filter(|volume| volume.ephemeral.is_some());
        names.extend(made.map(|volume| format!("{own}-{}", volume.name)));
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return None;
        }
        let node = node_name(pod);
        let deployment = workload(&pod.metadata).filter(|(kind, _)| *kind == "Deployment");
        Some(Self {
            identity: Identity::from(&pod.metadata),
            claims: names.into_iter().map(|name| MountedClaim::read(pod, name)).collect(),
            node: node.map(Into::into),
            has_labels: pod.metadata.labels.as_ref().is_some_and(|labels| !labels.is_empty()),
            ignored: is_opted_out(label(&pod.metadata, IGNORE)),
            has_waited: label(&pod.metadata, ONE_NODE_CLAIMS).is_some(),
            of_daemon_set: controller(&pod.metadata).is_some_and(|of| of.kind == "DaemonSet"),
            can_be_recreated: runs_for_ever(&pod.metadata)
                && label(&pod.metadata, ONE_NODE_CLAIMS) == Some(WAITED),
            deployment: deployment.map(|(_, name)| name.into()),
            waiting: node.is_none().then(|| Box::new(Waiting::read(pod))),
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

/// Pods are found by each of their claims.
impl RowIndex<Mounted> for Sets<Name> {
    fn add(&mut self, pod: &Name, mounted: &Mounted) {
        for claim in &mounted.claims {
            Self::add(self, Name::new(&pod.namespace, &claim.name), pod);
        }
    }

    fn remove(&mut self, pod: &Name, mounted: Mounted) {
        for claim in mounted.claims {
            Self::remove(self, Name::new(&pod.namespace, &claim.name), pod);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::systems;
    use crate::systems::View;
    use crate::view::resource::POD;

    #[test]
    fn claims_are_mounted_until_their_last_pod_ends() {
        let pod = |name: &str, claims: &[&str], phase: &str| {
            let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
            let pod = json!({
                "metadata": {"name": name, "namespace": "ns"}, "status": {"phase": phase},
                "spec": {"containers": [], "volumes": claims.iter().map(volume).collect::<Vec<_>>()},
            });
            let pod: core::Pod = serde_json::from_value(pod).unwrap();
            systems::project(&pod, Scope::Controller)
        };
        let mounted =
            |view: &View| ["c", "d", "e"].map(|claim| view.is_mounted(&Name::new("ns", claim)));
        let mut view = View::default();
        view.apply(pod("p", &["c", "d", "c"], "Pending").unwrap());
        view.apply(pod("q", &["c"], "Running").unwrap());
        assert_eq!(mounted(&view), [true, true, false]);
        assert!(!view.is_mounted(&Name::new("other", "c")));
        view.apply(pod("p", &["e"], "Pending").unwrap());
        assert_eq!(mounted(&view), [true, false, true]);
        assert!(pod("q", &["c"], "Succeeded").is_none(), "an ended pod is not kept");
        view.forget(&POD, &Name::new("ns", "q"));
        view.forget(&POD, &Name::new("ns", "p"));
        let mounts = &view.mounts;
        assert!(mounts.iter().count() == 0 && mounts.index().is_empty(), "{mounts:?}");
    }
}
