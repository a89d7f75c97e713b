//! A large cluster on a control plane, and a tenth of it: the memory of webhook and controller, how
//! long they take to start, what a plan takes, what the controller writes, and what nodes that flap
//! cost.
//!
//! The objects are stored in etcd, with the statuses that they would have: creating them one by one
//! would take an hour, and kwok would play each pod. The placeholders of the runs, the pools of jobs
//! and the statuses are made by the controller, which finds a cluster that it has never seen.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use stowplan::testing::systems::coschedule::keys::PLACEHOLDER;
use testbed::control_plane::{ControlPlane, Installation, NodeSpec, Options};
use testbed::http;
use testbed::proxy::{Call, Proxy};
use testbed::wait::{Seen, until};
use testbed::{tekton, workload};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::objects::{self, Extent, NAMESPACES, World, ZONES, node_name};
use crate::plane::{self, CONTROLLER, at_once, leading};
use crate::process::{memory_of, processor_time};
use crate::table::{Table, count, ratio};

/// The most objects that are stored at once.
const STORED_AT_ONCE: usize = 100;

/// How long nothing is written until the controller counts as having settled.
const QUIET: Duration = Duration::from_secs(10);

/// How long the controller may take to settle, beside the time for each write that is to be expected.
const LIMIT: Duration = Duration::from_secs(300);
const LIMIT_OF_WRITE: Duration = Duration::from_millis(100);

/// How many nodes become NotReady in a second while nodes flap. Each is Ready again at once.
const FLAPS_A_SECOND: u32 = 10;

const PLANS: &str = "stowplan_controller_plan_duration_seconds";

/// The metric that counts the controller's writes.
const WRITES: &str = "stowplan_controller_writes_total";

/// Measures both sizes, each on a control plane of its own, and prints them beside each other.
pub(crate) async fn measure(extent: Extent, rest: Duration) -> anyhow::Result<()> {
    let mut figures = Vec::new();
    for extent in [extent.divided_by(10), extent] {
        let nodes = NodeSpec::numbered(u16::try_from(extent.nodes)?);
        let zones = nodes.into_iter().zip(ZONES.iter().cycle());
        let nodes = zones.map(|(node, zone)| node.zone(zone)).collect();
        tell(&format!("a control plane of {} nodes", extent.nodes));
        let began = Instant::now();
        let plane = ControlPlane::start(Options { nodes, ..Options::default() }).await?;
        let mut of_size = Figures::default();
        of_size.add("control plane with all nodes Ready, s", began.elapsed().as_secs_f64(), tenths);
        let measured = measure_on(&plane, extent, rest, &mut of_size).await;
        plane::stop(plane, measured.is_err()).await;
        measured?;
        figures.push((extent, of_size));
    }
    print(&figures);
    Ok(())
}

/// How a figure is shown.
type Shown = fn(f64) -> String;

/// Figures with how they are shown, in order.
#[derive(Default)]
struct Figures(Vec<(String, f64, Shown)>);

impl Figures {
    fn add(&mut self, label: &str, value: f64, shown: Shown) {
        tell(&format!("{label}: {}", shown(value)));
        self.0.push((label.to_owned(), value, shown));
    }
}

fn print(figures: &[(Extent, Figures)]) {
    let title = |extent: &Extent| {
        let Extent { nodes, pods, runs, jobs } = *extent;
        let [nodes, pods, runs, jobs] = [nodes, pods, runs, jobs].map(|n| count(n as f64));
        format!("{nodes} nodes, {pods} pods, {runs} runs, {jobs} jobs")
    };
    let [(tenth, of_tenth), (all, of_all)] = figures else { return };
    let mut table = Table::new(&["what", &title(tenth), &title(all), "ratio"]);
    for ((label, small, shown), (_, large, _)) in of_tenth.0.iter().zip(&of_all.0) {
        let growth = if *small > 0.0 { ratio(large / small) } else { "-".to_owned() };
        table.row([label.clone(), shown(*small), shown(*large), growth]);
    }
    table.print("A large cluster, and a tenth of it");
}

