//! From a pod to the group that it belongs to.

use k8s_openapi::api::core::v1::Pod;

use super::CheckedGroup;
use crate::kubernetes::{annotation, label};
use crate::systems::check::{Context, Diagnosis, PodReport};
use crate::systems::coschedule::keys;
use crate::systems::coschedule::kinds::placeholder::PlaceholderPod;
use crate::systems::coschedule::owner::{Belonging, belonging};
use crate::systems::coschedule::reconcile::Why;
use crate::systems::coschedule::resources::TASK_RUN;
use crate::view::{Name, Owner};

/// Reports what coscheduling knows about a pod: the placeholder of its group, and why the pod is not on the
/// placeholder's node. `None`: the pod is in no group.
pub(in crate::systems::coschedule) fn check_pod(
    context: &Context<'_>,
    name: &Name,
    pod: &Pod,
) -> Option<PodReport> {
    let (asked, led) = find_group(context, name, pod)?;
    Some(PodReport { asked: vec![asked], led: Some(led), ..PodReport::default() })
}

/// The group that a pod was admitted to, or whose placeholder's pod it is: what the pod asks for,
/// and the diagnosis with the placeholder as a part.
fn find_group(context: &Context<'_>, pod_name: &Name, pod: &Pod) -> Option<(String, Diagnosis)> {
    let Context { cluster, policy, .. } = context;
    let namespace = &*pod_name.namespace;
    if let Some(own) = PlaceholderPod::of(&pod.metadata) {
        let name = Name::new(namespace, own);
        let made = cluster.view.placeholder(&name);
        let group = match made.map(|made| (&made.run, &made.group)) {
            Some((Some(run), _)) => format!(
                "a group of PipelineRun {0}: stowplan check pipelinerun/{0} -n {namespace}",
                run.name
            ),
            Some((None, Some(group))) => format!("the pods of group {group}"),
            _ => "a group that is unknown".to_owned(),
        };
        let placeholder = CheckedGroup::new(context, &name, None).placeholder();
        let led = Diagnosis { parts: vec![placeholder], ..Diagnosis::default() };
        return Some((format!("a node for {group}"), led));
    }
    let placeholder = label(&pod.metadata, keys::MEMBER)?;
    let owner = Owner::of_tekton(&pod.metadata, TASK_RUN.kind);
    let of_run = owner.map(|owner| belonging(namespace, &owner, &cluster.view, policy));
    let mut group = None;
    let asked = match &of_run {
        Some(Belonging::Run { name, groups, .. }) => {
            group = groups.groups.iter().find(|group| *group.name == *placeholder);
            let name = &name.name;
            format!(
                "one node with its group of PipelineRun {name}: stowplan check pipelinerun/{name} -n {namespace}"
            )
        }
        _ => match annotation(&pod.metadata, keys::GROUP) {
            Some(group) => format!("one node with the pods of group {group}"),
            None => "one node with a group that is unknown".to_owned(),
        },
    };
    let name = Name::new(namespace, placeholder);
    let checked = CheckedGroup::new(context, &name, group);
    let mut diagnosis = checked.placeholder();
    diagnosis.parts.extend(checked.claim_parts());
    if !checked.is_made() {
        match checked.explained.as_ref().and_then(|explained| explained.waits.first()) {
            Some(Why::SharedClaim(note)) => {
                diagnosis.report(note, "wait until that one has a node, or has ended");
            }
            _ if checked.explained.as_ref().is_some_and(|of| of.held_by.is_some()) => {}
            _ => checked.report_missing(&mut diagnosis, "pod", &pod_name.name),
        }
    }
    let mut led = Diagnosis::default();
    checked.report_outside(&mut led, pod);
    led.parts.push(diagnosis);
    Some((asked, led))
}
