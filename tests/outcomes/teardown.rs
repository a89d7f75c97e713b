//! `stowplan teardown` on a control plane: by hand, and with the rights of the chart's hook.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, NodeSpec, Options};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan");
const NAMESPACE: &str = "stowplan-system";
/// Base64 of a PEM frame without a certificate in it: no certificate is to be trusted here.
const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkxTMHQKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
const POOL: &str = "pool.stowplan.node-restriction.kubernetes.io/abcdefabcd";
/// What was made for an MPI cluster.
const MADE: &str = "cluster";
const PLACEHOLDER: &str = "affinity-assistant-abcdefabcd";

/// The label of the Secrets that the controller makes.
const TLS: &str = "stowplan.dev/tls";

struct World {
    plane: ControlPlane,
}

impl World {
    fn kubectl(&self, arguments: &[&str], input: &Value) -> String {
        let mut kubectl = self.plane.kubectl();
        kubectl.args(arguments);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kubectl.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.to_string().as_bytes());
        stdout(&child.wait_with_output().unwrap())
    }

    fn get(&self, arguments: &[&str]) -> Value {
        let arguments = [&["get"], arguments, &["-o", "json"]].concat();
        serde_json::from_str(&self.kubectl(&arguments, &Value::Null)).unwrap()
    }

    fn helm(&self, arguments: &[&str]) -> String {
        let mut helm = self.plane.helm();
        stdout(&helm.args(arguments).args(["--namespace", NAMESPACE]).output().unwrap())
    }

    /// What a controller leaves when it ends, and objects of users that look alike.
    fn leave_traces(&self) {
        let nothing = &Value::Null;
        self.kubectl(&["label", "node", "node-1", &format!("{POOL}=0"), "mine=yes"], nothing);
        let taints = ["mine=yes:PreferNoSchedule", "stowplan.dev/exclusive=abcdefabcd:NoSchedule"];
        self.kubectl(&["taint", "node", "node-1", taints[0], taints[1]], nothing);
        for (name, label) in [(PLACEHOLDER, PLACEHOLDER), ("users", PLACEHOLDER)] {
            let labels = json!({"app": name});
            let set = json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": name, "namespace": "default",
                    "labels": {"stowplan.dev/placeholder": label}},
                "spec": {"replicas": 0, "serviceName": "", "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels},
                        "spec": {"containers": [{"name": "c", "image": "none"}]}}},
            });
            self.kubectl(&["create", "-f", "-"], &set);
        }
        // Running MPI clusters need what was made for them.
        for kind in ["Service", "ConfigMap", "Secret"] {
            let mut made = json!({
                "apiVersion": "v1", "kind": kind,
                "metadata": {"name": MADE, "namespace": "default",
                    "labels": {"mpi.stowplan.dev/made-for": MADE}},
            });
            if kind == "Service" {
                made["spec"] = json!({"clusterIP": "None"});
            }
            self.kubectl(&["create", "-f", "-"], &made);
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "gated", "namespace": "default"},
            "spec": {
                "schedulingGates": [
                    {"name": "stowplan.dev/mpi-workers"}, {"name": "example.com/gate"},
                    {"name": "stowplan.dev/placeholder"},
                ],
                "containers": [{"name": "c", "image": "none"}],
            },
        });
        self.kubectl(&["create", "-f", "-"], &pod);
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "stowplan-controller", "namespace": NAMESPACE},
            "spec": {"holderIdentity": "controller-0", "leaseDurationSeconds": 15},
        });
        self.kubectl(&["create", "-f", "-"], &lease);
        for (name, role) in [("stowplan-tls", "serving"), ("stowplan-ca", "authority")] {
            let labels =
                json!({"app.kubernetes.io/managed-by": "stowplan", "stowplan.dev/tls": role});
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            });
            self.kubectl(&["create", "-f", "-"], &secret);
        }
    }

    fn is_clean(&self) {
        let node = self.get(&["node", "node-1"]);
        assert_eq!(node["metadata"]["labels"][POOL], Value::Null);
        assert_eq!(node["metadata"]["labels"]["mine"], "yes");
        let taints = node["spec"]["taints"].as_array().unwrap().iter();
        assert_eq!(taints.map(|taint| &taint["key"]).collect::<Vec<_>>(), ["mine"]);
        let names = |objects: Value| -> Vec<String> {
            let items = objects["items"].as_array().unwrap().iter();
            items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(self.get(&["statefulsets"])), ["users"]);
        let gates = self.get(&["pod", "gated"])["spec"]["schedulingGates"].clone();
        assert_eq!(gates, json!([{"name": "example.com/gate"}]));
        let made = ["services,configmaps,secrets", "--selector=mpi.stowplan.dev/made-for"];
        assert_eq!(names(self.get(&made)), [MADE; 3]);
        assert_eq!(names(self.get(&["leases", "--namespace", NAMESPACE])), [""; 0]);
        assert_eq!(names(self.get(&["secrets", "--namespace", NAMESPACE, "-l", TLS])), [""; 0]);
        let kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
        assert_eq!(names(self.get(&[kinds])), [""; 0]);
    }

    fn forget(&self) {
        let nothing = &Value::Null;
        self.kubectl(&["delete", "pod", "gated", "--now"], nothing);
        self.kubectl(&["delete", "statefulset", "users"], nothing);
        for kind in ["service", "configmap", "secret"] {
            self.kubectl(&["delete", kind, MADE], nothing);
        }
        self.kubectl(&["label", "node", "node-1", "mine-"], nothing);
        self.kubectl(&["taint", "node", "node-1", "mine-"], nothing);
    }
}

