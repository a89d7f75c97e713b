//! MPI clusters on the map of a cluster: the launcher and the workers of each.

use super::check::KIND;
use super::request::Role;
use crate::systems::check::Context;
use crate::systems::check::words::counted;
use crate::systems::map::{Group, Member, Part};

/// The clusters, each as a group.
pub(super) fn map(context: &Context<'_>) -> Part {
    let view = &context.cluster.view;
    let groups = view.mpi_clusters().into_iter().map(|name| {
        let workloads = view.workloads_of_cluster(&name);
        let workers = workloads.iter().filter(|(_, of)| of.request.role == Role::Worker);
        let workers: u32 = workers.filter_map(|(_, of)| of.count).fold(0, u32::saturating_add);
        let pods = view.pods_of_cluster(&name);
        let members = pods.into_iter().map(|(pod, of)| Member {
            pod: pod.clone(),
            role: Some(of.role.as_str()),
            is_placeholder: false,
        });
        Group {
            kind: "MPI cluster",
            detail: if workers == 0 { String::new() } else { counted(workers as usize, "worker") },
            members: members.collect(),
            objects: vec![(KIND, name.clone())],
            name,
        }
    });
    Part { groups: groups.collect(), ..Part::default() }
}
