//! `stowplan check` as a user runs it: the real binary on a cluster that comes from a file.

mod objects;

mod groups;
mod mpi;
mod remedies;
mod runs;
mod streams;
mod workloads;
