//! Tekton TaskRuns, by their PipelineRuns.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::tekton::{self, claim_of, is_done};
use crate::kubernetes::{annotation, label};
use crate::systems::coschedule::keys::{ASSISTANT, MODE, PIPELINE_TASK};
use crate::systems::coschedule::resources::TASK_RUN;
use crate::view::document::{Foreign, ForeignRow, items};
use crate::view::index::Sets;
use crate::view::owner::Owner;
use crate::view::rows::{RowIndex, Rows, TableRow};
use crate::view::{Identity, Kind, Name, Scope};

/// The fields of a TaskRun that decide which group its pod belongs to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TaskRun {
    pub identity: Identity,
    /// The PipelineRun that created it; `None` for one that a user created.
    pub run: Option<Owner>,
    /// The name of its task in the pipeline, from the label [`PIPELINE_TASK`]. Users can set any
    /// value, so it may select among the tasks of one run, but never between runs.
    pub task: Option<Box<str>>,
    /// The unparsed annotation [`MODE`].
    pub mode: Option<Box<str>>,
    /// True if Tekton's own affinity assistant places its pods.
    pub is_assisted: bool,
    /// The claims of its workspaces, sorted, each once. Only here Tekton writes which claim the result of a task names.
    pub claims: Box<[Box<str>]>,
    pub done: bool,
    /// Since when it has had no pod, because a quota refuses it.
    pub refused_since: Option<Timestamp>,
    /// The reason why the webhook refused its pod, if it has failed for that.
    pub refusal: Option<Box<str>>,
}

impl ForeignRow for TaskRun {
    fn read(metadata: &ObjectMeta, spec: Value, status: Value) -> Self {
        // What is not a claim's name is left out, as Tekton creates no pod of it.
        let claims = items(&spec["workspaces"]).filter_map(claim_of).map(Into::into);
        let claims: BTreeSet<Box<str>> = claims.collect();
        // Tekton tries again, with growing pauses.
        let refused = tekton::waiting(&status, "ExceededResourceQuota");
        Self {
            identity: Identity::from(metadata),
            run: Owner::of_tekton(metadata, "PipelineRun"),
            task: label(metadata, PIPELINE_TASK).map(Into::into),
            mode: annotation(metadata, MODE).map(Into::into),
            is_assisted: annotation(metadata, ASSISTANT).is_some(),
            claims: claims.into_iter().collect(),
            done: is_done(&status),
            refused_since: refused.and_then(|of| of["lastTransitionTime"].as_str()?.parse().ok()),
            refusal: tekton::refusal(&status),
        }
    }
}

static TASK_RUNS: Kind = tekton::kind(TASK_RUN);

/// The table of TaskRuns.
pub(crate) type TaskRuns = Rows<TaskRun, TaskRunIndex>;

/// Finds TaskRuns, active and ended ones, by the namespace and the UID of their PipelineRuns.
#[derive(Debug, Default)]
pub(crate) struct TaskRunIndex {
    pub(super) by_run: Sets<Name>,
    /// The TaskRuns that Tekton's own affinity assistant places. Empty where the assistant is off.
    pub(super) assisted: Sets<Name>,
    /// The TaskRuns that a quota refuses a pod.
    pub(super) refused: BTreeSet<Name>,
}

/// The namespace and UID of the PipelineRun that owns a TaskRun. An owner is in the namespace of the
/// object that it owns.
fn owning_run(name: &Name, task_run: &TaskRun) -> Option<Name> {
    task_run.run.as_ref().map(|run| Name::new(&name.namespace, &run.uid))
}

impl TableRow for TaskRun {
    type Object = Foreign<Self>;
    const KIND: &'static Kind = &TASK_RUNS;
    const COUNTED_AS: Option<&'static str> = Some("taskruns");

