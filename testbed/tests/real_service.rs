//! The webhook's Service and the controllers on real nodes, while pods are created through the API
//! server at a fixed rate: the chart as it is installed, its upgrades, the loss of processes and
//! nodes, a cold start, and its removal.
//!
//! Each case prints what the client saw; nothing depends on how long it took. The API server
//! reaches the webhook by its Service, through kube-proxy. Left out where the machine cannot have
//! real nodes, unless `STOWPLAN_REQUIRE_REAL_NODES=1`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a harness fails and prints as tests do"
)]

#[path = "real_service/faults.rs"]
mod faults;
#[path = "real_service/load.rs"]
mod load;
#[path = "real_service/release.rs"]
mod release;
#[path = "real/stowplan_image.rs"]
mod stowplan_image;
#[path = "real/suite.rs"]
mod suite;
#[path = "real_service/world.rs"]
mod world;

use std::process::ExitCode;

use suite::case;
use world::World;

fn main() -> ExitCode {
    // With few changes between them of what is installed.
    let cases = vec![
        case!(release::the_chart_installs_two_of_each),
        case!(faults::a_webhook_is_killed),
        case!(faults::the_leader_is_killed),
        case!(faults::a_node_loses_its_power),
        case!(release::an_uninstall_leaves_nothing),
        case!(release::an_upgrade_from_the_previous_commit)
            .left_out(world::has_no_previous_commit()),
        case!(release::a_rolling_upgrade),
        case!(release::the_ca_is_replaced),
        case!(faults::a_webhooks_node_is_drained),
        case!(faults::a_node_loses_its_power_under_strict),
        case!(release::strict_from_a_cold_start),
    ];
    suite::run(cases, World::start, async |world: World, has_failed| {
        suite::stop(world.plane, has_failed).await;
    })
}
