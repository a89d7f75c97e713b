//! A group that shares a node, as the cluster shows it: its placeholder, its claims and its pods.
//!
//! The reconciler decides what the controller does about the group. It is asked for its decision, which is
//! explained. `placed`: a placeholder on a node. `unplaced`: one without a node, and what keeps it
//! out of each node. `member`: the pods of the group. `claim`: its claims. `pod`: finds the group of
//! any pod.

mod claim;
mod member;
mod placed;
mod pod;
mod unplaced;

pub(in crate::systems::coschedule) use pod::check_pod;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;

use crate::kubernetes::{gates, is_finished, node_name};
use crate::systems::check::gates::report_foreign;
use crate::systems::check::words::{SEE_CONTROLLER, scheduler};
use crate::systems::check::{Cluster, Context, Diagnosis};
use crate::systems::coschedule::groups::Group;
use crate::systems::coschedule::keys::FAILED;
use crate::systems::coschedule::kinds::placeholder::{FIRST, Placeholder};
use crate::systems::coschedule::pod_plan::PodPlan;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::reconcile::{self, Explained, reason};
use crate::systems::coschedule::{mode, volumes};
use crate::systems::fit::{PodNeeds, Volumes};
use crate::view::Name;
use crate::view::resource::STATEFUL_SET;

/// A group whose placeholder exists, or should.
pub(super) struct CheckedGroup<'c> {
    context: Context<'c>,
    pub(super) cluster: &'c Cluster,
    pub(super) name: &'c Name,
    /// Its group, if that is of a run.
    group: Option<&'c Group>,
    /// The claims that it mounts, or would.
    claims: Vec<String>,
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
        let claims: Vec<String> = match made {
            Some(made) => made.mounted(name).map(|claim| claim.name.to_string()).collect(),
            None => {
                let claims = group.into_iter().flat_map(|group| &group.claims);
                claims.map(|claim| claim.name.to_string()).collect()
            }
        };
        let isolated = group.is_some_and(|group| group.isolated);
        let names = claims.iter().map(|claim| Name::new(&name.namespace, claim));
        let volumes = volumes::of_claims(names, &cluster.view);
        let pod = cluster.pod(&name.namespace, &format!("{}{FIRST}", name.name));
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

    /// The diagnosis of the placeholder itself: why it is not where it should be.
    pub(super) fn placeholder(&self) -> Diagnosis {
        let Name { namespace, name } = self.name;
        let mut diagnosis = Diagnosis::new(STATEFUL_SET.kind, self.name);
        diagnosis.scheduler = self.pod.and_then(scheduler);
        diagnosis.autoscaler = self.pod.and_then(|pod| self.cluster.autoscaler(pod));
        diagnosis.placed.extend(self.node().map(|node| format!("node {node}")));
        let details = self.made.and_then(|made| made.details.as_deref());
        if let Some(since) = details.and_then(|details| details.time(FAILED)) {
            diagnosis.decided.push(format!(
                "it stepped aside at {since}, because a quota or a queue had no room for it beside a pod of its group, or its pod template could not be changed: the pods of the group run beside each other"
            ));
            return diagnosis;
        }
        match (self.pod, self.node()) {
            (None, _) if self.is_made() && self.cluster.knows("Pod") => diagnosis.report(
                "it has no pod: a quota, Pod Security, a priority class that does not exist or another admission webhook may forbid it",
                format!("kubectl describe statefulset {name} -n {namespace}: its events say why"),
            ),
            (None, _) => {
                let held_by = self.explained.as_ref().and_then(|of| of.held_by.as_deref());
                diagnosis.decided.extend(held_by.map(|gate| {
                    format!("it is created when the scheduling gate {gate} releases a pod of the group")
                }));
            }
            (Some(pod), _) if pod.metadata.deletion_timestamp.is_some() => {
                let text = "its pod is being deleted, and its StatefulSet creates it again";
                diagnosis.decided.push(text.to_owned());
            }
            // The reconciler takes unknown nodes for deleted ones.
            _ if self.cluster.has_no_nodes() => {}
            (_, Some(node)) => self.report_placed(node, &mut diagnosis),
            (Some(pod), None) if is_finished(pod) => {}
            // Placeholders have no gates of stowplan's.
            (Some(pod), None) if gates(pod).next().is_some() => {
                report_foreign(&mut diagnosis, pod, self.cluster);
            }
            (_, None) => {
                let room = self.plan().and_then(|plan| plan.room.as_ref());
                let room = room.filter(|room| !room.is_zero());
                let reserves = |room| format!("reserves {room} for its group");
                diagnosis.decided.extend(room.map(reserves));
                self.report_unplaced(&mut diagnosis);
            }
        }
        diagnosis
    }

    /// Reports that the placeholder should exist and does not. Its controller writes events about
    /// the object `kind` `name`.
    pub(super) fn report_missing(&self, diagnosis: &mut Diagnosis, kind: &str, name: &str) {
        let refused = self.cluster.warning(self.name, reason::PLACEHOLDER_NOT_MADE);
        if let Some(refused) = refused {
            diagnosis.report(
                format!("it does not exist: {refused}"),
                format!(
                    "remove what the API server names, such as a quota (`kubectl describe resourcequota -n {}`); stowplan tries again at least every 5 minutes",
                    self.name.namespace
                ),
            );
        } else if self.cluster.knows("StatefulSet") {
            diagnosis.report(
                "it does not exist: the controller has not created it, or may not",
                format!(
                    "kubectl describe {kind} {name} -n {}: its events say why",
                    self.name.namespace
                ),
            );
        }
    }

    /// Reports the wait for an earlier group. The groups of a run report it at the run.
    fn report_shared_claim(&self, note: &str, diagnosis: &mut Diagnosis) {
        if self.is_native() {
            diagnosis.report(note, "wait until that one has ended");
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
