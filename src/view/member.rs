//! What is kept of the pods of groups.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodCondition, Toleration};
use k8s_openapi::jiff::Timestamp;

use super::estate::Identity;
use super::owner::Owner;
use super::pipeline_run::MODE;
use super::placeholder::{self, PlaceholderPod};
use super::resources::Resources;
use super::storage::GROUP;
use super::streams_pod::woken;
use super::task_run::ASSISTANT;

/// The label of a group's pods; its value is the placeholder's name. The placeholder's own pod bears it,
/// too: to the scheduler it is one of them.
pub const MEMBER: &str = "stowplan.dev/coschedule-member";

/// The scheduling gate that holds a member until its placeholder has a node.
pub const GATE: &str = "stowplan.dev/placeholder";

/// The label that makes us leave a pod, or all that is in a namespace, alone; its value is `true`.
pub const IGNORE: &str = "stowplan.dev/ignore";

/// The label that names the placeholder on its pod.
pub const INSTANCE: &str = "app.kubernetes.io/instance";

/// A pod that is, or may be, a group's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    /// Who it is.
    pub identity: Identity,
    /// The label [`MEMBER`]: the placeholder that it was admitted for.
    pub placeholder: Option<Box<str>>,
    /// The annotation [`GROUP`]: the native group that it asks for.
    pub group: Option<Box<str>>,
    /// The TaskRun that made it.
    pub task_run: Option<Owner>,
    /// The node it is bound to.
    pub node: Option<Box<str>>,
    /// Whether it has ended.
    pub finished: bool,
    /// What only the controller keeps.
    pub estate: Option<Box<MemberEstate>>,
}

/// A member as who places its group must know it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberEstate {
    /// Where our gate ([`GATE`]), which holds it, is among its gates.
    pub gate: Option<usize>,
    /// Whether it has an affinity of any kind, and whether one toward nodes: what a patch of its
    /// required terms finds there.
    pub has_affinity: bool,
    /// See `has_affinity`.
    pub has_node_affinity: bool,
    /// Whether it has the required pod affinity toward its placeholder: it goes after it by itself, and
    /// a node that it names is its author's wish.
    pub follows: bool,
    /// Whether other gates hold it.
    pub gated_by_others: bool,
    /// Whether Tekton's own affinity assistant places it.
    pub assisted: bool,
    /// Whether it bears [`IGNORE`]: it is left alone.
    pub ignored: bool,
    /// The annotation `stowplan.dev/coschedule`, as it is.
    pub mode: Option<Box<str>>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Since when, and why, the scheduler has found no node for it.
    pub unschedulable: Option<Unschedulable>,
    /// The label by which it was last woken, in seconds since 1970.
    pub woken: Option<i64>,
    /// `spec.schedulerName`.
    pub scheduler: Box<str>,
    /// The claims that it mounts, sorted, each once.
    pub claims: Box<[Box<str>]>,
    /// What it takes of its node.
    pub requests: Resources,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
    /// The terms of its required node affinity; `None` where it has none.
    pub terms: Option<Box<[NodeSelectorTerm]>>,
    /// Its tolerations.
    pub tolerations: Box<[Toleration]>,
}

/// Since when, and why, the scheduler has found no node for a pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Unschedulable {
    /// Since when.
    pub since: Timestamp,
    /// What the scheduler says.
    pub message: Box<str>,
}

impl Unschedulable {
    /// What a pod's condition PodScheduled says. A pod that its gates hold back is not one of these.
    #[must_use]
    pub fn read(pod: &core::Pod) -> Option<Self> {
        Self::because(pod, &["Unschedulable"])
    }

    /// The same of a pod which the scheduler may also have found a node for without binding it there, because
    /// that failed: with the volume of a claim, as a rule.
    #[must_use]
    pub fn read_with_errors(pod: &core::Pod) -> Option<Self> {
        Self::because(pod, &["Unschedulable", "SchedulerError"])
    }

    fn because(pod: &core::Pod, reasons: &[&str]) -> Option<Self> {
        let condition = condition(pod, "PodScheduled")?;
        let reason = condition.reason.as_deref().unwrap_or_default();
        let says_so = condition.status == "False" && reasons.contains(&reason);
        let since = condition.last_transition_time.as_ref().filter(|_| says_so)?.0;
        Some(Self { since, message: condition.message.as_deref().unwrap_or_default().into() })
    }
}

