//! stowplan: placement wishes of batch and streaming workloads, made true on Kubernetes with the
//! stock scheduler.
//!
//! # Reading order
//! 1. [`placement`]: what a pod or a claim should get ([`placement::intent`]) and how that joins with
//!    what it has ([`placement::merge`]).
//! 2. [`systems`]: whose wishes are served; [`systems::streams`] is the one that is complete.
//! 3. [`view`] and [`policy`]: what a decision may know besides the pod.
//! 4. [`admission`]: bytes in, [`admission::decide`], bytes out.
//! 5. [`controller`]: what the cluster needs besides pods' own marks, planned and carried out.
//! 6. [`cluster`], [`server`], [`tls`], [`cli`]: watches, sockets, certificates, commands.
//!
//! # Dependency rule
//! `cli → server, controller → admission, cluster → systems → placement, view, policy, api`. Nothing points
//! back, and [`text`] is below all of them. `placement`, `systems`, `view` and `admission` do no I/O and know no clock; a test holds
//! them to it.

pub mod admission;
pub mod api;
pub mod cli;
pub mod cluster;
pub mod controller;
pub mod placement;
pub mod policy;
pub mod server;
pub mod systems;
pub mod telemetry;
pub mod text;
pub mod tls;
pub mod view;
