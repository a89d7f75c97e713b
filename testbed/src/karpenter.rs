//! Karpenter, an autoscaler: it creates simulated nodes for pods that wait for one, and removes them again.
//!
//! The real program runs, with its own provider of simulated nodes. It makes nodes of three shapes, in the
//! zones `zone-a` and `zone-b`, for pods that select the label of a [`node_pool`].

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::command;
use crate::control_plane::ControlPlane;
use crate::tools::{AutoscalerTools, to_stderr};
use crate::volumes::ZONE;

/// The label of the nodes of a [`node_pool`], with the pool's name as its value.
pub const POOL: &str = "testbed.stowplan.dev/pool";

/// The shapes of nodes: name, CPUs and GiB. The price of a node is its number of CPUs.
const SHAPES: [(&str, u32, u32); 3] = [("small", 2, 4), ("medium", 4, 8), ("large", 8, 16)];

const ZONES: [&str; 2] = ["zone-a", "zone-b"];

/// The resources of each node that the provider keeps for its system, in thousandths of a CPU and in MiB.
const OVERHEAD: (u32, u32) = (100, 10);

/// Starts it on a control plane, with which it ends. The first call on a machine builds it. Returns its log.
///
/// # Errors
/// It cannot be built, or not be started; or its kinds are refused.
pub async fn start(plane: &ControlPlane) -> Result<PathBuf> {
    let tools = tokio::task::spawn_blocking(|| AutoscalerTools::ensure(&to_stderr)).await??;
    let mut kubectl = plane.kubectl();
    kubectl.args(["apply", "--server-side", "-f"]).arg(tools.definitions());
    command::text(&mut kubectl).context("cannot define its kinds")?;
    let mut kubectl = plane.kubectl();
    kubectl.args(["wait", "--for=condition=Established", "--timeout=60s", "-f"]);
    command::text(kubectl.arg(tools.definitions())).context("its kinds are not served")?;
    let class = json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
    });
    plane.apply(&[class])?;

    let types = plane.dir().join("instance-types.json");
    std::fs::write(&types, instance_types().to_string())?;
    let variables = [
        format!("KUBECONFIG={}", plane.kubeconfig().display()),
        format!("INSTANCE_TYPES_FILE_PATH={}", types.display()),
        "SYSTEM_NAMESPACE=kube-system".to_owned(),
        "KARPENTER_SERVICE=karpenter".to_owned(),
        "DISABLE_LEADER_ELECTION=true".to_owned(),
        // The pods of one group may come more than a second apart where many tests share two processors: that is
        // its default, after which it makes a node for the first of them alone.
        "BATCH_IDLE_DURATION=3s".to_owned(),
        // Free ones; nobody asks there.
        "METRICS_PORT=0".to_owned(),
        "HEALTH_PROBE_PORT=0".to_owned(),
    ];
    let program = tools.program().display().to_string();
    let arguments: Vec<_> = variables.into_iter().chain([program]).collect();
    plane.start_program("karpenter", "env".as_ref(), &arguments)
}

/// Creates a NodePool: Karpenter makes nodes with the label [`POOL`] of this value, and with these `labels`. It
/// removes a node that is empty or little used for `after`, such as `30s`; or `Never`.
///
/// # Errors
/// The pool is refused.
pub fn node_pool(
    plane: &ControlPlane,
    name: &str,
    labels: &[(&str, &str)],
    after: &str,
) -> Result<()> {
    let mut all = json!({POOL: name});
    labels.iter().for_each(|(key, value)| all[*key] = json!(value));
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"labels": all},
                "spec": {
                    "expireAfter": "720h",
                    "nodeClassRef": {
                        "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default",
                    },
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": ZONE, "operator": "In", "values": ZONES},
                    ],
                },
            },
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": after,
            },
        },
    });
    plane.apply(&[pool])
}

/// The shapes as its provider reads them.
fn instance_types() -> Value {
    let types = SHAPES.map(|(name, cpus, gibibytes)| {
        let offerings = ZONES.map(|zone| {
            json!({
                "Price": f64::from(cpus), "Available": true,
                "Requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": ZONE, "operator": "In", "values": [zone]},
                ],
            })
        });
        json!({
            "name": name, "architecture": "amd64", "operatingSystems": ["linux"],
            "resources": {
                "cpu": format!("{}m", cpus * 1000 + OVERHEAD.0),
                "memory": format!("{}Mi", gibibytes * 1024 + OVERHEAD.1),
                "ephemeral-storage": "100Gi", "pods": "110",
            },
            "offerings": offerings,
        })
    });
    types.as_slice().into()
}