async fn measure_on(
    plane: &ControlPlane,
    extent: Extent,
    rest: Duration,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let client = plane.client().await?;
    // First: the controller looks for new definitions only from time to time.
    tekton::install(&client).await?;
    let mut installation = plane.install(plane::install()).await?;
    let proxy = plane.proxy().await?;
    for namespace in NAMESPACES {
        workload::namespace(&client, namespace).await?;
    }
    let class: StorageClass = serde_json::from_value(objects::class())?;
    Api::<StorageClass>::all(client.clone()).create(&PostParams::default(), &class).await?;
    let began = Instant::now();
    let last = store(plane, extent).await?;
    figures.add("storing the objects, s", began.elapsed().as_secs_f64(), tenths);
    known_to_the_scheduler(&client, &last).await?;

    settle(plane, &mut installation, &proxy, extent, figures).await?;
    placed(&client, &proxy, extent, figures).await?;
    restart(plane, &mut installation, figures).await?;
    drop(proxy);
    let watch = Watch { plane, client, installation: &installation };
    watch
        .spend("at rest", rest, figures, async || {
            sleep(rest).await;
            Ok(())
        })
        .await?;
    figures.add("nodes that became NotReady until here", watch.lost().await? as f64, count);
    watch.spend("flapping", rest, figures, async || watch.flap(extent, rest).await).await?;
    sleep(QUIET).await;
    figures.add("nodes NotReady some seconds later", watch.not_ready().await? as f64, count);
    for (label, process) in [
        ("webhook", installation.webhook_process()?),
        ("controller", installation.controller_process(CONTROLLER)?),
    ] {
        let process = process.to_string();
        let memory =
            |field| Ok::<_, anyhow::Error>(memory_of(&process, field)? / f64::from(1 << 20));
        figures.add(&format!("{label}: resident after that, MiB"), memory("VmRSS")?, tenths);
        figures.add(&format!("{label}: most resident, MiB"), memory("VmHWM")?, tenths);
    }
    Ok(())
}

/// Stores all objects, past admission. Returns a pod of the last run.
async fn store(plane: &ControlPlane, extent: Extent) -> anyhow::Result<Value> {
    let mut world = World::new(extent)?;
    let mut batch: Vec<Value> = Vec::new();
    let mut stored = 0;
    let numbers = (0..extent.runs).map(Some).chain([None]);
    let mut flush = async |batch: &mut Vec<Value>, all: bool| {
        while batch.len() >= STORED_AT_ONCE || (all && !batch.is_empty()) {
            let some: Vec<Value> = batch.drain(..batch.len().min(STORED_AT_ONCE)).collect();
            plane.store_each(&some).await?;
            let before = stored / 10_000;
            stored += some.len();
            if stored / 10_000 > before {
                tell(&format!("{stored} objects are stored"));
            }
        }
        anyhow::Ok(())
    };
    let mut last = Value::Null;
    for number in numbers.flatten() {
        let run = world.run(number)?;
        last = run.iter().rfind(|object| object["kind"] == "Pod").cloned().unwrap_or(last);
        batch.extend(run);
        flush(&mut batch, false).await?;
    }
    for number in 0..extent.jobs {
        batch.extend(world.job(number)?);
        flush(&mut batch, false).await?;
    }
    for number in 0..extent.others() {
        batch.push(world.other(number)?);
        flush(&mut batch, false).await?;
    }
    flush(&mut batch, true).await?;
    plane.check()?;
    Ok(last)
}

/// Waits until the scheduler knows the stored objects: it would give placeholders nodes without their
/// members, and leave those whose claims it does not know unplaced for minutes. A trial pod mounts the
/// claims of the last run, and must be beside its pods.
async fn known_to_the_scheduler(client: &Client, last: &Value) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACES[0]);
    let mut number = 0;
    until("the scheduler to know the last run", LIMIT, async || {
        number += 1;
        let name = format!("trial-{number}");
        let beside = json!([{
            "labelSelector": {"matchLabels": last["metadata"]["labels"]},
            "topologyKey": "kubernetes.io/hostname",
        }]);
        let trial = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "trial", "image": "trial"}],
                "volumes": last["spec"]["volumes"],
                "affinity": {
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": beside},
                },
            },
        }))?;
        pods.create(&PostParams::default(), &trial).await?;
        sleep(Duration::from_secs(2)).await;
        let node = pods.get(&name).await?.spec.and_then(|spec| spec.node_name);
        pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
        // One that has failed once waits for minutes, so each attempt is another pod.
        Ok(match node {
            Some(_) => Seen::Done(()),
            None => Seen::NotYet(format!("{number} trial pods have no node")),
        })
    })
    .await
}