impl Member {
    /// Reads a pod. `None`: neither a member nor one that may be, as the pod of a placeholder. `whole` keeps the
    /// controller's part.
    #[must_use]
    pub fn read(pod: &core::Pod, whole: bool) -> Option<Self> {
        let metadata = &pod.metadata;
        let annotations = metadata.annotations.as_ref();
        let annotation =
            |key: &str| annotations.and_then(|map| map.get(key)).map(|value| value.as_str().into());
        let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key));
        // Another pod that says both is none of them, and must be seen: to the scheduler it is.
        if PlaceholderPod::of(metadata).is_some_and(|of| label(MEMBER).is_none_or(|own| own == of))
        {
            return None;
        }
        let member = Self {
            identity: Identity::from(metadata),
            placeholder: label(MEMBER).map(|name| name.as_str().into()),
            group: annotation(GROUP),
            task_run: Owner::of_tekton(metadata, "TaskRun"),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).map(Into::into),
            finished: is_finished(pod),
            estate: None,
        };
        if member.placeholder.is_none() && member.group.is_none() && member.task_run.is_none() {
            return None;
        }
        let estate = whole.then(|| {
            let mut estate = MemberEstate::read(pod);
            estate.assisted = annotations.is_some_and(|map| map.contains_key(ASSISTANT));
            estate.ignored = label(IGNORE).is_some_and(|value| value == "true");
            estate.mode = annotation(MODE);
            estate.woken = woken(pod);
            estate.follows = member
                .placeholder
                .as_ref()
                .zip(pod.spec.as_ref())
                .is_some_and(|(of, spec)| follows(spec, of));
            Box::new(estate)
        });
        Some(Self { estate, ..member })
    }

    /// The node on which it runs or starts: bound there, and not ended.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.node.as_deref().filter(|_| !self.finished)
    }
}

impl MemberEstate {
    fn read(pod: &core::Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let gates = || spec.scheduling_gates.iter().flatten();
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| {
            affinity.required_during_scheduling_ignored_during_execution.as_ref()
        });
        Self {
            gate: gates().position(|gate| gate.name == GATE),
            has_affinity: spec.affinity.is_some(),
            has_node_affinity: affinity.is_some(),
            gated_by_others: gates().any(|gate| gate.name != GATE),
            ended: ended(pod),
            unschedulable: Unschedulable::read(pod),
            scheduler: spec.scheduler_name.as_deref().unwrap_or("default-scheduler").into(),
            claims: placeholder::claims(spec),
            requests: Resources::requested(spec),
            node_selector: spec
                .node_selector
                .iter()
                .flatten()
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
            terms: required.map(|required| required.node_selector_terms.clone().into()),
            tolerations: spec.tolerations.clone().unwrap_or_default().into(),
            ..Self::default()
        }
    }
}

/// Whether a pod must be where a placeholder is.
#[must_use]
pub fn follows(pod: &core::PodSpec, placeholder: &str) -> bool {
    must_be_beside(pod, INSTANCE, placeholder)
}

/// Whether a pod must be where pods with a label of this value are.
pub(super) fn must_be_beside(pod: &core::PodSpec, label: &str, value: &str) -> bool {
    let toward = pod.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
    let required =
        toward.and_then(|of| of.required_during_scheduling_ignored_during_execution.as_ref());
    required.into_iter().flatten().any(|term| {
        let selector = term.label_selector.as_ref();
        let labels = selector.and_then(|selector| selector.match_labels.as_ref());
        labels.and_then(|labels| labels.get(label)).is_some_and(|own| own == value)
    })
}

/// Whether a pod has ended: it holds no place any more.
pub(super) fn is_finished(pod: &core::Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// When the last container of a pod ended that has.
fn ended(pod: &core::Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref().filter(|_| is_finished(pod))?;
    let containers = status.container_statuses.iter().flatten();
    let ends = containers.filter_map(|container| {
        let terminated = container.state.as_ref()?.terminated.as_ref()?;
        Some(terminated.finished_at.as_ref()?.0)
    });
    let told = condition(pod, "Ready").and_then(|ready| ready.last_transition_time.as_ref());
    ends.max().or_else(|| told.map(|time| time.0))
}

pub(super) fn condition<'p>(pod: &'p core::Pod, kind: &str) -> Option<&'p PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}
