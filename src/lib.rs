//! stowplan: placement of batch and streaming workloads on Kubernetes with the stock scheduler.
//!
//! # Reading order
//! 1. `placement`: what a pod or a claim should get (`placement::intent`), and how that is merged with what
//!    it has (`placement::merge`).
//! 2. `systems`: the systems that are served, each in a folder of its own; `systems::streams` is a good
//!    first one.
//! 3. `view` and `policy`: what a decision may use besides the pod.
//! 4. `admission`: bytes in, `admission::decide`, bytes out.
//! 5. `controller`: what the cluster needs besides the pods' own marks, planned and carried out.
//! 6. `cluster`, `server`, `tls`, `cli`: watches, sockets, certificates, commands.
//!
//! # Dependency rule
//! `cli → server, controller → admission, cluster → systems → placement, view, policy, api`. Nothing points
//! back; `text`, `names`, `wire` and `kubernetes` are below all of them. `simulation` is above `systems`:
//! `cli` uses it, and so do tests. `placement`, `systems`, `view`, `admission` and `simulation` do no I/O and
//! read no clock. `tests/offline/purity.rs` checks both.

#![allow(
    missing_docs,
    reason = "the crate is a program: nothing but tests uses what `testing` lets out"
)]

mod admission;
mod api;
mod cli;
mod cluster;
mod controller;
mod kubernetes;
mod names;
mod placement;
mod policy;
mod server;
mod simulation;
mod systems;
mod telemetry;
#[doc(hidden)]
pub mod testing;
mod text;
mod tls;
mod view;
mod wire;

pub use cli::run;
