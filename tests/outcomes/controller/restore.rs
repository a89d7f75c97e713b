//! Pools and jobs from a backup: their UIDs are other ones, and with them the marks on nodes.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};
use testbed::wait::{Seen, until};

use crate::controller::nodes::{marks, tagged};
use crate::controller::outages::consistent;
use crate::controller::pool::{self, hash, members, ready};
use crate::world::{Output, Space, World, element, run, same};

const UPGRADES: &str = include_str!("../../../docs/upgrades.md");

const LIMIT: Duration = Duration::from_secs(90);

/// The commands of the section "Back up and restore": the backup, and the restore.
fn documented() -> Result<(String, String)> {
    let section = UPGRADES.split_once("\n## Back up and restore\n").context("no section")?.1;
    let section = section.split("\n## ").next().context("a section")?;
    let mut blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next());
    let mut next = || blocks.next().flatten().map(str::to_owned).context("a block of commands");
    Ok((next()?, next()?))
}

/// Runs commands of the document, for this namespace only and in a folder of their own.
async fn shell(space: &Space, folder: &tempfile::TempDir, script: &str) -> Result<Output> {
    let script = script.replace(" -A ", &format!(" -n {} ", space.name));
    let mut command: Command = space.world.plane.program("bash");
    let programs = space.world.plane.dir().display();
    let path = std::env::var("PATH")?;
    command.current_dir(folder.path()).env("PATH", format!("{programs}:{path}"));
    run(command, &["-euo", "pipefail", "-c", &script], "").await
}

fn deployment(pool: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "ingest"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "ingest"}},
            "template": {
                "metadata": {
                    "labels": {"app": "ingest"}, "annotations": {"streams.ibm.com/host-pool": pool},
                },
                "spec": {"containers": [{"name": "c", "image": "ingest"}]},
            },
        },
    })
}

async fn pods_of_deployment(space: &Space) -> Result<Vec<Pod>> {
    until("two pods on nodes", LIMIT, async || {
        let pods = space.pods().list(&ListParams::default().labels("app=ingest")).await?.items;
        let bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let living = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let living: Vec<Pod> = living.filter(|pod| bound(pod)).cloned().collect();
        Ok(if living.len() == 2 {
            Seen::Done(living)
        } else {
            let events = space.world.kubectl(&["-n", &space.name, "get", "events"], "").await?;
            Seen::NotYet(format!("{} are; {}", living.len(), events.out))
        })
    })
    .await
}

/// The HostPool of the job's pool, once it is Ready.
async fn pool_of_job(space: &Space) -> Result<String> {
    until("the job to be Ready", LIMIT, async || {
        let said = ["-n", &space.name, "get", "streamsjob", "trades", "-o", "json"];
        let said = space.world.kubectl(&said, "").await?.succeeded()?;
        let job: Value = serde_json::from_str(&said)?;
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
        let pool = job["status"]["pools"][0]["hostPool"].as_str();
        Ok(match pool.filter(|_| conditions.iter().any(is_ready)) {
            Some(pool) => Seen::Done(pool.to_owned()),
            None => Seen::NotYet(job["status"].to_string()),
        })
    })
    .await
}

/// What a cluster's administrator reads of an object, without what belongs to the old cluster.
async fn dump(space: &Space, object: &str) -> Result<Value> {
    let said = space.world.kubectl(&["-n", &space.name, "get", object, "-o", "json"], "").await?;
    let mut object: Value = serde_json::from_str(&said.succeeded()?)?;
    let metadata = object["metadata"].as_object_mut().context("metadata")?;
    metadata.retain(|key, _| !["uid", "resourceVersion", "managedFields"].contains(&key.as_str()));
    Ok(object)
}

async fn delete(space: &Space, objects: &[&str]) -> Result<()> {
    let arguments = [&["-n", &space.name, "delete", "--wait"], objects].concat();
    space.world.kubectl(&arguments, "").await?.succeeded()?;
    Ok(())
}