/// Starts the controller behind the proxy, and waits until nothing is left to write.
async fn settle(
    plane: &ControlPlane,
    installation: &mut Installation,
    proxy: &Proxy,
    extent: Extent,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let began = Instant::now();
    installation.start_controller_through(CONTROLLER, proxy).await?;
    leading(installation).await?;
    let expected = u32::try_from(extent.runs + 4 * extent.jobs)?;
    let limit = LIMIT + LIMIT_OF_WRITE * expected;
    let (mut last, mut since, mut said) = (0, Instant::now(), Instant::now());
    until("the controller to settle", limit, async || {
        plane.check()?;
        let writes = proxy.writes();
        if writes != last {
            (last, since) = (writes, Instant::now());
        }
        let left = plane::metric(installation, "stowplan_controller_actions").await?;
        if said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            tell(&format!("{writes} writes, {left} are left"));
        }
        // An action that is repeated in vain would be left for ever: it shows in the table.
        Ok(match since.elapsed() > QUIET {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{writes} writes, {left} are left")),
        })
    })
    .await?;
    let took = began.elapsed().saturating_sub(QUIET);
    figures.add(
        "first start of the controller until nothing is left, s",
        took.as_secs_f64(),
        tenths,
    );
    figures.add("… writes to objects", proxy.writes() as f64, count);
    let mut kinds: BTreeMap<String, f64> = BTreeMap::new();
    for call in proxy.calls().iter().filter(|call| is_counted(call)) {
        *kinds.entry(kind_of(call)).or_default() += 1.0;
    }
    for kind in [
        "POST statefulsets",
        "POST hostpools",
        "PATCH streamsjobs",
        "PATCH hostpools",
        "PATCH nodes",
    ] {
        let number = kinds.remove(kind).unwrap_or_default();
        figures.add(&format!("… … {kind}"), number, count);
    }
    figures.add("… … others", kinds.values().fold(0.0_f64, |sum, number| sum + number), count);
    for (kind, number) in kinds {
        tell(&format!("others: {number} {kind}"));
    }
    let left = plane::metric(installation, "stowplan_controller_actions").await?;
    figures.add("… writes that are left", left, count);
    let (plans, seconds) = planned(installation).await?;
    figures.add("… plans", plans, count);
    figures.add("… ms a plan", seconds * 1e3 / plans.max(1.0), tenths);
    Ok(())
}

/// Waits until all placeholders have nodes and nothing was written for a while: what is written after a
/// restart then needs another cause.
async fn placed(
    client: &Client,
    proxy: &Proxy,
    extent: Extent,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::all(client.clone());
    let placeholders = ListParams::default().labels(PLACEHOLDER);
    let before = proxy.writes();
    let (mut last, mut since) = (before, Instant::now());
    until("all placeholders to be placed", 2 * LIMIT, async || {
        sleep(Duration::from_secs(2)).await;
        let unplaced = placeholders.clone().fields("spec.nodeName=");
        let all = pods.list_metadata(&placeholders).await?.items.len();
        let unplaced = pods.list_metadata(&unplaced).await?.items.len();
        let writes = proxy.writes();
        if writes != last || all < extent.runs || unplaced > 0 {
            (last, since) = (writes, Instant::now());
        }
        Ok(match since.elapsed() > QUIET {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{all} exist, {unplaced} have no node, {writes} writes")),
        })
    })
    .await?;
    let moves = (proxy.writes() - before) as f64;
    figures.add("… writes until all placeholders have nodes", moves, count);
    Ok(())
}

fn is_counted(call: &Call) -> bool {
    call.is_write_to_object()
}

/// The method and the plural name of the kind.
fn kind_of(call: &Call) -> String {
    let mut words = call.path.split('/').skip_while(|word| *word != "namespaces").skip(2);
    let plural = words
        .next()
        .map_or_else(|| call.path.split('/').nth(3).unwrap_or_default().to_owned(), str::to_owned);
    format!("{} {plural}", call.method)
}

/// Starts both processes anew beside all objects.
async fn restart(
    plane: &ControlPlane,
    installation: &mut Installation,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    installation.stop_webhook().await?;
    let began = Instant::now();
    installation.start_webhook().await?;
    figures.add("webhook: from its start until ready, s", began.elapsed().as_secs_f64(), ratio);
    installation.stop_controller(CONTROLLER).await?;
    let began = Instant::now();
    // Not through the proxy: TLS is in its memory.
    installation.start_controller(CONTROLLER).await?;
    figures.add("controller: from its start until ready, s", began.elapsed().as_secs_f64(), ratio);
    leading(installation).await?;
    figures.add(
        "controller: from its start until it leads, s",
        began.elapsed().as_secs_f64(),
        ratio,
    );
    sleep(QUIET).await;
    plane.check()?;
    let written = metric_sum(installation, WRITES).await?;
    figures.add("controller: writes after that", written, count);
    tell_writes(installation).await?;
    for (label, process) in [
        ("webhook", installation.webhook_process()?),
        ("controller", installation.controller_process(CONTROLLER)?),
    ] {
        let process = process.to_string();
        let resident = memory_of(&process, "VmRSS")? / f64::from(1 << 20);
        figures.add(&format!("{label}: resident after its start, MiB"), resident, tenths);
    }
    Ok(())
}

