//! Placeholders: the StatefulSets of groups, and their pods.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::unschedulable::Unschedulable;
use crate::kubernetes::{
    self, annotation, condition, is_finished, kept_texts, label, node_name, scheduled_since,
};
use crate::systems::coschedule::keys::{
    COMPONENT_VALUE, FAILED, GROUP, MODE, PLACEHOLDER, RECORD, of_run,
};
use crate::systems::coschedule::pod_plan::PodPlan;
use crate::systems::coschedule::record::Record;
use crate::systems::pause::KEEPS_NODE;
use crate::systems::wake::woken;
use crate::view::index::Sets;
use crate::view::owner::Owner;
use crate::view::pod::{PODS, all_for_controller};
use crate::view::resource::STATEFUL_SET;
use crate::view::resources::Resources;
use crate::view::rows::{GroupedRow, Rows, TableRow};
use crate::view::table::Watch;
use crate::view::{Identity, Kind, Name, Scope};

/// The prefix of the annotations that are kept.
const PREFIX: &str = "stowplan.dev/";

/// The suffix that a StatefulSet adds to its name for its first pod, a placeholder's only one.
pub(crate) const FIRST: &str = "-0";

/// Returns the name of the pod of the placeholder with this name.
pub(crate) fn pod_of(placeholder: &Name) -> Name {
    Name::new(&placeholder.namespace, &[&*placeholder.name, FIRST].concat())
}

/// A placeholder: a StatefulSet whose label [`PLACEHOLDER`] is its own name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Placeholder {
    pub identity: Identity,
    /// The PipelineRun that owns it; `None` for a native group.
    pub run: Option<Owner>,
    /// The native group that it is for.
    pub group: Option<Box<str>>,
    /// The unparsed mode that its run had when it was created.
    pub mode: Option<Box<str>>,
    /// The recorded group of its run; `None` if the record is missing, malformed, or of a group whose
    /// placeholder has another name. Users can write records and owner references, and no digest of
    /// theirs matches but that of the run's own group.
    pub record: Option<Box<Record>>,
    /// True if it has the annotation [`FAILED`].
    pub failed: bool,
    /// The claims that its pod mounts by name, sorted.
    pub claims: Box<[Box<str>]>,
    /// The names of its claim templates, sorted.
    pub templates: Box<[Box<str>]>,
    /// The plan of its pod template; `None` if that is missing or invalid.
    pub plan: Option<Box<PodPlan>>,
    pub details: Option<Box<PlaceholderDetails>>,
}

/// The fields of a placeholder that only the controller keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlaceholderDetails {
    /// True if it has annotations.
    pub is_annotated: bool,
    /// The annotations that start with `stowplan.dev/`.
    pub annotations: BTreeMap<Box<str>, Box<str>>,
    /// The resource requests of its pod.
    pub requests: Resources,
    /// The tolerations of its pod.
    pub tolerations: Box<[Toleration]>,
    /// The node selector of its pod.
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
    /// `spec.replicas`.
    pub replicas: Option<i32>,
    /// True if its pod template has annotations: a patch adds one, or else the whole map.
    pub has_annotations: bool,
}

impl PlaceholderDetails {
    /// Reads the time in an annotation, in seconds since 1970.
    pub(crate) fn time(&self, annotation: &str) -> Option<Timestamp> {
        Timestamp::from_second(self.annotations.get(annotation)?.parse().ok()?).ok()
    }
}

impl Placeholder {
    /// The claims that the StatefulSet creates for its pod. `name`: that of the placeholder.
    pub(crate) fn made(&self, name: &str) -> impl Iterator<Item = String> {
        self.templates.iter().map(move |template| format!("{template}-{name}{FIRST}"))
    }

    /// Returns all claims that its pod mounts. `name`: that of the placeholder.
    pub(crate) fn mounted(&self, name: &Name) -> impl Iterator<Item = Name> {
        let by_name = self.claims.iter().map(ToString::to_string);
        by_name.chain(self.made(&name.name)).map(|claim| Name::new(&name.namespace, &claim))
    }
}

/// The claims that a pod mounts, sorted, each once.
pub(crate) fn claims(pod: &core::PodSpec) -> Box<[Box<str>]> {
    sorted(kubernetes::claims(pod).map(Into::into))
}

fn sorted(names: impl IntoIterator<Item = Box<str>>) -> Box<[Box<str>]> {
    let mut names: Vec<Box<str>> = names.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    names.into()
}

