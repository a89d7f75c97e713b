//! Groups of any pods, without Tekton.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use testbed::volumes::{IMMEDIATE, WAITING};
use testbed::wait::{Seen, until};

use crate::coschedule::group::group_of;
use crate::coschedule::pipeline::{LIMIT, Lab, claim, claims_of, node};
use crate::world::{World, same};

const GROUP: &str = "stowplan.dev/coschedule-group";

fn pod(name: &str, group: &str, claims: &[&str]) -> Value {
    let volumes: Vec<_> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    json!({
        "metadata": {"name": name, "annotations": {GROUP: group}},
        "spec": {"containers": [{"name": "main", "image": "main"}], "volumes": volumes},
    })
}

pub(crate) async fn any_pods_can_be_a_group(world: Arc<World>) -> Result<()> {
    let space = world.namespace("native").await?;
    space
        .created(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "tight"},
            "spec": {
                "replicas": 6,
                "selector": {"matchLabels": {"app": "tight"}},
                "template": {
                    "metadata": {"labels": {"app": "tight"}, "annotations": {GROUP: "tight"}},
                    "spec": {"containers": [{"name": "main", "image": "main"}]},
                },
            },
        }))
        .await?;
    // A group of the same name in another namespace is another group.
    let other = world.namespace("native").await?;
    other.pod(&pod("lone", "tight", &[])).await?;
    let tight = ListParams::default().labels("app=tight");
    let (nodes, group) = until("six pods to be placed", LIMIT, async || {
        let pods = space.pods().list(&tight).await?.items;
        let nodes: Vec<_> = pods.iter().filter_map(node).collect();
        Ok(match (nodes.len(), pods.first().and_then(group_of)) {
            (6, Some(group)) => Seen::Done((nodes, group.to_owned())),
            (seen, group) => Seen::NotYet(format!("{seen} are, in group {group:?}")),
        })
    })
    .await?;
    ensure!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
    // The chart's priority class: the scheduler places it before the members.
    let placeholder = space.pods().get(&format!("{group}-0")).await?.spec.unwrap_or_default();
    let priority = (placeholder.priority, placeholder.preemption_policy.as_deref());
    ensure!(priority == (Some(1), Some("Never")), "{priority:?}");
    other.node_of("lone").await?;
    ensure!(
        group_of(&other.pods().get("lone").await?) != Some(&*group),
        "one group of two namespaces"
    );
    space.placed(1).await?;

    world.kubectl(&["-n", &space.name, "delete", "deployment", "tight"], "").await?.succeeded()?;
    space.nothing_is_left().await?;
    other.delete("lone").await?;
    other.nothing_is_left().await
}

pub(crate) async fn the_example_of_the_first_page_shares_a_node(world: Arc<World>) -> Result<()> {
    let space = world.namespace("start").await?;
    let example = include_str!("../../../examples/start.yaml");
    space.created(&serde_saphyr::from_str(example)?).await?;
    let pods = ListParams::default().labels("app=start");
    let nodes = until("three pods to be placed", LIMIT, async || {
        let pods = space.pods().list(&pods).await?.items;
        let nodes: Vec<_> = pods.iter().filter_map(node).collect();
        Ok(match nodes.len() {
            3 => Seen::Done(nodes),
            seen => Seen::NotYet(format!("{seen} are")),
        })
    })
    .await?;
    same(&space.placed(1).await?, &nodes[..1].to_vec())?;
    ensure!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
    world.kubectl(&["-n", &space.name, "delete", "deployment", "start"], "").await?.succeeded()?;
    space.nothing_is_left().await
}

