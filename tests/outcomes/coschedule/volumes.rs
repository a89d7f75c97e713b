//! Volumes restrict nodes: those that are still to be provisioned, and those that exist.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};
use testbed::tekton::RESULTS;
use testbed::volumes::{IMMEDIATE, LOCAL, WAITING};
use testbed::workload;

use crate::coschedule::group::{KUEUE, group_of};
use crate::coschedule::pipeline::{
    Lab, ZONES, claim, claims_of, clone_and_build, existing, in_mode, lasting, task, template,
};
use crate::world::{Space, World, has, same, settled, succeeds, with_policy};

fn class(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

async fn all_claims(space: &Space) -> Result<Vec<PersistentVolumeClaim>> {
    Ok(space.api::<PersistentVolumeClaim>().list(&ListParams::default()).await?.items)
}

pub(crate) async fn adopted_claims_of_two_zones_meet(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "adopt", &ZONES).await?;
    for mode in ["workspaces", "pipelineruns", "isolate-pipelinerun"] {
        let space = world.namespace("adopt").await?;
        let run = in_mode(clone_and_build(&lab, "ci", IMMEDIATE), mode);
        let preview = space.stowplan("plan --live -f -", &run.to_string()).await?;
        let of_claim = format!("  claim of workspace source: storage class {WAITING}\n");
        let mode = format!("  mode {mode}\n");
        has(&preview.out, &[&mode, &of_claim, "  pods of clone, build:\n"])?;
        space.created(&run).await?;
        space.ran("ci").await?;
        for claim in all_claims(&space).await? {
            same(&class(&claim), &Some(WAITING))?;
            let owner = claim.owner_references().first();
            same(&owner.map(|owner| &*owner.kind), &Some("PipelineRun"))?;
        }
        space.cleared(&[]).await?;
    }
    Ok(())
}

/// The claims of a namespace that end so and are not being deleted.
async fn staying(space: &Space, end: &str) -> Result<BTreeSet<String>> {
    let claims = all_claims(space).await?;
    let stays = |claim: &&PersistentVolumeClaim| claim.metadata.deletion_timestamp.is_none();
    let names = claims.iter().filter(stays).map(PersistentVolumeClaim::name_any);
    Ok(names.filter(|name| name.ends_with(end)).collect())
}

pub(crate) async fn provisioned_claims_of_two_zones_meet(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "provision", &ZONES).await?;
    // The class in which claims are parked, as `helm upgrade` makes it.
    let values = "image.repository=stowplan,policy.coschedule.volumes=provision";
    let rendered = world.rendered("storageclass", values).await?;
    has(&world.apply(&rendered).await?, &["stowplan-parked"])?;
    with_policy(&world, json!({"coschedule": {"volumes": "provision"}}), async || {
        for (mode, clean, stay) in [
            ("workspaces", "no", true),
            ("workspaces", "true", false),
            ("pipelineruns", "no", false),
            ("isolate-pipelinerun", "no", false),
        ] {
            let space = world.namespace("provision").await?;
            let mut run = in_mode(clone_and_build(&lab, "ci", IMMEDIATE), mode);
            run["metadata"]["annotations"]["tekton.dev/auto-cleanup-pvc"] = json!(clean);
            space.created(&run).await?;
            space.ran("ci").await?;
            let pod = space.task_pod("ci-build-pod").await?;
            let ours = format!("-{}-0", group_of(&pod).unwrap_or("no group"));
            let claims = BTreeSet::from_iter(claims_of(&pod));
            ensure!(claims.len() == 2 && claims.iter().all(|it| it.ends_with(&ours)), "{claims:?}");
            space.nothing_is_left().await?;
            let wanted = if stay { claims } else { BTreeSet::new() };
            let what = format!("{mode}: our claims to be {wanted:?}");
            let ours = async || staying(&space, &ours).await;
            settled(&what, ours, |left| *left == wanted).await?;
            // Tekton's own claims have no volume, and no pod used them.
            let parked = async || {
                let claims = all_claims(&space).await?;
                Ok(claims.iter().filter(|it| class(it) == Some("stowplan-parked")).count())
            };
            settled(&format!("{mode}: parked claims"), parked, |left| *left == 0).await?;
            // They stay although the run that had them provisioned no longer exists.
            for _ in 0..if stay { 5 } else { 0 } {
                tokio::time::sleep(Duration::from_secs(1)).await;
                same(&ours().await?, &wanted)?;
            }
            space.cleared(&[]).await?;
        }
        Ok(())
    })
    .await
}

/// Tasks of which each uses one of two volumes; they wait for each other.
fn crossed() -> [Value; 4] {
    [
        task("a1", &[], &["a"]),
        task("b1", &[], &["b"]),
        task("a2", &["b1"], &["a"]),
        task("b2", &["a1"], &["b"]),
    ]
}

/// The run has two groups, each on a node of its volume's zone.
async fn is_split(space: &Space) -> Result<()> {
    space.succeeded("ci").await?;
    let (a, b) = (space.together("ci-a").await?, space.together("ci-b").await?);
    ensure!(a != b, "both on {a}, which one volume does not reach");
    Ok(())
}

