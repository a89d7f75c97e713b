//! The nodes of a large cluster, summed up by their zones.

use std::collections::BTreeMap;

use super::lines::counted;
use stowplan_core::systems::map::{Map, MapNode, compare_names};

/// The nodes of a zone.
#[derive(Debug, Default)]
pub(super) struct Zone {
    /// The name, or that there is none.
    pub(super) title: String,
    nodes: usize,
    /// The nodes of each state, such as `cordoned`.
    states: BTreeMap<&'static str, usize>,
    /// The pods and reserved slots of each group.
    pub(super) groups: BTreeMap<usize, Counts>,
    /// The pods that their own annotations place.
    pub(super) alone: usize,
    pub(super) others: usize,
}

/// The pods and slots of a group in a zone.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counts {
    pub(super) pods: usize,
    pub(super) reserved: usize,
}

impl Zone {
    /// `334 nodes, 3 cordoned`.
    pub(super) fn describe(&self) -> String {
        let states = self.states.iter().map(|(state, count)| format!(", {count} {state}"));
        format!("{}{}", counted(self.nodes, "node"), states.collect::<String>())
    }

    fn add(&mut self, node: &MapNode) {
        self.nodes += 1;
        for state in &node.states {
            *self.states.entry(state).or_default() += 1;
        }
        for pod in &node.pods {
            match pod.group() {
                Some(group) => self.groups.entry(group).or_default().pods += 1,
                None => self.alone += 1,
            }
        }
        for reserved in &node.reserved {
            self.groups.entry(reserved.group).or_default().reserved += 1;
        }
        self.others += node.count_others();
    }
}

/// The zones of all nodes by their names, those without a zone last.
pub(super) fn find_zones(map: &Map) -> Vec<Zone> {
    let mut zones: BTreeMap<Option<&str>, Zone> = BTreeMap::new();
    for node in &map.nodes {
        let zone = zones.entry(node.zone.as_deref()).or_default();
        zone.title = node.zone_in_words().unwrap_or_else(|| "no zone".to_owned());
        zone.add(node);
    }
    let mut zones: Vec<_> = zones.into_iter().collect();
    zones.sort_by(|(one, _), (other, _)| match (one, other) {
        (Some(one), Some(other)) => compare_names(one, other),
        (one, other) => one.is_none().cmp(&other.is_none()),
    });
    zones.into_iter().map(|(_, zone)| zone).collect()
}
