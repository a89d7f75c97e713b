//! The table of pods that must be on the node of other pods: what else they require, so that a new
//! pod which contradicts it can be refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::PodAffinityTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

use super::streams_pod::{Group, PodDetails, is_colocation_key};
use crate::kubernetes::{HOSTNAME, affinity, is_finished, required_anti_terms, required_pod_terms};
use crate::systems::{is_shared_by_node_mates, streams::keys::PREFIX};
use crate::view::pod::PODS;
use crate::view::rows::TableRow;
use crate::view::table::Watch;
use crate::view::{Kind, Name, Scope, Table};

/// A label: key and value.
type Label = (Box<str>, Box<str>);

/// The requirements of a pod that must be on the node of others.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Companion {
    /// The labels that the terms of stowplan are about.
    labels: Box<[Label]>,
    /// The labels among them whose pods must be on one node.
    together: Box<[Label]>,
    /// Its required anti-affinity by node, as far as it is about such labels.
    apart: Box<[Box<[Rule]>]>,
}

/// A requirement of a label selector.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Rule {
    key: Box<str>,
    /// `In`, else `NotIn`.
    is_in: bool,
    values: Box<[Box<str>]>,
}

impl Companion {
    /// Reads a pod. `None` if it needs no other pod on its node, has finished or is being deleted.
    fn read(pod: &core::Pod) -> Option<Self> {
        if is_finished(pod) || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let near = required_pod_terms(affinity(pod));
        let all = pod.metadata.labels.iter().flatten().filter(|(key, _)| is_known(key));
        let together = all.clone().filter(|(key, _)| {
            is_shared_by_node_mates(key)
                // A pod that only prefers the node of the others may be elsewhere.
                && (!is_colocation_key(key)
                    || near.iter().any(|term| term.topology_key == HOSTNAME && names(term, key)))
        });
        let own = |(key, value): (&String, &String)| (key.as_str().into(), value.as_str().into());
        let together: Box<[Label]> = together.map(own).collect();
        (!together.is_empty()).then(|| Self {
            labels: all.map(own).collect(),
            together,
            apart: required_anti_terms(affinity(pod)).iter().filter_map(read_rules).collect(),
        })
    }

    /// The value of a label that the terms of stowplan are about.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(own, _)| **own == *key).map(|(_, value)| &**value)
    }

    /// Returns true if it keeps a pod with these labels off its node.
    pub(crate) fn excludes<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        let holds = |rule: &Rule| {
            let value = label(&rule.key);
            let is_listed = value.is_some_and(|own| rule.values.iter().any(|it| **it == *own));
            is_listed == rule.is_in
        };
        self.apart.iter().any(|rules| rules.iter().all(holds))
    }
}

/// Returns true if the terms of stowplan may be about a label of this key.
fn is_known(key: &str) -> bool {
    key.starts_with(PREFIX) || key.starts_with("stowplan.dev/")
}

/// Returns true if a term of pod affinity selects by a label of this key.
fn names(term: &PodAffinityTerm, key: &str) -> bool {
    let rules = term.label_selector.as_ref().and_then(|it| it.match_expressions.as_ref());
    rules.into_iter().flatten().any(|rule| rule.key == *key)
}

/// Reads a term of anti-affinity. `None` if it is about other labels, or not by node.
fn read_rules(term: &PodAffinityTerm) -> Option<Box<[Rule]>> {
    let selector = term.label_selector.as_ref()?;
    let is_plain = term.topology_key == HOSTNAME
        && term.namespace_selector.is_none()
        && [&term.namespaces, &term.match_label_keys, &term.mismatch_label_keys]
            .iter()
            .all(|list| list.as_ref().is_none_or(Vec::is_empty))
        && selector.match_labels.as_ref().is_none_or(|labels| labels.is_empty());
    let read = |rule: &LabelSelectorRequirement| {
        let is_in = match rule.operator.as_str() {
            "In" => true,
            "NotIn" => false,
            _ => return None,
        };
        let values = rule.values.iter().flatten().map(|value| value.as_str().into()).collect();
        is_known(&rule.key).then(|| Rule { key: rule.key.as_str().into(), is_in, values })
    };
    let rules: Option<Box<[Rule]>> =
        selector.match_expressions.iter().flatten().map(read).collect();
    rules.filter(|rules| is_plain && !rules.is_empty())
}

/// The pods of a group, by what they require: the pods of one workload are alike, so that a decision
/// costs the same for one of them and for a thousand.
type Mates = BTreeMap<Arc<Companion>, BTreeSet<Name>>;

/// The table of pods that must be on the node of others.
#[derive(Debug, Default)]
pub(crate) struct Companions {
    pods: HashMap<Name, Arc<Companion>>,
    /// A group without pods has no entry.
    groups: HashMap<Group, Mates>,
}

