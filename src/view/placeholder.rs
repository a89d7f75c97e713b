//! What is kept of placeholders: the StatefulSets that stand for groups, and their pods.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Name;
use super::estate::Identity;
use super::member::{self, MEMBER, Unschedulable};
use super::owner::Owner;
use super::pipeline_run::MODE;
use super::resources::Resources;
use super::storage::GROUP;
use super::streams_pod::woken;

/// The label of a placeholder and of all that belongs to it; its value is the placeholder's name.
pub const PLACEHOLDER: &str = "stowplan.dev/placeholder";

/// What the annotations begin with that a placeholder keeps.
pub const PREFIX: &str = "stowplan.dev/";

/// The annotation that keeps the key of the group that a placeholder stands for.
pub const KEY: &str = "stowplan.dev/group-key";

/// The annotation of a placeholder that has no pod, for a reason that its StatefulSet's events tell: new
/// members do not wait for it.
pub const FAILED: &str = "stowplan.dev/placeholder-failed";

/// What follows a StatefulSet's name in that of its first pod, which is a placeholder's only one.
pub const FIRST: &str = "-0";

/// A placeholder: a StatefulSet that bears its own name as [`PLACEHOLDER`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placeholder {
    /// Who it is.
    pub identity: Identity,
    /// The PipelineRun that owns it; `None` for that of a native group.
    pub run: Option<Owner>,
    /// The native group that it stands for.
    pub group: Option<Box<str>>,
    /// The mode that its run had when it was made.
    pub mode: Option<Box<str>>,
    /// The key of its group in the run; empty for the only group of a run.
    pub key: Option<Box<str>>,
    /// Whether it bears [`FAILED`].
    pub failed: bool,
    /// The claims that its pods mount, sorted.
    pub claims: Box<[Box<str>]>,
    /// The names of its claim templates, sorted.
    pub templates: Box<[Box<str>]>,
    /// What only the controller keeps.
    pub estate: Option<Box<PlaceholderEstate>>,
}

/// A placeholder as who writes it must know it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaceholderEstate {
    /// Its annotations under [`PREFIX`].
    pub annotations: BTreeMap<Box<str>, Box<str>>,
    /// The nodes that its template keeps out by name, sorted.
    pub excluded: Box<[Box<str>]>,
    /// The only node that its template lets in, by name.
    pub only: Option<Box<str>>,
    /// Whether its template lets its pod be nowhere but where members are, of which that is one.
    pub held: bool,
    /// What its pod takes of its node.
    pub requests: Resources,
    /// What its pod tolerates.
    pub tolerations: Box<[Toleration]>,
    /// The node selector of its pod.
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
    /// Its spec, as it stands.
    pub spec: Value,
}

impl Placeholder {
    /// The claims that the StatefulSet of this name makes for its pod.
    pub fn made(&self, name: &str) -> impl Iterator<Item = String> {
        self.templates.iter().map(move |template| format!("{template}-{name}{FIRST}"))
    }

    /// The claims that the pod of the placeholder of this name mounts: those of others, and its own.
    pub fn mounted(&self, name: &Name) -> impl Iterator<Item = Name> {
        let others = self.claims.iter().map(ToString::to_string);
        others.chain(self.made(&name.name)).map(|claim| Name::new(&name.namespace, &claim))
    }

    /// Reads a StatefulSet. `None`: it is no placeholder. `whole` keeps the controller's part.
    #[must_use]
    pub fn read(set: &apps::StatefulSet, whole: bool) -> Option<Self> {
        let metadata = &set.metadata;
        let label = metadata.labels.as_ref()?.get(PLACEHOLDER)?;
        if Some(label) != metadata.name.as_ref() {
            return None;
        }
        let annotations = metadata.annotations.as_ref();
        let annotation =
            |key: &str| annotations.and_then(|map| map.get(key)).map(|value| value.as_str().into());
        let spec = set.spec.as_ref();
        let pod = spec.and_then(|spec| spec.template.spec.as_ref());
        let templates = spec.and_then(|spec| spec.volume_claim_templates.as_ref());
        let names = templates.into_iter().flatten().filter_map(|of| of.metadata.name.as_deref());
        let estate = whole.then(|| {
            Box::new(PlaceholderEstate {
                annotations: annotations
                    .into_iter()
                    .flatten()
                    .filter(|(key, _)| key.starts_with(PREFIX))
                    .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                    .collect(),
                excluded: pod.map(excluded).unwrap_or_default(),
                only: pod.and_then(only),
                held: spec.is_some_and(|spec| {
                    let labels = spec.template.metadata.as_ref();
                    is_held(pod, labels.and_then(|of| of.labels.as_ref()), label)
                }),
                requests: pod.map(Resources::requested).unwrap_or_default(),
                tolerations: pod.and_then(|pod| pod.tolerations.clone()).unwrap_or_default().into(),
                node_selector: pod
                    .and_then(|pod| pod.node_selector.as_ref())
                    .into_iter()
                    .flatten()
                    .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                    .collect(),
                spec: serde_json::to_value(spec).unwrap_or_default(),
            })
        });
        Some(Self {
            identity: Identity::from(metadata),
            run: Owner::of_tekton(metadata, "PipelineRun"),
            group: annotation(GROUP),
            mode: annotation(MODE),
            key: annotation(KEY),
            failed: annotations.is_some_and(|map| map.contains_key(FAILED)),
            claims: pod.map(claims).unwrap_or_default(),
            templates: sorted(names.map(Into::into)),
            estate,
        })
    }
}

