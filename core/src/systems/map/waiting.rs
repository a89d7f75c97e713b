//! The list of what waits, and for what: the obstacles of a diagnosis.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::{Map, Waiting, compare_names};
use crate::systems::check::Diagnosis;
use crate::view::Name;

/// The kind of the diagnosis of a pod.
const POD: &str = "Pod";

/// An object, and why it waits.
struct Found {
    kind: &'static str,
    namespace: String,
    name: String,
    group: Option<usize>,
    why: String,
    remedy: String,
    autoscaler: Option<String>,
    more: usize,
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
        let pods: HashSet<(&str, &str)> = found
            .iter()
            .filter(|found| found.kind == POD)
            .map(|found| (&*found.namespace, &*found.name))
            .collect();
        for pod in self.nodes.iter_mut().flat_map(|node| &mut node.pods) {
            pod.has_obstacle = pods.contains(&(pod.namespace.as_str(), pod.name.as_str()));
        }
        found.sort_by(|one, other| {
            let key = |of: &Found| (of.group.is_none(), of.group, of.is_indirect, of.kind == POD);
            key(one)
                .cmp(&key(other))
                .then_with(|| (one.kind, &one.namespace).cmp(&(other.kind, &other.namespace)))
                .then_with(|| compare_names(&one.name, &other.name))
        });
        let mut same: HashMap<(&'static str, Option<usize>, String, usize), usize> = HashMap::new();
        for Found { kind, namespace, name, group, why, remedy, autoscaler, more, .. } in found {
            let slash = if namespace.is_empty() { "" } else { "/" };
            let object = format!("{namespace}{slash}{name}");
            match same.entry((kind, group, why.clone(), more)) {
                Entry::Occupied(known) => {
                    let known = &mut self.waiting[*known.get()];
                    known.objects.push(object);
                    known.autoscaler = known.autoscaler.take().or(autoscaler);
                }
                Entry::Vacant(entry) => {
                    entry.insert(self.waiting.len());
                    let objects = vec![object];
                    self.waiting.push(Waiting {
                        kind,
                        objects,
                        group,
                        why,
                        remedy,
                        autoscaler,
                        more,
                    });
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
            let (namespace, name) = (namespace.clone(), name.clone());
            let autoscaler = diagnosis.autoscaler.clone();
            found.push(Found {
                kind,
                namespace,
                name,
                group,
                why,
                remedy,
                autoscaler,
                more,
                is_indirect,
            });
        }
    };
    if let Some(first) = diagnosis.obstacles.first() {
        let more = diagnosis.obstacles.len() - 1;
        add(first.what.clone(), first.remedy.clone(), more, false);
    } else if *kind == POD && diagnosis.placed.is_empty() && !diagnosis.has_obstacle() {
        let why = match first_with_obstacle(top) {
            Some(cause) => {
                let slash = if cause.namespace.is_empty() { "" } else { "/" };
                format!("waits for {} {}{slash}{}", cause.kind, cause.namespace, cause.name)
            }
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
