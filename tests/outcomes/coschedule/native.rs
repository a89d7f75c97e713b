//! Groups of any pods, without Tekton.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use testbed::volumes::{IMMEDIATE, WAITING};

use crate::coschedule::group::{GROUP, KUEUE, group_of};
use crate::coschedule::pipeline::{Lab, claim, claims_of};
use crate::world::{
    Space, World, has, is_gated, is_ready, node, object, on_lasting_nodes, one_of, same, settled,
    workload_of,
};

/// A pod of a group, which other tests disturb on no node.
fn pod(name: &str, group: &str, claims: &[&str]) -> Value {
    let volume =
        |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    let metadata = json!({"labels": {"app": group}, "annotations": {GROUP: group}});
    let spec = json!({"volumes": volumes, "affinity": on_lasting_nodes()});
    crate::world::pod(name, &json!({"metadata": metadata, "spec": spec}))
}

/// Creates pods, which land on one node; returns it.
async fn together(space: &Space, pods: &[Value]) -> Result<String> {
    for pod in pods {
        space.pod(pod).await?;
    }
    let group = pods[0]["metadata"]["labels"]["app"].as_str().unwrap_or_default();
    one_of(space.nodes_of_all(&format!("app={group}"), pods.len()).await?)
}

/// Deletes these pods, after which nothing of their group is left.
async fn leave(space: &Space, names: &[&str]) -> Result<()> {
    for name in names {
        space.pods().delete(name, &DeleteParams::default()).await?;
    }
    space.nothing_is_left().await
}

pub(crate) async fn any_pods_can_be_a_group(world: Arc<World>) -> Result<()> {
    let space = world.namespace("native").await?;
    space.created(&workload_of("Deployment", "tight", 6, &pod("", "tight", &[]))).await?;
    // A group of the same name in another namespace is another group.
    let other = world.namespace("native").await?;
    other.pod(&pod("lone", "tight", &[])).await?;
    one_of(space.nodes_of_all("app=tight", 6).await?)?;
    let tight = space.living("app=tight").await?;
    let group = group_of(&tight[0]).unwrap_or_default();
    // As its members: above them, it would take the room that is handed over to those of other groups.
    let placeholder = space.pods().get(&format!("{group}-0")).await?.spec.unwrap_or_default();
    let priority = (placeholder.priority, placeholder.preemption_policy.as_deref());
    ensure!(priority == (Some(0), Some("PreemptLowerPriority")), "{priority:?}");
    other.node_of("lone").await?;
    let lone = other.pods().get("lone").await?;
    ensure!(group_of(&lone) != Some(group), "one group of two namespaces");
    space.placed(1).await?;
    // Pods of a Deployment never end.
    keeps_node(&space, false).await?;
    keeps_node(&other, true).await?;
    other.created(&workload_of("Deployment", "joins", 1, &pod("", "tight", &[]))).await?;
    keeps_node(&other, false).await?;

    space.kubectl("delete deployment tight").await?;
    space.nothing_is_left().await?;
    other.kubectl("delete deployment joins").await?;
    other.delete("lone").await?;
    other.nothing_is_left().await
}

/// Waits until autoscalers leave the node of the only group alone, or no longer do.
async fn keeps_node(space: &Space, expected: bool) -> Result<()> {
    let keys = ["cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"];
    let kept = async || {
        let pods = space.placeholder_pods().await?;
        let has = |key: &str| pods.iter().any(|pod| pod.annotations().contains_key(key));
        Ok((pods.len(), keys.map(has)))
    };
    let what = format!("the annotations for autoscalers: {expected}");
    settled(&what, kept, |kept| *kept == (1, [expected; 2])).await.map(drop)
}

pub(crate) async fn the_example_of_the_first_page_shares_a_node(world: Arc<World>) -> Result<()> {
    let space = world.namespace("start").await?;
    let example = include_str!("../../../examples/start.yaml");
    let mut example: Value = serde_saphyr::from_str(example)?;
    example["spec"]["template"]["spec"]["affinity"] = on_lasting_nodes();
    space.created(&example).await?;
    let node = one_of(space.nodes_of_all("app=start", 3).await?)?;
    same(&space.placed(1).await?, &vec![node])?;
    space.kubectl("delete deployment start").await?;
    space.nothing_is_left().await
}

