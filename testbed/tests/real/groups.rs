//! Random PipelineRuns on real nodes of three sizes, beside pods of others that fill what they can. No run is
//! stranded, none is on two nodes, and no claim is used on two.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams,
};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testbed::command;
use testbed::real::mpi_image::{Implementation, MpiImage};
use testbed::tekton::{self, Ended, Tekton};
use testbed::volumes::{Volumes, WAITING, ZONE};

use crate::mpi::World;

/// The environment variable for the number of runs, and how many there are without it.
const RUNS: (&str, usize) = ("STOWPLAN_REAL_RUNS", 16);

/// How many runs there are at a time, and how many pods of others.
const AT_ONCE: usize = 8;
const STRANGERS: usize = 8;

/// One run waits for pods of others, which end within seconds, and for seven other runs.
const LIMIT: Duration = Duration::from_secs(300);

const NAMESPACE: &str = "groups";
const STRANGER: &str = "stranger";

/// The values of `coschedule.reserve`; the last runs are without groups.
const ARMS: [Option<&str>; 4] = [Some("largest"), Some("place"), Some("peak"), None];

pub(crate) async fn runs_beside_others(world: Arc<World>) -> Result<()> {
    let World { plane, client, install } = &*world;
    let count = match std::env::var(RUNS.0) {
        Ok(count) => {
            count.parse().with_context(|| format!("{}={count:?}: not a number", RUNS.0))?
        }
        Err(_) => RUNS.1,
    };
    command::run(plane.kubectl().args(["create", "namespace", NAMESPACE]))?;
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items;
    let _volumes = Volumes::start(client).await?;
    let _tekton = Tekton::start(client).await?;
    for node in &nodes {
        plane.label(&node.name_any(), ZONE, Some("east")).await?;
    }
    let allocatable =
        |node: &Node| Some(millis(&node.status.as_ref()?.allocatable.as_ref()?.get("cpu")?.0));
    let sizes: Vec<u64> = nodes.iter().map(|node| allocatable(node).unwrap_or_default()).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for (index, (node, size)) in nodes.iter().zip(&sizes).enumerate() {
        let mut filler = pod(&format!("filler-{index}"), size * index as u64 / 4, "infinity");
        filler["spec"]["nodeName"] = json!(node.name_any());
        pods.create(&PostParams::default(), &serde_json::from_value(filler)?).await?;
    }
    let seed = fastrand::u64(..);
    eprintln!(
        "  {count} runs by the seed {seed}, on nodes of {sizes:?}m with 0, 1/4 and 2/4 of it used"
    );
    for arm in ARMS {
        if let Some(reserve) = arm {
            let install = install.clone().value("policy.coschedule.reserve", reserve);
            plane.upgrade_pods(&install).await?;
        }
        let record = Arc::new(Mutex::new(Record::new()));
        let observer = tokio::spawn(observe(pods.clone(), record.clone()));
        let strangers = tokio::spawn(strange(pods.clone(), Rng::with_seed(seed)));
        let begun = Instant::now();
        let mut random = Rng::with_seed(seed);
        let name = arm.unwrap_or("none");
        let runs =
            (0..count / ARMS.len()).map(|index| run(&format!("{name}-{index}"), arm, &mut random));
        let runs: Vec<_> = runs.collect();
        let ended = stream::iter(&runs).map(|run| ended(client, run));
        let all: Result<()> = ended.buffer_unordered(AT_ONCE).try_collect().await;
        let took = begun.elapsed();
        strangers.abort();
        observer.abort();
        all?;
        let moved = moves(client).await?;
        let record = record.lock().unwrap();
        ensure!(arm.is_none() || record.apart.is_empty(), "{name}: {:?}", record.apart);
        record.print(name, runs.len(), took, moved, sizes.iter().sum());
        ensure!(
            record.bound.len() >= runs.len() * 2,
            "only {} pods were bound",
            record.bound.len()
        );
    }
    command::run(plane.kubectl().args(["delete", "namespace", NAMESPACE, "--wait=false"]))?;
    plane.upgrade_pods(install).await
}

