//! Objects recorded from Tekton Pipelines v1.15. Tests compare the driver's objects with them.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

/// The stored PipelineRuns by name.
pub(super) fn runs() -> Map<String, Value> {
    read(include_str!("../../assets/recorded-runs.json"))
}

/// Their TaskRuns, and one without a run, as stored when their pods were created. The keys are the
/// names of the pods' reviews without `-pod`.
pub(super) fn task_runs() -> Map<String, Value> {
    read(include_str!("../../assets/recorded-task-runs.json"))
}

fn read(text: &str) -> Map<String, Value> {
    let objects: Map<String, Value> = serde_json::from_str(text).unwrap();
    assert!(!objects.is_empty());
    objects
}

/// The object of a recorded AdmissionReview.
pub(super) fn review(case: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recorded/tekton-disabled");
    let text = fs::read_to_string(folder.join(format!("{case}.json"))).unwrap();
    let mut review: Value = serde_json::from_str(&text).unwrap();
    review["request"]["object"].take()
}
