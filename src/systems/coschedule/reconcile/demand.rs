//! The requirements of a group's placeholder and waiting pods, and the nodes that meet them.

use std::borrow::Cow;
use std::collections::HashSet;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use crate::placement::affinity::bound_to;
use crate::systems::coschedule::kinds::member::MemberDetails;
use crate::systems::coschedule::kinds::placeholder::{Placeholder, PlaceholderDetails};
use crate::systems::coschedule::placeholder::Blueprint;
use crate::systems::coschedule::volumes;
use crate::systems::fit::{self, Candidate, Group, Joining, Obstacle, PodNeeds, Volumes};
use crate::view::{Name, Node, NodeDetails, Resources, View};

/// The requirements of a placeholder and of the pods that wait for it.
#[derive(Debug)]
pub(super) struct Demand<'v> {
    group: Group<'v>,
    /// The claims that the placeholder mounts.
    mounted: Vec<Name>,
}

/// The node of a placeholder, which could keep it.
#[derive(Debug)]
pub(super) struct Host<'d, 'v> {
    demand: &'d Demand<'v>,
    candidate: Candidate<'d>,
}

impl Host<'_, '_> {
    /// Whether the node could take this pod of the group.
    pub(super) fn lets_in(&self, pod: &MemberDetails, namespace: &str) -> bool {
        let Demand { group, mounted } = self.demand;
        let pod = joining(pod, namespace, mounted, self.candidate.view);
        group.join_obstacle(&pod, self.candidate, true).is_none()
    }
}

/// The free capacity of a node.
#[derive(Debug)]
pub(super) struct FreeCapacity<'v> {
    node: &'v str,
    milli_cpu: i64,
    memory: i64,
    /// The number of further pods that it takes.
    pods: usize,
}

impl<'v> FreeCapacity<'v> {
    /// The free capacity of all nodes, sorted by name. In a full cluster every waiting group looks at
    /// every node: these numbers rule out most nodes without the full check.
    pub(super) fn of_all(view: &'v View) -> Vec<Self> {
        let of = |(node, known): (&'v str, &'v Node)| {
            let details = known.details.as_deref()?;
            let usage = view.node_usage(node);
            let left = |amount: fn(&Resources) -> i64| {
                let taken = usage.map_or(0, |usage| amount(&usage.requested));
                amount(&details.allocatable).saturating_sub(taken)
            };
            Some(Self {
                node,
                milli_cpu: left(|of| of.milli_cpu),
                memory: left(|of| of.memory),
                pods: details.pod_limit.saturating_sub(usage.map_or(0, |usage| usage.pods)),
            })
        };
        let mut all: Vec<Self> = view.nodes().filter_map(of).collect();
        all.sort_unstable_by_key(|free| free.node);
        all
    }
}

impl<'v> Demand<'v> {
    pub(super) fn of(
        name: &Name,
        placeholder: &'v Placeholder,
        details: &'v PlaceholderDetails,
        blueprint: Option<&Blueprint<'_>>,
        waiting: Vec<&'v MemberDetails>,
        view: &'v View,
    ) -> Self {
        let selector = details.node_selector.iter();
        let mounted: Vec<Name> = placeholder.mounted(name).collect();
        let of_pod = |pod| joining(pod, &name.namespace, &mounted, view);
        // Its members get the room that it reserves.
        let mut requests = details.requests.clone();
        if let Some(room) = placeholder.plan.as_ref().and_then(|plan| plan.room) {
            requests.milli_cpu = requests.milli_cpu.saturating_sub(room.milli_cpu);
            requests.memory = requests.memory.saturating_sub(room.memory);
        }
        let group = Group {
            placeholder: PodNeeds {
                node_selector: selector.map(|(key, value)| (&**key, &**value)).collect(),
                node_terms: blueprint.and_then(Blueprint::node_terms).map(Cow::Owned),
                tolerations: &details.tolerations,
                requests: Some(Cow::Owned(requests)),
            },
            waiting: waiting.into_iter().map(of_pod).collect(),
            volumes: volumes::of_claims(&mounted, view),
        };
        Self { group, mounted }
    }

