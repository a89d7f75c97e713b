//! A group that shares a node, as the cluster shows it: its placeholder, its claims and its pods.
//!
//! The reconciler decides what the controller does about the group. It is asked for its decision, which is
//! explained. `placeholder`: why it has no node, or should leave it. `member`: the pods of the group.

mod member;
mod placeholder;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;

use crate::kubernetes::{claims, is_finished, node_name};
use crate::systems::check::words::{SEE_CONTROLLER, counted, some};
use crate::systems::check::{Cluster, Context, Diagnosis};
use crate::systems::coschedule::groups::Group;
use crate::systems::coschedule::kinds::{FIRST, Placeholder, pod_of};
use crate::systems::coschedule::pod_plan::PodPlan;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::reconcile::{self, Explained};
use crate::systems::coschedule::resources::CLAIM;
use crate::systems::coschedule::{keys, mode, volumes};
use crate::systems::fit::{Candidate, PodNeeds, Volumes};
use crate::view::Name;

/// A group whose placeholder exists, or should.
pub(super) struct CheckedGroup<'c> {
    context: Context<'c>,
    pub(super) cluster: &'c Cluster,
    pub(super) name: &'c Name,
    /// Its group, if that is of a run.
    group: Option<&'c Group>,
    /// The claims that it mounts, or would.
    claims: Vec<Name>,
    /// The volumes of these that not every node can mount.
    volumes: Volumes<'c>,
    isolated: bool,
    /// The StatefulSet.
    made: Option<&'c Placeholder>,
    pod: Option<&'c Pod>,
    /// The requirements of the pod.
    needs: PodNeeds<'c>,
    /// The reconciler's decision; `None` if the group has ended.
    pub(super) explained: Option<Explained>,
}

impl<'c> CheckedGroup<'c> {
    /// `group`: that of a run. Its claims and its mode count while the placeholder does not exist.
    pub(super) fn new(context: &Context<'c>, name: &'c Name, group: Option<&'c Group>) -> Self {
        let cluster = context.cluster;
        let made = cluster.view.placeholder(name);
        let claims: Vec<Name> = match made {
            Some(made) => made.mounted(name).collect(),
            None => {
                let claims = group.into_iter().flat_map(|group| &group.claims);
                claims.map(|claim| Name::new(&name.namespace, &claim.name)).collect()
            }
        };
        let isolated = group.is_some_and(|group| group.isolated);
        let volumes = volumes::of_claims(&claims, &cluster.view);
        let pod = cluster.pod(&name.namespace, &pod_of(name).name);
        let spec = pod.and_then(|pod| pod.spec.as_ref());
        Self {
            context: *context,
            cluster,
            name,
            group,
            claims,
            volumes,
            isolated: made.and_then(|made| made.mode.as_deref()).map_or(isolated, is_isolated),
            made,
            pod,
            needs: spec.map(PodNeeds::of_spec).unwrap_or_default(),
            explained: explain(context, name),
        }
    }

    pub(super) fn is_made(&self) -> bool {
        self.made.is_some() || self.pod.is_some()
    }

    /// Returns true if it is the placeholder of a group that an annotation names.
    fn is_native(&self) -> bool {
        self.made.is_some_and(|made| made.group.is_some())
    }

    /// The node of its pod.
    fn node(&self) -> Option<&'c str> {
        self.pod.filter(|pod| !is_finished(pod)).and_then(node_name)
    }

    /// The plan of its pod template.
    fn plan(&self) -> Option<&'c PodPlan> {
        self.made?.plan.as_deref()
    }

    /// The command that shows what the scheduler reports about its pod.
    fn describe_pod(&self) -> String {
        format!("kubectl describe pod {}{FIRST} -n {}", self.name.name, self.name.namespace)
    }
}

