//! What a load feels: pods per second until the last pod has its node, with everything at work: API
//! server, webhook, controller, the StatefulSet controller and the scheduler.
//!
//! Groups arrive at once, and without placeholders: their members are created, the controller creates
//! the placeholders, these are placed, and under `binding: node` the gates are removed. Once this is
//! measured from the first creation on, and once from the moment when all pods exist: until then the
//! scheduler and the StatefulSet controller are paused. Watches show when each step happened, and the
//! kernel which process needed how much processor time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use futures::{StreamExt as _, future};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use stowplan::testing::systems::coschedule::keys::{GROUP, MEMBER, PLACEHOLDER};
use testbed::control_plane::{ControlPlane, NodeSpec};
use testbed::wait::{Seen, until};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Extent;
use crate::cluster::{Binding, CLASS, Cluster, apart};
use crate::plane::{CONTROLLER, LIMIT, NAMESPACE, at_once, leading, metric};
use crate::schedule::{Bench, SIZE, spread};
use crate::table::{Table, count, ratio};

/// The label of the pods that arrive.
const ARRIVING: &str = "bench=arriving";

/// The field manager of the controller's writes.
const MANAGER: &str = "stowplan-controller";

const SCHEDULER: &str = "kube-scheduler";

/// The StatefulSet controller is one of its controllers.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Before paused processes go on: until others have done what the pods made them do.
const REST: Duration = Duration::from_secs(3);

const PLACED: &str = "spec.nodeName!=";

/// Whose pods arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Contender {
    /// Pods without a group.
    Without,
    ByTerm,
    /// By term, without a priority class of the placeholders.
    ByTermLast,
    /// By node, with a controller that writes 50 times per second.
    ByNodeAt50,
    ByNode,
    /// By node, and the placeholders have their nodes already.
    ByKnownNode,
}

impl Contender {
    const ALL: [Self; 6] = [
        Self::Without,
        Self::ByTermLast,
        Self::ByTerm,
        Self::ByNodeAt50,
        Self::ByNode,
        Self::ByKnownNode,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Without => "without a group",
            Self::ByTermLast => "`binding: affinity`, without a priority class",
            Self::ByTerm => "`binding: affinity`",
            Self::ByNodeAt50 => "`binding: node`, `--writes-per-second=50`",
            Self::ByNode => "`binding: node`",
            Self::ByKnownNode => "`binding: node`, placeholders have nodes",
        }
    }

    /// How its pods are bound to their placeholders; none, if they have no group.
    fn binding(self) -> Option<Binding> {
        match self {
            Self::Without => None,
            Self::ByTerm | Self::ByTermLast => Some(Binding::Affinity),
            Self::ByNodeAt50 | Self::ByNode | Self::ByKnownNode => Some(Binding::Node),
        }
    }

    /// The priority class of its placeholders.
    fn class(self) -> &'static str {
        if self == Self::ByTermLast { "" } else { CLASS }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::ByNodeAt50 => &["--writes-per-second=50"],
            _ => &[],
        }
    }
}

/// Starts a control plane, measures on it, and stops it even after an error.
pub(crate) async fn measure(extent: Extent) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(NodeSpec::numbered(extent.nodes), extent.own_limits).await?;
    let measured = both(&mut cluster, extent).await;
    cluster.stop(measured.is_err()).await;
    for (start, rounds) in measured? {
        print(extent, start, &rounds);
    }
    Ok(())
}

/// From when on is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Start {
    FirstCreation,
    /// All pods exist, and no placeholder has a pod.
    AllCreated,
}

impl Start {
    fn label(self) -> &'static str {
        match self {
            Self::FirstCreation => "from the first creation on",
            Self::AllCreated => "from when all pods exist on",
        }
    }
}

