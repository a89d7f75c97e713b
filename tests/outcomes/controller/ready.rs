//! `helm test`: `stowplan check` of the installation with the rights of the chart's test.

use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::world::World;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan");

/// Pods do not run here, so the account of the test's pod is given to this process.
pub(crate) async fn the_charts_test_finds_a_working_installation(world: Arc<World>) -> Result<()> {
    let running = world.installation.read().await;
    let namespace = running.namespace();
    let mut helm = world.plane.helm();
    helm.args(["template", "stowplan", CHART, "--namespace", namespace]);
    helm.args(["--set", "tls.certManager.inject=stowplan/ca,image.repository=stowplan"]);
    helm.args(["--show-only", "templates/test.yaml"]);
    let output = helm.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let hooks = String::from_utf8(output.stdout)?;
    let (pods, rights): (Vec<&str>, Vec<&str>) =
        hooks.split("\n---\n").partition(|object| object.contains("kind: Pod\n"));
    world.kubectl(&["apply", "-f", "-"], &rights.join("\n---\n")).await?.succeeded()?;

    let mut kubeconfig: Value =
        serde_saphyr::from_str(&fs::read_to_string(world.plane.kubeconfig())?)?;
    kubeconfig["users"][0]["user"]["as"] =
        json!(format!("system:serviceaccount:{namespace}:stowplan-test"));
    let path = world.plane.dir().join("test.kubeconfig");
    fs::write(&path, kubeconfig.to_string())?;

    let pod: Value = serde_saphyr::from_str(pods.first().context("the test has no pod")?)?;
    let arguments: Vec<&str> = pod["spec"]["containers"][0]["args"]
        .as_array()
        .context("its pod has no arguments")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let check = async |arguments: &[&str]| {
        let mut command = world.plane.program(env!("CARGO_BIN_EXE_stowplan"));
        command.env("KUBECONFIG", &path);
        crate::world::run(command, arguments, "").await
    };
    let found = check(&arguments).await?.succeeded()?;
    for line in [
        "ok       webhook-configurations ",
        "ok       service ",
        "ok       versions ",
        "ok       definitions ",
        "ok       controller ",
        "ok       trial-pod              a pod in namespace default gets its placement (dry run)\n",
        // Pods are not asked, because the account may not: see the chart's test.yaml.
        "unknown  certificate ",
        "\n0 problems, 0 warnings, ",
    ] {
        ensure!(found.contains(line), "{line}\n{found}");
    }
    // It may create pods in that namespace only.
    let arguments = ["check", "--installed-in", namespace, "--try-in", "kube-node-lease"];
    let output = check(&arguments).await?;
    let refused = "problem  trial-pod              no test pod was created: the right is missing: \
                   create pods in kube-node-lease\n";
    ensure!(!output.success && output.out.contains(refused), "{}{}", output.out, output.err);
    Ok(())
}