/// The pod of a placeholder.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PlaceholderPod {
    pub identity: Identity,
    /// The name of the placeholder.
    pub placeholder: Box<str>,
    /// The node it is bound to.
    pub node: Option<Box<str>>,
    /// True if it has ended, so that it no longer keeps its group on the node.
    pub finished: bool,
    /// The time when it was bound to its node.
    pub scheduled_since: Option<Timestamp>,
    /// Set while the scheduler finds no node for it.
    pub unschedulable: Option<Unschedulable>,
    /// True if a scheduling gate holds it: one of others, because stowplan sets none.
    pub is_gated: bool,
    /// The domains of the keys of its labels: a queue that counts it has labelled it.
    pub label_domains: BTreeSet<Box<str>>,
    /// True if one of its scheduling gates is of such a domain.
    pub is_queued: bool,
    /// Its plan; `None` if that is missing or invalid.
    pub plan: Option<Box<PodPlan>>,
    /// The time when it was last woken, in seconds since 1970. Only the controller keeps it.
    pub woken: Option<i64>,
    /// The values of its annotations [`KEEPS_NODE`]. Only the controller keeps them.
    pub keeps_node: [Option<Box<str>>; 2],
    /// Its resource requests.
    pub requests: Resources,
    /// The part of them that is not of stowplan's own container: of containers that webhooks of others have added, and
    /// of the overhead.
    pub others: Resources,
    /// The index of stowplan's own container.
    pub container: usize,
    /// The resources that the scheduler counts for it. Only the controller keeps it.
    pub counted: Resources,
    /// True if its node has seen its present requests. Before Kubernetes 1.34 it does not say so, and is taken to have.
    pub is_seen: bool,
    /// True if its node cannot change the resources of a running pod.
    pub is_fixed: bool,
}

impl PlaceholderPod {
    /// Returns the room in its `requests`, or in what is `counted` of it, beside what it keeps. Of all else but
    /// processor time and memory it is what its plan reserves: webhooks of others may request more.
    pub(crate) fn room_in(&self, amounts: &Resources, kept: &Resources) -> Resources {
        let kept = &self.others.plus(kept);
        let reserved = self.plan.as_ref().and_then(|plan| plan.room.as_ref());
        let other = reserved.map(|room| room.other.clone()).unwrap_or_default();
        Resources { other, ..amounts.beyond(kept) }
    }

    /// The name of the placeholder, if the metadata is that of a placeholder's pod.
    pub(crate) fn of(pod: &ObjectMeta) -> Option<&str> {
        let placeholder = label(pod, PLACEHOLDER)?;
        let name = pod.name.as_deref()?.strip_suffix(FIRST)?;
        (name == placeholder).then_some(placeholder)
    }

    /// The node that it is bound to, unless it has ended or is being deleted.
    pub(crate) fn place(&self) -> Option<&str> {
        self.node.as_deref().filter(|_| !self.finished && !self.identity.deleting)
    }
}

static STATEFUL_SETS: Kind = Kind {
    without: Some("placeholders are reported as if there were none"),
    ..Kind::built_in(STATEFUL_SET)
};

/// The table of placeholders.
pub(crate) type Placeholders = Rows<Placeholder, Sets<Box<str>>>;

impl TableRow for Placeholder {
    type Object = apps::StatefulSet;
    const KIND: &'static Kind = &STATEFUL_SETS;
    const COUNTED_AS: Option<&'static str> = Some("placeholders");

    fn watches(_: Scope) -> Vec<Watch> {
        vec![Watch { store: "placeholders", selector: PLACEHOLDER.into() }]
    }