pub(crate) async fn a_native_group_on_one_volume(world: Arc<World>) -> Result<()> {
    let space = world.namespace("native-volume").await?;
    for name in ["one", "other"] {
        let mut claim = claim(name, IMMEDIATE, "ReadWriteOnce");
        claim["metadata"]["annotations"] = json!({GROUP: "pair"});
        space.created(&claim).await?;
        let stored = space.claims().get(name).await?;
        let class = stored.spec.and_then(|spec| spec.storage_class_name);
        same(&class.as_deref(), &Some(WAITING))?;
    }
    space.pod(&pod("a", "pair", &["one"])).await?;
    space.pod(&pod("b", "pair", &["other"])).await?;
    space.pod(&pod("c", "pair", &["one", "other"])).await?;
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(space.node_of(name).await?);
    }
    ensure!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
    for placeholder in space.placeholder_pods().await? {
        let (name, claims) = (placeholder.name_any(), claims_of(&placeholder));
        ensure!(!claims.is_empty(), "{name} holds no volume");
    }
    for name in ["a", "b", "c"] {
        space.pods().delete(name, &DeleteParams::default()).await?;
    }
    space.nothing_is_left().await
}

/// The strictest Pod Security level admits placeholders.
pub(crate) async fn pod_security_lets_placeholders_in(world: Arc<World>) -> Result<()> {
    let space = world.namespace("restricted").await?;
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    world.kubectl(&["label", "namespace", &space.name, enforce], "").await?.succeeded()?;
    let refused: Pod = serde_json::from_value(pod("refused", "strict", &[]))?;
    let refused = space.pods().create(&PostParams::default(), &refused).await;
    ensure!(refused.is_err(), "Pod Security is not on");
    space.created(&claim("source", WAITING, "ReadWriteOnce")).await?;
    for name in ["a", "b"] {
        let mut strict = pod(name, "strict", &["source"]);
        strict["spec"]["securityContext"] = json!({
            "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
        });
        strict["spec"]["containers"][0]["securityContext"] =
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        space.pod(&strict).await?;
    }
    let nodes = [space.node_of("a").await?, space.node_of("b").await?];
    same(&space.placed(1).await?, &vec![nodes[0].clone()])?;
    same(&nodes[1], &nodes[0])?;
    for name in ["a", "b"] {
        space.pods().delete(name, &DeleteParams::default()).await?;
    }
    space.nothing_is_left().await
}

/// A disruption budget lets a drain evict a member only after others run elsewhere: the group
/// moves.
pub(crate) async fn a_group_with_a_disruption_budget_is_drained(world: Arc<World>) -> Result<()> {
    let space = world.namespace("budget").await?;
    let lab = Lab::new(&world, "budget", &["east"; 2]).await?;
    let mut spec = lab.way();
    spec["containers"] = json!([{"name": "main", "image": "main"}]);
    let labels = json!({"app": "served"});
    space
        .created(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "served"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        }))
        .await?;
    space
        .created(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "served"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": {GROUP: "served"}}, "spec": spec,
                },
            },
        }))
        .await?;
    let served = ListParams::default().labels("app=served");
    let together = async |but: Option<&str>| {
        until("two pods to run on one node", LIMIT, async || {
            let pods = space.pods().list(&served).await?.items;
            let nodes: Vec<_> = pods.iter().filter_map(node).collect();
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            let one = nodes.first().filter(|first| nodes.iter().all(|node| node == *first));
            Ok(match one.filter(|one| Some(one.as_str()) != but) {
                Some(one) if (nodes.len(), pods.len(), ready) == (2, 2, 2) => {
                    Seen::Done(one.clone())
                }
                _ => Seen::NotYet(format!("{ready} of {} are ready, on {nodes:?}", pods.len())),
            })
        })
        .await
    };
    let drained = together(None).await?;
    let said = world.kubectl(&["drain", &drained, "--timeout=90s"], "").await?;
    ensure!(said.success, "{}", said.err);
    let other = together(Some(&drained)).await?;
    same(&space.placed(1).await?, &vec![other])?;
    world.kubectl(&["-n", &space.name, "delete", "deployment", "served"], "").await?.succeeded()?;
    space.nothing_is_left().await
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|condition| condition.status == "True")
}