async fn both(cluster: &mut Cluster, extent: Extent) -> anyhow::Result<Vec<(Start, Vec<Round>)>> {
    let mut measured = Vec::new();
    for start in [Start::AllCreated, Start::FirstCreation] {
        measured.push((start, rounds(cluster, extent, start).await?));
    }
    Ok(measured)
}

async fn rounds(cluster: &mut Cluster, extent: Extent, start: Start) -> anyhow::Result<Vec<Round>> {
    let mut rounds = Vec::new();
    for number in 0..extent.rounds {
        let mut contenders = Contender::ALL;
        contenders.rotate_left(number % Contender::ALL.len());
        let mut round = Round::new();
        for contender in contenders {
            cluster.installation.stop_controller(CONTROLLER).await?;
            cluster.installation.set_controller_flags(contender.flags());
            cluster.installation.start_controller_through(CONTROLLER, &cluster.proxy).await?;
            leading(&cluster.installation).await?;
            cluster.installation.leader_known().await?;
            let bench = Bench { cluster, groups: extent.groups };
            round.insert(contender.label(), turn(&bench, contender, start).await?);
        }
        rounds.push(round);
    }
    Ok(rounds)
}

/// The pods of a contender, from the first creation until each has its node and is deleted again.
async fn turn(bench: &Bench<'_>, contender: Contender, start: Start) -> anyhow::Result<Arrival> {
    let cluster = bench.cluster;
    if contender == Contender::ByKnownNode {
        bench.gather().await?;
    }
    if let Some(binding) = contender.binding() {
        cluster.bind_with(binding, contender.class()).await?;
    }
    if start == Start::AllCreated {
        cluster.plane.pause(SCHEDULER).await?;
        cluster.plane.pause(CONTROLLER_MANAGER).await?;
    }
    let mut before = Written::read(cluster).await?;
    let mut busy = processor_time(&cluster.plane);
    let watches = Watches::follow(cluster);
    let pods = bench.groups * SIZE;
    let is_grouped = contender.binding().is_some();
    let mut began = Instant::now();
    let each = (0..pods).map(|pod| bench.create(pod / SIZE, pod % SIZE, ARRIVING, is_grouped));
    at_once(each).await?;
    let created = began.elapsed();
    if start == Start::AllCreated {
        sleep(REST).await;
        before = Written::read(cluster).await?;
        busy = processor_time(&cluster.plane);
        began = Instant::now();
        cluster.plane.resume(CONTROLLER_MANAGER)?;
        cluster.plane.resume(SCHEDULER)?;
    }
    until(&format!("{pods} pods of {NAMESPACE} to be placed"), LIMIT, async || {
        cluster.plane.check()?;
        let placed = watches.log().pods.values().filter(|pod| pod.placed.is_some()).count();
        Ok(if placed == pods { Seen::Done(()) } else { Seen::NotYet(placed.to_string()) })
    })
    .await?;
    let log = watches.end().await;
    let written = Written::read(cluster).await?.since(before);
    let mut used = processor_time(&cluster.plane);
    for (process, seconds) in &mut used {
        *seconds -= busy.get(process).copied().unwrap_or_default();
    }

    let arriving = ListParams::default().labels(ARRIVING);
    if is_grouped {
        let group_of = |pod: &Pod| pod.metadata.annotations.as_ref()?.get(GROUP).cloned();
        let groups = cluster.groups(&arriving, group_of).await?;
        ensure!(groups.len() == bench.groups, "{} groups were placed", groups.len());
        ensure!(apart(&groups) == 0, "{} pods are not with their group", apart(&groups));
    }
    bench.delete(&arriving).await?;
    bench.disperse().await?;
    let arrival = Arrival { used, ..Arrival::read(&log, began, created, written) };
    let (rate, gated) = (count(arrival.rate), arrival.gated);
    eprintln!("{}, {}: {rate} pods/s, {gated} changed", start.label(), contender.label());
    Ok(arrival)
}

