//! CustomNodeResources: the NUMA nodes of a node, and the pods on each.
//!
//! `status.topologyZone` is a tree: sockets, their NUMA nodes, and deeper zones. Its schema is open, so it
//! is read leniently: what cannot be read is left out, and the first problem is kept.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::systems::katalyst::resources::CUSTOM_NODE_RESOURCE;
use crate::view::document::{Foreign, ForeignRow, filled, items, problem};
use crate::view::rows::{Rows, TableRow};
use crate::view::table::Definition;
use crate::view::{Identity, Kind, Name, Scope};

/// The highest number of a NUMA node that Katalyst takes.
const HIGHEST: u8 = 63;

/// Katalyst's report about a node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Topology {
    pub identity: Identity,
    /// `status.topologyPolicy`.
    pub policy: Option<Box<str>>,
    /// True if Katalyst's agent runs there, as far as the conditions say.
    pub has_agent: bool,
    /// The sockets by name, each with its NUMA nodes. One that the report does not name is empty.
    pub sockets: BTreeMap<Box<str>, Socket>,
    /// The part that could not be read.
    pub problem: Option<Box<str>>,
}

/// The NUMA nodes of a socket, by number.
pub(crate) type Socket = BTreeMap<u8, Box<[Consumer]>>;

/// A pod that has resources of a NUMA node.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Consumer {
    pub pod: Name,
    pub uid: Box<str>,
}

impl Topology {
    /// Returns true if the node rejects a pod for which no NUMA node is feasible. Under the other topology
    /// policies the kubelet admits it on any.
    pub(crate) fn is_strict(&self) -> bool {
        let policy = self.policy.as_deref().unwrap_or_default();
        policy.starts_with("Restricted") || policy.starts_with("SingleNUMANode")
    }

    /// The NUMA nodes with their sockets, sorted.
    pub(crate) fn zones(&self) -> impl Iterator<Item = (&str, u8, &[Consumer])> {
        self.sockets.iter().flat_map(|(socket, zones)| {
            zones.iter().map(|(zone, consumers)| (&**socket, *zone, &**consumers))
        })
    }

    /// Adds a NUMA node. Returns the first problem with the path of the field in the zone.
    fn add(&mut self, socket: &str, zone: &Value) -> Result<(), String> {
        let name = filled(&zone["name"]).unwrap_or_default();
        let is_plain = name.bytes().all(|byte| byte.is_ascii_digit());
        let number = name.parse().ok().filter(|number| is_plain && *number <= HIGHEST);
        let Some(number) = number else {
            return Err(".name: is not the number of a NUMA node".to_owned());
        };
        let mut result = Ok(());
        let mut consumers = Vec::new();
        for (index, allocation) in items(&zone["allocations"]).enumerate() {
            match filled(&allocation["consumer"]).map(Consumer::parse) {
                None => {}
                Some(Some(consumer)) => consumers.push(consumer),
                Some(None) => {
                    let problem = "is not <namespace>/<pod>/<UID> and is ignored";
                    let problem = format!(".allocations[{index}].consumer: {problem}");
                    result = result.and(Err(problem));
                }
            }
        }
        let zones = self.sockets.entry(socket.into()).or_default();
        if let Some(earlier) = zones.get(&number) {
            result = result.and_then(|()| Err(".name: occurs twice".to_owned()));
            consumers.extend(earlier.iter().cloned());
        }
        consumers.sort_unstable();
        consumers.dedup();
        zones.insert(number, consumers.into());
        result
    }
}

/// The types of the fields of the status.
static STATUS: LazyLock<Value> = LazyLock::new(|| {
    let zone = json!({"type": "", "name": "", "allocations": [{"consumer": ""}]});
    let mut root = zone.clone();
    root["children"] = json!([zone]);
    json!({
        "topologyPolicy": "", "conditions": [{"type": "", "status": ""}], "topologyZone": [root],
    })
});

impl ForeignRow for Topology {
    fn read(metadata: &ObjectMeta, _: Value, status: Value) -> Self {
        let mut report = Self {
            identity: Identity::from(metadata),
            has_agent: true,
            problem: problem("status", &status, &STATUS),
            ..Self::default()
        };
        report.policy = filled(&status["topologyPolicy"]).map(Into::into);
        report.has_agent = !items(&status["conditions"]).any(|condition| {
            matches!(
                (condition["type"].as_str(), condition["status"].as_str()),
                (Some("AgentReady"), Some("False")) | (Some("AgentNotFound"), Some("True"))
            )
        });
        let is = |zone: &Value, type_: &str| zone["type"] == *type_;
        for (root, zone) in items(&status["topologyZone"]).enumerate() {
            let at = format!("status.topologyZone[{root}]");
            let found = if is(zone, "Socket") {
                let socket = filled(&zone["name"]).unwrap_or_default();
                let children = items(&zone["children"]).enumerate();
                let numa = children.filter(|(_, child)| is(child, "Numa"));
                let found = numa.map(|(child, numa)| {
                    let added = report.add(socket, numa);
                    added.map_err(|problem| format!("{at}.children[{child}]{problem}"))
                });
                found.fold(Ok(()), Result::and)
            } else if is(zone, "Numa") {
                report.add("", zone).map_err(|problem| format!("{at}{problem}"))
            } else {
                Ok(())
            };
            report.problem = report.problem.or_else(|| found.err().map(Into::into));
        }
        report
    }
}

