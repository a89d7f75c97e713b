//! The author's own affinity, tolerations and node selectors, beside coscheduling.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testbed::tekton::DURATION;
use testbed::volumes::{IMMEDIATE, WAITING};

use crate::coschedule::group::{bound_to, group_of};
use crate::coschedule::pipeline::{
    Lab, claim, clone_and_build, existing, held, in_mode, lasting, node, task, template,
    with_policy,
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
    let space = world.namespace("near").await?;
    let lab = Lab::new(&world, "near", &ZONES).await?;
    // Two, so that each member by itself could be on either node.
    for node in &lab.nodes[..2] {
        let mut spec = lab.way();
        spec["nodeSelector"][HOSTNAME] = json!(node);
        spec["containers"] = json!([{"name": "db", "image": "db"}]);
        let metadata = json!({"name": format!("db-{node}"), "labels": {"app": "db"}});
        space.node_of_new(&json!({"metadata": metadata, "spec": spec})).await?;
    }
    let mut run = clone_and_build(&lab, "ci", IMMEDIATE);
    run["metadata"]["annotations"][DURATION] = json!("3s");
    run["spec"]["taskRunTemplate"]["podTemplate"]["affinity"] = json!({"podAffinity": near("db")});
    space.created(&run).await?;
    let wanted = space.placed(1).await?.remove(0);
    ensure!(lab.nodes[..2].contains(&wanted), "the placeholder is on {wanted}, which is neither");
    space.succeeded("ci").await?;
    same(&space.together("ci-").await?, &wanted)?;
    for (name, pod) in space.task_pods().await? {
        ensure!(group_of(&pod).is_some(), "{name} is no member");
        // Two would have to be met by one and the same pod.
        same(&pod_affinity_terms(&pod), &1)?;
        same(&bound_to(&pod).as_deref(), &Some(&*wanted))?;
    }
    space.cleared(&[]).await
}

pub(crate) async fn node_affinity_and_tolerations_hold_for_all(world: Arc<World>) -> Result<()> {
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
    let event = space.expect_event(&["PipelineRun/never", "kubernetes.io/arch"]).await?;
    ensure!(event.contains("amd64") && event.contains("arm64"), "{event}");
    space.runs().delete("never", &Default::default()).await?;
    space.cleared(&["rwx"]).await
}

/// Under `auto` the pods that come while a member runs are bound by node, the others by a term.
pub(crate) async fn members_bound_by_node(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "by-node", &ZONES).await?;
    let gate = lab.nodes[3].as_str();
    for binding in ["node", "auto"] {
        with_policy(&world, json!({"binding": binding}), async || {
            let space = world.namespace("by-node").await?;
            let mut run = lab.run(
                "ci",
                &[template("source", IMMEDIATE)],
                &[
                    held(task("first", &[], &["source"])),
                    task("until", &[], &[]),
                    task("while", &["until"], &["source"]),
                    // A pod outlives its task. The last task starts when no member runs any more.
                    lasting(task("gap", &["first", "while"], &[]), "3s"),
                    task("last", &["gap"], &["source"]),
                ],
            );
            // This one ends when its node is opened.
            let mut way = lab.way();
            way["nodeSelector"][HOSTNAME] = json!(gate);
            run["spec"]["taskRunSpecs"] =
                json!([{"pipelineTaskName": "until", "podTemplate": way}]);
            world.plane.cordon(gate).await?;
            space.created(&run).await?;
            let first = space.in_phase("ci-first-pod", "Running").await?;
            world.plane.uncordon(gate).await?;
            space.in_phase("ci-while-pod", "Running").await?;
            space.let_end("ci-first-pod").await?;
            space.succeeded("ci").await?;
            let mut members = space.task_pods().await?;
            for free in ["ci-until-pod", "ci-gap-pod"] {
                members.remove(free).with_context(|| format!("no {free}"))?;
            }
            for (name, pod) in &members {
                same(&group_of(pod), &group_of(&first))?;
                same(&node(pod), &node(&first))?;
                let by_node = bound_to(pod).is_some();
                let wanted = binding == "node" || name == "ci-while-pod";
                ensure!(by_node == wanted, "{binding}: {name} is bound by node: {by_node}");
                same(&pod_affinity_terms(pod), &usize::from(!by_node))?;
            }
            same(&members.len(), &3)?;
            space.cleared(&[]).await
        })
        .await?;
    }
    Ok(())
}
