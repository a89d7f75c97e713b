//! Many runs at once, and stowplan restarted under them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use testbed::volumes::{LOCAL, WAITING};

use crate::group::group_of;
use crate::pipeline::{Lab, node, task, template};
use crate::world::{Space, World, same};

/// Five pods that share a workspace: one, three at once, one.
fn run(lab: &Lab, name: &str, class: &str) -> Value {
    let shared: &[&str] = &["source"];
    lab.run(
        name,
        &[template("source", class)],
        &[
            task("clone", &[], shared),
            task("build", &["clone"], shared),
            task("test", &["clone"], shared),
            task("lint", &["clone"], shared),
            task("push", &["build", "test", "lint"], shared),
        ],
    )
}

async fn all_succeed(space: &Space, names: &[String]) -> Result<()> {
    for name in names {
        space.succeeded(name).await?;
    }
    Ok(())
}

pub(crate) async fn fifty_runs_at_once(world: Arc<World>) -> Result<()> {
    let mut installation = world.installation.write().await;
    let space = world.namespace("crowd").await?;
    let zones: Vec<_> = ["east", "west"].into_iter().cycle().take(200).collect();
    let lab = Lab::new(&world, "crowd", &zones).await?;
    installation.stop_controller(0).await?;
    let proxy = world.plane.proxy().await?;
    installation.start_controller_through(0, &proxy).await?;
    proxy.forget();

    let names: Vec<_> = (0..50).map(|number| format!("run-{number:02}")).collect();
    for name in &names {
        space.created(&run(&lab, name, WAITING)).await?;
    }
    all_succeed(&space, &names).await?;
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let pods = space.task_pods().await?;
    same(&pods.len(), &250)?;
    for (name, pod) in &pods {
        let group = group_of(pod).unwrap_or(name);
        groups.entry(group.to_owned()).or_default().extend(node(pod));
    }
    same(&groups.len(), &50)?;
    let torn: Vec<_> = groups.iter().filter(|(_, nodes)| nodes.len() != 1).collect();
    ensure!(torn.is_empty(), "{torn:?}");
    space.nothing_is_left().await?;

    let writes = proxy.writes();
    eprintln!("API writes of the controller per run of five pods: {}", writes as f64 / 50.0);
    // A placeholder is made once and removed once. On a machine that is too slow for fifty runs some
    // members wait so long that their group is moved, which is two writes more.
    ensure!(writes >= 50 * 2, "{writes} writes: somebody else has made the placeholders");
    ensure!(writes <= 50 * 3, "{writes} writes for 50 runs");
    space.cleared(&[]).await?;
    installation.stop_controller(0).await?;
    installation.start_controller(0).await
}

pub(crate) async fn restarts_change_nothing(world: Arc<World>) -> Result<()> {
    let mut installation = world.installation.write().await;
    let space = world.namespace("restarts").await?;
    let lab =
        Lab::new(&world, "restarts", &["east", "west", "east", "west", "east", "west"]).await?;
    let names: Vec<_> = (0..12).map(|number| format!("run-{number:02}")).collect();
    for (number, name) in names.iter().enumerate() {
        // A volume of one node: what the webhook did not see goes to the right node all the same.
        space.created(&run(&lab, name, LOCAL)).await?;
        match number % 4 {
            0 => installation.kill_controller(0).await?,
            1 => installation.start_controller(0).await?,
            2 => installation.stop_webhook().await?,
            _ => installation.start_webhook().await?,
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    all_succeed(&space, &names).await?;
    for name in &names {
        space.node_of_all(&format!("{name}-")).await?;
    }
    space.cleared(&[]).await
}
