//! stowplan is installed, upgraded, started after everything was down, and removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use testbed::command;
use testbed::wait::{Seen, until};
use tokio::time::sleep;

use super::world::{LIMIT, NAMESPACE, Profile, Release, World, node};

/// By the chart's own values: two replicas on two nodes, behind a Service; and what a creation
/// costs.
pub(crate) async fn the_chart_installs_two_of_each(world: Arc<World>) -> Result<()> {
    world.with(Profile::Default).await?;
    for component in ["webhook", "controller"] {
        let pods = world.pods(component).await?;
        let nodes = pods.iter().map(node).collect::<Result<BTreeSet<_>>>()?;
        ensure!((pods.len(), nodes.len()) == (2, 2), "{component}: {nodes:?}");
    }
    // By the chart's test, with its own account, and by an administrator, who may ask each replica.
    let said =
        command::text(world.plane.helm().args(["test", "stowplan", "--namespace", NAMESPACE]))?;
    ensure!(said.contains("Succeeded"), "{said}");
    let report = world.check()?;
    eprintln!("{report}");
    for item in ["certificate", "policy", "versions", "controller", "trial-pod"] {
        let is_ok = |line: &str| {
            let mut words = line.split_whitespace();
            words.any(|word| word == item) && line.split_whitespace().any(|word| word == "ok")
        };
        ensure!(report.lines().any(is_ok), "{item} is not ok:\n{report}");
    }
    let report = world
        .under_load("nothing-happens", async || {
            let at = Instant::now();
            sleep(std::time::Duration::from_secs(3)).await;
            Ok(at)
        })
        .await?;
    report.none_failed()?;
    report.all_placed()?;
    report.end().await
}

/// The image of the same program by another tag, as for a new release.
pub(crate) async fn a_rolling_upgrade(world: Arc<World>) -> Result<()> {
    world.with(Profile::Strict).await?;
    upgrade(&world, "rolling-upgrade", &world.next).await
}

/// A new CA is trusted beside the old one before it signs, and the old one as long as it is needed.
pub(crate) async fn the_ca_is_replaced(world: Arc<World>) -> Result<()> {
    world.with(Profile::Strict).await?;
    let [old, _] = world.authorities()?;
    let report = world
        .under_load("ca-replaced", async || {
            let at = Instant::now();
            world.kubectl(&["delete", "secret", "stowplan-ca", "-n", NAMESPACE])?;
            until("only the new CA to be trusted", LIMIT, async || {
                let [bundle, issuer] = world.authorities()?;
                let count = bundle.matches("BEGIN CERTIFICATE").count();
                Ok(match bundle == issuer && bundle != old {
                    true => Seen::Done(()),
                    false => Seen::NotYet(format!("the caBundle has {count} CAs")),
                })
            })
            .await?;
            let seconds = at.elapsed().as_secs_f64();
            eprintln!("  only the new CA is trusted after {seconds:.1} s");
            Ok(at)
        })
        .await?;
    report.none_failed()?;
    report.all_placed()?;
    report.end().await
}

/// From image and chart of the commit before.
pub(crate) async fn an_upgrade_from_the_previous_commit(world: Arc<World>) -> Result<()> {
    let previous = World::previous()?;
    if world.is_installed().await {
        world.uninstall().await?;
        world.delete_namespace().await?;
    }
    world.install(&previous, Profile::Strict).await?;
    upgrade(&world, "previous-upgrade", &world.present).await
}

async fn upgrade(world: &World, case: &str, release: &Release) -> Result<()> {
    let report = world
        .under_load(case, async || {
            let at = Instant::now();
            world.upgrade(release, Profile::Strict).await?;
            eprintln!("  the new pods serve after {:.1} s", at.elapsed().as_secs_f64());
            // The old ones serve on for their delay.
            until("the old pods to end", LIMIT, async || {
                let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
                let pods = pods.list(&ListParams::default()).await?.items;
                let old = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some());
                Ok(match old.count() {
                    0 => Seen::Done(()),
                    count => Seen::NotYet(format!("{count} pods")),
                })
            })
            .await?;
            eprintln!("  the old pods have ended after {:.1} s", at.elapsed().as_secs_f64());
            Ok(at)
        })
        .await?;
    report.none_failed()?;
    report.all_placed()?;
    report.end().await
}

