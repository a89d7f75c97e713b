//! The statements of autoscalers about pods that wait, read from their events.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;

use crate::kubernetes::gates;
use crate::systems::View;
use crate::view::{Name, Node};

/// The components of autoscalers, as their events name them.
pub const COMPONENTS: [&str; 2] = ["cluster-autoscaler", "karpenter"];

/// The label of a node that Karpenter has made.
const OF_KARPENTER: &str = "karpenter.sh/nodepool";

/// The last statements of autoscalers.
#[derive(Debug, Default)]
pub(crate) struct Autoscalers {
    /// The last event about each pod.
    last: HashMap<Name, Statement>,
}

/// An event about a pod.
#[derive(Debug)]
struct Statement {
    /// The pod's UID.
    uid: String,
    at: Option<Timestamp>,
    text: String,
}

impl Autoscalers {
    /// Adds an event, if an autoscaler has written it about a pod.
    pub(crate) fn add(&mut self, event: Event) {
        let component = COMPONENTS.into_iter().find(|component| *component == source(&event));
        let at = time(&event);
        let pod = event.involved_object;
        let (Some(component), Some("Pod")) = (component, pod.kind.as_deref()) else { return };
        let name =
            Name::new(pod.namespace.as_deref().unwrap_or("default"), &pod.name.unwrap_or_default());
        if self.last.get(&name).is_some_and(|known| known.at > at) {
            return;
        }
        let reason = event.reason.unwrap_or_default();
        let when = at.map(|at| format!(" at {at}")).unwrap_or_default();
        let text = format!("{component}: {reason}{when}: {}", event.message.unwrap_or_default());
        self.last.insert(name, Statement { uid: pod.uid.unwrap_or_default(), at, text });
    }

    /// Returns what an autoscaler has said last about a pod that waits, or why autoscalers ignore it.
    pub(crate) fn about(&self, pod: &Pod, view: &View) -> Option<String> {
        let gate = gates(pod).next();
        if let Some(gate) = gate.filter(|_| self.has_any(view)) {
            return Some(format!("ignores the pod while the gate {gate} holds it"));
        }
        let metadata = &pod.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        let statement = self.last.get(&Name::new(namespace, metadata.name.as_deref()?))?;
        // It may be about an earlier pod of this name.
        let is_of_pod = metadata.uid.as_deref().is_none_or(|uid| uid == statement.uid);
        is_of_pod.then(|| statement.text.clone())
    }

    /// Returns true if the cluster has an autoscaler, as far as can be seen.
    fn has_any(&self, view: &View) -> bool {
        let is_of_karpenter = |node: &Node| {
            let details = node.details.as_deref();
            details.is_some_and(|details| details.labels.contains_key(OF_KARPENTER))
        };
        !self.last.is_empty() || view.nodes().any(|(_, node)| is_of_karpenter(node))
    }
}

/// Returns the component that has written an event.
pub(super) fn source(event: &Event) -> &str {
    let source = event.source.as_ref().and_then(|source| source.component.as_deref());
    source.filter(|of| !of.is_empty()).or(event.reporting_component.as_deref()).unwrap_or_default()
}

/// Returns when an event has happened last.
pub(super) fn time(event: &Event) -> Option<Timestamp> {
    let in_series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let times = [in_series, event.event_time.as_ref()].into_iter().flatten().map(|time| time.0);
    times.chain(event.last_timestamp.as_ref().map(|time| time.0)).max()
}
