//! Volumes restrict nodes: those that are still to be provisioned, and those that exist.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use testbed::tekton::RESULTS;
use testbed::volumes::{IMMEDIATE, LOCAL, WAITING};
use testbed::wait::{Seen, until};
use testbed::workload;

use crate::coschedule::group::group_of;
use crate::coschedule::pipeline::{
    LIMIT, Lab, claim, claims_of, clone_and_build, existing, in_mode, lasting, task, template,
    with_policy,
};
use crate::world::{Space, World, same};

const ZONES: [&str; 4] = ["east", "west", "east", "west"];

fn class(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

/// Waits until the claims of this namespace are bound.
async fn bound(space: &Space, count: usize) -> Result<()> {
    until("the claims to be bound", LIMIT, async || {
        let claims = space.claims().list(&ListParams::default()).await?.items;
        let bound =
            claims.iter().filter(|it| it.spec.as_ref().is_some_and(|it| it.volume_name.is_some()));
        Ok(match bound.count() {
            seen if seen == count => Seen::Done(()),
            seen => Seen::NotYet(format!("{seen} are")),
        })
    })
    .await
}

pub(crate) async fn adopted_claims_of_two_zones_meet(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "adopt", &ZONES).await?;
    for mode in ["workspaces", "pipelineruns", "isolate-pipelinerun"] {
        let space = world.namespace("adopt").await?;
        let run = in_mode(clone_and_build(&lab, "ci", IMMEDIATE), mode);
        let plan = ["plan", "--live", "-n", &space.name, "-f", "-"];
        let preview = world.stowplan(&plan, &run.to_string()).await?;
        for line in [
            format!("  mode {mode}"),
            format!("  claim of workspace source: storage class {WAITING}"),
            "  pods of clone, build:".to_owned(),
        ] {
            let is_shown = preview.out.lines().any(|shown| shown == line);
            ensure!(is_shown, "not reported: {line}\n{}{}", preview.out, preview.err);
        }
        space.created(&run).await?;
        space.succeeded("ci").await?;
        space.together("ci-").await?;
        for claim in space.claims().list(&ListParams::default()).await?.items {
            same(&class(&claim), &Some(WAITING))?;
            let owner = claim.owner_references().first();
            same(&owner.map(|owner| &*owner.kind), &Some("PipelineRun"))?;
        }
        space.cleared(&[]).await?;
    }
    Ok(())
}

/// The class in which claims are parked, as `helm upgrade` makes it with `volumes: provision`.
async fn parked_class(world: &Arc<World>) -> Result<()> {
    let authority = BASE64.encode(world.installation.read().await.ca());
    let mut helm = world.plane.helm();
    helm.args(["template", "stowplan", concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan")])
        .args(["--show-only", "templates/storageclass.yaml"])
        .args(["--set", "policy.coschedule.volumes=provision"])
        .args(["--set-string", &format!("tls.caBundle={authority},image.repository=stowplan")]);
    let output = tokio::process::Command::from(helm).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = world.kubectl(&["apply", "-f", "-"], &String::from_utf8(output.stdout)?).await?;
    ensure!(said.success && said.out.contains("stowplan-parked"), "{}{}", said.out, said.err);
    Ok(())
}

/// The claims of a namespace that end so and are not being deleted.
async fn staying(space: &Space, end: &str) -> Result<BTreeSet<String>> {
    let claims = space.claims().list(&ListParams::default()).await?.items;
    let stays = |claim: &&PersistentVolumeClaim| claim.metadata.deletion_timestamp.is_none();
    let names = claims.iter().filter(stays).map(PersistentVolumeClaim::name_any);
    Ok(names.filter(|name| name.ends_with(end)).collect())
}

pub(crate) async fn provisioned_claims_of_two_zones_meet(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "provision", &ZONES).await?;
    parked_class(&world).await?;
    with_policy(&world, json!({"volumes": "provision"}), async || {
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
            space.succeeded("ci").await?;
            space.together("ci-").await?;
            let pod = space.task_pod("ci-build-pod").await?;
            let ours = format!("-{}-0", group_of(&pod).unwrap_or("no group"));
            let claims = BTreeSet::from_iter(claims_of(&pod));
            ensure!(claims.len() == 2 && claims.iter().all(|it| it.ends_with(&ours)), "{claims:?}");
            space.nothing_is_left().await?;
            let wanted = if stay { claims } else { BTreeSet::new() };
            until(&format!("{mode}: our claims to be {wanted:?}"), LIMIT, async || {
                let left = staying(&space, &ours).await?;
                Ok(if left == wanted { Seen::Done(()) } else { Seen::NotYet(format!("{left:?}")) })
            })
            .await?;
            // Tekton's own claims have no volume, and no pod used them.
            until(&format!("{mode}: the parked claims to be deleted"), LIMIT, async || {
                let left = space.claims().list(&ListParams::default()).await?.items;
                let parked = left.iter().filter(|claim| class(claim) == Some("stowplan-parked"));
                Ok(match parked.count() {
                    0 => Seen::Done(()),
                    left => Seen::NotYet(format!("{left} are left")),
                })
            })
            .await?;
            // They stay although the run that had them provisioned no longer exists.
            for _ in 0..if stay { 5 } else { 0 } {
                tokio::time::sleep(Duration::from_secs(1)).await;
                same(&staying(&space, &ours).await?, &wanted)?;
            }
            space.cleared(&[]).await?;
        }
        Ok(())
    })
    .await
}