/// Under `failurePolicy: Fail`, with no replica: nothing that the cluster needs is refused, and
/// stowplan comes back by itself.
pub(crate) async fn strict_from_a_cold_start(world: Arc<World>) -> Result<()> {
    world.with(Profile::Strict).await?;
    let components = [("webhook", 3), ("controller", 2)];
    for (component, _) in components {
        world.scale(component, 0)?;
    }
    for (component, _) in components {
        until("all pods to end", LIMIT, async || {
            let labels = format!("app.kubernetes.io/component={component}");
            let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
            let count = pods.list(&ListParams::default().labels(&labels)).await?.items.len();
            Ok(if count == 0 { Seen::Done(()) } else { Seen::NotYet(format!("{count} pods")) })
        })
        .await?;
    }
    let key = json!({"streams.ibm.com/host": "node-1"});
    for (namespace, annotations) in
        [("default", json!({})), ("kube-system", key.clone()), (NAMESPACE, key.clone())]
    {
        world
            .try_pod(namespace, &annotations)
            .await
            .with_context(|| format!("a pod in {namespace} with {annotations}"))?;
    }
    let refused = world.try_pod("default", &key).await.err().context("it was admitted")?;
    let Some(kube::Error::Api(refused)) = refused.downcast_ref() else {
        bail!("no answer: {refused:#}");
    };
    let message = &refused.message;
    eprintln!("without a replica: {message}");
    ensure!(
        message.contains("failed calling webhook \"pods.stowplan.dev\"")
            && message.contains("stowplan-webhook.stowplan-system.svc"),
        "{message}"
    );

    let begun = Instant::now();
    for (component, count) in components {
        world.scale(component, count)?;
    }
    world.plane.pods_ready(NAMESPACE).await?;
    let placed = until("pods to be admitted again", LIMIT, async || {
        Ok(match world.try_pod("default", &key).await {
            Ok(pod) => Seen::Done(pod),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
    .await?;
    eprintln!("  pods are placed again after {:.1} s", begun.elapsed().as_secs_f64());
    ensure!(placed.spec.is_some_and(|spec| spec.affinity.is_some()), "it has no placement");
    Ok(())
}

/// `helm uninstall` while a pool has a node, and a pod waits for a gate of stowplan.
pub(crate) async fn an_uninstall_leaves_nothing(world: Arc<World>) -> Result<()> {
    world.with(Profile::Default).await?;
    world.create_pool("taken", true)?;
    world.pool_has_node("taken").await?;
    let launcher = json!({
        "mpi.stowplan.dev/cluster": "none", "mpi.stowplan.dev/role": "launcher",
        "mpi.stowplan.dev/slots": "1",
    });
    world.create_pod("default", "launcher", &launcher).await?;
    let gated: Api<Pod> = Api::default_namespaced(world.client.clone());
    let gates = async || -> Result<usize> {
        let gates = gated.get("launcher").await?.spec.and_then(|spec| spec.scheduling_gates);
        Ok(gates.map_or(0, |gates| gates.len()))
    };
    ensure!(gates().await? == 1, "the launcher does not wait");
    ensure!(!world.traces().await?.is_empty(), "there is nothing to remove");

    let begun = Instant::now();
    world.uninstall().await?;
    eprintln!("  removed after {:.1} s", begun.elapsed().as_secs_f64());
    let traces = world.traces().await?;
    ensure!(traces.is_empty(), "{traces:?}");
    ensure!(gates().await? == 0, "the launcher waits for ever");
    gated
        .delete("launcher", &DeleteParams { grace_period_seconds: Some(0), ..Default::default() })
        .await?;
    world.delete_pool("taken").await?;
    world.delete_namespace().await
}

impl World {
    fn scale(&self, component: &str, replicas: u32) -> Result<()> {
        let (deployment, replicas) =
            (format!("deployment/stowplan-{component}"), format!("--replicas={replicas}"));
        self.kubectl(&["scale", &deployment, &replicas, "-n", NAMESPACE]).map(drop)
    }

    /// Creates a trial pod (dry run).
    pub(crate) async fn try_pod(&self, namespace: &str, annotations: &Value) -> Result<Pod> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        self.post_pod(namespace, "trial", annotations, &dry_run).await
    }

    async fn create_pod(&self, namespace: &str, name: &str, annotations: &Value) -> Result<Pod> {
        self.post_pod(namespace, name, annotations, &PostParams::default()).await
    }

    async fn post_pod(
        &self,
        namespace: &str,
        name: &str,
        annotations: &Value,
        parameters: &PostParams,
    ) -> Result<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "stow.test/none:1"}],
            },
        });
        Ok(pods.create(parameters, &serde_json::from_value(pod)?).await?)
    }

    /// A pool of one node, in `default`.
    pub(crate) fn create_pool(&self, name: &str, exclusive: bool) -> Result<()> {
        let pool = json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"size": 1, "exclusivity": if exclusive { "Exclusive" } else { "Shared" }},
        });
        let file = self.plane.dir().join(format!("{name}.json"));
        std::fs::write(&file, pool.to_string())?;
        self.kubectl(&["create", "-f", &file.display().to_string()]).map(drop)
    }

    pub(crate) async fn pool_has_node(&self, name: &str) -> Result<()> {
        until(&format!("pool {name} to have its node"), LIMIT, async || {
            let ready = "-o=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
            let ready = self.kubectl(&["get", "hostpool", name, ready])?;
            Ok(if ready == "True" { Seen::Done(()) } else { Seen::NotYet(ready) })
        })
        .await
    }

    pub(crate) async fn delete_pool(&self, name: &str) -> Result<()> {
        self.kubectl(&["delete", "hostpool", name]).map(drop)
    }

    pub(crate) async fn delete_namespace(&self) -> Result<()> {
        self.kubectl(&["delete", "namespace", NAMESPACE]).map(drop)
    }

    /// What stowplan has in the cluster, without its definitions.
    async fn traces(&self) -> Result<BTreeSet<String>> {
        let cluster = "mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,\
                       clusterrolebindings,validatingadmissionpolicies,\
                       validatingadmissionpolicybindings,storageclasses,priorityclasses";
        let own = "all,secrets,configmaps,leases,serviceaccounts,roles,rolebindings,\
                   poddisruptionbudgets,endpointslices,networkpolicies";
        let mut traces: BTreeSet<String> = BTreeSet::new();
        for arguments in [
            &["get", cluster, "-o=name"][..],
            &["get", own, "-o=name", "-n", NAMESPACE],
            &["get", "statefulsets,pods,services,configmaps,secrets", "-A", "-o=name"],
        ] {
            let found = self.kubectl(arguments)?;
            let found = found.lines().filter(|line| line.contains("stowplan"));
            traces.extend(found.map(str::to_owned));
        }
        traces.extend(self.marks().await?);
        Ok(traces)
    }

    /// stowplan's labels, annotations and taints of nodes.
    pub(crate) async fn marks(&self) -> Result<BTreeSet<String>> {
        let mut marks = BTreeSet::new();
        let nodes: Api<Node> = Api::all(self.client.clone());
        for node in nodes.list(&ListParams::default()).await?.items {
            let labels = node.metadata.labels.into_iter().flatten().map(|(key, _)| key);
            let annotations = node.metadata.annotations.into_iter().flatten().map(|(key, _)| key);
            let taints = node.spec.and_then(|spec| spec.taints).into_iter().flatten();
            let keys = labels.chain(annotations).chain(taints.map(|taint| taint.key));
            marks
                .extend(keys.filter(|key| key.contains("stowplan") || key.contains("streams.ibm")));
        }
        Ok(marks)
    }
}
