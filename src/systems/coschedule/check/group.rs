//! A group that shares a node, as the cluster shows it: its placeholder, its claims and its pods.
//!
//! [`Facts`] are read here. What the controller does about the group is the reconciler's decision,
//! which `explain` reports. `ask` finds what keeps pods out of nodes, by `systems::fit`, and `words`
//! puts that into sentences.

mod ask;
mod claim;
mod explain;
mod pod;
mod words;

pub(in crate::systems::coschedule) use pod::check_pod;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::reconciler;
use crate::kubernetes::{is_finished, node_name};
use crate::placement::affinity::bound_to;
use crate::systems::check::words::scheduler;
use crate::systems::check::{Cluster, Context, Diagnosis};
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::kinds::member::Member;
use crate::systems::coschedule::kinds::placeholder::FIRST;
use crate::systems::coschedule::kinds::placeholder::Placeholder;
use crate::systems::coschedule::policy::{CoscheduleMode, IsolationScope};
use crate::systems::coschedule::reconcile::Explained;
use crate::systems::coschedule::resources::STATEFUL_SET;
use crate::systems::coschedule::{family, mode, volumes};
use crate::systems::fit::{PodNeeds, Volume, Volumes};
use crate::systems::policy::Policy;
use crate::view::Name;

/// A placeholder that exists, or should, with the pods of its group.
pub(super) struct Facts<'c> {
    pub(super) cluster: &'c Cluster,
    policy: &'c Policy,
    pub(super) name: &'c Name,
    /// The claims that it mounts, or would.
    pub(super) claims: Vec<String>,
    /// Those of their volumes that not every node can mount.
    volumes: Volumes<'c>,
    isolated: bool,
    /// The StatefulSet.
    made: Option<&'c Placeholder>,
    pod: Option<&'c Pod>,
    /// What the pod asks for.
    needs: PodNeeds<'c>,
    /// Its members that have a node and have not ended.
    running: Vec<&'c Pod>,
    /// Its members without a node.
    waiting: Vec<&'c Pod>,
    /// What the reconciler would do.
    explained: Option<Explained>,
}

impl<'c> Facts<'c> {
    /// `claims` and `isolated`: what counts while the placeholder does not exist.
    pub(super) fn new(
        context: &Context<'c>,
        name: &'c Name,
        claims: Vec<String>,
        isolated: bool,
    ) -> Self {
        let Context { cluster, policy, .. } = *context;
        let made = cluster.view.placeholder(name);
        let claims = match made {
            Some(made) => made.mounted(name).map(|claim| claim.name.to_string()).collect(),
            None => claims,
        };
        let names = claims.iter().map(|claim| Name::new(&name.namespace, claim));
        let volumes = volumes::of_claims(names, &cluster.view);
        let isolates = |mode: &str| mode::read(mode) == Some(CoscheduleMode::IsolatePipelinerun);
        // Users can set the label of a member.
        let belongs = |of: &Name, member: &Member| {
            made.is_none_or(|made| {
                let run_uid = made.run.as_ref().map(|run| &*run.uid);
                family::belongs(of, member, &name.name, run_uid, &cluster.view)
            })
        };
        let members = cluster.view.members_of(name).filter(|(of, member)| belongs(of, member));
        let members =
            members.filter_map(|(member, _)| cluster.pod(&member.namespace, &member.name));
        // A deleted pod stays for ever on a node whose kubelet is dead.
        let counts = |pod: &&Pod| match node_name(pod) {
            _ if pod.metadata.deletion_timestamp.is_none() => true,
            Some(node) => cluster.is_ready(node),
            None => false,
        };
        let (running, waiting) = members
            .filter(|pod| !is_finished(pod))
            .filter(counts)
            .partition(|pod| node_name(pod).is_some());
        let mode = made.and_then(|made| made.mode.as_deref());
        let pod = cluster.pod(&name.namespace, &format!("{}{FIRST}", name.name));
        let spec = pod.and_then(|pod| pod.spec.as_ref());
        Self {
            cluster,
            policy,
            name,
            claims,
            volumes,
            isolated: mode.map_or(isolated, isolates),
            made,
            pod,
            needs: spec.map(PodNeeds::of_spec).unwrap_or_default(),
            running,
            waiting,
            explained: reconciler::explain(context, name),
        }
    }

    pub(super) fn is_made(&self) -> bool {
        self.made.is_some() || self.pod.is_some()
    }

    /// Whether it is the placeholder of a group that an annotation names.
    fn is_native(&self) -> bool {
        self.made.is_some_and(|made| made.group.is_some())
    }

