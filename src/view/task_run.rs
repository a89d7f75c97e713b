//! What is kept of a Tekton TaskRun: whose it is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::estate::Identity;
use super::owner::Owner;
use super::pipeline_run::{MODE, is_done};

/// The annotation of runs and pods on which Tekton's own affinity assistant has its hand.
pub const ASSISTANT: &str = "pipeline.tekton.dev/affinity-assistant";

/// The label that names the pipeline's task that a TaskRun is of.
pub const PIPELINE_TASK: &str = "tekton.dev/pipelineTask";

/// A TaskRun.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TaskRun {
    /// Who it is.
    pub identity: Identity,
    /// The PipelineRun that made it; `None` for one that somebody made by itself.
    pub run: Option<Owner>,
    /// The pipeline's task that it is of. A label, so that its author can say what he likes: it tells
    /// one task of the run from another, and never one run from another.
    pub task: Option<Box<str>>,
    /// The annotation `stowplan.dev/coschedule`, as it is.
    pub mode: Option<Box<str>>,
    /// Whether Tekton's own affinity assistant places its pods.
    pub assisted: bool,
    /// Whether it has ended.
    pub done: bool,
}

impl TaskRun {
    /// Reads one, whatever its version.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, document: &Value) -> Self {
        let annotations = metadata.annotations.as_ref();
        let labels = metadata.labels.as_ref();
        let text = |text: &String| text.as_str().into();
        Self {
            identity: Identity::from(metadata),
            run: Owner::of_tekton(metadata, "PipelineRun"),
            task: labels.and_then(|labels| labels.get(PIPELINE_TASK)).map(text),
            mode: annotations.and_then(|map| map.get(MODE)).map(text),
            assisted: annotations.is_some_and(|map| map.contains_key(ASSISTANT)),
            done: is_done(document),
        }
    }
}
