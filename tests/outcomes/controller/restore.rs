//! Pools and jobs from a backup: their UIDs are other ones, and with them the marks on nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::controller::nodes::{all_unmarked, marks, space_on};
use crate::controller::outages::consistent;
use crate::controller::pool::{self, exclusive, hash, nodes as nodes_of, ready};
use crate::world::{
    Output, Space, World, commands, element, job, object, of_operator, run, same, settled,
    succeeds, workload_of,
};

const UPGRADES: &str = include_str!("../../../docs/upgrades.md");

/// Runs commands of the document, for this namespace only and in a folder of their own.
async fn shell(space: &Space, folder: &tempfile::TempDir, script: &str) -> Result<Output> {
    let script = script.replace(" -A ", &format!(" -n {} ", space.name));
    let mut command = space.world.plane.program("bash");
    let programs = space.world.plane.dir().display();
    let path = std::env::var("PATH")?;
    command.current_dir(folder.path()).env("PATH", format!("{programs}:{path}"));
    run(command, &["-euo", "pipefail", "-c", &script], "").await
}

/// A Deployment of two pods of the pool `alone`.
fn deployment() -> Value {
    workload_of("Deployment", "ingest", 2, &element("ingest", "pe", &[("host-pool", "alone")]))
}

/// The HostPool of the job's pool, once it is Ready.
async fn pool_of_job(space: &Space) -> Result<String> {
    space.kubectl("wait streamsjob/trades --for=condition=Ready --timeout=120s").await?;
    let job = space.get("streamsjob trades").await?;
    let pool = job["status"]["pools"][0]["hostPool"].as_str();
    Ok(pool.context("no pool")?.to_owned())
}

/// Returns an object as its administrator reads it, without the fields that belong to the old cluster.
async fn dump(space: &Space, object: &str) -> Result<Value> {
    let mut object = space.get(object).await?;
    let metadata = object["metadata"].as_object_mut().context("metadata")?;
    metadata.retain(|key, _| !["uid", "resourceVersion", "managedFields"].contains(&key.as_str()));
    Ok(object)
}

pub(crate) async fn pools_and_jobs_are_restored(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let (space, nodes) = space_on(&world, "restore", 6).await?;
    space.host_pool("alone", exclusive(2, "restore")).await?;
    space.host_pool("shared", json!({"size": 2, "tags": ["restore"]})).await?;
    let spec = json!({
        "pools": [{"name": "P", "size": 1, "tags": ["restore"], "exclusivity": "Exclusive"}],
        "processingElements": [of_operator("read", json!({"host": {"pool": "P"}}))],
    });
    space.created(&job("trades", &spec)).await?;
    let old = ready(&space, "alone").await?;
    let owned = pool_of_job(&space).await?;
    space.created(&deployment()).await?;
    space.nodes_of_all("streams.ibm.com/job=ingest", 2).await?;
    space.node_of_new(&element("other", "first", &[("host-pool", "shared[0]")])).await?;

    let documented = commands(UPGRADES, "\n## Back up and restore\n", "sh");
    let (backup, restore) = (documented[0], documented[1]);
    let folder = tempfile::tempdir()?;
    shell(&space, &folder, backup).await?.succeeded()?;
    let pod = dump(&space, "pod/first").await?;
    let mut of_job = dump(&space, &format!("hostpool/{owned}")).await?;

    // Everything is lost but the nodes, whose marks stay as no controller runs.
    installation.stop_controller(0).await?;
    space.kubectl("delete deployment/ingest pod/first streamsjob/trades").await?;
    space.kubectl("delete hostpools --all").await?;
    ensure!(!marks(&world, &nodes_of(&old)[0]).await?.taints.is_empty(), "marks of the old pool");

    // In the wrong order: the pods and the job's own pool before pools and jobs.
    space.created(&deployment()).await?;
    let said = space.create(&pod).await?;
    ensure!(said.success && said.err.contains("no HostPool has the hash"), "{}", said.err);
    space.kubectl("delete pod/first").await?;
    space.created(&of_job).await?;
    shell(&space, &folder, restore).await?.succeeded()?;
    installation.start_controller(0).await?;

    let new = ready(&space, "alone").await?;
    ensure!(hash(&new) != hash(&old), "the restored pool has another UID");
    let landed = BTreeSet::from_iter(space.nodes_of_all("streams.ibm.com/job=ingest", 2).await?);
    let wanted = BTreeSet::from_iter(nodes_of(&new));
    ensure!(landed.is_subset(&wanted), "landed on {landed:?}, members {wanted:?}");
    same(&pool_of_job(&space).await?, &owned)?;
    space.node_of_new(&element("trades", "read", &[])).await?;
    ready(&space, "shared").await?;
    space.create(&pod).await?.refused_with(&["of an earlier HostPool shared"])?;
    succeeds("only marks of the restored pools", async || consistent(&world, &space).await).await?;

    // A tool that leaves out the owner of the job's pool makes it a pool of its own.
    space.kubectl("delete pod/read streamsjob/trades").await?;
    let exists = async || Ok(pool::api(&space).get_opt(&owned).await?.is_some());
    settled("the job's pool to be deleted", exists, |exists| !exists).await?;
    of_job["metadata"].as_object_mut().context("metadata")?.remove("ownerReferences");
    space.created(&of_job).await?;
    shell(&space, &folder, restore).await?.succeeded()?;
    let condition = "--for=jsonpath={.status.conditions[?(@.type=='Ready')].reason}=PoolNameTaken";
    space.kubectl(&format!("wait streamsjob/trades --timeout=60s {condition}")).await?;
    space.kubectl(&format!("delete hostpool/{owned}")).await?;
    same(&pool_of_job(&space).await?, &owned)?;
    space.kubectl("delete deployment/ingest streamsjob/trades").await?;
    space.kubectl("delete hostpools --all").await?;
    all_unmarked(&world, &nodes).await
}

