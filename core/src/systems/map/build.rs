//! Joins the parts of all systems with the nodes and pods of the cluster.

use std::collections::{BTreeMap, HashMap};

use super::{
    Group, Map, MapBadge, MapCell, MapGroup, MapNode, MapPod, MapReserved, Member, Part,
    compare_names, mark,
};
use crate::kubernetes::{annotation, is_finished, node_name};
use crate::placement::record;
use crate::systems::DIAGNOSTICS;
use crate::systems::check::Context;
use crate::systems::fit::Candidate;
use crate::view::Name;

/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The groups of a pod: their indices, its role in the first one, and true if it is its
/// placeholder.
#[derive(Debug, Default)]
struct Membership {
    groups: Vec<usize>,
    role: Option<&'static str>,
    is_placeholder: bool,
}

impl Map {
    /// The map of a namespace, or of all. What waits is added by [`Self::add_waiting`].
    pub fn new(context: &Context<'_>, namespace: Option<&str>) -> Self {
        let parts: Vec<Part> = DIAGNOSTICS.iter().map(|system| (system.map)(context)).collect();
        let is_shown = |of: &str| namespace.is_none_or(|namespace| namespace == of);
        let mut map = Self::default();
        let mut memberships: HashMap<Name, Membership> = HashMap::new();
        let mut nodes = find_nodes(context);
        for part in parts {
            let numbers = map.add_groups(part.groups, &is_shown, &mut memberships);
            let number = |index: usize| numbers.get(index).copied().flatten();
            for (node, reserved) in part.reserved {
                let Some(group) = number(reserved.group) else { continue };
                let node = &mut node_of(&mut nodes, &node).node;
                node.reserved.push(MapReserved { group, ..reserved });
                map.groups[group].reserved += 1;
            }
            for (node, badge) in part.badges {
                let group = badge.group.and_then(number);
                // A badge of a group that is not shown is not shown either.
                if group.is_some() == badge.group.is_some() {
                    let node = &mut node_of(&mut nodes, &node).node;
                    node.badges.push(MapBadge { group, ..badge });
                }
            }
            for cell in part.cells {
                let node = node_of(&mut nodes, &cell.node);
                node.cells.push((cell.label, cell.pods));
            }
        }
        map.add_pods(context, &is_shown, &memberships, &mut nodes);
        let first = |(pod, of): (Name, Membership)| Some((pod, *of.groups.first()?));
        map.group_of_pods = memberships.into_iter().filter_map(first).collect();
        let mut nodes: Vec<Draft> = nodes.into_values().collect();
        nodes.sort_by(|one, other| {
            let names = compare_names(&one.node.name, &other.node.name);
            one.is_unknown.cmp(&other.is_unknown).then(names)
        });
        map.nodes = nodes.into_iter().map(Draft::finish).collect();
        map
    }

    /// Adds the groups of a system in a stable order. Returns the index of each in the map; `None`: it is
    /// not shown.
    fn add_groups(
        &mut self,
        groups: Vec<Group>,
        is_shown: &impl Fn(&str) -> bool,
        memberships: &mut HashMap<Name, Membership>,
    ) -> Vec<Option<usize>> {
        let mut numbers = vec![None; groups.len()];
        let mut sorted: Vec<(usize, Group)> = groups.into_iter().enumerate().collect();
        sorted.retain(|(_, group)| is_shown(&group.name.namespace));
        sorted.sort_by(|(_, one), (_, other)| {
            let key = |of: &Group| (of.kind, of.name.namespace.clone());
            let by_name = compare_names(&one.name.name, &other.name.name);
            key(one).cmp(&key(other)).then(by_name).then_with(|| one.detail.cmp(&other.detail))
        });
        for (index, group) in sorted {
            let number = self.groups.len();
            numbers[index] = Some(number);
            for Member { pod, role, is_placeholder } in group.members {
                let of_pod = memberships.entry(pod).or_default();
                if of_pod.groups.is_empty() {
                    (of_pod.role, of_pod.is_placeholder) = (role, is_placeholder);
                }
                of_pod.groups.push(number);
            }
            self.groups.push(MapGroup {
                mark: mark(number),
                kind: group.kind,
                namespace: group.name.namespace.to_string(),
                name: group.name.name.to_string(),
                detail: group.detail,
                placed: 0,
                pending: 0,
                reserved: 0,
                placeholders: 0,
                objects: group.objects,
            });
        }
        numbers
    }

