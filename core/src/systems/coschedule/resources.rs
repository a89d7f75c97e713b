//! The resources that coscheduling reads, writes or records events about.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1::StorageClass;

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
pub const CLAIM: Resource = Resource::namespaced::<core::PersistentVolumeClaim>();
/// A PersistentVolume.
pub const VOLUME: Resource = Resource::cluster_wide::<core::PersistentVolume>();
/// A StorageClass.
pub const STORAGE_CLASS: Resource = Resource::cluster_wide::<StorageClass>();

const fn tekton(kind: &'static str, plural: &'static str) -> Resource {
    Resource { group: super::kinds::tekton::GROUP, version: "v1", kind, plural, namespaced: true }
}