/// Tools that restore statuses bring members with nodes of the old cluster.
pub(crate) async fn a_restored_status_is_written_anew(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let (space, nodes) = space_on(&world, "status", 3).await?;
    installation.stop_controller(0).await?;
    space.host_pool("p", exclusive(2, "status")).await?;
    let since = "2025-11-23T18:20:00Z";
    let of_old = "a-node-of-the-old-cluster";
    let member = |index: u32, node: &str| json!({"index": index, "node": node, "uid": of_old, "state": "Ready", "since": since});
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
        "exclusiveTaint": "status-taint.cluster-autoscaler.kubernetes.io/stowplan-exclusive=0123456789:NoSchedule",
    }});
    let status = Patch::Merge(status);
    pool::api(&space).patch_status("p", &PatchParams::default(), &status).await?;
    // A pod that comes before the controller is bound to the members to be.
    space.pod(&element("job", "early", &[("host-pool", "p")])).await?;
    installation.start_controller(0).await?;
    let pool = pool::until(&space, "p", "members of this cluster", |pool| {
        let members = pool.status.iter().flat_map(|status| &status.members);
        let uids: Vec<_> = members.map(|member| member.uid.as_deref()).collect();
        pool::is_ready(pool) && uids.len() == 2 && !uids.contains(&Some(of_old))
    })
    .await?;
    let status = pool.status.clone().unwrap_or_default();
    ensure!(status.node_label.is_some_and(|label| label.ends_with(&hash(&pool))), "another label");
    let landed = space.node_of("early").await?;
    ensure!(nodes_of(&pool).contains(&landed), "early is on {landed}");
    consistent(&world, &space).await?;
    space.delete("early").await?;
    pool::delete(&space, "p").await?;
    all_unmarked(&world, &nodes).await
}

/// A version with the same schema needs no conversion webhook: the API server writes its name into the
/// objects. The present program serves them all the time.
pub(crate) async fn a_second_version_is_stored(world: Arc<World>) -> Result<()> {
    let _alone = world.alone().await?;
    let (space, _) = space_on(&world, "version", 4).await?;
    space.host_pool("first", exclusive(1, "version")).await?;
    let first = ready(&space, "first").await?;
    let name = "hostpools.stowplan.dev";
    let old = space.get(&format!("crd {name}")).await?["spec"]["versions"][0].take();
    let patch = async |more: &[&str], patch: Value| -> Result<()> {
        let patch = patch.to_string();
        let arguments = [&["patch", "crd", name, "--type=merge", "-p", &patch], more].concat();
        world.kubectl(&arguments, "").await?.succeeded().map(drop)
    };
    let store = async |stored: &str, versions: &[&str]| {
        let versions = versions.iter().map(|name| {
            let mut version = old.clone();
            version["name"] = json!(name);
            version["storage"] = json!(*name == stored);
            version
        });
        patch(&[], json!({"spec": {"versions": versions.collect::<Vec<_>>()}})).await
    };
    // Every object is written once, which stores it in the version that is stored now.
    let migrate = async |to: &str| {
        let all = world.run(&format!("get {name} -A -o json")).await?;
        world.kubectl(&["replace", "-f", "-"], &all).await?.succeeded()?;
        patch(&["--subresource=status"], json!({"status": {"storedVersions": [to]}})).await
    };
    store("v1beta1", &["v1alpha1", "v1beta1"]).await?;
    let second = object("stowplan.dev/v1beta1", "HostPool", "second", &exclusive(1, "version"));
    let create = async || space.create(&second).await?.succeeded();
    succeeds("the second version to be served", create).await?;
    let second = ready(&space, "second").await?;
    ensure!(nodes_of(&second) != nodes_of(&first), "another node");
    space.node_of_new(&element("job", "a", &[("host-pool", "second")])).await?;
    migrate("v1beta1").await?;
    same(&nodes_of(&ready(&space, "first").await?), &nodes_of(&first))?;

    // And back.
    store("v1alpha1", &["v1alpha1", "v1beta1"]).await?;
    migrate("v1alpha1").await?;
    store("v1alpha1", &["v1alpha1"]).await?;
    for (name, pool) in [("first", &first), ("second", &second)] {
        let now = ready(&space, name).await?;
        same(&(nodes_of(&now), now.metadata.uid), &(nodes_of(pool), pool.metadata.uid.clone()))?;
    }
    space.node_of_new(&element("job", "b", &[("host-pool", "first")])).await?;
    space.kubectl("delete --wait=false pod/a pod/b").await?;
    pool::delete(&space, "first").await?;
    pool::delete(&space, "second").await?;
    // Otherwise kubectl looks for the other version in the cases that follow, as it remembers versions.
    let known = async || space.kubectl("api-resources --api-group=stowplan.dev").await;
    settled("the other version to be gone", known, |all| !all.contains("v1beta1")).await.map(drop)
}
