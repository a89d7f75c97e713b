//! Events about objects that wait: the statements of autoscalers about pods, the warnings of stowplan's
//! controller, and why pods of workloads were not created.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;

use crate::kubernetes::gates;
use crate::systems::View;
use crate::view::resource::POD;
use crate::view::{Name, Node};

/// The components of autoscalers, as their events name them.
pub const AUTOSCALERS: [&str; 2] = ["cluster-autoscaler", "karpenter"];

/// The component of stowplan's controller, as its events name it.
pub const CONTROLLER: &str = "stowplan";

/// The reason of events about pods that could not be created.
pub const FAILED_CREATE: &str = "FailedCreate";

/// The label of a node that Karpenter has made.
const OF_KARPENTER: &str = "karpenter.sh/nodepool";

/// The events that say why an object waits or does not exist, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Events(HashMap<Key, Vec<Statement>>);

/// The program that sent the events, and the kind and the name of the object that they are about.
type Key = (Speaker, String, Name);

/// A program whose events are read.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Speaker {
    Autoscaler,
    Controller,
    /// A controller that could not create a pod.
    OfWorkload,
}

/// An event.
#[derive(Debug)]
struct Statement {
    /// The UID of the object.
    uid: String,
    reason: String,
    at: Option<Timestamp>,
    text: String,
}

impl Events {
    /// Adds an event, if it is one of these.
    pub(super) fn add(&mut self, event: Event) {
        let at = find_time(&event);
        let source = event.source.as_ref().and_then(|source| source.component.as_deref());
        let source = source.filter(|of| !of.is_empty()).or(event.reporting_component.as_deref());
        let source = source.unwrap_or_default();
        let object = event.involved_object;
        let is_warning = event.type_.as_deref() == Some("Warning");
        let is_of_pod = object.kind.as_deref() == Some(POD.kind);
        let reason = event.reason.unwrap_or_default();
        let message = event.message.unwrap_or_default();
        let (speaker, text) = if source == CONTROLLER && is_warning {
            (Speaker::Controller, message)
        } else if reason == FAILED_CREATE {
            (Speaker::OfWorkload, message)
        } else if AUTOSCALERS.contains(&source) && is_of_pod {
            let when = at.map(|at| format!(" at {at}")).unwrap_or_default();
            (Speaker::Autoscaler, format!("{source}: {reason}{when}: {message}"))
        } else {
            return;
        };
        // As for kubectl, an object without a namespace is in `default`. The controller writes it.
        let default = if speaker == Speaker::Controller { "" } else { "default" };
        let namespace = object.namespace.as_deref().unwrap_or(default);
        let name = Name::new(namespace, object.name.as_deref().unwrap_or_default());
        let key = (speaker, object.kind.unwrap_or_default(), name);
        let uid = object.uid.unwrap_or_default();
        self.0.entry(key).or_default().push(Statement { uid, reason, at, text });
    }

    /// Returns what an autoscaler has said last about a pod that waits, or why autoscalers ignore it.
    pub(super) fn about_pod(&self, pod: &Pod, view: &View) -> Option<String> {
        let gate = gates(pod).next();
        if let Some(gate) = gate.filter(|_| self.has_autoscaler(view)) {
            return Some(format!("ignores the pod while the gate {gate} holds it"));
        }
        let metadata = &pod.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        let name = Name::new(namespace, metadata.name.as_deref()?);
        let said = self.last(Speaker::Autoscaler, POD.kind, &name, metadata.uid.as_deref());
        said.map(str::to_owned)
    }

    /// Returns why a pod of a workload was last not created, as its controller says.
    pub(super) fn not_created(&self, kind: &str, name: &Name, uid: Option<&str>) -> Option<&str> {
        self.last(Speaker::OfWorkload, kind, name, uid)
    }

    /// Returns the text of the controller's last warning with this reason that names an object of its
    /// namespace.
    pub(super) fn warning(&self, object: &Name, reason: &str) -> Option<&str> {
        let of_namespace = self.0.iter().filter(|((speaker, _, about), _)| {
            *speaker == Speaker::Controller && about.namespace == object.namespace
        });
        let is_of = |of: &&Statement| of.reason == reason && of.text.contains(&*object.name);
        let warnings = of_namespace.flat_map(|(_, statements)| statements).filter(is_of);
        warnings.max_by_key(|of| (of.at, &of.text)).map(|of| of.text.as_str())
    }

    /// Returns the last statement about an object.
    fn last(&self, speaker: Speaker, kind: &str, name: &Name, uid: Option<&str>) -> Option<&str> {
        let statements = self.0.get(&(speaker, kind.to_owned(), name.clone()))?;
        let last = statements.iter().max_by_key(|of| of.at)?;
        // It may be about an earlier object of this name.
        uid.is_none_or(|uid| uid == last.uid).then_some(&last.text)
    }

    /// Returns true if the cluster has an autoscaler, as far as can be seen.
    fn has_autoscaler(&self, view: &View) -> bool {
        let is_of_karpenter = |node: &Node| {
            let details = node.details.as_deref();
            details.is_some_and(|details| details.labels.contains_key(OF_KARPENTER))
        };
        self.0.keys().any(|(speaker, ..)| *speaker == Speaker::Autoscaler)
            || view.nodes().any(|(_, node)| is_of_karpenter(node))
    }
}

/// Returns when an event has happened last.
fn find_time(event: &Event) -> Option<Timestamp> {
    let in_series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let times = [in_series, event.event_time.as_ref()].into_iter().flatten().map(|time| time.0);
    times.chain(event.last_timestamp.as_ref().map(|time| time.0)).max()
}
