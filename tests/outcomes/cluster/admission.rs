//! The webhook behind a real API server: refusals, dry runs, opt-outs, warnings, policy changes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::{Value, json};
use testbed::wait::{Seen, until};

use crate::world::{World, element, same};

pub(crate) async fn refusals_reach_kubectl(world: Arc<World>) -> Result<()> {
    let space = world.namespace("refused").await?;
    let said = space.create(&element("job", "pe", &[("host", "node-99")])).await?;
    ensure!(!said.success, "it was created");
    let wanted = "admission webhook \"pods.stowplan.dev\" denied the request: stowplan: streams.ibm.com/host: \
                  no node has the name \"node-99\"; name a node of this cluster \
                  (`kubectl get nodes -o wide` lists names and addresses)";
    ensure!(said.err.contains(wanted), "{}", said.err);
    ensure!(said.err.contains("UnknownHost"), "{}", said.err);

    let said =
        space.create(&element("job", "pe", &[("host", "foo bar"), ("host-pool", "P")])).await?;
    ensure!(said.err.contains("is neither a host name nor an IP address"), "{}", said.err);
    ensure!(said.err.contains("(and 2 more)"), "{}", said.err);
    // The pod of a workload: its author finds the message in the events.
    let mut pod = element("job", "pe", &[("host-colocation", "a\n")]);
    pod["spec"]["restartPolicy"] = json!("Never");
    space
        .created(&json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"},
            "spec": {"template": {"metadata": {"labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}},
        }))
        .await?;
    until("the Job's event", Duration::from_secs(60), async || {
        let said = world
            .kubectl(
                &["-n", &space.name, "get", "events", "-o", "jsonpath={.items[*].message}"],
                "",
            )
            .await?;
        Ok(
            match said.out.contains(
                "has white space at its ends; remove it (YAML's `|` and `>` add a newline",
            ) {
                true => Seen::Done(()),
                false => Seen::NotYet(said.out),
            },
        )
    })
    .await
}

pub(crate) async fn dry_run_shows_the_patch(world: Arc<World>) -> Result<()> {
    let space = world.namespace("dry-run").await?;
    let pod = element("job", "pe", &[("host", "10.4.40.82"), ("host-colocation", "together")]);
    let arguments = ["-n", &space.name, "create", "--dry-run=server", "-o", "json", "-f", "-"];
    let said = world.kubectl(&arguments, &pod.to_string()).await?;
    ensure!(said.success, "{}", said.err);
    let shown: Value = serde_json::from_str(&said.out)?;
    let label = "streams.ibm.com/hostcolocation.9034FF9E2B8F00B47A44DFAF3C2A37176C101E2A";
    same(&shown["metadata"]["labels"][label], &json!("together"))?;
    same(
        &shown["spec"]["affinity"],
        &json!({
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]},
            ]}},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchExpressions": [
                    {"key": label, "operator": "In", "values": ["together"]},
                    {"key": "streams.ibm.com/job", "operator": "In", "values": ["job"]},
                ]},
                "topologyKey": "kubernetes.io/hostname",
            }]},
        }),
    )?;
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
    stored.metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        name: Some("pe".to_owned()),
        labels: stored.metadata.labels,
        annotations: stored.metadata.annotations,
        ..Default::default()
    };
    space.delete("pe").await?;
    let again = space
        .pods()
        .create(&PostParams { dry_run: true, ..PostParams::default() }, &stored)
        .await?;
    same(&again.metadata.labels, &stored.metadata.labels)?;
    same(&again.metadata.annotations, &stored.metadata.annotations)?;
    same(&again.spec, &stored.spec)?;
    // The webhook itself answers the stored pod without a patch.
    let mut object = serde_json::to_value(&stored)?;
    object["metadata"]["namespace"] = json!(space.name);
    let answer = reviewed(&world, &space.name, &object).await?;
    same(&answer, &json!({"uid": "again", "allowed": true}))
}

/// What the running webhook answers for a pod, over its own Service.
async fn reviewed(world: &Arc<World>, namespace: &str, pod: &Value) -> Result<Value> {
    let live = ["plan", "--live", "-o", "json", "-n", namespace, "-f", "-"];
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_stowplan"));
    command.args(live).env("KUBECONFIG", world.plane.kubeconfig());
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    tokio::io::AsyncWriteExt::write_all(&mut input, pod.to_string().as_bytes()).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    let plan: Value = serde_json::from_slice(&output.stdout)?;
    let item = &plan["items"][0];
    let mut answer = json!({"uid": "again", "allowed": item["allowed"]});
    if item["patch"].as_array().is_some_and(|patch| !patch.is_empty()) {
        answer["patch"] = item["patch"].clone();
    }
    Ok(answer)
}

