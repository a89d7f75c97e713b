//! `stowplan teardown` on a control plane: by hand, and with the rights of the chart's hook.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, NodeSpec, Options};

use crate::world::{
    CHART, NAMESPACE, Output, has, kubeconfig_as, object, pod, run, same, settled, workload_of,
};

/// Base64 of a PEM frame without a certificate in it: no certificate is to be trusted here.
const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkxTMHQKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
const POOL: &str = "pool.stowplan.node-restriction.kubernetes.io/abcdefabcd";
/// The name of an MPI cluster, of which objects are left.
const MADE: &str = "cluster";
const PLACEHOLDER: &str = "affinity-assistant-abcdefabcd";

/// The label of the Secrets that the controller makes.
const TLS: &str = "stowplan.dev/tls";

struct World {
    plane: ControlPlane,
}

impl World {
    async fn kubectl(&self, words: &str) -> Result<String> {
        run(self.plane.kubectl(), &words.split(' ').collect::<Vec<_>>(), "").await?.succeeded()
    }

    async fn create(&self, namespace: &str, object: &Value) -> Result<()> {
        let create = ["create", "-f", "-", "-n", namespace];
        run(self.plane.kubectl(), &create, &object.to_string()).await?.succeeded().map(drop)
    }

    async fn get(&self, words: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&format!("get {words} -o json")).await?)?)
    }

    async fn helm(&self, words: &str) -> Result<String> {
        let words = format!("{words} --namespace {NAMESPACE}");
        run(self.plane.helm(), &words.split(' ').collect::<Vec<_>>(), "").await?.succeeded()
    }

    async fn teardown(&self, kubeconfig: &Path) -> Result<String> {
        self.try_teardown(kubeconfig).await?.succeeded()
    }

    async fn try_teardown(&self, kubeconfig: &Path) -> Result<Output> {
        let mut command = self.plane.program(env!("CARGO_BIN_EXE_stowplan"));
        command.env("KUBECONFIG", kubeconfig);
        run(command, &["teardown", "--namespace", NAMESPACE], "").await
    }

    /// Has the API server refuse all changes of nodes.
    async fn freeze_nodes(&self) -> Result<()> {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]});
        let policy = json!({
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "nodes are frozen"}],
        });
        let version = "admissionregistration.k8s.io/v1";
        self.create("default", &object(version, "ValidatingAdmissionPolicy", "freeze", &policy))
            .await?;
        let binding = json!({"policyName": "freeze", "validationActions": ["Deny"]});
        self.create(
            "default",
            &object(version, "ValidatingAdmissionPolicyBinding", "freeze", &binding),
        )
        .await?;
        let is_frozen = async || {
            let label = ["label", "node", "node-1", "frozen=yes", "--dry-run=server"];
            Ok(run(self.plane.kubectl(), &label, "").await?.err)
        };
        settled("nodes to be frozen", is_frozen, |err| err.contains("nodes are frozen")).await?;
        Ok(())
    }

    /// Lists what a teardown would remove, in the cluster that `--kubeconfig` names.
    async fn dry_run(&self) -> Result<String> {
        let mut command = self.plane.program(env!("CARGO_BIN_EXE_stowplan"));
        command.env("KUBECONFIG", "/nowhere").arg("teardown").arg("--kubeconfig");
        command.arg(self.plane.kubeconfig());
        run(command, &["--namespace", NAMESPACE, "--dry-run"], "").await?.succeeded()
    }

    /// Returns the names and uids of all objects of the kinds that a teardown removes or changes.
    async fn objects(&self) -> Result<String> {
        let kinds = "nodes,pods,statefulsets,services,configmaps,secrets,leases,\
                     mutatingwebhookconfigurations,validatingwebhookconfigurations";
        let path =
            "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.uid}{\"\\n\"}{end}";
        let arguments = ["get", kinds, "-A", "-o", path];
        run(self.plane.kubectl(), &arguments, "").await?.succeeded()
    }

    /// Leaves the traces of a controller that has ended, and objects of users that look alike.
    async fn leave_traces(&self) -> Result<()> {
        self.kubectl(&format!("label node node-1 {POOL}=0 mine=yes")).await?;
        let taints = "mine=yes:PreferNoSchedule stowplan.dev/exclusive=abcdefabcd:NoSchedule \
                      status-taint.cluster-autoscaler.kubernetes.io/stowplan-exclusive=abcdefabcd:NoSchedule";
        self.kubectl(&format!("taint node node-1 {taints}")).await?;
        for name in [PLACEHOLDER, "users"] {
            let labels = json!({"metadata": {"labels": {"app": name}}});
            let mut set = workload_of("StatefulSet", name, 0, &pod("", &labels));
            set["metadata"]["labels"] = json!({"stowplan.dev/placeholder": PLACEHOLDER});
            set["spec"]["serviceName"] = json!("");
            self.create("default", &set).await?;
        }
        // Running MPI clusters need what was made for them.
        for kind in ["Service", "ConfigMap", "Secret"] {
            let labels = json!({"mpi.stowplan.dev/made-for": MADE});
            let metadata = json!({"name": MADE, "labels": labels});
            let mut made = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
            if kind == "Service" {
                made["spec"] = json!({"clusterIP": "None"});
            }
            self.create("default", &made).await?;
        }
        let gates = ["stowplan.dev/mpi-workers", "example.com/gate", "stowplan.dev/placeholder"];
        let gates = json!({"spec": {"schedulingGates": gates.map(|gate| json!({"name": gate}))}});
        self.create("default", &pod("gated", &gates)).await?;
        let held = json!({"holderIdentity": "controller-0", "leaseDurationSeconds": 15});
        let lease = object("coordination.k8s.io/v1", "Lease", "stowplan-controller", &held);
        self.create(NAMESPACE, &lease).await?;
        for (name, role) in [("stowplan-tls", "serving"), ("stowplan-ca", "authority")] {
            let labels = json!({"app.kubernetes.io/managed-by": "stowplan", TLS: role});
            let metadata = json!({"name": name, "labels": labels});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
            self.create(NAMESPACE, &secret).await?;
        }
        Ok(())
    }

    async fn is_clean(&self) -> Result<()> {
        let node = self.get("node node-1").await?;
        same(&node["metadata"]["labels"][POOL], &Value::Null)?;
        same(&node["metadata"]["labels"]["mine"], &json!("yes"))?;
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let keys: Vec<_> = taints.filter_map(|taint| taint["key"].as_str()).collect();
        same(&keys, &vec!["mine"])?;
        let gates = self.get("pod gated").await?["spec"]["schedulingGates"].take();
        same(&gates, &json!([{"name": "example.com/gate"}]))?;
        let made = [MADE; 3].join(" ");
        let secrets = format!("secrets -n {NAMESPACE} -l {TLS}");
        for (words, wanted) in [
            ("statefulsets", "users"),
            ("services,configmaps,secrets -l mpi.stowplan.dev/made-for", made.as_str()),
            (&format!("leases -n {NAMESPACE}"), ""),
            (&secrets, ""),
            ("mutatingwebhookconfigurations,validatingwebhookconfigurations", ""),
        ] {
            let names = "-o jsonpath={.items[*].metadata.name}";
            same(&&*self.kubectl(&format!("get {words} {names}")).await?, &wanted)?;
        }
        Ok(())
    }

    async fn forget(&self) -> Result<()> {
        for words in [
            "delete pod gated --now",
            "delete statefulset users",
            &format!("delete service,configmap,secret {MADE}"),
            "label node node-1 mine-",
            "taint node node-1 mine-",
        ] {
            self.kubectl(words).await?;
        }
        Ok(())
    }
}

