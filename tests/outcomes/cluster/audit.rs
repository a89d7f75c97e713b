//! The audit log of the API server: what stowplan decided, and which pods it did not see.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::world::{Space, World, commands, element, run, same, settled};

const OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// The section of the documentation whose first command is run.
const RECIPE: &str = "### Find pods that were created without the webhook";

/// The events of the audit log about the creation of pods in a namespace.
fn creations(world: &World, space: &Space) -> Result<Vec<Value>> {
    let log = std::fs::read_to_string(world.plane.audit_log())?;
    let events = log.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let is_one = |event: &Value| {
        event["verb"] == "create"
            && event["objectRef"]["resource"] == "pods"
            && event["objectRef"]["namespace"] == *space.name
            && event["objectRef"]["subresource"].is_null()
    };
    Ok(events.into_iter().filter(is_one).collect())
}

pub(crate) async fn the_decision_is_in_the_audit_log(world: Arc<World>) -> Result<()> {
    let installation = world.installation.read().await;
    let space = world.namespace("audited").await?;
    space.pod(&element("job", "placed", &[("host", "node-1")])).await?;
    let said = space.create(&element("job", "refused", &[("host", "node-99")])).await?;
    ensure!(!said.success, "it was created");
    let [placed, refused] = &creations(&world, &space)?[..] else {
        anyhow::bail!("not two creations")
    };
    let annotation =
        |event: &Value, key: &str| event["annotations"][format!("pods.stowplan.dev/{key}")].clone();
    let noted = |event: &Value| ["decision", "reason"].map(|key| annotation(event, key));
    same(&noted(placed), &[json!("placed"), Value::Null])?;
    same(&noted(refused), &[json!("refused"), json!("UnknownHost")])?;
    // The webhook's log names the request in the same way.
    let uid = annotation(refused, "uid");
    let uid = uid.as_str().context("no uid")?;
    let is_there = async || {
        let log = std::fs::read_to_string(installation.webhook_log())?;
        Ok(log.lines().any(|line| line.contains(uid) && line.contains("UnknownHost")))
    };
    settled("the line of the webhook's log", is_there, |found| *found).await.map(drop)
}

pub(crate) async fn pods_that_missed_the_webhook_are_found_in_the_audit_log(
    world: Arc<World>,
) -> Result<()> {
    let mut installation = world.alone().await?;
    let space = world.namespace("missed").await?;
    let named = |name: &str| element("job", name, &[("host", "node-1")]);
    space.pod(&named("seen")).await?;
    let mut generated = named("generated");
    let unnamed = json!({"name": null, "generateName": "generated-"});
    json_patch::merge(&mut generated["metadata"], &unnamed);
    installation.stop_webhook().await?;
    space.pod(&named("missed")).await?;
    space.pod(&generated).await?;
    installation.start_webhook().await?;

    let recipe = commands(OPERATIONS, RECIPE, "bash")[0];
    let mut shell = std::process::Command::new("bash");
    let log = world.plane.audit_log();
    let folder = log.parent().context("a folder")?;
    shell.args(["-euo", "pipefail", "-c", recipe]).current_dir(folder);
    let found = run(shell, &[], "").await?.succeeded()?;
    let found: Vec<Value> =
        found.lines().map(serde_json::from_str).collect::<Result<_, _>>().context(found.clone())?;
    let here: Vec<_> = found.iter().filter(|it| it["namespace"] == *space.name).collect();
    let names: Vec<_> = here.iter().map(|it| it["name"].clone()).collect();
    // The name of the second is generated later than the API server notes it.
    ensure!(names == [json!("missed"), Value::Null], "{found:?}");
    ensure!(here.iter().all(|it| it["user"] == "admin" && it["time"].is_string()), "{found:?}");
    Ok(())
}
