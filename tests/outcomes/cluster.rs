//! Outcomes on a real control plane: workloads go through the real API server to the installed
//! webhook, and the real scheduler places them. Each test asserts the node.
//!
//! One control plane serves all of these tests, each in a namespace of its own.

pub(crate) mod admission;
pub(crate) mod audit;
pub(crate) mod hosts;
pub(crate) mod kinds;
pub(crate) mod load;
pub(crate) mod reader;
pub(crate) mod streams;

use crate::harness::{Case, Suite, cases};
use crate::world::World;
use anyhow::Result;
use testbed::control_plane::{Install, Options};

const CASES: &[Case] = cases! { cluster,
    streams:
        host_by_name_and_address, tagged_pools,
        literal_pool_and_index, colocation_of_three,
        exlocation_of_three_and_a_fourth, isolation_when_the_isolated_comes_first,
        isolation_when_the_isolated_comes_last,
        preferred_exlocation_gives_way,
        node_name_is_released;
    admission:
        refusals_reach_kubectl, dry_run_shows_the_patch, the_stored_pod_sent_again_gets_no_patch,
        opted_out_pods_and_namespaces_are_left_alone, warnings_reach_the_client, pods_of_workloads_are_placed;
    kinds:
        the_schema_of_host_pools_and_its_rules, the_schema_of_streams_jobs_and_its_rules,
        a_pool_made_just_before_its_pod;
    reader:
        the_readers_rights_are_enough_and_none_too_many;
};

const ALONE: &[Case] = cases! { cluster,
    admission:
        pods_without_keys_are_not_sent, own_namespace_is_never_touched;
    audit:
        the_decision_is_in_the_audit_log,
        pods_that_missed_the_webhook_are_found_in_the_audit_log;
    load:
        a_restart_fails_no_creation, a_mass_start_is_placed;
};

/// Without a controller, which would serve the pools that these cases leave unserved, and with an audit
/// log.
pub(crate) fn suite() -> Suite {
    Suite { cases: CASES.to_vec(), alone: ALONE.to_vec(), at_once: 6, start: || Box::pin(start()) }
}

async fn start() -> Result<World> {
    let options = Options { nodes: hosts::nodes(), audit: true, ..Options::default() };
    World::start_with(options, Install::without_controller).await
}