/// As the controller of LeaderWorkerSet 0.8 makes them: a StatefulSet of leaders, and for the pod of each leader a
/// StatefulSet of workers, which that pod owns.
pub(crate) async fn the_pods_of_a_leader_worker_set(world: Arc<World>) -> Result<()> {
    let space = world.namespace("lws").await?;
    let of_set = |name: &str, replicas: usize, label: &str| {
        let mut template = pod("", "serve", &[]);
        template["metadata"]["labels"][format!("leaderworkerset.sigs.k8s.io/{label}")] = json!("0");
        workload_of("StatefulSet", name, replicas, &template)
    };
    space.created(&of_set("serve", 1, "worker-index")).await?;
    let leader: Pod = space.found("serve-0").await?;
    let mut workers = of_set("serve-0", 2, "group-index");
    workers["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": "serve-0", "uid": leader.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    workers["spec"]["ordinals"] = json!({"start": 1});
    workers["spec"]["podManagementPolicy"] = json!("Parallel");
    space.created(&workers).await?;
    one_of(space.nodes_of_all("app=serve", 3).await?)?;
    let names: Vec<_> = space.living("app=serve").await?.iter().map(|pod| pod.name_any()).collect();
    same(&names, &["serve-0", "serve-0-1", "serve-0-2"].map(str::to_owned).to_vec())?;
    space.kubectl("delete statefulset serve").await?;
    space.nothing_is_left().await
}

pub(crate) async fn a_native_group_on_one_volume(world: Arc<World>) -> Result<()> {
    let space = world.namespace("native-volume").await?;
    for name in ["one", "other"] {
        let mut claim = claim(name, IMMEDIATE, "ReadWriteOnce");
        claim["metadata"]["annotations"] = json!({GROUP: "pair"});
        space.created(&claim).await?;
        let stored: PersistentVolumeClaim = space.found(name).await?;
        let class = stored.spec.and_then(|spec| spec.storage_class_name);
        same(&class.as_deref(), &Some(WAITING))?;
    }
    let both = pod("c", "pair", &["one", "other"]);
    together(&space, &[pod("a", "pair", &["one"]), pod("b", "pair", &["other"]), both]).await?;
    for placeholder in space.placeholder_pods().await? {
        let (name, claims) = (placeholder.name_any(), claims_of(&placeholder));
        ensure!(!claims.is_empty(), "{name} holds no volume");
    }
    leave(&space, &["a", "b", "c"]).await
}

/// The strictest Pod Security level admits placeholders.
pub(crate) async fn pod_security_lets_placeholders_in(world: Arc<World>) -> Result<()> {
    let space = world.namespace("restricted").await?;
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    world.run(&format!("label namespace {} {enforce}", space.name)).await?;
    let refused = space.pod(&pod("refused", "strict", &[])).await;
    ensure!(refused.is_err(), "Pod Security is not on");
    space.created(&claim("source", WAITING, "ReadWriteOnce")).await?;
    let strict = ["a", "b"].map(|name| {
        let mut strict = pod(name, "strict", &["source"]);
        strict["spec"]["securityContext"] = json!({
            "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
        });
        strict["spec"]["containers"][0]["securityContext"] =
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        strict
    });
    let node = together(&space, &strict).await?;
    same(&space.placed(1).await?, &vec![node])?;
    leave(&space, &["a", "b"]).await
}

/// A disruption budget lets a drain evict a member only after others run elsewhere: the group
/// moves.
pub(crate) async fn a_group_with_a_disruption_budget_is_drained(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "budget", &["east"; 2]).await?;
    let mut served = pod("", "served", &[]);
    json_patch::merge(&mut served["spec"], &lab.way());
    let budget = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "served"}}});
    space.created(&object("policy/v1", "PodDisruptionBudget", "served", &budget)).await?;
    space.created(&workload_of("Deployment", "served", 2, &served)).await?;
    let together = async |but: &str| {
        let ready_on = async || {
            let pods = space.pods().list(&ListParams::default().labels("app=served")).await?.items;
            Ok(pods.iter().map(|pod| node(pod).filter(|_| is_ready(pod))).collect::<Vec<_>>())
        };
        let is_one = |nodes: &Vec<Option<String>>| match &nodes[..] {
            [Some(one), Some(other)] => one == other && one != but,
            _ => false,
        };
        let nodes = settled("two pods to run on one node", ready_on, is_one).await?;
        one_of(nodes.into_iter().flatten())
    };
    let drained = together("").await?;
    world.run(&format!("drain {drained} --timeout=90s")).await?;
    let other = together(&drained).await?;
    same(&space.placed(1).await?, &vec![other])?;
    space.kubectl("delete deployment served").await?;
    space.nothing_is_left().await
}

/// In a namespace with a LocalQueue named `default`, Kueue gates placeholders too.
pub(crate) async fn a_placeholder_that_others_gate_is_left_alone(world: Arc<World>) -> Result<()> {
    let space = world.namespace("gated").await?;
    let node = space.node_of_new(&pod("a", "queued", &[])).await?;
    let set = space.placeholders().await?.remove(0).name_any();
    let gates = json!([{"name": KUEUE}]);
    let template = json!({"spec": {"schedulingGates": gates}});
    space.change::<StatefulSet>(&set, json!({"spec": {"template": template}})).await?;
    space.pods().delete(&format!("{set}-0"), &DeleteParams::default()).await?;
    let gated = async || {
        let pods = space.placeholder_pods().await?;
        let gated = pods.iter().filter(|pod| is_gated(pod, KUEUE));
        Ok(gated.filter_map(|pod| pod.uid()).collect::<Vec<_>>())
    };
    let before = settled("the placeholder to be gated", gated, |pods| pods.len() == 1).await?;
    space.pod(&pod("b", "queued", &[])).await?;
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        same(&gated().await?, &before)?;
    }
    let events = space.events().await?;
    ensure!(!events.iter().any(|event| event.contains("PlaceholderNotPlaced")), "{events:?}");
    let check = space.stowplan("check group/queued", "").await?;
    has(&check.out, &[KUEUE])?;
    let none = json!({"spec": {"schedulingGates": []}});
    space.change::<Pod>(&format!("{set}-0"), none).await?;
    same(&space.node_of("b").await?, &node)?;
    same(&space.placed(1).await?, &vec![node])?;
    leave(&space, &["a", "b"]).await
}