/// Creates a run, and waits until it has succeeded.
async fn ended(client: &Client, run: &Value) -> Result<()> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun"));
    let runs: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
    runs.create(&PostParams::default(), &serde_json::from_value(run.clone())?).await?;
    let name = run["metadata"]["name"].as_str().unwrap_or_default();
    let ended = tekton::ended(client, NAMESPACE, name, LIMIT).await?;
    ensure!(ended == Ended::Succeeded, "{name}: {ended:?}");
    Ok(())
}

/// Makes a run of two to four tasks, one after the other or two side by side, with one claim.
fn run(name: &str, arm: Option<&str>, random: &mut Rng) -> Value {
    let mut tasks: Vec<Value> = Vec::new();
    for index in 0..random.usize(2..=4) {
        let after = (index > 0).then(|| format!("t{}", random.usize(..index)));
        let seconds = format!("0.{}", random.u32(1..9));
        let container = container(random.u64(1..=8) * 50, &seconds);
        let step = json!({
            "name": "main", "image": container["image"], "command": container["command"],
            "computeResources": container["resources"],
        });
        tasks.push(json!({
            "name": format!("t{index}"), "runAfter": after.into_iter().collect::<Vec<_>>(),
            "workspaces": [{"name": "source"}],
            "taskSpec": {"workspaces": [{"name": "source"}], "steps": [step]},
        }));
    }
    let mode = if arm.is_some() { "workspaces" } else { "disabled" };
    let claim = json!({
        "storageClassName": WAITING, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    });
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": name, "annotations": {"stowplan.dev/coschedule": mode}},
        "spec": {
            "workspaces": [{"name": "source", "volumeClaimTemplate": {"spec": claim}}],
            "pipelineSpec": {"workspaces": [{"name": "source"}], "tasks": tasks},
        },
    })
}

fn container(cpu: u64, seconds: &str) -> Value {
    let image = MpiImage { implementation: Implementation::Mpich, user: false };
    json!({
        "name": "main", "image": image.reference(), "command": ["sleep", seconds],
        "resources": {"requests": {"cpu": format!("{cpu}m")}},
    })
}

/// Makes a pod of others.
fn pod(name: &str, cpu: u64, seconds: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {STRANGER: "true"}},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [container(cpu, seconds)],
        },
    })
}

