//! Decides what stowplan does: which patch a pod gets, and which writes its controller makes.
//!
//! # Reading order
//! 1. `placement`: what a pod or a claim should get (`placement::intent`), and how that is merged with what
//!    it has (`placement::merge`).
//! 2. `systems`: the systems that are served, each in a folder of its own; `systems::streams` is a good
//!    first one.
//! 3. `view` and `policy`: what a decision may use besides the pod.
//! 4. `admission`: bytes in, `admission::decide`, bytes out.
//! 5. `simulation`: a cluster in memory, for tests and for `stowplan plan`.
//!
//! # Dependency rule
//! `admission → systems → placement, view, policy, api`. Nothing points back; `text`, `names`, `wire` and
//! `kubernetes` are below all of them, and `simulation` is above. Nothing here does I/O or reads a clock:
//! there is no client, no runtime and no cryptography of connections in the tree of this crate, and
//! `clippy.toml` forbids the standard library's own. The package `stowplan` has the program.
//!
//! This is no library for others: its interface follows what the program needs.

#![allow(
    missing_docs,
    reason = "a part of the program: nothing but the package `stowplan` and tests use it"
)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "only who works on it reads its documentation, with private items"
)]

pub mod admission;
pub mod api;
pub mod kubernetes;
pub mod names;
pub mod placement;
pub mod policy;
pub mod simulation;
pub mod systems;
pub mod text;
pub mod view;
pub mod wire;
