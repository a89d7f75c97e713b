//! The author's own affinity, tolerations and node selectors, beside coscheduling.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testbed::tekton::DURATION;
use testbed::volumes::{IMMEDIATE, WAITING};

use crate::coschedule::group::{bound_to, group_of};
use crate::coschedule::pipeline::{
    Lab, ZONES, claim, claims_of, clone_and_build, existing, held, in_mode, lasting, node, task,
    template,
};
use crate::world::{World, has, object, pod, same, with_policy};

/// How many required pod affinity terms a pod has.
fn pod_affinity_terms(pod: &Pod) -> usize {
    let affinity = json!(pod)["spec"]["affinity"]["podAffinity"].take();
    let required = affinity["requiredDuringSchedulingIgnoredDuringExecution"].as_array();
    required.map_or(0, Vec::len)
}

pub(crate) async fn a_members_own_pod_affinity_is_kept(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "near", &ZONES).await?;
    // Two, so that each member by itself could be on either node.
    for node in &lab.nodes[..2] {
        let metadata = json!({"labels": {"app": "db"}});
        let there = json!({"metadata": metadata, "spec": lab.way_to(node)});
        space.node_of_new(&pod(&format!("db-{node}"), &there)).await?;
    }
    let near = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{
        "labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname",
    }]});
    let mut run = clone_and_build(&lab, "ci", IMMEDIATE);
    run["metadata"]["annotations"][DURATION] = json!("3s");
    run["spec"]["taskRunTemplate"]["podTemplate"]["affinity"] = json!({"podAffinity": near});
    space.created(&run).await?;
    let wanted = space.placed(1).await?.remove(0);
    ensure!(lab.nodes[..2].contains(&wanted), "the placeholder is on {wanted}, which is neither");
    // Both volumes can be used on the placeholder's node.
    same(&claims_of(&space.placeholder_pods().await?[0]).len(), &2)?;
    same(&space.ran("ci").await?, &wanted)?;
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
        let disk = if node.name.ends_with(['2', '3']) { "ssd" } else { "slow" };
        node.taint("team", "ci", "NoSchedule").label("disk", disk)
    })
    .await?;
    let mut run = clone_and_build(&lab, "ci", IMMEDIATE);
    let template = &mut run["spec"]["taskRunTemplate"]["podTemplate"];
    let team = json!({"key": "team", "operator": "Exists", "effect": "NoSchedule"});
    template["tolerations"] = json!([template["tolerations"][0], team]);
    let has_disk = |disk: &str| json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": [disk]}]});
    template["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [has_disk("ssd"), has_disk("nvme")],
    }}});
    space.created(&run).await?;
    let node = space.ran("ci").await?;
    ensure!(lab.nodes[2..].contains(&node), "on {node}");
    space.cleared(&[]).await
}

/// The tasks of the first architecture are the group, and the others are placed without it.
pub(crate) async fn tasks_of_another_architecture_are_placed_without_their_run(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("arch").await?;
    let lab = Lab::with(&world, "arch", &ZONES, |node| {
        let is_arm = node.name.ends_with(['2', '3']);
        node.label("kubernetes.io/arch", if is_arm { "arm64" } else { "amd64" })
    })
    .await?;
    // As of a file server: it can be used everywhere.
    let volume = json!({
        "storageClassName": space.name, "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": "1Gi"}, "nfs": {"server": "files.example.com", "path": "/"},
    });
    space.created(&object("v1", "PersistentVolume", &space.name, &volume)).await?;
    space.created(&claim("rwx", &space.name, "ReadWriteMany")).await?;
    let way = |name: &str| {
        let mut way = lab.way();
        way["nodeSelector"]["kubernetes.io/arch"] = json!(format!("{}64", &name[..3]));
        json!({"pipelineTaskName": name, "podTemplate": way})
    };
    let run = |name: &str, workspace: Value| {
        let tasks = [
            task("amd1", &[], &["shared"]),
            task("arm1", &[], &["shared"]),
            task("amd2", &["arm1"], &["shared"]),
            task("arm2", &["amd1"], &["shared"]),
        ];
        let mut run = in_mode(lab.run(name, &[workspace], &tasks), "pipelineruns");
        run["spec"]["taskRunSpecs"] = json!(["amd1", "amd2", "arm1", "arm2"].map(way));
        run
    };
    space.created(&run("ci", existing("shared", "rwx"))).await?;
    space.succeeded("ci").await?;
    let amd = space.together("ci-amd").await?;
    ensure!(lab.nodes[..2].contains(&amd), "{amd}");
    let event = space.expect_event(&["PipelineRun/ci", "GroupConflict"]).await?;
    has(&event, &["task arm1", "without the group of the run"])?;

    // One volume that one node can have, for two architectures: that is said, and nothing hides it.
    space.created(&run("never", template("shared", WAITING))).await?;
    let event = space.expect_event(&["PipelineRun/never", "kubernetes.io/arch"]).await?;
    has(&event, &["amd64", "arm64"])?;
    space.runs().delete("never", &Default::default()).await?;
    space.cleared(&["rwx"]).await
}

/// Under `auto` the pods that come while a member runs are bound by node, the others by a term.
pub(crate) async fn members_bound_by_node(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "by-node", &ZONES).await?;
    for binding in ["node", "auto"] {
        with_policy(&world, json!({"coschedule": {"binding": binding}}), async || {
            let space = world.namespace("by-node").await?;
            let tasks = [
                held(task("first", &[], &["source"])),
                held(task("until", &[], &[])),
                task("while", &["until"], &["source"]),
                // A pod outlives its task. The last task starts when no member runs any more.
                lasting(task("gap", &["first", "while"], &[]), "3s"),
                task("last", &["gap"], &["source"]),
            ];
            space.created(&lab.run("ci", &[template("source", IMMEDIATE)], &tasks)).await?;
            let first = space.in_phase("ci-first-pod", "Running").await?;
            space.let_end("ci-until-pod").await?;
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
