//! NUMA affinity on the map of a cluster: the NUMA nodes of each node with their pods, and the
//! pods that affinities tell apart.

use std::collections::{BTreeMap, BTreeSet};

use super::kinds::pod::NumaPod;
use super::machines::build;
use super::policy::KatalystMode;
use crate::systems::check::Context;
use crate::systems::map::{Cell, Group, Member, Part};
use crate::view::Name;

/// The NUMA nodes, and a group for each label of pods by which affinities select them.
pub(super) fn map(context: &Context<'_>) -> Part {
    let view = &context.cluster.view;
    let policy = &context.policy.katalyst;
    let mut part = Part::default();
    if policy.mode == KatalystMode::Disabled {
        return part;
    }
    let mut pods: Vec<(&Name, &NumaPod)> = view.numa_pods().collect();
    pods.sort_unstable_by_key(|(name, _)| *name);
    let selectors = pods.iter().flat_map(|(_, pod)| pod.affinity.iter().chain(&pod.anti_affinity));
    let keys: BTreeSet<&str> =
        selectors.flat_map(|selector| selector.labels.keys()).map(AsRef::as_ref).collect();
    let keys: Vec<&str> = keys.into_iter().filter(|key| policy.is_declared(key)).collect();
    let mut members: BTreeMap<Name, Vec<Member>> = BTreeMap::new();
    for (name, pod) in pods {
        let label = keys.iter().find_map(|key| Some((*key, pod.labels.get(*key)?)));
        if let Some((key, value)) = label {
            let role = pod.qos.is_exclusive.then_some("alone");
            let member = Member { pod: name.clone(), role, is_placeholder: false };
            let group = Name::new(&name.namespace, &format!("{key}={value}"));
            members.entry(group).or_default().push(member);
        }
    }
    part.groups.extend(members.into_iter().map(|(name, members)| Group {
        kind: "NUMA pods",
        name,
        detail: String::new(),
        members,
        objects: Vec::new(),
    }));
    for (node, topology) in view.topologies() {
        for socket in build(view, topology).sockets {
            for (number, occupants) in socket.zones {
                let of_socket = match socket.name {
                    "" => String::new(),
                    name => format!(", socket {name}"),
                };
                part.cells.push(Cell {
                    node: node.name.to_string(),
                    label: format!("NUMA {number}{of_socket}"),
                    pods: occupants.iter().map(|occupant| occupant.name.clone()).collect(),
                });
            }
        }
    }
    part
}
