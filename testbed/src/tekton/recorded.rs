//! What Tekton Pipelines v1.15 was seen to make: what the driver makes is held against it.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

/// PipelineRuns by name, as they were stored.
pub(super) fn runs() -> Map<String, Value> {
    read(include_str!("../../assets/recorded-runs.json"))
}

/// Their TaskRuns, and one of its own, as they were when their pods were asked for; by the names of
/// the reviews of those pods, without `-pod`.
pub(super) fn task_runs() -> Map<String, Value> {
    read(include_str!("../../assets/recorded-task-runs.json"))
}

fn read(text: &str) -> Map<String, Value> {
    let objects: Map<String, Value> = serde_json::from_str(text).unwrap();
    assert!(!objects.is_empty());
    objects
}

/// The object of a recorded review.
pub(super) fn review(case: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recorded/tekton-disabled");
    let text = fs::read_to_string(folder.join(format!("{case}.json"))).unwrap();
    let mut review: Value = serde_json::from_str(&text).unwrap();
    review["request"]["object"].take()
}