/// What the processes do while something else happens.
struct Watch<'w> {
    plane: &'w ControlPlane,
    client: Client,
    installation: &'w Installation,
}

impl Watch<'_> {
    /// The processor time and the plans while `act` goes on.
    async fn spend(
        &self,
        label: &str,
        time: Duration,
        figures: &mut Figures,
        act: impl AsyncFnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let webhook = self.installation.webhook_process()?.to_string();
        let controller = self.installation.controller_process(CONTROLLER)?.to_string();
        let before = (processor_time(&webhook)?, processor_time(&controller)?);
        let (plans, seconds) = planned(self.installation).await?;
        let written = metric_sum(self.installation, WRITES).await?;
        act().await?;
        self.plane.check()?;
        let after = (processor_time(&webhook)?, processor_time(&controller)?);
        let (plans_now, seconds_now) = planned(self.installation).await?;
        let writes = metric_sum(self.installation, WRITES).await?;
        let label = format!("{label}, {} s", time.as_secs());
        let plans = plans_now - plans;
        figures.add(
            &format!("{label}: processor time of the webhook, s"),
            after.0 - before.0,
            ratio,
        );
        figures.add(&format!("{label}: … of the controller, s"), after.1 - before.1, ratio);
        figures.add(&format!("{label}: plans"), plans, count);
        let a_plan = (seconds_now - seconds) * 1e3 / plans.max(1.0);
        figures.add(&format!("{label}: ms a plan"), a_plan, tenths);
        figures.add(&format!("{label}: writes"), writes - written, count);
        tell_writes(self.installation).await
    }

    /// Makes nodes NotReady one after the other; kwok makes each Ready again.
    async fn flap(&self, extent: Extent, time: Duration) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut node, ends) = (0, Instant::now() + time);
        while Instant::now() < ends {
            ticks.tick().await;
            let some = (0..FLAPS_A_SECOND).map(|_| {
                node = (node + 1) % extent.nodes;
                node_name(node)
            });
            let not_ready = |name: String| {
                let nodes = nodes.clone();
                async move {
                    let status = json!({"status": {"conditions": [{
                        "type": "Ready", "status": "False", "reason": "KubeletNotReady",
                        "message": "it flaps",
                    }]}});
                    let patch = Patch::Strategic(status);
                    nodes.patch_status(&name, &PatchParams::default(), &patch).await?;
                    anyhow::Ok(())
                }
            };
            let some: Vec<String> = some.collect();
            at_once(some.into_iter().map(not_ready)).await?;
        }
        Ok(())
    }

    /// How often a node has become NotReady, as the controller manager tells in events.
    async fn lost(&self) -> anyhow::Result<usize> {
        let events: Api<Event> = Api::all(self.client.clone());
        let lost = ListParams::default().fields("reason=NodeNotReady");
        let events = events.list(&lost).await?.items.into_iter();
        Ok(events.map(|event| event.count.unwrap_or(1)).sum::<i32>().try_into()?)
    }

    async fn not_ready(&self) -> anyhow::Result<usize> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let is_ready = |node: &Node| {
            let conditions =
                node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|of| of.type_ == "Ready" && of.status == "True")
        };
        let all = nodes.list(&ListParams::default()).await?;
        ensure!(!all.items.is_empty(), "no nodes");
        Ok(all.items.iter().filter(|node| !is_ready(node)).count())
    }
}

/// The plans of the running controller, and their seconds.
async fn planned(installation: &Installation) -> anyhow::Result<(f64, f64)> {
    let plans = plane::metric(installation, &format!("{PLANS}_count")).await?;
    Ok((plans, plane::metric(installation, &format!("{PLANS}_sum")).await?))
}

/// A metric of the controller, over all of its labels.
async fn metric_sum(installation: &Installation, name: &str) -> anyhow::Result<f64> {
    let lines = metric_lines(installation, name).await?;
    let values = lines.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.fold(0.0_f64, |sum, value| sum + value))
}

/// The writes of the running controller by kind, verb and outcome: each should have a cause.
async fn tell_writes(installation: &Installation) -> anyhow::Result<()> {
    for line in metric_lines(installation, WRITES).await? {
        tell(&line);
    }
    Ok(())
}

async fn metric_lines(installation: &Installation, name: &str) -> anyhow::Result<Vec<String>> {
    let address = installation.controller_admin_address(CONTROLLER);
    let answer = http::get(address.context("it does not run")?, "/metrics").await?;
    let lines = answer.body.lines().filter(|line| line.starts_with(name));
    Ok(lines.map(str::to_owned).collect())
}

fn tell(line: &str) {
    eprintln!("scale: {line}");
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}
