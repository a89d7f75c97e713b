//! Outcomes on a real control plane: workloads go through the real API server to the installed
//! webhook, and the real scheduler places them. Each test asserts the node.
//!
//! One control plane serves all of these tests, each in a namespace of its own.

pub(crate) mod admission;
pub(crate) mod audit;
pub(crate) mod kinds;
pub(crate) mod load;
pub(crate) mod reader;
pub(crate) mod streams;

use crate::harness::{Case, Suite, cases};
use crate::world::World;
use testbed::control_plane::{Install, NodeSpec, Options};
use testbed::tools::Kubernetes;

const IB: &str = "hostpool.streams.ibm.com/ib";

const CASES: &[Case] = cases! { cluster,
    streams:
        host_by_name_and_address, tagged_pools, literal_pool_and_index, colocation_of_three,
        exlocation_of_three_and_a_fourth, isolation_when_the_isolated_comes_first,
        isolation_when_the_isolated_comes_last, preferred_exlocation_gives_way,
        node_name_is_released;
    admission:
        refusals_and_warnings_reach_kubectl, dry_run_shows_the_patch,
        the_stored_pod_sent_again_gets_no_patch, opted_out_pods_and_namespaces_are_left_alone;
    kinds: the_schema_of_host_pools_and_its_rules, the_schema_of_streams_jobs_and_its_rules;
    reader: the_readers_rights_are_enough_and_none_too_many;
};

const ALONE: &[Case] = cases! { cluster,
    admission: pods_without_keys_are_not_sent;
    audit:
        the_decision_is_in_the_audit_log, pods_that_missed_the_webhook_are_found_in_the_audit_log;
    load: a_restart_fails_no_creation, a_mass_start_is_placed;
};

/// Without a controller, which would serve the pools that these cases leave unserved, and with an audit
/// log.
pub(crate) fn suite() -> Suite {
    Suite {
        cases: CASES.to_vec(),
        alone: ALONE.to_vec(),
        at_once: 6,
        kubernetes: Kubernetes::Newest,
        start: || {
            let options = Options { nodes: nodes(), audit: true, ..Options::default() };
            Box::pin(World::start_with(options, Install::without_controller))
        },
    }
}

/// Nodes `node-1` to `node-6` with addresses from 10.4.40.81 on.
pub(crate) fn nodes() -> Vec<NodeSpec> {
    let nodes = NodeSpec::numbered(6).into_iter().zip(1..).map(|(node, number)| match number {
        1 => node.label("trio", "yes"),
        2 => node.label("trio", "yes").label("streams.ibm.com/hostpool", "source"),
        3 => node.label("trio", "yes").label(IB, ""),
        4 => node.label(IB, "").label("hostpool.streams.ibm.com/blue", ""),
        5 => node.address("InternalDNS", "foo.watson.ibm.com"),
        _ => node,
    });
    nodes.collect()
}
