//! `stowplan check` as a user runs it: the real binary on a cluster that comes from a file.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "how a helper of tests fails; clippy.toml frees only the tests"
)]

mod check {
    mod objects;

    mod agreement;
    mod groups;
    mod mpi;
    mod remedies;
    mod runs;
    mod streams;
    mod workloads;
}
