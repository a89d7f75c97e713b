//! Namespaces with a queue of Kueue's, which holds pods, placeholders among them, until it has quota for them.
//!
//! The real Kueue runs, so these cases are not part of a plain `cargo test`: `STOWPLAN_QUEUE=1` adds them.

/// Groups of pods, with and without Tekton.
pub(crate) mod groups;
mod lane;
/// Pods with host constraints, and MPI clusters.
pub(crate) mod systems;

use anyhow::Result;
use serde_json::{Value, json};
use testbed::control_plane::Options;
use testbed::kueue;
use testbed::tools::Kubernetes;

use crate::coschedule;
use crate::harness::{Boxed, Case, Suite, cases};
use crate::world::World;

const CASES: &[Case] = cases! { queue,
    groups:
        with_quota_for_everything, without_quota, with_quota_for_the_pods_alone,
        with_quota_for_one_pod_less, a_placeholder_that_has_to_move, a_preempted_group,
        a_task_for_the_nodes_of_a_flavor, a_suspended_job;
    systems: workers_and_their_launcher, a_streams_job, hosts_of_a_topology;
};

/// Where Kueue takes its quota back from pods that are not Ready in time.
const READY: &[Case] = cases! { queue, groups: a_group_that_is_not_ready_in_time; };

/// On control planes of their own: Kueue holds the pods of every namespace with a queue.
pub(crate) fn suites() -> [Suite; 2] {
    let is_off = matches!(std::env::var("STOWPLAN_QUEUE").as_deref(), Ok("" | "0") | Err(_));
    let suite = |cases: &[Case], at_once, start: fn() -> Boxed<Result<World>>| Suite {
        cases: if is_off { Vec::new() } else { cases.to_vec() },
        alone: Vec::new(),
        at_once,
        kubernetes: Kubernetes::Newest,
        start,
    };
    [
        suite(CASES, 4, || Box::pin(start(json!({})))),
        suite(READY, 1, || {
            let ready = json!({"timeout": "10s", "requeuingStrategy": {"backoffBaseSeconds": 1}});
            Box::pin(start(json!({"waitForPodsReady": ready})))
        }),
    ]
}

async fn start(settings: Value) -> Result<World> {
    // Whatever the cases leave on a node, a group fits there.
    let nodes = coschedule::nodes().into_iter().map(|node| node.capacity("cpu", "100")).collect();
    let options = Options { nodes, ..Options::default() };
    let world = coschedule::start_with(options, |install| install).await?;
    kueue::start(&world.plane, &settings).await?;
    Ok(world)
}
