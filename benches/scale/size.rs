//! A large cluster on a control plane, and a tenth of it: the memory of webhook and controller, how
//! long they take to start, what a plan takes, what the controller writes, and what nodes that flap
//! cost.
//!
//! The objects are stored in etcd, with the statuses that they would have: creating them one by one
//! would take an hour, and kwok would play each pod. The placeholders of the runs, the pools of jobs
//! and the statuses are made by the controller, which finds a cluster that it has never seen.

use std::array;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use stowplan_core::systems::coschedule::keys::PLACEHOLDER;
use testbed::control_plane::Options;
use testbed::proxy::Call;
use testbed::wait::{Seen, until};
use testbed::{tekton, workload};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::objects::{self, Extent, NAMESPACES, State, World, node_name};
use crate::plane::{self, CONTROLLER, Cluster, LIMIT, at_once};
use crate::process::{mebibytes, processor_time};
use crate::table::{Table, count, growth, ratio, tenths};

/// The most objects that are stored at once.
const STORED_AT_ONCE: usize = 100;

/// How long nothing is written until the controller counts as having settled.
const QUIET: Duration = Duration::from_secs(10);

/// How long the controller may take for each write that is to be expected, beside [`LIMIT`].
const LIMIT_OF_WRITE: Duration = Duration::from_millis(100);

/// How many nodes become NotReady in a second while nodes flap. Each is Ready again at once.
const FLAPS_A_SECOND: usize = 10;

/// Measures both sizes, each on a control plane of its own, and prints them beside each other.
pub(crate) async fn measure(extent: Extent, rest: Duration) -> anyhow::Result<()> {
    let mut figures = Vec::new();
    for extent in [extent.divided_by(10), extent] {
        let nodes = plane::zoned_nodes(u16::try_from(extent.nodes)?);
        tell(&format!("a control plane of {} nodes", extent.nodes));
        let began = Instant::now();
        let measured = plane::with_plane(Options { nodes, ..Options::default() }, async |plane| {
            let created = began.elapsed();
            // First: the controller looks for new definitions only from time to time.
            tekton::install(&plane.client().await?).await?;
            let cluster = Cluster::new(plane, plane::install()).await?;
            let mut bench = Bench { cluster, extent, figures: Vec::new() };
            bench.took("control plane with all nodes Ready, s", created, tenths);
            bench.measure(rest).await?;
            Ok(bench.figures)
        });
        figures.push((extent, measured.await?));
    }
    let titles = figures.iter().map(|(Extent { nodes, pods, runs, jobs }, _)| {
        let [nodes, pods, runs, jobs] = [nodes, pods, runs, jobs].map(|n| count(*n as f64));
        format!("{nodes} nodes, {pods} pods, {runs} runs, {jobs} jobs")
    });
    let titles = titles.collect::<Vec<_>>().join(" | ");
    let mut table = Table::new(&format!("what | {titles} | ratio"));
    for ((label, small, shown), (_, large, _)) in figures[0].1.iter().zip(&figures[1].1) {
        table.row(label, [shown(*small), shown(*large), growth(*small, *large)]);
    }
    table.print("A large cluster, and a tenth of it");
    Ok(())
}

/// A figure: its label, its value, and how it is shown.
type Figure = (String, f64, fn(f64) -> String);

/// A control plane with stowplan, and the figures measured on it.
struct Bench<'p> {
    cluster: Cluster<'p>,
    extent: Extent,
    figures: Vec<Figure>,
}

