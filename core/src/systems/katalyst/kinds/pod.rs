//! The pods that Katalyst binds to NUMA nodes, and those with a NUMA affinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, Toleration};
use k8s_openapi::jiff::Timestamp;

use crate::kubernetes::{
    AboveNodeTerms, DEFAULT_SCHEDULER, affinity, annotation, gates, is_finished, kept_texts,
    node_name, required_node_terms, scheduled_since, scheduler_name,
};
use crate::systems::fit::PodNeeds;
use crate::systems::katalyst::keys::{AFFINITY, ANTI_AFFINITY, GATE, LET_GO};
use crate::systems::katalyst::policy::Katalyst;
use crate::systems::katalyst::qos::Qos;
use crate::systems::katalyst::selector::{Selector, Selectors};
use crate::view::pod::PODS;
use crate::view::rows::{Rows, TableRow};
use crate::view::{Identity, Kind, Scope};

/// A pod that Katalyst gives CPUs of its own, or with a NUMA affinity.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NumaPod {
    pub identity: Identity,
    pub qos: Qos,
    /// All labels: which of them count is in the policy.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// The selectors of its required affinity.
    pub affinity: Vec<Selector>,
    /// The selectors of its required anti-affinity.
    pub anti_affinity: Vec<Selector>,
    /// The node it is bound to.
    pub node: Option<Box<str>>,
    /// True if it has ended.
    pub finished: bool,
    /// When it was bound to its node.
    pub bound_at: Option<Timestamp>,
    /// When the controller removed its gate, by its annotation.
    pub let_go: Option<Timestamp>,
    /// The fields that matter while it has no node.
    pub pending: Option<Box<PendingPod>>,
}

/// A pod without a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PendingPod {
    /// The index of [`GATE`] among its scheduling gates.
    pub gate: Option<usize>,
    /// True if it has other scheduling gates.
    pub has_other_gates: bool,
    /// The value of its annotation [`AFFINITY`].
    pub affinity_value: Option<Box<str>>,
    /// True if the default scheduler places it, which knows nothing of NUMA nodes.
    pub has_default_scheduler: bool,
    /// The terms of its required node affinity.
    pub terms: Option<Box<[NodeSelectorTerm]>>,
    /// The object below which a patch gives it its first term.
    pub above_terms: AboveNodeTerms,
    /// The number of its annotations: with none, a patch that adds one has another path.
    pub annotations: usize,
    node_selector: BTreeMap<Box<str>, Box<str>>,
    tolerations: Box<[Toleration]>,
}

impl NumaPod {
    /// Reads a pod; `None`: it neither takes part nor has a key.
    pub(crate) fn read(pod: &core::Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let of_key = |key: &str| annotation(metadata, key);
        let qos = Qos::read(of_key);
        let has_key = of_key(AFFINITY).is_some() || of_key(ANTI_AFFINITY).is_some();
        let gate = gates(pod).position(|gate| gate == GATE);
        if !qos.is_dedicated && !has_key && gate.is_none() {
            return None;
        }
        let required = |key| of_key(key).map(Selectors::read_required).unwrap_or_default();
        let node = node_name(pod);
        let bound_at = scheduled_since(pod).filter(|_| node.is_some());
        let let_go = of_key(LET_GO).and_then(|time| time.parse().ok());
        let identity = Identity::from(metadata);
        Some(Self {
            qos,
            labels: kept_texts(metadata.labels.as_ref()),
            affinity: required(AFFINITY),
            anti_affinity: required(ANTI_AFFINITY),
            node: node.map(Into::into),
            finished: is_finished(pod),
            bound_at,
            let_go,
            pending: node.is_none().then(|| Box::new(PendingPod::read(pod, gate))),
            identity,
        })
    }

    /// The index of the gate, while it waits for a feasible NUMA node.
    pub(crate) fn gate(&self) -> Option<usize> {
        self.pending.as_ref()?.gate
    }

    /// Since when it may be on a NUMA node: bound to its node, or else let go by the controller, or else
    /// created. The clock of the scheduler may be ahead of the own one. Any user can write the annotation, so
    /// a time in the future is no time of the controller.
    pub(crate) fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let let_go = self.let_go.filter(|time| *time <= now);
        self.bound_at.map(|time| time.min(now)).or(let_go).or(self.identity.created)
    }

    /// Returns true if the controller has let it go, or it has a node.
    pub(crate) fn may_start(&self) -> bool {
        self.node.is_some() || self.let_go.is_some()
    }

    /// Returns true if a selector selects it, by the labels that count under the policy.
    pub(crate) fn is_selected_by(&self, selector: &Selector, policy: &Katalyst) -> bool {
        let mut pairs = selector.pairs();
        pairs.any(|(key, value)| {
            policy.is_declared(key) && self.labels.get(key).is_some_and(|own| **own == *value)
        })
    }

    /// Returns true if a NUMA node depends on other pods: it asks for some or avoids some.
    pub(crate) fn has_selectors(&self) -> bool {
        !self.affinity.is_empty() || !self.anti_affinity.is_empty()
    }

    /// Its requirements for its node. Resources do not matter.
    pub(crate) fn needs(&self) -> PodNeeds<'_> {
        let Some(pending) = &self.pending else { return PodNeeds::default() };
        PodNeeds {
            node_selector: pending
                .node_selector
                .iter()
                .map(|(key, value)| (&**key, &**value))
                .collect(),
            node_terms: pending.terms.as_deref().map(Into::into),
            tolerations: &pending.tolerations,
            requests: None,
        }
    }
}

impl PendingPod {
    fn read(pod: &core::Pod, gate: Option<usize>) -> Self {
        let metadata = &pod.metadata;
        let spec = pod.spec.as_ref();
        let tolerations = spec.and_then(|spec| spec.tolerations.as_deref());
        Self {
            gate,
            has_other_gates: gates(pod).any(|name| name != GATE),
            affinity_value: annotation(metadata, AFFINITY).map(Into::into),
            has_default_scheduler: scheduler_name(pod) == DEFAULT_SCHEDULER,
            annotations: metadata.annotations.as_ref().map_or(0, BTreeMap::len),
            node_selector: kept_texts(spec.and_then(|spec| spec.node_selector.as_ref())),
            terms: required_node_terms(affinity(pod)).map(Into::into),
            above_terms: AboveNodeTerms::from(pod),
            tolerations: tolerations.unwrap_or_default().into(),
        }
    }
}

/// The table of these pods. The webhook decides about a pod by the pod alone.
pub(crate) type NumaPods = Rows<NumaPod>;

impl TableRow for NumaPod {
    type Object = core::Pod;
    const KIND: &'static Kind = &PODS;
    const COUNTED_AS: Option<&'static str> = Some("numa pods");
    const WATCHED_IN: &'static [Scope] = &[Scope::Controller];

    fn from_object(pod: &core::Pod, scope: Scope) -> Option<Self> {
        if scope == Scope::Admission { None } else { Self::read(pod) }
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}
