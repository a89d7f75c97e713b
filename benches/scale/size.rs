//! A large cluster on a control plane, and a tenth of it: the memory of webhook and controller, how
//! long they take to start, what a plan takes, what the controller writes, and what nodes that flap
//! cost.
//!
//! The objects are stored in etcd, with the statuses that they would have: creating them one by one
//! would take an hour, and kwok would play each pod. The placeholders of the runs, the pools of jobs
//! and the statuses are made by the controller, which finds a cluster that it has never seen.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use stowplan::testing::systems::coschedule::keys::PLACEHOLDER;
use testbed::control_plane::{ControlPlane, Installation, Options};
use testbed::proxy::{Call, Proxy};
use testbed::wait::{Seen, until};
use testbed::{tekton, workload};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::objects::{self, Extent, NAMESPACES, State, World, ZONES, node_name};
use crate::plane::{self, CONTROLLER, at_once, leading, metric, metric_lines, planned};
use crate::process::{mebibytes, processor_time};
use crate::table::{Table, count, growth, ratio, tenths};

/// The most objects that are stored at once.
const STORED_AT_ONCE: usize = 100;

/// How long nothing is written until the controller counts as having settled.
const QUIET: Duration = Duration::from_secs(10);

/// How long the controller may take to settle, beside the time for each write that is to be expected.
const LIMIT: Duration = Duration::from_secs(300);
const LIMIT_OF_WRITE: Duration = Duration::from_millis(100);

/// How many nodes become NotReady in a second while nodes flap. Each is Ready again at once.
const FLAPS_A_SECOND: usize = 10;

/// The metric that counts the controller's writes.
const WRITES: &str = "stowplan_controller_writes_total";

