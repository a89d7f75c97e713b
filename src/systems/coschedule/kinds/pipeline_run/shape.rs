//! The fields of PipelineRuns that are read, and those that TaskRuns have in common with them.

use super::super::pipeline;
use crate::view::document::Shape;

/// The fields of the spec, in v1 and in v1beta1.
pub(super) const SPEC: Shape = Shape::Object(&[
    ("params", Shape::List(&Shape::Object(&[("name", Shape::Scalar), ("value", Shape::Scalar)]))),
    ("pipelineRef", PIPELINE_REF),
    ("pipelineSpec", pipeline::SPEC),
    ("podTemplate", Shape::Whole),
    ("serviceAccountName", Shape::Scalar),
    ("taskRunSpecs", Shape::List(&TASK_RUN_SPEC)),
    ("taskRunTemplate", TASK_RUN_TEMPLATE),
    ("workspaces", Shape::List(&WORKSPACE)),
]);

const PIPELINE_REF: Shape = Shape::Object(&[
    ("bundle", Shape::Scalar),
    ("name", Shape::Scalar),
    ("resolver", Shape::Scalar),
]);

const TASK_RUN_TEMPLATE: Shape =
    Shape::Object(&[("podTemplate", Shape::Whole), ("serviceAccountName", Shape::Scalar)]);

const TASK_RUN_SPEC: Shape = Shape::Object(&[
    ("computeResources", Shape::Whole),
    ("pipelineTaskName", Shape::Scalar),
    ("podTemplate", TASK_POD_TEMPLATE),
    ("taskPodTemplate", TASK_POD_TEMPLATE),
]);

const TASK_POD_TEMPLATE: Shape = Shape::Object(&[
    ("nodeSelector", Shape::Whole),
    ("volumes", Shape::List(&Shape::Object(&[("persistentVolumeClaim", CLAIM)]))),
]);

const WORKSPACE: Shape = Shape::Object(&[
    ("name", Shape::Scalar),
    ("persistentVolumeClaim", CLAIM),
    ("volumeClaimTemplate", Shape::Whole),
]);

/// The claim of a workspace or of a volume.
pub(in super::super) const CLAIM: Shape = Shape::Object(&[("claimName", Shape::Scalar)]);

/// The status of a PipelineRun or of a TaskRun.
pub(in super::super) const STATUS: Shape =
    Shape::Object(&[("conditions", Shape::List(&CONDITION))]);

const CONDITION: Shape = Shape::Object(&[
    ("lastTransitionTime", Shape::Scalar),
    ("message", Shape::Scalar),
    ("reason", Shape::Scalar),
    ("status", Shape::Scalar),
    ("type", Shape::Scalar),
]);