pub(crate) async fn pools_and_jobs_are_restored(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let space = world.namespace("restore").await?;
    let nodes = tagged(&world, "restore", 6).await?;
    let spec = json!({"size": 2, "tags": ["restore"], "exclusivity": "Exclusive"});
    space.host_pool("alone", spec).await?;
    space.host_pool("shared", json!({"size": 2, "tags": ["restore"]})).await?;
    space
        .created(&json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
            "metadata": {"name": "trades"},
            "spec": {
                "pools": [{"name": "P", "size": 1, "tags": ["restore"], "exclusivity": "Exclusive"}],
                "processingElements": [
                    {"name": "read", "operators": [{"name": "Read", "host": {"pool": "P"}}]},
                ],
            },
        }))
        .await?;
    let old = ready(&space, "alone").await?;
    let owned = pool_of_job(&space).await?;
    space.created(&deployment("alone")).await?;
    pods_of_deployment(&space).await?;
    space.node_of_new(&element("other", "first", &[("host-pool", "shared[0]")])).await?;

    let (backup, restore) = documented()?;
    let folder = tempfile::tempdir()?;
    shell(&space, &folder, &backup).await?.succeeded()?;
    let pod = dump(&space, "pod/first").await?;
    let mut of_job = dump(&space, &format!("hostpool/{owned}")).await?;

    // Everything is lost but the nodes, whose marks stay as no controller runs.
    installation.stop_controller(0).await?;
    delete(&space, &["deployment/ingest", "pod/first", "streamsjob/trades"]).await?;
    delete(&space, &["hostpools", "--all"]).await?;
    ensure!(!marks(&world, &members(&old)[0].1).await?.taints.is_empty(), "marks of the old pool");

    // In the wrong order: the pods and the job's own pool before pools and jobs.
    space.created(&deployment("alone")).await?;
    let said = space.create(&pod).await?;
    ensure!(said.success && said.err.contains("no HostPool has the hash"), "{}", said.err);
    delete(&space, &["pod/first"]).await?;
    space.created(&of_job).await?;
    shell(&space, &folder, &restore).await?.succeeded()?;
    installation.start_controller(0).await?;

    let new = ready(&space, "alone").await?;
    ensure!(hash(&new) != hash(&old), "the restored pool has another UID");
    let landed = pods_of_deployment(&space).await?;
    let landed: BTreeSet<_> =
        landed.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
    let wanted: BTreeSet<_> = members(&new).into_iter().map(|(_, node)| node).collect();
    ensure!(landed.is_subset(&wanted), "landed on {landed:?}, members {wanted:?}");
    same(&pool_of_job(&space).await?, &owned)?;
    space.node_of_new(&element("trades", "read", &[])).await?;
    ready(&space, "shared").await?;
    space.create(&pod).await?.refused_with(&["of an earlier HostPool shared"])?;
    until("only marks of the restored pools", LIMIT, async || {
        Ok(match consistent(&world, &space).await {
            Ok(()) => Seen::Done(()),
            Err(why) => Seen::NotYet(format!("{why:#}")),
        })
    })
    .await?;

    // A tool that leaves out the owner of the job's pool makes it a pool of its own.
    delete(&space, &["pod/read", "streamsjob/trades"]).await?;
    until("the job's pool to be deleted", LIMIT, async || {
        Ok(match pool::api(&space).get_opt(&owned).await? {
            None => Seen::Done(()),
            Some(_) => Seen::NotYet("it exists".to_owned()),
        })
    })
    .await?;
    of_job["metadata"].as_object_mut().context("metadata")?.remove("ownerReferences");
    space.created(&of_job).await?;
    shell(&space, &folder, &restore).await?.succeeded()?;
    let taken = ["-n", &space.name, "wait", "streamsjob/trades", "--timeout=60s"];
    let condition = "--for=jsonpath={.status.conditions[?(@.type=='Ready')].reason}=PoolNameTaken";
    world.kubectl(&[&taken[..], &[condition]].concat(), "").await?.succeeded()?;
    delete(&space, &[&format!("hostpool/{owned}")]).await?;
    same(&pool_of_job(&space).await?, &owned)?;
    delete(&space, &["deployment/ingest", "streamsjob/trades"]).await?;
    delete(&space, &["hostpools", "--all"]).await?;
    for node in &nodes {
        crate::controller::nodes::unmarked(&world, node).await?;
    }
    Ok(())
}