/// The nodes that every required node affinity term keeps out by name.
fn excluded(pod: &core::PodSpec) -> Box<[Box<str>]> {
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let mut terms = required.into_iter().flat_map(|required| &required.node_selector_terms);
    let named = |term: &core::NodeSelectorTerm| -> Vec<Box<str>> {
        let fields = term.match_fields.iter().flatten();
        fields
            .filter(|field| field.key == "metadata.name" && field.operator == "NotIn")
            .flat_map(|field| field.values.iter().flatten())
            .map(|name| name.as_str().into())
            .collect()
    };
    let Some(first) = terms.next() else { return Box::default() };
    let mut nodes = named(first);
    for term in terms {
        let others = named(term);
        nodes.retain(|node| others.contains(node));
    }
    sorted(nodes)
}

/// The node that every required node affinity term asks for by name.
fn only(pod: &core::PodSpec) -> Option<Box<str>> {
    let affinity = pod.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut nodes = required.node_selector_terms.iter().map(|term| {
        let mut fields = term.match_fields.iter().flatten();
        let field = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
        field.values.as_deref()?.first()
    });
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then(|| first.as_str().into())
}

/// Whether the pod of a placeholder must be where members are, while there are any. Without their label it
/// would not be the first of them, and could be nowhere.
#[must_use]
pub fn is_held(
    pod: Option<&core::PodSpec>,
    labels: Option<&BTreeMap<String, String>>,
    placeholder: &str,
) -> bool {
    labels.and_then(|labels| labels.get(MEMBER)).is_some_and(|of| of == placeholder)
        && pod.is_some_and(|pod| member::must_be_beside(pod, MEMBER, placeholder))
}

/// The claims that a pod mounts, sorted, each once.
pub(super) fn claims(pod: &core::PodSpec) -> Box<[Box<str>]> {
    let volumes = pod.volumes.iter().flatten();
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    sorted(claims.map(|claim| claim.claim_name.as_str().into()))
}

fn sorted(names: impl IntoIterator<Item = Box<str>>) -> Box<[Box<str>]> {
    let mut names: Vec<Box<str>> = names.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    names.into()
}

/// The pod of a placeholder.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PlaceholderPod {
    /// Who it is.
    pub identity: Identity,
    /// The placeholder.
    pub placeholder: Box<str>,
    /// The node it is bound to.
    pub node: Option<Box<str>>,
    /// Whether it has ended: it holds no place any more.
    pub finished: bool,
    /// Since when it has its node.
    pub scheduled_since: Option<Timestamp>,
    /// Since when, and why, the scheduler has found no node for it.
    pub unschedulable: Option<Unschedulable>,
    /// The nodes that it is kept out of by name, sorted. Kept only for who makes placeholders.
    pub excluded: Box<[Box<str>]>,
    /// The only node that it may be on, by name. Kept only for who makes placeholders.
    pub only: Option<Box<str>>,
    /// Whether it may be nowhere but where its members are. Kept only for who makes placeholders.
    pub held: bool,
    /// The label by which it was last woken, in seconds since 1970. Kept only for who makes placeholders.
    pub woken: Option<i64>,
    /// The claims that it mounts, sorted. Kept only for who makes placeholders.
    pub claims: Box<[Box<str>]>,
}

impl PlaceholderPod {
    /// Reads a pod. `None`: it is not that of a placeholder. `whole` keeps the controller's part.
    #[must_use]
    pub fn read(pod: &core::Pod, whole: bool) -> Option<Self> {
        let placeholder = Self::of(&pod.metadata)?;
        let spec = pod.spec.as_ref();
        let of_controller = spec.filter(|_| whole);
        Some(Self {
            identity: Identity::from(&pod.metadata),
            placeholder: placeholder.into(),
            node: spec.and_then(|spec| spec.node_name.as_deref()).map(Into::into),
            finished: member::is_finished(pod),
            scheduled_since: member::condition(pod, "PodScheduled")
                .filter(|condition| condition.status == "True")
                .and_then(|condition| condition.last_transition_time.as_ref())
                .map(|time| time.0),
            unschedulable: Unschedulable::read_with_errors(pod),
            excluded: of_controller.map(excluded).unwrap_or_default(),
            only: of_controller.and_then(only),
            held: is_held(of_controller, pod.metadata.labels.as_ref(), placeholder),
            woken: of_controller.and_then(|_| woken(pod)),
            claims: of_controller.map(claims).unwrap_or_default(),
        })
    }

    /// The placeholder that a pod is the pod of.
    #[must_use]
    pub fn of(pod: &ObjectMeta) -> Option<&str> {
        let placeholder = pod.labels.as_ref()?.get(PLACEHOLDER)?;
        let name = pod.name.as_deref()?.strip_suffix(FIRST)?;
        (name == placeholder).then_some(placeholder)
    }

    /// The node on which it holds a place: bound there, not ended and not about to go.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.node.as_deref().filter(|_| !self.finished && !self.identity.deleting)
    }
}