    /// `None` if it is not a placeholder. Admission keeps no details.
    fn from_object(set: &apps::StatefulSet, scope: Scope) -> Option<Self> {
        let metadata = &set.metadata;
        let own_name = label(metadata, PLACEHOLDER)?;
        if Some(own_name) != metadata.name.as_deref() {
            return None;
        }
        let text = |key: &str| annotation(metadata, key).map(Into::into);
        let spec = set.spec.as_ref();
        let pod = spec.and_then(|spec| spec.template.spec.as_ref());
        let pod_metadata = spec.and_then(|spec| spec.template.metadata.as_ref());
        let templates = spec.and_then(|spec| spec.volume_claim_templates.as_ref());
        let names = templates.into_iter().flatten().filter_map(|of| of.metadata.name.as_deref());
        let details = (scope != Scope::Admission).then(|| {
            Box::new(PlaceholderDetails {
                is_annotated: metadata.annotations.is_some(),
                annotations: metadata
                    .annotations
                    .iter()
                    .flatten()
                    .filter(|(key, _)| key.starts_with(PREFIX))
                    .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                    .collect(),
                requests: pod.map(Resources::requested).unwrap_or_default(),
                tolerations: pod.and_then(|pod| pod.tolerations.clone()).unwrap_or_default().into(),
                node_selector: kept_texts(pod.and_then(|pod| pod.node_selector.as_ref())),
                replicas: spec.and_then(|spec| spec.replicas),
                has_annotations: pod_metadata
                    .is_some_and(|metadata| metadata.annotations.is_some()),
            })
        });
        let plan = pod_metadata.and_then(|metadata| PodPlan::read(metadata, own_name));
        let run = Owner::of_tekton(metadata, "PipelineRun");
        let record = annotation(metadata, RECORD).and_then(Record::parse);
        let is_own = |record: &Record| {
            run.as_ref().is_some_and(|run| of_run(&run.uid, &record.key) == own_name)
        };
        Some(Self {
            identity: Identity::from(metadata),
            record: record.filter(is_own).map(Box::new),
            run,
            group: text(GROUP),
            mode: text(MODE),
            failed: annotation(metadata, FAILED).is_some(),
            claims: pod.map(claims).unwrap_or_default(),
            templates: sorted(names.map(Into::into)),
            plan: plan.map(Box::new),
            details,
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

/// Placeholders are found by the UID of the run that owns them.
impl GroupedRow for Placeholder {
    type Key = Box<str>;

    fn key(&self, _: &Name) -> Option<Box<str>> {
        self.run.as_ref().map(|run| run.uid.clone())
    }
}

/// The table of the pods of placeholders.
pub(crate) type PlaceholderPods = Rows<PlaceholderPod>;

impl TableRow for PlaceholderPod {
    type Object = core::Pod;
    const KIND: &'static Kind = &PODS;

    fn watches(scope: Scope) -> Vec<Watch> {
        match scope {
            Scope::Admission => {
                vec![Watch { store: "pods of placeholders", selector: PLACEHOLDER.into() }]
            }
            _ => all_for_controller(scope),
        }
    }

    /// `None` if it is not the pod of a placeholder.
    fn from_object(pod: &core::Pod, scope: Scope) -> Option<Self> {
        let placeholder = Self::of(&pod.metadata)?;
        let requests = pod.spec.as_ref().map(Resources::requested).unwrap_or_default();
        let containers = pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
        let container = containers.iter().position(|of| of.name == COMPONENT_VALUE);
        let own = containers.get(container.unwrap_or_default());
        let own = own.and_then(|of| of.resources.as_ref()?.requests.as_ref());
        let others = requests.beyond(&Resources::read(own));
        let is_complete = scope == Scope::Controller && pod.spec.is_some();
        let labels = pod.metadata.labels.iter().flatten().filter(|_| is_complete);
        let label_domains: BTreeSet<Box<str>> =
            labels.filter_map(|(key, _)| Some(kubernetes::domain(key)?.into())).collect();
        Some(Self {
            identity: Identity::from(&pod.metadata),
            placeholder: placeholder.into(),
            node: node_name(pod).map(Into::into),
            finished: is_finished(pod),
            scheduled_since: scheduled_since(pod),
            unschedulable: Unschedulable::read_with_errors(pod),
            is_gated: kubernetes::gates(pod).next().is_some(),
            is_queued: kubernetes::gates(pod)
                .filter_map(kubernetes::domain)
                .any(|domain| label_domains.contains(domain)),
            label_domains,
            plan: PodPlan::read(&pod.metadata, placeholder).map(Box::new),
            woken: is_complete.then(|| woken(pod)).flatten(),
            keeps_node: KEEPS_NODE.map(|(key, _)| {
                annotation(&pod.metadata, key).filter(|_| is_complete).map(Into::into)
            }),
            requests,
            others,
            container: container.unwrap_or_default(),
            counted: match is_complete {
                true => Resources::counted(pod),
                false => Resources::default(),
            },
            is_seen: {
                let seen = pod.status.as_ref().and_then(|status| status.observed_generation);
                seen.is_none_or(|seen| Some(seen) >= pod.metadata.generation)
            },
            is_fixed: condition(pod, "PodResizePending")
                .is_some_and(|it| it.reason.as_deref() == Some("Infeasible")),
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}
