//! The policy in its ConfigMap, while webhook and controller run.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testbed::control_plane::{Installation, policy_digest};
use testbed::http;
use testbed::wait::{Seen, until};

use crate::world::{World, element};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits until both processes show all `parts` in an answer of their admin port.
async fn both_show(installation: &Installation, path: &str, parts: &[&str]) -> Result<()> {
    let controllers = installation.controllers().collect::<Vec<_>>();
    let controllers =
        controllers.into_iter().filter_map(|index| installation.controller_admin_address(index));
    let processes: Vec<_> = controllers.chain([installation.admin_address()]).collect();
    ensure!(processes.len() == 2, "{processes:?}");
    until(&format!("{path} to show {parts:?}"), LIMIT, async || {
        for process in &processes {
            let answer = http::get(*process, path).await?;
            let is_shown = parts.iter().all(|part| answer.body.contains(part));
            // Whatever becomes of the ConfigMap, they stay ready.
            if !is_shown || answer.status != 200 {
                return Ok(Seen::NotYet(format!("{process}: {} {}", answer.status, answer.body)));
            }
        }
        Ok(Seen::Done(()))
    })
    .await
}

pub(crate) async fn an_edited_policy_is_in_force_in_webhook_and_controller(
    world: Arc<World>,
) -> Result<()> {
    let installation = world.alone().await?;
    let kept = installation.policy().await?;
    let outcome = edit(&world, &installation, &kept).await;
    // The other tests need it as it was; the ConfigMap may be missing.
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "stowplan-policy", "namespace": installation.namespace()},
        "data": {"policy.yaml": kept},
    });
    let restored = world
        .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &map.to_string())
        .await?;
    outcome?;
    restored.succeeded()?;
    installation.policy_in_force().await
}

async fn edit(world: &Arc<World>, installation: &Installation, kept: &str) -> Result<()> {
    let space = world.namespace("policy").await?;
    let namespace = installation.namespace();
    let change = async |patch: Value| {
        let patch = patch.to_string();
        let arguments =
            ["-n", namespace, "patch", "configmap", "stowplan-policy", "--type=merge", "-p"];
        let arguments: Vec<&str> = arguments.into_iter().chain([patch.as_str()]).collect();
        world.kubectl(&arguments, "").await?.succeeded()
    };
    let edited = format!("{kept}onInvalid: warn\nlog: info,stowplan::server=debug\n");
    change(json!({"data": {"policy.yaml": edited}})).await?;
    let digest = policy_digest(&edited);
    let line = format!("policy: {digest}\n");
    let info = format!("\nstowplan_policy_info{{digest=\"{digest}\"}} 1\n");
    both_show(installation, "/readyz", &[&line]).await?;
    both_show(installation, "/metrics", &[&info, "\nstowplan_policy_rejected 0\n"]).await?;
    // It decides: the pod is created with a warning.
    let said = space.create(&element("job", "warned", &[("host", "node-99")])).await?;
    ensure!(said.err.contains("not placed (UnknownHost)"), "{}", said.err);
    // And it sets the log filter: decisions without a problem are logged.
    space.pod(&element("job", "placed", &[("host", "node-1")])).await?;
    let log = installation.webhook_log();
    until("a line about the placed pod", LIMIT, async || {
        let text = std::fs::read_to_string(&log)?;
        let is_logged = text
            .lines()
            .any(|line| line.contains("\"outcome\":\"placed\"") && line.contains(&space.name));
        Ok(if is_logged { Seen::Done(()) } else { Seen::NotYet("none".to_owned()) })
    })
    .await?;

    // An invalid one, and then none at all: the edited one stays in force.
    change(json!({"data": {"policy.yaml": "onInvalid: perhaps\n"}})).await?;
    let problem = "stowplan-policy: onInvalid: \"perhaps\" is not refuse or warn\n";
    both_show(installation, "/readyz", &[&line, problem]).await?;
    both_show(installation, "/metrics", &[&info, "\nstowplan_policy_rejected 1\n"]).await?;
    change(json!({"data": {"policy.yaml": null, "other": "x"}})).await?;
    both_show(installation, "/readyz", &[&line, "has no key policy.yaml (it has other)"]).await?;
    let delete = ["-n", namespace, "delete", "configmap", "stowplan-policy"];
    world.kubectl(&delete, "").await?.succeeded()?;
    both_show(installation, "/readyz", &[&line, "does not exist; `helm upgrade`"]).await?;
    both_show(installation, "/metrics", &[&info, "\nstowplan_policy_rejected 1\n"]).await?;
    let said = space.create(&element("job", "still", &[("host", "node-99")])).await?;
    ensure!(said.err.contains("not placed (UnknownHost)"), "{}", said.err);
    let arguments = ["-n", namespace, "get", "events.events.k8s.io", "-o", "json"];
    until("the events about the policy", LIMIT, async || {
        let list: Value = serde_json::from_str(&world.kubectl(&arguments, "").await?.succeeded()?)?;
        let notes: Vec<_> = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|event| event["reason"] == "InvalidPolicy")
            .filter(|event| event["regarding"]["name"] == "controller-0")
            .filter_map(|event| event["note"].as_str())
            .collect();
        let wanted = ["\"perhaps\"", "has no key policy.yaml", "does not exist"];
        let is_there = |part: &&str| notes.iter().any(|note| note.contains(part));
        Ok(match wanted.iter().all(is_there) {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{notes:?}")),
        })
    })
    .await
}
