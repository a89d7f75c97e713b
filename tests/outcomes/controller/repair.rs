//! Pods that were admitted while the webhook was stopped.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::ListParams;
use serde_json::{Value, json};
use testbed::wait::{Seen, until};

use crate::controller::nodes::tagged;
use crate::world::{Space, World, element};

/// Longer than the minute for which a pod must have been pending before it is recreated.
const LIMIT: Duration = Duration::from_secs(120);

/// The events of a pod: reason and message.
async fn events(space: &Space, pod: &str) -> Result<Vec<(String, String)>> {
    let selector = format!("regarding.name={pod}");
    let arguments = [
        "-n",
        &space.name,
        "get",
        "events.events.k8s.io",
        "--field-selector",
        &selector,
        "-o",
        "json",
    ];
    let said = space.world.kubectl(&arguments, "").await?;
    ensure!(said.success, "{}", said.err);
    let list: Value = serde_json::from_str(&said.out)?;
    let word = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().map(|event| (word(event, "reason"), word(event, "note"))).collect())
}

pub(crate) async fn pods_admitted_meanwhile_are_reported_and_recreated(
    world: Arc<World>,
) -> Result<()> {
    let mut installation = world.alone().await?;
    let space = world.namespace("repair").await?;
    let nodes = tagged(&world, "repair", 2).await?;
    installation.stop_webhook().await?;
    // It already has a node: an event reports it, and it is not deleted.
    let mut running = element("job", "running", &[("host", &nodes[0])]);
    running["spec"]["nodeSelector"] = json!({"streams.ibm.com/hostpool": "repair"});
    space.node_of_new(&running).await?;
    // It was placed, and then another webhook took the affinity away.
    let mut stripped = element("job", "stripped", &[("host", &nodes[0])]);
    stripped["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1000"}});
    let record = json!({"v": 1, "streams": [format!("host={0}: node {0}", nodes[0])], "more": 0});
    stripped["metadata"]["annotations"]["stowplan.dev/placement"] = json!(record.to_string());
    space.pod(&stripped).await?;
    // It is unschedulable, and its owner creates another pod when it is deleted.
    let mut waiting = element("job", "waiting", &[("host", &nodes[1])]);
    waiting["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1000"}});
    let mut metadata = waiting["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("name");
    }
    space
        .created(&json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "waiting"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"streams.ibm.com/pe": "waiting"}},
                "template": {"metadata": metadata, "spec": waiting["spec"]},
            },
        }))
        .await?;
    let of_set = ListParams::default().labels("streams.ibm.com/pe=waiting");
    let first = until("the set's pod", LIMIT, async || {
        let pods = space.pods().list(&of_set).await?.items;
        Ok(match pods.first().and_then(|pod| pod.metadata.name.clone()) {
            Some(name) => Seen::Done(name),
            None => Seen::NotYet("none".to_owned()),
        })
    })
    .await?;
    installation.start_webhook().await?;
    drop(installation);

    until("an event on the running pod", LIMIT, async || {
        let seen = events(&space, "running").await?;
        let wanted = "lacks: required node affinity metadata.name In [repair-0]";
        Ok(match seen.iter().any(|(why, note)| why == "NotPlaced" && note.contains(wanted)) {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{seen:?}")),
        })
    })
    .await?;
    until("an event on the pod without its affinity", LIMIT, async || {
        let seen = events(&space, "stripped").await?;
        Ok(
            match seen.iter().any(|(why, note)| why == "PlacementRemoved" && note.contains("spec."))
            {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{seen:?}")),
            },
        )
    })
    .await?;
    let again = until("the waiting pod to be made again, placed", LIMIT, async || {
        let pods = space.pods().list(&of_set).await?.items;
        let new = pods.iter().find(|pod| pod.metadata.name.as_deref() != Some(&first));
        let annotations = new.and_then(|pod| pod.metadata.annotations.clone()).unwrap_or_default();
        Ok(match annotations.contains_key("stowplan.dev/placement") {
            true => Seen::Done(new.and_then(|pod| pod.metadata.name.clone())),
            false => Seen::NotYet(format!("{} pods", pods.len())),
        })
    })
    .await?;
    ensure!(again.is_some());
    let seen = events(&space, &first).await?;
    ensure!(seen.iter().any(|(why, _)| why == "Recreated"), "{seen:?}");
    let still = space.pods().get("running").await?;
    ensure!(still.metadata.deletion_timestamp.is_none(), "a pod with a node must not be deleted");
    Ok(())
}
