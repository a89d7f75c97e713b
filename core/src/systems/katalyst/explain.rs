//! Shows the NUMA nodes of the cluster for people: which are feasible for a pod, and which pod forbids it.
//! A single look is lenient: pods that no report names yet exclude nothing.

use serde::Serialize;
use serde_json::{Map, json};

use super::feasibility::{Newcomer, Obstacle};
use super::keys;
use super::kinds::pod::NumaPod;
use super::kinds::topology::Topology;
use super::machines::{build, check_node, find_unusable};
use super::policy::{Katalyst, KatalystMode};
use super::selector::Selector;
use crate::systems::View;
use crate::systems::check::words::counted;
use crate::systems::fit::SCHEDULER_BESIDE;
use crate::systems::policy::Policy;
use crate::systems::preview::{Explained, Explanation};
use crate::view::Name;

/// The most nodes that are shown to people.
const SHOWN: usize = 16;

/// The builds of Katalyst that enforce the annotations.
pub(super) const BUILDS: &str = "only builds of Katalyst with pull request 347 read these annotations; the released ones ignore them";

/// The explanation that `plan` shows.
pub const EXPLANATION: Explanation = Explanation {
    keys: keys::ANNOTATIONS,
    needs_all_pods: |view| !view.topologies().is_empty(),
    explain,
};

/// The NUMA nodes of all machines for a pod of the View. `None`: it does not depend on them, or no node
/// reports them.
fn explain(view: &View, policy: &Policy, name: &Name) -> Option<Explained> {
    let pod = view.numa_pod(name).filter(|pod| pod.has_selectors() && pod.qos.takes_part())?;
    if policy.katalyst.mode == KatalystMode::Disabled || view.topologies().is_empty() {
        return None;
    }
    let shown = Shown::new(view, &policy.katalyst, pod);
    let mut text = String::new();
    let first = first_pod(&policy.katalyst, pod);
    let starts = shown.feasible() > 0 || (first.is_some() && shown.is_open_to_the_first());
    let waits = !starts && policy.katalyst.mode == KatalystMode::Enforced;
    let waits = waits.then(|| "no NUMA node is feasible".to_owned());
    for line in shown.lines().into_iter().chain(first) {
        text.push_str(&format!("  {line}\n"));
    }
    let fields = Map::from_iter([("numa".to_owned(), json!(shown))]);
    Some(Explained { text, waits, fields })
}

/// Returns a note about a pod whose affinity selects the pod itself.
pub(super) fn first_pod(policy: &Katalyst, pod: &NumaPod) -> Option<String> {
    let is_own = |selector: &Selector| pod.is_selected_by(selector, policy);
    let leads = policy.mode == KatalystMode::Enforced && pod.affinity.iter().any(is_own);
    leads.then(|| {
        "its affinity asks for its own group: while no pod of the group runs, the oldest one starts without it"
            .to_owned()
    })
}

/// The NUMA nodes of all machines for a pod.
#[derive(Debug, Serialize)]
pub(super) struct Shown<'v> {
    nodes: Vec<ShownNode<'v>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownNode<'v> {
    name: &'v str,
    #[serde(skip_serializing_if = "Option::is_none")]
    topology_policy: Option<&'v str>,
    /// The reason why the pod cannot use the node, whatever its NUMA nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<String>,
    zones: Vec<ShownZone<'v>>,
}