pub(crate) async fn a_class_without_a_sibling_is_kept_and_reported(
    world: Arc<World>,
) -> Result<()> {
    let lab = Lab::new(&world, "lonely", &ZONES).await?;
    let classes: Api<StorageClass> = Api::all(world.client.clone());
    for name in ["lonely", "mapped", "mapped-to-nothing"] {
        // Parameters that no other class has, so that it has no sibling.
        let class = json!({
            "metadata": {"name": name}, "provisioner": "testbed.stowplan.dev/zonal",
            "parameters": {"kind": name}, "volumeBindingMode": "Immediate",
        });
        classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
    }
    let map = json!({"classMap": {"mapped": WAITING, "mapped-to-nothing": "no-such-class"}});
    with_policy(&world, map, async || {
        for (name, wanted) in
            [("lonely", "lonely"), ("mapped", WAITING), ("mapped-to-nothing", "mapped-to-nothing")]
        {
            let space = world.namespace("lonely").await?;
            let both: &[&str] = &["source", "cache"];
            let tasks = [lasting(task("a", &[], both), "3s"), task("b", &["a"], both)];
            let workspaces = [template("source", name), template("cache", WAITING)];
            space.created(&lab.run("ci", &workspaces, &tasks)).await?;
            space.succeeded("ci").await?;
            space.together("ci-").await?;
            let claims = space.claims().list(&ListParams::default()).await?.items;
            let classes: BTreeSet<_> = claims.iter().filter_map(class).collect();
            same(&classes, &BTreeSet::from([wanted, WAITING]))?;
            if wanted == name {
                space.expect_event(&["PipelineRun/ci", "ClassBindsAtOnce", name]).await?;
            }
            space.cleared(&[]).await?;
        }
        Ok(())
    })
    .await
}

pub(crate) async fn volumes_in_two_zones_split_a_run(world: Arc<World>) -> Result<()> {
    let space = world.namespace("split").await?;
    let lab = Lab::new(&world, "split", &ZONES).await?;
    for name in ["a", "b"] {
        space.created(&claim(name, IMMEDIATE, "ReadWriteOnce")).await?;
    }
    bound(&space, 2).await?;
    let run = |name: &str, tasks: &[_]| {
        in_mode(lab.run(name, &[existing("a", "a"), existing("b", "b")], tasks), "pipelineruns")
    };
    let tasks = [
        task("a1", &[], &["a"]),
        task("b1", &[], &["b"]),
        task("a2", &["b1"], &["a"]),
        task("b2", &["a1"], &["b"]),
    ];
    space.created(&run("ci", &tasks)).await?;
    space.succeeded("ci").await?;
    let (a, b) = (space.together("ci-a").await?, space.together("ci-b").await?);
    ensure!(a != b, "both on {a}, which one volume does not reach");

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
    let space = world.namespace("apart").await?;
    let lab = Lab::new(&world, "apart", &ZONES).await?;
    let classes: Api<StorageClass> = Api::all(world.client.clone());
    // The class binds at once and has no sibling that waits: the zones of the volumes become known
    // only when the placeholder exists, or a moment before.
    let class = json!({
        "metadata": {"name": "apart"}, "provisioner": "testbed.stowplan.dev/zonal",
        "parameters": {"kind": "apart"}, "volumeBindingMode": "Immediate",
    });
    classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
    let tasks = [
        task("a1", &[], &["a"]),
        task("b1", &[], &["b"]),
        task("a2", &["b1"], &["a"]),
        task("b2", &["a1"], &["b"]),
    ];
    let workspaces = [template("a", "apart"), template("b", "apart")];
    space.created(&in_mode(lab.run("ci", &workspaces, &tasks), "pipelineruns")).await?;
    space.succeeded("ci").await?;
    let (a, b) = (space.together("ci-a").await?, space.together("ci-b").await?);
    ensure!(a != b, "both on {a}, which one volume does not reach");
    space.cleared(&[]).await
}