/// What the controller has written.
#[derive(Clone, Copy, Debug)]
struct Written {
    requests: f64,
    /// How long its limit made these requests wait, in seconds, all together.
    waited: f64,
    /// How long it computed plans, in seconds.
    planned: f64,
    plans: f64,
}

impl Written {
    async fn read(cluster: &Cluster) -> anyhow::Result<Self> {
        let read = |name: &'static str| metric(&cluster.installation, name);
        Ok(Self {
            requests: read("stowplan_controller_limit_wait_seconds_count").await?,
            waited: read("stowplan_controller_limit_wait_seconds_sum").await?,
            planned: read("stowplan_controller_plan_duration_seconds_sum").await?,
            plans: read("stowplan_controller_plan_duration_seconds_count").await?,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            waited: self.waited - before.waited,
            planned: self.planned - before.planned,
            plans: self.plans - before.plans,
        }
    }
}

/// The names of the processes, as the kernel cuts them, and as they are shown.
const PROCESSES: [(&str, &str); 7] = [
    ("kube-apiserver", "API server"),
    ("etcd", "etcd"),
    ("kube-scheduler", "scheduler"),
    ("kube-controller", "controller manager"),
    ("kwok", "kwok"),
    ("stowplan webhook", "webhook"),
    ("stowplan controller", "controller"),
];

/// The kernel's unit of processor time, on all Linux machines.
const TICKS: f64 = 100.0;

/// The processor time of each process of a control plane, in seconds, and of this process.
fn processor_time(plane: &ControlPlane) -> HashMap<&'static str, f64> {
    let directory = plane.dir().display().to_string();
    let read = |pid: &str, file: &str| {
        std::fs::read(format!("/proc/{pid}/{file}"))
            .map(|text| String::from_utf8_lossy(&text).replace('\0', " "))
    };
    let time = |pid: &str| {
        let stat = read(pid, "stat").ok()?;
        let (head, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split(' ').collect();
        let ticks = |field: usize| fields.get(field)?.parse::<f64>().ok();
        Some((head.split_once('(')?.1.to_owned(), (ticks(11)? + ticks(12)?) / TICKS))
    };
    let mut times = HashMap::new();
    if let Some((_, seconds)) = time("self") {
        times.insert(BENCH, seconds);
    }
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().into_string().ok()) {
        let (Ok(command), Ok(variables)) = (read(&pid, "cmdline"), read(&pid, "environ")) else {
            continue;
        };
        if !command.contains(&directory) && !variables.contains(&directory) {
            continue;
        }
        let Some((name, seconds)) = time(&pid) else { continue };
        let shown = PROCESSES.iter().find(|(process, _)| match process.split_once(' ') {
            Some((program, kind)) => name == program && command.contains(&format!(" {kind} ")),
            None => name == *process,
        });
        if let Some((_, shown)) = shown {
            *times.entry(shown).or_default() += seconds;
        }
    }
    times
}

/// The bench itself: it creates the pods, watches them, and passes on the controller's requests.
const BENCH: &str = "bench";

/// When the steps of a member were seen.
#[derive(Debug, Default)]
struct Member {
    placeholder: Option<String>,
    created: Option<Instant>,
    /// When its gate was removed: when the controller first wrote it.
    released: Option<Instant>,
    placed: Option<Instant>,
}

/// When the steps of a placeholder were seen.
#[derive(Debug, Default)]
struct Steps {
    set: Option<Instant>,
    pod: Option<Instant>,
    placed: Option<Instant>,
}

/// What the watches have shown, by name.
#[derive(Debug, Default)]
struct Log {
    pods: HashMap<String, Member>,
    placeholders: HashMap<String, Steps>,
}

/// Watches of the objects' metadata: little to decode, so that it is not the watches that are measured.
struct Watches {
    log: Arc<Mutex<Log>>,
    tasks: JoinSet<()>,
}