/// Measures both sizes, each on a control plane of its own, and prints them beside each other.
pub(crate) async fn measure(extent: Extent, rest: Duration) -> anyhow::Result<()> {
    let mut figures = Vec::new();
    for extent in [extent.divided_by(10), extent] {
        let nodes = plane::zoned_nodes(u16::try_from(extent.nodes)?, ZONES);
        tell(&format!("a control plane of {} nodes", extent.nodes));
        let began = Instant::now();
        let mut of_size = Figures::default();
        plane::with_plane(Options { nodes, ..Options::default() }, async |plane| {
            of_size.took("control plane with all nodes Ready, s", began, tenths);
            measure_on(plane, extent, rest, &mut of_size).await
        })
        .await?;
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

    /// The seconds since then.
    fn took(&mut self, label: &str, began: Instant, shown: Shown) {
        self.add(label, began.elapsed().as_secs_f64(), shown);
    }

    /// A line of the kernel on the memory of webhook and controller.
    fn add_memory(
        &mut self,
        label: &str,
        field: &str,
        installation: &Installation,
    ) -> anyhow::Result<()> {
        for (of, process) in ["webhook", "controller"].into_iter().zip(processes(installation)?) {
            self.add(&format!("{of}: {label}, MiB"), mebibytes(process, field)?, tenths);
        }
        Ok(())
    }
}

fn print(figures: &[(Extent, Figures)]) {
    let title = |extent: &Extent| {
        let Extent { nodes, pods, runs, jobs } = *extent;
        let [nodes, pods, runs, jobs] = [nodes, pods, runs, jobs].map(|n| count(n as f64));
        format!("{nodes} nodes, {pods} pods, {runs} runs, {jobs} jobs")
    };
    let [(tenth, of_tenth), (all, of_all)] = figures else { return };
    let mut table = Table::new(&format!("what | {} | {} | ratio", title(tenth), title(all)));
    for ((label, small, shown), (_, large, _)) in of_tenth.0.iter().zip(&of_all.0) {
        table.row(label, [shown(*small), shown(*large), growth(*small, *large)]);
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
    figures.took("storing the objects, s", began, tenths);
    known_to_the_scheduler(&client, &last).await?;

    settle(plane, &mut installation, &proxy, extent, figures).await?;
    placed(&client, &proxy, extent, figures).await?;
    restart(plane, &mut installation, figures).await?;
    drop(proxy);
    let watch = Watch { plane, client, installation: &installation };
    let act = async || {
        sleep(rest).await;
        Ok(())
    };
    watch.spend("at rest", rest, figures, act).await?;
    figures.add("nodes that became NotReady until here", watch.lost().await? as f64, count);
    watch.spend("flapping", rest, figures, async || watch.flap(extent, rest).await).await?;
    sleep(QUIET).await;
    figures.add("nodes NotReady some seconds later", watch.not_ready().await? as f64, count);
    figures.add_memory("resident after that", "VmRSS", &installation)?;
    figures.add_memory("most resident", "VmHWM", &installation)
}

/// Webhook and controller.
fn processes(installation: &Installation) -> anyhow::Result<[u32; 2]> {
    Ok([installation.webhook_process()?, installation.controller_process(CONTROLLER)?])
}

/// Stores all objects, past admission. Returns a pod of the last run.
async fn store(plane: &ControlPlane, extent: Extent) -> anyhow::Result<Value> {
    let mut world = World::new(State::Steady, extent)?;
    let mut stored = 0;
    let mut batch: Vec<Value> = Vec::new();
    let mut last = Value::Null;
    let all = extent.runs + extent.jobs + extent.others();
    for number in 0..all {
        let of_jobs = number.saturating_sub(extent.runs);
        if number < extent.runs {
            let run = world.run(number)?;
            last = run.iter().rfind(|object| object["kind"] == "Pod").cloned().unwrap_or(last);
            batch.extend(run);
        } else if of_jobs < extent.jobs {
            batch.extend(world.job(of_jobs)?);
        } else {
            batch.push(world.other(of_jobs - extent.jobs)?);
        }
        if batch.len() < STORED_AT_ONCE && number + 1 < all {
            continue;
        }
        for some in batch.chunks(STORED_AT_ONCE) {
            plane.store_each(some).await?;
        }
        let before = stored / 10_000;
        stored += batch.len();
        if stored / 10_000 > before {
            tell(&format!("{stored} objects are stored"));
        }
        batch.clear();
    }
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
    // An action that is repeated in vain would be left for ever: it shows in the table.
    silence("the controller to settle", limit, proxy, async || {
        plane.check()?;
        let left = metric(installation, "stowplan_controller_actions").await?;
        Ok((true, format!("{left} are left")))
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
    for call in proxy.calls().iter().filter(|call| call.is_write_to_object()) {
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
    figures.add("… … others", kinds.values().fold(0.0, |sum, number| sum + number), count);
    for (kind, number) in kinds {
        tell(&format!("others: {number} {kind}"));
    }
    let left = metric(installation, "stowplan_controller_actions").await?;
    figures.add("… writes that are left", left, count);
    let (plans, seconds) = planned(installation).await?;
    figures.add("… plans", plans, count);
    figures.add("… ms a plan", seconds * 1e3 / plans.max(1.0), tenths);
    Ok(())
}

/// Waits until `look` has found that all is done, and nothing was written, for a while.
async fn silence(
    what: &str,
    limit: Duration,
    proxy: &Proxy,
    mut look: impl AsyncFnMut() -> anyhow::Result<(bool, String)>,
) -> anyhow::Result<()> {
    let (mut last, mut since, mut said) = (0, Instant::now(), Instant::now());
    until(what, limit, async || {
        let (is_done, found) = look().await?;
        let writes = proxy.writes();
        if writes != last || !is_done {
            (last, since) = (writes, Instant::now());
        }
        let found = format!("{writes} writes, {found}");
        if said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            tell(&found);
        }
        Ok(if since.elapsed() > QUIET { Seen::Done(()) } else { Seen::NotYet(found) })
    })
    .await
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
    silence("all placeholders to be placed", 2 * LIMIT, proxy, async || {
        sleep(Duration::from_secs(2)).await;
        let unplaced = placeholders.clone().fields("spec.nodeName=");
        let all = pods.list_metadata(&placeholders).await?.items.len();
        let unplaced = pods.list_metadata(&unplaced).await?.items.len();
        let is_done = all >= extent.runs && unplaced == 0;
        Ok((is_done, format!("{all} exist, {unplaced} have no node")))
    })
    .await?;
    let moves = (proxy.writes() - before) as f64;
    figures.add("… writes until all placeholders have nodes", moves, count);
    Ok(())
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
    figures.took("webhook: from its start until ready, s", began, ratio);
    installation.stop_controller(CONTROLLER).await?;
    let began = Instant::now();
    // Not through the proxy: TLS is in its memory.
    installation.start_controller(CONTROLLER).await?;
    figures.took("controller: from its start until ready, s", began, ratio);
    leading(installation).await?;
    figures.took("controller: from its start until it leads, s", began, ratio);
    sleep(QUIET).await;
    plane.check()?;
    figures.add("controller: writes after that", written(installation).await?, count);
    figures.add_memory("resident after its start", "VmRSS", installation)
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
        let before = self.spent().await?;
        act().await?;
        self.plane.check()?;
        let after = self.spent().await?;
        let [webhook, controller, plans, seconds, writes] =
            std::array::from_fn(|index| after[index] - before[index]);
        let label = format!("{label}, {} s", time.as_secs());
        figures.add(&format!("{label}: processor time of the webhook, s"), webhook, ratio);
        figures.add(&format!("{label}: … of the controller, s"), controller, ratio);
        figures.add(&format!("{label}: plans"), plans, count);
        figures.add(&format!("{label}: ms a plan"), seconds * 1e3 / plans.max(1.0), tenths);
        figures.add(&format!("{label}: writes"), writes, count);
        Ok(())
    }

    /// Until now: the processor time of webhook and controller, plans, their seconds, and writes.
    async fn spent(&self) -> anyhow::Result<[f64; 5]> {
        let [webhook, controller] = processes(self.installation)?.map(processor_time);
        let (plans, seconds) = planned(self.installation).await?;
        Ok([webhook?, controller?, plans, seconds, written(self.installation).await?])
    }

    /// Makes nodes NotReady one after the other; kwok makes each Ready again.
    async fn flap(&self, extent: Extent, time: Duration) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut node, ends) = (0, Instant::now() + time);
        while Instant::now() < ends {
            ticks.tick().await;
            let not_ready = async |number: usize| {
                let status = json!({"status": {"conditions": [{
                    "type": "Ready", "status": "False", "reason": "KubeletNotReady",
                    "message": "it flaps",
                }]}});
                let (name, patch) = (node_name(number % extent.nodes), Patch::Strategic(status));
                nodes.patch_status(&name, &PatchParams::default(), &patch).await?;
                anyhow::Ok(())
            };
            at_once((node + 1..=node + FLAPS_A_SECOND).map(not_ready)).await?;
            node += FLAPS_A_SECOND;
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

/// The writes of the running controller, which are also shown by kind, verb and outcome: each should
/// have a cause.
async fn written(installation: &Installation) -> anyhow::Result<f64> {
    let lines = metric_lines(installation, WRITES).await?;
    lines.iter().for_each(|line| tell(line));
    Ok(plane::sum(&lines))
}

fn tell(line: &str) {
    eprintln!("scale: {line}");
}