pub(crate) async fn claims_that_many_nodes_can_use_form_no_group(world: Arc<World>) -> Result<()> {
    let space = world.namespace("many").await?;
    let lab = Lab::new(&world, "many", &ZONES).await?;
    for (name, mode) in
        [("rwx", "ReadWriteMany"), ("rox", "ReadOnlyMany"), ("rwop", "ReadWriteOncePod")]
    {
        space.created(&claim(name, WAITING, mode)).await?;
        let tasks = [task("a", &[], &["shared"]), task("b", &["a"], &["shared"])];
        space.created(&lab.run(name, &[existing("shared", name)], &tasks)).await?;
        space.succeeded(name).await?;
        for (name, pod) in space.task_pods().await? {
            ensure!(group_of(&pod).is_none(), "{name} became a member");
        }
    }
    space.cleared(&["rox", "rwop", "rwx"]).await
}

pub(crate) async fn a_claim_that_a_task_makes_known(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "result", &ZONES).await?;
    for mode in ["workspaces", "pipelineruns"] {
        let space = world.namespace("result").await?;
        space.created(&claim("made", LOCAL, "ReadWriteOnce")).await?;
        let mut make = lasting(task("make", &[], &["source"]), "2s");
        make["taskSpec"]["metadata"]["annotations"][RESULTS] = json!(r#"{"claim": "made"}"#);
        let both: &[&str] = &["source", "later"];
        let run = lab.run(
            "ci",
            &[template("source", WAITING), existing("later", "$(tasks.make.results.claim)")],
            &[
                make,
                task("a", &["make"], both),
                task("b", &["make"], &["later"]),
                task("c", &["a"], both),
            ],
        );
        space.created(&in_mode(run, mode)).await?;
        space.placed(1).await?;
        for pod in space.placeholder_pods().await? {
            ensure!(claims_of(&pod).iter().all(|it| !it.contains("$(")), "{:?}", claims_of(&pod));
        }
        space.succeeded("ci").await?;
        space.together("ci-").await?;
        space.cleared(&["made"]).await?;
    }
    Ok(())
}

/// It has no group: its only pod is placed where its volume can be used.
pub(crate) async fn a_taskruns_own_claim_is_adopted(world: Arc<World>) -> Result<()> {
    let space = world.namespace("standalone").await?;
    let lab = Lab::new(&world, "standalone", &ZONES).await?;
    let mut spec = json!({
        "podTemplate": lab.way(),
        "workspaces": [template("source", IMMEDIATE), template("cache", IMMEDIATE)],
    });
    spec["taskSpec"] = task("work", &[], &["source", "cache"])["taskSpec"].take();
    space
        .created(&json!({
            "apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "one"},
            "spec": spec,
        }))
        .await?;
    let pod = space.in_phase("one-pod", "Running").await?;
    ensure!(group_of(&pod).is_none(), "it became a member");
    same(&space.placeholders().await?.len(), &0)?;
    let claims = space.claims().list(&ListParams::default()).await?.items;
    same(&claims.len(), &2)?;
    for claim in &claims {
        same(&class(claim), &Some(WAITING))?;
    }
    space.in_phase("one-pod", "Succeeded").await?;
    same(&space.placeholders().await?.len(), &0)?;
    world.kubectl(&["-n", &space.name, "delete", "taskrun", "one"], "").await?.succeeded()?;
    space.cleared(&[]).await
}

pub(crate) async fn one_claim_in_two_workspaces(world: Arc<World>) -> Result<()> {
    let space = world.namespace("twice").await?;
    let lab = Lab::new(&world, "twice", &ZONES).await?;
    space.created(&claim("cache", WAITING, "ReadWriteOnce")).await?;
    let run = lab.run(
        "ci",
        &[existing("one", "cache"), existing("other", "cache")],
        &[task("a", &[], &["one"]), task("b", &[], &["other"]), task("c", &["a"], &["other"])],
    );
    space.created(&run).await?;
    space.succeeded("ci").await?;
    space.together("ci-").await?;
    space.cleared(&["cache"]).await
}