pub(crate) async fn volumes_in_two_zones_split_a_run(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "split", &ZONES).await?;
    for name in ["a", "b"] {
        space.created(&claim(name, IMMEDIATE, "ReadWriteOnce")).await?;
    }
    let claims = async || all_claims(&space).await;
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some())
    };
    settled("the claims to be bound", claims, |claims| claims.iter().all(is_bound)).await?;
    let run = |name: &str, tasks: &[_]| {
        in_mode(lab.run(name, &[existing("a", "a"), existing("b", "b")], tasks), "pipelineruns")
    };
    space.created(&run("ci", &crossed())).await?;
    is_split(&space).await?;

    // No node fits a task that needs both, and an event says so.
    space.created(&run("never", &[task("both", &[], &["a", "b"])])).await?;
    workload::unschedulable(&world.client, &space.name, "never-both-pod").await?;
    ensure!(group_of(&space.task_pod("never-both-pod").await?).is_none(), "it became a member");
    space.expect_event(&["PipelineRun/never", "both claims a and b", "task both"]).await?;
    for run in ["ci", "never"] {
        space.runs().delete(run, &Default::default()).await?;
    }
    space.cleared(&["a", "b"]).await
}

pub(crate) async fn volumes_that_come_to_lie_apart_split_a_run(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "apart", &ZONES).await?;
    // The class binds at once and has no sibling that waits: the zones of the volumes become known
    // only when the placeholder exists, or a moment before.
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "apart"},
        "provisioner": "testbed.stowplan.dev/zonal", "parameters": {"kind": "apart"},
        "volumeBindingMode": "Immediate",
    });
    space.created(&class).await?;
    let workspaces = [template("a", "apart"), template("b", "apart")];
    space.created(&in_mode(lab.run("ci", &workspaces, &crossed()), "pipelineruns")).await?;
    is_split(&space).await?;
    space.cleared(&[]).await
}

/// Removes a gate of others from a pod, which then selects the nodes of a zone: Kueue does so when it admits a pod.
async fn admit(space: &Space, pod: &str, zone: &str) -> Result<()> {
    let selector = json!({"topology.kubernetes.io/zone": zone});
    // Stowplan may remove its own gate meanwhile, and none can be added.
    succeeds(&format!("{pod} to be admitted"), async || {
        let gated = space.found::<Pod>(pod).await?.spec.unwrap_or_default();
        let mut gates = gated.scheduling_gates.unwrap_or_default();
        gates.retain(|gate| gate.name != KUEUE);
        let spec = json!({"schedulingGates": gates, "nodeSelector": selector});
        space.change::<Pod>(pod, json!({"spec": spec})).await
    })
    .await
}

pub(crate) async fn a_volume_is_made_where_others_admit_the_first_pod(
    world: Arc<World>,
) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "queue", &ZONES).await?;
    let tasks = [task("one", &[], &["source"]), task("two", &["one"], &["source"])];
    let mut run = lab.run("ci", &[template("source", WAITING)], &tasks);
    run["spec"]["taskRunTemplate"]["podTemplate"]["schedulingGates"] = json!([{"name": KUEUE}]);
    space.created(&run).await?;
    space.found::<Pod>("ci-one-pod").await?;
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        same(&space.placeholders().await?.len(), &0)?;
        let claims = all_claims(&space).await?;
        let volumes = claims.iter().map(|claim| claim.spec.as_ref()?.volume_name.as_deref());
        same(&volumes.collect::<Vec<_>>(), &vec![None])?;
    }
    let check = space.stowplan("check pipelinerun/ci", "").await?;
    has(&check.out, &[KUEUE, "releases a pod of the group"])?;
    for pod in ["ci-one-pod", "ci-two-pod"] {
        admit(&space, pod, "west").await?;
    }
    let node = space.ran("ci").await?;
    ensure!(lab.nodes[1] == node || lab.nodes[3] == node, "{node} is not in the zone west");
    space.cleared(&[]).await
}

pub(crate) async fn a_claim_that_a_task_makes_known(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "result", &ZONES).await?;
    for mode in ["workspaces", "pipelineruns"] {
        let space = world.namespace("result").await?;
        space.created(&claim("made", LOCAL, "ReadWriteOnce")).await?;
        let mut make = lasting(task("make", &[], &["source"]), "2s");
        make["taskSpec"]["metadata"]["annotations"][RESULTS] = json!(r#"{"claim": "made"}"#);
        let workspaces =
            [template("source", WAITING), existing("later", "$(tasks.make.results.claim)")];
        let tasks = [
            make,
            task("a", &["make"], &["source", "later"]),
            task("b", &["make"], &["later"]),
            task("c", &["a"], &["source", "later"]),
        ];
        space.created(&in_mode(lab.run("ci", &workspaces, &tasks), mode)).await?;
        space.placed(1).await?;
        for pod in space.placeholder_pods().await? {
            ensure!(claims_of(&pod).iter().all(|it| !it.contains("$(")), "{:?}", claims_of(&pod));
        }
        space.ran("ci").await?;
        space.cleared(&["made"]).await?;
    }
    Ok(())
}