pub(crate) async fn what_stowplan_has_left_is_removed_and_nothing_else() {
    let nodes = NodeSpec::numbered(1);
    let plane = ControlPlane::start(Options { nodes, ..Options::default() }).await.unwrap();
    let world = World { plane };
    removed(&world).await.unwrap();
    world.plane.stop().await;
}

async fn removed(world: &World) -> Result<()> {
    let values = format!("--set-string tls.caBundle={CA},image.repository=stowplan");
    world.helm(&format!("install stowplan {CHART} --create-namespace {values}")).await?;

    // By hand, while the release is still there: its webhooks are removed first.
    world.leave_traces().await?;
    let before = world.objects().await?;
    let listed = world.dry_run().await?;
    same(&world.objects().await?, &before)?;
    same(&world.get("node node-1").await?["metadata"]["labels"][POOL], &json!("0"))?;
    let gates = world.get("pod gated").await?["spec"]["schedulingGates"].take();
    same(&gates.as_array().map(Vec::len), &Some(3))?;

    let report = world.teardown(world.plane.kubeconfig()).await?;
    world.is_clean().await?;
    same(&report, &listed.replace("would remove ", "removed "))?;
    has(
        &report,
        &[
            "removed MutatingWebhookConfiguration stowplan\n",
            "removed ValidatingWebhookConfiguration stowplan\n",
            &format!("removed StatefulSet default/{PLACEHOLDER}\n"),
            "removed the scheduling gate of Pod default/gated: stowplan.dev/mpi-workers, \
             stowplan.dev/placeholder\n",
            &format!("removed labels and taints of Node node-1: {POOL}, "),
            "removed Lease stowplan-system/stowplan-controller\n",
            "removed Secret stowplan-system/stowplan-tls\n",
            "removed Secret stowplan-system/stowplan-ca\n",
            "kept 0 HostPools, and the definition: kubectl delete crd hostpools.stowplan.dev",
        ],
    )?;
    // Again, with nothing left but a Secret that is not stowplan's.
    world.kubectl(&format!("create secret generic stowplan-tls -n {NAMESPACE}")).await?;
    let report = world.teardown(world.plane.kubeconfig()).await?;
    world.kubectl(&format!("delete secret stowplan-tls -n {NAMESPACE}")).await?;
    ensure!(!report.contains("removed S") && !report.contains("Node"), "{report}");
    world.forget().await?;

    // What the API server refuses is told, and the rest is removed.
    world.leave_traces().await?;
    world.freeze_nodes().await?;
    let refused = world.try_teardown(world.plane.kubeconfig()).await?;
    has(&refused.out, &["removed the scheduling gate of Pod default/gated", "removed Lease "])?;
    refused
        .refused_with(&["not removed: labels and taints of Node node-1: ", "nodes are frozen"])?;
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        world.kubectl(&format!("delete {kind} freeze")).await?;
    }
    let is_removed = async || {
        let again = world.try_teardown(world.plane.kubeconfig()).await?;
        Ok((again.success, again.err))
    };
    settled("the rest to be removed", is_removed, |(success, _)| *success).await?;
    world.is_clean().await?;
    world.forget().await?;

    // As the hook: pods do not run here, so its rights are given to this process.
    world.leave_traces().await?;
    world.helm("uninstall stowplan").await?;
    let show = "--show-only templates/teardown.yaml";
    let hooks = world.helm(&format!("template stowplan {CHART} {values} {show}")).await?;
    let rights: Vec<_> = hooks.split("\n---\n").filter(|it| !it.contains("kind: Job")).collect();
    let apply = ["apply", "-f", "-"];
    run(world.plane.kubectl(), &apply, &rights.join("\n---\n")).await?.succeeded()?;
    let account = format!("system:serviceaccount:{NAMESPACE}:stowplan-teardown");
    world.teardown(&kubeconfig_as(&world.plane, &account)?).await?;
    world.is_clean().await
}
