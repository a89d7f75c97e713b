//! The list of what waits, and for what: the obstacles of a diagnosis.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::{Map, Waiting, compare_names};
use crate::systems::check::Diagnosis;
use crate::view::Name;

/// The kind of the diagnosis of a pod.
const POD: &str = "Pod";

/// An object that waits.
struct Found {
    waiting: Waiting,
    namespace: String,
    name: String,
    /// True if the cause is another object of the list.
    is_indirect: bool,
}

impl Map {
    /// Adds what waits by the diagnosis of a namespace, or of all.
    pub fn add_waiting(&mut self, root: &Diagnosis) {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let groups = self.groups_by_object();
        for top in tops(root) {
            collect(top, top, &groups, &mut seen, &mut found);
        }
        let of_pods = found.iter().filter(|found| found.waiting.kind == POD);
        let pods: HashSet<(&str, &str)> =
            of_pods.map(|found| (&*found.namespace, &*found.name)).collect();
        for pod in self.nodes.iter_mut().flat_map(|node| &mut node.pods) {
            pod.has_obstacle = pods.contains(&(pod.namespace.as_str(), pod.name.as_str()));
        }
        found.sort_by(|one, other| {
            let key = |of: &Found| {
                let Waiting { kind, group, .. } = of.waiting;
                (group.is_none(), group, of.is_indirect, kind == POD, kind)
            };
            key(one)
                .cmp(&key(other))
                .then_with(|| one.namespace.cmp(&other.namespace))
                .then_with(|| compare_names(&one.name, &other.name))
        });
        let mut same: HashMap<(&'static str, Option<usize>, String, usize), usize> = HashMap::new();
        for Found { mut waiting, .. } in found {
            match same.entry((waiting.kind, waiting.group, waiting.why.clone(), waiting.more)) {
                Entry::Occupied(known) => {
                    let known = &mut self.waiting[*known.get()];
                    known.objects.append(&mut waiting.objects);
                    known.autoscaler = known.autoscaler.take().or(waiting.autoscaler);
                }
                Entry::Vacant(entry) => {
                    entry.insert(self.waiting.len());
                    self.waiting.push(waiting);
                }
            }
        }
    }

    /// The group of each pod, and of each object whose diagnosis is about a group.
    fn groups_by_object(&self) -> Groups {
        let mut groups = Groups::new();
        for (index, group) in self.groups.iter().enumerate() {
            for (kind, name) in &group.objects {
                groups.entry((kind, name.clone())).or_insert(index);
            }
        }
        let of_pods = self.group_of_pods.iter();
        groups.extend(of_pods.map(|(pod, group)| ((POD, pod.clone()), *group)));
        groups
    }
}

/// The group of each object, by its kind and name.
type Groups = HashMap<(&'static str, Name), usize>;

/// The diagnoses of the objects of one or all namespaces.
fn tops(root: &Diagnosis) -> Vec<&Diagnosis> {
    match root.kind {
        "Cluster" => root.parts.iter().flat_map(tops).collect(),
        "Namespace" => root.parts.iter().collect(),
        _ => vec![root],
    }
}

/// Collects the objects with an obstacle, and the pods without a node whose obstacle is that of another
/// object of `top`.
fn collect<'d>(
    diagnosis: &'d Diagnosis,
    top: &'d Diagnosis,
    groups: &Groups,
    seen: &mut HashSet<(&'d str, &'d str, &'d str)>,
    found: &mut Vec<Found>,
) {
    let Diagnosis { kind, namespace, name, .. } = diagnosis;
    let mut add = |why: String, remedy: String, more: usize, is_indirect: bool| {
        if seen.insert((*kind, namespace.as_str(), name.as_str())) {
            let group = groups.get(&(*kind, Name::new(namespace, name))).copied();
            let (objects, autoscaler) = (vec![diagnosis.full_name()], diagnosis.autoscaler.clone());
            let waiting = Waiting { kind, objects, group, why, remedy, autoscaler, more };
            let (namespace, name) = (namespace.clone(), name.clone());
            found.push(Found { waiting, namespace, name, is_indirect });
        }
    };
    if let Some(first) = diagnosis.obstacles.first() {
        let more = diagnosis.obstacles.len() - 1;
        add(first.what.clone(), first.remedy.clone(), more, false);
    } else if *kind == POD && diagnosis.placed.is_empty() && !diagnosis.has_obstacle() {
        let why = match first_with_obstacle(top) {
            Some(cause) => format!("waits for {} {}", cause.kind, cause.full_name()),
            None => "no obstacle is known".to_owned(),
        };
        add(why, String::new(), 0, true);
    }
    for part in &diagnosis.parts {
        collect(part, top, groups, seen, found);
    }
}

/// The first object with an obstacle of its own; one that is no pod, if there is one.
fn first_with_obstacle(diagnosis: &Diagnosis) -> Option<&Diagnosis> {
    let mut all = Vec::new();
    let mut rest = vec![diagnosis];
    while let Some(next) = rest.pop() {
        all.push(next);
        rest.extend(next.parts.iter().rev());
    }
    let has_own = |of: &&&Diagnosis| !of.obstacles.is_empty();
    let other = all.iter().filter(has_own).find(|of| of.kind != POD);
    other.or_else(|| all.iter().find(has_own)).copied()
}
