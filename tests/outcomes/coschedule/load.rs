//! Many runs at once, and restarts of stowplan meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::Rng as _;
use proptest::test_runner::TestRng;
use serde_json::{Value, json};
use testbed::control_plane::Installation;
use testbed::volumes::{IMMEDIATE, LOCAL, WAITING};

use crate::controller::outages::behind_proxy;
use crate::coschedule::group::group_of;
use crate::coschedule::pipeline::{Lab, claim, existing, in_mode, node, task, template};
use crate::streams_jobs::random::numbers;
use crate::world::{World, merge_policy, same};

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

/// With the default grace period: how soon groups move is not the question here.
pub(crate) async fn fifty_runs_at_once(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let change = json!({"coschedule": {"gracePeriod": "30s"}});
    let kept = merge_policy(&installation, &change).await?;
    let outcome = fifty_runs(&world, &mut installation).await;
    installation.set_policy(&kept).await?;
    outcome
}

async fn fifty_runs(world: &Arc<World>, installation: &mut Installation) -> Result<()> {
    let space = world.namespace("crowd").await?;
    let zones: Vec<_> = ["east", "west"].into_iter().cycle().take(60).collect();
    let lab = Lab::new(world, "crowd", &zones).await?;
    let proxy = behind_proxy(world, installation).await?;
    proxy.forget();

    let names: Vec<_> = (0..50).map(|number| format!("run-{number:02}")).collect();
    for name in &names {
        space.created(&run(&lab, name, WAITING)).await?;
    }
    for name in &names {
        space.succeeded(name).await?;
    }
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
    // A placeholder is made once and removed once. On a machine that is too slow for fifty runs
    // some members wait so long that their group is moved, which is two writes more.
    ensure!(writes >= 50 * 2, "{writes} writes: somebody else has made the placeholders");
    ensure!(writes <= 50 * 3, "{writes} writes for 50 runs");
    space.cleared(&[]).await?;
    installation.stop_controller(0).await?;
    installation.start_controller(0).await
}

/// A random number below `end`.
fn below(chance: &mut TestRng, end: u64) -> u64 {
    chance.next_u64() % end
}

async fn while_away(chance: &mut TestRng) {
    tokio::time::sleep(Duration::from_millis(100 + below(chance, 1400))).await;
}

/// Stops or kills processes of stowplan, and starts them again after a while.
async fn restart(installation: &mut Installation, chance: &mut TestRng) -> Result<()> {
    // Pods that are created while the webhook is stopped are not members, and prove nothing.
    let of_webhook = below(chance, 3) == 0;
    let with_controller = !of_webhook || below(chance, 3) == 0;
    if of_webhook {
        installation.stop_webhook().await?;
    }
    if with_controller {
        match below(chance, 2) {
            0 => installation.kill_controller(0).await?,
            _ => drop(installation.stop_controller(0).await?),
        }
    }
    while_away(chance).await;
    if of_webhook {
        installation.start_webhook().await?;
    }
    if with_controller {
        while_away(chance).await;
        installation.start_controller(0).await?;
    }
    Ok(())
}

pub(crate) async fn restarts_change_nothing(world: Arc<World>) -> Result<()> {
    let (seed, mut chance) = numbers(Timestamp::now().as_microsecond().unsigned_abs())?;
    eprintln!("STOWPLAN_TEST_SEED={seed} restarts in this order again");
    let mut installation = world.alone().await?;
    let (space, lab) =
        Lab::in_space(&world, "restarts", &["east", "west", "east", "west", "east"]).await?;
    let alone = Lab::new(&world, "restarts-alone", &["east", "west"]).await?;
    space.created(&claim("shared", WAITING, "ReadWriteOnce")).await?;
    let mut waiting: Vec<Value> = Vec::new();
    for (kind, class, count) in [
        ("waiting", WAITING, 3),
        ("at-once", IMMEDIATE, 3),
        ("local", LOCAL, 2),
        ("shared", WAITING, 2),
    ] {
        for number in 0..count {
            let mut run = run(&lab, &format!("{kind}-{number}"), class);
            if kind == "shared" {
                run["spec"]["workspaces"] = json!([existing("source", "shared")]);
            }
            waiting.push(run);
        }
    }
    for number in 0..2 {
        let tasks = [task("one", &[], &[]), task("two", &["one"], &[])];
        let isolated = alone.run(&format!("alone-{number}"), &[], &tasks);
        waiting.push(in_mode(isolated, "isolate-pipelinerun"));
    }
    // One of the nodes is cordoned for a while meanwhile.
    let closed = lab.nodes[below(&mut chance, 5) as usize].clone();
    let mut names = Vec::new();
    while !waiting.is_empty() {
        let run = waiting.swap_remove(below(&mut chance, waiting.len() as u64) as usize);
        space.created(&run).await?;
        names.push(run["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        if names.len() == 5 {
            world.plane.cordon(&closed).await?;
        }
        restart(&mut installation, &mut chance).await?;
    }
    world.plane.uncordon(&closed).await?;
    for name in &names {
        space.succeeded(name).await?;
    }

    let pods = space.task_pods().await?;
    let mut whole = 0;
    for name in &names {
        let prefix = format!("{name}-");
        if name.starts_with("local") {
            // The volume would hold together what the webhook did not see, wherever it was closed.
            space.node_of_all(&prefix).await?;
        }
        let of_run = || pods.iter().filter(|(pod, _)| pod.starts_with(&prefix));
        // Pods that were created while the webhook was stopped are not members.
        if of_run().any(|(_, pod)| group_of(pod).is_none()) {
            continue;
        }
        whole += 1;
        // A group of the cordoned node has moved to another one.
        let mut nodes: BTreeSet<_> = of_run().filter_map(|(_, pod)| node(pod)).collect();
        let was_moved = nodes.remove(&closed) && !nodes.is_empty();
        if was_moved {
            ensure!(nodes.len() == 1, "{name} was on {closed} and {nodes:?}");
        } else {
            space.together(&prefix).await?;
        }
    }
    ensure!(whole > 0, "no run came through the webhook as a whole, so nothing is shown");
    eprintln!("{whole} of {} runs came through the webhook as a whole", names.len());
    space.cleared(&["shared"]).await
}