    /// The node of its pod.
    fn node(&self) -> Option<&'c str> {
        self.pod.filter(|pod| !is_finished(pod)).and_then(node_name)
    }

    /// Whether stowplan put a member where its placeholder is.
    fn is_placed(&self, pod: &Pod) -> bool {
        self.follows(pod) || self.bound_node(pod).is_some()
    }

    fn follows(&self, pod: &Pod) -> bool {
        let details = self.member(pod).and_then(|member| member.details.as_deref());
        details.is_some_and(|details| details.follows)
    }

    fn member(&self, pod: &Pod) -> Option<&'c Member> {
        let name = pod.metadata.name.as_deref()?;
        self.cluster.view.member(&Name::new(&self.name.namespace, name))
    }

    /// The node that a member was bound to by name, instead of following its placeholder.
    fn bound_node(&self, pod: &Pod) -> Option<&'c str> {
        let details = self.member(pod)?.details.as_deref()?;
        let terms = details.terms.as_deref().filter(|_| details.gate.is_none() && !details.follows);
        bound_to(terms?)
    }

    /// What a member asks for, without the node that it was bound to.
    fn needs_of<'p>(&self, pod: &'p Pod) -> PodNeeds<'p> {
        let needs = pod.spec.as_ref().map(PodNeeds::of_spec).unwrap_or_default();
        if self.bound_node(pod).is_some() { needs.without_binding() } else { needs }
    }

    /// Whether isolation keeps it out of a node: its own, or that of a placeholder on the node.
    fn is_isolated_from(&self, node: &str) -> bool {
        let view = &self.cluster.view;
        view.placeholder_pods().any(|(other, pod)| {
            let in_scope = self.policy.coschedule.isolation_scope == IsolationScope::Cluster
                || other.namespace == self.name.namespace;
            let other = Name::new(&other.namespace, &pod.placeholder);
            let mode = || view.placeholder(&other).and_then(|made| made.mode.as_deref());
            let is_isolated =
                || mode().and_then(mode::read) == Some(CoscheduleMode::IsolatePipelinerun);
            pod.place() == Some(node)
                && other != *self.name
                && in_scope
                && (self.isolated || is_isolated())
        })
    }

    /// The volume of a claim, unless every node can mount it.
    fn volume(&self, claim: &str) -> Option<&Volume<'c>> {
        self.volumes.iter().find(|volume| *volume.claim == *claim)
    }

    /// The nodes that can mount a volume.
    fn reach(&self, volume: &Volume<'_>) -> BTreeSet<&'c str> {
        let nodes = self.cluster.candidates();
        let reached = nodes.filter(|of| volume.reaches(of.name, of.view)).map(|of| of.name);
        reached.collect()
    }

    /// What determines the nodes that its pod asks for.
    fn source(&self) -> &'static str {
        if self.is_native() { "the group's pods" } else { "the run's pod template" }
    }

    /// The placeholder itself, and why it is not where it should be.
    pub(super) fn placeholder(&self) -> Diagnosis {
        let mut diagnosis = Diagnosis::new(STATEFUL_SET.kind, self.name);
        diagnosis.scheduler = self.pod.and_then(scheduler);
        diagnosis.placed.extend(self.node().map(|node| format!("node {node}")));
        self.report_pod(&mut diagnosis);
        diagnosis
    }

    /// Reports why the placeholder's pod is not where it should be.
    fn report_pod(&self, diagnosis: &mut Diagnosis) {
        let Name { namespace, name } = self.name;
        let Some(pod) = self.pod else {
            if self.is_made() && self.cluster.knows("Pod") {
                diagnosis.report(
                    "it has no pod: a quota, Pod Security or another admission webhook may forbid it",
                    format!("kubectl describe statefulset {name} -n {namespace}: its events say why"),
                );
            }
            return;
        };
        if pod.metadata.deletion_timestamp.is_some() {
            let text = "its pod is being deleted, and its StatefulSet creates it again";
            diagnosis.decided.push(text.to_owned());
            return;
        }
        match self.node() {
            Some(node) => self.report_placed(node, diagnosis),
            None if is_finished(pod) || self.cluster.has_no_nodes() => {}
            None => self.report_unplaced(diagnosis),
        }
    }

    /// Reports that the placeholder should exist and does not. Its controller writes events about
    /// the object `kind` `name`.
    pub(super) fn report_missing(&self, diagnosis: &mut Diagnosis, kind: &str, name: &str) {
        if self.cluster.knows("StatefulSet") {
            diagnosis.report(
                "it does not exist: the controller has not created it, or may not",
                format!(
                    "kubectl describe {kind} {name} -n {}: its events say why",
                    self.name.namespace
                ),
            );
        }
    }
}
