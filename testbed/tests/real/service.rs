//! The webhook's Service and the controllers on real nodes, while pods are created through the API
//! server at a fixed rate: the chart as it is installed, its upgrades, the loss of processes and
//! nodes, a cold start, and its removal.
//!
//! Each case prints what the client saw; nothing depends on how long it took. The API server
//! reaches the webhook by its Service, through kube-proxy.

// With paths, because the soak bench has this file as a module, too.
#[path = "service/faults.rs"]
pub(crate) mod faults;
#[path = "service/load.rs"]
pub(crate) mod load;
#[path = "service/release.rs"]
pub(crate) mod release;
#[path = "service/world.rs"]
pub(crate) mod world;

use std::process::ExitCode;

use self::world::World;
use crate::suite::{self, case};

pub(crate) fn run() -> ExitCode {
    // With few changes between them of what is installed.
    let cases = vec![
        case!(service, release::the_chart_installs_two_of_each),
        case!(service, faults::a_webhook_is_killed),
        case!(service, faults::the_leader_is_killed),
        case!(service, faults::a_node_loses_its_power),
        case!(service, release::an_uninstall_leaves_nothing),
        case!(service, release::an_upgrade_from_the_previous_commit)
            .left_out(world::has_no_previous_commit()),
        case!(service, release::a_rolling_upgrade),
        case!(service, release::the_ca_is_replaced),
        case!(service, faults::a_webhooks_node_is_drained),
        case!(service, faults::a_node_loses_its_power_under_strict),
        case!(service, release::strict_from_a_cold_start),
    ];
    suite::run(cases, World::start, async |world: World, has_failed| {
        suite::stop(world.plane, has_failed).await;
    })
}
