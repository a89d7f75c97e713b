//! What authors want of nodes besides.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testbed::volumes::{IMMEDIATE, WAITING};

use crate::group::group_of;
use crate::pipeline::{
    Lab, claim, clone_and_build, existing, in_mode, task, template, with_policy,
};
use crate::world::{World, same};

const ZONES: [&str; 4] = ["east", "west", "east", "west"];
const HOSTNAME: &str = "kubernetes.io/hostname";

/// How many required pod affinity terms a pod has.
fn pod_affinity_terms(pod: &Pod) -> usize {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_affinity.as_ref());
    affinity
        .and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref())
        .map_or(0, Vec::len)
}

fn near(app: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [{
        "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOSTNAME,
    }]})
}

pub(crate) async fn a_members_own_pod_affinity_is_kept(world: Arc<World>) -> Result<()> {
    let _running = world.installation.read().await;
    let space = world.namespace("near").await?;
    let lab = Lab::new(&world, "near", &ZONES).await?;
    let mut spec = lab.way();
    spec["containers"] = json!([{"name": "db", "image": "db"}]);
    let db = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db", "labels": {"app": "db"}},
        "spec": spec,
    });
    let wanted = space.node_of_new(&db).await?;
    let mut run = clone_and_build(&lab, "ci", IMMEDIATE);
    run["spec"]["taskRunTemplate"]["podTemplate"]["affinity"] = json!({"podAffinity": near("db")});
    space.created(&run).await?;
    space.succeeded("ci").await?;
    same(&space.together("ci-").await?, &wanted)?;
    for (name, pod) in space.task_pods().await? {
        ensure!(group_of(&pod).is_some(), "{name} is no member");
        // Two would have to be met by one and the same pod.
        same(&pod_affinity_terms(&pod), &1)?;
    }
    space.cleared(&[]).await
}

pub(crate) async fn node_affinity_and_tolerations_hold_for_all(world: Arc<World>) -> Result<()> {
    let _running = world.installation.read().await;
    let space = world.namespace("ssd").await?;
    let lab = Lab::with(&world, "ssd", &ZONES, |node| {
        let ssd = node.name.ends_with('2') || node.name.ends_with('3');
        let node = node.taint("team", "ci", "NoSchedule");
        if ssd { node.label("disk", "ssd") } else { node.label("disk", "slow") }
    })
    .await?;
    let mut run = clone_and_build(&lab, "ci", IMMEDIATE);
    let template = &mut run["spec"]["taskRunTemplate"]["podTemplate"];
    template["tolerations"]
        .as_array_mut()
        .context("no tolerations")?
        .push(json!({"key": "team", "operator": "Exists", "effect": "NoSchedule"}));
    template["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme"]}]},
        ],
    }}});
    space.created(&run).await?;
    space.succeeded("ci").await?;
    let node = space.together("ci-").await?;
    ensure!(lab.nodes[2..].contains(&node), "on {node}");
    space.cleared(&[]).await
}

pub(crate) async fn architectures_split_a_group(world: Arc<World>) -> Result<()> {
    let _running = world.installation.read().await;
    let space = world.namespace("arch").await?;
    let lab = Lab::with(&world, "arch", &ZONES, |node| {
        let arm = node.name.ends_with('2') || node.name.ends_with('3');
        node.label("kubernetes.io/arch", if arm { "arm64" } else { "amd64" })
    })
    .await?;
    // As of a file server: it can be used everywhere.
    space
        .created(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": space.name},
            "spec": {
                "storageClassName": space.name, "accessModes": ["ReadWriteMany"],
                "capacity": {"storage": "1Gi"}, "nfs": {"server": "files.example.com", "path": "/"},
            },
        }))
        .await?;
    space.created(&claim("rwx", &space.name, "ReadWriteMany")).await?;
    let overrides: Value =
        [("amd1", "amd64"), ("amd2", "amd64"), ("arm1", "arm64"), ("arm2", "arm64")]
            .map(|(name, arch)| {
                let mut way = lab.way();
                way["nodeSelector"]["kubernetes.io/arch"] = json!(arch);
                json!({"pipelineTaskName": name, "podTemplate": way})
            })
            .into_iter()
            .collect();
    let tasks = |workspace: &[&str]| {
        [
            task("amd1", &[], workspace),
            task("arm1", &[], workspace),
            task("amd2", &["arm1"], workspace),
            task("arm2", &["amd1"], workspace),
        ]
    };
    let mut run =
        in_mode(lab.run("ci", &[existing("shared", "rwx")], &tasks(&["shared"])), "pipelineruns");
    run["spec"]["taskRunSpecs"] = overrides.clone();
    space.created(&run).await?;
    space.succeeded("ci").await?;
    let (amd, arm) = (space.together("ci-amd").await?, space.together("ci-arm").await?);
    ensure!(lab.nodes[..2].contains(&amd) && lab.nodes[2..].contains(&arm), "{amd}, {arm}");

    // One volume that one node can have, for two architectures: that is said, and nothing hides it.
    let mut never = in_mode(
        lab.run("never", &[template("source", WAITING)], &tasks(&["source"])),
        "pipelineruns",
    );
    never["spec"]["taskRunSpecs"] = overrides;
    space.created(&never).await?;
    let event = space.told(&["PipelineRun/never", "kubernetes.io/arch"]).await?;
    ensure!(event.contains("amd64") && event.contains("arm64"), "{event}");
    space.runs().delete("never", &Default::default()).await?;
    space.cleared(&["rwx"]).await
}

pub(crate) async fn members_bound_by_node(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "by-node", &ZONES).await?;
    for binding in ["node", "auto"] {
        with_policy(&world, json!({"binding": binding}), async || {
            let space = world.namespace("by-node").await?;
            let mut run = clone_and_build(&lab, "ci", IMMEDIATE);
            run["metadata"]["annotations"][testbed::tekton::DURATION] = json!("2s");
            space.created(&run).await?;
            space.succeeded("ci").await?;
            space.together("ci-").await?;
            for (name, pod) in space.task_pods().await? {
                ensure!(group_of(&pod).is_some(), "{name} is no member");
                if binding == "node" {
                    same(&pod_affinity_terms(&pod), &0)?;
                }
            }
            space.cleared(&[]).await
        })
        .await?;
    }
    Ok(())
}
