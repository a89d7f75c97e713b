//! Diagnoses for `check`: why a Tekton run waits, and what coscheduling adds to the diagnosis of a
//! pod.

mod group;
mod named_group;
mod run;

pub(super) use group::check_pod;

use crate::systems::check::CheckedKind;
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::kinds::pipeline_run::PipelineRun;
use crate::systems::coschedule::resources::PIPELINE_RUN;
use crate::view::Name;

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
