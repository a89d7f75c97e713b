//! The answer of a scheduler, and what the model of it and stowplan's own `fit` predict.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use stowplan_core::kubernetes::{affinity, claims, required_pod_terms};
use stowplan_core::simulation::{CONTROLLER, Simulation};
use stowplan_core::systems::coschedule;
use stowplan_core::systems::fit::{self, Candidate, Obstacle, PodNeeds, Question as Fit};
use stowplan_core::systems::policy::Policy;
use stowplan_core::view::Name;

use super::{HOSTNAME, Question};

/// The answer of a scheduler.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The pod is bound to this node.
    Bound(String),
    /// No node takes the pod, with the message of the scheduler.
    Refused(String),
    /// The pod has a scheduling gate.
    Gated,
}

/// The reasons of a scheduler that `fit` does not look for, as in the message about a pod.
const UNSEEN: [&str; 5] = [
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode",
    // The same in Kubernetes 1.33.
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",
];

/// Reasons of that kind that keep a pod from all nodes.
const UNSEEN_EVERYWHERE: [&str; 3] =
    ["\" not found", "is being deleted", "bound to non-existent persistentvolume"];

/// The answers that are expected of a scheduler.
#[derive(Debug)]
pub(crate) struct Prediction {
    /// The nodes that the model allows. `None`: the pod is not to be scheduled.
    pub(crate) model: Option<Vec<String>>,
    /// The obstacles that `fit` finds for each node in question.
    pub(crate) obstacles: BTreeMap<String, Vec<Found>>,
}

/// An obstacle.
#[derive(Debug)]
pub(crate) struct Found {
    /// The sentence about it, without the subject.
    _text: String,
    is_hostname: bool,
    is_volume: bool,
}

impl From<Obstacle<'_>> for Found {
    fn from(of: Obstacle<'_>) -> Self {
        let is_volume = matches!(of, Obstacle::Volume { .. });
        Self { _text: of.to_string(), is_hostname: of == Obstacle::NoHostname, is_volume }
    }
}

impl Prediction {
    pub(crate) fn of(question: &Question) -> Self {
        let mut simulation = Simulation::new(Policy::default(), Timestamp::UNIX_EPOCH);
        let Question { nodes, placed, claims: of, volumes, pod, asked, .. } = question;
        for object in nodes.iter().chain(placed).chain(of).chain(volumes) {
            simulation.store.put(object.clone());
        }
        let model = simulation.find_nodes(pod);
        simulation.catch_up(CONTROLLER);
        let view = simulation.view_of(CONTROLLER);
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        let spec = pod.spec.as_ref().unwrap();
        let needs = PodNeeds::of_spec(spec);
        let namespace = pod.metadata.namespace.as_deref().unwrap();
        let volumes =
            coschedule::of_claims(claims(spec).map(|claim| Name::new(namespace, claim)), view);
        let terms = required_pod_terms(affinity(&pod));
        let needs_hostname = terms.iter().any(|term| term.topology_key == HOSTNAME);
        let obstacles = asked.iter().map(|name| {
            let candidate = Candidate {
                name,
                node: view.node(name).unwrap(),
                view,
                usage: view.node_usage(name),
            };
            let fit = Fit { volumes: Some(&volumes), ..Fit::new(candidate, &needs) };
            let found = fit::obstacles(&fit, fit::ALL);
            let found = found.filter(|of| needs_hostname || *of != Obstacle::NoHostname);
            (name.clone(), found.map(Found::from).collect())
        });
        Self { model, obstacles: obstacles.collect() }
    }

    /// The nodes in question without an obstacle.
    pub(crate) fn open(&self) -> impl Iterator<Item = &String> {
        self.obstacles.iter().filter(|(_, found)| found.is_empty()).map(|(name, _)| name)
    }

    /// Returns how the prediction differs from the answer of a scheduler.
    pub(crate) fn differences(&self, answer: &Answer) -> Vec<String> {
        let mut differences = Vec::new();
        let allowed = self.model.as_deref().unwrap_or_default();
        match answer {
            Answer::Gated if self.model.is_some() => {
                differences.push("the model schedules a pod with a gate".to_owned());
            }
            Answer::Gated => {}
            Answer::Bound(node) => {
                if !allowed.contains(node) {
                    differences.push(format!("the model does not allow {node}, but {allowed:?}"));
                }
                if let Some(found) = self.obstacles.get(node).filter(|found| !found.is_empty()) {
                    differences.push(format!("fit keeps the pod from {node}: {found:?}"));
                }
            }
            Answer::Refused(message) => {
                if !allowed.is_empty() || self.model.is_none() {
                    differences.push(format!("the model says {:?}", self.model));
                }
                // The scheduler counts a node without the label among those without the wanted pods. It looks
                // for users of a claim before it looks at the volume.
                let is_used = message.contains("ReadWriteOncePod");
                let is_unseen = |of: &Found| of.is_hostname || of.is_volume && is_used;
                let open = self.obstacles.values().filter(|found| found.iter().all(is_unseen));
                let open = open.count();
                if count_unseen(message).is_some_and(|unseen| unseen != open) {
                    differences.push(format!("fit finds: {:?}", self.obstacles));
                }
            }
        }
        for node in allowed.iter().filter(|node| !self.open().any(|open| open == *node)) {
            differences.push(format!("the model allows {node}, and fit does not"));
        }
        differences
    }
}

/// Returns how many nodes a scheduler has left out only for reasons that `fit` does not look for. `None`: such a
/// reason keeps the pod from all nodes.
fn count_unseen(message: &str) -> Option<usize> {
    let reasons = message.split(" preemption: ").next().unwrap_or_default();
    if UNSEEN_EVERYWHERE.iter().any(|reason| reasons.contains(reason)) {
        return None;
    }
    let counts = UNSEEN.iter().filter_map(|reason| {
        let before = reasons.split(reason).next().filter(|before| *before != reasons)?;
        before.trim_end().rsplit(' ').next()?.parse::<usize>().ok()
    });
    Some(counts.sum())
}
