//! Diagnoses for `check`: why a Tekton run waits, and what coscheduling adds to the diagnosis of a
//! pod.

mod group;
mod named_group;
mod run;

pub(super) use group::check_pod;

use crate::systems::check::CheckedKind;
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::resources::PIPELINE_RUN;

/// The kinds of objects that coscheduling diagnoses.
pub(super) const KINDS: &[CheckedKind] = &[
    CheckedKind {
        names: &["pipelinerun", "run", "pipelineruns", "pr", "prs"],
        missing: PIPELINE_RUN.kind,
        needs_all_pods: true,
        check: run::diagnose,
        find_all: |context, namespace| {
            let view = &context.cluster.view;
            let own = view.pipeline_runs().filter(|(name, run)| {
                *name.namespace == *namespace
                    && (!run.done || run::is_refused(namespace, run, view))
            });
            own.map(|(name, _)| name.clone()).collect()
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