    /// Puts the pods that have not ended on their nodes, and counts those without a node.
    fn add_pods(
        &mut self,
        context: &Context<'_>,
        is_shown: &impl Fn(&str) -> bool,
        memberships: &HashMap<Name, Membership>,
        nodes: &mut BTreeMap<String, Draft>,
    ) {
        let none = Membership::default();
        for pod in context.cluster.pods.iter().filter(|pod| !is_finished(pod)) {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            if !is_shown(namespace) {
                continue;
            }
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let key = Name::new(namespace, name);
            let membership = memberships.get(&key).unwrap_or(&none);
            let node = node_name(pod);
            for group in &membership.groups {
                let group = &mut self.groups[*group];
                match node {
                    Some(_) => group.placed += 1,
                    None => group.pending += 1,
                }
                group.placeholders += usize::from(membership.is_placeholder);
            }
            let Some(node) = node else { continue };
            let node = node_of(nodes, node);
            node.seen += 1;
            let is_placed = annotation(&pod.metadata, record::KEY).is_some();
            if membership.groups.is_empty() && !is_placed {
                node.node.others.push(format!("{namespace}/{name}"));
                continue;
            }
            node.node.pods.push(MapPod {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                groups: membership.groups.clone(),
                role: membership.role,
                is_placeholder: membership.is_placeholder,
                has_obstacle: false,
            });
        }
    }
}

/// A node to which pods are still added.
#[derive(Debug, Default)]
struct Draft {
    node: MapNode,
    is_unknown: bool,
    cells: Vec<(String, Vec<Name>)>,
    /// The pods that are shown.
    seen: usize,
    /// All pods.
    all: usize,
}

/// All nodes of the cluster.
fn find_nodes(context: &Context<'_>) -> BTreeMap<String, Draft> {
    let draft = |candidate: Candidate<'_>| {
        let details = candidate.node.details.as_deref();
        let label = |key: &str| details.and_then(|details| details.labels.get(key));
        let mut states = Vec::new();
        if candidate.node.cordoned {
            states.push("cordoned");
        }
        if details.is_some_and(|details| !details.ready) {
            states.push("NotReady");
        }
        let zone = label(ZONE).filter(|zone| !zone.is_empty()).map(ToString::to_string);
        let name = candidate.name.to_owned();
        let usage = context.cluster.view.node_usage(candidate.name);
        let node = MapNode { name: name.clone(), zone, states, ..MapNode::default() };
        (name, Draft { node, all: usage.map_or(0, |usage| usage.pods), ..Draft::default() })
    };
    context.cluster.candidates().map(draft).collect()
}

/// The node of this name. One that the cluster does not have is added.
fn node_of<'n>(nodes: &'n mut BTreeMap<String, Draft>, name: &str) -> &'n mut Draft {
    nodes.entry(name.to_owned()).or_insert_with(|| {
        let states = vec!["unknown"];
        let node = MapNode { name: name.to_owned(), states, ..MapNode::default() };
        Draft { node, is_unknown: true, ..Draft::default() }
    })
}

impl Draft {
    fn finish(self) -> MapNode {
        let mut node = self.node;
        node.pods.sort_by(|one, other| {
            let key = |of: &MapPod| (of.groups.is_empty(), of.group(), !of.is_placeholder);
            let by_name = compare_names(&one.name, &other.name);
            let exactly = || (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name));
            key(one).cmp(&key(other)).then(by_name).then_with(exactly)
        });
        node.reserved.sort_by(|one, other| {
            one.group.cmp(&other.group).then_with(|| compare_names(&one.label, &other.label))
        });
        node.badges.sort_by(|one, other| {
            one.group.cmp(&other.group).then_with(|| compare_names(&one.label, &other.label))
        });
        node.others.sort_by(|one, other| compare_names(one, other));
        node.unseen = self.all.saturating_sub(self.seen);
        let is =
            |pod: &MapPod, name: &Name| pod.name == *name.name && pod.namespace == *name.namespace;
        let index = |name: &Name| node.pods.iter().position(|pod| is(pod, name));
        let cells = self.cells.iter().map(|(label, pods)| MapCell {
            label: label.clone(),
            pods: pods.iter().filter_map(index).collect(),
        });
        node.cells = cells.collect();
        node
    }
}
