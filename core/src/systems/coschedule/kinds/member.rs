//! The pods of groups.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::placeholder::{self, PlaceholderPod};
use super::unschedulable::Unschedulable;
use crate::kubernetes::{
    AboveNodeTerms, affinity, annotation, controller, gates, is_created_again, is_finished,
    kept_texts, label, node_name, required_node_terms, required_pod_terms, scheduled_since,
};
use crate::systems;
use crate::systems::coschedule::keys::{
    ASSISTANT, COMPONENT, COMPONENT_VALUE, FAILED, GATE, GROUP, INSTANCE, MEMBER,
};
use crate::systems::exclusion::{IGNORE, is_opted_out};
use crate::systems::wake::woken;
use crate::view::index::Sets;
use crate::view::owner::Owner;
use crate::view::pod::{PODS, all_for_controller};
use crate::view::resources::Resources;
use crate::view::rows::{GroupedRow, Rows, TableRow};
use crate::view::table::Watch;
use crate::view::{Identity, Kind, Name, Scope};

/// A pod that is, or may become, a member of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Member {
    pub identity: Identity,
    /// The label [`MEMBER`]: the name of the placeholder that it was admitted for.
    pub placeholder: Option<Box<str>>,
    /// The annotation [`GROUP`]: the native group that it requests.
    pub group: Option<Box<str>>,
    /// The TaskRun that created it.
    pub task_run: Option<Owner>,
    /// The node it is bound to.
    pub node: Option<Box<str>>,
    /// True if it has ended.
    pub finished: bool,
    pub details: Option<Box<MemberDetails>>,
}

/// The fields of a member that only the controller keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MemberDetails {
    /// The index of [`GATE`] among its scheduling gates.
    pub gate: Option<usize>,
    /// The first of its scheduling gates that are not stowplan's.
    pub other_gate: Option<Box<str>>,
    /// The object below which a patch gives it its first required node term.
    pub above_terms: AboveNodeTerms,
    /// True if it has the required pod affinity to its placeholder, or to the other members. Then a node that
    /// it requires by name was requested by its author.
    pub follows: bool,
    /// True if that is to its placeholder.
    pub follows_placeholder: bool,
    /// True if the pod affinity selects the member itself, so that it runs beside the other members, and needs no
    /// placeholder.
    pub is_beside_others: bool,
    /// True if it has the labels of its placeholder's pod, so that the pod affinity of members selects it, too.
    pub stands_in: bool,
    /// True if its placeholder has stepped aside, and it runs without.
    pub has_left: bool,
    /// True if it has a label of a placeholder's pod with a value of its author's own.
    pub is_labelled: bool,
    /// True if Tekton's own affinity assistant places it.
    pub assisted: bool,
    /// True if its label [`IGNORE`] opts it out: stowplan does not change it.
    pub ignored: bool,
    /// True if it runs until it is deleted, because of the kind of its controller, which then creates it again. That of
    /// a Job counts a deletion as a failure.
    pub runs_for_ever: bool,
    /// Since when it has had a node.
    pub scheduled_since: Option<Timestamp>,
    /// When it ended: the last change of its conditions.
    pub ended: Option<Timestamp>,
    /// Set while the scheduler finds no node for it.
    pub unschedulable: Option<Unschedulable>,
    /// The node on which the scheduler keeps room for it.
    pub nominated: Option<Box<str>>,
    /// When it was last woken, in seconds since 1970.
    pub woken: Option<i64>,
    /// The claims that it mounts, sorted, each once.
    pub claims: Box<[Box<str>]>,
    /// The sum of its resource requests.
    pub requests: Resources,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
    /// The terms of its required node affinity; `None` without required node affinity.
    pub terms: Option<Box<[NodeSelectorTerm]>>,
    pub tolerations: Box<[Toleration]>,
}

impl Member {
    /// The node that it is bound to, unless it has ended.
    pub(crate) fn place(&self) -> Option<&str> {
        self.node.as_deref().filter(|_| !self.finished)
    }

    /// A scheduling gate of others that holds it, such as Kueue's.
    pub(crate) fn other_gate(&self) -> Option<&str> {
        self.details.as_ref()?.other_gate.as_deref()
    }
}

