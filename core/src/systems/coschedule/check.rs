//! Diagnoses for `check`: why a Tekton run waits, and what coscheduling adds to the diagnosis of a
//! pod.

mod group;
mod named_group;
mod one_node;
mod run;

use k8s_openapi::api::core::v1::Pod;

use crate::placement::reason::Finding;
use crate::systems::check::{CheckedKind, Context, Diagnosis, PodReport};
use crate::systems::coschedule::kinds::pipeline_run::PipelineRun;
use crate::systems::coschedule::resources::PIPELINE_RUN;
use crate::systems::coschedule::{keys, mode};
use crate::systems::exclusion::Exclusion;
use crate::view::Name;

/// Reports what coscheduling knows about a pod: its group, or the claims that it mounts.
pub(super) fn check_pod(context: &Context<'_>, name: &Name, pod: &Pod) -> PodReport {
    group::check_pod(context, name, pod).unwrap_or_else(|| one_node::check_pod(context, name))
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
