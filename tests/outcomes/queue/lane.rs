//! A namespace with a queue named `default`, which takes every pod and every StatefulSet.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testbed::kueue::VERSION;

use crate::coschedule::group::GROUP;
use crate::world::{Space, World, is_gated, object, on_lasting_nodes, pod, requesting, settled};

/// The prefix of Kueue's gates.
pub(crate) const GATES: &str = "kueue.x-k8s.io/";

/// A namespace with its queue.
pub(crate) struct Lane {
    pub(crate) space: Space,
}

impl Lane {
    /// Makes a namespace whose queue has quota for so many CPUs.
    pub(crate) async fn new(world: &Arc<World>, hint: &str, cpus: &str) -> Result<Self> {
        Self::with(world, hint, cpus, "default", &json!({})).await
    }

    /// As [`Lane::new`], with quota on the nodes of a flavor, and with these fields in the `ClusterQueue`.
    pub(crate) async fn with(
        world: &Arc<World>,
        hint: &str,
        cpus: &str,
        flavor: &str,
        more: &Value,
    ) -> Result<Self> {
        let lane = Self { space: world.namespace(hint).await? };
        let name = &lane.space.name;
        let mut queue = cluster_queue(name, cpus, flavor);
        json_patch::merge(&mut queue["spec"], more);
        let mut local = object(VERSION, "LocalQueue", "default", &json!({"clusterQueue": name}));
        local["metadata"]["namespace"] = json!(name);
        world.plane.apply(&[queue, local])?;
        let active = async || {
            let queue = lane.space.get("localqueue default").await?;
            let conditions = queue["status"]["conditions"].as_array().cloned().unwrap_or_default();
            Ok(conditions.iter().any(|of| of["type"] == "Active" && of["status"] == "True"))
        };
        settled("the queue to be active", active, |active| *active).await?;
        Ok(lane)
    }

    /// Changes the quota.
    pub(crate) async fn set_quota(&self, cpus: &str) -> Result<()> {
        let path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota";
        let patch = json!([{"op": "replace", "path": path, "value": cpus}]);
        let queue = format!("clusterqueue/{}", self.space.name);
        self.space.patch(&queue, "json", &patch).await?.succeeded().map(drop)
    }

    /// Waits until the only pod with these labels is there, and Kueue holds it, or no longer does.
    pub(crate) async fn held(&self, labels: &str, expected: bool) -> Result<Pod> {
        let what = format!("Kueue's gate on the pod with {labels}: {expected}");
        let pods = async || self.space.living(labels).await;
        let is_so = |pods: &Vec<Pod>| pods.len() == 1 && is_gated(&pods[0], GATES) == expected;
        Ok(settled(&what, pods, is_so).await?.remove(0))
    }
}

/// A `ClusterQueue` for one namespace, of its own name.
fn cluster_queue(name: &str, cpus: &str, flavor: &str) -> Value {
    let resources = json!([
        {"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "100Gi"},
    ]);
    let spec = json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "resourceGroups": [{
            "coveredResources": ["cpu", "memory"],
            "flavors": [{"name": flavor, "resources": resources}],
        }],
    });
    object(VERSION, "ClusterQueue", name, &spec)
}

/// A pod that requests so many CPUs, in the group `g`.
pub(crate) fn member(app: &str, cpus: &str) -> Value {
    let metadata = json!({"labels": {"app": app}, "annotations": {GROUP: "g"}});
    let more = json!({"metadata": metadata, "spec": {"affinity": on_lasting_nodes()}});
    requesting(pod(app, &more), cpus)
}
