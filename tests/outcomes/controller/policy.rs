//! The policy in its ConfigMap, while webhook and controller run.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use testbed::control_plane::{Installation, policy_digest};
use testbed::http;

use crate::world::{Space, World, element, has, settled};

const MAP: &str = "stowplan-policy";

/// Waits until both processes show all `parts` in an answer of their admin port.
async fn both_show(installation: &Installation, path: &str, parts: &[&str]) -> Result<()> {
    let controllers =
        installation.controllers().filter_map(|index| installation.controller_admin_address(index));
    let processes: Vec<_> = controllers.chain([installation.admin_address()]).collect();
    ensure!(processes.len() == 2, "{processes:?}");
    let answers = async || {
        let answers = try_join_all(processes.iter().map(|process| http::get(*process, path)));
        Ok(answers.await?.into_iter().map(|it| (it.status, it.body)).collect::<Vec<_>>())
    };
    // Whatever becomes of the ConfigMap, they stay ready.
    let shows = |(status, body): &(_, String)| {
        *status == 200 && parts.iter().all(|part| body.contains(part))
    };
    let what = format!("{path} to show {parts:?}");
    settled(&what, answers, |answers| answers.iter().all(shows)).await.map(drop)
}

pub(crate) async fn an_edited_policy_is_in_force_in_webhook_and_controller(
    world: Arc<World>,
) -> Result<()> {
    let installation = world.alone().await?;
    let kept = installation.policy().await?;
    let own = Space { world: Arc::clone(&world), name: installation.namespace().to_owned() };
    let outcome = edit(&own, &installation, &kept).await;
    // The other tests need it as it was; the ConfigMap may be missing.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP}});
    drop(own.create(&map).await?);
    installation.set_policy(&kept).await?;
    outcome
}

async fn edit(own: &Space, installation: &Installation, kept: &str) -> Result<()> {
    let space = own.world.namespace("policy").await?;
    let change = async |data: Value| own.change::<ConfigMap>(MAP, json!({"data": data})).await;
    let edited = format!("{kept}onInvalid: warn\nlog: info,stowplan::server=debug\n");
    change(json!({"policy.yaml": edited})).await?;
    let digest = policy_digest(&edited);
    let line = format!("policy: {digest}\n");
    let info = format!("\nstowplan_policy_info{{digest=\"{digest}\"}} 1\n");
    both_show(installation, "/readyz", &[&line]).await?;
    both_show(installation, "/metrics", &[&info, "\nstowplan_policy_rejected 0\n"]).await?;
    // It decides: the pod is created with a warning.
    let is_warned = async |name: &str| {
        let said = space.create(&element("job", name, &[("host", "node-99")])).await?;
        has(&said.err, &["not placed (UnknownHost)"])
    };
    is_warned("warned").await?;
    // And it sets the log filter: decisions without a problem are logged.
    space.pod(&element("job", "placed", &[("host", "node-1")])).await?;
    let is_logged = async || {
        let text = std::fs::read_to_string(installation.webhook_log())?;
        let mut placed = text.lines().filter(|line| line.contains("\"outcome\":\"placed\""));
        Ok(placed.any(|line| line.contains(&space.name)))
    };
    settled("a line about the placed pod", is_logged, |found| *found).await?;

    // An invalid one, and then none at all: the edited one stays in force.
    change(json!({"policy.yaml": "onInvalid: perhaps\n"})).await?;
    let problem = "stowplan-policy: onInvalid: \"perhaps\" is not refuse or warn\n";
    both_show(installation, "/readyz", &[&line, problem]).await?;
    both_show(installation, "/metrics", &[&info, "\nstowplan_policy_rejected 1\n"]).await?;
    change(json!({"policy.yaml": null, "other": "x"})).await?;
    both_show(installation, "/readyz", &[&line, "has no key policy.yaml (it has other)"]).await?;
    own.kubectl(&format!("delete configmap {MAP}")).await?;
    both_show(installation, "/readyz", &[&line, "does not exist; `helm upgrade`"]).await?;
    both_show(installation, "/metrics", &[&info, "\nstowplan_policy_rejected 1\n"]).await?;
    is_warned("still").await?;
    for part in ["\"perhaps\"", "has no key policy.yaml", "does not exist"] {
        own.expect_event(&["/controller-0 InvalidPolicy ", part]).await?;
    }
    Ok(())
}
