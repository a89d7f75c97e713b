//! A control plane with stowplan and Tekton's definitions, and the queries of both parts.

use std::collections::HashMap;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use stowplan::testing::systems::coschedule::keys::GATE;
use stowplan::testing::systems::coschedule::keys::GROUP;
use testbed::control_plane::{ControlPlane, Installation, NodeSpec, Options};
use testbed::proxy::Proxy;
use testbed::tekton;
use testbed::wait::{Seen, until};

use crate::plane::{self, LIMIT, NAMESPACE, Stowplan};

/// The priority class that the chart creates for placeholders.
pub(crate) const CLASS: &str = "stowplan-placeholder";

/// How a member follows its placeholder: the policy's `coschedule.binding`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Binding {
    Affinity,
    Node,
}

impl Binding {
    fn word(self) -> &'static str {
        match self {
            Self::Affinity => "affinity",
            Self::Node => "node",
        }
    }
}

/// A control plane with stowplan, for one part of the bench.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) installation: Installation,
    /// Between the controller and the API server.
    pub(crate) proxy: Proxy,
    /// An administrator's client, which does not pass the proxy.
    pub(crate) client: Client,
}

impl Cluster {
    /// Starts a control plane with these nodes, stowplan and a controller. Scheduler and controller
    /// manager keep their own limits, or have none.
    pub(crate) async fn start(nodes: Vec<NodeSpec>, own_limits: bool) -> anyhow::Result<Self> {
        let options = Options { nodes, own_limits, ..Options::default() };
        let plane = ControlPlane::start(options).await?;
        // First: the controller looks for new definitions only from time to time.
        tekton::install(&plane.client().await?).await?;
        let Stowplan { installation, proxy, client } =
            Stowplan::start(&plane, plane::install()).await?;
        Ok(Self { plane, installation, proxy, client })
    }

    /// Stops the control plane; after a failure its logs are kept.
    pub(crate) async fn stop(self, failed: bool) {
        plane::stop(self.plane, failed).await;
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn placeholders(&self) -> Api<StatefulSet> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Gives webhook and controller a policy with this binding, under which native groups stay for
    /// as long as the bench runs, and waits until pods are admitted by it.
    pub(crate) async fn bind_by(&self, binding: Binding) -> anyhow::Result<()> {
        self.bind_with(binding, CLASS).await
    }

    /// The same, with placeholders of this priority class.
    pub(crate) async fn bind_with(&self, binding: Binding, class: &str) -> anyhow::Result<()> {
        let policy = json!({"coschedule": {
            "binding": binding.word(), "groupTTL": "24h",
            "placeholder": {"priorityClassName": class},
        }});
        self.installation.set_policy(&policy.to_string()).await?;
        // A pod of a group without placeholder gets a gate or a term, depending on the binding.
        let trial = serde_json::from_value(json!({
            "metadata": {"name": "trial", "annotations": {GROUP: "trial"}},
            "spec": {"containers": [{"name": "trial", "image": "trial"}]},
        }))?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        until("the policy to be read", LIMIT, async || {
            let pod = self.pods().create(&dry_run, &trial).await?;
            let is_read = match binding {
                Binding::Affinity => has_term(&pod),
                Binding::Node => is_gated(&pod),
            };
            Ok(match is_read {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("a pod of a group is given {:?}", pod.spec)),
            })
        })
        .await
    }

    /// Waits until there are this many pods that `which` selects.
    pub(crate) async fn pods_are(&self, count: usize, which: &ListParams) -> anyhow::Result<()> {
        let selector = [&which.label_selector, &which.field_selector];
        let selector: Vec<_> = selector.into_iter().flatten().map(String::as_str).collect();
        let what = format!("{count} pods with {}", selector.join(" and "));
        until(&what, LIMIT, async || {
            self.plane.check()?;
            let seen = self.pods().list_metadata(which).await?.items.len();
            Ok(if seen == count { Seen::Done(()) } else { Seen::NotYet(seen.to_string()) })
        })
        .await
    }

    /// The pods that `which` selects, counted by group (`group_of`) and node. A pod without a group
    /// or a node is an error.
    pub(crate) async fn groups(
        &self,
        which: &ListParams,
        group_of: impl Fn(&Pod) -> Option<String>,
    ) -> anyhow::Result<HashMap<String, HashMap<String, usize>>> {
        let mut groups: HashMap<String, HashMap<String, usize>> = HashMap::new();
        for pod in self.pods().list(which).await? {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let group = group_of(&pod).with_context(|| format!("pod {name} has no group"))?;
            let node = pod.spec.and_then(|spec| spec.node_name);
            let node = node.with_context(|| format!("pod {name} has no node"))?;
            *groups.entry(group).or_default().entry(node).or_default() += 1;
        }
        Ok(groups)
    }
}

/// How many pods are not on the node where most of their group are.
pub(crate) fn apart(groups: &HashMap<String, HashMap<String, usize>>) -> usize {
    let of_group = |nodes: &HashMap<String, usize>| {
        nodes.values().sum::<usize>() - nodes.values().max().copied().unwrap_or_default()
    };
    groups.values().map(of_group).sum()
}

/// Whether a pod was given a required pod-affinity term.
pub(crate) fn has_term(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_affinity.as_ref());
    affinity.is_some_and(|it| it.required_during_scheduling_ignored_during_execution.is_some())
}

/// Whether a pod was bound to a node by name.
pub(crate) fn has_node(pod: &Pod) -> bool {
    let affinity =
        pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let required =
        affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.map(|required| &*required.node_selector_terms).unwrap_or_default();
    !terms.is_empty() && terms.iter().all(|term| term.match_fields.is_some())
}

/// Whether a pod waits until its placeholder has a node.
pub(crate) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.map(|gate| &*gate.name).any(|gate| gate == GATE)
}
