//! stowplan is installed, upgraded, started after everything was down, and removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
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
    let refused = world.distrust()?;
    ensure!(refused.contains("invalid peer certificate"), "{refused}");
    let report = world
        .under_load("nothing-happens", async |_| {
            sleep(Duration::from_secs(3)).await;
            Ok(())
        })
        .await?;
    report.end_without_failures().await
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
        .under_load("ca-replaced", async |at| {
            world.kubectl(&["delete", "secret", "stowplan-ca", "-n", NAMESPACE])?;
            until("only the new CA to be trusted", LIMIT, async || {
                let [bundle, issuer] = world.authorities()?;
                let count = bundle.matches("BEGIN CERTIFICATE").count();
                let is_replaced = bundle == issuer && bundle != old;
                Ok(Seen::when(is_replaced, || format!("the caBundle has {count} CAs")))
            })
            .await?;
            let seconds = at.elapsed().as_secs_f64();
            eprintln!("  only the new CA is trusted after {seconds:.1} s");
            Ok(())
        })
        .await?;
    report.end_without_failures().await
}

/// From image and chart of the commit before.
pub(crate) async fn an_upgrade_from_the_previous_commit(world: Arc<World>) -> Result<()> {
    let previous = World::previous()?;
    if world.is_installed().await {
        world.uninstall().await?;
        world.delete_namespace()?;
    }
    world.install(&previous, Profile::Strict).await?;
    upgrade(&world, "previous-upgrade", &world.present).await
}

async fn upgrade(world: &World, case: &str, release: &Release) -> Result<()> {
    let report = world
        .under_load(case, async |at| {
            world.upgrade(release, Profile::Strict).await?;
            eprintln!("  the new pods serve after {:.1} s", at.elapsed().as_secs_f64());
            // The old ones serve on for their delay.
            world.ended(|pod| pod.metadata.deletion_timestamp.is_some()).await?;
            eprintln!("  the old pods have ended after {:.1} s", at.elapsed().as_secs_f64());
            Ok(())
        })
        .await?;
    report.end_without_failures().await
}

/// Under `failurePolicy: Fail`, with no replica: nothing that the cluster needs is refused, and
/// stowplan comes back by itself.
pub(crate) async fn strict_from_a_cold_start(world: Arc<World>) -> Result<()> {
    world.with(Profile::Strict).await?;
    let components = [("webhook", 3), ("controller", 2)];
    for (component, _) in components {
        world.scale(component, 0)?;
    }
    world.ended(|pod| pod.labels().contains_key("app.kubernetes.io/component")).await?;
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
    world.plane.pods_ready().await?;
    let placed = until("pods to be admitted again", LIMIT, async || {
        Ok(world.try_pod("default", &key).await.into())
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
    world.create(&pod("launcher", &launcher))?;
    let gates = ["get", "pod", "launcher", "-o=jsonpath={.spec.schedulingGates[*].name}"];
    ensure!(!world.kubectl(&gates)?.is_empty(), "the launcher does not wait");
    ensure!(!world.traces()?.is_empty(), "there is nothing to remove");

    let begun = Instant::now();
    world.uninstall().await?;
    eprintln!("  removed after {:.1} s", begun.elapsed().as_secs_f64());
    let traces = world.traces()?;
    ensure!(traces.is_empty(), "{traces:?}");
    ensure!(world.kubectl(&gates)?.is_empty(), "the launcher waits for ever");
    world.kubectl(&["delete", "pod", "launcher", "--grace-period=0", "--force"])?;
    world.delete_pool("taken")?;
    world.delete_namespace()
}

/// A pod in `default` that cannot run.
fn pod(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "stow.test/none:1"}],
        },
    })
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
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let trial = serde_json::from_value(pod("trial", annotations))?;
        Ok(pods.create(&dry_run, &trial).await?)
    }

    /// Waits until no pod of stowplan's namespace is left of which this is true.
    async fn ended(&self, is_waited_for: impl Fn(&Pod) -> bool) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        until("pods to end", LIMIT, async || {
            let pods = pods.list(&ListParams::default()).await?.items;
            let count = pods.iter().filter(|pod| is_waited_for(pod)).count();
            Ok(if count == 0 { Seen::Done(()) } else { Seen::NotYet(format!("{count} pods")) })
        })
        .await
    }

    /// A pool of one node, in `default`.
    pub(crate) fn create_pool(&self, name: &str, exclusive: bool) -> Result<()> {
        self.create(&json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"size": 1, "exclusivity": if exclusive { "Exclusive" } else { "Shared" }},
        }))
    }

    pub(crate) async fn pool_has_node(&self, name: &str) -> Result<()> {
        until(&format!("pool {name} to have its node"), LIMIT, async || {
            let ready = "-o=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
            let ready = self.kubectl(&["get", "hostpool", name, ready])?;
            Ok(if ready == "True" { Seen::Done(()) } else { Seen::NotYet(ready) })
        })
        .await
    }

    pub(crate) fn delete_pool(&self, name: &str) -> Result<()> {
        self.kubectl(&["delete", "hostpool", name]).map(drop)
    }

    fn delete_namespace(&self) -> Result<()> {
        self.kubectl(&["delete", "namespace", NAMESPACE]).map(drop)
    }

    /// Returns the objects of stowplan in the cluster, without its definitions.
    fn traces(&self) -> Result<BTreeSet<String>> {
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
        traces.extend(self.marks()?);
        Ok(traces)
    }

    /// stowplan's labels, annotations and taints of nodes.
    pub(crate) fn marks(&self) -> Result<BTreeSet<String>> {
        let fields = "-o=jsonpath={.items[*].metadata.labels}{.items[*].metadata.annotations}\
                      {.items[*].spec.taints}";
        let nodes = self.kubectl(&["get", "nodes", fields])?;
        let is_mark = |word: &&str| word.contains("stowplan") || word.contains("streams.ibm");
        Ok(nodes.split('"').filter(is_mark).map(str::to_owned).collect())
    }
}