impl Companions {
    /// The pods that must be on one node by this label, of those that are alike two: one of them may be
    /// the new pod itself. `only_exclusive`: nothing if none of them excludes other pods.
    pub(crate) fn of_group(
        &self,
        namespace: &str,
        label: (&str, &str),
        only_exclusive: bool,
    ) -> impl Iterator<Item = (&Name, &Companion)> {
        let mates = self.groups.get(&Group::new(namespace, label));
        let excludes_others = |mates: &&Mates| mates.keys().any(|pod| !pod.apart.is_empty());
        let mates = mates.filter(|mates| !only_exclusive || excludes_others(mates));
        mates
            .into_iter()
            .flatten()
            .flat_map(|(pod, names)| names.iter().take(2).map(|name| (name, &**pod)))
    }
}

impl TableRow for Companion {
    type Object = core::Pod;
    const KIND: &'static Kind = &PODS;

    fn watches(scope: Scope) -> Vec<Watch> {
        PodDetails::watches(scope)
    }

    fn from_object(pod: &core::Pod, _: Scope) -> Option<Self> {
        Self::read(pod)
    }
}

impl Table for Companions {
    type Row = Companion;

    fn put(&mut self, name: Name, pod: Companion) {
        let mut pod = Arc::new(pod);
        for (key, value) in pod.together.clone() {
            let group = Group::new(&name.namespace, (&key, &value));
            let mates = self.groups.entry(group).or_default();
            // Pods that are alike share one value.
            if let Some((known, _)) = mates.get_key_value(&pod) {
                pod = Arc::clone(known);
            }
            mates.entry(Arc::clone(&pod)).or_default().insert(name.clone());
        }
        self.pods.insert(name, pod);
    }

    fn forget(&mut self, name: &Name) {
        let Some(pod) = self.pods.remove(name) else { return };
        for (key, value) in &pod.together {
            let group = Group::new(&name.namespace, (key, value));
            let Some(mates) = self.groups.get_mut(&group) else { continue };
            if let Some(names) = mates.get_mut(&pod) {
                names.remove(name);
                if names.is_empty() {
                    mates.remove(&pod);
                }
            }
            if mates.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    fn count(&self) -> usize {
        self.pods.len()
    }

    fn shows(&self, name: &Name, pod: Option<&Companion>) -> bool {
        self.pods.get(name).map(AsRef::as_ref) == pod
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, near: bool, apart: &Value) -> core::Pod {
        let term = json!({"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": [
            {"key": "streams.ibm.com/hostcolocation.A", "operator": "In", "values": ["a"]}]}});
        let near = if near { json!([term]) } else { json!([]) };
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "labels": {
                "app": "streams", "streams.ibm.com/job": "j", "streams.ibm.com/pe": name,
                "streams.ibm.com/hostcolocation.A": "a"}},
            "spec": {"containers": [], "affinity": {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}},
        }))
        .unwrap()
    }

    fn apart(key: &str) -> Value {
        json!([{"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": [
            {"key": key, "operator": "In", "values": ["j"]},
            {"key": "streams.ibm.com/pe", "operator": "NotIn", "values": ["p"]}]}}])
    }

    #[test]
    fn of_pods_that_are_alike_two_are_found_until_they_are_forgotten() {
        let mut pods = Companions::default();
        let mut put = |name: &str, pod: &core::Pod| {
            let name = Name::new("ns", name);
            let row = || Companion::from_object(pod, Scope::Admission);
            assert_eq!(pods.replace(&name, row()), row().is_some(), "{name:?}");
            assert!(!pods.replace(&name, row()), "{name:?}");
        };
        let alike: Vec<String> = (0..100).map(|number| format!("p-{number:02}")).collect();
        for name in &alike {
            put(name, &pod("p", true, &apart("streams.ibm.com/job")));
        }
        put("q", &pod("q", true, &apart("app")));
        put("r", &pod("r", false, &json!([])));
        let label = ("streams.ibm.com/hostcolocation.A", "a");
        let of_group = |pods: &Companions, exclusive: bool| {
            let names =
                pods.of_group("ns", label, exclusive).map(|(name, _)| name.name.to_string());
            names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of_group(&pods, false), ["p-00", "p-01", "q"], "r only prefers the node");
        assert_eq!(of_group(&pods, true), ["p-00", "p-01", "q"]);
        alike[1..].iter().for_each(|name| pods.forget(&Name::new("ns", name)));
        assert_eq!(of_group(&pods, true), ["p-00", "q"]);
        pods.forget(&Name::new("ns", "p-00"));
        assert!(of_group(&pods, true).is_empty(), "the term of q is about other labels");
        pods.forget(&Name::new("ns", "q"));
        assert!(pods.groups.is_empty() && pods.pods.is_empty());
    }
}
