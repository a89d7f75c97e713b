//! The command line as a user meets it: the real binary, real files, exit codes, both outputs.

pub(crate) mod api_server;
pub(crate) mod command;

/// `crds` and `policy`.
mod definitions;
/// Help, version, wrong usage and completions.
mod usage;

/// `review`: an AdmissionReview in, the answer out.
mod review;

/// `check` of the installation.
mod check_installation;
/// `check` of a cluster.
mod check_live;
/// Colours, in all commands that have them.
mod colours;
/// `map`: empty, strange and large input.
mod map_input;
/// `map`: the situations of the documents, in all forms.
mod map_situations;
/// `map`: the clusters of these situations.
mod pictures;
/// `plan`: the files it reads.
mod plan_input;
/// `plan --live`: what it reads from a cluster.
mod plan_live;
/// `plan`: an MPI cluster.
mod plan_mpi;
/// `plan`: pods, pod templates and lists.
mod plan_objects;
/// `plan`: its output formats.
mod plan_output;
/// `plan`: the members of pools.
mod plan_pools;
/// `plan`: PipelineRuns.
mod plan_runs;
/// `plan`: generated names, and input that is not rendered.
mod plan_together;

/// `plan`: files with what is run on them, and what is printed.
mod sessions;

/// `teardown`: what it lists and what it writes.
mod teardown;

/// `controller`: start, readiness and stop.
mod controller;