    fn from_object(object: &Foreign<Self>, scope: Scope) -> Option<Self> {
        let run = &object.row;
        // An ended TaskRun that Tekton's assistant placed still shows that the assistant is on.
        (scope != Scope::Admission || !run.done || run.is_assisted).then(|| run.clone())
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

impl RowIndex<TaskRun> for TaskRunIndex {
    fn add(&mut self, name: &Name, run: &TaskRun) {
        if run.refused_since.is_some() {
            self.refused.insert(name.clone());
        }
        let Some(owner) = owning_run(name, run) else { return };
        if run.is_assisted {
            self.assisted.add(owner.clone(), name);
        }
        self.by_run.add(owner, name);
    }

    fn remove(&mut self, name: &Name, run: TaskRun) {
        self.refused.remove(name);
        let Some(owner) = owning_run(name, &run) else { return };
        self.assisted.remove(owner.clone(), name);
        self.by_run.remove(owner, name);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::systems;
    use crate::systems::coschedule::resources::PIPELINE_RUN;
    use crate::systems::test_objects::controlled_by;
    use crate::systems::{Object, View};

    fn task_run(name: &str, namespace: &str, assisted: bool, done: bool) -> Object {
        let annotations = if assisted { json!({ASSISTANT: "a"}) } else { json!({}) };
        let status = if done { "True" } else { "Unknown" };
        let document = json!({
            "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations,
                "ownerReferences": controlled_by("PipelineRun", "r", "u")},
            "status": {"conditions": [{"type": "Succeeded", "status": status}]},
        });
        systems::object(document).unwrap().unwrap()
    }

    fn read(object: Value) -> TaskRun {
        serde_json::from_value::<Foreign<TaskRun>>(object).unwrap().row
    }

    #[test]
    fn the_claims_of_workspaces_are_read() {
        let long = "x".repeat(262_144);
        let claim = |name: Value| json!({"persistentVolumeClaim": {"claimName": name}});
        let of = |workspaces: Value| json!({"workspaces": workspaces});
        for (spec, expected) in [
            (of(json!(null)), &[][..]),
            (of(json!("w")), &[]),
            (of(json!([])), &[]),
            (of(json!([7, null, {}, {"name": "w"}, {"persistentVolumeClaim": null}])), &[]),
            (of(json!([claim(json!(7)), claim(json!(null))])), &[]),
            (of(json!([claim(json!("b")), claim(json!("a")), claim(json!("b"))])), &["a", "b"]),
            (of(json!([claim(json!("é")), claim(json!(long))])), &[&long, "é"]),
        ] {
            let read = read(json!({"spec": spec})).claims;
            assert_eq!(read.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), expected);
        }
    }

    #[test]
    fn the_refusal_of_a_failed_task_run_is_read() {
        let denied =
            "admission webhook \"pods.stowplan.dev\" denied the request: stowplan: a: b; c";
        let long = format!("{denied}{}", "é".repeat(131_072));
        let condition = |status: &str, message: &Value| json!([{"type": "Succeeded", "status": status, "message": message}]);
        for (conditions, expected) in [
            (Value::Null, None),
            (json!([]), None),
            (json!("é"), None),
            (condition("False", &Value::Null), None),
            (condition("False", &json!(7)), None),
            (condition("False", &json!("")), None),
            (condition("False", &json!("tasks failed")), None),
            (condition("True", &json!(denied)), None),
            (condition("Unknown", &json!(denied)), None),
            (condition("False", &json!(denied)), Some("a: b; c")),
            (condition("False", &json!(long)), Some("a: b; c")),
        ] {
            let read = read(json!({"status": {"conditions": conditions}})).refusal;
            assert_eq!(read.is_some(), expected.is_some(), "{conditions}");
            let read = read.unwrap_or_default();
            assert!(read.starts_with(expected.unwrap_or_default()) && read.len() < 4096);
        }
    }

    #[test]
    fn task_runs_are_found_by_their_run_until_deleted() {
        let mut view = View::default();
        let counts =
            |view: &View| (view.task_runs_of_run("ns", "u").count(), view.is_assisted("ns", "u"));
        view.apply(task_run("a", "ns", false, false));
        view.apply(task_run("b", "ns", true, false));
        view.apply(task_run("c", "other", true, false));
        assert_eq!(counts(&view), (2, true));
        assert_eq!(view.assisted_runs().count(), 0, "the View has no such run");
        let run = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": "r", "namespace": "ns", "uid": "u"}, "spec": {}});
        view.apply(systems::object(run).unwrap().unwrap());
        assert_eq!(view.assisted_runs().count(), 1, "the run of c would be in another namespace");
        view.apply(task_run("b", "ns", true, true));
        assert_eq!(counts(&view), (2, true), "a TaskRun that has ended still counts");
        view.forget(&TASK_RUN, &Name::new("ns", "b"));
        assert_eq!((counts(&view), view.assisted_runs().count()), ((1, false), 0));
        view.forget(&PIPELINE_RUN, &Name::new("ns", "r"));
        view.forget(&TASK_RUN, &Name::new("ns", "a"));
        view.forget(&TASK_RUN, &Name::new("other", "c"));
        let runs = view.task_runs.index();
        assert!(runs.by_run.is_empty() && runs.assisted.is_empty(), "{runs:?}");
        let runs = view.pipeline_runs.index();
        assert!(runs.by_uid.is_empty() && runs.by_parent.is_empty(), "{runs:?}");
        assert_eq!(view.held(), 0);
    }
}
