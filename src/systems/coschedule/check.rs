//! Diagnoses for `check`: why a Tekton run waits, and what coscheduling adds to the diagnosis of a
//! pod.

mod group;
mod run;

pub(super) use group::check_pod;

use crate::systems::check::CheckedKind;
use crate::systems::coschedule::resources::PIPELINE_RUN;

/// The kinds of objects that coscheduling diagnoses.
pub(super) const KINDS: &[CheckedKind] = &[CheckedKind {
    names: &["pipelinerun", "run", "pipelineruns", "pr", "prs"],
    missing: PIPELINE_RUN.kind,
    needs_all_pods: true,
    check: run::diagnose,
}];
