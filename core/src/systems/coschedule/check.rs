//! Diagnoses for `check`: why a Tekton run waits, and what coscheduling adds to the diagnosis of a
//! pod.

mod group;
mod named_group;
mod one_node;
mod run;

use k8s_openapi::api::core::v1::Pod;

use crate::kubernetes::{annotation, label};
use crate::placement::reason::Finding;
use crate::systems::check::{CheckedKind, Context, Diagnosis, PodReport};
use crate::systems::coschedule::kinds::{PipelineRun, PlaceholderPod};
use crate::systems::coschedule::owner::{Belonging, belonging};
use crate::systems::coschedule::reconcile::Why;
use crate::systems::coschedule::resources::{PIPELINE_RUN, TASK_RUN};
use crate::systems::coschedule::{keys, mode};
use crate::systems::exclusion::Exclusion;
use crate::view::{Name, Owner};
use group::CheckedGroup;

/// Reports what coscheduling knows about a pod: its group, or the claims that it mounts.
pub(super) fn check_pod(context: &Context<'_>, name: &Name, pod: &Pod) -> PodReport {
    match report_group(context, name, pod) {
        Some((asked, led)) => {
            PodReport { asked: vec![asked], led: Some(led), ..PodReport::default() }
        }
        None => one_node::check_pod(context, name),
    }
}

/// Reports the mode of a namespace, if its runs do not have it, and the label that asks for one node.
pub fn report_namespace(context: &Context<'_>, namespace: &str, diagnosis: &mut Diagnosis) {
    let Context { cluster, policy, .. } = context;
    let is_excluded = Exclusion::of_namespace(namespace, &cluster.view, policy).is_some();
    if is_excluded || !policy.coschedule.enabled {
        return;
    }
    one_node::report_label(context, namespace, diagnosis);
    if let (mode, Some(bad)) = mode::of_namespace(namespace, &cluster.view, policy) {
        let Finding { problem, remedy, .. } = bad.finding();
        let (key, applies) = (keys::MODE, mode::word(mode));
        diagnosis.report(
            format!("its annotation {key}: {problem}, so the policy's mode {applies} applies"),
            format!("{remedy}; or remove it: kubectl annotate namespace {namespace} {key}-"),
        );
    }
}

/// The kinds of objects that coscheduling diagnoses.
pub(super) const KINDS: &[CheckedKind] = &[
    CheckedKind {
        names: &["pipelinerun", "run", "pipelineruns", "pr", "prs"],
        missing: PIPELINE_RUN.kind,
        needs_all_pods: true,
        check: run::diagnose,
        find_all: |context| {
            let view = &context.cluster.view;
            let is_shown = |(name, run): &(&Name, &PipelineRun)| {
                !run.done || run::is_refused(&name.namespace, run, view)
            };
            view.pipeline_runs().filter(is_shown).map(|(name, _)| name.clone()).collect()
        },
    },
    CheckedKind {
        names: &["group", "groups"],
        missing: "group",
        needs_all_pods: true,
        check: named_group::diagnose,
        find_all: named_group::find_all,
    },
];

/// Reports the placeholder of the group of a pod, and why the pod is not on the placeholder's node: what the pod asks
/// for, and the diagnosis with the placeholder as a part. `None`: the pod is in no group.
fn report_group(context: &Context<'_>, pod_name: &Name, pod: &Pod) -> Option<(String, Diagnosis)> {
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