impl CheckedGroup<'_> {
    /// The claims of the group.
    pub(super) fn claim_parts(&self) -> impl Iterator<Item = Diagnosis> {
        self.claims.iter().map(|claim| self.claim(claim))
    }

    /// Returns true if Tekton creates a claim from a template.
    fn is_of_template(&self, claim: &str) -> bool {
        let mut claims = self.group.into_iter().flat_map(|group| &group.claims);
        claims.any(|own| own.template && *own.name == *claim)
    }

    fn claim(&self, name: &Name) -> Diagnosis {
        let (namespace, claim) = (&name.namespace, &*name.name);
        let mut diagnosis = Diagnosis::new(CLAIM.kind, name);
        let Some(known) = self.cluster.view.claim(name) else {
            if self.cluster.knows(CLAIM.kind) {
                let (what, remedy) = if self.is_of_template(claim) {
                    ("Tekton has not created it yet", format!("kubectl get events -n {namespace}"))
                } else {
                    ("it does not exist", "create it, or let the run name another".to_owned())
                };
                diagnosis.report(what, remedy);
            }
            return diagnosis;
        };
        let class = known.class.as_deref().filter(|class| !class.is_empty());
        diagnosis
            .asked
            .push(class.map_or_else(|| "no class".to_owned(), |class| format!("class {class}")));
        match (&known.volume, known.bound) {
            (Some(volume), true) => {
                let mut volumes = self.volumes.iter();
                let restricted = volumes.find(|volume| *volume.claim == *claim);
                let can_mount =
                    |node: &Candidate<'_>| restricted.is_none_or(|volume| volume.reaches(*node));
                let (nodes, others): (Vec<_>, Vec<_>) =
                    self.cluster.candidates().partition(can_mount);
                let names: Vec<&str> = nodes.iter().map(|node| node.name).collect();
                let place = match names.len() {
                    _ if others.is_empty() => "any node".to_owned(),
                    0 => "no node".to_owned(),
                    count => format!("{}: {}", counted(count, "node"), some(&names)),
                };
                diagnosis.placed.push(format!("volume {volume}, on {place}"));
                if names.is_empty() && !others.is_empty() {
                    diagnosis.report(
                        format!("volume {volume} can be mounted on none of the nodes"),
                        format!(
                            "kubectl describe pv {volume}: bring a node of its node affinity back"
                        ),
                    );
                }
            }
            _ if class == Some(keys::PARKED) => {
                diagnosis
                    .decided
                    .push("parked: the placeholder's own claim takes its place".to_owned());
            }
            _ => self.report_unbound(&mut diagnosis, class, claim),
        }
        self.report_use_elsewhere(&mut diagnosis, claim, known.access.needs_one_node());
        diagnosis
    }

    fn report_unbound(&self, diagnosis: &mut Diagnosis, class: Option<&str>, claim: &str) {
        let known = class.and_then(|class| self.cluster.view.storage_class(class));
        match (class, known) {
            (_, Some(known)) if known.waits => {
                diagnosis
                    .placed
                    .push("no volume yet: it is created where the placeholder is".to_owned());
            }
            (Some(class), None) if self.cluster.knows("StorageClass") => diagnosis.report(
                format!("it has no volume, and StorageClass {class} does not exist"),
                "create the class, or create the claim again with another",
            ),
            _ => diagnosis.report(
                "it has no volume yet, and does not wait for a pod",
                format!("kubectl describe pvc {claim} -n {}", self.name.namespace),
            ),
        }
    }

    /// A volume that one node uses at a time, in use on another.
    fn report_use_elsewhere(&self, diagnosis: &mut Diagnosis, claim: &str, one_node: bool) {
        let (Some(pod), Some(node)) = (self.pod, self.node()) else { return };
        let uses = |other: &&Pod| {
            let spec = other.spec.as_ref();
            spec.is_some_and(|spec| claims(spec).any(|own| own == claim))
        };
        let elsewhere = self
            .cluster
            .others(&self.name.namespace, pod)
            .filter(uses)
            .find_map(|other| Some((other, node_name(other).filter(|other| *other != node)?)));
        if let Some((other, where_)) = elsewhere.filter(|_| one_node) {
            let other = other.metadata.name.as_deref().unwrap_or_default();
            diagnosis.report(
                format!("pod {other} uses it on node {where_}, and one node uses it at a time"),
                format!("wait until pod {other} has ended"),
            );
        }
    }
}

/// Asks the reconciler about a placeholder. It reports and moves nothing before the grace period has
/// passed, so it decides as if that had passed and nothing had changed.
fn explain(context: &Context<'_>, placeholder: &Name) -> Option<Explained> {
    let Context { cluster, policy, now, .. } = *context;
    let grace = SignedDuration::try_from(policy.coschedule.grace_period.length()).ok();
    let then = grace.and_then(|grace| now.checked_add(grace).ok()).unwrap_or(now);
    reconcile::explain(&cluster.view, policy, then, placeholder)
}

/// Returns true if the groups of this mode are isolated.
fn is_isolated(mode: &str) -> bool {
    mode::read(mode) == Some(CoscheduleMode::IsolatePipelinerun)
}

/// The remedy if the controller is about to act.
fn wait_a_moment() -> String {
    format!("wait a moment; if it stays, {SEE_CONTROLLER}")
}
