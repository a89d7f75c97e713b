//! The objects and marks that stowplan makes for a group, and the check that none of them is left.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::coschedule::pipeline::LAB;
use crate::world::{Space, World, is_gated, node, settled};

/// The label of placeholders, on the StatefulSet and its pod.
pub(crate) const PLACEHOLDER: &str = "stowplan.dev/placeholder";
/// The annotation of the pods of a group without Tekton.
pub(crate) const GROUP: &str = "stowplan.dev/coschedule-group";
/// The label of members.
pub(crate) const MEMBER: &str = "stowplan.dev/coschedule-member";

/// The scheduling gate of Kueue.
pub(crate) const KUEUE: &str = "kueue.x-k8s.io/admission";

/// The group that a pod is a member of.
pub(crate) fn group_of(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(MEMBER).map(String::as_str)
}

/// The node that every node selector term of a pod names: `binding: node` pins the pod to it.
pub(crate) fn bound_to(pod: &Pod) -> Option<String> {
    let pod = json!(pod);
    let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let node = terms[0]["matchFields"][0]["values"][0].as_str()?;
    let named = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let is_named = |term: &Value| term["matchFields"] == named;
    terms.as_array()?.iter().all(is_named).then(|| node.to_owned())
}

impl Space {
    pub(crate) async fn placeholders(&self) -> Result<Vec<StatefulSet>> {
        let sets: Api<StatefulSet> = self.api();
        Ok(sets.list(&ListParams::default().labels(PLACEHOLDER)).await?.items)
    }

    /// The placeholders' pods.
    pub(crate) async fn placeholder_pods(&self) -> Result<Vec<Pod>> {
        let labelled = ListParams::default().labels(PLACEHOLDER);
        Ok(self.pods().list(&labelled).await?.items)
    }

    /// The only node of the pods whose task names begin so, as members of one group. Asserts that
    /// they have no anti-affinity: the placeholder's is not copied to members, and no author here
    /// has written any.
    pub(crate) async fn together(&self, prefix: &str) -> Result<String> {
        let pods = self.task_pods().await?;
        let of_run = || pods.iter().filter(|(name, _)| name.starts_with(prefix));
        let groups: BTreeMap<_, _> = of_run().map(|(name, pod)| (name, group_of(pod))).collect();
        let first = groups.values().next().copied().flatten();
        ensure!(first.is_some() && groups.values().all(|it| *it == first), "{groups:?}");
        for (name, pod) in of_run() {
            let repels = json!(pod)["spec"]["affinity"]["podAntiAffinity"].take();
            ensure!(repels.is_null(), "{name} repels other pods: {repels}");
        }
        self.node_of_all(prefix).await
    }

    /// Waits until this many placeholders have a node; returns the nodes, in the order of names.
    pub(crate) async fn placed(&self, count: usize) -> Result<Vec<String>> {
        let nodes = async || {
            let pods = self.placeholder_pods().await?;
            let living = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
            Ok((living.filter_map(node).collect::<Vec<_>>(), pods.len()))
        };
        let what = format!("{count} placeholders in {} to be placed", self.name);
        let found = settled(&what, nodes, |(nodes, all)| (nodes.len(), *all) == (count, count));
        Ok(found.await?.0)
    }

    /// Fails if the pod of any task is a member, or has an affinity.
    pub(crate) async fn nobody_is_a_member(&self) -> Result<()> {
        for (name, pod) in self.task_pods().await? {
            let has_affinity = pod.spec.as_ref().is_some_and(|spec| spec.affinity.is_some());
            ensure!(group_of(&pod).is_none() && !has_affinity, "{name} became a member");
        }
        Ok(())
    }

    /// Waits until no placeholder and no gate of stowplan's is left here, except those of a
    /// remaining run.
    pub(crate) async fn nothing_is_left(&self) -> Result<()> {
        let left = async || {
            let sets = self.placeholders().await?.into_iter().map(|set| set.name_any());
            let mut pods = self.pods().list(&ListParams::default()).await?.items;
            pods.retain(|pod| {
                pod.labels().contains_key(PLACEHOLDER) || is_gated(pod, "stowplan.dev/")
            });
            Ok(sets.chain(pods.iter().map(|pod| pod.name_any())).collect::<Vec<_>>())
        };
        let what = format!("stowplan's objects to be deleted in {}", self.name);
        settled(&what, left, Vec::is_empty).await?;
        unmarked(&self.world).await
    }

    /// Deletes all runs here, and waits until all of their objects are deleted: no pod is left, and
    /// no claim but those that existed before, in the order of names.
    pub(crate) async fn cleared(&self, kept: &[&str]) -> Result<()> {
        self.nothing_is_left().await?;
        self.runs().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let left = async || {
            let pods = self.task_pods().await?.into_keys().collect::<Vec<_>>();
            Ok((pods, self.names::<PersistentVolumeClaim>().await?))
        };
        let what = format!("nothing of the runs in {} to be left", self.name);
        settled(&what, left, |(pods, claims)| pods.is_empty() && claims == kept).await?;
        self.nothing_is_left().await
    }
}

/// No node of a lab carries stowplan's labels or taints: coscheduling needs none.
async fn unmarked(world: &World) -> Result<()> {
    let labs = ListParams::default().labels(LAB);
    for node in Api::<Node>::all(world.client.clone()).list(&labs).await?.items {
        let ours = |key: &str| key.contains("stowplan") && !key.starts_with("test");
        let labels = node.metadata.labels.iter().flatten().filter(|(key, _)| ours(key)).count();
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let taints = taints.filter(|taint| ours(&taint.key)).count();
        ensure!(labels + taints == 0, "node {} carries a mark of stowplan", node.name_any());
    }
    Ok(())
}
