//! A local Kubernetes control plane, for the demo, the tests and the benchmarks.
//!
//! stowplan's promise is about nodes: *this pod lands there*. Only a real API server, a real
//! scheduler and real admission can say whether it is kept, so everything here runs the real
//! programs, built from Go modules once and cached. There is no root, no container engine and no
//! kubelet: nodes are plain objects that kwok keeps Ready, pods are placed but run nothing, and the
//! programs that must really run (the webhook, the controllers) are local processes. What only
//! running pods can show is tested on real nodes ([`real`]), as root.
//!
//! # Reading order
//! 1. [`tools`]: from a Go module to programs in a cache.
//! 2. [`control_plane`]: starting them in a run directory, adding nodes, installing stowplan.
//! 3. `process`: how nothing outlives its owner, even one that was killed.
//! 4. [`workload`], [`wait`], [`http`], [`command`]: queries and waits of tests, and programs.
//! 5. [`proxy`]: an API server that fails on demand, for a controller.
//! 6. [`volumes`], [`tekton`], [`katalyst`], [`karpenter`]: a provisioner of volumes, a driver of
//!    PipelineRuns, the reports of Katalyst's agents, and an autoscaler.
//! 7. [`image`]: container images, written without a container engine.
//! 8. [`real`]: nodes with a kubelet, which run pods of such images.
//!
//! # How a test uses it
//! Starting takes a few seconds, so a test file starts one control plane, owned by one test
//! function, and runs its scenarios side by side in namespaces of their own. A control plane in a
//! `static` works too, but is never dropped: its processes end with the test program, its run
//! directory stays.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use testbed::control_plane::{ControlPlane, Install, NodeSpec, Options};
//!
//! let plane = ControlPlane::start(Options {
//!     nodes: vec![NodeSpec::new("foo").address("InternalIP", "10.4.40.83")],
//!     ..Options::default()
//! })
//! .await?;
//! let installation = plane
//!     .install(Install::new("target/debug/stowplan", "charts/stowplan"))
//!     .await?;
//! println!("the webhook serves {}", installation.service_address());
//! plane.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Linux only: a Service is reached by listening on its cluster address, which needs the whole of
//! 127.0.0.0/8 on the loopback device, and processes are identified by `/proc`.

pub mod command;
pub mod control_plane;
mod definition;
pub mod http;
pub mod image;
pub mod karpenter;
pub mod katalyst;
pub mod kueue;
mod process;
pub mod proxy;
pub mod real;
pub mod tekton;
pub mod tools;
pub mod volumes;
pub mod wait;
pub mod workload;
