//! The map of a cluster for the command `map`: which pod is where, with which others it belongs together,
//! what is reserved, and what waits.
//!
//! Each system contributes what it knows ([`Part`]). [`Map::new`] joins these parts with the nodes and
//! pods, which all systems have in common. The command draws the map, and knows no system.

mod build;
mod waiting;

use std::cmp::Ordering;
use std::collections::HashMap;

use serde::Serialize;

use crate::systems::check::Context;
use crate::view::Name;

/// Finds what a system knows about the cluster.
pub(crate) type MapFn = fn(&Context<'_>) -> Part;

/// The knowledge of a system about the cluster. Groups are referred to by their indices in `groups`.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) groups: Vec<Group>,
    /// Nodes on which a pod of a group may still come to run. Its `group` becomes an index of the map's groups.
    pub(crate) reserved: Vec<(String, MapReserved)>,
    /// Nodes with a role. Its `group` becomes an index of the map's groups.
    pub(crate) badges: Vec<(String, MapBadge)>,
    pub(crate) cells: Vec<Cell>,
}

/// Pods that belong together.
#[derive(Debug)]
pub(crate) struct Group {
    /// The word for them, such as the kind of the object that describes them.
    pub(crate) kind: &'static str,
    pub(crate) name: Name,
    /// A text that distinguishes the group from others of this name, or says more about it. May be empty.
    pub(crate) detail: String,
    pub(crate) members: Vec<Member>,
    /// The objects beside the pods whose diagnoses are about the group: their kinds and names.
    pub(crate) objects: Vec<(&'static str, Name)>,
}

/// A pod of a group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) pod: Name,
    /// The role of the pod in the group, for people. `None`: one of its pods.
    pub(crate) role: Option<&'static str>,
    /// True if the pod does none of the group's work, and only keeps it together.
    pub(crate) is_placeholder: bool,
}

impl Member {
    /// One of the pods.
    pub(crate) fn plain(pod: Name) -> Self {
        Self { pod, role: None, is_placeholder: false }
    }
}

/// A part of a node that has pods of its own.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) node: String,
    pub(crate) label: String,
    pub(crate) pods: Vec<Name>,
}

/// A map. Groups and pods are referred to by their indices.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Map {
    /// In the order of their marks.
    pub groups: Vec<MapGroup>,
    /// In the natural order of their names; those that are only named by pods come last.
    pub nodes: Vec<MapNode>,
    pub waiting: Vec<Waiting>,
    /// The group that a pod is drawn as.
    #[serde(skip)]
    group_of_pods: HashMap<Name, usize>,
}

/// Pods that belong together, and how many.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapGroup {
    /// `A` to `Z`, then `AA`.
    pub mark: String,
    pub kind: &'static str,
    pub(crate) namespace: String,
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The pods with a node.
    pub placed: usize,
    /// The pods without a node.
    pub pending: usize,
    /// The reserved slots without a pod.
    pub reserved: usize,
    /// The pods among these that only keep the group together.
    pub placeholders: usize,
    #[serde(skip)]
    objects: Vec<(&'static str, Name)>,
}

/// A node.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapNode {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The reasons why it takes no pods, in a word each: `cordoned`, `NotReady`, `unknown`.
    pub states: Vec<&'static str>,
    pub badges: Vec<MapBadge>,
    /// The pods of groups, and those that were placed by their own annotations; by group and name.
    pub pods: Vec<MapPod>,
    pub reserved: Vec<MapReserved>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<MapCell>,
    /// The pods with which stowplan has nothing to do.
    pub others: Vec<String>,
    /// The pods of namespaces that are not shown.
    pub unseen: usize,
}

/// The role of a node for a group.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapBadge {
    /// `None`: it is not of one group.
    pub group: Option<usize>,
    pub label: String,
}

/// A pod on a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapPod {
    pub(crate) namespace: String,
    pub name: String,
    /// The group that it is drawn as, then the others.
    pub groups: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    pub is_placeholder: bool,
    /// True if something is wrong with it: the waiting objects have it.
    pub has_obstacle: bool,
}