impl Watches {
    fn follow(cluster: &Cluster) -> Self {
        let mut watches = Self { log: Arc::default(), tasks: JoinSet::new() };
        watches.add::<Pod>(cluster, ARRIVING, None, |log, pod, now| {
            let of = log.pods.entry(pod.name_any()).or_default();
            of.created.get_or_insert(now);
            of.placeholder = pod.labels().get(MEMBER).cloned();
            let mut managers = pod.managed_fields().iter().map(|fields| fields.manager.as_deref());
            if managers.any(|manager| manager == Some(MANAGER)) {
                of.released.get_or_insert(now);
            }
        });
        watches.add::<Pod>(cluster, ARRIVING, Some(PLACED), |log, pod, now| {
            log.pods.entry(pod.name_any()).or_default().placed.get_or_insert(now);
        });
        watches.add::<StatefulSet>(cluster, PLACEHOLDER, None, |log, set, now| {
            log.placeholders.entry(set.name_any()).or_default().set.get_or_insert(now);
        });
        watches.add::<Pod>(cluster, PLACEHOLDER, None, |log, pod, now| {
            let Some(name) = pod.labels().get(PLACEHOLDER) else { return };
            log.placeholders.entry(name.clone()).or_default().pod.get_or_insert(now);
        });
        watches.add::<Pod>(cluster, PLACEHOLDER, Some(PLACED), |log, pod, now| {
            let Some(name) = pod.labels().get(PLACEHOLDER) else { return };
            log.placeholders.entry(name.clone()).or_default().placed.get_or_insert(now);
        });
        watches
    }