fn stdout(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}\n{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn teardown(kubeconfig: &std::path::Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stowplan"));
    command.args(["teardown", "--namespace", NAMESPACE]).env("KUBECONFIG", kubeconfig);
    stdout(&command.output().unwrap())
}

pub(crate) async fn what_stowplan_has_left_is_removed_and_nothing_else() {
    let nodes = NodeSpec::numbered(1);
    let plane = ControlPlane::start(Options { nodes, ..Options::default() }).await.unwrap();
    let world = World { plane };
    let ca = format!("tls.caBundle={CA},image.repository=stowplan");
    let install = ["install", "stowplan", CHART, "--create-namespace", "--set-string", &ca];
    world.helm(&install);

    // By hand, while the release is still there: its webhooks are removed first.
    world.leave_traces();
    let report = teardown(world.plane.kubeconfig());
    world.is_clean();
    for line in [
        "removed MutatingWebhookConfiguration stowplan\n",
        "removed ValidatingWebhookConfiguration stowplan\n",
        &format!("removed StatefulSet default/{PLACEHOLDER}\n"),
        "removed the scheduling gate of Pod default/gated\n",
        "removed labels and taints of pools from Node node-1\n",
        "removed Lease stowplan-system/stowplan-controller\n",
        "removed Secret stowplan-system/stowplan-tls\n",
        "removed Secret stowplan-system/stowplan-ca\n",
        "kept 0 hostpools and their definition; kubectl delete crd hostpools.stowplan.dev",
    ] {
        assert!(report.contains(line), "{line}: {report}");
    }
    // Again, with nothing left but a Secret that is not stowplan's.
    let foreign = ["--namespace", NAMESPACE, "create", "secret", "generic", "stowplan-tls"];
    world.kubectl(&foreign, &Value::Null);
    let report = teardown(world.plane.kubeconfig());
    let foreign = ["--namespace", NAMESPACE, "delete", "secret", "stowplan-tls"];
    world.kubectl(&foreign, &Value::Null);
    assert!(!report.contains("removed S") && !report.contains("Node"), "{report}");
    world.forget();

    // As the hook: pods do not run here, so its rights are given to this process.
    world.leave_traces();
    world.helm(&["uninstall", "stowplan"]);
    let hooks = world.helm(&[
        "template",
        "stowplan",
        CHART,
        "--set-string",
        &ca,
        "--show-only",
        "templates/teardown.yaml",
    ]);
    let account = format!("system:serviceaccount:{NAMESPACE}:stowplan-teardown");
    let text = std::fs::read_to_string(world.plane.kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"]["as"] = json!(account);
    let path = world.plane.dir().join("teardown.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let roles = world.plane.dir().join("teardown.yaml");
    let roles_only: Vec<_> =
        hooks.split("\n---\n").filter(|it| !it.contains("kind: Job")).collect();
    std::fs::write(&roles, roles_only.join("\n---\n")).unwrap();
    world.kubectl(&["apply", "-f", &roles.display().to_string()], &Value::Null);
    teardown(&path);
    world.is_clean();
    world.plane.stop().await;
}
