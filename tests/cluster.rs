//! Outcomes on a real control plane: workloads go through the real API server to the installed
//! webhook, and the real scheduler places them. What counts is the node.
//!
//! One control plane serves all of these tests, each in a namespace of its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a harness fails and tells as tests do"
)]

mod cluster {
    pub(crate) mod streams;
    pub(crate) mod world;

    pub(crate) mod admission;
    pub(crate) mod host_pool;
    pub(crate) mod load;
    pub(crate) mod streams_job;
}

use std::sync::Arc;

use cluster::world::World;
use libtest_mimic::{Arguments, Trial};

/// A test: its name, and what it does.
type Case = (&'static str, fn(Arc<World>) -> cluster::world::Outcome);

macro_rules! cases {
    ($($module:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), |world| Box::pin(cluster::$module::$name(world)))),+),+]
    };
}

const CASES: &[Case] = cases! {
    streams:
        host_by_name, host_by_address, host_by_internal_dns_name, tagged_pool, pool_with_several_tags,
        literal_pool_and_index, untagged_pool_changes_nothing, colocation_of_three,
        exlocation_of_three_and_a_fourth, isolation_when_the_isolated_comes_first,
        isolation_when_the_isolated_comes_last, equal_tokens_of_two_jobs_do_not_meet,
        a_rollout_of_an_exlocated_element_goes_through, preferred_exlocation_gives_way,
        exlocation_keeps_off_nodes_without_a_hostname, node_name_is_released,
        colocation_and_exlocation_under_one_token;
    admission:
        refusals_reach_kubectl, dry_run_shows_the_patch, the_stored_pod_sent_again_gets_no_patch,
        pods_without_keys_are_not_sent, opted_out_pods_and_namespaces_are_left_alone,
        own_namespace_is_never_touched, a_misspelt_key_is_refused, warnings_reach_the_client,
        pods_of_workloads_are_placed, a_stopped_webhook_blocks_nobody, the_policy_is_read_again;
    host_pool:
        the_schema_and_its_rules, a_pool_made_just_before_its_pod, a_missing_pool_is_refused,
        sized_and_exclusive_pools_are_not_ready;
    streams_job:
        the_schema_and_its_rules, a_chain_of_tokens_shares_a_node_in_any_order;
    load:
        a_restart_fails_no_creation, a_mass_start_is_placed_within_two_seconds_each;
};

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let wanted = |name: &str| {
        let matches = |filter: &String| match arguments.exact {
            true => name == filter,
            false => name.contains(filter.as_str()),
        };
        arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
    };
    // Listing must not take a control plane, and neither must a filter that leaves nothing here.
    let needed = !arguments.list && CASES.iter().any(|(name, _)| wanted(name));
    let world =
        needed.then(|| {
            Arc::new(runtime.block_on(World::start()).unwrap_or_else(|error| {
                panic!("no control plane, so nothing can be shown: {error:#}")
            }))
        });
    let trials = CASES.iter().map(|&(name, case)| {
        let world = world.clone();
        let handle = runtime.handle().clone();
        Trial::test(name, move || {
            let world = world.ok_or("no control plane was started")?;
            handle.block_on(case(world)).map_err(|error| format!("{error:#}").into())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if let Some(world) = world.and_then(Arc::into_inner) {
        runtime.block_on(world.stop(conclusion.has_failed()));
    }
    conclusion.exit_code()
}