/// Lets pods of others wait and run, always as many.
async fn strange(pods: Api<Pod>, mut random: Rng) -> Result<()> {
    let own = ListParams::default().labels(STRANGER);
    for round in 0.. {
        let there = pods.list(&own).await?.items;
        let have_ended = there.iter().filter(|pod| phase(pod) == "Succeeded");
        for pod in have_ended {
            pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
        }
        for index in there.len()..STRANGERS {
            let name = format!("{STRANGER}-{}-{round}-{index}", random.u32(..));
            let stranger = pod(&name, random.u64(1..=6) * 100, "3");
            pods.create(&PostParams::default(), &serde_json::from_value(stranger)?).await?;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn millis(cpu: &str) -> u64 {
    match cpu.strip_suffix('m') {
        Some(millis) => millis.parse().unwrap_or_default(),
        None => cpu.parse::<u64>().unwrap_or_default() * 1000,
    }
}

/// Returns how many placeholders have moved.
async fn moves(client: &Client) -> Result<usize> {
    let moved = ListParams::default().fields("reason=PlaceholderMoved");
    let events = Api::<Event>::namespaced(client.clone(), NAMESPACE).list(&moved).await?.items;
    Ok(events.iter().filter(|of| of.involved_object.kind.as_deref() == Some("PipelineRun")).count())
}

/// How a pod of a task waits for its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// As the first of its run: for a volume, and for the placeholder's node.
    First,
    /// Behind a gate.
    Gated,
    /// The scheduler has refused it.
    Refused,
    No,
}

/// The states of pods that an observer has seen.
struct Record {
    /// The pods that have a node and have not ended.
    live: BTreeMap<String, Pod>,
    /// When each pod of a task was seen first, and how it waited then.
    waiting: BTreeMap<String, (Instant, Waits)>,
    /// How each waited, and for how long it was without a node.
    bound: BTreeMap<String, (Waits, Duration)>,
    /// The runs that have had a pod.
    runs: BTreeSet<String>,
    /// Claims and runs on two nodes.
    apart: BTreeSet<String>,
    /// The requests of placeholders on nodes: thousandths of a core, times seconds.
    reserved: f64,
    since: Instant,
}

impl Record {
    fn new() -> Self {
        Self {
            live: BTreeMap::new(),
            waiting: BTreeMap::new(),
            bound: BTreeMap::new(),
            runs: BTreeSet::new(),
            apart: BTreeSet::new(),
            reserved: 0.0,
            since: Instant::now(),
        }
    }

    fn see(&mut self, name: &str, pod: Option<Pod>) {
        let elapsed = std::mem::replace(&mut self.since, Instant::now()).elapsed().as_secs_f64();
        let placeholders =
            self.live.values().filter(|of| of.labels().contains_key("stowplan.dev/placeholder"));
        self.reserved += placeholders.map(requested).sum::<f64>() * elapsed;
        let node = |pod: &Pod| pod.spec.as_ref()?.node_name.clone();
        let Some(pod) = pod.filter(|pod| !matches!(phase(pod), "Succeeded" | "Failed")) else {
            self.live.remove(name);
            return;
        };
        if pod.labels().contains_key("tekton.dev/taskRun") {
            let run = pod.labels().get("tekton.dev/pipelineRun").cloned().unwrap_or_default();
            let is_first = self.runs.insert(run);
            let first = if is_first { Waits::First } else { Waits::No };
            let (since, waits) =
                self.waiting.entry(name.to_owned()).or_insert_with(|| (Instant::now(), first));
            let conditions =
                pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            for reason in conditions.filter_map(|of| of.reason.as_deref()) {
                *waits = match (reason, *waits) {
                    ("Unschedulable", Waits::No | Waits::Gated) => Waits::Refused,
                    ("SchedulingGated", Waits::No) => Waits::Gated,
                    _ => *waits,
                };
            }
            if node(&pod).is_some() {
                self.bound.entry(name.to_owned()).or_insert_with(|| (*waits, since.elapsed()));
            }
        }
        if node(&pod).is_none() {
            return;
        }
        self.live.insert(name.to_owned(), pod);
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in self.live.values() {
            let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            let claims = volumes.filter_map(|of| of.persistent_volume_claim.as_ref());
            let run = pod.labels().get("tekton.dev/pipelineRun").cloned();
            for user in claims.map(|claim| claim.claim_name.clone()).chain(run) {
                uses.entry(user).or_default().extend(node(pod));
            }
        }
        let apart = uses.into_iter().filter(|(_, nodes)| nodes.len() > 1);
        self.apart.extend(apart.map(|(user, nodes)| format!("{user} is on {nodes:?}")));
    }

    fn print(&self, arm: &str, runs: usize, took: Duration, moved: usize, size: u64) {
        let share = self.reserved / (took.as_secs_f64() * size as f64);
        eprintln!(
            "  {arm}: {runs} runs in {:.0} s; {} claims or runs on two nodes; {moved} moves so far; placeholders held \
             {:.1} % of the processors",
            took.as_secs_f64(),
            self.apart.len(),
            share * 100.0,
        );
        for (of, text) in [
            (Waits::First, "first pods of runs"),
            (Waits::No, "later pods that did not wait"),
            (Waits::Gated, "later pods that were given room"),
            (Waits::Refused, "later pods that the scheduler refused"),
        ] {
            let bound = self.bound.values().filter(|(waits, _)| *waits == of);
            let mut times: Vec<_> = bound.map(|(_, waited)| waited.as_secs_f64()).collect();
            times.sort_by(f64::total_cmp);
            if let [.., worst] = times[..] {
                let (count, median) = (times.len(), times[times.len() / 2]);
                eprintln!("    {count} {text}: {median:.2} s to a node, at most {worst:.2} s");
            }
        }
    }
}

fn requested(pod: &Pod) -> f64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let cpus = containers
        .filter_map(|of| Some(millis(&of.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0)));
    cpus.sum::<u64>() as f64
}

async fn observe(pods: Api<Pod>, record: Arc<Mutex<Record>>) {
    let mut events = pin!(watcher(pods, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let (pod, is_there) = match event {
            watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => (pod, true),
            watcher::Event::Delete(pod) => (pod, false),
            watcher::Event::Init | watcher::Event::InitDone => continue,
        };
        let name = pod.name_any();
        record.lock().unwrap().see(&name, Some(pod).filter(|_| is_there));
    }
}