impl Consumer {
    /// `<namespace>/<pod>/<UID>`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
        let is_whole = parts.next().is_none() && ![namespace, pod, uid].contains(&"");
        is_whole.then(|| Self { pod: Name::new(namespace, pod), uid: uid.into() })
    }
}

static TOPOLOGIES: Kind = Kind {
    definition: Definition::Foreign,
    without: Some("which NUMA nodes are feasible is not known"),
    ..Kind::built_in(CUSTOM_NODE_RESOURCE)
};

/// The table of CustomNodeResources. The webhook does not read them: the controller labels the nodes.
pub(crate) type Topologies = Rows<Topology>;

impl TableRow for Topology {
    type Object = Foreign<Self>;
    const KIND: &'static Kind = &TOPOLOGIES;
    const COUNTED_AS: Option<&'static str> = Some("customnoderesources");
    const WATCHED_IN: &'static [Scope] = &[Scope::Controller, Scope::File];

    fn from_object(object: &Foreign<Self>, _: Scope) -> Option<Self> {
        Some(object.row.clone())
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: &Value) -> Topology {
        let object = json!({"metadata": {"name": "n1"}, "status": status});
        serde_json::from_value::<Foreign<Topology>>(object).unwrap().row
    }

    fn zone(name: &str, consumers: &[&str]) -> Value {
        let allocations: Vec<Value> =
            consumers.iter().map(|of| json!({"consumer": of, "requests": {"cpu": "4"}})).collect();
        json!({"type": "Numa", "name": name, "allocations": allocations,
            "children": [{"type": "L3CacheGroup", "name": "0"}]})
    }

    /// Each NUMA node, as `SOCKET.NUMBER:PODS`.
    fn sockets(report: &Topology) -> String {
        let zones = report.zones().map(|(socket, zone, consumers)| {
            let pods: Vec<&str> = consumers.iter().map(|of| &*of.pod.name).collect();
            format!("{socket}.{zone}:{}", pods.join(","))
        });
        zones.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_cannot_be_read_is_left_out_and_reported() {
        let socket = |zones: Value| json!({"topologyZone": [{"type": "Socket", "name": "0", "children": zones}]});
        let long = "9".repeat(262_144);
        let tree = json!({"topologyZone": [
            {"type": "Socket", "name": "1", "children": [zone("2", &[]), zone("3", &["a/p/1", "a/p/1"])]},
            {"type": "Socket", "name": "0", "children": [zone("0", &["a/q/2", "a/p/1"]), {"type": "GPU", "name": "g"}]},
            {"type": "NIC", "name": "eth0"},
        ]});
        let odd_pods = zone("0", &["a/b", "a/b/c/d", "", "a//c", "é", "n/p/u"]);
        let odd_zones =
            ["64", "-1", "+1", "x", &long, "1", "63"].map(|name| zone(name, &[])).to_vec();
        let twice = [zone("0", &["n/p/u"]), zone("0", &["n/q/v"])].to_vec();
        let no_pod = "status.topologyZone[0].children[0].allocations[0].consumer: is not <namespace>/<pod>/<UID> and is ignored";
        let no_number = "status.topologyZone[0].children[0].name: is not the number of a NUMA node";
        let doubled = "status.topologyZone[0].children[1].name: occurs twice";
        for (status, found, problem) in [
            (tree, "0.0:p,q 1.2: 1.3:p", ""),
            (json!(null), "", ""),
            (json!([]), "", "status: is not an object"),
            (json!({"topologyZone": {}}), "", "status.topologyZone: is not a list"),
            (socket(json!("x")), "", "status.topologyZone[0].children: is not a list"),
            (socket(json!([odd_pods])), "0.0:p", no_pod),
            (socket(odd_zones.into()), "0.1: 0.63:", no_number),
            (socket(twice.into()), "0.0:p,q", doubled),
            (json!({"topologyZone": [zone("5", &[])]}), ".5:", ""),
            (json!({"topologyPolicy": 7}), "", "status.topologyPolicy: is not a string"),
        ] {
            let report = read(&status);
            assert_eq!(sockets(&report), found, "{status:.200}");
            assert_eq!(report.problem.as_deref().unwrap_or_default(), problem, "{status:.200}");
        }
    }

    #[test]
    fn conditions_say_whether_the_agent_runs() {
        for (type_, status, has_agent) in [
            ("AgentReady", "True", true),
            ("AgentReady", "False", false),
            ("AgentReady", "Unknown", true),
            ("AgentNotFound", "True", false),
            ("AgentNotFound", "False", true),
            ("Other", "False", true),
        ] {
            let report = read(&json!({"conditions": [{"type": type_, "status": status}]}));
            assert_eq!(report.has_agent, has_agent, "{type_}={status}");
        }
        for (policy, strict) in [
            ("None", false),
            ("BestEffortPodLevel", false),
            ("RestrictedPodLevel", true),
            ("SingleNUMANodeContainerLevel", true),
            ("NumericContainerLevel", false),
        ] {
            assert_eq!(read(&json!({"topologyPolicy": policy})).is_strict(), strict, "{policy}");
        }
    }
}
