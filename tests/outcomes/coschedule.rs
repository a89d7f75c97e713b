//! Coscheduling on a real control plane: on which nodes the pods of a run land, that every run
//! ends, and that no object is left behind. Volumes are provisioned in zones, and Tekton's driver
//! makes the pods (both: `testbed`).
//!
//! One control plane serves all of these tests, each in namespaces and on nodes of its own.

pub(crate) mod group;
pub(crate) mod pipeline;

/// The author's own affinity, tolerations and node selectors.
pub(crate) mod constraints;
/// Random histories of groups, beside the simulation.
pub(crate) mod histories;
/// Runs that share no node with other runs.
pub(crate) mod isolation;
/// Many runs at once, and restarts of stowplan meanwhile.
pub(crate) mod load;
/// The modes, and where they are set.
pub(crate) mod modes;
/// Placeholders that move to another node.
pub(crate) mod moves;
/// Groups of pods without Tekton.
pub(crate) mod native;
/// Pods that share a node by their claims.
pub(crate) mod one_node;
/// Pipelines of every shape and size, and claims and Pipelines that do not exist.
pub(crate) mod runs;
/// Quotas, orphans and an absent controller.
pub(crate) mod troubles;
/// Objects of an older release.
pub(crate) mod upgrade;
/// Claims, zones and storage classes.
pub(crate) mod volumes;

use std::sync::Arc;
use std::time::Duration;

use crate::harness::{Case, cases};
use crate::world::World;
use anyhow::{Context as _, Result};
use testbed::control_plane::{Install, NodeSpec, Options};
use testbed::tekton::Tekton;
use testbed::volumes::Volumes;

/// The longest come first.
pub(crate) const CASES: &[Case] = cases! { coschedule,
    histories: groups_become_what_the_simulation_says;
    troubles:
        a_quota_forbids_the_placeholder, a_placeholder_is_orphaned,
        a_statefulset_is_admitted_later, a_quota_forbids_the_statefulset,
        a_group_without_a_placeholder_runs_without_it, a_placeholder_steps_aside_for_a_quota;
    moves:
        a_cordoned_node_is_left, a_tainted_node_is_left, a_node_that_is_not_ready_is_left,
        a_deleted_node_is_left, a_node_without_room_for_pods_is_left,
        a_node_without_processors_is_left, a_volume_that_pins_is_reported,
        a_member_that_runs_is_waited_for, a_deleted_placeholder_comes_back_to_its_members,
        no_node_has_room, a_member_gets_the_room_that_an_older_pod_waits_for;
    one_node: pods_of_a_claim_share_a_node_where_it_is_asked_for;
    modes: a_free_task_is_free_in_workspaces_only, tektons_own_assistant_is_left_alone;
    volumes:
        adopted_claims_of_two_zones_meet, volumes_in_two_zones_split_a_run,
        volumes_that_come_to_lie_apart_split_a_run, a_claim_that_a_task_makes_known,
        a_volume_is_made_where_others_admit_the_first_pod;
    runs:
        matrix_finally_and_retries_are_members, unreadable_pipelines_are_one_group,
        runs_that_share_a_claim_share_a_node, a_run_deleted_midway_leaves_nothing,
        a_run_made_again_under_its_old_name, a_claim_that_does_not_exist_yet,
        a_pipeline_that_does_not_exist, names_at_their_limits;
    constraints:
        a_members_own_pod_affinity_is_kept, node_affinity_and_tolerations_hold_for_all,
        tasks_of_another_architecture_are_placed_without_their_run;
    isolation:
        isolated_runs_that_share_a_claim_take_turns, a_run_waits_while_isolated_ones_hold_all_nodes;
    native:
        any_pods_can_be_a_group, the_pods_of_a_leader_worker_set, the_example_of_the_first_page_shares_a_node,
        a_native_group_on_one_volume, pod_security_lets_placeholders_in,
        a_group_with_a_disruption_budget_is_drained, a_placeholder_that_others_gate_is_left_alone;
};

/// These change the policy, or stop stowplan.
pub(crate) const ALONE: &[Case] = cases! { coschedule,
    volumes: provisioned_claims_of_two_zones_meet;
    constraints: members_bound_by_node;
    moves: by_node_a_cordoned_or_full_node_is_left;
    isolation: isolated_runs_never_meet, isolation_within_a_namespace;
    troubles: pods_are_admitted_while_no_controller_runs;
    upgrade: objects_of_an_older_release_are_taken_over;
    load: fifty_runs_at_once, restarts_change_nothing;
};

/// Short enough to wait for in a test, but longer than the two seconds for which the testbed's
/// scheduler may delay a member that it will place.
pub(crate) const GRACE_PERIOD: Duration = Duration::from_secs(4);

/// Starts the control plane with the volumes and Tekton of the testbed.
pub(crate) async fn start_with(
    options: Options,
    change: impl FnOnce(Install) -> Install,
) -> Result<World> {
    let quick = |install: Install| {
        change(install)
            .value("policy.coschedule.gracePeriod", &format!("{}s", GRACE_PERIOD.as_secs()))
            .value("policy.coschedule.groupTTL", "3s")
    };
    with_tekton(World::start_with(options, quick).await?).await
}

/// Adds the volumes and Tekton of the testbed.
pub(crate) async fn with_tekton(mut world: World) -> Result<World> {
    world.helpers.push(Box::new(Volumes::start(&world.client).await?));
    // Tekton is installed after stowplan, which must notice it.
    world.helpers.push(Box::new(Tekton::start(&world.client).await?));
    let world = Arc::new(world);
    pipeline::noticed(&world).await?;
    Arc::into_inner(world).context("the trial has ended")
}

/// Nodes for pods without any constraint: stowplan's own.
pub(crate) fn nodes() -> Vec<NodeSpec> {
    ["east", "west"].map(|zone| NodeSpec::new(zone).zone(zone)).to_vec()
}
