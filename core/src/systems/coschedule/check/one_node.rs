//! Explains why a pod waits that must share a node with the pods that mount its claims.

use crate::systems::check::{Context, Diagnosis, PodReport};
use crate::systems::coschedule::keys::{ONE_NODE, ONE_NODE_CLAIMS};
use crate::systems::coschedule::kinds::MountedClaim;
use crate::systems::coschedule::one_node;
use crate::systems::coschedule::reconcile::Why;
use crate::systems::coschedule::reconcile::one_node::{Fate, Sharing};
use crate::view::Name;

/// Reports the claims whose pods share a node with a pod, and why it waits for them.
pub(super) fn check_pod(context: &Context<'_>, name: &Name) -> PodReport {
    let Context { cluster, policy, now, .. } = context;
    let view = &cluster.view;
    let mut report = PodReport::default();
    report_annotations(context, name, &mut report.unfinished);
    let mut sharing = Sharing::new(view, policy);
    let pods = sharing.pods.clone();
    let Some(&pod) = pods.iter().find(|pod| pod.name == name) else { return report };
    let claims: Vec<&MountedClaim> = pod.claims(view).collect();
    for claim in &claims {
        let users: Vec<String> = pod
            .users(claim, view)
            .map(|of| match of.mounted.node.as_deref() {
                Some(node) => format!("{} on node {node}", of.name.name),
                None => format!("{} without a node", of.name.name),
            })
            .collect();
        let beside = match users.is_empty() {
            true => "no other pod mounts it now".to_owned(),
            false => format!("now {}", users.join(", ")),
        };
        report
            .asked
            .push(format!("one node with the pods that mount claim {}; {beside}", claim.name));
    }
    // In a plan, the older pods come first.
    for older in pods.into_iter().take_while(|of| of.name != name) {
        if let Fate::Released(_) = sharing.fate(older, *now) {
            sharing.add(older);
        }
    }
    let pending = &mut report.pending;
    match sharing.fate(pod, *now) {
        Fate::Released(None) => pending.decided.push("the controller removes its gate".to_owned()),
        Fate::Released(Some(node)) => pending
            .decided
            .push(format!("the controller removes its gate and requires node {node}")),
        Fate::Waits(why @ Why::Unschedulable(_)) => pending.report(
            why.to_string(),
            "make room on that node, or end the pod that uses the claim; for a Deployment, the strategy Recreate",
        ),
        Fate::Waits(why) => pending.report(
            why.to_string(),
            "wait until the pods named here have nodes, or have ended; or delete one of them",
        ),
        Fate::Recreated(why) => {
            pending.decided.push(format!("{why}: the controller deletes the pod, and its owner creates it again"));
        }
        Fate::Woken(due) if due <= *now => pending
            .decided
            .push("the controller wakes the scheduler for it".to_owned()),
        Fate::Woken(_) | Fate::Left => {}
    }
    report
}

/// Reports the label of a namespace, if it has a value without effect.
pub(super) fn report_label(context: &Context<'_>, namespace: &str, diagnosis: &mut Diagnosis) {
    let labels = context.cluster.view.namespace_labels(namespace);
    let Some(value) = labels.and_then(|labels| labels.get(ONE_NODE_CLAIMS)) else { return };
    if !matches!(&**value, "true" | "false") {
        diagnosis.report(
            format!("its label {ONE_NODE_CLAIMS} has no effect with this value"),
            format!("kubectl label namespace {namespace} {ONE_NODE_CLAIMS}=true --overwrite; or remove it: kubectl label namespace {namespace} {ONE_NODE_CLAIMS}-"),
        );
    }
}

/// Reports the annotation that takes a claim out, where it has no effect.
fn report_annotations(context: &Context<'_>, pod: &Name, diagnosis: &mut Diagnosis) {
    let view = &context.cluster.view;
    let Some(mounted) = view.mounts.get(pod) else { return };
    for MountedClaim { name, .. } in &mounted.claims {
        let Some(claim) = view.claim(&Name::new(&pod.namespace, name)) else { continue };
        let class = claim.class.as_deref();
        let of_class = class.and_then(|class| Some((class, view.storage_class(class)?)));
        let of_class = of_class.and_then(|(class, of)| {
            Some((format!("StorageClass {class}"), of.one_node.as_deref()?))
        });
        let of_claim = claim.one_node.as_deref().map(|value| (format!("claim {name}"), value));
        let Some((subject, value)) = of_claim.or(of_class) else { continue };
        let why = match value {
            "true" | "false" if one_node::is_on(&pod.namespace, view) => continue,
            "true" | "false" => format!(
                "namespace {} does not have the label {ONE_NODE_CLAIMS}: \"true\"",
                pod.namespace
            ),
            _ => "its value is not \"true\" or \"false\"".to_owned(),
        };
        diagnosis
            .decided
            .push(format!("the annotation {ONE_NODE} of {subject} has no effect: {why}"));
    }
}
