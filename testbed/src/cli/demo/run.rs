//! The third scenario: a Tekton run whose tasks share two volumes, and whose node is cordoned while
//! the run continues.
//!
//! The nodes of the pods and the zones of the volumes are read from the API server and compared
//! without stowplan's code.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use testbed::control_plane::ControlPlane;
use testbed::tekton::{self, Ended};
use testbed::volumes::ZONE;
use testbed::wait::{Seen, until};

use super::table::Row;
use super::{label_of, name_of, node_of, print_rows, why};

/// The run's name, and the value of its pods' label.
const RUN: &str = "image";

/// The label of placeholders.
const PLACEHOLDER: &str = "stowplan.dev/placeholder";

/// A time limit far above the duration of the run.
const LIMIT: Duration = Duration::from_secs(120);

/// The label with the task of a pod.
const TASK: &str = "tekton.dev/pipelineTask";

/// Follows the run until it has ended, checks it, and prints the nodes of its pods.
pub(super) async fn show(plane: &ControlPlane, client: &Client) -> Result<()> {
    let pods = until("the task build to run", LIMIT, async || {
        plane.check()?;
        let pods = pods(client).await?;
        let build = pods.iter().find(|pod| label_of(pod, TASK) == "build");
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        Ok(match build {
            Some(pod) if phase(pod).as_deref() == Some("Running") => Seen::Done(pods),
            Some(pod) => Seen::NotYet(format!("{} is on {:?}", name_of(pod), node_of(pod))),
            None => Seen::NotYet(format!("{} pods", pods.len())),
        })
    })
    .await?;
    say!();
    print_table(&pods)?;
    say!();
    let nodes: BTreeSet<&str> = pods.iter().map(node_of).collect();
    let shared = nodes.first().copied().context("a pod of the run")?.to_owned();
    ensure!(nodes.len() == 1, "the pods of one run are on several nodes: {nodes:?}");
    let zone = zone_of(client, &shared).await?;
    let mut classes = Vec::new();
    for claim in pods.iter().flat_map(claims).collect::<BTreeSet<_>>() {
        let (class, of_volume) = volume_of(client, claim).await?;
        ensure!(of_volume == zone, "the volume of {claim} is in {of_volume}, its pods in {zone}");
        classes.push(format!("{claim} ({class})"));
    }
    say!("   All pods are on the node {shared} in {zone}, and so are both volumes:");
    say!("   {}.", classes.join(" and "));

    say!("8. Maintenance while the task build is running: kubectl cordon {shared}");
    plane.cordon(&shared).await?;
    let ended = tekton::ended(client, "default", RUN, LIMIT).await?;
    ensure!(ended == Ended::Succeeded, "the run did not succeed: {ended:?}");
    let pods = self::pods(client).await?;
    say!();
    print_table(&pods)?;
    say!();
    for pod in &pods {
        let (name, node) = (name_of(pod), node_of(pod));
        let has_stayed = node == shared;
        ensure!(has_stayed == (label_of(pod, TASK) != "report"), "{name} was on {node}");
        let of_pod = zone_of(client, node).await?;
        ensure!(of_pod == zone, "{name} is not in the zone of its volumes");
    }
    let sets: Api<StatefulSet> = Api::all(client.clone());
    until("the placeholder to be deleted", LIMIT, async || {
        let left = sets.list(&ListParams::default().labels(PLACEHOLDER)).await?.items.len();
        Ok(if left == 0 { Seen::Done(()) } else { Seen::NotYet(format!("{left} remain")) })
    })
    .await?;
    say!(
        "   The run has ended: build was not disturbed, the task after it ran on another node with"
    );
    say!("   the same volumes, and stowplan's placeholder was deleted.");
    plane.uncordon(&shared).await
}

async fn pods(client: &Client) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let selector = ListParams::default().labels(&format!("tekton.dev/pipelineRun={RUN}"));
    let mut pods: Vec<Pod> = pods.list(&selector).await?.items;
    pods.retain(|pod| !label_of(pod, TASK).is_empty());
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    Ok(pods)
}

/// The claims that a pod uses.
fn claims(pod: &Pod) -> BTreeSet<&str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| &*claim.claim_name).collect()
}

fn print_table(pods: &[Pod]) -> Result<()> {
    print_rows(["POD", "CLAIMS", "NODE", "WHY"], pods, |pod| {
        Ok(Row {
            pod: name_of(pod).to_owned(),
            constraints: claims(pod).into_iter().map(str::to_owned).collect(),
            node: node_of(pod).to_owned(),
            reasons: why(pod)?,
        })
    })
}

async fn zone_of(client: &Client, node: &str) -> Result<String> {
    let node = Api::<Node>::all(client.clone()).get(node).await?;
    let zone = node.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE));
    zone.cloned().context("a node without a zone")
}

/// The storage class of a claim, and the zone of its volume.
async fn volume_of(client: &Client, claim: &str) -> Result<(String, String)> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), "default");
    let spec = claims.get(claim).await?.spec.unwrap_or_default();
    let volume = spec.volume_name.with_context(|| format!("{claim} has no volume"))?;
    let volume = Api::<PersistentVolume>::all(client.clone()).get(&volume).await?;
    let affinity = volume.spec.and_then(|spec| spec.node_affinity);
    let terms = affinity.and_then(|affinity| affinity.required).map(|it| it.node_selector_terms);
    let requirements = terms.into_iter().flatten().flat_map(|term| term.match_expressions);
    let zones: BTreeMap<String, Vec<String>> = requirements
        .flatten()
        .map(|requirement| (requirement.key, requirement.values.unwrap_or_default()))
        .collect();
    let zone = zones.get(ZONE).map(|zones| zones.join(", "));
    Ok((spec.storage_class_name.unwrap_or_default(), zone.unwrap_or_default()))
}