    /// The cordon or taint with which a node refuses the placeholder.
    pub(super) fn barred_by<'n>(&self, node: &'n NodeDetails) -> Option<Obstacle<'n>> {
        fit::closed_by(node, self.group.placeholder.tolerations)
    }

    /// Whether a node could take the placeholder and any of the waiting pods. `has_placeholder`: the
    /// placeholder is already on the node.
    pub(super) fn suits(&self, name: &str, view: &View, has_placeholder: bool) -> bool {
        Candidate::find(name, view)
            .is_some_and(|candidate| self.group.obstacle(candidate, has_placeholder).is_none())
    }

    /// Returns true if the placeholder's node takes a waiting pod only with more capacity.
    pub(super) fn lacks_capacity(&self, name: &str, view: &View) -> bool {
        let obstacle =
            Candidate::find(name, view).and_then(|candidate| self.group.obstacle(candidate, true));
        obstacle.is_some_and(|obstacle| obstacle.is_lack_of_capacity())
    }

    /// Whether a node without other pods could take the placeholder and any of the waiting pods.
    pub(super) fn suits_an_empty_node(&self, view: &View) -> bool {
        Candidate::all_empty(view).any(|candidate| {
            let lacks = self.group.obstacle(candidate, false);
            lacks.is_none_or(|obstacle| !obstacle.is_lack_of_capacity())
        })
    }

    /// The node of the placeholder; `None` if it could not keep the placeholder.
    pub(super) fn host<'d>(&'d self, name: &'d str, view: &'d View) -> Option<Host<'d, 'v>> {
        let candidate = Candidate::find(name, view)?;
        let obstacle = self.group.placeholder_obstacle(candidate, true);
        obstacle.is_none().then_some(Host { demand: self, candidate })
    }

    /// Whether a node could take the placeholder, whichever pods wait for it.
    pub(super) fn takes_placeholder(&self, name: &str, view: &View) -> bool {
        Candidate::find(name, view)
            .is_some_and(|candidate| self.group.placeholder_obstacle(candidate, false).is_none())
    }

    /// The nodes that suit, except `but`, sorted by name. `free`: the free capacity of all nodes.
    pub(super) fn suitable(
        &self,
        view: &'v View,
        free: &[FreeCapacity<'v>],
        but: &str,
    ) -> Vec<&'v str> {
        let further = 1 + usize::from(!self.group.waiting.is_empty());
        let milli_cpu = self.least(|of| of.milli_cpu);
        let memory = self.least(|of| of.memory);
        let may_suit = |free: &&FreeCapacity<'_>| {
            free.pods >= further && free.milli_cpu >= milli_cpu && free.memory >= memory
        };
        let names = free.iter().filter(may_suit).map(|free| free.node);
        names.filter(|name| *name != but && self.suits(name, view, false)).collect()
    }

    /// The least free amount that a node needs for the placeholder and any one of the waiting pods.
    fn least(&self, amount: impl Fn(&Resources) -> i64) -> i64 {
        let of = |pod: &PodNeeds<'_>| pod.requests.as_deref().map_or(0, &amount);
        let own = of(&self.group.placeholder);
        let waiting = self.group.waiting.iter().map(|pod| of(&pod.needs));
        // An amount that a pod does not request is not checked.
        let sums = waiting.filter(|amount| *amount > 0).map(|amount| own.saturating_add(amount));
        sums.chain(Some(own).filter(|own| *own > 0)).max().unwrap_or(i64::MIN)
    }

    /// Describes the nodes that can mount each volume. `None`: every node can mount all of them.
    pub(super) fn reach(&self, view: &View) -> Option<String> {
        self.group.volumes.describe_reach(view)
    }

    /// Describes the volumes of the group and of a waiting pod that has further ones, if no node can
    /// mount all of them. `pin_to` checks those of the group alone.
    pub(super) fn unreachable(&self, view: &View) -> Option<String> {
        let with = |pod: &Joining<'v>| -> Volumes<'v> {
            self.group.volumes.iter().chain(pod.volumes.iter()).cloned().collect()
        };
        let is_apart = |volumes: &Volumes<'_>| !volumes.reach_a_node(view);
        let with_further = self.group.waiting.iter().filter(|pod| !pod.volumes.is_empty());
        let volumes = with_further.map(with).find(is_apart)?;
        volumes.describe_reach(view)
    }

    /// Describes the volumes that only `node` can mount. `None`: another node can mount all of them.
    pub(super) fn pin_to(&self, node: &str, view: &View) -> Option<String> {
        self.group.volumes.pin_to(node, view).map(|pin| pin.to_string())
    }
}

/// A waiting pod of this namespace, without a node name that stowplan added, and with its volumes
/// except those of the claims `mounted`, which the placeholder mounts.
pub(crate) fn joining<'v>(
    pod: &'v MemberDetails,
    namespace: &str,
    mounted: &[Name],
    view: &'v View,
) -> Joining<'v> {
    let selector = pod.node_selector.iter();
    let needs = PodNeeds {
        node_selector: selector.map(|(key, value)| (&**key, &**value)).collect(),
        node_terms: own_terms(pod),
        tolerations: &pod.tolerations,
        requests: Some(Cow::Borrowed(&pod.requests)),
    };
    let is_further = |claim: &&str| mounted.iter().all(|known| *known.name != **claim);
    let further = pod.claims.iter().map(AsRef::as_ref).filter(is_further);
    let further = further.map(|claim| Name::new(namespace, claim));
    Joining { needs, volumes: volumes::of_claims(further, view) }
}

/// The node that stowplan made a pod require by name, instead of adding the pod-affinity term.
pub(super) fn bound_by_name(pod: &MemberDetails) -> Option<&str> {
    let terms = pod.terms.as_deref().filter(|_| pod.gate.is_none() && !pod.follows);
    bound_to(terms?)
}

/// The required node terms of a pod, without a node name that stowplan added.
pub(super) fn own_terms(pod: &MemberDetails) -> Option<Cow<'_, [NodeSelectorTerm]>> {
    let terms = pod.terms.as_deref()?;
    match bound_by_name(pod) {
        Some(_) => fit::unbound_terms(terms),
        None => Some(Cow::Borrowed(terms)),
    }
}

/// All nodes except those in `suitable`, sorted by name.
pub(super) fn others<'v>(view: &'v View, suitable: &[&str]) -> Vec<&'v str> {
    let suitable: HashSet<&str> = suitable.iter().copied().collect();
    let others = view.nodes().map(|(name, _)| name).filter(|name| !suitable.contains(name));
    let mut others: Vec<&str> = others.collect();
    others.sort_unstable();
    others
}
