//! `stowplan check` as a user runs it: the real binary on a cluster that comes from a file.

pub(crate) mod objects;

mod mpi;
mod remedies;
mod situations;
mod streams;
mod workloads;
