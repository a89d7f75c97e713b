//! Diagnoses for `check`: why a StreamsJob or a HostPool is not ready, and what Streams adds to the
//! diagnosis of a pod.

mod conditions;
mod job;
mod node;
mod pod;
mod pool;
mod scaling;

pub(super) use node::check as check_node;
pub(super) use pod::check as check_pod;

use crate::systems::check::CheckedKind;
use crate::view::Name;

/// The kinds of objects that Streams diagnoses.
pub(super) const KINDS: &[CheckedKind] = &[
    CheckedKind {
        names: &["job", "streamsjob", "streamsjobs", "sj"],
        missing: "StreamsJob",
        needs_all_pods: false,
        check: job::diagnose,
        find_all: job::find_all,
    },
    CheckedKind {
        names: &["pool", "hostpool", "hostpools", "hp"],
        missing: "HostPool",
        needs_all_pods: false,
        check: pool::diagnose,
        find_all: pool::find_all,
    },
];

/// Returns the command that checks a HostPool.
fn check_pool(pool: &Name) -> String {
    format!("stowplan check pool/{} -n {}", pool.name, pool.namespace)
}