impl Bench<'_> {
    fn add(&mut self, label: &str, value: f64, shown: fn(f64) -> String) {
        tell(&format!("{label}: {}", shown(value)));
        self.figures.push((label.to_owned(), value, shown));
    }

    fn took(&mut self, label: &str, time: Duration, shown: fn(f64) -> String) {
        self.add(label, time.as_secs_f64(), shown);
    }

    /// Adds a line of the kernel on the memory of webhook and controller.
    fn add_memory(&mut self, label: &str, field: &str) -> anyhow::Result<()> {
        for (of, process) in ["webhook", "controller"].into_iter().zip(self.processes()?) {
            self.add(&format!("{of}: {label}, MiB"), mebibytes(process, field)?, tenths);
        }
        Ok(())
    }

    /// Webhook and controller.
    fn processes(&self) -> anyhow::Result<[u32; 2]> {
        let installation = &self.cluster.installation;
        Ok([installation.webhook_process()?, installation.controller_process(CONTROLLER)?])
    }

    async fn measure(&mut self, rest: Duration) -> anyhow::Result<()> {
        let client = &self.cluster.client;
        for namespace in NAMESPACES {
            workload::namespace(client, namespace).await?;
        }
        let class: StorageClass = serde_json::from_value(objects::class())?;
        Api::<StorageClass>::all(client.clone()).create(&PostParams::default(), &class).await?;
        let began = Instant::now();
        let last = self.store().await?;
        self.took("storing the objects, s", began.elapsed(), tenths);
        self.known_to_the_scheduler(&last).await?;

        self.settle().await?;
        self.until_placed().await?;
        self.restart().await?;
        let seconds = rest.as_secs();
        let before = self.spent().await?;
        sleep(rest).await;
        self.add_spent(&format!("at rest, {seconds} s"), before).await?;
        let lost = self.count_lost_nodes().await?;
        self.add("nodes that became NotReady until here", lost as f64, count);
        let before = self.spent().await?;
        self.flap(rest).await?;
        self.add_spent(&format!("flapping, {seconds} s"), before).await?;
        sleep(QUIET).await;
        let not_ready = self.count_nodes_not_ready().await?;
        self.add("nodes NotReady some seconds later", not_ready as f64, count);
        self.add_memory("resident after that", "VmRSS")?;
        self.add_memory("most resident", "VmHWM")
    }

    /// Stores all objects, past admission. Returns a pod of the last run.
    async fn store(&self) -> anyhow::Result<Value> {
        let mut world = World::new(State::Steady, self.extent)?;
        let mut last = Value::Null;
        let mut batch: Vec<Value> = Vec::new();
        let all = self.extent.items();
        for number in 0..all {
            batch.extend(world.add(number)?);
            if number + 1 == self.extent.runs {
                last = batch.last().cloned().unwrap_or_default();
            }
            if batch.len() >= STORED_AT_ONCE || number + 1 == all {
                self.cluster.plane.store_each(&batch).await?;
                batch.clear();
            }
            if number % 5_000 == 4_999 {
                tell(&format!("{} of {all} runs, jobs and other pods are stored", number + 1));
            }
        }
        self.cluster.plane.check()?;
        Ok(last)
    }

    /// Waits until the scheduler knows the stored objects: it would give placeholders nodes without their
    /// members, and leave those whose claims it does not know unplaced for minutes. A trial pod mounts the
    /// claims of the last run, and must be beside its pods.
    async fn known_to_the_scheduler(&self, last: &Value) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), NAMESPACES[0]);
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
            Ok(Seen::when(node.is_some(), || format!("{number} trial pods have no node")))
        })
        .await
    }

    /// Starts the controller behind the proxy, and waits until nothing is left to write.
    async fn settle(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        self.cluster.start_controller().await?;
        let expected = u32::try_from(self.extent.runs + 4 * self.extent.jobs)?;
        // An action that is repeated in vain would be left for ever: it shows in the table.
        self.silence("the controller to settle", LIMIT + LIMIT_OF_WRITE * expected, async || {
            self.cluster.plane.check()?;
            let left = self.cluster.metric("stowplan_controller_actions").await?;
            Ok((true, format!("{left} are left")))
        })
        .await?;
        let took = began.elapsed().saturating_sub(QUIET);
        self.took("first start of the controller until nothing is left, s", took, tenths);
        self.add("… writes to objects", self.cluster.proxy.writes() as f64, count);
        let mut kinds: BTreeMap<String, f64> = BTreeMap::new();
        for call in self.cluster.proxy.calls().iter().filter(|call| call.is_write_to_object()) {
            *kinds.entry(kind_of(call)).or_default() += 1.0;
        }
        for kind in [
            "POST statefulsets",
            "POST hostpools",
            "PATCH streamsjobs",
            "PATCH hostpools",
            "PATCH nodes",
        ] {
            self.add(&format!("… … {kind}"), kinds.remove(kind).unwrap_or_default(), count);
        }
        self.add("… … others", kinds.values().fold(0.0, |sum, number| sum + number), count);
        for (kind, number) in kinds {
            tell(&format!("others: {number} {kind}"));
        }
        let left = self.cluster.metric("stowplan_controller_actions").await?;
        self.add("… writes that are left", left, count);
        let [plans, seconds] = self.cluster.planned().await?;
        self.add("… plans", plans, count);
        self.add("… ms a plan", seconds * 1e3 / plans.max(1.0), tenths);
        Ok(())
    }

    /// Waits until `look` has found that all is done, and nothing was written, for a while.
    async fn silence(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl AsyncFnMut() -> anyhow::Result<(bool, String)>,
    ) -> anyhow::Result<()> {
        let (mut last, mut since, mut said) = (0, Instant::now(), Instant::now());
        until(what, limit, async || {
            let (is_done, found) = look().await?;
            let writes = self.cluster.proxy.writes();
            if writes != last || !is_done {
                (last, since) = (writes, Instant::now());
            }
            let found = format!("{writes} writes, {found}");
            if said.elapsed() > Duration::from_secs(10) {
                said = Instant::now();
                tell(&found);
            }
            Ok(Seen::when(since.elapsed() > QUIET, || found))
        })
        .await
    }

    /// Waits until all placeholders have nodes and nothing was written for a while: what is written
    /// after a restart then needs another cause.
    async fn until_placed(&mut self) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::all(self.cluster.client.clone());
        let placeholders = ListParams::default().labels(PLACEHOLDER);
        let unplaced = placeholders.clone().fields("spec.nodeName=");
        let before = self.cluster.proxy.writes();
        self.silence("all placeholders to be placed", 2 * LIMIT, async || {
            sleep(Duration::from_secs(2)).await;
            let all = pods.list_metadata(&placeholders).await?.items.len();
            let unplaced = pods.list_metadata(&unplaced).await?.items.len();
            let is_done = all >= self.extent.runs && unplaced == 0;
            Ok((is_done, format!("{all} exist, {unplaced} have no node")))
        })
        .await?;
        let moves = (self.cluster.proxy.writes() - before) as f64;
        self.add("… writes until all placeholders have nodes", moves, count);
        Ok(())
    }

    /// Starts both processes anew beside all objects.
    async fn restart(&mut self) -> anyhow::Result<()> {
        self.cluster.installation.stop_webhook().await?;
        let began = Instant::now();
        self.cluster.installation.start_webhook().await?;
        self.took("webhook: from its start until ready, s", began.elapsed(), ratio);
        self.cluster.installation.stop_controller(CONTROLLER).await?;
        let began = Instant::now();
        // Not through the proxy: TLS is in its memory.
        self.cluster.installation.start_controller(CONTROLLER).await?;
        self.took("controller: from its start until ready, s", began.elapsed(), ratio);
        self.cluster.leading().await?;
        self.took("controller: from its start until it leads, s", began.elapsed(), ratio);
        sleep(QUIET).await;
        self.cluster.plane.check()?;
        let written = self.count_writes().await?;
        self.add("controller: writes after that", written, count);
        self.add_memory("resident after its start", "VmRSS")
    }

    /// Until now: the processor time of webhook and controller, plans, their seconds, and writes.
    async fn spent(&self) -> anyhow::Result<[f64; 5]> {
        self.cluster.plane.check()?;
        let [webhook, controller] = self.processes()?.map(processor_time);
        let [plans, seconds] = self.cluster.planned().await?;
        Ok([webhook?, controller?, plans, seconds, self.count_writes().await?])
    }

    /// Adds what was spent since `before`.
    async fn add_spent(&mut self, label: &str, before: [f64; 5]) -> anyhow::Result<()> {
        let after = self.spent().await?;
        let [webhook, controller, plans, seconds, writes] =
            array::from_fn(|index| after[index] - before[index]);
        self.add(&format!("{label}: processor time of the webhook, s"), webhook, ratio);
        self.add(&format!("{label}: … of the controller, s"), controller, ratio);
        self.add(&format!("{label}: plans"), plans, count);
        self.add(&format!("{label}: ms a plan"), seconds * 1e3 / plans.max(1.0), tenths);
        self.add(&format!("{label}: writes"), writes, count);
        Ok(())
    }

    /// Makes nodes NotReady one after the other; kwok makes each Ready again.
    async fn flap(&self, time: Duration) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let status = Patch::Strategic(json!({"status": {"conditions": [{
            "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "it flaps",
        }]}}));
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut node, ends) = (0, Instant::now() + time);
        while Instant::now() < ends {
            ticks.tick().await;
            let not_ready = async |number: usize| {
                let name = node_name(number % self.extent.nodes);
                nodes.patch_status(&name, &PatchParams::default(), &status).await?;
                anyhow::Ok(())
            };
            at_once((node + 1..=node + FLAPS_A_SECOND).map(not_ready)).await?;
            node += FLAPS_A_SECOND;
        }
        Ok(())
    }

    /// How often a node has become NotReady, as the controller manager tells in events.
    async fn count_lost_nodes(&self) -> anyhow::Result<usize> {
        let events: Api<Event> = Api::all(self.cluster.client.clone());
        let lost = ListParams::default().fields("reason=NodeNotReady");
        let events = events.list(&lost).await?.items.into_iter();
        Ok(events.map(|event| event.count.unwrap_or(1)).sum::<i32>().try_into()?)
    }

    async fn count_nodes_not_ready(&self) -> anyhow::Result<usize> {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let all = nodes.list(&ListParams::default()).await?;
        ensure!(!all.items.is_empty(), "no nodes");
        let is_ready = |node: &&Node| {
            let mut conditions = node.status.iter().flat_map(|of| of.conditions.iter().flatten());
            conditions.any(|of| of.type_ == "Ready" && of.status == "True")
        };
        Ok(all.items.len() - all.items.iter().filter(is_ready).count())
    }

    /// The writes of the running controller, which are also shown by kind, verb and outcome: each
    /// should have a cause.
    async fn count_writes(&self) -> anyhow::Result<f64> {
        let series = self.cluster.series("stowplan_controller_writes_total").await?;
        series.iter().for_each(|line| tell(line));
        Ok(plane::sum(&series))
    }
}

/// The method and the plural name of the kind.
fn kind_of(call: &Call) -> String {
    let mut words = call.path.split('/').skip_while(|word| *word != "namespaces").skip(2);
    let plural = words.next().or_else(|| call.path.split('/').nth(3)).unwrap_or_default();
    format!("{} {plural}", call.method)
}

fn tell(line: &str) {
    eprintln!("scale: {line}");
}