/// A reserved slot without a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapReserved {
    pub group: usize,
    /// The name of what the node is reserved for.
    pub label: String,
}

/// A part of a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapCell {
    pub label: String,
    /// Indices of the node's pods.
    pub pods: Vec<usize>,
}

/// Objects that wait for the same, or have the same problem.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    pub kind: &'static str,
    /// With their namespaces.
    pub objects: Vec<String>,
    pub group: Option<usize>,
    /// One sentence.
    pub why: String,
    /// Empty if `why` ends in a remedy, or the cause is another object of the list.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// The last statement of an autoscaler about one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaler: Option<String>,
    /// The number of further obstacles that these objects have.
    #[serde(skip_serializing_if = "is_none")]
    pub more: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(number: &usize) -> bool {
    *number == 0
}

impl MapGroup {
    /// The namespace and the name.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl MapNode {
    /// Returns the pods that are in none of its cells.
    pub fn pods_outside_cells(&self) -> impl Iterator<Item = &MapPod> {
        let is_inside = |index| self.cells.iter().any(|cell| cell.pods.contains(&index));
        let pods = self.pods.iter().enumerate();
        pods.filter(move |(index, _)| !is_inside(*index)).map(|(_, pod)| pod)
    }

    /// Returns the number of pods with which stowplan has nothing to do, or that are not shown.
    pub fn count_others(&self) -> usize {
        self.others.len() + self.unseen
    }

    /// Names the zone in words: `zone a`, but `zone-a` says it by itself.
    pub fn zone_in_words(&self) -> Option<String> {
        let zone = self.zone.as_ref()?;
        Some(if zone.contains("zone") { zone.clone() } else { format!("zone {zone}") })
    }
}

impl MapPod {
    /// The namespace and the name.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The group that it is drawn as.
    pub fn group(&self) -> Option<usize> {
        self.groups.first().copied()
    }
}

/// Compares names so that `node-2` comes before `node-10`.
pub fn compare_names(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one, other);
    loop {
        let (a, rest_of_left) = first_run(left);
        let (b, rest_of_right) = first_run(right);
        if a.is_empty() || b.is_empty() {
            return a.len().cmp(&b.len()).then_with(|| one.cmp(other));
        }
        let are_numbers = [a, b].iter().all(|run| run.starts_with(|c: char| c.is_ascii_digit()));
        let order = match are_numbers {
            true => {
                let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
                a.len().cmp(&b.len()).then_with(|| a.cmp(b))
            }
            false => a.cmp(b),
        };
        if order.is_ne() {
            return order;
        }
        (left, right) = (rest_of_left, rest_of_right);
    }
}

/// The digits, or the other characters, with which a text begins, and the rest.
fn first_run(text: &str) -> (&str, &str) {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(text.len());
    text.split_at(end)
}

/// The mark of the group with this index: `A` to `Z`, then `AA`.
fn mark(index: usize) -> String {
    const LETTERS: &[u8; 26] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut letters = Vec::new();
    let mut rest = index + 1;
    while rest > 0 {
        letters.push(char::from(LETTERS[(rest - 1) % LETTERS.len()]));
        rest = (rest - 1) / LETTERS.len();
    }
    letters.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let mut names = ["n10", "n2", "n", "m-3", "n02", "n2-b", "n2-a", "10", "9", "é"];
        names.sort_by(|one, other| compare_names(one, other));
        assert_eq!(names, ["9", "10", "m-3", "n", "n02", "n2", "n2-a", "n2-b", "n10", "é"]);
        let long = "9".repeat(262_144);
        assert_eq!(compare_names(&long, &format!("{long}0")), Ordering::Less);
    }

    #[test]
    fn marks_go_on_after_the_alphabet() {
        let marks = [0, 25, 26, 51, 52, 701, 702].map(mark);
        assert_eq!(marks, ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }
}