#[derive(Debug, Serialize)]
struct ShownZone<'v> {
    socket: &'v str,
    zone: u8,
    feasible: bool,
    /// The reason why it is not feasible.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl<'v> Shown<'v> {
    pub(super) fn new(view: &'v View, policy: &'v Katalyst, pod: &'v NumaPod) -> Self {
        let needs = pod.needs();
        let newcomer = Newcomer { pod, policy, leads: false };
        let nodes = view.topologies().into_iter().map(|(name, topology)| {
            let unusable = find_unusable(topology, policy).map(str::to_owned);
            let unusable = unusable.or_else(|| {
                let obstacle = check_node(view, &name.name, &needs, SCHEDULER_BESIDE).err()?;
                Some(format!("it {obstacle}"))
            });
            let machine = build(view, topology);
            let zones = machine.verdicts(newcomer).map(|verdict| ShownZone {
                socket: verdict.socket,
                zone: verdict.zone,
                feasible: verdict.obstacle.is_none(),
                why: verdict.obstacle.as_ref().map(Obstacle::to_string),
            });
            ShownNode {
                name: &name.name,
                topology_policy: topology.policy.as_deref(),
                unusable,
                zones: zones.collect(),
            }
        });
        Self { nodes: nodes.collect() }
    }

    /// The number of feasible NUMA nodes that the pod can use.
    pub(super) fn feasible(&self) -> usize {
        let usable = self.nodes.iter().filter(|node| node.unusable.is_none());
        usable.flat_map(|node| &node.zones).filter(|zone| zone.feasible).count()
    }

    /// Returns true if no NUMA node is forbidden by a pod: none has a pod that the affinity asks for.
    pub(super) fn lacks_only_mates(&self) -> bool {
        let no_mate = Obstacle::NoMate.to_string();
        let mut zones = self.nodes.iter().flat_map(|node| &node.zones);
        zones.all(|zone| zone.why.as_ref() == Some(&no_mate))
    }

    /// Returns true if the pod can start as the first of its group, without the pods that its affinity asks for.
    pub(super) fn is_open_to_the_first(&self) -> bool {
        let is_usable = |node: &ShownNode<'_>| node.unusable.is_none() && !node.zones.is_empty();
        self.lacks_only_mates() && self.nodes.iter().any(is_usable)
    }

    /// The picture, line by line: nodes with a feasible NUMA node first.
    pub(super) fn lines(&self) -> Vec<String> {
        let all: usize = self.nodes.iter().map(|node| node.zones.len()).sum();
        let mut lines = vec![format!(
            "{} of {} feasible, on {}",
            self.feasible(),
            counted(all, "NUMA node"),
            counted(self.nodes.len(), "node")
        )];
        let has_feasible = |node: &&&ShownNode<'_>| {
            node.unusable.is_none() && node.zones.iter().any(|zone| zone.feasible)
        };
        let (first, last): (Vec<_>, Vec<_>) =
            self.nodes.iter().partition(|node| has_feasible(&node));
        for node in first.iter().chain(&last).take(SHOWN) {
            lines.push(format!("  node {}{}", node.name, policy_in_words(node.topology_policy)));
            if let Some(why) = &node.unusable {
                lines.push(format!("    cannot be used: {why}"));
            }
            let rows = node.zones.iter().map(|zone| {
                let why = zone
                    .why
                    .as_deref()
                    .map_or_else(|| "yes".to_owned(), |why| format!("no: {why}"));
                (zone.socket, zone.zone, why)
            });
            lines.extend(draw(rows));
        }
        match self.nodes.len().saturating_sub(SHOWN) {
            0 => {}
            more => lines.push(format!("  and {} more (-o json shows all)", counted(more, "node"))),
        }
        lines
    }
}

fn policy_in_words(policy: Option<&str>) -> String {
    policy.map(|policy| format!(" (topology policy {policy})")).unwrap_or_default()
}

/// A picture of sockets and their NUMA nodes, a line for each NUMA node with a text.
fn draw<'z>(zones: impl Iterator<Item = (&'z str, u8, String)>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last = None;
    for (socket, zone, text) in zones {
        let title = match last == Some(socket) {
            true => String::new(),
            false if socket.is_empty() => "no socket".to_owned(),
            false => format!("socket {socket}"),
        };
        last = Some(socket);
        let line = format!("    {title:<9} | NUMA {zone:<2} | {text}");
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// The pods on each NUMA node of a machine.
pub(super) fn draw_pods(view: &View, topology: &Topology) -> Vec<String> {
    let machine = build(view, topology);
    let zones = machine.sockets.iter().flat_map(|socket| {
        socket.zones.iter().map(|(zone, pods)| {
            let pods: Vec<String> = pods
                .iter()
                .map(|of| match of.pod.qos.is_exclusive {
                    true => format!("{of} (alone)"),
                    false => of.to_string(),
                })
                .collect();
            (socket.name, *zone, pods.join(", "))
        })
    });
    let mut lines = vec![format!("NUMA nodes{}", policy_in_words(topology.policy.as_deref()))];
    lines.extend(draw(zones));
    lines
}
