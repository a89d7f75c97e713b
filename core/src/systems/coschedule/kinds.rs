//! The kinds of objects that coscheduling reads: for each the fields that are kept, and its table.
//! `index` has the queries.

pub(crate) mod index;
pub(crate) mod member;
pub(crate) mod mounts;
pub(crate) mod namespace;
pub(crate) mod pipeline;
pub mod pipeline_run;
pub(crate) mod placeholder;
pub(crate) mod storage;
pub(crate) mod task;
pub(crate) mod task_run;
pub(crate) mod tekton;
pub(crate) mod unschedulable;
pub(crate) mod variables;
