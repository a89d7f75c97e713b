//! The resources that coscheduling reads, writes or records events about.

use crate::view::resource::Resource;

/// A TaskRun.
pub const TASK_RUN: Resource = tekton("TaskRun", "taskruns");
/// A PipelineRun.
pub const PIPELINE_RUN: Resource = tekton("PipelineRun", "pipelineruns");
/// A Pipeline.
pub const PIPELINE: Resource = tekton("Pipeline", "pipelines");
/// A Task.
pub const TASK: Resource = tekton("Task", "tasks");
/// A PersistentVolumeClaim.
pub const CLAIM: Resource = Resource {
    group: "",
    version: "v1",
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    namespaced: true,
};
/// A PersistentVolume.
pub const VOLUME: Resource = Resource {
    group: "",
    version: "v1",
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    namespaced: false,
};
/// A StorageClass.
pub const STORAGE_CLASS: Resource = Resource {
    group: "storage.k8s.io",
    version: "v1",
    kind: "StorageClass",
    plural: "storageclasses",
    namespaced: false,
};

const fn tekton(kind: &'static str, plural: &'static str) -> Resource {
    Resource { group: super::kinds::tekton::GROUP, version: "v1", kind, plural, namespaced: true }
}