pub(crate) async fn pods_without_keys_are_not_sent(world: Arc<World>) -> Result<()> {
    // Without other tests, which would change the count of requests.
    let installation = world.alone().await?;
    let space = world.namespace("plain").await?;
    let count = async || -> Result<String> {
        let metrics = testbed::http::get(installation.admin_address(), "/metrics").await?.body;
        Ok(metrics
            .lines()
            .filter(|line| line.starts_with("stowplan_admission_requests_total"))
            .collect())
    };
    let before = count().await?;
    let plain = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "annotations": {"example.com/x": "y"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    space.node_of_new(&plain).await?;
    same(&count().await?, &before)?;
    space.node_of_new(&element("job", "with-job-label", &[])).await?;
    ensure!(count().await? != before, "a pod of a Streams job was not sent");
    Ok(())
}

pub(crate) async fn opted_out_pods_and_namespaces_are_left_alone(world: Arc<World>) -> Result<()> {
    let space = world.namespace("opted-out").await?;
    let mut pod = element("job", "ignored", &[("host", "node-99")]);
    pod["metadata"]["labels"]["stowplan.dev/ignore"] = json!("true");
    space.node_of_new(&pod).await?;
    let said =
        world.kubectl(&["label", "namespace", &space.name, "stowplan.dev/ignore=true"], "").await?;
    ensure!(said.success, "{}", said.err);
    space.node_of_new(&element("job", "free", &[("host", "node-99")])).await?;
    Ok(())
}

pub(crate) async fn own_namespace_is_never_touched(world: Arc<World>) -> Result<()> {
    let installation = world.installation.read().await;
    let space = crate::world::Space {
        world: Arc::clone(&world),
        name: installation.namespace().to_owned(),
    };
    let stored = space.pod(&element("job", "in-own-namespace", &[("host", "node-99")])).await?;
    ensure!(stored.spec.is_some_and(|spec| spec.affinity.is_none()), "it was changed");
    space.delete("in-own-namespace").await
}

pub(crate) async fn a_misspelt_key_is_refused(world: Arc<World>) -> Result<()> {
    let space = world.namespace("misspelt").await?;
    for key in ["host-pol", "hostPool", "host-colocaton", "hst", "Host", "hosts", "HOST-POOL"] {
        space
            .create(&element("job", "pe", &[(key, "x")]))
            .await?
            .refused_with(&["is not a key of stowplan; write streams.ibm.com/host"])?;
    }
    Ok(())
}

pub(crate) async fn warnings_reach_the_client(world: Arc<World>) -> Result<()> {
    let space = world.namespace("warned").await?;
    let said =
        space.create(&element("job", "pe", &[("host-future", "x"), ("host", "node-1")])).await?;
    ensure!(said.success, "{}", said.err);
    ensure!(
        said.err.contains("Warning: streams.ibm.com/host-future: unknown key, ignored"),
        "{}",
        said.err
    );
    Ok(())
}

pub(crate) async fn pods_of_workloads_are_placed(world: Arc<World>) -> Result<()> {
    let space = world.namespace("workloads").await?;
    let pod = element("job", "pe", &[("host", "node-6")]);
    let template = json!({"metadata": {"labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]});
    let selector = json!({"matchLabels": {"streams.ibm.com/pe": "pe"}});
    space
        .created(
            &json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set"},
        "spec": {"replicas": 2, "serviceName": "set", "selector": selector, "template": template}}),
        )
        .await?;
    for pod in ["set-0", "set-1"] {
        until("the StatefulSet's pod", Duration::from_secs(60), async || {
            Ok(match space.pods().get_opt(pod).await? {
                Some(_) => Seen::Done(()),
                None => Seen::NotYet("not made yet".to_owned()),
            })
        })
        .await?;
        same(&space.node_of(pod).await?, &"node-6".to_owned())?;
    }
    Ok(())
}

pub(crate) async fn pods_are_created_while_the_webhook_is_stopped(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let space = world.namespace("stopped").await?;
    installation.stop_webhook().await?;
    let admitted = space.pod(&element("job", "pe", &[("host", "node-1")])).await;
    // Started again before any assertion: the other tests need it.
    installation.start_webhook().await?;
    let spec = admitted?.spec.unwrap_or_default();
    ensure!(spec.affinity.is_none(), "it was placed although the webhook is stopped");
    space.node_of("pe").await?;
    same(
        &space.node_of_new(&element("job", "later", &[("host", "node-1")])).await?,
        &"node-1".to_owned(),
    )
}

pub(crate) async fn the_policy_is_read_again(world: Arc<World>) -> Result<()> {
    let installation = world.alone().await?;
    let space = world.namespace("policy").await?;
    let kept = installation.policy().await?;
    let pod = element("job", "pe", &[("host", "node-99")]);
    let create = async || {
        let arguments = ["-n", &space.name, "create", "--dry-run=server", "-f", "-"];
        world.kubectl(&arguments, &pod.to_string()).await
    };
    installation.set_policy("onInvalid: warn\n").await?;
    let warned = create().await;
    installation.set_policy(&kept).await?;
    let refused = create().await?;
    let warned = warned?;
    ensure!(warned.success, "{}", warned.err);
    let warning = "Warning: streams.ibm.com/host: not placed (UnknownHost)";
    ensure!(warned.err.contains(warning), "{}", warned.err);
    ensure!(!refused.success && refused.err.contains("UnknownHost"), "{}", refused.err);
    Ok(())
}
