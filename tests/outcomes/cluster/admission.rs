//! The webhook behind a real API server: refusals, dry runs, opt-outs, warnings, policy changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::world::{NAMESPACE, Space, World, element, has, pod, same, succeeds, workload_of};

pub(crate) async fn refusals_and_warnings_reach_kubectl(world: Arc<World>) -> Result<()> {
    let space = world.namespace("refused").await?;
    let warned = element("job", "warned", &[("host-future", "x"), ("host", "node-1")]);
    let said = space.create(&warned).await?;
    ensure!(said.success, "{}", said.err);
    has(&said.err, &["Warning: streams.ibm.com/host-future: unknown key, ignored"])?;

    let said = space.create(&element("job", "pe", &[("host", "node-99")])).await?;
    let wanted = "admission webhook \"pods.stowplan.dev\" denied the request: stowplan: streams.ibm.com/host: \
                  no node has the name \"node-99\"; name a node of this cluster \
                  (`kubectl get nodes -o wide` lists names and addresses)";
    said.refused_with(&[wanted, "UnknownHost"])?;

    let several = element("job", "pe", &[("host", "foo bar"), ("host-pool", "P")]);
    let said = space.create(&several).await?;
    said.refused_with(&["is neither a host name nor an IP address", "(and 2 more)"])?;
    // The pod of a workload: its author finds the message in the events.
    let pod = element("job", "pe", &[("host-colocation", "a\n")]);
    space.created(&workload_of("ReplicaSet", "set", 1, &pod)).await?;
    let why = "has white space at its ends; remove it (YAML's `|` and `>` add a newline";
    has(&space.event("ReplicaSet/set ", "FailedCreate").await?, &[why])
}

pub(crate) async fn dry_run_shows_the_patch(world: Arc<World>) -> Result<()> {
    let space = world.namespace("dry-run").await?;
    let pod = element("job", "pe", &[("host", "10.4.40.82"), ("host-colocation", "together")]);
    let shown = json!(space.admitted(&pod).await?);
    let label = "streams.ibm.com/hostcolocation.9034FF9E2B8F00B47A44DFAF3C2A37176C101E2A";
    same(&shown["metadata"]["labels"][label], &json!("together"))?;
    for affinity in ["nodeAffinity", "podAffinity"] {
        let required =
            &shown["spec"]["affinity"][affinity]["requiredDuringSchedulingIgnoredDuringExecution"];
        ensure!(!required.is_null(), "no {affinity}");
    }
    same(
        &shown["metadata"]["annotations"]["stowplan.dev/placement"],
        &json!(
            r#"{"v":1,"streams":["host=10.4.40.82: node node-2","host-colocation=together: one node for all"],"more":0}"#
        ),
    )?;
    ensure!(space.pods().get_opt("pe").await?.is_none(), "a dry run made a pod");
    Ok(())
}

pub(crate) async fn the_stored_pod_sent_again_gets_no_patch(world: Arc<World>) -> Result<()> {
    let space = world.namespace("again").await?;
    let constraints = [
        ("host", "node-1"),
        ("host-colocation", "x"),
        ("host-exlocation", "[\"y\",\"z\"]"),
        ("host-isolation", "Sink"),
    ];
    let pod = element("job", "pe", &constraints);
    space.node_of_new(&pod).await?;
    let mut stored: Pod = space.pods().get("pe").await?;
    stored.status = None;
    let ObjectMeta { name, labels, annotations, .. } = stored.metadata;
    stored.metadata = ObjectMeta { name, labels, annotations, ..ObjectMeta::default() };
    space.delete("pe").await?;
    let again = space.admitted(&json!(stored)).await?;
    same(&again.metadata.labels, &stored.metadata.labels)?;
    same(&again.metadata.annotations, &stored.metadata.annotations)?;
    same(&again.spec, &stored.spec)?;
    // A decision about the stored pod has no patch.
    let said = space.stowplan("plan --live -o json -f -", &json!(stored).to_string()).await?;
    let item = serde_json::from_str::<Value>(&said.out)?["items"][0].take();
    same(&item["allowed"], &json!(true))?;
    ensure!(item["patch"].as_array().is_none_or(Vec::is_empty), "{item}");
    Ok(())
}

pub(crate) async fn pods_without_keys_are_not_sent(world: Arc<World>) -> Result<()> {
    // Without other tests, which would change the count of requests.
    let installation = world.alone().await?;
    let space = world.namespace("plain").await?;
    let count = async || -> Result<String> {
        let metrics = testbed::http::get(installation.admin_address(), "/metrics").await?.body;
        let is_it = |line: &&str| line.starts_with("stowplan_admission_requests_total");
        Ok(metrics.lines().filter(is_it).collect())
    };
    // A workload that another test has left may create a pod at the same time: then once more.
    let attempts = AtomicUsize::new(0);
    succeeds("a plain pod to be created without a request", async || {
        let name = format!("plain-{}", attempts.fetch_add(1, Ordering::Relaxed));
        let plain = pod(&name, &json!({"metadata": {"annotations": {"example.com/x": "y"}}}));
        let before = count().await?;
        space.node_of_new(&plain).await?;
        same(&count().await?, &before)
    })
    .await?;
    let before = count().await?;
    space.node_of_new(&element("job", "with-job-label", &[])).await?;
    ensure!(count().await? != before, "a pod of a Streams job was not sent");
    Ok(())
}

pub(crate) async fn opted_out_pods_and_namespaces_are_left_alone(world: Arc<World>) -> Result<()> {
    let space = world.namespace("opted-out").await?;
    let mut pod = element("job", "ignored", &[("host", "node-99")]);
    pod["metadata"]["labels"]["stowplan.dev/ignore"] = json!("true");
    space.node_of_new(&pod).await?;
    world.run(&format!("label namespace {} stowplan.dev/ignore=true", space.name)).await?;
    space.node_of_new(&element("job", "free", &[("host", "node-99")])).await?;
    // That of the release is, without a label.
    let own = Space { world: Arc::clone(&world), name: NAMESPACE.to_owned() };
    let stored = own.pod(&element("job", "in-own-namespace", &[("host", "node-99")])).await?;
    ensure!(stored.spec.is_some_and(|spec| spec.affinity.is_none()), "it was changed");
    own.delete("in-own-namespace").await
}
