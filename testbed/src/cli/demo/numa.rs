//! The fourth scenario: a training job whose parameter servers and workers do not share NUMA nodes.
//!
//! Katalyst does not run here: the CustomNodeResources of its agents are written by the testbed
//! ([`testbed::katalyst`]), and compared with the roles of the pods without stowplan's code.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use testbed::control_plane::ControlPlane;
use testbed::katalyst::{self, Agents, Zone};
use testbed::wait::{Seen, until};

use super::table::Row;
use super::{apply, label_of, name_of, node_of, print_rows, why};

/// The chart values: the nodes enforce NUMA affinity by the label `role`.
pub(super) const VALUES: [(&str, &str); 2] =
    [("policy.katalyst.mode", "enforced"), ("policy.katalyst.declaredLabels", "{role}")];

const NODES_FILE: &str = "examples/numa-nodes.yaml";
const JOB_FILE: &str = "examples/katalyst.yaml";

/// The nodes of the file, the sockets of each, and the NUMA nodes of each socket.
const NODES: [&str; 2] = ["numa-1", "numa-2"];
const SOCKETS: usize = 2;
const ZONES: usize = 2;

/// The label with the role of a pod.
const ROLE: &str = "role";

/// The pods of the job.
const PODS: usize = 6;

const LIMIT: Duration = Duration::from_secs(60);

/// A pod of the job.
struct Placed {
    pod: Pod,
    /// The node and the number of the NUMA node.
    zone: (String, usize),
}

/// Makes the nodes, waits until the pods of the job are on NUMA nodes, checks and shows them.
pub(super) async fn show(plane: &ControlPlane, client: &Client, stowplan: &Path) -> Result<()> {
    say!("9. Two nodes with four NUMA nodes each: kubectl apply -f {NODES_FILE}");
    say!("   Katalyst itself does not run here. The demo writes what its agents would report: the");
    say!("   CustomNodeResources, with the NUMA node of each pod.");
    katalyst::define(client).await?;
    let _agents = Agents::start(client, &NODES, SOCKETS, ZONES).await?;
    apply(plane, NODES_FILE).await?;
    plane.nodes_ready(client).await?;

    say!(
        "10. A training job whose roles avoid each other's NUMA nodes: kubectl apply -f {JOB_FILE}"
    );
    apply(plane, JOB_FILE).await?;
    let pods = placed_pods(plane, client).await?;
    say!();
    print_rows(["POD", "ROLE", "NODE", "WHY"], &pods, |Placed { pod, zone }| {
        Ok(Row {
            pod: name_of(pod).to_owned(),
            constraints: vec![label_of(pod, ROLE).to_owned()],
            node: zone.0.clone(),
            reasons: why(pod)?,
        })
    })?;
    say!();
    let mut roles: BTreeMap<&(String, usize), &str> = BTreeMap::new();
    for Placed { pod, zone } in &pods {
        let role = label_of(pod, ROLE);
        let known = roles.entry(zone).or_insert(role);
        ensure!(*known == role, "NUMA node {} of {} has pods of both roles", zone.1, zone.0);
    }
    for node in NODES {
        say!("   stowplan check node/{node}:");
        for line in picture(plane, stowplan, node).await? {
            say!("     {line}");
        }
        say!();
    }
    say!(
        "   No NUMA node has pods of both roles. Each pod waited until a NUMA node was feasible for it,"
    );
    say!("   also beside pods that had started and were not reported yet.");
    Ok(())
}

/// Waits until each pod of the job is in a report.
async fn placed_pods(plane: &ControlPlane, client: &Client) -> Result<Vec<Placed>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let selector = ListParams::default().labels("role in (ps, worker)");
    until("the pods of the training job to be on NUMA nodes", LIMIT, async || {
        plane.check()?;
        let reports = katalyst::reported(client).await?;
        let pods = pods.list(&selector).await?.items;
        let mut placed = Vec::new();
        let mut others = Vec::new();
        for pod in pods {
            match zone_of(&pod, &reports) {
                Some(zone) => placed.push(Placed { pod, zone }),
                None => others.push(describe(&pod)),
            }
        }
        Ok(match placed.len() {
            PODS => Seen::Done(placed),
            count => Seen::NotYet(format!("{count} are, but not {}", others.join(", "))),
        })
    })
    .await
}

/// The name of a pod, its node and its phase.
fn describe(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    [name_of(pod), node_of(pod), phase.unwrap_or_default()].join(" ")
}

fn zone_of(pod: &Pod, reports: &BTreeMap<String, Vec<Zone>>) -> Option<(String, usize)> {
    let own = katalyst::consumer(pod);
    reports.iter().find_map(|(node, zones)| {
        let zone = zones.iter().find(|zone| zone.consumers.contains(&own))?;
        Some((node.clone(), zone.number))
    })
}

/// The lines of `stowplan check` with the NUMA nodes of a node.
async fn picture(plane: &ControlPlane, stowplan: &Path, node: &str) -> Result<Vec<String>> {
    let mut command = plane.program(stowplan);
    command.args(["check", &format!("node/{node}")]);
    let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
    let text = String::from_utf8(output.stdout)?;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("| NUMA ")).collect();
    ensure!(lines.len() == SOCKETS * ZONES, "no picture of {node}: {text}");
    let indent = lines.iter().map(|line| line.len() - line.trim_start().len()).min();
    let cut = |line: &&str| line.get(indent.unwrap_or_default()..).unwrap_or_default().to_owned();
    Ok(lines.iter().map(cut).collect())
}