/// Tools that restore statuses bring members with nodes of the old cluster.
pub(crate) async fn a_restored_status_is_written_anew(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let space = world.namespace("status").await?;
    let nodes = tagged(&world, "status", 3).await?;
    installation.stop_controller(0).await?;
    let spec = json!({"size": 2, "tags": ["status"], "exclusivity": "Exclusive"});
    space.host_pool("p", spec).await?;
    let since = "2025-11-23T18:20:00Z";
    let member = |index: u32, node: &str| json!({"index": index, "node": node, "uid": "a-node-of-the-old-cluster", "state": "Ready", "since": since});
    let condition = |kind: &str, reason: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": "of the old cluster",
            "lastTransitionTime": since, "observedGeneration": 1,
        })
    };
    let status = json!({"status": {
        "members": [member(0, &nodes[2]), member(1, "a-node-that-was-left-behind")],
        "conditions": [condition("Accepted", "Accepted"), condition("Ready", "Allocated")],
        "nodeLabel": "pool.stowplan.node-restriction.kubernetes.io/0123456789",
        "exclusiveTaint": "stowplan.dev/exclusive=0123456789:NoSchedule",
    }});
    let patch =
        ["-n", &space.name, "patch", "hostpool", "p", "--subresource=status", "--type=merge"];
    let status = status.to_string();
    world.kubectl(&[&patch[..], &["-p", &status]].concat(), "").await?.succeeded()?;
    // A pod that comes before the controller is bound to the members to be.
    let pod = space.pod(&element("job", "early", &[("host-pool", "p")])).await?;
    ensure!(pod.metadata.name.is_some());
    installation.start_controller(0).await?;
    let pool = pool::until(&space, "p", "members of this cluster", |pool| {
        let members = pool.status.iter().flat_map(|status| &status.members);
        let is_here = |uid: &Option<String>| uid.as_deref() != Some("a-node-of-the-old-cluster");
        pool::is_ready(pool)
            && members.clone().count() == 2
            && members.clone().all(|it| is_here(&it.uid))
    })
    .await?;
    let status = pool.status.clone().unwrap_or_default();
    ensure!(status.node_label.is_some_and(|label| label.ends_with(&hash(&pool))), "another label");
    let landed = space.node_of("early").await?;
    ensure!(members(&pool).iter().any(|(_, node)| *node == landed), "early is on {landed}");
    consistent(&world, &space).await?;
    space.delete("early").await?;
    pool::delete(&space, "p").await?;
    for node in &nodes {
        crate::controller::nodes::unmarked(&world, node).await?;
    }
    Ok(())
}

/// A version with the same schema needs no conversion webhook: the API server writes its name into the
/// objects. The present program serves them all the time.
pub(crate) async fn a_second_version_is_stored(world: Arc<World>) -> Result<()> {
    let _alone = world.alone().await?;
    let space = world.namespace("version").await?;
    tagged(&world, "version", 4).await?;
    let spec = json!({"size": 1, "tags": ["version"], "exclusivity": "Exclusive"});
    space.host_pool("first", spec.clone()).await?;
    let first = ready(&space, "first").await?;
    let name = "hostpools.stowplan.dev";
    let said = world.kubectl(&["get", "crd", name, "-o", "json"], "").await?.succeeded()?;
    let definition: Value = serde_json::from_str(&said)?;
    let old = definition["spec"]["versions"][0].clone();
    let stored = |stored: &str, versions: &[&str]| {
        let versions = versions.iter().map(|name| {
            let mut version = old.clone();
            version["name"] = json!(name);
            version["storage"] = json!(*name == stored);
            version
        });
        json!({"spec": {"versions": versions.collect::<Vec<_>>()}}).to_string()
    };
    let change = async |patch: String| -> Result<()> {
        let arguments = ["patch", "crd", name, "--type=merge", "-p", &patch];
        world.kubectl(&arguments, "").await?.succeeded().map(drop)
    };
    // Every object is written once, which stores it in the version that is stored now.
    let migrate = async |to: &str| -> Result<()> {
        let all = ["get", name, "-A", "-o", "json"];
        let all = world.kubectl(&all, "").await?.succeeded()?;
        world.kubectl(&["replace", "-f", "-"], &all).await?.succeeded()?;
        let versions = json!({"status": {"storedVersions": [to]}}).to_string();
        let arguments =
            ["patch", "crd", name, "--subresource=status", "--type=merge", "-p", &versions];
        world.kubectl(&arguments, "").await?.succeeded().map(drop)
    };
    change(stored("v1beta1", &["v1alpha1", "v1beta1"])).await?;
    let second = json!({
        "apiVersion": "stowplan.dev/v1beta1", "kind": "HostPool", "metadata": {"name": "second"},
        "spec": spec,
    });
    until("the second version to be served", LIMIT, async || {
        let said = space.create(&second).await?;
        Ok(if said.success { Seen::Done(()) } else { Seen::NotYet(said.err) })
    })
    .await?;
    let second = ready(&space, "second").await?;
    ensure!(members(&second) != members(&first), "another node");
    space.node_of_new(&element("job", "a", &[("host-pool", "second")])).await?;
    migrate("v1beta1").await?;
    same(&members(&ready(&space, "first").await?), &members(&first))?;

    // And back.
    change(stored("v1alpha1", &["v1alpha1", "v1beta1"])).await?;
    migrate("v1alpha1").await?;
    change(stored("v1alpha1", &["v1alpha1"])).await?;
    for (name, pool) in [("first", &first), ("second", &second)] {
        let now = ready(&space, name).await?;
        same(&(members(&now), now.metadata.uid), &(members(pool), pool.metadata.uid.clone()))?;
    }
    space.node_of_new(&element("job", "b", &[("host-pool", "first")])).await?;
    for pod in ["a", "b"] {
        space.delete(pod).await?;
    }
    for name in ["first", "second"] {
        pool::delete(&space, name).await?;
    }
    Ok(())
}