    fn add<K>(
        &mut self,
        cluster: &Cluster,
        labels: &str,
        fields: Option<&str>,
        note: impl Fn(&mut Log, &PartialObjectMeta<K>, Instant) + Send + 'static,
    ) where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + Send + Sync + serde::de::DeserializeOwned + 'static,
    {
        let mut config = watcher::Config::default().labels(labels);
        if let Some(fields) = fields {
            config = config.fields(fields);
        }
        let api = Api::<PartialObjectMeta<K>>::namespaced(cluster.client.clone(), NAMESPACE);
        let log = Arc::clone(&self.log);
        let seen = watcher(api, config).default_backoff().touched_objects();
        self.tasks.spawn(seen.for_each(move |object| {
            if let Ok(object) = object {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                note(&mut log, &object, Instant::now());
            }
            future::ready(())
        }));
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops watching.
    async fn end(mut self) -> Log {
        self.tasks.shutdown().await;
        std::mem::take(&mut self.log())
    }
}

/// The figures of one contender in one round.
struct Arrival {
    /// Pods per second, from the first creation until the last has its node.
    rate: f64,
    /// Until all were created.
    created: Duration,
    gated: usize,
    stages: [Option<Duration>; STAGES.len()],
    written: Written,
    /// The processor time of each process.
    used: HashMap<&'static str, f64>,
}

type Round = HashMap<&'static str, Arrival>;

/// The steps from a pod to its node, of each group or of each pod. Medians.
const STAGES: [&str; 6] = [
    "first pod → StatefulSet",
    "→ its pod",
    "→ its node",
    "→ gate removed (woken)",
    "→ pod's node",
    "pod → its node",
];

impl Arrival {
    fn read(log: &Log, began: Instant, created: Duration, written: Written) -> Self {
        let pods = || log.pods.values();
        let last = pods().filter_map(|pod| pod.placed).max().unwrap_or(began);
        let gated = pods().filter(|pod| pod.released.is_some()).count();
        let mut first: HashMap<&str, Instant> = HashMap::new();
        for pod in pods() {
            if let (Some(placeholder), Some(created)) = (&pod.placeholder, pod.created) {
                let known = first.entry(placeholder).or_insert(created);
                *known = created.min(*known);
            }
        }
        // What was there before took no time, and paused processes had no turn.
        let between = |from: Option<Instant>, to: Option<Instant>| {
            Some(to?.saturating_duration_since(from?.max(began)))
        };
        let of_groups = |step: &dyn Fn(Instant, &Steps) -> Option<Duration>| {
            median(
                first.iter().filter_map(|(name, first)| step(*first, log.placeholders.get(*name)?)),
            )
        };
        let stages = [
            of_groups(&|first, of| between(Some(first), of.set)),
            of_groups(&|_, of| between(of.set, of.pod)),
            of_groups(&|_, of| between(of.pod, of.placed)),
            median(pods().filter_map(|pod| {
                let of = log.placeholders.get(pod.placeholder.as_deref()?)?;
                between(of.placed.max(pod.created), pod.released)
            })),
            median(pods().filter_map(|pod| between(pod.released, pod.placed))),
            median(pods().filter_map(|pod| between(pod.created, pod.placed))),
        ];
        let rate = log.pods.len() as f64 / (last - began).as_secs_f64();
        Self { rate, created, gated, stages, written, used: HashMap::new() }
    }
}

fn median(values: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

fn print(extent: Extent, start: Start, rounds: &[Round]) {
    let of =
        |contender: Contender| rounds.iter().filter_map(move |round| round.get(contender.label()));
    let decimal = |value: f64| format!("{value:.1}");
    let all = extent.groups * SIZE;
    let load = format!(
        "{}, {} pods in {} groups, {} nodes; median of {} rounds",
        start.label(),
        count(all as f64),
        extent.groups,
        count(f64::from(extent.nodes)),
        rounds.len(),
    );
    let mut table = Table::new(&[
        "pods",
        "pods/s",
        "against without a group, same round",
        "all created, s",
        "changed by the controller",
        "requests of the controller",
        "waited for its limit, ms each",
        "plans",
        "ms a plan",
    ]);
    for contender in Contender::ALL {
        let spread_of = |value: fn(&Arrival) -> f64, shown: &dyn Fn(f64) -> String| {
            spread(of(contender).map(value).collect(), shown)
        };
        let against = of(contender).zip(of(Contender::Without));
        let against = against.map(|(arrival, base)| arrival.rate / base.rate).collect();
        table.row([
            contender.label().to_owned(),
            spread_of(|of| of.rate, &count),
            spread(against, ratio),
            spread_of(|of| of.created.as_secs_f64(), &decimal),
            spread_of(|of| of.gated as f64, &count),
            spread_of(|of| of.written.requests, &count),
            spread_of(|of| of.written.waited / of.written.requests.max(1.0) * 1e3, &decimal),
            spread_of(|of| of.written.plans, &count),
            spread_of(|of| of.written.planned / of.written.plans.max(1.0) * 1e3, &decimal),
        ]);
    }
    table.print(&format!("Pods per second {load} (range)"));

    let mut table = Table::new(&[&["pods"][..], &STAGES].concat());
    for contender in Contender::ALL {
        let stages = (0..STAGES.len()).map(|stage| {
            let times = of(contender).filter_map(|arrival| arrival.stages[stage]);
            median(times).map_or_else(|| "-".to_owned(), |time| count(time.as_secs_f64() * 1e3))
        });
        table.row([contender.label().to_owned()].into_iter().chain(stages));
    }
    table.print(&format!("Milliseconds of each step, median of the groups or pods, {load}"));

    let processes: Vec<&str> = PROCESSES.iter().map(|(_, shown)| *shown).chain([BENCH]).collect();
    let mut table = Table::new(&[&["pods"], &processes[..]].concat());
    for contender in Contender::ALL {
        let used = processes.iter().map(|process| {
            let mut used: Vec<_> =
                of(contender).filter_map(|arrival| arrival.used.get(process).copied()).collect();
            used.sort_by(f64::total_cmp);
            used.get(used.len() / 2).map_or_else(|| "-".to_owned(), |used| decimal(*used))
        });
        table.row([contender.label().to_owned()].into_iter().chain(used));
    }
    table.print(&format!("Seconds of processor time, {load}"));
}