impl MemberDetails {
    fn read(pod: &core::Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let affinity = affinity(pod);
        Self {
            gate: gates(pod).position(|gate| gate == GATE),
            other_gate: gates(pod).find(|gate| systems::gate(gate).is_none()).map(Into::into),
            above_terms: AboveNodeTerms::from(pod),
            ended: last_change(pod).filter(|_| is_finished(pod)),
            scheduled_since: scheduled_since(pod),
            unschedulable: Unschedulable::read(pod),
            nominated: nominated_node(pod).map(Into::into),
            claims: placeholder::claims(spec),
            requests: Resources::requested(spec),
            node_selector: kept_texts(spec.node_selector.as_ref()),
            terms: required_node_terms(affinity).map(Into::into),
            tolerations: spec.tolerations.clone().unwrap_or_default().into(),
            ..Self::default()
        }
    }
}

fn nominated_node(pod: &core::Pod) -> Option<&str> {
    let node = pod.status.as_ref()?.nominated_node_name.as_deref()?;
    (!node.is_empty()).then_some(node)
}

/// Returns true if the controller of a pod starts it again whenever it has ended.
pub(super) fn runs_for_ever(metadata: &ObjectMeta) -> bool {
    controller(metadata).is_some_and(|owner| is_created_again(metadata) && owner.kind != "Job")
}

fn last_change(pod: &core::Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().filter_map(|of| Some(of.last_transition_time.as_ref()?.0)).max()
}

/// Returns true if a pod has a required pod affinity to pods with this label.
fn requires_label(pod: &core::Pod, key: &str, value: &str) -> bool {
    required_pod_terms(affinity(pod)).iter().any(|term| {
        let selector = term.label_selector.as_ref();
        let labels = selector.and_then(|selector| selector.match_labels.as_ref());
        labels.and_then(|labels| labels.get(key)).is_some_and(|of| of == value)
    })
}

/// The table of the pods of groups.
pub(crate) type Members = Rows<Member, Sets<Name>>;

impl TableRow for Member {
    type Object = core::Pod;
    const KIND: &'static Kind = &PODS;
    const COUNTED_AS: Option<&'static str> = Some("members");

    fn watches(scope: Scope) -> Vec<Watch> {
        match scope {
            Scope::Admission => vec![Watch { store: "pods of groups", selector: MEMBER.into() }],
            _ => all_for_controller(scope),
        }
    }

    /// `None` if it cannot be a member, or is the pod of a placeholder. Only the controller keeps details.
    fn from_object(pod: &core::Pod, scope: Scope) -> Option<Self> {
        let metadata = &pod.metadata;
        let member_of = label(metadata, MEMBER);
        // A pod with the labels of two placeholders is kept: the scheduler counts it as a member.
        if PlaceholderPod::of(metadata).is_some_and(|own| member_of.is_none_or(|of| of == own)) {
            return None;
        }
        let member = Self {
            identity: Identity::from(metadata),
            placeholder: member_of.map(Into::into),
            group: annotation(metadata, GROUP).map(Into::into),
            task_run: Owner::of_tekton(metadata, "TaskRun"),
            node: node_name(pod).map(Into::into),
            finished: is_finished(pod),
            details: None,
        };
        if member.placeholder.is_none() && member.group.is_none() && member.task_run.is_none() {
            return None;
        }
        let placeholder = member.placeholder.as_deref();
        let has_term = |key| placeholder.is_some_and(|of| requires_label(pod, key, of));
        let of_placeholder = [(COMPONENT, Some(COMPONENT_VALUE)), (INSTANCE, placeholder)];
        let has = |(key, value): (&str, Option<&str>)| label(metadata, key) == value;
        let is_other = |of: (&str, Option<&str>)| label(metadata, of.0).is_some() && !has(of);
        let stands_in = of_placeholder.into_iter().all(has);
        let details = (scope == Scope::Controller).then(|| {
            Box::new(MemberDetails {
                assisted: annotation(metadata, ASSISTANT).is_some(),
                ignored: is_opted_out(label(metadata, IGNORE)),
                woken: woken(pod),
                runs_for_ever: runs_for_ever(metadata),
                follows: has_term(INSTANCE) || has_term(MEMBER),
                follows_placeholder: has_term(INSTANCE),
                is_beside_others: has_term(MEMBER) || has_term(INSTANCE) && stands_in,
                stands_in,
                has_left: label(metadata, FAILED).is_some(),
                is_labelled: of_placeholder.into_iter().any(is_other),
                ..MemberDetails::read(pod)
            })
        });
        Some(Self { details, ..member })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

/// Members are found by their placeholder.
impl GroupedRow for Member {
    type Key = Name;

    fn key(&self, name: &Name) -> Option<Name> {
        let placeholder = self.placeholder.as_deref()?;
        Some(Name::new(&name.namespace, placeholder))
    }
}
